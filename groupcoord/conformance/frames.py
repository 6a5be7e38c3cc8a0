"""Frames on a connection to a server: a length, and so many bytes."""

from __future__ import annotations

import struct
from collections.abc import Callable

from groupcoord.conformance.entities import ResponseError
from groupcoord.conformance.targets import Stream

_LENGTH = struct.Struct(">i")
_MAX_BYTES = 64 * 1024 * 1024


class Frames:
    """Frames of one connection, in both directions.

    Args:
        stream: the connection.
        now_ms: returns the time that passes for it, in milliseconds.
    """

    def __init__(self, stream: Stream, now_ms: Callable[[], float]) -> None:
        self._stream = stream
        self._now_ms = now_ms
        self._buffer = bytearray()

    @property
    def begun_bytes(self) -> int:
        """How many bytes have arrived of a frame that is not whole yet."""
        return len(self._buffer)

    def send(self, frame: bytes) -> None:
        """Send a frame.

        Raises:
            ConnectionClosedError: the connection is gone.
        """
        self._stream.send(_LENGTH.pack(len(frame)) + frame)

    def receive(self, timeout_ms: float) -> bytes | None:
        """Return the next frame; None if it is not there in time.

        Args:
            timeout_ms: how long to wait for it.

        Raises:
            ConnectionClosedError: the connection is gone.
            ResponseError: what came can't be a frame.
        """
        deadline_ms = self._now_ms() + timeout_ms
        while (size := self._size()) is None or len(self._buffer) < size:
            data = self._stream.receive(max(deadline_ms - self._now_ms(), 0))
            if not data:
                return None
            self._buffer += data
        frame = bytes(self._buffer[_LENGTH.size : size])
        del self._buffer[:size]
        return frame

    def _size(self) -> int | None:
        """Return how many bytes the next frame takes with its length, or None if that is not known yet."""
        if len(self._buffer) < _LENGTH.size:
            return None
        (length,) = _LENGTH.unpack_from(self._buffer)
        if not 4 <= length <= _MAX_BYTES:
            raise ResponseError(f"a response can't be {length} bytes long; is TLS expected there?")
        return _LENGTH.size + int(length)
