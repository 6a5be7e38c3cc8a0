"""APIs about the cluster: what a client writes is read, and what is written a client reads."""

from __future__ import annotations

from typing import Any
from uuid import UUID

import pytest

from groupcoord.core.messages import AUTHORIZED_OPERATIONS_OMITTED
from groupcoord.errors import ErrorCode
from groupcoord.wire import RequestHeader, decode_request, encode_response
from groupcoord.wire.cluster_messages import (
    AlterPartitionReassignments,
    AlterPartitionReassignmentsResponse,
    ClusterBroker,
    DescribeCluster,
    DescribeClusterResponse,
    DescribeLogDirs,
    DescribeLogDirsResponse,
    DescribeQuorum,
    DescribeQuorumResponse,
    DescribeTopicPartitions,
    DescribeTopicPartitionsResponse,
    ElectedPartition,
    ElectedTopic,
    ElectLeaders,
    ElectLeadersResponse,
    ListPartitionReassignments,
    ListPartitionReassignmentsResponse,
    LogDir,
    LogDirPartition,
    LogDirTopic,
    OngoingReassignment,
    OngoingReassignments,
    PartitionCursor,
    PartitionsOfTopic,
    PartitionToReassign,
    QuorumListener,
    QuorumNode,
    QuorumPartition,
    QuorumTopic,
    QuorumTopicToDescribe,
    QuorumVoter,
    ReassignedPartition,
    ReassignedTopic,
    TopicPartitionDescription,
    TopicPartitions,
    TopicPartitionsDescription,
    TopicToReassign,
)
from groupcoord.wire.config_messages import ConfigResource, ListConfigResources, ListConfigResourcesResponse
from groupcoord.wire.quota_messages import DescribeClientQuotas, DescribeClientQuotasResponse, QuotaComponent
from tests.wire.kio_client import CORRELATION_ID, read_response, request_frame, versions_of
from tests.wire.sample_requests import BODIES

TOPIC_ID = UUID("6070354a-825a-4914-b566-b21449659d73")
TOPICS = (PartitionsOfTopic("orders", (3, 0)), PartitionsOfTopic("bills", ()))


def decode(api_key: int, version: int, body: Any = None) -> Any:
    frame = request_frame(api_key, version, BODIES[api_key] if body is None else body)
    return decode_request(frame, "/127.0.0.1")[1]


def answer(api_key: int, version: int, response: Any) -> dict[str, Any]:
    """Encode, and read with kio; the throttle time is 0 where there is one."""
    values = read_response(api_key, version, encode_response(RequestHeader(api_key, version, CORRELATION_ID), response))
    assert values.pop("throttle_time", 0) == 0
    return values


@pytest.mark.parametrize("version", versions_of(60))
def test_describe_cluster(version: int) -> None:
    """The type of the endpoint comes with version 1, fenced brokers with version 2."""
    assert decode(60, version) == DescribeCluster(True, 2 if version >= 1 else 1, version >= 2)


@pytest.mark.parametrize("version", versions_of(60))
def test_described_cluster(version: int) -> None:
    """A broker, and whether it is fenced from version 2 on."""
    response = DescribeClusterResponse(
        cluster_id="cluster", controller_id=7, brokers=(ClusterBroker(7, "host", 9092, "rack", True),)
    )
    broker = {"broker_id": 7, "host": "host", "port": 9092, "rack": "rack"}
    assert answer(60, version, response) == {
        "error_code": 0,
        "error_message": None,
        "cluster_id": "cluster",
        "controller_id": 7,
        "brokers": [broker | ({"is_fenced": True} if version >= 2 else {})],
        "cluster_authorized_operations": AUTHORIZED_OPERATIONS_OMITTED,
    } | ({"endpoint_type": 1} if version >= 1 else {})


def test_describe_topic_partitions() -> None:
    """A structure that may be null is read where it is there, and where it isn't."""
    cursor = PartitionCursor("orders", 3)
    assert decode(75, 0) == DescribeTopicPartitions(("orders", "bills"), 12, cursor)
    assert decode(75, 0, BODIES[75] | {"cursor": None}) == DescribeTopicPartitions(("orders", "bills"), 12, None)


@pytest.mark.parametrize("cursor", [None, PartitionCursor("orders", 1)])
def test_described_topic_partitions(cursor: PartitionCursor | None) -> None:
    """Every replica is in sync; none is offline, or only left to be elected in need."""
    partition = TopicPartitionDescription(0, 7, 5, (7,), (7,))
    topic = TopicPartitionsDescription(ErrorCode.NONE, "orders", TOPIC_ID, True, (partition,), 12)
    (described,) = answer(75, 0, DescribeTopicPartitionsResponse((topic,), cursor))["topics"]
    assert described == {
        "error_code": 0,
        "name": "orders",
        "topic_id": TOPIC_ID,
        "is_internal": True,
        "partitions": [
            {
                "error_code": 0,
                "partition_index": 0,
                "leader_id": 7,
                "leader_epoch": 5,
                "replica_nodes": [7],
                "isr_nodes": [7],
                "eligible_leader_replicas": [],
                "last_known_elr": [],
                "offline_replicas": [],
            },
        ],
        "topic_authorized_operations": 12,
    }
    told = answer(75, 0, DescribeTopicPartitionsResponse((), cursor))["next_cursor"]
    assert told == (None if cursor is None else cursor._asdict())


@pytest.mark.parametrize("version", versions_of(35))
def test_describe_log_dirs(version: int) -> None:
    """All partitions are asked for by null."""
    assert decode(35, version) == DescribeLogDirs(TOPICS)
    assert decode(35, version, {"topics": None}) == DescribeLogDirs(None)


@pytest.mark.parametrize("version", versions_of(35))
def test_described_log_dirs(version: int) -> None:
    """An error of the whole comes with version 3, the volume's sizes with version 4, cordons with version 5."""
    folder = LogDir("/data", (LogDirTopic("orders", (LogDirPartition(3, 2**40),)),), 2**41, 2**42)
    (told,) = answer(35, version, DescribeLogDirsResponse((folder,)))["results"]
    partition = {"partition_index": 3, "partition_size": 2**40, "offset_lag": 0, "is_future_key": False}
    assert told == {
        "error_code": 0,
        "log_dir": "/data",
        "topics": [{"name": "orders", "partitions": [partition]}],
    } | ({"total_bytes": 2**41, "usable_bytes": 2**42} if version >= 4 else {}) | (
        {"is_cordoned": False} if version >= 5 else {}
    )
    refused = answer(35, version, DescribeLogDirsResponse(error_code=ErrorCode.CLUSTER_AUTHORIZATION_FAILED))
    assert refused == {"results": []} | ({"error_code": 31} if version >= 3 else {})


@pytest.mark.parametrize("version", versions_of(43))
def test_elect_leaders(version: int) -> None:
    """The type of election comes with version 1; before, the preferred replica is elected."""
    assert decode(43, version) == ElectLeaders(TOPICS, int(version >= 1), 1234)
    assert decode(43, version, BODIES[43] | {"topic_partitions": None}).topic_partitions is None


@pytest.mark.parametrize("version", versions_of(43))
def test_elected_leaders(version: int) -> None:
    """An error of the whole comes with version 1."""
    topic = ElectedTopic("orders", (ElectedPartition(3, ErrorCode.ELECTION_NOT_NEEDED, "why"),))
    told = answer(43, version, ElectLeadersResponse(ErrorCode.INVALID_REQUEST, (topic,)))
    result = {"partition_id": 3, "error_code": 84, "error_message": "why"}
    expected: dict[str, Any] = {"replica_election_results": [{"topic": "orders", "partition_result": [result]}]}
    assert told == expected | ({"error_code": 42} if version >= 1 else {})


@pytest.mark.parametrize("version", versions_of(45))
def test_alter_partition_reassignments(version: int) -> None:
    """Replicas that are null end a reassignment; whether their number may change comes with version 1."""
    topics = (
        TopicToReassign("orders", (PartitionToReassign(3, (1, 2)), PartitionToReassign(0, None))),
        TopicToReassign("bills", ()),
    )
    assert decode(45, version) == AlterPartitionReassignments(topics, version < 1, 1234)


@pytest.mark.parametrize("version", versions_of(45))
def test_altered_partition_reassignments(version: int) -> None:
    """Each partition has its error."""
    topic = ReassignedTopic("orders", (ReassignedPartition(3, ErrorCode.NO_REASSIGNMENT_IN_PROGRESS, "why"),))
    told = answer(45, version, AlterPartitionReassignmentsResponse((topic,), ErrorCode.NONE, None, False))
    partition = {"partition_index": 3, "error_code": 85, "error_message": "why"}
    assert told == {
        "error_code": 0,
        "error_message": None,
        "responses": [{"name": "orders", "partitions": [partition]}],
    } | ({"allow_replication_factor_change": False} if version >= 1 else {})


def test_list_partition_reassignments() -> None:
    """All topics are asked for by null; with an error the partitions are echoed, without replicas."""
    topics = (TopicPartitions("orders", (3, 0)), TopicPartitions("bills", ()))
    assert decode(46, 0) == ListPartitionReassignments(topics, 1234)
    assert decode(46, 0, BODIES[46] | {"topics": None}).topics is None
    ongoing = OngoingReassignments("orders", (OngoingReassignment(3), OngoingReassignment(0)))
    response = ListPartitionReassignmentsResponse(ErrorCode.CLUSTER_AUTHORIZATION_FAILED, "why", (ongoing,))
    nowhere: dict[str, Any] = {"replicas": [], "adding_replicas": [], "removing_replicas": []}
    assert answer(46, 0, response) == {
        "error_code": 31,
        "error_message": "why",
        "topics": [{"name": "orders", "partitions": [{"partition_index": index} | nowhere for index in (3, 0)]}],
    }


@pytest.mark.parametrize("version", versions_of(55))
def test_describe_quorum(version: int) -> None:
    """Topics and partitions."""
    topics = (QuorumTopicToDescribe("orders", (3, 0)), QuorumTopicToDescribe("bills", ()))
    assert decode(55, version) == DescribeQuorum(topics)


@pytest.mark.parametrize("version", versions_of(55))
def test_described_quorum(version: int) -> None:
    """Times come with version 1; messages, folders and addresses with version 2."""
    partition = QuorumPartition(0, ErrorCode.NONE, 7, 5, 12, (QuorumVoter(7, 12, 2**40, 2**41),))
    response = DescribeQuorumResponse(
        topics=(QuorumTopic("metadata", (partition,)),),
        nodes=(QuorumNode(7, (QuorumListener("NAME", "host", 65_535),)),),
    )
    told = answer(55, version, response)
    voter: dict[str, Any] = {"replica_id": 7, "log_end_offset": 12}
    if version >= 1:
        voter |= {"last_fetch_timestamp": 2**40, "last_caught_up_timestamp": 2**41}
    if version >= 2:
        voter |= {"replica_directory_id": None}
        listener = {"name": "NAME", "host": "host", "port": 65_535}
        assert told["nodes"] == [{"node_id": 7, "listeners": [listener]}]
    (described,) = told["topics"][0]["partitions"]
    assert described == {
        "partition_index": 0,
        "error_code": 0,
        "leader_id": 7,
        "leader_epoch": 5,
        "high_watermark": 12,
        "current_voters": [voter],
        "observers": [],
    } | ({"error_message": None} if version >= 2 else {})


@pytest.mark.parametrize("version", versions_of(48))
def test_describe_client_quotas(version: int) -> None:
    """Without an error there is an empty list; with one there is none."""
    components = (QuotaComponent("user", 0, "größe"), QuotaComponent("ip", 2, None))
    assert decode(48, version) == DescribeClientQuotas(components, True)
    assert answer(48, version, DescribeClientQuotasResponse(entries=()))["entries"] == []
    refused = answer(48, version, DescribeClientQuotasResponse(ErrorCode.INVALID_REQUEST, "why"))
    assert refused == {"error_code": 42, "error_message": "why", "entries": None}


@pytest.mark.parametrize("version", versions_of(74))
def test_list_config_resources(version: int) -> None:
    """Version 0 is about client metrics; types are named from version 1 on."""
    assert decode(74, version) == ListConfigResources((16,) if version == 0 else (2, 99))
    told = answer(74, version, ListConfigResourcesResponse(ErrorCode.NONE, (ConfigResource("orders", 2),)))
    resource = {"resource_name": "orders"} | ({"resource_type": 2} if version >= 1 else {})
    assert told == {"error_code": 0, "config_resources": [resource]}
