"""APIs whose requests and answers are read and written as their schemas say: nearly all of them.

A new one is a class for the request, one for the answer, and a line in the registry. A function comes in where versions
differ in more than their fields, or where a message has another shape than the schema.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple

from groupcoord.wire import newer_schemas, primitives
from groupcoord.wire.api import Api, Decoder, Encoder, PartsEncoder, VersionRange
from groupcoord.wire.header import RequestHeader
from groupcoord.wire.kept_answers import KeptAnswers
from groupcoord.wire.parts import write_each
from groupcoord.wire.primitives import INT32, Writer
from groupcoord.wire.schema import SAME_NAMES, Names, Values, struct_reader, struct_writer, struct_writers

ToRequest = Callable[[Values, RequestHeader, str], Any]
"""``to_request(fields by kio's names, header, client_host)`` gives a request."""

ToValues = Callable[[Any, RequestHeader], Values]
"""``to_values(response, header)`` gives the fields of an answer by kio's names; more than the version has is fine."""

Adapt = Callable[[Any, RequestHeader], Any]
"""Gives a message as it is in the header's version."""


class Entries(NamedTuple):
    """The array that most of an answer is, each entry of which is written once, however often it is there.

    Attributes:
        name: of the array.
        adapt: gives an entry as it is in a version.
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
    """Return an API that is read and written by its schemas.

    Args:
        key: Kafka's number of it.
        request, response: the messages; Kafka's name is that of the request, which may have ``client_id`` and
            ``client_host`` to say who asks.
        versions: the lowest and the highest that are served.
        flexible_from: as in :class:`Api`, and so are ``has_flexible_response_header`` and ``is_listed``.
        request_names, response_names: what the messages call fields that have another name in kio.
        adapt_request: gives the request that is meant by one of a version.
        adapt_response: gives the response as it is in a version.
        to_request, to_values: make a request of a dict, and a dict of a response, where schemas have other shapes.
        entries: what the answer may say many times.
        is_repeated: tells which answers are given again as the same object, so that their bytes are worth keeping.
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
    """Return what reads a body by a schema, and makes a request of its fields."""
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
