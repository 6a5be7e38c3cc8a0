"""Chooses which log partition to compact next and does it in small portions, so that nobody waits for it."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from pathlib import Path
from typing import Protocol

from groupcoord.errors import ErrorCode
from groupcoord.log_store import LogStoreError
from groupcoord.records.batches import InvalidBatchError
from groupcoord.storage.compaction import CompactionPass, CompactionSettings, Work
from groupcoord.storage.log_directory import read_cleaner_checkpoint, segment_path, write_cleaner_checkpoint
from groupcoord.storage.swapping import swap_path

logger = logging.getLogger(__name__)

RETRY_MS = 10_000
"""How long a partition is left alone after an error of the disk, which may be full for a while only."""


class CompactableLog(Protocol):
    """What the cleaner needs to know of an open log partition.

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


class InterruptedSwapError(LogStoreError):
    """The disk failed while files were replaced: the partition has to be opened anew, which finishes it.

    Attributes:
        partition: which one.
    """

    error_code = ErrorCode.KAFKA_STORAGE_ERROR

    def __init__(self, partition: int, cause: OSError) -> None:
        super().__init__(f"log partition {partition}: compaction was interrupted: {cause}")
        self.partition = partition


class Cleaner:
    """Compacts the log partitions of a directory, one after the other.

    Args:
        directory: the log directory; ``cleaner-offset-checkpoint`` there says how far each partition is compacted.
        segment_bytes: how large a segment may become when small ones are put together.
        settings: when to compact, and what may go.
    """

    def __init__(self, directory: Path, segment_bytes: int, settings: CompactionSettings) -> None:
        self._directory = directory
        self._segment_bytes = segment_bytes
        self._settings = settings
        self._first_dirty: dict[int, int] = read_cleaner_checkpoint(directory)
        self._stuck_at: dict[int, int] = {}
        self._retry_ms: dict[int, int] = {}
        self._current: tuple[int, CompactableLog, CompactionPass, Work] | None = None

    def step(self, logs: Mapping[int, CompactableLog], now_ms: int, budget: int) -> bool:
        """Handle about ``budget`` batches and records.

        Args:
            logs: the open log partitions.
            now_ms: the time by the clock of the records.
            budget: how much to do at most; a single batch is never divided.

        Returns:
            True if there is more to do now.

        Raises:
            InterruptedSwapError: a partition has to be opened anew.
        """
        if self._current is not None and logs.get(self._current[0]) is not self._current[1]:
            self.stop()
        if self._current is None:
            self._current = self._choose(logs, now_ms)
            if self._current is None:
                return False
        partition, log, running, work = self._current
        try:
            while budget > 0:
                done = next(work, None)
                if done is None:
                    self._current = None
                    self._finished(partition, log, running.first_dirty)
                    return True
                if not done:
                    return True
                budget -= done
        except (InvalidBatchError, OSError, LogStoreError) as error:
            logger.error("log partition %d can't be compacted: %s", partition, error)
            self._current = None
            if not isinstance(error, OSError):
                self._stuck_at[partition] = log.segments[-1]
                return True
            self._retry_ms[partition] = now_ms + RETRY_MS
            if _is_half_swapped(log):
                raise InterruptedSwapError(partition, error) from error
        return True

    def stop(self) -> None:
        """Give up what is under way; the log stays as it is."""
        if self._current is not None:
            self._current[3].close()
            self._current = None

    def _choose(
        self, logs: Mapping[int, CompactableLog], now_ms: int
    ) -> tuple[int, CompactableLog, CompactionPass, Work] | None:
        """Return the dirtiest partition with the pass to take over it; None if all are clean enough."""
        worst, worst_ratio = None, self._settings.min_cleanable_ratio
        for partition, log in logs.items():
            is_waiting = now_ms < self._retry_ms.get(partition, now_ms)
            if len(log.segments) > 1 and self._stuck_at.get(partition) != log.segments[-1] and not is_waiting:
                ratio = self._dirty_ratio(log, self._first_dirty_of(partition, log))
                if ratio > worst_ratio:
                    worst, worst_ratio = partition, ratio
        if worst is None:
            return None
        log = logs[worst]
        running = CompactionPass(
            log.folder,
            log.segments,
            log.size_bytes,
            segment_bytes=self._segment_bytes,
            first_dirty=self._first_dirty_of(worst, log),
            settings=self._settings,
            now_ms=now_ms,
            is_read=lambda: log.reader_count > 0,
            replaced=lambda group: _replace(log.segments, group),
        )
        return worst, log, running, running.run()

    def _first_dirty_of(self, partition: int, log: CompactableLog) -> int:
        # A checkpoint beyond the log belongs to another one that was there before.
        first_dirty = self._first_dirty.get(partition, 0)
        return first_dirty if log.segments[0] <= first_dirty <= log.segments[-1] else log.segments[0]

    def _dirty_ratio(self, log: CompactableLog, first_dirty: int) -> float:
        sizes = {base: _size(segment_path(log.folder, base)) for base in log.segments[:-1]}
        dirty = sum(size for base, size in sizes.items() if base >= first_dirty)
        return dirty / (sum(sizes.values()) or 1)

    def _finished(self, partition: int, log: CompactableLog, first_dirty: int) -> None:
        if first_dirty <= self._first_dirty_of(partition, log):
            self._stuck_at[partition] = log.segments[-1]
            return
        self._first_dirty[partition] = first_dirty
        write_cleaner_checkpoint(self._directory, partition, first_dirty)
        logger.info("compacted log partition %d up to offset %d", partition, first_dirty)


def _replace(segments: list[int], group: list[int]) -> None:
    first = segments.index(group[0])
    segments[first : first + len(group)] = group[:1]


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError:
        return 0


def _is_half_swapped(log: CompactableLog) -> bool:
    paths = [segment_path(log.folder, base) for base in log.segments]
    swaps = [swap_path(log.folder, base) for base in log.segments]
    return not all(path.exists() for path in paths) or any(path.exists() for path in swaps)
