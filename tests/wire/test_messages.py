"""Requests and responses of every API in every version: kio's bytes are read, and kio reads the bytes that are written.

Hypothesis fills kio's dataclasses from their annotations. What a message of this library has is compared with that
field by field, after what :mod:`tests.wire.version_differences` says of its API.
"""

from __future__ import annotations

import copy
import functools
import typing
from collections.abc import Callable, Collection
from functools import partial
from struct import error as struct_error
from types import UnionType
from typing import Any
from uuid import UUID

import attrs
import pytest
from hypothesis import Phase, given, settings, strategies as st
from kio.serial import entity_reader

from groupcoord.core.log.records import ZERO_UUID
from groupcoord.core.messages.request import field_types
from groupcoord.errors import ErrorCode
from groupcoord.schema.primitives import MalformedError
from groupcoord.wire import (
    Answered,
    ProtocolError,
    RequestHeader,
    WireResponse,
    decode_request,
    encode_response,
    encode_response_parts,
)
from groupcoord.wire.broker_messages import MetadataResponse
from groupcoord.wire.registry import APIS
from groupcoord.wire.schema import struct_reader, struct_writer
from tests.wire.generated import (
    ERROR_CODES_OF_VERSIONS,
    Struct,
    Values,
    all_versions,
    in_version,
    struct_of,
    untagged,
    values_of,
    with_error,
)
from tests.wire.kio_client import (
    CORRELATION_ID,
    body_of,
    plain,
    read_response,
    request_frame,
    request_schema,
    response_schema,
)
from tests.wire.version_differences import (
    NOT_READ,
    NOT_WRITTEN,
    REQUEST_NAMES,
    RESHAPED_REQUESTS,
    RESHAPED_RESPONSES,
    RESPONSE_NAMES,
    WRITTEN,
    Refused,
    left_as_written,
)

HOST = "/127.0.0.1"
UNSHRUNK = (Phase.explicit, Phase.generate)
"""A failure names the field, and shrinking what all versions of an API have takes minutes."""

# ---------------------------------------------------------------- messages and values


def fields_of(message: Any) -> tuple[str, ...]:
    """Return the names of a message's fields, or of a class's; none if it is no message."""
    if hasattr(message, "_fields"):
        return tuple(message._fields)
    kind = message if isinstance(message, type) else type(message)
    return tuple(str(field.alias) for field in attrs.fields(kind)) if attrs.has(kind) else ()


def differences(message: Any, value: Any, path: str = "") -> list[str]:
    """Compare a message with values, field by field."""
    if isinstance(value, dict):
        fields = tuple(message) if isinstance(message, dict) else fields_of(message)
        get = message.get if isinstance(message, dict) else partial(getattr, message)
        if not fields and len(value) == 1:
            return differences(message, next(iter(value.values())), path)
        if not fields and isinstance(message, tuple) and len(message) == len(value):
            return differences(message, list(value.values()), path)
        if set(fields) != set(value):
            return [f"{path}: {sorted(fields) or message} where {sorted(value)} are expected"]
        return [found for name in fields for found in differences(get(name), value[name], f"{path}.{name}")]
    if isinstance(value, list | tuple):
        if message is None or len(message) != len(value):
            return [f"{path}: {message} where {value} is expected"]
        pairs = enumerate(zip(message, value, strict=True))
        return [found for index, pair in pairs for found in differences(*pair, f"{path}[{index}]")]
    if isinstance(message, UUID):
        value = value or ZERO_UUID
    return [] if message == value else [f"{path}: {message!r} where {value!r} is expected"]


def made(annotation: Any, value: Any) -> Any:
    """Build the value of an annotation, a message or a part of one."""
    if value is None and annotation is not UUID:
        return None
    if typing.get_origin(annotation) in (UnionType, typing.Union):
        annotation = next(argument for argument in typing.get_args(annotation) if argument is not type(None))
    if isinstance(value, dict):
        if fields := fields_of(annotation):
            types = field_types(annotation)
            unknown = set(value) - set(fields)
            assert not unknown, f"{annotation.__name__} has no {sorted(unknown)}"
            return annotation(**{name: made(types[name], value[name]) for name in fields if name in value})
        if typing.get_origin(annotation) is tuple and Ellipsis not in typing.get_args(annotation):
            return tuple(value.values())
        ((_, value),) = value.items()
        return made(annotation, value)
    if isinstance(value, list):
        return tuple(made(typing.get_args(annotation)[0], entry) for entry in value)
    if annotation is ErrorCode and value in set(ErrorCode):
        return ErrorCode(value)
    return (value or ZERO_UUID) if annotation is UUID else value


def renamed(names: dict[str, str], times: frozenset[str], value: Any, left_out: Collection[str] = ()) -> Any:
    """Return values by the names of messages: another name for some fields, and ``_ms`` behind times."""
    if isinstance(value, list):
        return [renamed(names, times, entry, left_out) for entry in value]
    if not isinstance(value, dict):
        return value
    return {
        names.get(name, f"{name}_ms" if name in times else name): renamed(names, times, entry, left_out)
        for name, entry in value.items()
        if name not in left_out
    }


def times_in(struct: Struct) -> frozenset[str]:
    kinds = ("timedelta_i32", "timedelta_i64", "datetime_i64")
    own = {name for name, field in struct.items() if field.kafka_type in kinds}
    return frozenset(own).union(*[times_in(field.struct) for field in struct.values() if field.struct is not None])


OF_THE_CONNECTION = {"client_id": "client", "client_host": HOST, "principal": None, "permissions": None}


def expected_request(api_key: int, version: int, values: Values) -> Any:
    """Return what a request of a version has: values, ``Refused``, or the error that it raises."""
    name = APIS[api_key].name
    every = every_field(request_schema, api_key)
    values = in_version(struct_of(request_schema(api_key, version)), values, every)
    values = renamed(REQUEST_NAMES.get(name, {}), times_in(every), values, NOT_READ.get(name, ()))
    return RESHAPED_REQUESTS[name](values, version) if name in RESHAPED_REQUESTS else values


def error_of(response: Any) -> ErrorCode:
    """Return the error code of a response, or else of its first topic."""
    return response.topics[0].error_code if isinstance(response, MetadataResponse) else response.error_code


def request_differences(message: Any, expected: Any) -> list[str]:
    """Compare a request that was read with what was expected."""
    if isinstance(message, Answered):
        answered = Refused(error_of(message.response))
        return [] if expected == answered else [f"{answered} where {expected} is expected"]
    connection = {name: value for name, value in OF_THE_CONNECTION.items() if name in fields_of(message)}
    return differences(message, connection | expected if isinstance(expected, dict) else expected)


def versions_of(api_key: int) -> range:
    first, last = APIS[api_key].versions
    return range(first, last + 1)


@functools.cache
def every_field(schema_of: Callable[[int, int], type], api_key: int) -> Struct:
    return all_versions([schema_of(api_key, version) for version in reversed(versions_of(api_key))])


@pytest.mark.parametrize("api_key", APIS, ids=lambda api_key: APIS[api_key].name)
@settings(max_examples=25, phases=UNSHRUNK)
@given(data=st.data())
def test_requests(api_key: int, data: st.DataObject) -> None:
    """A request that kio writes is read field by field, in every version."""
    every = every_field(request_schema, api_key)
    values = data.draw(values_of(every))
    for version in versions_of(api_key):
        schema = request_schema(api_key, version)
        own = in_version(struct_of(schema), values)
        written = struct_writer(schema)(renamed({}, times_in(every), untagged(struct_of(schema), own)))
        assert differences(plain(entity_reader(schema)(written, 0)[0]), own) == []
        frame = request_frame(api_key, version, own)
        expected = expected_request(api_key, version, values)
        if expected is ProtocolError:
            with pytest.raises(ProtocolError):
                decode_request(frame, HOST)
            continue
        header, message = decode_request(frame, HOST)
        assert (header.api_key, header.api_version) == (api_key, version)
        assert (header.correlation_id, header.client_id) == (CORRELATION_ID, "client")
        assert request_differences(message, expected) == [], version
        if own:
            with pytest.raises(ProtocolError):
                decode_request(frame[:-1], HOST)


# ---------------------------------------------------------------- requests that are read by hand

READ_BY_HAND = (
    "Produce",
    "Fetch",
    "OffsetCommit",
    "OffsetFetch",
    "TxnOffsetCommit",
)

TAGGED = [
    b"\x01\x05\x02ab",  # of no known tag
    b"\x01\x00\x10" + bytes(range(16)),
    b"\x01\x00\x03" + bytes(range(16)),  # a known one, of a wrong size
    b"\x02\x00\x00" + bytes(16) + b"\x01\x00" + bytes(8),
    b"\x01\x00\x08\x07cluster",
    b"\x02\x01\x0d" + bytes(range(12)) + b"\x00\x07\x01x",
    b"\xff\xff\xff\xff\x0f",
]
"""In place of the zero that says that there are no tagged fields."""

LENGTHS = [
    b"\x00",
    b"\x80\x00",
    b"\xff\xff",
    b"\x7f\xff\xff\xff",
    b"\xff\xff\xff\xff",
    b"\xff\xff\xff\xff\x0f",
    b"\xed\xa0\x80",
]

changes = st.lists(
    st.one_of(
        st.tuples(st.sampled_from(["set", "insert"]), st.integers(0, 300), st.sampled_from(LENGTHS)),
        st.tuples(st.sampled_from(["set", "insert", "delete"]), st.integers(0, 300), st.binary(min_size=1, max_size=6)),
    ),
    min_size=1,
    max_size=3,
)


def changed(body: bytes, kind: str, place: int, content: bytes) -> bytes:
    position = place % (len(body) + 1)
    tail = position if kind == "insert" else position + len(content)
    return body[:position] + (b"" if kind == "delete" else content) + body[tail:]


def read_by_schema(schema: type, body: bytes) -> Values:
    values, _ = struct_reader(schema)(body, 0)
    return as_in_kio(struct_of(schema), values)


def as_in_kio(struct: Struct, values: Values) -> Values:
    """Return fields by kio's names, with the defaults of tagged fields that are absent."""
    times = times_in(struct)
    found = {}
    for name, field in struct.items():
        value = values.get(f"{name}_ms" if name in times else name, field.default)
        if field.struct is not None and isinstance(value, tuple | list):
            value = [as_in_kio(field.struct, entry) for entry in value]
        elif field.struct is not None and value is not None:
            value = as_in_kio(field.struct, value)
        is_none = value == (-1 if field.kafka_type == "datetime_i64" else ZERO_UUID)
        found[name] = None if is_none else value
    return found


def check_bytes(api_key: int, version: int, head: bytes, body: bytes) -> None:
    """Read a request by hand and by its schema: the same is read, or neither is a request."""
    try:
        expected = expected_request(api_key, version, read_by_schema(request_schema(api_key, version), body))
    except (MalformedError, struct_error, IndexError):
        with pytest.raises(ProtocolError):
            decode_request(head + body, HOST)
    else:
        assert request_differences(decode_request(head + body, HOST)[1], expected) == [], (version, body)


@pytest.mark.parametrize("name", READ_BY_HAND)
@settings(max_examples=25, phases=UNSHRUNK)
@given(data=st.data())
def test_what_is_read_by_hand(name: str, data: st.DataObject) -> None:
    """A request with changed bytes is read by hand as it is by its schema: cut anywhere, tagged anywhere, changed."""
    (api_key,) = (key for key, api in APIS.items() if api.name == name)
    newest = versions_of(api_key)[-1]
    values = data.draw(values_of(every_field(request_schema, api_key), entries_min=1))
    for version in (newest, data.draw(st.sampled_from(versions_of(api_key)))):
        frame = request_frame(api_key, version, in_version(struct_of(request_schema(api_key, version)), values))
        head = frame[: 16 + (version >= APIS[api_key].flexible_from)]
        body = frame[len(head) :]
        places = [place for place, byte in enumerate(body[:100]) if byte == 0] + [len(body) - 1]
        for tagged in TAGGED if version == newest else [data.draw(st.sampled_from(TAGGED))]:
            for place in places:
                check_bytes(api_key, version, head, body[:place] + tagged + body[place + 1 :])
        if version != newest:
            for length in range(min(len(body), 100)):
                check_bytes(api_key, version, head, body[:length])
        for change in data.draw(changes):
            body = changed(body, *change)
            check_bytes(api_key, version, head, body)


# ---------------------------------------------------------------- responses

RESPONSE_CLASSES = {
    kind.__name__: kind for base in typing.get_args(WireResponse) for kind in (base, *base.__subclasses__())
}
SHARED_RESPONSES = {
    "IncrementalAlterConfigs": "AlterConfigsResponse",
    "RenewDelegationToken": "DelegationTokenResponse",
    "ExpireDelegationToken": "DelegationTokenResponse",
    "UnregisterBroker": "MembershipResponse",
    "UnregisterController": "MembershipResponse",
    "AddRaftVoter": "MembershipResponse",
    "RemoveRaftVoter": "MembershipResponse",
}


def response_class(name: str) -> Any:
    return RESPONSE_CLASSES[SHARED_RESPONSES.get(name, f"{name}Response")]


def defaulted(struct: Struct, values: Values, names: Collection[str]) -> Values:
    result = {}
    for name, field in struct.items():
        value = values[name]
        if name in names:
            value = field.default
        elif field.struct is not None and value is not None:
            inner = field.struct
            value = (
                [defaulted(inner, entry, names) for entry in value]
                if field.is_array
                else defaulted(inner, value, names)
            )
        result[name] = value
    return result


def check_response(api_key: int, values: Values) -> None:
    """Write a response in every version, in one piece and in parts; it is what kio writes, and read by the schema."""
    name = APIS[api_key].name
    every = every_field(response_schema, api_key)
    left_out = {"throttle_time"} | NOT_WRITTEN.get(name, set())
    for version in versions_of(api_key):
        ours = renamed(RESPONSE_NAMES.get(name, {}), times_in(every), copy.deepcopy(values), left_out)
        if name in RESHAPED_RESPONSES:
            ours = RESHAPED_RESPONSES[name](ours, version)
        schema = response_schema(api_key, version)
        expected = defaulted(struct_of(schema), in_version(struct_of(schema), copy.deepcopy(values)), left_out)
        if name in WRITTEN:
            expected = WRITTEN[name](expected, version)
        if name == "LeaveGroup":
            expected = left_as_written(expected, values, version)
        header = RequestHeader(api_key, version, CORRELATION_ID)
        response = made(response_class(name), ours)
        frame = encode_response(header, response)
        assert b"".join(encode_response_parts(header, response)) == frame
        assert differences(read_response(api_key, version, frame), expected) == [], version
        is_long = version >= APIS[api_key].flexible_from and APIS[api_key].has_flexible_response_header
        body = frame[9 if is_long else 8 :]
        assert differences(read_by_schema(schema, body), expected) == [], version
        assert body == body_of(schema, expected), version


@pytest.mark.parametrize("api_key", APIS, ids=lambda api_key: APIS[api_key].name)
@settings(max_examples=25, phases=UNSHRUNK)
@given(data=st.data())
def test_responses(api_key: int, data: st.DataObject) -> None:
    """A response is written as kio writes it, field by field, in every version."""
    check_response(api_key, data.draw(values_of(every_field(response_schema, api_key))))


ERRORS_BY_VERSION = (
    "FindCoordinator",
    "LeaveGroup",
    "DescribeGroups",
    "InitProducerId",
    "AddPartitionsToTxn",
    "AddOffsetsToTxn",
    "EndTxn",
    "TxnOffsetCommit",
)


@pytest.mark.parametrize("name", ERRORS_BY_VERSION)
@settings(max_examples=5, phases=UNSHRUNK)
@given(data=st.data())
def test_error_codes_of_versions(name: str, data: st.DataObject) -> None:
    """An error code that a version lacks, or has at another place, is written in that version's form."""
    (api_key,) = (key for key, api in APIS.items() if api.name == name)
    every = every_field(response_schema, api_key)
    values = data.draw(values_of(every))
    for error_code in ERROR_CODES_OF_VERSIONS:
        check_response(api_key, with_error(every, values, error_code))
