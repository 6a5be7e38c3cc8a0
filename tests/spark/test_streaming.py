"""Streams of logs that grow: what each micro-batch reads, and a query that is killed."""

from __future__ import annotations

import json
import shutil
import signal
from pathlib import Path
from typing import Any

import fsspec
import pytest
from fsspec.implementations.local import LocalFileSystem
from pyspark.sql import (
    DataFrame,
    SparkSession,
    functions as F,  # noqa: N812
)

import groupcoord.spark as pipeline
from groupcoord.analysis.decode.files import LogChangedError, find_segments
from groupcoord.analysis.decode.tailing import advance, logs_of, ranges_between
from groupcoord.core.log.records import OffsetCommitRecord
from groupcoord.records.batches import iter_batches
from groupcoord.spark.sources import LogOptions, RecordStreamReader

from ..analysis.fold.small_log import GROUP, TOPIC
from ..docs.markdown import DOCS, blocks
from .programs import Process


def rows(table: DataFrame) -> list[str]:
    return sorted(json.dumps(row.asDict(recursive=True), default=str, sort_keys=True) for row in table.collect())


def batch_tables(records: DataFrame) -> dict[str, DataFrame]:
    history = pipeline.history(records).cache()
    return {
        "commits": pipeline.commits(records),
        "current_offsets": pipeline.current_offsets(records),
        "generations": pipeline.generations(history),
        "members": pipeline.members(history),
        "rebalances": pipeline.rebalances(history),
        "groups": pipeline.groups(records, history=history),
        "epochs": pipeline.epochs(history),
        "memberships": pipeline.memberships(history),
        "moves": pipeline.moves(history),
        "revocations": pipeline.revocations(history),
    }


PROGRAM = """
import os, signal, sys
from pyspark.sql import DataFrameWriter
import groupcoord.spark

code, data, out, dies_at = sys.argv[1:]
write, writes = DataFrameWriter.parquet, []

def write_or_die(*arguments):
    write(*arguments)
    writes.append(arguments)
    if len(writes) == int(dies_at):
        os.kill(os.getpid(), signal.SIGKILL)

DataFrameWriter.parquet = write_or_die
spark = groupcoord.spark.session("local[2]", memory="1g", compiler="c1")
exec(code.partition("\\n\\n\\ncount_commits")[0])
count_commits(groupcoord.spark.read_log_stream(spark, data, max_bytes=100_000), out)
print(len(writes), "micro-batches")
"""
"""The query of docs/spark.md, which is killed when a micro-batch was written and Spark has not noted that yet."""


@pytest.mark.slow
def test_a_query_that_is_killed_counts_every_commit_once(spark: SparkSession, broker_log: Path, tmp_path: Path) -> None:
    """A restart repeats the micro-batch and continues, and the counts equal those of one reading."""
    (query,) = [block.code for block in blocks(DOCS / "spark.md", "python") if "def count_commits" in block.code]
    log = broker_log / "__consumer_offsets-3"
    words = (query, str(log), str(tmp_path / "out"))
    assert Process(PROGRAM, *words, "2").wait() == -signal.SIGKILL
    assert [path.name for path in (tmp_path / "out" / "checkpoint" / "commits").glob("[0-9]*")] == ["0"]
    again = Process(PROGRAM, *words, "0")
    assert again.wait() == 0, again.said

    records = pipeline.read_log(spark, log).where("record_type in (0, 1) and not tombstone")
    minute = F.date_trunc("minute", F.timestamp_millis("commit_timestamp_ms")).alias("minute")
    whole = records.groupBy("group_id", minute).count()
    assert rows(spark.read.parquet(f"{tmp_path}/out/counts")) == rows(whole) != []


def test_messages_of_another_stream(spark: SparkSession, broker_log: Path, tmp_path: Path) -> None:
    """Any streaming DataFrame of keys and values gives the table of records; here a folder of Parquet files."""
    records = pipeline.read_log(spark, broker_log, raw_bytes=True).where("kind = 'record' and log_partition = 4")
    dump = records.selectExpr(
        "key", "value", "log_partition as partition", "log_offset as offset", "log_timestamp_ms as timestamp"
    )
    dump.write.parquet(f"{tmp_path}/dump")
    stream = pipeline.from_messages(spark.readStream.schema(dump.schema).parquet(f"{tmp_path}/dump"))
    query = stream.writeStream.format("memory").queryName("messages").trigger(availableNow=True)
    query.option("checkpointLocation", f"{tmp_path}/checkpoint").start().awaitTermination()

    columns = ("log_offset", "group_id", "topic", "topic_partition", "committed_offset", "tombstone", "record_type")
    found = spark.table("messages").where("kind = 'record'").select(*columns)
    assert rows(found) == rows(records.select(*columns)) != []


def test_an_older_spark_is_refused(spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where Spark's Python sources don't bound micro-batches, the error has the option and the needed version."""
    monkeypatch.setattr("groupcoord.spark.reading.find_spec", lambda _: None)
    with pytest.raises(pipeline.InputError, match=r"max_bytes needs PySpark 4\.2 or newer; this is \d"):
        pipeline.read_log_stream(spark, tmp_path, max_bytes=1)


# ---------------------------------------------------------------- reading as logs grow


class Reading:
    """A stream over one folder, without Spark."""

    def __init__(self, folder: Path | str, **options: str) -> None:
        self.reader = RecordStreamReader(LogOptions({"path": str(folder), "columns": "log_offset,problem", **options}))
        self.offset: dict[str, Any] = self.reader.initialOffset()

    def read(self) -> list[Any]:
        """Read all that is new: offsets of records, and the problems of corrupt ranges."""
        limit = self.reader.getDefaultReadLimit()
        before, self.offset = self.offset, self.reader.latestOffset(self.offset, limit)
        self.offset = json.loads(json.dumps(self.offset))
        return [
            row["problem"] if row["kind"] == "corrupt" else row["log_offset"]
            for partition in self.reader.partitions(before, self.offset)
            for batch in self.reader.read(partition)
            for row in batch.to_pylist()
            if row["kind"] != "read"
        ]


def segment(folder: Path, base_offset: int, offsets: list[int], partition: int = 0) -> Path:
    """Write a segment with a batch for each offset."""
    path = folder / f"__consumer_offsets-{partition}" / f"{base_offset:020d}.log"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(b"".join(batch_at(offset) for offset in offsets))
    return path


def batch_at(offset: int) -> bytes:
    from groupcoord.records.batches import encode_batch
    from groupcoord.records.codec import encode_record

    return encode_batch(offset, [(*encode_record(OffsetCommitRecord(GROUP, TOPIC, 0, offset)), 5)])


def test_a_torn_tail_is_not_there_yet(tmp_path: Path) -> None:
    """Half a batch at the end waits for its rest; once a newer segment follows, it is corrupt."""
    path = segment(tmp_path, 0, [0, 1])
    whole = path.read_bytes()
    reading = Reading(tmp_path)
    path.write_bytes(whole[:-3])
    assert reading.read() == [0]
    assert reading.read() == []
    path.write_bytes(whole)
    assert reading.read() == [1]
    path.write_bytes(whole + batch_at(2)[:20])
    assert reading.read() == []
    segment(tmp_path, 3, [3])
    corrupt, following = reading.read()
    assert "only 20 are left" in corrupt
    assert following == 3


def test_a_url_is_read_like_a_folder(tmp_path: Path) -> None:
    """Of any file system that fsspec knows, what is new is read, and once; a log that is gone is named by its URL."""
    memory = fsspec.filesystem("memory")
    memory.rm("/", recursive=True)
    memory.mkdir("/data")
    reading, by_pattern = Reading("memory://data"), Reading("memory://data/__consumer_offsets-[01]")
    assert reading.read() == by_pattern.read() == []
    for partition, offsets in ((0, [0, 1]), (1, [7])):
        segment(tmp_path, 0, offsets, partition)
    memory.put(f"{tmp_path}/", "/data/", recursive=True)
    assert reading.read() == by_pattern.read() == [0, 1, 7]
    memory.pipe_file(f"/data/__consumer_offsets-1/{0:020d}.log", batch_at(7) + batch_at(8) + batch_at(9)[:20])
    memory.pipe_file(f"/data/__consumer_offsets-0/{2:020d}.log", batch_at(2))
    assert reading.read() == by_pattern.read() == [2, 8]

    before = reading.offset
    memory.pipe_file(f"/data/__consumer_offsets-1/{9:020d}.log", batch_at(9))
    after = reading.reader.latestOffset(before, reading.reader.getDefaultReadLimit())
    memory.rm("/data/__consumer_offsets-1", recursive=True)
    (gone,) = reading.reader.partitions(before, after)
    assert [one.segment.name for one in gone.value.ranges] == ["memory:///data/__consumer_offsets-1"]


def test_damage_is_told_once(tmp_path: Path) -> None:
    """Bytes between sound batches are corrupt, though they come right behind what was read before."""
    path = segment(tmp_path, 0, [0])
    reading = Reading(tmp_path)
    assert reading.read() == [0]
    path.write_bytes(path.read_bytes() + bytes(30) + batch_at(1))
    corrupt, following = reading.read()
    assert isinstance(corrupt, str)
    assert following == 1
    assert reading.read() == []


def test_new_segments_and_log_partitions_are_found(tmp_path: Path) -> None:
    """A log rolls, a log partition appears, an empty directory comes to life."""
    reading = Reading(tmp_path)
    assert reading.read() == []
    path = segment(tmp_path, 0, [0])
    assert reading.read() == [0]
    path.write_bytes(path.read_bytes() + batch_at(1))
    segment(tmp_path, 2, [2])
    segment(tmp_path, 5, [5], partition=3)
    assert reading.read() == [1, 2, 5]
    assert reading.read() == []


def test_compaction_neither_loses_nor_repeats(tmp_path: Path) -> None:
    """Files that were read in part are replaced by smaller ones, put together or deleted: the offsets go on."""
    first, second = segment(tmp_path, 0, [0, 1, 2, 3]), segment(tmp_path, 4, [4, 5])
    reading = Reading(tmp_path)
    assert reading.read() == [0, 1, 2, 3, 4, 5]
    # Both files become one under the first one's name, and the log goes on in a new file.
    second.unlink()
    first.write_bytes(batch_at(3) + batch_at(5) + batch_at(6) + batch_at(7))
    segment(tmp_path, 8, [8])
    assert reading.read() == [6, 7, 8]
    shutil.rmtree(first.parent)
    segment(tmp_path, 20, [20, 21])
    assert reading.read() == [20, 21]


def test_a_planned_update_is_the_same_after_compaction(tmp_path: Path) -> None:
    """An update that Spark repeats has the same offsets, though the files are others by now."""
    path = segment(tmp_path, 0, [0, 1, 2, 3])
    reading = Reading(tmp_path)
    reading.read()
    path.write_bytes(path.read_bytes() + batch_at(4) + batch_at(5))
    start, end = reading.offset, reading.reader.latestOffset(reading.offset, None)
    path.write_bytes(batch_at(1) + batch_at(4) + batch_at(5) + batch_at(6))
    offsets = [
        row["log_offset"]
        for partition in reading.reader.partitions(start, end)
        for batch in reading.reader.read(partition)
        for row in batch.to_pylist()
        if row["kind"] == "record"
    ]
    assert offsets == [4, 5]


def test_a_file_that_goes_while_it_is_read_fails_the_task(tmp_path: Path) -> None:
    """The task must not pass for done: another file may have the records."""
    path = segment(tmp_path, 0, [0, 1])
    reader = RecordStreamReader(LogOptions({"path": str(tmp_path)}))
    (partition,) = reader.partitions({}, reader.latestOffset({}, None))
    other = path.with_suffix(".cleaned")
    other.write_bytes(batch_at(1) * 2)
    other.replace(path)
    with pytest.raises(LogChangedError, match="replaced or deleted"):
        list(reader.read(partition))


@pytest.mark.parametrize("max_bytes", [1, 150, 400])
def test_a_bound_cuts_between_batches(tmp_path: Path, max_bytes: int) -> None:
    """However little is read at a time, every record comes once, with gaps and across files."""
    segment(tmp_path, 0, [0, 3, 4, 9])
    segment(tmp_path, 10, [10, 15, 16])
    reading = Reading(tmp_path, max_bytes=str(max_bytes))
    found = [reading.read() for _ in range(12)]
    assert [offset for some in found for offset in some] == [0, 3, 4, 9, 10, 15, 16]
    assert max(map(len, found)) < 7


def test_an_end_of_now_stays(tmp_path: Path) -> None:
    """A stream that is to stop at the end of now reads nothing that comes later, in however many steps."""
    path = segment(tmp_path, 0, [0, 1, 2])
    reading = Reading(tmp_path, max_bytes="1")
    reading.reader.prepareForTriggerAvailableNow()
    path.write_bytes(path.read_bytes() + batch_at(3))
    segment(tmp_path, 0, [0], partition=1)
    assert [reading.read() for _ in range(4)] == [[0], [1], [2], []]


def test_an_end_of_now_is_found_from_where_the_stream_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """However large the last file, what is read to find its end is what is new."""
    path = segment(tmp_path, 0, list(range(200)))
    reading = Reading(tmp_path)
    reading.read()
    path.write_bytes(path.read_bytes() + batch_at(200))
    sizes: list[int] = []

    def counting(self: LocalFileSystem, path: str, start: int, end: int) -> bytes:
        sizes.append(end - start)
        return plain(self, path, start, end)

    plain = LocalFileSystem.cat_file
    monkeypatch.setattr(LocalFileSystem, "cat_file", counting)
    reading.reader.prepareForTriggerAvailableNow()
    found = reading.reader.latestOffset(reading.offset, None)
    assert next(iter(found.values()))["next_offset"] == 201
    assert sum(sizes) <= 2 * len(batch_at(200))


def test_a_file_that_goes_before_its_end_is_found_is_told(tmp_path: Path) -> None:
    """The update is begun again: compaction took the file."""
    path = segment(tmp_path, 0, [0, 1])
    reading = Reading(tmp_path)
    reading.reader.prepareForTriggerAvailableNow()
    path.unlink()
    with pytest.raises(LogChangedError, match=f"{path} was deleted while it was read"):
        reading.read()


def test_cursors_end_at_batches(tmp_path: Path) -> None:
    """Wherever a file ends, the cursor stands behind its last whole batch, and ranges lie end to end."""
    path = segment(tmp_path, 0, [0, 1, 2])
    data = path.read_bytes()
    ends = [0] + [batch.position + batch.size_bytes for batch in iter_batches(data)]
    cursor = None
    for size in range(0, len(data) + 1, 7):
        path.write_bytes(data[:size])
        (log,) = logs_of(find_segments([tmp_path], may_be_empty=True)).values()
        moved = advance(log, cursor)
        assert moved.position == max(end for end in ends if end <= size)
        assert sum(piece.byte_range.end - piece.byte_range.start for piece in ranges_between(log, cursor, moved)) == (
            moved.position - (0 if cursor is None else cursor.position)
        )
        cursor = moved
    assert cursor is not None
    assert cursor.file == path.name
