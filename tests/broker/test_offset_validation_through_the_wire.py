"""Every validation error of OffsetCommit, OffsetFetch, OffsetDelete and TxnOffsetCommit that one node can give."""

from __future__ import annotations

from uuid import UUID

import pytest

from groupcoord import ErrorCode
from tests.broker.wire_world import (
    COMMIT,
    FOLLOWER,
    LEADER,
    NEWCOMER,
    NO_ID,
    OTHER_ID,
    STATIC,
    TOPIC_ID,
    Body,
    WireWorld,
    offset,
)
from tests.tables import as_one_test

SHARD_ERRORS = [
    ("loading", "COORDINATOR_LOAD_IN_PROGRESS"),
    ("not owned", "NOT_COORDINATOR"),
    ("closed", "COORDINATOR_NOT_AVAILABLE"),
]
UNKNOWN = "UNKNOWN_TOPIC_OR_PARTITION"
MEMBER: Body = {"member_id": LEADER, "generation_id_or_member_epoch": 1}


def row(name: str, *values: object) -> object:
    return pytest.param(*values, id=name)


def topic(name: str, *partitions: Body, topic_id: UUID = NO_ID) -> Body:
    return {"name": name, "topic_id": topic_id, "partitions": partitions}


def by_id(topic_id: UUID, *partitions: Body) -> Body:
    return topic("", *partitions, topic_id=topic_id)


def results(answer: Body) -> list[tuple[object, list[tuple[int, str]]]]:
    """Return topics, by name or id, with the errors of their partitions."""
    return [
        (
            topic["name"] if "name" in topic else topic["topic_id"],
            [
                (partition["partition_index"], ErrorCode(partition["error_code"]).name)
                for partition in topic["partitions"]
            ],
        )
        for topic in answer["topics"]
    ]


# ---------------------------------------------------------------- OffsetCommit

MEMBER_ERRORS = [
    row("stranger", "stable", {"generation_id_or_member_epoch": 1, "member_id": "m"}, "UNKNOWN_MEMBER_ID"),
    row("member of an empty group", "empty", MEMBER, "UNKNOWN_MEMBER_ID"),
    row("member of a simple group", "simple", MEMBER, "UNKNOWN_MEMBER_ID"),
    row("generation 0, simple group", "simple", {"generation_id_or_member_epoch": 0}, "UNKNOWN_MEMBER_ID"),
    row("pending id", "pending", MEMBER | {"generation_id_or_member_epoch": 0}, "UNKNOWN_MEMBER_ID"),
    row("unknown instance", "stable", MEMBER | {"group_instance_id": "j"}, "UNKNOWN_MEMBER_ID"),
    row("unknown instance alone", "stable", {"group_instance_id": "j"}, "UNKNOWN_MEMBER_ID"),
    row("another's instance", "stable", MEMBER | {"group_instance_id": "i"}, "FENCED_INSTANCE_ID"),
    row("instance without id", "stable", {"group_instance_id": "i"}, "FENCED_INSTANCE_ID"),
    row("wrong generation", "stable", MEMBER | {"generation_id_or_member_epoch": 0}, "ILLEGAL_GENERATION"),
    row("no generation", "stable", MEMBER | {"generation_id_or_member_epoch": -1}, "ILLEGAL_GENERATION"),
    row(
        "wrong generation, completing",
        "completing",
        MEMBER | {"generation_id_or_member_epoch": 2},
        "ILLEGAL_GENERATION",
    ),
    row(
        "wrong generation, preparing", "preparing", MEMBER | {"generation_id_or_member_epoch": 2}, "ILLEGAL_GENERATION"
    ),
]


@as_one_test
@pytest.mark.parametrize(
    ("state", "changes", "error"),
    [
        row("absent group", "absent", MEMBER, "GROUP_ID_NOT_FOUND"),
        row("absent group, generation 0", "absent", {"generation_id_or_member_epoch": 0}, "GROUP_ID_NOT_FOUND"),
        *MEMBER_ERRORS,
        row("nobody, stable", "stable", {}, "UNKNOWN_MEMBER_ID"),
        row("nobody, preparing", "preparing", {}, "UNKNOWN_MEMBER_ID"),
        row("nobody, completing", "completing", {}, "UNKNOWN_MEMBER_ID"),
        row("completing", "completing", MEMBER, "REBALANCE_IN_PROGRESS"),
        *(row(state, state, {}, error) for state, error in SHARD_ERRORS),
        # These are no errors, though one may expect them to be.
        row("preparing", "preparing", MEMBER, "NONE"),
        row("newcomer that waits", "preparing", MEMBER | {"member_id": NEWCOMER}, "NONE"),
        row("stranger without generation, empty", "empty", {"member_id": "m"}, "NONE"),
        row("no group id", "absent", {"group_id": ""}, "NONE"),
        row("static member without instance", "stable", MEMBER | {"member_id": STATIC}, "NONE"),
    ],
)
def test_commit(state: str, changes: Body, error: str) -> None:
    """An error of the group or the member is that of every partition, in the order of the request."""
    world = WireWorld()
    world.reach(state)
    topics = (topic("t", offset(2), offset(0)), topic("u", offset(0)))
    answer = world.ask(8, 9, COMMIT | {"topics": topics} | changes)
    assert results(answer) == [("t", [(2, error), (0, error)]), ("u", [(0, error)])]


@pytest.mark.parametrize("version", [2, 7, 8])
def test_commit_to_an_absent_group_in_old_versions(version: int) -> None:
    """GROUP_ID_NOT_FOUND came with version 9."""
    answer = WireWorld().ask(8, version, COMMIT | MEMBER)
    assert results(answer) == [("t", [(0, "ILLEGAL_GENERATION")])]


@as_one_test
@pytest.mark.parametrize(
    ("version", "topics", "expected"),
    [
        row("unknown topic", 9, [topic("nope", offset(0))], [("nope", [(0, UNKNOWN)])]),
        row("bad name", 9, [topic("a b", offset(0))], [("a b", [(0, UNKNOWN)])]),
        row("no name", 2, [topic("", offset(0))], [("", [(0, UNKNOWN)])]),
        row(
            "unknown partitions first",
            9,
            [topic("t", offset(0), offset(3), offset(-1))],
            [("t", [(3, UNKNOWN), (-1, UNKNOWN), (0, "NONE")])],
        ),
        row(
            "unknown topic first",
            9,
            [topic("t", offset(0)), topic("nope", offset(0))],
            [("nope", [(0, UNKNOWN)]), ("t", [(0, "NONE")])],
        ),
        row("unknown id", 10, [by_id(OTHER_ID, offset(0))], [(OTHER_ID, [(0, "UNKNOWN_TOPIC_ID")])]),
        row("zero id", 10, [by_id(NO_ID, offset(0))], [(None, [(0, "UNKNOWN_TOPIC_ID")])]),
        row("known id, unknown partition", 10, [by_id(TOPIC_ID, offset(9))], [(TOPIC_ID, [(9, UNKNOWN)])]),
        row(
            "metadata too long",
            9,
            [topic("t", offset(0, 7, "x" * 4097), offset(1, 7, "ü" * 4096), offset(2, 7, "😀" * 2049))],
            [("t", [(0, "OFFSET_METADATA_TOO_LARGE"), (1, "NONE"), (2, "OFFSET_METADATA_TOO_LARGE")])],
        ),
    ],
)
def test_commit_to_topics(version: int, topics: list[Body], expected: object) -> None:
    """Errors of topics and partitions are their own: the others are committed."""
    world = WireWorld()
    answer = world.ask(8, version, COMMIT | {"topics": tuple(topics)})
    assert results(answer) == expected


def test_unknown_topics_alone_ask_nobody() -> None:
    """Where no partition is known the group is not looked at: closed or a stranger, there is no other error."""
    world = WireWorld()
    world.reach("closed")
    answer = world.ask(8, 9, COMMIT | {"member_id": "m", "topics": (topic("nope", offset(0)),)})
    assert results(answer) == [("nope", [(0, UNKNOWN)])]


# ---------------------------------------------------------------- OffsetFetch

NOTHING: Body = {"committed_offset": -1, "committed_leader_epoch": -1, "metadata": ""}


def fetch_body(group_id: str = "g", *, name: str = "t", topic_id: UUID = TOPIC_ID) -> Body:
    topics = ({"name": name, "topic_id": topic_id, "partition_indexes": (0, 9)},)
    group = {"group_id": group_id, "member_id": None, "member_epoch": -1, "topics": topics}
    return {"group_id": group_id, "topics": topics, "groups": (group,), "require_stable": False}


@pytest.mark.parametrize(("state", "error"), SHARD_ERRORS)
def test_fetch_of_a_log_partition(state: str, error: str) -> None:
    """Version 1 has the error on each partition, 2 to 7 on the whole, later ones on each group."""
    code = ErrorCode[error]
    world = WireWorld()
    world.reach(state)
    partitions = [
        {"partition_index": index, "committed_offset": -1, "metadata": "", "error_code": code} for index in (0, 9)
    ]
    assert world.ask(9, 1, fetch_body()) == {"topics": [{"name": "t", "partitions": partitions}]}
    for version in (2, 5, 7):
        assert world.ask(9, version, fetch_body()) == {"topics": [], "error_code": code}
    for version in (8, 10):
        assert world.ask(9, version, fetch_body()) == {"groups": [{"group_id": "g", "topics": [], "error_code": code}]}


@as_one_test
@pytest.mark.parametrize("state", ["absent", "stable"])
@pytest.mark.parametrize("member", [{}, {"member_id": "m", "member_epoch": 99}, {"member_id": "", "member_epoch": -1}])
def test_fetch_needs_no_member(state: str, member: Body) -> None:
    """Neither an absent group, nor an unknown member, topic or partition is an error: there is just no offset."""
    world = WireWorld()
    world.reach(state)
    body = fetch_body(name="nope")
    (group,) = body["groups"]
    answer = world.ask(9, 9, body | {"groups": (group | member,)})
    partitions = [NOTHING | {"partition_index": index, "error_code": ErrorCode.NONE} for index in (0, 9)]
    assert answer["groups"] == [
        {"group_id": "g", "topics": [{"name": "nope", "partitions": partitions}], "error_code": ErrorCode.NONE}
    ]


@pytest.mark.parametrize(("topic_id", "echoed"), [(OTHER_ID, OTHER_ID), (NO_ID, None)])
def test_fetch_of_an_unknown_id(topic_id: UUID, echoed: UUID | None) -> None:
    """Topics by id must exist."""
    answer = WireWorld().ask(9, 10, fetch_body(topic_id=topic_id))
    partitions = [NOTHING | {"partition_index": index, "error_code": ErrorCode.UNKNOWN_TOPIC_ID} for index in (0, 9)]
    assert answer["groups"] == [
        {"group_id": "g", "topics": [{"topic_id": echoed, "partitions": partitions}], "error_code": ErrorCode.NONE}
    ]


# ---------------------------------------------------------------- OffsetDelete


def delete_body(*topics: tuple[str, tuple[int, ...]], group_id: str = "g") -> Body:
    return {
        "group_id": group_id,
        "topics": tuple(
            {"name": name, "partitions": tuple({"partition_index": index} for index in indexes)}
            for name, indexes in topics
        ),
    }


@as_one_test
@pytest.mark.parametrize(
    ("state", "group_id", "error"),
    [
        row("no group id", "stable", "", "INVALID_GROUP_ID"),
        row("absent group", "absent", "g", "GROUP_ID_NOT_FOUND"),
        row("no consumers", "stable connect", "g", "NON_EMPTY_GROUP"),
        *(row(state, state, "g", error) for state, error in SHARD_ERRORS),
    ],
)
def test_delete_offsets(state: str, group_id: str, error: str) -> None:
    """An error of the whole replaces those of the topics."""
    world = WireWorld()
    world.reach(state)
    body = delete_body(("t", (0,)), ("nope", (0,)), group_id=group_id)
    assert world.ask(47, 0, body) == {"error_code": ErrorCode[error], "topics": []}


def test_delete_offsets_of_topics() -> None:
    """A topic that a member subscribes to is protected; what does not exist is unknown, and named first."""
    world = WireWorld()
    world.reach("stable")
    answer = world.ask(47, 0, delete_body(("t", (0, 9, -1)), ("nope", (0,)), ("u", (0,))))
    assert answer["error_code"] == ErrorCode.NONE
    assert results(answer) == [
        ("t", [(9, UNKNOWN), (-1, UNKNOWN), (0, "GROUP_SUBSCRIBED_TO_TOPIC")]),
        ("nope", [(0, UNKNOWN)]),
        ("u", [(0, "NONE")]),
    ]


# ---------------------------------------------------------------- TxnOffsetCommit


def commit_body(producer: Body, *topics: Body, **changes: object) -> Body:
    member = {"generation_id": -1, "member_id": "", "group_instance_id": None}
    return {"group_id": "g", "topics": topics or (topic("t", offset(2), offset(0)),)} | member | producer | changes


def plain(changes: Body) -> Body:
    """Name the generation as TxnOffsetCommit does."""
    return {("generation_id" if name.startswith("generation") else name): value for name, value in changes.items()}


@as_one_test
@pytest.mark.parametrize(
    ("state", "changes", "error"),
    [
        row("no group id", "absent", {"group_id": ""}, "INVALID_GROUP_ID"),
        row("absent group", "absent", MEMBER, "ILLEGAL_GENERATION"),
        *MEMBER_ERRORS,
        *(row(state, state, {}, error) for state, error in SHARD_ERRORS),
        # These are no errors, though one may expect them to be.
        row("nobody, stable", "stable", {}, "NONE"),
        row("completing", "completing", MEMBER, "NONE"),
        row("preparing", "preparing", MEMBER | {"member_id": FOLLOWER}, "NONE"),
    ],
)
def test_commit_in_a_transaction(state: str, changes: Body, error: str) -> None:
    """As for a commit without a transaction, but a producer may say that it is nobody, or come during a rebalance."""
    world = WireWorld()
    producer = world.start_producer()
    world.reach(state)
    answer = world.ask(28, 5, commit_body(producer, **plain(changes)))
    assert results(answer) == [("t", [(2, error), (0, error)])]


@as_one_test
@pytest.mark.parametrize(
    ("version", "changes", "error"),
    [
        row("group not added", 3, {}, "INVALID_TXN_STATE"),
        row("group not added, version 4", 4, {}, "TRANSACTION_ABORTABLE"),
        row("newer epoch", 5, {"producer_epoch": 1}, "INVALID_PRODUCER_EPOCH"),
        row("newer epoch, version 3", 3, {"producer_epoch": 1}, "INVALID_PRODUCER_EPOCH"),
        row("unknown producer", 5, {"producer_id": 12345}, "INVALID_PRODUCER_ID_MAPPING"),
        row("unknown producer, version 3", 3, {"producer_id": 12345}, "INVALID_PRODUCER_ID_MAPPING"),
        row("unknown transactional id", 5, {"transactional_id": "y"}, "INVALID_PRODUCER_ID_MAPPING"),
    ],
)
def test_producers(version: int, changes: Body, error: str) -> None:
    """The transaction is looked at before the group; nothing is written, so there is no group afterwards."""
    world = WireWorld()
    producer = world.start_producer()
    answer = world.ask(28, version, commit_body(producer, **changes))
    assert results(answer) == [("t", [(2, error), (0, error)])]
    assert world.ask(16, 5, {"states_filter": (), "types_filter": ()})["groups"] == []


def test_topics_of_a_commit_in_a_transaction() -> None:
    """Unknown topics and partitions, and metadata that is too long, are refused alone."""
    world = WireWorld()
    topics = (topic("t", offset(0), offset(9), offset(1, 7, "x" * 4097)), topic("nope", offset(0)))
    answer = world.ask(28, 5, commit_body(world.start_producer(), *topics))
    assert results(answer) == [
        ("t", [(9, UNKNOWN), (0, "NONE"), (1, "OFFSET_METADATA_TOO_LARGE")]),
        ("nope", [(0, UNKNOWN)]),
    ]


def test_an_offset_of_an_open_transaction_is_unstable() -> None:
    """A stable read of it is refused, a plain one is told that there is none."""
    world = WireWorld()
    assert results(world.ask(28, 5, commit_body(world.start_producer()))) == [("t", [(2, "NONE"), (0, "NONE")])]
    for is_stable, error in ((True, "UNSTABLE_OFFSET_COMMIT"), (False, "NONE")):
        (group,) = world.ask(9, 8, fetch_body() | {"require_stable": is_stable})["groups"]
        assert group["error_code"] == ErrorCode.NONE
        assert group["topics"][0]["partitions"] == [
            NOTHING | {"partition_index": 0, "error_code": ErrorCode[error]},
            NOTHING | {"partition_index": 9, "error_code": ErrorCode.NONE},
        ]
