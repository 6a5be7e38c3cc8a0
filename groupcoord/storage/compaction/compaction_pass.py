"""Compaction pass over a log as by Kafka's log cleaner: the last record of each key stays, at its offset.

A pass is a generator that yields the amount of work done, so that it runs in small portions:

1. Determine how far the log may be compacted and which transactions were aborted.
2. Note the last offset of each key in the dirty section, as far as memory allows.
3. Rewrite groups of segments that fit into one, without replaced records and aborted transactions, and swap each in.

A transaction marker stays while a batch of its transaction existed at the beginning of a pass. A tombstone, and a
marker of a transaction without records, first gets a delete horizon, after which a pass drops it (KIP-534).
Sources: ``Cleaner`` and ``CleanedTransactionMetadata`` of Apache Kafka 4.4.
"""

from __future__ import annotations

import heapq
from bisect import bisect_right
from collections.abc import Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from itertools import pairwise

from groupcoord.core.log.records import TransactionMarker
from groupcoord.records.batches import (
    MAGIC_V2,
    Batch,
    CorruptBatchError,
    RawRecord,
    delete_horizon_ms,
    emptied,
    raw_records,
    rewritten,
)
from groupcoord.records.codec import decode_control
from groupcoord.records.compression import DecompressionError
from groupcoord.storage.compaction.compactable_logs import CompactableLog, Work, make_durable
from groupcoord.storage.log.batches import BATCH_RECORDS_MAX, DECOMPRESSED_BYTES_MAX
from groupcoord.storage.log.index import AbortedTransaction
from groupcoord.storage.log.memory_segment import Segment
from groupcoord.storage.log.producers import NO_OFFSET, ProducerEntry


class CleanedTransactions:
    """Decides for each batch, in order, whether its records are dropped."""

    def __init__(self, aborted: Iterable[AbortedTransaction]) -> None:
        self._coming = [(transaction.first_offset, transaction) for transaction in aborted]
        heapq.heapify(self._coming)
        self._aborted: dict[int, AbortedTransaction] = {}
        self._seen: set[int] = set()  # producers with a batch of their open transaction
        self._kept: list[AbortedTransaction] = []

    def drops(self, batch: Batch) -> bool:
        """Return whether a batch belongs to an aborted transaction or is a marker without a transaction; note the
        batch.
        """
        # In the order of their first offsets, as batches are read.
        while self._coming and self._coming[0][0] < batch.next_offset:
            _, transaction = heapq.heappop(self._coming)
            # A producer has one open transaction at a time.
            self._aborted.setdefault(transaction.producer_id, transaction)
        if batch.is_control:
            return self._ends(batch)
        if batch.is_transactional:
            self._seen.add(batch.producer_id)
        return batch.is_transactional and batch.producer_id in self._aborted

    def _ends(self, batch: Batch) -> bool:
        # Left by an earlier pass for its producer's last epoch.
        if not batch.record_count:
            return True
        for _, _, key, value in batch.records():
            marker = decode_control(key or b"", value, batch.producer_id, batch.producer_epoch)
            if not isinstance(marker, TransactionMarker):
                return False
            # A consumer in the middle of the transaction still needs its marker, which gets its horizon one pass later.
            was_seen = batch.producer_id in self._seen
            self._seen.discard(batch.producer_id)
            aborted = None if marker.committed else self._aborted.pop(batch.producer_id, None)
            if aborted is not None and was_seen:
                self._kept.append(aborted)
            return not was_seen
        return True

    def take_kept(self) -> list[AbortedTransaction]:
        kept, self._kept = self._kept, []
        return kept


KEY_OVERHEAD_BYTES = 200
"""Approximate memory of a key and its offset in a dict, without the bytes of the key."""
OFFSET_RANGE_MAX = 2**31 - 1
PORTION_RECORDS = 500
"""Records of a batch after which a pass may pause."""
RECORD_BYTES = 1_000
"""Bytes that take about as long to decompress as one record takes to examine."""


class CompactionPass:
    """One pass over a log; iterate over :meth:`run`."""

    def __init__(self, log: CompactableLog, first_dirty: int, now_ms: int) -> None:
        self._log = log
        self._settings = log.settings
        self._now_ms = now_ms
        self._last_offsets: dict[bytes, int] = {}
        self._end = first_dirty  # end of the range of ``_last_offsets``
        self._last_entries: Mapping[int, ProducerEntry] = {}
        # Offsets below are compacted after the pass; unchanged if nothing could be done.
        self.first_dirty = first_dirty

    def run(self) -> Work:
        """Compact in portions. Closing the generator early leaves an intact log.

        InvalidBatchError means that a segment is corrupt, OSError that a file can't be read or written.
        """
        segments = list(self._log.segments)
        bases = [segment.base_offset for segment in segments]
        first = max(bisect_right(bases, self.first_dirty) - 1, 0)
        dirty_base = bases[first]
        end_limit, aborted = yield from self._log.outlook(dirty_base, self._now_ms)
        # Whole segments only.
        last = max(bisect_right(bases, end_limit) - 1, 0)
        if bases[last] <= self.first_dirty:
            return
        # The records that replace others must survive a power failure first.
        for segment in segments[first:]:
            yield from make_durable(segment)
        # A transaction with its marker before the dirty section would never end in this pass.
        unread = [transaction for transaction in aborted if transaction.last_offset >= dirty_base]
        end = yield from self._note_keys(segments[first : last + 1], CleanedTransactions(unread))
        self._end = end
        transactions = CleanedTransactions(aborted)
        for group in self._groups(end):
            yield from self._compact(group, transactions)
        self.first_dirty = end

    def _note_keys(self, segments: Sequence[Segment], transactions: CleanedTransactions) -> Generator[int, None, int]:
        """Note the last offset of each key from the first dirty offset on; return the offset that was reached.

        ``segments`` are those from the first dirty one to the first that must stay.
        """
        used_bytes, end = 0, self.first_dirty
        for segment, following in pairwise(segments):
            for batch in segment.batches():
                # With a full buffer the next pass continues here, as in Kafka.
                if used_bytes > self._settings.dedupe_buffer_bytes:
                    return end
                is_dropped = transactions.drops(batch)
                if batch.next_offset > self.first_dirty:
                    # Readers never see records of an aborted transaction, so those replace nothing.
                    if not batch.is_control and not is_dropped:
                        used_bytes += yield from self._note_keys_of(batch)
                    end = batch.next_offset
                yield 1 + batch.record_count % PORTION_RECORDS
            # A segment may end after its last record, with a gap.
            end = following.base_offset
        return end

    def _note_keys_of(self, batch: Batch) -> Generator[int, None, int]:
        """Note the last offset of each key of a batch; return the additional memory in bytes."""
        last_offsets, used_bytes = self._last_offsets, 0
        with suppress(CorruptBatchError):  # a broker does not read a producer's records
            for number, record in enumerate((yield from _records_of(batch)), 1):
                offset, key = batch.base_offset + record.offset_delta, record.key
                if key is not None and offset >= self.first_dirty:
                    # Estimated: keys are the largest part that a producer controls.
                    if key not in last_offsets:
                        used_bytes += len(key) + KEY_OVERHEAD_BYTES
                    last_offsets[key] = offset
                if not number % PORTION_RECORDS:
                    yield PORTION_RECORDS
        return used_bytes

    def _groups(self, end: int) -> Iterator[list[Segment]]:
        """Yield the segments before ``end``, grouped where several fit into one."""
        group: list[Segment] = []
        size_bytes = 0
        for segment, following in pairwise(list(self._log.segments)):
            if segment.base_offset >= end:
                break
            is_large = size_bytes + segment.filled_bytes > self._log.segment_bytes
            # The limit of relative offsets in indexes.
            if group and (is_large or following.base_offset - group[0].base_offset > OFFSET_RANGE_MAX):
                yield group
                group, size_bytes = [], 0
            group.append(segment)
            size_bytes += segment.filled_bytes
        if group:
            yield group

    def _compact(self, group: list[Segment], transactions: CleanedTransactions) -> Work:
        # For each group, since producers write during the pass.
        self._last_entries = self._log.last_entries()
        rewrite = self._log.rewrite(group)
        try:
            # A single segment that keeps every batch is not rewritten.
            is_new = len(group) > 1
            for segment in group:
                for batch in segment.batches():
                    original = batch.to_bytes()
                    kept = yield from self._filter(batch, original, transactions)
                    rewrite.add(batch, kept)
                    is_new = is_new or kept is not original
                    yield 1 + batch.record_count % PORTION_RECORDS
            aborted = transactions.take_kept()
            if is_new:
                yield from rewrite.commit(aborted)
        finally:
            rewrite.close()

    def _filter(
        self, batch: Batch, original: bytes, transactions: CleanedTransactions
    ) -> Generator[int, None, bytes | None]:
        """Return what stays of a batch: the original, a new batch, or None."""
        is_dropped = transactions.drops(batch)
        horizon_ms = delete_horizon_ms(batch)
        is_past_horizon = horizon_ms is not None and horizon_ms <= self._now_ms
        kept: list[RawRecord] = []
        gets_horizon = False
        try:
            if batch.is_control:
                kept = [] if is_dropped and is_past_horizon else list((yield from _records_of(batch)))
                gets_horizon = is_dropped
            elif not is_dropped:
                kept = yield from self._last_of_keys(batch, is_past_horizon=is_past_horizon)
                gets_horizon = any(not record.has_value for record in kept)
        except CorruptBatchError:
            # Compaction loses nothing of a batch that can't be read; consumers get the error.
            return original
        if not kept:
            # The header keeps epoch and sequence of the producer, so that a retry is recognized after a restart.
            return emptied(batch) if self._is_last_of_producer(batch) else None
        # KIP-534: the horizon is in the batch and counts from the first pass.
        if gets_horizon and horizon_ms is None:
            return rewritten(batch, kept, self._now_ms + self._settings.delete_retention_ms)
        return original if len(kept) == batch.record_count else rewritten(batch, kept)

    def _last_of_keys(self, batch: Batch, *, is_past_horizon: bool) -> Generator[int, None, list[RawRecord]]:
        """Return the records that no later record of the same key replaces; records without a key are dropped."""
        kept = []
        for number, record in enumerate((yield from _records_of(batch)), 1):
            offset = batch.base_offset + record.offset_delta
            # Records behind the range of known keys stay.
            if offset >= self._end or (
                record.key is not None
                and offset >= self._last_offsets.get(record.key, -1)
                and (record.has_value or not is_past_horizon)
            ):
                kept.append(record)
            if not number % PORTION_RECORDS:
                yield PORTION_RECORDS
        return kept

    def _is_last_of_producer(self, batch: Batch) -> bool:
        last = self._last_entries.get(batch.producer_id)
        if last is None:
            return False
        # Any marker of the epoch holds it.
        if last.last_offset == NO_OFFSET:
            return batch.is_control and batch.producer_epoch == last.producer_epoch
        return batch.next_offset - 1 == last.last_offset


def _records_of(batch: Batch) -> Generator[int, None, Iterator[RawRecord]]:
    """Return the records of a batch, decompressed in portions.

    A batch that can't be read, or not within the limits, raises CorruptBatchError; so may reading the records.
    """
    # No honest producer claims that many.
    if batch.record_count > BATCH_RECORDS_MAX:
        raise CorruptBatchError(batch.position, f"more than {BATCH_RECORDS_MAX} records")
    parts: list[bytes] = []
    if batch.magic == MAGIC_V2:
        try:
            for part in batch.payload_parts(DECOMPRESSED_BYTES_MAX):
                # The caller has counted the first part.
                if parts:
                    yield 1 + len(part) // RECORD_BYTES
                parts.append(part)
        except DecompressionError as error:
            raise CorruptBatchError(batch.position, str(error)) from None
    return raw_records(batch, b"".join(parts))
