"""What clients are told when the log refuses what their request has to write, for each API that writes.

The tables are those of Apache Kafka 4.4 (``CoordinatorOperationExceptionHelper``): trouble of the log becomes trouble
of the coordinator, for which clients know what to do.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest

from groupcoord import ErrorCode, MemoryLogStore
from groupcoord.log_store import LogStoreError
from tests.broker.rules import errors
from tests.broker.wire_world import COMMIT, FOLLOWER, JOIN, LEADER, STATIC, Body, WireWorld, offset
from tests.tables import as_one_test

TOLD = {
    "UNKNOWN_TOPIC_OR_PARTITION": "COORDINATOR_NOT_AVAILABLE",
    "NOT_ENOUGH_REPLICAS": "COORDINATOR_NOT_AVAILABLE",
    "REQUEST_TIMED_OUT": "COORDINATOR_NOT_AVAILABLE",
    "NOT_LEADER_OR_FOLLOWER": "NOT_COORDINATOR",
    "KAFKA_STORAGE_ERROR": "NOT_COORDINATOR",
    "MESSAGE_TOO_LARGE": "UNKNOWN_SERVER_ERROR",
    "RECORD_LIST_TOO_LARGE": "UNKNOWN_SERVER_ERROR",
    "INVALID_FETCH_SIZE": "UNKNOWN_SERVER_ERROR",
    "NOT_ENOUGH_REPLICAS_AFTER_APPEND": "NOT_ENOUGH_REPLICAS_AFTER_APPEND",
    "UNKNOWN_SERVER_ERROR": "UNKNOWN_SERVER_ERROR",
}
"""The log's error, and what clients are told."""

TOLD_OF_MARKERS = dict(zip(TOLD, TOLD, strict=True)) | {
    "COORDINATOR_NOT_AVAILABLE": "NOT_LEADER_OR_FOLLOWER",
    "COORDINATOR_LOAD_IN_PROGRESS": "NOT_LEADER_OR_FOLLOWER",
    "NOT_COORDINATOR": "NOT_LEADER_OR_FOLLOWER",
}
"""The same for a transaction coordinator, which knows partitions and not group coordinators."""


def fail_next(world: WireWorld, error: str) -> None:
    """The log refuses the next append."""
    failure = LogStoreError("injected")
    failure.error_code = ErrorCode[error]
    store = world.broker.log_store
    assert isinstance(store, MemoryLogStore)
    store.fail_next(failure)


def of_topics(answer: Body) -> str:
    ((_, found),) = errors(answer["topics"])
    ((_, error),) = found
    return error


def of_whole(answer: Body) -> str:
    return ErrorCode(answer["error_code"]).name


def leave(world: WireWorld) -> Body:
    members = tuple({"member_id": member_id, "group_instance_id": None} for member_id in (LEADER, FOLLOWER, STATIC))
    answer = world.ask(13, 5, {"group_id": "g", "members": members})
    assert answer["members"] == []
    return answer


def commit_in_a_transaction(world: WireWorld) -> Body:
    member = {"generation_id": -1, "member_id": "", "group_instance_id": None}
    topics = ({"name": "t", "partitions": (offset(0),)},)
    return world.ask(28, 5, world.start_producer() | member | {"group_id": "g", "topics": topics})


def delete_offset(world: WireWorld) -> Body:
    topics = ({"name": "t", "partitions": ({"partition_index": 0},)},)
    answer = world.ask(47, 0, {"group_id": "g", "topics": topics})
    assert answer["topics"] == []
    return answer


REQUESTS: list[tuple[str, str, Callable[[WireWorld], Body], Callable[[Body], str]]] = [
    ("TxnOffsetCommit", "absent", commit_in_a_transaction, of_topics),
    ("LeaveGroup of the last", "stable", leave, of_whole),
    ("OffsetDelete", "simple", delete_offset, of_whole),
    (
        "DeleteGroups",
        "simple",
        lambda world: world.ask(42, 2, {"groups_names": ("g",)}),
        lambda answer: of_whole(answer["results"][0]),
    ),
]


@as_one_test
@pytest.mark.parametrize(
    ("state", "send", "read", "error", "told"),
    [
        *(("absent", lambda world: world.ask(8, 9, COMMIT), of_topics, *row) for row in TOLD.items()),
        *((*row[1:], "NOT_LEADER_OR_FOLLOWER", "NOT_COORDINATOR") for row in REQUESTS),
    ],
)
def test_refused_appends(
    state: str, send: Callable[[WireWorld], Body], read: Callable[[Body], str], error: str, told: str
) -> None:
    """OffsetCommit has each error of the table; the other requests that write use the same translation."""
    world = WireWorld()
    world.reach(state)
    fail_next(world, error)
    assert read(send(world)) == told


@as_one_test
@pytest.mark.parametrize(("error", "told"), TOLD_OF_MARKERS.items())
def test_refused_markers(error: str, told: str) -> None:
    """WriteTxnMarkers passes the log's trouble on, and knows no trouble of a group coordinator."""
    world = WireWorld()
    fail_next(world, error)
    topics = ({"name": "__consumer_offsets", "partition_indexes": (0,)},)
    marker = {"producer_id": 1, "producer_epoch": 0, "transaction_result": True, "coordinator_epoch": 0}
    (written,) = world.ask(27, 1, {"markers": (marker | {"topics": topics},)})["markers"]
    assert errors(written["topics"]) == [("__consumer_offsets", [(0, told)])]


def test_what_a_failed_return_is_told() -> None:
    """The join of a static member has no member id then, but the generation, the protocol and the leader of before."""
    world = WireWorld()
    world.reach("stable")
    fail_next(world, "NOT_LEADER_OR_FOLLOWER")
    assert world.ask(11, 9, JOIN | {"group_instance_id": "i"}) == {
        "error_code": ErrorCode.NOT_COORDINATOR,
        "generation_id": 1,
        "protocol_type": "consumer",
        "protocol_name": "range",
        "leader": LEADER,
        "skip_assignment": False,
        "member_id": "",
        "members": [],
    }
    heartbeat = {"group_id": "g", "generation_id": 1, "member_id": STATIC, "group_instance_id": "i"}
    assert world.ask(12, 4, heartbeat)["error_code"] == ErrorCode.NONE


def test_the_error_of_the_log_is_the_answer_for_all_partitions() -> None:
    """A partition that was refused before the log was asked is told the log's error too, as Kafka's whole answer is."""
    world = WireWorld()
    fail_next(world, "NOT_ENOUGH_REPLICAS")
    partitions = (offset(0, 7, "x" * 4_097), offset(1))
    answer = world.ask(8, 9, COMMIT | {"topics": ({"name": "t", "partitions": partitions},)})
    assert errors(answer["topics"]) == [
        ("t", [(0, "COORDINATOR_NOT_AVAILABLE"), (1, "COORDINATOR_NOT_AVAILABLE")]),
    ]
