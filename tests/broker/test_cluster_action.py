"""CLUSTER_ACTION, the permission of brokers, which recordings with a KRaft broker can't take away."""

from __future__ import annotations

import pytest

from groupcoord import ErrorCode
from groupcoord.core.router.authorization import CLUSTER
from tests.broker.rules import CLUSTER_DENIED, TOPIC, TOPIC_DENIED, TRANSACTION, UNKNOWN, Rules, errors
from tests.broker.wire_world import Body, WireWorld


def test_find_share_coordinator(world: WireWorld, rules: Rules) -> None:
    """The coordinator of a share-partition is looked up from version 6 on."""
    rules.deny("CLUSTER_ACTION", CLUSTER)
    answer = world.ask(10, 6, {"key_type": 2, "coordinator_keys": ("k",)})
    refused = {"node_id": -1, "host": "", "port": -1, "error_code": ErrorCode[CLUSTER_DENIED]}
    assert answer["coordinators"] == [{"key": "k", "error_message": "Cluster authorization failed."} | refused]


def fetch_body(*topics: str, replica_id: int = -1, max_wait: int = 0) -> Body:
    position = {"current_leader_epoch": -1, "fetch_offset": 0, "last_fetched_epoch": -1, "log_start_offset": -1}
    partitions = tuple({"partition": index, "partition_max_bytes": 1_000} | position for index in (0, 9))
    session = {"session_id": 0, "session_epoch": -1, "forgotten_topics_data": (), "rack_id": ""}
    limits = {"max_wait": max_wait, "min_bytes": 1, "max_bytes": 1_000, "isolation_level": 0, "replica_id": replica_id}
    return session | limits | {"topics": tuple({"topic": topic, "partitions": partitions} for topic in topics)}


def test_a_fetch_that_is_refused_does_not_wait(world: WireWorld, rules: Rules) -> None:
    """Only readable partitions are worth a wait."""
    rules.deny("READ", TOPIC, "t")
    assert world.send(1, 12, fetch_body("t", max_wait=500)).receive() is not None
    assert world.send(1, 12, fetch_body("t", "u", max_wait=500)).receive() is None


def test_fetch_of_a_follower(world: WireWorld, rules: Rules) -> None:
    """A follower needs CLUSTER_ACTION in place of READ: without it, every topic is refused."""
    rules.deny("READ", TOPIC, "t")
    answer = world.ask(1, 12, fetch_body("t", "nope", replica_id=2))
    assert errors(answer["responses"])[0] == ("t", [(0, "NOT_LEADER_OR_FOLLOWER"), (9, UNKNOWN)])
    rules.deny("CLUSTER_ACTION", CLUSTER)
    answer = world.ask(1, 12, fetch_body("t", "nope", replica_id=2))
    denied = [(0, TOPIC_DENIED), (9, TOPIC_DENIED)]
    assert errors(answer["responses"]) == [("t", denied), ("nope", denied)]


def test_ends_of_epochs(world: WireWorld, rules: Rules) -> None:
    """Consumers need DESCRIBE for them (KIP-320), brokers CLUSTER_ACTION alone."""
    partitions = ({"partition": 0, "current_leader_epoch": -1, "leader_epoch": 0},)
    body = {"replica_id": -2, "topics": ({"topic": "t", "partitions": partitions},)}
    for denied, error in (
        ("DESCRIBE", ErrorCode.NONE),
        ("CLUSTER_ACTION", ErrorCode.TOPIC_AUTHORIZATION_FAILED),
    ):
        rules.deny(denied, CLUSTER if denied == "CLUSTER_ACTION" else TOPIC, "t")
        (topic,) = world.ask(23, 4, body)["topics"]
        assert topic["partitions"][0]["error_code"] == error


@pytest.mark.parametrize("version", [4, 5])
def test_add_partitions_as_a_broker(world: WireWorld, rules: Rules, version: int) -> None:
    """Brokers need CLUSTER_ACTION alone; without it the whole request is refused."""
    wanted = {"transactional_id": "x", "producer_id": 77, "producer_epoch": 0, "verify_only": False}
    body = {"transactions": (wanted | {"topics": ({"name": "t", "partitions": (0,)},)},)}
    rules.deny("WRITE", TRANSACTION, "x")
    rules.deny("WRITE", TOPIC, "t")
    (result,) = world.ask(24, version, body)["results_by_transaction"]
    assert errors(result["topic_results"], "partition_error_code", "results_by_partition") == [
        ("t", [(0, "INVALID_PRODUCER_ID_MAPPING")])
    ]
    rules.deny("CLUSTER_ACTION", CLUSTER)
    denied = {"error_code": ErrorCode[CLUSTER_DENIED], "results_by_transaction": []}
    assert world.ask(24, version, body) == denied


def test_write_markers(world: WireWorld, rules: Rules) -> None:
    """Either ALTER or CLUSTER_ACTION on the cluster is enough; without both every partition is refused."""
    topics = tuple({"name": name, "partition_indexes": (0, 9)} for name in ("t", "nope"))
    marker = {"producer_id": 77, "producer_epoch": 0, "transaction_result": True, "coordinator_epoch": 0}
    body = {"markers": (marker | {"topics": topics},)}
    allowed = world.ask(27, 1, body)
    for operation in ("ALTER", "CLUSTER_ACTION"):
        rules.denied.clear()
        rules.deny(operation, CLUSTER)
        assert world.ask(27, 1, body) == allowed
    rules.deny("ALTER", CLUSTER)
    (written,) = world.ask(27, 1, body)["markers"]
    denied = [(0, CLUSTER_DENIED), (9, CLUSTER_DENIED)]
    assert (written["producer_id"], errors(written["topics"])) == (77, [("t", denied), ("nope", denied)])
