"""The log of one partition in memory: appended to, read, cut at its start.

There is one replica, so the high watermark is the end of the log. Sources: ``UnifiedLog`` and ``LocalLog`` of Apache
Kafka 4.4, as recorded.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Sequence
from typing import NamedTuple, Protocol

from groupcoord.core.fast_construct import maker
from groupcoord.core.log.records import NO_PRODUCER_ID, NO_TIMESTAMP, TransactionMarker
from groupcoord.errors import ErrorCode
from groupcoord.records.batches import TRANSACTIONAL, Batch, encode_batch
from groupcoord.records.codec import decode_control, encode_record
from groupcoord.storage.cleaned_transactions import AbortedTransaction
from groupcoord.storage.errors import FailedLogError, RefusedBatchError, TopicLogError
from groupcoord.storage.leader_epochs import EpochEnd, LeaderEpochs
from groupcoord.storage.log_memory import LogMemory
from groupcoord.storage.log_settings import DEFAULT_SETTINGS, TopicLogSettings
from groupcoord.storage.memory_segment import MemorySegment
from groupcoord.storage.produced_batch import ProducedBatch, check_produced, placed
from groupcoord.storage.producer_states import ProducerStates
from groupcoord.storage.segment import INDEX_INTERVAL_BYTES, Pieces, Place, Segment

Watcher = Callable[["PartitionLog"], None]
"""Is told that a log has grown, or that its last stable offset has, or that it is gone."""


class Appended(NamedTuple):
    """Where a batch stands.

    Attributes:
        log_append_time_ms: the time it got, -1 if it kept its own; of a repetition its largest timestamp.
    """

    base_offset: int
    log_append_time_ms: int
    log_start_offset: int


class ReadBatches(NamedTuple):
    """What was read: whole batches, but that the last one is cut where the limit is.

    Attributes:
        parts: the bytes, in pieces.
        size_bytes: how many there are.
        aborted: transactions that begin and end among them, or around, and were aborted.
    """

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
"""Of the lower byte of a batch's attributes, which has all that are used."""

_make_appended, _make_write = maker(Appended), maker(Write)


class Compaction(Protocol):
    """Somebody who rewrites segments of a log, between requests."""

    def give_up(self) -> None:
        """Leave the log as it is: its segments are about to go."""


class PartitionLog:
    """One partition's batches in memory, and its producers.

    Args:
        memory: what it takes is counted there.

    Attributes:
        start_offset: where readers may begin.
        end_offset: the offset of the next record, and the high watermark.
        epochs: of the leaders under whom its records were written.
        leader_epoch: which batches name: the latest of them.
        memory: where what it takes is counted.
        producers: what is known of those who wrote here.
        watchers: told of what happens; whoever adds itself takes itself out again.
        is_closed: the topic is gone.
        failure: why it can't be used any more, if so.
        compaction: who compacts it at the moment.
    """

    compaction: Compaction | None = None

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
        self._rolled_bytes = 0  # of what is one segment for Kafka, which is written to
        self._first_timestamp_ms = NO_TIMESTAMP  # of its first batch

    # ------------------------------------------------------------ writing

    def append(
        self, batch: ProducedBatch, settings: TopicLogSettings, now_ms: int, *, is_checked: bool = False
    ) -> Appended:
        """Append a producer's batch. One that it has sent already is not written again.

        Args:
            batch: the batch.
            settings: of the log's topic.
            now_ms: the time.
            is_checked: :func:`check_produced` was called already, and has taken it.

        Raises:
            RefusedBatchError: it isn't taken; see :func:`check_produced`, :meth:`ProducerStates.check`,
                POLICY_VIOLATION if there is no memory left, and KAFKA_STORAGE_ERROR if there is no disk.
            FailedLogError: whether it was written can't be told.
        """
        if not is_checked:
            check_produced(batch, settings, now_ms)
        if len(batch.data) > settings.segment_bytes:
            reason = f"a batch of {len(batch.data)} bytes is larger than segment.bytes ({settings.segment_bytes})"
            raise RefusedBatchError(ErrorCode.RECORD_LIST_TOO_LARGE, reason, tells_start=False)
        if batch.has_producer:
            known = self.producers.find_duplicate(batch)
            if known is not None:
                return Appended(known.base_offset, known.timestamp_ms, self.start_offset)
            self.producers.check(batch)
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
        """Append the end of a producer's transaction, whether or not one is open.

        Returns:
            NONE; INVALID_PRODUCER_EPOCH or TRANSACTION_COORDINATOR_FENCED if it is out of date; KAFKA_STORAGE_ERROR
            if there is no memory left, or no disk.
        """
        producer_id, epoch, coordinator_epoch = marker.producer_id, marker.producer_epoch, marker.coordinator_epoch
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
        """Append a batch that was made for this place: it names the log's end, and its leader's epoch.

        Args:
            data: the batch.
            record_count: how many records it holds, one at each offset.
            now_ms: the time of the newest of them.
            settings: of the log's topic.

        Returns:
            The offset of the first record.

        Raises:
            RefusedBatchError: there is no room, or no disk; nothing has changed.
            FailedLogError: whether it was written can't be told.
        """
        offset = self.end_offset
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
        """Note what a batch that was written says of its producer's transaction."""
        aborted = replay(batch, self.producers)
        if aborted is not None:
            try:
                self._segments[-1].add_aborted(aborted)
            except FailedLogError as error:
                self._trouble(error)
                raise

    def _write(self, write: Write, settings: TopicLogSettings, now_ms: int) -> None:
        """Write a batch, and have room for its producer, if it has one.

        Raises:
            RefusedBatchError: there is no room; nothing has changed.
            FailedLogError: whether it was written can't be told.
        """
        producer_id, is_marker = write.producer_id, write.is_marker
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
        """Return where a batch goes: the last segment, or a new one."""
        last = self._segments[-1] if self._segments else None
        if last is None or self._is_full(last, write, settings):
            self._roll(settings)
        elif not last.has_room(write.size_bytes):
            self._begin(MemorySegment(self.end_offset, self.memory, goes_on=True))
        return self._segments[-1]

    def _is_full(self, last: Segment, write: Write, settings: TopicLogSettings) -> bool:
        """Tell whether a batch begins a new segment: by size, or by the age of the first batch."""
        if not self._rolled_bytes:
            return False
        first_ms = self._first_timestamp_ms
        is_old = first_ms >= 0 and write.max_timestamp_ms - first_ms > settings.roll_ms
        return is_old or self._rolled_bytes + write.size_bytes > settings.segment_bytes

    def _roll(self, settings: TopicLogSettings) -> None:
        """Begin a new segment.

        Raises:
            RefusedBatchError: it can't be made.
            FailedLogError: what was written before can't be made durable.
        """
        self._begin(MemorySegment(self.end_offset, self.memory))

    def _begin(self, segment: Segment) -> None:
        self._segments.append(segment)
        self._bases.append(segment.base_offset)
        if not segment.goes_on:
            self._rolled_bytes = 0

    def _trouble(self, error: TopicLogError) -> None:
        """Something could not be written."""

    def _tell(self) -> None:
        for watcher in list(self.watchers):
            watcher(self)

    # ------------------------------------------------------------ leaders

    def begin_epoch(self, leader_epoch: int) -> None:
        """Have batches name a leader's epoch from now on; nothing happens if it isn't a newer one.

        Watchers are told, since fetches that wait may have to ask another node.
        """
        if leader_epoch > self.leader_epoch:
            self.epochs.begin(leader_epoch, self.end_offset)
            self.leader_epoch = leader_epoch
            self._tell()

    def end_of_epoch(self, leader_epoch: int) -> EpochEnd | None:
        """Return the last leader's epoch up to one, and where its records end; None if no such epoch is known yet."""
        return self.epochs.end_of(leader_epoch, self.end_offset)

    # ------------------------------------------------------------ the start, and the end

    def delete_before(self, offset: int) -> int:
        """Let the log start at an offset, at most its end, unless it starts later already.

        Returns:
            Where it starts.

        Raises:
            FailedLogError: that can't be written.
        """
        if offset > self.start_offset:
            self._start_at(offset)
            self._tell()
        return self.start_offset

    def _start_at(self, offset: int) -> None:
        self.start_offset = offset
        self.epochs.trim(offset, self.end_offset)
        self._drop(bisect_right([segment.next_offset for segment in self._segments], offset))

    def retain(self, settings: TopicLogSettings, now_ms: int) -> int:
        """Delete the oldest segments, as far as retention allows.

        Returns:
            How many bytes are gone.

        Raises:
            TopicLogError: a file can't be deleted, or written.
        """
        if not settings.is_deleted:
            return 0
        groups = self.groups()
        sizes = [sum(segment.size_bytes for segment in group) for group in groups]
        excess_bytes = sum(sizes) - settings.retention_bytes
        count = 0
        deletable = len(groups) if sizes and sizes[-1] else len(groups) - 1  # an empty last one is to be written to
        while settings.retention_bytes >= 0 and count < deletable and excess_bytes >= sizes[count]:
            excess_bytes -= sizes[count]
            count += 1
        for number in range(count, deletable) if settings.retention_ms >= 0 else ():
            if not sizes[number]:
                continue  # compaction has emptied it: it goes with what comes behind it
            if now_ms - _age_from(groups[number], now_ms) <= settings.retention_ms:
                break
            count = number + 1
        if not count:
            return 0
        if count == len(groups):
            self._roll(settings)
        self._start_at(max(groups[count - 1][-1].next_offset, self.start_offset))
        self._tell()
        return sum(sizes[:count])

    def groups(self) -> list[list[Segment]]:
        """Return the segments, those together that are one for Kafka."""
        groups: list[list[Segment]] = []
        for segment in self._segments:
            if not segment.goes_on or not groups:
                groups.append([])
            groups[-1].append(segment)
        return groups

    def replace(self, old: Sequence[Segment], new: Segment) -> None:
        """Put a segment that compaction has made in the place of some others that follow each other."""
        first = self._segments.index(old[0])
        self._segments[first : first + len(old)] = [new]
        self._bases[first : first + len(old)] = [new.base_offset]

    @property
    def segments(self) -> Sequence[Segment]:
        """All of them; records are appended to the last."""
        return self._segments

    def _interrupt(self) -> None:
        """Whoever compacts the log has to give up: segments go."""
        if self.compaction is not None:
            self.compaction.give_up()
            self.compaction = None

    def _drop(self, count: int) -> None:
        if count:
            self._interrupt()
        for segment in self._segments[:count]:
            segment.release()
        del self._segments[:count], self._bases[:count]

    def close(self) -> None:
        """Give back everything: the topic is gone."""
        self.is_closed = True
        self._drop(len(self._segments))
        self.producers.clear()
        self._tell()

    def check(self) -> None:
        """Look whether what was written is as it was left, and fail if not."""

    def flush_due(self, settings: TopicLogSettings, now_ms: int) -> int | None:
        """Make durable what was written ``flush.ms`` ago or earlier.

        Returns:
            When that is wanted again; None: not for anything that was written yet.

        Raises:
            FailedLogError: the disk has failed.
        """

    def shut(self) -> bool:
        """The process ends.

        Returns:
            True if the log can be opened again as it is.
        """
        return True

    # ------------------------------------------------------------ reading

    @property
    def last_stable_offset(self) -> int:
        """Where the oldest open transaction begins; the high watermark if none is open."""
        first_open = self.producers.first_open_offset()
        return self.end_offset if first_open is None else max(first_open, self.start_offset)

    def read(
        self, offset: int, end_offset: int, bytes_max: int, *, takes_first: bool, lists_aborted: bool = False
    ) -> ReadBatches:
        """Read batches from the one that holds an offset on.

        Args:
            offset: where to begin; not before the start, nor beyond the end.
            end_offset: where to stop at the latest: the high watermark or the last stable offset.
            bytes_max: how much to read.
            takes_first: read the first batch even if it is larger than that.
            lists_aborted: look for aborted transactions, too.

        Raises:
            FailedLogError: the files can't be read.
        """
        found = self._find(offset, bytes_max) if offset < end_offset else None
        if found is None:
            return ReadBatches()
        number, (position, first_end, read) = found
        if first_end - position > bytes_max and not takes_first:
            return ReadBatches()
        left = max(bytes_max, first_end - position)
        parts: list[memoryview] = []
        for segment in self._segments[number:]:
            end = min(segment.end_before(end_offset), position + left)
            if end <= position:
                if segment.size_bytes:
                    break
                continue  # compaction has emptied it
            is_read = not parts and len(read) >= end - position
            parts.append(read[: end - position] if is_read else segment.view(position, end))
            left -= end - position
            position = 0
        size_bytes = sum(map(len, parts))
        aborted: tuple[AbortedTransaction, ...] = ()
        if lists_aborted:
            index_end = self._index_end(number, found[1].position + size_bytes)
            aborted = self._aborted_between(number, offset, min(index_end, end_offset))
        return ReadBatches(tuple(parts), size_bytes, aborted)

    def readable_bytes(self, offset: int, end_offset: int) -> int:
        """Return how many bytes there are from the batch that holds an offset up to another offset.

        Raises:
            FailedLogError: the files can't be read.
        """
        found = self._find(offset) if offset < end_offset else None
        if found is None:
            return 0
        number, place = found
        ends = sum(segment.end_before(end_offset) for segment in self._segments[number:])
        return max(ends - place.position, 0)

    def _find(self, offset: int, ahead_bytes: int = 0) -> tuple[int, Place] | None:
        """Return the segment, and where in it the batch is, that holds an offset; None if it is the end.

        Args:
            offset: the offset.
            ahead_bytes: so much will be read from there on.
        """
        if offset >= self.end_offset:
            return None
        for number in range(max(bisect_right(self._bases, offset) - 1, 0), len(self._segments)):
            place = self._segments[number].place_of(offset, ahead_bytes)
            if place is not None:
                return number, place
        return None

    def _index_end(self, number: int, position: int) -> int:
        """Return the offset that a grain of Kafka's index behind a position of a segment begins with."""
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
            for place in range(bisect_left(aborted, offset, key=_last_offset), len(aborted)):
                transaction = aborted[place]
                if transaction.first_offset < end_offset:
                    found.append(transaction)
                if transaction.last_stable_offset >= end_offset:
                    return tuple(found)
        return tuple(found)

    # ------------------------------------------------------------ by time

    def batch_since(self, timestamp_ms: int, offset: int) -> bytes | None:
        """Return the first batch with a time not before this one that reaches beyond an offset; None if there is none.

        Which of its records has that time, if one has, tells :func:`~groupcoord.storage.record_times.first_since`.

        Raises:
            FailedLogError: the files can't be read.
        """
        for segment in self._segments:
            if segment.next_offset > offset and segment.max_timestamp_ms >= timestamp_ms:
                for data in segment.batches_since(timestamp_ms, offset):
                    if Batch(data, 0, 0).next_offset > offset:
                        return bytes(data)
        return None

    @property
    def base_offset(self) -> int:
        """The offset with which the first segment begins: at most :attr:`start_offset`."""
        return self._segments[0].base_offset if self._segments else self.start_offset

    @property
    def max_timestamp_ms(self) -> int:
        """The largest time of a record; NO_TIMESTAMP if there is no record with a time."""
        return max((segment.max_timestamp_ms for segment in self._segments), default=NO_TIMESTAMP)


def replay(batch: Batch, producers: ProducerStates) -> AbortedTransaction | None:
    """Learn what a batch of the log says of its producer.

    Returns:
        The transaction that it aborts, if it does.

    Raises:
        RefusedBatchError: POLICY_VIOLATION, there is no memory for the producer.
        CorruptBatchError: it is a control batch whose records don't fit.
    """
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


def _age_from(group: list[Segment], now_ms: int) -> int:
    """Return from when on the age of records counts: the largest timestamp; where there is none they stay young."""
    largest_ms = max(segment.max_timestamp_ms for segment in group)
    return now_ms if largest_ms == NO_TIMESTAMP else largest_ms


def _last_offset(transaction: AbortedTransaction) -> int:
    return transaction.last_offset
