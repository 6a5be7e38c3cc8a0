"""Decoding of request frames and encoding of response frames."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from functools import lru_cache
from typing import cast

from attrs import evolve, frozen

from groupcoord.core.messages import Request, Response
from groupcoord.core.messages.share_state import ShareStateResponse
from groupcoord.schema.primitives import INT32_FROM, UTF8_AS_JAVA, MalformedError, skip_tagged_fields
from groupcoord.wire import offset_fetch, produce
from groupcoord.wire.api import (
    FRAME_BYTES_MAX,
    Answered,
    Decoder,
    Encoder,
    PartsEncoder,
    ProtocolError,
    RequestHeader,
    UnknownApiError,
    UnsupportedVersionError,
)
from groupcoord.wire.broker_messages import BrokerResponse, Metadata
from groupcoord.wire.cluster_messages import (
    ApiVersions,
)
from groupcoord.wire.config_messages import TelemetryResponse
from groupcoord.wire.registry import APIS
from groupcoord.wire.security_messages import AclResponse, DescribeAcls, LoginResponse

WireRequest = Request | ApiVersions | Metadata | DescribeAcls | Answered
WireResponse = Response | AclResponse | BrokerResponse | LoginResponse | ShareStateResponse | TelemetryResponse

_unpack_header = struct.Struct(">hhih").unpack_from
_pack_length_and_correlation_id = struct.Struct(">ii").pack

_API_VERSIONS = 18
_HEARTBEATS = 12, 68, 76, 88  # of classic, consumer, share and streams groups
_REMEMBERED = frozenset(key.to_bytes(2, "big") for key in (*_HEARTBEATS, offset_fetch.API.key))
_REMEMBERED_BYTES_MAX = 256
"""Largest request that is cached: repeated ones usually differ only in the correlation id."""

_PRODUCE = produce.API.key.to_bytes(2, "big")
_COPIED_BYTES = 1_024


@frozen
class _Codec:
    is_flexible: bool
    decode: Decoder
    tagged_fields: bytes  # of the response header
    encode: Encoder
    encode_parts: PartsEncoder | None


_codecs: dict[int, _Codec] = {}
"""By ``(api_key << 16) + api_version``, filled on first use of a version."""


def decode_request(frame: bytes | memoryview, client_host: str) -> tuple[RequestHeader, WireRequest]:
    """Decode one request.

    Records of a Produce are views of the frame. As in a broker, bytes after a request and unknown tagged fields are
    ignored.

    Args:
        frame: the request without the four bytes of its length.
        client_host: the peer's address in Kafka's form: ``/127.0.0.1``.

    Returns:
        The header, which :func:`encode_response` needs, and the request; or an :class:`~groupcoord.wire.Answered`,
        whose response is to be sent. An ApiVersions request of an unknown version has ``unsupported_version`` set.

    Raises:
        UnknownApiError, UnsupportedVersionError: not one of :data:`~groupcoord.wire.API_VERSIONS`.
        ProtocolError: the request is malformed. In each of these cases the connection must be closed.
    """
    if not isinstance(frame, bytes):
        if frame[:2] == _PRODUCE:
            return _decode(cast(bytes, frame), client_host)  # a view works alike
        frame = bytes(frame)
    if len(frame) <= _REMEMBERED_BYTES_MAX and frame[:2] in _REMEMBERED:
        try:
            api_key, api_version, client_id, reply_context, request = _decode_remembered(
                frame[:4] + frame[8:], client_host
            )
        except ProtocolError:
            pass  # decode it again, for an error with the correlation id
        else:
            return RequestHeader(api_key, api_version, INT32_FROM(frame, 4)[0], client_id, reply_context), request
    return _decode(frame, client_host)


@lru_cache(maxsize=8_192)
def _decode_remembered(frame: bytes, client_host: str) -> tuple[int, int, str, object, WireRequest]:
    """Decode a request without its correlation id; return the other fields of its header, and the request."""
    header, request = _decode(frame[:4] + bytes(4) + frame[4:], client_host)
    return header.api_key, header.api_version, header.client_id, header.reply_context, request


def _decode(frame: bytes, client_host: str) -> tuple[RequestHeader, WireRequest]:
    header = None
    try:
        api_key, api_version, correlation_id, length = _unpack_header(frame)
        position = 10
        client_id = ""
        if length > 0:
            position += length
            if position > len(frame):
                raise ProtocolError(f"the client id claims {length} bytes where {len(frame) - 10} are left")
            client_id = str(frame[10:position], "utf-8", UTF8_AS_JAVA)
        header = RequestHeader(api_key, api_version, correlation_id, client_id)
        codec = _codecs.get((api_key << 16) + api_version) or _load_codec(header)
        if codec.is_flexible:
            position = skip_tagged_fields(frame, position)
        return header, codec.decode(frame, position, header, client_host)
    except (struct.error, IndexError):
        raise ProtocolError(f"{_describe(header)} of {len(frame)} bytes is cut short", header) from None
    except MalformedError as error:
        if isinstance(error, ProtocolError) and error.header is not None:
            raise
        raise ProtocolError(f"{_describe(header)} is malformed: {error}", header) from None


def encode_response(header: RequestHeader, response: WireResponse) -> bytes:
    """Encode the response to a request.

    Args:
        header: the header that :func:`decode_request` returned for the request.
        response: the response.

    Returns:
        The whole frame, including the four bytes of its length.

    Raises:
        UnknownApiError, UnsupportedVersionError: the header's API or version is not served.
        ProtocolError: a string is longer than 32,767 bytes, which only the echo of a malformed request can cause. The
            connection must be closed.
    """
    codec = _codecs.get((header.api_key << 16) + header.api_version) or _load_codec(header)
    try:
        body = codec.tagged_fields + codec.encode(response, header)
    except MalformedError as error:
        raise ProtocolError(str(error)) from None
    return _pack_length_and_correlation_id(len(body) + 4, header.correlation_id) + body


def encode_response_parts(header: RequestHeader, response: WireResponse) -> list[bytes]:
    """Encode the response to a request like :func:`encode_response`, in parts of which some may be the same object.

    A response that repeats an entry takes no more memory than one that holds it once.

    Raises:
        ProtocolError: as for :func:`encode_response`, or the response is too large.
    """
    codec = _codecs.get((header.api_key << 16) + header.api_version) or _load_codec(header)
    if codec.encode_parts is None:
        return [encode_response(header, response)]
    try:
        parts = codec.encode_parts(response, header)
    except MalformedError as error:
        raise ProtocolError(str(error)) from None
    size = 4 + len(codec.tagged_fields) + sum(map(len, parts))
    if size > FRAME_BYTES_MAX:
        raise ProtocolError(f"the answer of {size} bytes is larger than a frame can be")
    head = _pack_length_and_correlation_id(size, header.correlation_id) + codec.tagged_fields
    if len(parts[0]) > _COPIED_BYTES:
        return [head, *parts]
    parts[0] = head + parts[0]
    return parts


def load_newest() -> Iterator[None]:
    """Prepare the newest version of each API, one API at a step.

    Otherwise the first request of a version takes milliseconds longer, and the very first one imports kio's schemas.
    """
    for api in APIS.values():
        _load_codec(RequestHeader(api.key, api.versions.max_version, 0))
        yield


def _load_codec(header: RequestHeader) -> _Codec:
    api, version = APIS.get(header.api_key), header.api_version
    if api is None:
        raise UnknownApiError(f"{_name_of(header.api_key)} is not served", header)
    least, most = api.versions
    is_flexible = version >= api.flexible_from
    if not least <= version <= most:
        if api.key == _API_VERSIONS:
            # The schema of the body is unknown, and the response is of version 0.
            return evolve(
                _load_codec(RequestHeader(api.key, 0, 0)), is_flexible=is_flexible, decode=_unsupported_version
            )
        raise UnsupportedVersionError(f"{api.name} of version {version} is not served: {least} to {most} are", header)
    tagged_fields = b"\x00" if is_flexible and api.has_flexible_response_header else b""
    encode_parts = None if api.make_parts_encoder is None else api.make_parts_encoder(version)
    codec = _Codec(is_flexible, api.make_decoder(version), tagged_fields, api.make_encoder(version), encode_parts)
    _codecs[(api.key << 16) + version] = codec
    return codec


def _unsupported_version(frame: bytes, position: int, header: RequestHeader, client_host: str) -> ApiVersions:
    return ApiVersions(unsupported_version=True)


def _name_of(api_key: int) -> str:
    from kio.schema.index import api_key_map

    known = api_key_map.get(api_key)
    if known is None:
        return f"API key {api_key}"
    return f"API key {api_key} ({''.join(word.capitalize() for word in known.split('_'))})"


def _describe(header: RequestHeader | None) -> str:
    if header is None:
        return "a request header"
    api = APIS.get(header.api_key)
    name = f"API key {header.api_key}" if api is None else api.name
    return f"a request of {name} version {header.api_version}"
