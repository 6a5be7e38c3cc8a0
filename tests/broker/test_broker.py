"""The broker as a whole on a clock that tests turn by hand."""

from __future__ import annotations

from uuid import UUID

import pytest

from groupcoord import Config, LogStoreError, ManualClock, MemoryLogStore, PartitionStatus
from groupcoord.broker.broker import Broker, make_broker
from groupcoord.broker.work import STALE_TIMERS_LIMIT
from groupcoord.core.log.records import OFFSETS_TOPIC
from groupcoord.core.messages import (
    GroupToFetch,
    OffsetCommit,
    OffsetCommitResponse,
    OffsetFetch,
    OffsetFetchResponse,
    OffsetToCommit,
    TopicToCommit,
)
from groupcoord.log_store import AppendTimedOutError
from tests.broker.driving import feed
from tests.broker.kafka_bytes import correlation_ids, fetch, frame, string


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock(1_000_000)


@pytest.fixture
def broker(clock: ManualClock) -> Broker:
    broker = make_broker(config=Config(), clock=clock, log_store=MemoryLogStore())
    with broker.topics.edit() as edit:
        edit.create("t", 2)
    return broker


def commit(broker: Broker, offset: int, topic: str = "t") -> str:
    request = OffsetCommit("g", (TopicToCommit(topic, (OffsetToCommit(0, offset),)),))
    response = broker.coordinator.call(request)
    assert isinstance(response, OffsetCommitResponse)
    (answered,) = response.topics
    return str(answered.partitions[0].error_code.name)


def committed(broker: Broker) -> list[tuple[str | None, int]]:
    response = broker.coordinator.call(OffsetFetch((GroupToFetch("g"),)))
    assert isinstance(response, OffsetFetchResponse)
    (group,) = response.groups
    return [(topic.name, topic.partitions[0].committed_offset) for topic in group.topics]


def test_fetches_end_in_the_order_of_their_deadlines(broker: Broker, clock: ManualClock) -> None:
    """Each waits for its own time."""
    slow, fast = broker.connect("/127.0.0.1"), broker.connect("/127.0.0.1")
    feed(slow, fetch(1, "t", 0, 300))
    feed(fast, fetch(2, "t", 0, 100))
    clock.advance(150)
    broker.tick()
    assert broker.take_dirty() == [fast]
    assert broker.next_deadline_ms() == clock.now_ms() + 150
    clock.advance(150)
    broker.tick()
    assert broker.take_dirty() == [slow]


def test_waits_of_peers_that_left_are_not_kept(broker: Broker) -> None:
    """Clients that come, ask for a very long poll and go leave nothing behind."""
    for _ in range(10 * STALE_TIMERS_LIMIT):
        connection = broker.connect("/127.0.0.1")
        feed(connection, fetch(1, "t", 0, 2**31 - 1))
        connection.close()
    assert len(broker.fetch_requests.timers._heap) <= 2 * STALE_TIMERS_LIMIT


def test_deleting_a_topic_deletes_its_offsets(broker: Broker) -> None:
    """A DeleteTopics request reaches the coordinator: what was committed for the topic is gone, all else stays."""
    with broker.topics.edit() as edit:
        edit.create("other", 1)
    assert commit(broker, 7) == commit(broker, 8, "other") == "NONE"
    connection = broker.connect("/127.0.0.1")
    body = b"\x00\x00\x00\x01" + string("t") + b"\x00\x00\x10\x00"
    feed(connection, frame(20, 1, 5, body))
    assert correlation_ids(connection.take_output()) == [5]
    assert committed(broker) == [("other", 8)]
    assert commit(broker, 9) == "UNKNOWN_TOPIC_OR_PARTITION"


def test_the_offsets_topic_has_the_id_of_the_store() -> None:
    """A store that knows the topic's id, from a broker's directory for instance, decides it."""

    class KnowingStore(MemoryLogStore):
        topic_id = UUID(int=5)

    broker = make_broker(config=Config(), clock=ManualClock(), log_store=KnowingStore())
    assert broker.topics.topic_id(OFFSETS_TOPIC) == UUID(int=5)


def test_a_log_partition_that_stays_broken(caplog: pytest.LogCaptureFixture) -> None:
    """Loading again is tried, its failure is logged, and nothing else happens."""
    store = MemoryLogStore()
    broker = make_broker(config=Config(offsets_topic_num_partitions=1), clock=ManualClock(), log_store=store)
    with broker.topics.edit() as edit:
        edit.create("t", 1)
    store.fail_next(AppendTimedOutError())
    commit(broker, 2)

    def refuse(partition: int) -> None:
        raise LogStoreError("the disk is gone")

    store.read = refuse  # type: ignore[method-assign, assignment]
    broker.reload_failed()
    assert broker.coordinator.status(0) is PartitionStatus.FAILED
    assert "the disk is gone" in caplog.text


def test_close_closes_the_store() -> None:
    """A store with a close method is closed with the broker."""

    class ClosableMemoryStore(MemoryLogStore):
        is_closed = False

        def close(self) -> None:
            self.is_closed = True

    store = ClosableMemoryStore()
    make_broker(config=Config(), clock=ManualClock(), log_store=store).close()
    assert store.is_closed
