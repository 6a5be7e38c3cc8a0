"""The range assignor: of each topic, each member gets a run of neighbouring partitions."""

from __future__ import annotations

from uuid import UUID

from groupcoord.core.groups.base.assignor import GroupAssignment, GroupSpec, Partitions, SubscriptionType
from groupcoord.core.javacompat.hashing import HashTable, buckets_of_copy, string_sort_key, uuid_hash


class RangeAssignor:
    """Divides each topic by itself: members in order, partitions in order, the first few members get one more.

    Static members come first, by instance id, then the others by member id. What a member had before doesn't count.
    Racks don't either. Source: ``RangeAssignor`` of Kafka's group coordinator.
    """

    name = "range"

    def assign(self, group: GroupSpec) -> GroupAssignment:
        """Return each member's partitions.

        Raises:
            PartitionAssignorError: a member subscribes to a topic that doesn't exist.
        """
        if not group.members:
            return {}
        members = sorted(
            group.visiting_order, key=lambda member_id: _place(member_id, group.members[member_id].instance_id)
        )
        wanted = {member_id: group.members[member_id].topic_ids for member_id in members}
        if group.subscription_type is SubscriptionType.HOMOGENEOUS:
            wanted = dict.fromkeys(members, wanted[members[0]])
        subscribers: dict[UUID, int] = {}
        for topic_ids in wanted.values():
            for topic_id in topic_ids:
                subscribers[topic_id] = subscribers.get(topic_id, 0) + 1
        runs = {topic_id: _Runs(group.partition_count(topic_id), count) for topic_id, count in subscribers.items()}
        orders = {topic_ids: _map_order(topic_ids) for topic_ids in set(wanted.values())}
        return {member_id: _next_runs(orders[topic_ids], runs) for member_id, topic_ids in wanted.items()}


def _place(member_id: str, instance_id: str | None) -> tuple[bool, bytes]:
    return instance_id is None, string_sort_key(member_id if instance_id is None else instance_id)


def _map_order(topic_ids: tuple[UUID, ...]) -> list[UUID]:
    """Return topics in the order of the Java map that holds what a member gets of them."""
    return list(HashTable(uuid_hash, topic_ids, buckets_of_copy(len(topic_ids))))


def _next_runs(topic_ids: list[UUID], runs: dict[UUID, _Runs]) -> Partitions:
    taken = ((topic_id, runs[topic_id].take()) for topic_id in topic_ids)
    return {topic_id: run for topic_id, run in taken if run}


class _Runs:
    """The partitions of one topic, handed out in order to its subscribers."""

    def __init__(self, partition_count: int, subscribers: int) -> None:
        self._quota, self._larger = divmod(partition_count, subscribers)
        self._next = 0

    def take(self) -> tuple[int, ...]:
        start = self._next
        self._next += self._quota + (self._larger > 0)
        self._larger -= 1
        return tuple(range(start, self._next))
