"""A broker with transactions in tests: a client for one producer, and what outlives a restart."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any
from uuid import UUID

from groupcoord import Config, ManualClock, MemoryLogStore, Ticket
from groupcoord.broker.broker import Broker, make_broker
from groupcoord.broker.records.topic_data import TopicData
from groupcoord.broker.topics.registry import Topic, TopicRegistry
from groupcoord.broker.transactions.log import ProducerIds
from groupcoord.broker.work import do_whole
from groupcoord.core.log.records import TRANSACTIONS_TOPIC
from groupcoord.core.messages import (
    GroupToFetch,
    OffsetFetch,
    OffsetFetchResponse,
    OffsetToCommit,
    TopicToCommit,
    TopicToFetch,
    TxnOffsetCommit,
    TxnOffsetCommitResponse,
)
from groupcoord.host.opening import open_log_store, open_producer_ids, open_topic_directory
from groupcoord.records.batches import encode_batch
from groupcoord.storage.errors import FailedLogError
from groupcoord.storage.log.memory_log import PartitionLog
from groupcoord.wire.broker_messages import TopicEntry
from groupcoord.wire.transaction_messages import (
    AddOffsetsToTxn,
    AddPartitionsToTxn,
    DescribedTransaction,
    EndTxn,
    InitProducerId,
    PartitionsToAdd,
)

CHECK_INTERVAL_MS = 500
WRITER = "writer"


class ProducerClient:
    """Takes answers like a connection, and asks for one producer."""

    def __init__(self, broker: Broker) -> None:
        self.broker = broker
        self.answers: list[Any] = []

    def answer(self, response: Any) -> None:
        self.answers.append(response)

    def ask(self, handler: Callable[..., Any], request: Any, **options: Any) -> Any:
        """Return the answer, now or from the token; None if it waits."""
        options |= {} if handler.__name__ in ("init_producer_id", "add_offsets", "add_partitions") else {"token": self}
        response = handler(request, **options)
        self.broker.deliver_replies()
        return response if response is not None or not self.answers else self.answers.pop()

    def init(self, name: str | None = WRITER, producer: tuple[int, int] = (-1, -1), timeout_ms: int = 60_000) -> Any:
        request = InitProducerId(name, timeout_ms, *producer)
        response = self.ask(self.broker.transactions.init_producer_id, request)
        return response.error_code.name, response.producer_id, response.producer_epoch

    def start(self, name: str = WRITER, timeout_ms: int = 60_000) -> tuple[int, int]:
        error_name, producer_id, epoch = self.init(name, timeout_ms=timeout_ms)
        assert error_name == "NONE"
        return producer_id, epoch

    def add_group(self, producer: tuple[int, int], group_id: str = "g", name: str = WRITER) -> str:
        request = AddOffsetsToTxn(name, *producer, group_id)
        response = self.ask(self.broker.transactions.add_offsets, request)
        return str(response.error_code.name)

    def add(
        self, producer: tuple[int, int], *topics: tuple[str, tuple[int, ...]], verify_only: bool = False, **flags: bool
    ) -> list[str]:
        wanted = PartitionsToAdd(WRITER, *producer, tuple(TopicEntry(*topic) for topic in topics), verify_only)
        response = do_whole(self.broker.transactions.add_partitions(AddPartitionsToTxn((wanted,), **flags)))
        return names(response.results[0].topics)

    def commit(
        self,
        producer: tuple[int, int],
        offset: int = 10,
        *,
        group_id: str = "g",
        topics: tuple[TopicToCommit, ...] | None = None,
        adds_group: bool = False,
        name: str = WRITER,
    ) -> list[str] | None:
        topics = topics or (TopicToCommit("t", (OffsetToCommit(0, offset),)),)
        request = TxnOffsetCommit(group_id, topics, *producer, name, adds_group=adds_group)
        response = self.ask(self.broker.transactions.commit_offsets, request)
        assert response is None or isinstance(response, TxnOffsetCommitResponse)
        return None if response is None else names(response.topics)

    def end(self, producer: tuple[int, int], committed: bool = True, *, bumps: bool = False, name: str = WRITER) -> Any:
        response = self.ask(self.broker.transactions.end, EndTxn(name, *producer, committed, bumps))
        return None if response is None else (response.error_code.name, response.producer_id, response.producer_epoch)

    def describe(self, name: str = WRITER) -> DescribedTransaction:
        return self.broker.transactions.describe(name)

    def state(self, name: str = WRITER) -> str:
        return self.describe(name).transaction_state

    def committed(self, group_id: str = "g") -> tuple[int, str]:
        """Return the offset of t-0 and the error, as a stable read has them."""
        wanted = GroupToFetch(group_id, (TopicToFetch("t", (0,)),))
        response = self.broker.coordinator.call(OffsetFetch((wanted,), require_stable=True))
        assert isinstance(response, OffsetFetchResponse)
        (offset,) = response.groups[0].topics[0].partitions
        return offset.committed_offset, offset.error_code.name


def names(topics: Any) -> list[str]:
    """Return the errors of all partitions."""
    return [partition.error_code.name for topic in topics for partition in topic.partitions]


class LateStore(MemoryLogStore):
    """Holds its answers back while configured to."""

    is_late = False

    def __init__(self) -> None:
        super().__init__()
        self.held: list[tuple[Ticket, int]] = []

    def append(self, partition: int, ticket: Ticket, records: Any) -> int | None:
        base_offset = super().append(partition, ticket, records)
        if not self.is_late:
            return base_offset
        assert base_offset is not None
        self.held.append((ticket, base_offset))
        return None


class FragileData(TopicData):
    """Refuses transactions while configured to."""

    is_broken = False

    def log(self, topic: Topic, partition_index: int) -> PartitionLog | None:
        if self.is_broken and topic.name == TRANSACTIONS_TOPIC:
            raise FailedLogError("the disk is full")
        return super().log(topic, partition_index)


class TransactionWorld:
    """State that outlives a broker."""

    def __init__(self) -> None:
        self.clock = ManualClock(1_000_000)
        self.store = LateStore()
        self.topics = TopicRegistry(new_id=iter(UUID(int=number) for number in range(1, 50)).__next__)
        self.data = FragileData(Config(), self.clock, self.topics)
        self.producer_ids = ProducerIds()
        with self.topics.edit() as edit:
            edit.create("t", 4)

    def open(self, **settings: int) -> ProducerClient:
        """Start a broker on what there is."""
        settings.setdefault("transaction_abort_timed_out_transaction_cleanup_interval_ms", CHECK_INTERVAL_MS)
        config = self.data.config = Config(**settings)
        broker = make_broker(
            config=config,
            clock=self.clock,
            log_store=self.store,
            topics=self.topics,
            data=self.data,
            producer_ids=self.producer_ids,
        )
        return ProducerClient(broker)

    def pass_ms(self, client: ProducerClient, duration_ms: int) -> None:
        """Advance the clock; what is due runs at its own time."""
        end_ms = self.clock.now_ms() + duration_ms
        while (deadline_ms := client.broker.next_deadline_ms()) is not None and deadline_ms <= end_ms:
            self.clock.advance_to(max(deadline_ms, self.clock.now_ms()))
            client.broker.tick()
        self.clock.advance_to(end_ms)

    def acknowledge(self, client: ProducerClient) -> None:
        """The late store answers."""
        held, self.store.held = self.store.held, []
        for ticket, base_offset in held:
            client.broker.coordinator.appended(ticket, base_offset)
        client.broker.deliver_replies()


def open_on(directory: Path, clock: ManualClock | None = None, **settings: Any) -> ProducerClient:
    """Start a broker on a directory, as ``groupcoord serve`` does."""
    config, topics = Config(**settings), TopicRegistry(directory)
    broker = make_broker(
        config=config,
        clock=clock or ManualClock(1_000),
        log_store=open_log_store(directory, config),
        topics=topics,
        topic_directory=open_topic_directory(directory, config, topics),
        producer_ids=open_producer_ids(directory),
    )
    broker.topics.ensure("t", 4)
    return ProducerClient(broker)


def log_of(data: TopicData, name: str, index: int) -> PartitionLog:
    """Return the log of an existing partition."""
    topic = data.topics.get(name)
    log = None if topic is None else data.log(topic, index)
    assert log is not None
    return log


def append(data: TopicData, name: str, index: int, key: bytes | None, value: bytes | None) -> None:
    """Append a record to an existing partition."""
    topic, log = data.topics.get(name), log_of(data, name, index)
    assert topic is not None
    log.append_encoded(encode_batch(log.end_offset, [(key, value, 1)]), 1, 1, data.settings_of(topic))
