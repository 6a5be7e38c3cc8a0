"""Without Spark comes the same as with it: every table, row by row, and every figure of the page.

Rules are tested where they are; here everything has to come together.
"""

from __future__ import annotations

import shutil
from pathlib import Path
from random import Random
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.pandas.types import to_arrow_schema

import groupcoord.spark as pipeline
from groupcoord.analysis.decode.parquet import ABORTED, COMMITTED, OPEN, with_times
from groupcoord.analysis.fold.commits import Markers, commits, is_marker
from groupcoord.analysis.pipeline.batch import Pipeline
from groupcoord.analysis.pipeline.local_engine import LocalEngine
from groupcoord.analysis.report.data.model import summary
from groupcoord.clock import ManualClock
from groupcoord.spark.engine import SparkEngine
from groupcoord.spark.sources import FOLDED_TABLES

from ..analysis.fold.grouped_rows import all_records
from ..analysis.fold.history.consumer_story import Story, crew, moving, write_story
from ..analysis.fold.small_log import Log, commit
from ..analysis.pipeline.written import columns_of, read_table, sorted_rows, table_names, written_columns
from ..analysis.rules.troubled import write_troubled
from ..bench.spark_logs import write_log

KINDS = {
    *("offset rewind", "commits stopped", "stalled", "commit storm", "rebalance storm", "flapping member"),
    *("duplicate owner", "slow revocation", "fenced member", "never committed", "uneven shares"),
}
OF_RECORDS = {
    "commits": pipeline.commits,
    "current_offsets": pipeline.current_offsets,
    "read_counts": pipeline.read_counts,
    "partition_load": pipeline.partition_load,
}
NOW_MS = 1_800_000_000_000
ENDS = "topic,topic_partition,end_offset\nt,0,1000\nt,1,9\nt-6,0,1000\ntopic-0,0,99999999\n"


def check_same(spark: SparkSession, out: Path, *paths: Path, end_offsets: Path | None = None) -> None:
    """Analyze logs with both engines, and compare all that is written."""
    ends = None if end_offsets is None else str(end_offsets)
    options: dict[str, Any] = {"end_offsets": ends, "verifies": True, "clock": ManualClock(NOW_MS)}
    on_spark = Pipeline(SparkEngine(spark), paths, out / "spark", **options).run()
    here = Pipeline(LocalEngine(), paths, out / "local", **options).run()

    assert table_names(out / "local") == table_names(out / "spark")
    for name in table_names(out / "spark"):
        check_same_table(out, name)
    assert rounded(summary(here)) == rounded(summary(on_spark))


def check_same_table(out: Path, name: str) -> None:
    """Compare one table: its columns and their types as declared, and every row."""
    check_same_rows(read_table(out / "spark", name), read_table(out / "local", name), name)


def check_same_rows(one: pa.Table, other: pa.Table, name: str) -> None:
    """Compare the rows of a table, and its columns."""
    for table in (one, other):
        assert not table.num_rows or columns_of(table) == written_columns(name), name
    assert sorted_rows(other) == sorted_rows(one), name


def rounded(value: Any) -> Any:
    """Return figures rounded, since sums may be in another order."""
    if isinstance(value, float):
        return round(value, 9)
    if isinstance(value, dict):
        return {key: rounded(one) for key, one in value.items()}
    return [rounded(one) for one in value] if isinstance(value, list | tuple) else value


def write_ends(folder: Path) -> Path:
    path = folder / "ends.csv"
    path.write_text(ENDS, "utf-8")
    return path


def test_tables_of_offsets_are_the_same(broker_records: DataFrame, broker_log: Path, tmp_path: Path) -> None:
    """A real broker's commits, also in transactions; the slow tests compare everything."""
    Pipeline(LocalEngine(), [broker_log], tmp_path).run()
    for name, make in OF_RECORDS.items():
        check_same_rows(arrow(make(broker_records)), read_table(tmp_path, name), name)


def test_the_format_folds_each_log_partition(spark: SparkSession, broker_log: Path, tmp_path: Path) -> None:
    """The option ``table`` gives the rows and columns that ``analyze`` writes, one log partition in each task."""
    write_every_trouble(tmp_path / "log")
    Pipeline(LocalEngine(), [broker_log, tmp_path / "log"], tmp_path / "out").run()
    paths = [str(broker_log), str(tmp_path / "log")]
    partitions = {folder.name for path in paths for folder in Path(path).glob("__consumer_offsets-*")}
    for name in FOLDED_TABLES:
        reader = spark.read.format("groupcoord").option("table", name)
        table = reader.load(paths)
        rows = arrow(table)
        check_same_rows(rows, read_table(tmp_path / "out", name), name)

        assert rows.num_rows, name
        assert reader.option("timestamps", True).load(paths).columns == list(written_columns(name)), name
        assert table.rdd.getNumPartitions() == len(partitions), name


def test_transactions_end_with_the_next_marker_of_their_producer(spark: SparkSession, tmp_path: Path) -> None:
    """The rule for Arrow and the one in SQL give what a walk through a log of random transactions gives."""
    draw, wanted = Random(1), {}
    for partition in range(3):
        log = Log(tmp_path, partition)
        begun: dict[int, list[tuple[int, int]]] = {}
        for offset in range(120):
            producer = draw.randrange(-1, 3)
            if producer >= 0 and draw.random() < 0.3:
                is_committed = draw.random() < 0.7
                log.end(producer, committed=is_committed)
                wanted |= dict.fromkeys(begun.pop(producer, ()), COMMITTED if is_committed else ABORTED)
            else:
                log.add(commit(draw.randrange(4), offset, producer), producer_id=producer)
                wanted[partition, offset] = None if producer < 0 else OPEN
                if producer >= 0:
                    begun.setdefault(producer, []).append((partition, offset))
    by_sql = pipeline.commits(pipeline.read_log(spark, tmp_path)).collect()
    by_arrow: list[dict[str, Any]] = []
    for number in range(3):
        records = all_records(tmp_path / f"__consumer_offsets-{number}")
        by_arrow += commits(records, Markers([records.filter(is_marker(records))])).to_pylist()

    for found in (by_sql, by_arrow):
        outcomes = {(row["log_partition"], row["log_offset"]): row["transaction"] for row in found}
        assert outcomes == {place: outcome for place, outcome in wanted.items() if outcome != ABORTED}
    assert set(wanted.values()) == {None, COMMITTED, ABORTED, OPEN}


def arrow(table: DataFrame) -> pa.Table:
    """Return a table of Spark's as one of Arrow's."""
    rows = [row.asDict(recursive=True) for row in table.collect()]
    return with_times(pa.Table.from_pylist(rows, to_arrow_schema(table.schema)))


def dawdle(story: Story) -> None:
    """A member takes 40 s to give partitions up, and has a minute."""
    story.join("hal", rebalance_timeout_ms=60_000)
    story.live_until(story.clock.now_ms() + 10_000)
    story.clients["hal"].gives_up_ms = 40_000
    story.join("ida")
    story.live_until(story.clock.now_ms() + 60_000)


def write_every_trouble(folder: Path) -> None:
    """Write a log with every kind of anomaly."""
    write_troubled(folder)
    log = Log(folder, 1)
    for step in range(700):
        log.commit(560_000 + step, "hasty", step)
    for step in range(12):
        log.commit(590_000 + 100 * step, "stuck", 7)
    log.generation(200_000, "lopsided", 1, a1=[0, 1], b1=[])
    story = write_story(folder / "story", crew, dawdle)
    shutil.move(story / "__consumer_offsets-0", folder / "__consumer_offsets-2")


@pytest.mark.slow
def test_troubles_are_the_same(spark: SparkSession, tmp_path: Path) -> None:
    """A small log with every kind of anomaly."""
    write_every_trouble(tmp_path / "log")
    check_same(spark, tmp_path / "out", tmp_path / "log", end_offsets=write_ends(tmp_path))
    found = read_table(tmp_path / "out" / "local", "anomalies")

    assert set(found["kind"].to_pylist()) == KINDS


@pytest.mark.slow
def test_logs_of_brokers_and_stories_are_the_same(spark: SparkSession, broker_log: Path, tmp_path: Path) -> None:
    """A real broker's log, consumer groups, many groups that rebalance, transactions, a torn tail and a copy."""
    write_log(tmp_path / "log", records=60_000, partitions=3, groups=40)
    for number, story in enumerate((crew, moving)):
        folder = write_story(tmp_path / f"story-{number}", story) / "__consumer_offsets-0"
        shutil.move(folder, tmp_path / "log" / f"__consumer_offsets-{40 + number}")
    torn = tmp_path / "log" / "__consumer_offsets-45" / f"{0:020d}.log"
    torn.parent.mkdir()
    torn.write_bytes(b"torn")
    nameless = tmp_path / "copy" / f"{0:020d}.log"
    nameless.parent.mkdir()
    shutil.copy(tmp_path / "log" / "__consumer_offsets-40" / nameless.name, nameless)
    paths = (broker_log, tmp_path / "log")
    check_same(spark, tmp_path / "out", *paths, end_offsets=write_ends(tmp_path))
    check_same(spark, tmp_path / "nameless", nameless)
