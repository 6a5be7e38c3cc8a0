"""What a request of the streams protocol (KIP-1071) meets before its group: form, permissions, and the topics named.

The order is that of Kafka's ``KafkaApis`` and ``GroupCoordinatorService``.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from groupcoord.core.groups.group import says_more
from groupcoord.core.javacompat.hashing import is_blank
from groupcoord.core.messages import (
    JOIN_GROUP_MEMBER_EPOCH,
    LEAVE_GROUP_STATIC_MEMBER_EPOCH,
    DescribedStreamsGroup,
    DescribedSubtopology,
    StreamsGroupDescribe,
    StreamsGroupDescribeResponse,
    StreamsGroupHeartbeat,
    StreamsGroupHeartbeatResponse,
    StreamsGroupTopologyDescriptionUpdate,
    StreamsGroupTopologyDescriptionUpdateResponse,
    Subtopology,
    TopologyDescriptionStatus,
)
from groupcoord.core.router.authorization import Operation, Permissions
from groupcoord.core.router.split_requests import DescribedKind
from groupcoord.core.topics import INTERNAL_TOPICS, illegal_name_reason
from groupcoord.errors import ErrorCode

TOPOLOGY_VALUES_MAX = 100_000
"""So much may be said of a topology: all of it is looked at in one go. Some 10,000 subtopologies have room in that."""

_NO_PLUGIN = "The broker has no streams group topology description plugin configured."

# ---------------------------------------------------------------- heartbeats


def refuse_topics(
    request: StreamsGroupHeartbeat, permissions: Permissions | None
) -> StreamsGroupHeartbeatResponse | None:
    """Return the refusal of a heartbeat whose topology names topics that it can't, or that the asker may not DESCRIBE.

    None if there is nothing to refuse.
    """
    if request.topology is None:
        return None
    if says_more(request.topology, TOPOLOGY_VALUES_MAX):
        return StreamsGroupHeartbeatResponse(ErrorCode.STREAMS_INVALID_TOPOLOGY, "The topology is too large.")
    names = list(dict.fromkeys(_topics_of(request.topology.subtopologies)))
    internal = [name for name in names if name in INTERNAL_TOPICS]
    if internal:
        message = f"Use of Kafka internal topics {','.join(internal)} in a Kafka Streams topology is prohibited."
        return StreamsGroupHeartbeatResponse(ErrorCode.STREAMS_INVALID_TOPOLOGY, message)
    illegal = [name for name in names if illegal_name_reason(name) is not None]
    if illegal:
        message = f"Topic names {','.join(illegal)} are not valid topic names."
        return StreamsGroupHeartbeatResponse(ErrorCode.STREAMS_INVALID_TOPOLOGY, message)
    if permissions is not None and not all(permissions.on_topic(name, Operation.DESCRIBE) for name in names):
        return StreamsGroupHeartbeatResponse(ErrorCode.TOPIC_AUTHORIZATION_FAILED)
    return None


def _topics_of(subtopologies: Iterable[Subtopology | DescribedSubtopology]) -> Iterator[str]:
    for subtopology in subtopologies:
        yield from subtopology.source_topics
        yield from subtopology.repartition_sink_topics
        for topic in (*subtopology.repartition_source_topics, *subtopology.state_changelog_topics):
            yield topic.name


def refuse_malformed_heartbeat(request: StreamsGroupHeartbeat) -> StreamsGroupHeartbeatResponse | None:
    """Return the refusal of a heartbeat that can't be meant, whatever its group; None if it can."""
    topology = request.topology
    if topology is not None and any(subtopology.source_topic_regex for subtopology in topology.subtopologies):
        message: str | None = "Regular expressions for source topics are not supported yet."
    else:
        message = _malformed(request)
    if message is not None:
        return StreamsGroupHeartbeatResponse(ErrorCode.INVALID_REQUEST, message)
    if topology is None:
        return None
    for subtopology in topology.subtopologies:
        for topic in subtopology.state_changelog_topics:
            if topic.partitions != 0:
                message = (
                    f"Changelog topic {topic.name} must have an undefined partition count, but it is set to "
                    f"{topic.partitions}."
                )
                return StreamsGroupHeartbeatResponse(ErrorCode.STREAMS_INVALID_TOPOLOGY, message)
    return None


def _malformed(request: StreamsGroupHeartbeat) -> str | None:
    """Return what is wrong with a heartbeat in itself, in the order in which Kafka looks."""
    for name, text in (
        ("MemberId", request.member_id),
        ("GroupId", request.group_id),
        ("InstanceId", request.instance_id),
        ("RackId", request.rack_id),
    ):
        if text is not None and is_blank(text):
            return f"{name} can't be empty."
    epoch = request.member_epoch
    message = _malformed_join(request) if epoch == JOIN_GROUP_MEMBER_EPOCH else None
    if epoch == LEAVE_GROUP_STATIC_MEMBER_EPOCH and request.instance_id is None:
        message = "InstanceId can't be null."
    if epoch < LEAVE_GROUP_STATIC_MEMBER_EPOCH:
        message = f"MemberEpoch is {epoch}, but must be greater than or equal to -2."
    if message is not None:
        return message
    given = {tasks is None for tasks in (request.active_tasks, request.standby_tasks, request.warmup_tasks)}
    if len(given) > 1:
        return "If one task-type is non-null, all must be non-null."
    if epoch != JOIN_GROUP_MEMBER_EPOCH and request.topology is not None:
        return "Topology can only be provided when (re-)joining."
    return None


def _malformed_join(request: StreamsGroupHeartbeat) -> str | None:
    if request.rebalance_timeout_ms == -1:
        return "RebalanceTimeoutMs must be provided in first request."
    for name, tasks in (
        ("ActiveTasks", request.active_tasks),
        ("StandbyTasks", request.standby_tasks),
        ("WarmupTasks", request.warmup_tasks),
    ):
        if tasks is None or tasks:
            return f"{name} must be empty when (re-)joining."
    return "Topology must be non-null when (re-)joining." if request.topology is None else None


# ---------------------------------------------------------------- descriptions


def _described_topics(group: DescribedStreamsGroup) -> Iterator[str]:
    return _topics_of(() if group.topology is None else group.topology.subtopologies or ())


DESCRIBED_STREAMS_GROUPS = DescribedKind(
    DescribedStreamsGroup,
    StreamsGroupDescribeResponse,
    _described_topics,
    "The described group uses topics that the client is not authorized to describe.",
)


def with_description_status(group: DescribedStreamsGroup, request: StreamsGroupDescribe) -> DescribedStreamsGroup:
    """Return a description that says that none of the topology is stored, if that was asked for (KIP-1331)."""
    if not request.include_topology_description or group.error_code is not ErrorCode.NONE:
        return group
    return group._replace(topology_description_status=TopologyDescriptionStatus.NOT_STORED)


def answer_description_update(
    request: StreamsGroupTopologyDescriptionUpdate, permissions: Permissions | None
) -> StreamsGroupTopologyDescriptionUpdateResponse:
    """Refuse to store the description of a topology: there are no plugins, so nobody could."""
    if permissions is not None and not permissions.on_group(request.group_id, Operation.READ):
        return StreamsGroupTopologyDescriptionUpdateResponse(ErrorCode.GROUP_AUTHORIZATION_FAILED)
    return StreamsGroupTopologyDescriptionUpdateResponse(ErrorCode.UNSUPPORTED_VERSION, _NO_PLUGIN)
