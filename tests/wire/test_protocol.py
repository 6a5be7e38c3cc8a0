"""Accepted, directly answered and refused requests, as by a broker of Kafka 4.4."""

from __future__ import annotations

import struct
import subprocess
import sys
from collections import defaultdict
from typing import Any
from uuid import UUID

import pytest

from groupcoord.core.messages import (
    FetchedGroup,
    FindCoordinator,
    FindCoordinatorResponse,
    FoundCoordinator,
    Heartbeat,
    Node,
    OffsetFetchResponse,
    OffsetToCommit,
    SyncGroup,
)
from groupcoord.errors import ErrorCode
from groupcoord.wire import (
    API_VERSIONS,
    Answered,
    ProtocolError,
    RequestHeader,
    UnsupportedVersionError,
    decode_request,
    encode_response,
)
from groupcoord.wire.cluster_messages import ApiVersions
from groupcoord.wire.security_messages import SaslAuthenticate, ScramUpsertion
from tests.samples import portion, sampled
from tests.tables import as_one_test
from tests.wire.generated import in_version, struct_of
from tests.wire.kio_client import CORRELATION_ID, UNLISTED, VERSIONS, request_frame, request_schema, versions_of
from tests.wire.sample_requests import BODIES

HOST = "/127.0.0.1"
HEARTBEAT_4 = bytes.fromhex("0267 00000001 026d 00 00")


def header(api_key: int, version: int, is_flexible: bool = False) -> bytes:
    return struct.pack(">hhih", api_key, version, 7, 1) + b"c" + (b"\x00" if is_flexible else b"")


def heartbeat_4(after_instance_id: str, before: bytes = HEARTBEAT_4[:8]) -> Any:
    """Decode a heartbeat of version 4 with an end given in hex."""
    return decode_request(header(12, 4, True) + before + bytes.fromhex(after_instance_id), HOST)[1]


def find_coordinator_4(key: bytes) -> Any:
    return decode_request(header(10, 4, True) + b"\x00\x02" + bytes([len(key) + 1]) + key + b"\x00", HOST)[1]


def test_api_versions() -> None:
    """The list is Kafka 4.4's, for the APIs that are served."""
    served = VERSIONS | {0: (0, 13)}
    assert dict(API_VERSIONS) == {key: versions for key, versions in served.items() if key not in UNLISTED}
    assert API_VERSIONS[12].min_version == 0
    assert API_VERSIONS[12].max_version == 4


def test_import_is_light() -> None:
    """Importing the adapter loads no schema: that would take longer than all the rest."""
    code = "import sys, groupcoord.wire; print([name for name in sys.modules if name.split('.')[0] == 'kio'])"
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert result.stdout.strip() == "[]"


# ---------------------------------------------------------------- refused


@as_one_test
@pytest.mark.parametrize("api_key", [key for key in VERSIONS if key != 18])
def test_unsupported_version(api_key: int) -> None:
    """Versions outside the range close the connection; the message has the supported ones."""
    first, last = VERSIONS[api_key]
    for version in (first - 1, last + 1, -32768, 32767):
        with pytest.raises(UnsupportedVersionError, match=f"{first} to {last}") as caught:
            decode_request(header(api_key, version, True), HOST)
        assert caught.value.header == RequestHeader(api_key, version, 7, "c")
        with pytest.raises(UnsupportedVersionError):
            encode_response(RequestHeader(api_key, version, 7), None)  # type: ignore[arg-type]


@as_one_test
@pytest.mark.parametrize("length", range(10))
def test_short_header(length: int) -> None:
    """Less than a header is an error without one."""
    with pytest.raises(ProtocolError, match="cut short") as caught:
        decode_request(header(18, 0)[:length], HOST)
    assert caught.value.header is None


def test_client_id_beyond_the_frame() -> None:
    """A client id that is longer than the frame is an error, also where the body is empty."""
    with pytest.raises(ProtocolError, match="client id"):
        decode_request(struct.pack(">hhih", 18, 0, 7, 5) + b"abc", HOST)


@pytest.mark.parametrize("end", ["", "0001", "000105", "0001050361 62", "ffffffffff0000"])
def test_bad_end(end: str) -> None:
    """Missing or overlong tagged fields, and varints of more than five bytes, are errors that name the request."""
    with pytest.raises(ProtocolError, match="Heartbeat version 4"):
        heartbeat_4(end)


def test_null_where_none_may_be() -> None:
    """Nulls for strings and arrays that can't be null are errors."""
    with pytest.raises(ProtocolError, match="null"):
        heartbeat_4("0000", before=bytes.fromhex("00 00000001 026d"))
    with pytest.raises(ProtocolError, match="null"):
        decode_request(header(12, 0) + b"\xff\xff\x00\x00\x00\x01\x00\x01m", HOST)
    with pytest.raises(ProtocolError, match="null"):
        decode_request(header(10, 4, True) + b"\x00\x00\x00", HOST)
    with pytest.raises(ProtocolError, match="null"):
        decode_request(header(9, 1) + b"\x00\x01g\xff\xff\xff\xff", HOST)


# ---------------------------------------------------------------- lenient


@as_one_test
@pytest.mark.parametrize(
    "end",
    [
        "0000",  # nothing
        "00010502 6162",  # an unknown tagged field
        "0002 0500 0500",  # the same one twice
        "ffffffff0f00",  # length -2: null as well
        "ffffffff1f00",  # bits beyond 32 are lost
        "0000 616263",  # bytes behind the request
    ],
)
def test_heartbeat_endings(end: str) -> None:
    """Accepted as by a broker: unknown tagged fields, any negative length as null, trailing bytes."""
    assert heartbeat_4(end) == Heartbeat("g", 1, "m", None)


def test_tagged_fields_of_the_header() -> None:
    frame = header(12, 4) + bytes.fromhex("01 07 02 7a7a") + HEARTBEAT_4
    assert decode_request(frame, HOST)[1] == Heartbeat("g", 1, "m", None)


def test_overlong_varint() -> None:
    """A varint may have more bytes than it needs."""
    assert heartbeat_4("0000", before=bytes.fromhex("8200 67 00000001 026d")) == Heartbeat("g", 1, "m", None)


def test_negative_client_id_length() -> None:
    frame = struct.pack(">hhih", 12, 0, 7, -5) + b"\x00\x01g\x00\x00\x00\x01\x00\x01m"
    assert decode_request(frame, HOST) == (RequestHeader(12, 0, 7, ""), Heartbeat("g", 1, "m", None))


@as_one_test
@pytest.mark.parametrize(
    ("key", "text"),
    [
        (b"a\xff\xc3(b", "a��(b"),
        (b"\xed\xa0\x80", "�"),
        (b"\xed\xa0\x80ab", "�ab"),
        (b"\xed\xa0", "�"),
        (b"\xed\xa0a", "�a"),
        (b"\xf0\x90\x80a", "�a"),
        (b"\xe2\x82", "�"),
        (b"\xf5\x80\x80\x80", "����"),
        (b"\xf4\x90\x80\x80", "����"),
        (b"\xc0\x80", "��"),
        (b"\xe0\x80\x80", "���"),
    ],
)
def test_malformed_utf8(key: bytes, text: str) -> None:
    """Malformed UTF-8 becomes U+FFFD, as often as in Java."""
    assert find_coordinator_4(key) == FindCoordinator(0, (text,), False)


def test_malformed_utf8_that_grows() -> None:
    """An echo that has become too long for an answer is a protocol error."""
    coordinators = (FoundCoordinator("�" * 20_000, Node(1, "h", 9092), ErrorCode.NONE),)
    for version in (4, 6):
        with pytest.raises(ProtocolError, match="60000 bytes"):
            encode_response(RequestHeader(10, version, 7), FindCoordinatorResponse(coordinators))


# ---------------------------------------------------------------- answered here


@pytest.mark.parametrize("version", [6, 99, 32767])
def test_unsupported_api_versions(version: int) -> None:
    """The body of an unknown version is not read."""
    frame = header(18, version, True) + b"garbage"
    assert decode_request(frame, HOST) == (RequestHeader(18, version, 7, "c"), ApiVersions(unsupported_version=True))
    with pytest.raises(ProtocolError):
        decode_request(header(18, version), HOST)  # its header is flexible all the same


def test_negative_api_versions() -> None:
    assert decode_request(header(18, -1), HOST)[1] == ApiVersions(unsupported_version=True)


def api_versions(version: int, name: bytes, software_version: bytes, end: bytes) -> Any:
    content = b"".join(bytes([len(text) + 1]) + text for text in (name, software_version))
    return decode_request(header(18, version, True) + content + end, HOST)[1]


@as_one_test
@pytest.mark.parametrize("name", [b"-", b"", b"a b", b"a_b", b"a-", "é".encode(), b"a\n"])
def test_bad_client_software(name: bytes) -> None:
    """A name or version of the client's software that is not made as it should is INVALID_REQUEST."""
    for request in (api_versions(3, name, b"1", b"\x00"), api_versions(4, b"a", name, b"\x00")):
        assert isinstance(request, Answered)
        assert request.response.error_code == ErrorCode.INVALID_REQUEST  # type: ignore[union-attr]


def test_good_client_software() -> None:
    """Dots and dashes inside are allowed."""
    assert api_versions(3, b"a.b-c", b"9", b"\x00") == ApiVersions("a.b-c", "9")


def test_api_versions_of_version_5() -> None:
    """Cluster and node come both or not at all."""
    neither, cluster, node = b"\x00\xff\xff\xff\xff\x00", b"\x02x\xff\xff\xff\xff\x00", b"\x00\x00\x00\x00\x05\x00"
    assert api_versions(5, b"a", b"1", neither) == ApiVersions("a", "1")
    assert api_versions(5, b"a", b"1", b"\x02x\x00\x00\x00\x05\x00") == ApiVersions("a", "1", "x", 5)
    assert isinstance(api_versions(5, b"a", b"1", cluster), Answered)
    assert isinstance(api_versions(5, b"a", b"1", node), Answered)


@pytest.mark.parametrize("change", [{"protocol_type": None}, {"protocol_name": None}])
def test_sync_group_without_protocol(change: dict[str, None]) -> None:
    """Version 5 without protocol type or name is INCONSISTENT_GROUP_PROTOCOL at once."""
    sent, request = decode_request(request_frame(14, 5, BODIES[14] | change), HOST)
    assert isinstance(request, Answered)
    assert encode_response(sent, request.response)[9:].hex() == "00000000001700000100"
    assert isinstance(decode_request(request_frame(14, 4, BODIES[14]), HOST)[1], SyncGroup)


@pytest.mark.parametrize(
    ("version", "expected"),
    [
        (
            10,
            "0000002f0000000700000000000100ffffffff02002a0101010101010101010101010101010101000180000000008000000000",
        ),
        (11, "0000002b0000000700000000000100ffffffff02002a01010101010101010101010101010101010001800000000000"),
    ],
)
def test_metadata_by_id_before_version_12(version: int, expected: str) -> None:
    """Topic ids are refused in versions 10 and 11, though they have the field."""
    topics = [{"name": None, "topic_id": UUID(bytes=b"\x01" * 16)}]
    sent, request = decode_request(request_frame(3, version, BODIES[3] | {"topics": topics}), HOST)
    sent.correlation_id = 7
    assert isinstance(request, Answered)
    assert encode_response(sent, request.response).hex() == expected


def test_metadata_of_nothing_named() -> None:
    """Neither name nor id is an unexpected error."""
    topics = [{"name": None, "topic_id": UUID(int=0)}]
    sent, request = decode_request(request_frame(3, 12, BODIES[3] | {"topics": topics}), HOST)
    sent.correlation_id = 7
    assert isinstance(request, Answered)
    assert encode_response(sent, request.response).hex() == (
        "0000002b0000000700000000000100ffffffff02ffff01000000000000000000000000000000000001800000000000"
    )


def test_offset_fetch_of_version_1_keeps_what_was_asked() -> None:
    """The header takes along what an error must be spread over, and the answer has it."""
    topics = [{"name": "orders", "partition_indexes": [3, 0]}, {"name": "bills", "partition_indexes": []}]
    frame = request_frame(9, 1, BODIES[9] | {"topics": topics})
    sent, _ = decode_request(frame, HOST)
    refused = OffsetFetchResponse((FetchedGroup("group", ErrorCode.NOT_COORDINATOR, ()),))
    answer = encode_response(sent, refused)
    assert answer.count(struct.pack(">iqhh", 3, -1, 0, 16)) == 1
    assert answer.count(struct.pack(">iqhh", 0, -1, 0, 16)) == 1
    assert answer.endswith(b"\x00\x05bills" + bytes(4))
    other, _ = decode_request(request_frame(9, 2, BODIES[9]), HOST)
    assert other.reply_context is None


@pytest.mark.parametrize("version", [0, 4])
def test_null_client_id(version: int) -> None:
    header, request = decode_request(request_frame(12, version, BODIES[12], client_id=None), HOST)
    assert header == RequestHeader(12, version, CORRELATION_ID, "")
    assert isinstance(request, Heartbeat)
    assert request.group_id == BODIES[12]["group_id"]


def test_memoryview_frame() -> None:
    """A frame may be a view into a larger buffer."""
    frame = request_frame(12, 4, BODIES[12])
    view = memoryview(b"abc" + frame + b"def")[3:-3]
    assert decode_request(view, HOST) == decode_request(frame, HOST)


@sampled
@as_one_test
@pytest.mark.parametrize("count", portion([257, 1_000, 256, 255, 2, 1, 0]))
@pytest.mark.parametrize("version", versions_of(8))
def test_offset_commit_of_any_size(version: int, count: int) -> None:
    """However many there are, with metadata alike, of other lengths, or null, which is read as none."""

    def partition(index: int, metadata: str | None = "") -> dict[str, Any]:
        return {
            "partition_index": index,
            "committed_offset": 2**40 + index,
            "committed_leader_epoch": index,
            "committed_metadata": metadata,
        }

    def offset(index: int, metadata: str | None = "") -> OffsetToCommit:
        return OffsetToCommit(index, 2**40 + index, index if version >= 6 else -1, metadata)

    def commit(partitions: list[dict[str, Any]]) -> Any:
        topics = [{"name": "orders", "topic_id": UUID(int=7), "partitions": partitions} for _ in range(2)]
        return decode_request(request_frame(8, version, BODIES[8] | {"topics": topics}), HOST)[1]

    expected = tuple(map(offset, range(count)))
    assert [topic.partitions for topic in commit([*map(partition, range(count))]).topics] == [expected] * 2
    for metadata in ("m", None, "größe", "m" * 126, "m" * 127, "m" * 300):
        last = [topic.partitions for topic in commit([*map(partition, range(count)), partition(7, metadata)]).topics]
        assert last == [(*expected, offset(7, metadata or ""))] * 2
        alike = [topic.partitions for topic in commit([partition(index, metadata) for index in range(count)]).topics]
        assert alike == [tuple([offset(index, metadata or "") for index in range(count)])] * 2


@pytest.mark.parametrize(("api_key", "version"), [(68, 1), (88, 1)])
def test_heartbeats_that_are_alike_are_read_once(api_key: int, version: int) -> None:
    """A short heartbeat that came before is the same object again; one from another host is not."""
    empty = in_version(struct_of(request_schema(api_key, version)), defaultdict(lambda: None))
    frame = request_frame(api_key, version, empty)
    first: Any = decode_request(frame, HOST)[1]
    assert decode_request(frame, HOST)[1] is first
    elsewhere: Any = decode_request(frame, "/10.0.0.1")[1]
    assert elsewhere is not first
    assert elsewhere.client_host == "/10.0.0.1"


def test_secrets_are_not_shown() -> None:
    """Neither tokens nor salted passwords stand in what Python prints of a request."""
    assert "secret" not in repr(SaslAuthenticate(b"\0alice\0secret"))
    assert "xff" not in repr(ScramUpsertion("alice", 1, 4096, b"salt", b"\xff" * 32))
