"""What a request of the consumer protocol (KIP-848) meets before its group: form, permissions, and the switch.

The order is that of Kafka's ``KafkaApis`` and ``GroupCoordinatorService``.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from groupcoord.core.javacompat.hashing import is_blank
from groupcoord.core.messages import (
    JOIN_GROUP_MEMBER_EPOCH,
    LEAVE_GROUP_MEMBER_EPOCH,
    LEAVE_GROUP_STATIC_MEMBER_EPOCH,
    ConsumerGroupDescribeResponse,
    ConsumerGroupHeartbeat,
    ConsumerGroupHeartbeatResponse,
    DescribedConsumerGroup,
)
from groupcoord.core.router.authorization import Operation, Permissions
from groupcoord.core.router.split_requests import DescribedKind
from groupcoord.errors import ErrorCode

# ---------------------------------------------------------------- heartbeats


def heartbeat_permission(permissions: Permissions, request: ConsumerGroupHeartbeat) -> ErrorCode:
    """Return NONE if the asker may READ the group, and DESCRIBE each topic that it names.

    Topics that its regular expression finds are none of this: those that may not be described are left out later.
    """
    error_code = permissions.group_error(request.group_id, Operation.READ)
    if error_code is not ErrorCode.NONE:
        return error_code
    for topic in request.subscribed_topic_names or ():
        error_code = permissions.topic_error(topic, Operation.DESCRIBE)
        if error_code is not ErrorCode.NONE:
            break
    return error_code


def refuse_malformed(
    request: ConsumerGroupHeartbeat, assignors: Sequence[str]
) -> ConsumerGroupHeartbeatResponse | None:
    """Return the refusal of a heartbeat that can't be meant, whatever its group; None if it can.

    Args:
        request: the heartbeat.
        assignors: the names of the assignors that members may ask for.
    """
    message = _malformed(request)
    if message is not None:
        return ConsumerGroupHeartbeatResponse(ErrorCode.INVALID_REQUEST, message)
    if request.server_assignor is not None and request.server_assignor not in assignors:
        message = (
            f"ServerAssignor {request.server_assignor} is not supported. Supported assignors: {', '.join(assignors)}."
        )
        return ConsumerGroupHeartbeatResponse(ErrorCode.UNSUPPORTED_ASSIGNOR, message)
    return None


def _malformed(request: ConsumerGroupHeartbeat) -> str | None:
    """Return what is wrong with a heartbeat in itself, in the order in which Kafka looks."""
    epoch = request.member_epoch
    needs_member_id = request.requires_member_id or epoch > 0 or epoch == LEAVE_GROUP_MEMBER_EPOCH
    if needs_member_id and is_blank(request.member_id):
        return "MemberId can't be empty."
    if is_blank(request.group_id):
        return "GroupId can't be empty."
    if request.instance_id is not None and is_blank(request.instance_id):
        return "InstanceId can't be empty."
    if request.rack_id is not None and is_blank(request.rack_id):
        return "RackId can't be empty."
    if epoch == JOIN_GROUP_MEMBER_EPOCH:
        return _malformed_join(request)
    if epoch == LEAVE_GROUP_STATIC_MEMBER_EPOCH and request.instance_id is None:
        return "InstanceId can't be null."
    return "MemberEpoch is invalid." if epoch < LEAVE_GROUP_STATIC_MEMBER_EPOCH else None


def _malformed_join(request: ConsumerGroupHeartbeat) -> str | None:
    if request.rebalance_timeout_ms == -1:
        return "RebalanceTimeoutMs must be provided in first request."
    if request.topic_partitions is None or request.topic_partitions:
        return "TopicPartitions must be empty when (re-)joining."
    if request.subscribed_topic_names is None and request.subscribed_topic_regex is None:
        return "Either SubscribedTopicNames or SubscribedTopicRegex must be non-null when (re-)joining."
    return None


# ---------------------------------------------------------------- descriptions


def _described_topics(group: DescribedConsumerGroup) -> Iterator[str]:
    for member in group.members:
        for assignment in (member.assignment, member.target_assignment):
            for topic in assignment:
                yield topic.topic_name


DESCRIBED_CONSUMER_GROUPS = DescribedKind(
    DescribedConsumerGroup,
    ConsumerGroupDescribeResponse,
    _described_topics,
    "The group has described topic(s) that the client is not authorized to describe.",
)
