"""What an assignor is: the interface that the member's state machine knows, what it is given, and what assignors share.

An assignor runs at the group's leader. From the cluster's topics and every member's subscription it makes every
member's assignment. It does no I/O. Source of the interface: ``ConsumerPartitionAssignor`` of Kafka's Java client.
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
    """How members behave in a rebalance (KIP-429)."""

    EAGER = 0
    """They give up all partitions before they join."""
    COOPERATIVE = 1
    """They keep their partitions, and give up those that they lost once they know the new assignment."""


class AssignmentError(GroupcoordError):
    """No assignment can be made from what the members claim to own. The Java client fails on such claims too."""


@frozen
class ClusterTopic:
    """One topic of the cluster.

    Attributes:
        partition_count: how many partitions it has, at least 0. A topic with none is treated as absent.
        replica_racks: for each partition the rack of each of its replicas, None for a replica without one; None if no
            replica of the topic has a rack.
        topic_id: what the coordinator of a consumer group (KIP-848) calls the topic; None if the broker told none.
            Assignors don't look at it.
    """

    partition_count: int
    replica_racks: tuple[tuple[str | None, ...], ...] | None = None
    topic_id: UUID | None = None

    def __attrs_post_init__(self) -> None:
        """Refuse racks that are not those of each partition.

        Raises:
            ValueError: the count is negative, or the racks are not as many as the partitions.
        """
        if self.partition_count < 0:
            raise ValueError(f"a topic can't have {self.partition_count} partitions")
        if self.replica_racks is not None and len(self.replica_racks) != self.partition_count:
            raise ValueError(f"racks of {len(self.replica_racks)} partitions for {self.partition_count} partitions")


_NO_IDS: Mapping[str, UUID] = MappingProxyType({})


@frozen
class Cluster:
    """The topics that an assignor may hand out, by name. A topic that is not here does not exist."""

    topics: Mapping[str, ClusterTopic] = field(factory=dict)

    @classmethod
    def of(cls, partition_counts: Mapping[str, int], topic_ids: Mapping[str, UUID] = _NO_IDS) -> Cluster:
        """Return a cluster without racks from the number of partitions of each topic, and the ids of topics."""
        return cls({name: ClusterTopic(count, None, topic_ids.get(name)) for name, count in partition_counts.items()})


class Assignor(Protocol):
    """A way to divide partitions among members. Each member has its own object, kept from rebalance to rebalance.

    Attributes:
        name: the protocol name under which a member offers it in a join, such as ``range``.
        supported_protocols: the rebalance protocols that work with it; a member uses the highest that all of its
            assignors support.
    """

    @property
    def name(self) -> str: ...

    @property
    def supported_protocols(self) -> tuple[RebalanceProtocol, ...]: ...

    def subscription_user_data(self, topics: tuple[str, ...]) -> bytes | None:
        """Return what goes into the user data of this member's subscription; None for nothing."""

    def on_assignment(self, assignment: Assignment, generation_id: int) -> None:
        """Take note of what this member was given, and in which generation."""

    def assign(self, cluster: Cluster, subscriptions: Mapping[str, Subscription]) -> dict[str, Assignment]:
        """Return each member's assignment; called at the leader only.

        Args:
            cluster: the topics there are. It may hold topics that nobody subscribes to.
            subscriptions: by member id, in the order of the join's answer.

        Returns:
            an assignment for every member, in the order of ``subscriptions``.

        Raises:
            AssignmentError: what the members claim to own contradicts itself beyond repair.
        """


class StatelessAssignor:
    """Base of assignors that look at subscriptions alone and know the eager protocol only."""

    supported_protocols = (RebalanceProtocol.EAGER,)

    def subscription_user_data(self, topics: tuple[str, ...]) -> bytes | None:
        """Return None: there is nothing to tell the leader."""
        return None

    def on_assignment(self, assignment: Assignment, generation_id: int) -> None:
        """Do nothing: the next assignment does not depend on this one."""


def subscribed_topics(
    cluster: Cluster, subscriptions: Mapping[str, Subscription], visiting_order: list[str]
) -> dict[str, ClusterTopic]:
    """Return the topics that somebody subscribes to and that have partitions, in the order of Java's maps.

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
    """Tell whether racks matter (KIP-881): members and replicas share one, and not every partition is in all."""
    return not member_racks.isdisjoint(replica_racks) and any(racks != replica_racks for racks in by_partition)


def racks_by_partition(topic: ClusterTopic) -> list[frozenset[str]]:
    """Return the racks in which each partition has a replica."""
    if topic.replica_racks is None:
        return [frozenset()] * topic.partition_count
    return [frozenset(rack for rack in racks if rack is not None) for racks in topic.replica_racks]


def members_in_order(subscriptions: Mapping[str, Subscription], visiting_order: list[str]) -> list[str]:
    """Return the member ids: static members by their instance id, then the others by member id.

    Args:
        subscriptions: by member id.
        visiting_order: the order that stays among members with the same instance id.
    """

    def place(member_id: str) -> tuple[bool, bytes]:
        instance_id = subscriptions[member_id].group_instance_id
        return instance_id is None, string_sort_key(member_id if instance_id is None else instance_id)

    return sorted(visiting_order, key=place)


def subscribers_by_topic(subscriptions: Mapping[str, Subscription], members: list[str]) -> dict[str, tuple[int, ...]]:
    """Return for each topic the positions in ``members`` of those who subscribe to it, ascending.

    Members with equal subscriptions are looked at together, and topics with the same subscribers share one list.
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
