"""Histories of consumer groups beyond rebalances: epochs, members, moves, slow revocations."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from groupcoord.analysis.fold.history import EPOCH, GROUP, MEMBER, MEMBERSHIP, MOVE, REBALANCE, REVOCATION
from groupcoord.analysis.fold.history.causes import (
    ASSIGNOR_CHANGE,
    CONVERSION,
    EXPIRY_OR_LEAVE,
    JOIN,
    LEAVE,
    METADATA_CHANGE,
    REBALANCE_TIMEOUT,
    REGEX_CHANGE,
    SESSION_EXPIRY,
    STATIC_REPLACE,
    TOPIC_CHANGE,
)
from groupcoord.analysis.fold.history.ownership import (
    BALANCE,
    GIVEN_UP,
    OWNER_GONE,
    SUBSCRIPTION,
    SWAP,
    TOPIC_GONE,
    UNASSIGNED,
)
from groupcoord.records.schemas import RecordType

from .consumer_story import CREW, MOVING, SESSION_MS, crew, moving, write_story
from .group_log import TOPIC_ID, Log
from .whole_logs import rows_of_logs

Rows = dict[tuple[str, str], list[dict[str, Any]]]


def read(folder: Path, session_timeout_ms: int | None = None) -> Rows:
    """Return the rows of all groups of a data directory, by group and kind."""
    rows: Rows = {}
    for row in rows_of_logs(folder, session_timeout_ms):
        rows.setdefault((row.group_id, row.kind), []).append(row.values)
    return rows


@pytest.fixture(scope="module")
def story(tmp_path_factory: pytest.TempPathFactory) -> Rows:
    """Histories of the two scripted groups, with the session timeout of their broker."""
    return read(write_story(tmp_path_factory.mktemp("story"), crew, moving), SESSION_MS)


# ---------------------------------------------------------------- a story with known events


def test_every_epoch_has_its_cause(story: Rows) -> None:
    """Joins, time-outs, topics, assignors, patterns and subscriptions, in the order in which they happened."""
    rows = story[CREW, REBALANCE]

    assert [(row["to_generation"], row["cause"]) for row in rows] == [
        *(
            (2, JOIN),
            (3, JOIN),
            (4, JOIN),
            (5, JOIN),
            (6, JOIN),
            (7, REBALANCE_TIMEOUT),
            (8, JOIN),
            (8, STATIC_REPLACE),
        ),
        *((9, SESSION_EXPIRY), (10, TOPIC_CHANGE), (11, EXPIRY_OR_LEAVE), (12, ASSIGNOR_CHANGE), (13, JOIN)),
        *((14, LEAVE), (15, METADATA_CHANGE), (16, REGEX_CHANGE)),
    ]
    assert "regular expression" in rows[12]["evidence"]
    assert rows[11]["evidence"] == "client-ann (ann) asks for assignor range, before for none"


def test_targets_come_with_the_epoch_or_later(story: Rows) -> None:
    """A member's heartbeat makes both; where a leave or a resolution made the epoch, the next heartbeat does."""
    waited = {
        row["to_generation"]: row["target_ms"] - row["started_ms"] for row in story[CREW, REBALANCE] if row["target_ms"]
    }
    assert {epoch for epoch, waited_ms in waited.items() if waited_ms} == {13, 14}
    assert {waited[epoch] for epoch in (13, 14)} == {1_000}


def test_lives_of_members(story: Rows) -> None:
    rows = {row["member_id"]: row for row in story[CREW, MEMBERSHIP]}

    assert {name: (row["began"], row["end"]) for name, row in rows.items()} == {
        "ann": ("join", None),
        "ben": ("join", REBALANCE_TIMEOUT),
        "cid": ("join", EXPIRY_OR_LEAVE),
        "dan": ("join", LEAVE),
        "eve": ("join", None),
        "fay": ("join", STATIC_REPLACE),
        "fay-again": ("static replace", SESSION_EXPIRY),
        "gus": ("join", None),
    }
    assert (rows["ben"]["began_ms"], rows["ben"]["ended_ms"]) == (5_000, 51_000)
    assert (rows["fay"]["away_ms"], rows["fay"]["ended_ms"]) == (70_000, 70_500)
    assert rows["fay-again"]["replaced_member"] == "fay"
    assert rows["fay-again"]["ended_ms"] - rows["fay-again"]["away_ms"] == SESSION_MS
    assert (rows["ann"]["first_epoch"], rows["ann"]["last_epoch"]) == (2, 16)


def test_who_gave_up_slowly(story: Rows) -> None:
    """The revoked partitions and the durations: ann 8 s once, ben not within its timeout."""
    slow = [row for row in story[CREW, REVOCATION] if row["took_ms"] > 1_000]

    assert [(row["member_id"], row["took_ms"], row["end"]) for row in slow] == [
        ("ann", 8_000, GIVEN_UP),
        ("ben", 10_000, REBALANCE_TIMEOUT),
    ]
    assert [one["partitions"] for one in slow[0]["partitions"]] == [[2]]
    assert {row["end"] for row in story[CREW, REVOCATION]} == {GIVEN_UP, REBALANCE_TIMEOUT}


def test_what_assignors_moved(story: Rows) -> None:
    """The uniform one moves what it must; the range one, when it takes over, lets members swap what they have."""
    moves = story[CREW, MOVE]
    counts = Counter((row["assignor"], row["reason"]) for row in moves)

    assert counts == {
        (None, UNASSIGNED): 9,
        (None, BALANCE): 8,
        (None, OWNER_GONE): 5,
        ("range", SWAP): 4,
        ("range", UNASSIGNED): 3,
        ("range", OWNER_GONE): 3,
        ("range", SUBSCRIPTION): 1,
    }
    assert [row["is_necessary"] for row in moves] == [row["reason"] != SWAP for row in moves]
    late = [row for row in moves if row["topic_partition"] == 2 and row["epoch"] == 4]
    assert [(row["from_member"], row["to_member"]) for row in late] == [("ann", "cid")]
    assert [(row["decided_ms"], row["released_ms"], row["assigned_ms"]) for row in late] == [(20_000, 29_000, 29_000)]


def test_time_without_an_owner(story: Rows) -> None:
    unowned = Counter(row["unowned_ms"] for row in story[CREW, MOVE] if row["from_member"] is not None)
    assert unowned.keys() == {0, 1_000}
    dan = [row for row in story[CREW, MOVE] if row["from_member"] == "dan" and row["reason"] == OWNER_GONE]
    assert {row["unowned_ms"] for row in dan} == {1_000}


def test_epochs_over_time(story: Rows) -> None:
    """The group's epoch is never behind the target's, nor that behind a member's; each change is a row."""
    rows = story[CREW, EPOCH]

    for row in rows:
        assert row["group_epoch"] >= row["target_epoch"] >= (row["member_epoch"] or 0)
    assert [row["group_epoch"] for row in rows if row["whose"] == "group"] == list(range(2, 17))
    ann = [(row["member_epoch"], row["state"]) for row in rows if row["member_id"] == "ann"][:5]
    assert ann == [
        *((2, "Stable"), (2, "UnrevokedPartitions"), (3, "Stable")),
        *((3, "UnrevokedPartitions"), (4, "Stable")),
    ]
    away = [row for row in rows if row["member_epoch"] == -2]
    assert [row["member_id"] for row in away] == ["fay", "fay-again"]


def test_members_have_their_targets(story: Rows) -> None:
    (group,) = story[CREW, GROUP]
    last = [row for row in story[CREW, MEMBER] if row["generation"] == group["generation_or_epoch"]][-3:]

    assert {row["member_id"]: (row["assignment"] == row["target"], row["pending"]) for row in last} == {
        name: (True, []) for name in ("ann", "eve", "gus")
    }
    assert {row["member_id"]: row["assignor"] for row in last} == {"ann": "range", "eve": None, "gus": None}
    assert (group["protocol"], group["state"]) == ("range", "Stable")


def test_a_group_that_changes_its_type_has_one_story(story: Rows) -> None:
    """Generations and epochs continue; a member that stays is the same one, and the conversion alone moves nothing."""
    rows = story[MOVING, REBALANCE]

    assert [(row["from_generation"], row["to_generation"], row["type"], row["conversion"]) for row in rows] == [
        (0, 1, "Classic", None),
        (1, 2, "Consumer", "upgrade"),
        (2, 3, "Classic", "downgrade"),
        (3, 4, "Classic", None),
    ]
    lives = {row["member_id"]: (row["protocol"], row["began"], row["end"]) for row in story[MOVING, MEMBERSHIP]}
    assert lives == {"old-1": ("classic", "upgrade", CONVERSION), "new": ("consumer", "join", LEAVE)}
    moves = [row for row in story[MOVING, MOVE] if row["reason"] != UNASSIGNED]
    assert [(row["from_member"], row["to_member"], row["reason"]) for row in moves] == [("old-1", "new", BALANCE)]
    assert [row["unowned_ms"] for row in moves] == [1_000]


# ---------------------------------------------------------------- worked out by hand


def crowd() -> Log:
    """A group of two that share four partitions."""
    log = Log().joins("a", 2, 0).target(2, 0, a=[0, 1, 2, 3]).current("a", 2, [0, 1, 2, 3], 0)
    log.joins("b", 3, 100).target(3, 100, a=[0, 1], b=[2, 3]).current("b", 3, [], 100)
    return log.current("a", 3, [0, 1], 200, 2).current("b", 3, [2, 3], 300, 3)


def test_a_plan_that_another_overtakes() -> None:
    """A target that was never reached is marked so, and the partition's time without owner counts once."""
    log = Log().joins("a", 2, 0).target(2, 0, a=[0]).current("a", 2, [0], 0)
    log.joins("b", 3, 100).target(3, 100, a=[], b=[0]).current("b", 3, [], 100).current("a", 3, [], 200, 2)
    log.joins("c", 4, 300).target(4, 300, b=[], c=[0]).current("c", 4, [0], 400)
    found = [row for row in log.rows(MOVE) if row["from_member"] is not None]

    assert [(row["to_member"], row["released_ms"], row["assigned_ms"], row["unowned_ms"]) for row in found] == [
        ("b", 200, None, None),
        ("c", 200, 400, 200),
    ]


def test_a_partition_that_comes_back_before_it_was_given_up() -> None:
    log = Log().joins("a", 2, 0).target(2, 0, a=[0]).current("a", 2, [0], 0)
    log.joins("b", 3, 100).target(3, 100, a=[], b=[0]).joins("b", 4, 200).target(4, 200, a=[0], b=[])
    found = [row for row in log.rows(MOVE) if row["from_member"] is not None]
    assert [(row["to_member"], row["assigned_ms"]) for row in found] == [("b", None), ("a", 200)]
    assert found[1]["unowned_ms"] is None


def test_who_subscribes_to_something_else_gives_up_with_reason() -> None:
    """A changed subscription is a reason to revoke; so is a deleted topic."""
    changed = crowd().joins("a", 4, 400, subscribedTopicNames=["other"]).target(4, 400, a=[], b=[0, 1, 2, 3])
    gone = crowd().epoch(4, 400, metadata_hash=8).target(4, 400, a=[], b=[2, 3])
    assert {row["reason"] for row in changed.rows(MOVE) if row["epoch"] == 4} == {SUBSCRIPTION}
    assert [(row["to_member"], row["reason"]) for row in gone.rows(MOVE) if row["epoch"] == 4] == [
        (None, TOPIC_GONE)
    ] * 2


def test_a_swap_is_one_between_equals() -> None:
    """A member that gets a partition for one of its own could have kept it, with equal subscriptions."""
    swapped = crowd().epoch(4, 400).target(4, 400, a=[0, 2], b=[1, 3]).rows(MOVE)
    other = (
        crowd().joins("c", 4, 400, subscribedTopicNames=["t", "u"]).target(4, 400, a=[0, 2], b=[3], c=[1]).rows(MOVE)
    )

    assert [(row["topic_partition"], row["reason"]) for row in swapped if row["epoch"] == 4] == [(1, SWAP), (2, SWAP)]
    assert [(row["topic_partition"], row["reason"]) for row in other if row["epoch"] == 4] == [
        (1, BALANCE),
        (2, BALANCE),
    ]


@pytest.mark.parametrize(
    ("gone_ms", "end"), [(60_200, REBALANCE_TIMEOUT), (61_201, EXPIRY_OR_LEAVE), (60_199, EXPIRY_OR_LEAVE)]
)
def test_a_rebalance_time_out_is_known_by_its_moment(gone_ms: int, end: str) -> None:
    """A member with something to give up that goes just when its 60 s are over was fenced, not before or later."""
    log = crowd_that_waits(200).goes("a", gone_ms).epoch(4, gone_ms)
    (row,) = [row for row in log.rows(MEMBERSHIP) if row["member_id"] == "a"]
    assert row["end"] == end


def crowd_that_waits(at_ms: int) -> Log:
    """A group whose first member has to revoke a partition."""
    log = Log().joins("a", 2, 0).target(2, 0, a=[0, 1]).current("a", 2, [0, 1], 0)
    log.joins("b", 3, 100).target(3, 100, a=[0], b=[1]).current("b", 3, [], 100)
    value = {
        "memberEpoch": 2,
        "previousMemberEpoch": 2,
        "state": 1,
        "assignedPartitions": [{"topicId": TOPIC_ID, "partitions": [0]}],
        "partitionsPendingRevocation": [{"topicId": TOPIC_ID, "partitions": [1]}],
    }
    return log.add(RecordType.CONSUMER_GROUP_CURRENT_MEMBER_ASSIGNMENT, value, at_ms, memberId="a")


def test_what_is_still_to_be_given_up_is_open() -> None:
    (row,) = crowd_that_waits(200).rows(REVOCATION)
    assert (row["member_id"], row["asked_ms"], row["end"], row["took_ms"]) == ("a", 200, None, None)


def test_compaction_leaves_beginnings_open() -> None:
    """Where records may be missing, neither a join nor a move is reported."""
    log = Log(complete_from=100).joins("a", 2, 0).target(2, 0, a=[0]).current("a", 2, [0], 0)
    assert log.rows(MOVE) == []
    (row,) = Log(complete_from=100).joins("a", 2, 0).rows(MEMBERSHIP)
    assert (row["began"], row["began_ms"], row["end"]) == (None, None, None)
