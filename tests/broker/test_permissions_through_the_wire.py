"""Permissions through the wire that a recording with a real broker can't take away, and the principal of a connection.

Without CLUSTER_ACTION a KRaft broker, which has the principal of the clients there, does not reach its controller.
All else that clients are denied is in the transcripts of ``acl_group`` and ``acl_broker``.
"""

from __future__ import annotations

from uuid import UUID

import pytest

from groupcoord import ErrorCode
from groupcoord.core.router.authorization import CLUSTER
from tests.broker.rules import (
    CLUSTER_DENIED,
    TOPIC,
    TOPIC_DENIED,
    TRANSACTION,
    UNKNOWN,
    Rules,
    errors,
)
from tests.broker.wire_world import HEARTBEAT, NO_ID, Body, WireWorld, offset


def test_everyone_is_anonymous_by_default(world: WireWorld, rules: Rules) -> None:
    """Without a log-in Kafka's principal is User:ANONYMOUS, to the core and to the host."""
    world.ask(12, 4, HEARTBEAT)
    world.ask(3, 12, metadata_body("t"))
    assert rules.principals == {"User:ANONYMOUS"}


def test_a_principal_from_the_address(rules: Rules) -> None:
    """The host's own function makes the principal of each new connection, once."""
    asked = []

    def principal_of(client_host: str) -> str:
        asked.append(client_host)
        return f"User:{client_host}"

    world = WireWorld(authorize=rules, principal_of=principal_of)
    world.ask(12, 4, HEARTBEAT)
    world.ask(28, 5, transactional_commit("t"))
    assert asked == ["/127.0.0.1"] * 2
    assert rules.principals == {"User:/127.0.0.1"}


def commit_topics(*topics: tuple[str | UUID, tuple[int, ...]]) -> Body:
    named = [
        {
            "name": topic if isinstance(topic, str) else "",
            "topic_id": topic if isinstance(topic, UUID) else NO_ID,
            "partitions": tuple(offset(index) for index in indexes),
        }
        for topic, indexes in topics
    ]
    return {"topics": tuple(named)}


def transactional_commit(*topics: str, producer: Body | None = None, **changes: object) -> Body:
    body = {"group_id": "g", "transactional_id": "x", "producer_id": 77, "producer_epoch": 0}
    body |= {"generation_id": -1, "member_id": "", "group_instance_id": None}
    return body | commit_topics(*((name, (0, 9)) for name in topics)) | (producer or {}) | changes


def test_find_share_coordinator(world: WireWorld, rules: Rules) -> None:
    """CLUSTER_ACTION is needed for the coordinator of a share-partition, which is looked up from version 6 on."""
    rules.deny("CLUSTER_ACTION", CLUSTER)
    answer = world.ask(10, 6, {"key_type": 2, "coordinator_keys": ("k",)})
    refused = {"node_id": -1, "host": "", "port": -1, "error_code": ErrorCode[CLUSTER_DENIED]}
    assert answer["coordinators"] == [{"key": "k", "error_message": "Cluster authorization failed."} | refused]


def metadata_body(*topics: str | UUID, shows_operations: bool = False) -> Body:
    references = [
        {"name": topic, "topic_id": None} if isinstance(topic, str) else {"name": None, "topic_id": topic}
        for topic in topics
    ]
    return {
        "topics": tuple(references) if topics else None,
        "allow_auto_topic_creation": True,
        "include_topic_authorized_operations": shows_operations,
        "include_cluster_authorized_operations": shows_operations,
    }


def test_metadata_of_everything(world: WireWorld, rules: Rules) -> None:
    """What may not be described is left out."""
    rules.deny("DESCRIBE", TOPIC, "t", "__consumer_offsets")
    assert [topic["name"] for topic in world.ask(3, 12, metadata_body())["topics"]] == ["u"]


def fetch_body(*topics: str | object, replica_id: int = -1, max_wait: int = 0) -> Body:
    partitions = tuple(
        {
            "partition": index,
            "current_leader_epoch": -1,
            "fetch_offset": 0,
            "last_fetched_epoch": -1,
            "log_start_offset": -1,
            "partition_max_bytes": 1_000,
        }
        for index in (0, 9)
    )
    asked = [{"topic": topic, "topic_id": topic, "partitions": partitions} for topic in topics]
    return {
        "cluster_id": None,
        "replica_id": replica_id,
        "max_wait": max_wait,
        "min_bytes": 1,
        "max_bytes": 1_000,
        "isolation_level": 0,
        "session_id": 0,
        "session_epoch": -1,
        "forgotten_topics_data": (),
        "rack_id": "",
        "topics": tuple(asked),
    }


def test_a_fetch_that_is_refused_does_not_wait(world: WireWorld, rules: Rules) -> None:
    """Only partitions that can be read are worth waiting for."""
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
    """Consumers need DESCRIBE for them (KIP-320), brokers CLUSTER_ACTION and nothing else."""
    partitions = ({"partition": 0, "current_leader_epoch": -1, "leader_epoch": 0},)
    body = {"replica_id": -2, "topics": ({"topic": "t", "partitions": partitions},)}

    def told() -> ErrorCode:
        (topic,) = world.ask(23, 4, body)["topics"]
        return ErrorCode(topic["partitions"][0]["error_code"])

    rules.deny("DESCRIBE", TOPIC, "t")
    assert told() is ErrorCode.NONE
    rules.deny("CLUSTER_ACTION", CLUSTER)
    assert told() is ErrorCode.TOPIC_AUTHORIZATION_FAILED
    rules.denied.clear()
    rules.deny("CLUSTER_ACTION", CLUSTER)
    assert told() is ErrorCode.NONE


def produce_body(
    *topics: str | object, transactional_id: str | None = None, acks: int = 1, records: bytes = b""
) -> Body:
    data = tuple({"index": index, "records": records} for index in (0, 9))
    return {
        "transactional_id": transactional_id,
        "acks": acks,
        "timeout": 1_000,
        "topic_data": tuple({"name": topic, "topic_id": topic, "partition_data": data} for topic in topics),
    }


def test_produce_without_an_answer(world: WireWorld, rules: Rules) -> None:
    """With acks=0 the closed connection tells of the refusal."""
    rules.deny("WRITE", TOPIC, "t")
    sent = world.send(0, 9, produce_body("t", acks=0))
    assert sent.connection.closing == "Produce with acks=0 failed: TOPIC_AUTHORIZATION_FAILED"


PRODUCER: Body = {"producer_id": 77, "producer_epoch": 0}


def add_partitions(
    world: WireWorld, version: int, *topics: tuple[str, tuple[int, ...]], producer: Body = PRODUCER
) -> Body:
    wanted = {"transactional_id": "x", "topics": tuple({"name": t, "partitions": p} for t, p in topics)} | producer
    own = {f"v3_and_below_{key}": value for key, value in wanted.items()}
    return world.ask(24, version, own | {"transactions": (wanted | {"verify_only": False},)})


@pytest.mark.parametrize("version", [4, 5])
def test_add_partitions_as_a_broker(world: WireWorld, rules: Rules, version: int) -> None:
    """Brokers need CLUSTER_ACTION, and nothing else; without it the whole is refused."""
    rules.deny("WRITE", TRANSACTION, "x")
    rules.deny("WRITE", TOPIC, "t")
    (result,) = add_partitions(world, version, ("t", (0,)))["results_by_transaction"]
    assert errors(result["topic_results"], "partition_error_code", "results_by_partition") == [
        ("t", [(0, "INVALID_PRODUCER_ID_MAPPING")])
    ]
    rules.deny("CLUSTER_ACTION", CLUSTER)
    assert add_partitions(world, version, ("t", (0,))) == {
        "error_code": ErrorCode[CLUSTER_DENIED],
        "results_by_transaction": [],
    }


def test_write_markers(world: WireWorld, rules: Rules) -> None:
    """Either ALTER or CLUSTER_ACTION on the cluster is enough; without both every partition is refused."""
    topics = tuple({"name": name, "partition_indexes": (0, 9)} for name in ("t", "nope"))
    marker = {"producer_id": 77, "producer_epoch": 0, "transaction_result": True, "coordinator_epoch": 0}
    body = {"markers": (marker | {"topics": topics},)}
    allowed = world.ask(27, 1, body)
    rules.deny("ALTER", CLUSTER)
    assert world.ask(27, 1, body) == allowed
    rules.denied.clear()
    rules.deny("CLUSTER_ACTION", CLUSTER)
    assert world.ask(27, 1, body) == allowed
    rules.deny("ALTER", CLUSTER)
    (written,) = world.ask(27, 1, body)["markers"]
    denied = [(0, CLUSTER_DENIED), (9, CLUSTER_DENIED)]
    assert (written["producer_id"], errors(written["topics"])) == (77, [("t", denied), ("nope", denied)])


def test_nothing_is_asked_without_a_hook() -> None:
    """Without authorize all is allowed, and authorized operations are all there are."""
    world = WireWorld()
    body = {"topics": None, "include_topic_authorized_operations": True, "include_cluster_authorized_operations": True}
    answer = world.ask(3, 8, body | {"allow_auto_topic_creation": False})
    assert {topic["topic_authorized_operations"] for topic in answer["topics"]} == {3576}
    assert answer["cluster_authorized_operations"] == 8096
