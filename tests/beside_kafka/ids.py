"""Ids that follow from a seed as they do in Java, so that both sides give out the same."""

from __future__ import annotations

import base64
import uuid
from collections.abc import Callable

UNUSED_MAX = 200
"""So many ids in a row may have been drawn for nobody."""

UNSEEN = 1 << 40
"""Makes another seed of one, for ids that nobody gets to see: they must not be those that clients draw themselves."""

_MASK = (1 << 48) - 1
_MULTIPLIER = 0x5DEECE66D


class JavaRandom:
    """The linear congruential generator that ``java.util.Random`` documents.

    >>> str(JavaRandom(200_000).uuid())
    'ed4cca73-a538-42cd-800c-364ab5a034df'
    """

    def __init__(self, seed: int) -> None:
        self.state = (seed ^ _MULTIPLIER) & _MASK

    def uuid(self) -> uuid.UUID:
        """Return what ``UUID.randomUUID`` makes of the next sixteen bytes."""
        data = b"".join(self._next_int().to_bytes(4, "little") for _ in range(4))
        return uuid.UUID(bytes=data, version=4)

    def kafka_uuid(self) -> str:
        """Return what Kafka's ``Uuid.randomUuid`` draws: one that doesn't begin with a dash."""
        while True:
            text = base64.urlsafe_b64encode(self.uuid().bytes).decode().rstrip("=")
            if not text.startswith("-"):
                return text

    def _next_int(self) -> int:
        self.state = (self.state * _MULTIPLIER + 0xB) & _MASK
        return self.state >> 16


class UsedIds:
    """The ids that Kafka has drawn from a seed and has used: some it draws for requests that it then refuses."""

    def __init__(self, seed: int) -> None:
        self._random = JavaRandom(seed)
        self._unseen = JavaRandom(seed ^ UNSEEN)
        self.said = self._said_before = ""

    def hear(self, said: str) -> None:
        """Take Kafka's output of the next command: ids in it that were not in the previous one are new."""
        self._said_before, self.said = self.said, said

    def uuid(self) -> str:
        return self._next_used(lambda random: str(random.uuid()))

    def kafka_uuid(self) -> str:
        """Return the next of Kafka's own ids that was used."""
        return self._next_used(JavaRandom.kafka_uuid)

    def _next_used(self, draw: Callable[[JavaRandom], str]) -> str:
        """Return the next used id; a random one if none was used, since it is never visible."""
        before = self._random.state
        for _ in range(UNUSED_MAX):
            text = draw(self._random)
            if self._is_new(text) or self._is_new(text.encode().hex()):
                return text
        self._random.state = before
        return draw(self._unseen)

    def _is_new(self, text: str) -> bool:
        return text in self.said and text not in self._said_before
