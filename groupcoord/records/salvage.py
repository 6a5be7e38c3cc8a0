"""Reading what is left of a damaged log: every sound batch, and what had to be skipped between them."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from struct import Struct
from typing import NamedTuple

from groupcoord.records.batches import (
    BATCH_HEADER_BYTES,
    CODEC_MASK,
    LOG_OVERHEAD_BYTES,
    MAGIC_V2,
    Batch,
    BatchRecord,
    InvalidBatchError,
    TruncatedBatchError,
    iter_batches,
)
from groupcoord.records.compression import Compression
from groupcoord.records.legacy import MAGIC_V1, MESSAGE_BYTES_MIN

CHUNK_BYTES = 4_194_304

#: Reads ``size`` bytes at ``position``; fewer only at the end.
ReadAt = Callable[[int, int], bytes]

# What starts a batch: an offset, a length of 14 to 2**28 - 1 bytes, a leader epoch or CRC, magic 0 to 2. The look-ahead
# finds overlapping candidates; zeros are none, so that a preallocated tail is passed over quickly.
_HEADER_LIKE = re.compile(rb"(?s)(?=[\x00-\x7f].{7}(?!\x00\x00\x00[\x00-\x0d])[\x00-\x0f].{7}[\x00-\x02])")
_KNOWN_ATTRIBUTES = 0x7F
_LENGTH_POSITION = 8
_MAGIC_POSITION = 16
_ATTRIBUTES_POSITION = 21
_COUNT_POSITION = 57
_ENTRY_BYTES_MIN = LOG_OVERHEAD_BYTES + MESSAGE_BYTES_MIN
_int32 = Struct(">i")
_attributes_and_delta = Struct(">hi")


class Damage(NamedTuple):
    """Bytes that are no sound batch.

    Attributes:
        position: where they start, in bytes; ``size_bytes`` is how many were skipped.
        reason: what is wrong where they start.
        first_offset: of the records that may be lost: the one after the batch before; None if there is none.
        end_offset: the first offset of the batch behind; None if there is none.
    """

    position: int
    size_bytes: int
    reason: str
    first_offset: int | None
    end_offset: int | None


class SoundBatch(NamedTuple):
    """A batch whose CRC is right, with its records."""

    batch: Batch
    records: list[BatchRecord]


def salvage_batches(
    read_at: ReadAt, size_bytes: int, *, chunk_bytes: int = CHUNK_BYTES
) -> Iterator[SoundBatch | Damage]:
    """Yield every sound batch of a log, in order, and a :class:`Damage` for all that lies between them.

    After damage, reading goes on at the next place where a whole batch with the right CRC starts, whatever its offsets.
    A batch whose CRC is right but whose records don't fit is damage as well.

    Args:
        read_at: gives the bytes.
        size_bytes: how many there are; if fewer come, the log ends there.
        chunk_bytes: how many to ask for at a time; a larger batch is held whole.
    """
    position, wanted = 0, chunk_bytes
    next_offset: int | None = None
    damage: Damage | None = None
    while position < size_bytes:
        requested = min(wanted, size_bytes - position)
        chunk = read_at(position, requested)
        if len(chunk) < requested:
            size_bytes = position + len(chunk)  # somebody has cut the file meanwhile
        sound, end, error = _sound_batches(chunk, position)
        for found in sound:
            if damage is not None:
                yield damage._replace(end_offset=found.batch.base_offset)
                damage = None
            next_offset = found.batch.next_offset
            yield found
        wanted = chunk_bytes
        if isinstance(error, TruncatedBatchError) and position + len(chunk) < size_bytes:
            if end > position:
                position = end
                continue
            if error.size_bytes <= size_bytes - position:
                wanted = error.size_bytes
                continue
        position = end
        if error is not None:
            position = find_batch(read_at, end + 1, size_bytes, chunk_bytes=chunk_bytes)
            damage = Damage(end, position - end, error.reason, next_offset, None)
    if damage is not None:
        yield damage


def _sound_batches(chunk: bytes, position: int) -> tuple[list[SoundBatch], int, InvalidBatchError | None]:
    """Return the sound batches that a chunk starts with, where they end, and what is wrong there."""
    sound: list[SoundBatch] = []
    end = position
    try:
        for batch in iter_batches(chunk, base_position=position):
            sound.append(SoundBatch(batch, list(batch.records())))
            end = batch.position + batch.size_bytes
    except InvalidBatchError as error:
        return sound, end, error
    return sound, end, None


def find_batch(read_at: ReadAt, position: int, size_bytes: int, *, chunk_bytes: int = CHUNK_BYTES) -> int:
    """Return where the next sound batch starts, at ``position`` or behind it; ``size_bytes`` if there is none.

    The arguments are those of :func:`salvage_batches`.
    """
    while position + _ENTRY_BYTES_MIN <= size_bytes:
        chunk = read_at(position, min(chunk_bytes + BATCH_HEADER_BYTES, size_bytes - position))
        for match in _HEADER_LIKE.finditer(chunk):
            start = match.start()
            size = LOG_OVERHEAD_BYTES + _int32.unpack_from(chunk, start + _LENGTH_POSITION)[0]
            header = chunk[start : start + BATCH_HEADER_BYTES]
            if size <= size_bytes - position - start and _is_plausible(header, size):
                data = read_at(position + start, size)
                sound, end, _ = _sound_batches(data, 0)
                if sound and end == size:
                    return position + start
        if position + len(chunk) >= size_bytes or not chunk:
            break
        position += max(1, len(chunk) - BATCH_HEADER_BYTES)
    return size_bytes


def _is_plausible(header: bytes, size: int) -> bool:
    """Tell whether it is worth while to compute the CRC of what starts like this."""
    if len(header) < _ENTRY_BYTES_MIN:
        return False
    if header[_MAGIC_POSITION] != MAGIC_V2:
        key_position = _ENTRY_BYTES_MIN - 8 + (8 if header[_MAGIC_POSITION] == MAGIC_V1 else 0)
        key_length = int.from_bytes(header[key_position : key_position + 4], "big", signed=True)
        codec = header[_MAGIC_POSITION + 1] & CODEC_MASK
        return codec < Compression.ZSTD and -1 <= key_length <= size - key_position - 8
    if len(header) < BATCH_HEADER_BYTES or size < BATCH_HEADER_BYTES:
        return False
    attributes: int
    last_offset_delta: int
    attributes, last_offset_delta = _attributes_and_delta.unpack_from(header, _ATTRIBUTES_POSITION)
    record_count = int.from_bytes(header[_COUNT_POSITION : _COUNT_POSITION + 4], "big", signed=True)
    return attributes & ~_KNOWN_ATTRIBUTES == 0 and -1 <= record_count - 1 <= last_offset_delta
