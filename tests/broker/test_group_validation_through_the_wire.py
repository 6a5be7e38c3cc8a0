"""Every validation error of DescribeGroups, ListGroups, DeleteGroups and FindCoordinator that one node can give."""

from __future__ import annotations

import pytest

from groupcoord import ErrorCode
from tests.broker.wire_world import Body, WireWorld
from tests.tables import as_one_test

SHARD_ERRORS = [
    ("loading", "COORDINATOR_LOAD_IN_PROGRESS"),
    ("not owned", "NOT_COORDINATOR"),
    ("closed", "COORDINATOR_NOT_AVAILABLE"),
]
NO_OPERATIONS = -(2**31)


def describe(world: WireWorld, version: int, *groups: str) -> list[Body]:
    answer = world.ask(15, version, {"groups": groups, "include_authorized_operations": False})
    (described,) = answer.values()
    assert isinstance(described, list)
    return described


def nothing_of(group_id: str, error: str, state: str, message: str | None) -> Body:
    """What DescribeGroups answers for a group that it can't show, in version 6."""
    return {
        "error_code": ErrorCode[error],
        "error_message": message,
        "group_id": group_id,
        "group_state": state,
        "protocol_type": "",
        "protocol_data": "",
        "members": [],
        "authorized_operations": NO_OPERATIONS,
    }


@pytest.mark.parametrize("group_id", ["g", ""])
def test_describe_absent_groups(group_id: str) -> None:
    """Up to version 5 an absent group is Dead without an error; then it is an error with a message."""
    world = WireWorld()
    message = f"Group {group_id} not found."
    assert describe(world, 6, group_id) == [nothing_of(group_id, "GROUP_ID_NOT_FOUND", "Dead", message)]
    without_message = nothing_of(group_id, "NONE", "Dead", None)
    del without_message["error_message"]
    assert describe(world, 5, group_id) == [without_message]


@pytest.mark.parametrize(("state", "error"), SHARD_ERRORS)
def test_describe_groups_of_a_log_partition(state: str, error: str) -> None:
    """Each group has the error of its log partition and no state."""
    world = WireWorld()
    world.reach(state)
    assert describe(world, 6, "g", "other") == [nothing_of(group_id, error, "", None) for group_id in ("g", "other")]


@pytest.mark.parametrize(
    ("state", "error"),
    [
        ("loading", "COORDINATOR_LOAD_IN_PROGRESS"),
        ("closed", "COORDINATOR_NOT_AVAILABLE"),
        ("not owned", "NONE"),
    ],
)
def test_list_groups(state: str, error: str) -> None:
    """A log partition that loads makes the whole an error, one that is elsewhere is passed over; no group is listed."""
    world = WireWorld()
    world.reach("stable")
    world.reach(state)
    body = {"states_filter": (), "types_filter": ()}
    assert world.ask(16, 5, body) == {"error_code": ErrorCode[error], "groups": []}


@pytest.mark.parametrize(("states", "types"), [(("Nonsense",), ()), ((), ("nonsense",)), (("Stable",), ("consumer",))])
def test_list_groups_with_names_that_match_nothing(states: tuple[str, ...], types: tuple[str, ...]) -> None:
    """An unknown state or type is no error: it just matches no group."""
    world = WireWorld()
    world.reach("stable")
    body = {"states_filter": states, "types_filter": types}
    assert world.ask(16, 5, body) == {"error_code": ErrorCode.NONE, "groups": []}
    assert [
        group["group_id"] for group in world.ask(16, 5, body | {"states_filter": (), "types_filter": ()})["groups"]
    ] == ["g"]


@as_one_test
@pytest.mark.parametrize(
    ("state", "group_ids", "errors"),
    [
        ("absent", ["g"], ["GROUP_ID_NOT_FOUND"]),
        ("absent", [""], ["GROUP_ID_NOT_FOUND"]),
        ("completing", ["g"], ["NON_EMPTY_GROUP"]),
        ("stable", ["g", "h"], ["NON_EMPTY_GROUP", "GROUP_ID_NOT_FOUND"]),
        ("stable", ["g", "g"], ["NON_EMPTY_GROUP"]),
        ("preparing", ["g"], ["NON_EMPTY_GROUP"]),
        ("empty", ["g"], ["NONE"]),
        ("simple", ["g"], ["NONE"]),
        ("pending", ["g"], ["NONE"]),
        *((state, ["g", "h"], [error] * 2) for state, error in SHARD_ERRORS),
    ],
)
def test_delete_groups(state: str, group_ids: list[str], errors: list[str]) -> None:
    """Each group has a result of its own, one that is named twice has one."""
    world = WireWorld()
    world.reach(state)
    results = world.ask(42, 2, {"groups_names": tuple(group_ids)})["results"]
    expected = zip(dict.fromkeys(group_ids), errors, strict=True)
    assert results == [{"group_id": group_id, "error_code": ErrorCode[error]} for group_id, error in expected]


# ---------------------------------------------------------------- FindCoordinator

SHARE = 2
MALFORMED = (
    "This most likely occurs because of a request being malformed by the client library or the message was sent to an "
    "incompatible broker. See the broker logs for more details."
)


@as_one_test
@pytest.mark.parametrize("key_type", [-1, SHARE, 3, 127])
@pytest.mark.parametrize("version", [1, 2, 3])
def test_find_coordinator_of_an_unknown_type(version: int, key_type: int) -> None:
    """Up to version 3 the error is the answer's, and there is no node."""
    answer = WireWorld().ask(10, version, {"key": "g", "key_type": key_type})
    assert answer == {
        "error_code": ErrorCode.INVALID_REQUEST,
        "error_message": MALFORMED,
        "node_id": -1,
        "host": "",
        "port": -1,
    }


@pytest.mark.parametrize(
    ("version", "key_type", "keys"),
    [
        (4, -1, ("g", "h", "g")),
        (4, 3, ("g",)),
        (5, SHARE, ("g:AAAAAAAAAAAAAAAAAAAAAQ:0",)),
        (6, SHARE, ("g", "", "g:x:y")),
        (6, 3, ("", "g")),
    ],
)
def test_find_coordinators_of_an_unknown_type(version: int, key_type: int, keys: tuple[str, ...]) -> None:
    """From version 4 on each key has the error. As recorded, only an unknown type of key gets a message."""
    message = "" if key_type == SHARE else MALFORMED
    answer = WireWorld().ask(10, version, {"key_type": key_type, "coordinator_keys": keys})
    assert answer["coordinators"] == [
        {
            "key": key,
            "node_id": -1,
            "host": "",
            "port": -1,
            "error_code": ErrorCode.INVALID_REQUEST,
            "error_message": message,
        }
        for key in keys
    ]
