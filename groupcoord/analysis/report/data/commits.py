"""Figures of commits, counted while batches of the table ``commits`` come: by group, over time, by partition."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from groupcoord.analysis.report.data.model import BINS_OF_GROUP_MAX, Bins, bin_width_ms, bins_of
from groupcoord.analysis.report.data.values import known

Place = tuple[str | None, int]
"""A topic and its partition."""

COLUMNS_OF_GROUPS = (
    *("group_id", "topic", "topic_partition", "tombstone"),
    *("log_timestamp_ms", "commit_timestamp_ms"),
)
"""The columns that :class:`CommitsOfGroups` counts."""


class CommitCount(NamedTuple):
    """How much was committed by a group, or of a partition.

    Attributes:
        commits: how many times, each partition counted by itself; tombstones don't count.
        last_commit_ms: when last; None if no commit has a time.
    """

    commits: int = 0
    last_commit_ms: int | None = None


def count_commits(batches: Iterable[pa.RecordBatch]) -> dict[str, CommitCount]:
    """Return how much each group committed.

    Args:
        batches: of the table ``commits``: ``group_id``, ``tombstone`` and ``commit_timestamp_ms``.
    """
    found: dict[str, CommitCount] = {}
    for batch in batches:
        for (group_id,), count in _counts(batch, ["group_id"]):
            found[group_id] = _sum(found.get(group_id), count)
    return found


class CommitsOfGroups:
    """What some groups committed: over a time that they share, and of each partition.

    Args:
        first_ms: when that time begins; None: nobody knows.
        last_ms: when it ends.
    """

    def __init__(self, first_ms: int | None, last_ms: int | None) -> None:
        self._span = None if first_ms is None or last_ms is None else (first_ms, last_ms)
        self._width_ms = bin_width_ms((last_ms or 0) - (first_ms or 0), BINS_OF_GROUP_MAX)
        self._bins: defaultdict[str, dict[str, Counter[int]]] = defaultdict(lambda: {"commits": Counter()})
        self._places: defaultdict[str, dict[Place, CommitCount]] = defaultdict(dict)

    def add(self, batch: pa.RecordBatch) -> None:
        """Count rows of the table ``commits``: :data:`COLUMNS_OF_GROUPS`."""
        for (group_id, topic, partition), count in _counts(batch, ["group_id", "topic", "topic_partition"]):
            places = self._places[group_id]
            places[topic, partition] = _sum(places.get((topic, partition)), count)
        rows = pa.Table.from_batches([batch]).filter(pc.greater_equal(batch["log_timestamp_ms"], 0))
        rows = rows.append_column("bin", pc.divide(rows["log_timestamp_ms"], self._width_ms))
        for row in rows.group_by(["group_id", "tombstone", "bin"]).aggregate([([], "count_all")]).to_pylist():
            name = "tombstones" if row["tombstone"] else "commits"
            self._bins[row["group_id"]].setdefault(name, Counter())[row["bin"]] += row["count_all"]

    def bins(self, group_id: str) -> Bins | None:
        """Return a group's commits over time; None if it has none, or there is no time."""
        if self._span is None or group_id not in self._bins:
            return None
        return bins_of(*self._span, self._bins[group_id], self._width_ms)

    def places(self, group_id: str) -> Mapping[Place, CommitCount]:
        """Return what a group committed of each partition."""
        return self._places[group_id]


def _counts(batch: pa.RecordBatch, keys: list[str]) -> Iterator[tuple[tuple[Any, ...], CommitCount]]:
    """Yield how many commits a batch has of each key, and when the last was."""
    rows = pa.Table.from_batches([batch]).filter(pc.invert(batch["tombstone"]))
    times = rows["commit_timestamp_ms"]
    rows = rows.append_column("at_ms", pc.if_else(pc.greater_equal(times, 0), times, None))
    for row in rows.group_by(keys).aggregate([([], "count_all"), ("at_ms", "max")]).to_pylist():
        yield tuple(row[key] for key in keys), CommitCount(row["count_all"], row["at_ms_max"])


def _sum(before: CommitCount | None, more: CommitCount) -> CommitCount:
    if before is None:
        return more
    last_ms = known((before.last_commit_ms, more.last_commit_ms))
    return CommitCount(before.commits + more.commits, max(last_ms, default=None))
