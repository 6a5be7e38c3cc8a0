"""What an assignor of the coordinator is: its interface, what it is given, and what it answers (KIP-848).

Members of a consumer group don't assign partitions themselves: the coordinator does, with the assignor for which most
members vote. Source of the interface: ``ConsumerGroupPartitionAssignor`` and ``GroupSpec`` of Kafka.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from enum import Enum
from typing import Protocol
from uuid import UUID

from attrs import field, frozen

from groupcoord.core.fast_construct import plain_members
from groupcoord.core.groups.base.topics import Topic
from groupcoord.errors import GroupcoordError

Partitions = Mapping[UUID, tuple[int, ...]]
"""Partitions by topic id, in the order in which a record has them. Only that of share groups has empty topics."""

GroupAssignment = Mapping[str, Partitions]
"""Partitions by member id. A member that is left out has none."""


class PartitionAssignorError(GroupcoordError):
    """An assignor can't make an assignment. The request that asked for it fails, and nothing is written.

    Kafka's name for it is ``PartitionAssignorException``.
    """


@plain_members
class SubscriptionType(Enum):
    """Whether all members of a group subscribe to the same topics."""

    HOMOGENEOUS = "homogeneous"
    HETEROGENEOUS = "heterogeneous"


@frozen
class MemberSpec:
    """One member as an assignor sees it.

    Attributes:
        topic_ids: the topics that it subscribes to, by name or by regular expression, as far as they exist; each once,
            in an order that is the same after a restart.
        assigned: its last target assignment. It may hold topics that the member doesn't subscribe to any more.
        instance_id: of a static member.
        rack_id: where it is, if it says so.
    """

    topic_ids: tuple[UUID, ...]
    assigned: Partitions = field(factory=dict)
    instance_id: str | None = None
    rack_id: str | None = None


@frozen
class GroupSpec:
    """One group as an assignor sees it.

    Attributes:
        members: by member id. How the mapping was made says nothing.
        subscription_type: whether the topics of all members are the same.
        topics: at least all topics that members subscribe to, by id.
        visiting_order: the member ids in the order in which Kafka's hash maps hand them to an assignor. Like a sorted
            list it doesn't change in a restart.
        assignable: the partitions by topic that may be given to members: in a share group those that it has begun to
            read, which is prepared first; None: all.
    """

    members: Mapping[str, MemberSpec]
    subscription_type: SubscriptionType
    topics: Mapping[UUID, Topic]
    visiting_order: tuple[str, ...]
    assignable: Mapping[UUID, Collection[int]] | None = None

    def assignable_partitions(self, topic_id: UUID) -> Iterable[int]:
        """Return the partitions of a topic that may be given to members, in ascending order.

        Raises:
            PartitionAssignorError: there is no such topic.
        """
        every = range(self.partition_count(topic_id))
        if self.assignable is None:
            return every
        chosen = self.assignable.get(topic_id, ())
        return [index for index in every if index in chosen]

    def partition_count(self, topic_id: UUID) -> int:
        """Return how many partitions a topic has.

        Raises:
            PartitionAssignorError: there is no such topic.
        """
        topic = self.topics.get(topic_id)
        if topic is None:
            raise PartitionAssignorError(f"a member subscribes to topic {topic_id}, which does not exist")
        return topic.partition_count


class Assignor(Protocol):
    """A way to divide partitions among the members of a consumer group.

    It is a function of what it is given: it keeps nothing, and neither chance nor the order in which a set or a mapping
    was filled shows in its answer, so that a restart makes no difference.

    Attributes:
        name: under which members ask for it, and administrators see it.
    """

    @property
    def name(self) -> str: ...

    def assign(self, group: GroupSpec) -> GroupAssignment:
        """Return each member's partitions.

        Args:
            group: the members, with what they had so far, and the topics.

        Raises:
            PartitionAssignorError: there is no assignment.
        """
