"""Carrying groups on, as workers do it: whatever comes at a time, the same comes of it as of everything at once."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import fsspec
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from attrs import evolve
from pyspark.sql.pandas.types import to_arrow_schema

from groupcoord.analysis.folding.buckets import BucketFile, BucketFolder, Buckets, bucket_of
from groupcoord.analysis.folding.commits import CommitFold
from groupcoord.analysis.folding.grouped import folded_histories
from groupcoord.analysis.folding.transactions import Markers, commits, is_marker
from groupcoord.analysis.history.state import decode_state
from groupcoord.spark.folding import FOLDED
from groupcoord.spark.stream_fold import CARRIED_ROWS, CarrySettings, carrier, history_row

from ..folding.grouped_rows import all_records, grouped
from ..judging.troubled import write_troubled

BUCKETS = 16


@pytest.fixture(scope="module")
def records(tmp_path_factory: pytest.TempPathFactory) -> pa.Table:
    """The records of groups with every trouble, and their commits, in the order of the log."""
    folder = tmp_path_factory.mktemp("log")
    write_troubled(folder)
    return all_records(folder)


def folded(records: pa.Table, markers: Markers) -> pa.Table:
    """Return what is folded of records (:data:`FOLDED`), sorted by group and log."""
    schema = to_arrow_schema(FOLDED)
    return grouped(records, markers).select(schema.names).cast(schema)


def carried(records: pa.Table, markers: Markers, at_a_time: int, out: Path) -> tuple[list[str], list[str]]:
    """Carry groups on by some records at a time; return the rows of the history, and the offsets that are kept."""
    folder = BucketFolder(fsspec.filesystem("file"), str(out))
    buckets, history = Buckets(BUCKETS), []
    for update, start in enumerate(range(0, records.num_rows, at_a_time)):
        rows = folded(records.slice(start, at_a_time), markers)
        numbers = [bucket_of(group_id, BUCKETS) for group_id in rows["group_id"].to_pylist()]
        rows = rows.append_column("bucket", pa.array(numbers, pa.int32()))
        rows = rows.sort_by([(name, "ascending") for name in ("bucket", "group_id", "log_partition", "log_offset")])
        settings = CarrySettings(None, {}, {}, folder, buckets, update, str(out / f"history-{update}"))
        batches = rows.cast(to_arrow_schema(CARRIED_ROWS)).combine_chunks().to_batches(7)
        (done,) = carrier(settings)(batches)
        files = {
            row["bucket"]: BucketFile(update, row["rows"]) for row in done.to_pylist() if row["bucket"] is not None
        }
        buckets = evolve(buckets, files={**buckets.files, **files})
        history += [row for path in (out / f"history-{update}").glob("*") for row in pq.read_table(path).to_pylist()]
    states = [decode_state(kept.blob) for name in buckets.names().values() for kept in folder.read(name)]
    offsets = []
    for state in states:
        fold = state.fold
        fold.finish()
        history += [history_row(((fold.log_partition, fold.group_id), kind, row)) for kind, row in fold.take_rows()]
        offsets += [repr((fold.group_id, *place, known.committed_offset)) for place, known in state.offsets.items()]
    return sorted(map(told, history)), sorted(offsets)


def told(row: dict[str, Any]) -> str:
    """Return a row of the history in a form that can be compared."""
    values = {name: value for name, value in row[row["kind"]].items() if value is not None}
    return repr((row["group_id"], row["kind"], sorted(values.items())))


@pytest.mark.parametrize("at_a_time", [1, 5, 1_000])
def test_whatever_comes_at_a_time(records: pa.Table, tmp_path: Path, at_a_time: int) -> None:
    """Histories and offsets are those of one pass over each group."""
    markers = Markers(records.filter(is_marker(records)))
    fold = CommitFold()
    fold.add(commits(records, markers))
    current = fold.facts().current_offsets().select(["group_id", "topic", "topic_partition", "committed_offset"])
    once = [history_row(found) for found in folded_histories([folded(records, markers)], None)]
    history, offsets = carried(records, markers, at_a_time, tmp_path)

    assert offsets == sorted(repr(tuple(row.values())) for row in current.to_pylist())
    assert history == sorted(map(told, once))
