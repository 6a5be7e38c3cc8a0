"""Reads of segment files in bounded chunks, and truncation of the torn tail that a crash leaves.

These functions take no lock. :func:`read_batches` and :func:`read_records` change nothing, so tools may use them on any
segment file, also on a broker's.
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
from groupcoord.records.salvage import ReadAt, find_batch
from groupcoord.storage.errors import CorruptLogError
from groupcoord.storage.log_directory import segment_path

logger = logging.getLogger(__name__)

# : Kafka's ``offsets.load.buffer.size``.
CHUNK_BYTES = 5_242_880

HEADERS_CHUNK_BYTES = 16_384
"""Bytes per read where only headers are needed."""

COMPACTION_CHUNK_BYTES = 262_144
"""Bytes per read of work that is done in small portions."""

DISK_SECTOR_BYTES = 512
"""Smallest unit that a power failure keeps or loses."""

EncodedRecord = tuple[int, int, bytes | None, bytes | None]
"""Offset, timestamp, and the bytes of key and value."""

OFFSETS_END = 2**63 - 1
"""Larger than any offset."""

RELATIVE_OFFSETS_END = 2**31
"""Bound of the offsets of a segment relative to its base offset (Kafka's ``LogSegment``)."""


def offsets_end(base_offset: int) -> int:
    """Return the bound of the offsets of a segment, which its indexes store relative to the base offset."""
    return min(base_offset + RELATIVE_OFFSETS_END, OFFSETS_END)


def read_batches(
    path: Path,
    *,
    base_offset: int | None = None,
    end_offset: int = OFFSETS_END,
    end: int | None = None,
    chunk_bytes: int = CHUNK_BYTES,
) -> Iterator[Batch]:
    """Yield the batches of a segment file, validated, in order.

    Args:
        path: the file.
        base_offset: the base offset of the segment. Offsets below it or too far beyond it are an error.
        end_offset: the base offset of the next segment. Offsets from there on are an error.
        end: how many bytes of the file to read; all by default.
        chunk_bytes: how much to hold in memory at a time; a larger batch is held as a whole.

    Raises:
        TruncatedBatchError: the file ends inside of a batch.
        CorruptBatchError: a batch is malformed or has invalid offsets.
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
                # Only the chunk may have ended, not the file: read on from the start of this batch.
                if start + len(chunk) == end or error.position + error.size_bytes > end:
                    raise TruncatedBatchError(error.position, error.size_bytes, end - error.position) from None
                wanted = max(chunk_bytes, error.size_bytes)


def _checked_end(batch: Batch, next_offset: int, end_offset: int) -> int:
    """Return the offset after a batch.

    Raises:
        CorruptBatchError: its offsets are invalid.
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
    """Yield the batches of a segment file without reading what follows their headers.

    Control batches and batches of formats v0 and v1 are read as a whole.

    Args:
        read_at: reads bytes at a position of the file.
        base_offset: the base offset of the segment.
        position: where the first batch begins.
        end: where the last one ends.
        chunk_bytes: how much to read at a time, at least a header.

    Raises:
        InvalidBatchError: there is no batch, or its offsets are invalid.
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
    """Yield the records of a segment file in order; arguments and errors are those of :func:`read_batches`.

    Each record keeps the bytes of its key and value in the file.
    """
    return all_records(read_batches(path, base_offset=base_offset, end=end, chunk_bytes=chunk_bytes))


def all_records(batches: Iterable[Batch]) -> Iterator[LogRecord]:
    """Yield the records of ``batches`` in order.

    Raises:
        CorruptBatchError: the records of a batch are malformed, or offsets decrease.
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
        CorruptBatchError: they are malformed, or offsets decrease.
    """
    records = list(batch.records())
    offsets = [offset for offset, _, _, _ in records]
    if any(map(ge, offsets, offsets[1:])):
        raise CorruptBatchError(batch.position, "the offsets of its records go back")
    return records


def recover_segment(path: Path, base_offset: int, end_offset: int = OFFSETS_END) -> tuple[int, int]:
    """Find the end of a segment after a crash, and truncate a torn tail.

    Args:
        path: the file.
        base_offset: its base offset.
        end_offset: the base offset of the next segment.

    Returns:
        The size of the file in bytes, and the offset after its last record, or ``base_offset`` if it has none.

    Raises:
        CorruptLogError: a batch is malformed and an intact one follows it, or the file is not a segment.
        OSError: the file can't be read or truncated.
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
    """Find the end of a log after a crash, and truncate torn tails.

    Only the last segment that holds a batch and those after it can have been written when the power failed.

    Args:
        folder: the folder of the log.
        segments: the base offsets of its segments, in order.

    Returns:
        The size of the last segment and the offset after the last record.

    Raises:
        CorruptLogError: a batch is malformed and an intact one follows it, or a file is not a segment.
        OSError: a file can't be read or truncated.
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
    """Return whether an intact batch starts at or after ``position``, so that there is no torn tail.

    An intact batch with decreasing offsets counts, too, because no interrupted write leaves one.
    """
    with open(path, "rb", buffering=0, opener=open_file) as file:
        descriptor = file.fileno()
        size_bytes = os.fstat(descriptor).st_size
        return find_batch(lambda start, size: _read_at(descriptor, size, start), position, size_bytes) < size_bytes


def _may_be_torn(path: Path, base_offset: int) -> bool:
    """Return whether a file without an intact batch may be a partial first write.

    A killed process leaves the beginning of the batch; a power failure may leave zeros for what was not on the disk.
    Any other file belongs to another program, or its beginning was overwritten.
    """
    with open(path, "rb", opener=open_file) as file:
        head = file.read(DISK_SECTOR_BYTES)
    if not any(head):
        return True
    # The available bytes of the base offset bound its value.
    lowest = int.from_bytes(head[:8].ljust(8, b"\x00"), "big")
    highest = int.from_bytes(head[:8].ljust(8, b"\xff"), "big")
    is_offset = lowest < offsets_end(base_offset) and base_offset <= highest
    return is_offset and (len(head) <= MAGIC_POSITION or head[MAGIC_POSITION] <= MAGIC_V2)
