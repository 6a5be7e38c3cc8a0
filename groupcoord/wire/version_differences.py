"""Differences between versions of an API other than their fields, and messages of another shape than their schema."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import TypeVar

from attrs import evolve

from groupcoord.core.log.records import ZERO_UUID
from groupcoord.core.messages import (
    AUTHORIZED_OPERATIONS_OMITTED,
    CoordinatorType,
    DescribedGroup,
    FindCoordinator,
    FindCoordinatorResponse,
    FoundCoordinator,
    JoinGroup,
    JoinGroupResponse,
    LeaveGroup,
    LeaveGroupResponse,
    LeavingMember,
    PartitionResult,
    StreamsGroupHeartbeatResponse,
    StreamsStatusCode,
    SyncGroup,
    SyncGroupResponse,
)
from groupcoord.errors import ErrorCode
from groupcoord.schema.engine import Values
from groupcoord.wire.api import Answered, ProtocolError, RequestHeader
from groupcoord.wire.broker_messages import (
    DeleteTopics,
    ListOffsets,
    Metadata,
    MetadataResponse,
    MetadataTopic,
    TopicEntry,
    TopicReference,
)
from groupcoord.wire.cluster_messages import ApiVersions, ApiVersionsResponse
from groupcoord.wire.config_messages import ConfigResourceType, ListConfigResources
from groupcoord.wire.security_messages import Acl, AclFilter, CreateAcls, DeleteAcls, DescribeAcls
from groupcoord.wire.transaction_messages import (
    AddOffsetsToTxnResponse,
    AddPartitionsToTxn,
    AddPartitionsToTxnResponse,
    EndTxnResponse,
    InitProducerIdResponse,
    PartitionsToAdd,
)

Acls = TypeVar("Acls", CreateAcls, DeleteAcls, DescribeAcls)
Fenced = TypeVar("Fenced", AddOffsetsToTxnResponse, EndTxnResponse, InitProducerIdResponse)

# ---------------------------------------------------------------- ApiVersions (KIP-511, KIP-584, KIP-1242)

_SOFTWARE = re.compile(r"[a-zA-Z0-9](?:[a-zA-Z0-9.-]*[a-zA-Z0-9])?")
_INVALID = ApiVersionsResponse(ErrorCode.INVALID_REQUEST, ())


def api_versions(request: ApiVersions, header: RequestHeader) -> ApiVersions | Answered:
    """Return the request, or INVALID_REQUEST: invalid software name (from version 3), or a lone cluster or node id."""
    if header.api_version >= 3:
        software = (request.client_software_name, request.client_software_version)
        if not all(_SOFTWARE.fullmatch(text) for text in software):
            return Answered(_INVALID)
    if (request.cluster_id is None) != (request.node_id == -1):
        return Answered(_INVALID)
    return request


def served_apis(response: ApiVersionsResponse, header: RequestHeader) -> ApiVersionsResponse:
    if header.api_version >= 4:
        return response
    # Versions before 4 can't express a lowest level of 0.
    known = tuple(feature for feature in response.supported_features if feature.min_version > 0)
    return evolve(response, supported_features=known)


# ---------------------------------------------------------------- FindCoordinator (KIP-699, KIP-932)

# A broker's messages: before version 4 "NONE" on success; from 4 on empty, except where the whole request fails (an
# unknown key type, no permission for share keys).
_MESSAGES = {
    ErrorCode.NONE: "NONE",
    ErrorCode.COORDINATOR_NOT_AVAILABLE: "The coordinator is not available.",
    ErrorCode.INVALID_REQUEST: (
        "This most likely occurs because of a request being malformed by the client library or the message was sent to "
        "an incompatible broker. See the broker logs for more details."
    ),
    ErrorCode.GROUP_AUTHORIZATION_FAILED: "Group authorization failed.",
    ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED: "Transactional Id authorization failed.",
    ErrorCode.CLUSTER_AUTHORIZATION_FAILED: "Cluster authorization failed.",
}


def find_coordinator(values: Values, header: RequestHeader, client_host: str) -> FindCoordinator:
    # From version 4 on there are several keys (KIP-699); version 0 has group keys only.
    keys = values["coordinator_keys"] if header.api_version >= 4 else (values["key"],)
    key_type = values.get("key_type", CoordinatorType.GROUP)
    header.reply_context = key_type
    return FindCoordinator(key_type, keys, supports_share_keys=header.api_version >= 6)


def found_coordinators(response: FindCoordinatorResponse, header: RequestHeader) -> Values:
    if header.api_version >= 4:
        coordinators = [_coordinator(found, header) for found in response.coordinators]
        return {"throttle_time_ms": 0, "coordinators": coordinators}
    (found,) = response.coordinators
    message = _MESSAGES.get(found.error_code, found.error_code.name)
    return {"throttle_time_ms": 0, **_coordinator(found, header), "error_message": message}


def _coordinator(found: FoundCoordinator, header: RequestHeader) -> Values:
    is_of_whole = found.error_code is ErrorCode.CLUSTER_AUTHORIZATION_FAILED or (
        found.error_code is ErrorCode.INVALID_REQUEST and header.reply_context != CoordinatorType.SHARE
    )
    return {
        "key": found.key,
        "node_id": found.node.node_id,
        "host": found.node.host,
        "port": found.node.port,
        "error_code": found.error_code,
        "error_message": _MESSAGES[found.error_code] if is_of_whole else "",
    }


# ---------------------------------------------------------------- groups


def join_group(request: JoinGroup, header: RequestHeader) -> JoinGroup:
    if header.api_version == 0:  # without a rebalance timeout
        request.rebalance_timeout_ms = request.session_timeout_ms
    return request


def joined_group(response: JoinGroupResponse, header: RequestHeader) -> JoinGroupResponse:
    """Return the response; an absent protocol is null from version 7 on (KIP-559), before it is ""."""
    return response if response.protocol_name or header.api_version < 7 else evolve(response, protocol_name=None)


_INCONSISTENT = Answered(SyncGroupResponse(ErrorCode.INCONSISTENT_GROUP_PROTOCOL))


def sync_group(request: SyncGroup, header: RequestHeader) -> SyncGroup | Answered:
    """Return the request; from version 5 on protocol type and name are mandatory, checked before anything else."""
    if header.api_version >= 5 and (request.protocol_type is None or request.protocol_name is None):
        return _INCONSISTENT
    return request


def leave_group(values: Values, header: RequestHeader, client_host: str) -> LeaveGroup:
    if header.api_version <= 2:  # one member (KIP-345)
        return LeaveGroup(values["group_id"], (LeavingMember(values["member_id"]),))
    return LeaveGroup(values["group_id"], tuple(LeavingMember(**member) for member in values["members"]))


def left_group(response: LeaveGroupResponse, header: RequestHeader) -> LeaveGroupResponse:
    # Before version 3 the error of the one member is the top-level one.
    if header.api_version <= 2 and not response.error_code and response.members:
        return LeaveGroupResponse(response.members[0].error_code)
    return response


def streams_group_heartbeat(
    response: StreamsGroupHeartbeatResponse, header: RequestHeader
) -> StreamsGroupHeartbeatResponse:
    if header.api_version >= 1:
        return response
    # In version 0 Kafka sends a lag of 0, and no MISSING_CLIENT_TAGS.
    known = [status for status in response.status or () if status.code is not StreamsStatusCode.MISSING_CLIENT_TAGS]
    return evolve(response, acceptable_recovery_lag=0, status=tuple(known))


def described_group(group: DescribedGroup, header: RequestHeader) -> DescribedGroup:
    """Return a described group.

    From version 6 on an absent one is GROUP_ID_NOT_FOUND with a message (KIP-1043), without authorized operations;
    before, it is a group without error in state ``Dead``.
    """
    if group.error_code != ErrorCode.GROUP_ID_NOT_FOUND:
        return group
    if header.api_version <= 5:
        return group._replace(error_code=ErrorCode.NONE)
    return group._replace(authorized_operations=AUTHORIZED_OPERATIONS_OMITTED)


# ---------------------------------------------------------------- topics and what has settings


def metadata(request: Metadata, header: RequestHeader) -> Metadata | Answered:
    """Return the request, or the error for an invalid topic reference.

    An empty list of topics stands for all in version 0, null from 1 on. Topics have ids from version 12 on.
    """
    if not request.topics and header.api_version == 0:
        request.topics = None
    if request.topics is None:
        return request
    error_code = _reference_error(request.topics, header.api_version)
    if error_code is None:
        return request
    failed = tuple(MetadataTopic(error_code, topic.name or "", topic.topic_id) for topic in request.topics)
    return Answered(MetadataResponse(brokers=(), topics=failed))


def _reference_error(topics: tuple[TopicReference, ...], version: int) -> ErrorCode | None:
    has_ids = any(topic.topic_id != ZERO_UUID for topic in topics)
    has_nulls = any(topic.name is None for topic in topics)
    if version < 12 and (has_ids or has_nulls):
        return ErrorCode.INVALID_REQUEST
    # With ids, names are not validated.
    return ErrorCode.UNKNOWN_SERVER_ERROR if has_nulls and not has_ids else None


_NEW_TIMESTAMPS = {7: -3, 8: -4, 9: -5, 11: -6}
"""Special timestamps by their first version (KIP-734, 405, 1005, 1023), besides -1 and -2."""


def list_offsets(request: ListOffsets, header: RequestHeader) -> ListOffsets:
    known = (stamp for version, stamp in _NEW_TIMESTAMPS.items() if version <= header.api_version)
    request.lowest_timestamp = min(known, default=-2)
    return request


def delete_topics(values: Values, header: RequestHeader, client_host: str) -> DeleteTopics:
    if header.api_version >= 6:  # by name or id (KIP-516)
        topics = tuple(TopicReference(topic["name"], topic["topic_id"]) for topic in values["topics"])
    else:
        topics = tuple(TopicReference(name) for name in values["topic_names"])
    return DeleteTopics(topics, values["timeout_ms"])


def list_config_resources(request: ListConfigResources, header: RequestHeader) -> ListConfigResources:
    # Version 0 lists client metrics only (KIP-714), from 1 on it names types (KIP-1142).
    return ListConfigResources((ConfigResourceType.CLIENT_METRICS,)) if header.api_version == 0 else request


# ---------------------------------------------------------------- log-in and ACLs


_UNKNOWN = 0


def known_acls(request: Acls, header: RequestHeader) -> Acls:
    """Return the request.

    Raises:
        ProtocolError: a number stands for "unknown", which Kafka does not parse.
    """
    acls: tuple[Acl | AclFilter, ...]
    if isinstance(request, DescribeAcls):
        acls = (request,)
    else:
        acls = request.creations if isinstance(request, CreateAcls) else request.filters
    for acl in acls:
        if _UNKNOWN in (acl.resource_type, acl.pattern_type, acl.operation, acl.permission_type):
            raise ProtocolError("an ACL has something that is unknown")
    return request


# ---------------------------------------------------------------- transactions


def _fenced(error_code: ErrorCode, version: int, since: int) -> ErrorCode:
    """Return the error code in a version; PRODUCER_FENCED is newer than the transaction APIs (KIP-588)."""
    if error_code == ErrorCode.PRODUCER_FENCED and version < since:
        return ErrorCode.INVALID_PRODUCER_EPOCH
    return error_code


def fenced_from(since: int) -> Callable[[Fenced, RequestHeader], Fenced]:
    """Return a function that adapts a response; ``since``: the first version with PRODUCER_FENCED."""

    def adapt(response: Fenced, header: RequestHeader) -> Fenced:
        error_code = _fenced(response.error_code, header.api_version, since)
        return response if error_code is response.error_code else evolve(response, error_code=error_code)

    return adapt


_CLIENTS_PREFIX = "v3_and_below_"


def add_partitions_to_txn(values: Values, header: RequestHeader, client_host: str) -> AddPartitionsToTxn:
    """Return the request; versions from 4 on are for brokers: several transactions, or only a check (KIP-890)."""
    if header.api_version >= 4:
        transactions = tuple(_partitions_to_add(transaction) for transaction in values["transactions"])
        return AddPartitionsToTxn(transactions, is_from_broker=True)
    own = {name.removeprefix(_CLIENTS_PREFIX): value for name, value in values.items()}
    return AddPartitionsToTxn((_partitions_to_add(own),))


def _partitions_to_add(values: Values) -> PartitionsToAdd:
    return PartitionsToAdd(
        transactional_id=values["transactional_id"],
        producer_id=values["producer_id"],
        producer_epoch=values["producer_epoch"],
        topics=tuple(TopicEntry(topic["name"], topic["partitions"]) for topic in values["topics"]),
        verify_only=values.get("verify_only", False),
    )


def added_partitions(response: AddPartitionsToTxnResponse, header: RequestHeader) -> Values:
    version = header.api_version
    if version < 4:
        (result,) = response.results
        return {"throttle_time_ms": 0, "results_by_topic_v3_and_below": _added_topics(result.topics, version)}
    results = [
        {"transactional_id": result.transactional_id, "topic_results": _added_topics(result.topics, version)}
        for result in response.results
    ]
    return {"throttle_time_ms": 0, "error_code": response.error_code, "results_by_transaction": results}


def _added_topics(topics: tuple[TopicEntry[PartitionResult], ...], version: int) -> list[Values]:
    return [
        {
            "name": topic.name,
            "results_by_partition": [
                {"partition_index": index, "partition_error_code": _fenced(error_code, version, since=2)}
                for index, error_code in topic.partitions
            ],
        }
        for topic in topics
    ]
