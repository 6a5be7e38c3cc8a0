"""Group tables on Spark: those of the fold, and their content for a small log."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import (
    DataFrame,
    SparkSession,
    functions as F,  # noqa: N812
)

import groupcoord.spark as pipeline
from groupcoord.core.log.records import OffsetCommitRecord
from groupcoord.spark.tables import complete_from

from ..analysis.fold.history.consumer_story import CREW, crew, moving, write_story
from ..analysis.fold.history.whole_logs import rows_of_logs
from ..analysis.fold.small_log import Log
from ..analysis.rules.troubled import write_troubled
from ..bench.spark_logs import write_log


@pytest.fixture(scope="module")
def troubled(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[DataFrame, DataFrame]]:
    """Records of groups with every trouble, and their history."""
    folder = tmp_path_factory.mktemp("troubled")
    write_troubled(folder)
    records = pipeline.read_log(spark, folder).cache()
    history = pipeline.history(records).cache()
    yield records, history
    history.unpersist()
    records.unpersist()


@pytest.mark.slow
def test_a_new_leader_epoch_explains_a_rebalance(spark: SparkSession, tmp_path: Path) -> None:
    """Batches have the leader epoch; without another change, that is the probable cause."""
    log = Log(tmp_path).generation(1_000, "g", 1, a1=[0]).generation(2_000, "g", 2, a1=[0])
    log.leader_epoch = 1
    log.generation(3_000, "g", 3, a1=[0])
    log.generation(4_000, "g", 4, a1=[0])
    records = pipeline.read_log(spark, tmp_path)
    found = pipeline.rebalances(records).where("from_generation > 0").orderBy("to_generation").collect()

    assert [row.cause for row in found] == ["unknown", "coordinator move", "unknown"]
    assert 0 < found[1].confidence < 1
    assert "another broker, or the same after a restart" in found[1].evidence


def told_without_spark(folder: Path) -> list[str]:
    """Return the history of every group from reading the files without Spark, in comparable form."""
    rows = [{"group_id": row.group_id, row.kind: row.values} for row in rows_of_logs(folder)]
    return sorted(json.dumps(row, default=bytes.hex, sort_keys=True) for row in rows)


def told_by_spark(folded: DataFrame) -> list[str]:
    rows = []
    for row in folded.where("kind != 'departure'").collect():
        values = row[row.kind].asDict(recursive=True)
        rows.append({"group_id": row.group_id, row.kind: values})
    return sorted(json.dumps(row, default=bytes.hex, sort_keys=True) for row in rows)


def test_the_history_is_the_same_without_spark(
    spark: SparkSession, broker_log: Path, broker_records: DataFrame, tmp_path: Path
) -> None:
    """Every row: of a real broker's log, of consumer groups, and of many groups that rebalance and transactions."""
    write_log(tmp_path, records=60_000, partitions=3, groups=40)
    story = write_story(tmp_path / "story", crew, moving) / "__consumer_offsets-0"
    shutil.move(story, tmp_path / "__consumer_offsets-7")
    large = pipeline.history(pipeline.read_log(spark, tmp_path))

    assert told_without_spark(broker_log) == told_by_spark(pipeline.history(broker_records))
    assert told_without_spark(tmp_path) == told_by_spark(large)


def test_groups_of_a_broker(spark: SparkSession, broker_log: Path, tmp_path: Path) -> None:
    """All groups of a log partition, with their last commits, which the fold alone lacks. Coordinators that load it,
    and a log with consumer groups, agree with the tables.
    """
    story = write_story(tmp_path / "story", crew, moving) / "__consumer_offsets-0"
    shutil.move(story, tmp_path / "__consumer_offsets-5")
    records = pipeline.read_log(spark, broker_log, tmp_path, partitions=[4, 5]).cache()
    history = pipeline.history(records).cache()
    groups = {row.group_id: row for row in pipeline.groups(records, history=history).collect()}
    static = groups["static-mixed"]

    assert (static.type, static.state, static.generation_or_epoch, static.member_count, static.offset_count) == (
        *("Classic", "Stable", 2, 3, 6),
    )
    assert static.last_commit_ms == 1795245834601
    assert {"altered-only", "small-06"} < groups.keys()
    assert "small-39" not in groups
    assert [row.cause for row in pipeline.rebalances(history).where("group_id = 'static-mixed'").collect()] == [
        *("join", "join", "static replace", "static replace"),
    ]
    assert pipeline.members(history).where("instance_id is not null and group_id = 'static-mixed'").count() == 11
    assert pipeline.verify(records, history=history).collect() == []
    history.unpersist()
    records.unpersist()


@pytest.mark.slow
def test_differences_are_told(troubled: tuple[DataFrame, DataFrame]) -> None:
    """A group that the coordinator does not find in the records, and one that it finds otherwise."""
    records, history = troubled
    fewer = records.where("group_id != 'last' and not (group_id = 'quiet' and log_timestamp_ms = 50000)")
    found = pipeline.verify(fewer, history=history).collect()

    assert {(row.group_id, row.field, row.coordinator, row.table) for row in found} == {
        ("last", "state", None, "Empty"),
        ("last", "protocol type", None, ""),
        ("last", "protocol", None, ""),
        ("last", "generation", None, "0"),
        ("quiet", "generation", "1", "2"),
        ("quiet", "member a1", "|a|/h|t:0", "|a|/h|t:0,1"),
        ("quiet", "member b1", "|b|/h|t:1", None),
    }


@pytest.mark.slow
def test_a_forged_log_of_a_consumer_group_is_noticed(spark: SparkSession, tmp_path: Path) -> None:
    """With one record removed or changed, the coordinator's group differs."""
    records = pipeline.read_log(spark, write_story(tmp_path, crew)).cache()
    history = pipeline.history(records).cache()
    assert pipeline.verify(records, history=history).collect() == []
    last = records.where("record_type = 8").agg({"log_offset": "max"}).first()[0]
    fewer = records.where(f"log_offset != {last}")
    # The first four bytes behind the version of such a value are the member's epoch.
    forged = F.concat(F.expr("substring(value, 1, 2)"), F.lit(bytearray((0, 0, 0, 99))), F.expr("substring(value, 7)"))
    other = records.withColumn("value", F.when(F.col("log_offset") == last, forged).otherwise(F.col("value")))

    for changed in (fewer, other):
        found = pipeline.verify(changed, history=history).collect()
        assert {row.group_id for row in found} == {CREW}
        assert any(row.field.startswith("member ") and row.coordinator != row.table for row in found)


@pytest.mark.slow
def test_what_compaction_may_hide_is_known(spark: SparkSession, tmp_path: Path) -> None:
    """From behind the last gap on the log is complete."""
    Log(tmp_path, 1).commit(1, "g", 1).commit(2, "g", 2)
    log = Log(tmp_path, 2).commit(1, "g", 1)
    log.add(OffsetCommitRecord("g", "t", 0, 1), at_ms=2, skipped=3)
    found = complete_from(pipeline.read_log(spark, tmp_path))

    assert {row.log_partition: row.complete_from for row in found.collect()} == {1: 0, 2: 4}
