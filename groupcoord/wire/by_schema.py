"""APIs whose requests and responses follow kio's schemas: nearly all of them.

A new one needs a request class, a response class and a line in the registry. Functions adapt messages where versions
differ in more than their fields, or where a message has another shape than its schema.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple

from groupcoord.wire import newer_schemas, primitives
from groupcoord.wire.api import (
    Api,
    Decoder,
    Encoder,
    KeptAnswers,
    PartsEncoder,
    RequestHeader,
    VersionRange,
    write_each,
)
from groupcoord.wire.primitives import INT32, Writer
from groupcoord.wire.schema import SAME_NAMES, Names, Values, struct_reader, struct_writer, struct_writers

ToRequest = Callable[[Values, RequestHeader, str], Any]
"""``to_request(fields by kio's names, header, client_host)`` returns a request."""

ToValues = Callable[[Any, RequestHeader], Values]
"""``to_values(response, header)`` returns the fields of a response by kio's names; extra fields are ignored."""

Adapt = Callable[[Any, RequestHeader], Any]
"""Returns a message in the form of the header's version."""


class Entries(NamedTuple):
    """The array that dominates a response. An entry that occurs several times is encoded once.

    Attributes:
        name: the name of the array.
        adapt: returns an entry in the form of a version.
    """

    name: str
    adapt: Adapt | None = None


def by_schema(
    key: int,
    request: type,
    response: type,
    versions: tuple[int, int],
    flexible_from: int,
    *,
    request_names: Names = SAME_NAMES,
    response_names: Names = SAME_NAMES,
    adapt_request: Adapt | None = None,
    adapt_response: Adapt | None = None,
    to_request: ToRequest | None = None,
    to_values: ToValues | None = None,
    entries: Entries | None = None,
    is_repeated: Callable[[Any], bool] | None = None,
    has_flexible_response_header: bool = True,
    is_listed: bool = True,
) -> Api:
    """Return an API that is decoded and encoded by its schemas.

    Args:
        key: its API key.
        request, response: the message classes. The request's name is Kafka's. A request may have ``client_id`` and
            ``client_host``.
        versions: the lowest and the highest served version.
        flexible_from: as in :class:`Api`, like ``has_flexible_response_header`` and ``is_listed``.
        request_names, response_names: names of fields that have another name in kio.
        adapt_request: returns the request that a request of a version stands for.
        adapt_response: returns the response in the form of a version.
        to_request, to_values: convert between messages and dicts where schemas have another shape.
        entries: the array that may repeat entries.
        is_repeated: returns whether a response is sent again as the same object, so that its bytes are cached.
    """

    def make_decoder(version: int) -> Decoder:
        schema = newer_schemas.request_schema(key, version)
        if to_request is not None:
            return decoder_of(schema, to_request)
        return _message_decoder(schema, request, request_names, adapt_request)

    def make_parts_encoder(version: int) -> PartsEncoder:
        assert entries is not None
        return _parts_encoder(newer_schemas.response_schema(key, version), response, response_names, entries)

    def make_encoder(version: int) -> Encoder:
        if entries is not None:
            return partial(_joined, make_parts_encoder(version))
        schema = newer_schemas.response_schema(key, version)
        if to_values is not None:
            return _adapting_encoder(struct_writer(schema), to_values)
        encode = _adapting_encoder(struct_writer(schema, response, response_names), adapt_response)
        return encode if is_repeated is None else KeptAnswers(encode, is_repeated).encode

    return Api(
        key,
        request.__name__,
        VersionRange(*versions),
        flexible_from,
        make_decoder,
        make_encoder,
        None if entries is None else make_parts_encoder,
        has_flexible_response_header,
        is_listed=is_listed,
    )


def decoder_of(schema: type, to_request: ToRequest) -> Decoder:
    """Return a decoder that reads a body by a schema and builds a request from its fields."""
    read = struct_reader(schema)

    def decode(frame: bytes, position: int, header: RequestHeader, client_host: str) -> Any:
        values, _ = read(frame, position)
        return to_request(values, header, client_host)

    return decode


def _message_decoder(schema: type, message: type, names: Names, adapt: Adapt | None) -> Decoder:
    read = struct_reader(schema, message, names)
    names_client = hasattr(message, "client_host")

    def decode(frame: bytes, position: int, header: RequestHeader, client_host: str) -> Any:
        request, _ = read(frame, position)
        if names_client:
            request.client_id, request.client_host = header.client_id, client_host
        return request if adapt is None else adapt(request, header)

    return decode


def _adapting_encoder(write: Writer, adapt: Adapt | None) -> Encoder:
    if adapt is None:
        return lambda response, header: write(response)
    return lambda response, header: write(adapt(response, header))


def _joined(encode: PartsEncoder, response: Any, header: RequestHeader) -> bytes:
    return b"".join(encode(response, header))


def _parts_encoder(schema: type, message: type, names: Names, entries: Entries) -> PartsEncoder:
    flexible: bool = schema.__flexible__  # type: ignore[attr-defined]
    fields = struct_writers(schema, message, names)
    adapt = entries.adapt

    def encode(response: Any, header: RequestHeader) -> list[bytes]:
        parts: list[bytes] = []
        for field in fields.plain:
            if field.name == entries.name:
                found: Sequence[Any] = field.get(response)
                write = field.write_entry
                if adapt is not None:
                    write = partial(_write_adapted, field.write_entry, adapt, header)
                parts.append(primitives.write_compact_length(len(found)) if flexible else INT32.pack(len(found)))
                parts += write_each(found, write)
            else:
                parts.append(field.write(field.get(response)))
        return parts + fields.write_tagged(response)

    return encode


def _write_adapted(write: Writer, adapt: Adapt, header: RequestHeader, entry: Any) -> bytes:
    return write(adapt(entry, header))
