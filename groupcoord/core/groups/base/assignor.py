"""Interface of server-side assignors (KIP-848), and the target assignment that the group's assignor computes.

Sources: ``ConsumerGroupPartitionAssignor``, ``GroupSpec`` and ``TargetAssignmentBuilder`` of Kafka's group coordinator.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from enum import Enum
from typing import TYPE_CHECKING, Protocol
from uuid import UUID

from attrs import field

from groupcoord.core.fast_construct import frozen, plain_members
from groupcoord.core.javacompat import hash_map_order, timeline_map_order
from groupcoord.core.messages.request import RefusedError
from groupcoord.core.topics import Topic, subscribed_names
from groupcoord.errors import ErrorCode, GroupcoordError

if TYPE_CHECKING:
    from groupcoord.core.groups.consumer.records import ConsumerGroupMemberMetadataRecord
    from groupcoord.core.groups.share.records import ShareGroupMemberMetadataRecord

Partitions = Mapping[UUID, tuple[int, ...]]
"""Partitions by topic id, in the order of a record. Only in share groups a topic may have no partitions."""

GroupAssignment = Mapping[str, Partitions]
"""Partitions by member id. A member that is left out has none."""


class PartitionAssignorError(GroupcoordError):
    """No assignment is possible: the request fails, and nothing is written (Kafka's ``PartitionAssignorException``)."""


@plain_members
class SubscriptionType(Enum):
    """Equality of subscriptions: whether all members of a group subscribe to the same topics (Kafka's name)."""

    HOMOGENEOUS = "homogeneous"
    HETEROGENEOUS = "heterogeneous"


@frozen
class MemberSpec:
    """One member as an assignor sees it.

    Attributes:
        topic_ids: the existing topics that it subscribes to, by name or expression, once each, in an order that a
            restart does not change.
        assigned: its last target assignment, maybe with topics that it no longer subscribes to.
        instance_id: of a static member.
        rack_id: the member's rack, or None.
    """

    topic_ids: tuple[UUID, ...]
    assigned: Partitions = field(factory=dict)
    instance_id: str | None = None
    rack_id: str | None = None


@frozen
class GroupSpec:
    """One group as an assignor sees it.

    Attributes:
        members: by member id; the order of the mapping is irrelevant.
        subscription_type: whether the topics of all members are the same.
        topics: at least all topics that members subscribe to, by id.
        visiting_order: the member ids in the order in which Kafka's hash maps pass them to an assignor, which a restart
            does not change.
        assignable: the partitions by topic that may be assigned, in a share group the initialized ones; None: all.
    """

    members: Mapping[str, MemberSpec]
    subscription_type: SubscriptionType
    topics: Mapping[UUID, Topic]
    visiting_order: tuple[str, ...]
    assignable: Mapping[UUID, Collection[int]] | None = None

    def assignable_partitions(self, topic_id: UUID) -> Iterable[int]:
        """Return the assignable partitions of a topic in ascending order.

        Raises:
            PartitionAssignorError: the topic does not exist.
        """
        every = range(self.partition_count(topic_id))
        if self.assignable is None:
            return every
        chosen = self.assignable.get(topic_id, ())
        return [index for index in every if index in chosen]

    def partition_count(self, topic_id: UUID) -> int:
        """Return a topic's partition count.

        Raises:
            PartitionAssignorError: the topic does not exist.
        """
        topic = self.topics.get(topic_id)
        if topic is None:
            raise PartitionAssignorError(f"a member subscribes to topic {topic_id}, which does not exist")
        return topic.partition_count


class Assignor(Protocol):
    """Assignor of a consumer group or share group.

    It must be a pure function: neither randomness nor the order of a set or mapping may affect the result, so that a
    restart makes no difference.

    Attributes:
        name: the name that members select and administrators see.
    """

    @property
    def name(self) -> str: ...

    def assign(self, group: GroupSpec) -> GroupAssignment:
        """Return each member's partitions.

        Args:
            group: the members with their last assignment, and the topics.

        Raises:
            PartitionAssignorError: no assignment is possible.
        """


def subscription_type(
    member_count: int, by_name: Mapping[str, int], by_expression: Mapping[str, int]
) -> SubscriptionType:
    """Return whether all members of a group subscribe to the same topics, from counts alone as in Kafka.

    HOMOGENEOUS if all name the same topics and use no expression, or all use the same expression and name no topic.
    """
    # Also if the expression matches exactly these names: Kafka does not resolve it here.
    if by_name and by_expression:
        return SubscriptionType.HETEROGENEOUS
    counts = (by_expression or by_name).values()
    is_equal = set(counts) <= {member_count}
    return SubscriptionType.HOMOGENEOUS if is_equal else SubscriptionType.HETEROGENEOUS


def changed_targets(
    assignor: Assignor,
    members: Mapping[str, ConsumerGroupMemberMetadataRecord | ShareGroupMemberMetadataRecord],
    *,
    arrivals: Sequence[str],
    newcomer_id: str | None,
    targets: Mapping[str, Partitions],
    subscriptions: SubscriptionType,
    resolved: Mapping[str, Collection[str]],
    topics: Mapping[str, Topic],
    assignable: Mapping[UUID, Collection[int]] | None = None,
) -> dict[str, Partitions]:
    """Return the changed targets by member, in the order in which Kafka writes them.

    A static member that replaces another takes over its target: ``members`` holds only the new id, and ``targets`` the
    old target under the new id.

    Args:
        arrivals: the ids of all members but the newcomer, in the order of their arrival, which decides where hashes
            collide; sorted if the order is unknown.
        newcomer_id: the member that this request adds or puts into another's place, or None.
        subscriptions: the subscription type of the last look at topics; Kafka updates both together.
        resolved: topic names by regular expression.

    Raises:
        RefusedError: the assignor has found no assignment.
    """
    # Kafka copies the map of known members, and adds the newcomer last.
    known = timeline_map_order(arrivals)
    visiting_order = hash_map_order(known if newcomer_id is None else [*known, newcomer_id])
    specs: dict[str, MemberSpec] = {}
    topic_ids: dict[tuple[tuple[str, ...], str | None], tuple[UUID, ...]] = {}
    found: dict[UUID, Topic] = {}
    for member_id in visiting_order:
        member = members[member_id]
        key = tuple(member.subscribed_topic_names), member.subscribed_topic_regex
        # Members of a group mostly have equal subscriptions.
        if key not in topic_ids:
            existing = [topics[name] for name in subscribed_names(*key, resolved) if name in topics]
            by_id = {topic.topic_id: topic for topic in existing}
            found.update(by_id)
            topic_ids[key] = tuple(by_id)
        # The last target, not the current assignment, is what assignors keep stable.
        assigned = targets.get(member_id, {})
        specs[member_id] = MemberSpec(topic_ids[key], assigned, member.instance_id, member.rack_id)
    try:
        assignment = assignor.assign(GroupSpec(specs, subscriptions, found, tuple(visiting_order), assignable))
    except PartitionAssignorError:
        raise RefusedError(ErrorCode.UNKNOWN_SERVER_ERROR) from None
    changed: dict[str, Partitions] = {}
    for member_id in visiting_order:
        old, new = targets.get(member_id), assignment.get(member_id, {})
        # A member without a target gets one even if it is empty.
        if old is None or not _are_equal(old, new):
            changed[member_id] = new
    return changed


def _are_equal(one: Partitions, other: Partitions) -> bool:
    # The uniform assignor returns an unchanged target as the same object.
    if one is other:
        return True
    if one.keys() != other.keys():
        return False
    return all(set(partitions) == set(other[topic_id]) for topic_id, partitions in one.items())
