"""Offsets of a topic in a running cluster: log start and end offsets, and fetching of offset ranges without gaps.

A range owns each batch with a base offset in it, so ranges can be cut at any offset and read independently. Its size
does not follow from its offsets, since compaction removes records. So logs of many offsets are probed before they are
cut.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import suppress
from functools import partial
from itertools import pairwise
from struct import Struct
from typing import Any, NamedTuple
from uuid import UUID

from attrs import evolve, frozen

from groupcoord.analysis.errors import (
    TRANSIENT,
    ClusterError,
    InputError,
    LogCutError,
    TransientClusterError,
    check_error,
)
from groupcoord.analysis.live.cluster import (
    NO_BROKER,
    ClusterMetadata,
    FetchedBytes,
    KafkaCluster,
    LogEnd,
    OffsetOutOfRangeError,
    Patience,
    TopicMetadata,
    connection,
)
from groupcoord.analysis.live.settings import ClusterAddress
from groupcoord.core.consumer_protocol import TopicPartition
from groupcoord.core.log.records import ZERO_UUID
from groupcoord.errors import ErrorCode
from groupcoord.records.salvage import Damage, SoundBatch, salvage_batches


class PartitionEnds(NamedTuple):
    """Start and end offsets of a partition.

    Attributes:
        topic_partition: its partition; None if the whole topic is unknown.
        log_start_offset: first offset of the log; None if unknown, as the next two.
        last_stable_offset: first offset of an open transaction, or the high watermark.
        leader_epoch: leader epoch of the log; -1 if unknown.
    """

    topic: str
    topic_partition: int | None
    at_ms: int
    log_start_offset: int | None
    end_offset: int | None
    last_stable_offset: int | None
    leader_epoch: int
    error_code: int


def list_ends(
    cluster: KafkaCluster, patience: Patience, topics: Collection[str] | None, now_ms: Callable[[], int]
) -> list[PartitionEnds]:
    """Return the ends of topics' partitions, from three ListOffsets requests to each broker.

    A partition without a leader, or without a response within :data:`groupcoord.analysis.live.cluster.SETTLE_MS`, is a
    row with an error.
    """

    def ask() -> list[PartitionEnds]:
        metadata = cluster.metadata(None if topics is None else sorted(topics))
        return list(_rows(cluster, metadata, now_ms))

    return patience.collect(ask, lambda rows: not any(map(_may_settle, rows)))


def _may_settle(row: PartitionEnds) -> bool:
    has_leader = row.error_code != ErrorCode.LEADER_NOT_AVAILABLE
    return row.topic_partition is not None and has_leader and row.error_code in TRANSIENT


def _rows(cluster: KafkaCluster, metadata: ClusterMetadata, now_ms: Callable[[], int]) -> Iterator[PartitionEnds]:
    wanted = [TopicPartition(name, number) for name, topic in metadata.topics.items() for number in topic.leaders]
    starts = cluster.list_offsets(wanted, LogEnd.EARLIEST)
    stable = cluster.list_offsets(wanted, LogEnd.LATEST, is_stable=True)
    at_ms = now_ms()
    ends = cluster.list_offsets(wanted, LogEnd.LATEST)
    for name, error_code in metadata.errors.items():
        yield PartitionEnds(name, None, at_ms, None, None, None, -1, error_code)
    for one in sorted(wanted):
        listed = (starts[one], ends[one], stable[one])
        error = next((answer.error_code for answer in listed if answer.error_code != ErrorCode.NONE), ErrorCode.NONE)
        start, end, last_stable = (None if answer.error_code else answer.offset for answer in listed)
        epoch = ends[one].leader_epoch
        yield PartitionEnds(one.topic, one.partition, at_ms, start, end, last_stable, epoch, int(error))


SPLIT_BYTES = 67_108_864
PROBED_OFFSETS_MIN = 100_000
"""Logs of fewer offsets are not probed, and count as an eighth of a task."""

PROBES = 8
PROBE_BYTES = 65_536

BATCH_START = Struct(">qi11xi")
_LOG_OVERHEAD_BYTES = 12


def batch_bounds(batches: bytes) -> Iterator[tuple[int, int, int]]:
    """Yield base offset, next offset and end position of each batch by its header, which may be corrupt."""
    position = 0
    while position + BATCH_START.size <= len(batches):
        base_offset, length, delta = BATCH_START.unpack_from(batches, position)
        position += length + _LOG_OVERHEAD_BYTES
        yield base_offset, base_offset + delta + 1, position


@frozen
class OffsetRange:
    """Offsets of one log partition, from ``start`` to before ``end``.

    Attributes:
        is_first: it also owns the batch around ``start``, the log start.
        size_bytes: approximate size; 0 if unknown.
    """

    cluster_id: str
    topic: str
    topic_id: UUID
    partition: int
    start: int
    end: int
    is_first: bool = False
    size_bytes: int = 0

    @property
    def topic_partition(self) -> TopicPartition:
        return TopicPartition(self.topic, self.partition)

    def name_at(self, offset: int) -> str:
        """Return the value of the column ``file``."""
        return f"kafka://{self.cluster_id}/{self.topic}-{self.partition}@{offset}"


@frozen
class TopicEnds:
    """A topic with the start and end offsets of its logs by partition."""

    cluster_id: str
    topic: TopicMetadata
    starts: dict[int, int]
    ends: dict[int, int]
    leaderless: tuple[int, ...] = ()

    def range(self, partition: int, start: int, end: int) -> OffsetRange:
        is_first = start <= self.starts[partition]
        return OffsetRange(
            self.cluster_id, self.topic.name, self.topic.topic_id, partition, start, end, is_first=is_first
        )

    def whole(self) -> list[OffsetRange]:
        bounds = ((partition, start, self.ends[partition]) for partition, start in self.starts.items())
        return [self.range(partition, start, end) for partition, start, end in bounds if start < end]


def check_readable(cluster: KafkaCluster, patience: Patience, ends: TopicEnds) -> None:
    """Raise an error if a topic may be described but not read, by fetching one batch."""
    partition = min(ends.ends)
    for one in ends.whole()[:1] or [ends.range(partition, ends.starts[partition], 0)]:
        with suppress(OffsetOutOfRangeError):
            patience.at(cluster, one.topic_partition, partial(cluster.fetch_raw, one.topic_partition, one.start, 1))


def topic_ends(
    cluster: KafkaCluster,
    patience: Patience,
    topic: str,
    partitions: Collection[int] = (),
    *,
    may_lack: bool = False,
) -> TopicEnds:
    def ask() -> TopicEnds:
        metadata = cluster.metadata([topic])
        error = metadata.errors.get(topic, ErrorCode.NONE)
        if error == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
            raise InputError(f"the cluster has no topic {topic}")
        check_error(error, topic, "DESCRIBE")
        found = metadata.topics[topic]
        missing = sorted(set(partitions) - set(found.leaders))
        if missing:
            raise InputError(f"topic {topic} has no partition {missing[0]}")
        numbers = sorted(partitions or found.leaders)
        led = [number for number in numbers if found.leaders[number] != NO_BROKER] if may_lack else numbers
        wanted = [TopicPartition(topic, number) for number in led or numbers]
        starts, ends = (_listed(cluster, wanted, end) for end in (LogEnd.EARLIEST, LogEnd.LATEST))
        return TopicEnds(metadata.cluster_id, found, starts, ends, tuple(sorted(set(numbers) - ends.keys())))

    return patience.try_for(ask)


def _listed(cluster: KafkaCluster, wanted: Collection[TopicPartition], end: LogEnd) -> dict[int, int]:
    listed = cluster.list_offsets(wanted, end)
    for one in wanted:
        check_error(listed[one].error_code, one.topic, "DESCRIBE")
    return {one.partition: listed[one].offset for one in wanted}


def plan(
    cluster: KafkaCluster, patience: Patience, ranges: Iterable[OffsetRange], split_bytes: int = SPLIT_BYTES
) -> list[list[OffsetRange]]:
    """Cut ranges into tasks of about ``split_bytes``; small ones share a task."""
    tasks: list[list[OffsetRange]] = []
    room = 0
    for whole in ranges:
        for piece in _cut(cluster, patience, whole, split_bytes):
            if not tasks or piece.size_bytes > room:
                tasks.append([])
                room = split_bytes
            tasks[-1].append(piece)
            room -= piece.size_bytes
    return tasks


def _cut(cluster: KafkaCluster, patience: Patience, whole: OffsetRange, split_bytes: int) -> Iterator[OffsetRange]:
    if whole.end - whole.start < PROBED_OFFSETS_MIN:
        yield evolve(whole, size_bytes=split_bytes // PROBES)
        return
    bounds = [whole.start + (whole.end - whole.start) * number // PROBES for number in range(PROBES + 1)]
    held: list[OffsetRange] = []
    for start, end in pairwise(bounds):
        look = partial(_density, cluster, whole, start, end)
        density = patience.at(cluster, whole.topic_partition, look)
        size_bytes = int(density * (end - start))
        pieces = max(1, min(round(size_bytes / split_bytes), end - start))
        cuts = [start + (end - start) * number // pieces for number in range(pieces + 1)]
        for first, last in pairwise(cuts):
            is_first = whole.is_first and first == whole.start
            piece = evolve(whole, start=first, end=last, is_first=is_first, size_bytes=size_bytes // pieces)
            if held and sum(one.size_bytes for one in held) + piece.size_bytes > split_bytes:
                yield _joined(held)
                held = []
            held.append(piece)
    yield _joined(held)


def _joined(pieces: list[OffsetRange]) -> OffsetRange:
    return evolve(pieces[0], end=pieces[-1].end, size_bytes=sum(piece.size_bytes for piece in pieces))


def _density(cluster: KafkaCluster, whole: OffsetRange, start: int, end: int) -> float:
    """Return the bytes per offset at the start of a range, by a small fetch."""
    try:
        found = cluster.fetch_raw(whole.topic_partition, start, PROBE_BYTES).batches
    except OffsetOutOfRangeError:
        return 0.0  # deleted meanwhile, which the reader reports
    size_bytes, reached = 0, start
    for base_offset, next_offset, position in batch_bounds(found):
        if base_offset >= end or position <= size_bytes:
            break
        size_bytes, reached = position, max(next_offset, reached + 1)
    return size_bytes / max(reached - start, 1)


OFFSETS_RETENTION = "offsets.retention.minutes"


def offsets_retention_minutes(cluster: KafkaCluster, patience: Patience) -> int | None:
    """Return the offset retention; None if the user may not read it."""

    def ask() -> str | None:
        return cluster.describe_configs(cluster.brokers()[0], [OFFSETS_RETENTION]).get(OFFSETS_RETENTION)

    try:
        value = patience.try_for(ask)
    except TransientClusterError:
        raise
    except ClusterError:
        return None
    return int(value) if value is not None and value.isdecimal() else None


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
        # The header may be corrupt.
        ends = [next(batch_bounds(portion.batches))[1]] if len(portion.batches) >= BATCH_START.size else []
        for offset in (next_offset, *ends):
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
