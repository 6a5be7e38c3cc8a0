"""Fold of one log partition: its records to the histories of its groups and the facts of their commits."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from groupcoord.analysis.decode.parquet import WRITTEN_COMMITS
from groupcoord.analysis.decode.schema import KIND_RECORD, RECORDS
from groupcoord.analysis.fold.commits import CommitFacts, CommitFold, Markers, commits, is_marker
from groupcoord.analysis.fold.histories import feed_history
from groupcoord.analysis.fold.history import KINDS, LogHistory
from groupcoord.analysis.fold.records import BATCH_ROWS, Span, of_partition, read_spans, sorted_by_offset

Row = dict[str, Any]

_NEEDED = frozenset(
    ("kind", "record_type", "problem", "key", "value", "partition_leader_epoch", "is_transactional")
).union(WRITTEN_COMMITS.names)

FOLDED_COLUMNS = tuple(name for name in RECORDS.names if name in _NEEDED)
"""The columns of the table of records that :meth:`PartitionFold.add` needs, besides ``log_partition``."""

DECODED_COLUMNS = (*FOLDED_COLUMNS, "control_type", "end_offset", "complete_from")
"""The columns of the table of records that :func:`fold_batches` needs."""


class PartitionFold:
    """Folds the records of one log partition, in the order of their offsets.

    Args:
        number: of the log partition; None if it is not known.
        markers: the transaction markers of the whole log partition.
        spans: the ranges of offsets that were read; see :meth:`groupcoord.analysis.fold.history.LogHistory.add_span`.
    """

    def __init__(self, number: int | None, markers: Markers, spans: Iterable[Span]) -> None:
        self._markers = markers
        self._commits = CommitFold()
        self._history = LogHistory(number)
        for span in spans:
            self._history.add_span(*span)

    def add(self, records: pa.Table) -> pa.Table:
        """Fold records, and return the commits among them (:data:`groupcoord.analysis.decode.schema.COMMITS`)."""
        is_understood = pc.and_(pc.is_null(records["problem"]), pc.is_valid(records["group_id"]))
        feed_history(self._history, records.filter(is_understood))
        found = commits(records, self._markers)
        self._commits.add(found)
        return found

    def facts(self) -> CommitFacts:
        """Return the facts of the commits."""
        return self._commits.facts()

    def rows_by_kind(self) -> dict[str, list[Row]]:
        """Return the rows of the histories by kind, each with its group and log partition."""
        found: dict[str, list[Row]] = {kind: [] for kind in KINDS}
        for row in self._history.rows():
            found[row.kind].append({"group_id": row.group_id, "log_partition": row.log_partition} | row.values)
        return found


def fold_batches(number: int | None, batches: Iterable[pa.RecordBatch]) -> PartitionFold:
    """Return the fold of a log partition from its rows, which are held in memory, whatever their order.

    Args:
        number: of the log partition; None if it is not known.
        batches: rows of the table of records, with :data:`DECODED_COLUMNS`.
    """
    empty = RECORDS.empty_table().select(DECODED_COLUMNS)
    rows = pa.concat_tables([empty, *(pa.Table.from_batches([batch.select(DECODED_COLUMNS)]) for batch in batches)])
    fold = PartitionFold(number, Markers(rows.filter(is_marker(rows))), read_spans(rows))
    records = sorted_by_offset(rows.filter(pc.equal(rows["kind"], KIND_RECORD)))
    for batch in records.to_batches(BATCH_ROWS):
        fold.add(of_partition(batch, number))
    return fold
