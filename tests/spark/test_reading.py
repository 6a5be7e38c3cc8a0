"""Logs are found and read at any path, and unreadable ones are reported."""

from __future__ import annotations

import os
import shutil
import zipfile
from pathlib import Path

import fsspec
import pytest
from fsspec.implementations.memory import MemoryFileSystem
from pyspark.sql import (
    DataFrame,
    SparkSession,
    functions as F,  # noqa: N812
)

import groupcoord.spark as pipeline
from groupcoord.analysis.pipeline.batch import Pipeline
from groupcoord.core.log.records import OffsetCommitRecord
from groupcoord.log_store import LogRecord, Ticket
from groupcoord.spark.engine import SparkEngine
from groupcoord.spark.schemas import RECORDS
from groupcoord.storage.stores.segments import SegmentLogStore

PARTITION_BYTES = 225_228
"""Of the largest segment of the broker's log."""


def same(first: DataFrame, second: DataFrame) -> bool:
    """Return whether two small tables have the same rows in any order."""
    return sorted(map(repr, first.collect())) == sorted(map(repr, second.collect()))


def found(table: DataFrame) -> DataFrame:
    """Return all rows but the accounts of ranges, and where they were read."""
    return table.where("kind != 'read'").drop("file")


def test_small_ranges_give_the_same_rows(spark: SparkSession, broker_log: Path, broker_records: DataFrame) -> None:
    """Segments that are cut into ranges are read by several tasks, and every row comes once."""
    pieces = pipeline.read_log(spark, broker_log, split_bytes=65_536).cache()
    whole = broker_records

    assert pieces.rdd.getNumPartitions() > whole.rdd.getNumPartitions()
    assert pieces.where("kind = 'read'").count() > whole.where("kind = 'read'").count()
    assert same(found(pieces), found(whole))
    pieces.unpersist()


def test_timestamps(spark: SparkSession, broker_log: Path) -> None:
    """The option adds to rows, and to those of a stream, what ``with_times`` adds to a table; others have none."""
    columns = "kind,log_offset,log_timestamp_ms,commit_timestamp_ms"
    expected = pipeline.with_times(pipeline.read_log(spark, broker_log, partitions=[6], columns=columns.split(",")))
    options = {"timestamps": "true", "columns": columns, "partitions": "6"}
    read = spark.read.format("groupcoord").options(**options).load(str(broker_log))
    stream = spark.readStream.format("groupcoord").options(**options).load(str(broker_log))

    assert "log_timestamp_utc" in read.columns
    assert read.schema == stream.schema
    assert read.columns == expected.columns
    assert same(read, expected)
    query = stream.writeStream.format("memory").queryName("timestamps").trigger(availableNow=True).start()
    query.awaitTermination()
    assert same(spark.table("timestamps").where("kind = 'record'"), expected.where("kind = 'record'"))


def test_a_pattern_a_folder_and_a_file_are_paths(spark: SparkSession, broker_log: Path) -> None:
    """All segments are read, and only the selected log partitions."""
    folder = broker_log / "__consumer_offsets-6"
    (file,) = folder.glob("*.log")
    counts = [
        pipeline.read_log(spark, *paths, partitions=partitions, columns=["log_offset"]).count()
        for paths, partitions in (
            ([broker_log], [6]),
            ([folder], []),
            ([file], []),
            ([str(broker_log / "__consumer_offsets-[6]" / "*.log")], []),
            ([str(broker_log / "*-6")], []),
            ([broker_log], [6, 99]),
        )
    ]

    assert len(set(counts)) == 1
    assert counts[0] > 20


def test_the_format_takes_options(spark: SparkSession, broker_log: Path) -> None:
    """The format can be used by itself; columns come in the table's order, with the kind of row."""
    reader = spark.read.format("groupcoord").option("columns", "log_offset, group_id").option("partitions", "4,6")
    table = reader.load([str(broker_log / f"__consumer_offsets-{partition}") for partition in (4, 6, 7)])

    assert table.columns == ["kind", "log_offset", "group_id"]
    assert table.where("kind = 'record'").count() == 57


def test_a_zip_file_is_a_file_system(spark: SparkSession, broker_log: Path, tmp_path: Path) -> None:
    """Workers read through the file system that the URL names, as they read an object store."""
    packed = tmp_path / "logs.zip"
    with zipfile.ZipFile(packed, "w") as archive:
        for path in sorted(broker_log.glob("*-[46]/*.log")):
            archive.writestr(path.relative_to(broker_log).as_posix(), path.read_bytes())
    table = pipeline.read_log(spark, f"zip://*/*.log::{packed}")

    assert table.where("kind = 'record'").count() == 57
    assert table.select("log_partition").distinct().count() == 2


def test_our_own_store_is_read(spark: SparkSession, tmp_path: Path) -> None:
    """The directory of a SegmentLogStore is a log directory like a broker's."""
    with SegmentLogStore(tmp_path) as store:
        store.append(5, Ticket(5, 1), [LogRecord(OffsetCommitRecord("g", "t", 0, 42), 1_000)])
    (row,) = pipeline.current_offsets(pipeline.read_log(spark, tmp_path)).collect()

    assert (row.log_partition, row.group_id, row.committed_offset) == (5, "g", 42)


@pytest.mark.parametrize("timestamp", ["milliseconds", "timestamps"])
def test_messages_give_the_same_rows(
    broker_records: DataFrame, spark: SparkSession, broker_log: Path, timestamp: str
) -> None:
    """Keys and values from anywhere become the records that segment files give, but for where they were read."""
    raw = pipeline.read_log(spark, broker_log, raw_bytes=True).where("kind = 'record'")
    when = F.col("log_timestamp_ms") if timestamp == "milliseconds" else F.timestamp_millis("log_timestamp_ms")
    messages = raw.select(
        "key", "value", F.col("log_partition").alias("partition"), F.col("log_offset").alias("offset"),
        when.alias("timestamp"), F.lit("__consumer_offsets").alias("topic"),
    )  # fmt: skip
    of_files = ("file", "position", "producer_id", "producer_epoch", "is_transactional", "partition_leader_epoch")
    made = pipeline.from_messages(messages).where("kind = 'record'")

    assert same(made.drop(*of_files), broker_records.where("kind = 'record'").drop(*of_files))
    assert made.where("file is null and producer_id = -1 and not is_transactional").count() == raw.count()


def test_excluded_groups_have_no_rows(spark: SparkSession, broker_log: Path, broker_records: DataFrame) -> None:
    """Groups whose whole name matches have no rows, in every way of reading; all other rows are present."""
    left_out = ["small-.*", "transactional"]
    is_left = "coalesce(group_id not rlike '^(small-.*|transactional)$', true)"
    wanted = broker_records.where(is_left)
    stream = pipeline.read_log_stream(spark, broker_log, exclude_groups=left_out, columns=["log_offset"])
    query = stream.writeStream.format("memory").queryName("excluded").trigger(availableNow=True).start()
    query.awaitTermination()
    columns = [F.col(name) for name in ("key", "value", "log_partition", "log_offset", "log_timestamp_ms")]
    names = ("key", "value", "partition", "offset", "timestamp")
    raw = pipeline.read_log(spark, broker_log, raw_bytes=True).where("kind = 'record'")
    messages = raw.select(*(column.alias(name) for column, name in zip(columns, names, strict=True)))

    assert 0 < wanted.count() < broker_records.count()
    assert same(found(pipeline.read_log(spark, broker_log, exclude_groups=left_out)), found(wanted))
    assert spark.table("excluded").where("kind = 'record'").count() == wanted.where("kind = 'record'").count()
    made = pipeline.from_messages(messages, exclude_groups=left_out)
    assert made.where("kind = 'record'").count() == wanted.where("kind = 'record'").count()
    options = {"table": "groups", "exclude_groups": '["small-.*", "transactional"]'}
    groups = spark.read.format("groupcoord").options(**options).load(str(broker_log))
    assert groups.where(f"not {is_left}").count() == 0 < groups.count()
    with pytest.raises(pipeline.InputError, match="is not a regular expression"):
        pipeline.read_log(spark, broker_log, exclude_groups=["("])
    with pytest.raises(TypeError, match="unexpected keyword argument 'colums'"):
        pipeline.read_log(spark, broker_log, colums=["kind"])  # type: ignore[call-arg]


def test_messages_need_their_columns(spark: SparkSession) -> None:
    """A column that is missing or of another type is named."""
    whole = spark.createDataFrame([], "key binary, value binary, partition int, offset long, timestamp timestamp")

    assert pipeline.from_messages(whole).columns == RECORDS.fieldNames()
    with pytest.raises(pipeline.InputError, match="no column offset"):
        pipeline.from_messages(whole.drop("offset"))
    with pytest.raises(pipeline.InputError, match="column key is string, not binary"):
        pipeline.from_messages(whole.withColumn("key", F.lit("k")))


def test_corrupt_bytes_become_rows(spark: SparkSession, broker_log: Path, tmp_path: Path) -> None:
    """File, position and reason of the damage are reported, and the rest is read."""
    folder = tmp_path / "__consumer_offsets-4"
    shutil.copytree(broker_log / folder.name, folder)
    (path,) = folder.glob("*.log")
    data = bytearray(path.read_bytes())
    data[100] ^= 1
    path.write_bytes(bytes(data) + b"torn")
    records = pipeline.read_log(spark, tmp_path)
    first, second = pipeline.corrupt(records).orderBy("position").collect()

    assert (first.file, first.position, first.log_partition) == (str(path), 0, 4)
    assert "CRC" in first.reason
    assert (second.position, second.size_bytes, second.end_offset) == (len(data), 4, None)
    assert records.where("kind = 'record'").count() > 10


def test_wrong_paths_are_told(spark: SparkSession, tmp_path: Path, broker_log: Path) -> None:
    """Missing paths, paths without logs and empty ones are errors before Spark starts."""
    (tmp_path / "empty").mkdir()
    (tmp_path / "__consumer_offsets-3").mkdir()
    (tmp_path / "__consumer_offsets-3" / f"{0:020d}.log").touch()
    (tmp_path / "x.index").touch()
    wrong = {
        str(tmp_path / "nowhere"): "there is no such file or directory",
        str(tmp_path / "empty"): "no segment files",
        str(tmp_path / "__consumer_offsets-3"): "are empty",
        str(tmp_path / "x.index"): "is no segment file",
        str(tmp_path / "*.txt"): "nothing matches",
        "s3no://bucket": "s3no",
    }

    for path, message in wrong.items():
        with pytest.raises(pipeline.InputError, match=message):
            pipeline.read_log(spark, path)
    with pytest.raises(pipeline.InputError, match="no path is given"):
        pipeline.read_log(spark)
    with pytest.raises(pipeline.InputError, match="there are no such log partitions"):
        pipeline.read_log(spark, broker_log, partitions=[99])


def test_a_file_without_permission_is_told(
    spark: SparkSession, broker_log: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A segment that may not be read is an error that names it."""
    monkeypatch.setattr(os, "access", lambda path, mode: False)

    with pytest.raises(pipeline.InputError, match="permission denied"):
        pipeline.read_log(spark, broker_log)


class NoCredentialsError(Exception):
    """Like that of botocore, which has nothing in common with any other."""


@pytest.mark.parametrize(
    ("raised", "told"),
    [
        (NoCredentialsError("Unable to locate credentials"), "Unable to locate credentials"),
        (OSError("Unable to load libjvm\ndlopen(/usr/lib/jvm) failed"), "Unable to load libjvm"),
        (ConnectionRefusedError(111, "Connection refused"), "Connection refused"),
        (TimeoutError(), "TimeoutError"),
    ],
    ids=lambda value: type(value).__name__,
)
@pytest.mark.parametrize("method", ["__init__", "info", "exists"])
def test_what_a_file_system_raises_is_told(
    broker_log: Path, tmp_path: Path, raised: Exception, told: str, method: str
) -> None:
    """Any error at any time, for logs and results alike, is one line that begins with the URL."""

    def refuse(*_: object, **__: object) -> None:
        raise raised

    refusing = type("Refusing", (MemoryFileSystem,), {"protocol": "refusing", "cachable": False, method: refuse})
    fsspec.register_implementation("refusing", refusing, clobber=True)
    logs, out = (broker_log, "refusing://here") if method == "exists" else ("refusing://here", tmp_path / "out")
    with pytest.raises(pipeline.InputError) as caught:
        Pipeline(SparkEngine(), [logs], out)
    assert str(caught.value) == f"refusing://here: {told}"


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"columns": ["nonsense"]}, "there is no column nonsense"),
        ({"split_bytes": 10}, "split_bytes: 10 is no number of 65536 or more"),
        ({"partitions": [-1]}, "partitions: -1 is no number"),
    ],
)
def test_wrong_options_are_told(
    spark: SparkSession, broker_log: Path, options: dict[str, list[str] | int], message: str
) -> None:
    """An option that can't be meant is an error that names it."""
    with pytest.raises(pipeline.InputError, match=message):
        pipeline.read_log(spark, broker_log, **options)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"splitbytes": "1"}, "unknown option splitbytes"),
        ({"table": "anomalies"}, "there is no table anomalies; there are records, generations, members, rebalances"),
        ({"table": "rebalances", "columns": "group_id"}, "option columns is for the table records, not for rebalances"),
    ],
)
def test_wrong_options_of_the_format_are_told(
    spark: SparkSession, broker_log: Path, options: dict[str, str], message: str
) -> None:
    """A misspelt option does not go unnoticed, nor one that means nothing for the table."""
    with pytest.raises(Exception, match=message):
        spark.read.format("groupcoord").options(**options).load(str(broker_log)).count()


def test_tables_of_groups_are_no_streams(spark: SparkSession, broker_log: Path) -> None:
    """They need whole log partitions, so a stream of one fails with an explanation."""
    stream = spark.readStream.format("groupcoord").option("table", "rebalances").load(str(broker_log))
    with pytest.raises(Exception, match="rebalances can't be read as a stream"):
        stream.writeStream.format("memory").queryName("rebalances").start().awaitTermination()
