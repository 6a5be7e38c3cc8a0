"""Range assignor: each member gets consecutive partitions of each topic."""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Iterable, Iterator, Mapping
from itertools import islice

from groupcoord.core.consumer_protocol import Assignment, Subscription, TopicPartition
from groupcoord.core.javacompat.hashing import hash_map_order, string_sort_key
from groupcoord.member.assignors.base import (
    Cluster,
    ClusterTopic,
    StatelessAssignor,
    are_racks_useful,
    members_in_order,
    racks_by_partition,
    subscribed_topics,
    subscribers_by_topic,
)


class RangeAssignor(StatelessAssignor):
    """Divides each topic separately: members in order, partitions in order, the first members get one more.

    With racks, members first get partitions with a replica in their rack, as far as the balance of each topic allows
    (KIP-881). Topics with the same subscribers and partition count stay co-partitioned: partition 3 of each goes to the
    same member. Source: ``RangeAssignor`` of Kafka's Java client.
    """

    name = "range"

    def assign(self, cluster: Cluster, subscriptions: Mapping[str, Subscription]) -> dict[str, Assignment]:
        """Return the assignment of each member."""
        visiting_order = hash_map_order(subscriptions)
        members = members_in_order(subscriptions, visiting_order)
        racks = [subscriptions[member_id].rack_id or None for member_id in members]
        subscribers = subscribers_by_topic(subscriptions, members)
        topics = [
            _TopicShares(name, topic, subscribers[name], racks)
            for name, topic in subscribed_topics(cluster, subscriptions, visiting_order).items()
        ]
        assigned: list[list[TopicPartition]] = [[] for _ in members]
        are_racks_used = any(topic.are_racks_useful for topic in topics)
        if are_racks_used:
            for alike in _co_partitioned(topics):
                _assign_by_rack(alike, assigned)
        for topic in topics:
            topic.assign_rest(assigned)
        if are_racks_used:
            ranks = {name: rank for rank, name in enumerate(sorted((t.name for t in topics), key=string_sort_key))}
            for partitions in assigned:
                partitions.sort(key=lambda held: (ranks[held.topic], held.partition))
        by_id = dict(zip(members, assigned, strict=True))
        return {member_id: Assignment(tuple(by_id[member_id])) for member_id in subscriptions}


class _TopicShares:
    """One topic during the assignment: the quota of each member, and the remaining partitions."""

    def __init__(self, name: str, topic: ClusterTopic, subscribers: tuple[int, ...], racks: list[str | None]) -> None:
        self.name = name
        self.partition_count = topic.partition_count
        self.subscribers = subscribers
        self.racks = racks
        self.are_racks_useful = False
        self.replica_racks: list[frozenset[str]] = []
        self._quota, self._larger_shares = divmod(topic.partition_count, len(subscribers))
        self._shares: defaultdict[int, int] = defaultdict(int)
        self._is_assigned = bytearray(topic.partition_count)
        self._left = topic.partition_count
        member_racks = {rack for member in subscribers if (rack := racks[member]) is not None}
        if member_racks:
            self.replica_racks = racks_by_partition(topic)
            all_racks = set().union(*self.replica_racks)
            self.are_racks_useful = are_racks_useful(member_racks, all_racks, self.replica_racks)

    def room(self, member: int) -> int:
        """Return how many partitions a member may still get."""
        return max(0, self._quota + (self._larger_shares > 0) - self._shares[member])

    def give(self, member: int, partitions: list[int], assigned: list[list[TopicPartition]]) -> None:
        """Assign partitions to a member."""
        assigned[member] += [TopicPartition(self.name, partition) for partition in partitions]
        self._shares[member] += len(partitions)
        if self._shares[member] > self._quota:
            self._larger_shares -= 1
        for partition in partitions:
            self._is_assigned[partition] = True
        self._left -= len(partitions)

    def assign_matching(self, assigned: list[list[TopicPartition]]) -> None:
        """Assign partitions with a replica in the member's rack; a member without a rack takes any."""
        matching: defaultdict[str | None, list[int]] = defaultdict(list)
        for partition, racks in enumerate(self.replica_racks):
            for rack in (None, *racks):
                matching[rack].append(partition)
        queues = {rack: iter(partitions) for rack, partitions in matching.items()}
        for member in self.subscribers:
            self._give_from(queues.get(self.racks[member], iter(())), member, assigned)

    def assign_rest(self, assigned: list[list[TopicPartition]]) -> None:
        """Assign the remaining partitions in order."""
        queue = iter(range(self.partition_count))
        for member in self.subscribers:
            if not self._left:
                break
            self._give_from(queue, member, assigned)

    def _give_from(self, queue: Iterator[int], member: int, assigned: list[list[TopicPartition]]) -> None:
        room = self.room(member)
        if room:
            taken = list(islice((partition for partition in queue if not self._is_assigned[partition]), room))
            if taken:
                self.give(member, taken, assigned)


def _co_partitioned(topics: list[_TopicShares]) -> Iterable[list[_TopicShares]]:
    """Group the topics that have the same subscribers and the same number of partitions with known racks."""
    groups: dict[tuple[tuple[int, ...], int], list[_TopicShares]] = {}
    for topic in topics:
        groups.setdefault((topic.subscribers, len(topic.replica_racks)), []).append(topic)
    return groups.values()


def _assign_by_rack(topics: list[_TopicShares], assigned: list[list[TopicPartition]]) -> None:
    """Assign partitions by rack. Of co-partitioned topics a partition must have a replica in the
    rack in all of them.
    """
    first = topics[0]
    if len(topics) == 1:
        if first.are_racks_useful:
            first.assign_matching(assigned)
        return
    waiting: defaultdict[str | None, deque[int]] = defaultdict(deque)
    for member in first.subscribers:
        waiting[first.racks[member]].append(member)
    for partition in range(len(first.replica_racks)):
        shared = frozenset.intersection(*(topic.replica_racks[partition] for topic in topics))
        queues = [waiting[rack] for rack in (None, *shared) if rack in waiting]
        for queue in queues:
            # All topics of the group have equal quotas, so the first stands for all; a used quota never grows again.
            while queue and not first.room(queue[0]):
                queue.popleft()
        candidates = [queue[0] for queue in queues if queue]
        if candidates:
            member = min(candidates)
            for topic in topics:
                topic.give(member, [partition], assigned)
