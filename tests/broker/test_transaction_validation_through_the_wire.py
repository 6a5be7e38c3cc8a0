"""Every validation error of the transaction APIs that one node can give, and of TxnOffsetCommit by its versions.

The producer of transactional id ``x`` is initialised once: its epoch is 0. Codes are those of Apache Kafka 4.4.
"""

from __future__ import annotations

import struct
from uuid import UUID

import pytest

from groupcoord import ErrorCode
from groupcoord.wire import primitives, schema
from tests.broker.driving import drain, feed
from tests.broker.rules import errors
from tests.broker.wire_world import NO_ID, OTHER_ID, TOPIC_ID, U_ID, Body, WireWorld, offset
from tests.tables import as_one_test
from tests.wire.txn_offset_commit_v6 import TxnOffsetCommitRequestV6, TxnOffsetCommitResponseV6

NOBODY: Body = {"producer_id": -1, "producer_epoch": -1}
UNKNOWN = "UNKNOWN_TOPIC_OR_PARTITION"
MAPPING, FENCED, OLD = "INVALID_PRODUCER_ID_MAPPING", "PRODUCER_FENCED", "INVALID_PRODUCER_EPOCH"


def row(name: str, *values: object) -> object:
    return pytest.param(*values, id=name)


# ---------------------------------------------------------------- InitProducerId


@as_one_test
@pytest.mark.parametrize(
    ("version", "changes", "error"),
    [
        row("empty id", 4, {"transactional_id": ""}, "INVALID_REQUEST"),
        row("id without epoch", 4, {"producer_id": 0}, "INVALID_REQUEST"),
        row("epoch without id", 4, {"producer_epoch": 0}, "INVALID_REQUEST"),
        row("no time-out", 4, {"transaction_timeout": 0}, "INVALID_TRANSACTION_TIMEOUT"),
        row("negative time-out", 0, {"transaction_timeout": -1}, "INVALID_TRANSACTION_TIMEOUT"),
        row("time-out too long", 4, {"transaction_timeout": 900_001}, "INVALID_TRANSACTION_TIMEOUT"),
        row("longest time-out", 4, {"transaction_timeout": 900_000}, "NONE"),
        row("another's producer id", 4, {"producer_id": 77, "producer_epoch": 0}, FENCED),
        row("another's producer id, version 3", 3, {"producer_id": 77, "producer_epoch": 0}, OLD),
        row("newer epoch", 4, {"producer_id": 0, "producer_epoch": 1}, FENCED),
        row("idempotent", 4, {"transactional_id": None, "transaction_timeout": 0}, "NONE"),
    ],
)
def test_init_producer_id(version: int, changes: Body, error: str) -> None:
    """Errors have neither id nor epoch."""
    world = WireWorld()
    assert world.start_producer()["producer_id"] == 0
    body = {"transactional_id": "x", "transaction_timeout": 60_000} | NOBODY | changes
    answer = world.ask(22, version, body)
    assert ErrorCode(answer["error_code"]).name == error
    assert (answer["producer_id"] == -1, answer["producer_epoch"] == -1) == (error != "NONE",) * 2


def test_init_producer_id_during_a_transaction() -> None:
    """The open transaction is aborted first; the next answer has an epoch that was raised twice."""
    world = WireWorld()
    producer = world.start_producer()
    assert world.ask(25, 3, producer | {"group_id": "g"})["error_code"] == ErrorCode.NONE
    body = {"transactional_id": "x", "transaction_timeout": 60_000} | NOBODY
    assert world.ask(22, 4, body) == {"error_code": ErrorCode.CONCURRENT_TRANSACTIONS} | NOBODY
    assert world.ask(22, 4, body) == {"error_code": 0, "producer_id": 0, "producer_epoch": 2}


# ---------------------------------------------------------------- AddOffsetsToTxn, AddPartitionsToTxn, EndTxn

PRODUCERS = [
    row("empty transactional id", {"transactional_id": ""}, "INVALID_REQUEST", "INVALID_REQUEST"),
    row("unknown transactional id", {"transactional_id": "y"}, MAPPING, MAPPING),
    row("another's producer id", {"producer_id": 77}, MAPPING, MAPPING),
    row("newer epoch", {"producer_epoch": 2}, FENCED, OLD),
    row("older epoch", {"producer_epoch": 0}, FENCED, OLD),
]
"""What does not fit the producer with epoch 1, the error, and what it is in the versions that don't know it."""


@pytest.fixture
def world() -> WireWorld:
    world = WireWorld()
    world.start_producer()
    assert world.start_producer()["producer_epoch"] == 1
    return world


CURRENT: Body = {"transactional_id": "x", "producer_id": 0, "producer_epoch": 1}


@pytest.mark.parametrize(("changes", "error", "error_before"), PRODUCERS)
def test_producers(world: WireWorld, changes: Body, error: str, error_before: str) -> None:
    """PRODUCER_FENCED came with version 2 of each; before, it was INVALID_PRODUCER_EPOCH."""
    producer = CURRENT | changes
    for version in (0, 1, 2, 4):
        expected = ErrorCode[error if version >= 2 else error_before]
        assert world.ask(25, version, producer | {"group_id": "g"}) == {"error_code": expected}
        assert world.ask(26, version, producer | {"committed": True}) == {"error_code": expected}
    assert world.ask(26, 5, producer | {"committed": True}) == {"error_code": ErrorCode[error]} | NOBODY
    for version in (0, 1, 2, 3):
        expected_name = error if version >= 2 else error_before
        assert add(world, version, producer, ("t", (0, 1))) == [("t", [(0, expected_name), (1, expected_name)])]
    assert world.ask(25, 3, CURRENT | {"group_id": "g"}) == {"error_code": ErrorCode.NONE}


def add(
    world: WireWorld, version: int, producer: Body, *topics: tuple[str, tuple[int, ...]], verify: bool = False
) -> object:
    wanted = producer | {"topics": tuple({"name": name, "partitions": indexes} for name, indexes in topics)}
    own = {f"v3_and_below_{key}": value for key, value in wanted.items()}
    answer = world.ask(24, version, own | {"transactions": (wanted | {"verify_only": verify},)})
    found = (
        answer["results_by_topic_v3_and_below"] if version < 4 else answer["results_by_transaction"][0]["topic_results"]
    )
    return errors(found, "partition_error_code", "results_by_partition")


def test_add_partitions(world: WireWorld) -> None:
    """One that does not exist, or an internal topic, keeps all from being added; a broker may add internal ones."""
    attempted = "OPERATION_NOT_ATTEMPTED"
    assert add(world, 3, CURRENT, ("t", (0, 3)), ("nope", (0,)), ("u", (0,))) == [
        ("t", [(0, attempted), (3, UNKNOWN)]),
        ("nope", [(0, UNKNOWN)]),
        ("u", [(0, attempted)]),
    ]
    internal = (("__consumer_offsets", (0,)), ("t", (0,)))
    assert add(world, 3, CURRENT, *internal) == [
        ("__consumer_offsets", [(0, "TOPIC_AUTHORIZATION_FAILED")]),
        ("t", [(0, attempted)]),
    ]
    assert add(world, 4, CURRENT, ("t", (0,)), verify=True) == [("t", [(0, "TRANSACTION_ABORTABLE")])]
    assert add(world, 4, CURRENT, *internal) == [("__consumer_offsets", [(0, "NONE")]), ("t", [(0, "NONE")])]


def test_verify_partitions(world: WireWorld) -> None:
    """A broker that only looks is told which partitions are not in the transaction."""
    assert add(world, 3, CURRENT, ("t", (0,))) == [("t", [(0, "NONE")])]
    assert add(world, 4, CURRENT, ("t", (0, 1)), verify=True) == [("t", [(0, "NONE"), (1, "TRANSACTION_ABORTABLE")])]


@pytest.mark.parametrize("version", [3, 5])
@pytest.mark.parametrize("committed", [True, False])
def test_ends_without_a_transaction(world: WireWorld, version: int, committed: bool) -> None:
    """There is nothing to commit; an abort raises the epoch from version 5 on."""
    answer = world.ask(26, version, CURRENT | {"committed": committed})
    is_allowed = version == 5 and not committed
    assert answer["error_code"] == (ErrorCode.NONE if is_allowed else ErrorCode.INVALID_TXN_STATE)


@pytest.mark.parametrize("committed", [True, False])
def test_ends_that_are_repeated(world: WireWorld, committed: bool) -> None:
    """The same outcome again is no error, the opposite one is."""
    assert world.ask(25, 3, CURRENT | {"group_id": "g"})["error_code"] == ErrorCode.NONE
    for _ in range(2):
        assert world.ask(26, 3, CURRENT | {"committed": committed}) == {"error_code": ErrorCode.NONE}
    opposite = world.ask(26, 3, CURRENT | {"committed": not committed})
    assert opposite == {"error_code": ErrorCode.INVALID_TXN_STATE}


def test_describe_transactions(world: WireWorld) -> None:
    """An empty id is invalid, one that nobody used is not found."""
    assert world.ask(25, 3, CURRENT | {"group_id": "g"})["error_code"] == ErrorCode.NONE
    states = world.ask(65, 0, {"transactional_ids": ("", "y", "x")})["transaction_states"]
    assert [ErrorCode(state["error_code"]).name for state in states] == [
        "INVALID_REQUEST",
        "TRANSACTIONAL_ID_NOT_FOUND",
        "NONE",
    ]


# ---------------------------------------------------------------- WriteTxnMarkers


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


# ---------------------------------------------------------------- TxnOffsetCommit by its versions


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
