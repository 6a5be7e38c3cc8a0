"""Produce: views of frames, requests that name few partitions, and versions that are listed but not served."""

from __future__ import annotations

import re
from typing import Any
from uuid import UUID

import pytest

from groupcoord.errors import ErrorCode
from groupcoord.schema.primitives import write_uvarint
from groupcoord.wire import (
    API_VERSIONS,
    ProtocolError,
    RequestHeader,
    UnsupportedVersionError,
    decode_request,
    encode_response,
)
from groupcoord.wire.broker_messages import (
    Produce,
    ProducedPartition,
    ProduceResponse,
    TopicNameOrIdEntry,
)
from groupcoord.wire.produce import FEW, names_few
from groupcoord.wire.registry import APIS
from tests.tables import as_one_test
from tests.wire.kio_client import request_frame, versions_of
from tests.wire.sample_requests import BODIES

NO_ID, TOPIC_ID = UUID(int=0), UUID(int=7)


@as_one_test
@pytest.mark.parametrize("version", versions_of(0))
def test_a_view_of_a_request(version: int) -> None:
    """It decodes like its bytes, and its records are views of it."""
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
    """A request with a thousand unknown tagged fields, anywhere, counts as long."""
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
    """It is refused with the same message as its bytes, and is no long work."""
    frame = request_frame(0, version, BODIES[0])
    for size in range(2, len(frame)):
        with pytest.raises(ProtocolError) as refused:
            decode_request(frame[:size], "/127.0.0.1")
        with pytest.raises(ProtocolError, match=f"^{re.escape(str(refused.value))}$"):
            decode_request(memoryview(frame)[:size], "/127.0.0.1")
        assert names_few(frame[:size])


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
    response = ProduceResponse((TopicNameOrIdEntry("nope", NO_ID, partitions),))
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
