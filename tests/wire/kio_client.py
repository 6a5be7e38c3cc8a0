"""An independent client: kio's own writers and readers, fed with plain dicts.

A dict may hold more than a version has: what the version lacks is left out, so that one dict serves all versions.
"""

from __future__ import annotations

import dataclasses
import datetime
import functools
import io
import re
import struct
import typing
from types import UnionType
from typing import Any

from kio.schema.errors import ErrorCode
from kio.schema.request_header.v2.header import RequestHeader
from kio.schema.response_header.v1.header import ResponseHeader
from kio.serial import entity_reader, entity_writer

from groupcoord.wire import newer_schemas
from tests.wire.txn_offset_commit_v6 import TxnOffsetCommitRequestV6, TxnOffsetCommitResponseV6

CORRELATION_ID = 0x01020304
_EPOCH = datetime.datetime.fromtimestamp(0, datetime.UTC)

VERSIONS = {
    int(key): (int(first), int(last))
    for key, first, last in re.findall(
        r"(\d+):(\d+)-(\d+)",
        "0:3-13 1:4-18 2:1-11 3:0-13 8:2-10 9:1-10 10:0-6 11:0-9 12:0-4 13:0-5 14:0-5 15:0-6 16:0-5 17:0-1 "
        "18:0-5 19:2-7 20:1-6 21:0-2 22:0-5 23:2-4 24:0-5 25:0-4 26:0-5 27:1-2 28:0-6 29:1-3 30:1-3 31:1-3 "
        "32:1-4 33:0-2 34:1-2 35:1-5 36:0-2 37:0-3 38:1-3 39:1-2 40:1-2 41:1-3 42:0-3 43:0-2 44:0-1 45:0-1 "
        "46:0-0 47:0-0 48:0-1 49:0-1 50:0-0 51:0-0 55:0-2 57:0-2 60:0-2 61:0-0 64:0-0 65:0-0 66:0-2 68:0-1 "
        "69:0-1 71:0-0 72:0-0 74:0-1 75:0-0 76:1-1 77:1-1 78:1-2 79:1-2 80:0-1 81:0-0 83:0-0 84:0-0 85:0-1 "
        "86:0-0 87:0-1 88:0-1 89:0-1 90:0-1 91:0-0 92:0-0 93:0-0 94:0-0",
    )
}
"""What a broker of Kafka 4.4 serves, of the APIs that are served here. It lists the same, and Produce from 0 on."""

UNLISTED = frozenset((71, 72))
"""What it answers all the same, unless it has a plugin that takes clients' metrics."""

NOT_IN_KIO = {(18, 5), (28, 6), (42, 3), (88, 1), (89, 1), (93, 0), (94, 0)}


def versions_of(api_key: int) -> list[int]:
    """All versions of an API that kio has as well."""
    first, last = VERSIONS[api_key]
    return [version for version in range(first, last + 1) if (api_key, version) not in NOT_IN_KIO]


def request_schema(api_key: int, version: int) -> type:
    """Return kio's dataclass, or what declares a version that kio lacks."""
    if (api_key, version) == (28, 6):
        return TxnOffsetCommitRequestV6
    return newer_schemas.request_schema(api_key, version)


def response_schema(api_key: int, version: int) -> type:
    """Return kio's dataclass, or what declares a version that kio lacks."""
    if (api_key, version) == (28, 6):
        return TxnOffsetCommitResponseV6
    return newer_schemas.response_schema(api_key, version)


def request_frame(api_key: int, version: int, values: dict[str, Any], client_id: str | None = "client") -> bytes:
    """Write a request, header and body, without the length in front."""
    schema = request_schema(api_key, version)
    header_schema: Any = getattr(schema, "__header_schema__", RequestHeader)
    header = header_schema(
        request_api_key=api_key, request_api_version=version, correlation_id=CORRELATION_ID, client_id=client_id
    )
    return written(header_schema, header) + body_of(schema, values)


def body_of(schema: type, values: dict[str, Any]) -> bytes:
    """Write a request or a response without its header."""
    return written(schema, entity(schema, values))


def written(schema: type, value: Any) -> bytes:
    """Write what kio declares."""
    out = io.BytesIO()
    entity_writer(schema)(out, value)
    return out.getvalue()


def read_response(api_key: int, version: int, frame: bytes, correlation_id: int = CORRELATION_ID) -> dict[str, Any]:
    (length,) = struct.unpack_from(">i", frame)
    assert length == len(frame) - 4
    schema = response_schema(api_key, version)
    header, header_size = entity_reader(getattr(schema, "__header_schema__", ResponseHeader))(frame, 4)
    assert header.correlation_id == correlation_id
    body: Any
    body, body_size = entity_reader(schema)(frame, 4 + header_size)
    assert 4 + header_size + body_size == len(frame)
    values: dict[str, Any] = plain(body)
    return values


def entity(schema: type, values: dict[str, Any]) -> Any:
    """Make what kio writes out of plain values."""
    types = _types_of(schema)
    arguments = {
        field.name: _value(types[field.name], field.metadata.get("kafka_type"), values[field.name])
        for field in dataclasses.fields(schema)
        if field.name in values
    }
    return schema(**arguments)


@functools.cache
def _types_of(schema: type) -> dict[str, Any]:
    return typing.get_type_hints(schema)


def _value(annotation: Any, kafka_type: str | None, value: Any) -> Any:
    if value is None:
        return None
    if typing.get_origin(annotation) is UnionType:
        (annotation,) = (argument for argument in typing.get_args(annotation) if argument is not type(None))
    if typing.get_origin(annotation) is tuple:
        element = typing.get_args(annotation)[0]
        return tuple(_value(element, kafka_type, item) for item in value)
    if kafka_type in ("timedelta_i32", "timedelta_i64"):
        return datetime.timedelta(milliseconds=value)
    if kafka_type == "error_code":
        return ErrorCode(value)
    if kafka_type == "datetime_i64":
        return None if value < 0 else _EPOCH + datetime.timedelta(milliseconds=value)
    if isinstance(annotation, type) and dataclasses.is_dataclass(annotation):
        return entity(annotation, value)
    return value


def plain(value: Any) -> Any:
    """Return what kio has read as dicts, lists and numbers; times are integers in milliseconds."""
    if dataclasses.is_dataclass(value):
        return {field.name: plain(getattr(value, field.name)) for field in dataclasses.fields(value)}
    if isinstance(value, tuple):
        return [plain(item) for item in value]
    if isinstance(value, datetime.timedelta):
        return value // datetime.timedelta(milliseconds=1)
    if isinstance(value, datetime.datetime):
        return (value - _EPOCH) // datetime.timedelta(milliseconds=1)
    return value
