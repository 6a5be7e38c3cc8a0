"""A log store on disk: segment files in Kafka's format and layout, so that either can open what the other wrote.

Every append is one batch and one ``write``; when :meth:`SegmentLogStore.append` returns, the operating system has the
bytes, and killing the process loses nothing. Surviving a power failure takes an ``fsync``, whose policy is Kafka's:
``log.flush.interval.messages`` and ``log.flush.interval.ms``, both "never" by default.

Partitions open when they are first used. Each that was appended to keeps one file descriptor until the store closes.
Index files are not written: Kafka rebuilds them when it opens a log. Compaction runs in portions, whenever
:meth:`SegmentLogStore.compact_some` is called.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import pairwise
from pathlib import Path
from struct import error as StructError  # noqa: N812
from types import TracebackType
from typing import NamedTuple, NoReturn, TypeVar
from uuid import UUID

from groupcoord.core.records import OFFSETS_TOPIC, CommitRecords, OffsetTombstone
from groupcoord.errors import StoreContractError
from groupcoord.log_store import (
    AppendOutcomeUnknownError,
    LoadedCommits,
    LogRecord,
    LogRecords,
    RecordTooLargeError,
    StorageError,
    Ticket,
)
from groupcoord.records.batches import Batch, InvalidBatchError, encode_batch
from groupcoord.records.codec import RecordEncodingError
from groupcoord.records.commit_batch import encode_commit_batch
from groupcoord.records.tombstone_batch import encode_tombstone_batch
from groupcoord.storage.cleaner import Cleaner, CleanerCheckpoint, Logs
from groupcoord.storage.compaction import CompactionSettings
from groupcoord.storage.directory_lock import DirectoryLock
from groupcoord.storage.errors import CorruptLogError, LogDirectoryError, LostSegmentError
from groupcoord.storage.loading import last_records
from groupcoord.storage.log_directory import (
    find_topic_id,
    forget_clean_shutdown,
    list_partitions,
    list_segments,
    note_leader_epoch,
    partition_folder,
    segment_path,
    sync_path,
    write_partition_metadata,
)
from groupcoord.storage.lost_segments import find_loss, find_loss_behind
from groupcoord.storage.offsets_log import OffsetsLog
from groupcoord.storage.segment_rewrite import InterruptedSwapError
from groupcoord.storage.segments import OFFSETS_END, all_records, read_batches, recover_log
from groupcoord.storage.swapping import finish_swaps

T = TypeVar("T")

NEVER = 2**63 - 1
COMPACTION_BUDGET = 500
CHECK_INTERVAL_MS = 100
"""How often appends to a partition look whether the file is still there: a look costs more than a ``write``."""
CHECKED_AT_ONCE = 10
"""How many partitions one call of :meth:`SegmentLogStore.find_failed` looks at."""
DEFAULT_COMPACTION = CompactionSettings()


class _Partition:
    """An open log partition: its segments, and where the next batch goes."""

    __slots__ = (
        "checked_interval",
        "descriptor",
        "folder",
        "leader_epoch",
        "next_offset",
        "reader_count",
        "segments",
        "size_bytes",
        "unflushed_records",
        "unflushed_since_ms",
    )

    def __init__(self, folder: Path, segments: list[int], size_bytes: int, next_offset: int) -> None:
        self.folder = folder
        self.segments = segments  # base offsets; records are appended to the last
        self.size_bytes = size_bytes  # of that last segment
        self.next_offset = next_offset
        self.leader_epoch = 0
        self.reader_count = 0  # of generators that read the files; no file is replaced meanwhile
        self.descriptor = -1  # of the last segment, from the first append on
        self.checked_interval = -1  # in which append() last looked whether the file is still there
        self.unflushed_records = 0
        self.unflushed_since_ms = 0


class _Acknowledged(NamedTuple):
    """What a partition that has failed must have when it is opened again, or something acknowledged is lost."""

    end_offset: int
    segments: frozenset[int]


class SegmentLogStore:
    """The log partitions of ``__consumer_offsets`` below one directory, owned by this process alone.

    Args:
        directory: Kafka's log directory, holding ``__consumer_offsets-N/``; created if need be. A broker's own can be
            opened while that broker is stopped.
        segment_bytes: a segment that would grow beyond this is followed by a new one (``offsets.topic.segment.bytes``).
        flush_interval_messages: fsync a partition once this many records are unflushed; 1 is every append.
        flush_interval_ms: :meth:`flush_due` fsyncs a partition whose oldest unflushed record is this old.
        batch_bytes_max: largest batch taken (``message.max.bytes``); larger appends raise ``RecordTooLargeError``.
        leader_epoch: what batches name as the leader's epoch; a larger one found in the directory is carried on.
        topic_id: of ``__consumer_offsets``; by default the one found in the directory, or a random one.
        compaction: when to compact, and what may go then.

    Raises:
        DirectoryLockedError: another process, or another store of this one, uses the directory.
        LogDirectoryError: it is not a directory, or can't be created or written to.
        ValueError: a number is out of range.
    """

    def __init__(
        self,
        directory: str | os.PathLike[str],
        *,
        segment_bytes: int = 104_857_600,
        flush_interval_messages: int = NEVER,
        flush_interval_ms: int = NEVER,
        batch_bytes_max: int = 1_048_588,
        leader_epoch: int = 0,
        topic_id: UUID | None = None,
        compaction: CompactionSettings = DEFAULT_COMPACTION,
    ) -> None:
        if segment_bytes < 1 or flush_interval_messages < 1 or batch_bytes_max < 1:
            raise ValueError("segment_bytes, flush_interval_messages and batch_bytes_max must be at least 1")
        if flush_interval_ms < 0 or leader_epoch < 0:
            raise ValueError("flush_interval_ms and leader_epoch can't be negative")
        self.directory = Path(directory)
        self._segment_bytes = segment_bytes
        self._batch_bytes_max = min(batch_bytes_max, segment_bytes)
        self._flush_interval_messages = flush_interval_messages
        self._flush_interval_ms = flush_interval_ms
        self._leader_epoch = leader_epoch
        self._partitions: dict[int, _Partition] = {}
        self._acknowledged: dict[int, _Acknowledged] = {}  # of partitions that have failed
        self._failed: dict[int, StorageError] = {}  # those that nobody was told of yet
        self._to_check: list[int] = []
        self._lock = DirectoryLock(self.directory)
        self._compaction = compaction._replace(segment_bytes=segment_bytes)
        self._cleaner = Cleaner(CleanerCheckpoint(self.directory))
        #: The id of ``__consumer_offsets`` in this directory.
        self.topic_id = topic_id or find_topic_id(self.directory)

    def append(self, partition: int, ticket: Ticket, records: Sequence[LogRecord]) -> int:
        """Write ``records`` as one batch and set their offsets. See :meth:`groupcoord.log_store.LogStore.append`.

        Returns:
            The offset of the first record.

        Raises:
            RecordTooLargeError: the batch is larger than ``batch_bytes_max`` or ``segment_bytes``, or a string in it is
                longer than 32,767 bytes; nothing was written.
            StorageError: the disk failed or is full; what was written has been taken back.
            AppendOutcomeUnknownError: as before, but it could not be taken back, or the fsync failed.
            LostSegmentError: somebody deleted, moved or changed the file. That is noticed within
                ``CHECK_INTERVAL_MS`` of the records' time.
            CorruptLogError: the partition was opened for this append and its log is broken.
            StoreContractError: there is no record, or the store is closed.
        """
        log = self._partitions.get(partition) or self._open(partition)
        base_offset = log.next_offset
        if log.descriptor < 0:
            self._start_writing(partition, log)
        batch = self._encode(log, records)
        if log.size_bytes + len(batch) > self._segment_bytes and log.size_bytes:
            self._roll(partition, log)
        try:
            written = os.write(log.descriptor, batch)
        except OSError as error:
            self._take_back(partition, log, error.strerror or str(error), error)
        if written != len(batch):
            self._take_back(partition, log, f"only {written} of {len(batch)} bytes were written", None)
        log.size_bytes += written
        if isinstance(records, LogRecords):
            record_count, appended_ms = len(records.values), records.timestamp_ms
        else:
            record_count, appended_ms = len(records), records[0].timestamp_ms
            for offset, record in enumerate(records, base_offset):
                record.offset = offset
        if log.checked_interval != appended_ms // CHECK_INTERVAL_MS:
            log.checked_interval = appended_ms // CHECK_INTERVAL_MS
            self._check_written(partition, log)
        if not log.unflushed_records:
            log.unflushed_since_ms = appended_ms
        log.unflushed_records += record_count
        if log.unflushed_records >= self._flush_interval_messages:
            self._flush(partition, log)
        log.next_offset = base_offset + record_count
        return base_offset

    def read(self, partition: int) -> Iterator[LogRecord]:
        """Yield every record of a log partition in order, those of the moment of the call. Nothing is held in memory.

        A torn tail, which a crash leaves, is cut and logged as a warning when the partition is opened.

        Raises:
            CorruptLogError: a batch is broken and others follow it; also while iterating.
            StorageError: a file can't be read; also while iterating.
            StoreContractError: the store is closed.
        """
        return _Reading(self._partitions.get(partition) or self._open(partition)).records(all_records)

    def read_last(self, partition: int) -> Iterator[LogRecord | LoadedCommits]:
        """Yield what a load needs of a log partition: as :meth:`read`, without commits that the next ones replace.

        It is several times as fast, and gives the same state. Errors are those of :meth:`read`. A partition that isn't
        open yet is opened on the way, so wait for the end before you append to it.
        """
        log = self._partitions.get(partition)
        return self._open_and_read_last(partition) if log is None else _Reading(log).records(last_records)

    def end_offset(self, partition: int) -> int:
        """Return the offset that the next record of this log partition will have. Errors are those of :meth:`read`."""
        return (self._partitions.get(partition) or self._open(partition)).next_offset

    def partitions(self) -> list[int]:
        """Return the log partitions that have a folder in the directory, in order."""
        return list_partitions(self.directory)

    def flush_due(self, now_ms: int) -> int | None:
        """Fsync every partition whose oldest unflushed record is ``flush_interval_ms`` old or older.

        Args:
            now_ms: the time by the clock that the records' timestamps come from.

        Returns:
            When to call again, or None if nothing waits or the interval is "never".

        Raises:
            StorageError: an fsync failed; that partition must be loaded again.
        """
        if self._flush_interval_ms == NEVER:
            return None
        next_due_ms: int | None = None
        for partition, log in list(self._partitions.items()):
            if not log.unflushed_records:
                continue
            due_ms = log.unflushed_since_ms + self._flush_interval_ms
            if due_ms <= now_ms:
                self._flush_later(partition, log)
            elif next_due_ms is None or due_ms < next_due_ms:
                next_due_ms = due_ms
        return next_due_ms

    def compact_some(self, now_ms: int, budget: int = COMPACTION_BUDGET) -> bool:
        """Compact the dirtiest partition a little further: this takes a millisecond or two.

        Args:
            now_ms: the time by the clock that the records' timestamps come from.
            budget: how many batches and records to handle, roughly.

        Returns:
            True if it should soon be called again; False if all is clean enough for now.

        Raises:
            StorageError: the disk failed half way; that partition must be loaded again.
            StoreContractError: the store is closed.
        """
        if not self._lock.is_open:
            raise StoreContractError("the log store is closed")
        try:
            return self._cleaner.step(self._compactable, now_ms, budget)
        except InterruptedSwapError as error:
            partition = next(index for index, log in self._partitions.items() if log.folder == error.folder)
            self._forget(partition)
            self._failed[partition] = StorageError(f"log partition {partition}: {error}")
            raise self._failed[partition] from error

    def _compactable(self) -> Logs:
        return {(OFFSETS_TOPIC, index): self._compactable_log(index, log) for index, log in self._partitions.items()}

    def _compactable_log(self, partition: int, log: _Partition) -> OffsetsLog:
        return OffsetsLog(log, self._compaction, is_open=lambda: self._partitions.get(partition) is log)

    def flush(self) -> None:
        """Fsync every partition that has unflushed records.

        Raises:
            StorageError: an fsync failed; that partition must be loaded again.
        """
        for partition, log in list(self._partitions.items()):
            if log.unflushed_records:
                self._flush_later(partition, log)

    def find_failed(self) -> dict[int, StorageError]:
        """Look whether the files of some open partitions are as they were left, of others at the next call.

        Returns:
            The log partitions that have failed since the last call, other than in an append, and why: a file is lost,
            or :meth:`flush_due`, :meth:`flush` or :meth:`compact_some` raised. Load them again.
        """
        self._lock.still_holds()  # makes a lock file anew that was deleted
        if not self._to_check:
            self._to_check = list(self._partitions)
        checked, self._to_check = self._to_check[:CHECKED_AT_ONCE], self._to_check[CHECKED_AT_ONCE:]
        for partition in checked:
            log = self._partitions.get(partition)
            if log is None:
                continue
            loss = find_loss(log.folder, log.segments, log.size_bytes, log.descriptor)
            if loss is not None:
                self._failed[partition] = self._lost(partition, log, loss)
        failed, self._failed = self._failed, {}
        return failed

    def close(self) -> None:
        """Flush, close the files and give the directory free. A closed store takes no calls but this one.

        Raises:
            StorageError: an fsync failed; everything is closed nevertheless.
        """
        if not self._lock.is_open:
            return
        self._cleaner.stop()
        try:
            self.flush()
        finally:
            self._let_go()

    def abandon(self) -> None:
        """Let go of the files as a process does that is killed: nothing is flushed. For tests of what follows then."""
        if self._lock.is_open:
            self._cleaner.stop()  # what it has begun must not be deleted later, when the next store has begun the same
            self._let_go()

    def _let_go(self) -> None:
        for partition in list(self._partitions):
            self._forget(partition)
        self._lock.close()

    def __enter__(self) -> SegmentLogStore:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    # ------------------------------------------------------------ opening

    def _open(self, partition: int) -> _Partition:
        """Find where a log partition ends. Nothing is created before the first append."""
        log = self._find(partition)
        try:
            log.size_bytes, log.next_offset = recover_log(log.folder, log.segments)
        except OSError as error:
            raise StorageError(f"log partition {partition} can't be opened: {error}") from error
        self._check_end(partition, log)
        self._partitions[partition] = log
        return log

    def _open_and_read_last(self, partition: int) -> Iterator[LogRecord | LoadedCommits]:
        """Do both in one pass over the files."""
        log = self._find(partition)
        yield from _FirstReading(log).records(last_records)
        self._check_end(partition, log)
        self._partitions.setdefault(partition, log)

    def _find(self, partition: int) -> _Partition:
        """Find the segments of a log partition that isn't open; where it ends is not known yet."""
        if not self._lock.is_open:
            raise StoreContractError("the log store is closed")
        if partition < 0:
            raise StoreContractError(f"there is no log partition {partition}")
        folder = partition_folder(self.directory, partition)
        try:
            finish_swaps(folder)
            segments = list_segments(folder)
        except (OSError, LogDirectoryError) as error:
            raise StorageError(f"log partition {partition} can't be opened: {error}") from error
        acknowledged = self._acknowledged.get(partition)
        if acknowledged is not None and not acknowledged.segments.issubset(segments):
            path = segment_path(folder, min(acknowledged.segments.difference(segments)))
            raise LostSegmentError(f"{path} is missing; put it back, or restart to go on without it")
        if not self._lock.still_holds():
            raise StorageError(f"{self.directory} is no longer locked, so others may write there; restart")
        return _Partition(folder, segments, 0, 0)

    def _check_end(self, partition: int, log: _Partition) -> None:
        """Refuse a log that has failed, and has come back without something that was acknowledged."""
        acknowledged = self._acknowledged.get(partition)
        if acknowledged is not None and log.next_offset < acknowledged.end_offset:
            raise LostSegmentError(
                f"{log.folder} ends at offset {log.next_offset}, but all below {acknowledged.end_offset} was "
                "acknowledged; put it back, or restart to go on without it"
            )
        self._acknowledged.pop(partition, None)

    def _start_writing(self, partition: int, log: _Partition) -> None:
        """Make the folder and its files if they are missing, and open the last segment."""
        loss = find_loss(log.folder, log.segments, log.size_bytes, log.descriptor)
        if loss is not None:
            raise self._lost(partition, log, loss)
        try:
            forget_clean_shutdown(self.directory)
            log.folder.mkdir(exist_ok=True)
            write_partition_metadata(log.folder, self.topic_id)
            log.leader_epoch = note_leader_epoch(log.folder, self._leader_epoch, log.next_offset)
            base_offset = log.segments[-1] if log.segments else log.next_offset
            log.descriptor = _open_for_append(segment_path(log.folder, base_offset))
        except (OSError, ValueError) as error:
            raise StorageError(f"{log.folder} can't be written: {error}") from error
        if not log.segments:
            log.segments.append(base_offset)

    # ------------------------------------------------------------ writing

    def _encode(self, log: _Partition, records: Sequence[LogRecord]) -> bytes:
        batch = None
        try:
            if type(records) is LogRecords:
                values = records.values
                if type(values) is CommitRecords:  # of other sequences the usual question takes long
                    batch = encode_commit_batch(log.next_offset, values, records.timestamp_ms, log.leader_epoch)
                elif values and type(values[0]) is OffsetTombstone:
                    batch = encode_tombstone_batch(log.next_offset, values, records.timestamp_ms, log.leader_epoch)
            if batch is None:
                batch = self._encode_any(log, records)
        except (RecordEncodingError, StructError) as error:
            raise RecordTooLargeError(f"{log.folder.name}: {error}") from error
        if len(batch) > self._batch_bytes_max:
            raise RecordTooLargeError(
                f"{log.folder.name}: a batch of {len(batch)} bytes; at most {self._batch_bytes_max} are allowed"
            )
        return batch

    @staticmethod
    def _encode_any(log: _Partition, records: Sequence[LogRecord]) -> bytes:
        if not records:
            raise StoreContractError("an append needs at least one record")
        first = records[0]
        producer_id = first.producer_id
        return encode_batch(
            log.next_offset,
            [(*record.encoded(), record.timestamp_ms) for record in records],
            leader_epoch=log.leader_epoch,
            producer_id=producer_id,
            producer_epoch=first.producer_epoch,
            is_transactional=producer_id >= 0,
            is_control=first.is_control,
        )

    def _roll(self, partition: int, log: _Partition) -> None:
        """Go on in a new segment. The old one is made durable first if the policy ever asks for it."""
        if log.unflushed_records and not self._flush_interval_messages == self._flush_interval_ms == NEVER:
            self._flush(partition, log)
        try:
            descriptor = _open_for_append(segment_path(log.folder, log.next_offset))
        except OSError as error:
            raise StorageError(f"{log.folder}: no new segment: {error}") from error
        os.close(log.descriptor)
        log.descriptor = descriptor
        log.segments.append(log.next_offset)
        log.size_bytes = 0

    def _take_back(self, partition: int, log: _Partition, reason: str, cause: OSError | None) -> NoReturn:
        """Cut the file back to the start of a batch that could not be written whole."""
        path = segment_path(log.folder, log.segments[-1])
        try:
            # Where nothing can be written, nothing can be cut either; and nothing need be.
            if os.fstat(log.descriptor).st_size != log.size_bytes:
                os.ftruncate(log.descriptor, log.size_bytes)
        except OSError as error:
            self._forget(partition)
            raise AppendOutcomeUnknownError(f"{path}: {reason}, and cutting it back failed: {error}") from error
        raise StorageError(f"{path}: {reason}") from cause

    def _check_written(self, partition: int, log: _Partition) -> None:
        """Make sure that what was written is in a file that can be found again, and that nobody else changed."""
        loss = find_loss_behind(log.folder, log.segments, log.size_bytes, log.descriptor)
        if loss is not None:
            raise self._lost(partition, log, loss)

    def _lost(self, partition: int, log: _Partition, loss: str) -> LostSegmentError:
        self._forget(partition, log.segments)
        return LostSegmentError(f"{loss}, and what was acknowledged may be gone with it")

    def _flush(self, partition: int, log: _Partition) -> None:
        # After a failed fsync the kernel may have dropped the pages and forgotten the failure: only reading the file
        # anew tells what is there.
        try:
            os.fsync(log.descriptor)
            sync_path(log.folder)
        except OSError as error:
            self._forget(partition)
            raise AppendOutcomeUnknownError(f"{log.folder}: fsync failed: {error}") from error
        log.unflushed_records = 0

    def _flush_later(self, partition: int, log: _Partition) -> None:
        """Fsync what was acknowledged before."""
        try:
            self._flush(partition, log)
        except StorageError as error:
            self._failed[partition] = error
            raise

    def _forget(self, partition: int, segments: Sequence[int] = ()) -> None:
        """Close a partition, and remember that it must reach as far and have these segments when it is opened again."""
        log = self._partitions.pop(partition)
        self._acknowledged[partition] = _Acknowledged(log.next_offset, frozenset(segments))
        if log.descriptor >= 0:
            os.close(log.descriptor)


def _open_for_append(path: Path) -> int:
    return os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o644)


class _Reading:
    """Reads what a log partition holds at the moment. Compaction replaces no file while that is under way."""

    def __init__(self, log: _Partition) -> None:
        self._log = log
        self._end_offset = log.next_offset
        self._path = log.folder

    def records(self, decode: Callable[[Iterable[Batch]], Iterator[T]]) -> Iterator[T]:
        self._log.reader_count += 1
        try:
            yield from decode(self._batches())
        except InvalidBatchError as error:
            raise CorruptLogError(self._path, error.position, error.reason) from error
        except OSError as error:
            raise StorageError(f"{self._path} can't be read: {error}") from error
        finally:
            self._log.reader_count -= 1

    def _batches(self) -> Iterator[Batch]:
        log, next_offset = self._log, 0
        for base_offset in [base for base in log.segments if base < self._end_offset]:
            self._path = segment_path(log.folder, base_offset)
            if base_offset == log.segments[-1]:
                end, end_offset = log.size_bytes, log.next_offset
            else:
                end, end_offset = None, log.segments[log.segments.index(base_offset) + 1]
            first_offset = max(next_offset, base_offset)
            for batch in read_batches(self._path, next_offset=first_offset, end_offset=end_offset, end=end):
                if batch.base_offset >= self._end_offset:
                    return  # it was appended since
                next_offset = batch.next_offset
                yield batch


class _FirstReading(_Reading):
    """Reads all that a log partition holds, cuts a torn tail, and so finds where the log ends."""

    def _batches(self) -> Iterator[Batch]:
        log = self._log
        for base_offset, following in pairwise([*log.segments, OFFSETS_END]):
            self._path = segment_path(log.folder, base_offset)
            log.size_bytes, log.next_offset = 0, max(log.next_offset, base_offset)
            try:
                for batch in read_batches(self._path, next_offset=log.next_offset, end_offset=following):
                    log.size_bytes, log.next_offset = batch.position + batch.size_bytes, batch.next_offset
                    yield batch
            except InvalidBatchError as error:
                log.size_bytes, log.next_offset = recover_log(log.folder, log.segments)
                if self._path.stat().st_size > error.position:
                    raise
                return  # a torn tail, and nothing behind it
