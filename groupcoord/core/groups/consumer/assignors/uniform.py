"""The uniform assignor: as many partitions for everybody, and everybody keeps what it had as far as that allows."""

from __future__ import annotations

from itertools import islice
from uuid import UUID

from groupcoord.core.groups.base.assignor import (
    GroupAssignment,
    GroupSpec,
    PartitionAssignorError,
    Partitions,
    SubscriptionType,
)
from groupcoord.core.groups.consumer.assignors.draft import DEFAULT_BUCKETS, AssignmentDraft, partitions_in_order
from groupcoord.core.groups.consumer.assignors.uniform_heterogeneous import HeterogeneousAssignment
from groupcoord.core.javacompat.hashing import HashTable, buckets_of_copy, uuid_hash


class UniformAssignor:
    """Balances over all topics together, and moves as few partitions as it can.

    If all members subscribe to the same topics, nobody has two partitions more than another. Otherwise partitions go to
    whoever has the fewest of those that want them. Racks don't count. Where several members are equally entitled, the
    first in ``visiting_order`` is served first. Source: ``UniformAssignor`` of Kafka's group coordinator.
    """

    name = "uniform"

    def assign(self, group: GroupSpec) -> GroupAssignment:
        """Return each member's partitions.

        Raises:
            PartitionAssignorError: a member subscribes to a topic that doesn't exist, or what the members had before
                doesn't fit the topics there are.
        """
        if not group.members:
            return {}
        if group.subscription_type is SubscriptionType.HOMOGENEOUS:
            return _HomogeneousAssignment(group).build()
        return HeterogeneousAssignment(group).build()


class _HomogeneousAssignment:
    """Works out the assignment of a group in which all members subscribe to the same topics.

    Members keep what they have up to their quota; what is left over goes to those below it, in turn. Source:
    ``UniformHomogeneousAssignmentBuilder`` of Kafka's group coordinator.
    """

    def __init__(self, group: GroupSpec) -> None:
        self._group = group
        wanted = group.members[group.visiting_order[0]].topic_ids
        buckets = max(DEFAULT_BUCKETS, buckets_of_copy(len(wanted)))
        self._topics = dict.fromkeys(HashTable(uuid_hash, wanted, buckets))
        self._assignment: dict[str, Partitions] = {}
        self._drafts: dict[str, AssignmentDraft] = {}
        self._below_quota: list[tuple[str, int]] = []
        self._unassigned: list[tuple[UUID, int]] = []

    def build(self) -> GroupAssignment:
        """Return the assignment.

        Raises:
            PartitionAssignorError: a topic doesn't exist, or more is left over than the quotas have room for.
        """
        if not self._topics:
            return {}
        partition_count = self._find_unassigned()
        self._keep_assigned(*divmod(partition_count, len(self._group.members)))
        self._assign_rest()
        self._assignment.update((member_id, draft.result()) for member_id, draft in self._drafts.items())
        return self._assignment

    def _find_unassigned(self) -> int:
        """Collect the partitions that no member has, and return how many partitions there are."""
        taken: dict[UUID, set[int]] = {topic_id: set() for topic_id in self._topics}
        for member in self._group.members.values():
            for topic_id, partitions in member.assigned.items():
                if topic_id in taken:
                    taken[topic_id].update(partitions)
        total = 0
        for topic_id, numbers in taken.items():
            partition_count = self._group.partition_count(topic_id)
            total += partition_count
            if len(numbers) < partition_count:
                self._unassigned += [(topic_id, number) for number in range(partition_count) if number not in numbers]
        return total

    def _keep_assigned(self, quota: int, larger_shares: int) -> None:
        """Let members keep what they have up to their quota.

        The first who can use them get the larger shares; the last get them for sure, as there is nobody else left.
        """
        members_left = len(self._group.members)
        for member_id in self._group.visiting_order:
            assigned = self._assignment[member_id] = self._group.members[member_id].assigned
            has_larger_share = larger_shares > 0
            room = quota + has_larger_share
            size = sum(map(len, assigned.values()))
            if size <= room and self._topics.keys() >= assigned.keys():
                room -= size
            else:
                room = self._trim(member_id, room)
            if room and has_larger_share and members_left > larger_shares:
                room -= 1
                has_larger_share = False
            if room:
                self._below_quota.append((member_id, room))
            larger_shares -= has_larger_share
            members_left -= 1

    def _trim(self, member_id: str, room: int) -> int:
        """Take away what is not wanted or beyond the quota, and return how much room is left."""
        assigned = self._assignment[member_id]
        draft = self._drafts[member_id] = AssignmentDraft(assigned)
        for topic_id in draft.topics_in_order():
            partitions = assigned[topic_id]
            if topic_id not in self._topics:
                draft.drop_topic(topic_id)
            elif len(partitions) <= room:
                room -= len(partitions)
            else:
                for partition in list(partitions_in_order(partitions))[room:]:
                    draft.remove(topic_id, partition)
                    self._unassigned.append((topic_id, partition))
                room = 0
        return room

    def _assign_rest(self) -> None:
        rest = iter(self._unassigned)
        for member_id, room in self._below_quota:
            draft = self._drafts.get(member_id)
            if draft is None:
                draft = self._drafts[member_id] = AssignmentDraft(self._assignment[member_id])
            for topic_id, partition in islice(rest, room):
                draft.add(topic_id, partition)
        if next(rest, None) is not None:
            raise PartitionAssignorError("more partitions are left over than the members' quotas have room for")
