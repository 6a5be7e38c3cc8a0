"""Interface of client-side assignors, and the range and round-robin assignors."""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict, deque
from collections.abc import Iterable, Iterator, Mapping
from enum import Enum
from itertools import islice
from types import MappingProxyType
from typing import Protocol
from uuid import UUID

from attrs import field, frozen

from groupcoord.core.consumer_protocol import Assignment, Subscription, TopicPartition
from groupcoord.core.javacompat import hash_map_order, string_sort_key
from groupcoord.errors import GroupcoordError


class RebalanceProtocol(Enum):
    """Behaviour of members in a rebalance (KIP-429)."""

    EAGER = 0
    """Members revoke all partitions before they join."""
    COOPERATIVE = 1
    """Members keep their partitions, and revoke the lost ones once they know the new assignment."""


class AssignmentError(GroupcoordError):
    """The partitions that members claim to own are inconsistent. The Java client fails on such claims, too."""


@frozen
class ClusterTopic:
    """A topic of the cluster.

    Attributes:
        partition_count: the number of its partitions. A topic with none counts as absent.
        replica_racks: for each partition the racks of its replicas, None for a replica without a rack. None if no
            replica of the topic has a rack.
        topic_id: the topic id, which consumer groups (KIP-848) use, or None. Assignors ignore it.
    """

    partition_count: int
    replica_racks: tuple[tuple[str | None, ...], ...] | None = None
    topic_id: UUID | None = None

    def __attrs_post_init__(self) -> None:
        if self.partition_count < 0:
            raise ValueError(f"a topic can't have {self.partition_count} partitions")
        if self.replica_racks is not None and len(self.replica_racks) != self.partition_count:
            raise ValueError(f"racks of {len(self.replica_racks)} partitions for {self.partition_count} partitions")


_NO_IDS: Mapping[str, UUID] = MappingProxyType({})


@frozen
class Cluster:
    """Topics that an assignor may assign, by name. A topic that is missing does not exist."""

    topics: Mapping[str, ClusterTopic] = field(factory=dict)

    @classmethod
    def of(cls, partition_counts: Mapping[str, int], topic_ids: Mapping[str, UUID] = _NO_IDS) -> Cluster:
        """Return a cluster without racks from the partition counts and ids of topics."""
        return cls({name: ClusterTopic(count, None, topic_ids.get(name)) for name, count in partition_counts.items()})


class Assignor(Protocol):
    """Algorithm that assigns partitions to members. Each member has its own object, which it keeps over rebalances.

    Attributes:
        name: the protocol name in JoinGroup, such as ``range``.
        supported_protocols: the rebalance protocols that it supports; a member uses the highest that all of its
            assignors support.
    """

    @property
    def name(self) -> str: ...

    @property
    def supported_protocols(self) -> tuple[RebalanceProtocol, ...]: ...

    def subscription_user_data(self, topics: tuple[str, ...]) -> bytes | None:
        """Return the user data of this member's subscription, or None."""

    def on_assignment(self, assignment: Assignment, generation_id: int) -> None:
        """Store the assignment of this member and its generation."""

    def assign(self, cluster: Cluster, subscriptions: Mapping[str, Subscription]) -> dict[str, Assignment]:
        """Return the assignment of each member; called in the leader only.

        Args:
            cluster: the topics, also those without subscribers.
            subscriptions: by member id, in the order of the JoinGroup response.

        Returns:
            An assignment for every member, in the order of ``subscriptions``.

        Raises:
            AssignmentError: the members' claims are inconsistent.
        """


class StatelessAssignor:
    """Base of eager assignors that depend on subscriptions alone."""

    supported_protocols = (RebalanceProtocol.EAGER,)

    def subscription_user_data(self, topics: tuple[str, ...]) -> bytes | None:
        """Return None: there is no user data."""
        return None

    def on_assignment(self, assignment: Assignment, generation_id: int) -> None:
        """Do nothing: assignments do not depend on earlier ones."""


def subscribed_topics(
    cluster: Cluster, subscriptions: Mapping[str, Subscription], visiting_order: list[str]
) -> dict[str, ClusterTopic]:
    different = dict.fromkeys(subscriptions[member_id].topics for member_id in visiting_order)
    names = hash_map_order(topic for topics in different for topic in topics)
    existing = [name for name in names if name in cluster.topics and cluster.topics[name].partition_count]
    return {name: cluster.topics[name] for name in hash_map_order(existing)}


def are_racks_useful(member_racks: set[str], replica_racks: set[str], by_partition: list[frozenset[str]]) -> bool:
    """Return whether racks matter (KIP-881): members and replicas share one, and not every
    partition is in all racks.
    """
    return not member_racks.isdisjoint(replica_racks) and any(racks != replica_racks for racks in by_partition)


def racks_by_partition(topic: ClusterTopic) -> list[frozenset[str]]:
    if topic.replica_racks is None:
        return [frozenset()] * topic.partition_count
    return [frozenset(rack for rack in racks if rack is not None) for racks in topic.replica_racks]


def members_in_order(subscriptions: Mapping[str, Subscription], visiting_order: list[str]) -> list[str]:
    def place(member_id: str) -> tuple[bool, bytes]:
        instance_id = subscriptions[member_id].group_instance_id
        return instance_id is None, string_sort_key(member_id if instance_id is None else instance_id)

    return sorted(visiting_order, key=place)


def subscribers_by_topic(subscriptions: Mapping[str, Subscription], members: list[str]) -> dict[str, tuple[int, ...]]:
    """Return for each topic the ascending indexes in ``members`` of its subscribers."""
    subscribers: defaultdict[str, list[int]] = defaultdict(list)
    for position, member_id in enumerate(members):
        for topic in dict.fromkeys(subscriptions[member_id].topics):
            subscribers[topic].append(position)
    return {topic: tuple(positions) for topic, positions in subscribers.items()}


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
        return max(0, self._quota + (self._larger_shares > 0) - self._shares[member])

    def give(self, member: int, partitions: list[int], assigned: list[list[TopicPartition]]) -> None:
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
    """Group topics with the same subscribers and, if these have racks, the same partition count."""
    groups: dict[tuple[tuple[int, ...], int], list[_TopicShares]] = {}
    for topic in topics:
        groups.setdefault((topic.subscribers, len(topic.replica_racks)), []).append(topic)
    return groups.values()


def _assign_by_rack(topics: list[_TopicShares], assigned: list[list[TopicPartition]]) -> None:
    """Assign partitions by rack. A partition of co-partitioned topics needs a replica in the rack in
    each topic.
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


class RoundRobinAssignor(StatelessAssignor):
    """Assigns the partitions of all topics to the members in turn, skipping members without a subscription to the
    topic.

    Static members come first, by instance id, then dynamic ones by member id. Source: ``RoundRobinAssignor`` of Kafka's
    Java client.
    """

    name = "roundrobin"

    def assign(self, cluster: Cluster, subscriptions: Mapping[str, Subscription]) -> dict[str, Assignment]:
        """Return the assignment of each member."""
        visiting_order = hash_map_order(subscriptions)
        members = members_in_order(subscriptions, visiting_order)
        topics = subscribed_topics(cluster, subscriptions, visiting_order)
        subscribers = subscribers_by_topic(subscriptions, members)
        assigned: list[list[TopicPartition]] = [[] for _ in members]
        following = 0
        for topic in sorted(topics, key=string_sort_key):
            of_topic = subscribers[topic]
            for partition in range(topics[topic].partition_count):
                turn = bisect_left(of_topic, following)
                member = of_topic[turn if turn < len(of_topic) else 0]
                assigned[member].append(TopicPartition(topic, partition))
                following = member + 1
        by_id = dict(zip(members, assigned, strict=True))
        return {member_id: Assignment(tuple(by_id[member_id])) for member_id in subscriptions}
