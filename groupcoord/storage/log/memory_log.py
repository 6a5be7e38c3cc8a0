"""Log of one partition in memory: appends, reads, retention and DeleteRecords.

There is one replica, so the high watermark is the end of the log. Sources: ``UnifiedLog`` and ``LocalLog`` of Apache
Kafka 4.4, and recorded responses.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Sequence
from operator import attrgetter
from typing import TYPE_CHECKING, NamedTuple

from groupcoord.core.fast_construct import maker
from groupcoord.core.log.records import NO_PRODUCER_ID, NO_TIMESTAMP, TransactionMarker
from groupcoord.errors import ErrorCode
from groupcoord.records.batches import TRANSACTIONAL, Batch, encode_batch
from groupcoord.records.codec import decode_control, encode_record
from groupcoord.storage.errors import FailedLogError, RefusedBatchError, TopicLogError
from groupcoord.storage.log.batches import ProducedBatch, check_produced, placed
from groupcoord.storage.log.index import AbortedTransaction, EpochEnd, LeaderEpochs
from groupcoord.storage.log.memory_segment import INDEX_INTERVAL_BYTES, MemorySegment, Pieces, Place, Segment
from groupcoord.storage.log.producers import ProducerStates
from groupcoord.storage.log.settings import DEFAULT_SETTINGS, LogMemory, TopicLogSettings

if TYPE_CHECKING:
    from groupcoord.storage.compaction.compactable_logs import CompactableLog

Watcher = Callable[["PartitionLog"], None]
"""Called when a log's offsets or leader epoch change, and when it fails or is closed."""


class Appended(NamedTuple):
    """Position of an appended batch.

    Attributes:
        log_append_time_ms: -1 if the batch kept its timestamps; of a duplicate its largest timestamp.
    """

    base_offset: int
    log_append_time_ms: int
    log_start_offset: int


class ReadBatches(NamedTuple):
    """Batches that were read, the last of which may be cut, and the aborted transactions that overlap them."""

    parts: tuple[memoryview, ...] = ()
    size_bytes: int = 0
    aborted: tuple[AbortedTransaction, ...] = ()


class Write(NamedTuple):
    """A batch to write."""

    pieces: Pieces
    size_bytes: int
    next_offset: int
    max_timestamp_ms: int
    producer_id: int
    is_marker: bool = False


ATTRIBUTES_POSITION = 22
"""Position of the lower byte of a batch's attributes."""

_make_appended, _make_write = maker(Appended), maker(Write)


class PartitionLog:
    """Batches of one partition in memory, and its producers.

    Attributes:
        start_offset: the first offset that can be read.
        end_offset: the offset of the next record, which is the high watermark.
        leader_epoch: the epoch that new batches get.
        watchers: callbacks for changes. A watcher removes itself.
        is_closed: True if the topic was deleted.
        failure: why the log can't be used any more, or None.
    """

    compaction: CompactableLog | None = None

    def __init__(self, memory: LogMemory) -> None:
        self.failure: FailedLogError | None = None
        self.start_offset = 0
        self.end_offset = 0
        self.epochs = LeaderEpochs()
        self.leader_epoch = self.epochs.latest
        self.is_closed = False
        self.producers = ProducerStates(memory)
        self.watchers: dict[Watcher, None] = {}
        self.memory = memory
        self._segments: list[Segment] = []
        self._bases: list[int] = []
        self._rolled_bytes = 0  # size of the last group of segments, which is one segment in Kafka
        self._first_timestamp_ms = NO_TIMESTAMP  # of that group's first batch

    # ------------------------------------------------------------ writing

    def append(
        self, batch: ProducedBatch, settings: TopicLogSettings, now_ms: int, *, is_checked: bool = False
    ) -> Appended:
        """Append a producer's batch. A duplicate is not written again.

        With ``is_checked``, :func:`check_produced` has accepted it already.

        Raises:
            RefusedBatchError: the errors of :func:`check_produced` and :meth:`ProducerStates.check`,
                RECORD_LIST_TOO_LARGE beyond ``segment.bytes``, POLICY_VIOLATION without free memory,
                KAFKA_STORAGE_ERROR for a disk error.
            FailedLogError: it is unknown whether the batch was written.
        """
        if not is_checked:
            check_produced(batch, settings, now_ms)
        # Kafka checks the size against the segment after validating the batch.
        if len(batch.data) > settings.segment_bytes:
            reason = f"a batch of {len(batch.data)} bytes is larger than segment.bytes ({settings.segment_bytes})"
            raise RefusedBatchError(ErrorCode.RECORD_LIST_TOO_LARGE, reason, tells_start=False)
        if batch.has_producer:
            # Before the sequence check, as in Kafka: a repeated batch is out of order, and its producer needs the first
            # offset.
            known = self.producers.find_duplicate(batch)
            if known is not None:
                return Appended(known.base_offset, known.timestamp_ms, self.start_offset)
            self.producers.check(batch)
        # The producer state changes after the write, so a failed write leaves nothing to undo but reserved memory.
        append_time_ms = now_ms if settings.uses_append_time else None
        timestamp_ms = batch.max_timestamp_ms if append_time_ms is None else append_time_ms
        base_offset = self.end_offset
        pieces = placed(batch, base_offset, self.leader_epoch, append_time_ms)
        next_offset = base_offset + batch.last_offset_delta + 1
        write = _make_write((pieces, len(batch.data), next_offset, timestamp_ms, batch.producer_id, False))
        self._write(write, settings, now_ms)
        if batch.has_producer:
            self.producers.appended(batch, base_offset, timestamp_ms)
        if self.watchers:
            self._tell()
        return _make_appended(
            (base_offset, NO_TIMESTAMP if append_time_ms is None else append_time_ms, self.start_offset)
        )

    def append_marker(
        self, marker: TransactionMarker, now_ms: int, settings: TopicLogSettings = DEFAULT_SETTINGS
    ) -> ErrorCode:
        """Append the marker that ends a producer's transaction, whether or not one is open.

        Returns:
            NONE; INVALID_PRODUCER_EPOCH or TRANSACTION_COORDINATOR_FENCED if the marker is outdated;
            KAFKA_STORAGE_ERROR without free memory or for a disk error.
        """
        producer_id, epoch, coordinator_epoch = marker.producer_id, marker.producer_epoch, marker.coordinator_epoch
        # As in Kafka, a marker without a transaction fences later batches of an older epoch, too.
        error_code = self.producers.check_marker(producer_id, epoch, coordinator_epoch)
        if error_code is not ErrorCode.NONE:
            return error_code
        data = encode_batch(
            self.end_offset,
            [(*encode_record(marker), now_ms)],
            leader_epoch=self.leader_epoch,
            producer_id=producer_id,
            producer_epoch=epoch,
            is_transactional=True,
            is_control=True,
        )
        try:
            self.append_encoded(data, 1, now_ms, settings)
        except TopicLogError:
            return ErrorCode.KAFKA_STORAGE_ERROR
        return ErrorCode.NONE

    def append_encoded(self, data: bytes, record_count: int, now_ms: int, settings: TopicLogSettings) -> int:
        """Append a batch that already holds the end offset of the log and its leader epoch; return its offset.

        Raises:
            RefusedBatchError: there is no room or a disk error; nothing has changed.
            FailedLogError: it is unknown whether the batch was written.
        """
        offset = self.end_offset
        # Only transactional batches are parsed; most appends are plain commits.
        batch, producer_id, is_marker = None, NO_PRODUCER_ID, False
        if data[ATTRIBUTES_POSITION] & TRANSACTIONAL:
            batch = Batch(data, 0, 0)
            producer_id, is_marker = batch.producer_id, batch.is_control
        next_offset = offset + record_count
        write = _make_write(((data,), len(data), next_offset, now_ms, producer_id, is_marker))
        self._write(write, settings, now_ms)
        if batch is not None:
            self._note_transaction(batch)
        if self.watchers:
            self._tell()
        return offset

    def _note_transaction(self, batch: Batch) -> None:
        aborted = replay(batch, self.producers)
        if aborted is not None:
            try:
                self._segments[-1].add_aborted(aborted)
            except FailedLogError as error:
                self._trouble(error)
                raise

    def _write(self, write: Write, settings: TopicLogSettings, now_ms: int) -> None:
        """Write a batch and reserve memory for its producer, if it has one."""
        producer_id, is_marker = write.producer_id, write.is_marker
        # Reserved before the write, because nothing may fail after it.
        is_newcomer = producer_id > NO_PRODUCER_ID and self.producers.reserve(producer_id, is_marker=is_marker)
        try:
            segment = self._segment_for(write, settings)
            segment.append(
                write.pieces, write.size_bytes, write.next_offset, write.max_timestamp_ms, is_marker=is_marker
            )
        except TopicLogError:
            if is_newcomer:
                self.producers.forget(producer_id)
            raise
        if not self._rolled_bytes:
            self._first_timestamp_ms = write.max_timestamp_ms
        self._rolled_bytes += write.size_bytes
        self.end_offset = write.next_offset

    def _segment_for(self, write: Write, settings: TopicLogSettings) -> Segment:
        last = self._segments[-1] if self._segments else None
        if last is None or self._is_full(last, write, settings):
            self._roll(settings)
        elif not last.has_room(write.size_bytes):
            # Only the segment's own buffer is full. The next segment continues it, so segment.bytes keeps its meaning.
            self._begin(MemorySegment(self.end_offset, self.memory, goes_on=True))
        return self._segments[-1]

    def _is_full(self, last: Segment, write: Write, settings: TopicLogSettings) -> bool:
        """Return whether a batch begins a new segment, by size or by the age of the first batch."""
        if not self._rolled_bytes:
            return False
        # As in Kafka, age is measured between timestamps of records, and never reached without timestamps.
        first_ms = self._first_timestamp_ms
        is_old = first_ms >= 0 and write.max_timestamp_ms - first_ms > settings.roll_ms
        return is_old or self._rolled_bytes + write.size_bytes > settings.segment_bytes

    def _roll(self, settings: TopicLogSettings) -> None:
        self._begin(MemorySegment(self.end_offset, self.memory))

    def _begin(self, segment: Segment) -> None:
        self._segments.append(segment)
        self._bases.append(segment.base_offset)
        if not segment.goes_on:
            self._rolled_bytes = 0

    def _trouble(self, error: TopicLogError) -> None:
        """Handle a failed write."""

    def _tell(self) -> None:
        # A copy, because watchers remove themselves.
        for watcher in list(self.watchers):
            watcher(self)

    # ------------------------------------------------------------ leaders

    def begin_epoch(self, leader_epoch: int) -> None:
        """Set the leader epoch of new batches, if it is newer."""
        # Waiting fetches may have to move to another node.
        if leader_epoch > self.leader_epoch:
            self.epochs.begin(leader_epoch, self.end_offset)
            self.leader_epoch = leader_epoch
            self._tell()

    def end_of_epoch(self, leader_epoch: int) -> EpochEnd | None:
        return self.epochs.end_of(leader_epoch, self.end_offset)

    # ------------------------------------------------------------ the start, and the end

    def delete_before(self, offset: int) -> int:
        """Raise the start offset to an offset that is at most the end; return the start offset.

        A TopicLogError means that a file can't be written or deleted.
        """
        # The start never decreases: records before it may be deleted.
        if offset > self.start_offset:
            self._start_at(offset)
            self._tell()
        return self.start_offset

    def _start_at(self, offset: int) -> None:
        self.start_offset = offset
        self.epochs.trim(offset, self.end_offset)
        # In memory the last segment may be deleted, too: the log keeps its end offset.
        self._drop(bisect_right([segment.next_offset for segment in self._segments], offset))

    def retain(self, settings: TopicLogSettings, now_ms: int) -> int:
        """Delete the oldest segments that retention does not keep; return their size in bytes.

        A TopicLogError means that a file can't be written or deleted.
        """
        if not settings.is_deleted:
            return 0
        groups = self.groups()
        sizes = [sum(segment.size_bytes for segment in group) for group in groups]
        excess_bytes = sum(sizes) - settings.retention_bytes
        count = 0
        deletable = len(groups) if sizes and sizes[-1] else len(groups) - 1
        # Kafka deletes a segment only if what is left still has retention.bytes.
        while settings.retention_bytes >= 0 and count < deletable and excess_bytes >= sizes[count]:
            excess_bytes -= sizes[count]
            count += 1
        # By age the first young segment ends the search.
        for number in range(count, deletable) if settings.retention_ms >= 0 else ():
            if not sizes[number]:
                continue  # emptied by compaction, and deleted with the next group
            largest_ms = max(segment.max_timestamp_ms for segment in groups[number])
            # Records without timestamps never age.
            if largest_ms == NO_TIMESTAMP or now_ms - largest_ms <= settings.retention_ms:
                break
            count = number + 1
        if not count:
            return 0
        # A new segment first, so that the log keeps its end offset.
        if count == len(groups):
            self._roll(settings)
        # DeleteRecords may have moved the start beyond these segments.
        self._start_at(max(groups[count - 1][-1].next_offset, self.start_offset))
        self._tell()
        return sum(sizes[:count])

    def groups(self) -> list[list[Segment]]:
        groups: list[list[Segment]] = []
        for segment in self._segments:
            if not segment.goes_on or not groups:
                groups.append([])
            groups[-1].append(segment)
        return groups

    def replace(self, old: Sequence[Segment], new: Segment) -> None:
        first = self._segments.index(old[0])
        self._segments[first : first + len(old)] = [new]
        self._bases[first : first + len(old)] = [new.base_offset]

    @property
    def segments(self) -> Sequence[Segment]:
        return self._segments

    def _interrupt(self) -> None:
        if self.compaction is not None:
            self.compaction.give_up()
            self.compaction = None

    def _drop(self, count: int) -> None:
        # A compaction in progress uses these segments.
        if count:
            self._interrupt()
        for segment in self._segments[:count]:
            segment.release()
        del self._segments[:count], self._bases[:count]

    def close(self) -> None:
        self.is_closed = True
        self._drop(len(self._segments))
        self.producers.clear()
        self._tell()

    def check(self) -> None:
        """Fail the log if its files have changed."""

    def flush_due(self, settings: TopicLogSettings, now_ms: int) -> int | None:
        """Make writes durable that are older than ``flush.ms``; return when the next flush is due, or None."""

    def shut(self) -> bool:
        """Prepare for the end of the process; return whether the log can be opened again without a check."""
        return True

    # ------------------------------------------------------------ reading

    @property
    def last_stable_offset(self) -> int:
        """Start of the oldest open transaction, or the high watermark if none is open."""
        # DeleteRecords may have raised the start beyond it.
        first_open = self.producers.first_open_offset()
        return self.end_offset if first_open is None else max(first_open, self.start_offset)

    def read(
        self, offset: int, end_offset: int, bytes_max: int, *, takes_first: bool, lists_aborted: bool = False
    ) -> ReadBatches:
        """Read batches from the one that holds an offset.

        Args:
            offset: the first offset, between the start and the end of the log.
            end_offset: where to stop: the high watermark or the last stable offset.
            bytes_max: the most bytes to read.
            takes_first: whether to read the first batch even if it is larger.
            lists_aborted: whether to return aborted transactions.
        """
        found = self._find(offset, bytes_max) if offset < end_offset else None
        if found is None:
            return ReadBatches()
        number, (position, first_end, read) = found
        if first_end - position > bytes_max and not takes_first:
            return ReadBatches()
        # KIP-74: the first batch is returned whole even if it is larger, so that a consumer can make progress.
        left = max(bytes_max, first_end - position)
        parts: list[memoryview] = []
        for segment in self._segments[number:]:
            end = min(segment.end_before(end_offset), position + left)
            if end <= position:
                if segment.size_bytes:
                    break
                continue  # emptied by compaction
            # The search may have read these bytes already: then one pread serves both.
            is_read = not parts and len(read) >= end - position
            parts.append(read[: end - position] if is_read else segment.view(position, end))
            left -= end - position
            position = 0
        size_bytes = sum(map(len, parts))
        aborted: tuple[AbortedTransaction, ...] = ()
        if lists_aborted:
            # A broker takes the upper bound from its sparse index, so it lists transactions that begin a little later,
            # too.
            index_end = self._index_end(number, found[1].position + size_bytes)
            aborted = self._aborted_between(number, offset, min(index_end, end_offset))
        return ReadBatches(tuple(parts), size_bytes, aborted)

    def readable_bytes(self, offset: int, end_offset: int) -> int:
        """Return the number of bytes from the batch that holds an offset up to another offset."""
        found = self._find(offset) if offset < end_offset else None
        if found is None:
            return 0
        number, place = found
        ends = sum(segment.end_before(end_offset) for segment in self._segments[number:])
        return max(ends - place.position, 0)

    def _find(self, offset: int, ahead_bytes: int = 0) -> tuple[int, Place] | None:
        if offset >= self.end_offset:
            return None
        for number in range(max(bisect_right(self._bases, offset) - 1, 0), len(self._segments)):
            place = self._segments[number].place_of(offset, ahead_bytes)
            if place is not None:
                return number, place
        return None

    def _index_end(self, number: int, position: int) -> int:
        """Return the first offset of the index entry after a position, at the granularity of Kafka's index."""
        position += INDEX_INTERVAL_BYTES
        for segment in self._segments[number:]:
            if position < segment.size_bytes:
                return segment.first_offset_at(position)
            position -= segment.size_bytes
        return self.end_offset

    def _aborted_between(self, number: int, offset: int, end_offset: int) -> tuple[AbortedTransaction, ...]:
        found = []
        for segment in self._segments[number:]:
            aborted = segment.aborted
            # In the order of last_offset, which is that of the markers.
            for place in range(bisect_left(aborted, offset, key=attrgetter("last_offset")), len(aborted)):
                transaction = aborted[place]
                if transaction.first_offset < end_offset:
                    found.append(transaction)
                # The last stable offsets increase: later entries are of transactions that begin after the read part.
                if transaction.last_stable_offset >= end_offset:
                    return tuple(found)
        return tuple(found)

    # ------------------------------------------------------------ by time

    def batch_since(self, timestamp_ms: int, offset: int) -> bytes | None:
        """Return the first batch from an offset on with a timestamp of at least ``timestamp_ms``, or None."""
        for segment in self._segments:
            if segment.next_offset > offset and segment.max_timestamp_ms >= timestamp_ms:
                for data in segment.batches_since(timestamp_ms, offset):
                    if Batch(data, 0, 0).next_offset > offset:
                        return bytes(data)
        return None

    @property
    def base_offset(self) -> int:
        return self._segments[0].base_offset if self._segments else self.start_offset

    @property
    def max_timestamp_ms(self) -> int:
        """Largest timestamp of the records, or NO_TIMESTAMP."""
        return max((segment.max_timestamp_ms for segment in self._segments), default=NO_TIMESTAMP)


def replay(batch: Batch, producers: ProducerStates) -> AbortedTransaction | None:
    """Apply a batch of the log to the state of its producer; return the transaction that it aborts, or None."""
    producer_id = batch.producer_id
    if producer_id <= NO_PRODUCER_ID:
        return None
    producers.reserve(producer_id)
    if not batch.is_control:
        producers.appended(batch, batch.base_offset, batch.max_timestamp_ms)
        return None
    for offset, timestamp_ms, key, value in batch.records():
        marker = decode_control(key or b"", value, producer_id, batch.producer_epoch)
        if isinstance(marker, TransactionMarker):
            return producers.ended(marker, offset, timestamp_ms)
    return None
