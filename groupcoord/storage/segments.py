"""Reading segment files: in chunks, so that memory stays bounded, and cutting the torn tail that a crash leaves.

These functions take no lock; :func:`read_batches` and :func:`read_records` change nothing, so any tool can use them on
any segment file, a broker's included.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Iterable, Iterator
from operator import ge
from pathlib import Path

from groupcoord.config.files import open_file
from groupcoord.log_store import LogRecord
from groupcoord.records.batches import (
    BATCH_HEADER_BYTES,
    LOG_OVERHEAD_BYTES,
    MAGIC_POSITION,
    MAGIC_V2,
    Batch,
    CorruptBatchError,
    InvalidBatchError,
    TruncatedBatchError,
    iter_batches,
)
from groupcoord.records.codec import decode_control, decode_record
from groupcoord.records.range_checksums import ReadAt
from groupcoord.records.salvage import find_batch
from groupcoord.storage.errors import CorruptLogError
from groupcoord.storage.log_directory import segment_path

logger = logging.getLogger(__name__)

#: Kafka's ``offsets.load.buffer.size``.
CHUNK_BYTES = 5_242_880

HEADERS_CHUNK_BYTES = 16_384
"""How much is read at a time where only headers are looked at."""

COMPACTION_CHUNK_BYTES = 262_144
"""How much is read at a time by what does a little now and then."""

DISK_SECTOR_BYTES = 512
"""A power failure takes or leaves so many bytes at a time, at least."""

EncodedRecord = tuple[int, int, bytes | None, bytes | None]
"""Offset, time, and the bytes of key and value."""

OFFSETS_END = 2**63 - 1
"""No offset reaches it."""

RELATIVE_OFFSETS_END = 2**31
"""How far the offsets of a segment may reach beyond its base offset (Kafka's ``LogSegment``)."""


def offsets_end(base_offset: int) -> int:
    """Return the offset that those of a segment stay below: its indexes say how far they are from its base offset."""
    return min(base_offset + RELATIVE_OFFSETS_END, OFFSETS_END)


def read_batches(
    path: Path,
    *,
    base_offset: int | None = None,
    end_offset: int = OFFSETS_END,
    end: int | None = None,
    chunk_bytes: int = CHUNK_BYTES,
) -> Iterator[Batch]:
    """Yield the batches of a segment file, checked, in order.

    Args:
        path: the file.
        base_offset: of the segment: offsets below it are an error, and so are those that are too far beyond it.
        end_offset: so is this one and those beyond it, since the next segment begins there.
        end: how many bytes of the file to read; all by default.
        chunk_bytes: how much to hold in memory at a time; a larger batch is held whole.

    Raises:
        TruncatedBatchError: the file ends in the middle of a batch.
        CorruptBatchError: a batch is broken, or its offsets are not those that may be there.
        OSError: the file can't be read.
    """
    next_offset = 0
    if base_offset is not None:
        next_offset, end_offset = base_offset, min(end_offset, offsets_end(base_offset))
    with open(path, "rb", buffering=0, opener=open_file) as file:
        if end is None:
            end = os.fstat(file.fileno()).st_size
        position = 0
        wanted = chunk_bytes
        while position < end:
            chunk = _read_at(file.fileno(), min(wanted, end - position), position)
            start = position
            if not chunk:
                raise TruncatedBatchError(position, end - position, 0)
            try:
                for batch in iter_batches(chunk, base_position=start):
                    next_offset = _checked_end(batch, next_offset, end_offset)
                    position = batch.position + batch.size_bytes
                    yield batch
                wanted = chunk_bytes
            except TruncatedBatchError as error:
                # Only the chunk may have ended, not the file: then read on from the start of this batch.
                if start + len(chunk) == end or error.position + error.size_bytes > end:
                    raise TruncatedBatchError(error.position, error.size_bytes, end - error.position) from None
                wanted = max(chunk_bytes, error.size_bytes)


def _checked_end(batch: Batch, next_offset: int, end_offset: int) -> int:
    """Return the offset after a batch.

    Raises:
        CorruptBatchError: its offsets are not those that may be there.
    """
    if batch.base_offset < next_offset:
        raise CorruptBatchError(batch.position, f"offset {batch.base_offset} after {next_offset - 1}")
    if batch.next_offset > end_offset:
        reason = f"offset {batch.next_offset - 1}, but those of the segment stay below {end_offset}"
        raise CorruptBatchError(batch.position, reason)
    return batch.next_offset


def read_headers(
    read_at: ReadAt, base_offset: int, position: int, end: int, chunk_bytes: int = HEADERS_CHUNK_BYTES
) -> Iterator[Batch]:
    """Yield the batches of a segment file; what is behind their headers is passed over.

    Of control batches, and of formats v0 and v1, all is read.

    Args:
        read_at: reads so many bytes from a position of the file.
        base_offset: of the segment.
        position: where a batch begins.
        end: where the last one ends.
        chunk_bytes: how much to read at a time, a header at least.

    Raises:
        InvalidBatchError: there is no batch, or its offsets are not those that may be there.
    """
    start, chunk = position, b""
    next_offset, end_offset = base_offset, offsets_end(base_offset)
    while position < end:
        if position + BATCH_HEADER_BYTES > start + len(chunk):
            start, chunk = position, read_at(position, min(chunk_bytes, end - position))
        at = position - start
        if len(chunk) < at + LOG_OVERHEAD_BYTES + MAGIC_POSITION:
            raise TruncatedBatchError(position, BATCH_HEADER_BYTES, len(chunk) - at)
        size = int.from_bytes(chunk[at + 8 : at + 12], "big", signed=True) + LOG_OVERHEAD_BYTES
        if size < LOG_OVERHEAD_BYTES + 1 or position + size > end:
            raise CorruptBatchError(position, f"a length of {size} bytes is impossible")
        batch = None
        if chunk[at + MAGIC_POSITION] == MAGIC_V2 and len(chunk) >= at + BATCH_HEADER_BYTES:
            batch = Batch(chunk, at, position)
        if batch is None or (batch.is_control and at + size > len(chunk)):
            (batch,) = iter_batches(read_at(position, size), base_position=position, check_crc=False)
        next_offset = _checked_end(batch, next_offset, end_offset)
        yield batch
        position += size


def _read_at(descriptor: int, size: int, position: int) -> bytes:
    parts: list[bytes] = []
    while size:
        part = os.pread(descriptor, size, position)
        if not part:
            break
        parts.append(part)
        size -= len(part)
        position += len(part)
    return parts[0] if len(parts) == 1 else b"".join(parts)


def read_records(
    path: Path, *, base_offset: int | None = None, end: int | None = None, chunk_bytes: int = CHUNK_BYTES
) -> Iterator[LogRecord]:
    """Yield every record of a segment file in order; arguments and errors are those of :func:`read_batches`.

    Each record keeps the bytes of its key and value as they stand in the file.
    """
    return all_records(read_batches(path, base_offset=base_offset, end=end, chunk_bytes=chunk_bytes))


def all_records(batches: Iterable[Batch]) -> Iterator[LogRecord]:
    """Yield every record of ``batches`` in order.

    Raises:
        CorruptBatchError: the records of a batch don't fit, or their offsets go back.
    """
    for batch in batches:
        records = records_of(batch)
        producer_id, producer_epoch = batch.producer_id, batch.producer_epoch
        decode = decode_control if batch.is_control else decode_record
        # LogRecord.from_bytes() does the same in twice the time.
        yield from [
            LogRecord(decode(key or b"", value, producer_id, producer_epoch), timestamp_ms, offset, (key or b"", value))
            for offset, timestamp_ms, key, value in records
        ]


def records_of(batch: Batch) -> list[EncodedRecord]:
    """Return the records of a batch without decoding their keys and values.

    Raises:
        CorruptBatchError: they don't fit, or their offsets go back.
    """
    records = list(batch.records())
    offsets = [offset for offset, _, _, _ in records]
    if any(map(ge, offsets, offsets[1:])):
        raise CorruptBatchError(batch.position, "the offsets of its records go back")
    return records


def recover_segment(path: Path, base_offset: int, end_offset: int = OFFSETS_END) -> tuple[int, int]:
    """Find the end of a segment that may have been written when the process or the machine died, and cut a torn tail.

    Args:
        path: the file.
        base_offset: its first offset slot.
        end_offset: where the next segment begins.

    Returns:
        The size of the file in bytes and the offset after its last record; ``base_offset`` if it holds none.

    Raises:
        CorruptLogError: a batch is broken and a sound one follows it, or the file was never a segment.
        OSError: the file can't be read or cut.
    """
    size, next_offset = 0, base_offset
    try:
        for batch in read_batches(path, base_offset=base_offset, end_offset=end_offset):
            size, next_offset = batch.position + batch.size_bytes, batch.next_offset
    except InvalidBatchError as error:
        if _holds_batch(path, size):
            raise CorruptLogError(path, error.position, error.reason) from error
        if not size and not _may_be_torn(path, base_offset):
            raise CorruptLogError(path, 0, f"it does not begin as a segment does ({error.reason})") from error
        file_size = path.stat().st_size
        logger.warning(
            "%s: cut %d bytes at position %d, the torn tail of an interrupted write (%s)",
            path,
            file_size - size,
            size,
            error.reason,
        )
        os.truncate(path, size)
    return size, next_offset


def recover_log(folder: Path, segments: list[int]) -> tuple[int, int]:
    """Find the end of a log that may have been written when the process or the machine died, and cut torn tails.

    Only segments from the last one that holds a batch on can have been written when the power failed.

    Args:
        folder: of the log.
        segments: base offsets of its segments, in order.

    Returns:
        The size of the last segment and the offset after the last record.

    Raises:
        CorruptLogError: a batch is broken and a sound one follows it, or a file was never a segment.
        OSError: a file can't be read or cut.
    """
    last_size_bytes = next_offset = 0
    following = OFFSETS_END
    for base_offset in reversed(segments):
        size_bytes, end_offset = recover_segment(segment_path(folder, base_offset), base_offset, following)
        next_offset = max(next_offset, end_offset)
        if base_offset == segments[-1]:
            last_size_bytes = size_bytes
        if size_bytes:
            break
        following = base_offset
    return last_size_bytes, next_offset


def _holds_batch(path: Path, position: int) -> bool:
    """True if a sound batch starts at ``position`` or anywhere behind it: then what starts there is no torn tail.

    A batch that is sound but whose offsets go back counts as well, since no interrupted write leaves one.
    """
    with open(path, "rb", buffering=0, opener=open_file) as file:
        descriptor = file.fileno()
        size_bytes = os.fstat(descriptor).st_size
        return find_batch(lambda start, size: _read_at(descriptor, size, start), position, size_bytes) < size_bytes


def _may_be_torn(path: Path, base_offset: int) -> bool:
    """True if a file without a sound batch may be what is left of the first one written to it.

    A process that dies leaves the beginning of that batch, a machine perhaps zeros in the place of what it had not
    written to the disk yet. Anything else is somebody else's file, or one whose beginning was overwritten.
    """
    with open(path, "rb", opener=open_file) as file:
        head = file.read(DISK_SECTOR_BYTES)
    if not any(head):
        return True
    # As many bytes of the base offset as there are bound what it was.
    lowest = int.from_bytes(head[:8].ljust(8, b"\x00"), "big")
    highest = int.from_bytes(head[:8].ljust(8, b"\xff"), "big")
    is_offset = lowest < offsets_end(base_offset) and base_offset <= highest
    return is_offset and (len(head) <= MAGIC_POSITION or head[MAGIC_POSITION] <= MAGIC_V2)
