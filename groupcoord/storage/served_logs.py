"""Logs of ``__consumer_offsets`` for consumers of the topic: the batches that the log store writes.

A store that keeps its log as batches serves its own logs (:class:`ServingStore`): a batch is written once and visible
at once. For any other store (in memory, in a database) a partition that is consumed is copied into a log in memory, and
the copy follows each append. Usually nothing is consumed and nothing is copied.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import suppress
from itertools import dropwhile, islice
from typing import TYPE_CHECKING, Protocol, runtime_checkable
from uuid import UUID

from groupcoord.core.log.records import NO_PRODUCER_ID
from groupcoord.errors import ErrorCode
from groupcoord.log_store import LogRecord, LogStore, LogStoreError, PositionedStore
from groupcoord.storage.errors import FailedLogError, RefusedBatchError
from groupcoord.storage.log_memory import LogMemory
from groupcoord.storage.log_settings import LEADER_EPOCH, TopicLogSettings

if TYPE_CHECKING:
    from groupcoord.storage.partition_log import PartitionLog

COPIED_AT_ONCE = 10_000
"""Records that are copied without yielding. Requests meanwhile fail with a retriable error."""

BATCH_RECORDS = 1_000
"""Most records in a batch of a copy."""

_SETTINGS = TopicLogSettings(is_deleted=False)


@runtime_checkable
class ServingStore(Protocol):
    """Log store whose log partitions can be read like those of a topic."""

    def log(self, partition: int) -> PartitionLog:
        """Return the log of a partition.

        Raises:
            FailedLogError: it can't be read at present.
        """

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
        memory_bytes_max: the memory of all copies. Beyond it the oldest records of a log are left out.
    """

    def __init__(self, store: LogStore, memory_bytes_max: int) -> None:
        self._store = store
        self._memory = LogMemory(memory_bytes_max)
        self._copies: dict[int, PartitionLog] = {}
        self._stale: set[int] = set()  # partitions with incomplete copies

    def log(self, partition: int) -> PartitionLog:
        from groupcoord.storage.partition_log import PartitionLog

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
            if copy.watchers:
                with suppress(FailedLogError):  # its readers get the error
                    self._catch_up(partition, copy)

    def _catch_up(self, partition: int, copy: PartitionLog) -> bool:
        """Copy new records up to a bound; return whether that was all."""
        store, end_offset = self._store, copy.end_offset
        try:
            if isinstance(store, PositionedStore):
                records: Iterable[LogRecord] = store.read_from(partition, end_offset)
            else:
                records = dropwhile(lambda record: record.offset < end_offset, store.read(partition))
            found = list(islice(records, COPIED_AT_ONCE))
        except LogStoreError as error:
            raise FailedLogError(str(error)) from error
        for batch in _batches(found):
            self._add(batch, copy)
        if found:
            copy.end_offset = found[-1].offset + 1
        if len(found) == COPIED_AT_ONCE:
            return False
        self._stale.discard(partition)
        return True

    def _add(self, records: list[LogRecord], copy: PartitionLog) -> None:
        from groupcoord.records.batches import encode_batch

        first, newest_ms = records[0], max(record.timestamp_ms for record in records)
        data = encode_batch(
            first.offset,
            [(*record.encoded(), record.timestamp_ms) for record in records],
            leader_epoch=copy.leader_epoch,
            producer_id=first.producer_id,
            producer_epoch=first.producer_epoch,
            is_transactional=first.producer_id > NO_PRODUCER_ID,
            is_control=first.is_control,
        )
        copy.end_offset = first.offset  # compaction may have left a gap
        try:
            copy.append_encoded(data, len(records), newest_ms, _SETTINGS)
        except RefusedBatchError:
            for other in self._copies.values():
                other.delete_before(other.end_offset)
            copy.append_encoded(data, len(records), newest_ms, _SETTINGS)


class UnservedLogs:
    """Logs of a store that returns a log partition for one load and can't be read again."""

    def log(self, partition: int) -> PartitionLog:
        raise FailedLogError(f"log partition {partition} is shared by several nodes, and read by groupcoord dump")

    def leader_epoch(self, partition: int) -> int:
        return LEADER_EPOCH

    def adopt_topic_id(self, topic_id: UUID) -> None:
        """Ignore the id: nothing is created here."""


def _batches(records: Iterable[LogRecord]) -> Iterator[list[LogRecord]]:
    """Group records into batches; records that can't be encoded are left out."""
    from groupcoord.records.codec import RecordEncodingError

    batch: list[LogRecord] = []
    for record in records:
        try:
            record.encoded()
        except RecordEncodingError:
            continue
        if batch and (
            len(batch) == BATCH_RECORDS
            or record.is_control
            or record.offset != batch[-1].offset + 1
            or (record.producer_id, record.producer_epoch) != (batch[0].producer_id, batch[0].producer_epoch)
        ):
            yield batch
            batch = []
        batch.append(record)
    if batch:
        yield batch
