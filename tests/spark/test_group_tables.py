"""The tables about groups on Spark: those of the fold, and what they say of a small log that was made for it."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.types import StructType

import groupcoord.spark as pipeline
from groupcoord.analysis.history.anomalies import Thresholds
from groupcoord.core.consumer_protocol import (
    Assignment,
    Subscription,
    TopicPartition,
    encode_assignment,
    encode_subscription,
)
from groupcoord.core.records import GroupMetadataRecord, MemberRecord, OffsetCommitRecord, Record, TransactionMarker
from groupcoord.records.batches import encode_batch
from groupcoord.records.codec import encode_record
from groupcoord.spark import group_schemas
from groupcoord.spark.groups import complete_from
from groupcoord.spark.schemas import END_OFFSETS

from ..bench.spark_logs import write_log
from ..docs.markdown import DOCS
from ..history.consumer_story import CREW, crew, moving, write_story
from ..history.whole_logs import rows_of_logs

SCHEMAS = {
    name: value for name, value in vars(group_schemas).items() if isinstance(value, StructType) and name[0] != "_"
}


class Log:
    """A log partition that is written batch by batch, as time passes."""

    def __init__(self, folder: Path, partition: int = 0) -> None:
        self._path = folder / f"__consumer_offsets-{partition}" / f"{0:020d}.log"
        self._path.parent.mkdir(parents=True)
        self._offset = 0
        self.leader_epoch = 0

    def add(self, at_ms: int, *records: Record, producer_id: int = -1, skipped: int = 0) -> Log:
        """Write one batch; some offsets before it are missing, as after compaction."""
        self._offset += skipped
        data = encode_batch(
            self._offset,
            [(*encode_record(record), at_ms) for record in records],
            leader_epoch=self.leader_epoch,
            producer_id=producer_id,
            producer_epoch=min(producer_id, 0),
            is_transactional=producer_id >= 0,
            is_control=isinstance(records[0], TransactionMarker),
        )
        with self._path.open("ab") as file:
            file.write(data)
        self._offset += len(records)
        return self

    def commit(self, at_ms: int, group_id: str, offset: int, partition: int = 0, producer_id: int = -1) -> Log:
        record = OffsetCommitRecord(
            group_id, "t", partition, offset, commit_timestamp_ms=at_ms, producer_id=producer_id
        )
        return self.add(at_ms, record, producer_id=producer_id)

    def generation(self, at_ms: int, group_id: str, number: int, **members: list[int]) -> Log:
        """Write a classic group's record, members with their partitions."""
        names = list(members)
        record = GroupMetadataRecord(
            group_id,
            "consumer",
            number,
            "range" if names else None,
            names[0] if names else None,
            at_ms,
            tuple(
                MemberRecord(
                    name,
                    None,
                    name[0],
                    "/h",
                    60_000,
                    10_000,
                    encode_subscription(Subscription(("t",))),
                    encode_assignment(Assignment(tuple(TopicPartition("t", index) for index in indexes))),
                )
                for name, indexes in members.items()
            ),
        )
        return self.add(at_ms, record)


def write_troubled(folder: Path) -> None:
    """Write a log of groups with every trouble."""
    log = Log(folder)
    log.generation(0, "stormy", 1, a1=[0], b1=[1])
    for number in range(2, 9):
        members = {"a1": [0]} if number % 2 == 0 else {"a1": [0], f"b{number}": [1]}
        log.generation(number * 1_000, "stormy", number, **members)
    log.commit(8_500, "stormy", 100).commit(9_000, "stormy", 60).commit(9_500, "stormy", 70)
    log.generation(10_000, "double", 1, a1=[0, 1], b1=[1])
    for step in range(5):
        log.commit(11_000 + step, "double", 5)
    for step in range(5):
        log.commit(11_000 + step, "double", 5 + step, partition=1)
    for step in range(7):
        log.commit(590_000 + step, "busy", step)
    # The member that leaves at the end was there a second before, as a commit shows.
    log.generation(20_000, "quiet", 1, a1=[0], b1=[1]).commit(49_000, "quiet", 1, partition=1)
    log.generation(50_000, "quiet", 2, a1=[0, 1])
    log.generation(500_000, "emptied", 1, a1=[0]).commit(500_005, "emptied", 1).generation(530_000, "emptied", 2)
    log.generation(500_000, "live", 1, a1=[0]).commit(500_005, "live", 1)
    log.add(500_007, OffsetCommitRecord("live", "former", 0, 1, commit_timestamp_ms=500_007))
    own_expiry = OffsetCommitRecord("simple", "t", 0, 1, commit_timestamp_ms=500_008, expire_timestamp_ms=700_000)
    log.add(500_008, own_expiry)
    log.commit(595_000, "open", 1).commit(595_500, "open", 2, producer_id=7)
    log.commit(600_000, "last", 1)


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
    """Batches tell who led the log partition; where nothing else changed, that is the cause, and not for sure."""
    log = Log(tmp_path).generation(1_000, "g", 1, a1=[0]).generation(2_000, "g", 2, a1=[0])
    log.leader_epoch = 1
    log.generation(3_000, "g", 3, a1=[0])
    log.generation(4_000, "g", 4, a1=[0])
    records = pipeline.read_log(spark, tmp_path)
    found = pipeline.rebalances(records).where("from_generation > 0").orderBy("to_generation").collect()

    assert [row.cause for row in found] == ["unknown", "coordinator move", "unknown"]
    assert 0 < found[1].confidence < 1
    assert "another broker, or the same after a restart" in found[1].evidence


def test_tables_have_their_declared_schemas(troubled: tuple[DataFrame, DataFrame]) -> None:
    """Each function gives the columns that are declared, in order."""
    records, history = troubled
    made = {
        "HISTORY": history,
        "GENERATIONS": pipeline.generations(history),
        "MEMBERS": pipeline.members(history),
        "GROUPS": pipeline.groups(records, history=history),
        "REBALANCES": pipeline.rebalances(history),
        "EPOCHS": pipeline.epochs(history),
        "MEMBERSHIPS": pipeline.memberships(history),
        "MOVES": pipeline.moves(history),
        "REVOCATIONS": pipeline.revocations(history),
        "ANOMALIES": pipeline.anomalies(records, history=history),
        "STALE_GROUPS": pipeline.stale_groups(records, history=history),
        "DIFFERENCES": pipeline.verify(records, history=history),
    }

    assert made.keys() == SCHEMAS.keys()
    for name, table in made.items():
        shown = [(field.name, field.dataType.simpleString()) for field in table.schema]
        assert shown == [(field.name, field.dataType.simpleString()) for field in SCHEMAS[name]], name


@pytest.mark.parametrize("name", sorted(set(SCHEMAS) - {"HISTORY"}))
def test_tables_are_on_the_page(name: str) -> None:
    """Every column with its meaning is documented, in order."""
    lines = [f"| {field.name} | {field.metadata['comment']} |" for field in SCHEMAS[name]]

    assert "\n".join(["| column | |", "|---|---|", *lines, ""]) in (DOCS / "spark.md").read_text("utf-8")


def told_without_spark(folder: Path) -> list[str]:
    """Return the history of every group as the pure reading of the files tells it, in a form that can be compared."""
    rows = [{"group_id": row.group_id, row.kind: row.values} for row in rows_of_logs(folder)]
    return sorted(json.dumps(row, default=bytes.hex, sort_keys=True) for row in rows)


def told_by_spark(folded: DataFrame) -> list[str]:
    """Return the same rows of a history on Spark."""
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
    """The groups of a log partition, with what the fold alone can't tell: when they last committed.

    Coordinators that load it, and a log with consumer groups, find all as the tables do.
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
    """One record less, or one that says something else, and the coordinator finds the group otherwise."""
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
def test_a_commit_far_from_the_fold_shows_that_a_member_left(troubled: tuple[DataFrame, DataFrame]) -> None:
    """Commits stay in Spark; the one that matters comes back to the fold."""
    _, history = troubled
    (row,) = pipeline.rebalances(history).where("group_id = 'quiet' and to_generation = 2").collect()

    assert (row.cause, row.confidence, row.left) == ("leave", 0.9, ["b1"])


@pytest.mark.slow
def test_anomalies(spark: SparkSession, troubled: tuple[DataFrame, DataFrame]) -> None:
    """Each of the troubles is found, with Burrow's word for it, and nothing else is."""
    records, history = troubled
    ends = spark.createDataFrame([("t", 0, 1_000), ("t", 1, 9)], END_OFFSETS)
    limits = Thresholds(
        window_commits=5, commits_per_minute=6, storm_commits=6, stopped_ms=100_000, rebalances=7, comebacks=3
    )
    found: dict[tuple[Any, ...], list[Any]] = {}
    told: dict[str, str] = {}
    anomalies = pipeline.anomalies(records, history=history, end_offsets=ends, thresholds=limits, now_ms=12_000)
    for row in anomalies.collect():
        found[row.kind, row.group_id, row.topic_partition, row.client_id] = [row.status, row["count"], row.value]
        told[row.kind] = row.evidence

    assert told["rebalance storm"] == "8 rebalances within 10 min"
    assert told["flapping member"] == "b left and joined 4 times within 10 min"
    assert told["offset rewind"] == "back by 40 to 60"
    assert found == {
        ("offset rewind", "stormy", 0, None): ["REWIND", 1, 40],
        ("stalled", "double", 0, None): ["STALL", 5, 995],
        ("commit storm", "busy", None, None): [None, 1, 7],
        ("rebalance storm", "stormy", None, None): [None, 2, 8],
        ("flapping member", "stormy", None, "b"): [None, 3, 4],
        ("duplicate owner", "double", 1, None): [None, 1, 2],
    }


@pytest.mark.slow
def test_commits_that_stopped(troubled: tuple[DataFrame, DataFrame]) -> None:
    """A partition that a member has, with commits of late and none for long; without ends nothing is said of others."""
    records, history = troubled
    limits = Thresholds(stopped_ms=100_000)
    found = pipeline.anomalies(records, history=history, thresholds=limits).where("status = 'STOP'").collect()

    assert {row.evidence for row in found} == {"no commit for 590 s", "no commit for 588 s"}
    assert {(row.kind, row.group_id, row.topic_partition, row.value) for row in found} == {
        ("commits stopped", "stormy", 0, 590_500),
        ("commits stopped", "double", 0, 588_996),
        ("commits stopped", "double", 1, 588_996),
    }


@pytest.mark.slow
def test_lag_names_who_has_the_partition(spark: SparkSession, troubled: tuple[DataFrame, DataFrame]) -> None:
    """The member as the log ends, one of two that claim a partition; nobody where the group is empty."""
    records, history = troubled
    ends = spark.createDataFrame([("t", 0, 1_000), ("t", 1, 1_000)], END_OFFSETS)
    table = pipeline.lag(pipeline.current_offsets(records), ends, history=history).where("topic = 't'")
    found = {
        (row.group_id, row.topic_partition): (row.member_id, row.client_id)
        for row in table.where("topic = 't'").collect()
    }

    assert found["stormy", 0] == found["live", 0] == ("a1", "a")
    assert found["double", 1] == ("a1", "a")
    assert found["quiet", 1] == ("a1", "a")
    assert found["emptied", 0] == found["simple", 0] == (None, None)


@pytest.mark.slow
def test_stale_groups(troubled: tuple[DataFrame, DataFrame]) -> None:
    """What expires and when.

    Offsets of an emptied group count from then, of one that never had members from their commits, as do topics that
    nobody subscribes to any more; an own expiry is kept, and an open transaction keeps its group.
    """
    records, history = troubled
    table = pipeline.stale_groups(records, history=history, offsets_retention_minutes=1, now_ms=655_000)
    found = {
        row.group_id: (row.expiring_offsets, row.expired_offsets, row.next_expiry_ms, row.group_expiry_ms, row.idle_ms)
        for row in table.collect()
    }

    assert found == {
        "busy": (1, 1, 650_006, 650_006, 64_994),
        "last": (1, 0, 660_000, 660_000, 55_000),
        "emptied": (1, 1, 590_000, 590_000, 125_000),
        "live": (1, 1, 560_007, None, 154_993),
        "simple": (1, 0, 700_000, 700_000, 154_992),
    }


@pytest.mark.slow
def test_what_compaction_may_hide_is_known(spark: SparkSession, tmp_path: Path) -> None:
    """From behind the last gap on the log is complete."""
    Log(tmp_path, 1).commit(1, "g", 1).commit(2, "g", 2)
    log = Log(tmp_path, 2).commit(1, "g", 1)
    log.add(2, OffsetCommitRecord("g", "t", 0, 1), skipped=3)
    found = complete_from(pipeline.read_log(spark, tmp_path))

    assert {row.log_partition: row.complete_from for row in found.collect()} == {1: 0, 2: 4}
