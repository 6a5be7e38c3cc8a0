"""Fetching of an offset range portion by portion, without gaps, and of the timestamp of the next record to read."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from functools import partial
from typing import Any

from attrs import frozen

from groupcoord.analysis.errors import ClusterError, LogCutError, TransientClusterError, check_error
from groupcoord.analysis.live.cluster import (
    FetchedBytes,
    KafkaCluster,
    LogEnd,
    OffsetOutOfRangeError,
    Patience,
    connection,
)
from groupcoord.analysis.live.offsets import BATCH_START, OffsetRange, batch_bounds
from groupcoord.analysis.live.settings import ClusterAddress
from groupcoord.core.consumer_protocol import TopicPartition
from groupcoord.core.log.records import ZERO_UUID
from groupcoord.records.salvage import Damage, SoundBatch, salvage_batches

FETCH_BYTES = 4_194_304
"""Bytes per Fetch; a larger batch comes whole."""

DELETED = "deleted from the log before it was read"


@frozen
class Portion:
    """Contiguous batches from ``offset`` on; the last may be cut short."""

    offset: int
    batches: bytes

    def read_at(self, position: int, size: int) -> bytes:
        return self.batches[position : position + size]

    @property
    def claimed_end(self) -> int:
        """The offset after the first batch by its header, which may be corrupt."""
        return next(batch_bounds(self.batches))[1]


@frozen
class Lost:
    """Offsets deleted from the log, from ``start`` to before ``end``."""

    start: int
    end: int


class RangeFetcher:
    """Fetcher of one range."""

    def __init__(self, cluster: KafkaCluster, offset_range: OffsetRange, patience: Patience) -> None:
        self._cluster = cluster
        self._range = offset_range
        self._patience = patience
        self._owns_from = offset_range.start if offset_range.is_first else -1
        self._patience.try_for(self._find)

    def next(self, offset: int) -> Portion | Lost | None:
        """Return the batches at an offset, or the offsets deleted there; None at the end of the range."""
        while offset < self._range.end:
            found = self._patience.try_for(partial(self._fetch, offset), self._find)
            if isinstance(found, Lost):
                self._owns_from = found.end
                return found
            asked, (start, offset) = offset, self._skip(found.batches, offset)
            if start < len(found.batches):
                is_over = len(found.batches) - start >= BATCH_START.size and (
                    BATCH_START.unpack_from(found.batches, start)[0] >= self._range.end
                )
                return None if is_over else Portion(offset, found.batches[start:])
            if not found.batches:
                return None  # compaction left no record up to the end
            if offset == asked:
                raise ClusterError(f"{self._range.name_at(offset)}: the broker gives only what lies before")
        return None

    def behind(self, portion: Portion, next_offset: int | None) -> int:
        for offset in (next_offset, portion.claimed_end if len(portion.batches) >= BATCH_START.size else None):
            if offset is not None and offset > portion.offset:
                return offset
        raise ClusterError(f"{self._range.name_at(portion.offset)}: the batch is corrupt, and its end is unknown")

    def _find(self) -> None:
        metadata = self._cluster.metadata([self._range.topic])
        topic = metadata.topics.get(self._range.topic)
        if topic is None:
            raise TransientClusterError(f"topic {self._range.topic}: the cluster doesn't know it")
        if ZERO_UUID not in (topic.topic_id, self._range.topic_id) and topic.topic_id != self._range.topic_id:
            raise LogCutError(f"topic {self._range.topic} was deleted and created again")

    def _fetch(self, offset: int) -> FetchedBytes | Lost:
        where = self._range.topic_partition
        try:
            found = self._cluster.fetch_raw(where, offset, FETCH_BYTES)
        except OffsetOutOfRangeError:
            start, end = (self._end_of_log(end) for end in (LogEnd.EARLIEST, LogEnd.LATEST))
            if start > offset:
                return Lost(offset, min(start, self._range.end))
            if end < self._range.end:
                name = f"{where.topic}-{where.partition}"
                raise LogCutError(
                    f"{name} ends at offset {end}, and offset {self._range.end - 1} was there before: it was cut"
                ) from None
            raise TransientClusterError(f"{self._range.name_at(offset)}: the broker does not have it") from None
        if not found.batches and found.high_watermark < self._range.end:
            raise TransientClusterError(f"{self._range.name_at(offset)}: the broker does not give it as yet")
        return found

    def _end_of_log(self, end: LogEnd) -> int:
        where = self._range.topic_partition
        listed = self._cluster.list_offsets([where], end)[where]
        check_error(listed.error_code, where.topic, "DESCRIBE")
        return listed.offset

    def _skip(self, batches: bytes, offset: int) -> tuple[int, int]:
        """Return the position and offset of the first batch that belongs to this range."""
        position = 0
        for base_offset, next_offset, end in batch_bounds(batches):
            if offset == self._owns_from or base_offset >= offset or not position < end <= len(batches):
                break
            position, offset = end, max(offset, next_offset)
        return position, offset


def sound_batches(
    cluster: KafkaCluster, offset_range: OffsetRange, patience: Patience
) -> Iterator[SoundBatch | Damage | Lost]:
    """Yield the sound batches of a range, with damaged and deleted offsets between them."""
    fetcher = RangeFetcher(cluster, offset_range, patience)
    offset = offset_range.start
    while (portion := fetcher.next(offset)) is not None:
        if isinstance(portion, Lost):
            yield portion
            offset = portion.end
            continue
        next_offset = None
        for found in salvage_batches(portion.read_at, len(portion.batches)):
            if isinstance(found, SoundBatch):
                if found.batch.base_offset >= offset_range.end:
                    return
                next_offset = found.batch.next_offset
            elif found.end_offset is None and next_offset is not None:
                break  # perhaps only cut short: fetched again
            yield found
        offset = fetcher.behind(portion, next_offset)


WAIT_MS, BACKOFF_MS = 2_000, 100
"""Time to wait for a leader, and between attempts; without record times, samples give the lag."""

FETCHES_MAX = 8
"""Maximum number of fetches for one timestamp: batches without records, or of markers, are skipped."""

_BATCH = 1
"""Fetch size with which a broker returns one batch of any size."""


def record_times(address: ClusterAddress, behind: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Return the known timestamps of next records (``RECORD_TIMES``)."""
    patience, found = Patience(WAIT_MS, BACKOFF_MS), []
    with connection(address) as (cluster, _):
        for row in behind:
            where = TopicPartition(row["topic"], row["topic_partition"])
            at_ms = next_record_ms(cluster, patience, where, row["committed_offset"], row["end_offset"])
            if at_ms is not None:
                place = {name: row[name] for name in ("topic", "topic_partition", "committed_offset")}
                found.append(place | {"record_timestamp_ms": at_ms})
    return found


def next_record_ms(
    cluster: KafkaCluster, patience: Patience, partition: TopicPartition, offset: int, end_offset: int
) -> int | None:
    """Return the timestamp of the first record at or after an offset, in milliseconds since 1970.

    None if none is found, READ is missing, the offset is deleted, the batch is corrupt or without timestamps, or no
    broker responds.
    """
    for _ in range(FETCHES_MAX):
        if offset >= end_offset:
            return None
        try:
            found = patience.at(cluster, partition, partial(cluster.fetch_raw, partition, offset, _BATCH)).batches
        except (ClusterError, OffsetOutOfRangeError):
            return None
        one = next(salvage_batches(Portion(offset, found).read_at, len(found)), None)
        if not isinstance(one, SoundBatch) or one.batch.next_offset <= offset:
            return None
        records = () if one.batch.is_control else one.records
        record = next((record for record in records if record[0] >= offset), None)
        if record is not None:
            return record[1] if record[0] < end_offset and record[1] >= 0 else None
        offset = one.batch.next_offset
    return None
