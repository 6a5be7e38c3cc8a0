"""Produce: read and written as a client of each version expects; the versions that are only listed are refused."""

from __future__ import annotations

import re
from typing import Any
from uuid import UUID

import pytest

from groupcoord.errors import ErrorCode
from groupcoord.wire import (
    API_VERSIONS,
    ProtocolError,
    RequestHeader,
    UnsupportedVersionError,
    decode_request,
    encode_response,
)
from groupcoord.wire.broker_messages import (
    CurrentLeader,
    MetadataBroker,
    Produce,
    ProducedPartition,
    ProducedTopic,
    ProducePartition,
    ProduceResponse,
    ProduceTopic,
)
from groupcoord.wire.primitives import write_uvarint
from groupcoord.wire.produce import FEW, names_few
from groupcoord.wire.registry import APIS
from tests.tables import as_one_test
from tests.wire.kio_client import CORRELATION_ID, read_response, request_frame, versions_of
from tests.wire.sample_requests import BODIES, OTHER_TOPIC_ID, TOPIC_ID

NO_ID = UUID(int=0)


@as_one_test
@pytest.mark.parametrize("version", versions_of(0))
def test_request(version: int) -> None:
    """Topics come by name, in version 13 by id, with records or null; what is allowed goes by version."""
    is_by_id = version >= 13
    topics = (
        ("orders", TOPIC_ID, (ProducePartition(3, b"records"), ProducePartition(0, None))),
        ("bills", OTHER_TOPIC_ID, ()),
    )
    expected = tuple(
        ProduceTopic(None if is_by_id else name, topic_id if is_by_id else NO_ID, partitions)
        for name, topic_id, partitions in topics
    )
    _, request = decode_request(request_frame(0, version, BODIES[0]), "/127.0.0.1")
    assert request == Produce(
        expected,
        -1,
        "transaction",
        allows_zstd=version >= 7,
        knows_abortable=version >= 11,
        adds_partitions=version >= 12,
    )


@as_one_test
@pytest.mark.parametrize("version", versions_of(0))
def test_a_view_of_a_request(version: int) -> None:
    """It is read as its bytes are, and its records are views of the same."""
    frame = request_frame(0, version, BODIES[0])
    expected = decode_request(frame, "/127.0.0.1")
    for buffer in (frame, memoryview(frame), memoryview(bytearray(frame))):
        header, request = decode_request(buffer, "/127.0.0.1")
        assert (header, request) == expected
        assert isinstance(request, Produce)
        records = request.topics[0].partitions[0].records
        assert isinstance(records, memoryview)
        assert records.obj is (buffer.obj if isinstance(buffer, memoryview) else buffer)


def body(topics: int, partitions: int, size_bytes: int = 1) -> dict[str, Any]:
    data = [{"index": index, "records": bytes(size_bytes)} for index in range(partitions)]
    named = [{"name": f"t{number}", "topic_id": TOPIC_ID, "partition_data": data} for number in range(topics)]
    return {"transactional_id": None, "acks": 1, "timeout": 0, "topic_data": named}


@as_one_test
@pytest.mark.parametrize("version", versions_of(0))
def test_whether_a_request_names_few(version: int) -> None:
    """However many bytes it has; one of many partitions, in however many topics, and other APIs don't."""
    for few in (body(1, FEW - 1), body(FEW // 2, 1), body(1, 1, 5_000_000), body(FEW, 0), body(0, 0)):
        frame = request_frame(0, version, few)
        assert names_few(frame)
        assert names_few(memoryview(bytearray(frame)))
    for many in (body(1, FEW), body(FEW + 1, 0), body(FEW // 2, 2)):
        assert not names_few(request_frame(0, version, many))
    assert not names_few(request_frame(18, 0, {}))


@as_one_test
@pytest.mark.parametrize("version", [version for version in versions_of(0) if version >= 9])
def test_tagged_fields_are_not_few(version: int) -> None:
    """A thousand of them that nobody knows are wherever they stand no short request, whatever else it names."""
    frame = request_frame(0, version, body(2, 2))
    tags = write_uvarint(1_000) + b"\x63\x00" * 1_000
    places = [place for place in range(12, len(frame)) if frame[place] == 0]
    laden = [frame[:place] + tags + frame[place + 1 :] for place in places]
    read = []
    for changed in laden:
        try:
            decode_request(changed, "/127.0.0.1")
        except ProtocolError:
            continue
        read.append(changed)
    assert len(read) >= 7
    assert [changed for changed in read if names_few(changed)] == [frame[:-1] + tags]


@as_one_test
@pytest.mark.parametrize("version", versions_of(0))
def test_a_view_of_a_request_that_is_cut(version: int) -> None:
    """It is refused with the words that are used for its bytes, and is no long work."""
    frame = request_frame(0, version, BODIES[0])
    for size in range(2, len(frame)):
        with pytest.raises(ProtocolError) as refused:
            decode_request(frame[:size], "/127.0.0.1")
        with pytest.raises(ProtocolError, match=f"^{re.escape(str(refused.value))}$"):
            decode_request(memoryview(frame)[:size], "/127.0.0.1")
        assert names_few(frame[:size])


@as_one_test
@pytest.mark.parametrize("version", versions_of(0))
def test_response(version: int) -> None:
    """Offsets, times and starts, none with an error; messages and refused records from version 8."""
    partitions = (
        ProducedPartition(3, ErrorCode.POLICY_VIOLATION, "no"),
        ProducedPartition(9, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        ProducedPartition(5, ErrorCode.INVALID_RECORD, "no keys", refused_records=(1, 3)),
        ProducedPartition(4, ErrorCode.NONE, None, 2**40, 1_700_000_000_000, 7),
        ProducedPartition(6, ErrorCode.NOT_LEADER_OR_FOLLOWER, current_leader=CurrentLeader(2, 5)),
    )
    endpoints = (MetadataBroker(2, "host", 9093),)
    response = ProduceResponse((ProducedTopic("orders", TOPIC_ID, partitions),), endpoints)
    frame = encode_response(RequestHeader(0, version, CORRELATION_ID), response)
    answer = read_response(0, version, frame)
    (topic,) = answer["responses"]
    if version >= 10:
        assert [(place["node_id"], place["host"], place["port"]) for place in answer["node_endpoints"]] == [
            (2, "host", 9093)
        ]
        leaders = [partition["current_leader"] for partition in topic["partition_responses"]]
        assert leaders == [*[{"leader_id": -1, "leader_epoch": -1}] * 4, {"leader_id": 2, "leader_epoch": 5}]
    assert topic["topic_id" if version >= 13 else "name"] == (TOPIC_ID if version >= 13 else "orders")
    for read, (index, error_code, message, offset, time_ms, start, refused, _) in zip(
        topic["partition_responses"], partitions, strict=True
    ):
        assert (read["index"], read["error_code"], read["base_offset"]) == (index, error_code, offset)
        append_time = read["log_append_time"]
        assert append_time is None if time_ms < 0 else append_time.timestamp() * 1000 == time_ms
        assert read.get("log_start_offset", start) == start
        errors = [{"batch_index": number, "batch_index_error_message": message} for number in refused]
        assert read.get("record_errors", []) == (errors if version >= 8 else [])
        assert read.get("error_message", message if version < 8 else "?") == message


@pytest.mark.parametrize(
    ("version", "expected"),
    [
        (3, "00000001 0004 6e6f7065 00000001 00000000 0003 ffffffffffffffff ffffffffffffffff 00000000"),
        (
            9,
            "02 05 6e6f7065 02 00000000 0003" + 3 * "ffffffffffffffff" + "01 00 00 00 00000000 00",
        ),
    ],
)
def test_an_unknown_topic_as_recorded(version: int, expected: str) -> None:
    """The bytes that a broker of Kafka 4.4.0 answered."""
    partitions = (ProducedPartition(0, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),)
    response = ProduceResponse((ProducedTopic("nope", NO_ID, partitions),))
    body = encode_response(RequestHeader(0, version, 7), response)[9 if version >= 9 else 8 :]
    assert body == bytes.fromhex(expected)


@pytest.mark.parametrize("version", [0, 1, 2])
def test_listed_versions(version: int) -> None:
    """Versions 0 to 2 are listed, for librdkafka's sake, and refused, as in Kafka 4.4."""
    listed, served = API_VERSIONS[0], APIS[0].versions
    assert (listed.min_version, listed.max_version) == (0, 13)
    assert (served.min_version, served.max_version) == (3, 13)
    frame = bytes([0, 0, 0, version]) + bytes(40)
    with pytest.raises(UnsupportedVersionError, match="3 to 13"):
        decode_request(frame, "/127.0.0.1")
