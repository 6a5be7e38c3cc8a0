"""APIs of KIP-1071: what a client writes is read, and what is written is what Kafka 4.4.0's classes write."""

from __future__ import annotations

import pytest
from attrs import evolve

from groupcoord.conformance.entities import encode_request
from groupcoord.core.messages import (
    CopartitionGroup,
    DescribedStreamsGroup,
    DescribedStreamsMember,
    DescribedSubtopology,
    DescribedTasks,
    DescribedTopology,
    Endpoint,
    EndpointPartitions,
    KeyValue,
    NamedTopicPartitions,
    Response,
    StreamsGroupDescribe,
    StreamsGroupDescribeResponse,
    StreamsGroupHeartbeat,
    StreamsGroupHeartbeatResponse,
    StreamsGroupTopologyDescriptionUpdate,
    StreamsGroupTopologyDescriptionUpdateResponse,
    StreamsStatus,
    StreamsStatusCode,
    Subtopology,
    TaskIds,
    TaskOffset,
    TopicInfo,
    Topology,
    TopologyDescriptionStatus,
)
from groupcoord.errors import ErrorCode
from groupcoord.wire import RequestHeader, decode_request, encode_response, encode_response_parts
from tests.tables import as_one_test
from tests.wire.sample_frames import FRAMES

HOST = "/127.0.0.1"

HEARTBEAT = StreamsGroupHeartbeat(
    "group",
    "member",
    12,
    3,
    instance_id="instance",
    rack_id="rack",
    rebalance_timeout_ms=300_000,
    topology=Topology(
        4,
        (
            Subtopology(
                "0",
                ("orders", "bills"),
                ("b.*",),
                (TopicInfo("app-store-changelog", 0, 1, (KeyValue("cleanup.policy", "compact"),)),),
                ("app-by-key",),
                (TopicInfo("app-by-name", 5),),
                (CopartitionGroup((0, 1), (0,), (0,)),),
            ),
        ),
    ),
    active_tasks=(TaskIds("0", (3, 0)),),
    standby_tasks=(),
    warmup_tasks=(TaskIds("1", ()),),
    process_id="process",
    user_endpoint=Endpoint("größe", 65_535),
    client_tags=(KeyValue("zone", "a"),),
    task_offsets=(TaskOffset("0", 3, 2**40),),
    task_end_offsets=(TaskOffset("0", 3, 2**41),),
    shutdown_application=True,
    client_id="client",
    client_host=HOST,
)


@as_one_test
@pytest.mark.parametrize(
    ("api_key", "version", "request_"),
    [
        (88, 0, HEARTBEAT),
        (88, 1, HEARTBEAT),
        (89, 0, StreamsGroupDescribe(("group", ""), True)),
        (89, 1, StreamsGroupDescribe(("group", ""), True, True)),
        (93, 0, StreamsGroupTopologyDescriptionUpdate("group", "member", 4)),
    ],
)
def test_requests(api_key: int, version: int, request_: object) -> None:
    """Every field is read in every version; what a description of a topology says is passed over."""
    assert decode_request(FRAMES[api_key, version], HOST)[1] == request_


def test_heartbeats_that_are_alike_are_read_once() -> None:
    """A short one that came before is the same object again; the same from elsewhere is not."""
    body = dict.fromkeys(("instance_id", "rack_id", "topology", "process_id", "user_endpoint", "client_tags"))
    body |= dict.fromkeys(("active_tasks", "standby_tasks", "warmup_tasks", "task_offsets", "task_end_offsets"))
    names = {"group_id": "g", "member_id": "m", "member_epoch": 1, "endpoint_information_epoch": 0}
    frame = encode_request("StreamsGroupHeartbeat", 1, 0, "client", {**body, **names, "shutdown_application": False})
    first = decode_request(frame, HOST)[1]
    assert decode_request(frame, HOST)[1] is first
    assert decode_request(frame, "/10.0.0.1")[1] is not first


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


@as_one_test
@pytest.mark.parametrize(
    ("api_key", "version", "response", "expected"),
    [
        (
            88,
            1,
            _GIVEN,
            "00000000 0000 00 026d 00000002 00001388 0000ea60 0000000000002710 01"
            "03 0230 03 00000000 00000001 00 0231 03 00000000 00000001 00 01 01 00 00000000"
            "02 0268fde800 03 0272 03 00000000 00000001 00 0274 03 00000000 00000001 00 01 00 00",
        ),
        (88, 0, _STEADY, "00000000 0000 00 026d 00000002 00001388 00000000 0000ea60 01 00 00 00 00000000 00 00"),
        (
            88,
            1,
            evolve(_STEADY, status=(_SHUTDOWN,)),
            "00000000 0000 00 026d 00000002 00001388 0000ea60 0000000000002710 02 04"
            f"66 {_SHUTDOWN.detail.encode().hex()} 00 00 00 00 00 00000000 00 00",
        ),
        (
            88,
            0,
            evolve(_STEADY, status=(_SHUTDOWN, StreamsStatus(StreamsStatusCode.MISSING_CLIENT_TAGS, "zone"))),
            "00000000 0000 00 026d 00000002 00001388 00000000 0000ea60 02 04"
            f"66 {_SHUTDOWN.detail.encode().hex()} 00 00 00 00 00000000 00 00",
        ),
        (
            88,
            0,
            _UNKNOWN,
            "00000000 0045 1b53747265616d732067726f75702078206e6f7420666f756e642e 01 00000000 00000000 00000000"
            "00000000 01 00 00 00 00000000 00 00",
        ),
        (
            88,
            1,
            _UNKNOWN,
            "00000000 0045 1b53747265616d732067726f75702078206e6f7420666f756e642e 01 00000000 00000000 00000000"
            "ffffffffffffffff 01 00 00 00 00 00000000 00 00",
        ),
        (89, 0, _DESCRIBED, _DESCRIBED_HEX.format(first="", second="")),
        (89, 1, _DESCRIBED, _DESCRIBED_HEX.format(first="ff 01 07737469636b79", second="ff 00 00")),
        (
            93,
            0,
            StreamsGroupTopologyDescriptionUpdateResponse(ErrorCode.UNSUPPORTED_VERSION, "no plugin"),
            "00000000 0023 0a6e6f20706c7567696e 00",
        ),
    ],
)
def test_answers(api_key: int, version: int, response: Response, expected: str) -> None:
    """They have the bytes of Kafka's, in parts as in one piece; version 0 is not told that tags are missing."""
    header = RequestHeader(api_key, version, 1)
    frame = encode_response(header, response)
    assert frame[9:].hex() == expected.replace(" ", "")
    assert b"".join(encode_response_parts(header, response)) == frame
