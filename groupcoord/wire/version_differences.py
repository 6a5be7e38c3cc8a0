"""What is different between the versions of an API other than its fields."""

from __future__ import annotations

from typing import TypeVar

from attrs import evolve

from groupcoord.core.messages import (
    AUTHORIZED_OPERATIONS_OMITTED,
    DescribedGroup,
    LeaveGroup,
    LeaveGroupResponse,
    LeavingMember,
    StreamsGroupHeartbeatResponse,
    StreamsStatusCode,
)
from groupcoord.errors import ErrorCode
from groupcoord.wire.acl_messages import Acl, AclFilter, CreateAcls, DeleteAcls, DescribeAcls
from groupcoord.wire.broker_messages import DeleteTopics, ListOffsets, TopicReference
from groupcoord.wire.config_messages import ConfigResourceType, ListConfigResources
from groupcoord.wire.errors import ProtocolError
from groupcoord.wire.header import RequestHeader
from groupcoord.wire.login_messages import SaslHandshake
from groupcoord.wire.schema import Values
from groupcoord.wire.transaction_messages import AddOffsetsToTxnResponse, EndTxn, EndTxnResponse, InitProducerIdResponse

Fenced = TypeVar("Fenced", AddOffsetsToTxnResponse, EndTxnResponse, InitProducerIdResponse)

# ---------------------------------------------------------------- groups


def leave_group(values: Values, header: RequestHeader, client_host: str) -> LeaveGroup:
    """Return the request; to version 2 it names one member (KIP-345)."""
    if header.api_version <= 2:
        return LeaveGroup(values["group_id"], (LeavingMember(values["member_id"]),))
    return LeaveGroup(values["group_id"], tuple(LeavingMember(**member) for member in values["members"]))


def left_group(response: LeaveGroupResponse, header: RequestHeader) -> LeaveGroupResponse:
    """Return the answer; to version 2 the error of the one member is that of the whole."""
    if header.api_version <= 2 and not response.error_code and response.members:
        return LeaveGroupResponse(response.members[0].error_code)
    return response


def streams_group_heartbeat(
    response: StreamsGroupHeartbeatResponse, header: RequestHeader
) -> StreamsGroupHeartbeatResponse:
    """Return the answer; version 0 has no room for the lag, and does not know that tags may be missing."""
    if header.api_version >= 1:
        return response
    known = [status for status in response.status or () if status.code is not StreamsStatusCode.MISSING_CLIENT_TAGS]
    return evolve(response, acceptable_recovery_lag=0, status=tuple(known))


def described_group(group: DescribedGroup, header: RequestHeader) -> DescribedGroup:
    """Return a group as it is described.

    From version 6 on an absent one is GROUP_ID_NOT_FOUND with a message (KIP-1043), and has no authorized operations;
    before, it is a group without error in state ``Dead`` that has them.
    """
    if group.error_code != ErrorCode.GROUP_ID_NOT_FOUND:
        return group
    if header.api_version <= 5:
        return group._replace(error_code=ErrorCode.NONE)
    return group._replace(authorized_operations=AUTHORIZED_OPERATIONS_OMITTED)


# ---------------------------------------------------------------- topics and what has settings

_NEW_TIMESTAMPS = {7: -3, 8: -4, 9: -5, 11: -6}
"""From which version on which special timestamp may be asked for (KIP-734, 405, 1005, 1023); -1 and -2 always."""


def list_offsets(request: ListOffsets, header: RequestHeader) -> ListOffsets:
    """Return the request with the special timestamps that its version knows."""
    known = (stamp for version, stamp in _NEW_TIMESTAMPS.items() if version <= header.api_version)
    request.lowest_timestamp = min(known, default=-2)
    return request


def delete_topics(values: Values, header: RequestHeader, client_host: str) -> DeleteTopics:
    """Return the request; from version 6 on topics can be named by id."""
    if header.api_version >= 6:
        topics = tuple(TopicReference(topic["name"], topic["topic_id"]) for topic in values["topics"])
    else:
        topics = tuple(TopicReference(name) for name in values["topic_names"])
    return DeleteTopics(topics, values["timeout_ms"])


def list_config_resources(request: ListConfigResources, header: RequestHeader) -> ListConfigResources:
    """Return the request; version 0 is about client metrics only (KIP-714), types are named from 1 on (KIP-1142)."""
    return ListConfigResources((ConfigResourceType.CLIENT_METRICS,)) if header.api_version == 0 else request


# ---------------------------------------------------------------- log-in and ACLs


def sasl_handshake(request: SaslHandshake, header: RequestHeader) -> SaslHandshake:
    """Return the request; from version 1 on tokens follow in SaslAuthenticate requests (KIP-152)."""
    return request._replace(uses_requests=header.api_version >= 1)


_UNKNOWN = 0


def _check_known(acl: Acl | AclFilter) -> None:
    if _UNKNOWN in (acl.resource_type, acl.pattern_type, acl.operation, acl.permission_type):
        raise ProtocolError("an ACL has something that is unknown")


def create_acls(request: CreateAcls, header: RequestHeader) -> CreateAcls:
    """Refuse, as Kafka does, a request with a number that stands for "unknown"."""
    for acl in request.creations:
        _check_known(acl)
    return request


def delete_acls(request: DeleteAcls, header: RequestHeader) -> DeleteAcls:
    """Like :func:`create_acls`."""
    for wanted in request.filters:
        _check_known(wanted)
    return request


def describe_acls(request: DescribeAcls, header: RequestHeader) -> DescribeAcls:
    """Like :func:`create_acls`."""
    _check_known(request)
    return request


# ---------------------------------------------------------------- transactions


def fenced(error_code: ErrorCode, version: int, since: int) -> ErrorCode:
    """Return the error code as a version can carry it: PRODUCER_FENCED is newer than the transaction APIs (KIP-588).

    Args:
        error_code: which it is.
        version: of the request.
        since: the first that knows PRODUCER_FENCED.
    """
    if error_code == ErrorCode.PRODUCER_FENCED and version < since:
        return ErrorCode.INVALID_PRODUCER_EPOCH
    return error_code


def _fenced_answer(response: Fenced, header: RequestHeader, since: int) -> Fenced:
    error_code = fenced(response.error_code, header.api_version, since)
    return response if error_code is response.error_code else evolve(response, error_code=error_code)


def initialised_producer(response: InitProducerIdResponse, header: RequestHeader) -> InitProducerIdResponse:
    """Return the answer; PRODUCER_FENCED is known from version 4 on."""
    return _fenced_answer(response, header, 4)


def added_offsets(response: AddOffsetsToTxnResponse, header: RequestHeader) -> AddOffsetsToTxnResponse:
    """Return the answer; PRODUCER_FENCED is known from version 2 on."""
    return _fenced_answer(response, header, 2)


def end_txn(request: EndTxn, header: RequestHeader) -> EndTxn:
    """Return the request; from version 5 on each transaction ends with a new epoch (KIP-890)."""
    request.bumps_epoch = header.api_version >= 5
    return request


def ended_txn(response: EndTxnResponse, header: RequestHeader) -> EndTxnResponse:
    """Return the answer; PRODUCER_FENCED is known from version 2 on."""
    return _fenced_answer(response, header, 2)
