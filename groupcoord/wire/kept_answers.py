"""Cache of encoded responses that are sent repeatedly, as those to heartbeats of stable groups."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from groupcoord.wire.api import Encoder
from groupcoord.wire.header import RequestHeader

_ANSWERS_MAX, _ANSWER_BYTES_MAX = 8_192, 256


class KeptAnswers:
    """Encodes responses of one version of an API, each object once.

    Args:
        write: encodes one.
        is_repeated: returns whether a response is sent again as the same object; others are not cached.
    """

    __slots__ = ("_is_repeated", "_write", "_written")

    def __init__(self, write: Encoder, is_repeated: Callable[[Any], bool]) -> None:
        self._write = write
        self._is_repeated = is_repeated
        self._written: dict[int, tuple[Any, bytes]] = {}

    def encode(self, response: Any, header: RequestHeader) -> bytes:
        """Return the body of a response."""
        known = self._written.get(id(response))
        if known is not None and known[0] is response:
            return known[1]
        body = self._write(response, header)
        if len(body) <= _ANSWER_BYTES_MAX and self._is_repeated(response):
            if len(self._written) >= _ANSWERS_MAX:
                self._written.clear()
            self._written[id(response)] = response, body
        return body
