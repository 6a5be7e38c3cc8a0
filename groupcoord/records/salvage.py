"""Salvage of damaged logs: every sound batch, and the damage between them.

The time is linear in the size of the log even for hostile bytes: chunks after damage are small at first, and
:class:`RangeChecksums` takes nearly constant time.
"""

from __future__ import annotations

import re
import zlib
from array import array
from collections.abc import Callable, Iterator
from functools import lru_cache
from struct import Struct
from typing import NamedTuple

from crc32c import crc32c

from groupcoord.records.batches import (
    BATCH_BYTES_MAX,
    BATCH_HEADER_BYTES,
    CODEC_MASK,
    LOG_OVERHEAD_BYTES,
    MAGIC_POSITION,
    MAGIC_V2,
    RECORD_BYTES_MIN,
    Batch,
    BatchRecord,
    InvalidBatchError,
    TruncatedBatchError,
    iter_batches,
)
from groupcoord.records.compression import Compression
from groupcoord.records.legacy import MAGIC_V1, MESSAGE_BYTES_MIN

CHUNK_BYTES = 4_194_304
CHUNK_BYTES_MIN = 16_384
"""Bytes that are read first after damage, doubled with each read."""

# Start of a batch: any offset, since the CRC does not cover it; a length of 14 to 2**28 - 1 bytes; leader epoch or CRC;
# magic 0 to 2. The look-ahead finds overlapping candidates. Zeros are not candidates, so a preallocated tail is skipped
# quickly.
_HEADER_LIKE = re.compile(rb"(?s)(?=.{8}(?!\x00\x00\x00[\x00-\x0d])[\x00-\x0f].{7}[\x00-\x02])")
_KNOWN_ATTRIBUTES = 0x7F
_LENGTH_POSITION = 8
_ATTRIBUTES_POSITION = 21
_COUNT_POSITION = 57
_ENTRY_BYTES_MIN = LOG_OVERHEAD_BYTES + MESSAGE_BYTES_MIN
_V0_KEY_POSITION, _V1_KEY_POSITION = 18, 26
_LEGACY_CRC_POSITION, _LEGACY_COVERED_POSITION = 12, 16
_CRC_POSITION, _COVERED_POSITION = 17, 21
_int32 = Struct(">i")
_uint32 = Struct(">I")
_attributes_and_delta = Struct(">hi")


class Damage(NamedTuple):
    """Bytes that are not a sound batch.

    Attributes:
        position, size_bytes: their position and number.
        reason: the problem at their start.
        first_offset: the offset after the previous batch, which may be lost; None without such a batch.
        end_offset: the first offset of the next batch; None without one.
    """

    position: int
    size_bytes: int
    reason: str
    first_offset: int | None
    end_offset: int | None


class SoundBatch(NamedTuple):
    """A batch with a valid CRC, and its records."""

    batch: Batch
    records: list[BatchRecord]


def salvage_batches(
    read_at: ReadAt, size_bytes: int, *, chunk_bytes: int = CHUNK_BYTES
) -> Iterator[SoundBatch | Damage]:
    """Yield every sound batch of a log, in order, and a :class:`Damage` for everything between them.

    After damage, reading continues at the next whole batch with a valid CRC, even if its offsets go back. A batch with
    a valid CRC and malformed records is damage as a whole.

    Args:
        read_at: reads bytes of the log.
        size_bytes: size of the log; it is less if ``read_at`` returns less.
        chunk_bytes: bytes to read at a time; a larger batch is read as a whole.
    """
    log = _Log(read_at, size_bytes)
    position, wanted, chunk_now = 0, chunk_bytes, chunk_bytes
    next_offset: int | None = None
    damage: Damage | None = None
    search: _Search | None = None
    while position < log.size_bytes:
        chunk = log.read(position, wanted)
        sound, end, error = _sound_batches(chunk, position)
        for found in sound:
            if damage is not None:
                yield damage._replace(end_offset=found.batch.base_offset)
                damage = None
            next_offset = found.batch.next_offset
            yield found
        is_cut = isinstance(error, TruncatedBatchError) and position + len(chunk) < log.size_bytes
        if error is None or (is_cut and end > position):
            chunk_now = min(2 * chunk_now, chunk_bytes)
            position, wanted = end, chunk_now
            continue
        search = search or _Search(log, end)
        size = search.size_of_batch(end)
        if size and is_cut and wanted < size:
            wanted = size
            continue
        # As it was written, although it can't be read: skip all of it.
        position = end + size if size else search.find(end + 1)
        chunk_now = wanted = min(chunk_bytes, CHUNK_BYTES_MIN)
        if damage is None:
            damage = Damage(end, position - end, error.reason, next_offset, None)
        else:
            damage = damage._replace(size_bytes=position - damage.position)
    if damage is not None:
        yield damage


def _sound_batches(chunk: bytes, position: int) -> tuple[list[SoundBatch], int, InvalidBatchError | None]:
    """Return the sound batches at the start of a chunk, their end, and the problem there."""
    sound: list[SoundBatch] = []
    end = position
    try:
        for batch in iter_batches(chunk, base_position=position):
            sound.append(SoundBatch(batch, list(batch.records())))
            end = batch.position + batch.size_bytes
    except InvalidBatchError as error:
        return sound, end, error
    return sound, end, None


def find_batch(read_at: ReadAt, position: int, size_bytes: int) -> int:
    """Return the position of the next whole batch with a valid CRC from ``position`` on; ``size_bytes`` without one."""
    return _Search(_Log(read_at, size_bytes), position).find(position)


class _Log:
    """Bytes of a log, which may be truncated while it is read."""

    def __init__(self, read_at: ReadAt, size_bytes: int) -> None:
        self._read_at = read_at
        self.size_bytes = size_bytes

    def read(self, position: int, size: int) -> bytes:
        size = min(size, self.size_bytes - position)
        if size <= 0:
            return b""
        part = self._read_at(position, size)
        if len(part) < size:
            self.size_bytes = position + len(part)
        return part


class _Search:
    def __init__(self, log: _Log, start: int) -> None:
        self._log = log
        self._checksums = RangeChecksums(log.read, start, is_legacy=False)
        self._legacy_checksums = RangeChecksums(log.read, start, is_legacy=True)

    def find(self, position: int) -> int:
        wanted = CHUNK_BYTES_MIN
        log = self._log
        while position + _ENTRY_BYTES_MIN <= log.size_bytes:
            chunk = log.read(position, wanted)
            for match in _HEADER_LIKE.finditer(chunk):
                start = match.start()
                if self._is_batch(chunk[start : start + BATCH_HEADER_BYTES], position + start):
                    return position + start
            if position + len(chunk) >= log.size_bytes:
                break
            position += max(1, len(chunk) - BATCH_HEADER_BYTES)
            wanted = min(2 * wanted, CHUNK_BYTES)
        return log.size_bytes

    def size_of_batch(self, position: int) -> int:
        """Return the size of the batch at a position if it is whole and its CRC valid; otherwise 0."""
        header = self._log.read(position, BATCH_HEADER_BYTES)
        is_batch = _HEADER_LIKE.match(header) is not None and self._is_batch(header, position)
        return _size(header) if is_batch else 0

    def _is_batch(self, header: bytes, position: int) -> bool:
        size = _size(header)
        end = position + size
        if end > self._log.size_bytes or size > BATCH_BYTES_MAX or len(header) < _ENTRY_BYTES_MIN:
            return False
        if header[MAGIC_POSITION] != MAGIC_V2:
            if not self._may_be_message(header, position, size):
                return False
            crc: int = _uint32.unpack_from(header, _LEGACY_CRC_POSITION)[0]
            return self._legacy_checksums.of(position + _LEGACY_COVERED_POSITION, end) == crc
        if not _may_be_batch(header, size):
            return False
        crc = _uint32.unpack_from(header, _CRC_POSITION)[0]
        return self._checksums.of(position + _COVERED_POSITION, end) == crc

    def _may_be_message(self, header: bytes, position: int, size: int) -> bool:
        """Return whether codec, key and value of a message of format v0 or v1 fit its size."""
        key_position = _V1_KEY_POSITION if header[MAGIC_POSITION] == MAGIC_V1 else _V0_KEY_POSITION
        if header[MAGIC_POSITION + 1] & CODEC_MASK >= Compression.ZSTD or size < key_position + 8:
            return False
        (key_length,) = _int32.unpack_from(header, key_position)
        value_position = key_position + 4 + max(key_length, 0)
        if key_length < -1 or value_position + 4 > size:
            return False
        value_length: int = _int32.unpack(self._log.read(position + value_position, 4).ljust(4))[0]
        return value_length >= -1 and value_position + 4 + max(value_length, 0) == size


def _size(header: bytes) -> int:
    length: int = _int32.unpack_from(header, _LENGTH_POSITION)[0]
    return LOG_OVERHEAD_BYTES + length


def _may_be_batch(header: bytes, size: int) -> bool:
    if len(header) < BATCH_HEADER_BYTES or size < BATCH_HEADER_BYTES:
        return False
    attributes: int
    last_offset_delta: int
    attributes, last_offset_delta = _attributes_and_delta.unpack_from(header, _ATTRIBUTES_POSITION)
    (record_count,) = _int32.unpack_from(header, _COUNT_POSITION)
    if attributes & ~_KNOWN_ATTRIBUTES or not -1 <= record_count - 1 <= last_offset_delta:
        return False
    return bool(attributes & CODEC_MASK) or record_count * RECORD_BYTES_MIN <= size - BATCH_HEADER_BYTES


ReadAt = Callable[[int, int], bytes]
"""Reads bytes at a position: fewer than the given size only at the end."""

DIRECT_BYTES_MAX = 16_384
STRIDE_BYTES = 16_384

_CRC32_POLYNOMIAL, _CRC32C_POLYNOMIAL = 0xEDB8_8320, 0x82F6_3B78  # lowest power in the highest bit
_ONE, _X = 1 << 31, 1 << 30
_CACHED_POWERS = 4_096


class RangeChecksums:
    """CRC-32C, or CRC-32 of message formats v0 and v1 (``is_legacy``), of any range from ``start`` on, in nearly
    constant time.

    A damaged log may hold many starts of large batches. A CRC is linear: crc(AB) is crc(A) times x to the power of B's
    bits, plus crc(B), as polynomials modulo that of the CRC. So the CRC of a range follows from those of two prefixes,
    as in zlib's ``crc32_combine``.
    """

    def __init__(self, read_at: ReadAt, start: int, *, is_legacy: bool) -> None:
        self._read_at = read_at
        self._start = start
        self._update: Callable[[bytes, int], int] = zlib.crc32 if is_legacy else crc32c
        self._polynomial = _CRC32_POLYNOMIAL if is_legacy else _CRC32C_POLYNOMIAL
        self._prefixes = array("I", [0])  # of start, start + a stride, …

    def of(self, start: int, end: int) -> int:
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
