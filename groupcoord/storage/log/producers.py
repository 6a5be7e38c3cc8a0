"""Producer state of a log: epochs, sequence numbers, recent batches, open transactions, and its snapshots in files.

Sources: ``ProducerStateManager``, ``ProducerAppendInfo`` and ``ProducerStateEntry`` of Apache Kafka 4.4 (KIP-98,
KIP-360).
"""

from __future__ import annotations

import heapq
import re
from collections import OrderedDict, deque
from collections.abc import Iterable, Iterator
from pathlib import Path
from struct import (
    Struct,
    error as StructError,  # noqa: N812
)
from typing import NamedTuple

from attrs import define, field
from crc32c import crc32c

from groupcoord.config.files import read_file
from groupcoord.core.log.records import TransactionMarker
from groupcoord.errors import ErrorCode
from groupcoord.records.batches import Batch
from groupcoord.storage.errors import RefusedBatchError
from groupcoord.storage.files import replace_file
from groupcoord.storage.log.batches import SEQUENCE_END, ProducedBatch
from groupcoord.storage.log.index import AbortedTransaction
from groupcoord.storage.log.settings import PRODUCER_BYTES, LogMemory

REMEMBERED_BATCHES = 5
"""Batches that are recognized as duplicates, as many as a producer has in flight."""

PRODUCERS_MAX = 10_000
"""Most producers of a log. Beyond that, the one without an open transaction that wrote longest ago is removed."""

NO_EPOCH = -1
NO_SEQUENCE = -1
NO_OFFSET = -1


class RememberedBatch(NamedTuple):
    """A recent batch, which may be sent again."""

    base_sequence: int
    last_sequence: int
    base_offset: int
    timestamp_ms: int


@define
class _Producer:
    producer_epoch: int = NO_EPOCH
    coordinator_epoch: int = -1
    last_timestamp_ms: int = -1
    first_offset: int | None = None  # of its open transaction
    batches: deque[RememberedBatch] = field(factory=lambda: deque(maxlen=REMEMBERED_BATCHES))

    @property
    def last_sequence(self) -> int:
        return self.batches[-1].last_sequence if self.batches else NO_SEQUENCE


class ProducerEntry(NamedTuple):
    """Entry of a producer snapshot: a recent batch and the state of its producer.

    Attributes:
        last_sequence, last_offset: of the last record of the batch, or -1 without a recent batch.
        offset_delta: the number of offsets of the batch minus one.
        first_offset: the start of the open transaction, or -1.
    """

    producer_id: int
    producer_epoch: int
    last_sequence: int
    last_offset: int
    offset_delta: int
    timestamp_ms: int
    coordinator_epoch: int
    first_offset: int


class ProducerStates:
    """State of all producers of one log."""

    __slots__ = ("_memory", "_open", "_producers")

    def __init__(self, memory: LogMemory) -> None:
        self._memory = memory
        self._producers: OrderedDict[int, _Producer] = OrderedDict()  # the most recent writer last
        # Heap of first offsets and producer ids. Ended transactions are removed when they reach the top.
        self._open: list[tuple[int, int]] = []

    def __len__(self) -> int:
        return len(self._producers)

    # ------------------------------------------------------------ looking

    def find_duplicate(self, batch: ProducedBatch) -> RememberedBatch | None:
        """Return the batch that this one repeats, if it is one of the last five of its producer and epoch."""
        producer = self._producers.get(batch.producer_id)
        # A new epoch starts its sequences at 0 again.
        if producer is None or producer.producer_epoch != batch.producer_epoch:
            return None
        sequences = (batch.base_sequence, batch.last_sequence)
        return next((known for known in producer.batches if known[:2] == sequences), None)

    def check(self, batch: ProducedBatch) -> None:
        """Check the epoch and the sequence number of a batch, and that a batch in an open transaction is transactional.

        Raises:
            RefusedBatchError: INVALID_PRODUCER_EPOCH, OUT_OF_ORDER_SEQUENCE_NUMBER or INVALID_TXN_STATE.
        """
        producer = self._producers.get(batch.producer_id)
        if producer is None or producer.producer_epoch == NO_EPOCH:
            return  # records of an unknown producer may have been deleted: Kafka accepts any sequence number
        epoch = batch.producer_epoch
        if epoch < producer.producer_epoch:
            reason = f"the epoch of producer {batch.producer_id} is {producer.producer_epoch}, not {epoch}"
            raise RefusedBatchError(ErrorCode.INVALID_PRODUCER_EPOCH, reason)
        # A new epoch must begin with sequence 0 (KIP-360).
        last_sequence = producer.last_sequence if epoch == producer.producer_epoch else NO_SEQUENCE
        expected = (last_sequence + 1) % SEQUENCE_END
        if batch.base_sequence != expected:
            reason = f"the next sequence of producer {batch.producer_id} is {expected}, not {batch.base_sequence}"
            raise RefusedBatchError(ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, reason)
        if producer.first_offset is not None and not batch.is_transactional:
            reason = f"producer {batch.producer_id} has a transaction open, and this batch is not part of it"
            raise RefusedBatchError(ErrorCode.INVALID_TXN_STATE, reason)

    def has_open(self, producer_id: int, producer_epoch: int) -> bool:
        producer = self._producers.get(producer_id)
        return producer is not None and producer.first_offset is not None and producer.producer_epoch == producer_epoch

    def first_open_offset(self) -> int | None:
        queue = self._open
        while queue:
            first_offset, producer_id = queue[0]
            producer = self._producers.get(producer_id)
            # The producer may have a newer transaction.
            if producer is not None and producer.first_offset == first_offset:
                return first_offset
            heapq.heappop(queue)
        return None

    # ------------------------------------------------------------ snapshots

    def entries(self) -> Iterator[ProducerEntry]:
        for producer_id, producer in self._producers.items():
            first_offset = NO_OFFSET if producer.first_offset is None else producer.first_offset
            behind = producer.coordinator_epoch, first_offset
            last = len(producer.batches) - 1
            for number, (base_sequence, last_sequence, base_offset, batch_ms) in enumerate(producer.batches):
                delta = (last_sequence - base_sequence) % SEQUENCE_END
                timestamp_ms = producer.last_timestamp_ms if number == last else batch_ms
                sent = last_sequence, base_offset + delta, delta, timestamp_ms
                yield ProducerEntry(producer_id, producer.producer_epoch, *sent, *behind)
            if not producer.batches:
                unsent = NO_SEQUENCE, NO_OFFSET, 0, producer.last_timestamp_ms
                yield ProducerEntry(producer_id, producer.producer_epoch, *unsent, *behind)

    def last_entries(self) -> dict[int, ProducerEntry]:
        """Return the newest entry of each producer, by its id."""
        return {entry.producer_id: entry for entry in self.entries()}

    def restore(self, entries: Iterable[ProducerEntry]) -> None:
        for entry in entries:
            self.reserve(entry.producer_id)
            producer = self._producers[entry.producer_id]
            producer.producer_epoch = entry.producer_epoch
            producer.coordinator_epoch = entry.coordinator_epoch
            producer.last_timestamp_ms = entry.timestamp_ms
            # Kafka's snapshots have one entry per producer, ours up to five; a broker keeps the last.
            if entry.last_offset != NO_OFFSET:
                base_sequence = (entry.last_sequence - entry.offset_delta) % SEQUENCE_END
                base_offset = entry.last_offset - entry.offset_delta
                known = RememberedBatch(base_sequence, entry.last_sequence, base_offset, entry.timestamp_ms)
                producer.batches.append(known)
            if producer.first_offset is None and entry.first_offset != NO_OFFSET:
                producer.first_offset = entry.first_offset
                heapq.heappush(self._open, (entry.first_offset, entry.producer_id))

    # ------------------------------------------------------------ changes

    def reserve(self, producer_id: int, *, is_marker: bool = False) -> bool:
        """Reserve memory for a producer before an append; return whether it is new.

        Raises:
            RefusedBatchError: POLICY_VIOLATION, there is no memory left, or too many producers have a transaction open.
        """
        if producer_id in self._producers:
            return False
        # Clients may use any number of producer ids.
        if len(self._producers) >= PRODUCERS_MAX:
            self._forget_one()
        self._memory.take(PRODUCER_BYTES, is_marker=is_marker)
        self._producers[producer_id] = _Producer()
        return True

    def _forget_one(self) -> None:
        # Removing one with an open transaction would release the last stable offset.
        idle = (producer_id for producer_id, producer in self._producers.items() if producer.first_offset is None)
        forgotten = next(idle, None)
        if forgotten is None:
            reason = f"{PRODUCERS_MAX} producers have a transaction open in one partition"
            raise RefusedBatchError(ErrorCode.POLICY_VIOLATION, reason)
        self.forget(forgotten)

    def forget(self, producer_id: int) -> None:
        del self._producers[producer_id]
        self._memory.give_back(PRODUCER_BYTES)

    def appended(self, batch: Batch, base_offset: int, timestamp_ms: int) -> None:
        """Apply an appended batch to the state of its producer, which was reserved."""
        producer = self._producers[batch.producer_id]
        self._producers.move_to_end(batch.producer_id)
        if producer.producer_epoch != batch.producer_epoch:
            producer.producer_epoch = batch.producer_epoch
            producer.batches.clear()
        last_sequence = (batch.base_sequence + batch.last_offset_delta) % SEQUENCE_END
        known = RememberedBatch(batch.base_sequence, last_sequence, base_offset, timestamp_ms)
        producer.batches.append(known)
        producer.last_timestamp_ms = timestamp_ms
        if batch.is_transactional and producer.first_offset is None:
            producer.first_offset = base_offset
            heapq.heappush(self._open, (base_offset, batch.producer_id))

    def check_marker(self, producer_id: int, producer_epoch: int, coordinator_epoch: int) -> ErrorCode:
        producer = self._producers.get(producer_id)
        if producer is None:
            return ErrorCode.NONE
        # In the order of ProducerAppendInfo.
        if producer_epoch < producer.producer_epoch:
            return ErrorCode.INVALID_PRODUCER_EPOCH
        is_fenced = coordinator_epoch < producer.coordinator_epoch
        return ErrorCode.TRANSACTION_COORDINATOR_FENCED if is_fenced else ErrorCode.NONE

    def ended(self, marker: TransactionMarker, offset: int, timestamp_ms: int) -> AbortedTransaction | None:
        producer_id = marker.producer_id
        producer = self._producers[producer_id]
        self._producers.move_to_end(producer_id)
        if producer.producer_epoch != marker.producer_epoch:
            producer.producer_epoch = marker.producer_epoch
            producer.batches.clear()
        producer.coordinator_epoch = marker.coordinator_epoch
        producer.last_timestamp_ms = timestamp_ms
        first_offset, producer.first_offset = producer.first_offset, None
        # Consumers skip aborted transactions only.
        if first_offset is None or marker.committed:
            return None
        # After this transaction is closed: the last stable offset behind its marker.
        first_open = self.first_open_offset()
        return AbortedTransaction(producer_id, first_offset, offset, offset + 1 if first_open is None else first_open)

    def clear(self) -> None:
        self._memory.give_back(PRODUCER_BYTES * len(self._producers))
        self._producers.clear()
        self._open.clear()


VERSION = 1
_HEADER, _COUNT = Struct(">hI"), Struct(">i")
_ENTRY = Struct(">qhiqiqiq")
_NAME = re.compile(r"([0-9]{20})\.snapshot")


class BadSnapshotError(ValueError):
    """A file is not an intact producer snapshot of a known version."""


def snapshot_path(folder: Path, offset: int) -> Path:
    return folder / f"{offset:020d}.snapshot"


def list_snapshots(names: Iterable[str]) -> list[int]:
    return sorted(int(match[1]) for match in map(_NAME.fullmatch, names) if match)


def write_snapshot(folder: Path, offset: int, entries: Iterable[ProducerEntry]) -> None:
    packed = [_ENTRY.pack(*entry) for entry in entries]
    # The CRC covers the count and the entries, as in ProducerStateManager.
    covered = _COUNT.pack(len(packed)) + b"".join(packed)
    # Not synced: a snapshot with a wrong checksum is ignored, and more batches are replayed instead.
    replace_file(snapshot_path(folder, offset), _HEADER.pack(VERSION, crc32c(covered)) + covered, is_durable=False)


def read_snapshot(folder: Path, offset: int) -> Iterator[ProducerEntry]:
    """Return the entries of a snapshot. A damaged one raises BadSnapshotError."""
    data = read_file(snapshot_path(folder, offset))
    try:
        version, crc = _HEADER.unpack_from(data)
        covered = data[_HEADER.size :]
        (count,) = _COUNT.unpack_from(covered)
        if version != VERSION or crc != crc32c(covered) or len(covered) != _COUNT.size + count * _ENTRY.size:
            raise BadSnapshotError(f"version {version}, {len(data)} bytes")
        return (ProducerEntry(*entry) for entry in _ENTRY.iter_unpack(covered[_COUNT.size :]))
    except StructError as error:
        raise BadSnapshotError(str(error)) from None
