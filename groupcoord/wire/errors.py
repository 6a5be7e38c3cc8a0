"""Errors in the bytes of a peer. A host closes the connection on any of them, as Kafka does."""

from __future__ import annotations

from groupcoord.errors import GroupcoordError
from groupcoord.wire.header import RequestHeader


class ProtocolError(GroupcoordError):
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
