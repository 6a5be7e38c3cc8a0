"""What is kept of groups costs an update no more than what is new, and goes on from what other versions kept."""

from __future__ import annotations

import json
import logging
import tarfile
from pathlib import Path
from typing import NoReturn

import fsspec
import pyarrow as pa
import pytest
from attrs import evolve
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.pandas.types import to_arrow_schema

import groupcoord.spark as pipeline
from groupcoord.analysis.columns.errors import PipelineError
from groupcoord.analysis.folding import buckets
from groupcoord.analysis.folding.buckets import (
    BucketFile,
    BucketFolder,
    Buckets,
    Kept,
    bucket_name,
    bucket_of,
    first_count,
)
from groupcoord.analysis.history.fold import GroupFold
from groupcoord.analysis.history.state import GroupState, KnownOffset, decode_state, encode_state
from groupcoord.core.records import OffsetCommitRecord
from groupcoord.spark import streaming
from groupcoord.spark.state_buckets import bucket_column
from groupcoord.spark.stream_fold import CARRIED_ROWS, CarrySettings, carrier, carry_on
from groupcoord.spark.stream_store import Manifest, StreamStore
from groupcoord.spark.streaming import FollowedTables

from ..folding.small_log import TOPIC, Log
from .test_streaming import batch_tables, rows, update

FORMER = Path(__file__).with_name("followed_before_buckets.tar.xz")
"""A log of four consumer groups and a group with transactions, and what was followed of seven tenths of it in two
updates, by the last version whose manifests had form 1. ``@DATA@`` stands for the log's folder."""


def of_group(number: int, offset: int) -> OffsetCommitRecord:
    return OffsetCommitRecord(f"group-{number}", TOPIC, 0, offset, commit_timestamp_ms=5)


def new_commit(group_id: str, log_offset: int, offset: int) -> dict[str, object]:
    """Return the row of a commit in bucket 3."""
    row = {"bucket": 3, "log_partition": 0, "group_id": group_id, "log_offset": log_offset, "log_timestamp_ms": 5}
    row |= {"record_type": 1, "tombstone": False, "is_transactional": False, "topic": TOPIC, "topic_partition": 0}
    known = {"committed_offset": offset, "leader_epoch": -1, "metadata": "", "commit_timestamp_ms": 5}
    return row | known | {"expire_timestamp_ms": -1}


def bucket_files(out: Path) -> set[str]:
    return {path.name for path in (out / "checkpoint" / "buckets").iterdir()}


@pytest.mark.slow
def test_an_update_writes_the_buckets_that_change(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of forty groups one commits: one bucket is written anew, and the others are files of the update before."""
    data, out = tmp_path / "data", tmp_path / "out"
    log = Log(data).add(*(of_group(number, 1) for number in range(40)))
    update(spark, data, out)
    before = bucket_files(out)
    log.add(of_group(7, 2))
    update(spark, data, out)

    count = first_count(int(spark.conf.get("spark.sql.shuffle.partitions") or 1))
    assert before == {bucket_name(bucket_of(f"group-{number}", count), count, 0) for number in range(40)}
    assert bucket_files(out) - before == {bucket_name(bucket_of("group-7", count), count, 1)}
    offsets = FollowedTables(spark, out).table("current_offsets")
    assert {row.group_id: row.committed_offset for row in offsets.collect()} == {
        f"group-{number}": 2 if number == 7 else 1 for number in range(40)
    }

    monkeypatch.setattr(buckets, "GROUPS_MAX", 1)
    log.add(of_group(7, 3), of_group(40, 3))
    update(spark, data, out)
    tables = FollowedTables(spark, out)
    assert any("-of-00064." in name for name in bucket_files(out))
    found = {row.group_id: row.committed_offset for row in tables.table("current_offsets").collect()}
    assert found == {f"group-{number}": 3 if number in (7, 40) else 1 for number in range(41)}


def test_what_has_nothing_new_in_a_bucket_stays_as_it_is(tmp_path: Path) -> None:
    """A task carries on the group that has a commit, and one that is new; other blobs are copied, buckets untouched."""
    folder = BucketFolder(fsspec.filesystem("file"), str(tmp_path))
    old = GroupState(GroupFold("b", 0), {(TOPIC, 0): KnownOffset(1, 5, -1, "", 5, -1, None)})
    kept = [Kept(0, "a", b"never decoded"), Kept(0, "b", encode_state(old)), Kept(0, "d", b"nor this")]
    with folder.writing(bucket_name(3, 16, 0)) as bucket:
        for one in kept:
            bucket.add(one)
    before = Buckets(16, {3: BucketFile(0, 3), 4: BucketFile(0, 9)})
    settings = CarrySettings(None, {}, {}, folder, before, 1, str(tmp_path / "history"))
    rows = [new_commit("b", 8, 6), new_commit("c", 9, 7)]
    (done,) = carrier(settings)([pa.RecordBatch.from_pylist(rows, to_arrow_schema(CARRIED_ROWS))])

    assert done.to_pylist() == [{"bucket": None, "rows": 0}, {"bucket": 3, "rows": 4}]
    assert {path.name for path in tmp_path.iterdir()} == {bucket_name(3, 16, 0), bucket_name(3, 16, 1)}
    found = list(folder.read(bucket_name(3, 16, 1)))
    assert [found[0], found[3]] == [kept[0], kept[2]]
    assert [decode_state(one.blob).offsets[TOPIC, 0].committed_offset for one in found[1:3]] == [6, 7]


def test_spark_and_python_agree_on_buckets(spark: SparkSession) -> None:
    """The bucket of a group is the same, wherever it is worked out."""
    names = ["", "g", "déjà vu", "組", "😀", "x" * 1_000]
    table = spark.createDataFrame([(name,) for name in names], "group_id string").withColumn("b", bucket_column(64))
    assert {row.group_id: row.b for row in table.collect()} == {name: bucket_of(name, 64) for name in names}


# ---------------------------------------------------------------- what other versions kept


def test_manifests_tell_in_which_form_groups_are_kept() -> None:
    """Of an earlier form, or with blobs of another version, groups are not known; a later form is refused."""
    manifest = Manifest(3, complete={0: (9, 0)}, buckets=Buckets(16, {5: BucketFile(3, 2)}))
    assert Manifest.from_json(manifest.to_json()) == manifest
    plain = json.loads(manifest.to_json())
    for other in ({"format": 1, "buckets": None}, {"buckets": plain["buckets"] | {"form": "1.0"}}):
        assert Manifest.from_json(json.dumps(plain | other)) == evolve(manifest, buckets=None)
    with pytest.raises(PipelineError, match="in form 3, and this version of groupcoord knows forms up to 2"):
        Manifest.from_json(json.dumps(plain | {"format": 3}))


def unpack_former(folder: Path) -> tuple[Path, Path]:
    """Put the log and what was followed of it into a folder; return both."""
    with tarfile.open(FORMER) as packed:
        packed.extractall(folder, filter="data")
    logs, out = folder / "whole", folder / "followed"
    for path in (out / "checkpoint" / "spark").rglob("*"):
        if path.is_file():
            path.write_text(path.read_text("utf-8").replace("@DATA@", str(logs)), "utf-8")
    return logs, out


@pytest.mark.slow
def test_what_an_earlier_version_followed_goes_on(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Killed three times while it makes the groups anew, it ends with the tables of one reading, told in one line.

    Tables that need no groups can be read all the while.
    """
    logs, out = unpack_former(tmp_path)

    def die(*_: object) -> NoReturn:
        raise RuntimeError("the machine is gone")

    def die_half_way(records: DataFrame, committed: DataFrame, settings: CarrySettings) -> NoReturn:
        carry_on(records.where("log_partition = 5"), committed.where("log_partition = 5"), settings)
        die()

    former = FollowedTables(spark, out)
    with pytest.raises(PipelineError, match="another version of groupcoord kept groups in another form"):
        former.table("current_offsets")
    read = rows(former.table("commits"))
    deaths = ((streaming, "carry_on", die), (streaming, "carry_on", die_half_way), (StreamStore, "commit", die))
    for place, name, death in deaths:
        with monkeypatch.context() as patched:
            patched.setattr(place, name, death)
            with pytest.raises(RuntimeError, match="the machine is gone"):
                update(spark, logs, out)
        assert rows(FollowedTables(spark, out).table("commits")) == read
    with caplog.at_level(logging.WARNING):
        caplog.clear()
        update(spark, logs, out)
    assert [record.getMessage().partition(": ")[2] for record in caplog.records] == [
        "another version kept groups in another form; they are made anew of the 148 rows of records there"
    ]
    tables = FollowedTables(spark, out)
    assert tables.update == 2
    for name, table in batch_tables(pipeline.read_log(spark, logs).cache()).items():
        assert rows(tables.table(name)) == rows(table), name
    assert not (out / "checkpoint" / "states").exists()
    caplog.clear()
    update(spark, logs, out)
    assert not caplog.records
