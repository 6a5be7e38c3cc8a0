"""Transaction APIs, TxnOffsetCommit and OffsetDelete: what a client writes is read, what is written a client reads."""

from __future__ import annotations

import datetime
from typing import Any
from uuid import UUID

import pytest

from groupcoord.core.log.records import ZERO_UUID
from groupcoord.core.messages import (
    OffsetDelete,
    OffsetDeleteResponse,
    OffsetToCommit,
    PartitionResult,
    TopicResult,
    TopicToCommit,
    TopicToDelete,
    TxnOffsetCommit,
    TxnOffsetCommitResponse,
)
from groupcoord.errors import ErrorCode
from groupcoord.wire import RequestHeader, decode_request, encode_response
from groupcoord.wire.cluster_messages import PartitionsOfTopic, TopicPartitions
from groupcoord.wire.transaction_messages import (
    AddedPartitions,
    AddOffsetsToTxn,
    AddOffsetsToTxnResponse,
    AddPartitionsToTxn,
    AddPartitionsToTxnResponse,
    DescribedTransaction,
    DescribeTransactions,
    DescribeTransactionsResponse,
    EndTxn,
    EndTxnResponse,
    InitProducerId,
    InitProducerIdResponse,
    MarkerToWrite,
    PartitionsToAdd,
    WriteTxnMarkers,
    WriteTxnMarkersResponse,
    WrittenMarker,
)
from tests.tables import as_one_test
from tests.wire.kio_client import CORRELATION_ID, read_response, request_frame, versions_of
from tests.wire.sample_requests import BODIES, TXN_OFFSET_COMMIT_6

PRODUCER_ID = 2**40
TOPIC_ID = UUID("01020304-0506-0708-090a-0b0c0d0e0f10")


def decode(api_key: int, version: int, **changes: Any) -> Any:
    return decode_request(request_frame(api_key, version, BODIES[api_key] | changes), "/127.0.0.1")[1]


def answer(api_key: int, version: int, response: Any) -> dict[str, Any]:
    header = RequestHeader(api_key, version, CORRELATION_ID)
    values = read_response(api_key, version, encode_response(header, response))
    assert values.pop("throttle_time", 0) == 0
    return values


def topic_result(name: str | None, *results: tuple[int, ErrorCode], topic_id: UUID = ZERO_UUID) -> TopicResult:
    return TopicResult(name, topic_id, tuple(PartitionResult(index, error) for index, error in results))


def fenced_code(version: int, since: int) -> ErrorCode:
    return ErrorCode.PRODUCER_FENCED if version >= since else ErrorCode.INVALID_PRODUCER_EPOCH


# ---------------------------------------------------------------- InitProducerId


@as_one_test
@pytest.mark.parametrize("version", versions_of(22))
def test_init_producer_id_request(version: int) -> None:
    """What the producer has comes with version 3; a transactional id may be null."""
    known = (PRODUCER_ID, 3) if version >= 3 else (-1, -1)
    assert decode(22, version) == InitProducerId("writer", 60_000, *known)
    assert decode(22, version, transactional_id=None).transactional_id is None


@as_one_test
@pytest.mark.parametrize("version", versions_of(22))
def test_init_producer_id_response(version: int) -> None:
    """Id and epoch, or an error with neither; PRODUCER_FENCED is known from version 4 on."""
    given = answer(22, version, InitProducerIdResponse(ErrorCode.NONE, PRODUCER_ID, 3))
    assert given == {"error_code": 0, "producer_id": PRODUCER_ID, "producer_epoch": 3}
    refused = answer(22, version, InitProducerIdResponse(ErrorCode.PRODUCER_FENCED))
    assert refused == {"error_code": fenced_code(version, 4), "producer_id": -1, "producer_epoch": -1}


# ---------------------------------------------------------------- AddPartitionsToTxn, AddOffsetsToTxn


@as_one_test
@pytest.mark.parametrize("version", versions_of(24))
def test_add_partitions_request(version: int) -> None:
    """One transaction for clients; from version 4 several, for brokers, which may only look."""
    topics = (TopicPartitions("orders", (0, 2)), TopicPartitions("bills", ()))
    wanted = PartitionsToAdd("writer", PRODUCER_ID, 3, topics, verify_only=version >= 4)
    assert decode(24, version) == AddPartitionsToTxn((wanted,), is_from_broker=version >= 4)


@as_one_test
@pytest.mark.parametrize("version", versions_of(24))
def test_add_partitions_response(version: int) -> None:
    """Results by topic, from version 4 on under their transaction; PRODUCER_FENCED is known from version 2 on."""
    topics = (topic_result("orders", (0, ErrorCode.NONE), (2, ErrorCode.PRODUCER_FENCED)),)
    values = answer(24, version, AddPartitionsToTxnResponse((AddedPartitions("writer", topics),)))
    results = [
        {"partition_index": 0, "partition_error_code": 0},
        {"partition_index": 2, "partition_error_code": fenced_code(version, 2)},
    ]
    by_topic = [{"name": "orders", "results_by_partition": results}]
    if version <= 3:
        assert values == {"results_by_topic_v3_and_below": _listed(by_topic)}
    else:
        by_transaction = [{"transactional_id": "writer", "topic_results": by_topic}]
        assert values == {"error_code": 0, "results_by_transaction": _listed(by_transaction)}


def _listed(values: Any) -> Any:
    """Return the same with kio's lists."""
    if isinstance(values, dict):
        return {key: _listed(value) for key, value in values.items()}
    return [_listed(value) for value in values] if isinstance(values, list | tuple) else values


@pytest.mark.parametrize("version", versions_of(25))
def test_add_offsets(version: int) -> None:
    """The group is named; PRODUCER_FENCED is known from version 2 on."""
    assert decode(25, version) == AddOffsetsToTxn("writer", PRODUCER_ID, 3, "group")
    refused = answer(25, version, AddOffsetsToTxnResponse(ErrorCode.PRODUCER_FENCED))
    assert refused == {"error_code": fenced_code(version, 2)}


# ---------------------------------------------------------------- EndTxn


@as_one_test
@pytest.mark.parametrize("version", versions_of(26))
def test_end_request(version: int) -> None:
    """From version 5 on the epoch is raised."""
    assert decode(26, version) == EndTxn("writer", PRODUCER_ID, 3, True, bumps_epoch=version >= 5)
    assert decode(26, version, committed=False).committed is False


@as_one_test
@pytest.mark.parametrize("version", versions_of(26))
def test_end_response(version: int) -> None:
    """Version 5 tells what to go on with; PRODUCER_FENCED is known from version 2 on."""
    ended = {"error_code": 0} | ({"producer_id": PRODUCER_ID, "producer_epoch": 4} if version >= 5 else {})
    assert answer(26, version, EndTxnResponse(ErrorCode.NONE, PRODUCER_ID, 4)) == ended
    refused = answer(26, version, EndTxnResponse(ErrorCode.PRODUCER_FENCED))
    assert refused["error_code"] == fenced_code(version, 2)


# ---------------------------------------------------------------- WriteTxnMarkers, DescribeTransactions


@pytest.mark.parametrize("version", versions_of(27))
def test_write_markers(version: int) -> None:
    """A marker goes to partitions of topics; the transaction version of version 2 is passed over."""
    marker = MarkerToWrite(PRODUCER_ID, 3, True, (TopicPartitions("orders", (0, 2)),), 5)
    assert decode(27, version) == WriteTxnMarkers((marker,))
    written = WrittenMarker(PRODUCER_ID, (topic_result("orders", (0, ErrorCode.NONE)),))
    partitions = [{"partition_index": 0, "error_code": 0}]
    expected = {"markers": [{"producer_id": PRODUCER_ID, "topics": [{"name": "orders", "partitions": partitions}]}]}
    assert _listed(answer(27, version, WriteTxnMarkersResponse((written,)))) == expected


def test_describe_transactions() -> None:
    """All that is known of a transactional id."""
    assert decode(65, 0) == DescribeTransactions(("writer", ""))
    described = DescribedTransaction(
        ErrorCode.NONE,
        "writer",
        "Ongoing",
        60_000,
        1_700_000_000_123,
        PRODUCER_ID,
        3,
        (PartitionsOfTopic("t", (0, 2)),),
    )
    (state,) = answer(65, 0, DescribeTransactionsResponse((described,)))["transaction_states"]
    assert _listed(state) == {
        "error_code": 0,
        "transactional_id": "writer",
        "transaction_state": "Ongoing",
        "transaction_timeout": 60_000,
        "transaction_start_time": datetime.datetime.fromtimestamp(1_700_000_000.123, datetime.UTC),
        "producer_id": PRODUCER_ID,
        "producer_epoch": 3,
        "topics": [{"topic": "t", "partitions": [0, 2]}],
    }


# ---------------------------------------------------------------- TxnOffsetCommit


@as_one_test
@pytest.mark.parametrize("version", versions_of(28))
def test_txn_offset_commit_request(version: int) -> None:
    """Leader epochs come with version 2, the member and its generation with 3, groups that are added with 5."""
    offsets = (
        OffsetToCommit(3, 2**40, 5 if version >= 2 else -1, "größe"),
        OffsetToCommit(4, 0, -1, None),
    )
    member = (12, "member", "instance") if version >= 3 else (-1, "", None)
    topics = (TopicToCommit("orders", offsets), TopicToCommit("bills", ()))
    expected = TxnOffsetCommit(
        *("group", topics, PRODUCER_ID, 3, "writer", *member),
        adds_group=version >= 5,
        supports_member_epoch=version >= 6,
    )
    assert decode(28, version) == expected


def test_txn_offset_commit_request_by_topic_id() -> None:
    """Version 6, in bytes that Kafka's classes wrote, has topic ids in place of names."""
    frame = bytes.fromhex("001c 0006 00000007 0001 63 00") + TXN_OFFSET_COMMIT_6
    offsets = (OffsetToCommit(2, 10, 4, "x"), OffsetToCommit(3, 11, -1, None))
    expected = TxnOffsetCommit("g", (TopicToCommit(None, offsets, TOPIC_ID),), 7, 3, "tx", 5, "m", "i")
    assert decode_request(frame, "/127.0.0.1")[1] == expected


def test_txn_offset_commit_response_by_topic_id() -> None:
    """Version 6 answers as Kafka's classes wrote it, and GROUP_ID_NOT_FOUND as it is."""
    response = TxnOffsetCommitResponse((topic_result("t", (2, ErrorCode.GROUP_ID_NOT_FOUND), topic_id=TOPIC_ID),))
    frame = encode_response(RequestHeader(28, 6, 7), response)
    body = "00000000 02 0102030405060708090a0b0c0d0e0f10 02 00000002 0045 00 00 00"
    assert frame[9:] == bytes.fromhex(body)


@as_one_test
@pytest.mark.parametrize("version", versions_of(28))
@pytest.mark.parametrize(
    ("error_code", "known_from", "before"),
    [
        (ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, 2, ErrorCode.COORDINATOR_NOT_AVAILABLE),
        (ErrorCode.TRANSACTION_ABORTABLE, 4, ErrorCode.INVALID_TXN_STATE),
        (ErrorCode.STALE_MEMBER_EPOCH, 6, ErrorCode.ILLEGAL_GENERATION),
        (ErrorCode.INVALID_PRODUCER_EPOCH, 0, ErrorCode.NONE),
    ],
)
def test_txn_offset_commit_errors(version: int, error_code: ErrorCode, known_from: int, before: ErrorCode) -> None:
    """What an old version does not know is said in its own words."""
    values = answer(28, version, TxnOffsetCommitResponse((topic_result("t", (2, error_code)),)))
    (topic,) = values["topics"]
    (partition,) = topic["partitions"]
    assert (topic["name"], partition["partition_index"]) == ("t", 2)
    assert partition["error_code"] == (error_code if version >= known_from else before)


# ---------------------------------------------------------------- OffsetDelete


def test_offset_delete() -> None:
    """Partitions by topic, both ways; a top-level error comes without topics."""
    topics = (TopicToDelete("orders", (3, 0)), TopicToDelete("bills", ()))
    assert decode(47, 0) == OffsetDelete("group", topics)
    deleted = OffsetDeleteResponse(ErrorCode.NONE, (topic_result("orders", (3, ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC)),))
    partitions = [{"partition_index": 3, "error_code": ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC}]
    expected = {"error_code": 0, "topics": [{"name": "orders", "partitions": partitions}]}
    assert _listed(answer(47, 0, deleted)) == expected
    refused = answer(47, 0, OffsetDeleteResponse(ErrorCode.GROUP_ID_NOT_FOUND))
    assert _listed(refused) == {"error_code": ErrorCode.GROUP_ID_NOT_FOUND, "topics": []}
