"""Anomalies of groups that polls alone show."""

from __future__ import annotations

from functools import partial
from typing import Any

from attrs import evolve

from groupcoord.analysis.live.snapshots import GroupSnapshot, Snapshot
from groupcoord.analysis.poll.polling import PollFold

from .test_lag import group, snapshot


def poll_of(fold: PollFold, one: Snapshot) -> list[dict[str, Any]]:
    return list(fold.take(one).anomalies)


def told(rows: list[dict[str, Any]]) -> dict[tuple[str, str, int | None], str]:
    """Return what was seen, by kind, group and partition."""
    return {(row["kind"], row["group_id"], row.get("topic_partition")): row["evidence"] for row in rows}


def test_silences_rewinds_and_idle_members_are_told() -> None:
    """As of a log: who moves no offset for five minutes though records come, who goes back, who never committed."""
    poll = partial(poll_of, PollFold())
    for at_s in range(0, 420, 10):
        stuck, busy = min(10 + at_s, 40), 2 * at_s if at_s != 100 else 50
        idle = group("idle", {}, owned=(3,))
        rows = poll(
            snapshot(at_s, 3 * at_s + 100, group("stuck", {0: stuck}, owned=(0,)), group("busy", {1: busy}), idle)
        )

    assert told(rows) == {
        ("commits stopped", "stuck", 0): "no new offset for 380 s, 1,290 records behind",
        ("offset rewind", "busy", 1): "back by 130 to 50",
        ("never committed", "idle", 3): "worker has had it for 410 s, with 1,330 records, and no commit ever",
    }
    assert told(poll(snapshot(430, 2_000, group("busy", {1: 3_000})))) == {
        ("offset rewind", "busy", 1): "back by 130 to 50"
    }


def test_nothing_is_said_of_what_is_not_told() -> None:
    """A group with denied offsets may have some; one without a response keeps its former state."""
    poll = partial(poll_of, PollFold())
    hidden = evolve(group("hidden", {}, owned=(2,)), offsets=None)
    for at_s in range(0, 400, 10):
        moving = {0: min(at_s, 30)}
        rows = poll(snapshot(at_s, at_s + 100, hidden, group("g", moving, owned=(0,))))
    away = evolve(snapshot(400, 1_000), missing=frozenset(["g", "hidden"]))

    assert set(told(rows)) == {("commits stopped", "g", 0)}
    assert set(told(poll(away))) == {("commits stopped", "g", 0)}
    assert poll(snapshot(410, 1_000)) == []


def test_clients_that_come_and_go_flap_and_their_group_storms() -> None:
    poll = partial(poll_of, PollFold())
    for number in range(9):
        owned = (0, 1) if number % 2 else ()
        one = group("g", {0: number}, owned=owned)
        assert one.described is not None
        is_there = evolve(one, described=one.described._replace(members=one.described.members if owned else ()))
        rows = poll(snapshot(10 * number, 5, is_there if owned else _empty(is_there)))

    kinds = {row["kind"]: row for row in rows}
    assert set(kinds) == {"rebalance storm", "flapping member"}
    assert kinds["flapping member"]["client_id"] == "worker"


def _empty(one: GroupSnapshot) -> GroupSnapshot:
    assert one.described is not None
    return evolve(one, described=one.described._replace(state="Empty"))
