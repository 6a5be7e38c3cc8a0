"""Bytes that a broker of Apache Kafka 4.4.0 sent, or its classes wrote."""

from __future__ import annotations

from typing import Any
from uuid import UUID

import pytest
from attrs import evolve

from groupcoord.core.log.records import ZERO_UUID
from groupcoord.core.messages import (
    NO_NODE,
    ConsumerGroupDescribeResponse,
    ConsumerGroupHeartbeatResponse,
    DeletedGroup,
    DeleteGroupsResponse,
    DescribedConsumerGroup,
    DescribedConsumerMember,
    DescribedGroup,
    DescribedPartitions,
    DescribedStreamsGroup,
    DescribedStreamsMember,
    DescribedSubtopology,
    DescribedTasks,
    DescribedTopology,
    DescribeGroupsResponse,
    Endpoint,
    EndpointPartitions,
    FetchedGroup,
    FetchedOffset,
    FetchedTopic,
    FindCoordinatorResponse,
    FoundCoordinator,
    JoinGroupResponse,
    KeyValue,
    LeaveGroupResponse,
    LeftMember,
    NamedTopicPartitions,
    Node,
    OffsetFetchResponse,
    OffsetToCommit,
    PartitionResult,
    StreamsGroupDescribeResponse,
    StreamsGroupHeartbeatResponse,
    StreamsGroupTopologyDescriptionUpdate,
    StreamsGroupTopologyDescriptionUpdateResponse,
    StreamsStatus,
    StreamsStatusCode,
    SyncGroupResponse,
    TaskIds,
    TaskOffset,
    TopicInfo,
    TopicPartitions,
    TopicResult,
    TopicToCommit,
    TopologyDescriptionStatus,
    TxnOffsetCommit,
    TxnOffsetCommitResponse,
)
from groupcoord.errors import ErrorCode
from groupcoord.wire import RequestHeader, decode_request, encode_response, encode_response_parts
from groupcoord.wire.broker_messages import (
    CreatedTopic,
    CreateTopicsResponse,
    FetchedPartitionData,
    FetchResponse,
    MetadataBroker,
    MetadataResponse,
    MetadataTopic,
    TopicNameOrIdEntry,
)
from groupcoord.wire.cluster_messages import ApiVersionsResponse, ServedApi
from tests.tables import as_one_test

RECORDED_TOPIC_ID = UUID("01020304-0506-0708-090a-0b0c0d0e0f10")


HOST = "/127.0.0.1"
ORDERS_ID = UUID("d2d55311-5d17-476a-8775-56ff006d3a16")


def member(**changes: Any) -> DescribedConsumerMember:
    shares = (DescribedPartitions(ORDERS_ID, "t", (0, 1)),)
    values: dict[str, Any] = {
        "member_id": "m",
        "instance_id": None,
        "rack_id": None,
        "member_epoch": 2,
        "client_id": "c",
        "client_host": HOST,
        "subscribed_topic_names": ("t",),
        "subscribed_topic_regex": "",
        "assignment": shares,
        "target_assignment": shares,
    }
    return DescribedConsumerMember(**values | changes)


RECORDED_GROUPS = (
    DescribedConsumerGroup(
        "raw",
        group_state="Stable",
        group_epoch=2,
        assignment_epoch=2,
        assignor_name="uniform",
        members=(member(),),
        authorized_operations=3_400,
    ),
    DescribedConsumerGroup(
        "raw2",
        group_state="Stable",
        group_epoch=2,
        assignment_epoch=2,
        assignor_name="uniform",
        members=(
            member(
                instance_id="i",
                rack_id="r",
                subscribed_topic_names=("nope",),
                assignment=(),
                target_assignment=(),
            ),
        ),
        authorized_operations=3_400,
    ),
    DescribedConsumerGroup("nope", ErrorCode.GROUP_ID_NOT_FOUND, "Group nope not found."),
)

RECORDED_DESCRIPTION = (
    "00 00000000 04 "
    "0000 00 04726177 07537461626c65 00000002 00000002 08756e69666f726d 02 "
    "026d 00 00 00000002 0263 0b2f3132372e302e302e31 020274 01 "
    "02d2d553115d17476a877556ff006d3a16 0274 03 00000000 00000001 00 00 "
    "02d2d553115d17476a877556ff006d3a16 0274 03 00000000 00000001 00 00 {member_type} 00 00000d48 00 "
    "0000 00 0572617732 07537461626c65 00000002 00000002 08756e69666f726d 02 "
    "026d 0269 0272 00000002 0263 0b2f3132372e302e302e31 02056e6f7065 01 01 00 01 00 {member_type} 00 00000d48 00 "
    "0045 1647726f7570206e6f7065206e6f7420666f756e642e 056e6f7065 01 00000000 00000000 01 01 80000000 00 00"
)


_TASKS = (TaskIds("0", (0, 1)), TaskIds("1", (0, 1)))
_STEADY = StreamsGroupHeartbeatResponse(
    ErrorCode.NONE,
    member_id="m",
    member_epoch=2,
    heartbeat_interval_ms=5_000,
    acceptable_recovery_lag=10_000,
    task_offset_interval_ms=60_000,
)
_GIVEN = evolve(
    _STEADY,
    active_tasks=_TASKS,
    standby_tasks=(),
    warmup_tasks=(),
    partitions_by_user_endpoint=(
        EndpointPartitions(
            Endpoint("h", 65_000), (NamedTopicPartitions("r", (0, 1)), NamedTopicPartitions("t", (0, 1))), ()
        ),
    ),
)
_SHUTDOWN = StreamsStatus(
    StreamsStatusCode.SHUTDOWN_APPLICATION,
    "Streams group member m encountered a fatal error and requested a shutdown for the entire application.",
)
_UNKNOWN = StreamsGroupHeartbeatResponse(ErrorCode.GROUP_ID_NOT_FOUND, "Streams group x not found.")
_DESCRIBED = StreamsGroupDescribeResponse(
    (
        DescribedStreamsGroup(
            "g",
            group_state="Stable",
            group_epoch=2,
            assignment_epoch=2,
            topology=DescribedTopology(
                3,
                (
                    DescribedSubtopology(
                        "0", ("t",), ("r",), (TopicInfo("st", 0, 1, (KeyValue("cleanup.policy", "compact"),)),), ()
                    ),
                    DescribedSubtopology("1", (), (), (), (TopicInfo("r", 2),)),
                ),
            ),
            members=(
                DescribedStreamsMember(
                    "m",
                    2,
                    None,
                    "z",
                    "client",
                    HOST,
                    3,
                    "p",
                    Endpoint("h", 65_000),
                    (KeyValue("a", "b"),),
                    (TaskOffset("0", 1, 2**40),),
                    (TaskOffset("0", 1, 2**40 + 1),),
                    DescribedTasks(_TASKS),
                    DescribedTasks(_TASKS),
                ),
            ),
            authorized_operations=3_400,
            topology_description_status=TopologyDescriptionStatus.NOT_STORED,
            assignor_name="sticky",
        ),
        DescribedStreamsGroup("x", ErrorCode.GROUP_ID_NOT_FOUND, "Group x not found."),
    )
)
_DESCRIBED_HEX = (
    "00000000 03 0000 00 0267 07537461626c65 00000002 00000002"
    "01 00000003 03 0230 020274 020272 02 037374 00000000 0001 02 0f636c65616e75702e706f6c696379 08636f6d70616374 0000"
    "01 00 0231 01 01 01 02 0272 00000002 0000 01 00 00 00"
    "02 026d 00000002 00 027a 07636c69656e74 0b2f3132372e302e302e31 00000003 0270 01 0268 fde8 00 02 0261 0262 00"
    "02 0230 00000001 0000010000000000 00 02 0230 00000001 0000010000000001 00"
    "03 0230 03 00000000 00000001 00 0231 03 00000000 00000001 00 01 01 00"
    "03 0230 03 00000000 00000001 00 0231 03 00000000 00000001 00 01 01 00"
    "00 00 00000d48{first} 00 0045 1347726f75702078206e6f7420666f756e642e 0278 01 00000000 00000000 ff 01 80000000"
    "{second} 00 00"
)


def fetched(topic: str, partition: FetchedPartitionData) -> FetchResponse:
    return FetchResponse(topics=(TopicNameOrIdEntry(topic, ZERO_UUID, (partition,)),))


GOLDEN: list[tuple[int, Any, dict[int, str]]] = [
    # the answer that gives an id
    (
        11,
        JoinGroupResponse(ErrorCode.MEMBER_ID_REQUIRED, "m"),
        {
            0: "004fffffffff0000000000016d00000000",
            1: "004fffffffff0000000000016d00000000",
            2: "00000000004fffffffff0000000000016d00000000",
            5: "00000000004fffffffff0000000000016d00000000",
            6: "0000000000004fffffffff0101026d0100",
            7: "0000000000004fffffffff000001026d0100",
            8: "0000000000004fffffffff000001026d0100",
            9: "0000000000004fffffffff00000100026d0100",
        },
    ),
    # an error comes with an empty assignment
    (
        14,
        SyncGroupResponse(ErrorCode.REBALANCE_IN_PROGRESS),
        {
            0: "001b00000000",
            1: "00000000001b00000000",
            3: "00000000001b00000000",
            4: "0000000000001b0100",
            5: "0000000000001b00000100",
        },
    ),
    # success with its odd messages
    (
        10,
        FindCoordinatorResponse((FoundCoordinator("g", Node(1, "h", 9092), ErrorCode.NONE),)),
        {
            0: "00000000000100016800002384",
            1: "00000000000000044e4f4e450000000100016800002384",
            2: "00000000000000044e4f4e450000000100016800002384",
            3: "00000000000000054e4f4e450000000102680000238400",
            4: "0000000000020267000000010268000023840000010000",
            6: "0000000000020267000000010268000023840000010000",
        },
    ),
    # neither a node nor a message
    (
        10,
        FindCoordinatorResponse((FoundCoordinator("�ab", NO_NODE, ErrorCode.COORDINATOR_NOT_AVAILABLE),)),
        {4: "00000000000206efbfbd6162ffffffff01ffffffff000f010000"},
    ),
    # version 3 has a message, which is null
    (
        42,
        DeleteGroupsResponse((DeletedGroup("nope", ErrorCode.GROUP_ID_NOT_FOUND),)),
        {3: "000000000002056e6f70650045000000"},
    ),
    # version 3 has a message, which is null
    (
        42,
        DeleteGroupsResponse((DeletedGroup("nope", ErrorCode.NOT_COORDINATOR),)),
        {3: "000000000002056e6f70650010000000"},
    ),
    # an absent group is an error in version 6 and Dead without one before
    (
        15,
        DescribeGroupsResponse(
            (DescribedGroup("nope", ErrorCode.GROUP_ID_NOT_FOUND, "Group nope not found.", "Dead"),)
        ),
        {
            6: ("00000000000200451647726f7570206e6f7065206e6f7420666f756e642e056e6f70650544656164010101800000000000"),
            5: "0000000000020000056e6f70650544656164010101800000000000",
        },
    ),
    # the entry's error is the top-level one in version 0
    (
        13,
        LeaveGroupResponse(ErrorCode.NONE, (LeftMember("m", None, ErrorCode.UNKNOWN_MEMBER_ID),)),
        {0: "0019", 3: "0000000000000000000100016dffff0019"},
    ),
    # one offset
    (
        9,
        OffsetFetchResponse(
            (
                FetchedGroup(
                    "g",
                    ErrorCode.NONE,
                    (FetchedTopic("t", ZERO_UUID, (FetchedOffset(0, 5, -1, "", ErrorCode.NONE),)),),
                ),
            )
        ),
        {
            1: "000000010001740000000100000000000000000000000500000000",
            8: "000000000002026702027402000000000000000000000005ffffffff010000000000000000",
        },
    ),
    # no groups are asked for and none answered
    (9, OffsetFetchResponse(()), {8: "00000000000100"}),
    # a broker, and a topic that does not exist
    (
        3,
        MetadataResponse(
            (MetadataBroker(1, "127.0.0.1", 29492),),
            (MetadataTopic(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "nope", topic_authorized_operations=0xDF8),),
            "AAAAAAAAAAAAAAAAAAAAAQ",
            1,
            0x1FA0,
        ),
        {
            0: "000000010000000100093132372e302e302e310000733400000001000300046e6f706500000000",
            1: ("000000010000000100093132372e302e302e3100007334ffff0000000100000001000300046e6f70650000000000"),
            4: (
                "00000000000000010000000100093132372e302e302e3100007334ffff00164141414141414141414141414141414141"
                "41414141510000000100000001000300046e6f70650000000000"
            ),
            5: (
                "00000000000000010000000100093132372e302e302e3100007334ffff00164141414141414141414141414141414141"
                "41414141510000000100000001000300046e6f70650000000000"
            ),
            8: (
                "00000000000000010000000100093132372e302e302e3100007334ffff00164141414141414141414141414141414141"
                "41414141510000000100000001000300046e6f7065000000000000000df800001fa0"
            ),
            10: (
                "000000000002000000010a3132372e302e302e3100007334000017414141414141414141414141414141414141414141"
                "5100000001020003056e6f706500000000000000000000000000000000000100000df80000001fa000"
            ),
            13: (
                "000000000002000000010a3132372e302e302e3100007334000017414141414141414141414141414141414141414141"
                "5100000001020003056e6f706500000000000000000000000000000000000100000df800000000"
            ),
        },
    ),
    # an empty partition, read without regard to transactions
    (
        1,
        fetched("t", FetchedPartitionData(0, ErrorCode.NONE, 0, 0, 0, aborted_transactions=None)),
        {
            4: ("00000000000000010001740000000100000000000000000000000000000000000000000000ffffffff00000000"),
            5: (
                "000000000000000100017400000001000000000000000000000000000000000000000000000000000000000000ffffff"
                "ff00000000"
            ),
            7: (
                "000000000000000000000000000100017400000001000000000000000000000000000000000000000000000000000000"
                "000000ffffffff00000000"
            ),
            11: (
                "000000000000000000000000000100017400000001000000000000000000000000000000000000000000000000000000"
                "000000ffffffffffffffff00000000"
            ),
            12: (
                "00000000000000000000000202740200000000000000000000000000000000000000000000000000000000000000ffff"
                "ffff01000000"
            ),
        },
    ),
    # unknown topics come with an empty list of aborted transactions
    (
        1,
        fetched("z", FetchedPartitionData(0, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)),
        {
            12: (
                "000000000000000000000002027a02000000000003ffffffffffffffffffffffffffffffffffffffffffffffff01ffff"
                "ffff01000000"
            )
        },
    ),
    # an unknown session is a top-level error without topics
    (1, FetchResponse(ErrorCode.FETCH_SESSION_ID_NOT_FOUND), {12: "00000000000046000000000100"}),
    # an error comes with -1 for the numbers and no settings
    (
        19,
        CreateTopicsResponse((CreatedTopic("t", ErrorCode.TOPIC_ALREADY_EXISTS, "Topic 't' already exists."),)),
        {
            5: ("000000000002027400241a546f7069632027742720616c7265616479206578697374732effffffffffff010000"),
            7: (
                "00000000000202740000000000000000000000000000000000241a546f7069632027742720616c726561647920657869"
                "7374732effffffffffff010000"
            ),
        },
    ),
    # versions that are not served are answered in version 0
    (
        18,
        ApiVersionsResponse(ErrorCode.UNSUPPORTED_VERSION, (ServedApi(18, 0, 5),)),
        dict.fromkeys((-1, 6, 99), "002300000001001200000005"),
    ),
    # a refusal has the short header in flexible versions, too
    (18, ApiVersionsResponse(ErrorCode(0x002A), ()), {3: "002a010000000000"}),
    (18, ApiVersionsResponse(ErrorCode(0x0081), ()), {5: "0081010000000000"}),
    # topics by id, GROUP_ID_NOT_FOUND as it is
    (
        28,
        TxnOffsetCommitResponse(
            (TopicResult("t", RECORDED_TOPIC_ID, (PartitionResult(2, ErrorCode.GROUP_ID_NOT_FOUND),)),)
        ),
        {6: "0000000000020102030405060708090a0b0c0d0e0f1002000000020045000000"},
    ),
    (
        68,
        ConsumerGroupHeartbeatResponse(ErrorCode.NONE, None, "m", 2, 5_000, (TopicPartitions(ORDERS_ID, (0, 1)),)),
        dict.fromkeys(
            (0, 1),
            "00 00000000 0000 00 026d 00000002 00001388 01 02 d2d553115d17476a877556ff006d3a16 "
            "03 00000000 00000001 00 00 00",
        ),
    ),
    (
        68,
        ConsumerGroupHeartbeatResponse(ErrorCode.NONE, None, "m", 2, 5_000),
        dict.fromkeys((0, 1), "00 00000000 0000 00 026d 00000002 00001388 ff 00"),
    ),
    (
        68,
        ConsumerGroupHeartbeatResponse(ErrorCode.NONE, None, "m", 2, 5_000, ()),
        dict.fromkeys((0, 1), "00 00000000 0000 00 026d 00000002 00001388 01 01 00 00"),
    ),
    (
        68,
        ConsumerGroupHeartbeatResponse(ErrorCode.UNKNOWN_MEMBER_ID, "Member x is not a member of group raw."),
        dict.fromkeys(
            (0, 1),
            "00 00000000 0019 27 4d656d6265722078206973206e6f742061206d656d626572206f6620"
            "67726f7570207261772e 00 00000000 00000000 ff 00",
        ),
    ),
    (
        88,
        _GIVEN,
        {
            1: "00 00000000 0000 00 026d 00000002 00001388 0000ea60 0000000000002710 01"
            "03 0230 03 00000000 00000001 00 0231 03 00000000 00000001 00 01 01 00 00000000"
            "02 0268fde800 03 0272 03 00000000 00000001 00 0274 03 00000000 00000001 00 01 00 00"
        },
    ),
    (88, _STEADY, {0: "00 00000000 0000 00 026d 00000002 00001388 00000000 0000ea60 01 00 00 00 00000000 00 00"}),
    (
        88,
        evolve(_STEADY, status=(_SHUTDOWN,)),
        {
            1: "00 00000000 0000 00 026d 00000002 00001388 0000ea60 0000000000002710 02 04"
            f"66 {_SHUTDOWN.detail.encode().hex()} 00 00 00 00 00 00000000 00 00"
        },
    ),
    (
        88,
        evolve(_STEADY, status=(_SHUTDOWN, StreamsStatus(StreamsStatusCode.MISSING_CLIENT_TAGS, "zone"))),
        {
            0: "00 00000000 0000 00 026d 00000002 00001388 00000000 0000ea60 02 04"
            f"66 {_SHUTDOWN.detail.encode().hex()} 00 00 00 00 00000000 00 00"
        },
    ),
    (
        88,
        _UNKNOWN,
        {
            0: "00 00000000 0045 1b53747265616d732067726f75702078206e6f7420666f756e642e 01 00000000 00000000 00000000"
            "00000000 01 00 00 00 00000000 00 00"
        },
    ),
    (
        88,
        _UNKNOWN,
        {
            1: "00 00000000 0045 1b53747265616d732067726f75702078206e6f7420666f756e642e 01 00000000 00000000 00000000"
            "ffffffffffffffff 01 00 00 00 00 00000000 00 00"
        },
    ),
    (89, _DESCRIBED, {0: "00" + _DESCRIBED_HEX.format(first="", second="")}),
    (89, _DESCRIBED, {1: "00" + _DESCRIBED_HEX.format(first="ff 01 07737469636b79", second="ff 00 00")}),
    (
        93,
        StreamsGroupTopologyDescriptionUpdateResponse(ErrorCode.UNSUPPORTED_VERSION, "no plugin"),
        {0: "00 00000000 0023 0a6e6f20706c7567696e 00"},
    ),
    (
        69,
        ConsumerGroupDescribeResponse(RECORDED_GROUPS),
        {version: RECORDED_DESCRIPTION.format(member_type=kind) for version, kind in ((0, ""), (1, "01"))},
    ),
]
"""API key, response, and the bytes after the correlation id by version."""


@as_one_test
@pytest.mark.parametrize(("api_key", "response", "versions"), GOLDEN)
def test_responses(api_key: int, response: Any, versions: dict[int, str]) -> None:
    """Each response has the bytes of Kafka in every version, in one piece and in parts."""
    for version, expected in versions.items():
        header = RequestHeader(api_key, version, 7)
        frame = encode_response(header, response)
        assert frame[8:] == bytes.fromhex(expected), version
        assert b"".join(encode_response_parts(header, response)) == frame


TXN_OFFSET_COMMIT_6 = bytes.fromhex(
    "03747802670000000000000007000300000005026d0269020102030405060708090a0b0c0d0e0f10"
    "0300000002000000000000000a0000000402780000000003000000000000000bffffffff00000000"
)
"""The body of a TxnOffsetCommit of version 6, which kio does not have, as Kafka's own classes wrote it."""


def test_txn_offset_commit_request_by_topic_id() -> None:
    """Version 6, in bytes that Kafka's classes wrote, has topic ids in place of names."""
    frame = bytes.fromhex("001c 0006 00000007 0001 63 00") + TXN_OFFSET_COMMIT_6
    offsets = (OffsetToCommit(2, 10, 4, "x"), OffsetToCommit(3, 11, -1, None))
    expected = TxnOffsetCommit("g", (TopicToCommit(None, offsets, RECORDED_TOPIC_ID),), 7, 3, "tx", 5, "m", "i")
    assert decode_request(frame, "/127.0.0.1")[1] == expected


def test_topology_description_update() -> None:
    body = "0667726f7570 076d656d626572 00000004 02 02 30 02 02 6e 01 02 02 74 00 01 02 02 73 00 00 01 00 00"
    frame = bytes.fromhex("005d 0000 01020304 0006 636c69656e74 00" + body)
    expected = StreamsGroupTopologyDescriptionUpdate("group", "member", 4)
    assert decode_request(frame, "/127.0.0.1")[1] == expected
