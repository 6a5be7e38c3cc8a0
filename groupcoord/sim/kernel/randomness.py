"""Chance that depends on the seed alone: streams by name, and latencies that depend on the moment.

Nothing here uses Python's ``hash``: a seed means the same in every process.
"""

from __future__ import annotations

import random
from hashlib import blake2b

MASK = 2**64 - 1


def stable_number(*names: object) -> int:
    """Return a number of 64 bits that stands for ``names`` (by their text), the same in every process."""
    return int.from_bytes(blake2b("\0".join(map(str, names)).encode(), digest_size=8).digest(), "big")


def stream(seed: int, *names: object) -> random.Random:
    """Return a source of chance of its own for ``names``: drawing from it disturbs no other."""
    return random.Random(stable_number(seed, *names))


def mixed(key: int, moment: int) -> int:
    """Return a number of 32 bits that looks drawn at random, for ``key`` (64 bits) at ``moment``.

    Whoever asks for the same gets the same, however often others asked in between.
    """
    x = (moment * 0x9E3779B97F4A7C15 + key) & MASK
    x = ((x ^ (x >> 30)) * 0xBF58476D1CE4E5B9) & MASK
    x = ((x ^ (x >> 27)) * 0x94D049BB133111EB) & MASK
    return x >> 32


class Chance:
    """Something that happens with a probability that is asked for the moment.

    Args:
        key: a number of 64 bits, see :func:`stable_number`.
        probability: 0 … 1.
    """

    __slots__ = ("_key", "_threshold")

    def __init__(self, key: int, probability: float) -> None:
        self._key = key
        self._threshold = int(probability * 2**32)

    def strikes(self, moment: int) -> bool:
        """Tell whether it happens at ``moment``."""
        return mixed(self._key, moment) < self._threshold


class Latency:
    """How long messages take: mostly near the low end, now and then much longer.

    Args:
        least_ms: the shortest.
        most_ms: the longest; one in twenty messages comes near.
    """

    __slots__ = ("_table", "most_ms")

    def __init__(self, least_ms: int, most_ms: int) -> None:
        spread = most_ms - least_ms
        self.most_ms = most_ms
        # Of 256 equally likely values, the n-th has n/256 to the sixth power of the spread.
        self._table = tuple(least_ms + round(spread * (n / 255) ** 6) for n in range(256))

    def at(self, key: int, moment_ms: int) -> int:
        """Return how long a message takes that ``key`` sends at ``moment_ms``, in milliseconds."""
        return self._table[mixed(key, moment_ms) & 255]
