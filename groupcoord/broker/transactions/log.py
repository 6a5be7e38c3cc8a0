"""Transaction log (topic ``__transaction_state``, one record for each change) and file of producer ids.

Its partitions are compacted logs like those of other topics. Nothing is fsynced unless ``log.flush.interval.…`` demands
it. Acknowledged changes survive a killed process anyway.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from attrs import evolve

from groupcoord.broker.json_file import DataFileError, JsonFile
from groupcoord.broker.records.topic_data import TopicData
from groupcoord.broker.topics.registry import Topic, TopicError, TopicRegistry, ensure_internal_topic
from groupcoord.broker.transactions.state import Transaction
from groupcoord.core.javacompat import partition_for
from groupcoord.core.topics import TRANSACTIONS_TOPIC
from groupcoord.errors import GroupcoordError
from groupcoord.storage.errors import TopicLogError

if TYPE_CHECKING:
    from groupcoord.storage.log.memory_log import PartitionLog
    from groupcoord.storage.log.settings import TopicLogSettings


FILE_NAME = "producer-ids.json"
PRODUCER_ID_BLOCK = 1_000
"""Ids that one write reserves, as in Kafka; a restart discards unused ones."""


class ProducerIdsFileError(DataFileError):
    """The file can't be read or has invalid content; the message has the file and the reason."""


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
        # Reserved before the id is returned, so that no restart returns it again.
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


READ_BYTES = 1_048_576
"""Bytes of a log that are read at once."""

MEMORY_SEGMENT_BYTES = 262_144
"""Largest segment in memory, so that superseded records can soon be dropped."""


class TransactionLogError(GroupcoordError):
    """A transaction can't be written or read; the message has the reason."""


class TransactionLog:
    """Transactions of a server, durable if its topics are."""

    def __init__(self, topics: TopicRegistry, data: TopicData, *, on_made: Callable[[], None]) -> None:
        self._topics = topics
        self._on_made = on_made
        self._in_memory: tuple[TopicLogSettings, TopicLogSettings] | None = None  # as set, and as used
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

    def read(self) -> list[Transaction]:
        """Return the last state of each transactional id."""
        topic = self._topics.get(TRANSACTIONS_TOPIC)
        if topic is None:
            return []
        try:
            found = self._data.existing_logs(topic)
        except OSError as error:
            raise TransactionLogError(f"{topic.name} can't be read: {error}") from error
        return [transaction for index in found for transaction in self._read_partition(topic, index)]

    def _read_partition(self, topic: Topic, index: int) -> Iterator[Transaction]:
        from groupcoord.records.transactions import decode_transaction_key, decode_transaction_value

        values: dict[bytes, bytes | None] = {}
        try:
            for key, value in _records(self._log(topic, index)):
                # Only the last record of a key counts, whether or not compaction has run.
                values[key] = value
            for key, value in values.items():
                transactional_id = decode_transaction_key(key)
                # Skip tombstones, and keys of another kind from newer brokers.
                if value is not None and transactional_id is not None:
                    yield Transaction.from_record(transactional_id, decode_transaction_value(value))
        except (ValueError, KeyError, TopicLogError) as error:
            raise TransactionLogError(f"{topic.name}-{index} can't be read: {error}") from error

    def put(self, transaction: Transaction, now_ms: int) -> None:
        from groupcoord.records.transactions import encode_transaction_value

        self._append(transaction.transactional_id, encode_transaction_value(transaction.to_record()), now_ms)

    def remove(self, transactional_id: str, now_ms: int) -> None:
        self._append(transactional_id, None, now_ms)

    def coordinator_epoch(self, transactional_id: str) -> int:
        """Return the leader epoch of the partition of a transactional id."""
        topic = self.topic()
        return self._data.leader_epoch(topic, partition_for(transactional_id, topic.partition_count))

    def _append(self, transactional_id: str, value: bytes | None, now_ms: int) -> None:
        from groupcoord.records.batches import encode_batch
        from groupcoord.records.transactions import encode_transaction_key

        topic = self.topic()
        try:
            key = encode_transaction_key(transactional_id)
            log = self._log(topic, partition_for(transactional_id, topic.partition_count))
            records = [(key, value, now_ms)]
            # Nothing yields before the append, so the log will still end here.
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
        # Compaction leaves the active segment alone, which in memory would hold 100 MB of old states.
        if self._topics.directory is not None or settings.segment_bytes <= MEMORY_SEGMENT_BYTES:
            return settings
        # By identity: changed configs come as a new object.
        if self._in_memory is None or self._in_memory[0] is not settings:
            self._in_memory = settings, evolve(settings, segment_bytes=MEMORY_SEGMENT_BYTES)
        return self._in_memory[1]


def _records(log: PartitionLog) -> Iterator[tuple[bytes, bytes | None]]:
    """Yield the keys and values of a log, without markers."""
    from groupcoord.records.batches import TruncatedBatchError, iter_batches

    offset = log.start_offset
    while offset < log.end_offset:
        # A batch larger than READ_BYTES would otherwise never be read.
        read = log.read(offset, log.end_offset, READ_BYTES, takes_first=True)
        with suppress(TruncatedBatchError):  # the last batch may be; the next read completes it
            for batch in iter_batches(b"".join(read.parts)):
                if not batch.is_control:
                    yield from ((key or b"", value) for _, _, key, value in batch.records())
                # From the batch, since compaction leaves gaps between offsets.
                offset = batch.next_offset
