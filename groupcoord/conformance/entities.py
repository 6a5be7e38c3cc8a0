"""Requests and responses as plain data: conversion to and from kio's entities, and their bytes.

Plain data is JSON data under kio's field names: times and durations are milliseconds, bytes are ``{"hex": "…"}``,
errors are names, UUIDs are text (None for the zero UUID).
"""

from __future__ import annotations

import dataclasses
import datetime
import functools
import io
import struct
import types
import typing
import uuid
from collections.abc import Callable
from enum import Enum
from typing import Any

from kio.index import UnknownEntity
from kio.schema.errors import ErrorCode
from kio.schema.index import api_key_map
from kio.serial import entity_reader, entity_writer
from kio.serial.errors import SerialError

from groupcoord.errors import GroupcoordError
from groupcoord.wire.newer_schemas import request_schema, response_schema

Plain = Any  # JSON data: dict, list, str, int, float, bool or None

API_KEYS: dict[str, int] = {
    "".join(word.capitalize() for word in name.split("_")): key for key, name in api_key_map.items()
}
_MILLISECOND = datetime.timedelta(milliseconds=1)
_EPOCH = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)
_PLAIN_TYPES = (int, str, bool, types.NoneType, float)
_UNSUITABLE = (SerialError, struct.error, TypeError, ValueError, OverflowError, AttributeError)


class BodyError(GroupcoordError):
    """A body does not fit its API and version; the message has the place."""


class ResponseError(GroupcoordError):
    """The bytes are not a response to the request."""


def request_entity(api_key: int, version: int) -> Any:
    """Return the class of a request; raises ``kio.index.UnknownEntity`` if it does not exist."""
    return request_schema(api_key, version)


def response_entity(api_key: int, version: int) -> Any:
    return response_schema(api_key, version)


def encode_request(api: str, version: int, correlation_id: int, client_id: str | None, body: dict[str, Plain]) -> bytes:
    """Return header and body of a request, without the length.

    Args:
        api: name of the API, such as ``JoinGroup``.
        body: plain data; omitted fields have their defaults.

    Raises:
        BodyError: the API or version is unknown, or the body does not fit it.
    """
    request_class = _load(request_entity, api, version)
    header_class = request_class.__header_schema__
    header = {
        "request_api_key": API_KEYS[api],
        "request_api_version": version,
        "correlation_id": correlation_id,
        "client_id": client_id,
    }
    known = _field_names(header_class) or ()
    entity = entity_from_plain(request_class, body)
    buffer = io.BytesIO()
    try:
        entity_writer(header_class)(buffer, header_class(**{k: v for k, v in header.items() if k in known}))
        entity_writer(request_class)(buffer, entity)
    except _UNSUITABLE as error:
        raise BodyError(f"{api} v{version}: {error}") from error
    return buffer.getvalue()


def decode_response(api: str, version: int, frame: bytes) -> tuple[int, Plain]:
    """Return correlation id and body of a response without its length.

    Raises:
        ResponseError: the bytes are not such a response.
    """
    response_class = _load(response_entity, api, version)
    try:
        header, header_size = entity_reader(response_class.__header_schema__)(frame, 0)
        entity, body_size = entity_reader(response_class)(frame, header_size)
    except (*_UNSUITABLE, IndexError) as error:
        raise ResponseError(f"not a response of {api} v{version}: {type(error).__name__}: {error}") from error
    left_over = len(frame) - header_size - body_size
    if left_over:
        raise ResponseError(f"{left_over} bytes are left over after the response of {api} v{version}")
    return header.correlation_id, plain_from_entity(entity)


def check_response_fields(api: str, version: int, body: Plain) -> None:
    """Check that an expected response has only existing fields.

    Raises:
        BodyError: the API, version or a field is unknown.
    """
    _check_fields(_load(response_entity, api, version), body, "")


def entity_from_plain(entity_class: Any, plain: Plain) -> Any:
    """Return a kio entity from plain data.

    Raises:
        BodyError: the data does not fit the entity.
    """
    if not isinstance(plain, dict):
        raise BodyError(f"{entity_class.__name__} must be an object, not {plain!r}")
    converters = _converters(entity_class)
    values = {}
    for name, value in plain.items():
        if name not in converters:
            raise BodyError(f"{entity_class.__name__} has no field {name!r}; it has {', '.join(converters)}")
        try:
            values[name] = converters[name](value)
        except _UNSUITABLE as error:
            raise BodyError(f"{entity_class.__name__}.{name} can't be {value!r}: {error}") from error
    try:
        return entity_class(**values)
    except TypeError as error:
        raise BodyError(str(error).replace(".__init__()", "")) from error


def plain_from_entity(value: Any) -> Plain:
    if value.__class__ in _PLAIN_TYPES:
        return value
    names = _field_names(value.__class__)
    if names is not None:
        return {name: plain_from_entity(getattr(value, name)) for name in names}
    if isinstance(value, tuple | list):
        return [plain_from_entity(element) for element in value]
    if isinstance(value, ErrorCode):
        return value.name.upper()
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, bytes | bytearray | memoryview):
        return {"hex": bytes(value).hex()}
    if isinstance(value, datetime.timedelta):
        return round(value / _MILLISECOND)
    if isinstance(value, datetime.datetime):
        return round((value - _EPOCH) / _MILLISECOND)
    return str(value) if isinstance(value, str | uuid.UUID) else int(value)


def _load(loader: Callable[[int, int], Any], api: str, version: int) -> Any:
    if api not in API_KEYS:
        raise BodyError(f"there is no API {api!r}")
    try:
        return loader(API_KEYS[api], version)
    except UnknownEntity:
        raise BodyError(f"{api} has no version {version}") from None


@functools.cache
def _field_names(kind: Any) -> tuple[str, ...] | None:
    return tuple(field.name for field in dataclasses.fields(kind)) if dataclasses.is_dataclass(kind) else None


@functools.cache
def _converters(entity_class: Any) -> dict[str, Callable[[Plain], Any]]:
    hints = typing.get_type_hints(entity_class)
    return {
        field.name: _converter(hints[field.name], field.metadata.get("kafka_type"))
        for field in dataclasses.fields(entity_class)
    }


def _converter(hint: Any, kafka_type: str | None) -> Callable[[Plain], Any]:
    inner, is_list = _unwrap(hint)
    convert: Callable[[Plain], Any] = _SCALARS.get(kafka_type or "", _same)
    if dataclasses.is_dataclass(inner):
        convert = functools.partial(entity_from_plain, inner)
    return functools.partial(_convert_list, convert) if is_list else functools.partial(_convert, convert)


@functools.cache
def _types_of_fields(entity_class: Any) -> dict[str, tuple[Any, bool]]:
    return {name: _unwrap(hint) for name, hint in typing.get_type_hints(entity_class).items()}


def _unwrap(hint: Any) -> tuple[Any, bool]:
    """Return the type in ``X | None`` and ``tuple[X, ...]``, and whether it is a tuple."""
    is_list = False
    while True:
        origin, arguments = typing.get_origin(hint), typing.get_args(hint)
        if origin is tuple:
            hint, is_list = arguments[0], True
        elif origin is typing.Union or isinstance(hint, types.UnionType):
            hint = next(argument for argument in arguments if argument is not type(None))
        else:
            return hint, is_list


def _convert(convert: Callable[[Plain], Any], value: Plain) -> Any:
    return None if value is None else convert(value)


def _convert_list(convert: Callable[[Plain], Any], value: Plain) -> Any:
    if value is None:
        return None
    if not isinstance(value, list | tuple):
        raise TypeError("a list is wanted")
    return tuple(_convert(convert, element) for element in value)


def _same(value: Plain) -> Any:
    return value


def _duration(value: Plain) -> datetime.timedelta:
    return datetime.timedelta(milliseconds=value)


def _moment(value: Plain) -> datetime.datetime:
    return _EPOCH + datetime.timedelta(milliseconds=value)


def _bytes(value: Plain) -> bytes:
    if not (isinstance(value, dict) and set(value) == {"hex"}):
        raise TypeError('bytes are written {"hex": "…"}')
    return bytes.fromhex(value["hex"])


def _error_code(value: Plain) -> ErrorCode:
    return ErrorCode[value.lower()]


_SCALARS: dict[str, Callable[[Plain], Any]] = {
    "timedelta_i32": _duration,
    "timedelta_i64": _duration,
    "datetime_i64": _moment,
    "bytes": _bytes,
    "records": _bytes,
    "uuid": uuid.UUID,
    "error_code": _error_code,
}


def _check_fields(entity_class: Any, plain: Plain, path: str) -> None:
    if not isinstance(plain, dict):
        return
    types_of_fields = _types_of_fields(entity_class)
    for name, value in plain.items():
        if name not in types_of_fields:
            raise BodyError(f"{entity_class.__name__} has no field {name!r}{path}; it has {', '.join(types_of_fields)}")
        inner, is_list = types_of_fields[name]
        if not dataclasses.is_dataclass(inner):
            continue
        for element in value if is_list and isinstance(value, list) else [value]:
            _check_fields(inner, element, f" (in {name})")
