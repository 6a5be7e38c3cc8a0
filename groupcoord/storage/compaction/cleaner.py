"""Log cleaner: chooses the log to compact next and compacts it in small portions between requests."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import NamedTuple

from groupcoord.log_store import LogStoreError
from groupcoord.records.batches import InvalidBatchError
from groupcoord.storage.compaction.compactable_logs import CompactableLog, InterruptedSwapError, Work
from groupcoord.storage.compaction.compaction_pass import CompactionPass
from groupcoord.storage.files import CLEANER_OFFSET_FILE, read_offset_checkpoint, write_offset_checkpoint

logger = logging.getLogger(__name__)

RETRY_MS = 10_000
"""Time before the next attempt after a disk error."""

LogKey = tuple[str, int]
"""Topic and partition index."""
Logs = Mapping[LogKey, CompactableLog]


class CleanerCheckpoint:
    """First dirty offset of each log, in the file ``cleaner-offset-checkpoint`` of a directory, or in memory only.

    The file is not synced: after a power failure something may be compacted twice.
    """

    def __init__(self, directory: Path | None = None) -> None:
        self._path = None if directory is None else directory / CLEANER_OFFSET_FILE
        self._offsets = {} if self._path is None else read_offset_checkpoint(self._path)

    def get(self, partition: LogKey) -> int:
        """Return the first offset of a log that is not known to be compacted."""
        return self._offsets.get(partition, 0)

    def note(self, partition: LogKey, first_dirty: int) -> None:
        self._offsets[partition] = first_dirty
        if self._path is not None:
            write_offset_checkpoint(self._path, {**read_offset_checkpoint(self._path), partition: first_dirty})

    def forget(self, topic: str) -> None:
        if any(name == topic for name, _ in self._offsets):
            self._offsets = {key: offset for key, offset in self._offsets.items() if key[0] != topic}
            if self._path is not None:
                noted = read_offset_checkpoint(self._path)
                left = {key: offset for key, offset in noted.items() if key[0] != topic}
                write_offset_checkpoint(self._path, left)


class _Running(NamedTuple):
    partition: LogKey
    log: CompactableLog
    first_dirty: int
    compaction: CompactionPass
    work: Work


class Cleaner:
    """Compacts logs one after the other."""

    def __init__(self, checkpoint: CleanerCheckpoint) -> None:
        self._checkpoint = checkpoint
        self._stuck_at: dict[LogKey, int] = {}
        self._retry_ms: dict[LogKey, int] = {}
        self._running: _Running | None = None

    def step(self, logs: Callable[[], Logs], now_ms: int, budget: int) -> bool:
        """Handle about ``budget`` batches and records of the dirtiest log; return whether there is more to do now.

        ``logs`` returns the logs that may be compacted; ``now_ms`` is by the clock of the records. InterruptedSwapError
        means that a log must be opened again.
        """
        # Meanwhile a topic may be deleted, or retention may delete segments.
        if self._running is not None and self._running.log.is_given_up:
            self.stop()
        if self._running is None:
            self._running = self._choose(logs(), now_ms)
            if self._running is None:
                return False
        running = self._running
        try:
            while budget > 0:
                done = next(running.work, None)
                if done is None:
                    self._running = None
                    self._finished(running)
                    return True
                # The pass waits for an fsync or a reader.
                if not done:
                    return True
                budget -= done
        except (InvalidBatchError, OSError, LogStoreError) as error:
            logger.error("%s-%d can't be compacted: %s", *running.partition, error)
            self._running = None
            # A corrupt log is left alone until it has a new segment. A disk may recover.
            if not isinstance(error, OSError):
                self._stuck_at[running.partition] = _last_base(running.log)
                return True
            self._retry_ms[running.partition] = now_ms + RETRY_MS
            if isinstance(error, InterruptedSwapError):
                raise
        return True

    def stop(self) -> None:
        if self._running is not None:
            self._running.work.close()
            self._running = None

    def forget(self, topic: str) -> None:
        for known in (self._stuck_at, self._retry_ms):
            for partition in [partition for partition in known if partition[0] == topic]:
                del known[partition]
        self._checkpoint.forget(topic)

    def _choose(self, logs: Logs, now_ms: int) -> _Running | None:
        worst, worst_dirtiness = None, -1.0
        for partition, log in logs.items():
            is_waiting = now_ms < self._retry_ms.get(partition, now_ms)
            if not is_waiting and self._stuck_at.get(partition) != _last_base(log):
                dirtiness = log.dirtiness(self._first_dirty_of(partition, log), now_ms)
                if dirtiness is not None and dirtiness > worst_dirtiness:
                    worst, worst_dirtiness = partition, dirtiness
        if worst is None:
            return None
        log = logs[worst]
        first_dirty = self._first_dirty_of(worst, log)
        compaction = CompactionPass(log, first_dirty, now_ms)
        return _Running(worst, log, first_dirty, compaction, compaction.run())

    def _first_dirty_of(self, partition: LogKey, log: CompactableLog) -> int:
        # The checkpoint may belong to an earlier log of the same name.
        first_dirty, segments = self._checkpoint.get(partition), log.segments
        is_of_log = not segments or segments[0].base_offset <= first_dirty <= segments[-1].base_offset
        return first_dirty if is_of_log else segments[0].base_offset

    def _finished(self, running: _Running) -> None:
        first_dirty = running.compaction.first_dirty
        # Nothing could be compacted, for instance because of an open transaction: don't repeat the pass at once.
        if first_dirty <= running.first_dirty:
            self._stuck_at[running.partition] = _last_base(running.log)
            return
        self._checkpoint.note(running.partition, first_dirty)
        logger.info("compacted %s-%d up to offset %d", *running.partition, first_dirty)


def _last_base(log: CompactableLog) -> int:
    return log.segments[-1].base_offset if log.segments else -1
