"""Description of an API: its versions, and its decoder and encoder."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from attrs import frozen

from groupcoord.core.messages import Response
from groupcoord.wire.broker_messages import BrokerResponse
from groupcoord.wire.feature_messages import FeatureResponse
from groupcoord.wire.header import RequestHeader

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
        name: Kafka's name.
        flexible_from: the first version with compact lengths and tagged fields (KIP-482), in header and body.
        make_decoder, make_encoder: called once for each version, on first use.
        make_parts_encoder: an encoder in parts, for responses that may repeat entries often.
        has_flexible_response_header: False for ApiVersions only, whose response every client must be able to read
            (KIP-511).
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
        """Versions that ApiVersions lists."""
        return self.versions if self.listed_from is None else self.versions._replace(min_version=self.listed_from)


@frozen
class Answered:
    """A request whose response follows from its form alone: send ``response``."""

    response: Response | BrokerResponse | FeatureResponse
