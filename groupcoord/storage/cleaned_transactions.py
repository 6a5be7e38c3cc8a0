"""What compaction knows of the producers and transactions in what it passes over.

Records of aborted transactions go. The marker of a transaction stays as long as a batch of it was there at the
beginning of a pass; only then it gets a delete horizon. Source: ``CleanedTransactionMetadata`` of Apache Kafka 4.4.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable
from typing import NamedTuple

from groupcoord.core.log.records import TransactionMarker
from groupcoord.records.batches import Batch
from groupcoord.records.codec import decode_control


class AbortedTransaction(NamedTuple):
    """A transaction whose records read-committed readers leave out.

    Attributes:
        last_offset: that of its marker.
        last_stable_offset: what it was right after the marker; grows from one aborted transaction to the next.
    """

    producer_id: int
    first_offset: int
    last_offset: int
    last_stable_offset: int


class LastRecord(NamedTuple):
    """What has to stay in a log of a producer that is remembered.

    Attributes:
        data_offset: of its last record; None: its last batch was a marker.
        producer_epoch: the epoch of that.
    """

    data_offset: int | None
    producer_epoch: int


class CleanedTransactions:
    """Is told of each batch, in order, and tells which are to go.

    Args:
        aborted: the transactions that were aborted.
    """

    def __init__(self, aborted: Iterable[AbortedTransaction]) -> None:
        self._coming = [(transaction.first_offset, transaction) for transaction in aborted]
        heapq.heapify(self._coming)
        self._aborted: dict[int, AbortedTransaction] = {}
        self._seen: set[int] = set()  # producers of which a batch of the open transaction was there
        self._kept: list[AbortedTransaction] = []

    def drops(self, batch: Batch) -> bool:
        """Note a batch; tell whether its records are those of an aborted transaction, or a marker of nothing.

        Raises:
            CorruptBatchError: it is a control batch whose records don't fit.
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
        """Return the aborted transactions whose markers have stayed since the last call."""
        kept, self._kept = self._kept, []
        return kept
