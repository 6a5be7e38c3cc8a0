"""A log partition of ``__consumer_offsets`` as compaction sees it: segment files, and nothing known but their bytes."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Protocol

from groupcoord.records.batches import Batch
from groupcoord.storage.cleaned_transactions import AbortedTransaction, LastRecord, TransactionScan
from groupcoord.storage.compaction import CompactionSettings, Extent, Outlook, dirty_part
from groupcoord.storage.log_directory import segment_path
from groupcoord.storage.segment_rewrite import SegmentRewrite, Work, sync
from groupcoord.storage.segments import COMPACTION_CHUNK_BYTES, OFFSETS_END, read_batches


class OpenPartition(Protocol):
    """An open log partition.

    Attributes:
        folder: where its files are.
        segments: base offsets; the last one is being written.
        size_bytes: of the last segment.
        reader_count: how many read its files at the moment.
    """

    folder: Path
    segments: list[int]
    size_bytes: int
    reader_count: int


class OffsetsLog:
    """See :class:`~groupcoord.storage.compaction.CompactableLog`.

    Args:
        log: the log partition.
        settings: when to compact it, and what may go.
        is_open: tells whether that is still the log partition.
    """

    def __init__(self, log: OpenPartition, settings: CompactionSettings, *, is_open: Callable[[], bool]) -> None:
        self.settings = settings
        self._log = log
        self._is_open = is_open

    @property
    def is_given_up(self) -> bool:
        """See :class:`~groupcoord.storage.compaction.CompactableLog`."""
        return not self._is_open()

    def bases(self) -> list[int]:
        """See :class:`~groupcoord.storage.compaction.CompactableLog`."""
        return list(self._log.segments)

    def extents(self) -> list[Extent]:
        """See :class:`~groupcoord.storage.compaction.CompactableLog`."""
        log = self._log
        found = [Extent(base, _size(segment_path(log.folder, base))) for base in log.segments[:-1]]
        return [*found, *(Extent(base, log.size_bytes) for base in log.segments[-1:])]

    def dirtiness(self, first_dirty: int, now_ms: int) -> float | None:
        """See :class:`~groupcoord.storage.compaction.CompactableLog`."""
        segments = self._log.segments
        if len(segments) < 2:
            return None
        dirtiness = dirty_part(self.extents(), first_dirty, segments[-1])
        return dirtiness if dirtiness > self.settings.min_cleanable_ratio else None

    def outlook(self, dirty_base: int, now_ms: int) -> Generator[int, None, Outlook]:
        """See :class:`~groupcoord.storage.compaction.CompactableLog`."""
        segments = self._log.segments
        limit = segments[-1]
        youngest_ms = now_ms - self.settings.min_compaction_lag_ms
        scan = TransactionScan()
        for base in segments[segments.index(dirty_base) :]:
            max_timestamp_ms = -1
            for batch in self.batches(base):
                scan.note(batch)
                max_timestamp_ms = max(max_timestamp_ms, batch.max_timestamp_ms)
                yield 1
            if self.settings.min_compaction_lag_ms and max_timestamp_ms > youngest_ms:
                limit = min(limit, base)
        open_offset = scan.first_open_offset()
        return Outlook(limit if open_offset is None else min(limit, open_offset), scan.aborted)

    def last_records(self) -> Mapping[int, LastRecord]:
        """See :class:`~groupcoord.storage.compaction.CompactableLog`. No sequences are counted here."""
        return {}

    def batches(self, base_offset: int) -> Iterator[Batch]:
        """See :class:`~groupcoord.storage.compaction.CompactableLog`."""
        segments = self._log.segments
        is_active = base_offset == segments[-1]
        return read_batches(
            segment_path(self._log.folder, base_offset),
            next_offset=base_offset,
            end_offset=OFFSETS_END if is_active else segments[segments.index(base_offset) + 1],
            end=self._log.size_bytes if is_active else None,
            chunk_bytes=COMPACTION_CHUNK_BYTES,
        )

    def make_durable(self, base_offset: int) -> Work:
        """See :class:`~groupcoord.storage.compaction.CompactableLog`."""
        return sync(segment_path(self._log.folder, base_offset))

    def rewrite(self, group: Sequence[int]) -> _OffsetsRewrite:
        """See :class:`~groupcoord.storage.compaction.CompactableLog`."""
        return _OffsetsRewrite(self._log, group)


class _OffsetsRewrite:
    def __init__(self, log: OpenPartition, group: Sequence[int]) -> None:
        self._log = log
        self._group = group
        self._file = SegmentRewrite(
            log.folder, group, is_read=lambda: log.reader_count > 0, replaced=self._replace_segments
        )

    def add(self, batch: Batch, kept: bytes | None) -> None:
        if kept is not None:
            self._file.write(kept)

    def commit(self, aborted: Sequence[AbortedTransaction]) -> Work:
        return self._file.swap()

    def close(self) -> None:
        self._file.close()

    def _replace_segments(self) -> None:
        first = self._log.segments.index(self._group[0])
        self._log.segments[first : first + len(self._group)] = self._group[:1]


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError:
        return 0
