"""How far groups are behind, in records and in time, by the rules of :mod:`groupcoord.analysis.history.lag`."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from groupcoord.analysis.history.lag import WINDOW_COMMITS, judged
from groupcoord.analysis.local.arrow import Runs
from groupcoord.analysis.local.groups import HOLDER, Place
from groupcoord.analysis.local.offsets import counted

Row = dict[str, Any]

_KEY = ("group_id", "topic", "topic_partition")
_NEXT = ("topic", "topic_partition", "committed_offset")
_WINDOW = (*_KEY, "log_offset", "tombstone", "commit_timestamp_ms", "committed_offset")
_OFFSET = (*_KEY, "committed_offset", "commit_timestamp_ms")
_NO_END: Mapping[str, None] = dict.fromkeys(("end_offset", "at_ms", "log_start_offset", "last_stable_offset"))
_NO_HOLDER: Row = dict.fromkeys(HOLDER)


class Behind(NamedTuple):
    """A committed offset and where its partition ends.

    Attributes:
        end: the row about the end; all of it None if that is not known.
        lag: records behind; None without an end.
        look: when the cluster was asked, and what it said; None: it was not asked.
        before: the same if the log ended at the committed offset then, or before it.
    """

    end: Mapping[str, Any]
    lag: int | None
    look: Row | None
    before: Row | None

    @property
    def was_at_end(self) -> bool:
        """Whether the log ended where the group had committed."""
        return self.before is not None


class Ends:
    """Where topics end.

    Args:
        table: :data:`groupcoord.analysis.columns.tables.END_OFFSETS`, or what a cluster answered.
    """

    def __init__(self, table: pa.Table) -> None:
        self._rows: dict[tuple[str, int], list[Mapping[str, Any]]] = {}
        for row in table.to_pylist():
            self._rows.setdefault((row["topic"], row["topic_partition"]), []).append(_NO_END | row)

    def partitions(self) -> Collection[tuple[str, int]]:
        """Return the partitions of which something is told."""
        return self._rows.keys()

    def of(self, topic: str, partition: int, committed_offset: int) -> list[Behind]:
        """Return how far a committed offset is behind, for each row about its partition, or one if there is none."""
        rows = self._rows.get((topic, partition), [_NO_END])
        look = next((_look(row) for row in rows if row["at_ms"] is not None and row["end_offset"] is not None), None)
        before = look if look is not None and look["end_offset"] <= committed_offset else None
        return [Behind(row, distance(row["end_offset"], committed_offset), look, before) for row in rows]

    def look(self, topic: str, partition: int) -> Row | None:
        """Return when the end of a partition was asked for, and what was told."""
        return self.of(topic, partition, -1)[0].look


def _look(row: Mapping[str, Any]) -> Row:
    return {"at_ms": row["at_ms"], "end_offset": row["end_offset"], "next": None}


def distance(end_offset: int | None, committed_offset: int) -> int | None:
    """Return how many records lie between a committed offset and an end; None if the end is not known."""
    return None if end_offset is None else max(end_offset - committed_offset, 0)


def behind_ends(current_offsets: pa.Table, ends: Ends) -> list[Row]:
    """Return the offsets whose next record is there: what a cluster can be asked about how old that is."""
    found: dict[tuple[str, int, int], Row] = {}
    for row in current_offsets.select(_NEXT).to_pylist():
        place = (row["topic"], row["topic_partition"], row["committed_offset"])
        for end in (behind.end for behind in ends.of(*place)):
            start, end_offset = end["log_start_offset"], end["end_offset"]
            if start is not None and end_offset is not None and start <= row["committed_offset"] < end_offset:
                found[place] = row | {"end_offset": end_offset}
    return list(found.values())


def lag(
    current_offsets: pa.Table,
    ends: Ends,
    commits: pa.Table,
    holders: Mapping[Place, Row],
    now_ms: int | None,
    record_times: Iterable[Mapping[str, Any]] = (),
    read_ms: int | None = None,
) -> list[Row]:
    """Return how far groups are behind, and how well they keep up (:data:`groupcoord.analysis.columns.tables.LAG`).

    Args:
        current_offsets: the table of this name.
        ends: where topics end.
        commits: the table of this name.
        holders: who has the partitions.
        now_ms: the moment to judge from where the cluster was not asked.
        record_times: when next records were written (:data:`groupcoord.analysis.columns.tables.RECORD_TIMES`), where it
            is told.
        read_ms: when the log was read that the commits are from, if the cluster was asked for the ends later.
    """
    windows = _windows(counted(commits), ends)
    written_ms = {tuple(row[name] for name in _NEXT): row["record_timestamp_ms"] for row in record_times}
    rows = []
    for offset in current_offsets.select(_OFFSET).to_pylist():
        place = (offset["group_id"], offset["topic"], offset["topic_partition"])
        for behind in ends.of(*place[1:], offset["committed_offset"]):
            next_ms = written_ms.get((*place[1:], offset["committed_offset"]))
            at_ms = behind.end["at_ms"]
            judged_ms = now_ms if at_ms is None else at_ms if read_ms is None else min(at_ms, read_ms)
            rows.append(_row(offset, behind, windows.get(place), judged_ms, next_ms) | holders.get(place, _NO_HOLDER))
    return rows


def _row(offset: Row, behind: Behind, window: list[Row] | None, now_ms: int | None, next_ms: int | None) -> Row:
    end, committed_offset = behind.end, offset["committed_offset"]
    at_ms, start = end["at_ms"], end["log_start_offset"]
    row = offset | {
        "end_offset": end["end_offset"],
        "lag": behind.lag,
        "at_ms": at_ms,
        "lag_stable": distance(end["last_stable_offset"], committed_offset),
        "is_lost": None if start is None else committed_offset < start,
    }
    evidence = {
        "first": behind.look,
        "last": behind.look,
        "before": behind.before,
        "was_at_end": behind.was_at_end,
        "window": window,
        "now_ms": now_ms,
        "record_timestamp_ms": next_ms,
    }
    return row | judged(row | evidence)


def _windows(commits: pa.Table, ends: Ends) -> dict[Place, list[Row]]:
    """Return the last commits of each group in partitions whose end is known, tombstones among them, in order."""
    topics = pa.array(sorted({topic for topic, _ in ends.partitions() if topic is not None}), pa.string())
    wanted = commits.filter(pc.is_in(commits["topic"], topics)).select(_WINDOW)
    runs = Runs(wanted, _KEY)
    last = runs.order[runs.from_end() <= WINDOW_COMMITS]
    windows: dict[Place, list[Row]] = {}
    for row in wanted.take(pa.array(last)).to_pylist():
        look = ends.look(row["topic"], row["topic_partition"])
        at_ms, committed_offset = row["commit_timestamp_ms"], row["committed_offset"]
        is_later = look is not None and at_ms is not None and look["at_ms"] <= at_ms
        found = {
            "tombstone": row["tombstone"],
            "at_ms": at_ms,
            "committed_offset": committed_offset,
            "lag": distance(look["end_offset"], committed_offset) if look is not None and is_later else None,
        }
        windows.setdefault((row["group_id"], row["topic"], row["topic_partition"]), []).append(found)
    return windows
