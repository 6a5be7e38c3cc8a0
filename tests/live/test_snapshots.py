"""All groups of a cluster at one moment; and whatever is not told is said."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import pytest
from confluent_kafka import Consumer, TopicPartition
from confluent_kafka.admin import AclOperation, AdminClient, ResourceType

from groupcoord.analysis.live.client import KafkaCluster
from groupcoord.analysis.live.cluster import ListedGroups
from groupcoord.analysis.live.errors import TransientClusterError
from groupcoord.analysis.live.retries import Patience
from groupcoord.analysis.live.settings import ClusterAddress
from groupcoord.analysis.live.snapshots import GONE, Problem, Snapshot, take_snapshot
from groupcoord.analysis.polling.views import topics_of
from groupcoord.testing import ServerThread

from .logging_in import ADMIN, PLAIN, USERS, WITH_ACLS, address_with, allow, log_in

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
        """See :class:`groupcoord.analysis.live.cluster.LiveCluster`."""
        listed = super().list_groups(broker)
        if listed.groups and self._happens is not None:
            happens, self._happens = self._happens, None
            happens()
        return listed


def test_missing_permissions_are_named(tmp_path: Path) -> None:
    """Groups are left out without DESCRIBE on the cluster, offsets without it on the topic: both is said."""
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
    """It was listed, and is gone when it is described: a problem, and no group."""
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
    """A group that another node coordinates as soon as it was listed is asked for again."""
    with ServerThread(topics={"orders": 1}, nodes=2) as server:
        commit(server.bootstrap, "billing")
        cluster = Disturbed(server.bootstrap, lambda: server.move_coordinator("billing"))
        found = snapshot_of(cluster)
        cluster.close()

    assert found.is_whole
    assert not found.problems
    assert [one.offset for one in found.groups["billing"].offsets or ()] == [5]


def test_a_group_without_a_coordinator_is_missing_and_not_gone() -> None:
    """Nobody lists it: if nobody coordinates it either, that is said; if somebody does, it doesn't exist any more."""
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
