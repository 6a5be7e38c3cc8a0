"""Records in segment files: reads in bounded chunks, batches of records, and the records that a load needs.

Reads take no lock and change nothing, so tools may use them on any segment file, also on a broker's.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from operator import ge
from pathlib import Path
from struct import error as StructError  # noqa: N812
from typing import TypeVar

from groupcoord.config.files import open_file
from groupcoord.core.log.records import NO_PRODUCER_ID, CommitRecords
from groupcoord.log_store import LoadedCommits, LogRecord, StorageError
from groupcoord.records.batches import (
    BATCH_HEADER_BYTES,
    LOG_OVERHEAD_BYTES,
    MAGIC_POSITION,
    MAGIC_V2,
    Batch,
    CorruptBatchError,
    TruncatedBatchError,
    encode_batch,
    iter_batches,
)
from groupcoord.records.codec import KEY_STARTS, decode_control, decode_record
from groupcoord.records.commit_batch import FoundCommit, read_commits
from groupcoord.records.salvage import ReadAt

T = TypeVar("T")

CHUNK_BYTES = 5_242_880

HEADERS_CHUNK_BYTES = 16_384
"""Bytes per read of headers."""

COMPACTION_CHUNK_BYTES = 262_144
"""Bytes per read of compaction."""

EncodedRecord = tuple[int, int, bytes | None, bytes | None]
"""Offset, timestamp, and the bytes of key and value."""

OFFSETS_END = 2**63 - 1
"""Larger than any offset."""

RELATIVE_OFFSETS_END = 2**31
"""Bound of the offsets of a segment relative to its base offset (Kafka's ``LogSegment``)."""


def offsets_end(base_offset: int) -> int:
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
        chunk_bytes: how much to hold in memory at a time, unless a batch is larger.

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
            chunk = read_at_most(file.fileno(), min(wanted, end - position), position)
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
                # Usually only the chunk has ended: read on from the start of this batch.
                if start + len(chunk) == end or error.position + error.size_bytes > end:
                    raise TruncatedBatchError(error.position, error.size_bytes, end - error.position) from None
                # Bounded by the file: the size was compared with its end above.
                wanted = max(chunk_bytes, error.size_bytes)


def _checked_end(batch: Batch, next_offset: int, end_offset: int) -> int:
    # The CRC does not cover the base offset.
    if batch.base_offset < next_offset:
        raise CorruptBatchError(batch.position, f"offset {batch.base_offset} after {next_offset - 1}")
    if batch.next_offset > end_offset:
        reason = f"offset {batch.next_offset - 1}, but those of the segment stay below {end_offset}"
        raise CorruptBatchError(batch.position, reason)
    return batch.next_offset


def read_headers(read_at: ReadAt, base_offset: int, position: int, end: int) -> Iterator[Batch]:
    """Yield the batches of a segment file without reading what follows their headers.

    Control batches and batches of formats v0 and v1 are read as a whole.

    Raises:
        InvalidBatchError: there is no batch, or its offsets are invalid.
    """
    start, chunk = position, b""
    next_offset, end_offset = base_offset, offsets_end(base_offset)
    while position < end:
        if position + BATCH_HEADER_BYTES > start + len(chunk):
            start, chunk = position, read_at(position, min(HEADERS_CHUNK_BYTES, end - position))
        at = position - start
        if len(chunk) < at + LOG_OVERHEAD_BYTES + MAGIC_POSITION:
            raise TruncatedBatchError(position, BATCH_HEADER_BYTES, len(chunk) - at)
        # A length from a damaged file must not lead backward or beyond the end.
        size = int.from_bytes(chunk[at + 8 : at + 12], "big", signed=True) + LOG_OVERHEAD_BYTES
        if size < LOG_OVERHEAD_BYTES + 1 or position + size > end:
            raise CorruptBatchError(position, f"a length of {size} bytes is impossible")
        batch = None
        if chunk[at + MAGIC_POSITION] == MAGIC_V2 and len(chunk) >= at + BATCH_HEADER_BYTES:
            batch = Batch(chunk, at, position)
        if batch is None or (batch.is_control and at + size > len(chunk)):
            # Readers parse markers, and old formats have other headers.
            (batch,) = iter_batches(read_at(position, size), base_position=position, check_crc=False)
        next_offset = _checked_end(batch, next_offset, end_offset)
        yield batch
        position += size


def read_at_most(descriptor: int, size: int, position: int) -> bytes:
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
    """Yield the records of a segment file in order, each with the bytes of its key and value.

    Arguments and errors are those of :func:`read_batches`.
    """
    return all_records(read_batches(path, base_offset=base_offset, end=end, chunk_bytes=chunk_bytes))


def all_records(batches: Iterable[Batch]) -> Iterator[LogRecord]:
    """Yield the records of ``batches`` in order.

    Raises:
        CorruptBatchError: the records of a batch are malformed, or their offsets do not increase.
    """
    for batch in batches:
        records = records_of(batch)
        producer_id, producer_epoch = batch.producer_id, batch.producer_epoch
        decode = decode_control if batch.is_control else decode_record
        # LogRecord.from_bytes() takes twice the time.
        yield from [
            LogRecord(decode(key or b"", value, producer_id, producer_epoch), timestamp_ms, offset, (key or b"", value))
            for offset, timestamp_ms, key, value in records
        ]


def decoded(decode: Callable[[Iterator[Batch]], Iterator[T]], batches: Iterator[Batch], name: str) -> Iterator[T]:
    """Yield the result of a function over batches; a malformed one raises StorageError with the name of the log."""
    try:
        yield from decode(batches)
    except (ValueError, StructError) as error:
        raise StorageError(f"{name} can't be read: {error}") from error


def records_of(batch: Batch) -> list[EncodedRecord]:
    """Return the records of a batch without decoding their keys and values.

    Raises:
        CorruptBatchError: they are malformed, or their offsets do not increase.
    """
    records = list(batch.records())
    offsets = [offset for offset, _, _, _ in records]
    if any(map(ge, offsets, offsets[1:])):
        raise CorruptBatchError(batch.position, "the offsets of its records go back")
    return records


def encode_records(base_offset: int, records: Sequence[LogRecord], leader_epoch: int = 0) -> bytes:
    """Encode a batch of records with consecutive offsets and one producer, or of one marker.

    Raises:
        RecordEncodingError: a record can't be encoded.
        struct.error: a number does not fit its field.
    """
    first = records[0]
    return encode_batch(
        base_offset,
        [(*record.encoded(), record.timestamp_ms) for record in records],
        leader_epoch=leader_epoch,
        producer_id=first.producer_id,
        producer_epoch=first.producer_epoch,
        is_transactional=first.producer_id != NO_PRODUCER_ID,
        is_control=first.is_control,
    )


def batchable_runs(records: Iterable[LogRecord], records_max: int) -> Iterator[list[LogRecord]]:
    """Group records that fit into one batch: consecutive offsets, the same producer, a marker alone."""
    run: list[LogRecord] = []
    for record in records:
        if run:
            last = run[-1]
            is_next = record.offset == last.offset + 1 and not (last.is_control or record.is_control)
            has_same_producer = (record.producer_id, record.producer_epoch) == (last.producer_id, last.producer_epoch)
            if len(run) == records_max or not is_next or not has_same_producer:
                yield run
                run = []
        run.append(record)
    if run:
        yield run


RUN_KEYS_MAX = 50_000
"""Number of keys after which a run ends soon, before it has twice as many."""

_Run = dict[tuple[tuple[str, str], tuple[int, ...]], FoundCommit]
"""Commits by group and topic and by partitions, in the order of the log."""


def last_records(batches: Iterable[Batch]) -> Iterator[LogRecord | LoadedCommits]:
    """Yield the records of ``batches`` in order, without those that a later record of the same run replaces.

    A run consists of commits, or of records of consumer, share and streams groups. Any other batch ends it: the other
    kind of run, a tombstone of an offset, a classic group, a part of a transaction.

    Raises:
        CorruptBatchError: the records of a batch are malformed.
    """
    commits, group_records = _CommitRun(), _GroupRun()
    for batch in batches:
        if commits.take(batch):
            if group_records.last:
                yield from group_records.end()
            if commits.is_long:
                yield from commits.end()
        elif group_records.take(batch):
            if commits.last:
                yield from commits.end()
            if group_records.is_long:
                yield from group_records.end()
        else:
            yield from commits.end()
            yield from group_records.end()
            yield from all_records([batch])
    yield from commits.end()
    yield from group_records.end()


class _CommitRun:
    """Consecutive commits, of which the last one for the same partitions counts."""

    def __init__(self) -> None:
        self.last: _Run = {}
        self._uncounted = 0

    def take(self, batch: Batch) -> bool:
        found = read_commits(batch)
        if found is None:
            return False
        for commit in found:
            key = commit[1:3]
            self.last.pop(key, None)
            self.last[key] = commit
        self._uncounted += batch.record_count
        return True

    @property
    def is_long(self) -> bool:
        """True if the run has too many keys, which are counted from time to time."""
        if self._uncounted <= RUN_KEYS_MAX:
            return False
        self._uncounted = 0
        return sum(len(indexes) for _, indexes in self.last) > RUN_KEYS_MAX

    def end(self) -> Iterator[LoadedCommits]:
        last, self.last = self.last, {}
        self._uncounted = 0
        for commit in last.values():
            yield LoadedCommits(commit.log_offset, CommitRecords((commit.to_topic(),)))


class _GroupRun:
    """Consecutive records of groups, of which the last one for each key counts."""

    def __init__(self) -> None:
        self.last: dict[bytes, EncodedRecord] = {}

    def take(self, batch: Batch) -> bool:
        if batch.magic != MAGIC_V2 or batch.is_control or batch.producer_id >= 0:
            return False
        records = records_of(batch)
        if not all(key is not None and key[:2] in KEY_STARTS for _, _, key, _ in records):
            return False
        for record in records:
            key = record[2] or b""
            self.last.pop(key, None)
            self.last[key] = record
        return True

    @property
    def is_long(self) -> bool:
        return len(self.last) > RUN_KEYS_MAX

    def end(self) -> Iterator[LogRecord]:
        last, self.last = self.last, {}
        for key, (offset, timestamp_ms, _, value) in last.items():
            yield LogRecord(decode_record(key, value), timestamp_ms, offset, (key, value))
