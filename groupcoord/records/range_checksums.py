"""Checksums of any range of a log, each at about the same cost however long the range is.

A damaged log may hold many places that look like the start of a large batch, and computing each one's checksum byte by
byte would take time that grows with the square of the log's size. But a CRC is linear: that of a range follows from the
CRCs of two prefixes, since crc(AB) is crc(A) times x to the power of B's bits, plus crc(B), as polynomials modulo the
CRC's own. (The arithmetic is that of zlib's ``crc32_combine``.)
"""

from __future__ import annotations

import zlib
from array import array
from collections.abc import Callable
from functools import lru_cache

from crc32c import crc32c

#: Reads ``size`` bytes at ``position``; fewer only at the end.
ReadAt = Callable[[int, int], bytes]

DIRECT_BYTES_MAX = 16_384
STRIDE_BYTES = 16_384

_CRC32_POLYNOMIAL, _CRC32C_POLYNOMIAL = 0xEDB8_8320, 0x82F6_3B78  # lowest power in the highest bit
_ONE, _X = 1 << 31, 1 << 30
_CACHED_POWERS = 4_096


class RangeChecksums:
    """CRC-32C, or CRC-32 as in message formats v0 and v1, of the ranges of a log behind some position.

    Args:
        read_at: gives the log's bytes.
        start: no range starts before it.
        is_legacy: CRC-32 instead of CRC-32C.
    """

    def __init__(self, read_at: ReadAt, start: int, *, is_legacy: bool) -> None:
        self._read_at = read_at
        self._start = start
        self._update: Callable[[bytes, int], int] = zlib.crc32 if is_legacy else crc32c
        self._polynomial = _CRC32_POLYNOMIAL if is_legacy else _CRC32C_POLYNOMIAL
        self._prefixes = array("I", [0])  # of start, start + a stride, …

    def of(self, start: int, end: int) -> int:
        """Return the checksum of the bytes from ``start`` to ``end``, as far as there are any."""
        if end - start <= DIRECT_BYTES_MAX:
            return self._update(self._read_at(start, end - start), 0)
        shifted = _product(_power_of_x(8 * (end - start), self._polynomial), self._prefix(start), self._polynomial)
        return shifted ^ self._prefix(end)

    def _prefix(self, end: int) -> int:
        prefixes = self._prefixes
        number, rest = divmod(end - self._start, STRIDE_BYTES)
        while len(prefixes) <= number:
            stride = self._read_at(self._start + (len(prefixes) - 1) * STRIDE_BYTES, STRIDE_BYTES)
            prefixes.append(self._update(stride, prefixes[-1]))
        return self._update(self._read_at(end - rest, rest), prefixes[number]) if rest else prefixes[number]


def _product(first: int, second: int, polynomial: int) -> int:
    """Multiply two polynomials modulo a third."""
    product = 0
    while first:
        if first & _ONE:
            product ^= second
        first = first << 1 & 0xFFFF_FFFF
        second = second >> 1 ^ (polynomial if second & 1 else 0)
    return product


@lru_cache(_CACHED_POWERS)
def _power_of_x(exponent: int, polynomial: int) -> int:
    power, number = _ONE, 0
    while exponent:
        if exponent & 1:
            power = _product(_repeated_square(number, polynomial), power, polynomial)
        exponent >>= 1
        number += 1
    return power


@lru_cache(None)
def _repeated_square(times: int, polynomial: int) -> int:
    if not times:
        return _X
    square = _repeated_square(times - 1, polynomial)
    return _product(square, square, polynomial)
