"""Logs as a compaction pass sees them, in memory or in files, and the crash-safe rewrite of their segments."""

from __future__ import annotations

import contextlib
import errno
import threading
from collections.abc import Generator, Mapping, Sequence
from pathlib import Path

from groupcoord.config.settings import INT64_MAX
from groupcoord.records.batches import Batch
from groupcoord.storage.errors import FailedLogError, RefusedBatchError
from groupcoord.storage.files import sync_path
from groupcoord.storage.log.file_log import SegmentLog
from groupcoord.storage.log.file_segment import FileSegment
from groupcoord.storage.log.folder import CLEANED_SUFFIX, finish_swap, swap_path
from groupcoord.storage.log.index import AbortedTransaction
from groupcoord.storage.log.memory_log import PartitionLog
from groupcoord.storage.log.memory_segment import SEGMENT_BYTES, MemorySegment, Segment
from groupcoord.storage.log.producers import ProducerEntry
from groupcoord.storage.log.settings import TopicLogSettings

SYNC_POLL_S = 0.001

Work = Generator[int, None, None]
"""Yields the number of batches and records handled since the last time, or 0 while it waits."""


class InterruptedSwapError(OSError):
    """The disk failed during a swap: opening the log again finishes it."""


def sync(path: Path) -> Work:
    errors: list[BaseException] = []

    def run() -> None:
        try:
            sync_path(path)
        except BaseException as error:
            errors.append(error)

    thread = threading.Thread(target=run, name="groupcoord-compaction-fsync")
    thread.start()
    try:
        while thread.is_alive():
            thread.join(SYNC_POLL_S)
            yield 0
    finally:
        # A closed pass still waits: nothing may be renamed during an fsync.
        thread.join()
    if errors:
        raise errors[0]


def make_durable(segment: Segment) -> Work:
    if isinstance(segment, FileSegment):
        yield from sync(Path(segment.path))


class CompactableLog:
    """Log as a compaction pass uses it. Methods except :meth:`dirtiness` may raise OSError and InvalidBatchError.

    Args:
        log: the log, in memory or in files.
        settings: when to compact and what may be dropped.
        keeps_sequences: whether the last batch of each producer stays, without records, so that sequences continue.

    Attributes:
        segment_bytes: the largest segment that small ones are merged into.
        is_given_up: True if segments or the log were deleted: the pass must end.
    """

    def __init__(self, log: PartitionLog, settings: TopicLogSettings, *, keeps_sequences: bool = True) -> None:
        self.settings = settings
        # In memory small segments, so that a copy needs little.
        self.segment_bytes = settings.segment_bytes if isinstance(log, SegmentLog) else SEGMENT_BYTES
        self.is_given_up = False
        self._keeps_sequences = keeps_sequences
        self._log = log
        self._rewrite: _FileRewrite | _MemoryRewrite | None = None

    def give_up(self) -> None:
        self.is_given_up = True
        if self._rewrite is not None:
            self._rewrite.close()

    # ------------------------------------------------------------ when

    def dirtiness(self, first_dirty: int, now_ms: int) -> float | None:
        """Return the dirty part of the log, or None if it needs no compaction or must not be compacted."""
        groups = self._log.groups()
        if len(groups) < 2:
            return None
        try:
            limit = self._limit(groups, first_dirty, now_ms)
        except OSError:
            return None  # its readers get the error
        # Source: LogToClean of Apache Kafka 4.4.
        sizes = [(segment.base_offset, segment.size_bytes) for segment in self.segments]
        dirty_base = max((base for base, _ in sizes if base <= first_dirty), default=0)
        clean_bytes = sum(size for base, size in sizes if base < first_dirty)
        dirty_bytes = sum(size for base, size in sizes if dirty_base <= base < limit)
        dirtiness = dirty_bytes / (clean_bytes + dirty_bytes or 1)
        is_due = dirtiness > self.settings.min_cleanable_ratio
        return dirtiness if is_due or (dirtiness and self._is_overdue(groups, first_dirty, now_ms)) else None

    def _limit(self, groups: list[list[Segment]], first_dirty: int, now_ms: int) -> int:
        """Return the beginning of the first segment that may not be compacted yet."""
        # Records of open transactions may still be aborted.
        limit = min(self._log.last_stable_offset, groups[-1][0].base_offset)
        lag_ms = self.settings.min_compaction_lag_ms
        # Source: LogCleanerManager.cleanableOffsets of Apache Kafka 4.4.
        for group in groups if lag_ms else ():
            try:
                is_young = max(segment.max_timestamp_ms for segment in group) > now_ms - lag_ms
            except FailedLogError as error:
                raise OSError(error.reason) from error
            if is_young and group[-1].next_offset > first_dirty:
                limit = min(limit, group[0].base_offset)
        return max((group[0].base_offset for group in groups if group[0].base_offset <= limit), default=limit)

    def _is_overdue(self, groups: list[list[Segment]], first_dirty: int, now_ms: int) -> bool:
        # The default, for which no file is read.
        lag_ms = self.settings.max_compaction_lag_ms
        if lag_ms == INT64_MAX:
            return False
        dirty = [group[0] for group in groups[:-1] if group[-1].next_offset > first_dirty]
        with contextlib.suppress(FailedLogError):  # then it is not compacted either
            return any(0 < segment.first_batch_ms() < now_ms - lag_ms for segment in dirty)
        return False

    # ------------------------------------------------------------ what

    @property
    def segments(self) -> Sequence[Segment]:
        return self._log.segments

    def outlook(self, dirty_base: int, now_ms: int) -> Generator[int, None, tuple[int, Sequence[AbortedTransaction]]]:
        """Return the offset from which on batches must stay, and the aborted transactions that may have records left.

        ``dirty_base``: the base offset of the first segment that is compacted.
        """
        # Deletions of segments end the pass from here on.
        self._log.compaction = self
        aborted: list[AbortedTransaction] = []
        for segment in list(self._log.segments):
            known = segment.aborted
            for number in range(len(known)):
                aborted.append(known[number])
                yield 1
        return self._limit(self._log.groups(), dirty_base, now_ms), aborted

    def last_entries(self) -> Mapping[int, ProducerEntry]:
        """Return what must stay for each producer."""
        # Batches of the coordinator have no sequences.
        return self._log.producers.last_entries() if self._keeps_sequences else {}

    def rewrite(self, group: Sequence[Segment]) -> _FileRewrite | _MemoryRewrite:
        """Begin to rewrite consecutive segments."""
        log = self._log
        self._rewrite = _FileRewrite(log, group) if isinstance(log, SegmentLog) else _MemoryRewrite(log, group)
        return self._rewrite


# ---------------------------------------------------------------- in memory


class _MemoryRewrite:
    def __init__(self, log: PartitionLog, old: Sequence[Segment]) -> None:
        self._log = log
        self._old = old
        goes_on = all(segment.goes_on for segment in old)
        self._new: MemorySegment | None = MemorySegment(old[0].base_offset, log.memory, goes_on=goes_on)

    def add(self, batch: Batch, kept: bytes | None) -> None:
        if kept is None or self._new is None:
            return
        timestamp_ms, base = Batch(kept, 0, 0).max_timestamp_ms, batch.base_offset
        try:
            # Compaction frees memory in the end, so it may use the reserve.
            self._new.append((kept,), len(kept), batch.next_offset, timestamp_ms, is_marker=True, base_offset=base)
        except RefusedBatchError as error:
            # Like a full disk: the cleaner retries later.
            raise OSError(errno.ENOMEM, error.reason) from error

    def commit(self, aborted: Sequence[AbortedTransaction]) -> Work:
        yield from ()
        new, self._new = self._new, None
        assert new is not None
        # Also if the last records are dropped.
        new.next_offset = self._old[-1].next_offset
        for transaction in aborted:
            new.add_aborted(transaction)
        self._log.replace(self._old, new)
        for segment in self._old:
            segment.release()
        self._old = ()

    def close(self) -> None:
        if self._new is not None:
            self._new.release()
            self._new = None


# ---------------------------------------------------------------- in files


class _FileRewrite:
    """New file that replaces some segments, with the name of the first."""

    def __init__(self, log: SegmentLog, old: Sequence[Segment]) -> None:
        self._log = log
        self._old = old
        self._group = [segment.base_offset for segment in old]
        self._new = FileSegment(self._group[0], log.folder.path, log.files, log.memory)
        self._cleaned = Path(self._new.path + CLEANED_SUFFIX)
        self._unfinished: Path | None = self._cleaned  # None once the file is swapped in or discarded
        self._file = open(self._cleaned, "wb")  # noqa: SIM115 - close() closes it

    def add(self, batch: Batch, kept: bytes | None) -> None:
        if kept is not None:
            self._file.write(kept)
            self._new.note(batch.base_offset, len(kept), batch.next_offset, Batch(kept, 0, 0).max_timestamp_ms)

    def commit(self, aborted: Sequence[AbortedTransaction]) -> Work:
        """Make the file durable and replace the segments by it.

        After an OSError the segments are unchanged; after an InterruptedSwapError the state of the files is unknown.
        """
        folder = self._log.folder.path
        self._file.flush()
        # In Kafka's order: contents, name .swap, folder. From then on a crash finishes the swap; before, the file is
        # ignored.
        yield from sync(self._cleaned)
        self._unfinished = self._cleaned.replace(swap_path(folder, self._group[0]))
        yield from sync(folder)
        # A load reads the files by their names.
        while self._log.reader_count > 0:
            yield 0
        self._unfinished = None
        # Memory first: if renaming fails, opening the log again finishes the swap.
        self._replace()
        try:
            finish_swap(folder, self._group)
        except OSError as error:
            interrupted = InterruptedSwapError(f"compaction was interrupted: {error}")
            self._log.compaction_failed(interrupted)
            raise interrupted from error
        yield from sync(folder)
        # Without these files the next start reads more, and fetches list fewer aborted transactions, of which no
        # records are left.
        with contextlib.suppress(OSError, FailedLogError):
            for transaction in aborted:
                self._new.add_aborted(transaction)
            self._new.seal()

    def _replace(self) -> None:
        self._new.next_offset = self._old[-1].next_offset
        for segment in self._old:
            assert isinstance(segment, FileSegment)
            segment.retire()
        self._log.replace(self._old, self._new)

    def close(self) -> None:
        try:
            self._file.close()
        finally:
            if self._unfinished is not None:
                self._unfinished.unlink(missing_ok=True)
                self._unfinished = None
                self._new.let_go()
