"""What the adapter writes is what a client reads with kio, for every API and version."""

from __future__ import annotations

from typing import Any

import pytest

from groupcoord.core.log.records import ZERO_UUID
from groupcoord.core.messages import (
    NO_NODE,
    DeletedGroup,
    DeleteGroupsResponse,
    DescribedGroup,
    DescribedMember,
    DescribeGroupsResponse,
    FetchedGroup,
    FetchedOffset,
    FetchedTopic,
    FindCoordinatorResponse,
    FoundCoordinator,
    HeartbeatResponse,
    JoinedMember,
    JoinGroupResponse,
    LeaveGroupResponse,
    LeftMember,
    ListedGroup,
    ListGroupsResponse,
    Node,
    OffsetCommitResponse,
    OffsetFetchResponse,
    PartitionResult,
    SyncGroupResponse,
    TopicResult,
    TopicToFetch,
)
from groupcoord.errors import ErrorCode
from groupcoord.wire import RequestHeader, encode_response
from groupcoord.wire.broker_messages import (
    CreatedPartitions,
    CreatedTopic,
    CreatedTopicConfig,
    CreatePartitionsResponse,
    CreateTopicsResponse,
    DeletedTopic,
    DeleteTopicsResponse,
    FetchedPartitionData,
    FetchedTopicData,
    FetchResponse,
    ListedOffsetsPartition,
    ListedOffsetsTopic,
    ListOffsetsResponse,
    MetadataBroker,
    MetadataPartition,
    MetadataResponse,
    MetadataTopic,
)
from groupcoord.wire.feature_messages import ApiVersionsResponse, FinalizedFeature, ServedApi, SupportedFeature
from tests.tables import as_one_test
from tests.wire.kio_client import CORRELATION_ID, read_response, versions_of
from tests.wire.sample_requests import TOPIC_ID


def answer(api_key: int, version: int, response: Any, reply_context: object = None) -> dict[str, Any]:
    """Encode, read with kio, and take the throttle time out, which is 0 wherever it is."""
    header = RequestHeader(api_key, version, CORRELATION_ID, "client", reply_context)
    values = read_response(api_key, version, encode_response(header, response))
    assert values.pop("throttle_time", 0) == 0
    return values


def without(values: dict[str, Any], **conditions: bool) -> dict[str, Any]:
    """Leave out the fields whose condition does not hold."""
    return {name: value for name, value in values.items() if conditions.get(name, True)}


@as_one_test
@pytest.mark.parametrize("version", versions_of(11))
def test_join_group(version: int) -> None:
    """The whole answer of a leader; an instance id is dropped silently for a leader of an old version."""
    response = JoinGroupResponse(
        ErrorCode.NONE,
        "m1",
        7,
        "consumer",
        "range",
        "m1",
        True,
        (JoinedMember("m1", None, b"\x01" * 200), JoinedMember("m2", "instance", b"")),
    )
    members: list[dict[str, Any]] = [
        {"member_id": "m1", "group_instance_id": None, "metadata": b"\x01" * 200},
        {"member_id": "m2", "group_instance_id": "instance", "metadata": b""},
    ]
    expected = {
        "error_code": 0,
        "generation_id": 7,
        "protocol_type": "consumer",
        "protocol_name": "range",
        "leader": "m1",
        "skip_assignment": True,
        "member_id": "m1",
        "members": [without(member, group_instance_id=version >= 5) for member in members],
    }
    assert answer(11, version, response) == without(expected, protocol_type=version >= 7, skip_assignment=version >= 9)


@as_one_test
@pytest.mark.parametrize("protocol_name", [None, ""])
@pytest.mark.parametrize("version", versions_of(11))
def test_join_group_without_protocol(version: int, protocol_name: str | None) -> None:
    """No protocol is "" before version 7 and null from then on, whichever the coordinator gives."""
    response = JoinGroupResponse(ErrorCode.UNKNOWN_MEMBER_ID, "m", protocol_name=protocol_name)
    values = answer(11, version, response)
    assert values["protocol_name"] == (None if version >= 7 else "")
    assert values["error_code"] == ErrorCode.UNKNOWN_MEMBER_ID
    assert values["generation_id"] == -1


@as_one_test
@pytest.mark.parametrize("version", versions_of(14))
def test_sync_group(version: int) -> None:
    """Protocol type and name are in version 5 only; long assignments too."""
    response = SyncGroupResponse(ErrorCode.NONE, "consumer", "range", bytes(range(256)) * 100)
    expected = {
        "error_code": 0,
        "protocol_type": "consumer",
        "protocol_name": "range",
        "assignment": bytes(range(256)) * 100,
    }
    assert answer(14, version, response) == without(expected, protocol_type=version >= 5, protocol_name=version >= 5)


@as_one_test
@pytest.mark.parametrize(
    "error_code", [ErrorCode.NONE, ErrorCode.REBALANCE_IN_PROGRESS, ErrorCode.UNKNOWN_SERVER_ERROR]
)
@pytest.mark.parametrize("version", versions_of(12))
def test_heartbeat(version: int, error_code: ErrorCode) -> None:
    """Nothing but the error; asked twice, since bodies are kept."""
    assert answer(12, version, HeartbeatResponse(error_code)) == {"error_code": error_code}
    assert answer(12, version, HeartbeatResponse(error_code)) == {"error_code": error_code}


@as_one_test
@pytest.mark.parametrize("version", versions_of(13))
def test_leave_group(version: int) -> None:
    """A batch is answered member by member, ids echoed."""
    members = (LeftMember("m", None, ErrorCode.NONE), LeftMember("", "i", ErrorCode.UNKNOWN_MEMBER_ID))
    expected = {
        "error_code": 0,
        "members": [
            {"member_id": "m", "group_instance_id": None, "error_code": 0},
            {"member_id": "", "group_instance_id": "i", "error_code": 25},
        ],
    }
    assert answer(13, version, LeaveGroupResponse(ErrorCode.NONE, members)) == without(expected, members=version >= 3)


@pytest.mark.parametrize("version", [0, 1, 2])
def test_leave_group_of_one(version: int) -> None:
    """Up to version 2 the error is the top-level one, or else the entry's."""
    left = (LeftMember("m", None, ErrorCode.UNKNOWN_MEMBER_ID),)
    assert answer(13, version, LeaveGroupResponse(ErrorCode.NONE, left))["error_code"] == 25
    assert answer(13, version, LeaveGroupResponse(ErrorCode.NOT_COORDINATOR, left))["error_code"] == 16
    assert answer(13, version, LeaveGroupResponse(ErrorCode.NOT_COORDINATOR))["error_code"] == 16


@pytest.mark.parametrize("version", [version for version in versions_of(15) if version >= 3])
def test_operations_on_an_absent_group(version: int) -> None:
    """Up to version 5 an absent group has authorized operations, like any other; with the error it has none."""
    absent = DescribedGroup("x", ErrorCode.GROUP_ID_NOT_FOUND, group_state="Dead", authorized_operations=3400)
    (group,) = answer(15, version, DescribeGroupsResponse((absent,)))["groups"]
    assert group["authorized_operations"] == (3400 if version <= 5 else -(2**31))


@as_one_test
@pytest.mark.parametrize("version", versions_of(15))
def test_describe_groups(version: int) -> None:
    """A group with a member, and one that is absent: an error only in version 6."""
    member = DescribedMember("m", "i", "client", "/127.0.0.1", b"\x01", b"\x02")
    response = DescribeGroupsResponse(
        (
            DescribedGroup(
                "g",
                group_state="Stable",
                protocol_type="consumer",
                protocol_data="range",
                members=(member,),
                authorized_operations=264,
            ),
            DescribedGroup("x", ErrorCode.GROUP_ID_NOT_FOUND, "Group x not found.", "Dead"),
        )
    )
    described = without(
        {
            "error_code": 0,
            "error_message": None,
            "group_id": "g",
            "group_state": "Stable",
            "protocol_type": "consumer",
            "protocol_data": "range",
            "members": [without(member._asdict(), group_instance_id=version >= 4)],
            "authorized_operations": 264,
        },
        error_message=version >= 6,
        authorized_operations=version >= 3,
    )
    absent = without(
        {
            "error_code": 69 if version >= 6 else 0,
            "error_message": "Group x not found.",
            "group_id": "x",
            "group_state": "Dead",
            "protocol_type": "",
            "protocol_data": "",
            "members": [],
            "authorized_operations": -(2**31),
        },
        error_message=version >= 6,
        authorized_operations=version >= 3,
    )
    assert answer(15, version, response) == {"groups": [described, absent]}


@as_one_test
@pytest.mark.parametrize("version", versions_of(16))
def test_list_groups(version: int) -> None:
    """State from version 4, type from version 5."""
    response = ListGroupsResponse(ErrorCode.NONE, (ListedGroup("g", "consumer", "Stable", "classic"),))
    group = {"group_id": "g", "protocol_type": "consumer", "group_state": "Stable", "group_type": "classic"}
    expected = [without(group, group_state=version >= 4, group_type=version >= 5)]
    assert answer(16, version, response) == {"error_code": 0, "groups": expected}


@pytest.mark.parametrize("version", versions_of(42))
def test_delete_groups(version: int) -> None:
    """One result for each group."""
    response = DeleteGroupsResponse((DeletedGroup("g", ErrorCode.NONE), DeletedGroup("", ErrorCode.NON_EMPTY_GROUP)))
    results = [{"group_id": "g", "error_code": 0}, {"group_id": "", "error_code": 68}]
    assert answer(42, version, response) == {"results": results}


@as_one_test
@pytest.mark.parametrize("version", versions_of(10))
def test_find_coordinator(version: int) -> None:
    """Success says "NONE" in versions 1 to 3 and nothing from version 4 on."""
    found = FoundCoordinator("g", Node(1, "host", 9092), ErrorCode.NONE)
    node = {"node_id": 1, "host": "host", "port": 9092, "error_code": 0}
    if version >= 4:
        expected: dict[str, Any] = {"coordinators": [{"key": "g", "error_message": "", **node}]}
    else:
        expected = without({"error_message": "NONE", **node}, error_message=version >= 1)
    assert answer(10, version, FindCoordinatorResponse((found,))) == expected


@as_one_test
@pytest.mark.parametrize("version", range(1, 7))
def test_find_coordinator_errors(version: int) -> None:
    """Errors have a text up to version 3; from then on only an invalid request has."""
    for error_code in (
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.INVALID_REQUEST,
        ErrorCode.GROUP_AUTHORIZATION_FAILED,
    ):
        response = FindCoordinatorResponse((FoundCoordinator("g", NO_NODE, error_code),))
        values = answer(10, version, response)
        values = values["coordinators"][0] if version >= 4 else values
        assert (values["node_id"], values["host"], values["port"]) == (-1, "", -1)
        assert values["error_code"] == error_code
        assert bool(values["error_message"]) == (version <= 3 or error_code == ErrorCode.INVALID_REQUEST)


@as_one_test
@pytest.mark.parametrize("version", versions_of(8))
def test_offset_commit(version: int) -> None:
    """Errors are told as they are; topics are named as they were."""
    name, topic_id = (None, TOPIC_ID) if version >= 10 else ("orders", ZERO_UUID)
    partitions = (PartitionResult(3, ErrorCode.NONE), PartitionResult(4, ErrorCode.GROUP_ID_NOT_FOUND))
    response = OffsetCommitResponse((TopicResult(name, topic_id, partitions), TopicResult(name, topic_id, ())))
    topic = {"topic_id": TOPIC_ID} if version >= 10 else {"name": "orders"}
    results = [
        {"partition_index": 3, "error_code": 0},
        {"partition_index": 4, "error_code": 69},
    ]
    expected = [{**topic, "partitions": results}, {**topic, "partitions": []}]
    assert answer(8, version, response) == {"topics": expected}


def fetched_offsets(version: int) -> list[dict[str, Any]]:
    offsets = [
        {"partition_index": 3, "committed_offset": 2**40, "committed_leader_epoch": 5, "metadata": "größe" * 40},
        {"partition_index": 4, "committed_offset": -1, "committed_leader_epoch": -1, "metadata": ""},
    ]
    errors = (0, 88)
    return [
        without({**offset, "error_code": error_code}, committed_leader_epoch=version >= 5)
        for offset, error_code in zip(offsets, errors, strict=True)
    ]


@as_one_test
@pytest.mark.parametrize("version", versions_of(9))
def test_offset_fetch(version: int) -> None:
    """Offsets with and without metadata; several groups from version 8."""
    name, topic_id = (None, TOPIC_ID) if version >= 10 else ("orders", ZERO_UUID)
    offsets = (
        FetchedOffset(3, 2**40, 5, "größe" * 40, ErrorCode.NONE),
        FetchedOffset(4, -1, -1, "", ErrorCode.UNSTABLE_OFFSET_COMMIT),
    )
    groups: tuple[FetchedGroup, ...] = (FetchedGroup("g", ErrorCode.NONE, (FetchedTopic(name, topic_id, offsets),)),)
    if version >= 8:
        groups += (FetchedGroup("", ErrorCode.UNKNOWN_MEMBER_ID, ()),)
    topic = {"topic_id": TOPIC_ID} if version >= 10 else {"name": "orders"}
    topics = [{**topic, "partitions": fetched_offsets(version)}]
    expected: dict[str, Any] = without({"topics": topics, "error_code": 0}, error_code=version >= 2)
    if version >= 8:
        expected = {
            "groups": [
                {"group_id": "g", "topics": topics, "error_code": 0},
                {"group_id": "", "topics": [], "error_code": 25},
            ]
        }
    assert answer(9, version, OffsetFetchResponse(groups)) == expected


@as_one_test
@pytest.mark.parametrize("version", range(1, 8))
def test_offset_fetch_error_of_a_group(version: int) -> None:
    """In version 1 the group's error stands at every partition asked for, then at the top."""
    asked = (TopicToFetch("orders", (3, 4)), TopicToFetch("bills", ()))
    response = OffsetFetchResponse((FetchedGroup("g", ErrorCode.NOT_COORDINATOR, ()),))
    values = answer(9, version, response, asked if version == 1 else None)
    if version >= 2:
        assert values == {"topics": [], "error_code": 16}
    else:
        refused = [
            {"partition_index": index, "committed_offset": -1, "metadata": "", "error_code": 16} for index in (3, 4)
        ]
        assert values == {"topics": [{"name": "orders", "partitions": refused}, {"name": "bills", "partitions": []}]}


@pytest.mark.parametrize("version", versions_of(18))
def test_api_versions(version: int) -> None:
    """Features from version 3, those with a lowest level of 0 from version 4."""
    response = ApiVersionsResponse(
        ErrorCode.NONE,
        (ServedApi(12, 0, 4),),
        (SupportedFeature("a", 0, 1), SupportedFeature("b", 1, 2)),
        9,
        (FinalizedFeature("b", 1, 2),),
    )
    values = answer(18, version, response)
    assert values["error_code"] == 0
    assert values["api_keys"] == [{"api_key": 12, "min_version": 0, "max_version": 4}]
    if version >= 3:
        names = [feature["name"] for feature in values["supported_features"]]
        assert names == (["a", "b"] if version >= 4 else ["b"])
        assert values["finalized_features_epoch"] == 9
        assert values["finalized_features"] == [{"name": "b", "min_version_level": 1, "max_version_level": 2}]


@as_one_test
@pytest.mark.parametrize("version", versions_of(3))
def test_metadata(version: int) -> None:
    """Each field from the version on that has it."""
    partition = MetadataPartition(ErrorCode.NONE, 2, 1, 6, (1, 2), (1,), (2,))
    response = MetadataResponse(
        (MetadataBroker(1, "host", 9092, "rack"),),
        (MetadataTopic(ErrorCode.NONE, "orders", TOPIC_ID, True, (partition,), 3),),
        "cluster",
        1,
        4,
        ErrorCode.REBOOTSTRAP_REQUIRED,
    )
    expected_partition = without(
        {
            "error_code": 0,
            "partition_index": 2,
            "leader_id": 1,
            "leader_epoch": 6,
            "replica_nodes": [1, 2],
            "isr_nodes": [1],
            "offline_replicas": [2],
        },
        leader_epoch=version >= 7,
        offline_replicas=version >= 5,
    )
    topic = without(
        {
            "error_code": 0,
            "name": "orders",
            "topic_id": TOPIC_ID,
            "is_internal": True,
            "partitions": [expected_partition],
            "topic_authorized_operations": 3,
        },
        topic_id=version >= 10,
        is_internal=version >= 1,
        topic_authorized_operations=version >= 8,
    )
    broker = without({"node_id": 1, "host": "host", "port": 9092, "rack": "rack"}, rack=version >= 1)
    expected = without(
        {
            "brokers": [broker],
            "cluster_id": "cluster",
            "controller_id": 1,
            "topics": [topic],
            "cluster_authorized_operations": 4,
            "error_code": 129,
        },
        cluster_id=version >= 2,
        controller_id=version >= 1,
        cluster_authorized_operations=8 <= version <= 10,
        error_code=version >= 13,
    )
    assert answer(3, version, response) == expected


@as_one_test
@pytest.mark.parametrize("version", versions_of(19))
def test_create_topics(version: int) -> None:
    """Numbers and settings from version 5, the id from version 7."""
    config = CreatedTopicConfig("retention.ms", "7", False, 1, False)
    response = CreateTopicsResponse((CreatedTopic("orders", ErrorCode.NONE, None, TOPIC_ID, 3, 1, (config,)),))
    topic = {
        "name": "orders",
        "topic_id": TOPIC_ID,
        "error_code": 0,
        "error_message": None,
        "topic_config_error_code": 0,
        "num_partitions": 3,
        "replication_factor": 1,
        "configs": [config._asdict()],
    }
    since_5 = dict.fromkeys(
        ("topic_config_error_code", "num_partitions", "replication_factor", "configs"), version >= 5
    )
    assert answer(19, version, response) == {"topics": [without(topic, topic_id=version >= 7, **since_5)]}


@pytest.mark.parametrize("version", versions_of(37))
def test_create_partitions(version: int) -> None:
    """One result for each topic."""
    results = (CreatedPartitions("a", ErrorCode.NONE), CreatedPartitions("b", ErrorCode.INVALID_PARTITIONS, "no"))
    expected = [
        {"name": "a", "error_code": 0, "error_message": None},
        {"name": "b", "error_code": 37, "error_message": "no"},
    ]
    assert answer(37, version, CreatePartitionsResponse(results)) == {"results": expected}


@as_one_test
@pytest.mark.parametrize("version", versions_of(20))
def test_delete_topics(version: int) -> None:
    """A message from version 5, the id from version 6."""
    deleted = DeletedTopic("orders", TOPIC_ID, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "no")
    topic = {"name": "orders", "topic_id": TOPIC_ID, "error_code": 3, "error_message": "no"}
    expected = without(topic, topic_id=version >= 6, error_message=version >= 5)
    assert answer(20, version, DeleteTopicsResponse((deleted,))) == {"responses": [expected]}


@as_one_test
@pytest.mark.parametrize("version", versions_of(2))
def test_list_offsets(version: int) -> None:
    """Leader epochs from version 4."""
    listed = ListedOffsetsPartition(3, ErrorCode.NONE, 1000, 42, 5)
    partition = without(listed._asdict(), leader_epoch=version >= 4)
    expected = [{"name": "orders", "partitions": [partition]}]
    assert answer(2, version, ListOffsetsResponse((ListedOffsetsTopic("orders", (listed,)),))) == {"topics": expected}


@as_one_test
@pytest.mark.parametrize("version", versions_of(1))
def test_fetch(version: int) -> None:
    """Records and aborted transactions pass; topics are named as they were asked for."""
    name, topic_id = (None, TOPIC_ID) if version >= 13 else ("orders", ZERO_UUID)
    partitions = (
        FetchedPartitionData(3, ErrorCode.NONE, 9, 8, 1, ((7, 2),), -1, (b"rec", b"ords")),
        FetchedPartitionData(4, ErrorCode.OFFSET_OUT_OF_RANGE, aborted_transactions=None),
    )
    response = FetchResponse(ErrorCode.NONE, 77, (FetchedTopicData(name, topic_id, partitions),))
    values = answer(1, version, response)
    assert values.get("session_id", 77) == 77
    (topic,) = values["responses"]
    assert topic.get("topic_id", TOPIC_ID) == TOPIC_ID
    assert topic.get("topic", "orders") == "orders"
    first, second = topic["partitions"]
    assert (first["high_watermark"], first["last_stable_offset"], first["records"]) == (9, 8, b"records")
    assert first["aborted_transactions"] == [{"producer_id": 7, "first_offset": 2}]
    assert first.get("log_start_offset", 1) == 1
    assert (second["partition_index"], second["error_code"], second["records"]) == (4, 1, b"")
    assert second["aborted_transactions"] is None
    assert second.get("preferred_read_replica", -1) == -1
