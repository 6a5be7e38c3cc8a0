"""What the server knows of an API: its versions, and how it is read and written."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from attrs import frozen

from groupcoord.core.messages import Response
from groupcoord.wire.broker_messages import BrokerResponse
from groupcoord.wire.feature_messages import FeatureResponse
from groupcoord.wire.header import RequestHeader

Decoder = Callable[[bytes, int, RequestHeader, str], Any]
"""``decode(frame, position of the body, header, client_host)`` gives a request."""

Encoder = Callable[[Any, RequestHeader], bytes]
"""``encode(response, header)`` gives the body of an answer."""


PartsEncoder = Callable[[Any, RequestHeader], list[bytes]]
"""``encode(response, header)`` gives the body of an answer in parts, of which some may be the same object."""


NEVER_FLEXIBLE = 0x7FFF
"""For ``flexible_from`` of an API that has no such version."""


class VersionRange(NamedTuple):
    """The versions of an API that are served, both ends included."""

    min_version: int
    max_version: int


@frozen
class Api:
    """One API: its key, its versions, and how to make the decoder and the encoder of a version.

    Attributes:
        name: Kafka's name.
        flexible_from: the first version with compact lengths and tagged fields (KIP-482), in header and body alike.
        make_decoder, make_encoder: called once for each version, when it is first used.
        make_parts_encoder: the same in parts, for answers that may say one thing many times.
        has_flexible_response_header: False for ApiVersions alone, whose answer must be readable for any client
            (KIP-511).
        is_listed: ApiVersions lists it.
        listed_from: the lowest version that ApiVersions lists, where that is lower than what is served (Produce).
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
        """The versions that ApiVersions lists."""
        return self.versions if self.listed_from is None else self.versions._replace(min_version=self.listed_from)


@frozen
class Answered:
    """A request whose answer follows from its form alone: send ``response``, ask nobody."""

    response: Response | BrokerResponse | FeatureResponse
