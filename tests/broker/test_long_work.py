"""Requests that name many things: answered as if they were answered in one go, while others get their turn."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from uuid import UUID

import pytest

from groupcoord import GroupCoordinator, ManualClock, MemoryLogStore
from groupcoord.broker import connection as connection_module, groups as group_requests
from groupcoord.broker.connection import OUTPUT_PORTION_BYTES
from groupcoord.broker.groups import MANY_OFFSETS, OffsetFetches
from groupcoord.broker.topics.registry import TopicRegistry
from groupcoord.broker.work import Work, do_whole
from groupcoord.core.router.authorization import Operation, Principal, Resource
from groupcoord.messages import (
    GroupToFetch,
    OffsetCommit,
    OffsetDelete,
    OffsetFetch,
    OffsetFetchResponse,
    OffsetToCommit,
    TopicToCommit,
    TopicToDelete,
)
from tests.broker.driving import LateJobs, drain, feed, wire_frame
from tests.broker.kafka_bytes import correlation_ids, heartbeat
from tests.broker.wire_world import COMMIT, OTHER_ID, TOPIC_ID, Body, WireWorld, offset
from tests.wire.kio_client import read_response

MANY = 300
COMMITTED = (("t", 3), ("denied", 2), ("wide", MANY), ("u", 1))


def fetch_of(*groups: Body) -> Body:
    return {"groups": [{"member_id": None, "member_epoch": -1, "topics": None} | group for group in groups]} | {
        "require_stable": False
    }


def named(topic: str, *indexes: int) -> Body:
    return {"name": topic, "topic_id": TOPIC_ID, "partition_indexes": indexes}


def share_topic(topic: str, indexes: Sequence[int]) -> Body:
    return {"topic_name": topic, "partitions": tuple(indexes)}


BY_ID: tuple[tuple[UUID, Sequence[int]], ...] = (
    (OTHER_ID, ()),
    (TOPIC_ID, ()),
    (OTHER_ID, (0,)),
    (TOPIC_ID, range(MANY)),
)

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
    "topics of which no partition is named": (
        9,
        9,
        fetch_of(
            {"group_id": "g", "topics": [named("denied"), named("t"), named("denied", 0), named("t", *range(MANY))]}
        ),
    ),
    "topics by id of which no partition is named": (
        9,
        10,
        fetch_of(
            {
                "group_id": "g",
                "topics": [named("", *indexes) | {"topic_id": topic_id} for topic_id, indexes in BY_ID],
            }
        ),
    ),
    "all offsets of a group": (9, 9, fetch_of({"group_id": "many"})),
    "all offsets of a group with ids": (9, 10, fetch_of({"group_id": "many"}, {"group_id": "nobody"})),
    "all offsets of a group by one who is no member": (
        9,
        9,
        fetch_of({"group_id": "many", "member_id": "m", "member_epoch": 1}),
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
    "offsets of share groups": (
        90,
        1,
        {
            "groups": [
                {"group_id": group, "topics": None if topics is None else [share_topic(*topic) for topic in topics]}
                for group, topics in (
                    ("g", (("denied", (0, 1)), ("t", range(MANY)), ("missing", ()), ("u", range(MANY)))),
                    ("", (("missing", range(MANY)), ("t", range(MANY)))),
                    ("denied", None),
                    *(("h", ()), ("h", None), ("", None)) * MANY,
                )
            ]
        },
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


def make_world() -> WireWorld:
    """Return a world in which ``denied`` is denied to all, and ``many`` has offsets of it."""
    denied: set[str] = set()

    def authorize(principal: Principal, operation: Operation, resource: Resource) -> bool:
        return resource.name not in denied

    world = WireWorld(authorize=authorize)
    with world.broker.topics.edit() as edit:
        edit.create("denied", 2)
        edit.create("wide", MANY)
    topics = [{"name": name, "partitions": tuple(map(offset, range(count)))} for name, count in COMMITTED]
    assert world.ask(8, 9, COMMIT | {"topics": topics[:1]})
    assert world.ask(8, 9, COMMIT | {"group_id": "many", "topics": topics})
    denied.add("denied")
    return world


def limit_portions(monkeypatch: pytest.MonkeyPatch, size: int) -> None:
    """Set the size above which requests and responses are divided."""
    for name in ("FEW_GROUPS", "GROUPS_AT_ONCE", "MANY_OFFSETS", "MANY_MEMBERS"):
        monkeypatch.setattr(group_requests, name, size)
    monkeypatch.setattr(connection_module, "LARGE_REQUEST_BYTES", size)


def sort(value: object) -> object:
    """Order the lists of an answer: what it holds is the same, wherever it stands."""
    if isinstance(value, dict):
        return {key: sort(of_key) for key, of_key in value.items()}
    return sorted(map(sort, value), key=repr) if isinstance(value, (list, tuple)) else value


@pytest.mark.parametrize("name", REQUESTS)
def test_the_answer_is_that_of_one_go(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Divided into the smallest portions, the response equals the undivided one."""
    api_key, version, body = REQUESTS[name]
    answers = []
    for size in (1, 2**31):
        limit_portions(monkeypatch, size)
        broker = make_world().broker
        if size > 1:  # the coordinator gets what it would be asked for in portions
            for kind in broker._group_steps():
                del broker._handlers[kind]
        connection = broker.connect("/127.0.0.1")
        feed(connection, wire_frame(api_key, version, body))
        answers.append(drain(connection))
    in_portions, at_once = (read_response(api_key, version, answer) for answer in answers)
    assert sort(in_portions) == sort(at_once)
    if api_key in (9, 15, 32, 69, 90):  # the order of these is known from Kafka
        assert in_portions == at_once


def always_over(world: WireWorld) -> None:
    """End each portion as early as possible."""
    broker = world.broker
    broker.now_s = broker.turns.now_s = itertools.count(1e9).__next__


@pytest.mark.parametrize("name", REQUESTS)
def test_others_are_answered_meanwhile(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """While a request is worked on that names many things, another connection's is handled."""
    limit_portions(monkeypatch, 100)
    world = make_world()
    broker, jobs = world.broker, LateJobs(world.broker)
    always_over(world)
    busy, other = broker.connect("/127.0.0.1"), broker.connect("/127.0.0.2")
    busy.receive_data(wire_frame(*REQUESTS[name]))
    turns = 0
    while busy.is_waiting or not turns:
        broker.run_turn()
        other.receive_data(heartbeat(turns))
        broker.run_turn()
        turns += bool(correlation_ids(other.take_output()))
        jobs.do_next()
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
    """A response of many megabytes is sent in portions, and takes little memory for repeated parts."""
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
    """Only the requesting connection is closed, with a reason."""
    monkeypatch.setattr("groupcoord.wire.api.FRAME_BYTES_MAX", 10_000)
    monkeypatch.setattr("groupcoord.wire.protocol.FRAME_BYTES_MAX", 10_000)
    world = make_world()
    connection = world.broker.connect("/127.0.0.1")
    feed(connection, wire_frame(9, 8, fetch_of(*[{"group_id": "g"}] * MANY)))
    assert connection.closing is not None
    assert "larger than a frame can be" in connection.closing


def test_a_portion_waits_for_the_log() -> None:
    """While the log is late, deleting many groups waits without turns; then it continues."""
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


class FetchingAll:
    """OffsetFetch in portions: the connection, and the size of each portion."""

    def __init__(self, count: int) -> None:
        with (topics := TopicRegistry()).edit() as edit:
            edit.create("t", count)
            edit.create("u", 1)
        self.coordinator = GroupCoordinator(clock=ManualClock(), log_store=MemoryLogStore(), topics=topics)
        self.coordinator.load_all()
        for start in range(0, count, 5_000):
            self.commit("t", *range(start, min(start + 5_000, count)))
        self.commit("u", 0)
        self.sizes: list[int] = []

    def commit(self, topic: str, *indexes: int) -> None:
        offsets = tuple(OffsetToCommit(index, index) for index in indexes)
        response = self.coordinator.call(OffsetCommit("g", (TopicToCommit(topic, offsets),)))
        assert not any(result.error_code for result in response.topics[0].partitions)

    def committed(self, group_id: str | None) -> Mapping[str, Mapping[int, object]]:
        assert group_id is not None
        partition = self.coordinator.partition(self.coordinator.partition_of(group_id))
        assert partition is not None
        return partition.hard.offsets.of_group(group_id)

    def ask(self, request: OffsetFetch) -> Work[OffsetFetchResponse]:
        self.sizes += (sum(len(topic.partition_indexes) for topic in group.topics or ()) for group in request.groups)
        response: OffsetFetchResponse = self.coordinator.call(request)
        yield from ()
        return response

    def work(self) -> Work[OffsetFetchResponse]:
        return OffsetFetches(OffsetFetch((GroupToFetch("g"),)), self.ask, self.committed, TopicRegistry()).work()


def test_a_portion_of_all_offsets_is_small() -> None:
    """A group's 9,000 offsets are fetched by a thousand, and others have their turn after each."""
    fetching = FetchingAll(9_000)
    work = fetching.work()
    for turn in range(9):
        assert next(work) is None
        assert len(fetching.sizes) == turn + 2  # the first asks whether the group may be asked
    answer = do_whole(work)
    assert max(fetching.sizes) == MANY_OFFSETS
    assert answer == fetching.coordinator.call(OffsetFetch((GroupToFetch("g"),)))


def test_what_is_deleted_meanwhile_is_left_out() -> None:
    """Offsets and topics deleted between portions are omitted; new offsets of the rest are included."""
    fetching = FetchingAll(2_500)
    work = fetching.work()
    assert next(work) is None
    deleted = (TopicToDelete("t", (1_200, 1_201)), TopicToDelete("u", (0,)))
    fetching.coordinator.call(OffsetDelete("g", deleted))
    fetching.commit("t", 1_202, 2_499)
    answer = do_whole(work)
    assert answer == fetching.coordinator.call(OffsetFetch((GroupToFetch("g"),)))
    assert len(answer.groups[0].topics[0].partitions) == 2_498
