"""Descriptions of groups, members and committed offsets of a server."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Literal, NamedTuple, cast

from attrs import frozen

from groupcoord.analysis.report.text import counted
from groupcoord.broker.broker import Broker
from groupcoord.coordinator import GroupCoordinator
from groupcoord.core.consumer_protocol import (
    CONSUMER_PROTOCOL_TYPE,
    ConsumerProtocolError,
    TopicPartition,
    decode_assignment,
    decode_subscription,
)
from groupcoord.core.groups.classic.group import GroupMetadata
from groupcoord.core.groups.group_types import as_classic_group
from groupcoord.core.messages import (
    ConsumerGroupDescribe,
    DescribedConsumerMember,
    DescribedPartitions,
    DescribedShareMember,
    DescribedStreamsMember,
    DescribedTasks,
    DescribeGroups,
    GroupToFetch,
    ListGroups,
    MemberType,
    OffsetFetch,
    ShareGroupDescribe,
    StreamsGroupDescribe,
    TaskIds,
)
from groupcoord.errors import did_you_mean

GroupType = Literal["classic", "consumer", "share", "streams"]

_Member = DescribedConsumerMember | DescribedShareMember | DescribedStreamsMember
_NO_TASKS = DescribedTasks((), (), ())
_DESCRIBES: Mapping[GroupType, Callable[..., Any]] = {
    "consumer": ConsumerGroupDescribe,
    "share": ShareGroupDescribe,
    "streams": StreamsGroupDescribe,
}


class Task(NamedTuple):
    """Task of Kafka Streams: a subtopology and a partition."""

    subtopology_id: str
    partition: int

    def __str__(self) -> str:
        return f"{self.subtopology_id}_{self.partition}"


@frozen
class MemberDescription:
    """Member of a group.

    Attributes:
        client_host: host in Kafka's form: ``/127.0.0.1``.
        instance_id: id of a static member (KIP-345), or None.
        protocol: its protocol; a consumer group may have members of both.
        topics: subscribed topics; in a streams group the source topics of the topology.
        topic_regex: subscribed regular expression (KIP-848).
        assignment: its partitions, which members of a share group may have in common; empty in a streams group.
        epoch: generation of a classic group, otherwise the member epoch.
        active_tasks: its active tasks in a streams group (KIP-1071).
    """

    member_id: str
    client_id: str
    client_host: str
    instance_id: str | None
    protocol: GroupType
    topics: tuple[str, ...]
    topic_regex: str | None
    assignment: tuple[TopicPartition, ...]
    epoch: int
    active_tasks: tuple[Task, ...] = ()
    standby_tasks: tuple[Task, ...] = ()

    def __str__(self) -> str:
        if self.protocol == "streams":
            tasks = " ".join(map(str, self.active_tasks)) or "no tasks"
            standbys = f", standby {' '.join(map(str, self.standby_tasks))}" if self.standby_tasks else ""
            return f"{self.member_id} (client {self.client_id!r} at {self.client_host}): {tasks}{standbys}"
        partitions = " ".join(f"{topic}-{index}" for topic, index in self.assignment) or "no partitions"
        return f"{self.member_id} (client {self.client_id!r} at {self.client_host}): {partitions}"


@frozen
class GroupDescription:
    """Group of any type.

    Attributes:
        type: ``classic``, ``consumer`` (KIP-848), ``share`` (KIP-932) or ``streams`` (KIP-1071).
        state: Kafka's name of the state: ``Stable``, ``PreparingRebalance``, ``Reconciling`` …
        epoch: generation of a classic group, otherwise the group epoch.
    """

    group_id: str
    type: GroupType
    state: str
    epoch: int
    members: tuple[MemberDescription, ...]

    def __str__(self) -> str:
        word = "generation" if self.type == "classic" else "epoch"
        members = counted(len(self.members), "member")
        return f"{self.group_id} ({self.type}): {self.state}, {word} {self.epoch}, {members}"


@frozen
class CommittedOffset:
    """Committed offset of a partition."""

    topic: str
    partition: int
    offset: int
    metadata: str
    leader_epoch: int


def describe_groups(broker: Broker) -> tuple[GroupDescription, ...]:
    listed = [group for one in broker.nodes.coordinators.values() for group in one.call(ListGroups()).groups]
    found = (describe_group(broker, group_id) for group_id in sorted(group.group_id for group in listed))
    return tuple(group for group in found if group is not None)


def describe_group(broker: Broker, group_id: str) -> GroupDescription | None:
    coordinator, group = _find_group(broker, group_id)
    if group is None:
        return None
    classic = as_classic_group(group)
    if classic is not None:
        return _classic(coordinator, classic)
    return _modern(coordinator, group_id, cast(GroupType, group.listed().group_type))


def is_known(broker: Broker, group_id: str) -> bool:
    """Return whether a group exists, even before its first record is written."""
    return _find_group(broker, group_id)[1] is not None


def _find_group(broker: Broker, group_id: str) -> tuple[GroupCoordinator, Any]:
    coordinator = _coordinator_of(broker, group_id)
    partition = coordinator.partition(coordinator.partition_of(group_id))
    return coordinator, None if partition is None else partition.groups.get(group_id)


def _coordinator_of(broker: Broker, group_id: str) -> GroupCoordinator:
    coordinator = broker.coordinator
    return broker.nodes.serving(coordinator.partition_of(group_id)) or coordinator


def _classic(coordinator: GroupCoordinator, group: GroupMetadata) -> GroupDescription | None:
    described = coordinator.call(DescribeGroups((group.group_id,))).groups[0]
    if described.error_code:
        return None
    are_consumers = described.protocol_type == CONSUMER_PROTOCOL_TYPE
    members = tuple(
        MemberDescription(
            member_id=member.member_id,
            client_id=member.client_id,
            client_host=member.client_host,
            instance_id=member.group_instance_id,
            protocol="classic",
            # DescribeGroups has subscriptions only of stable groups; tests need them during a rebalance, too.
            topics=_subscribed(group.members[member.member_id].protocols) if are_consumers else (),
            topic_regex=None,
            assignment=_assigned(member.member_assignment) if are_consumers else (),
            epoch=group.generation_id,
        )
        for member in described.members
    )
    return GroupDescription(group.group_id, "classic", described.group_state, group.generation_id, members)


def _subscribed(protocols: tuple[tuple[str, bytes], ...]) -> tuple[str, ...]:
    try:
        return decode_subscription(protocols[0][1]).topics if protocols else ()
    except ConsumerProtocolError:
        return ()


def _assigned(data: bytes) -> tuple[TopicPartition, ...]:
    try:
        return tuple(sorted(decode_assignment(data).partitions)) if data else ()
    except ConsumerProtocolError:
        return ()


def _modern(coordinator: GroupCoordinator, group_id: str, kind: GroupType) -> GroupDescription | None:
    described: Any = coordinator.call(_DESCRIBES[kind]((group_id,))).groups[0]
    if described.error_code:
        return None
    topology = getattr(described, "topology", None)
    subtopologies = () if topology is None else topology.subtopologies or ()
    sources = tuple(sorted({topic for subtopology in subtopologies for topic in subtopology.source_topics}))
    members = tuple(_modern_member(member, kind, sources) for member in described.members)
    return GroupDescription(group_id, kind, described.group_state, described.group_epoch, members)


def _modern_member(member: _Member, kind: GroupType, sources: tuple[str, ...]) -> MemberDescription:
    tasks = member.assignment if isinstance(member, DescribedStreamsMember) else _NO_TASKS
    is_classic = isinstance(member, DescribedConsumerMember) and member.member_type is MemberType.CLASSIC
    return MemberDescription(
        member_id=member.member_id,
        client_id=member.client_id,
        client_host=member.client_host,
        instance_id=getattr(member, "instance_id", None),
        protocol="classic" if is_classic else kind,
        topics=getattr(member, "subscribed_topic_names", sources),
        topic_regex=getattr(member, "subscribed_topic_regex", None) or None,
        assignment=() if isinstance(member, DescribedStreamsMember) else _flattened(member.assignment),
        epoch=member.member_epoch,
        active_tasks=_tasks(tasks.active_tasks),
        standby_tasks=_tasks(tasks.standby_tasks),
    )


def _tasks(tasks: tuple[TaskIds, ...]) -> tuple[Task, ...]:
    return tuple(Task(each.subtopology_id, partition) for each in tasks for partition in each.partitions)


def _flattened(topics: tuple[DescribedPartitions, ...]) -> tuple[TopicPartition, ...]:
    return tuple(sorted(TopicPartition(topic.topic_name, index) for topic in topics for index in topic.partitions))


def no_such_group(broker: Broker, group_id: str) -> str:
    names = [group.group_id for group in describe_groups(broker)]
    listed = ", ".join(map(repr, names)) or "none"
    return f"there is no group {group_id!r}{did_you_mean(group_id, names)} (groups: {listed})"


def assigned_partitions(
    broker: Broker, group: GroupDescription, member: MemberDescription
) -> tuple[TopicPartition, ...]:
    """Return the partitions that a member reads; in a streams group those of its active tasks."""
    if group.type != "streams":
        return member.assignment
    described: Any = _coordinator_of(broker, group.group_id).call(StreamsGroupDescribe((group.group_id,))).groups[0]
    topology = described.topology
    sources = {
        subtopology.subtopology_id: (
            *subtopology.source_topics,
            *(topic.name for topic in subtopology.repartition_source_topics),
        )
        for subtopology in (() if topology is None else topology.subtopologies or ())
    }
    return tuple(
        TopicPartition(topic.name, task.partition)
        for task in member.active_tasks
        for topic in map(broker.topics.get, sources.get(task.subtopology_id, ()))
        if topic is not None and topic.has_partition(task.partition)
    )


def committed_offsets(broker: Broker, group_id: str) -> tuple[CommittedOffset, ...]:
    """Return the committed offsets of a group, by topic and partition; empty if it does not exist."""
    group = _coordinator_of(broker, group_id).call(OffsetFetch((GroupToFetch(group_id),))).groups[0]
    found = (
        CommittedOffset(
            cast(str, topic.name),
            offset.partition_index,
            offset.committed_offset,
            offset.metadata,
            offset.committed_leader_epoch,
        )
        for topic in group.topics
        for offset in topic.partitions
    )
    return tuple(sorted(found, key=lambda offset: (offset.topic, offset.partition)))


class Unmet(str):
    """State in which an awaited condition does not hold, as text."""


def look_whether_stable(broker: Broker, group_id: str, members: int | None) -> GroupDescription | Unmet:
    """Return a group if it is stable with this number of members (None for at least one), or else its state."""
    group = describe_group(broker, group_id)
    if group is None:
        return Unmet(no_such_group(broker, group_id))
    count = len(group.members)
    is_stable = group.state == "Stable" or (group.state == "Empty" and members == 0)
    if is_stable and (count == members or (members is None and count)):
        return group
    return Unmet("; ".join([str(group), *map(str, group.members)]))
