"""Tables kept up to date from growing logs are those that one reading of the whole logs gives."""

from __future__ import annotations

import json
import random
import shutil
from pathlib import Path
from typing import Any

import fsspec
import pytest
from fsspec.implementations.local import LocalFileSystem
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession

import groupcoord.spark as pipeline
from groupcoord.analysis.columns.files import find_segments
from groupcoord.analysis.columns.tailing import LogChangedError, advance, logs_of, ranges_between
from groupcoord.core.records import OffsetCommitRecord, OffsetTombstone
from groupcoord.records.batches import iter_batches
from groupcoord.spark.source import LogOptions, LogStreamReader
from groupcoord.spark.stream_store import Part, StreamStore
from groupcoord.spark.streaming import FollowedTables, follow, read_log_stream

from ..folding.small_log import GROUP, TOPIC, Log, commit
from ..history.consumer_story import crew, moving, write_story
from ..running.growing import Growing


def rows(table: DataFrame) -> list[str]:
    """Return all rows in a form and an order that can be compared."""
    return sorted(json.dumps(row.asDict(recursive=True), default=str, sort_keys=True) for row in table.collect())


def batch_tables(records: DataFrame) -> dict[str, DataFrame]:
    """Return the tables that one reading gives."""
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


@pytest.fixture
def whole_log(broker_log: Path, tmp_path: Path) -> Path:
    """Three log partitions of a real broker, and one with a story of consumer groups."""
    folder = tmp_path / "whole"
    for number in (3, 4, 7):
        name = f"__consumer_offsets-{number}"
        shutil.copytree(broker_log / name, folder / name)
    shutil.move(write_story(tmp_path / "story", crew, moving) / "__consumer_offsets-0", folder / "__consumer_offsets-5")
    return folder


def update(spark: SparkSession, logs: Path, out: Path) -> None:
    """Read all there is now."""
    follow(read_log_stream(spark, logs), out, until_end=True).awaitTermination()


def test_following_equals_one_reading(
    spark: SparkSession, whole_log: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A log that grows by any bytes; the first update crashes when it is written, and is repeated first."""
    growing = Growing(whole_log, tmp_path / "data")
    out = tmp_path / "out"
    shares = growing.random_shares(random.Random(4))
    growing.grow(shares)

    def crash(*_: object) -> None:
        raise RuntimeError("the machine is gone")

    with monkeypatch.context() as patched:
        patched.setattr(StreamStore, "commit", crash)
        with pytest.raises(StreamingQueryException, match="the machine is gone"):
            update(spark, growing.folder, out)
    assert FollowedTables(spark, out).update == -1
    growing.finish()
    update(spark, growing.folder, out)

    tables = FollowedTables(spark, out)
    assert tables.update == 1
    whole = batch_tables(pipeline.read_log(spark, whole_log).cache())
    for name in ("commits", "current_offsets", "rebalances", "groups", "memberships", "moves"):
        assert rows(tables.table(name)) == rows(whole[name]), name


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(2))
def test_any_split_gives_the_same(spark: SparkSession, whole_log: Path, tmp_path: Path, seed: int) -> None:
    """Four updates at random places of each log partition."""
    growing = Growing(whole_log, tmp_path / "data")
    draw, shares = random.Random(seed), None
    for _ in range(3):
        shares = growing.random_shares(draw, shares)
        growing.grow(shares)
        update(spark, growing.folder, tmp_path / "out")
    assert shares is not None
    growing.finish()
    update(spark, growing.folder, tmp_path / "out")

    tables = FollowedTables(spark, tmp_path / "out")
    for name, table in batch_tables(pipeline.read_log(spark, whole_log).cache()).items():
        assert rows(tables.table(name)) == rows(table), name


@pytest.mark.slow
def test_transactions_that_end_in_a_later_update(spark: SparkSession, tmp_path: Path) -> None:
    """A commit counts where it lies once its marker is there, and gives way to what lies behind it, tombstones too."""
    data, out = tmp_path / "data", tmp_path / "out"
    log = Log(data).add(commit(0, 10, 7), commit(1, 11, 7), commit(2, 12, 7), producer_id=7).add(commit(0, 20))
    log.add(OffsetTombstone(GROUP, TOPIC, 1)).add(commit(3, 40, 8), producer_id=8)
    update(spark, data, out)
    tables = FollowedTables(spark, out)
    assert {row.topic_partition: row.committed_offset for row in tables.table("current_offsets").collect()} == {0: 20}
    assert tables.table("commits").where("transaction = 'open'").count() == 4

    log.add(commit(4, 50)).end(7, committed=True).end(8, committed=False)
    update(spark, data, out)
    tables.refresh()
    found = {row.topic_partition: row.committed_offset for row in tables.table("current_offsets").collect()}
    assert found == {0: 20, 2: 12, 4: 50}
    for name, table in batch_tables(pipeline.read_log(spark, data)).items():
        assert rows(tables.table(name)) == rows(table), name


@pytest.mark.slow
def test_small_parts_are_put_together(spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """However many updates, there are few parts, with every row once; a plain reading of the folder agrees."""
    monkeypatch.setattr("groupcoord.spark.stream_store.PARTS_MAX", 2)
    data, out = tmp_path / "data", tmp_path / "out"
    log = Log(data)
    for number in range(4):
        log.add(commit(number, number))
        update(spark, data, out)

    tables = FollowedTables(spark, out)
    assert len(list((out / "tables" / "commits").glob("updates=*"))) < 4
    assert tables.table("commits").count() == spark.read.parquet(f"{out}/tables/commits").count() == 4
    assert {row.topic_partition for row in tables.table("current_offsets").collect()} == {0, 1, 2, 3}


@pytest.mark.slow
def test_messages_of_another_stream(spark: SparkSession, broker_log: Path, tmp_path: Path) -> None:
    """Any streaming DataFrame of keys and values leads to the same tables; here a folder of Parquet files."""
    records = pipeline.read_log(spark, broker_log, raw_bytes=True).where("kind = 'record' and not is_transactional")
    dump = records.selectExpr(
        "key", "value", "log_partition as partition", "log_offset as offset", "log_timestamp_ms as timestamp"
    )
    dump.write.parquet(f"{tmp_path}/dump")
    stream = spark.readStream.schema(dump.schema).parquet(f"{tmp_path}/dump")
    follow(pipeline.from_messages(stream), tmp_path / "out", until_end=True).awaitTermination()

    tables = FollowedTables(spark, tmp_path / "out")
    assert rows(tables.table("current_offsets")) == rows(pipeline.current_offsets(records))


# ---------------------------------------------------------------- reading as logs grow


class Reading:
    """A stream over one folder, without Spark."""

    def __init__(self, folder: Path | str, **options: str) -> None:
        self.reader = LogStreamReader(LogOptions({"path": str(folder), "columns": "log_offset,problem", **options}))
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
    reader = LogStreamReader(LogOptions({"path": str(tmp_path)}))
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


# ---------------------------------------------------------------- what is kept


def test_parts_are_classed_by_size() -> None:
    """Small parts are put together with small ones: each row is written again a few times in its life."""
    assert [Part(0, 0, rows).size_class for rows in (0, 9_999, 10_000, 160_000, 50_000_000)] == [0, 0, 1, 2, 4]
