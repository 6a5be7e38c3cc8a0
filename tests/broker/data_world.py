"""Topics and their logs for tests without a broker."""

from __future__ import annotations

from collections.abc import Callable, Generator
from functools import partial
from pathlib import Path
from typing import Any
from uuid import UUID

from groupcoord import Config, ErrorCode, ManualClock, MemoryLogStore
from groupcoord.broker.broker import Broker, make_broker
from groupcoord.broker.cluster.leadership import Leadership
from groupcoord.broker.parts import DEFAULT_NODE
from groupcoord.broker.records.fetch import FetchRequests
from groupcoord.broker.records.list_offsets import (
    answer_delete_records,
    answer_list_offsets,
    answer_offset_for_leader_epoch,
)
from groupcoord.broker.records.produce import handle_produce
from groupcoord.broker.records.topic_data import CurrentLeaders, TopicData
from groupcoord.broker.topics.create_topics import TopicRequests
from groupcoord.broker.topics.registry import TopicRegistry
from groupcoord.broker.transactions.log import Writer
from groupcoord.broker.work import do_whole
from groupcoord.core.log.records import OFFSETS_TOPIC
from groupcoord.core.router.authorization import UNRESTRICTED, Permissions
from groupcoord.records.batches import encode_batch
from groupcoord.storage.data_directory import DataDirectory
from groupcoord.wire.broker_messages import (
    DeleteRecords,
    Fetch,
    FetchedPartitionData,
    FetchPartition,
    FetchResponse,
    ListOffsets,
    OffsetForLeaderEpoch,
    Produce,
    ProducedPartition,
    ProducePartition,
    TopicNameOrIdEntry,
)

NO_ID = UUID(int=0)
START_MS = 1_700_000_000_000


SOLE = Leadership((DEFAULT_NODE,))
"""A server of one node."""


def topic_requests(topics: TopicRegistry, config: Config | None = None) -> TopicRequests:
    broker = make_broker(config=config or Config(), clock=ManualClock(), log_store=MemoryLogStore(), topics=topics)
    return broker.topic_requests


class FakeConnection:
    """Connection that records responses; long work runs at once. Attributes: principal: the client's principal. node:
    the node as its listener advertises it. answers: the responses; "nothing" for a request without one. refusal: the
    reason for closing.
    """

    def __init__(self, broker: Broker | None = None, permissions: Permissions = UNRESTRICTED) -> None:
        self._broker = broker
        self.permissions = permissions if broker is None else Permissions(broker.authorize, None)
        self.principal = None
        self.nodes = None
        self.answers: list[Any] = []
        self.refusal: str | None = None

    def answer(self, response: Any) -> None:
        if response is not None:
            self.answers.append(response)

    def answer_when_done(self, work: Any, awaited: object = None) -> None:
        self.answer(do_whole(work))

    answer_later = answer_when_done

    def submit(self, request: Any, token: Any = None) -> None:
        assert self._broker is not None
        self._broker.submit(request, token or self, self.principal)

    def skip_answer(self) -> None:
        self.answers.append("nothing")

    def refuse(self, reason: str) -> None:
        self.refusal = reason


def batch(*values: bytes, at_ms: int = START_MS, **fields: Any) -> bytes:
    """Return a producer's batch; the records are a second apart."""
    records = [(b"k", value, at_ms + 1_000 * number) for number, value in enumerate(values)]
    return encode_batch(0, records, **{"leader_epoch": -1, "base_sequence": -1, **fields})


class DataWorld:
    """Topics ``one`` with one partition and ``two`` with two, a clock, and the requests about what they hold.

    Args:
        verify: the transaction coordinator.
        permissions: of every client.
        path: a directory for what they hold; in memory by default.
        settings: of the host.
    """

    def __init__(
        self,
        verify: Callable[[Writer], ErrorCode] = lambda _: ErrorCode.NONE,
        permissions: Permissions = UNRESTRICTED,
        path: Path | None = None,
        **settings: Any,
    ) -> None:
        self.clock = ManualClock(START_MS)
        self.topics = TopicRegistry(new_id=iter(UUID(int=number) for number in range(1, 50)).__next__)
        with self.topics.edit() as edit:
            edit.create("one", 1)
            edit.create("two", 2)
            edit.create(OFFSETS_TOPIC, 50)
        directory = None if path is None else DataDirectory(path, descriptors_max=8)
        self._permissions = permissions
        self.data = TopicData(Config(**settings), self.clock, self.topics, directory)
        leaders = CurrentLeaders(SOLE, self.data)
        self.requests = FetchRequests(self.data, leaders)
        self._handlers: dict[type, Any] = {
            Fetch: self.requests.fetch,
            Produce: partial(handle_produce, self.data, verify, None),
            ListOffsets: lambda _, request: answer_list_offsets(request, self.data, permissions),
            OffsetForLeaderEpoch: lambda _, request: answer_offset_for_leader_epoch(request, self.data, permissions),
            DeleteRecords: lambda _, request: answer_delete_records(request, self.data, permissions),
        }

    def send(self, request: Any) -> FakeConnection:
        """Send a request on a new connection."""
        connection = FakeConnection(permissions=self._permissions)
        answer: Any = self._handlers[type(request)](connection, request)  # type: ignore[arg-type]
        connection.answer(do_whole(answer) if isinstance(answer, Generator) else answer)
        return connection

    def ask(self, request: Any) -> Any:
        """Send a request and return its answer; None if it waits."""
        answers = self.send(request).answers
        return answers[0] if answers else None

    def configure(self, name: str, **configs: str) -> None:
        """Give a topic settings, with underscores for dots."""
        with self.topics.edit() as edit:
            edit.configure(name, {key.replace("_", "."): value for key, value in configs.items()})

    def produce(self, records: bytes | None, name: str = "one", index: int = 0, **fields: Any) -> ProducedPartition:
        topic = TopicNameOrIdEntry(name, NO_ID, (ProducePartition(index, records),))
        produced: ProducedPartition = self.ask(Produce((topic,), **fields)).topics[0].partitions[0]
        return produced

    def fetch(self, offset: int = 0, name: str = "one", **fields: Any) -> FetchedPartitionData:
        """Fetch from one partition, without waiting."""
        request = fetch_of(part(fetch_offset=offset), name=name, **{"max_wait_ms": 0, **fields})
        fetched: FetchedPartitionData = self.ask(request).topics[0].partitions[0]
        return fetched

    def delete(self, name: str) -> None:
        with self.topics.edit() as edit:
            topic = edit.delete(name)
        self.data.delete(topic)

    def advance(self, duration_ms: int) -> None:
        """Advance the clock, and run what is due."""
        self.clock.advance(duration_ms)
        self.requests.timers.tick(self.clock.now_ms())


def part(partition_index: int = 0, fetch_offset: int = 0, current_leader_epoch: int = -1) -> FetchPartition:
    return FetchPartition(partition_index, fetch_offset, 1 << 20, current_leader_epoch)


def fetch_of(*partitions: FetchPartition, name: str | None = "two", topic_id: UUID = NO_ID, **fields: Any) -> Fetch:
    return Fetch((TopicNameOrIdEntry(name, topic_id, partitions),), **{"max_wait_ms": 300, **fields})


def partitions_of(response: FetchResponse) -> list[FetchedPartitionData]:
    return [partition for topic in response.topics for partition in topic.partitions]


def records_of(fetched: FetchedPartitionData) -> bytes:
    """Return what was fetched in one piece."""
    return b"".join(fetched.records)
