"""The tables of a real broker's log are what the broker knew, and small logs give what can be worked out by hand."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.types import StructType

import groupcoord.spark as pipeline
from groupcoord.analysis.decode.parquet import LATEST_MS, with_times
from groupcoord.cli import main
from groupcoord.core.log.records import OffsetTombstone
from groupcoord.spark.schemas import (
    COMMITS,
    CORRUPT,
    CURRENT_OFFSETS,
    END_OFFSETS,
    LAG,
    PARTITION_LOAD,
    READ_COUNTS,
    RECORDS,
)

from ..analysis.fold.small_log import GROUP, TOPIC, Log, commit


def rows(table: DataFrame) -> list[dict[str, Any]]:
    return [row.asDict() for row in table.collect()]


def in_order(table: DataFrame) -> list[dict[str, Any]]:
    """Return all rows of a small table in order of the log."""
    return rows(table.orderBy("log_partition", "log_offset"))


def shape(schema: StructType) -> list[tuple[str, str]]:
    """Return names and types."""
    return [(field.name, field.dataType.simpleString()) for field in schema]


def test_current_offsets_are_those_of_the_broker(broker_records: DataFrame, broker_truth: dict[str, Any]) -> None:
    """Every group has exactly the offsets that the broker listed, with leader epochs and metadata."""
    found: dict[str, dict[str, list[Any]]] = {group_id: {} for group_id in broker_truth["offsets"]}
    for row in pipeline.current_offsets(broker_records).collect():
        value = [row.committed_offset, row.leader_epoch, row.metadata]
        found[row.group_id][f"{row.topic}:{row.topic_partition}"] = value

    assert sum(len(offsets) for offsets in found.values()) == 180
    assert found == broker_truth["offsets"]


def test_open_transactions_are_those_of_the_broker(broker_records: DataFrame, broker_truth: dict[str, Any]) -> None:
    """What a producer had not committed when the broker stopped is open, and nothing else."""
    found: dict[str, dict[str, int]] = {}
    for row in pipeline.commits(broker_records).where("transaction = 'open'").collect():
        found.setdefault(row.group_id, {})[f"{row.topic}:{row.topic_partition}"] = row.committed_offset

    assert found == broker_truth["pending_transaction_offsets"]


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


def test_tables_have_their_declared_schemas(broker_records: DataFrame, spark: SparkSession) -> None:
    """Each function gives the columns that are declared, in order."""
    offsets = pipeline.current_offsets(broker_records)
    ends = spark.createDataFrame([], END_OFFSETS)
    made = {
        "records": (broker_records, RECORDS),
        "commits": (pipeline.commits(broker_records), COMMITS),
        "current_offsets": (offsets, CURRENT_OFFSETS),
        "corrupt": (pipeline.corrupt(broker_records), CORRUPT),
        "read_counts": (pipeline.read_counts(broker_records), READ_COUNTS),
        "partition_load": (pipeline.partition_load(broker_records), PARTITION_LOAD),
        "lag": (pipeline.lag(offsets, ends), LAG),
    }

    for name, (table, schema) in made.items():
        assert shape(table.schema) == shape(schema), name


def test_timestamps_are_those_of_arrow(spark: SparkSession) -> None:
    """Whether Spark or a worker writes a table: moments have the same timestamp, also at the ends of the calendar."""
    moments = [0, 1_700_000_000_123, LATEST_MS, None, -1, LATEST_MS + 1, 2**63 - 1]
    table = spark.createDataFrame([(moment, 5) for moment in moments], "started_ms long, took_ms long")
    found = pipeline.with_times(table)
    expected = with_times(pa.table({"started_ms": pa.array(moments, pa.int64()), "took_ms": [5] * len(moments)}))

    assert found.columns == pipeline.with_times(found).columns == expected.column_names
    told = [row.at_us for row in found.select(F.unix_micros("started_utc").alias("at_us")).collect()]
    assert told == expected["started_utc"].cast(pa.int64()).to_pylist()


def test_transactions_count_once_they_are_committed(spark: SparkSession, tmp_path: Path) -> None:
    """Offsets of committed, aborted, open and superseded transactions are those that a coordinator would answer."""
    log = Log(tmp_path)
    log.add(commit(0, 10, 1), producer_id=1).end(1, committed=True)
    log.add(commit(1, 20)).add(commit(1, 21, 2), producer_id=2).end(2, committed=False)
    log.add(commit(2, 30)).add(commit(2, 31, 3), producer_id=3)
    log.add(commit(3, 40, 4), producer_id=4).add(commit(3, 41)).end(4, committed=True)
    log.add(commit(4, 50, 5), producer_id=5).add(OffsetTombstone(GROUP, TOPIC, 4)).end(5, committed=True)
    # A producer's second transaction is another one.
    log.add(commit(5, 60, 1), producer_id=1).end(1, committed=False).add(commit(5, 61, 1), producer_id=1)
    log.end(1, committed=True)
    records = pipeline.read_log(spark, tmp_path)
    current = {row.topic_partition: row.committed_offset for row in pipeline.current_offsets(records).collect()}

    assert current == {0: 10, 1: 20, 2: 30, 3: 41, 5: 61}


def test_load_of_a_broker_adds_up(broker_records: DataFrame, broker_log: Path) -> None:
    loads = rows(pipeline.partition_load(broker_records))

    assert [load["log_partition"] for load in sorted(loads, key=lambda load: load["log_partition"])] == [
        *(1, 2, 3, 4, 6, 7)
    ]
    assert sum(load["records"] for load in loads) == broker_records.where("kind in ('record', 'control')").count()
    assert sum(load["file_bytes"] for load in loads) == sum(path.stat().st_size for path in broker_log.glob("*/*.log"))
    assert all(load["unknown_records"] == load["corrupt_bytes"] == 0 for load in loads)
