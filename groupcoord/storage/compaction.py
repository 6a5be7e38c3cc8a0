"""Compaction of one log partition, as Kafka's log cleaner does it: the last record of each key stays, at its offset.

A pass has three steps, each a generator that yields how much it has done, so that it can be taken in small portions:

1. Scan from the first dirty offset to the end of the log: which transactions were aborted, which are open.
2. Note the last offset of each key in the dirty section: up to the first open transaction or the last segment, as far
   as memory allows.
3. Copy the segments, in groups that fit into one, without what a later record of the same key has replaced and without
   aborted transactions, and swap each copy in.

A tombstone, and a marker of whose transaction nothing is left, first gets a delete horizon (KIP-534), and is dropped
by a pass after that time. What is left always loads to the same state. Sources: Kafka's ``Cleaner`` and
``CleanedTransactionMetadata``.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Generator, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from groupcoord.records.batches import Batch
from groupcoord.records.codec import decode_control
from groupcoord.storage.compacted_batches import delete_horizon_ms, placeholder, rewrite_batch
from groupcoord.storage.log_directory import segment_path, sync_path
from groupcoord.storage.segments import OFFSETS_END, read_batches
from groupcoord.storage.swapping import CLEANED_SUFFIX, finish_swap, swap_path

CHUNK_BYTES = 262_144
SYNC_POLL_S = 0.001
KEY_OVERHEAD_BYTES = 200
"""About what Python needs for a key and its offset in a dict, besides the key's own bytes."""
OFFSET_RANGE_MAX = 2**31 - 1

Work = Generator[int, None, None]
"""Yields how many batches and records were handled since the last time; 0 while it waits."""


class CompactionSettings(NamedTuple):
    """When to compact, and what may go.

    Attributes:
        min_cleanable_ratio: compact a partition when more than this part of it is dirty
            (``log.cleaner.min.cleanable.ratio``).
        delete_retention_ms: how long tombstones and markers stay after they were first compacted
            (``log.cleaner.delete.retention.ms``).
        min_compaction_lag_ms: younger records are not compacted (``log.cleaner.min.compaction.lag.ms``).
        dedupe_buffer_bytes: memory for the keys of one pass (``log.cleaner.dedupe.buffer.size``).
    """

    min_cleanable_ratio: float = 0.5
    delete_retention_ms: int = 86_400_000
    min_compaction_lag_ms: int = 0
    dedupe_buffer_bytes: int = 134_217_728


class _Fates:
    """What became of the transactions that lie behind the first dirty offset."""

    def __init__(self) -> None:
        self._open: dict[int, int] = {}
        self._aborted: dict[int, list[tuple[int, int]]] = {}

    def note(self, batch: Batch) -> None:
        if not batch.is_transactional:
            return
        producer_id = batch.producer_id
        if not batch.is_control:
            self._open.setdefault(producer_id, batch.base_offset)
            return
        for _, _, key, value in batch.records():
            marker = decode_control(key or b"", value, producer_id, batch.producer_epoch)
            committed: bool | None = getattr(marker, "committed", None)
            begin = self._open.pop(producer_id, None) if committed is not None else None
            if begin is not None and not committed:
                self._aborted.setdefault(producer_id, []).append((begin, batch.base_offset))

    def first_open_offset(self) -> int | None:
        """Return where the oldest transaction without a marker begins."""
        return min(self._open.values(), default=None)

    def is_aborted(self, batch: Batch) -> bool:
        """Tell whether a data batch belongs to an aborted transaction."""
        spans = self._aborted.get(batch.producer_id) if batch.is_transactional else None
        return spans is not None and any(begin <= batch.base_offset < end for begin, end in spans)


class CompactionPass:
    """One pass over a log partition. Iterate over :meth:`run`; everything happens there.

    Args:
        folder: of the partition.
        segments: base offsets of its segments; the last one is being written and stays as it is.
        active_size_bytes: how much of the last segment counts.
        segment_bytes: how large a segment may become when small ones are put together.
        first_dirty: offsets below it were compacted before.
        settings: see there.
        now_ms: the time by the clock of the records.
        is_read: asked before a swap, which waits while somebody reads the files.
        replaced: told after a swap: the base offsets of segments that have become one, under the first of them.
    """

    def __init__(
        self,
        folder: Path,
        segments: Sequence[int],
        active_size_bytes: int,
        *,
        segment_bytes: int,
        first_dirty: int,
        settings: CompactionSettings,
        now_ms: int,
        is_read: Callable[[], bool],
        replaced: Callable[[list[int]], None],
    ) -> None:
        self._folder = folder
        self._segments = list(segments)
        self._active_size_bytes = active_size_bytes
        self._segment_bytes = segment_bytes
        self._settings = settings
        self._now_ms = now_ms
        self._is_read = is_read
        self._replaced = replaced
        self._fates = _Fates()
        self._last_offsets: dict[bytes, int] = {}
        self._kept_producers: set[int] = set()
        #: Offsets below this one are compacted once the pass is over; it stays the same if nothing could be done.
        self.first_dirty = first_dirty

    def run(self) -> Work:
        """Compact, in portions. Closing the generator early leaves a sound log.

        Raises:
            InvalidBatchError: a segment is corrupt.
            OSError: a file can't be read or written.
        """
        dirty = max((base for base in self._segments if base <= self.first_dirty), default=self._segments[0])
        limit = yield from self._find_limit(dirty)
        if limit <= self.first_dirty:
            return
        # What a pass drops, it drops for the sake of later records: those must outlive a power failure.
        for base in self._segments[self._segments.index(dirty) :]:
            yield from _sync(segment_path(self._folder, base))
        end = yield from self._note_keys(dirty, limit)
        for group in self._groups(end):
            yield from self._compact(group, end)
        self.first_dirty = end

    def _find_limit(self, dirty: int) -> Generator[int, None, int]:
        limit = self._segments[-1]
        youngest_ms = self._now_ms - self._settings.min_compaction_lag_ms
        for base in self._segments[self._segments.index(dirty) :]:
            max_timestamp_ms = -1
            for batch in self._batches(base):
                self._fates.note(batch)
                max_timestamp_ms = max(max_timestamp_ms, batch.max_timestamp_ms)
                yield 1
            if self._settings.min_compaction_lag_ms and max_timestamp_ms > youngest_ms:
                limit = min(limit, base)
        open_offset = self._fates.first_open_offset()
        return limit if open_offset is None else min(limit, open_offset)

    def _note_keys(self, dirty: int, limit: int) -> Generator[int, None, int]:
        """Remember the last offset of each key from the first dirty offset on; return the offset that was reached."""
        last_offsets, used_bytes, end = self._last_offsets, 0, self.first_dirty
        for base in self._segments[self._segments.index(dirty) : -1]:
            for batch in self._batches(base):
                if batch.next_offset <= self.first_dirty:
                    yield 1
                    continue
                if batch.base_offset >= limit or used_bytes > self._settings.dedupe_buffer_bytes:
                    return end
                if not batch.is_control and not self._fates.is_aborted(batch):
                    for offset, _, key, _ in batch.records():
                        if key is not None:
                            if key not in last_offsets:
                                used_bytes += len(key) + KEY_OVERHEAD_BYTES
                            last_offsets[key] = offset
                end = batch.next_offset
                yield 1 + batch.record_count
        return end

    def _groups(self, end: int) -> Iterator[list[int]]:
        """Return the segments that begin before ``end``, put together where they fit into one."""
        group: list[int] = []
        size_bytes = 0
        for base, following in zip(self._segments, self._segments[1:], strict=False):
            if base >= end:
                break
            size = segment_path(self._folder, base).stat().st_size
            if group and (size_bytes + size > self._segment_bytes or following - group[0] > OFFSET_RANGE_MAX):
                yield group
                group, size_bytes = [], 0
            group.append(base)
            size_bytes += size
        if group:
            yield group

    def _compact(self, group: list[int], end: int) -> Work:
        """Write what stays of some segments into one new file, and swap it in if it differs."""
        cleaned = segment_path(self._folder, group[0]).with_suffix(f".log{CLEANED_SUFFIX}")
        changed, last_read, last_written = len(group) > 1, None, -1
        try:
            with open(cleaned, "wb") as file:
                for base in group:
                    for batch in self._batches(base):
                        kept = self._filter(batch, end)
                        if kept is not None:
                            file.write(kept)
                            last_written = batch.next_offset
                        changed = changed or kept is None or batch.size_bytes != len(kept) or kept != batch.to_bytes()
                        last_read = batch
                        yield 1 + batch.record_count
                if last_read is not None and last_read.next_offset != last_written:
                    file.write(placeholder(last_read))
                file.flush()
                if changed:
                    yield from _sync(cleaned)
            if changed:
                yield from self._swap_in(cleaned, group)
        finally:
            cleaned.unlink(missing_ok=True)

    def _swap_in(self, cleaned: Path, group: list[int]) -> Work:
        """Put a new segment, which is durable, in the place of others."""
        swap = swap_path(self._folder, group[0])
        is_begun = False
        cleaned.replace(swap)
        try:
            yield from _sync(self._folder)
            while self._is_read():
                yield 0
            is_begun = True
            finish_swap(self._folder, group)
            self._replaced(group)
        finally:
            if not is_begun:
                swap.unlink(missing_ok=True)
        yield from _sync(self._folder)

    def _filter(self, batch: Batch, end: int) -> bytes | None:
        """Return what stays of a batch; None if nothing does."""
        if batch.base_offset >= end:
            self._note_producer(batch)
            return batch.to_bytes()
        horizon_ms = delete_horizon_ms(batch)
        is_past_horizon = horizon_ms is not None and horizon_ms <= self._now_ms
        new_horizon_ms = self._now_ms + self._settings.delete_retention_ms if horizon_ms is None else None
        if batch.is_control:
            if batch.producer_id in self._kept_producers:
                self._kept_producers.discard(batch.producer_id)
                return batch.to_bytes()
            if is_past_horizon or not batch.record_count:
                return None
            return (
                batch.to_bytes() if new_horizon_ms is None else rewrite_batch(batch, [*batch.records()], new_horizon_ms)
            )
        if self._fates.is_aborted(batch):
            return None
        last_offsets = self._last_offsets
        kept = [
            record
            for record in batch.records()
            if record[2] is None
            or (record[0] >= last_offsets.get(record[2], -1) and (record[3] is not None or not is_past_horizon))
        ]
        if not kept:
            return None
        self._note_producer(batch)
        if new_horizon_ms is not None and any(value is None for _, _, _, value in kept):
            return rewrite_batch(batch, kept, new_horizon_ms)
        return batch.to_bytes() if len(kept) == batch.record_count else rewrite_batch(batch, kept)

    def _note_producer(self, batch: Batch) -> None:
        """Data of a producer stays, so the marker that comes next stays too; a marker ends that."""
        if batch.is_control:
            self._kept_producers.discard(batch.producer_id)
        elif batch.is_transactional:
            self._kept_producers.add(batch.producer_id)

    def _batches(self, base: int) -> Iterator[Batch]:
        is_active = base == self._segments[-1]
        return read_batches(
            segment_path(self._folder, base),
            next_offset=base,
            end_offset=OFFSETS_END if is_active else self._segments[self._segments.index(base) + 1],
            end=self._active_size_bytes if is_active else None,
            chunk_bytes=CHUNK_BYTES,
        )


def _sync(path: Path) -> Work:
    """Make a file or a folder durable, in another thread: on a slow disk it takes long, and nobody has to wait."""
    errors: list[BaseException] = []

    def sync() -> None:
        try:
            sync_path(path)
        except BaseException as error:
            errors.append(error)

    thread = threading.Thread(target=sync, name="groupcoord-compaction-fsync")
    thread.start()
    try:
        while thread.is_alive():
            thread.join(SYNC_POLL_S)
            yield 0
    finally:
        thread.join()
    if errors:
        raise errors[0]
