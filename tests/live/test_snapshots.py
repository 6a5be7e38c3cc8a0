"""All groups of a cluster at one moment, with missing parts reported."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from pathlib import Path

import pytest
from confluent_kafka import AcknowledgeType, Consumer, ShareConsumer, TopicPartition
from confluent_kafka.admin import (
    AclOperation,
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    ResourceType,
)

from groupcoord.analysis.errors import TransientClusterError
from groupcoord.analysis.live.cluster import KafkaCluster, ListedGroups, Patience
from groupcoord.analysis.live.settings import ClusterAddress
from groupcoord.analysis.live.snapshots import GONE, Problem, Snapshot, take_snapshot
from groupcoord.analysis.poll.lag import LagWatch
from groupcoord.analysis.poll.rows import topics_of
from groupcoord.conformance.client import Client
from groupcoord.conformance.sockets import SocketServer
from groupcoord.testing import ServerThread
from tests.clients.test_streams_group_and_back import GROUP as STREAMS_GROUP, Thread, settle
from tests.storage.real_broker import ask

from .logging_in import ADMIN, PLAIN, USERS, WITH_ACLS, address_with, allow, log_in

GROUPS_AT_ONCE = {
    "group.share.heartbeat.interval.ms": 500,
    "group.share.min.heartbeat.interval.ms": 500,
    "group.streams.initial.rebalance.delay.ms": 0,
    "group.streams.assignment.interval.ms": 0,
}
LACKS = "this user lacks the permission DESCRIBE"


def commit(bootstrap: str, *group_ids: str, login: Mapping[str, str] | None = None) -> None:
    """Commit an offset for each of some groups."""
    for group_id in group_ids:
        client = Consumer({"bootstrap.servers": bootstrap, "group.id": group_id, **(login or {})})
        client.commit(offsets=[TopicPartition("orders", 0, 5)], asynchronous=False)
        client.close()


def snapshot_of(cluster: KafkaCluster, known: Sequence[str] = (), timeout_ms: int = 5_000) -> Snapshot:
    """Take one."""
    return take_snapshot(cluster, Patience(timeout_ms, 5), lambda: 1, topics_of, known)


class Disturbed(KafkaCluster):
    """A connection to a cluster in which something happens once, right after groups were listed."""

    def __init__(self, bootstrap: str, happens: Callable[[], object]) -> None:
        super().__init__(ClusterAddress(bootstrap).settings())
        self._happens: Callable[[], object] | None = happens

    def list_groups(self, broker: int) -> ListedGroups:
        listed = super().list_groups(broker)
        if listed.groups and self._happens is not None:
            happens, self._happens = self._happens, None
            happens()
        return listed


def test_missing_permissions_are_named(tmp_path: Path) -> None:
    """Without DESCRIBE on the cluster groups are omitted, without it on the topic offsets; both are reported."""
    with ServerThread(topics={"orders": 1}, settings=WITH_ACLS, users=USERS) as server:
        commit(server.bootstrap, "billing", "audit", login=ADMIN)
        cluster = KafkaCluster(address_with(tmp_path, server.bootstrap, log_in(PLAIN, "PLAIN")).settings())
        allow(server.bootstrap, ResourceType.GROUP, "billing", AclOperation.DESCRIBE)
        few = snapshot_of(cluster)
        allow(server.bootstrap, ResourceType.BROKER, "kafka-cluster", AclOperation.DESCRIBE)
        more = snapshot_of(cluster)
        allow(server.bootstrap, ResourceType.TOPIC, "orders", AclOperation.DESCRIBE)
        most = snapshot_of(cluster)
        cluster.close()

    assert few.groups.keys() == {"billing"}
    assert few.groups["billing"].offsets == ()
    assert [one.subject for one in few.problems] == ["cluster"]
    assert more.groups.keys() == {"billing", "audit"}
    assert set(more.problems) == {Problem("group audit", LACKS), Problem("group audit", f"its offsets: {LACKS}")}
    assert [one.offset for one in most.groups["billing"].offsets or ()] == [5]
    assert [one.end_offset for one in most.ends] == [0]


def test_a_group_that_goes_between_two_requests_is_said() -> None:
    """It was listed, and does not exist when described: reported as a problem."""
    with ServerThread(topics={"orders": 1}) as server:
        commit(server.bootstrap, "billing", "audit")
        admin = AdminClient({"bootstrap.servers": server.bootstrap})
        cluster = Disturbed(server.bootstrap, lambda: admin.delete_consumer_groups(["billing"])["billing"].result(10))
        found = snapshot_of(cluster)
        cluster.close()

    assert found.groups.keys() == {"audit"}
    assert list(found.problems) == [Problem("group billing", GONE)]
    assert found.is_whole


def test_a_coordinator_may_move_meanwhile() -> None:
    """A group that moves to another node after it was listed is requested again."""
    with ServerThread(topics={"orders": 1}, nodes=2) as server:
        commit(server.bootstrap, "billing")
        cluster = Disturbed(server.bootstrap, lambda: server.move_coordinator("billing"))
        found = snapshot_of(cluster)
        cluster.close()

    assert found.is_whole
    assert not found.problems
    assert [one.offset for one in found.groups["billing"].offsets or ()] == [5]


def test_a_group_without_a_coordinator_is_missing_and_not_gone() -> None:
    """An unlisted group without a coordinator is reported as missing; with one, it does not exist."""
    with ServerThread(topics={"orders": 1}) as server:
        cluster = KafkaCluster(ClusterAddress(server.bootstrap).settings())
        server.fail_next("FindCoordinator", "COORDINATOR_NOT_AVAILABLE", times=None)
        lost = snapshot_of(cluster, known=("billing",), timeout_ms=50)
        server.clear_faults()
        gone = snapshot_of(cluster, known=("billing",))
        cluster.close()

    assert lost.missing == {"billing"}
    assert not gone.missing
    assert list(lost.problems) == [Problem("group billing", "COORDINATOR_NOT_AVAILABLE")]
    assert not gone.problems


def test_a_broker_that_does_not_list_is_said() -> None:
    """While its coordinator loads, and the patience ends, there is no telling which groups there are."""
    with ServerThread(topics={"orders": 1}) as server:
        commit(server.bootstrap, "billing")
        cluster = KafkaCluster(ClusterAddress(server.bootstrap).settings())
        server.fail_next("ListGroups", "COORDINATOR_LOAD_IN_PROGRESS")
        patient = snapshot_of(cluster)
        server.fail_next("ListGroups", "COORDINATOR_LOAD_IN_PROGRESS", times=None)
        with pytest.raises(TransientClusterError, match="broker 1: COORDINATOR_LOAD_IN_PROGRESS"):
            snapshot_of(cluster, timeout_ms=50)
        cluster.close()

    assert patient.is_whole
    assert patient.groups.keys() == {"billing"}


def rows_of(snapshot: Snapshot) -> list[tuple[object, ...]]:
    names = ("group_id", "topic", "topic_partition", "committed_offset", "lag", "client_id")
    lags = LagWatch(lambda row: None).take(snapshot)
    return sorted((tuple(row[name] for name in names) for row in lags), key=str)


def test_share_groups_have_rows() -> None:
    """Their start offsets, the coordinator's lag, and a member that reads the partition."""
    with ServerThread(topics={"jobs": 2}, settings=GROUPS_AT_ONCE) as server:
        server.produce("jobs", [b"%d" % number for number in range(5)], partition=0)
        admin = AdminClient({"bootstrap.servers": server.bootstrap})
        earliest = ConfigEntry("share.auto.offset.reset", "earliest", incremental_operation=AlterConfigOpType.SET)
        resource = ConfigResource(ConfigResource.Type.GROUP, "workers", incremental_configs=[earliest])
        admin.incremental_alter_configs([resource])[resource].result(10)
        mode = {"share.acknowledgement.mode": "explicit", "client.id": "worker"}
        worker = ShareConsumer({"bootstrap.servers": server.bootstrap, "group.id": "workers", **mode})
        worker.subscribe(["jobs"])
        messages = []
        while not messages:
            messages = worker.poll(1.0)
        for message in messages[:2]:
            worker.acknowledge(message, AcknowledgeType.ACCEPT)
        worker.commit_sync(10)
        cluster = KafkaCluster(ClusterAddress(server.bootstrap).settings())
        found = snapshot_of(cluster)
        cluster.close()
        worker.close()

    told = [(topic, partition, lag, client) for _, topic, partition, _, lag, client in rows_of(found)]
    assert told == [("jobs", 0, 3, "worker"), ("jobs", 1, 0, "worker")]  # the start offset moves when it is written
    assert not found.problems
    assert found.groups["workers"].described is not None


def test_streams_groups_have_rows() -> None:
    """By the source topics of the tasks that a thread runs: committed or not, with the thread that runs them."""
    with (
        ServerThread(topics={"lines": 3, "counts": 3}, settings=GROUPS_AT_ONCE) as server,
        closing(Client(SocketServer("127.0.0.1", server.port), "streams-thread")) as client,
    ):
        server.produce("lines", [b"a", b"b"], partition=0)
        thread = Thread("a")
        thread.join(client)
        settle(client, [thread])
        place = {"partition_index": 0, "committed_offset": 1, "committed_leader_epoch": -1, "committed_metadata": None}
        topics = [{"name": "lines", "partitions": [place]}]
        body = {"group_id": STREAMS_GROUP, "generation_id_or_member_epoch": thread.epoch, "member_id": "a"}
        ask(client, "OffsetCommit", 9, {**body, "group_instance_id": None, "topics": topics})
        cluster = KafkaCluster(ClusterAddress(server.bootstrap).settings())
        found = snapshot_of(cluster)
        cluster.close()

    assert rows_of(found) == [
        (STREAMS_GROUP, "lines", 0, 1, 1, "streams-thread"),
        (STREAMS_GROUP, "lines", 1, None, 0, "streams-thread"),
        (STREAMS_GROUP, "lines", 2, None, 0, "streams-thread"),
    ]
    assert not found.problems
