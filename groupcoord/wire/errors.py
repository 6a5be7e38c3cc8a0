"""What is wrong with bytes that a peer sent. A host closes the connection on any of these, as Kafka does."""

from __future__ import annotations

from groupcoord.errors import GroupcoordError
from groupcoord.wire.header import RequestHeader


class ProtocolError(GroupcoordError):
    """Bytes that are no request: cut short, a null where none may be, an absurd length. The connection must be closed.

    Attributes:
        header: the request's header, where the bytes were good for one.
    """

    def __init__(self, message: str, header: RequestHeader | None = None) -> None:
        super().__init__(message)
        self.header = header


class UnknownApiError(ProtocolError):
    """A request of an API that is not served."""


class UnsupportedVersionError(ProtocolError):
    """A request of an API that is served, in a version that is not."""
