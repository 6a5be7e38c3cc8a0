"""The log store on disk: each partition of ``__consumer_offsets`` is a log as topics have them.

Either this store or a broker can open what the other wrote. Every append is one batch and one ``write``; when
:meth:`SegmentLogStore.append` returns, the operating system has the bytes, and killing the process loses nothing.
Surviving a power failure takes an ``fsync``, whose policy is Kafka's: ``log.flush.interval.messages`` and
``log.flush.interval.ms``, both "never" by default.

Partitions open when they are first used. Readers of the topic get the same log that appends go to:
:meth:`SegmentLogStore.log`. Compaction runs in portions, whenever :meth:`SegmentLogStore.compact_some` is called.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from struct import error as StructError  # noqa: N812
from types import TracebackType
from uuid import UUID

from groupcoord.config.settings import INT64_MAX
from groupcoord.core.log.records import OFFSETS_TOPIC, CommitRecords, OffsetTombstone, Record
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
from groupcoord.records.batches import encode_batch
from groupcoord.records.codec import RecordEncodingError
from groupcoord.records.commit_batch import encode_commit_batch
from groupcoord.records.tombstone_batch import encode_tombstone_batch
from groupcoord.storage.cleaner import Cleaner, CleanerCheckpoint, Logs
from groupcoord.storage.compactable_logs import compactable
from groupcoord.storage.compaction import CompactionSettings
from groupcoord.storage.directory_lock import DirectoryLock
from groupcoord.storage.errors import FailedLogError
from groupcoord.storage.loading import last_records
from groupcoord.storage.log_directory import (
    find_topic_id,
    list_partitions,
    partition_folder,
    read_topic_id,
)
from groupcoord.storage.log_folder import LogFolder
from groupcoord.storage.log_memory import LogMemory
from groupcoord.storage.log_settings import TopicLogSettings
from groupcoord.storage.lost_segments import NOTHING_ACKNOWLEDGED, Acknowledged
from groupcoord.storage.open_files import OpenFiles
from groupcoord.storage.segment_log import SegmentLog
from groupcoord.storage.segment_rewrite import InterruptedSwapError
from groupcoord.storage.segments import all_records

NEVER = INT64_MAX
COMPACTION_BUDGET = 500
CHECKED_AT_ONCE = 10
"""How many partitions one call of :meth:`SegmentLogStore.find_failed` looks at."""
DESCRIPTORS_MAX = 1_024
"""So many files are open at most; each append and each read uses one."""
DEFAULT_COMPACTION = CompactionSettings()


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
        self._batch_bytes_max = min(batch_bytes_max, segment_bytes)
        self._settings = TopicLogSettings(
            is_compacted=True,
            is_deleted=False,
            segment_bytes=segment_bytes,
            segment_ms=NEVER,
            flush_messages=flush_interval_messages,
            flush_ms=flush_interval_ms,
            min_cleanable_ratio=compaction.min_cleanable_ratio,
            delete_retention_ms=compaction.delete_retention_ms,
            min_compaction_lag_ms=compaction.min_compaction_lag_ms,
            dedupe_buffer_bytes=compaction.dedupe_buffer_bytes,
        )
        self._first_epoch = NOTHING_ACKNOWLEDGED._replace(leader_epoch=leader_epoch)
        self._logs: dict[int, SegmentLog] = {}
        self._acknowledged: dict[int, Acknowledged] = {}  # of partitions that have failed
        self._failed: dict[int, LogStoreError] = {}  # those that nobody was told of yet
        self._to_check: list[int] = []
        self._lock = DirectoryLock(self.directory)
        self._files = OpenFiles(DESCRIPTORS_MAX)
        self._memory = LogMemory(INT64_MAX)
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
        log = self._logs.get(partition)
        if log is None or log.failure is not None:
            log = self._usable(partition)
        try:
            if type(records) is LogRecords:
                values, now_ms = records.values, records.timestamp_ms
                if type(values) is CommitRecords:
                    count = values.record_count
                    batch = encode_commit_batch(log.end_offset, values, now_ms, log.leader_epoch)
                else:
                    batch, count = self._encode_tombstones(log, values, now_ms), len(values)
                if batch is None or len(batch) > self._batch_bytes_max:
                    batch = self._encode(log, records)
                return log.append_encoded(batch, count, now_ms, self._settings)
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
        """Yield every record of a log partition in order, those of the moment of the call. Nothing is held in memory.

        A torn tail, which a crash leaves, is cut and logged as a warning when the partition is opened.

        Raises:
            CorruptLogError: a batch is broken and others follow it; also while iterating.
            StorageError: a file can't be read; also while iterating.
            StoreContractError: the store is closed.
        """
        return self._usable(partition).read_all(all_records)

    def read_last(self, partition: int) -> Iterator[LogRecord | LoadedCommits]:
        """Yield what a load needs of a log partition: as :meth:`read`, without commits that the next ones replace.

        It is several times as fast, and gives the same state. Errors are those of :meth:`read`. A partition that isn't
        open yet is opened on the way, so wait for the end before you append to it.
        """
        self._forget_failed(partition)
        log = self._logs.get(partition)
        return self._open_and_read_last(partition) if log is None else log.read_all(last_records)

    def log(self, partition: int) -> SegmentLog:
        """Return the log of a partition, to be read: what is appended here is there at once.

        Raises:
            FailedLogError: its files can't be used, or it has failed and was not loaded again yet.
        """
        log = self._logs.get(partition)
        if log is None:
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
        """Return the epoch of the newest leader that a partition's log knows, without opening it."""
        log, known = self._logs.get(partition), self._first_epoch.leader_epoch
        if log is not None:
            return log.leader_epoch
        try:
            epochs = self._folder(partition).leader_epochs()
        except OSError:
            return known
        return max(known, epochs[-1][0]) if epochs else known

    def adopt_topic_id(self, topic_id: UUID) -> None:
        """Give this id to the folders that are made from now on: the cluster's metadata says so.

        A folder that names another id keeps it.
        """
        self.topic_id = topic_id

    def end_offset(self, partition: int) -> int:
        """Return the offset that the next record of this log partition will have. Errors are those of :meth:`read`."""
        return self._usable(partition).end_offset

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
        if self._settings.flush_ms == NEVER:
            return None
        due = [log.flush_due(self._settings, now_ms) for log in list(self._logs.values()) if log.failure is None]
        return min((due_ms for due_ms in due if due_ms is not None), default=None)

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
        self._check_open()
        try:
            return self._cleaner.step(self._compactable, now_ms, budget)
        except InterruptedSwapError as error:
            raise StorageError(str(error)) from error

    def _compactable(self) -> Logs:
        logs = [(index, log) for index, log in self._logs.items() if log.failure is None]
        return {(OFFSETS_TOPIC, index): compactable(log, self._settings, keeps_sequences=False) for index, log in logs}

    def flush(self) -> None:
        """Fsync every partition that has unflushed records.

        Raises:
            StorageError: an fsync failed; that partition must be loaded again.
        """
        for log in list(self._logs.values()):
            if log.failure is None:
                log.flush()

    def find_failed(self) -> dict[int, LogStoreError]:
        """Look whether the files of some open partitions are as they were left, of others at the next call.

        Returns:
            The log partitions that have failed since the last call, other than in an append, and why: a file is lost,
            or can't be read, or :meth:`flush_due`, :meth:`flush` or :meth:`compact_some` raised. Load them again.
        """
        self._lock.still_holds()  # makes a lock file anew that was deleted
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
            for log in self._logs.values():
                log.shut()
            self._let_go()

    def abandon(self) -> None:
        """Let go of the files as a process does that is killed: nothing is flushed. For tests of what follows then."""
        if self._lock.is_open:
            self._cleaner.stop()  # what it has begun must not be deleted later, when the next store has begun the same
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
        """Return the log of a partition, opened if it isn't open, and anew if it has failed."""
        self._forget_failed(partition)
        return self._logs.get(partition) or self._open(partition)

    def _forget_failed(self, partition: int) -> None:
        log = self._logs.get(partition)
        if log is not None and log.failure is not None:
            self._failed[partition] = log.failure
            self._forget(partition)

    def _open(self, partition: int) -> SegmentLog:
        """Find where a log partition ends. Nothing is created before the first append."""
        log = self._unopened(partition)
        try:
            log.open(is_clean=False)
        except (OSError, ValueError) as error:
            raise StorageError(f"log partition {partition} can't be opened: {error}") from error
        self._opened(partition, log)
        return log

    def _open_and_read_last(self, partition: int) -> Iterator[LogRecord | LoadedCommits]:
        """Do both in one pass over the files."""
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
        if self._logs.setdefault(partition, log) is not log:
            log.let_go()

    def _forget(self, partition: int) -> None:
        """Close a partition, and remember what it must have when it is opened again."""
        log = self._logs.pop(partition)
        self._acknowledged[partition] = log.acknowledged
        log.let_go()

    # ------------------------------------------------------------ writing

    @staticmethod
    def _encode_tombstones(log: SegmentLog, values: Sequence[Record], now_ms: int) -> bytes | None:
        """Return the batch of tombstones of offsets; None for other values."""
        if not values or type(values[0]) is not OffsetTombstone:
            return None
        return encode_tombstone_batch(log.end_offset, values, now_ms, log.leader_epoch)

    def _encode(self, log: SegmentLog, records: Sequence[LogRecord]) -> bytes:
        if not records:
            raise StoreContractError("an append needs at least one record")
        first = records[0]
        producer_id = first.producer_id
        batch = encode_batch(
            log.end_offset,
            [(*record.encoded(), record.timestamp_ms) for record in records],
            leader_epoch=log.leader_epoch,
            producer_id=producer_id,
            producer_epoch=first.producer_epoch,
            is_transactional=producer_id >= 0,
            is_control=first.is_control,
        )
        if len(batch) > self._batch_bytes_max:
            raise _too_large(log, f"a batch of {len(batch)} bytes; at most {self._batch_bytes_max} are allowed")
        return batch


def _too_large(log: SegmentLog, reason: str) -> RecordTooLargeError:
    return RecordTooLargeError(f"{log.folder.path.name}: {reason}")
