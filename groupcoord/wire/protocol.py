"""Decoding of request frames and encoding of response frames."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from functools import lru_cache
from typing import cast

from groupcoord.core.messages import Request, Response
from groupcoord.core.messages.share_state import ShareStateResponse
from groupcoord.schema.primitives import INT32_FROM, UTF8_AS_JAVA, MalformedError, skip_tagged_fields
from groupcoord.wire import offset_fetch, produce
from groupcoord.wire.api import (
    FRAME_BYTES_MAX,
    Answered,
    Api,
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
    ClusterResponse,
)
from groupcoord.wire.config_messages import (
    ConfigResponse,
    TelemetryRequest,
)
from groupcoord.wire.registry import APIS
from groupcoord.wire.security_messages import AclRequest, AclResponse, LoginRequest, LoginResponse
from groupcoord.wire.share_messages import ShareResponse
from groupcoord.wire.transaction_messages import TransactionResponse

WireRequest = Request | ApiVersions | Metadata | AclRequest | LoginRequest | TelemetryRequest | Answered
WireResponse = (
    Response
    | AclResponse
    | BrokerResponse
    | ClusterResponse
    | ConfigResponse
    | LoginResponse
    | ShareResponse
    | ShareStateResponse
    | TransactionResponse
)

_unpack_header = struct.Struct(">hhih").unpack_from
_pack_length_and_correlation_id = struct.Struct(">ii").pack

_API_VERSIONS = 18
_HEARTBEATS = 12, 68, 76, 88  # of classic, consumer, share and streams groups
_REMEMBERED = frozenset(key.to_bytes(2, "big") for key in (*_HEARTBEATS, offset_fetch.API.key))
_REMEMBERED_BYTES_MAX = 256
"""Largest request that is cached: repeated ones usually differ only in the correlation id."""

_PRODUCE = produce.API.key.to_bytes(2, "big")
_COPIED_BYTES = 1_024

# By (api_key << 16) + api_version, filled on first use of a version.
_decoders: dict[int, tuple[bool, Decoder]] = {}
_encoders: dict[int, tuple[bytes, Encoder]] = {}
_parts_encoders: dict[int, tuple[bytes, PartsEncoder]] = {}


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
        entry = _decoders.get((api_key << 16) + api_version) or _load_decoder(header)
        is_flexible, decode = entry
        if is_flexible:
            position = skip_tagged_fields(frame, position)
        return header, decode(frame, position, header, client_host)
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
    tagged_fields, encode = _encoders.get((header.api_key << 16) + header.api_version) or _load_encoder(header)
    try:
        body = tagged_fields + encode(response, header)
    except MalformedError as error:
        raise ProtocolError(str(error)) from None
    return _pack_length_and_correlation_id(len(body) + 4, header.correlation_id) + body


def encode_response_parts(header: RequestHeader, response: WireResponse) -> list[bytes]:
    """Encode the response to a request like :func:`encode_response`, in parts of which some may be the same object.

    A response that repeats an entry takes no more memory than one that holds it once.

    Raises:
        ProtocolError: as for :func:`encode_response`, or the response is too large.
    """
    entry = _parts_encoders.get((header.api_key << 16) + header.api_version) or _load_parts_encoder(header)
    if entry is None:
        return [encode_response(header, response)]
    tagged_fields, encode = entry
    try:
        parts = encode(response, header)
    except MalformedError as error:
        raise ProtocolError(str(error)) from None
    size = 4 + len(tagged_fields) + sum(map(len, parts))
    if size > FRAME_BYTES_MAX:
        raise ProtocolError(f"the answer of {size} bytes is larger than a frame can be")
    head = _pack_length_and_correlation_id(size, header.correlation_id) + tagged_fields
    if len(parts[0]) > _COPIED_BYTES:
        return [head, *parts]
    parts[0] = head + parts[0]
    return parts


def load_newest() -> Iterator[None]:
    """Prepare the newest version of each API, one API at a step.

    Otherwise the first request of a version takes milliseconds longer, and the very first one imports kio's schemas.
    """
    for api in APIS.values():
        header = RequestHeader(api.key, api.versions.max_version, 0)
        _load_decoder(header)
        _load_encoder(header)
        yield


def _load_decoder(header: RequestHeader) -> tuple[bool, Decoder]:
    api = _served_api(header)
    version = header.api_version
    is_flexible = version >= api.flexible_from
    if not _is_supported(api, version):
        if api.key == _API_VERSIONS:
            # The schema of the body is unknown.
            return is_flexible, lambda frame, position, header, client_host: ApiVersions(unsupported_version=True)
        raise UnsupportedVersionError(
            f"{api.name} of version {version} is not served: {api.versions.min_version} to "
            f"{api.versions.max_version} are",
            header,
        )
    entry = is_flexible, api.make_decoder(version)
    _decoders[(api.key << 16) + version] = entry
    return entry


def _load_encoder(header: RequestHeader) -> tuple[bytes, Encoder]:
    api = _served_api(header)
    version = header.api_version
    if not _is_supported(api, version):
        if api.key != _API_VERSIONS:
            raise UnsupportedVersionError(f"{api.name} of version {version} is not served", header)
        version = 0
    tagged_fields = b"\x00" if version >= api.flexible_from and api.has_flexible_response_header else b""
    entry = tagged_fields, api.make_encoder(version)
    if version == header.api_version:
        _encoders[(api.key << 16) + version] = entry
    return entry


def _load_parts_encoder(header: RequestHeader) -> tuple[bytes, PartsEncoder] | None:
    api, version = _served_api(header), header.api_version
    if api.make_parts_encoder is None or not _is_supported(api, version):
        return None
    tagged_fields, _ = _load_encoder(header)
    entry = _parts_encoders[(api.key << 16) + version] = tagged_fields, api.make_parts_encoder(version)
    return entry


def _served_api(header: RequestHeader) -> Api:
    api = APIS.get(header.api_key)
    if api is None:
        raise UnknownApiError(f"{_name_of(header.api_key)} is not served", header)
    return api


def _name_of(api_key: int) -> str:
    from kio.schema.index import api_key_map

    known = api_key_map.get(api_key)
    if known is None:
        return f"API key {api_key}"
    return f"API key {api_key} ({''.join(word.capitalize() for word in known.split('_'))})"


def _is_supported(api: Api, version: int) -> bool:
    return api.versions.min_version <= version <= api.versions.max_version


def _describe(header: RequestHeader | None) -> str:
    if header is None:
        return "a request header"
    api = APIS.get(header.api_key)
    name = f"API key {header.api_key}" if api is None else api.name
    return f"a request of {name} version {header.api_version}"
