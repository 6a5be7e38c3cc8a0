"""What the commits of partitions tell, each alone: offsets that went back, and silences."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from groupcoord.analysis.folding.arrow import Runs, flags, integers
from groupcoord.analysis.folding.commits import PARTITION, CommitFacts
from groupcoord.analysis.history.anomalies import (
    COMMITS_STOPPED,
    OFFSET_REWIND,
    REWIND,
    STALL,
    STALLED,
    STOP,
    Thresholds,
)
from groupcoord.analysis.history.lag import has_stopped, stands_still
from groupcoord.analysis.judging.ends import Behind, Ends
from groupcoord.analysis.judging.groups import Place

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
    if now_ms is None or not facts.last.num_rows:
        return
    judge = _Judge(holders, ends, now_ms, limits)
    for found in _by_partition(facts, now_ms, limits):
        place = (found.of["group_id"], found.of["topic"], found.of["topic_partition"])
        for told in judge.tell(place, found):
            yield found.of | told


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


def _by_partition(facts: CommitFacts, now_ms: int, limits: Thresholds) -> Iterator[_Found]:
    """Yield partitions of which there may be something to tell."""
    of_rewinds = {tuple(row[name] for name in PARTITION): row for row in facts.rewinds.to_pylist()}
    commits = facts.last
    runs = Runs(commits, PARTITION)
    order, starts = runs.order, runs.starts
    at_ms, offsets = integers(commits["log_timestamp_ms"])[order], integers(commits["committed_offset"])[order]
    tombstones = flags(commits["tombstone"])[order]
    is_new = runs.from_end() <= limits.window_commits
    is_offset = is_new & flags(pc.is_valid(commits["committed_offset"]))[order]
    buried = np.add.reduceat(is_new & tombstones, starts, dtype=np.int64)
    first_ms = np.minimum.reduceat(np.where(is_new, at_ms, _MOST), starts)
    last_ms = np.maximum.reduceat(np.where(is_new, at_ms, _LEAST), starts)
    count = np.add.reduceat(is_new, starts, dtype=np.int64)
    lowest = np.minimum.reduceat(np.where(is_offset, offsets, _MOST), starts)
    highest = np.maximum.reduceat(np.where(is_offset, offsets, _LEAST), starts)
    is_silent = has_stopped(first_ms, last_ms, now_ms) | stands_still(lowest, highest)
    places = commits.select(PARTITION).take(pa.array(order[starts]))
    wanted = (buried == 0) & is_silent
    if of_rewinds:
        wanted |= np.array([tuple(row.values()) in of_rewinds for row in places.to_pylist()], np.bool_)
    numbers = np.flatnonzero(wanted)
    for number, place in zip(numbers.tolist(), places.take(pa.array(numbers)).to_pylist(), strict=True):
        yield _Found(
            place,
            of_rewinds.get(tuple(place.values())),
            int(first_ms[number]),
            int(last_ms[number]),
            int(count[number]),
            int(lowest[number]),
            int(highest[number]),
            not buried[number],
        )


class _Judge:
    """Says what is wrong with a partition's commits."""

    def __init__(self, holders: Mapping[Place, Row], ends: Ends | None, now_ms: int, limits: Thresholds) -> None:
        self._holders = holders
        self._ends = ends
        self._now_ms = now_ms
        self._limits = limits

    def tell(self, place: Place, found: _Found) -> Iterator[Row]:
        """Yield what is wrong; once for each row about the end of a partition, if several tell it."""
        rows: list[Behind | None] = [None]
        if self._ends is not None:
            rows = list(self._ends.of(*place[1:], found.highest))
        for behind in rows:
            if found.rewinds is not None:
                yield _rewind(found.rewinds)
            if found.is_there:
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
            told_lag = "" if lag is None else f", {lag:,} records behind"
            evidence = f"no commit for {silent_ms // 1_000:,} s{told_lag}"
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
