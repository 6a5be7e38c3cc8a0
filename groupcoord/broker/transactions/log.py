"""State of transactional ids with the rules of their epochs, the transaction log, and the file of producer ids.

The log is the topic ``__transaction_state``, with a record for each change. Its partitions are compacted like those of
other topics. Nothing is fsynced unless ``log.flush.interval.…`` demands it. Acknowledged changes survive a killed
process anyway.

Sources: KIP-98, KIP-360 (a producer resumes after an error), KIP-588 (time-outs fence), KIP-890 (an epoch for every
transaction); ``TransactionMetadata`` and ``TransactionCoordinator`` of Apache Kafka 4.4, as recorded.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from enum import Enum
from pathlib import Path
from struct import error as StructError  # noqa: N812
from typing import TYPE_CHECKING, Any, NamedTuple

from attrs import evolve, frozen

from groupcoord.broker.json_file import DataFileError, JsonFile
from groupcoord.broker.records.topic_data import TopicData
from groupcoord.broker.topics.registry import Topic, TopicError, ensure_internal_topic
from groupcoord.core.consumer_protocol import TopicPartition
from groupcoord.core.javacompat import partition_for
from groupcoord.core.log.records import TRANSACTIONS_TOPIC
from groupcoord.errors import ErrorCode, GroupcoordError
from groupcoord.storage.errors import TopicLogError
from groupcoord.wire.broker_messages import TopicEntry
from groupcoord.wire.transaction_messages import NO_PRODUCER_EPOCH, NO_PRODUCER_ID

if TYPE_CHECKING:
    from groupcoord.storage.log.memory_log import PartitionLog
    from groupcoord.storage.log.settings import TopicLogSettings

logger = logging.getLogger("groupcoord.host")

MALFORMED = (ValueError, StructError)
VERSION_BYTES = 2
"""Bytes of the version that begins each key and value."""

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
            # The response with the next id may be lost.
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
            return producer_epoch == self.producer_epoch - 1
        # KIP-890: the epochs ran out, so the next id began at 0.
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
        is_current = self.producer_epoch in (NO_PRODUCER_EPOCH, expected_epoch)
        is_repeated = expected_epoch is not None and expected_epoch == self.last_producer_epoch
        if expected_epoch is not None and not is_current and not is_repeated:
            return None
        # KIP-360: repeated.
        if is_repeated and not is_current and self.producer_epoch <= LAST_EPOCH:
            return fresh
        # KIP-360: epochs are exhausted.
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
            partitions=self.partitions | partitions if is_open else partitions,
            start_time_ms=self.start_time_ms if is_open else now_ms,
            client_version=client_version,
        )

    def fenced(self, now_ms: int) -> Transaction:
        """Return the state prepared to abort, under an epoch that no producer has."""
        return self._changed(
            now_ms,
            state=TransactionState.PREPARE_ABORT,
            # KIP-588.
            producer_epoch=self.producer_epoch + 1,
            # KIP-588: the timed out producer may still initialise.
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
            partitions=self.partitions if is_open else frozenset(),
            client_version=CLIENT_VERSION_OF_EPOCHS if bumps_epoch else CLIENT_VERSION,
        )
        if not bumps_epoch:
            return decided
        return evolve(
            decided,
            producer_epoch=self.producer_epoch + 1,
            last_producer_epoch=self.producer_epoch,
            # The markers still need the old id.
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
        return evolve(
            done,
            producer_id=self.next_producer_id,
            producer_epoch=0,
            next_producer_id=NO_PRODUCER_ID,
        )

    # ------------------------------------------------------------ as a record of the log

    def to_record(self) -> dict[str, Any]:
        partitions = None
        # As in Kafka.
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


FILE_NAME = "producer-ids.json"
PRODUCER_ID_BLOCK = 1_000
"""Ids that one write reserves, as in Kafka; a restart discards unused ones."""


class ProducerIdsFileError(DataFileError):
    """Unreadable or malformed file of producer ids."""


class NoProducerIdError(GroupcoordError):
    """No ids can be reserved, because the file can't be written."""


class ProducerIds:
    """Allocates producer ids, in blocks that a file reserves.

    Args:
        directory: the directory of the file; None for memory.
    """

    def __init__(self, directory: Path | None = None) -> None:
        self._file = JsonFile(directory, FILE_NAME, "an id", ProducerIdsFileError)
        self._reserved = self._file.read(lambda content: int(content["next_producer_id"]))
        self._next = self._reserved

    @property
    def is_known(self) -> bool:
        """True if ids were reserved, by this process or an earlier one."""
        return self._reserved is not None

    def begin_at(self, producer_id: int) -> None:
        """Allocate ids from this one on.

        Raises:
            NoProducerIdError: the file can't be written.
        """
        self._reserve(producer_id)
        self._next = producer_id

    def take(self, first_unused: Callable[[], int]) -> int:
        """Return an unused id; ``first_unused`` returns the first one, if none was reserved before.

        Raises:
            NoProducerIdError: none can be reserved.
        """
        producer_id = first_unused() if self._next is None else self._next
        # No restart may return it again.
        if self._reserved is None or producer_id >= self._reserved:
            self._reserve(producer_id + PRODUCER_ID_BLOCK)
        self._next = producer_id + 1
        return producer_id

    def _reserve(self, end: int) -> None:
        try:
            self._file.write(lambda: {"next_producer_id": end})
        except OSError as error:
            raise NoProducerIdError(f"producer ids can't be reserved: {error}") from error
        self._reserved = end


MEMORY_SEGMENT_BYTES = 262_144
"""Largest segment in memory, so that superseded records can soon be dropped."""


class TransactionLogError(GroupcoordError):
    """A transaction can't be written or read; the message has the reason."""


class TransactionLog:
    """Transactions of a server, durable if its topics are."""

    def __init__(self, data: TopicData, *, on_made: Callable[[], None]) -> None:
        self._topics = data.topics
        self._on_made = on_made
        self._in_memory: tuple[TopicLogSettings, TopicLogSettings] | None = None
        self._data = data.whole

    def topic(self) -> Topic:
        """Return the topic, created if missing."""
        topic = self._topics.get(TRANSACTIONS_TOPIC)
        if topic is not None:
            return topic
        try:
            with self._topics.edit() as edit:
                topic = ensure_internal_topic(edit, TRANSACTIONS_TOPIC, self._data.config)
        except (OSError, TopicError) as error:
            raise TransactionLogError(f"{TRANSACTIONS_TOPIC} can't be made: {error}") from error
        self._on_made()
        return topic

    def partitions(self) -> list[int]:
        topic = self._topics.get(TRANSACTIONS_TOPIC)
        try:
            return [] if topic is None else self._data.existing_logs(topic)
        except OSError as error:
            raise TransactionLogError(f"{TRANSACTIONS_TOPIC} can't be read: {error}") from error

    def partition_of(self, transactional_id: str) -> int:
        return partition_for(transactional_id, self.topic().partition_count)

    def read(self, index: int) -> Iterable[Transaction]:
        """Return the transactions of a partition; as in Kafka, up to its first malformed record."""
        found: dict[str, Transaction] = {}
        try:
            log = self._log(self.topic(), index)
            try:
                # Superseded records need no decoding.
                _replay(dict(_records(log)).items(), found)
            except MALFORMED as error:
                logger.error("%s-%d is loaded up to its first malformed record: %s", TRANSACTIONS_TOPIC, index, error)
                found.clear()
                with suppress(*MALFORMED):
                    _replay(_records(log), found)
        except TopicLogError as error:
            raise TransactionLogError(f"{TRANSACTIONS_TOPIC}-{index} can't be read: {error}") from error
        return found.values()

    def put(self, transaction: Transaction, now_ms: int) -> None:
        from groupcoord.records.transactions import encode_transaction_value

        self._append(transaction.transactional_id, encode_transaction_value(transaction.to_record()), now_ms)

    def remove(self, transactional_id: str, now_ms: int) -> None:
        self._append(transactional_id, None, now_ms)

    def coordinator_epoch(self, transactional_id: str) -> int:
        """Return the leader epoch of the partition of a transactional id."""
        return self._data.leader_epoch(self.topic(), self.partition_of(transactional_id))

    def _append(self, transactional_id: str, value: bytes | None, now_ms: int) -> None:
        from groupcoord.records.batches import encode_batch
        from groupcoord.records.transactions import encode_transaction_key

        topic = self.topic()
        try:
            key = encode_transaction_key(transactional_id)
            log = self._log(topic, self.partition_of(transactional_id))
            records = [(key, value, now_ms)]
            data = encode_batch(log.end_offset, records, leader_epoch=log.leader_epoch, base_sequence=-1)
            log.append_encoded(data, 1, now_ms, self._settings(topic))
        except (ValueError, TopicLogError) as error:
            raise TransactionLogError(str(error)) from error

    def _log(self, topic: Topic, index: int) -> PartitionLog:
        log = self._data.log(topic, index)
        assert log is not None, "this topic holds records even where others don't"
        return log

    def _settings(self, topic: Topic) -> TopicLogSettings:
        settings = self._data.settings_of(topic)
        # Compaction leaves the active segment alone.
        if self._topics.directory is not None or settings.segment_bytes <= MEMORY_SEGMENT_BYTES:
            return settings
        # Changed configs are a new object.
        if self._in_memory is None or self._in_memory[0] is not settings:
            self._in_memory = settings, evolve(settings, segment_bytes=MEMORY_SEGMENT_BYTES)
        return self._in_memory[1]


def _records(log: PartitionLog) -> Iterator[tuple[bytes, bytes | None]]:
    """Yield the keys and values of a log, without markers and values of unknown versions.

    Raises:
        ValueError: a batch or a key is malformed.
    """
    from groupcoord.records.transactions import VALUE_VERSION
    from groupcoord.storage.stores.topics import batches_of

    for batch in batches_of(log):
        if batch.is_control:
            continue
        for _, _, key, value in batch.records():
            if key is None or len(key) < VERSION_BYTES:
                raise ValueError("a record has no key with a version")
            # Newer brokers may write other versions.
            if value is None or len(value) < VERSION_BYTES or int.from_bytes(value[:VERSION_BYTES]) <= VALUE_VERSION:
                yield key, value


def _replay(records: Iterable[tuple[bytes, bytes | None]], transactions: dict[str, Transaction]) -> None:
    from groupcoord.records.transactions import decode_transaction_key, decode_transaction_value

    for key, value in records:
        transactional_id = decode_transaction_key(key)
        # Nor are keys of other versions known.
        if transactional_id is None:
            continue
        if value is None:
            transactions.pop(transactional_id, None)
        else:
            values = decode_transaction_value(value)
            transactions[transactional_id] = Transaction.from_record(transactional_id, values)
