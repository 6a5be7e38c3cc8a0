"""Transactions through the wire that a recording can't reach: numbers of log partitions, loads, TxnOffsetCommit v6."""

from __future__ import annotations

import struct
from typing import Any
from uuid import UUID

import pytest

from groupcoord import ErrorCode
from groupcoord.schema import primitives
from groupcoord.wire import schema
from tests.broker.driving import drain, feed
from tests.broker.wire_world import NO_ID, OTHER_ID, TOPIC_ID, U_ID, Body, WireWorld, offset
from tests.tables import as_one_test
from tests.wire.txn_offset_commit_v6 import TxnOffsetCommitRequestV6, TxnOffsetCommitResponseV6

UNKNOWN = "UNKNOWN_TOPIC_OR_PARTITION"

MAPPING, FENCED, OLD = "INVALID_PRODUCER_ID_MAPPING", "PRODUCER_FENCED", "INVALID_PRODUCER_EPOCH"


def row(name: str, *values: object) -> object:
    return pytest.param(*values, id=name)


@pytest.fixture
def world() -> WireWorld:
    world = WireWorld()
    world.start_producer()
    assert world.start_producer()["producer_epoch"] == 1
    return world


CURRENT: Body = {"transactional_id": "x", "producer_id": 0, "producer_epoch": 1}


def errors(topics: Any) -> list[tuple[object, list[tuple[int, str]]]]:
    """Return topics, by name or id, with the partitions' indexes and errors."""
    return [
        (
            topic.get("name") or topic["topic_id"],
            [(found["partition_index"], ErrorCode(found["error_code"]).name) for found in topic["partitions"]],
        )
        for topic in topics
    ]


def mark(world: WireWorld, topic: str, *indexes: int, **changes: object) -> list[str]:
    marker = {"producer_id": 4711, "producer_epoch": 5, "transaction_result": False, "coordinator_epoch": 3} | changes
    marker["topics"] = ({"name": topic, "partition_indexes": indexes},)
    (written,) = world.ask(27, 1, {"markers": (marker,)})["markers"]
    return [error for _, found in errors(written["topics"]) for _, error in found]


@as_one_test
@pytest.mark.parametrize(
    ("state", "changes", "error"),
    [
        row("negative producer id", "absent", {"producer_id": -1}, "UNKNOWN_SERVER_ERROR"),
        row("negative epoch", "absent", {"producer_epoch": -1}, OLD),
        row("loading", "loading", {}, "NOT_LEADER_OR_FOLLOWER"),
        row("not owned", "not owned", {}, "NOT_LEADER_OR_FOLLOWER"),
        row("closed", "closed", {}, "NOT_LEADER_OR_FOLLOWER"),
        row("no transaction", "absent", {}, "NONE"),
    ],
)
def test_markers(state: str, changes: Body, error: str) -> None:
    """Each partition has a result; those that don't exist are unknown, and those of other topics hold nothing."""
    world = WireWorld()
    world.reach(state)
    assert mark(world, "__consumer_offsets", 0, 4, 5, **changes) == [error, error, UNKNOWN]
    assert mark(world, "nope", 0) == [UNKNOWN]


@as_one_test
@pytest.mark.parametrize(
    ("changes", "error"),
    [
        row("same again", {}, "NONE"),
        row("older epoch", {"producer_epoch": 4, "coordinator_epoch": 9}, OLD),
        row("newer epoch", {"producer_epoch": 6}, "NONE"),
        row("older coordinator", {"coordinator_epoch": 2}, "TRANSACTION_COORDINATOR_FENCED"),
        row(
            "older coordinator, newer epoch",
            {"coordinator_epoch": 2, "producer_epoch": 6},
            "TRANSACTION_COORDINATOR_FENCED",
        ),
        row("another producer", {"producer_id": 4712, "producer_epoch": 0, "coordinator_epoch": -1}, "NONE"),
    ],
)
def test_markers_after_others(changes: Body, error: str) -> None:
    """A partition remembers the epochs of a producer's last marker, also after a restart; other partitions don't."""
    world = WireWorld()
    assert mark(world, "__consumer_offsets", 1) == ["NONE"]
    world._reload(finish=True)
    assert mark(world, "__consumer_offsets", 1, 2, **changes) == [error, "NONE"]


def test_a_marker_of_an_earlier_transaction(world: WireWorld) -> None:
    """Offsets of a newer epoch stay pending when a marker of an older one comes."""
    body = CURRENT | {"group_id": "g", "generation_id": -1, "member_id": "", "group_instance_id": None}
    topics = ({"name": "t", "partitions": (offset(0),)},)
    assert errors(world.ask(28, 5, body | {"topics": topics})["topics"]) == [("t", [(0, "NONE")])]
    partition = world.broker.coordinator.partition_of("g")
    end = {"producer_id": 0, "transaction_result": True, "coordinator_epoch": 0}
    assert mark(world, "__consumer_offsets", partition, producer_epoch=0, **end) == [OLD]
    assert world.ask(26, 3, CURRENT | {"committed": True}) == {"error_code": ErrorCode.NONE}
    asked = ({"name": "t", "partition_indexes": (0,)},)
    (topic,) = world.ask(9, 7, {"group_id": "g", "topics": asked, "require_stable": True})["topics"]
    assert topic["partitions"][0]["committed_offset"] == 7


def test_a_transaction_that_somebody_else_ended(world: WireWorld) -> None:
    """A marker with a newer epoch ended it by hand: its own end finds nothing left to do, and is done."""
    assert world.ask(25, 3, CURRENT | {"group_id": "g"})["error_code"] == ErrorCode.NONE
    partition = world.broker.coordinator.partition_of("g")
    assert mark(world, "__consumer_offsets", partition, producer_id=0, producer_epoch=2) == ["NONE"]
    assert world.ask(26, 3, CURRENT | {"committed": False}) == {"error_code": ErrorCode.NONE}
    assert (
        world.ask(65, 0, {"transactional_ids": ("x",)})["transaction_states"][0]["transaction_state"] == "CompleteAbort"
    )


@pytest.mark.parametrize("version", [0, 1, 2, 5])
def test_old_clients_of_a_coordinator_that_loads(version: int) -> None:
    """Clients up to version 1 don't try again after COORDINATOR_LOAD_IN_PROGRESS (KAFKA-7296)."""
    world = WireWorld()
    body = world.start_producer() | {"group_id": "g", "generation_id": -1, "member_id": "", "group_instance_id": None}
    assert world.ask(25, 3, body)["error_code"] == ErrorCode.NONE
    world.reach("loading")
    answer = world.ask(28, version, body | {"topics": ({"name": "t", "partitions": (offset(0),)},)})
    error = "COORDINATOR_NOT_AVAILABLE" if version <= 1 else "COORDINATOR_LOAD_IN_PROGRESS"
    assert errors(answer["topics"]) == [("t", [(0, error)])]


def commit_by_id(world: WireWorld, *topics: tuple[UUID, tuple[int, ...]], **changes: object) -> object:
    """Send a TxnOffsetCommit of version 6, which kio does not have."""
    body = {"group_id": "g", "generation_id": -1, "member_id": "", "group_instance_id": None} | CURRENT | changes
    body["topics"] = [{"topic_id": name, "partitions": [offset(index) for index in found]} for name, found in topics]
    header = struct.pack(">hhih", 28, 6, 1, -1) + primitives.write_uvarint(0)
    frame = header + schema.struct_writer(TxnOffsetCommitRequestV6)(body)
    connection = world.broker.connect("/127.0.0.1")
    feed(connection, struct.pack(">i", len(frame)) + frame)
    answer, _ = schema.struct_reader(TxnOffsetCommitResponseV6)(drain(connection), 9)
    return errors(answer["topics"])


@pytest.mark.parametrize(
    ("changes", "error"),
    [
        row("no group id", {"group_id": ""}, "INVALID_GROUP_ID"),
        row("absent group", {"generation_id": 1, "member_id": "m"}, "GROUP_ID_NOT_FOUND"),
        row("unknown producer", {"producer_id": 77}, MAPPING),
        row("newer epoch", {"producer_epoch": 2}, OLD),
        row("nobody", {}, "NONE"),
    ],
)
def test_commit_by_id(world: WireWorld, changes: Body, error: str) -> None:
    """Version 6 names topics by id, and knows GROUP_ID_NOT_FOUND, which is ILLEGAL_GENERATION before."""
    assert commit_by_id(world, (TOPIC_ID, (2, 0)), **changes) == [(TOPIC_ID, [(2, error), (0, error)])]


def test_commit_to_topics_by_id(world: WireWorld) -> None:
    """Unknown ids and the zero id are refused on their own, and so are unknown partitions of known ones."""
    topics = ((TOPIC_ID, (0, 9)), (OTHER_ID, (0,)), (NO_ID, (0,)), (U_ID, (0,)))
    assert commit_by_id(world, *topics) == [
        (TOPIC_ID, [(9, UNKNOWN), (0, "NONE")]),
        (OTHER_ID, [(0, "UNKNOWN_TOPIC_ID")]),
        (NO_ID, [(0, "UNKNOWN_TOPIC_ID")]),
        (U_ID, [(0, "NONE")]),
    ]
