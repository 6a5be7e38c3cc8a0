"""Ranges of offsets from a server: the batches and rows of its files, whatever happens meanwhile."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path
from typing import Any, cast

import pytest
from attrs import evolve
from confluent_kafka import Producer, TopicPartition as ConfluentPartition
from confluent_kafka.admin import AdminClient

from groupcoord.analysis.decode.files import cut_ranges, find_segments, rows_of_files
from groupcoord.analysis.decode.rows import RowSettings
from groupcoord.analysis.errors import ClusterError, InputError, LogCutError, TransientClusterError
from groupcoord.analysis.live import offsets as live_offsets, offsets as offset_ranges
from groupcoord.analysis.live.cluster import SETTLE_MS, FetchedBytes, KafkaCluster, Patience
from groupcoord.analysis.live.offsets import (
    Lost,
    OffsetRange,
    PartitionEnds,
    list_ends,
    plan,
    sound_batches,
    topic_ends,
)
from groupcoord.analysis.live.settings import ClusterAddress
from groupcoord.analysis.pipeline.sources import ClusterSource, Tail, rows_of_offsets
from groupcoord.broker.cluster.leadership import NOBODY
from groupcoord.core.consumer_protocol import TopicPartition
from groupcoord.errors import ErrorCode
from groupcoord.records.salvage import SoundBatch
from groupcoord.testing import ServerThread
from groupcoord.testing.faults.control import Control

from .recorded import PARTITIONS, TOPIC

WHERE_FROM = ("file", "position")
Rows = list[dict[str, Any]]


def without_place(rows: Rows) -> Rows:
    """Return records and markers, but for where they were read."""
    kept = [row for row in rows if row["kind"] in ("record", "control")]
    return [{name: value for name, value in row.items() if name not in WHERE_FROM} for row in kept]


def rows_of(cluster: KafkaCluster, patience: Patience, *ranges: OffsetRange) -> Rows:
    found = (rows for one in ranges for rows in rows_of_offsets(cluster, one, patience, RowSettings()))
    return [row for rows in found for row in rows.to_pylist()]


@pytest.fixture(scope="module")
def of_files(folder: Path, server: ServerThread) -> Rows:
    """The rows of the files that the server serves."""
    (files,) = find_segments([folder])
    rows = (rows_of_files(files.file_system, ranges, RowSettings()) for ranges in cut_ranges(files.ranges()))
    return [row for found in rows for batch in found for row in batch.to_pylist()]


@pytest.fixture
def ranges(cluster: KafkaCluster, patience: Patience) -> list[OffsetRange]:
    """All of the topic, a range for each log partition."""
    return topic_ends(cluster, patience, TOPIC).whole()


@pytest.fixture(autouse=True)
def small_fetches(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(live_offsets, "FETCH_BYTES", 20_000)


def test_the_rows_are_those_of_the_files(
    cluster: KafkaCluster, patience: Patience, ranges: list[OffsetRange], of_files: Rows
) -> None:
    """Each record and marker, and the same counts of bytes and batches as on the disk."""
    rows = rows_of(cluster, patience, *ranges)
    accounts, accounts_of_files = ([row for row in found if row["kind"] == "read"] for found in (rows, of_files))

    assert without_place(rows) == without_place(of_files)
    assert [one.partition for one in ranges] == list(PARTITIONS)
    for name in ("size_bytes", "batch_count"):
        assert sum(row[name] for row in accounts) == sum(row[name] for row in accounts_of_files)
    assert len({row["file"] for row in accounts}) == len(accounts) > len(ranges)
    assert accounts[0]["file"] == f"kafka://{ranges[0].cluster_id}/{TOPIC}-1@{ranges[0].start}"


@pytest.mark.parametrize("pieces", [2, 7, 60])
def test_ranges_may_be_cut_at_any_offset(
    cluster: KafkaCluster, patience: Patience, ranges: list[OffsetRange], of_files: Rows, pieces: int
) -> None:
    """Within batches, too, and where compaction has left nothing: every batch belongs to one range."""
    whole = next(one for one in ranges if one.partition == 3)
    bounds = [whole.start + (whole.end - whole.start) * number // pieces for number in range(pieces + 1)]
    parts = [evolve(whole, start=start, end=end, is_first=start == whole.start) for start, end in pairwise(bounds)]

    assert without_place(rows_of(cluster, patience, *parts)) == [
        row for row in without_place(of_files) if row["log_partition"] == 3
    ]


def test_long_logs_are_cut_by_what_lies_in_them(
    cluster: KafkaCluster, patience: Patience, ranges: list[OffsetRange], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Tasks hold about as many bytes each, not offsets, and small partitions share one; nothing is left out."""
    monkeypatch.setattr(offset_ranges, "PROBED_OFFSETS_MIN", 1_000)
    tasks = plan(cluster, patience, ranges, 1_000_000)
    planned = [one for task in tasks for one in task]

    assert 2 < len(tasks) < 12
    for whole in ranges:
        parts = [one for one in planned if one.partition == whole.partition]
        assert [parts[0].start, parts[-1].end] == [whole.start, whole.end]
        assert all(one.end == other.start for one, other in pairwise(parts))
        assert [one.is_first for one in parts] == [True] + [False] * (len(parts) - 1)
    assert all(sum(one.size_bytes for one in task) <= 1_500_000 for task in tasks)


def test_what_goes_wrong_for_a_while_is_tried_again(
    server: ServerThread, cluster: KafkaCluster, patience: Patience, ranges: list[OffsetRange], of_files: Rows
) -> None:
    """Moved leaders, broken connections, brokers without metadata: no row is lost or repeated."""
    for error in ("NOT_LEADER_OR_FOLLOWER", "UNKNOWN_TOPIC_ID", "KAFKA_STORAGE_ERROR"):
        server.fail_next("Fetch", error, times=2)
    server.disconnect_next("Fetch", times=2, after=True)
    server.fail_next("Metadata", "LEADER_NOT_AVAILABLE", times=1)

    assert without_place(rows_of(cluster, patience, *ranges)) == without_place(of_files)


def test_leaders_change_in_mid_read(patience: Patience, monkeypatch: pytest.MonkeyPatch) -> None:
    """One moves, one dies, one is back and leads again: every record, once, in the order of the log."""
    monkeypatch.setattr(live_offsets, "FETCH_BYTES", 2_000)
    found: Rows = []
    with ServerThread(topics={"orders": 3}, nodes=3) as server, closing_cluster(server) as cluster:
        for number in range(90):
            server.produce("orders", [b"%d" % number * 100], partition=number % 3)
        changes = [
            lambda: server.move_leader("orders", 0),
            lambda: server.crash(node=server.leader("orders", 1)),
            lambda: server.restart(node=2),
            lambda: server.move_leader("orders", 2, to=2),
        ]
        for one in topic_ends(cluster, patience, "orders").whole():
            for rows in rows_of_offsets(cluster, one, patience, RowSettings()):
                found += rows.to_pylist()
                if changes and len(found) % 2:
                    changes.pop(0)()

    assert not changes
    assert [(row["log_partition"], row["log_offset"]) for row in without_place(found)] == [
        (partition, offset) for partition in range(3) for offset in range(30)
    ]


def test_what_does_not_end_is_said(server: ServerThread, cluster: KafkaCluster, ranges: list[OffsetRange]) -> None:
    """After the timeout an error names the topic and the cause."""
    server.fail_next("Fetch", "NOT_LEADER_OR_FOLLOWER", times=None)
    with pytest.raises(TransientClusterError, match="topic recorded: NOT_LEADER_OR_FOLLOWER"):
        rows_of(cluster, Patience(50, 10), ranges[0])


class LyingCluster:
    """Returns the first batch for every request."""

    def __init__(self, cluster: KafkaCluster) -> None:
        self._cluster = cluster

    def __getattr__(self, name: str) -> Any:
        return getattr(self._cluster, name)

    def fetch_raw(self, partition: TopicPartition, offset: int, max_bytes: int) -> FetchedBytes:
        """Fetch the first batch."""
        return self._cluster.fetch_raw(partition, 0, 1)


@contextmanager
def closing_cluster(server: ServerThread) -> Iterator[KafkaCluster]:
    """Connect to a server as long as the context lasts."""
    cluster = KafkaCluster(ClusterAddress(server.bootstrap).settings())
    try:
        yield cluster
    finally:
        cluster.close()


@pytest.fixture
def orders(patience: Patience) -> Iterator[tuple[ServerThread, KafkaCluster, OffsetRange]]:
    """A server with a topic of 30 records in 30 batches, a connection to it, and all of it."""
    with ServerThread(topics={"orders": 1}) as server, closing_cluster(server) as cluster:
        for number in range(30):
            server.produce("orders", [b"%d" % number], partition=0)
        (whole,) = topic_ends(cluster, patience, "orders").whole()
        yield server, cluster, whole


def test_what_is_deleted_before_it_is_read_is_told(
    orders: tuple[ServerThread, KafkaCluster, OffsetRange], patience: Patience
) -> None:
    """A row has the deleted offsets, and reading continues behind them."""
    server, cluster, whole = orders
    admin = AdminClient({"bootstrap.servers": server.bootstrap})
    for future in admin.delete_records([ConfluentPartition("orders", 0, 12)]).values():
        future.result(10)
    lost, *rows = rows_of(cluster, patience, whole)
    first, *batches = sound_batches(cluster, whole, patience)

    assert (lost["kind"], lost["log_offset"], lost["end_offset"], lost["size_bytes"]) == ("corrupt", 0, 12, 0)
    assert "deleted from the log before it was read" in lost["problem"]
    assert [row["log_offset"] for row in rows if row["kind"] == "record"] == list(range(12, 30))
    assert first == Lost(0, 12)
    assert [one.batch.base_offset for one in batches if isinstance(one, SoundBatch)] == list(range(12, 30))


def test_a_log_that_was_cut_is_told(orders: tuple[ServerThread, KafkaCluster, OffsetRange], patience: Patience) -> None:
    """Where the log ends before the planned offset, nothing is skipped."""
    _, cluster, whole = orders
    with pytest.raises(LogCutError, match="orders-0 ends at offset 30, and offset 39 was there before: it was cut"):
        rows_of(cluster, patience, evolve(whole, start=35, end=40))


def test_a_broker_that_gives_what_nobody_asked_for(
    orders: tuple[ServerThread, KafkaCluster, OffsetRange], patience: Patience
) -> None:
    """Reading ends with an error instead of repeating without end."""
    _, cluster, whole = orders
    with pytest.raises(ClusterError, match="@5: the broker gives only what lies before"):
        rows_of(cast(KafkaCluster, LyingCluster(cluster)), patience, evolve(whole, start=5, is_first=False))


@pytest.mark.parametrize(("told_ms", "waited_s"), [(700, 0.7), (2**31 - 1, 30), (-1, 0)])
def test_a_broker_that_throttles(
    orders: tuple[ServerThread, KafkaCluster, OffsetRange],
    monkeypatch: pytest.MonkeyPatch,
    told_ms: int,
    waited_s: float,
) -> None:
    """The wait that it requests is kept, within the request's timeout."""
    _, cluster, whole = orders
    waits: list[float] = []
    cluster.metadata(["orders"])
    monkeypatch.setattr(time, "sleep", waits.append)
    throttled = {"throttle_time_ms": told_ms, "error_code": 0, "responses": ()}
    monkeypatch.setattr(cluster, "_ask", lambda *_: throttled)
    with pytest.raises(TransientClusterError, match="orders-0: throttled by the broker"):
        cluster.fetch_raw(whole.topic_partition, 0, 1)

    assert waits == [waited_s]


def test_a_topic_of_the_same_name_is_another_one(
    orders: tuple[ServerThread, KafkaCluster, OffsetRange], patience: Patience
) -> None:
    """A topic that was deleted and made again while its logs were read."""
    _, cluster, whole = orders
    other = evolve(whole, topic_id=whole.topic_id.__class__(int=1))
    with pytest.raises(LogCutError, match="topic orders was deleted and created again"):
        rows_of(cluster, patience, other)


def test_what_comes_later_belongs_to_others(
    orders: tuple[ServerThread, KafkaCluster, OffsetRange], patience: Patience
) -> None:
    """A range ends where it was planned to, though the log has grown."""
    server, cluster, whole = orders
    server.produce("orders", [b"later"], partition=0)

    assert [row["log_offset"] for row in without_place(rows_of(cluster, patience, whole))] == list(range(30))


def test_a_server_that_comes_back(orders: tuple[ServerThread, KafkaCluster, OffsetRange], patience: Patience) -> None:
    """A broker that breaks off all connections between two calls is connected to again."""
    server, cluster, whole = orders
    server.drop_connections()

    assert len(without_place(rows_of(cluster, patience, whole))) == 30


def test_ends_take_three_requests_to_each_broker(patience: Patience) -> None:
    """For any number of partitions; all brokers at once."""
    with ServerThread(topics={"orders": 30, "bills": 30}, nodes=3) as server, closing_cluster(server) as cluster:
        ends = list_ends(cluster, patience, ["orders", "bills"], lambda: 5)
        asked = Counter(one.node_id for one in server.requests if one.api == "ListOffsets")

    assert [(one.topic, one.topic_partition, one.end_offset, one.error_code) for one in ends] == [
        (topic, partition, 0, 0) for topic in ("bills", "orders") for partition in range(30)
    ]
    assert asked == {1: 3, 2: 3, 3: 3}


class CountedWaits:
    """Clock that advances by waits only. Attributes: waited_s: the sum of waits."""

    def __init__(self) -> None:
        self.waited_s = 0.0

    def patience(self) -> Patience:
        """Return a minute of it, by this clock."""
        return Patience(60_000, 100, now_s=lambda: self.waited_s, wait=self._wait)

    def _wait(self, seconds: float) -> None:
        self.waited_s += seconds


def take_leader(server: ServerThread, topic: str, partition: int) -> None:
    """Leave a partition without a leader."""

    def take(control: Control) -> None:
        found = control._topic(topic, partition)
        control._servers.nodes.leadership.elect(found, partition, NOBODY)

    server.control(take)


def test_a_partition_without_a_leader_delays_no_other() -> None:
    """Its row has the error, all others their ends, without a wait; a log is read on in the others, too."""
    clock = CountedWaits()
    with ServerThread(topics={"orders": 3, "bills": 2}, nodes=2) as server, closing_cluster(server) as cluster:
        take_leader(server, "orders", 1)
        ends = list_ends(cluster, clock.patience(), ["orders", "bills"], lambda: 5)
        log = topic_ends(cluster, clock.patience(), "orders", may_lack=True)
        with pytest.raises(TransientClusterError, match="LEADER_NOT_AVAILABLE"):
            topic_ends(cluster, Patience(50, 10), "orders")

    assert [(one.topic, one.topic_partition, one.end_offset, one.error_code) for one in ends] == [
        *(("bills", 0, 0, 0), ("bills", 1, 0, 0)),
        *(("orders", 0, 0, 0), ("orders", 1, None, ErrorCode.LEADER_NOT_AVAILABLE), ("orders", 2, 0, 0)),
    ]
    assert (log.ends, log.leaderless) == ({0: 0, 2: 0}, (1,))
    assert clock.waited_s == 0


def test_a_log_without_a_leader_is_read_once_it_has_one() -> None:
    """A tail continues with the other partitions, and later from its last offset."""
    looks = []
    with ServerThread(topics={"orders": 2}, nodes=2) as server:
        address = ClusterAddress(server.bootstrap)
        tail = Tail(ClusterSource(address, "orders"))

        def look() -> None:
            found = [(one.partition, one.start, one.end) for task in tail.look() for one in task.ranges]
            looks.append((sorted(found), list(tail.leaderless)))
            tail.take()

        for change in (lambda: None, lambda: take_leader(server, "orders", 1)):
            for partition in range(2):
                server.produce("orders", [b"order"], partition=partition)
            change()
            look()
        server.move_leader("orders", 1, 2)
        look()

    assert looks == [
        ([(0, 0, 1), (1, 0, 1)], []),
        ([(0, 1, 2)], ["orders-1"]),
        ([(1, 1, 2)], []),
    ]


def test_a_leader_that_does_not_answer_delays_others_by_two_seconds() -> None:
    """A refusal or a broken connection may only precede a new leader."""
    with ServerThread(topics={"orders": 2}, nodes=2) as server, closing_cluster(server) as cluster:
        for fault in (
            lambda: server.fail_next("ListOffsets", "NOT_LEADER_OR_FOLLOWER", times=None, node=2),
            lambda: server.disconnect_next("ListOffsets", times=None, node=2),
        ):
            clock, rule = CountedWaits(), fault()
            ends = list_ends(cluster, clock.patience(), ["orders"], lambda: 5)
            rule.remove()

            assert sorted(one.end_offset is None for one in ends) == [False, True]
            assert 1 < clock.waited_s <= SETTLE_MS / 1_000


def test_topics_and_partitions_that_are_not_there(cluster: KafkaCluster, patience: Patience) -> None:
    """Their names are reported, and the request creates nothing."""
    with pytest.raises(InputError, match="no topic nothing"):
        topic_ends(cluster, patience, "nothing")
    with pytest.raises(InputError, match="topic recorded has no partition 99"):
        topic_ends(cluster, patience, TOPIC, {1, 99})
    assert "nothing" not in cluster.metadata(["nothing"]).topics
    with pytest.raises(TransientClusterError, match="nothing-0 has no leader"):
        cluster.fetch_raw(TopicPartition("nothing", 0), 0, 1)


def test_ends_of_topics(orders: tuple[ServerThread, KafkaCluster, OffsetRange], patience: Patience) -> None:
    """Start and end of each partition, also the last stable offset; missing ones are reported."""
    server, cluster, _ = orders
    producer = Producer({"bootstrap.servers": server.bootstrap, "transactional.id": "t"})
    producer.init_transactions()
    producer.begin_transaction()
    producer.produce("orders", b"open", partition=0)
    producer.flush()
    missing, of_orders = list_ends(cluster, patience, ["orders", "nothing"], lambda: 5)
    server.fail_next("ListOffsets", "NOT_LEADER_OR_FOLLOWER", times=None)
    (refused,) = list_ends(cluster, Patience(50, 10), ["orders"], lambda: 6)
    producer.abort_transaction()

    assert missing == PartitionEnds("nothing", None, 5, None, None, None, -1, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    assert of_orders == PartitionEnds("orders", 0, 5, 0, 31, 30, 0, 0)
    assert refused == PartitionEnds("orders", 0, 6, None, None, None, -1, ErrorCode.NOT_LEADER_OR_FOLLOWER)
