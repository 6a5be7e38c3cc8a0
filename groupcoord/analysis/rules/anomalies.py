"""What is wrong with groups, from their commits and their history."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from itertools import accumulate
from typing import Any, NamedTuple

import pyarrow as pa

from groupcoord.analysis.fold.commits import CommitFacts
from groupcoord.analysis.fold.history import DUPLICATE, MEMBERSHIP, REBALANCE, REVOCATION
from groupcoord.analysis.fold.history.causes import REBALANCE_TIMEOUT
from groupcoord.analysis.options import Thresholds
from groupcoord.analysis.report.text import format_limit
from groupcoord.analysis.rules.assignment_balance import Assigned, about_shares
from groupcoord.analysis.rules.groups import Histories
from groupcoord.analysis.rules.lag import Ends
from groupcoord.analysis.rules.statuses import (
    COMMIT_STORM,
    DUPLICATE_OWNER,
    FENCED_MEMBER,
    FLAPPING_MEMBER,
    REBALANCE_STORM,
    SLOW_REVOCATION,
)
from groupcoord.analysis.rules.stopped_commits import about_offsets

Row = dict[str, Any]
Of = tuple[int | None, str]
"""A log partition and a group."""


def anomalies(
    found: Histories,
    facts: CommitFacts,
    held: Assigned,
    ends: Ends | None,
    now_ms: int | None,
    thresholds: Thresholds | None = None,
) -> list[Row]:
    """Return what is wrong with groups (:data:`groupcoord.analysis.decode.group_tables.ANOMALIES`).

    The status is Burrow's word for such a thing. What Burrow would say now of each partition the table of lag tells:
    here are all rewinds of the log, and silences only beyond the thresholds. With ``ends`` a partition whose commits
    stopped, or go on at the same offset, is one only if it has a lag, as there; without them nothing is said about
    partitions that stall, and commits have stopped only where a member still has the partition.

    Args:
        found: the groups' histories.
        facts: of their commits.
        held: who has what.
        ends: where topics end; None: that is not known.
        now_ms: the moment to judge from, in milliseconds since 1970; None: there are no records.
        thresholds: what is too much.
    """
    limits = thresholds or Thresholds()
    about = about_offsets(facts, held.holders, ends, now_ms, limits)
    return [*about, *about_groups(found, facts, held, now_ms, limits, has_ends=ends is not None)]


def about_groups(
    found: Histories, facts: CommitFacts, held: Assigned, now_ms: int | None, limits: Thresholds, *, has_ends: bool
) -> list[Row]:
    """Return what concerns groups or their members as a whole, wherever topics end.

    Args:
        found: as for :func:`anomalies`, as the next three.
        facts: see there.
        held: see there.
        now_ms: see there.
        limits: what is too much.
        has_ends: it is known where topics end.
    """
    return [
        *about_shares(held, facts, now_ms, limits, has_ends=has_ends),
        *_commit_storms(facts.minutes, limits),
        *_rebalance_storms(found[REBALANCE], limits),
        *_flapping_members(found[REBALANCE], limits),
        *_duplicate_owners(found[DUPLICATE]),
        *_slow_revocations(found[REVOCATION], now_ms, limits),
        *_fenced_members(found[MEMBERSHIP]),
    ]


def _commit_storms(minutes: pa.Table, limits: Thresholds) -> Iterator[Row]:
    """Yield groups that commit too often."""
    storms: defaultdict[Of, list[Row]] = defaultdict(list)
    for row in minutes.to_pylist():
        if row["commits"] > max(limits.storm_commits, row["partitions"] * limits.commits_per_minute):
            storms[row["log_partition"], row["group_id"]].append(row)
    for (partition, group_id), busy in storms.items():
        # More partitions decide between minutes of as many commits, so that the answer is always the same.
        value, partitions_of = max((row["commits"], row["partitions"]) for row in busy)
        yield {
            "group_id": group_id,
            "kind": COMMIT_STORM,
            "first_ms": min(row["first_ms"] for row in busy),
            "last_ms": max(row["last_ms"] for row in busy),
            "count": len(busy),
            "value": value,
            "evidence": f"{value:,} commits of {partitions_of:,} partitions in a minute",
            "log_partition": partition,
        }


class _Peak(NamedTuple):
    """Something that happens too often within some time: at a moment, since when, and how often."""

    of: tuple[Any, ...]
    at_ms: int
    began_ms: int
    value: int


def _moment(row: Row) -> int | None:
    at_ms: int | None = row["started_ms"] if row["ended_ms"] is None else row["ended_ms"]
    return at_ms


def _peaks(
    events: Iterable[tuple[tuple[Any, ...], int, int]], window_ms: int, value_min: int, *, is_both: bool
) -> Iterator[_Peak]:
    """Yield the moments at which there were too many events in the time before.

    Args:
        events: what each is of, when it was, and 0 or 1.
        window_ms: how much time counts.
        value_min: how many are too many.
        is_both: what counts is of how many there were both a 0 and a 1; else how many there were.
    """
    by_subject: defaultdict[tuple[Any, ...], list[tuple[int, int, tuple[Any, ...]]]] = defaultdict(list)
    for of, at_ms, sign in events:
        by_subject[of[1:]].append((at_ms, sign, of))
    for some in by_subject.values():
        some.sort(key=lambda one: one[0])
        times = [at_ms for at_ms, _, _ in some]
        ones = [0, *accumulate(sign for _, sign, _ in some)]
        for at_ms, _, of in some:
            first, end = bisect_left(times, at_ms - window_ms), bisect_right(times, at_ms)
            count, count_ones = end - first, ones[end] - ones[first]
            value = min(count_ones, count - count_ones) if is_both else count
            if value >= value_min:
                yield _Peak(of, at_ms, times[first], value)


def _worst(peaks: Iterable[_Peak]) -> dict[tuple[Any, ...], Row]:
    """Return for everything that had peaks from when until when it had how many, and the highest."""
    found: defaultdict[tuple[Any, ...], list[_Peak]] = defaultdict(list)
    for peak in peaks:
        found[peak.of].append(peak)
    return {
        of: {
            "log_partition": of[0],
            "group_id": of[1],
            "first_ms": min(peak.began_ms for peak in some),
            "last_ms": max(peak.at_ms for peak in some),
            "value": max(peak.value for peak in some),
            "count": len(some),
        }
        for of, some in found.items()
    }


def _rebalance_storms(rebalances: Iterable[Row], limits: Thresholds) -> Iterator[Row]:
    """Yield groups that rebalance too often."""
    events = []
    for row in rebalances:
        at_ms, before, after = _moment(row), row["from_generation"], row["to_generation"]
        # A static member that comes back stops nobody.
        if at_ms is not None and (before is None or (after is not None and before < after)):
            events.append(((row["log_partition"], row["group_id"]), at_ms, 1))
    window_ms = limits.rebalance_window_ms
    for row in _worst(_peaks(events, window_ms, limits.rebalances, is_both=False)).values():
        worst = f"{row['value']:,} rebalances within {format_limit(window_ms)}"
        yield row | {"kind": REBALANCE_STORM, "evidence": worst}


def _flapping_members(rebalances: Iterable[Row], limits: Thresholds) -> Iterator[Row]:
    """Yield clients that leave and join again and again: as often as they are gone they were back."""
    events = []
    for row in rebalances:
        at_ms = _moment(row)
        if at_ms is not None:
            place = (row["log_partition"], row["group_id"])
            events += [((*place, client), at_ms, 1) for client in row["joined_clients"] or ()]
            events += [((*place, client), at_ms, 0) for client in row["left_clients"] or ()]
    window_ms = limits.rebalance_window_ms
    for (_, _, client), row in _worst(_peaks(events, window_ms, limits.comebacks, is_both=True)).items():
        told = "null" if client is None else client
        worst = f"{told} left and joined {row['value']:,} times within {format_limit(window_ms)}"
        yield row | {"kind": FLAPPING_MEMBER, "client_id": client, "evidence": worst}


def _gathered(rows: Iterable[Row], names: Sequence[str]) -> Iterator[tuple[Row, list[Row]]]:
    """Yield rows that are the same in some columns together, with what they have in common."""
    found: defaultdict[tuple[Any, ...], list[Row]] = defaultdict(list)
    for row in rows:
        found[tuple(row[name] for name in names)].append(row)
    for values, some in found.items():
        yield dict(zip(names, values, strict=True)), some


def _duplicate_owners(duplicates: Iterable[Row]) -> Iterator[Row]:
    """Yield partitions that several members had at a time."""
    for common, some in _gathered(duplicates, ("log_partition", "group_id", "topic", "topic_partition")):
        first = min(some, key=lambda row: row["log_offset"])
        yield common | {
            "kind": DUPLICATE_OWNER,
            "first_ms": min(row["log_timestamp_ms"] for row in some),
            "last_ms": max(row["log_timestamp_ms"] for row in some),
            "count": len(some),
            "value": max(len(row["member_ids"]) for row in some),
            "evidence": f"in generation {first['generation']} by {', '.join(first['member_ids'])}",
        }


def _slow_revocations(revocations: Iterable[Row], now_ms: int | None, limits: Thresholds) -> Iterator[Row]:
    """Yield clients of consumer groups that made others wait; who was fenced for it is told as that."""
    slow = []
    for row in revocations:
        until_ms = now_ms if row["ended_ms"] is None else row["ended_ms"]
        if row["end"] != REBALANCE_TIMEOUT and until_ms is not None and row["asked_ms"] is not None:
            took_ms = until_ms - row["asked_ms"]
            if took_ms >= limits.revocation_ms:
                slow.append(row | {"until_ms": until_ms, "value": took_ms})
    for common, some in _gathered(slow, ("log_partition", "group_id", "client_id")):
        value, partitions = max((row["value"], row["partition_count"]) for row in some)
        yield common | {
            "kind": SLOW_REVOCATION,
            "first_ms": min(row["asked_ms"] for row in some),
            "last_ms": max(row["until_ms"] for row in some),
            "count": len(some),
            "value": value,
            "evidence": f"{common['client_id']} took {value // 1_000:,} s to give up {partitions:,} partitions",
        }


def _fenced_members(memberships: Iterable[Row]) -> Iterator[Row]:
    """Yield clients of consumer groups that did not give partitions up in the time that they had."""
    fenced = (row for row in memberships if row["end"] == REBALANCE_TIMEOUT)
    for common, some in _gathered(fenced, ("log_partition", "group_id", "client_id")):
        last_ms, evidence = max((row["ended_ms"], row["evidence"]) for row in some)
        first_ms = min(row["ended_ms"] for row in some)
        yield common | {
            "kind": FENCED_MEMBER,
            "first_ms": first_ms,
            "last_ms": last_ms,
            "count": len(some),
            "evidence": evidence,
        }
