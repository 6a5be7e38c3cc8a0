"""The history of groups out of columns: what is told of commits that were gathered is what all of them tell."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st

from groupcoord.analysis.columns.results import ResultDirectory
from groupcoord.analysis.local.groups import histories
from groupcoord.analysis.local.records import HeldRecords, read_records
from groupcoord.analysis.local.sources import LogSource
from groupcoord.testing.logs import GeneratedLog, logs, record_bytes, records

from ..bench.spark_logs import write_log
from ..history.consumer_story import crew, moving, write_story
from ..history.whole_logs import rows_of_logs

ROWS_MAX = 1_000_000


def held(folder: Path, out: Path) -> HeldRecords:
    """Decode the logs of a folder."""
    tasks = LogSource(frozenset(), None, [folder]).tasks()
    return read_records(tasks, ResultDirectory(out), ROWS_MAX, lambda done, total: None)


def told_by_batches(folder: Path) -> list[str]:
    """Return what the pure reading of the files tells, batch by batch and commit by commit."""
    rows = rows_of_logs(folder)
    return sorted(repr((row.kind, {"group_id": row.group_id, **row.values})) for row in rows)


def told_by_columns(folder: Path, out: Path) -> list[str]:
    """Return the same rows out of columns."""
    found = histories(held(folder, out))
    told = []
    for kind, rows in found.items():
        for row in rows:
            told.append(repr((kind, {name: value for name, value in row.items() if name != "log_partition"})))
    return sorted(told)


def test_histories_are_those_of_every_commit(broker_log: Path, tmp_path: Path) -> None:
    """Of a real broker's log, of consumer groups, and of many groups that rebalance."""
    write_log(tmp_path / "log", records=20_000, partitions=2, groups=20)
    story = write_story(tmp_path / "story", crew, moving) / "__consumer_offsets-0"
    shutil.move(story, tmp_path / "log" / "__consumer_offsets-7")

    for number, folder in enumerate((broker_log, tmp_path / "log")):
        assert told_by_columns(folder, tmp_path / f"out-{number}") == told_by_batches(folder)


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
            assert told_by_columns(folder, Path(name) / "out") == told_by_batches(folder)
