"""Errors of a log partition that loads, is owned by another node or is closed, through the wire.

A recording with a real broker can't reach these states. What requests fail with otherwise is in the transcripts.
"""

from __future__ import annotations

import pytest

from groupcoord import ErrorCode
from tests.broker.rules import NO_OPERATIONS, UNKNOWN, errors
from tests.broker.wire_world import COMMIT, TOPIC_ID, Body, WireWorld, offset

STATES = [
    ("loading", "COORDINATOR_LOAD_IN_PROGRESS"),
    ("not owned", "NOT_COORDINATOR"),
    ("closed", "COORDINATOR_NOT_AVAILABLE"),
]


@pytest.mark.parametrize(("state", "error"), STATES)
def test_commits(state: str, error: str) -> None:
    """Every partition has the error of the log partition, in a transaction as well."""
    world = WireWorld()
    producer = world.start_producer()
    world.reach(state)
    topics = ({"name": "t", "topic_id": TOPIC_ID, "partitions": (offset(2), offset(0))},)
    assert errors(world.ask(8, 9, COMMIT | {"topics": topics})["topics"]) == [("t", [(2, error), (0, error)])]
    member = {"group_id": "g", "generation_id": -1, "member_id": "", "group_instance_id": None}
    answer = world.ask(28, 5, member | producer | {"topics": topics})
    assert errors(answer["topics"]) == [("t", [(2, error), (0, error)])]


def test_unknown_topics_alone_ask_nobody() -> None:
    """A commit of unknown topics alone does not look at the group: there is no error of the log partition."""
    world = WireWorld()
    world.reach("closed")
    topics = ({"name": "nope", "partitions": (offset(0),)},)
    answer = world.ask(8, 9, COMMIT | {"member_id": "m", "topics": topics})
    assert errors(answer["topics"]) == [("nope", [(0, UNKNOWN)])]


@pytest.mark.parametrize(("state", "error"), STATES)
def test_fetch_of_offsets(state: str, error: str) -> None:
    """Version 1 has the error on each partition, 2 to 7 on the whole, later ones on each group."""
    code = ErrorCode[error]
    world = WireWorld()
    world.reach(state)
    topics = ({"name": "t", "topic_id": TOPIC_ID, "partition_indexes": (0, 9)},)
    group = {"group_id": "g", "member_id": None, "member_epoch": -1, "topics": topics}
    body = {"group_id": "g", "topics": topics, "groups": (group,), "require_stable": False}
    partitions = [
        {"partition_index": index, "committed_offset": -1, "metadata": "", "error_code": code} for index in (0, 9)
    ]
    assert world.ask(9, 1, body) == {"topics": [{"name": "t", "partitions": partitions}]}
    for version in (2, 5, 7):
        assert world.ask(9, version, body) == {"topics": [], "error_code": code}
    for version in (8, 10):
        assert world.ask(9, version, body) == {"groups": [{"group_id": "g", "topics": [], "error_code": code}]}


@pytest.mark.parametrize(("state", "error"), STATES)
def test_deletions(state: str, error: str) -> None:
    """A deletion of offsets fails as a whole, and that of groups for each of them."""
    world = WireWorld()
    world.reach(state)
    topics = tuple({"name": name, "partitions": ({"partition_index": 0},)} for name in ("t", "nope"))
    assert world.ask(47, 0, {"group_id": "g", "topics": topics}) == {"error_code": ErrorCode[error], "topics": []}
    results = world.ask(42, 2, {"groups_names": ("g", "h")})["results"]
    assert results == [{"group_id": group_id, "error_code": ErrorCode[error]} for group_id in ("g", "h")]


@pytest.mark.parametrize(("state", "error"), STATES)
def test_describe_groups(state: str, error: str) -> None:
    """Each group has the error of its log partition and no state."""
    world: WireWorld = WireWorld()
    world.reach(state)
    nothing: Body = {
        "error_code": ErrorCode[error],
        "error_message": None,
        "group_state": "",
        "protocol_type": "",
        "protocol_data": "",
        "members": [],
        "authorized_operations": NO_OPERATIONS,
    }
    answer = world.ask(15, 6, {"groups": ("g", "other"), "include_authorized_operations": False})
    assert answer == {"groups": [nothing | {"group_id": group_id} for group_id in ("g", "other")]}


@pytest.mark.parametrize(
    ("state", "error"),
    [
        ("loading", "COORDINATOR_LOAD_IN_PROGRESS"),
        ("closed", "COORDINATOR_NOT_AVAILABLE"),
        ("not owned", "NONE"),
    ],
)
def test_list_groups(state: str, error: str) -> None:
    """A log partition that loads makes the whole an error; one that another node owns is passed over."""
    world = WireWorld()
    world.reach("stable")
    world.reach(state)
    body = {"states_filter": (), "types_filter": ()}
    assert world.ask(16, 5, body) == {"error_code": ErrorCode[error], "groups": []}


def test_a_group_without_a_name() -> None:
    """The empty id is that of a group like any other: here it does not exist.

    Transcripts share servers, and one of them commits to it.
    """
    world = WireWorld()
    (group,) = world.ask(15, 6, {"groups": ("",), "include_authorized_operations": False})["groups"]
    assert (group["error_code"], group["group_state"]) == (ErrorCode.GROUP_ID_NOT_FOUND, "Dead")
    assert group["error_message"] == "Group  not found."
    (group,) = world.ask(15, 5, {"groups": ("",), "include_authorized_operations": False})["groups"]
    assert (group["error_code"], group["group_state"]) == (ErrorCode.NONE, "Dead")
    results = world.ask(42, 2, {"groups_names": ("",)})["results"]
    assert results == [{"group_id": "", "error_code": ErrorCode.GROUP_ID_NOT_FOUND}]
