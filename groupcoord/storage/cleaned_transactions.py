"""Transactions and producers in the batches that a compaction pass reads.

Records of aborted transactions are dropped. A transaction marker stays while a batch of its transaction existed at the
beginning of a pass; after that it gets a delete horizon. Source: ``CleanedTransactionMetadata`` of Apache Kafka 4.4.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable
from typing import NamedTuple

from groupcoord.core.log.records import TransactionMarker
from groupcoord.records.batches import Batch
from groupcoord.records.codec import decode_control


class AbortedTransaction(NamedTuple):
    """Transaction whose records read-committed consumers skip.

    Attributes:
        last_offset: the offset of its marker.
        last_stable_offset: the last stable offset right after the marker; grows from one aborted transaction to the
            next.
    """

    producer_id: int
    first_offset: int
    last_offset: int
    last_stable_offset: int


class LastRecord(NamedTuple):
    """What must stay in the log for a producer that is remembered.

    Attributes:
        data_offset: the offset of its last record, or None if its last batch was a marker.
        producer_epoch: the epoch of its last batch.
    """

    data_offset: int | None
    producer_epoch: int


class CleanedTransactions:
    """Decides for each batch, in order, whether its records are dropped.

    Args:
        aborted: the aborted transactions.
    """

    def __init__(self, aborted: Iterable[AbortedTransaction]) -> None:
        self._coming = [(transaction.first_offset, transaction) for transaction in aborted]
        heapq.heapify(self._coming)
        self._aborted: dict[int, AbortedTransaction] = {}
        self._seen: set[int] = set()  # producers with a batch of their open transaction
        self._kept: list[AbortedTransaction] = []

    def drops(self, batch: Batch) -> bool:
        """Return whether a batch belongs to an aborted transaction or is a marker without a transaction; note the
        batch.

        Raises:
            CorruptBatchError: a control batch is malformed.
        """
        while self._coming and self._coming[0][0] < batch.next_offset:
            _, transaction = heapq.heappop(self._coming)
            self._aborted.setdefault(transaction.producer_id, transaction)
        if batch.is_control:
            return self._ends(batch)
        if batch.is_transactional:
            self._seen.add(batch.producer_id)
        return batch.is_transactional and batch.producer_id in self._aborted

    def _ends(self, batch: Batch) -> bool:
        if not batch.record_count:
            return True
        for _, _, key, value in batch.records():
            marker = decode_control(key or b"", value, batch.producer_id, batch.producer_epoch)
            if not isinstance(marker, TransactionMarker):
                return False
            was_seen = batch.producer_id in self._seen
            self._seen.discard(batch.producer_id)
            aborted = None if marker.committed else self._aborted.pop(batch.producer_id, None)
            if aborted is not None and was_seen:
                self._kept.append(aborted)
            return not was_seen
        return True

    def take_kept(self) -> list[AbortedTransaction]:
        """Return and clear the aborted transactions whose markers were kept."""
        kept, self._kept = self._kept, []
        return kept
