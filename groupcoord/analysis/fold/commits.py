"""Commits of groups: outcomes of their transactions, current offsets, and counts over recent commits.

A transaction of a producer ends with its next marker in the same log partition (KIP-98); without one it is open. Memory
is proportional to the partitions of groups.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from attrs import field, frozen

from groupcoord.analysis.decode.parquet import (
    ABORT_TYPE,
    ABORTED,
    COMMIT_TYPE,
    COMMITTED,
    OPEN,
    Bools,
    Figure,
    Int64s,
    Runs,
    aggregated,
    every,
    flags,
    integers,
    is_offset_record,
    key_codes,
    last_rows,
)
from groupcoord.analysis.decode.schema import COMMITS, CURRENT_OFFSETS, KIND_CONTROL, RECORDS, arrow_schema
from groupcoord.analysis.options import MS_PER_MINUTE, WINDOW_COMMITS, Thresholds

OUTCOME_SQL = f"""
coalesce(
    last(case when kind = '{KIND_CONTROL}' then if(control_type = {COMMIT_TYPE}, '{COMMITTED}', '{ABORTED}') end, true)
        over (partition by log_partition, producer_id order by log_offset desc rows unbounded preceding),
    '{OPEN}')
"""
"""The SQL expression of :meth:`Markers.outcomes` for Spark, over markers and transactional commits.

The frame runs backwards, so that the next marker is found in linear time. Arrow batches in Python took Spark up to 1.6
times the CPU.
"""

_COMMITS = arrow_schema(COMMITS)
_OUTCOMES = pa.array([ABORTED, COMMITTED, OPEN])
_STILL_OPEN = 2

MARKER_COLUMNS = ("kind", "control_type", "producer_id", "log_offset")
_NO_MARKERS = pa.schema([RECORDS.field(name) for name in MARKER_COLUMNS[1:]]).empty_table()


class Markers:
    """Transaction markers of one log partition."""

    def __init__(self, tables: Sequence[pa.Table] = ()) -> None:
        rows = pa.concat_tables([_NO_MARKERS, *(table.select(_NO_MARKERS.column_names) for table in tables)])
        producers, offsets = integers(rows["producer_id"]), integers(rows["log_offset"])
        order = np.lexsort((offsets, producers))
        producers, offsets = producers[order], offsets[order]
        is_commit = (integers(rows["control_type"])[order] == COMMIT_TYPE).astype(np.int64)
        starts = np.flatnonzero(np.append(True, producers[1:] != producers[:-1])) if len(order) else order
        ends = np.append(starts, len(order))[1:]
        self._of: dict[int, tuple[Int64s, Int64s]] = {
            int(producers[start]): (offsets[start:end], is_commit[start:end])
            for start, end in zip(starts.tolist(), ends.tolist(), strict=True)
        }

    def outcomes(self, rows: pa.Table) -> pa.Array:
        """Return the outcome of each row's transaction: ``committed``, ``aborted`` or ``open``."""
        producers, offsets = integers(rows["producer_id"]), integers(rows["log_offset"])
        found = np.full(len(producers), _STILL_OPEN)
        for producer in np.unique(producers).tolist():
            if producer in self._of:
                ends, types = self._of[producer]
                of_producer = np.flatnonzero(producers == producer)
                places = np.searchsorted(ends, offsets[of_producer], side="right")
                found[of_producer] = np.append(types, _STILL_OPEN)[places]
        return _OUTCOMES.take(pa.array(found))


def is_marker(records: pa.Table) -> pa.ChunkedArray:
    ends = pa.array([ABORT_TYPE, COMMIT_TYPE], pa.int16())
    return every(pc.equal(records["kind"], KIND_CONTROL), pc.is_in(records["control_type"], ends))


def commits(records: pa.Table, markers: Markers) -> pa.Table:
    """Return every commit and tombstone in order (``COMMITS``), without those of aborted transactions."""
    found = records.filter(is_offset_record(records))
    is_transactional = flags(found["is_transactional"])
    outcome: pa.Array = pa.nulls(found.num_rows, pa.string())
    if is_transactional.any():
        mask = pa.array(is_transactional)
        outcome = pc.replace_with_mask(outcome, mask, markers.outcomes(found.filter(mask)))
    found = found.append_column("transaction", outcome).select(_COMMITS.names)
    is_aborted = pc.fill_null(pc.equal(found["transaction"], ABORTED), False)
    return found.filter(pc.invert(is_aborted)) if is_transactional.any() else found


GROUP = ("log_partition", "group_id")
PARTITION = (*GROUP, "topic", "topic_partition")
ROWS_MIN = 262_144
LATE_MINUTES = 5
"""A minute is closed once its group commits more than this many minutes later."""

_INT, _LONG, _STRING = pa.int32(), pa.int64(), pa.string()
_OF_GROUP = [("log_partition", _INT), ("group_id", _STRING)]
_OF_PARTITION = [*_OF_GROUP, ("topic", _STRING), ("topic_partition", _INT)]
_NOT_KEPT = ("producer_id", "size_bytes")

LAST_COMMITS = pa.schema([column for column in arrow_schema(COMMITS) if column.name not in _NOT_KEPT])
"""The last commits and tombstones of each partition, in order."""

REWINDS = pa.schema(
    [*_OF_PARTITION, *((name, _LONG) for name in ("count", "first_ms", "last_ms", "by", "log_offset", "to"))]
)
"""Rewinds of a partition's committed offset: number and times; size, log offset and target of the largest."""

MINUTES = pa.schema(
    [*_OF_GROUP, *((name, _LONG) for name in ("minute", "commits", "partitions", "first_ms", "last_ms"))]
)
"""Minutes in which a group committed often, with the number of commits and partitions."""

_BY_MINUTE = pa.schema([*_OF_PARTITION, *((name, _LONG) for name in ("minute", "commits", "first_ms", "last_ms"))])
_COUNT: Figure = ([], "count_all")
_COMMITS_SUM: Figure = ("commits", "sum")
_SPAN: dict[str, Figure] = {"first_ms": ("first_ms", "min"), "last_ms": ("last_ms", "max")}


@frozen
class CommitFacts:
    """Result of a fold of commits.

    Attributes:
        last: the last commits of each partition, the last outside open transactions, and the last open one.
        are_samples: the rows are offsets seen by snapshots instead of commits.
    """

    last: pa.Table = field(factory=LAST_COMMITS.empty_table)
    rewinds: pa.Table = field(factory=REWINDS.empty_table)
    minutes: pa.Table = field(factory=MINUTES.empty_table)
    are_samples: bool = False

    def counted(self) -> pa.Table:
        return self.last.filter(pc.invert(_is_open(self.last)))

    def open(self) -> pa.Table:
        """Return the kept commits in open transactions, at least the last of each partition."""
        return self.last.filter(_is_open(self.last))

    def current_offsets(self) -> pa.Table:
        """Return the offsets that a coordinator returns after loading the log.

        The last commit of a partition in log order counts, even if an earlier one's transaction ended later, unless a
        tombstone follows.
        """
        last = last_rows(self.counted(), PARTITION)
        return last.filter(pc.invert(last["tombstone"])).select(arrow_schema(CURRENT_OFFSETS).names)


class CommitFold:
    """Fold of commits of any groups; those of a partition must be in log order."""

    def __init__(self, limits: Thresholds | None = None, rows_min: int = ROWS_MIN) -> None:
        self._limits = limits or Thresholds()
        self._rows_min = rows_min
        self._waiting: list[pa.Table] = []
        self._waiting_rows = 0
        self._facts = CommitFacts()
        self._by_minute = _BY_MINUTE.empty_table()

    def add(self, commits: pa.Table) -> None:
        self._waiting.append(commits.select(LAST_COMMITS.names))
        self._waiting_rows += commits.num_rows
        if self._waiting_rows >= max(self._rows_min, self._facts.last.num_rows):
            self._fold()

    def facts(self) -> CommitFacts:
        self._fold()
        minutes = pa.concat_tables([self._facts.minutes, self._busy(self._by_minute)])
        return CommitFacts(self._facts.last, self._facts.rewinds, _together(minutes))

    def facts_with(self, commits: pa.Table) -> CommitFacts:
        self._fold()
        ahead = CommitFold(self._limits, self._rows_min)
        ahead._facts, ahead._by_minute = self._facts, self._by_minute
        ahead.add(commits)
        return ahead.facts()

    def _fold(self) -> None:
        if not self._waiting_rows:
            return
        old = self._facts.last
        rows = pa.concat_tables([old, *self._waiting]).combine_chunks()
        self._waiting, self._waiting_rows = [], 0
        runs = Runs(rows, PARTITION, is_sorted=True)
        is_new = runs.order >= old.num_rows
        went_back = _went_back(rows, runs, is_new)
        rewinds = self._facts.rewinds
        if went_back.num_rows:
            rewinds = _most(pa.concat_tables([rewinds, went_back]).combine_chunks())
        minutes = self._take_minutes(rows.slice(old.num_rows))
        kept = pa.array(runs.order[_is_kept(rows, runs, self._limits.window_commits)])
        self._facts = CommitFacts(rows.take(kept).combine_chunks(), rewinds, minutes)

    def _take_minutes(self, rows: pa.Table) -> pa.Table:
        """Count new commits by minute, and return all busy minutes that are over."""
        rows = rows.filter(pc.invert(rows["tombstone"]))
        minute = pa.array(integers(rows["log_timestamp_ms"]) // MS_PER_MINUTE)
        new = rows.select([*PARTITION, "log_timestamp_ms"]).append_column("minute", minute)
        times: dict[str, Figure] = {"first_ms": ("log_timestamp_ms", "min"), "last_ms": ("log_timestamp_ms", "max")}
        counted = aggregated(new, (*PARTITION, "minute"), {"commits": _COUNT} | times).cast(_BY_MINUTE)
        together = pa.concat_tables([self._by_minute, counted])
        summed = aggregated(together, (*PARTITION, "minute"), {"commits": _COMMITS_SUM} | _SPAN)
        is_over = pa.array(_is_over(summed))
        self._by_minute = summed.filter(pc.invert(is_over)).combine_chunks()
        return pa.concat_tables([self._facts.minutes, self._busy(summed.filter(is_over))])

    def _busy(self, by_minute: pa.Table) -> pa.Table:
        figures = {"commits": _COMMITS_SUM, "partitions": _COUNT} | _SPAN
        found = aggregated(by_minute, (*GROUP, "minute"), figures).cast(MINUTES)
        return found.filter(pc.greater(found["commits"], self._limits.storm_commits))


def _is_open(rows: pa.Table) -> pa.ChunkedArray:
    return pc.fill_null(pc.equal(rows["transaction"], OPEN), False)


def _is_kept(rows: pa.Table, runs: Runs, window_commits: int) -> Bools:
    is_open = flags(_is_open(rows))[runs.order]
    is_kept = runs.from_end() <= max(window_commits, WINDOW_COMMITS)
    if is_open.any():
        is_kept |= ~is_open & (runs.from_end(~is_open) <= WINDOW_COMMITS)
        is_kept |= is_open & (runs.from_end(is_open) == 1)
    return is_kept


def _is_over(by_minute: pa.Table) -> Bools:
    minute, group = integers(by_minute["minute"]), key_codes(by_minute, GROUP)
    _, of_group = np.unique(group, return_inverse=True)
    newest = np.full(int(of_group.max(initial=-1)) + 1, np.iinfo(np.int64).min)
    np.maximum.at(newest, of_group, minute)
    return np.asarray(minute < newest[of_group] - LATE_MINUTES, np.bool_)


def _together(minutes: pa.Table) -> pa.Table:
    figures = {"commits": _COMMITS_SUM, "partitions": ("partitions", "max")} | _SPAN
    return aggregated(minutes, (*GROUP, "minute"), figures).cast(MINUTES)


def _went_back(rows: pa.Table, runs: Runs, is_new: Bools) -> pa.Table:
    """Return commits with a lower offset than the one before, unless that is a tombstone."""
    offsets = integers(rows["committed_offset"])[runs.order]
    is_valid = flags(pc.is_valid(rows["committed_offset"]))[runs.order]
    is_back = np.zeros(len(offsets), np.bool_)
    is_back[1:] = ~runs.is_first[1:] & is_valid[1:] & is_valid[:-1] & (offsets[1:] < offsets[:-1])
    back = np.flatnonzero(is_back & is_new)
    found = rows.select([*PARTITION, "log_timestamp_ms", "log_offset", "committed_offset"])
    found = found.take(pa.array(runs.order[back]))
    figures = {
        "count": np.ones(len(back), np.int64),
        "by": offsets[back - 1] - offsets[back] if len(back) else offsets[:0],
    }
    columns = {name: pa.array(values) for name, values in figures.items()}
    columns |= dict.fromkeys(("first_ms", "last_ms"), found["log_timestamp_ms"])
    columns |= {"log_offset": found["log_offset"], "to": found["committed_offset"]}
    return pa.table({name: found[name] for name in PARTITION} | columns, REWINDS)


def _most(rewinds: pa.Table) -> pa.Table:
    """Merge the rewinds of each partition: keep the largest, with total count and times."""
    size = ("by", "log_offset", "to")
    in_order = rewinds.sort_by([(name, "ascending") for name in size])
    figures = {"count": ("count", "sum")} | _SPAN | {name: (name, "last") for name in size}
    return aggregated(in_order, PARTITION, figures, use_threads=False).cast(REWINDS)
