"""A range of offsets, portion by portion: whatever happens meanwhile, nothing of it is left out without a word."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from struct import Struct

from attrs import frozen

from groupcoord.analysis.live.cluster import FetchedBytes, LiveCluster, LogEnd, OffsetOutOfRangeError
from groupcoord.analysis.live.errors import ClusterError, LogCutError, TransientClusterError, check_error
from groupcoord.analysis.live.offset_ranges import OffsetRange
from groupcoord.analysis.live.retries import Patience
from groupcoord.core.log.records import ZERO_UUID
from groupcoord.records.salvage import Damage, SoundBatch, salvage_batches

FETCH_BYTES = 4_194_304
"""How much to ask for at a time; a larger batch comes whole."""

DELETED = "deleted from the log before it was read"

_BATCH_START = Struct(">qi11xi")
"""A batch's first offset, its length, and from the first slot to the last; in between what doesn't matter here."""

_LOG_OVERHEAD_BYTES = 12


@frozen
class Portion:
    """Batches that lie back to back.

    Attributes:
        offset: from which on they were asked for.
        batches: the bytes, from the first batch that belongs to the range; the last may be cut short.
    """

    offset: int
    batches: bytes

    def read_at(self, position: int, size: int) -> bytes:
        """Return some of the bytes."""
        return self.batches[position : position + size]

    @property
    def claimed_end(self) -> int:
        """The offset behind the first batch, as its header has it, which may be damaged."""
        base_offset, _, delta = _BATCH_START.unpack_from(self.batches)
        return int(base_offset + delta + 1)


@frozen
class Lost:
    """Offsets that are gone from the log: from ``start`` to before ``end``."""

    start: int
    end: int


class RangeFetcher:
    """Fetches one range.

    Args:
        cluster: that has the log.
        offset_range: what to fetch.
        patience: how long to try where nothing comes.

    Raises:
        LogCutError: another topic has the name of the range's.
    """

    def __init__(self, cluster: LiveCluster, offset_range: OffsetRange, patience: Patience) -> None:
        self._cluster = cluster
        self._range = offset_range
        self._patience = patience
        self._owns_from = offset_range.start if offset_range.is_first else -1
        self._patience.try_for(self._find)

    def next(self, offset: int) -> Portion | Lost | None:
        """Return what lies at an offset and behind; None: nothing more in this range.

        Raises:
            LogCutError: the log ends before the range does.
            ClusterError: the cluster does not give it, for longer than patience lasts.
        """
        while offset < self._range.end:
            found = self._patience.try_for(partial(self._fetch, offset), self._find)
            if isinstance(found, Lost):
                self._owns_from = found.end
                return found
            asked, (start, offset) = offset, self._skip(found.batches, offset)
            if start < len(found.batches):
                is_over = len(found.batches) - start >= _BATCH_START.size and (
                    _BATCH_START.unpack_from(found.batches, start)[0] >= self._range.end
                )
                return None if is_over else Portion(offset, found.batches[start:])
            if not found.batches:
                return None  # compaction has left nothing up to the end
            if offset == asked:
                raise ClusterError(f"{self._range.name_at(offset)}: the broker gives only what lies before")
        return None

    def behind(self, portion: Portion, next_offset: int | None) -> int:
        """Return from where on to go on behind a portion.

        Args:
            portion: what was read.
            next_offset: of the last sound batch in it; None: there was none.

        Raises:
            ClusterError: it is so damaged that nobody can tell.
        """
        for offset in (next_offset, portion.claimed_end if len(portion.batches) >= _BATCH_START.size else None):
            if offset is not None and offset > portion.offset:
                return offset
        raise ClusterError(
            f"{self._range.name_at(portion.offset)}: the batch is damaged, and does not tell where it ends"
        )

    def _find(self) -> None:
        metadata = self._cluster.metadata([self._range.topic])
        topic = metadata.topics.get(self._range.topic)
        if topic is None:
            raise TransientClusterError(f"topic {self._range.topic}: the cluster doesn't know it")
        if ZERO_UUID not in (topic.topic_id, self._range.topic_id) and topic.topic_id != self._range.topic_id:
            raise LogCutError(f"topic {self._range.topic} was deleted, and made again")

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
        """Return where the first batch of this range starts, behind those that begin before it, and its offset."""
        position = 0
        while offset != self._owns_from and position + _BATCH_START.size <= len(batches):
            base_offset, length, delta = _BATCH_START.unpack_from(batches, position)
            end = position + length + _LOG_OVERHEAD_BYTES
            if base_offset >= offset or not position < end <= len(batches):
                break
            position, offset = end, max(offset, base_offset + delta + 1)
        return position, offset


def sound_batches(
    cluster: LiveCluster, offset_range: OffsetRange, patience: Patience
) -> Iterator[SoundBatch | Damage | Lost]:
    """Yield the sound batches of a range, and what is damaged or deleted between them.

    Raises:
        ClusterError: the cluster does not give it.
    """
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
                break  # cut short, or to be met again
            yield found
        offset = fetcher.behind(portion, next_offset)
