"""DeleteRecords, OffsetForLeaderEpoch, DescribeProducers, ListTransactions: written and read as clients do."""

from __future__ import annotations

from typing import Any

import pytest

from groupcoord.errors import ErrorCode
from groupcoord.wire import RequestHeader, decode_request, encode_response, encode_response_parts
from groupcoord.wire.broker_messages import (
    CurrentLeader,
    DeletedRecordsPartition,
    DeletedRecordsTopic,
    DeleteRecords,
    DeleteRecordsPartition,
    DeleteRecordsResponse,
    DeleteRecordsTopic,
    FetchedPartitionData,
    FetchedTopicData,
    FetchResponse,
    LeaderEpochEnd,
    LeaderEpochEnds,
    LeaderEpochPartition,
    LeaderEpochTopic,
    MetadataBroker,
    OffsetForLeaderEpoch,
    OffsetForLeaderEpochResponse,
)
from groupcoord.wire.cluster_messages import TopicPartitions
from groupcoord.wire.fetch import COPIED_BYTES
from groupcoord.wire.transaction_messages import (
    DescribedPartition,
    DescribedPartitions,
    DescribedProducer,
    DescribeProducers,
    DescribeProducersResponse,
    ListedTransaction,
    ListTransactions,
    ListTransactionsResponse,
)
from tests.tables import as_one_test
from tests.wire.kio_client import CORRELATION_ID, read_response, request_frame, versions_of
from tests.wire.sample_requests import BODIES, TOPIC_ID


def decode(api_key: int, version: int) -> Any:
    return decode_request(request_frame(api_key, version, BODIES[api_key]), "/127.0.0.1")[1]


def answer(api_key: int, version: int, response: Any) -> dict[str, Any]:
    header = RequestHeader(api_key, version, CORRELATION_ID)
    values = read_response(api_key, version, encode_response(header, response))
    assert values.pop("throttle_time", 0) == 0
    return values


@pytest.mark.parametrize("version", versions_of(21))
def test_delete_records(version: int) -> None:
    """Offsets go in, starts come out, or errors."""
    partitions = (DeleteRecordsPartition(3, 2**40), DeleteRecordsPartition(0, -1))
    assert decode(21, version) == DeleteRecords((DeleteRecordsTopic("orders", partitions),), 1500)
    deleted = (DeletedRecordsPartition(3, ErrorCode.NONE, 9), DeletedRecordsPartition(0, ErrorCode.OFFSET_OUT_OF_RANGE))
    (topic,) = answer(21, version, DeleteRecordsResponse((DeletedRecordsTopic("orders", deleted),)))["topics"]
    assert topic == {
        "name": "orders",
        "partitions": [
            {"partition_index": 3, "low_watermark": 9, "error_code": 0},
            {"partition_index": 0, "low_watermark": -1, "error_code": 1},
        ],
    }


@pytest.mark.parametrize("version", versions_of(23))
def test_offset_for_leader_epoch(version: int) -> None:
    """Epochs go in, their ends come out."""
    asked = LeaderEpochTopic("orders", (LeaderEpochPartition(3, 4, 5),))
    assert decode(23, version) == OffsetForLeaderEpoch((asked,), -2)
    ends = LeaderEpochEnds("orders", (LeaderEpochEnd(3, ErrorCode.NONE, 4, 2**40),))
    (topic,) = answer(23, version, OffsetForLeaderEpochResponse((ends,)))["topics"]
    (end,) = topic["partitions"]
    assert (topic["topic"], end["partition"], end["leader_epoch"], end["end_offset"]) == ("orders", 3, 4, 2**40)


def test_describe_producers() -> None:
    """Who wrote to a partition, and where an open transaction begins."""
    assert decode(61, 0) == DescribeProducers((TopicPartitions("orders", (3, 0)),))
    partition = DescribedPartition(3, ErrorCode.NONE, (DescribedProducer(2**40, 5, 6, 7, 8, 9),))
    (topic,) = answer(61, 0, DescribeProducersResponse((DescribedPartitions("orders", (partition,)),)))["topics"]
    (producer,) = topic["partitions"][0]["active_producers"]
    assert producer == {
        "producer_id": 2**40,
        "producer_epoch": 5,
        "last_sequence": 6,
        "last_timestamp": 7,
        "coordinator_epoch": 8,
        "current_txn_start_offset": 9,
    }


@pytest.mark.parametrize("version", versions_of(66))
def test_list_transactions(version: int) -> None:
    """The filter for durations came with version 1, that for ids with version 2."""
    duration_ms, pattern = 1500 if version >= 1 else -1, "w.*" if version >= 2 else None
    assert decode(66, version) == ListTransactions(("Ongoing",), (2**40,), duration_ms, pattern)
    response = ListTransactionsResponse(ErrorCode.NONE, ("Odd",), (ListedTransaction("w", 2**40, "Ongoing"),))
    values = answer(66, version, response)
    assert values["unknown_state_filters"] == ["Odd"]
    assert values["transaction_states"] == [
        {"transactional_id": "w", "producer_id": 2**40, "transaction_state": "Ongoing"}
    ]


@as_one_test
@pytest.mark.parametrize("version", versions_of(1))
def test_records_go_out_as_they_are_kept(version: int) -> None:
    """An answer to Fetch in parts is the answer in one piece, and many records are not copied into it."""
    records = (memoryview(bytes(COPIED_BYTES)), memoryview(b"few"), memoryview(bytes(COPIED_BYTES + 1)))
    partitions = (
        FetchedPartitionData(3, ErrorCode.NONE, 9, 8, 1, ((7, 2),), -1, records),
        FetchedPartitionData(4, ErrorCode.NONE, 5, 5, 0, None),
        FetchedPartitionData(5, ErrorCode.NONE, 5, 5, 0, None, -1, records[1:2]),
    )
    response = FetchResponse(ErrorCode.NONE, 77, (FetchedTopicData("orders", TOPIC_ID, partitions),))
    header = RequestHeader(1, version, CORRELATION_ID)
    parts = encode_response_parts(header, response)
    assert b"".join(parts) == encode_response(header, response)
    assert [part for part in parts if isinstance(part, memoryview)] == [records[0], records[2]]
    assert len(parts) == 5


@as_one_test
@pytest.mark.parametrize("version", versions_of(1))
def test_few_records_go_out_in_one_part(version: int) -> None:
    """An answer to Fetch of little is one piece; of very many partitions it is in some, none of them large."""
    few, *more = (FetchedPartitionData(index, ErrorCode.NONE, 5, 5, 0, None) for index in range(1_000))
    for partitions in ((), (few,), (few, *more)):
        response = FetchResponse(ErrorCode.NONE, 77, (FetchedTopicData("orders", TOPIC_ID, tuple(partitions)),))
        header = RequestHeader(1, version, CORRELATION_ID)
        parts = encode_response_parts(header, response)
        assert b"".join(parts) == encode_response(header, response)
        assert len(parts) == 1 or len(partitions) > 1
        assert max(map(len, parts)) < 10_000


@as_one_test
@pytest.mark.parametrize("version", versions_of(1))
def test_fetch_tells_the_current_leader(version: int) -> None:
    """The leader of a partition that another node leads, and its address, from version 16 on, as recorded (KIP-951)."""
    elsewhere = ErrorCode.NOT_LEADER_OR_FOLLOWER
    partitions = (
        FetchedPartitionData(0, elsewhere, current_leader=CurrentLeader(2, 5)),
        FetchedPartitionData(1, ErrorCode.NONE, 0, 0, 0),
    )
    endpoints = (MetadataBroker(2, "host", 9093),)
    response = FetchResponse(ErrorCode.NONE, 77, (FetchedTopicData("orders", TOPIC_ID, partitions),), endpoints)
    answer = read_response(1, version, encode_response(RequestHeader(1, version, CORRELATION_ID), response))
    read = answer["responses"][0]["partitions"]
    assert [partition["error_code"] for partition in read] == [elsewhere, ErrorCode.NONE]
    if version >= 12:
        known = {"leader_id": 2, "leader_epoch": 5}
        unknown = {"leader_id": -1, "leader_epoch": -1}
        assert [partition["current_leader"] for partition in read] == [known if version >= 16 else unknown, unknown]
    if version >= 16:
        assert [(place["node_id"], place["host"], place["port"]) for place in answer["node_endpoints"]] == [
            (2, "host", 9093)
        ]
