"""Version differences: how a message differs from kio's dataclass of a version in more than its fields.

Each function takes the fields of a version by kio's names, where the version lacks one with its default, and returns
what the message has, or what is written.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any
from uuid import UUID

from attrs import frozen

from groupcoord.core.messages import StreamsStatusCode
from groupcoord.errors import ErrorCode
from groupcoord.wire import ProtocolError
from tests.wire.generated import Values


@frozen
class Refused:
    """A request that is answered with an error as soon as it is read."""

    error_code: ErrorCode


Reshape = Callable[[Values, int], Any]


# ---------------------------------------------------------------- requests

TOPIC_NAMES = {
    **dict.fromkeys(("topic", "topic_name"), "name"),
    **dict.fromkeys(("partition_indexes", "partition_result"), "partitions"),
}

REQUEST_NAMES: dict[str, dict[str, str]] = {
    "Produce": {"topic_data": "topics", "partition_data": "partitions", "index": "partition_index"},
    "Fetch": {"topic": "name", "partition": "partition_index", "forgotten_topics_data": "forgotten_topics"},
    **dict.fromkeys(
        (
            "OffsetForLeaderEpoch",
            "WriteTxnMarkers",
            "DescribeLogDirs",
            "ElectLeaders",
            "ListPartitionReassignments",
            "DescribeQuorum",
            "DescribeProducers",
        ),
        TOPIC_NAMES,
    ),
    "DescribeGroups": {"groups": "group_ids"},
    "DeleteGroups": {"groups_names": "group_ids"},
    "OffsetDelete": {"partitions": "partition_indexes"},
    "CreateAcls": {"resource_pattern_type": "pattern_type"},
    "ListTransactions": {"duration_filter": "duration_filter_ms"},
}
"""What a request calls a field that kio calls otherwise."""
for name in ("DescribeAcls", "DeleteAcls"):
    filters = ("resource_type", "resource_name", "pattern_type", "principal", "host")
    REQUEST_NAMES[name] = {f"{field}_filter": field for field in filters}

NOT_READ: dict[str, set[str]] = {
    "Produce": {"timeout"},
    "Fetch": {"replica_directory_id", "high_watermark"},
    "WriteTxnMarkers": {"transaction_version"},
    "DescribeConfigs": {"include_documentation"},
    "CreateDelegationToken": {"renewers", "max_lifetime"},
    "RenewDelegationToken": {"hmac", "renew_period"},
    "ExpireDelegationToken": {"hmac", "expiry_time_period"},
    "DescribeDelegationToken": {"owners"},
    **{name: {"timeout"} for name in ("ElectLeaders", "AlterPartitionReassignments", "ListPartitionReassignments")},
    "UpdateFeatures": {"allow_downgrade", "timeout"},
    "DescribeCluster": {"include_fenced_brokers"},
    "AddRaftVoter": {"timeout", "voter_id", "voter_directory_id", "listeners", "ack_when_committed"},
    "RemoveRaftVoter": {"voter_id", "voter_directory_id"},
    "StreamsGroupTopologyDescriptionUpdate": {"topology_description"},
}
"""Fields of a request that are passed over."""


def produce(values: Values, version: int) -> Values:
    """Version 7 brings zstd (KIP-110), 11 and 12 transactions of KIP-890, 13 topics by id."""
    topics = [topic | topic_by_id(topic["name"], topic["topic_id"], version >= 13) for topic in values["topics"]]
    capabilities = {"allows_zstd": version >= 7, "knows_abortable": version >= 11, "adds_partitions": version >= 12}
    return values | {"topics": topics} | capabilities


def topic_by_id(name: str | None, topic_id: UUID | None, has_ids: bool) -> Values:
    return {"name": None, "topic_id": topic_id} if has_ids else {"name": name, "topic_id": None}


def fetch(values: Values, version: int) -> Values:
    """Version 13 brings topics by id; from 15 on a follower's id is in the replica state (KIP-903)."""
    replica_state = values.pop("replica_state")
    if version >= 15:
        values["replica_id"] = replica_state["replica_id"]
    for topic in (*values["topics"], *values["forgotten_topics"]):
        topic |= topic_by_id(topic["name"], topic["topic_id"], version >= 13)
    return values


def list_offsets(values: Values, version: int) -> Values:
    """Special timestamps are newer than the API (KIP-734, 405, 1005, 1023)."""
    return values | {"lowest_timestamp": {7: -3, 8: -4, 9: -5, 10: -5, 11: -6}.get(version, -2)}


def metadata(values: Values, version: int) -> Any:
    """No topics mean all in version 0. Ids came with version 12, and what names no topic at all is refused."""
    topics = values["topics"]
    if version == 0 and not topics:
        values["topics"] = None
    has_ids = any(topic["topic_id"] for topic in topics or ())
    has_nulls = any(topic["name"] is None for topic in topics or ())
    if version < 12 and (has_ids or has_nulls):
        return Refused(ErrorCode.INVALID_REQUEST)
    if has_nulls and not has_ids:
        return Refused(ErrorCode.UNKNOWN_SERVER_ERROR)
    return values


def offset_commit(values: Values, version: int) -> Values:
    """The member's epoch stands for the generation from version 9 on (KIP-848), topics have ids in version 10."""
    values["generation_id"] = values.pop("generation_id_or_member_epoch")
    return values | {"topics": topics_to_commit(values, version >= 10), "supports_member_epoch": version >= 9}


def topics_to_commit(values: Values, has_ids: bool) -> list[Values]:
    """Metadata may be null, which is stored like none."""
    for topic in values["topics"]:
        topic |= topic_by_id(topic.get("name"), topic.get("topic_id"), has_ids)
        for partition in topic["partitions"]:
            partition["committed_metadata"] = partition["committed_metadata"] or ""
    return list(values["topics"])


def offset_fetch(values: Values, version: int) -> Values:
    """Versions to 7 name one group; version 10 names topics by id."""
    groups = values["groups"]
    if version <= 7:
        own = {"group_id": values["group_id"], "topics": values["topics"], "member_id": None, "member_epoch": -1}
        groups = [own]
    for group in groups:
        for topic in group["topics"] or ():
            topic |= topic_by_id(topic["name"], topic.get("topic_id"), version >= 10)
    return {"groups": groups, "require_stable": values["require_stable"], "uses_topic_ids": version >= 10}


def find_coordinator(values: Values, version: int) -> Values:
    """Versions to 3 name one key, version 6 knows share keys."""
    keys = values["coordinator_keys"] if version >= 4 else [values["key"]]
    return {"key_type": values["key_type"], "keys": keys, "supports_share_keys": version >= 6}


def join_group(values: Values, version: int) -> Values:
    """In version 0 the session timeout is also the rebalance timeout; versions determine the member's abilities."""
    if version == 0:
        values["rebalance_timeout_ms"] = values["session_timeout_ms"]
    return values | {"requires_known_member_id": version >= 4, "supports_skip_assignment": version >= 9}


def leave_group(values: Values, version: int) -> Values:
    """Versions to 2 name one member."""
    member_id = values.pop("member_id")
    if version <= 2:
        values["members"] = [{"member_id": member_id, "group_instance_id": None, "reason": None}]
    return values


def sync_group(values: Values, version: int) -> Any:
    """Version 5 without protocol type or name is refused before anything else (KIP-559)."""
    if version >= 5 and (values["protocol_type"] is None or values["protocol_name"] is None):
        return Refused(ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
    return values


def api_versions(values: Values, version: int) -> Any:
    """Version 3 checks how the client's software is named, version 5 that cluster and node come both or not at all."""
    if version <= 4:
        values["node_id"] = -1
    allowed = re.compile("[a-zA-Z0-9]([a-zA-Z0-9.-]*[a-zA-Z0-9])?")
    software = (values["client_software_name"], values["client_software_version"])
    if version >= 3 and not all(allowed.fullmatch(text) for text in software):
        return Refused(ErrorCode.INVALID_REQUEST)
    if (values["cluster_id"] is None) != (values["node_id"] == -1):
        return Refused(ErrorCode.INVALID_REQUEST)
    return values | {"unsupported_version": False}


def delete_topics(values: Values, version: int) -> Values:
    """Topics are named by name or id from version 6 on."""
    names = values.pop("topic_names")
    if version <= 5:
        values["topics"] = [{"name": name, "topic_id": None} for name in names]
    return values


def add_partitions(values: Values, version: int) -> Values:
    """Versions from 4 on are for brokers, and name several transactions (KIP-890)."""
    transactions = values.pop("transactions")
    if version <= 3:
        own = {name.removeprefix("v3_and_below_"): value for name, value in values.items()}
        transactions = [own | {"verify_only": False}]
    return {"transactions": transactions, "is_from_broker": version >= 4}


def txn_offset_commit(values: Values, version: int) -> Values:
    """Version 5 adds the group to the transaction (KIP-890), 6 has topic ids and member epochs (KIP-1319)."""
    topics = topics_to_commit(values, version >= 6)
    return values | {"topics": topics, "adds_group": version >= 5, "supports_member_epoch": version >= 6}


def known_acls(values: Values, version: int) -> Any:
    """A number that stands for "unknown" is refused."""
    for acl in (values, *values.get("creations", ()), *values.get("filters", ())):
        if 0 in [acl.get(name) for name in ("resource_type", "pattern_type", "operation", "permission_type")]:
            return ProtocolError
    return values


def list_config_resources(values: Values, version: int) -> Values:
    """Version 0 is about client metrics."""
    return {"resource_types": [16]} if version == 0 else values


def set_all(values: Values, version: int) -> Values:
    """AlterConfigs sets all named configs."""
    for resource in values["resources"]:
        for config in resource["configs"]:
            config["config_operation"] = 0
    return values


RESHAPED_REQUESTS: dict[str, Reshape] = {
    "Produce": produce,
    "Fetch": fetch,
    "ListOffsets": list_offsets,
    "Metadata": metadata,
    "OffsetCommit": offset_commit,
    "OffsetFetch": offset_fetch,
    "FindCoordinator": find_coordinator,
    "JoinGroup": join_group,
    "LeaveGroup": leave_group,
    "SyncGroup": sync_group,
    "SaslHandshake": lambda values, version: values | {"uses_requests": version >= 1},
    "ApiVersions": api_versions,
    "DeleteTopics": delete_topics,
    "AddPartitionsToTxn": add_partitions,
    "EndTxn": lambda values, version: values | {"bumps_epoch": version >= 5},
    "TxnOffsetCommit": txn_offset_commit,
    "DescribeAcls": known_acls,
    "CreateAcls": known_acls,
    "DeleteAcls": known_acls,
    "AlterConfigs": set_all,
    "ListConfigResources": list_config_resources,
    "ConsumerGroupHeartbeat": lambda values, version: values | {"requires_member_id": version >= 1},
}
"""What a request has that its version does not spell, by the API."""


# ---------------------------------------------------------------- responses

RESPONSE_NAMES: dict[str, dict[str, str]] = {
    "Produce": {
        "responses": "topics",
        "partition_responses": "partitions",
        "index": "partition_index",
        "record_errors": "refused_records",
        "batch_index_error_message": "message",
    },
    "Fetch": {"responses": "topics", "topic": "name"},
    "AddPartitionsToTxn": {
        "results_by_transaction": "results",
        "topic_results": "topics",
        "results_by_partition": "partitions",
        "partition_error_code": "error_code",
    },
    **dict.fromkeys(
        ("OffsetForLeaderEpoch", "AlterReplicaLogDirs", "ElectLeaders", "DescribeQuorum", "DescribeTransactions"),
        TOPIC_NAMES,
    ),
    "DescribeProducers": {"last_timestamp": "last_timestamp_ms"},
    "StreamsGroupHeartbeat": {"status_code": "code", "status_detail": "detail"},
}
"""What a response calls a field that kio calls otherwise."""

NOT_WRITTEN: dict[str, set[str]] = {
    "Fetch": {"snapshot_id"},
    "ApiVersions": {"zk_migration_ready"},
    "CreateTopics": {"read_only", "is_sensitive"},
    "DescribeConfigs": {"is_sensitive", "documentation"},
    "DescribeCluster": {"rack", "is_fenced", "endpoint_type"},
    "DescribeLogDirs": {"is_cordoned", "is_future_key", "offset_lag"},
    "CreateDelegationToken": {"token_id", "hmac"},
    "DescribeDelegationToken": {"tokens"},
    "DeleteGroups": {"error_message"},
    "DescribeQuorum": {"observers", "replica_directory_id"},
    "ListPartitionReassignments": {"adding_replicas", "removing_replicas"},
    "StreamsGroupDescribe": {"topology_description"},
}
"""Fields of a response that always have their defaults, as the throttle time has everywhere."""


UNKNOWN_LEADER = {"leader_id": -1, "leader_epoch": -1}


def without_unknown_leader(partition: Values) -> None:
    """Leave a leader out that is not known: the response's default."""
    if partition["current_leader"] == UNKNOWN_LEADER:
        del partition["current_leader"]


def produced(values: Values, version: int) -> Values:
    for topic in values["topics"]:
        for partition in topic["partitions"]:
            if partition["log_append_time_ms"] is None:
                partition["log_append_time_ms"] = -1
            without_unknown_leader(partition)
    return values


def fetched(values: Values, version: int) -> Values:
    for topic in values["topics"]:
        for partition in topic["partitions"]:
            partition["records"] = [partition["records"] or b""]
            without_unknown_leader(partition)
            if partition["diverging_epoch"] == {"epoch": -1, "end_offset": -1}:
                partition["diverging_epoch"] = None
    return values


def fetched_as_written(values: Values, version: int) -> Values:
    """The current leader is written from version 16 on (KIP-951), with the addresses of nodes."""
    for topic in values["responses"]:
        for partition in topic["partitions"]:
            partition["records"] = partition["records"] or b""
            if 12 <= version <= 15:
                partition["current_leader"] = UNKNOWN_LEADER
    return values


def fetched_offsets(values: Values, version: int) -> Values:
    """One group's topics stand at the top in versions to 7; in version 1 so does no error."""
    groups = values["groups"]
    if version <= 7:
        groups = [{"group_id": "g", "error_code": values["error_code"], "topics": values["topics"]}]
    for topic in (topic for group in groups for topic in group["topics"]):
        topic |= {"name": topic.get("name"), "topic_id": topic.get("topic_id")}
        for partition in topic["partitions"]:
            partition["metadata"] = partition["metadata"] or ""
    return {"groups": groups}


def fetched_offsets_as_written(values: Values, version: int) -> Values:
    for group in values.get("groups", [values]):
        for topic in group["topics"]:
            for partition in topic["partitions"]:
                partition["metadata"] = partition["metadata"] or ""
    return values


def found_coordinators(values: Values, version: int) -> Values:
    """Versions to 3 have one."""
    coordinators = values["coordinators"] if version >= 4 else [values | {"key": ""}]
    node = ("node_id", "host", "port")
    return {
        "coordinators": [
            {"key": found["key"], "error_code": found["error_code"], "node": {name: found[name] for name in node}}
            for found in coordinators
        ]
    }


COORDINATOR_MESSAGES = {
    ErrorCode.NONE: "NONE",
    ErrorCode.COORDINATOR_NOT_AVAILABLE: "The coordinator is not available.",
    ErrorCode.GROUP_AUTHORIZATION_FAILED: "Group authorization failed.",
    ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED: "Transactional Id authorization failed.",
    ErrorCode.CLUSTER_AUTHORIZATION_FAILED: "Cluster authorization failed.",
    ErrorCode.INVALID_REQUEST: (
        "This most likely occurs because of a request being malformed by the client library or the message was sent to "
        "an incompatible broker. See the broker logs for more details."
    ),
}


def found_coordinators_as_written(values: Values, version: int) -> Values:
    """Versions from 4 on have a message only where the whole request is refused, others always, also on success."""
    for found in values.get("coordinators", [values] if "error_message" in values else ()):
        error_code = ErrorCode(found["error_code"])
        is_of_whole = error_code in (ErrorCode.INVALID_REQUEST, ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
        message = COORDINATOR_MESSAGES.get(error_code, error_code.name)
        found["error_message"] = message if version <= 3 or is_of_whole else ""
    return values


def joined_as_written(values: Values, version: int) -> Values:
    """An empty protocol name is null from version 7 on."""
    return values | {"protocol_name": values["protocol_name"] or (None if version >= 7 else "")}


def left_as_written(values: Values, drawn: Values, version: int) -> Values:
    """Versions to 2 have the error of the one member."""
    if version <= 2 and not values["error_code"] and drawn["members"]:
        values["error_code"] = drawn["members"][0]["error_code"]
    return values


def described_as_written(values: Values, version: int) -> Values:
    """A group that does not exist is an error from version 6 on (KIP-1043), and has no operations then."""
    for group in values["groups"]:
        if group["error_code"] == ErrorCode.GROUP_ID_NOT_FOUND:
            if version <= 5:
                group["error_code"] = 0
            else:
                group["authorized_operations"] = -(2**31)
    return values


def supported_as_written(values: Values, version: int) -> Values:
    """A feature with minimum level 0 is known from version 4 on."""
    if version == 3:
        values["supported_features"] = [f for f in values["supported_features"] if f["min_version"] > 0]
    return values


def added_partitions(values: Values, version: int) -> Values:
    """Versions to 3 are about one transaction."""
    topics = values.pop("results_by_topic_v3_and_below")
    if version <= 3:
        values["results"] = [{"transactional_id": "x", "topics": topics}]
    return values


def added_partitions_as_written(values: Values, version: int) -> Values:
    for topic in values.get("results_by_topic_v3_and_below", ()):
        for partition in topic["results_by_partition"]:
            fence(partition, "partition_error_code", version, since=2)
    return values


def fence(values: Values, name: str, version: int, since: int) -> Values:
    """PRODUCER_FENCED is newer than the APIs of transactions (KIP-588)."""
    if values[name] == ErrorCode.PRODUCER_FENCED and version < since:
        values[name] = ErrorCode.INVALID_PRODUCER_EPOCH
    return values


def without_topic_ids(values: Values, version: int) -> Values:
    for topic in values["topics"]:
        topic["topic_id"] = None
    return values


def committed_as_written(values: Values, version: int) -> Values:
    """Error codes that are newer than a version have another in their place (KAFKA-7296, KIP-890, KIP-1319)."""
    older: dict[int, int] = {}
    if version <= 5:
        older[ErrorCode.STALE_MEMBER_EPOCH] = ErrorCode.ILLEGAL_GENERATION
    if version <= 3:
        older[ErrorCode.TRANSACTION_ABORTABLE] = ErrorCode.INVALID_TXN_STATE
    if version <= 1:
        older[ErrorCode.COORDINATOR_LOAD_IN_PROGRESS] = ErrorCode.COORDINATOR_NOT_AVAILABLE
    for topic in values["topics"]:
        for partition in topic["partitions"]:
            partition["error_code"] = older.get(partition["error_code"], partition["error_code"])
    return values


def described_acls(values: Values, version: int) -> Values:
    for resource in values["resources"]:
        own = {name: resource[name] for name in ("resource_type", "resource_name", "pattern_type")}
        resource["acls"] = [own | acl for acl in resource["acls"]]
    return values


def deleted_acls(values: Values, version: int) -> Values:
    for result in values["filter_results"]:
        for acl in result["matching_acls"]:
            del acl["error_code"], acl["error_message"]
    return values


def deleted_acls_as_written(values: Values, version: int) -> Values:
    """An ACL that was found is deleted without error."""
    for result in values["filter_results"]:
        for acl in result["matching_acls"]:
            acl |= {"error_code": 0, "error_message": None}
    return values


def described_quorum(values: Values, version: int) -> Values:
    for topic in values["topics"]:
        for partition in topic["partitions"]:
            del partition["error_message"]
    return values


def described_quorum_as_written(values: Values, version: int) -> Values:
    """Only the whole has a message."""
    for topic in values["topics"]:
        for partition in topic["partitions"]:
            if "error_message" in partition:
                partition["error_message"] = None
    return values


def streams_heartbeat_as_written(values: Values, version: int) -> Values:
    """Version 0 does not know that tags may be missing, and has no null status."""
    if version == 0:
        values["acceptable_recovery_lag"] = 0
        known = [one for one in values["status"] or () if one["status_code"] != StreamsStatusCode.MISSING_CLIENT_TAGS]
        values["status"] = known
    return values


RESHAPED_RESPONSES: dict[str, Reshape] = {
    "Produce": produced,
    "Fetch": fetched,
    "OffsetFetch": fetched_offsets,
    "FindCoordinator": found_coordinators,
    "AddPartitionsToTxn": added_partitions,
    "OffsetDelete": without_topic_ids,
    "DescribeAcls": described_acls,
    "DeleteAcls": deleted_acls,
    "DescribeQuorum": described_quorum,
}
"""The shape of responses that have another one than in kio."""

WRITTEN: dict[str, Reshape] = {
    "Fetch": fetched_as_written,
    "OffsetFetch": fetched_offsets_as_written,
    "FindCoordinator": found_coordinators_as_written,
    "JoinGroup": joined_as_written,
    "DescribeGroups": described_as_written,
    "ApiVersions": supported_as_written,
    "InitProducerId": lambda values, version: fence(values, "error_code", version, since=4),
    "AddPartitionsToTxn": added_partitions_as_written,
    "AddOffsetsToTxn": lambda values, version: fence(values, "error_code", version, since=2),
    "EndTxn": lambda values, version: fence(values, "error_code", version, since=2),
    "TxnOffsetCommit": committed_as_written,
    "DeleteAcls": deleted_acls_as_written,
    "DescribeQuorum": described_quorum_as_written,
    "StreamsGroupHeartbeat": streams_heartbeat_as_written,
}
"""What a version says otherwise than the response."""
