"""Records in a data directory: stored, deleted by retention, and unusable logs."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from groupcoord import ErrorCode, ManualClock
from groupcoord.broker.cluster.administration import answer_describe_log_dirs
from groupcoord.broker.transactions.log import ProducerIds
from groupcoord.broker.transactions.requests import answer_describe_producers
from groupcoord.broker.work import do_whole
from groupcoord.core.log.records import TransactionMarker
from groupcoord.testing.server import ServerThread
from groupcoord.wire.broker_messages import (
    DeleteRecords,
    DeleteRecordsPartition,
    LeaderEpochPartition,
    ListOffsets,
    ListOffsetsPartition,
    OffsetForLeaderEpoch,
    TopicEntry,
)
from groupcoord.wire.cluster_messages import DescribeLogDirs
from groupcoord.wire.transaction_messages import DescribeProducers
from tests.broker.data_world import START_MS, DataWorld, batch, fetch_of, part
from tests.client import Client, fetch, fetched, init_producer_id, produce, produced

FAILED = ErrorCode.KAFKA_STORAGE_ERROR
TOPIC = "written"


@contextmanager
def serving(path: Path, **settings: Any) -> Iterator[tuple[ServerThread, Client]]:
    """A server on a directory, on virtual time, and a connection to it."""
    clock = ManualClock(START_MS)
    with (
        ServerThread(data_dir=path, topics={TOPIC: 1}, settings=settings, clock=clock) as server,
        Client(server.port) as client,
    ):
        yield server, client


def write(client: Client, *values: bytes) -> int:
    error_code, offset = produced(client.ask(produce(TOPIC, 0, values, START_MS)))
    assert error_code == 0
    return offset


def read(client: Client, offset: int = 0) -> dict[int, bytes]:
    found = fetched(client.ask(fetch(TOPIC, 0, offset)))
    assert found.error_code == 0
    return found.values()


def test_records_outlive_the_server(tmp_path: Path) -> None:
    """They are there again for the next one on the same directory; another that holds none leaves them alone."""
    with serving(tmp_path) as (_, client):
        assert write(client, b"a", b"b") == 0
    with serving(tmp_path, **{"records.enable": "false"}) as (server, _):
        assert server.run(lambda broker: broker.data.logs is None)
    with serving(tmp_path) as (_, client):
        assert (write(client, b"c"), read(client)) == (2, {0: b"a", 1: b"b", 2: b"c"})


def test_topics_of_a_broker_are_taken_over(tmp_path: Path) -> None:
    """Folders of unknown topics are topics, by the id that they name; producers get ids that no broker gives out."""
    with serving(tmp_path) as (server, client):
        write(client, b"a")
        topic_id = server.run(lambda broker: broker.topics.topic_id(TOPIC))
    (tmp_path / "topics.json").unlink()
    (tmp_path / "meta.properties").touch()
    (tmp_path / "__cluster_metadata-0").mkdir()
    with serving(tmp_path) as (server, client):
        assert read(client) == {0: b"a"}
        assert server.run(lambda broker: broker.topics.topic_id(TOPIC)) == topic_id
        assert server.run(lambda broker: broker.topics.get("__cluster_metadata")) is None
        answer = client.ask(init_producer_id(None, 1_000))
        assert (answer["error_code"], answer["producer_id"]) == (0, 2**40)
    assert ProducerIds(tmp_path).take(lambda: 0) == 2**40 + 1_000


def test_old_records_go_by_the_clock(tmp_path: Path) -> None:
    """Retention is checked every ``log.retention.check.interval.ms``, also of unopened logs."""
    with serving(tmp_path) as (_, client):
        write(client, b"a")
    with serving(tmp_path, **{"log.retention.ms": 10_000, "log.retention.check.interval.ms": 1_000}) as (
        server,
        client,
    ):
        server.advance(10_500)
        assert next(tmp_path.glob(f"{TOPIC}-0/*.log")).stat().st_size
        server.advance(1_000)
        assert [path.stat().st_size for path in tmp_path.glob(f"{TOPIC}-0/*.log")] == [0]
        assert (write(client, b"b"), read(client, 1)) == (1, {1: b"b"})


def test_a_log_that_cannot_be_used(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """All requests about it fail with KAFKA_STORAGE_ERROR, a line has the reason, and other logs are served."""
    (tmp_path / "one-0").touch()
    world = DataWorld(path=tmp_path)
    assert world.produce(batch(b"a")).error_code is FAILED
    assert world.fetch().error_code is FAILED
    listed = world.ask(ListOffsets((TopicEntry("one", (ListOffsetsPartition(0, -1),)),)))
    deleted = world.ask(DeleteRecords((TopicEntry("one", (DeleteRecordsPartition(0, -1),)),)))
    ended = world.ask(OffsetForLeaderEpoch((TopicEntry("one", (LeaderEpochPartition(0, 0),)),)))
    described = do_whole(answer_describe_producers(DescribeProducers((TopicEntry("one", (0,)),)), world.data))
    for answer in (listed, deleted, ended, described):
        assert answer.topics[0].partitions[0].error_code is FAILED
    (log_dir,) = do_whole(answer_describe_log_dirs(DescribeLogDirs(None), world.data)).results
    assert (log_dir.error_code, log_dir.topics) == (FAILED, ())
    assert world.data.append_marker("one", 0, TransactionMarker(1, 0, committed=True)) is FAILED
    assert world.produce(batch(b"a"), "two").error_code is ErrorCode.NONE
    lines = [record.getMessage() for record in caplog.records if record.levelno == logging.ERROR]
    assert lines
    assert all("one-0 can't be opened" in line for line in lines)


def test_a_waiting_fetch_is_told_that_its_log_has_failed(tmp_path: Path) -> None:
    """It is answered as soon as the missing files are noticed."""
    world = DataWorld(path=tmp_path)
    world.produce(batch(b"a"))

    waiting = world.send(fetch_of(part(fetch_offset=1), name="one", max_wait_ms=60_000))
    assert waiting.answers == []
    next((tmp_path / "one-0").glob("*.log")).unlink()
    world.data.maintain()
    assert waiting.answers[0].topics[0].partitions[0].error_code is FAILED
