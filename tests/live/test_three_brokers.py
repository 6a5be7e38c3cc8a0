"""Real cluster of three brokers with changing leaders during reads: nothing is omitted or repeated."""

from __future__ import annotations

import shutil
from collections.abc import Iterator

import pytest
from confluent_kafka import Consumer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from groupcoord.analysis.decode.rows import RowSettings
from groupcoord.analysis.live import offsets as live_offsets
from groupcoord.analysis.live.cluster import KafkaCluster, Patience, connection
from groupcoord.analysis.live.offsets import OffsetRange, list_ends, topic_ends
from groupcoord.analysis.live.settings import ClusterAddress
from groupcoord.analysis.live.snapshots import take_snapshot
from groupcoord.analysis.pipeline.sources import rows_of_offsets
from groupcoord.analysis.poll.lag import LagWatch
from groupcoord.analysis.poll.rows import topics_of
from groupcoord.core.log.records import OFFSETS_TOPIC
from tests.processes import wait_until

from .real_kafka import TIMEOUT_S, ThreeBrokers, commit_offsets, committing, needs_kafka
from .test_reading import Rows, without_place

pytestmark = needs_kafka

PARTITIONS, ROUNDS = 6, 120
GROUPS = [f"group-{number}" for number in range(12)]


@pytest.fixture(scope="module")
def brokers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ThreeBrokers]:
    """The cluster, with commits in every partition of the log."""
    folder = tmp_path_factory.mktemp("three")
    brokers = ThreeBrokers(folder, {"offsets.topic.num.partitions": PARTITIONS})
    try:
        brokers.start()
        admin = AdminClient({"bootstrap.servers": brokers.bootstrap})
        admin.create_topics([NewTopic("orders", 4, 3)])["orders"].result(60)
        commit_offsets(brokers.bootstrap, "orders", GROUPS, ROUNDS)
        yield brokers
    finally:
        brokers.kill()
        shutil.rmtree(folder, ignore_errors=True)


class LeaderChanges:
    """Changes of the leader of a partition during a read: it dies, or a former one is back and leads."""

    def __init__(self, brokers: ThreeBrokers) -> None:
        self._brokers = brokers
        self._dead: int | None = None
        self.seen: list[tuple[int, int]] = []

    def next(self, partition: int) -> None:
        """Bring one about, and wait until another broker leads, or this time the same one."""
        before = self._brokers.partitions()[partition].leader
        if self._dead is None:
            self._brokers.nodes[before].kill()
            self._dead = before
            return
        self.mend()
        after = self._brokers.partitions()[partition].leader
        self.seen.append((before, after))

    def mend(self) -> None:
        """Start who is dead, and let the preferred replicas lead."""
        if self._dead is not None:
            self._brokers.nodes[self._dead].start()
            self._dead = None
        self._brokers.lead_as_preferred()


def in_order(rows: Rows) -> Rows:
    """Return records and markers in the order of their places in the log."""
    return sorted(without_place(rows), key=lambda row: (row["log_partition"], row["log_offset"]))


def read(cluster: KafkaCluster, patience: Patience, one: OffsetRange, changes: LeaderChanges) -> Rows:
    """Return the rows of a range; when the first have come, a leader changes."""
    found: Rows = []
    for number, rows in enumerate(rows_of_offsets(cluster, one, patience, RowSettings())):
        found += rows.to_pylist()
        if not number:
            changes.next(one.partition)
    return found


def test_leaders_change_in_mid_read(brokers: ThreeBrokers, monkeypatch: pytest.MonkeyPatch) -> None:
    """Leaders are killed and come back while groups commit: what was planned is what each of the three disks has."""
    monkeypatch.setattr(live_offsets, "FETCH_BYTES", 4_000)
    changes = LeaderChanges(brokers)
    preferred = {number: one.replicas[0] for number, one in brokers.partitions().items()}
    found: Rows = []
    with (
        connection(ClusterAddress(brokers.bootstrap)) as (cluster, patience),
        committing(brokers.bootstrap, "orders", GROUPS[:3]),
    ):
        ranges = topic_ends(cluster, patience, OFFSETS_TOPIC).whole()
        # Two in turn have the same preferred leader: it dies with the first one, and is back with the second.
        ranges.sort(key=lambda one: preferred[one.partition])
        for one in ranges:
            found += read(cluster, patience, one, changes)
    changes.mend()
    brokers.wait_for_sync()

    ends = {one.partition: one.end for one in ranges}
    assert len(ranges) == PARTITIONS
    assert [after for before, after in changes.seen if before != after]
    for node in brokers.nodes.values():
        on_disk = [row for row in node.rows_on_disk() if (row["log_offset"] or 0) < ends.get(row["log_partition"], 0)]
        assert in_order(found) == in_order(on_disk)


def test_ends_are_told_while_a_broker_is_gone(brokers: ThreeBrokers) -> None:
    """Those of the other brokers at once, and all others when their partitions have new leaders."""
    with connection(ClusterAddress(brokers.bootstrap)) as (cluster, patience):

        def ends() -> dict[int | None, int | None]:
            found = list_ends(cluster, patience, [OFFSETS_TOPIC], lambda: 1)
            return {one.topic_partition: one.end_offset for one in found}

        before = ends()
        led = {number for number, one in brokers.partitions().items() if one.leader == 2}
        brokers.nodes[2].kill()
        try:
            meanwhile = ends()
            wait_until(lambda: ends() == before, TIMEOUT_S, "nobody leads what it led")
        finally:
            brokers.nodes[2].start()

    assert meanwhile in (before, {number: None if number in led else end for number, end in before.items()})
    assert len(before) == PARTITIONS


def test_a_partition_that_lives_on_a_dead_broker_alone_is_unknown(brokers: ThreeBrokers) -> None:
    """It has no leader until that broker returns; the lag table has the topic's other partitions meanwhile."""
    admin = AdminClient({"bootstrap.servers": brokers.bootstrap})
    admin.create_topics([NewTopic("alone", 3, 1)])["alone"].result(60)
    consumer = Consumer({"bootstrap.servers": brokers.bootstrap, "group.id": "alone", "enable.auto.commit": False})
    consumer.commit(offsets=[TopicPartition("alone", number, 0) for number in range(3)], asynchronous=False)
    consumer.close()
    homes = {number: one.leader for number, one in brokers.partitions("alone").items()}
    brokers.nodes[homes[1]].kill()
    try:
        wait_until(lambda: brokers.partitions("alone")[1].leader == -1, TIMEOUT_S, "it has a leader")
        with connection(ClusterAddress(brokers.bootstrap)) as (cluster, _):
            waits: list[float] = []
            patience = Patience(60_000, 100, wait=waits.append)
            snapshot = take_snapshot(cluster, patience, lambda: 1, topics_of)
    finally:
        brokers.nodes[homes[1]].start()
    lags = LagWatch(lambda row: None).take(snapshot, ["alone"])

    assert {row["topic_partition"]: row["status"] for row in lags} == {
        number: "UNKNOWN" if home == homes[1] else "OK" for number, home in homes.items()
    }
    assert not waits
