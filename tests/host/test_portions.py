"""Requests that name many things: answered as if they were answered in one go, while others get their turn."""

from __future__ import annotations

import itertools

import pytest

from groupcoord import MemoryLogStore
from groupcoord.core.front.authorization import Operation, Principal, Resource
from groupcoord.host import broker as broker_module
from groupcoord.host import connection as connection_module
from groupcoord.host import portions
from groupcoord.host.connection import OUTPUT_PORTION_BYTES
from tests.host.driving import drain, feed
from tests.host.kafka_bytes import correlation_ids, heartbeat
from tests.host.wire_world import COMMIT, TOPIC_ID, Body, World, offset, wire_frame
from tests.wire.kio_client import read_response

MANY = 300


def fetch_of(*groups: Body) -> Body:
    return {"groups": [{"member_id": None, "member_epoch": -1, "topics": None} | group for group in groups]} | {
        "require_stable": False
    }


def named(topic: str, *indexes: int) -> Body:
    return {"name": topic, "topic_id": TOPIC_ID, "partition_indexes": indexes}


REQUESTS: dict[str, tuple[int, int, Body]] = {
    "one group's offsets many times": (9, 8, fetch_of(*[{"group_id": "g"}] * MANY)),
    "many groups, some of them unknown": (
        9,
        8,
        fetch_of(*({"group_id": "g" * (n % 3)} for n in range(MANY))),
    ),
    "many offsets of a group": (
        9,
        9,
        fetch_of(
            {
                "group_id": "g",
                "topics": [named("t", *range(MANY)), named("denied", 0, 1), named("u", 0), named("t", 1)],
            },
            {"group_id": "denied", "topics": [named("t", *range(MANY))]},
        ),
    ),
    "many topics by id": (
        9,
        10,
        fetch_of({"group_id": "g", "topics": [named("", 0, 5) | {"topic_id": TOPIC_ID}] * MANY}),
    ),
    "descriptions": (
        15,
        5,
        {"groups": ["g", "denied", "h"] * MANY, "include_authorized_operations": True},
    ),
    "descriptions of consumer groups": (
        69,
        1,
        {"group_ids": ["g", "", "denied", "h"] * MANY, "include_authorized_operations": True},
    ),
    "settings": (
        32,
        4,
        {
            "resources": [
                {"resource_type": kind, "resource_name": name, "configuration_keys": None}
                for kind, name in ((2, "t"), (32, "g"), (2, "denied"), (2, "missing"))
            ]
            * MANY,
            "include_synonyms": True,
            "include_documentation": False,
        },
    ),
    "coordinators": (10, 4, {"key_type": 0, "coordinator_keys": ["g", "denied", "x" * 20] * MANY}),
    "transactions": (65, 0, {"transactional_ids": ["x", "denied", ""] * MANY}),
    "deletions": (42, 2, {"groups_names": [f"g{n}" for n in range(MANY)] + ["denied", "g"] * MANY}),
    "offsets to delete": (
        47,
        0,
        {
            "group_id": "g",
            "topics": [
                {"name": name, "partitions": [{"partition_index": n} for n in range(MANY)]}
                for name in ("t", "denied", "u")
            ],
        },
    ),
    "members that leave": (
        13,
        5,
        {
            "group_id": "g",
            "members": [{"member_id": f"m{n}", "group_instance_id": None, "reason": None} for n in range(MANY)],
        },
    ),
    "offsets by time": (
        2,
        7,
        {
            "replica_id": -1,
            "isolation_level": 0,
            "topics": [
                {
                    "name": name,
                    "partitions": [
                        {"partition_index": n, "current_leader_epoch": -1, "timestamp": -1} for n in range(MANY)
                    ],
                }
                for name in ("t", "missing", "denied")
            ],
        },
    ),
}


def authorize(principal: Principal, operation: Operation, resource: Resource) -> bool:
    return resource.name != "denied"


def make_world() -> World:
    world = World(authorize=authorize)
    assert world.ask(8, 9, COMMIT | {"topics": ({"name": "t", "partitions": tuple(map(offset, range(3)))},)})
    return world


def limit_portions(monkeypatch: pytest.MonkeyPatch, size: int) -> None:
    """Have requests and answers divided that are longer than so much."""
    monkeypatch.setattr(portions, "MANY_ENTRIES", size)
    monkeypatch.setattr(broker_module, "FEW", size)
    monkeypatch.setattr(connection_module, "LONG_REQUEST_BYTES", size)


def sort(value: object) -> object:
    """Order the lists of an answer: what it holds is the same, wherever it stands."""
    if isinstance(value, dict):
        return {key: sort(of_key) for key, of_key in value.items()}
    return sorted(map(sort, value), key=repr) if isinstance(value, (list, tuple)) else value


@pytest.mark.parametrize("name", REQUESTS)
def test_the_answer_is_that_of_one_go(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """In portions as small as can be, the answer says what it says without portions."""
    api_key, version, body = REQUESTS[name]
    answers = []
    for size in (1, 2**31):
        limit_portions(monkeypatch, size)
        connection = make_world().broker.connect("/127.0.0.1")
        feed(connection, wire_frame(api_key, version, body))
        answers.append(drain(connection))
    in_portions, at_once = (read_response(api_key, version, answer) for answer in answers)
    assert sort(in_portions) == sort(at_once)
    if api_key in (9, 15, 32, 69):  # the order of these is known from Kafka
        assert in_portions == at_once


def always_over(world: World) -> None:
    """Have each portion end where it may."""
    broker = world.broker
    broker.now_s = broker.pace.now_s = broker.turns._now_s = itertools.count(1e9).__next__


@pytest.mark.parametrize("name", REQUESTS)
def test_others_are_answered_meanwhile(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """While a request is worked on that names many things, another connection's is handled."""
    limit_portions(monkeypatch, 100)
    world = make_world()
    broker = world.broker
    always_over(world)
    busy, other = broker.connect("/127.0.0.1"), broker.connect("/127.0.0.2")
    busy.receive_data(wire_frame(*REQUESTS[name]))
    turns = 0
    while busy.is_waiting or not turns:
        broker.run_turn()
        other.receive_data(heartbeat(turns))
        broker.run_turn()
        turns += bool(correlation_ids(other.take_output()))
    assert turns > 3
    assert drain(busy)


def test_a_peer_that_leaves_in_the_middle(monkeypatch: pytest.MonkeyPatch) -> None:
    """Work for a connection that is closed ends there and then; nothing of it is left."""
    limit_portions(monkeypatch, 100)
    world = make_world()
    always_over(world)
    connection = world.broker.connect("/127.0.0.1")
    connection.receive_data(wire_frame(*REQUESTS["one group's offsets many times"]))
    world.broker.run_turn()
    assert connection.is_waiting
    connection.close()
    world.broker.handle_waiting()
    assert not connection.is_waiting
    assert world.broker.turns.waiting == 0
    assert connection.take_output() == b""


def test_a_large_answer_leaves_bit_by_bit() -> None:
    """An answer of many megabytes is handed out in portions and takes little memory while it says the same again."""
    world = make_world()
    connection = world.broker.connect("/127.0.0.1")
    wide = tuple(offset(index, metadata="m" * 4_000) for index in range(3))
    assert world.ask(8, 9, COMMIT | {"topics": ({"name": "t", "partitions": wide},)})
    feed(connection, wire_frame(9, 8, fetch_of(*[{"group_id": "g"}] * MANY)))
    assert connection.output_bytes > 12_000 * MANY
    assert sum(map(len, {id(part): part for part in connection._output}.values())) < 20_000
    taken_bytes = 0
    while taken := connection.take_output():
        assert len(taken) < OUTPUT_PORTION_BYTES + 20_000
        taken_bytes += len(taken)
    assert taken_bytes > 12_000 * MANY


def test_an_answer_that_is_too_large_ends_the_connection(monkeypatch: pytest.MonkeyPatch) -> None:
    """It costs the connection that asked for it, with a reason."""
    monkeypatch.setattr("groupcoord.wire.parts.FRAME_BYTES_MAX", 10_000)
    monkeypatch.setattr("groupcoord.wire.protocol.FRAME_BYTES_MAX", 10_000)
    world = make_world()
    connection = world.broker.connect("/127.0.0.1")
    feed(connection, wire_frame(9, 8, fetch_of(*[{"group_id": "g"}] * MANY)))
    assert connection.closing is not None
    assert "larger than a frame can be" in connection.closing


def test_a_portion_waits_for_the_log() -> None:
    """While the log is late, deleting many groups waits where it is and costs no turns; then it goes on."""
    world = make_world()
    store, coordinator = world.broker.log_store, world.broker.coordinator
    assert isinstance(store, MemoryLogStore)
    connection = world.broker.connect("/127.0.0.1")
    store.acknowledge_late = True
    feed(connection, wire_frame(42, 2, {"groups_names": ["g", *(f"g{n}" for n in range(50))]}))
    assert connection.is_waiting
    assert not connection.is_queued
    for ticket, base_offset in store.write_waiting():
        coordinator.appended(ticket, base_offset)
    world.broker.deliver_replies()
    world.broker.handle_waiting()
    answer = read_response(42, 2, drain(connection))
    assert [result["error_code"] for result in answer["results"]] == [0] + [69] * 50
