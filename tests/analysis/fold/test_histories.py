"""Histories of groups from columns: gathered commits give the same as single ones."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path

import pyarrow.compute as pc
from hypothesis import given, settings, strategies as st

from groupcoord.analysis.decode.parquet import ResultDirectory
from groupcoord.analysis.decode.schema import KIND_RECORD, RECORDS
from groupcoord.analysis.fold.histories import feed_history, folded_histories
from groupcoord.analysis.fold.history import LogHistory
from groupcoord.analysis.fold.records import decode_records, read_back
from groupcoord.analysis.pipeline.sources import LogSource
from groupcoord.testing.logs import GeneratedLog, logs, record_bytes, records

from ...bench.spark_logs import write_log
from .grouped_rows import all_records, grouped
from .history.consumer_story import crew, moving, write_story
from .history.whole_logs import rows_of_logs

FEW_ROWS = 997
"""So many rows are fed at a time: stretches between a group's records lie across them."""


def told_by_batches(folder: Path) -> list[str]:
    """Return the history from reading the files batch by batch and commit by commit."""
    rows = rows_of_logs(folder)
    return sorted(repr((row.kind, {"group_id": row.group_id, **row.values})) for row in rows)


def told_by_columns(folder: Path, out: Path) -> list[str]:
    results = ResultDirectory(out)
    decoded = decode_records(LogSource([folder]).tasks(), results, lambda done, total: None)
    told = []
    for partition in decoded.partitions:
        history = LogHistory(partition.number)
        for span in decoded.spans(partition):
            history.add_span(*span)
        for found in read_back(results, partition, RECORDS.names, [KIND_RECORD]):
            rows = found.filter((pc.field("problem").is_null()) & pc.field("group_id").is_valid())
            for start in range(0, rows.num_rows, FEW_ROWS):
                feed_history(history, rows.slice(start, FEW_ROWS))
        told += [repr((row.kind, {"group_id": row.group_id, **row.values})) for row in history.rows()]
    return sorted(told)


def told_by_groups(folder: Path) -> list[str]:
    rows = grouped(all_records(folder))
    parts = [rows.slice(start, FEW_ROWS) for start in range(0, rows.num_rows, FEW_ROWS)]
    return sorted(repr((kind, {"group_id": key[1], **row})) for key, kind, row in folded_histories(parts, None))


def test_histories_are_those_of_every_commit(broker_log: Path, tmp_path: Path) -> None:
    """Of a real broker's log, of consumer groups, and of many groups that rebalance."""
    write_log(tmp_path / "log", records=20_000, partitions=2, groups=20)
    story = write_story(tmp_path / "story", crew, moving) / "__consumer_offsets-0"
    shutil.move(story, tmp_path / "log" / "__consumer_offsets-7")
    for number, folder in enumerate((broker_log, tmp_path / "log")):
        assert told_by_columns(folder, tmp_path / f"out-{number}") == told_by_batches(folder) == told_by_groups(folder)


FEW_GROUPS = logs(keys_and_values=record_bytes(records=records(group_ids=st.sampled_from("ab"))), max_batches=12)


@settings(max_examples=30)
@given(FEW_GROUPS)
def test_histories_of_random_logs(log: GeneratedLog) -> None:
    """Every record type and version, every format and codec, transactions, and what compaction leaves."""
    if log.data:
        with tempfile.TemporaryDirectory() as name:
            path = Path(name) / "log" / "__consumer_offsets-3" / f"{0:020d}.log"
            path.parent.mkdir(parents=True)
            path.write_bytes(log.data)
            folder = Path(name) / "log"
            assert told_by_columns(folder, Path(name) / "out") == told_by_batches(folder) == told_by_groups(folder)
