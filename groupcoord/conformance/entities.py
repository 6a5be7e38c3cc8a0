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
import typing
import uuid
from collections.abc import Callable
from typing import Any

from cattrs import BaseConverter, BaseValidationError, Converter, ForbiddenExtraKeysError, transform_error
from cattrs.cols import list_structure_factory
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
    known = _hints(header_class)
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
    try:
        return _CONVERTER.structure(plain, entity_class)
    except (BaseValidationError, *_UNSUITABLE) as error:
        raise BodyError("; ".join(transform_error(error, entity_class.__name__, _reason))) from None


def _reason(error: BaseException, kind: type | None) -> str:
    match error:
        case ForbiddenExtraKeysError():
            return f"there is no field {', '.join(sorted(error.extra_fields))}; there are {', '.join(_hints(error.cl))}"
        case KeyError():
            return f"{error} is missing"
        case AttributeError():
            return "must be an object"
    return str(error)


def plain_from_entity(value: Any) -> Plain:
    return _CONVERTER.unstructure(value)


def _load(loader: Callable[[int, int], Any], api: str, version: int) -> Any:
    if api not in API_KEYS:
        raise BodyError(f"there is no API {api!r}")
    try:
        return loader(API_KEYS[api], version)
    except UnknownEntity:
        raise BodyError(f"{api} has no version {version}") from None


def _is_tuple(kind: Any) -> bool:
    return typing.get_origin(kind) is tuple


def _tuple_from_plain(kind: Any, converter: BaseConverter) -> Callable[[Plain, Any], tuple[Any, ...]]:
    structure = list_structure_factory(kind, converter)
    return lambda value, _: tuple(structure(_list(value), kind))


def _list(value: Plain) -> Plain:
    if not isinstance(value, list | tuple):
        raise TypeError(f"must be a list, not {value!r}")
    return value


def _bytes_from_plain(value: Plain, _: Any) -> bytes:
    if not (isinstance(value, dict) and set(value) == {"hex"}):
        raise TypeError('bytes are written {"hex": "…"}')
    return bytes.fromhex(value["hex"])


def _new_converter() -> Converter:
    converter = Converter(forbid_extra_keys=True, unstruct_collection_overrides={tuple: list})
    converter.register_structure_hook_factory(_is_tuple, _tuple_from_plain)
    for same in (str, int, float, bool):
        converter.register_structure_hook(same, lambda value, _: value)
    hooks: tuple[tuple[Any, Callable[[Plain, Any], Any], Callable[[Any], Plain]], ...] = (
        (bytes, _bytes_from_plain, lambda value: {"hex": value.hex()}),
        (uuid.UUID, lambda value, _: uuid.UUID(value), str),
        (ErrorCode, lambda value, _: ErrorCode[value.lower()], lambda value: value.name.upper()),
        (datetime.timedelta, lambda value, _: value * _MILLISECOND, lambda value: round(value / _MILLISECOND)),
        (
            datetime.datetime,
            lambda value, _: _EPOCH + value * _MILLISECOND,
            lambda value: round((value - _EPOCH) / _MILLISECOND),
        ),
    )
    for kind, from_plain, to_plain in hooks:
        converter.register_structure_hook(kind, from_plain)
        converter.register_unstructure_hook(kind, to_plain)
    return converter


_CONVERTER = _new_converter()


def _check_fields(entity_class: Any, plain: Plain, place: str) -> None:
    if isinstance(plain, list):
        for element in plain:
            _check_fields(entity_class, element, place)
    elif isinstance(plain, dict):
        hints = _hints(entity_class)
        for name, value in plain.items():
            if name not in hints:
                raise BodyError(f"{entity_class.__name__} has no field {name!r}{place}; it has {', '.join(hints)}")
            nested = _entity_in(hints[name])
            if nested is not None:
                _check_fields(nested, value, f" (in {name})")


@functools.cache
def _hints(entity_class: Any) -> dict[str, Any]:
    hints = typing.get_type_hints(entity_class)
    return {field.name: hints[field.name] for field in dataclasses.fields(entity_class)}


def _entity_in(hint: Any) -> Any:
    if dataclasses.is_dataclass(hint):
        return hint
    return next(filter(None, map(_entity_in, typing.get_args(hint))), None)
