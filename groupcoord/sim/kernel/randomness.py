"""Randomness that depends on the seed alone: named streams, and latencies that depend on the time.

Python's ``hash`` is not used, so a seed has the same result in every process.
"""

from __future__ import annotations

import random
from hashlib import blake2b

MASK = 2**64 - 1


def stable_number(*names: object) -> int:
    """Return a 64-bit number for ``names`` (their text), the same in every process."""
    return int.from_bytes(blake2b("\0".join(map(str, names)).encode(), digest_size=8).digest(), "big")


def stream(seed: int, *names: object) -> random.Random:
    """Return a random generator for ``names``, independent of all others."""
    return random.Random(stable_number(seed, *names))


def mixed(key: int, moment: int) -> int:
    """Return a pseudo-random 32-bit number for ``key`` (64 bits) and ``moment``.

    The result does not depend on other calls.
    """
    x = (moment * 0x9E3779B97F4A7C15 + key) & MASK
    x = ((x ^ (x >> 30)) * 0xBF58476D1CE4E5B9) & MASK
    x = ((x ^ (x >> 27)) * 0x94D049BB133111EB) & MASK
    return x >> 32


class Chance:
    """Event that occurs with a probability at each time."""

    __slots__ = ("_key", "_threshold")

    def __init__(self, key: int, probability: float) -> None:
        self._key = key
        self._threshold = int(probability * 2**32)

    def strikes(self, moment: int) -> bool:
        return mixed(self._key, moment) < self._threshold


class Latency:
    """Latency of messages: mostly near the low end, sometimes much longer."""

    __slots__ = ("_table", "most_ms")

    def __init__(self, least_ms: int, most_ms: int) -> None:
        spread = most_ms - least_ms
        self.most_ms = most_ms
        # Of 256 equally likely values, the n-th has n/256 to the sixth power of the spread.
        self._table = tuple(least_ms + round(spread * (n / 255) ** 6) for n in range(256))

    def at(self, key: int, moment_ms: int) -> int:
        return self._table[mixed(key, moment_ms) & 255]
