"""Every validation error of JoinGroup, SyncGroup, Heartbeat and LeaveGroup that one node can give, asked in bytes.

The rows follow the order of checks of Apache Kafka 4.4. What comes back is compared whole: the error, what is echoed of
the request and what is not.
"""

from __future__ import annotations

import pytest

from groupcoord import ErrorCode
from tests.broker.wire_world import (
    FOLLOWER,
    HEARTBEAT,
    JOIN,
    LEADER,
    NEWCOMER,
    STATIC,
    SYNC,
    Body,
    World,
)
from tests.tables import as_one_test

OTHER_PROTOCOL = ({"name": "sticky", "metadata": b""},)
FULL = {"group_max_size": 3}


def row(name: str, *values: object) -> object:
    return pytest.param(*values, id=name)


# ---------------------------------------------------------------- JoinGroup


@as_one_test
@pytest.mark.parametrize(
    ("state", "changes", "error", "echoed"),
    [
        row("no group id", "absent", {"group_id": "", "member_id": "m"}, "INVALID_GROUP_ID", "m"),
        row("no group id, newcomer", "absent", {"group_id": ""}, "INVALID_GROUP_ID", ""),
        row("session too short", "absent", {"session_timeout": 5_999}, "INVALID_SESSION_TIMEOUT", ""),
        row("session too long", "absent", {"session_timeout": 1_800_001}, "INVALID_SESSION_TIMEOUT", ""),
        row(
            "session of a rejoin",
            "stable",
            {"member_id": LEADER, "session_timeout": 0, "protocols": ()},
            "INVALID_SESSION_TIMEOUT",
            LEADER,
        ),
        row("absent group", "absent", {"member_id": "m"}, "UNKNOWN_MEMBER_ID", "m"),
        row("newcomer", "absent", {}, "MEMBER_ID_REQUIRED", "client-1"),
        row("newcomer, stable", "stable", {}, "MEMBER_ID_REQUIRED", NEWCOMER),
        row("no protocol type", "absent", {"protocol_type": ""}, "INCONSISTENT_GROUP_PROTOCOL", ""),
        row("no protocols", "absent", {"protocols": ()}, "INCONSISTENT_GROUP_PROTOCOL", ""),
        row("other type", "stable", {"protocol_type": "connect"}, "INCONSISTENT_GROUP_PROTOCOL", ""),
        row("other protocols", "stable", {"protocols": OTHER_PROTOCOL}, "INCONSISTENT_GROUP_PROTOCOL", ""),
        row(
            "other protocols, unknown member",
            "stable",
            {"member_id": "m", "protocols": OTHER_PROTOCOL},
            "INCONSISTENT_GROUP_PROTOCOL",
            "m",
        ),
        row(
            "other protocols, member",
            "stable",
            {"member_id": LEADER, "protocols": OTHER_PROTOCOL},
            "INCONSISTENT_GROUP_PROTOCOL",
            LEADER,
        ),
        row(
            "other protocols, pending id",
            "pending",
            {"member_id": LEADER, "protocol_type": ""},
            "INCONSISTENT_GROUP_PROTOCOL",
            LEADER,
        ),
        row(
            "pending id with instance",
            "pending",
            {"member_id": LEADER, "group_instance_id": "j"},
            "UNKNOWN_SERVER_ERROR",
            "",
        ),
        row("unknown member", "stable", {"member_id": "m"}, "UNKNOWN_MEMBER_ID", "m"),
        row("unknown member, empty", "empty", {"member_id": LEADER}, "UNKNOWN_MEMBER_ID", LEADER),
        row("unknown member, preparing", "preparing", {"member_id": "m"}, "UNKNOWN_MEMBER_ID", "m"),
        row("unknown member, completing", "completing", {"member_id": "m"}, "UNKNOWN_MEMBER_ID", "m"),
        row(
            "member, unknown instance",
            "stable",
            {"member_id": LEADER, "group_instance_id": "j"},
            "UNKNOWN_MEMBER_ID",
            LEADER,
        ),
        row(
            "stranger, unknown instance",
            "stable",
            {"member_id": "m", "group_instance_id": "j"},
            "UNKNOWN_MEMBER_ID",
            "m",
        ),
        row(
            "another's instance",
            "stable",
            {"member_id": LEADER, "group_instance_id": "i"},
            "FENCED_INSTANCE_ID",
            LEADER,
        ),
        row(
            "stranger, known instance",
            "stable",
            {"member_id": "m", "group_instance_id": "i"},
            "FENCED_INSTANCE_ID",
            "m",
        ),
        row("loading", "loading", {"member_id": "m"}, "COORDINATOR_LOAD_IN_PROGRESS", ""),
        row("not owned", "not owned", {"member_id": "m"}, "NOT_COORDINATOR", ""),
        row("closed", "closed", {"member_id": "m"}, "COORDINATOR_NOT_AVAILABLE", "m"),
        row("closed, no group id", "closed", {"group_id": "", "member_id": "m"}, "COORDINATOR_NOT_AVAILABLE", "m"),
    ],
)
def test_join(state: str, changes: Body, error: str, echoed: str) -> None:
    """The member id is echoed where Kafka echoes it; there is no generation, leader or protocol in any error."""
    world = World()
    world.reach(state)
    assert world.ask(11, 9, JOIN | changes) == refused_join(error, echoed)


@as_one_test
@pytest.mark.parametrize(
    ("state", "changes"),
    [
        row("newcomer", "stable", {}),
        row("newcomer, completing", "completing", {}),
        row("unknown member", "stable", {"member_id": "m"}),
        row("bad protocols", "stable", {"protocols": ()}),
        row("known instance", "stable", {"group_instance_id": "i"}),
        row("new instance", "stable", {"group_instance_id": "j"}),
    ],
)
def test_join_a_full_group(state: str, changes: Body) -> None:
    """Whoever is not a member is refused before anything else is looked at, and no id is echoed."""
    world = World(**FULL)
    world.reach(state)
    assert world.ask(11, 9, JOIN | changes) == refused_join("GROUP_MAX_SIZE_REACHED", "")


def test_a_handed_out_id_does_not_hold_a_place() -> None:
    """The id was given while there was room; when it joins the group is full."""
    world = World(group_max_size=4)
    world.reach("stable")
    assert world.ask(11, 9, JOIN)["member_id"] == NEWCOMER
    joined = world.send(11, 9, JOIN | {"group_instance_id": "j"})
    for member_id in (LEADER, FOLLOWER, STATIC):
        world.send(11, 9, JOIN | {"member_id": member_id})
    assert joined.answer() is None
    assert world.ask(11, 9, JOIN | {"member_id": NEWCOMER}) == refused_join("GROUP_MAX_SIZE_REACHED", "")


def refused_join(error: str, member_id: str) -> Body:
    return {
        "error_code": ErrorCode[error],
        "generation_id": -1,
        "protocol_type": None,
        "protocol_name": None,
        "leader": "",
        "skip_assignment": False,
        "member_id": member_id,
        "members": [],
    }


@pytest.mark.parametrize(
    ("event", "error", "echoed"),
    [
        row(
            "leaves",
            (13, 4, {"group_id": "g", "members": ({"member_id": STATIC, "group_instance_id": None},)}),
            "UNKNOWN_MEMBER_ID",
            "",
        ),
        row("is replaced", (11, 9, JOIN | {"group_instance_id": "i"}), "FENCED_INSTANCE_ID", STATIC),
        row("unload", None, "NOT_COORDINATOR", STATIC),
    ],
)
def test_a_waiting_join_is_refused(event: tuple[int, int, Body] | None, error: str, echoed: str) -> None:
    """What ends a join while it waits for the others."""
    world = World()
    world.reach("preparing")
    waiting = world.send(11, 9, JOIN | {"member_id": STATIC, "group_instance_id": "i"})
    assert waiting.answer() is None
    if event is None:
        world.reach("not owned")
        world.tick()
    else:
        world.send(*event)
    assert waiting.answer() == refused_join(error, echoed)


def test_a_new_member_that_waits_too_long_is_refused() -> None:
    """A first join waits for five minutes at most (KAFKA-7610)."""
    world = World(group_initial_rebalance_delay_ms=400_000)
    waiting = world.send(11, 9, JOIN | {"group_instance_id": "i", "rebalance_timeout": 600_000})
    world.tick(299_999)
    assert waiting.answer() is None
    world.tick(1)
    assert waiting.answer() == refused_join("UNKNOWN_MEMBER_ID", "")


# ---------------------------------------------------------------- SyncGroup


@as_one_test
@pytest.mark.parametrize(
    ("state", "changes", "error"),
    [
        row("no protocol type", "stable", {"protocol_type": None, "group_id": ""}, "INCONSISTENT_GROUP_PROTOCOL"),
        row("no protocol name", "stable", {"protocol_name": None}, "INCONSISTENT_GROUP_PROTOCOL"),
        row("no group id", "stable", {"group_id": ""}, "INVALID_GROUP_ID"),
        row("absent group", "absent", {}, "UNKNOWN_MEMBER_ID"),
        row("empty group", "empty", {}, "UNKNOWN_MEMBER_ID"),
        row("pending id", "pending", {}, "UNKNOWN_MEMBER_ID"),
        row("unknown member", "stable", {"member_id": "m", "generation_id": 9}, "UNKNOWN_MEMBER_ID"),
        row("no member id", "stable", {"member_id": ""}, "UNKNOWN_MEMBER_ID"),
        row("unknown instance", "stable", {"group_instance_id": "j"}, "UNKNOWN_MEMBER_ID"),
        row("another's instance", "stable", {"group_instance_id": "i"}, "FENCED_INSTANCE_ID"),
        row("stranger, known instance", "stable", {"member_id": "m", "group_instance_id": "i"}, "FENCED_INSTANCE_ID"),
        row("old generation", "stable", {"generation_id": 0}, "ILLEGAL_GENERATION"),
        row("future generation", "completing", {"generation_id": 2}, "ILLEGAL_GENERATION"),
        row("no generation", "completing", {"generation_id": -1}, "ILLEGAL_GENERATION"),
        row("wrong generation, preparing", "preparing", {"generation_id": 2}, "ILLEGAL_GENERATION"),
        row("other protocol type", "stable", {"protocol_type": "connect"}, "INCONSISTENT_GROUP_PROTOCOL"),
        row("other protocol name", "completing", {"protocol_name": "sticky"}, "INCONSISTENT_GROUP_PROTOCOL"),
        row("other name, preparing", "preparing", {"protocol_name": "sticky"}, "INCONSISTENT_GROUP_PROTOCOL"),
        row("preparing", "preparing", {}, "REBALANCE_IN_PROGRESS"),
        row("loading", "loading", {}, "COORDINATOR_LOAD_IN_PROGRESS"),
        row("not owned", "not owned", {}, "NOT_COORDINATOR"),
        row("closed", "closed", {"group_id": ""}, "COORDINATOR_NOT_AVAILABLE"),
    ],
)
def test_sync(state: str, changes: Body, error: str) -> None:
    """An error has neither protocol nor assignment."""
    world = World()
    world.reach(state)
    answer = world.ask(14, 5, SYNC | changes)
    assert answer == {
        "error_code": ErrorCode[error],
        "protocol_type": None,
        "protocol_name": None,
        "assignment": b"",
    }


@pytest.mark.parametrize(
    ("event", "error", "error_of_others"),
    [
        row("is replaced", JOIN | {"group_instance_id": "i"}, "FENCED_INSTANCE_ID", "REBALANCE_IN_PROGRESS"),
        row("a newcomer", JOIN | {"group_instance_id": "j"}, "REBALANCE_IN_PROGRESS", "REBALANCE_IN_PROGRESS"),
        row("unload", None, "NOT_COORDINATOR", "NOT_COORDINATOR"),
    ],
)
def test_a_waiting_sync_is_refused(event: Body | None, error: str, error_of_others: str) -> None:
    """What ends the syncs of a static member and of a follower while they wait for the leader's assignment."""
    world = World()
    world.reach("completing")
    waiting = world.send(14, 0, SYNC | {"member_id": STATIC})
    other = world.send(14, 0, SYNC | {"member_id": FOLLOWER})
    if event is None:
        world.reach("not owned")
        world.tick()
    else:
        world.send(11, 9, event)
    assert waiting.answer() == {"error_code": ErrorCode[error], "assignment": b""}
    assert other.answer() == {"error_code": ErrorCode[error_of_others], "assignment": b""}


# ---------------------------------------------------------------- Heartbeat


@as_one_test
@pytest.mark.parametrize(
    ("state", "changes", "error"),
    [
        row("no group id", "stable", {"group_id": ""}, "INVALID_GROUP_ID"),
        row("absent group", "absent", {}, "UNKNOWN_MEMBER_ID"),
        row("empty group", "empty", {}, "UNKNOWN_MEMBER_ID"),
        row("simple group", "simple", {}, "UNKNOWN_MEMBER_ID"),
        row("pending id", "pending", {"generation_id": 0}, "UNKNOWN_MEMBER_ID"),
        row("unknown member", "stable", {"member_id": "m", "generation_id": 9}, "UNKNOWN_MEMBER_ID"),
        row("unknown instance", "stable", {"group_instance_id": "j"}, "UNKNOWN_MEMBER_ID"),
        row("another's instance", "stable", {"group_instance_id": "i", "generation_id": 9}, "FENCED_INSTANCE_ID"),
        row("wrong generation", "stable", {"generation_id": 2}, "ILLEGAL_GENERATION"),
        row("wrong generation, completing", "completing", {"generation_id": 0}, "ILLEGAL_GENERATION"),
        row("wrong generation, preparing", "preparing", {"generation_id": 0}, "ILLEGAL_GENERATION"),
        row("preparing", "preparing", {}, "REBALANCE_IN_PROGRESS"),
        row("not owned", "not owned", {}, "NOT_COORDINATOR"),
        row("closed", "closed", {"group_id": ""}, "COORDINATOR_NOT_AVAILABLE"),
        # These three are no errors, though one may expect them to be.
        row("loading", "loading", {}, "NONE"),
        row("completing", "completing", {}, "NONE"),
        row("static member without instance", "stable", {"member_id": STATIC}, "NONE"),
    ],
)
def test_heartbeat(state: str, changes: Body, error: str) -> None:
    """The error is all there is."""
    world = World()
    world.reach(state)
    assert world.ask(12, 4, HEARTBEAT | changes) == {"error_code": ErrorCode[error]}


# ---------------------------------------------------------------- LeaveGroup


@as_one_test
@pytest.mark.parametrize(
    ("state", "members", "errors"),
    [
        row("absent group", "absent", [("m", None), ("", "i")], ["UNKNOWN_MEMBER_ID"] * 2),
        row("empty group", "empty", [(LEADER, None)], ["UNKNOWN_MEMBER_ID"]),
        row("unknown member", "stable", [("m", None)], ["UNKNOWN_MEMBER_ID"]),
        row("unknown instance alone", "stable", [("", "j")], ["UNKNOWN_MEMBER_ID"]),
        row("neither id", "stable", [("", None)], ["UNKNOWN_MEMBER_ID"]),
        row("member, unknown instance", "stable", [(LEADER, "j")], ["UNKNOWN_MEMBER_ID"]),
        row("another's instance", "stable", [(LEADER, "i")], ["FENCED_INSTANCE_ID"]),
        row("stranger, known instance", "stable", [("m", "i")], ["FENCED_INSTANCE_ID"]),
        row("twice", "stable", [(LEADER, None), (LEADER, None)], ["NONE", "UNKNOWN_MEMBER_ID"]),
        row("by id, then by instance", "stable", [(STATIC, None), ("", "i")], ["NONE", "UNKNOWN_MEMBER_ID"]),
        row(
            "some of them",
            "preparing",
            [("m", None), (FOLLOWER, None), (LEADER, "i"), ("", "i")],
            ["UNKNOWN_MEMBER_ID", "NONE", "FENCED_INSTANCE_ID", "NONE"],
        ),
        row("pending id, any instance", "pending", [(LEADER, "j")], ["NONE"]),
        row("nobody", "stable", [], []),
    ],
)
def test_leave(state: str, members: list[tuple[str, str | None]], errors: list[str]) -> None:
    """Each entry is echoed as sent with an error of its own; the whole has none."""
    world = World()
    world.reach(state)
    sent = [{"member_id": member_id, "group_instance_id": instance_id} for member_id, instance_id in members]
    assert world.ask(13, 5, {"group_id": "g", "members": sent}) == {
        "error_code": ErrorCode.NONE,
        "members": [entry | {"error_code": ErrorCode[error]} for entry, error in zip(sent, errors, strict=True)],
    }


@pytest.mark.parametrize(
    ("state", "group_id", "error"),
    [
        row("no group id", "stable", "", "INVALID_GROUP_ID"),
        row("loading", "loading", "g", "COORDINATOR_LOAD_IN_PROGRESS"),
        row("not owned", "not owned", "g", "NOT_COORDINATOR"),
        row("closed", "closed", "", "COORDINATOR_NOT_AVAILABLE"),
    ],
)
def test_leave_nothing(state: str, group_id: str, error: str) -> None:
    """An error of the whole lists no members, in the versions that list them."""
    world = World()
    world.reach(state)
    body = {"group_id": group_id, "member_id": "m", "members": ({"member_id": "m", "group_instance_id": None},)}
    assert world.ask(13, 5, body) == {"error_code": ErrorCode[error], "members": []}
    assert world.ask(13, 2, body) == {"error_code": ErrorCode[error]}


@pytest.mark.parametrize("state", ["absent", "empty", "stable"])
def test_leave_of_one(state: str) -> None:
    """Up to version 2 the one entry's error is the whole's."""
    world = World()
    world.reach(state)
    assert world.ask(13, 2, {"group_id": "g", "member_id": "m"}) == {"error_code": ErrorCode.UNKNOWN_MEMBER_ID}
