"""A real broker is followed while clients join, commit and crash, it is killed, and the follower is killed, too."""

from __future__ import annotations

import shutil
import signal
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Consumer, ConsumerGroupState, ConsumerGroupTopicPartitions, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic
from pyspark.sql import SparkSession

import groupcoord.spark as pipeline
from groupcoord.analysis.live.settings import ClusterAddress
from groupcoord.analysis.running.sources import ClusterSource
from groupcoord.core.records import OFFSETS_TOPIC
from groupcoord.spark.following import Following

from ..live.real_kafka import KafkaProcess, commit_offsets, needs_kafka, ports_in_a_row, wait_until
from .programs import Process
from .test_cluster import without_place
from .test_streaming import batch_tables, rows

pytestmark = needs_kafka

PARTITIONS = 4
SETTINGS = {
    "offsets.topic.num.partitions": 3,
    "group.min.session.timeout.ms": 1_000,
    "group.initial.rebalance.delay.ms": 0,
    "group.consumer.min.session.timeout.ms": 1_000,
    "group.consumer.session.timeout.ms": 5_000,
    "group.consumer.min.heartbeat.interval.ms": 500,
    "group.consumer.heartbeat.interval.ms": 1_000,
}

CLIENT = """
import signal, sys
from confluent_kafka import Consumer, KafkaException

bootstrap, group, protocol = sys.argv[1:]
settings = {"bootstrap.servers": bootstrap, "group.id": group, "enable.auto.commit": False}
settings |= {"client.id": group + "-client", "auto.offset.reset": "earliest", "group.protocol": protocol}
settings |= {"session.timeout.ms": 5_000} if protocol == "classic" else {}
consumer = Consumer(settings)
is_ended = []
signal.signal(signal.SIGTERM, lambda *_: is_ended.append(True))
consumer.subscribe(["orders"])
while not is_ended:
    message = consumer.poll(0.2)
    if message is not None and not message.error():
        try:
            consumer.commit(message, asynchronous=False)
            print("committed", flush=True)
        except KafkaException:
            pass
consumer.close()
"""
"""A member of a group that commits each record; it leaves at SIGTERM."""

FOLLOWER = """
import os, signal, sys
from groupcoord.cli import main
from groupcoord.spark.stream_store import StreamStore

commit = StreamStore.commit

def commit_or_die(store, manifest):
    if manifest.update == int(sys.argv[1]):
        os.kill(os.getpid(), signal.SIGKILL)
    commit(store, manifest)

StreamStore.commit = commit_or_die
sys.exit(main(sys.argv[2:]))
"""
"""The command, which is killed when it has written an update of some number, and before that counts."""

NEVER = -1


class Clients:
    """Members of groups of both protocols, and a producer that gives them work."""

    def __init__(self, bootstrap: str) -> None:
        self._bootstrap = bootstrap
        self._members: list[Process] = []
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._produce)
        self._thread.start()

    def _produce(self) -> None:
        producer = Producer({"bootstrap.servers": self._bootstrap, "enable.idempotence": True})
        number = 0
        while not self._ended.wait(0.05):
            producer.produce("orders", b"%d" % number, partition=number % PARTITIONS)
            producer.poll(0)
            number += 1
        producer.flush()

    def join(self, group: str, protocol: str) -> Process:
        """Let one more join, and wait until it has committed something."""
        member = Process(CLIENT, self._bootstrap, group, protocol)
        self._members.append(member)
        member.wait_for("committed")
        return member

    def end(self) -> None:
        """Let the first die and the others leave; produce no more."""
        self._ended.set()
        self._thread.join()
        for number, member in enumerate(self._members):
            member.end(signal.SIGTERM if number else signal.SIGKILL)


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[KafkaProcess]:
    """A broker with a topic, and somebody who has committed."""
    broker = KafkaProcess(tmp_path / "broker", ports_in_a_row(2), SETTINGS)
    try:
        broker.start()
        admin = AdminClient({"bootstrap.servers": broker.bootstrap})
        admin.create_topics([NewTopic("orders", PARTITIONS, 1)])["orders"].result(60)
        commit_offsets(broker.bootstrap, "orders", ["idle"], 3)
        yield broker
    finally:
        broker.kill()
        shutil.rmtree(tmp_path, ignore_errors=True)


class Followers:
    """Starts the command, into one directory, as often as it is killed."""

    def __init__(self, bootstrap: str, out: Path) -> None:
        self._bootstrap = bootstrap
        self._out = out
        self._started: list[Process] = []

    def start(self, dies_at: int = NEVER) -> Process:
        """Start it anew, to die at an update."""
        words = ("--bootstrap-server", self._bootstrap, "--out", str(self._out), "--follow", "--interval", "0.5")
        spark = ("--master", "local[2]", "--memory", "512m", "--compiler", "c1")
        self._started.append(Process(FOLLOWER, str(dies_at), "analyze", *words, *spark))
        return self._started[-1]

    def kill(self) -> None:
        """Kill whatever runs."""
        for one in self._started:
            one.end(signal.SIGKILL)


def wait_until_empty(bootstrap: str) -> list[str]:
    """Wait until no group has members, and return their names."""
    admin = AdminClient({"bootstrap.servers": bootstrap})
    found: list[str] = []

    def are_empty() -> bool:
        groups = admin.list_consumer_groups(request_timeout=30).result(30).valid
        found[:] = [group.group_id for group in groups]
        return all(group.state == ConsumerGroupState.EMPTY for group in groups)

    wait_until(are_empty, "groups have members")
    return found


def leave_transaction_open(bootstrap: str) -> Producer:
    """Produce records that nobody has read yet, some in a transaction that does not end, which commits an offset."""
    producer = Producer({"bootstrap.servers": bootstrap})
    for number in range(7):
        producer.produce("orders", b"unread", partition=number % PARTITIONS)
    producer.flush()
    open_one = Producer({"bootstrap.servers": bootstrap, "transactional.id": "open", "transaction.timeout.ms": 600_000})
    open_one.init_transactions(60)
    open_one.begin_transaction()
    for _ in range(5):
        open_one.produce("orders", b"open", partition=1)
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "exactly-once"})
    open_one.send_offsets_to_transaction([TopicPartition("orders", 1, 2)], consumer.consumer_group_metadata(), 60)
    open_one.flush()
    consumer.close()
    return open_one


def ends_of(bootstrap: str, isolation: str) -> dict[int, int]:
    """Return where the partitions end for who reads with an isolation level."""
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "nobody", "isolation.level": isolation})
    ends = {
        partition: consumer.get_watermark_offsets(TopicPartition("orders", partition), timeout=30, cached=False)[1]
        for partition in range(PARTITIONS)
    }
    consumer.close()
    return ends


def lag_by_clients(bootstrap: str, groups: list[str]) -> dict[tuple[str, int], tuple[int, int, int]]:
    """Return committed offset, lag and lag_stable of each group and partition, as Kafka's clients tell them."""
    admin = AdminClient({"bootstrap.servers": bootstrap})
    ends, stable = (ends_of(bootstrap, isolation) for isolation in ("read_uncommitted", "read_committed"))
    found = {}
    for group in groups:
        asked = admin.list_consumer_group_offsets([ConsumerGroupTopicPartitions(group)], require_stable=False)
        for one in asked[group].result(30).topic_partitions:
            lags = (max(some[one.partition] - one.offset, 0) for some in (ends, stable))
            found[group, one.partition] = (one.offset, *lags)
    return found


def test_tables_are_those_of_one_reading_whatever_dies(
    spark: SparkSession, broker: KafkaProcess, tmp_path: Path
) -> None:
    """Members, broker and follower are killed while groups go on: all tables are right, and the lag to the record."""
    out = tmp_path / "out"
    clients, followers = Clients(broker.bootstrap), Followers(broker.bootstrap, out)
    try:
        clients.join("billing", "classic")
        clients.join("shipping", "consumer")
        dying = followers.start(dies_at=1)
        dying.wait_for("update 0")
        crashing = clients.join("billing", "classic")
        assert dying.wait() == -signal.SIGKILL
        crashing.end(signal.SIGKILL)
        clients.join("shipping", "consumer").end(signal.SIGKILL)

        following = followers.start()
        following.wait_for("update 2")
        broker.kill()
        broker.start()
        clients.join("shipping", "consumer")
        clients.join("billing", "classic").end(signal.SIGTERM)
        following.wait_for("update")
        following.wait_for("update")
        assert following.end(signal.SIGKILL) == -signal.SIGKILL
    finally:
        followers.kill()
        clients.end()
    groups = wait_until_empty(broker.bootstrap)
    held = leave_transaction_open(broker.bootstrap)
    address = ClusterAddress(broker.bootstrap)
    source = ClusterSource(frozenset(), None, address, OFFSETS_TOPIC, lag_from_records=True)
    Following(source, out).run(spark, lambda wait_s: True, lambda told: None)

    tables = pipeline.FollowedTables(spark, out)
    records = pipeline.read_cluster(spark, broker.bootstrap).cache()
    of_disk = pipeline.read_log(spark, broker.folder / "data")
    assert without_place(tables.table("records")) == without_place(records) == without_place(of_disk)
    for name, table in batch_tables(records).items():
        assert rows(tables.table(name)) == rows(table), name
    lag = spark.read.parquet(f"{out}/tables/lag").collect()
    assert {
        (row.group_id, row.topic_partition): (row.committed_offset, row.lag, row.lag_stable) for row in lag
    } == lag_by_clients(broker.bootstrap, groups)
    assert {row.lag_ms_method for row in lag if row.lag} == {"record"}
    assert {row.transaction for row in tables.table("commits").collect()} == {None, "open"}
    del held
