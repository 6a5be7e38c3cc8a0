"""Bytes that a broker of Apache Kafka 4.4.0 sent, or its classes wrote."""

from __future__ import annotations

from typing import Any
from uuid import UUID

import pytest

from groupcoord.core.log.records import ZERO_UUID
from groupcoord.core.messages import (
    NO_NODE,
    DeletedGroup,
    DeleteGroupsResponse,
    DescribedGroup,
    DescribeGroupsResponse,
    FetchedGroup,
    FetchedOffset,
    FetchedTopic,
    FindCoordinatorResponse,
    FoundCoordinator,
    JoinGroupResponse,
    LeaveGroupResponse,
    LeftMember,
    Node,
    OffsetFetchResponse,
    OffsetToCommit,
    PartitionResult,
    StreamsGroupTopologyDescriptionUpdate,
    SyncGroupResponse,
    TopicResult,
    TopicToCommit,
    TxnOffsetCommit,
    TxnOffsetCommitResponse,
)
from groupcoord.errors import ErrorCode
from groupcoord.wire import RequestHeader, decode_request, encode_response
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


def body(api_key: int, version: int, response: Any, header_bytes: int = 8) -> str:
    """Encode and cut the length, the correlation id and, in ``header_bytes``, the header's tagged fields off."""
    return encode_response(RequestHeader(api_key, version, 7), response)[header_bytes:].hex()


@as_one_test
@pytest.mark.parametrize(
    ("version", "expected"),
    [
        (0, "004f ffffffff 0000 0000 0001 6d 00000000"),
        (1, "004f ffffffff 0000 0000 0001 6d 00000000"),
        (2, "00000000 004f ffffffff 0000 0000 0001 6d 00000000"),
        (5, "00000000 004f ffffffff 0000 0000 0001 6d 00000000"),
        (6, "00000000 004f ffffffff 01 01 02 6d 01 00"),
        (7, "00000000 004f ffffffff 00 00 01 02 6d 01 00"),
        (8, "00000000 004f ffffffff 00 00 01 02 6d 01 00"),
        (9, "00000000 004f ffffffff 00 00 01 00 02 6d 01 00"),
    ],
)
def test_join_group_member_id_required(version: int, expected: str) -> None:
    """The answer that gives an id, in every form it has."""
    response = JoinGroupResponse(ErrorCode.MEMBER_ID_REQUIRED, "m")
    assert body(11, version, response, 9 if version >= 6 else 8) == expected.replace(" ", "")


@pytest.mark.parametrize(
    ("version", "expected"),
    [
        (0, "001b 00000000"),
        (1, "00000000 001b 00000000"),
        (3, "00000000 001b 00000000"),
        (4, "00000000 001b 01 00"),
        (5, "00000000 001b 00 00 01 00"),
    ],
)
def test_sync_group_rebalance_in_progress(version: int, expected: str) -> None:
    """An error comes with an empty assignment."""
    response = SyncGroupResponse(ErrorCode.REBALANCE_IN_PROGRESS)
    assert body(14, version, response, 9 if version >= 4 else 8) == expected.replace(" ", "")


@as_one_test
@pytest.mark.parametrize(
    ("version", "expected"),
    [
        (0, "0000 00000001 0001 68 00002384"),
        (1, "00000000 0000 0004 4e4f4e45 00000001 0001 68 00002384"),
        (2, "00000000 0000 0004 4e4f4e45 00000001 0001 68 00002384"),
        (3, "00000000 0000 05 4e4f4e45 00000001 02 68 00002384 00"),
        (4, "00000000 02 02 67 00000001 02 68 00002384 0000 01 00 00"),
        (6, "00000000 02 02 67 00000001 02 68 00002384 0000 01 00 00"),
    ],
)
def test_find_coordinator(version: int, expected: str) -> None:
    """Success with its odd messages."""
    response = FindCoordinatorResponse((FoundCoordinator("g", Node(1, "h", 9092), ErrorCode.NONE),))
    assert body(10, version, response, 9 if version >= 3 else 8) == expected.replace(" ", "")


def test_find_coordinator_not_available() -> None:
    """A whole frame of version 4: key, no node, no message."""
    found = FoundCoordinator("�ab", NO_NODE, ErrorCode.COORDINATOR_NOT_AVAILABLE)
    frame = encode_response(RequestHeader(10, 4, 7), FindCoordinatorResponse((found,)))
    assert frame.hex() == "0000001e0000000700000000000206efbfbd6162ffffffff01ffffffff000f010000"


@pytest.mark.parametrize(
    ("version", "error_code", "expected"),
    [
        (3, ErrorCode.GROUP_ID_NOT_FOUND, "0000001400000007000000000002056e6f70650045000000"),
        (3, ErrorCode.NOT_COORDINATOR, "0000001400000007000000000002056e6f70650010000000"),
    ],
)
def test_delete_groups(version: int, error_code: ErrorCode, expected: str) -> None:
    """Version 3 has a message, which is null."""
    response = DeleteGroupsResponse((DeletedGroup("nope", error_code),))
    assert encode_response(RequestHeader(42, version, 7), response).hex() == expected


@pytest.mark.parametrize(
    ("version", "expected"),
    [
        (
            6,
            "000000350000000700000000000200451647726f7570206e6f7065206e6f7420666f756e642e056e6f70650544656164010101"
            "800000000000",
        ),
        (5, "0000001f000000070000000000020000056e6f70650544656164010101800000000000"),
    ],
)
def test_describe_absent_group(version: int, expected: str) -> None:
    """An absent group is an error in version 6 and Dead without one before."""
    group = DescribedGroup("nope", ErrorCode.GROUP_ID_NOT_FOUND, "Group nope not found.", "Dead")
    assert encode_response(RequestHeader(15, version, 7), DescribeGroupsResponse((group,))).hex() == expected


@pytest.mark.parametrize(
    ("version", "expected"),
    [(0, "00000006000000070019"), (3, "00000015000000070000000000000000000100016dffff0019")],
)
def test_leave_of_unknown_member(version: int, expected: str) -> None:
    """The entry's error is the top-level one in version 0."""
    response = LeaveGroupResponse(ErrorCode.NONE, (LeftMember("m", None, ErrorCode.UNKNOWN_MEMBER_ID),))
    assert encode_response(RequestHeader(13, version, 7), response).hex() == expected


@pytest.mark.parametrize(
    ("version", "expected"),
    [
        (1, "0000001f00000007000000010001740000000100000000000000000000000500000000"),
        (8, "0000002900000007000000000002026702027402000000000000000000000005ffffffff010000000000000000"),
    ],
)
def test_offset_fetch(version: int, expected: str) -> None:
    topic = FetchedTopic("t", ZERO_UUID, (FetchedOffset(0, 5, -1, "", ErrorCode.NONE),))
    response = OffsetFetchResponse((FetchedGroup("g", ErrorCode.NONE, (topic,)),))
    assert encode_response(RequestHeader(9, version, 7), response).hex() == expected


def test_offset_fetch_of_no_groups() -> None:
    """No groups are asked for and none answered."""
    frame = encode_response(RequestHeader(9, 8, 7), OffsetFetchResponse(()))
    assert frame.hex() == "0000000b0000000700000000000100"


@as_one_test
@pytest.mark.parametrize(
    ("version", "expected"),
    [
        (
            0,
            "0000002b00000007000000010000000100093132372e302e302e310000733400000001000300046e6f706500000000",
        ),
        (
            1,
            "0000003200000007000000010000000100093132372e302e302e3100007334ffff0000000100000001000300046e6f706500"
            "00000000",
        ),
        (
            4,
            "0000004e0000000700000000000000010000000100093132372e302e302e3100007334ffff00164141414141414141414141"
            "41414141414141414141510000000100000001000300046e6f70650000000000",
        ),
        (
            5,
            "0000004e0000000700000000000000010000000100093132372e302e302e3100007334ffff00164141414141414141414141"
            "41414141414141414141510000000100000001000300046e6f70650000000000",
        ),
        (
            8,
            "000000560000000700000000000000010000000100093132372e302e302e3100007334ffff00164141414141414141414141"
            "41414141414141414141510000000100000001000300046e6f7065000000000000000df800001fa0",
        ),
        (
            10,
            "0000005d00000007000000000002000000010a3132372e302e302e3100007334000017414141414141414141414141414141"
            "4141414141415100000001020003056e6f706500000000000000000000000000000000000100000df80000001fa000",
        ),
        (
            13,
            "0000005b00000007000000000002000000010a3132372e302e302e3100007334000017414141414141414141414141414141"
            "4141414141415100000001020003056e6f706500000000000000000000000000000000000100000df800000000",
        ),
    ],
)
def test_metadata(version: int, expected: str) -> None:
    """A broker, and a topic that does not exist."""
    response = MetadataResponse(
        (MetadataBroker(1, "127.0.0.1", 29492),),
        (MetadataTopic(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "nope", topic_authorized_operations=0xDF8),),
        "AAAAAAAAAAAAAAAAAAAAAQ",
        1,
        0x1FA0,
    )
    assert encode_response(RequestHeader(3, version, 7), response).hex() == expected


@pytest.mark.parametrize(
    ("version", "expected"),
    [
        (
            4,
            "000000310000000700000000000000010001740000000100000000000000000000000000000000000000000000ffffffff00"
            "000000",
        ),
        (
            5,
            "0000003900000007000000000000000100017400000001000000000000000000000000000000000000000000000000000000"
            "000000ffffffff00000000",
        ),
        (
            7,
            "0000003f00000007000000000000000000000000000100017400000001000000000000000000000000000000000000000000"
            "000000000000000000ffffffff00000000",
        ),
        (
            11,
            "0000004300000007000000000000000000000000000100017400000001000000000000000000000000000000000000000000"
            "000000000000000000ffffffffffffffff00000000",
        ),
        (
            12,
            "0000003a00000007000000000000000000000002027402000000000000000000000000000000000000000000000000000000"
            "00000000ffffffff01000000",
        ),
    ],
)
def test_fetch_of_nothing(version: int, expected: str) -> None:
    """An empty partition, read without regard to transactions."""
    partition = FetchedPartitionData(0, ErrorCode.NONE, 0, 0, 0, aborted_transactions=None)
    response = FetchResponse(topics=(TopicNameOrIdEntry("t", ZERO_UUID, (partition,)),))
    assert encode_response(RequestHeader(1, version, 7), response).hex() == expected


def test_fetch_of_unknown_topic() -> None:
    """Unknown topics come with an empty list of aborted transactions."""
    partition = FetchedPartitionData(0, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    response = FetchResponse(topics=(TopicNameOrIdEntry("z", ZERO_UUID, (partition,)),))
    assert encode_response(RequestHeader(1, 12, 7), response).hex() == (
        "0000003a00000007000000000000000000000002027a02000000000003ffffffffffffffffffffffffffffffffffffffffff"
        "ffffff01ffffffff01000000"
    )


def test_fetch_of_unknown_session() -> None:
    """A session that does not exist is a top-level error without topics."""
    frame = encode_response(RequestHeader(1, 12, 7), FetchResponse(ErrorCode.FETCH_SESSION_ID_NOT_FOUND))
    assert frame.hex() == "000000110000000700000000000046000000000100"


@pytest.mark.parametrize(
    ("version", "expected"),
    [
        (
            5,
            "0000003100000007000000000002027400241a546f7069632027742720616c7265616479206578697374732effffffffffff"
            "010000",
        ),
        (
            7,
            "000000410000000700000000000202740000000000000000000000000000000000241a546f7069632027742720616c726561"
            "6479206578697374732effffffffffff010000",
        ),
    ],
)
def test_create_existing_topic(version: int, expected: str) -> None:
    """An error comes with -1 for the numbers and no settings."""
    topic = CreatedTopic("t", ErrorCode.TOPIC_ALREADY_EXISTS, "Topic 't' already exists.")
    assert encode_response(RequestHeader(19, version, 7), CreateTopicsResponse((topic,))).hex() == expected


@pytest.mark.parametrize("version", [-1, 6, 99])
def test_unsupported_api_versions(version: int) -> None:
    """A version that is not served is answered in version 0, with ApiVersions' own range only."""
    response = ApiVersionsResponse(ErrorCode.UNSUPPORTED_VERSION, (ServedApi(18, 0, 5),))
    frame = encode_response(RequestHeader(18, version, 7), response)
    assert frame.hex() == "0000001000000007002300000001001200000005"


@pytest.mark.parametrize(("version", "error_code"), [(3, "002a"), (5, "0081")])
def test_refused_api_versions(version: int, error_code: str) -> None:
    """A refusal has an empty list, and the short header in flexible versions too."""
    response = ApiVersionsResponse(ErrorCode(int(error_code, 16)), ())
    frame = encode_response(RequestHeader(18, version, 7), response)
    assert frame.hex() == f"0000000c00000007{error_code}010000000000"


RECORDED_TOPIC_ID = UUID("01020304-0506-0708-090a-0b0c0d0e0f10")

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


def test_txn_offset_commit_response_by_topic_id() -> None:
    """Version 6 answers as Kafka's classes wrote it, and GROUP_ID_NOT_FOUND as it is."""
    response = TxnOffsetCommitResponse(
        (TopicResult("t", RECORDED_TOPIC_ID, (PartitionResult(2, ErrorCode.GROUP_ID_NOT_FOUND),)),)
    )
    frame = encode_response(RequestHeader(28, 6, 7), response)
    body = "00000000 02 0102030405060708090a0b0c0d0e0f10 02 00000002 0045 00 00 00"
    assert frame[9:] == bytes.fromhex(body)


def test_topology_description_update() -> None:
    body = "0667726f7570 076d656d626572 00000004 02 02 30 02 02 6e 01 02 02 74 00 01 02 02 73 00 00 01 00 00"
    frame = bytes.fromhex("005d 0000 01020304 0006 636c69656e74 00" + body)
    expected = StreamsGroupTopologyDescriptionUpdate("group", "member", 4)
    assert decode_request(frame, "/127.0.0.1")[1] == expected
