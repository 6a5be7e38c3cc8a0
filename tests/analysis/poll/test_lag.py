"""From snapshots alone: how far groups are behind, for how long, who has the partition, and what is worst."""

from __future__ import annotations

from attrs import evolve

from groupcoord.analysis.fold.history.rows import Row
from groupcoord.analysis.live.cluster import CommittedOffset, ListedGroup
from groupcoord.analysis.live.offsets import PartitionEnds
from groupcoord.analysis.live.snapshots import GroupSnapshot, Problem, Snapshot
from groupcoord.analysis.options import WINDOW_COMMITS
from groupcoord.analysis.poll.lag import LagWatch, group_lags, problems_of, unknown_groups, worst_first

from .test_groups import classic

START_MS = 1_700_000_000_000


def group(group_id: str, offsets: dict[int, int], *, owned: tuple[int, ...] = ()) -> GroupSnapshot:
    """Return a classic group that has committed offsets of partitions of a topic, with a member that has some."""
    committed = tuple(CommittedOffset("orders", index, offset, -1, "", 0) for index, offset in offsets.items())
    listed = ListedGroup(group_id, "Classic", "Stable", "consumer")
    return GroupSnapshot(group_id, "Classic", listed, classic("Stable", {"m": owned}), committed)


def snapshot(at_s: int, end_offset: int, *groups: GroupSnapshot, start_offset: int = 0) -> Snapshot:
    """Return what a look shows at a time; all partitions end at the same offset."""
    at_ms = START_MS + 1_000 * at_s
    ends = [PartitionEnds("orders", index, at_ms, start_offset, end_offset, end_offset, 0, 0) for index in range(4)]
    problems = [Problem("group hidden", "this user lacks the permission DESCRIBE"), Problem("broker 3", "is away")]
    return Snapshot(at_ms, at_ms, {one.group_id: one for one in groups}, ends, problems, is_whole=True)


def statuses(lags: list[Row]) -> dict[tuple[str, int], str]:
    return {(row["group_id"], row["topic_partition"]): row["status"] for row in lags}


def test_one_look_tells_how_far_and_who_and_the_worst_first() -> None:
    """Lag in records and in time by the next record, the owner, or NO OWNER."""
    watch = LagWatch(lambda row: row["at_ms"] - 5_000 if row["topic_partition"] else None)
    billing = group("billing", {0: 10, 1: 4, 2: 7}, owned=(0, 1))
    lags = worst_first(watch.take(snapshot(0, 10, billing, group("audit", {0: 9}, owned=(0,)))))
    names = ("group_id", "topic_partition", "status", "lag", "lag_ms", "client_id")

    assert [tuple(row[name] for name in names) for row in lags] == [
        ("billing", 2, "NO OWNER", 3, 5_000, None),
        ("billing", 1, "BEHIND", 6, 5_000, "worker"),
        ("audit", 0, "BEHIND", 1, None, "worker"),
        ("billing", 0, "OK", 0, 0, "worker"),
    ]
    assert watch.take(snapshot(0, 10, billing), ["audit"]) == []


def test_what_is_gone_and_what_is_not_told() -> None:
    """An offset below its log's start is lost; without an end offset nothing is known."""
    watch = LagWatch(lambda row: None)
    lags = watch.take(snapshot(0, 10, group("g", {0: 3, 9: 3}, owned=(0, 9)), start_offset=5))
    assert statuses(lags) == {("g", 0): "LOST", ("g", 9): "UNKNOWN"}


def test_what_is_not_committed_has_a_row() -> None:
    """A member's uncommitted partitions and a committed -1 have rows, unless the group's offsets are denied."""
    one = group("g", {0: -1, 1: 4}, owned=(1, 2))
    hidden = evolve(group("hidden", {}, owned=(3,)), offsets=None)
    lags = worst_first(LagWatch(lambda row: None).take(snapshot(0, 10, one, hidden)))
    names = ("topic_partition", "status", "committed_offset", "lag", "client_id")

    assert [tuple(row[name] for name in names) for row in lags] == [
        (0, "NO COMMIT", None, None, None),
        (2, "NO COMMIT", None, None, "worker"),
        (1, "BEHIND", 4, 6, "worker"),
    ]
    (empty,) = LagWatch(lambda row: None).take(snapshot(0, 0, group("g", {}, owned=(2,))))
    assert (empty["status"], empty["lag"], empty["lag_ms"]) == ("OK", 0, 0)


def test_an_offset_that_never_moves_has_stopped_after_a_window_of_looks() -> None:
    """Though its end offset grew; without an owner it is NO OWNER, and on an idle topic it is behind."""
    watch = LagWatch(lambda row: None)
    found = []
    for number in range(WINDOW_COMMITS):
        held = group("g", {0: 4}, owned=(0,)), group("dead", {0: 4})
        rests = group("rests", {3: 4}, owned=(3,))
        look = snapshot(number, 10 + number, *held, rests)
        still = [one._replace(end_offset=10) if one.topic_partition == 3 else one for one in look.ends]
        found.append(statuses(watch.take(evolve(look, ends=still))))

    assert found[-2] == {("g", 0): "BEHIND", ("dead", 0): "NO OWNER", ("rests", 3): "BEHIND"}
    assert found[-1] == {("g", 0): "STOP", ("dead", 0): "NO OWNER", ("rests", 3): "BEHIND"}


def test_several_looks_tell_what_commits_over_time_mean() -> None:
    """A group that falls behind while committing is WARN, one that goes back REWIND, a stopped one
    STOP; others are OK.
    """
    watch = LagWatch(lambda row: None)
    found = {}
    for number in range(4):
        offsets = {0: 10 + number, 1: (40, 20, 30, 31)[number], 2: (10, 20, 20, 20)[number], 3: 100 * (number + 1)}
        found = statuses(watch.take(snapshot(number, 100 * (number + 1), group("g", offsets, owned=(0, 1, 2, 3)))))
    assert found == {("g", 0): "WARN", ("g", 1): "REWIND", ("g", 2): "STOP", ("g", 3): "OK"}


def test_what_a_look_does_not_tell_is_said_of_the_groups_that_are_asked_for() -> None:
    """Problems of other groups are left out, those of brokers are not; a group that is missing is not unknown."""
    look = evolve(snapshot(0, 10, group("g", {})), missing=frozenset(["away"]))
    assert list(problems_of(look, ["g", "none"])) == ["broker 3: is away"]
    assert len(list(problems_of(look, []))) == 2
    assert unknown_groups(look, ["g", "none", "away"]) == ["none"]


def test_a_group_is_as_bad_as_its_worst_partition() -> None:
    """With the sentence of that, how many more are like it, and how many members have nothing to do."""
    idle = group("idle", {0: 10}, owned=(0,))
    assert idle.described is not None
    members = (*idle.described.members, idle.described.members[0] | {"member_id": "n", "member_assignment": b""})
    idle = evolve(idle, described=idle.described._replace(members=members))
    look = snapshot(
        0,
        10,
        group("g", {0: 10, 1: 3, 2: 4}, owned=(0,)),
        idle,
        group("new", {}),
        evolve(group("hid", {}), offsets=None),
    )
    found = group_lags(look, LagWatch(lambda row: None).take(look))

    assert [(one.group_id, one.status, one.lag, one.members, one.wrong) for one in found] == [
        ("g", "NO OWNER", 13, 1, "Records of orders-1 and 1 more partition wait, and no member has the partition"),
        ("hid", "UNKNOWN", None, 1, "Its offsets are not known"),
        ("idle", "OK", 0, 2, "1 of 2 members have no partition"),
        ("new", "OK", None, 1, "Nothing is committed"),
    ]
