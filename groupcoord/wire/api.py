"""Description of an API: versions, request header, decoder and encoder; protocol errors; shared encoded responses."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, TypeVar

from groupcoord.core.fast_construct import define, frozen
from groupcoord.core.messages import Response
from groupcoord.errors import GroupcoordError
from groupcoord.schema.primitives import MalformedError
from groupcoord.wire.broker_messages import BrokerResponse


@define
class RequestHeader:
    """API, version and client of a request.

    Attributes:
        correlation_id: the client's number of the request, which the response repeats.
        client_id: the client id, "" for null.
        reply_context: what the encoder needs to know of the request; set by some decoders.
    """

    api_key: int
    api_version: int
    correlation_id: int
    client_id: str = ""
    reply_context: object = None


class ProtocolError(GroupcoordError, MalformedError):
    """Malformed request: truncated, an invalid null, an absurd length. The connection must be closed.

    Attributes:
        header: the request header, if it could be decoded.
    """

    def __init__(self, message: str, header: RequestHeader | None = None) -> None:
        super().__init__(message)
        self.header = header


class UnknownApiError(ProtocolError):
    """A request of an API that is not served."""


class UnsupportedVersionError(ProtocolError):
    """A request of an API that is served, in a version that is not."""


Decoder = Callable[[bytes, int, RequestHeader, str], Any]
"""``decode(frame, position of the body, header, client_host)`` returns a request."""

Encoder = Callable[[Any, RequestHeader], bytes]
"""``encode(response, header)`` returns the body of a response."""


PartsEncoder = Callable[[Any, RequestHeader], list[bytes]]
"""``encode(response, header)`` returns the body of a response in parts, some of which may be the same object."""


NEVER_FLEXIBLE = 0x7FFF
"""``flexible_from`` of an API without flexible versions."""


class VersionRange(NamedTuple):
    """Lowest and highest version that is served."""

    min_version: int
    max_version: int


@frozen
class Api:
    """One API: its key, its versions, and factories of the decoder and the encoder of a version.

    Attributes:
        flexible_from: the first version with compact lengths and tagged fields (KIP-482), in header and body.
        make_decoder, make_encoder: called once for each version, on first use.
        make_parts_encoder: the same, for responses that may repeat entries.
        has_flexible_response_header: False for ApiVersions, whose response every client must be able to read (KIP-511).
        is_listed: whether ApiVersions lists it.
        listed_from: the lowest version that ApiVersions lists, if it is below those served (Produce).
    """

    key: int
    name: str
    versions: VersionRange
    flexible_from: int
    make_decoder: Callable[[int], Decoder]
    make_encoder: Callable[[int], Encoder]
    make_parts_encoder: Callable[[int], PartsEncoder] | None = None
    has_flexible_response_header: bool = True
    listed_from: int | None = None
    is_listed: bool = True

    @property
    def listed_versions(self) -> VersionRange:
        return self.versions if self.listed_from is None else self.versions._replace(min_version=self.listed_from)


@frozen
class Answered:
    """A request that was answered while it was decoded: send ``response``."""

    response: Response | BrokerResponse


_ANSWERS_MAX, _ANSWER_BYTES_MAX = 8_192, 256


class KeptAnswers:
    """Encodes responses of one version of an API, and caches the bytes of short ones that are sent again.

    Args:
        write: encodes a response.
        is_repeated: returns whether a response is sent again as the same object.
    """

    __slots__ = ("_is_repeated", "_write", "_written")

    def __init__(self, write: Encoder, is_repeated: Callable[[Any], bool]) -> None:
        self._write = write
        self._is_repeated = is_repeated
        self._written: dict[int, tuple[Any, bytes]] = {}

    def encode(self, response: Any, header: RequestHeader) -> bytes:
        known = self._written.get(id(response))
        if known is not None and known[0] is response:
            return known[1]
        body = self._write(response, header)
        if len(body) <= _ANSWER_BYTES_MAX and self._is_repeated(response):
            if len(self._written) >= _ANSWERS_MAX:
                self._written.clear()
            self._written[id(response)] = response, body
        return body


T = TypeVar("T")

FRAME_BYTES_MAX = 2**31 - 1
ANSWER_MEMORY_MAX_BYTES = 256 * 1024 * 1024
"""Largest memory of the distinct parts of a response."""


def write_each(elements: Sequence[T], write: Callable[[T], bytes]) -> list[bytes]:
    """Encode each of the elements; an object that occurs several times is encoded once.

    Raises:
        ProtocolError: the distinct elements take more than :data:`ANSWER_MEMORY_MAX_BYTES`.
    """
    written: dict[int, bytes] = {}
    size = 0
    parts = []
    for element in elements:
        part = written.get(id(element))
        if part is None:
            part = written[id(element)] = write(element)
            size += len(part)
            if size > ANSWER_MEMORY_MAX_BYTES:
                raise ProtocolError(f"the answer is larger than {ANSWER_MEMORY_MAX_BYTES} bytes")
        parts.append(part)
    return parts
