"""APIs whose requests and responses follow kio's schemas: nearly all of them.

Functions adapt messages where versions differ in more than their fields, or where a message has another shape than its
schema.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, NamedTuple

from groupcoord.schema.engine import (
    PROTOCOL,
    Structure,
    Values,
    element_writer,
    reader_source,
    writer_of,
    writer_source,
)
from groupcoord.schema.primitives import FLEXIBLE, PLAIN, Writer
from groupcoord.wire import newer_schemas
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
from groupcoord.wire.schema import SAME_NAMES, Names, is_flexible, struct_reader, struct_writer, structure_of

ToRequest = Callable[[Values, RequestHeader, str], Any]
"""``to_request(fields by kio's names, header, client_host)`` returns a request."""

ToValues = Callable[[Any, RequestHeader], Values]
"""``to_values(response, header)`` returns the fields of a response by kio's names; extra fields are ignored."""

Adapt = Callable[[Any, RequestHeader], Any]
"""``adapt(message, header)`` returns a message in the form of a version."""

_OF_CONNECTION = {"client_id": "header.client_id", "client_host": "client_host"}


class Entries(NamedTuple):
    """The array that dominates a response; an entry that occurs several times is encoded once.

    ``adapt`` returns an entry in the form of a version.
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
    true_from: Mapping[str, int] = MappingProxyType({}),
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
        key, versions, flexible_from: as in :class:`Api`, like ``has_flexible_response_header`` and ``is_listed``.
        request, response: the message classes. The request's name is Kafka's; its ``client_id`` and ``client_host`` are
            those of the connection.
        request_names, response_names: names of the messages' fields by their names in kio.
        true_from: attributes of the request that are true from a version on.
        adapt_request: returns the request that a decoded one stands for.
        adapt_response: returns the response in the form of a version.
        to_request, to_values: convert between messages and dicts where schemas have another shape.
        entries: the array that may repeat entries.
        is_repeated: returns whether a response is sent again as the same object, so that its bytes are cached.
    """

    def make_decoder(version: int) -> Decoder:
        schema = newer_schemas.request_schema(key, version)
        if to_request is not None:
            return _converting_decoder(schema, to_request)
        fields = structure_of(schema, request, request_names)
        return request_decoder(fields, version, is_flexible(schema), true_from, adapt_request)

    def make_parts_encoder(version: int) -> PartsEncoder:
        assert entries is not None
        schema = newer_schemas.response_schema(key, version)
        return parts_encoder(structure_of(schema, response, response_names), version, is_flexible(schema), entries)

    def make_encoder(version: int) -> Encoder:
        if entries is not None:
            return joined(make_parts_encoder(version))
        schema = newer_schemas.response_schema(key, version)
        if to_values is not None:
            return _adapting_encoder(struct_writer(schema), to_values)
        encode = _message_encoder(schema, response, response_names, adapt_response)
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


def _converting_decoder(schema: type, to_request: ToRequest) -> Decoder:
    read = struct_reader(schema)

    def decode(frame: bytes, position: int, header: RequestHeader, client_host: str) -> Any:
        values, _ = read(frame, position)
        return to_request(values, header, client_host)

    return decode


def request_decoder(
    fields: Structure,
    version: int,
    flexible: bool,
    true_from: Mapping[str, int] = MappingProxyType({}),
    adapt: Adapt | None = None,
) -> Decoder:
    """Return a decoder that makes the request while it reads, with the arguments of :func:`by_schema`."""
    given = {name: str(version >= first) for name, first in true_from.items()}
    if hasattr(fields.made, "client_host"):
        given |= _OF_CONNECTION
    parameters = "data, position, header, client_host"
    decode = reader_source(fields, version, flexible, PROTOCOL, parameters, given).compile()
    if adapt is None:
        return decode
    return lambda frame, position, header, client_host: adapt(decode(frame, position, header, client_host), header)


def _message_encoder(schema: type, message: type, names: Names, adapt: Adapt | None) -> Encoder:
    if adapt is not None:
        return _adapting_encoder(struct_writer(schema, message, names), adapt)
    return response_encoder(structure_of(schema, message, names), 0, is_flexible(schema))


def response_encoder(fields: Structure, version: int, flexible: bool) -> Encoder:
    """Return an encoder of responses with the attributes of the structure."""
    return writer_source(fields, version, flexible, PROTOCOL, "value, header").compile()


def _adapting_encoder(write: Writer, adapt: Adapt) -> Encoder:
    return lambda response, header: write(adapt(response, header))


def joined(encode: PartsEncoder) -> Encoder:
    """Return an encoder that joins the parts of a response."""
    return lambda response, header: b"".join(encode(response, header))


def parts_encoder(fields: Structure, version: int, flexible: bool, entries: Entries) -> PartsEncoder:
    """Return an encoder that encodes each distinct entry of an array once."""
    (place,) = (place for place, field in enumerate(fields.fields) if field.name == entries.name)
    before, after = fields._replace(fields=fields.fields[:place]), fields._replace(fields=fields.fields[place + 1 :])
    write_before = writer_of(before, version, flexible, PROTOCOL, has_end=False)
    write_after = writer_of(after, version, flexible, PROTOCOL)
    write_entry = element_writer(fields.fields[place].type, version, flexible, PROTOCOL)
    write_length = (FLEXIBLE if flexible else PLAIN).write_length
    adapt = entries.adapt

    def encode(response: Any, header: RequestHeader) -> list[bytes]:
        found: Sequence[Any] = getattr(response, entries.name)
        write = write_entry if adapt is None else lambda entry: write_entry(adapt(entry, header))
        head = write_before(response) + write_length(len(found))
        return [head, *write_each(found, write), write_after(response)]

    return encode
