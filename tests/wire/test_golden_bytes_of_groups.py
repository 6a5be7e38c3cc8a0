"""Bytes that a broker of Apache Kafka 4.4.0 sent, or its classes wrote, about groups of KIP-848 and KIP-1071."""

from __future__ import annotations

from typing import Any
from uuid import UUID

import pytest
from attrs import evolve

from groupcoord.core.messages import (
    ConsumerGroupDescribeResponse,
    ConsumerGroupHeartbeatResponse,
    DescribedConsumerGroup,
    DescribedConsumerMember,
    DescribedPartitions,
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
    StreamsGroupDescribeResponse,
    StreamsGroupHeartbeatResponse,
    StreamsGroupTopologyDescriptionUpdateResponse,
    StreamsStatus,
    StreamsStatusCode,
    TaskIds,
    TaskOffset,
    TopicInfo,
    TopicPartitions,
    TopologyDescriptionStatus,
)
from groupcoord.errors import ErrorCode
from groupcoord.wire import RequestHeader, encode_response, encode_response_parts
from tests.tables import as_one_test

HOST = "/127.0.0.1"
RECORDED_TOPIC_ID = UUID("d2d55311-5d17-476a-8775-56ff006d3a16")


@as_one_test
@pytest.mark.parametrize(
    ("response", "frame"),
    [
        (
            ConsumerGroupHeartbeatResponse(
                ErrorCode.NONE, None, "m", 2, 5_000, (TopicPartitions(RECORDED_TOPIC_ID, (0, 1)),)
            ),
            "00000034 00000001 00 00000000 0000 00 026d 00000002 00001388 01 02 d2d553115d17476a877556ff006d3a16 "
            "03 00000000 00000001 00 00 00",
        ),
        (
            ConsumerGroupHeartbeatResponse(ErrorCode.NONE, None, "m", 2, 5_000),
            "00000018 00000001 00 00000000 0000 00 026d 00000002 00001388 ff 00",
        ),
        (
            ConsumerGroupHeartbeatResponse(ErrorCode.NONE, None, "m", 2, 5_000, ()),
            "0000001a 00000001 00 00000000 0000 00 026d 00000002 00001388 01 01 00 00",
        ),
        (
            ConsumerGroupHeartbeatResponse(ErrorCode.UNKNOWN_MEMBER_ID, "Member x is not a member of group raw."),
            "0000003d 00000001 00 00000000 0019 27 4d656d6265722078206973206e6f742061206d656d626572206f6620"
            "67726f7570207261772e 00 00000000 00000000 ff 00",
        ),
    ],
    ids=["assignment", "unchanged", "nothing", "error"],
)
@pytest.mark.parametrize("version", [0, 1])
def test_answers_of_a_broker_to_heartbeats(version: int, response: ConsumerGroupHeartbeatResponse, frame: str) -> None:
    """The bytes are those that a broker sent, which are the same in both versions."""
    assert encode_response(RequestHeader(68, version, 1), response).hex() == frame.replace(" ", "")


def member(**changes: Any) -> DescribedConsumerMember:
    shares = (DescribedPartitions(RECORDED_TOPIC_ID, "t", (0, 1)),)
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

RECORDED_DESCRIPTIONS = {
    0: "000000fa 00000001 00 00000000 04 "
    "0000 00 04726177 07537461626c65 00000002 00000002 08756e69666f726d 02 "
    "026d 00 00 00000002 0263 0b2f3132372e302e302e31 020274 01 "
    "02d2d553115d17476a877556ff006d3a16 0274 03 00000000 00000001 00 00 "
    "02d2d553115d17476a877556ff006d3a16 0274 03 00000000 00000001 00 00 00 00000d48 00 "
    "0000 00 0572617732 07537461626c65 00000002 00000002 08756e69666f726d 02 "
    "026d 0269 0272 00000002 0263 0b2f3132372e302e302e31 02056e6f7065 01 01 00 01 00 00 00000d48 00 "
    "0045 1647726f7570206e6f7065206e6f7420666f756e642e 056e6f7065 01 00000000 00000000 01 01 80000000 00 00",
    1: "000000fc 00000001 00 00000000 04 "
    "0000 00 04726177 07537461626c65 00000002 00000002 08756e69666f726d 02 "
    "026d 00 00 00000002 0263 0b2f3132372e302e302e31 020274 01 "
    "02d2d553115d17476a877556ff006d3a16 0274 03 00000000 00000001 00 00 "
    "02d2d553115d17476a877556ff006d3a16 0274 03 00000000 00000001 00 00 01 00 00000d48 00 "
    "0000 00 0572617732 07537461626c65 00000002 00000002 08756e69666f726d 02 "
    "026d 0269 0272 00000002 0263 0b2f3132372e302e302e31 02056e6f7065 01 01 00 01 00 01 00 00000d48 00 "
    "0045 1647726f7570206e6f7065206e6f7420666f756e642e 056e6f7065 01 00000000 00000000 01 01 80000000 00 00",
}


@pytest.mark.parametrize("version", RECORDED_DESCRIPTIONS)
def test_descriptions_of_a_broker(version: int) -> None:
    """The bytes are those that a broker sent, also in parts; which protocol a member speaks comes with version 1."""
    response, expected = ConsumerGroupDescribeResponse(RECORDED_GROUPS), RECORDED_DESCRIPTIONS[version]
    assert encode_response(RequestHeader(69, version, 1), response).hex() == expected.replace(" ", "")
    parts = encode_response_parts(RequestHeader(69, version, 1), response)
    assert b"".join(parts).hex() == expected.replace(" ", "")


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
def test_answers_about_streams_groups(api_key: int, version: int, response: Response, expected: str) -> None:
    """They have the bytes of Kafka's, in parts as in one piece; version 0 is not told that tags are missing."""
    header = RequestHeader(api_key, version, 1)
    frame = encode_response(header, response)
    assert frame[9:].hex() == expected.replace(" ", "")
    assert b"".join(encode_response_parts(header, response)) == frame
