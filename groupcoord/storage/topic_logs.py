"""Logs of all topics by topic id, and the logs of ``__consumer_offsets`` for its consumers.

A store that keeps its log as batches serves its own logs (:class:`ServingStore`). For any other store (in memory, in a
database) a partition that is consumed is copied into a log in memory, which follows each append.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from itertools import dropwhile, islice
from typing import TYPE_CHECKING, NamedTuple, Protocol, runtime_checkable
from uuid import UUID

from groupcoord.config.settings import INT64_MAX
from groupcoord.errors import ErrorCode
from groupcoord.log_store import LogRecord, LogStore, LogStoreError, PositionedStore
from groupcoord.storage.errors import FailedLogError, RefusedBatchError
from groupcoord.storage.log.settings import LEADER_EPOCH, LOG_BYTES, LogMemory, TopicLogSettings

if TYPE_CHECKING:
    from groupcoord.storage.compaction.cleaner import Cleaner, Logs
    from groupcoord.storage.data_directory import DataDirectory
    from groupcoord.storage.log.folder import Acknowledged
    from groupcoord.storage.log.memory_log import PartitionLog


RETRY_MS = 1_000
"""Interval of attempts to open a failed log."""

COMPACTION_BUDGET = 500
"""Batches and records that are compacted without yielding, which takes one or two milliseconds."""

CHECKED_AT_ONCE = 10
logger = logging.getLogger(__name__)


class NamedTopic(Protocol):
    """A topic."""

    @property
    def name(self) -> str:
        """Its name, which begins the names of its folders."""

    @property
    def topic_id(self) -> UUID:
        """Its id."""

    @property
    def partition_count(self) -> int:
        """Number of its partitions."""

    @property
    def is_internal(self) -> bool:
        """True if the server keeps its own state in it: it always gets memory."""


class _Failure(NamedTuple):
    """Why a log can't be used, when to retry, and what it must hold then."""

    error: FailedLogError
    retry_ms: int
    acknowledged: Acknowledged


Partition = tuple[UUID, int]


class TopicLogs:
    """All logs; each is created or opened on first use.

    Args:
        memory_bytes_max: the memory of all logs.
        directory: the data directory, or None to keep them in memory.
        now_ms: the clock, for retries.
        report: is called for disk errors with a fixed phrase for the kind and a message; logs them by default.
    """

    def __init__(
        self,
        memory_bytes_max: int,
        directory: DataDirectory | None = None,
        *,
        now_ms: Callable[[], int] = lambda: 0,
        report: Callable[[str, str], None] = lambda kind, line: logger.error("%s", line),
    ) -> None:
        self.memory = LogMemory(memory_bytes_max)
        # Topics of the server must not fail because users' topics are large.
        self._internal_memory = LogMemory(INT64_MAX)
        self.report = report
        self._directory = directory
        self._now_ms = now_ms
        self._logs: dict[UUID, dict[int, PartitionLog]] = {}
        self._failures: dict[Partition, _Failure] = {}
        self._to_check: list[Partition] = []
        self._cleaner: Cleaner | None = None

    def log(self, topic: NamedTopic, partition_index: int) -> PartitionLog:
        """Return the log of an existing partition. Without free memory it is one that accepts nothing.

        Raises:
            FailedLogError: its files can't be used, or there is no memory to open them.
        """
        log = self._logs.get(topic.topic_id, {}).get(partition_index)
        if log is None:
            return self._new_log(topic, partition_index)
        if log.failure is not None:
            # Opened again from its files.
            self._drop(topic, partition_index, log)
            return self._new_log(topic, partition_index)
        return log

    def leader_epoch(self, topic: NamedTopic, partition_index: int) -> int | None:
        """Return the newest leader epoch of a log, opened only if needed; None if its files can't be used."""
        log = self._logs.get(topic.topic_id, {}).get(partition_index)
        if log is not None:
            return log.leader_epoch
        if self._directory is None:
            return LEADER_EPOCH
        folder = self._directory.folder(topic.name, topic.topic_id, partition_index)
        if not folder.path.exists():
            return LEADER_EPOCH
        with suppress(OSError, FailedLogError):
            epochs = folder.leader_epochs() if self._directory.was_clean else []
            return epochs[-1][0] if epochs else self.log(topic, partition_index).leader_epoch
        return None

    def _new_log(self, topic: NamedTopic, partition_index: int) -> PartitionLog:
        from groupcoord.storage.log.memory_log import PartitionLog

        if self._directory is not None:
            return self._opened(topic, partition_index, self._directory)
        memory = self._memory_of(topic)
        try:
            memory.take(LOG_BYTES)
        except RefusedBatchError:
            # Appends fail with POLICY_VIOLATION. It is not kept, so freed memory counts at once.
            return PartitionLog(LogMemory(0))
        log = self._logs.setdefault(topic.topic_id, {})[partition_index] = PartitionLog(memory)
        return log

    def _memory_of(self, topic: NamedTopic) -> LogMemory:
        return self._internal_memory if topic.is_internal else self.memory

    # ------------------------------------------------------------ on disk

    def _opened(self, topic: NamedTopic, partition_index: int, directory: DataDirectory) -> PartitionLog:
        from groupcoord.storage.log.file_log import SegmentLog
        from groupcoord.storage.log.folder import NOTHING_ACKNOWLEDGED

        partition = topic.topic_id, partition_index
        failure = self._failures.get(partition)
        # Opening reads files, and clients retry within milliseconds.
        if failure is not None and self._now_ms() < failure.retry_ms:
            raise failure.error
        acknowledged = NOTHING_ACKNOWLEDGED if failure is None else failure.acknowledged
        memory = self._memory_of(topic)
        try:
            _take_log_bytes(memory)
            try:
                log = SegmentLog(
                    directory.folder(topic.name, topic.topic_id, partition_index),
                    directory.files,
                    memory,
                    start_offset=directory.start_offset(topic.name, partition_index),
                    note_start=lambda offset: directory.note_start_offset(topic.name, partition_index, offset),
                    acknowledged=acknowledged,
                    report=self.report,
                )
                log.open(is_clean=directory.was_clean and failure is None)
            except (OSError, ValueError, LogStoreError) as error:
                memory.give_back(LOG_BYTES)
                raise FailedLogError(f"{topic.name}-{partition_index} can't be opened: {error}") from error
        except FailedLogError as error:
            self._failures[partition] = _Failure(error, self._now_ms() + RETRY_MS, acknowledged)
            self.report("a log can't be opened", str(error))
            raise
        if self._failures.pop(partition, None) is not None:
            self.report("a log is used again", f"{topic.name}-{partition_index} had failed and is used again")
        self._logs.setdefault(topic.topic_id, {})[partition_index] = log
        return log

    def _drop(self, topic: NamedTopic, partition_index: int, log: PartitionLog) -> None:
        from groupcoord.storage.log.file_log import SegmentLog

        del self._logs[topic.topic_id][partition_index]
        log.memory.give_back(LOG_BYTES)
        if isinstance(log, SegmentLog) and log.failure is not None:
            self._failures[topic.topic_id, partition_index] = _Failure(log.failure, 0, log.acknowledged)

    def open_found(self, topics: Iterable[NamedTopic]) -> None:
        if self._directory is None or self._directory.was_clean:
            return
        found = self._directory.partitions()
        for topic in topics:
            for index in found.get(topic.name, ()):
                if index < topic.partition_count:
                    try:
                        self.log(topic, index)
                    except FailedLogError:
                        continue  # already logged, and its users get the error

    def existing(self, topics: Iterable[NamedTopic]) -> list[tuple[NamedTopic, int]]:
        found = {} if self._directory is None else self._directory.partitions()
        return [
            (topic, index)
            for topic in topics
            for index in sorted({*self._logs.get(topic.topic_id, ()), *found.get(topic.name, ())})
            if index < topic.partition_count
        ]

    def check_some(self) -> None:
        """Check that the files of some logs are as they were left; the next call checks others."""
        if not self._to_check:
            self._to_check = [(topic_id, index) for topic_id, logs in self._logs.items() for index in logs]
        checked, self._to_check = self._to_check[:CHECKED_AT_ONCE], self._to_check[CHECKED_AT_ONCE:]
        for topic_id, index in checked:
            log = self._logs.get(topic_id, {}).get(index)
            if log is not None:
                log.check()

    def flush_due(self, topic: NamedTopic, settings: TopicLogSettings) -> None:
        for log in self._logs.get(topic.topic_id, {}).values():
            with suppress(FailedLogError):  # already logged, and the log is opened again
                log.flush_due(settings, self._now_ms())

    def compact_some(
        self, topics: Callable[[], Iterable[tuple[NamedTopic, TopicLogSettings]]], now_ms: int, budget: int
    ) -> bool:
        """Compact the dirtiest log a little further; return False if all logs are clean enough."""
        # Imported with the first compacted topic, which most servers never have.
        if self._cleaner is None and not any(topics()):
            return False
        from groupcoord.storage.compaction.compactable_logs import InterruptedSwapError

        with suppress(InterruptedSwapError):  # already logged, and the log is opened again
            return self._started_cleaner().step(lambda: self._compactable(topics()), now_ms, budget)
        return True

    def _started_cleaner(self) -> Cleaner:
        from groupcoord.storage.compaction.cleaner import Cleaner, CleanerCheckpoint

        if self._cleaner is None:
            directory = None if self._directory is None else self._directory.path
            self._cleaner = Cleaner(CleanerCheckpoint(directory))
        return self._cleaner

    def _compactable(self, topics: Iterable[tuple[NamedTopic, TopicLogSettings]]) -> Logs:
        from groupcoord.storage.compaction.compactable_logs import CompactableLog

        return {
            (topic.name, index): CompactableLog(log, settings)
            for topic, settings in topics
            for index, log in self._logs.get(topic.topic_id, {}).items()
            if log.failure is None
        }

    # ------------------------------------------------------------ ends

    def delete(self, topic: NamedTopic) -> None:
        for log in self._logs.pop(topic.topic_id, {}).values():
            log.close()
            log.memory.give_back(LOG_BYTES)
        for partition in [partition for partition in self._failures if partition[0] == topic.topic_id]:
            del self._failures[partition]
        if self._cleaner is not None or self._directory is not None:
            try:
                self._started_cleaner().forget(topic.name)
            except OSError as error:
                self.report("a checkpoint can't be written", str(error))
        if self._directory is not None:
            self._directory.delete(topic.name)

    def abandon(self) -> None:
        """Close all files as a killed process does. Logs in memory stay."""
        if self._directory is not None:
            if self._cleaner is not None:
                self._cleaner.stop()
            self._logs.clear()
            self._directory.close(is_clean=False)
            self._directory = None

    def close(self, *, is_whole: bool = True) -> None:
        """Close all files. The logs can't be used any more.

        Unless all logs with files were opened (``is_whole``), this shutdown is clean only if the last was. An OSError
        means that the state for the next start can't be written.
        """
        if self._directory is None:
            return
        if self._cleaner is not None:
            self._cleaner.stop()
        logs = [log for logs in self._logs.values() for log in logs.values()]
        is_clean = not self._failures and (is_whole or self._directory.was_clean)
        for log in logs:
            is_clean = log.shut() and is_clean
        self._logs.clear()
        self._directory.close(is_clean=is_clean)
        self._directory = None


def _take_log_bytes(memory: LogMemory) -> None:
    try:
        memory.take(LOG_BYTES)
    except RefusedBatchError as error:
        raise FailedLogError(error.reason) from error


COPIED_AT_ONCE = 10_000
"""Records that are copied without yielding."""

BATCH_RECORDS = 1_000
"""Most records in a batch of a copy."""

_SETTINGS = TopicLogSettings(is_deleted=False)


@runtime_checkable
class ServingStore(Protocol):
    """Log store whose log partitions can be read like those of a topic."""

    def log(self, partition: int) -> PartitionLog:
        """Return the log of a partition; FailedLogError if it can't be read at present."""

    def leader_epoch(self, partition: int) -> int:
        """Return the newest leader epoch in the log of a partition, without opening it."""

    def adopt_topic_id(self, topic_id: UUID) -> None:
        """Set the topic id of new folders, as the cluster's metadata names it."""


class CopyUnderWayError(FailedLogError):
    """A log is still being copied: LEADER_NOT_AVAILABLE, after which clients retry."""

    def __init__(self, partition: int) -> None:
        super().__init__(f"log partition {partition} is being copied for its readers")
        self.error_code = ErrorCode.LEADER_NOT_AVAILABLE


class CopiedLogs:
    """Copies of the log partitions that are consumed.

    Args:
        store: the store of the records.
        memory_bytes_max: the memory of all copies. When it is full, all copies drop what they hold.
    """

    def __init__(self, store: LogStore, memory_bytes_max: int) -> None:
        self._store = store
        self._memory = LogMemory(memory_bytes_max)
        self._copies: dict[int, PartitionLog] = {}
        self._stale: set[int] = set()  # with incomplete copies

    def log(self, partition: int) -> PartitionLog:
        from groupcoord.storage.log.memory_log import PartitionLog

        copy = self._copies.get(partition)
        if copy is None:
            copy = self._copies[partition] = PartitionLog(self._memory)
            self._stale.add(partition)
        if partition in self._stale and not self._catch_up(partition, copy):
            raise CopyUnderWayError(partition)
        return copy

    def leader_epoch(self, partition: int) -> int:
        copy = self._copies.get(partition)
        return LEADER_EPOCH if copy is None else copy.leader_epoch

    def adopt_topic_id(self, topic_id: UUID) -> None:
        """Ignore the id: copies have none."""

    def appended(self, partition: int) -> None:
        """Copy what was appended to a log partition and is durable."""
        copy = self._copies.get(partition)
        if copy is not None:
            self._stale.add(partition)
            # Without a waiting fetch the next read copies.
            if copy.watchers:
                with suppress(FailedLogError):  # its readers get the error
                    self._catch_up(partition, copy)

    def _catch_up(self, partition: int, copy: PartitionLog) -> bool:
        """Copy new records up to a bound; return whether that was all."""
        from groupcoord.storage.log.segment_files import batchable_runs

        store, end_offset = self._store, copy.end_offset
        try:
            if isinstance(store, PositionedStore):
                records: Iterable[LogRecord] = store.read_from(partition, end_offset)
            else:
                records = dropwhile(lambda record: record.offset < end_offset, store.read(partition))
            found = list(islice(records, COPIED_AT_ONCE))
        except Exception as error:  # a store may raise any error, and the append that is copied has succeeded
            raise FailedLogError(str(error)) from error
        for run in batchable_runs(_encodable(found), BATCH_RECORDS):
            self._add(run, copy)
        if found:
            copy.end_offset = found[-1].offset + 1
        if len(found) == COPIED_AT_ONCE:
            return False
        self._stale.discard(partition)
        return True

    def _add(self, records: list[LogRecord], copy: PartitionLog) -> None:
        from groupcoord.storage.log.segment_files import encode_records

        first, newest_ms = records[0], max(record.timestamp_ms for record in records)
        data = encode_records(first.offset, records, copy.leader_epoch)
        copy.end_offset = first.offset  # compaction may have left a gap
        try:
            copy.append_encoded(data, len(records), newest_ms, _SETTINGS)
        except RefusedBatchError:
            # Consumers get OFFSET_OUT_OF_RANGE for what only the store still has.
            for other in self._copies.values():
                other.delete_before(other.end_offset)
            copy.append_encoded(data, len(records), newest_ms, _SETTINGS)


class UnservedLogError(FailedLogError):
    """The log is shared by several nodes."""


class UnservedLogs:
    """Logs of a store that loads a log partition once and can't read it again."""

    def log(self, partition: int) -> PartitionLog:
        raise UnservedLogError(f"log partition {partition} is shared by several nodes, and read by groupcoord dump")

    def leader_epoch(self, partition: int) -> int:
        return LEADER_EPOCH

    def adopt_topic_id(self, topic_id: UUID) -> None:
        """Ignore the id: nothing is created here."""


def _encodable(records: Iterable[LogRecord]) -> Iterator[LogRecord]:
    """Leave out records that can't be encoded, which a log store in memory accepts."""
    from groupcoord.records.codec import RecordEncodingError

    for record in records:
        with suppress(RecordEncodingError):
            record.encoded()
            yield record
