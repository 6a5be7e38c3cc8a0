"""What a log knows of its producers: epochs, sequences, the last batches, and open transactions.

Sources: ``ProducerStateManager``, ``ProducerAppendInfo`` and ``ProducerStateEntry`` of Apache Kafka 4.4 (KIP-98,
KIP-360), as recorded.
"""

from __future__ import annotations

import heapq
from collections import OrderedDict, deque
from typing import NamedTuple

from attrs import define, field

from groupcoord.errors import ErrorCode
from groupcoord.topic_logs.errors import RefusedBatchError
from groupcoord.topic_logs.log_memory import PRODUCER_BYTES, LogMemory
from groupcoord.topic_logs.produced_batch import SEQUENCE_END, ProducedBatch

REMEMBERED_BATCHES = 5
"""So many batches can be sent again; a producer has no more in flight."""

PRODUCERS_MAX = 10_000
"""Beyond so many, the log forgets the producer without an open transaction that wrote least lately."""

NO_EPOCH = -1
NO_SEQUENCE = -1
NO_OFFSET = -1


class RememberedBatch(NamedTuple):
    """A batch that may come again."""

    base_sequence: int
    last_sequence: int
    base_offset: int
    timestamp_ms: int


@define
class _Producer:
    """What is known of one producer."""

    producer_epoch: int = NO_EPOCH
    coordinator_epoch: int = -1
    last_timestamp_ms: int = -1
    first_offset: int | None = None  # of its open transaction
    batches: deque[RememberedBatch] = field(factory=lambda: deque(maxlen=REMEMBERED_BATCHES))

    @property
    def last_sequence(self) -> int:
        return self.batches[-1].last_sequence if self.batches else NO_SEQUENCE


class ActiveProducer(NamedTuple):
    """A producer as DescribeProducers tells of it (KIP-664)."""

    producer_id: int
    producer_epoch: int
    last_sequence: int
    last_timestamp_ms: int
    coordinator_epoch: int
    first_offset: int


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


class ProducerStates:
    """All producers of one log.

    Args:
        memory: what each of them is counted in.
    """

    __slots__ = ("_memory", "_open", "_producers")

    def __init__(self, memory: LogMemory) -> None:
        self._memory = memory
        self._producers: OrderedDict[int, _Producer] = OrderedDict()  # who wrote last comes last
        self._open: list[tuple[int, int]] = []  # first offset and producer id; ended ones are taken out at the top

    def __len__(self) -> int:
        return len(self._producers)

    # ------------------------------------------------------------ looking

    def find_duplicate(self, batch: ProducedBatch) -> RememberedBatch | None:
        """Return the batch that this is a repetition of, if it is one of the last five of its producer and epoch."""
        producer = self._producers.get(batch.producer_id)
        if producer is None or producer.producer_epoch != batch.producer_epoch:
            return None
        sequences = (batch.base_sequence, batch.last_sequence)
        return next((known for known in producer.batches if known[:2] == sequences), None)

    def check(self, batch: ProducedBatch) -> None:
        """Check the epoch and the sequence of a batch that is no repetition, and that a transaction has only its own.

        Raises:
            RefusedBatchError: INVALID_PRODUCER_EPOCH, OUT_OF_ORDER_SEQUENCE_NUMBER or INVALID_TXN_STATE.
        """
        producer = self._producers.get(batch.producer_id)
        if producer is None or producer.producer_epoch == NO_EPOCH:
            return  # nothing is known, perhaps since it was deleted: any sequence is taken
        epoch = batch.producer_epoch
        if epoch < producer.producer_epoch:
            reason = f"the epoch of producer {batch.producer_id} is {producer.producer_epoch}, not {epoch}"
            raise RefusedBatchError(ErrorCode.INVALID_PRODUCER_EPOCH, reason)
        last_sequence = producer.last_sequence if epoch == producer.producer_epoch else NO_SEQUENCE
        expected = (last_sequence + 1) % SEQUENCE_END
        if batch.base_sequence != expected:
            reason = f"producer {batch.producer_id} goes on with sequence {expected}, not {batch.base_sequence}"
            raise RefusedBatchError(ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, reason)
        if producer.first_offset is not None and not batch.is_transactional:
            reason = f"producer {batch.producer_id} has a transaction open, and this batch is not part of it"
            raise RefusedBatchError(ErrorCode.INVALID_TXN_STATE, reason)

    def has_open(self, producer_id: int, producer_epoch: int) -> bool:
        """Tell whether a producer has a transaction open here with this epoch."""
        producer = self._producers.get(producer_id)
        return producer is not None and producer.first_offset is not None and producer.producer_epoch == producer_epoch

    def first_open_offset(self) -> int | None:
        """Return where the oldest open transaction begins; None if none is open."""
        queue = self._open
        while queue:
            first_offset, producer_id = queue[0]
            producer = self._producers.get(producer_id)
            if producer is not None and producer.first_offset == first_offset:
                return first_offset
            heapq.heappop(queue)
        return None

    def active(self) -> list[ActiveProducer]:
        """Return all that are known."""
        return [
            ActiveProducer(
                producer_id,
                producer.producer_epoch,
                producer.last_sequence,
                producer.last_timestamp_ms,
                producer.coordinator_epoch,
                NO_OFFSET if producer.first_offset is None else producer.first_offset,
            )
            for producer_id, producer in self._producers.items()
        ]

    # ------------------------------------------------------------ changes

    def reserve(self, producer_id: int, *, is_marker: bool = False) -> bool:
        """Make room for a producer, before anything is appended.

        Returns:
            True if nothing is known of it yet.

        Raises:
            RefusedBatchError: POLICY_VIOLATION, there is none.
        """
        if producer_id in self._producers:
            return False
        if len(self._producers) >= PRODUCERS_MAX:
            self._forget_one()
        self._memory.take(PRODUCER_BYTES, is_marker=is_marker)
        self._producers[producer_id] = _Producer()
        return True

    def _forget_one(self) -> None:
        idle = (producer_id for producer_id, producer in self._producers.items() if producer.first_offset is None)
        forgotten = next(idle, None)
        if forgotten is None:
            reason = f"{PRODUCERS_MAX} producers have a transaction open in one partition"
            raise RefusedBatchError(ErrorCode.POLICY_VIOLATION, reason)
        self.forget(forgotten)

    def forget(self, producer_id: int) -> None:
        """Forget a producer."""
        del self._producers[producer_id]
        self._memory.give_back(PRODUCER_BYTES)

    def appended(self, batch: ProducedBatch, base_offset: int, timestamp_ms: int) -> None:
        """Note a batch of a producer that was reserved."""
        producer = self._producers[batch.producer_id]
        self._producers.move_to_end(batch.producer_id)
        if producer.producer_epoch != batch.producer_epoch:
            producer.producer_epoch = batch.producer_epoch
            producer.batches.clear()
        known = RememberedBatch(batch.base_sequence, batch.last_sequence, base_offset, timestamp_ms)
        producer.batches.append(known)
        producer.last_timestamp_ms = timestamp_ms
        if batch.is_transactional and producer.first_offset is None:
            producer.first_offset = base_offset
            heapq.heappush(self._open, (base_offset, batch.producer_id))

    def check_marker(self, producer_id: int, producer_epoch: int, coordinator_epoch: int) -> ErrorCode:
        """Return INVALID_PRODUCER_EPOCH or TRANSACTION_COORDINATOR_FENCED for a marker that is out of date, or NONE."""
        producer = self._producers.get(producer_id)
        if producer is None:
            return ErrorCode.NONE
        if producer_epoch < producer.producer_epoch:
            return ErrorCode.INVALID_PRODUCER_EPOCH
        is_fenced = coordinator_epoch < producer.coordinator_epoch
        return ErrorCode.TRANSACTION_COORDINATOR_FENCED if is_fenced else ErrorCode.NONE

    def ended(self, producer_id: int, producer_epoch: int, coordinator_epoch: int, timestamp_ms: int) -> int | None:
        """Note a marker of a producer that was reserved.

        Returns:
            Where the transaction that it ends begins; None if none was open.
        """
        producer = self._producers[producer_id]
        self._producers.move_to_end(producer_id)
        if producer.producer_epoch != producer_epoch:
            producer.producer_epoch = producer_epoch
            producer.batches.clear()
        producer.coordinator_epoch = coordinator_epoch
        producer.last_timestamp_ms = timestamp_ms
        first_offset, producer.first_offset = producer.first_offset, None
        return first_offset

    def clear(self) -> None:
        """Forget everybody: the log is gone."""
        self._memory.give_back(PRODUCER_BYTES * len(self._producers))
        self._producers.clear()
        self._open.clear()
