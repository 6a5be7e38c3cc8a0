"""The fold of rows that are sorted by group: histories as the groups go by, one group at a time, however hot it is."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import groupby
from operator import itemgetter

import pyarrow as pa
import pyarrow.compute as pc

from groupcoord.analysis.fold.commits import GROUP
from groupcoord.analysis.fold.histories import ENTRY_COLUMNS, GroupKey, entries_of
from groupcoord.analysis.fold.history import FoldOptions, GroupFold, Row
from groupcoord.analysis.fold.history.log_history import feed_fold
from groupcoord.records.structures import uuid_text

GROUPED_COLUMNS = (*ENTRY_COLUMNS, "complete_from")
"""The columns that are needed: ``complete_from`` is the offset from which on no record of the log partition is missing.

Before the records of a group rows without a record type name its topics: ``topic_id`` and ``topic``.
"""

HistoryRow = tuple[GroupKey, str, Row]
"""A group, a kind (:data:`groupcoord.analysis.fold.history.KINDS`) and the values of a row."""


def folded_histories(batches: Iterable[pa.Table], session_timeout_ms: int | None) -> Iterator[HistoryRow]:
    """Yield the rows of the groups' histories.

    Args:
        batches: rows with :data:`GROUPED_COLUMNS`, in order of group and log.
        session_timeout_ms: see :class:`groupcoord.analysis.fold.history.LogHistory`.
    """
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
    """Return the groups in order."""
    pairs = zip(*(batch[name].to_pylist() for name in GROUP), strict=True)
    return [key for key, _ in groupby(pairs)]


def _names_of(batch: pa.Table) -> dict[GroupKey, list[tuple[bytes, str]]]:
    names: dict[GroupKey, list[tuple[bytes, str]]] = {}
    for row in batch.filter(pc.is_null(batch["record_type"])).to_pylist():
        names.setdefault((row["log_partition"], row["group_id"]), []).append((row["topic_id"], row["topic"]))
    return names


def _complete_of(batch: pa.Table) -> dict[int | None, int]:
    told = batch.filter(pc.is_valid(batch["complete_from"])).group_by(["log_partition", "complete_from"]).aggregate([])
    return {row["log_partition"]: row["complete_from"] for row in told.to_pylist()}
