"""What a request about share groups (KIP-932) meets before its group: form, permissions, and the topics named.

The order is that of Kafka's ``KafkaApis`` and ``GroupCoordinatorService``.
"""

from __future__ import annotations

from collections.abc import Iterator

from attrs import evolve

from groupcoord.core.javacompat.hashing import is_blank
from groupcoord.core.log.records import ZERO_UUID
from groupcoord.core.messages import (
    JOIN_GROUP_MEMBER_EPOCH,
    LEAVE_GROUP_MEMBER_EPOCH,
    AlteredShareTopic,
    AlterShareGroupOffsets,
    DeleteShareGroupOffsets,
    DescribedShareGroup,
    DescribedShareGroupOffsets,
    DescribedShareOffset,
    DescribedShareTopic,
    ForgottenShareTopic,
    ShareGroupDescribeResponse,
    ShareGroupHeartbeat,
    ShareGroupHeartbeatResponse,
    ShareGroupToDescribe,
    ShareOffsetResult,
)
from groupcoord.core.messages.share_groups import DescribeOneShareGroupResponse
from groupcoord.core.router.authorization import Operation, Permissions
from groupcoord.core.router.split_requests import DescribedKind
from groupcoord.errors import ErrorCode

MEMBER_ID_UNITS_MAX = 36
"""So many UTF-16 units has the text of a UUID; members send one."""

# ---------------------------------------------------------------- heartbeats


def refuse_malformed_share_heartbeat(
    request: ShareGroupHeartbeat, permissions: Permissions | None
) -> ShareGroupHeartbeatResponse | None:
    """Return the refusal of a heartbeat that can't be meant, or names topics that the asker may not DESCRIBE."""
    units = len(request.member_id.encode("utf-16-le", "surrogatepass")) // 2
    if not 0 < units <= MEMBER_ID_UNITS_MAX:
        return ShareGroupHeartbeatResponse(ErrorCode.INVALID_REQUEST)
    if permissions is not None and not all(
        permissions.on_topic(topic, Operation.DESCRIBE) for topic in request.subscribed_topic_names or ()
    ):
        return ShareGroupHeartbeatResponse(ErrorCode.TOPIC_AUTHORIZATION_FAILED)
    message = _malformed(request)
    return None if message is None else ShareGroupHeartbeatResponse(ErrorCode.INVALID_REQUEST, message)


def _malformed(request: ShareGroupHeartbeat) -> str | None:
    """Return what is wrong with a heartbeat in itself, in the order in which Kafka looks."""
    if is_blank(request.member_id):
        return "MemberId can't be empty."
    if is_blank(request.group_id):
        return "GroupId can't be empty."
    if request.rack_id is not None and is_blank(request.rack_id):
        return "RackId can't be empty."
    if request.member_epoch == JOIN_GROUP_MEMBER_EPOCH and not request.subscribed_topic_names:
        return "SubscribedTopicNames must be set in first request."
    return "MemberEpoch is invalid." if request.member_epoch < LEAVE_GROUP_MEMBER_EPOCH else None


# ---------------------------------------------------------------- descriptions


def _described_topics(group: DescribedShareGroup) -> Iterator[str]:
    for member in group.members:
        for topic in member.assignment:
            yield topic.topic_name


DESCRIBED_SHARE_GROUPS = DescribedKind(
    DescribedShareGroup,
    ShareGroupDescribeResponse,
    _described_topics,
    "The group has described topic(s) that the client is not authorized to describe.",
)

# ---------------------------------------------------------------- offsets


def readable_description(
    wanted: ShareGroupToDescribe, permissions: Permissions | None
) -> tuple[ShareGroupToDescribe, tuple[DescribedShareTopic, ...]]:
    """Return what is asked about topics that the asker may DESCRIBE, and the refusals of the others."""
    if permissions is None or wanted.topics is None:
        return wanted, ()
    allowed, refused = [], []
    for topic in wanted.topics:
        if permissions.on_topic(topic.topic_name, Operation.DESCRIBE):
            allowed.append(topic)
            continue
        results = [
            DescribedShareOffset(index, error_code=ErrorCode.TOPIC_AUTHORIZATION_FAILED) for index in topic.partitions
        ]
        refused.append(DescribedShareTopic(topic.topic_name, ZERO_UUID, tuple(results)))
    return wanted._replace(topics=tuple(allowed)), tuple(refused)


def complete_description(
    refused: tuple[DescribedShareTopic, ...], permissions: Permissions | None, response: DescribeOneShareGroupResponse
) -> DescribedShareGroupOffsets:
    """Return where a group stands in topics that the client may DESCRIBE, with the refusals of the others."""
    topics = response.group.topics
    if permissions is not None:
        topics = tuple([topic for topic in topics if permissions.on_topic(topic.topic_name, Operation.DESCRIBE)])
    return response.group._replace(topics=topics + refused)


def readable_alteration(
    request: AlterShareGroupOffsets, permissions: Permissions | None
) -> tuple[AlterShareGroupOffsets, tuple[AlteredShareTopic, ...]]:
    """Return what is to be altered of topics that the asker may READ, and the refusals of the others."""
    if permissions is None:
        return request, ()
    allowed, refused = [], []
    for topic in request.topics:
        if permissions.on_topic(topic.topic_name, Operation.READ):
            allowed.append(topic)
            continue
        results = [ShareOffsetResult(index, ErrorCode.TOPIC_AUTHORIZATION_FAILED) for index, _ in topic.partitions]
        refused.append(AlteredShareTopic(topic.topic_name, ZERO_UUID, tuple(results)))
    return evolve(request, topics=tuple(allowed)), tuple(refused)


def readable_deletion(
    request: DeleteShareGroupOffsets, permissions: Permissions | None
) -> tuple[DeleteShareGroupOffsets, tuple[ForgottenShareTopic, ...]]:
    """Return what is to be forgotten of topics that the asker may READ, and the refusals of the others."""
    if permissions is None:
        return request, ()
    allowed, refused = [], []
    for topic in request.topics:
        if permissions.on_topic(topic.topic_name, Operation.READ):
            allowed.append(topic)
        else:
            refused.append(ForgottenShareTopic(topic.topic_name, ZERO_UUID, ErrorCode.TOPIC_AUTHORIZATION_FAILED))
    return evolve(request, topics=tuple(allowed)), tuple(refused)
