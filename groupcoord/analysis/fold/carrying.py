"""A log partition that is carried on: its groups and commits in memory, folded by what comes to the log.

What is known at any moment is what one reading of the log up to there would give. Commits are folded up to the first
one of a transaction that is open; what lies behind it waits for the marker, as consumers do that read committed.
"""

from __future__ import annotations

import pickle
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from attrs import define, field

from groupcoord.analysis.decode.commits import OPEN
from groupcoord.analysis.decode.schema import KIND_CONTROL, KIND_READ, KIND_RECORD
from groupcoord.analysis.fold.arrow import every, integers, is_offset_record
from groupcoord.analysis.fold.commits import CommitFacts, CommitFold
from groupcoord.analysis.fold.histories import entries_of
from groupcoord.analysis.fold.history import FoldOptions, GroupFold
from groupcoord.analysis.fold.history.log_history import Completeness, feed_fold
from groupcoord.analysis.fold.history.rows import named
from groupcoord.analysis.fold.transactions import MARKER_COLUMNS, Markers, commits, is_marker
from groupcoord.records.structures import uuid_text

Row = dict[str, Any]
Told = tuple[str, Row]
"""A kind (:data:`groupcoord.analysis.fold.history.KINDS`), and a row with the group and its log partition."""

HELD_MAX = 1_048_576
"""So many commits wait at most for the end of a transaction; then they are folded as they are."""


@define
class _Group:
    """A group that is carried on.

    Attributes:
        fold: its history so far.
        ends: the rows that hold as long as nothing follows; None: they are to be made anew.
    """

    fold: GroupFold
    ends: list[Told] | None = None


@define
class CarriedLog:
    """A log partition, as far as it was read.

    Attributes:
        number: which it is; None if that is not known.
        last_timestamp_ms: of its records; None: there are none.
    """

    number: int | None
    last_timestamp_ms: int | None = None
    _options: FoldOptions = field(factory=FoldOptions)
    _groups: dict[str, _Group] = field(factory=dict)
    _complete: Completeness = field(factory=Completeness)
    _next_offset: int = 0
    _commits: CommitFold = field(factory=CommitFold)
    _held: list[pa.Table] = field(factory=list)
    _markers: list[pa.Table] = field(factory=list)

    def add(self, rows: pa.Table) -> list[Told]:
        """Take rows of the table of records in the order of the log, and return what became certain by them.

        What was taken before is passed over.
        """
        self._note_spans(rows)
        is_logged = pc.is_in(rows["kind"], pa.array([KIND_RECORD, KIND_CONTROL]))
        new = rows.filter(every(is_logged, pc.greater_equal(rows["log_offset"], self._next_offset)))
        if not new.num_rows:
            return []
        self._next_offset = int(integers(new["log_offset"]).max()) + 1
        records = new.filter(pc.equal(new["kind"], KIND_RECORD))
        times_ms = [self.last_timestamp_ms, pc.max(records["log_timestamp_ms"]).as_py()]
        self.last_timestamp_ms = max((one for one in times_ms if one is not None), default=None)
        self._fold_commits(new)
        is_understood = every(pc.is_null(records["problem"]), pc.is_valid(records["group_id"]))
        return self._fold_groups(records.filter(is_understood))

    def facts(self) -> CommitFacts:
        """Return what is known of commits."""
        if not self._held:
            return self._commits.facts()
        return self._commits.facts_with(commits(pa.concat_tables(self._held), self._all_markers()))

    def ends(self) -> Iterator[Told]:
        """Yield the rows of the history that hold as long as nothing follows: the groups, and what is under way."""
        for group_id, group in self._groups.items():
            if group.ends is None:
                fold: GroupFold = pickle.loads(pickle.dumps(group.fold))
                fold.finish()
                group.ends = self._told(group_id, fold)
            yield from group.ends

    def named(self, row: Row) -> Row:
        """Return a row with the names of topics that the group committed for the first time later."""
        names = self._groups[row["group_id"]].fold.topic_names
        return named(row, names) if names else row

    # ------------------------------------------------------------ histories

    def _note_spans(self, rows: pa.Table) -> None:
        spans = rows.filter(every(pc.equal(rows["kind"], KIND_READ), pc.is_valid(rows["complete_from"])))
        for span in spans.select(["log_offset", "end_offset", "complete_from"]).to_pylist():
            if span["end_offset"] > self._complete.end:
                self._complete = self._complete.behind(*span.values())
        self._options.complete_from = self._complete.complete_from

    def _fold_groups(self, records: pa.Table) -> list[Told]:
        learned = records.filter(pc.and_(pc.is_valid(records["topic_id"]), pc.is_valid(records["topic"])))
        for name in learned.group_by(["group_id", "topic_id", "topic"]).aggregate([]).to_pylist():
            self._group(name["group_id"]).fold.name_topic(uuid_text(name["topic_id"]), name["topic"])
        told: list[Told] = []
        for (_, group_id), entry in entries_of(records):
            group = self._group(group_id)
            feed_fold(group.fold, entry)
            told += self._told(group_id, group.fold)
        return told

    def _group(self, group_id: str) -> _Group:
        group = self._groups.get(group_id)
        if group is None:
            group = self._groups[group_id] = _Group(GroupFold(group_id, self.number, self._options))
        group.ends = None
        return group

    def _told(self, group_id: str, fold: GroupFold) -> list[Told]:
        of = {"group_id": group_id, "log_partition": self.number}
        return [(kind, of | row) for kind, row in fold.take_rows()]

    # ------------------------------------------------------------ commits

    def _fold_commits(self, rows: pa.Table) -> None:
        markers = rows.filter(is_marker(rows)).select(MARKER_COLUMNS)
        if markers.num_rows:
            self._markers.append(markers)
        is_due = bool(markers.num_rows) or not self._held
        new = rows.filter(is_offset_record(rows))
        if new.num_rows:
            self._held.append(new)
        if self._held and (is_due or self._is_full()):
            self._let_go()

    def _is_full(self) -> bool:
        return sum(int(one.num_rows) for one in self._held) > HELD_MAX

    def _let_go(self) -> None:
        """Fold what lies before the first commit of a transaction that is open."""
        held = pa.concat_tables(self._held)
        found = commits(held, self._all_markers())
        is_open = pc.fill_null(pc.equal(found["transaction"], OPEN), False)
        first = pc.min(found["log_offset"].filter(is_open)).as_py()
        if first is None or self._is_full():
            first = self._next_offset
        self._commits.add(found.filter(pc.less(found["log_offset"], first)))
        left = held.filter(pc.greater_equal(held["log_offset"], first))
        self._held = [left] if left.num_rows else []
        self._markers = [one for one in self._markers if left.num_rows and pc.max(one["log_offset"]).as_py() > first]

    def _all_markers(self) -> Markers:
        return Markers(pa.concat_tables(self._markers) if self._markers else None)
