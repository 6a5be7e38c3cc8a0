"""Differences of two snapshots, and their limits."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from uuid import UUID

from attrs import evolve

from groupcoord.analysis.fold.history.causes import EXPIRY_OR_LEAVE, JOIN, METADATA_CHANGE, UNKNOWN
from groupcoord.analysis.fold.history.rows import CLASSIC, CONSUMER
from groupcoord.analysis.live.cluster import CommittedOffset, DescribedGroup, ListedGroup
from groupcoord.analysis.live.snapshots import GroupSnapshot, Problem, Snapshot
from groupcoord.analysis.poll.polling import PollFold
from groupcoord.analysis.poll.rows import PolledGroups, Row
from groupcoord.analysis.report.html.page import report_page
from groupcoord.core.consumer_protocol import (
    Assignment,
    Subscription,
    TopicPartition,
    encode_assignment,
    encode_subscription,
)
from groupcoord.schema.engine import Values

STEP_MS = 10_000
ORDERS = UUID(int=7)


def classic(state: str, members: Mapping[str, Iterable[int]], topics: tuple[str, ...] = ("orders",)) -> DescribedGroup:
    """A classic group whose members own partitions of one topic."""
    found: list[Values] = [
        {
            "member_id": name,
            "group_instance_id": None,
            "client_id": "worker",
            "client_host": "/127.0.0.1",
            "member_metadata": encode_subscription(Subscription(topics)),
            "member_assignment": encode_assignment(Assignment(tuple(TopicPartition("orders", one) for one in some))),
        }
        for name, some in members.items()
    ]
    return DescribedGroup(0, state, "consumer", "range" if members else None, None, None, tuple(found))


def consumer(state: str, epoch: int, members: Mapping[str, Iterable[int]]) -> DescribedGroup:
    """A consumer group whose members own partitions of one topic, at its epoch."""
    found: list[Values] = []
    for name, some in members.items():
        held = {"topic_partitions": [{"topic_id": ORDERS, "topic_name": "orders", "partitions": list(some)}]}
        found.append(
            {
                "member_id": name,
                "instance_id": None,
                "rack_id": None,
                "member_epoch": epoch,
                "client_id": "worker",
                "client_host": "/127.0.0.1",
                "subscribed_topic_names": ["orders"],
                "subscribed_topic_regex": None,
                "assignment": held,
                "target_assignment": held,
            }
        )
    return DescribedGroup(0, state, "consumer", "uniform", epoch, epoch, tuple(found))


def snapshot(
    number: int, groups: Mapping[str, DescribedGroup | None], *, is_whole: bool = True, offset: int | None = None
) -> Snapshot:
    """The poll of this number: it takes a second, and another begins every ten."""
    asked_ms = number * STEP_MS
    offsets = () if offset is None else (CommittedOffset("orders", 0, offset, -1, "", 0),)
    told = {
        name: GroupSnapshot(
            name,
            CONSUMER if one is not None and one.group_epoch is not None else CLASSIC,
            ListedGroup(name, CLASSIC, "Stable", "consumer"),
            one,
            offsets,
        )
        for name, one in groups.items()
    }
    problems = [Problem(f"group {name}", "it does not tell") for name, one in groups.items() if one is None]
    return Snapshot(asked_ms, asked_ms + 1_000, told, (), problems, is_whole)


def rebalances(*snapshots: Snapshot) -> list[Row]:
    groups = PolledGroups()
    return [row for one in snapshots for row in groups.take(one).rebalances]


def test_the_first_poll_shows_no_rebalance_and_a_new_group_a_join() -> None:
    """Groups of the first poll were there before; members of a later group joined since the last poll."""
    found = rebalances(
        snapshot(1, {"a": classic("Stable", {"x": [0]})}),
        snapshot(2, {"a": classic("Stable", {"x": [0]}), "b": classic("Stable", {"y": [1]})}),
    )

    (row,) = found
    assert (row["group_id"], row["cause"], row["joined"]) == ("b", JOIN, ["y"])
    assert (row["started_after_ms"], row["ended_ms"], row["polled_ms"]) == (10_000, 21_000, 21_000)
    assert (row["from_generation"], row["to_generation"]) == (None, None)


def test_a_classic_group_shows_who_came_and_went() -> None:
    """Several changes between two polls are one rebalance, with all that took part and half the confidence."""
    found = rebalances(
        snapshot(1, {"a": classic("Stable", {"x": [0, 1], "y": [2, 3]})}),
        snapshot(2, {"a": classic("Stable", {"x": [0, 1], "z": [2, 3]})}),
        snapshot(3, {"a": classic("Stable", {"x": [0, 1], "z": [2, 3]}, ("orders", "bills"))}),
        snapshot(4, {"a": classic("Empty", {})}),
    )

    assert [(row["causes"], row["confidence"]) for row in found] == [
        ([JOIN, EXPIRY_OR_LEAVE], 0.5),
        ([METADATA_CHANGE], 0.9),
        ([EXPIRY_OR_LEAVE], 0.9),
    ]
    assert [row["partitions_moved"] for row in found] == [2, 0, 4]


def test_a_rebalance_over_several_polls_is_one() -> None:
    """It begins when a poll sees it in progress, and ends when one sees it complete, even if the group is as before."""
    groups = PolledGroups()
    before = classic("Stable", {"x": [0]})
    groups.take(snapshot(1, {"a": before}))
    for number in (2, 3):
        assert not groups.take(snapshot(number, {"a": classic("PreparingRebalance", {"x": []})})).rebalances
    (under_way,) = groups.rebalances_under_way(31_000)
    (row,) = groups.take(snapshot(4, {"a": before})).rebalances

    assert (under_way["started_ms"], under_way.get("ended_ms")) == (21_000, None)
    assert (row["started_after_ms"], row["started_ms"], row["ended_ms"], row["cause"]) == (
        *(10_000, 21_000, 41_000),
        UNKNOWN,
    )
    assert not groups.rebalances_under_way(41_000)


def test_epochs_show_what_members_do_not() -> None:
    """A consumer group's epoch rose by three while its members stayed: one rebalance, and two that were not seen."""
    groups = PolledGroups()
    first = groups.take(snapshot(1, {"a": consumer("Stable", 3, {"x": [0]})}))
    (row,) = (second := groups.take(snapshot(2, {"a": consumer("Stable", 6, {"x": [0]})}))).rebalances

    assert [(one["whose"], one["group_epoch"], one.get("member_epoch")) for one in (*first.epochs, *second.epochs)] == [
        *(("group", 3, None), ("target", 3, None), ("member", 3, 3)),
        *(("group", 6, None), ("target", 6, None), ("member", 6, 6)),
    ]
    assert (row["from_generation"], row["to_generation"], row["missing_generations"]) == (3, 6, 2)
    assert (row["cause"], row["confidence"]) == (UNKNOWN, 0.0)
    assert "2 epochs between the two were not seen" in row["evidence"]


def test_an_upgrade_moves_no_partition_by_itself() -> None:
    """A classic group that becomes a consumer group names topics otherwise; its members keep what they have."""
    (row,) = rebalances(
        snapshot(1, {"a": classic("Stable", {"x": [0]})}), snapshot(2, {"a": consumer("Stable", 5, {"x": [0]})})
    )
    assert (row["conversion"], row["partitions_moved"], row["missing_generations"]) == ("upgrade", 0, 0)


def test_what_a_poll_does_not_tell_is_no_change() -> None:
    """A group that is not described, or whose coordinator is silent, is unchanged; one that is gone has no members."""
    here = {"a": classic("Stable", {"x": [0]})}
    missing = evolve(snapshot(2, {}, is_whole=False), missing=frozenset("a"))
    assert not rebalances(snapshot(1, here), snapshot(2, {"a": None}), snapshot(3, here))
    assert not rebalances(snapshot(1, here), missing, snapshot(3, here))
    assert not rebalances(snapshot(1, {}, is_whole=False), snapshot(2, here))

    (row,) = rebalances(snapshot(1, here), snapshot(2, {}))
    assert (row["cause"], row["left"], row["member_count"]) == (EXPIRY_OR_LEAVE, ["x"], 0)


def test_the_page_says_that_it_was_polled() -> None:
    """Figures of all polls, what the last one lacks, and nothing about a log."""
    fold = PollFold(("kafka://broker:9092",))
    for one in (
        snapshot(1, {"a": classic("Stable", {"x": [0]}), "gone": classic("Stable", {"y": [1]})}, offset=5),
        snapshot(2, {"a": classic("Stable", {"x": [0], "z": [1]}), "secret": None}, offset=9),
    ):
        last = fold.take(one)
    report = fold.report(last, {"groups": 2}, 50_000)
    told = {row.group_id: (row.state, row.members, row.trouble, row.commits) for row in report.groups}

    assert told == {"gone": (None, None, 3, 0), "a": ("Stable", 2, 1, 1), "secret": ("Stable", None, 0, 0)}
    assert report.polls is not None
    assert report.polls.problems == ("group secret: it does not tell",)
    page = report_page(report)
    assert "2 polls of the groups" in page
    assert "group secret: it does not tell" in page
    assert "The log shows" not in page
