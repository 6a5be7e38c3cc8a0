"""Log store in segment files: each partition of ``__consumer_offsets`` is a log like those of topics.

This store and a broker can open each other's files. When :meth:`SegmentLogStore.append` returns, the operating system
has the bytes. Surviving a power failure takes an ``fsync``, whose policy is Kafka's: ``log.flush.interval.messages``
and ``log.flush.interval.ms``, both "never" by default.

Partitions open on first use.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from struct import error as StructError  # noqa: N812
from types import TracebackType
from typing import NamedTuple
from uuid import UUID

from groupcoord.config.settings import INT64_MAX
from groupcoord.core.log.records import OFFSETS_TOPIC, CommitRecords
from groupcoord.errors import StoreContractError
from groupcoord.log_store import (
    LoadedCommits,
    LogRecord,
    LogRecords,
    LogStoreError,
    RecordTooLargeError,
    StorageError,
    Ticket,
)
from groupcoord.records.codec import RecordEncodingError
from groupcoord.records.commit_batch import encode_commit_batch
from groupcoord.storage.compaction.cleaner import Cleaner, CleanerCheckpoint, Logs
from groupcoord.storage.compaction.compactable_logs import CompactableLog, InterruptedSwapError
from groupcoord.storage.data_directory import DirectoryLock
from groupcoord.storage.errors import FailedLogError
from groupcoord.storage.files import OpenFiles, find_topic_id, list_partitions, partition_folder, read_topic_id
from groupcoord.storage.log.file_log import SegmentLog
from groupcoord.storage.log.folder import NOTHING_ACKNOWLEDGED, Acknowledged, LogFolder
from groupcoord.storage.log.segment_files import all_records, encode_records, last_records
from groupcoord.storage.log.settings import LogMemory, TopicLogSettings

NEVER = INT64_MAX
COMPACTION_BUDGET = 500
CHECKED_AT_ONCE = 10
DESCRIPTORS_MAX = 1_024
"""Most files that are open at a time."""


class CompactionSettings(NamedTuple):
    """When to compact a log partition and what may be dropped.

    Attributes:
        min_cleanable_ratio: dirty part of a log above which it is compacted (``min.cleanable.dirty.ratio``).
        delete_retention_ms: how long tombstones and markers stay after they were first compacted
            (``delete.retention.ms``).
        min_compaction_lag_ms: younger records are not compacted (``min.compaction.lag.ms``).
        dedupe_buffer_bytes: memory for the keys of one pass (``log.cleaner.dedupe.buffer.size``).
    """

    min_cleanable_ratio: float = 0.5
    delete_retention_ms: int = 86_400_000
    min_compaction_lag_ms: int = 0
    dedupe_buffer_bytes: int = 134_217_728


DEFAULT_COMPACTION = CompactionSettings()


class SegmentLogStore:
    """Log partitions of ``__consumer_offsets`` in a directory that this process alone uses.

    Args:
        directory: Kafka's log directory, with folders ``__consumer_offsets-N/``; created if it does not exist. A
            broker's directory can be opened while that broker is stopped.
        segment_bytes: the largest segment (``offsets.topic.segment.bytes``).
        flush_interval_messages: fsync a partition once this many records are unflushed; 1 is every append.
        flush_interval_ms: :meth:`flush_due` fsyncs a partition whose oldest unflushed record is this old.
        batch_bytes_max: the largest batch (``message.max.bytes``); larger appends raise ``RecordTooLargeError``.
        leader_epoch: the leader epoch of new batches, unless the directory holds a larger one.
        topic_id: the id of ``__consumer_offsets``; by default the one found in the directory, or a random one.
        compaction: when to compact and what may be dropped.

    Raises:
        DirectoryLockedError: another process, or another store of this one, uses the directory.
        LogDirectoryError: it is not a directory, or can't be created or written.
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
        self._batch_bytes_max = min(batch_bytes_max, segment_bytes)
        self._settings = TopicLogSettings(
            is_compacted=True,
            is_deleted=False,
            segment_bytes=segment_bytes,
            # Segments roll by size only; a broker's also after seven days.
            segment_ms=NEVER,
            flush_messages=flush_interval_messages,
            flush_ms=flush_interval_ms,
            **compaction._asdict(),
        )
        self._first_epoch = NOTHING_ACKNOWLEDGED._replace(leader_epoch=leader_epoch)
        self._logs: dict[int, SegmentLog] = {}
        self._acknowledged: dict[int, Acknowledged] = {}
        self._failed: dict[int, LogStoreError] = {}  # not reported yet
        self._to_check: list[int] = []
        self._lock = DirectoryLock(self.directory)
        self._files = OpenFiles(DESCRIPTORS_MAX)
        # The bound on memory is for logs of topics.
        self._memory = LogMemory(INT64_MAX)
        self._cleaner = Cleaner(CleanerCheckpoint(self.directory))
        #: The id of ``__consumer_offsets`` in this directory.
        self.topic_id = topic_id or find_topic_id(self.directory)

    def append(self, partition: int, ticket: Ticket, records: Sequence[LogRecord]) -> int:
        """Write ``records`` as one batch and set their offsets.

        Returns:
            The offset of the first record.

        Raises:
            RecordTooLargeError: the batch exceeds ``batch_bytes_max`` or ``segment_bytes``, or a string in it exceeds
                32,767 bytes; nothing was written.
            StorageError: the disk failed or is full, and the partial write was undone.
            AppendOutcomeUnknownError: the same, but it could not be undone, or the fsync failed.
            LostSegmentError: another program deleted, moved or changed the file. This is noticed within
                ``CHECK_INTERVAL_MS`` of the records' time.
            CorruptLogError: the partition was opened for this append and its log is corrupt.
            StoreContractError: there are no records, or the store is closed.
        """
        log = self._logs.get(partition)
        if log is None or log.failure is not None:
            log = self._usable(partition)
        try:
            # Encoded as columns, which saves an object per offset.
            if type(records) is LogRecords and type(values := records.values) is CommitRecords:
                now_ms = records.timestamp_ms
                batch = encode_commit_batch(log.end_offset, values, now_ms, log.leader_epoch)
                # The general encoder raises the error with the size.
                if batch is None or len(batch) > self._batch_bytes_max:
                    batch = self._encode(log, records)
                return log.append_encoded(batch, values.record_count, now_ms, self._settings)
            batch, now_ms = self._encode(log, records), max(record.timestamp_ms for record in records)
            base_offset = log.append_encoded(batch, len(records), now_ms, self._settings)
        except FailedLogError:
            self._forget(partition)
            raise
        except (RecordEncodingError, StructError) as error:
            raise _too_large(log, str(error)) from error
        for offset, record in enumerate(records, base_offset):
            record.offset = offset
        return base_offset

    def read(self, partition: int) -> Iterator[LogRecord]:
        """Yield the records of a log partition in order, as of the call. Nothing is held in memory.

        When the partition is opened, a torn tail after a crash is truncated and logged as a warning.

        Raises:
            CorruptLogError: a batch is malformed and others follow it; also while iterating.
            StorageError: a file can't be read; also while iterating.
            StoreContractError: the store is closed.
        """
        return self._usable(partition).read_all(all_records)

    def read_last(self, partition: int) -> Iterator[LogRecord | LoadedCommits]:
        """Yield the records that a load needs: as :meth:`read`, without commits that the next ones replace.

        This is several times as fast and gives the same state, with the errors of :meth:`read`. A partition that is not
        open is opened on the way, so do not append to it before the end.
        """
        self._forget_failed(partition)
        log = self._logs.get(partition)
        return self._open_and_read_last(partition) if log is None else log.read_all(last_records)

    def log(self, partition: int) -> SegmentLog:
        """Return the log of a partition for reading: appends are visible at once.

        Raises:
            FailedLogError: its files can't be used, or it has failed and was not loaded again.
        """
        log = self._logs.get(partition)
        if log is None:
            # The coordinator has to load it first.
            if partition in self._acknowledged:
                raise FailedLogError(f"log partition {partition} has failed, and was not loaded again yet")
            try:
                log = self._open(partition)
            except LogStoreError as error:
                raise FailedLogError(str(error)) from error
        if log.failure is not None:
            raise log.failure
        return log

    def leader_epoch(self, partition: int) -> int:
        """Return the newest leader epoch in the log of a partition, without opening it."""
        log, known = self._logs.get(partition), self._first_epoch.leader_epoch
        if log is not None:
            return log.leader_epoch
        try:
            epochs = self._folder(partition).leader_epochs()
        except OSError:
            return known
        return max(known, epochs[-1][0]) if epochs else known

    def adopt_topic_id(self, topic_id: UUID) -> None:
        """Set the topic id of new folders, as the cluster's metadata names it.

        A folder with another id keeps it.
        """
        self.topic_id = topic_id

    def end_offset(self, partition: int) -> int:
        """Return the offset of the next record of a log partition, with the errors of :meth:`read`."""
        return self._usable(partition).end_offset

    def partitions(self) -> list[int]:
        """Return the log partitions that have a folder in the directory, in order."""
        return list_partitions(self.directory)

    def flush_due(self, now_ms: int) -> int | None:
        """Fsync every partition whose oldest unflushed record is at least ``flush_interval_ms`` old.

        Args:
            now_ms: the time by the clock of the records' timestamps.

        Returns:
            When to call again, or None if nothing waits or the interval is "never".

        Raises:
            StorageError: an fsync failed; that partition must be loaded again.
        """
        if self._settings.flush_ms == NEVER:
            return None
        due = [log.flush_due(self._settings, now_ms) for log in list(self._logs.values()) if log.failure is None]
        return min((due_ms for due_ms in due if due_ms is not None), default=None)

    def compact_some(self, now_ms: int, budget: int = COMPACTION_BUDGET) -> bool:
        """Compact the dirtiest partition a little further, which takes one or two milliseconds.

        Args:
            now_ms: the time by the clock of the records' timestamps.
            budget: the approximate number of batches and records.

        Returns:
            True if it should be called again soon, False if all partitions are clean enough.

        Raises:
            StorageError: the disk failed during a swap; that partition must be loaded again.
            StoreContractError: the store is closed.
        """
        self._check_open()
        try:
            return self._cleaner.step(self._compactable, now_ms, budget)
        except InterruptedSwapError as error:
            raise StorageError(str(error)) from error

    def _compactable(self) -> Logs:
        logs = [(index, log) for index, log in self._logs.items() if log.failure is None]
        return {
            (OFFSETS_TOPIC, index): CompactableLog(log, self._settings, keeps_sequences=False) for index, log in logs
        }

    def flush(self) -> None:
        """Fsync every partition that has unflushed records.

        Raises:
            StorageError: an fsync failed; that partition must be loaded again.
        """
        for log in list(self._logs.values()):
            if log.failure is None:
                log.flush()

    def find_failed(self) -> dict[int, LogStoreError]:
        """Check the files of some open partitions; the next call checks others.

        Returns:
            The log partitions that have failed since the last call, except in an append, with the error: a file is lost
            or unreadable, or :meth:`flush_due`, :meth:`flush` or :meth:`compact_some` raised. Load them again.
        """
        self._lock.still_holds()  # creates a deleted lock file again
        if not self._to_check:
            self._to_check = list(self._logs)
        checked, self._to_check = self._to_check[:CHECKED_AT_ONCE], self._to_check[CHECKED_AT_ONCE:]
        for partition in checked:
            log = self._logs.get(partition)
            if log is not None:
                log.check()
        for partition in list(self._logs):
            self._forget_failed(partition)
        failed, self._failed = self._failed, {}
        return failed

    def close(self) -> None:
        """Flush, close the files and release the directory. A closed store accepts no call but this one.

        Raises:
            StorageError: an fsync failed; everything is closed nevertheless.
        """
        if not self._lock.is_open:
            return
        self._cleaner.stop()
        try:
            self.flush()
        finally:
            for log in self._logs.values():
                log.shut()
            self._let_go()

    def abandon(self) -> None:
        """Close the files without a flush, as a killed process does. For tests of recovery."""
        if self._lock.is_open:
            self._cleaner.stop()  # its files must not be deleted later
            self._let_go()

    def _let_go(self) -> None:
        for partition in list(self._logs):
            self._forget(partition)
        self._files.close_all()
        self._lock.close()

    def __enter__(self) -> SegmentLogStore:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    # ------------------------------------------------------------ opening

    def _check_open(self) -> None:
        if not self._lock.is_open:
            raise StoreContractError("the log store is closed")

    def _usable(self, partition: int) -> SegmentLog:
        """Return the log of a partition, opened if it is not open or has failed."""
        self._forget_failed(partition)
        return self._logs.get(partition) or self._open(partition)

    def _forget_failed(self, partition: int) -> None:
        log = self._logs.get(partition)
        if log is not None and log.failure is not None:
            self._failed[partition] = log.failure
            self._forget(partition)

    def _open(self, partition: int) -> SegmentLog:
        log = self._unopened(partition)
        try:
            # No mark of a clean shutdown is written, so the end is checked.
            log.open(is_clean=False)
        except (OSError, ValueError) as error:
            raise StorageError(f"log partition {partition} can't be opened: {error}") from error
        self._opened(partition, log)
        return log

    def _open_and_read_last(self, partition: int) -> Iterator[LogRecord | LoadedCommits]:
        log = self._unopened(partition)
        yield from log.open_and_read_all(last_records)
        self._opened(partition, log)

    def _unopened(self, partition: int) -> SegmentLog:
        self._check_open()
        if partition < 0:
            raise StoreContractError(f"there is no log partition {partition}")
        required = self._acknowledged.get(partition, self._first_epoch)
        folder, check = self._folder(partition), self._check_lock
        return SegmentLog(folder, self._files, self._memory, acknowledged=required, may_change=check)

    def _folder(self, partition: int) -> LogFolder:
        path = partition_folder(self.directory, partition)
        return LogFolder(path, read_topic_id(path) or self.topic_id)

    def _check_lock(self) -> None:
        if not self._lock.still_holds():
            raise StorageError(f"{self.directory} is no longer locked, so others may write there; restart")

    def _opened(self, partition: int, log: SegmentLog) -> None:
        self._acknowledged.pop(partition, None)
        # A read may have opened it meanwhile; two logs of one file would both append.
        if self._logs.setdefault(partition, log) is not log:
            log.let_go()

    def _forget(self, partition: int) -> None:
        """Close a partition and remember what it must hold when it is opened again."""
        log = self._logs.pop(partition)
        self._acknowledged[partition] = log.acknowledged
        log.let_go()

    # ------------------------------------------------------------ writing

    def _encode(self, log: SegmentLog, records: Sequence[LogRecord]) -> bytes:
        if not records:
            raise StoreContractError("an append needs at least one record")
        batch = encode_records(log.end_offset, records, log.leader_epoch)
        if len(batch) > self._batch_bytes_max:
            raise _too_large(log, f"a batch of {len(batch)} bytes; at most {self._batch_bytes_max} are allowed")
        return batch


def _too_large(log: SegmentLog, reason: str) -> RecordTooLargeError:
    return RecordTooLargeError(f"{log.folder.path.name}: {reason}")
