"""State of a transactional id, and the rules of its epochs.

Sources: KIP-98, KIP-360 (a producer resumes after an error), KIP-588 (time-outs fence), KIP-890 (an epoch for every
transaction); ``TransactionMetadata`` and ``TransactionCoordinator`` of Apache Kafka 4.4, as recorded.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from enum import Enum
from typing import Any, NamedTuple

from attrs import evolve, frozen

from groupcoord.core.consumer_protocol import TopicPartition
from groupcoord.errors import ErrorCode
from groupcoord.wire.broker_messages import TopicEntry
from groupcoord.wire.transaction_messages import NO_PRODUCER_EPOCH, NO_PRODUCER_ID

LAST_EPOCH = 2**15 - 2
"""Highest epoch of a producer; the one above it fences it."""

NO_TIME = -1


class TransactionState(Enum):
    """State of a transactional id, with the names of DescribeTransactions."""

    EMPTY = "Empty"
    ONGOING = "Ongoing"
    PREPARE_COMMIT = "PrepareCommit"
    PREPARE_ABORT = "PrepareAbort"
    COMPLETE_COMMIT = "CompleteCommit"
    COMPLETE_ABORT = "CompleteAbort"

    @property
    def code(self) -> int:
        return _STATES.index(self)

    @property
    def is_prepared(self) -> bool:
        return self in (TransactionState.PREPARE_COMMIT, TransactionState.PREPARE_ABORT)

    @property
    def is_complete(self) -> bool:
        return self in (TransactionState.COMPLETE_COMMIT, TransactionState.COMPLETE_ABORT)


_STATES = tuple(TransactionState)

CLIENT_VERSION, CLIENT_VERSION_OF_EPOCHS = 0, 2
"""Client versions in the log: those that keep their epoch, and those with an epoch for each transaction (KIP-890)."""


class Writer(NamedTuple):
    """Producer that writes to a partition in a transaction.

    Attributes:
        adds_partition: whether the partition is added to the transaction, which begins if necessary (KIP-890).
    """

    transactional_id: str
    producer_id: int
    producer_epoch: int
    partition: TopicPartition
    adds_partition: bool


@frozen
class Transaction:
    """Transactional id and its last transaction. A change creates a new object, which becomes current when it is
    durable.

    Attributes:
        last_producer_epoch: the epoch before this one, if its producer may repeat a request; lost by a restart.
        previous_producer_id: the id before the last change; another one only if its epochs were exhausted.
        next_producer_id: the id after a prepared transaction, if the epochs are exhausted.
        start_time_ms: the start of the last transaction; -1 if there was none since InitProducerId.
    """

    transactional_id: str
    producer_id: int
    timeout_ms: int
    producer_epoch: int = NO_PRODUCER_EPOCH
    last_producer_epoch: int = NO_PRODUCER_EPOCH
    previous_producer_id: int = NO_PRODUCER_ID
    next_producer_id: int = NO_PRODUCER_ID
    state: TransactionState = TransactionState.EMPTY
    partitions: frozenset[TopicPartition] = frozenset()
    start_time_ms: int = NO_TIME
    update_time_ms: int = 0
    client_version: int = CLIENT_VERSION

    # ------------------------------------------------------------ looking

    @property
    def topics(self) -> tuple[TopicEntry[int], ...]:
        by_topic: dict[str, list[int]] = {}
        for topic, index in sorted(self.partitions):
            by_topic.setdefault(topic, []).append(index)
        return tuple(TopicEntry(topic, tuple(indexes)) for topic, indexes in by_topic.items())

    def has_timed_out(self, now_ms: int) -> bool:
        return self.state is TransactionState.ONGOING and self.start_time_ms + self.timeout_ms < now_ms

    def may_resume(self, producer_id: int, producer_epoch: int) -> bool:
        """Return whether a producer with this id and epoch may initialise; :meth:`initialised` checks the epoch."""
        return (
            self.producer_epoch == NO_PRODUCER_EPOCH
            or producer_id == self.producer_id
            # Its epochs ran out, and the response with the next id may be lost.
            or (producer_id == self.previous_producer_id and producer_epoch >= LAST_EPOCH)
        )

    def check_producer(self, producer_id: int, producer_epoch: int) -> ErrorCode:
        """Return NONE for the current producer, else INVALID_PRODUCER_ID_MAPPING or PRODUCER_FENCED."""
        if producer_id != self.producer_id:
            return ErrorCode.INVALID_PRODUCER_ID_MAPPING
        return ErrorCode.NONE if producer_epoch == self.producer_epoch else ErrorCode.PRODUCER_FENCED

    def is_repeated_end(self, producer_id: int, producer_epoch: int) -> bool:
        """Return whether an epoch-bumping EndTxn names the producer from before the last such EndTxn."""
        if not self.state.is_complete:
            return False
        if producer_id == self.producer_id:
            # Each such EndTxn raises the epoch, so a repetition names the one before.
            return producer_epoch == self.producer_epoch - 1
        # KIP-890: EndTxn used up the epochs, so the next id began at 0.
        return producer_id == self.previous_producer_id and producer_epoch == LAST_EPOCH and self.producer_epoch == 0

    # ------------------------------------------------------------ changes

    def _changed(self, now_ms: int, **changes: Any) -> Transaction:
        return evolve(self, update_time_ms=now_ms, previous_producer_id=self.producer_id, **changes)

    def initialised(
        self, expected_epoch: int | None, timeout_ms: int, now_ms: int, new_producer_id: Callable[[], int]
    ) -> Transaction | None:
        """Return the state with the next epoch, or None if the producer is fenced."""
        fresh = self._changed(
            now_ms,
            timeout_ms=timeout_ms,
            state=TransactionState.EMPTY,
            partitions=frozenset(),
            start_time_ms=NO_TIME,
        )
        # A new transactional id has no epoch yet.
        is_current = self.producer_epoch in (NO_PRODUCER_EPOCH, expected_epoch)
        is_repeated = expected_epoch is not None and expected_epoch == self.last_producer_epoch
        if expected_epoch is not None and not is_current and not is_repeated:
            return None
        # KIP-360: a repeated InitProducerId does not raise the epoch a second time.
        if is_repeated and not is_current and self.producer_epoch <= LAST_EPOCH:
            return fresh
        # KIP-360: epochs are exhausted, so the producer continues with a new id.
        if self.producer_epoch >= LAST_EPOCH:
            return evolve(
                fresh,
                producer_id=new_producer_id(),
                producer_epoch=0,
                last_producer_epoch=NO_PRODUCER_EPOCH if expected_epoch is None else expected_epoch,
            )
        last_epoch = NO_PRODUCER_EPOCH if expected_epoch is None else self.producer_epoch
        return evolve(fresh, producer_epoch=self.producer_epoch + 1, last_producer_epoch=last_epoch)

    def with_partitions(
        self, partitions: frozenset[TopicPartition], now_ms: int, client_version: int = CLIENT_VERSION
    ) -> Transaction:
        """Return the state with partitions added to its open transaction."""
        is_open = self.state is TransactionState.ONGOING
        return self._changed(
            now_ms,
            state=TransactionState.ONGOING,
            # Partitions of a completed transaction are not part of the next one.
            partitions=self.partitions | partitions if is_open else partitions,
            # The time-out counts from the first partition of the transaction.
            start_time_ms=self.start_time_ms if is_open else now_ms,
            client_version=client_version,
        )

    def fenced(self, now_ms: int) -> Transaction:
        """Return the state prepared to abort, under an epoch that no producer has."""
        return self._changed(
            now_ms,
            state=TransactionState.PREPARE_ABORT,
            # KIP-588: the producer of a timed out transaction is fenced by the next epoch.
            producer_epoch=self.producer_epoch + 1,
            # KIP-588: with this epoch the timed out producer may still initialise.
            last_producer_epoch=self.producer_epoch,
            client_version=CLIENT_VERSION_OF_EPOCHS,
        )

    def prepared(
        self, *, committed: bool, bumps_epoch: bool, now_ms: int, new_producer_id: Callable[[], int]
    ) -> Transaction:
        """Return the state with the outcome decided, and the epoch raised if requested."""
        is_open = self.state is TransactionState.ONGOING
        decided = self._changed(
            now_ms,
            state=TransactionState.PREPARE_COMMIT if committed else TransactionState.PREPARE_ABORT,
            start_time_ms=self.start_time_ms if is_open else now_ms,
            # KIP-890: an abort without a transaction only raises the epoch.
            partitions=self.partitions if is_open else frozenset(),
            client_version=CLIENT_VERSION_OF_EPOCHS if bumps_epoch else CLIENT_VERSION,
        )
        if not bumps_epoch:
            return decided
        return evolve(
            decided,
            producer_epoch=self.producer_epoch + 1,
            last_producer_epoch=self.producer_epoch,
            # The markers still need the old id, so the new one holds after completion.
            next_producer_id=new_producer_id() if self.producer_epoch >= LAST_EPOCH else NO_PRODUCER_ID,
        )

    def completed(self, now_ms: int) -> Transaction:
        is_commit = self.state is TransactionState.PREPARE_COMMIT
        done = self._changed(
            now_ms,
            state=TransactionState.COMPLETE_COMMIT if is_commit else TransactionState.COMPLETE_ABORT,
            partitions=frozenset(),
        )
        if self.next_producer_id == NO_PRODUCER_ID:
            return done
        # KIP-890: the epochs are used up, and no marker needs the old id.
        return evolve(
            done,
            producer_id=self.next_producer_id,
            producer_epoch=0,
            next_producer_id=NO_PRODUCER_ID,
        )

    # ------------------------------------------------------------ as a record of the log

    def to_record(self) -> dict[str, Any]:
        partitions = None
        # In state Empty Kafka writes null, not an empty list.
        if self.state is not TransactionState.EMPTY:
            partitions = [{"topic": topic, "partitionIds": list(indexes)} for topic, indexes in self.topics]
        # KIP-482: tagged fields with their default are not written.
        tagged = {
            "previousProducerId": (self.previous_producer_id, NO_PRODUCER_ID),
            "nextProducerId": (self.next_producer_id, NO_PRODUCER_ID),
            "clientTransactionVersion": (self.client_version, CLIENT_VERSION),
        }
        return {
            "producerId": self.producer_id,
            "producerEpoch": self.producer_epoch,
            "transactionTimeoutMs": self.timeout_ms,
            "transactionStatus": self.state.code,
            "transactionPartitions": partitions,
            "transactionLastUpdateTimestampMs": self.update_time_ms,
            "transactionStartTimestampMs": self.start_time_ms,
            **{name: value for name, (value, default) in tagged.items() if value != default},
        }

    @classmethod
    def from_record(cls, transactional_id: str, values: Mapping[str, Any]) -> Transaction:
        """Parse a record; ValueError if its state is never written."""
        code = values["transactionStatus"]
        if not 0 <= code < len(_STATES):
            raise ValueError(f"the transaction of {transactional_id!r} is in state {code}")
        return cls(
            transactional_id=transactional_id,
            producer_id=values["producerId"],
            timeout_ms=values["transactionTimeoutMs"],
            producer_epoch=values["producerEpoch"],
            # Records of version 0 have no tagged fields.
            previous_producer_id=values.get("previousProducerId", NO_PRODUCER_ID),
            next_producer_id=values.get("nextProducerId", NO_PRODUCER_ID),
            state=_STATES[code],
            partitions=frozenset(
                TopicPartition(found["topic"], index)
                for found in values["transactionPartitions"] or ()
                for index in found["partitionIds"]
            ),
            start_time_ms=values["transactionStartTimestampMs"],
            update_time_ms=values["transactionLastUpdateTimestampMs"],
            client_version=values.get("clientTransactionVersion", CLIENT_VERSION),
        )
