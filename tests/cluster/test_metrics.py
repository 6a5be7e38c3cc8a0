"""What a replica tells Prometheus."""

from __future__ import annotations

from prometheus_client import CollectorRegistry, generate_latest

from groupcoord.cluster.metrics import ReplicaCollector
from groupcoord.cluster.participant import ReplicaStatus
from groupcoord.cluster.slot_store import PartitionFigures


def shown(status: ReplicaStatus | None) -> list[str]:
    """Return what Prometheus reads, without its comments."""
    registry = CollectorRegistry()
    registry.register(ReplicaCollector(lambda: status))
    return [line for line in generate_latest(registry).decode().splitlines() if not line.startswith("#")]


def test_what_there_is_to_be_known_of_a_replica() -> None:
    """Lease, owners and epochs, how often something was taken over or lost, and how far snapshots lag behind."""
    owners = {0: "a", 2: "b"}
    status = ReplicaStatus(True, ("a", "b"), owners, {0: PartitionFigures(256, 7_000, 1_000)}, 3, 1)
    assert shown(status) == [
        "groupcoord_replica_may_answer 1.0",
        "groupcoord_replica_live 2.0",
        "groupcoord_replica_take_overs_total 3.0",
        "groupcoord_replica_losses_total 1.0",
        'groupcoord_replica_owner{node="a",partition="0"} 1.0',
        'groupcoord_replica_owner{node="b",partition="2"} 1.0',
        'groupcoord_replica_epoch{partition="0"} 256.0',
        'groupcoord_replica_unread_bytes{partition="0"} 7000.0',
        'groupcoord_replica_snapshot_bytes{partition="0"} 1000.0',
    ]


def test_nothing_is_shown_of_what_does_not_run() -> None:
    """Before a node has its share of the log, and without one."""
    assert shown(None) == []
