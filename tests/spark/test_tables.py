"""The tables of a real broker's log are what the broker knew, and small logs give what can be worked out by hand."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import (
    DataFrame,
    SparkSession,
    functions as F,  # noqa: N812
)

import groupcoord.spark as pipeline
from groupcoord.analysis.decode.parquet import LATEST_MS, with_times
from groupcoord.cli import main
from groupcoord.spark.schemas import (
    RECORDS,
)


def rows(table: DataFrame) -> list[dict[str, Any]]:
    return [row.asDict() for row in table.collect()]


def in_order(table: DataFrame) -> list[dict[str, Any]]:
    """Return all rows of a small table in order of the log."""
    return rows(table.orderBy("log_partition", "log_offset"))


def test_counts_are_those_of_dump(
    broker_records: DataFrame, broker_log: Path, capfdbinary: pytest.CaptureFixture[bytes]
) -> None:
    """As many records of each type are read as ``groupcoord dump`` prints."""
    with pytest.raises(SystemExit, match="0"):
        main(["dump", str(broker_log)])
    dumped: Counter[tuple[int, str, int | None]] = Counter()
    for line in capfdbinary.readouterr().out.splitlines():
        record = json.loads(line)
        key = record["key"]
        is_control = "version" in key
        number = key["data"]["type"] if is_control else key["type"]
        dumped[record["partition"], "control" if is_control else "record", number] += 1
    counted = {
        (row.log_partition, row.kind, row.control_type if row.kind == "control" else row.record_type): row["count"]
        for row in pipeline.read_counts(broker_records).where("kind in ('record', 'control')").collect()
    }

    assert counted == dumped


def test_every_byte_is_accounted_for(broker_records: DataFrame, broker_log: Path) -> None:
    """The ranges that were read add up to the files, and nothing is corrupt or unknown."""
    counts = rows(pipeline.read_counts(broker_records))
    file_bytes = sum(path.stat().st_size for path in broker_log.glob("*/*.log"))

    assert sum(row["size_bytes"] for row in counts if row["kind"] == "read") == file_bytes
    assert not [row for row in counts if row["kind"] == "corrupt" or row["problem"]]


def test_tables_of_offsets_need_few_columns(broker_records: DataFrame, spark: SparkSession, broker_log: Path) -> None:
    few = pipeline.read_log(spark, broker_log, columns=pipeline.COMMIT_COLUMNS)

    assert few.columns == [name for name in RECORDS.fieldNames() if name in pipeline.COMMIT_COLUMNS]
    assert in_order(pipeline.commits(few)) == in_order(pipeline.commits(broker_records))
    of_commits = pipeline.current_offsets(pipeline.commits(broker_records))
    assert in_order(pipeline.current_offsets(few)) == in_order(of_commits)


def test_timestamps_are_those_of_arrow(spark: SparkSession) -> None:
    """Whether Spark or a worker writes a table: the timestamps are equal, also at the ends of the calendar."""
    moments = [0, 1_700_000_000_123, LATEST_MS, None, -1, LATEST_MS + 1, 2**63 - 1]
    table = spark.createDataFrame([(moment, 5) for moment in moments], "started_ms long, took_ms long")
    found = pipeline.with_times(table)
    expected = with_times(pa.table({"started_ms": pa.array(moments, pa.int64()), "took_ms": [5] * len(moments)}))

    assert found.columns == pipeline.with_times(found).columns == expected.column_names
    told = [row.at_us for row in found.select(F.unix_micros("started_utc").alias("at_us")).collect()]
    assert told == expected["started_utc"].cast(pa.int64()).to_pylist()
