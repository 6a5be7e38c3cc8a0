"""Reads of ``__consumer_offsets``: records are visible as soon as they are written, with every kind of store."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest

from groupcoord import Config, ErrorCode, ManualClock, MemoryLogStore
from groupcoord.broker.broker import make_broker
from groupcoord.broker.cluster.administration import answer_describe_log_dirs
from groupcoord.broker.records.list_offsets import (
    answer_delete_records,
    answer_list_offsets,
    answer_offset_for_leader_epoch,
)
from groupcoord.broker.topics.registry import TopicRegistry
from groupcoord.broker.transactions.requests import answer_describe_producers
from groupcoord.broker.work import do_whole
from groupcoord.core.log.records import OFFSETS_TOPIC, OffsetCommitRecord
from groupcoord.core.messages import CompleteTransaction, OffsetCommit, OffsetToCommit, TopicToCommit, TxnOffsetCommit
from groupcoord.log_store import LogStore, StorageError
from groupcoord.records.batches import iter_batches
from groupcoord.records.codec import decode_record
from groupcoord.storage import topic_logs
from groupcoord.storage.stores.segments import SegmentLogStore
from groupcoord.storage.stores.sql import SqliteLogStore
from groupcoord.wire.broker_messages import (
    DeleteRecords,
    DeleteRecordsPartition,
    FetchedPartitionData,
    LeaderEpochPartition,
    ListOffsets,
    ListOffsetsPartition,
    OffsetForLeaderEpoch,
    TopicEntry,
)
from groupcoord.wire.cluster_messages import DescribeLogDirs
from groupcoord.wire.transaction_messages import DescribeProducers
from tests.broker.data_world import START_MS, FakeConnection, fetch_of, part

MakeStore = Callable[[Path], LogStore]
STORES: list[MakeStore] = [
    SegmentLogStore,
    lambda path: MemoryLogStore(),
    lambda path: SqliteLogStore(path / "offsets.sqlite"),
]


class OffsetsTopic:
    """Broker with all groups in one log partition."""

    def __init__(self, store: LogStore, topics: TopicRegistry | None = None, **settings: Any) -> None:
        self.clock = ManualClock(START_MS)
        config = Config(offsets_topic_num_partitions=1, **settings)
        self.broker = make_broker(config=config, clock=self.clock, log_store=store, topics=topics)
        self.broker.topics.ensure("t", 1)
        self.broker.transactions.verify_writer = lambda writer: ErrorCode.NONE  # type: ignore[method-assign]
        self.data = self.broker.data

    def commit(self, offset: int, group_id: str = "g") -> None:
        topics = (TopicToCommit("t", (OffsetToCommit(0, offset),)),)
        self.broker.coordinator.call(OffsetCommit(group_id, topics))

    def commit_in_transaction(self, offset: int) -> None:
        topics = (TopicToCommit("t", (OffsetToCommit(0, offset),)),)
        self.broker.coordinator.call(TxnOffsetCommit("g", topics, producer_id=7, producer_epoch=0))

    def end_transaction(self, *, committed: bool) -> None:
        self.broker.coordinator.call(CompleteTransaction(0, 7, 0, committed))

    def send(self, offset: int = 0, **fields: Any) -> FakeConnection:
        connection = FakeConnection()
        request = fetch_of(part(fetch_offset=offset), name=OFFSETS_TOPIC, **{"max_wait_ms": 0, **fields})
        connection.answer(do_whole(self.broker.fetch_requests.fetch(connection, request)))  # type: ignore[arg-type]
        return connection

    def fetch(self, offset: int = 0, **fields: Any) -> FetchedPartitionData:
        (answer,) = self.send(offset, **fields).answers
        fetched: FetchedPartitionData = answer.topics[0].partitions[0]
        return fetched

    def list(self, timestamp: int, isolation_level: int = 0) -> tuple[str, int]:
        topic = TopicEntry(OFFSETS_TOPIC, (ListOffsetsPartition(0, timestamp),))
        answer = do_whole(answer_list_offsets(ListOffsets((topic,), isolation_level=isolation_level), self.data))
        partition = answer.topics[0].partitions[0]
        return partition.error_code.name, partition.offset


@pytest.fixture(params=STORES, ids=["segments", "memory", "sqlite"])
def world(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[OffsetsTopic]:
    made = OffsetsTopic(request.param(tmp_path))
    yield made
    made.broker.close()


def offsets_in(fetched: FetchedPartitionData) -> list[tuple[int, int]]:
    assert fetched.error_code is ErrorCode.NONE
    found = []
    for batch in iter_batches(b"".join(fetched.records)):
        for offset, _, key, value in batch.records() if not batch.is_control else ():
            record = decode_record(key or b"", value)
            if isinstance(record, OffsetCommitRecord):
                found.append((offset, record.offset))
    return found


def test_a_reader_sees_each_commit_at_once(world: OffsetsTopic) -> None:
    world.commit(5)
    fetched = world.fetch()
    assert (offsets_in(fetched), fetched.high_watermark, fetched.log_start_offset) == ([(0, 5)], 1, 0)
    for offset in (6, 7):
        world.commit(offset)
    fetched = world.fetch(1)
    assert ([committed for _, committed in offsets_in(fetched)][-2:], fetched.high_watermark) == ([6, 7], 3)
    assert world.list(-2) == ("NONE", 0)
    assert world.list(-1) == ("NONE", 3)


def test_a_fetch_that_waits_is_woken(world: OffsetsTopic) -> None:
    """A commit ends the wait of who follows the topic, in the same turn."""
    world.commit(5)
    waiting = world.send(1, max_wait_ms=10_000, min_bytes=1)
    assert waiting.answers == []
    world.commit(6)
    (answer,) = waiting.answers
    assert offsets_in(answer.topics[0].partitions[0]) == [(1, 6)]


def test_readers_of_what_is_committed_stop_before_an_open_transaction(world: OffsetsTopic) -> None:
    """The last stable offset stays where the transaction begins until its marker is written; aborted ones are named."""
    world.commit(5)
    world.commit_in_transaction(6)
    world.commit(7, "other")
    fetched = world.fetch(isolation_level=1)
    assert (offsets_in(fetched), fetched.last_stable_offset, fetched.high_watermark) == ([(0, 5)], 1, 3)
    assert world.list(-1, isolation_level=1) == ("NONE", 1)
    world.end_transaction(committed=False)
    fetched = world.fetch(isolation_level=1)
    assert (fetched.last_stable_offset, fetched.high_watermark, fetched.aborted_transactions) == (4, 4, ((7, 1),))
    assert world.fetch().aborted_transactions is None
    for offset in (8, 9):  # the marker is alone in its batch, also if the same producer goes on at once
        world.commit_in_transaction(offset)
        world.end_transaction(committed=True)
    assert offsets_in(world.fetch())[-2:] == [(4, 8), (6, 9)]


def test_producers_are_described(world: OffsetsTopic) -> None:
    """Producers with an open transaction in the topic are listed."""
    world.commit_in_transaction(6)
    asked = DescribeProducers((TopicEntry(OFFSETS_TOPIC, (0,)),))
    described = do_whole(answer_describe_producers(asked, world.data)).topics[0].partitions[0]
    (producer,) = described.active_producers
    assert (producer.producer_id, producer.current_txn_start_offset) == (7, 0)


def test_offsets_are_found_by_time(world: OffsetsTopic) -> None:
    for offset in range(3):
        world.commit(offset)
        world.clock.advance(1_000)
    assert world.list(START_MS + 500) == ("NONE", 1)
    assert world.list(-3) == ("NONE", 2)
    assert world.list(START_MS + 9_000) == ("NONE", -1)


def test_administration(world: OffsetsTopic) -> None:
    """DeleteRecords is refused; the size is described; the leader's epoch ends at the end of the log."""
    world.commit(5)
    deletion = DeleteRecords((TopicEntry(OFFSETS_TOPIC, (DeleteRecordsPartition(0, -1),)),))
    deleted = do_whole(answer_delete_records(deletion, world.data))
    assert deleted.topics[0].partitions[0].error_code is ErrorCode.INVALID_TOPIC_EXCEPTION
    (folder,) = do_whole(answer_describe_log_dirs(DescribeLogDirs(None), world.data)).results
    sizes = {topic.name: [partition.partition_size for partition in topic.partitions] for topic in folder.topics}
    assert sizes.keys() == {OFFSETS_TOPIC, "t"}
    assert sizes[OFFSETS_TOPIC][0] == sum(map(len, world.fetch().records))
    epochs = OffsetForLeaderEpoch((TopicEntry(OFFSETS_TOPIC, (LeaderEpochPartition(0, 0),)),))
    (end,) = do_whole(answer_offset_for_leader_epoch(epochs, world.data)).topics[0].partitions
    assert (end.leader_epoch, end.end_offset) == (0, 1)


def test_a_log_that_is_being_copied_has_no_size_yet(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("groupcoord.storage.topic_logs.COPIED_AT_ONCE", 1)
    world = OffsetsTopic(MemoryLogStore())
    world.commit(5)
    world.commit(6)
    (folder,) = do_whole(answer_describe_log_dirs(DescribeLogDirs(None), world.data)).results
    assert folder.error_code is ErrorCode.NONE
    assert [topic.name for topic in folder.topics] == ["t"]


def test_topics_that_hold_nothing_leave_offsets_to_be_read(tmp_path: Path) -> None:
    """``records.enable=false`` is about what clients produce."""
    world = OffsetsTopic(SegmentLogStore(tmp_path), records_enable=False)
    world.commit(5)
    assert offsets_in(world.fetch()) == [(0, 5)]
    world.broker.close()


# ---------------------------------------------------------------- files


def test_readers_open_no_second_log(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Reading never fails the log or stops compaction, however often."""
    topics = TopicRegistry(tmp_path)
    world = OffsetsTopic(SegmentLogStore(tmp_path, segment_bytes=200), topics)
    for offset in range(20):
        world.commit(offset)
    store = world.broker.log_store
    assert isinstance(store, SegmentLogStore)
    while store.compact_some(START_MS, 1):
        assert world.fetch().error_code is ErrorCode.NONE
    assert [committed for _, committed in offsets_in(world.fetch())] == [18, 19]
    assert [record for record in caplog.records if record.levelno >= logging.ERROR] == []
    world.broker.close()


def test_a_log_that_has_failed_is_not_opened_by_readers(tmp_path: Path) -> None:
    """Fetch fails with KAFKA_STORAGE_ERROR until the coordinator has loaded the log partition again."""
    world = OffsetsTopic(SegmentLogStore(tmp_path))
    world.commit(5)
    (path,) = tmp_path.rglob("*.log")
    content = path.read_bytes()
    os.truncate(path, 10)
    world.clock.advance(1_000)
    world.broker.reload_failed()
    assert world.fetch().error_code is ErrorCode.KAFKA_STORAGE_ERROR
    path.write_bytes(content)
    world.clock.advance(1_000)
    world.broker.reload_failed()
    assert offsets_in(world.fetch()) == [(0, 5)]
    world.broker.close()


def test_the_topic_keeps_its_id(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """The folder keeps the topic id across restarts, with or without records."""
    ids = set()
    for life in range(3):
        world = OffsetsTopic(SegmentLogStore(tmp_path), TopicRegistry(tmp_path))
        topic = world.broker.topics.get(OFFSETS_TOPIC)
        assert topic is not None
        ids.add(topic.topic_id)
        if life:
            world.commit(life)
            assert world.list(-1) == ("NONE", life)
        world.broker.close()
    with SegmentLogStore(tmp_path) as store:
        ids.add(store.topic_id)
    assert len(ids) == 1
    assert "belongs to" not in caplog.text


# ---------------------------------------------------------------- copies


def test_a_long_log_is_copied_in_portions(monkeypatch: pytest.MonkeyPatch) -> None:
    """Requests during the copy fail with LEADER_NOT_AVAILABLE, which clients retry, and never get a
    wrong end offset.
    """
    monkeypatch.setattr(topic_logs, "COPIED_AT_ONCE", 4)
    world = OffsetsTopic(MemoryLogStore())
    for offset in range(10):
        world.commit(offset)
    assert [world.list(-1) for _ in range(3)] == [("LEADER_NOT_AVAILABLE", -1)] * 2 + [("NONE", 10)]
    assert len(offsets_in(world.fetch())) == 10


def test_copies_take_no_more_memory_than_allowed() -> None:
    """Records above the limit are omitted at the beginning, and readers continue after them."""
    world = OffsetsTopic(MemoryLogStore(), records_memory_max_bytes=8_192)
    for offset in range(10):
        world.commit(offset)
        world.fetch()
    for offset in range(10, 500):
        world.commit(offset)
        fetched = world.fetch(offset)
        assert offsets_in(fetched) == [(offset, offset)]
    assert fetched.log_start_offset > 0


@pytest.mark.parametrize("error", [StorageError("gone"), ValueError("gone")])
def test_a_copied_log_that_cannot_be_read(error: Exception, monkeypatch: pytest.MonkeyPatch) -> None:
    """Readers fail with KAFKA_STORAGE_ERROR, and commits succeed."""
    store = MemoryLogStore()
    world = OffsetsTopic(store)
    world.commit(5)
    waiting = world.send(1, max_wait_ms=10_000, min_bytes=1)
    with monkeypatch.context() as patch:
        patch.setattr(store, "read_from", Mock(side_effect=error))
        world.commit(6)
        assert world.fetch().error_code is ErrorCode.KAFKA_STORAGE_ERROR
    assert waiting.answers == []
    assert offsets_in(world.fetch()) == [(0, 5), (1, 6)]


def test_a_store_that_reads_from_the_beginning_only() -> None:
    """Implementing the contract of log stores is enough."""

    class Plain:
        def __init__(self) -> None:
            inner = MemoryLogStore()
            self.append, self.read = inner.append, inner.read

    world = OffsetsTopic(Plain())
    for offset in range(3):
        world.commit(offset)
        assert offsets_in(world.fetch(offset)) == [(offset, offset)]
