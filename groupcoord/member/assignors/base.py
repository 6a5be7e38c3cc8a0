"""Interface of client-side assignors, their inputs, and functions that they share.

An assignor runs in the leader of a group and computes all assignments from the topics of the cluster and the
subscriptions of the members. It does no I/O. Source: ``ConsumerPartitionAssignor`` of Kafka's Java client.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from types import MappingProxyType
from typing import Protocol
from uuid import UUID

from attrs import field, frozen

from groupcoord.core.consumer_protocol import Assignment, Subscription
from groupcoord.core.javacompat.hashing import hash_map_order, string_sort_key
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
        """Validate the number of racks.

        Raises:
            ValueError: the count is negative, or the number of racks differs from it.
        """
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
    """Return the subscribed topics that have partitions, in the order of Java's maps.

    Args:
        cluster: all topics.
        subscriptions: by member id.
        visiting_order: the member ids in the order of a Java ``HashMap``.
    """
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
    """Return the racks of each partition's replicas."""
    if topic.replica_racks is None:
        return [frozenset()] * topic.partition_count
    return [frozenset(rack for rack in racks if rack is not None) for racks in topic.replica_racks]


def members_in_order(subscriptions: Mapping[str, Subscription], visiting_order: list[str]) -> list[str]:
    """Return the member ids: static members by instance id, then dynamic members by member id.

    Args:
        subscriptions: by member id.
        visiting_order: the order among members with the same instance id.
    """

    def place(member_id: str) -> tuple[bool, bytes]:
        instance_id = subscriptions[member_id].group_instance_id
        return instance_id is None, string_sort_key(member_id if instance_id is None else instance_id)

    return sorted(visiting_order, key=place)


def subscribers_by_topic(subscriptions: Mapping[str, Subscription], members: list[str]) -> dict[str, tuple[int, ...]]:
    """Return for each topic the ascending indexes in ``members`` of its subscribers.

    Members with equal subscriptions are handled together, and topics with the same subscribers share one tuple.
    """
    alike: dict[tuple[str, ...], list[int]] = {}
    for position, member_id in enumerate(members):
        alike.setdefault(subscriptions[member_id].topics, []).append(position)
    crowds = list(alike.values())
    crowds_of: dict[str, list[int]] = {}
    for crowd, topics in enumerate(alike):
        for topic in dict.fromkeys(topics):
            crowds_of.setdefault(topic, []).append(crowd)
    merged: dict[tuple[int, ...], tuple[int, ...]] = {}
    subscribers: dict[str, tuple[int, ...]] = {}
    for topic, chosen in crowds_of.items():
        key = tuple(chosen)
        if key not in merged:
            merged[key] = tuple(sorted(position for crowd in chosen for position in crowds[crowd]))
        subscribers[topic] = merged[key]
    return subscribers
