"""Records sorted by group, as input of the fold."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc

from groupcoord.analysis.decode.parquet import every, flags, is_offset_record
from groupcoord.analysis.decode.rows import RowSettings
from groupcoord.analysis.decode.schema import KIND_READ, KIND_RECORD, RECORDS
from groupcoord.analysis.fold.commits import Markers
from groupcoord.analysis.fold.history.log_history import completeness
from groupcoord.analysis.pipeline.sources import LogSource

ORDER = [(name, "ascending") for name in ("log_partition", "group_id", "log_offset")]


def all_records(folder: Path) -> pa.Table:
    batches = [batch for task in LogSource([folder]).tasks() for batch in task.rows(RowSettings())]
    return pa.Table.from_batches(batches, RECORDS)


def grouped(records: pa.Table, markers: Markers | None = None) -> pa.Table:
    """Return records of groups and committed offsets, sorted by group and log, after the names of topics."""
    rows = records.filter(_is_understood(records)).drop_columns(["complete_from"])
    named = every(is_offset_record(rows), pc.invert(rows["tombstone"]), pc.is_valid(rows["topic_id"]))
    keys = ["log_partition", "group_id", "topic_id", "topic"]
    names = rows.filter(named).group_by(keys).aggregate([])
    before = names.append_column("log_offset", pa.array([-1] * names.num_rows, pa.int64()))
    rows = pa.concat_tables([rows, before], promote_options="default")
    complete = {
        partition: _complete_from(records, partition) for partition in records["log_partition"].unique().to_pylist()
    }
    told = [complete[partition] for partition in rows["log_partition"].to_pylist()]
    rows = rows.append_column("complete_from", pa.array(told, pa.int64()))
    outcomes = (markers or Markers()).outcomes(rows)
    is_open = pa.array(flags(rows["is_transactional"]))
    return rows.append_column("transaction", pc.if_else(is_open, outcomes, pa.scalar(None, pa.string()))).sort_by(ORDER)


def _is_understood(records: pa.Table) -> pa.ChunkedArray:
    is_record = every(pc.equal(records["kind"], KIND_RECORD), pc.is_valid(records["record_type"]))
    return every(is_record, pc.is_null(records["problem"]), pc.is_valid(records["group_id"]))


def _complete_from(records: pa.Table, partition: int | None) -> int:
    spans = records.filter(every(pc.equal(records["kind"], KIND_READ), pc.is_valid(records["complete_from"])))
    found = [row for row in spans.to_pylist() if row["log_partition"] == partition]
    return completeness((row["log_offset"], row["end_offset"], row["complete_from"]) for row in found).complete_from
