"""What the transaction coordinator knows of one transactional id, and the rules by which epochs move on.

Sources: KIP-98, KIP-360 (a producer resumes after an error), KIP-588 (time-outs fence), KIP-890 (an epoch for every
transaction); ``TransactionMetadata`` and ``TransactionCoordinator`` of Apache Kafka 4.4, as recorded.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from enum import Enum
from typing import Any, NamedTuple

from attrs import evolve, frozen

from groupcoord.errors import ErrorCode
from groupcoord.wire.cluster_messages import TopicPartitions
from groupcoord.wire.transaction_messages import NO_PRODUCER_EPOCH, NO_PRODUCER_ID

LAST_EPOCH = 2**15 - 2
"""The highest epoch a producer is given; the one above it is left for fencing it."""

NO_TIME = -1


class TransactionState(Enum):
    """Where a transactional id stands; the values are what DescribeTransactions says."""

    EMPTY = "Empty"
    ONGOING = "Ongoing"
    PREPARE_COMMIT = "PrepareCommit"
    PREPARE_ABORT = "PrepareAbort"
    COMPLETE_COMMIT = "CompleteCommit"
    COMPLETE_ABORT = "CompleteAbort"

    @property
    def is_prepared(self) -> bool:
        """True while the outcome is decided, but not written to all partitions."""
        return self in (TransactionState.PREPARE_COMMIT, TransactionState.PREPARE_ABORT)

    @property
    def is_complete(self) -> bool:
        """True once the outcome is written everywhere, until the next transaction."""
        return self in (TransactionState.COMPLETE_COMMIT, TransactionState.COMPLETE_ABORT)


class TopicPartition(NamedTuple):
    """One partition of a topic."""

    topic: str
    partition_index: int


class Writer(NamedTuple):
    """Who writes in a transaction, and where.

    Attributes:
        adds_partition: the partition is added to the transaction, which begins if need be (KIP-890).
    """

    transactional_id: str
    producer_id: int
    producer_epoch: int
    partition: TopicPartition
    adds_partition: bool


@frozen
class Transaction:
    """A transactional id and its last transaction. A change makes a new object, which replaces this when it is durable.

    Attributes:
        last_producer_epoch: the epoch before this one, if its producer may ask again what became of a request.
        previous_producer_id: the id before this one, if the epochs of that ran out.
        next_producer_id: while a transaction is prepared: the id to go on with, as the epochs have run out.
        start_time_ms: when the last transaction began; -1 if there was none since the producer was initialised.
        update_time_ms: when anything last changed.
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

    # ------------------------------------------------------------ looking

    @property
    def topics(self) -> tuple[TopicPartitions, ...]:
        """The partitions by topic, in order."""
        by_topic: dict[str, list[int]] = {}
        for topic, index in sorted(self.partitions):
            by_topic.setdefault(topic, []).append(index)
        return tuple(TopicPartitions(topic, tuple(indexes)) for topic, indexes in by_topic.items())

    def has_timed_out(self, now_ms: int) -> bool:
        """Tell whether its transaction has been open for too long."""
        return self.state is TransactionState.ONGOING and self.start_time_ms + self.timeout_ms < now_ms

    def may_resume(self, producer_id: int, producer_epoch: int) -> bool:
        """Tell whether a producer that says what it has may initialise itself; its epoch is looked at later."""
        return (
            self.producer_epoch == NO_PRODUCER_EPOCH
            or producer_id == self.producer_id
            or (producer_id == self.previous_producer_id and producer_epoch >= LAST_EPOCH)
        )

    def check_producer(self, producer_id: int, producer_epoch: int) -> ErrorCode:
        """Return INVALID_PRODUCER_ID_MAPPING or PRODUCER_FENCED for a producer that this is not, else NONE."""
        if producer_id != self.producer_id:
            return ErrorCode.INVALID_PRODUCER_ID_MAPPING
        return ErrorCode.NONE if producer_epoch == self.producer_epoch else ErrorCode.PRODUCER_FENCED

    def is_repeated_end(self, producer_id: int, producer_epoch: int) -> bool:
        """Tell whether an EndTxn that bumps the epoch names the producer as it was before the last such EndTxn."""
        if not self.state.is_complete:
            return False
        if producer_id == self.producer_id:
            return producer_epoch == self.producer_epoch - 1
        return producer_id == self.previous_producer_id and producer_epoch == LAST_EPOCH and self.producer_epoch == 0

    # ------------------------------------------------------------ changes

    def initialised(
        self, expected_epoch: int | None, timeout_ms: int, now_ms: int, new_producer_id: Callable[[], int]
    ) -> Transaction | None:
        """Return this with the epoch that the next producer gets, or None if the producer is fenced.

        Args:
            expected_epoch: the epoch that the producer says it has; None if it says nothing.
            timeout_ms: how long its transactions may stay open.
            now_ms: the time.
            new_producer_id: makes an id, in case the epochs have run out.
        """
        fresh = evolve(
            self,
            timeout_ms=timeout_ms,
            state=TransactionState.EMPTY,
            partitions=frozenset(),
            start_time_ms=NO_TIME,
            update_time_ms=now_ms,
        )
        is_current = self.producer_epoch in (NO_PRODUCER_EPOCH, expected_epoch)
        is_repeated = expected_epoch is not None and expected_epoch == self.last_producer_epoch
        if expected_epoch is not None and not is_current and not is_repeated:
            return None
        if is_repeated and not is_current and self.producer_epoch <= LAST_EPOCH:
            return fresh
        if self.producer_epoch >= LAST_EPOCH:
            return evolve(
                fresh,
                producer_id=new_producer_id(),
                producer_epoch=0,
                previous_producer_id=self.producer_id,
                last_producer_epoch=NO_PRODUCER_EPOCH if expected_epoch is None else expected_epoch,
            )
        last_epoch = NO_PRODUCER_EPOCH if expected_epoch is None else self.producer_epoch
        return evolve(fresh, producer_epoch=self.producer_epoch + 1, last_producer_epoch=last_epoch)

    def with_partitions(self, partitions: frozenset[TopicPartition], now_ms: int) -> Transaction:
        """Return this with an open transaction that has these partitions, too."""
        is_open = self.state is TransactionState.ONGOING
        return evolve(
            self,
            state=TransactionState.ONGOING,
            partitions=self.partitions | partitions if is_open else partitions,
            start_time_ms=self.start_time_ms if is_open else now_ms,
            update_time_ms=now_ms,
        )

    def fenced(self, now_ms: int) -> Transaction:
        """Return this with its transaction about to be aborted, in the name of an epoch that nobody has."""
        return evolve(
            self,
            state=TransactionState.PREPARE_ABORT,
            producer_epoch=self.producer_epoch + 1,
            last_producer_epoch=self.producer_epoch,
            update_time_ms=now_ms,
        )

    def prepared(
        self, *, committed: bool, bumps_epoch: bool, now_ms: int, new_producer_id: Callable[[], int]
    ) -> Transaction:
        """Return this with the outcome decided, and if so asked the epoch raised."""
        decided = evolve(
            self,
            state=TransactionState.PREPARE_COMMIT if committed else TransactionState.PREPARE_ABORT,
            start_time_ms=self.start_time_ms if self.state is TransactionState.ONGOING else now_ms,
            partitions=self.partitions if self.state is TransactionState.ONGOING else frozenset(),
            update_time_ms=now_ms,
        )
        if not bumps_epoch:
            return decided
        return evolve(
            decided,
            producer_epoch=self.producer_epoch + 1,
            last_producer_epoch=self.producer_epoch,
            next_producer_id=new_producer_id() if self.producer_epoch >= LAST_EPOCH else NO_PRODUCER_ID,
        )

    def completed(self, now_ms: int) -> Transaction:
        """Return this with its prepared transaction over."""
        is_commit = self.state is TransactionState.PREPARE_COMMIT
        done = evolve(
            self,
            state=TransactionState.COMPLETE_COMMIT if is_commit else TransactionState.COMPLETE_ABORT,
            partitions=frozenset(),
            update_time_ms=now_ms,
        )
        if self.next_producer_id == NO_PRODUCER_ID:
            return done
        return evolve(
            done,
            producer_id=self.next_producer_id,
            producer_epoch=0,
            previous_producer_id=self.producer_id,
            next_producer_id=NO_PRODUCER_ID,
        )

    # ------------------------------------------------------------ as an entry of the log

    def to_entry(self) -> dict[str, Any]:
        """Return this as the transaction log keeps it, without its name."""
        return {
            "state": self.state.value,
            "producer_id": self.producer_id,
            "producer_epoch": self.producer_epoch,
            "last_producer_epoch": self.last_producer_epoch,
            "previous_producer_id": self.previous_producer_id,
            "next_producer_id": self.next_producer_id,
            "timeout_ms": self.timeout_ms,
            "topics": {topic.name: list(topic.partition_indexes) for topic in self.topics},
            "start_time_ms": self.start_time_ms,
            "update_time_ms": self.update_time_ms,
        }

    @classmethod
    def from_entry(cls, transactional_id: str, entry: Mapping[str, Any]) -> Transaction:
        """Read what :meth:`to_entry` gave.

        Raises:
            KeyError, TypeError, ValueError, AttributeError: it is no such thing.
        """
        values = dict(entry)
        topics = values.pop("topics")
        partitions = frozenset(TopicPartition(name, index) for name, indexes in topics.items() for index in indexes)
        state = TransactionState(values.pop("state"))
        return cls(transactional_id=transactional_id, state=state, partitions=partitions, **values)
