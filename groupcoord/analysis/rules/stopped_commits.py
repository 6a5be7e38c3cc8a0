"""Anomalies of one partition's commits: stopped, stalled, or gone back."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from groupcoord.analysis.fold.arrow import Bools, Int64s, Runs, flags, integers
from groupcoord.analysis.fold.commits import PARTITION, CommitFacts
from groupcoord.analysis.options import Thresholds
from groupcoord.analysis.rules.groups import Place
from groupcoord.analysis.rules.lag import Behind, Ends
from groupcoord.analysis.rules.statuses import (
    COMMITS_STOPPED,
    NEVER_COMMITTED,
    NO_OFFSET,
    OFFSET_REWIND,
    REWIND,
    STALL,
    STALLED,
    STOP,
    has_stopped,
    known_offset,
    stands_still,
)

Row = dict[str, Any]

_LEAST, _MOST = np.iinfo(np.int64).min, np.iinfo(np.int64).max


def about_offsets(
    facts: CommitFacts, holders: Mapping[Place, Row], ends: Ends | None, now_ms: int | None, limits: Thresholds
) -> Iterator[Row]:
    """Yield rows of the table of anomalies.

    Args:
        facts: of commits.
        holders: who has which partition.
        ends: where topics end; None: that is not known, and nothing stalls.
        now_ms: the moment to judge from, in milliseconds since 1970.
        limits: what is too much.
    """
    if now_ms is None:
        return
    commits = last_commits(facts, limits)
    judge = _Judge(holders, ends, now_ms, limits, "new offset" if facts.are_samples else "commit")
    for found in _by_partition(commits, facts.rewinds, now_ms):
        place = (found.of["group_id"], found.of["topic"], found.of["topic_partition"])
        for told in judge.tell(place, found):
            yield found.of | told
    if ends is not None:
        committed = set(places_of(commits.of.filter(pa.array(commits.highest != NO_OFFSET))))
        yield from _never_committed(committed, holders, ends, now_ms, limits)


class LastCommits(NamedTuple):
    """The last commits of partitions, in columns.

    Attributes:
        of: the partitions, and whose commits these are.
        first_ms: when each one's last commits began.
        last_ms: and ended.
        commits: how many they are.
        lowest: of their offsets; more than the highest: there are none but tombstones.
        highest: of their offsets.
        is_there: no tombstone is among them.
    """

    of: pa.Table
    first_ms: Int64s
    last_ms: Int64s
    commits: Int64s
    lowest: Int64s
    highest: Int64s
    is_there: Bools


def last_commits(facts: CommitFacts, limits: Thresholds) -> LastCommits:
    """Return the last commits of each partition, as many as are looked at."""
    commits = facts.last
    runs = Runs(commits, PARTITION)
    order, starts = runs.order, runs.starts
    if not len(starts):
        none = np.zeros(0, np.int64)
        return LastCommits(commits.select(PARTITION), none, none, none, none, none, none > 0)
    at_ms, offsets = integers(commits["log_timestamp_ms"])[order], integers(commits["committed_offset"])[order]
    is_new = runs.from_end() <= limits.window_commits
    is_offset = is_new & flags(pc.is_valid(commits["committed_offset"]))[order]
    is_tombstone = is_new & flags(commits["tombstone"])[order]
    return LastCommits(
        commits.select(PARTITION).take(pa.array(order[starts])),
        np.minimum.reduceat(np.where(is_new, at_ms, _MOST), starts),
        np.maximum.reduceat(np.where(is_new, at_ms, _LEAST), starts),
        np.add.reduceat(is_new, starts, dtype=np.int64),
        np.minimum.reduceat(np.where(is_offset, offsets, _MOST), starts),
        np.maximum.reduceat(np.where(is_offset, offsets, _LEAST), starts),
        np.add.reduceat(is_tombstone, starts, dtype=np.int64) == 0,
    )


def places_of(partitions: pa.Table) -> Iterator[Place]:
    """Yield groups with topic and partition, of rows that tell them."""
    yield from zip(*(partitions[name].to_pylist() for name in ("group_id", "topic", "topic_partition")), strict=True)


class _Found(NamedTuple):
    """What is to be known of a partition's commits, and of the last ones.

    Attributes:
        of: the partition, and whose commits these are.
        rewinds: how often they went back, with when and the furthest: by how much, and to where.
        first_ms: when the last commits began.
        last_ms: and ended.
        commits: how many they are.
        lowest: of their offsets.
        highest: of their offsets.
        is_there: no tombstone is among them.
    """

    of: Row
    rewinds: Row | None
    first_ms: int
    last_ms: int
    commits: int
    lowest: int
    highest: int
    is_there: bool


def _by_partition(commits: LastCommits, rewinds: pa.Table, now_ms: int) -> Iterator[_Found]:
    """Yield partitions of which there may be something to tell."""
    of_rewinds = {tuple(row[name] for name in PARTITION): row for row in rewinds.to_pylist()}
    of, *columns = commits
    is_silent = has_stopped(commits.first_ms, commits.last_ms, now_ms) | stands_still(commits.lowest, commits.highest)
    wanted = commits.is_there & is_silent
    if of_rewinds:
        wanted |= np.array([tuple(row.values()) in of_rewinds for row in of.to_pylist()], np.bool_)
    numbers = np.flatnonzero(wanted)
    figures = (column[numbers].tolist() for column in columns)
    for place, *found in zip(of.take(pa.array(numbers)).to_pylist(), *figures, strict=True):
        yield _Found(place, of_rewinds.get(tuple(place.values())), *found)


def _never_committed(
    committed: Collection[Place], holders: Mapping[Place, Row], ends: Ends, now_ms: int, limits: Thresholds
) -> Iterator[Row]:
    """Yield partitions with records that a member has had for long, and of which there is no commit."""
    for place, holder in holders.items():
        since_ms, (group_id, topic, partition) = holder["since_ms"], place
        if place in committed or topic is None or holder["is_shared"] or since_ms is None:
            continue
        silent_ms, records = now_ms - since_ms, ends.records(topic, partition)
        if records and silent_ms >= limits.stopped_ms:
            had = f"{holder['client_id']} has had it for {silent_ms // 1_000:,} s"
            yield {
                "group_id": group_id,
                "kind": NEVER_COMMITTED,
                "topic": topic,
                "topic_partition": partition,
                "client_id": holder["client_id"],
                "first_ms": since_ms,
                "last_ms": now_ms,
                "count": 1,
                "value": silent_ms,
                "evidence": f"{had}, with {records:,} records, and no commit ever",
                "log_partition": holder["log_partition"],
            }


class _Judge:
    """Says what is wrong with a partition's commits, and calls one what it was seen as."""

    def __init__(
        self, holders: Mapping[Place, Row], ends: Ends | None, now_ms: int, limits: Thresholds, commit: str
    ) -> None:
        self._holders = holders
        self._ends = ends
        self._now_ms = now_ms
        self._limits = limits
        self._commit = commit

    def tell(self, place: Place, found: _Found) -> Iterator[Row]:
        """Yield what is wrong; once for each row about the end of a partition, if several tell it."""
        rows: list[Behind | None] = [None]
        if self._ends is not None:
            rows = list(self._ends.of(*place[1:], found.highest))
        for behind in rows:
            if found.rewinds is not None:
                yield _rewind(found.rewinds)
            if found.is_there and known_offset(found.highest) is not None:
                yield from self._silence(place, found, behind)

    def _silence(self, place: Place, found: _Found, behind: Behind | None) -> Iterator[Row]:
        """Yield that a partition's commits stopped, or that they go on at the same offset in spite of a lag."""
        limits, lag = self._limits, None if behind is None else behind.lag
        if behind is None:
            holder = self._holders.get(place)
            is_wanted = holder is not None and holder["member_id"] is not None
        else:
            is_wanted = lag is not None and lag > 0 and not behind.was_at_end
        silent_ms = self._now_ms - found.last_ms
        is_silent = has_stopped(found.first_ms, found.last_ms, self._now_ms) and silent_ms >= limits.stopped_ms
        figures = {"first_ms": found.first_ms, "last_ms": found.last_ms, "count": found.commits}
        if is_silent and is_wanted and found.commits > 1:
            backlog = "" if lag is None else f", {lag:,} records behind"
            evidence = f"no {self._commit} for {silent_ms // 1_000:,} s{backlog}"
            yield {"kind": COMMITS_STOPPED, "status": STOP, **figures, "value": silent_ms, "evidence": evidence}
        is_same = stands_still(found.lowest, found.highest) and found.commits >= limits.window_commits
        if is_same and lag is not None and lag > 0 and not is_silent:
            evidence = f"{found.commits:,} commits of offset {found.highest:,}, {lag:,} records behind"
            yield {"kind": STALLED, "status": STALL, **figures, "value": lag, "evidence": evidence}


def _rewind(rewinds: Row) -> Row:
    """Return that a partition's committed offset went back."""
    return {
        "kind": OFFSET_REWIND,
        "status": REWIND,
        "first_ms": rewinds["first_ms"],
        "last_ms": rewinds["last_ms"],
        "count": rewinds["count"],
        "value": rewinds["by"],
        "evidence": f"back by {rewinds['by']:,} to {rewinds['to']:,}",
    }
