"""The log of one partition in memory: appended to, read, cut at its start.

There is one replica, so the high watermark is the end of the log. Sources: ``UnifiedLog`` and ``LocalLog`` of Apache
Kafka 4.4, as recorded.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable
from typing import NamedTuple

from groupcoord.core.records import TransactionMarker
from groupcoord.errors import ErrorCode
from groupcoord.records.batches import encode_batch
from groupcoord.records.codec import encode_record
from groupcoord.topic_logs.errors import RefusedBatchError
from groupcoord.topic_logs.log_memory import LogMemory
from groupcoord.topic_logs.produced_batch import NO_PRODUCER_ID, ProducedBatch, check_produced, placed
from groupcoord.topic_logs.producer_states import AbortedTransaction, ProducerStates
from groupcoord.topic_logs.record_times import first_since
from groupcoord.topic_logs.segments import Segment
from groupcoord.topic_logs.settings import LEADER_EPOCH, TopicLogSettings

INDEX_INTERVAL_BYTES = 4_096
"""Kafka's ``index.interval.bytes``: it knows to this grain only where what it has read ends."""

NO_TIME = -1

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


class FoundRecord(NamedTuple):
    """A record that was looked for by its time."""

    timestamp_ms: int
    offset: int


class PartitionLog:
    """One partition's batches, and its producers.

    Args:
        memory: what it takes is counted there.

    Attributes:
        start_offset: where readers may begin.
        end_offset: the offset of the next record, and the high watermark.
        producers: what is known of those who wrote here.
        watchers: told of what happens; whoever adds itself takes itself out again.
        is_closed: the topic is gone.
    """

    __slots__ = (
        "_aborted",
        "_bases",
        "_end_position",
        "_memory",
        "_segments",
        "end_offset",
        "is_closed",
        "producers",
        "start_offset",
        "watchers",
    )

    def __init__(self, memory: LogMemory) -> None:
        self.start_offset = 0
        self.end_offset = 0
        self.is_closed = False
        self.producers = ProducerStates(memory)
        self.watchers: dict[Watcher, None] = {}
        self._memory = memory
        self._segments: list[Segment] = []
        self._bases: list[int] = []
        self._end_position = 0
        self._aborted: list[AbortedTransaction] = []

    # ------------------------------------------------------------ writing

    def append(self, batch: ProducedBatch, settings: TopicLogSettings, now_ms: int) -> Appended:
        """Append a producer's batch. One that it has sent already is not written again.

        Raises:
            RefusedBatchError: it isn't taken; see :func:`check_produced`, :meth:`ProducerStates.check`, and
                POLICY_VIOLATION if there is no memory left.
        """
        check_produced(batch, settings, now_ms)
        if batch.has_producer:
            known = self.producers.find_duplicate(batch)
            if known is not None:
                return Appended(known.base_offset, known.timestamp_ms, self.start_offset)
            self.producers.check(batch)
        segment = self._reserve(len(batch.data), batch.producer_id)
        append_time_ms = now_ms if settings.uses_append_time else None
        timestamp_ms = batch.max_timestamp_ms if append_time_ms is None else append_time_ms
        base_offset = self.end_offset
        data = placed(batch, base_offset, LEADER_EPOCH, append_time_ms)
        if batch.has_producer:
            self.producers.appended(batch, base_offset, timestamp_ms)
        self._add(segment, data, base_offset + batch.last_offset_delta + 1, timestamp_ms)
        return Appended(base_offset, NO_TIME if append_time_ms is None else append_time_ms, self.start_offset)

    def append_marker(self, marker: TransactionMarker, now_ms: int) -> ErrorCode:
        """Append the end of a producer's transaction, whether or not one is open.

        Returns:
            NONE; INVALID_PRODUCER_EPOCH or TRANSACTION_COORDINATOR_FENCED if it is out of date; KAFKA_STORAGE_ERROR
            if there is no memory left.
        """
        producer_id, epoch, coordinator_epoch = marker.producer_id, marker.producer_epoch, marker.coordinator_epoch
        error_code = self.producers.check_marker(producer_id, epoch, coordinator_epoch)
        if error_code is not ErrorCode.NONE:
            return error_code
        key, value = encode_record(marker)
        offset = self.end_offset
        data = encode_batch(
            offset,
            [(key, value, now_ms)],
            leader_epoch=LEADER_EPOCH,
            producer_id=producer_id,
            producer_epoch=epoch,
            is_transactional=True,
            is_control=True,
        )
        try:
            segment = self._reserve(len(data), producer_id, is_marker=True)
        except RefusedBatchError:
            return ErrorCode.KAFKA_STORAGE_ERROR
        first_offset = self.producers.ended(producer_id, epoch, coordinator_epoch, now_ms)
        if first_offset is not None and not marker.committed:
            first_open = self.producers.first_open_offset()
            stable = offset + 1 if first_open is None else first_open
            self._aborted.append(AbortedTransaction(producer_id, first_offset, offset, stable))
        self._add(segment, data, offset + 1, now_ms)
        return ErrorCode.NONE

    def _reserve(self, size_bytes: int, producer_id: int, *, is_marker: bool = False) -> Segment:
        """Have memory for a batch and for its producer, if it has one; return where it goes.

        Raises:
            RefusedBatchError: there is none left.
        """
        is_newcomer = producer_id > NO_PRODUCER_ID and self.producers.reserve(producer_id, is_marker=is_marker)
        segment = self._segments[-1] if self._segments else None
        if segment is None or not segment.has_room(size_bytes):
            segment = Segment(self.end_offset, self._end_position, self._memory)
        try:
            segment.reserve(size_bytes, is_marker=is_marker)
        except RefusedBatchError:
            if is_newcomer:
                self.producers.forget(producer_id)
            raise
        return segment

    def _add(self, segment: Segment, data: bytes | bytearray, next_offset: int, timestamp_ms: int) -> None:
        if not segment.positions:
            self._segments.append(segment)
            self._bases.append(segment.base_offset)
        segment.append(data, self.end_offset, next_offset, timestamp_ms)
        self.end_offset = next_offset
        self._end_position += len(data)
        self._tell()

    def _tell(self) -> None:
        for watcher in list(self.watchers):
            watcher(self)

    # ------------------------------------------------------------ the start, and the end

    def delete_before(self, offset: int) -> int:
        """Let the log start at an offset, at most its end, unless it starts later already.

        Returns:
            Where it starts.
        """
        if offset > self.start_offset:
            self.start_offset = offset
            gone = bisect_right([segment.next_offset for segment in self._segments], offset)
            self._drop(gone)
            del self._aborted[: bisect_left(self._aborted, offset, key=_last_offset)]
            self._tell()
        return self.start_offset

    def _drop(self, count: int) -> None:
        for segment in self._segments[:count]:
            segment.release()
        del self._segments[:count], self._bases[:count]

    def close(self) -> None:
        """Give back everything: the topic is gone."""
        self.is_closed = True
        self._drop(len(self._segments))
        self.producers.clear()
        self._tell()

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
        """
        number = self._number(offset)
        if offset >= end_offset or number is None:
            return ReadBatches()
        segment = self._segments[number]
        place = segment.place_of(offset)
        position = segment.positions[place]
        first_bytes = segment.end_of(place) - position
        if first_bytes > bytes_max and not takes_first:
            return ReadBatches()
        limit = position + max(bytes_max, first_bytes)
        parts: list[memoryview] = []
        for segment in self._segments[number:]:
            end = min(segment.end_before(end_offset), limit)
            if end <= position:
                break
            parts.append(segment.view(position, end))
            position = end
        aborted = self._aborted_between(offset, min(self._index_end(position), end_offset)) if lists_aborted else ()
        return ReadBatches(tuple(parts), sum(map(len, parts)), aborted)

    def readable_bytes(self, offset: int, end_offset: int) -> int:
        """Return how many bytes there are from the batch that holds an offset up to another offset."""
        return max(self._position(end_offset) - self._position(offset), 0)

    def _number(self, offset: int) -> int | None:
        """Return which segment holds an offset; None if it is the end."""
        return bisect_right(self._bases, offset) - 1 if self._segments and offset < self.end_offset else None

    def _position(self, offset: int) -> int:
        number = self._number(offset)
        if number is None:
            return self._end_position
        segment = self._segments[number]
        return segment.positions[segment.place_of(offset)]

    def _index_end(self, position: int) -> int:
        """Return the offset that a grain of Kafka's index behind a position begins with."""
        position += INDEX_INTERVAL_BYTES
        if position >= self._end_position:
            return self.end_offset
        segment = self._segments[bisect_right(self._segments, position, key=_base_position) - 1]
        return segment.next_after(bisect_left(segment.positions, position) - 1)

    def _aborted_between(self, offset: int, end_offset: int) -> tuple[AbortedTransaction, ...]:
        found = []
        aborted = self._aborted
        for number in range(bisect_left(aborted, offset, key=_last_offset), len(aborted)):
            transaction = aborted[number]
            if transaction.first_offset < end_offset:
                found.append(transaction)
            if transaction.last_stable_offset >= end_offset:
                break
        return tuple(found)

    # ------------------------------------------------------------ by time

    def find_time(self, timestamp_ms: int) -> FoundRecord | None:
        """Return the first record that has this time or a later one.

        Raises:
            RefusedBatchError: UNKNOWN_SERVER_ERROR, the records of a batch can't be read.
        """
        for segment in self._segments:
            if segment.max_timestamp_ms >= timestamp_ms:
                for place in segment.places_since(timestamp_ms, self.start_offset):
                    found = first_since(segment.batch(place), timestamp_ms, self.start_offset)
                    if found is not None:
                        return FoundRecord(*found)
        return None

    def find_max_time(self) -> FoundRecord | None:
        """Return the first of the records with the largest time; None if there is no record with a time.

        Raises:
            RefusedBatchError: UNKNOWN_SERVER_ERROR, the records of a batch can't be read.
        """
        if not self._segments:
            return None
        largest_ms = max(segment.max_timestamp_ms for segment in self._segments)
        return None if largest_ms == NO_TIME else self.find_time(largest_ms)


def _base_position(segment: Segment) -> int:
    return segment.base_position


def _last_offset(transaction: AbortedTransaction) -> int:
    return transaction.last_offset
