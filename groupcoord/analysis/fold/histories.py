"""Histories of groups from the rows of a log partition: read once, grouped on Spark, or kept while the log grows.

A :class:`CarriedLog` equals, at any moment, the result of one reading of the log up to there. Commits after the first
of an open transaction wait for its marker, as consumers with ``read_committed`` do.
"""

from __future__ import annotations

import pickle
from collections.abc import Iterable, Iterator
from itertools import groupby
from operator import itemgetter
from uuid import UUID

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from attrs import define, field

from groupcoord.analysis.decode.parquet import (
    OFFSET_TYPES,
    OPEN,
    every,
    flags,
    integers,
    is_offset_record,
    key_codes,
    last_rows,
)
from groupcoord.analysis.decode.schema import KIND_CONTROL, KIND_READ, KIND_RECORD
from groupcoord.analysis.fold.commits import GROUP, MARKER_COLUMNS, CommitFacts, CommitFold, Markers, commits, is_marker
from groupcoord.analysis.fold.history import FoldOptions, GroupFold, GroupRecord, LastCommit, LogHistory, Row
from groupcoord.analysis.fold.history.log_history import Completeness, feed_fold
from groupcoord.analysis.fold.history.rows import named
from groupcoord.records.schemas import RecordType
from groupcoord.schema.engine import uuid_text

GroupKey = tuple[int | None, str]
Entry = tuple[GroupKey, GroupRecord | LastCommit]

ENTRY_COLUMNS = (
    *("log_partition", "group_id", "log_offset", "log_timestamp_ms", "record_type", "tombstone", "key", "value"),
    *("partition_leader_epoch", "topic", "topic_partition", "topic_id", "is_transactional"),
)
_NO_EPOCH = -1
_RECORD = ("row", *GROUP, "log_offset", "log_timestamp_ms", "key", "value", "partition_leader_epoch")
_COMMIT = ("row", *GROUP, "log_offset", "log_timestamp_ms", "topic", "topic_partition")


Span = tuple[int, int, int]
"""A range of offsets: the first, the one after the last, and the one from which on none is missing."""


def read_spans(records: pa.Table) -> list[Span]:
    """Return the ranges that were read, from rows of one log partition."""
    found = records.filter(every(pc.equal(records["kind"], KIND_READ), pc.is_valid(records["complete_from"])))
    return [tuple(row.values()) for row in found.select(["log_offset", "end_offset", "complete_from"]).to_pylist()]


def entries_of(records: pa.Table) -> list[Entry]:
    is_group = pc.greater(records["record_type"], int(RecordType.OFFSET_COMMIT))
    is_offset = pc.is_in(records["record_type"], pa.array(OFFSET_TYPES, pa.int16()))
    is_commit = every(is_offset, pc.invert(records["tombstone"]))
    rows = records.append_column("row", pa.array(np.arange(records.num_rows))).append_column("is_group", is_group)
    rows = rows.filter(pc.or_(pc.fill_null(is_group, False), is_commit))
    is_group = flags(rows["is_group"])
    # Between two records of its group a commit belongs to the first; these stretches are numbered over all groups.
    order = np.argsort(key_codes(rows, GROUP), kind="stable")
    stretch = np.empty(len(order), np.int64)
    stretch[order] = np.cumsum(is_group[order])
    commits = rows.append_column("stretch", pa.array(stretch)).filter(pa.array(~is_group))
    found = [*_group_records(rows.filter(pa.array(is_group))), *_last_commits(commits)]
    return [entry for _, entry in sorted(found, key=itemgetter(0))]


def feed_history(history: LogHistory, records: pa.Table) -> None:
    for group_id, topic_id, topic in _topic_names(records):
        history.name_topic(group_id, UUID(bytes=topic_id), topic)
    for (_, group_id), entry in entries_of(records):
        if isinstance(entry, GroupRecord):
            history.add_record(group_id, entry)
        else:
            history.add_commit(group_id, entry)


def _topic_names(records: pa.Table) -> Iterator[tuple[str, bytes, str]]:
    named = records.filter(pc.and_(pc.is_valid(records["topic_id"]), pc.is_valid(records["topic"])))
    for name in named.group_by(["group_id", "topic_id", "topic"]).aggregate([]).to_pylist():
        yield name["group_id"], name["topic_id"], name["topic"]


def _group_records(rows: pa.Table) -> Iterator[tuple[int, Entry]]:
    columns = (rows[name].to_pylist() for name in _RECORD)
    for row, partition, group_id, log_offset, at_ms, key, value, epoch in zip(*columns, strict=True):
        known_epoch = None if epoch == _NO_EPOCH else epoch
        yield row, ((partition, group_id), GroupRecord(log_offset, at_ms, key, value, known_epoch))


def _last_commits(commits: pa.Table) -> Iterator[tuple[int, Entry]]:
    """Yield the last commit of each partition between two group records; for transactions, of any partition."""
    is_transactional = flags(commits["is_transactional"])
    plain = last_rows(commits.filter(pa.array(~is_transactional)), (*GROUP, "stretch", "topic", "topic_partition"))
    for row, partition, group_id, log_offset, at_ms, *place in zip(*_columns(plain), strict=True):
        yield row, ((partition, group_id), LastCommit(log_offset, at_ms, (place[0], place[1])))
    made = last_rows(commits.filter(pa.array(is_transactional)), (*GROUP, "stretch"))
    for row, partition, group_id, log_offset, at_ms, *_ in zip(*_columns(made), strict=True):
        yield row, ((partition, group_id), LastCommit(log_offset, at_ms, None))


def _columns(rows: pa.Table) -> list[list[object]]:
    return [rows[name].to_pylist() for name in _COMMIT]


GROUPED_COLUMNS = (*ENTRY_COLUMNS, "complete_from")
"""Required columns. Before the records of a group, rows without a record type name its topics."""

HistoryRow = tuple[GroupKey, str, Row]


def folded_histories(batches: Iterable[pa.Table], session_timeout_ms: int | None) -> Iterator[HistoryRow]:
    """Yield history rows from records that are sorted by group."""
    fold: GroupFold | None = None
    key: GroupKey | None = None
    for batch in batches:
        names, complete = _names_of(batch), _complete_of(batch)
        entries = {of: [entry for _, entry in some] for of, some in groupby(entries_of(batch), itemgetter(0))}
        for of in _keys_of(batch):
            if fold is None or of != key:
                yield from _finished(key, fold)
                fold, key = GroupFold(of[1], of[0], FoldOptions(session_timeout_ms)), of
            fold.options.complete_from = complete.get(of[0], fold.options.complete_from)
            for topic_id, topic in names.get(of, ()):
                fold.name_topic(uuid_text(topic_id), topic)
            for entry in entries.get(of, ()):
                feed_fold(fold, entry)
                yield from _taken(of, fold)
    yield from _finished(key, fold)


def _finished(key: GroupKey | None, fold: GroupFold | None) -> Iterator[HistoryRow]:
    if fold is not None and key is not None:
        fold.finish()
        yield from _taken(key, fold)


def _taken(key: GroupKey, fold: GroupFold) -> Iterator[HistoryRow]:
    yield from ((key, kind, row) for kind, row in fold.take_rows())


def _keys_of(batch: pa.Table) -> list[GroupKey]:
    pairs = zip(*(batch[name].to_pylist() for name in GROUP), strict=True)
    return [key for key, _ in groupby(pairs)]


def _names_of(batch: pa.Table) -> dict[GroupKey, list[tuple[bytes, str]]]:
    names: dict[GroupKey, list[tuple[bytes, str]]] = {}
    for row in batch.filter(pc.is_null(batch["record_type"])).to_pylist():
        names.setdefault((row["log_partition"], row["group_id"]), []).append((row["topic_id"], row["topic"]))
    return names


def _complete_of(batch: pa.Table) -> dict[int | None, int]:
    spans = batch.filter(pc.is_valid(batch["complete_from"])).group_by(["log_partition", "complete_from"]).aggregate([])
    return {row["log_partition"]: row["complete_from"] for row in spans.to_pylist()}


KindRow = tuple[str, Row]
HELD_MAX = 1_048_576
"""Number of commits that may wait for the end of a transaction; beyond it they are folded at once."""


@define
class _Group:
    """A group of a growing log; ``ends`` are its rows if the log ended here, None if outdated."""

    fold: GroupFold
    ends: list[KindRow] | None = None


@define
class CarriedLog:
    """A growing log partition; ``last_timestamp_ms`` is None without records."""

    number: int | None
    last_timestamp_ms: int | None = None
    _options: FoldOptions = field(factory=FoldOptions)
    _groups: dict[str, _Group] = field(factory=dict)
    _complete: Completeness = field(factory=Completeness)
    _next_offset: int = 0
    _commits: CommitFold = field(factory=CommitFold)
    _held: list[pa.Table] = field(factory=list)
    _markers: list[pa.Table] = field(factory=list)

    def add(self, rows: pa.Table) -> list[KindRow]:
        """Add rows in log order, and return the history rows that they complete; rows added before are skipped."""
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
        if not self._held:
            return self._commits.facts()
        return self._commits.facts_with(commits(pa.concat_tables(self._held), Markers(self._markers)))

    def ends(self) -> Iterator[KindRow]:
        """Yield the history rows that hold if the log ends here: groups, and unfinished rebalances."""
        for group_id, group in self._groups.items():
            if group.ends is None:
                fold: GroupFold = pickle.loads(pickle.dumps(group.fold))
                fold.finish()
                group.ends = self._take_rows(group_id, fold)
            yield from group.ends

    def named(self, row: Row) -> Row:
        names = self._groups[row["group_id"]].fold.topic_names
        return named(row, names) if names else row

    # ------------------------------------------------------------ histories

    def _note_spans(self, rows: pa.Table) -> None:
        for first, end, complete_from in read_spans(rows):
            if end > self._complete.end:
                self._complete = self._complete.behind(first, end, complete_from)
        self._options.complete_from = self._complete.complete_from

    def _fold_groups(self, records: pa.Table) -> list[KindRow]:
        for group_id, topic_id, topic in _topic_names(records):
            self._group(group_id).fold.name_topic(uuid_text(topic_id), topic)
        completed: list[KindRow] = []
        for (_, group_id), entry in entries_of(records):
            group = self._group(group_id)
            feed_fold(group.fold, entry)
            completed += self._take_rows(group_id, group.fold)
        return completed

    def _group(self, group_id: str) -> _Group:
        group = self._groups.get(group_id)
        if group is None:
            group = self._groups[group_id] = _Group(GroupFold(group_id, self.number, self._options))
        group.ends = None
        return group

    def _take_rows(self, group_id: str, fold: GroupFold) -> list[KindRow]:
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
        held = pa.concat_tables(self._held)
        found = commits(held, Markers(self._markers))
        is_open = pc.fill_null(pc.equal(found["transaction"], OPEN), False)
        first = pc.min(found["log_offset"].filter(is_open)).as_py()
        if first is None or self._is_full():
            first = self._next_offset
        self._commits.add(found.filter(pc.less(found["log_offset"], first)))
        left = held.filter(pc.greater_equal(held["log_offset"], first))
        self._held = [left] if left.num_rows else []
        self._markers = [one for one in self._markers if left.num_rows and pc.max(one["log_offset"]).as_py() > first]
