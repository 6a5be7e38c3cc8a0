"""Checks of ConsumerGroup, ShareGroup and StreamsGroup requests before they reach their group: form and permissions.

The order is that of Kafka's ``KafkaApis`` and ``GroupCoordinatorService`` (KIP-848, KIP-932, KIP-1071).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, TypeVar

from attrs import evolve

from groupcoord.core.groups.group import says_more
from groupcoord.core.javacompat import is_blank
from groupcoord.core.log.records import INTERNAL_TOPICS, ZERO_UUID
from groupcoord.core.messages import (
    JOIN_GROUP_MEMBER_EPOCH,
    LEAVE_GROUP_MEMBER_EPOCH,
    LEAVE_GROUP_STATIC_MEMBER_EPOCH,
    AlteredShareTopic,
    AlterShareGroupOffsets,
    ConsumerGroupDescribeResponse,
    ConsumerGroupHeartbeat,
    ConsumerGroupHeartbeatResponse,
    DeleteShareGroupOffsets,
    DescribedConsumerGroup,
    DescribedShareGroup,
    DescribedShareGroupOffsets,
    DescribedShareOffset,
    DescribedShareTopic,
    DescribedStreamsGroup,
    DescribedSubtopology,
    ForgottenShareTopic,
    ShareGroupDescribeResponse,
    ShareGroupHeartbeat,
    ShareGroupHeartbeatResponse,
    ShareGroupToDescribe,
    ShareOffsetResult,
    ShareTopicToAlter,
    ShareTopicToDescribe,
    ShareTopicToForget,
    StreamsGroupDescribe,
    StreamsGroupDescribeResponse,
    StreamsGroupHeartbeat,
    StreamsGroupHeartbeatResponse,
    Subtopology,
    TopologyDescriptionStatus,
)
from groupcoord.core.messages.share_groups import DescribeOneShareGroupResponse
from groupcoord.core.router.authorization import Operation, Permissions
from groupcoord.core.router.split_requests import DescribedKind
from groupcoord.core.topics import illegal_name_reason
from groupcoord.errors import ErrorCode

MEMBER_ID_UNITS_MAX = 36
"""UTF-16 length of a UUID, which members send."""

TOPOLOGY_VALUES_MAX = 100_000
"""Maximum number of values in a topology, which is checked in one step; room for some 10,000 subtopologies."""

_TOPIC_DENIED = ErrorCode.TOPIC_AUTHORIZATION_FAILED
NO_DESCRIPTION_PLUGIN = "The broker has no streams group topology description plugin configured."


def _blank_field(*texts: str | None) -> str | None:
    """Return the message for the first blank one of member id, group id, instance id and rack id, in Kafka's order."""
    for name, text in zip(("MemberId", "GroupId", "InstanceId", "RackId"), texts, strict=True):
        if text is not None and is_blank(text):
            return f"{name} can't be empty."
    return None


# ---------------------------------------------------------------- consumer groups


def consumer_heartbeat_permission(permissions: Permissions, request: ConsumerGroupHeartbeat) -> ErrorCode:
    """Return NONE if the client may READ the group, and DESCRIBE each topic that it names."""
    error_code = permissions.group_error(request.group_id, Operation.READ)
    if error_code is not ErrorCode.NONE:
        return error_code
    # Topics of a regular expression are filtered when it is resolved.
    for topic in request.subscribed_topic_names or ():
        error_code = permissions.topic_error(topic, Operation.DESCRIBE)
        if error_code is not ErrorCode.NONE:
            break
    return error_code


def refuse_malformed_consumer_heartbeat(
    request: ConsumerGroupHeartbeat, assignors: Sequence[str]
) -> ConsumerGroupHeartbeatResponse | None:
    """Return the error response to an invalid heartbeat, or None."""
    # INVALID_REQUEST before UNSUPPORTED_ASSIGNOR (ConsumerGroupHeartbeat in GroupCoordinatorService).
    message = _consumer_problem(request)
    if message is not None:
        return ConsumerGroupHeartbeatResponse(ErrorCode.INVALID_REQUEST, message)
    if request.server_assignor is not None and request.server_assignor not in assignors:
        message = (
            f"ServerAssignor {request.server_assignor} is not supported. Supported assignors: {', '.join(assignors)}."
        )
        return ConsumerGroupHeartbeatResponse(ErrorCode.UNSUPPORTED_ASSIGNOR, message)
    return None


def _consumer_problem(request: ConsumerGroupHeartbeat) -> str | None:
    epoch = request.member_epoch
    # A joining member of version 0 has no id yet; the coordinator creates one (KIP-1082).
    needs_member_id = request.requires_member_id or epoch > 0 or epoch == LEAVE_GROUP_MEMBER_EPOCH
    member_id = request.member_id if needs_member_id else None
    blank = _blank_field(member_id, request.group_id, request.instance_id, request.rack_id)
    if blank is not None:
        return blank
    if epoch == JOIN_GROUP_MEMBER_EPOCH:
        return _consumer_join_problem(request)
    if epoch == LEAVE_GROUP_STATIC_MEMBER_EPOCH and request.instance_id is None:
        return "InstanceId can't be null."
    return "MemberEpoch is invalid." if epoch < LEAVE_GROUP_STATIC_MEMBER_EPOCH else None


def _consumer_join_problem(request: ConsumerGroupHeartbeat) -> str | None:
    # Only -1 counts as missing: Kafka accepts 0 and lower values.
    if request.rebalance_timeout_ms == -1:
        return "RebalanceTimeoutMs must be provided in first request."
    # A member that rejoins has given up what it owned.
    if request.topic_partitions is None or request.topic_partitions:
        return "TopicPartitions must be empty when (re-)joining."
    # Both may be empty, which subscribes to nothing.
    if request.subscribed_topic_names is None and request.subscribed_topic_regex is None:
        return "Either SubscribedTopicNames or SubscribedTopicRegex must be non-null when (re-)joining."
    return None


_HIDDEN = "The group has described topic(s) that the client is not authorized to describe."

DESCRIBED_CONSUMER_GROUPS = DescribedKind(
    DescribedConsumerGroup,
    ConsumerGroupDescribeResponse,
    lambda group: (
        topic.topic_name for member in group.members for topic in (*member.assignment, *member.target_assignment)
    ),
    _HIDDEN,
)

# ---------------------------------------------------------------- share groups


def refuse_malformed_share_heartbeat(
    request: ShareGroupHeartbeat, permissions: Permissions | None
) -> ShareGroupHeartbeatResponse | None:
    """Return the error response to a heartbeat that is invalid or names topics without DESCRIBE, or None."""
    # KafkaApis checks the id's length before topics, and the form last.
    units = len(request.member_id.encode("utf-16-le", "surrogatepass")) // 2
    if not 0 < units <= MEMBER_ID_UNITS_MAX:
        return ShareGroupHeartbeatResponse(ErrorCode.INVALID_REQUEST)
    if permissions is not None and not all(
        permissions.on_topic(topic, Operation.DESCRIBE) for topic in request.subscribed_topic_names or ()
    ):
        return ShareGroupHeartbeatResponse(_TOPIC_DENIED)
    message = _share_problem(request)
    return None if message is None else ShareGroupHeartbeatResponse(ErrorCode.INVALID_REQUEST, message)


def _share_problem(request: ShareGroupHeartbeat) -> str | None:
    # Members of share groups are never static.
    blank = _blank_field(request.member_id, request.group_id, None, request.rack_id)
    if blank is not None:
        return blank
    if request.member_epoch == JOIN_GROUP_MEMBER_EPOCH and not request.subscribed_topic_names:
        return "SubscribedTopicNames must be set in first request."
    return "MemberEpoch is invalid." if request.member_epoch < LEAVE_GROUP_MEMBER_EPOCH else None


DESCRIBED_SHARE_GROUPS = DescribedKind(
    DescribedShareGroup,
    ShareGroupDescribeResponse,
    lambda group: (topic.topic_name for member in group.members for topic in member.assignment),
    _HIDDEN,
)

ShareTopicT = TypeVar("ShareTopicT", ShareTopicToDescribe, ShareTopicToAlter, ShareTopicToForget)


def _split(
    topics: Iterable[ShareTopicT], permissions: Permissions | None, operation: Operation
) -> tuple[tuple[ShareTopicT, ...], list[ShareTopicT]]:
    allowed: list[ShareTopicT] = []
    denied: list[ShareTopicT] = []
    for topic in topics:
        is_allowed = permissions is None or permissions.on_topic(topic.topic_name, operation)
        (allowed if is_allowed else denied).append(topic)
    return tuple(allowed), denied


def readable_description(
    wanted: ShareGroupToDescribe, permissions: Permissions | None
) -> tuple[ShareGroupToDescribe, tuple[DescribedShareTopic, ...]]:
    """Return the part of a request about topics with DESCRIBE, and errors for the others."""
    if wanted.topics is None:
        return wanted, ()
    allowed, denied = _split(wanted.topics, permissions, Operation.DESCRIBE)
    refused = [
        DescribedShareTopic(
            name, ZERO_UUID, tuple([DescribedShareOffset(index, error_code=_TOPIC_DENIED) for index in indexes])
        )
        for name, indexes in denied
    ]
    return wanted._replace(topics=allowed), tuple(refused)


def complete_description(
    refused: tuple[DescribedShareTopic, ...], permissions: Permissions | None, response: DescribeOneShareGroupResponse
) -> DescribedShareGroupOffsets:
    topics = response.group.topics
    if permissions is not None:
        # A description of all topics omits denied ones; named ones fail.
        topics = tuple([topic for topic in topics if permissions.on_topic(topic.topic_name, Operation.DESCRIBE)])
    return response.group._replace(topics=topics + refused)


def _denied_topic(topic: ShareTopicToAlter | ShareTopicToForget) -> AlteredShareTopic | ForgottenShareTopic:
    if isinstance(topic, ShareTopicToForget):
        return ForgottenShareTopic(topic.topic_name, ZERO_UUID, _TOPIC_DENIED)
    results = [ShareOffsetResult(index, _TOPIC_DENIED) for index, _ in topic.partitions]
    return AlteredShareTopic(topic.topic_name, ZERO_UUID, tuple(results))


def readable_part(
    request: AlterShareGroupOffsets | DeleteShareGroupOffsets, permissions: Permissions | None
) -> tuple[AlterShareGroupOffsets | DeleteShareGroupOffsets, tuple[AlteredShareTopic | ForgottenShareTopic, ...]]:
    """Return the part of a request about topics with READ, and errors for the others."""
    whole: Any = request
    allowed, denied = _split(whole.topics, permissions, Operation.READ)
    return evolve(whole, topics=allowed), tuple([_denied_topic(topic) for topic in denied])


# ---------------------------------------------------------------- streams groups


def refuse_streams_topics(
    request: StreamsGroupHeartbeat, permissions: Permissions | None
) -> StreamsGroupHeartbeatResponse | None:
    """Return the error response to a topology that is too large, or has topics that are internal, illegal or without
    DESCRIBE.
    """
    if request.topology is None:
        return None
    # Before any use, since the client decides how large it is.
    if says_more(request.topology, TOPOLOGY_VALUES_MAX):
        return StreamsGroupHeartbeatResponse(ErrorCode.STREAMS_INVALID_TOPOLOGY, "The topology is too large.")
    names = list(dict.fromkeys(_topics_of_subtopologies(request.topology.subtopologies)))
    # KafkaApis: internal topics, then illegal names, then permissions.
    internal = [name for name in names if name in INTERNAL_TOPICS]
    if internal:
        message = f"Use of Kafka internal topics {','.join(internal)} in a Kafka Streams topology is prohibited."
        return StreamsGroupHeartbeatResponse(ErrorCode.STREAMS_INVALID_TOPOLOGY, message)
    illegal = [name for name in names if illegal_name_reason(name) is not None]
    if illegal:
        message = f"Topic names {','.join(illegal)} are not valid topic names."
        return StreamsGroupHeartbeatResponse(ErrorCode.STREAMS_INVALID_TOPOLOGY, message)
    if permissions is not None and not all(permissions.on_topic(name, Operation.DESCRIBE) for name in names):
        return StreamsGroupHeartbeatResponse(_TOPIC_DENIED)
    return None


def _topics_of_subtopologies(subtopologies: Iterable[Subtopology | DescribedSubtopology]) -> Iterator[str]:
    for subtopology in subtopologies:
        yield from subtopology.source_topics
        yield from subtopology.repartition_sink_topics
        for topic in (*subtopology.repartition_source_topics, *subtopology.state_changelog_topics):
            yield topic.name


def refuse_malformed_streams_heartbeat(request: StreamsGroupHeartbeat) -> StreamsGroupHeartbeatResponse | None:
    topology = request.topology
    # Before the other fields, as in Kafka.
    if topology is not None and any(subtopology.source_topic_regex for subtopology in topology.subtopologies):
        message: str | None = "Regular expressions for source topics are not supported yet."
    else:
        message = _streams_problem(request)
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


def _streams_problem(request: StreamsGroupHeartbeat) -> str | None:
    blank = _blank_field(request.member_id, request.group_id, request.instance_id, request.rack_id)
    if blank is not None:
        return blank
    epoch = request.member_epoch
    message = _streams_join_problem(request) if epoch == JOIN_GROUP_MEMBER_EPOCH else None
    if epoch == LEAVE_GROUP_STATIC_MEMBER_EPOCH and request.instance_id is None:
        message = "InstanceId can't be null."
    # The message names the number, unlike that of consumer groups.
    if epoch < LEAVE_GROUP_STATIC_MEMBER_EPOCH:
        message = f"MemberEpoch is {epoch}, but must be greater than or equal to -2."
    if message is not None:
        return message
    # All three lists of tasks are sent, or none.
    given = {tasks is None for tasks in (request.active_tasks, request.standby_tasks, request.warmup_tasks)}
    if len(given) > 1:
        return "If one task-type is non-null, all must be non-null."
    if epoch != JOIN_GROUP_MEMBER_EPOCH and request.topology is not None:
        return "Topology can only be provided when (re-)joining."
    return None


def _streams_join_problem(request: StreamsGroupHeartbeat) -> str | None:
    if request.rebalance_timeout_ms == -1:
        return "RebalanceTimeoutMs must be provided in first request."
    for name, tasks in (
        ("ActiveTasks", request.active_tasks),
        ("StandbyTasks", request.standby_tasks),
        ("WarmupTasks", request.warmup_tasks),
    ):
        # A null list is invalid as well: a joining member sends three empty ones.
        if tasks is None or tasks:
            return f"{name} must be empty when (re-)joining."
    return "Topology must be non-null when (re-)joining." if request.topology is None else None


DESCRIBED_STREAMS_GROUPS = DescribedKind(
    DescribedStreamsGroup,
    StreamsGroupDescribeResponse,
    lambda group: _topics_of_subtopologies(() if group.topology is None else group.topology.subtopologies or ()),
    "The described group uses topics that the client is not authorized to describe.",
)


def with_description_status(group: DescribedStreamsGroup, request: StreamsGroupDescribe) -> DescribedStreamsGroup:
    if not request.include_topology_description or group.error_code is not ErrorCode.NONE:
        return group
    # Without a plugin no description is ever stored (KIP-1331).
    return group._replace(topology_description_status=TopologyDescriptionStatus.NOT_STORED)
