"""The coordinator replays sorted rows as they come: hot groups, transactions, bounded memory."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

import groupcoord.spark as pipeline
from groupcoord.analysis.decode.schema import RECORDS
from groupcoord.analysis.fold.replay import RECORDS_FIELD, replay_batches
from groupcoord.coordinator import LoadError
from groupcoord.core.log.records import OffsetCommitRecord, OffsetTombstone
from groupcoord.spark.tables import replay

from ..analysis.fold.small_log import GROUP, TOPIC, Log, commit as commit_record

SCHEMA = RECORDS


def commit(log_offset: int, group_id: str, partition: int, offset: int, **changes: Any) -> dict[str, Any]:
    return {
        "kind": "record",
        "log_partition": 0,
        "log_offset": log_offset,
        "group_id": group_id,
        "tombstone": False,
        "topic": "t",
        "topic_partition": partition,
        "committed_offset": offset,
        "leader_epoch": -1,
        "metadata": "",
        "commit_timestamp_ms": 5,
        "expire_timestamp_ms": -1,
        "producer_id": -1,
        "producer_epoch": -1,
        "is_transactional": False,
        **changes,
    }


def marker(log_offset: int, group_id: str, producer_id: int, *, committed: bool) -> dict[str, Any]:
    """Return a row of a transaction marker, given to a group."""
    changes = {"kind": "control", "control_type": int(committed), "topic": None, "producer_id": producer_id}
    return commit(log_offset, group_id, 0, 0, **changes)


def answers(rows: Iterable[dict[str, Any]], batch_rows: int = 3) -> dict[tuple[str, str | int | None], Any]:
    """Return the coordinator's state: records of a group, and its offsets by partition."""
    batches = pa.Table.from_pylist(list(rows), SCHEMA).to_batches(batch_rows)
    found: dict[tuple[str, str | int | None], Any] = {}
    for batch in replay_batches(batches):
        for row in batch.to_pylist():
            if row["field"] == RECORDS_FIELD:
                found[row["group_id"], RECORDS_FIELD] = row["number"]
            elif row["field"] == "offset":
                found[row["group_id"], row["topic_partition"]] = row["text"]
            else:
                found[row["group_id"], row["field"]] = row["text"]
    return found


def test_groups_follow_each_other_through_batches() -> None:
    """Wherever a batch ends: each group has its own coordinator, and the last commit of each partition counts."""
    rows = [commit(2 * index, "a", index % 3, index) for index in range(10)]
    rows += [commit(20 + index, "b", index, 100 + index, leader_epoch=2, metadata="m") for index in range(4)]
    expected = {("a", RECORDS_FIELD): 10, ("b", RECORDS_FIELD): 4}
    expected |= {(group_id, "state"): "Empty" for group_id in "ab"}
    expected |= {(group_id, "generation"): "0" for group_id in "ab"}
    expected |= {(group_id, field): "" for group_id in "ab" for field in ("protocol", "protocol type")}
    expected |= {("a", 0): "9|-1|", ("a", 1): "7|-1|", ("a", 2): "8|-1|"}
    expected |= {("b", index): f"{100 + index}|2|m" for index in range(4)}

    for batch_rows in (1, 3, 7, 100):
        assert answers(rows, batch_rows) == expected


def test_transactions_count_by_their_markers() -> None:
    """Committed, aborted and open; a tombstone takes an offset away."""
    inside = {"is_transactional": True, "producer_id": 7, "producer_epoch": 0}
    other = inside | {"producer_id": 8}
    rows = [
        commit(0, "g", 0, 10, **inside),
        commit(1, "g", 1, 11, **other),
        marker(2, "g", 7, committed=True),
        marker(3, "g", 8, committed=False),
        commit(4, "g", 2, 12, **inside),
        commit(5, "g", 3, 13),
        commit(6, "g", 3, 0, tombstone=True),
    ]
    found = answers(rows)

    assert {key[1]: text for key, text in found.items() if isinstance(key[1], int)} == {0: "10|-1|"}


def test_records_out_of_order_are_refused() -> None:
    """A shuffle that lost the order must not go unnoticed."""
    with pytest.raises(LoadError, match="record at offset 3 after 5"):
        answers([commit(5, "g", 0, 1), commit(3, "g", 0, 2)])


def test_records_that_come_twice_count_once() -> None:
    """As a copy of a log may hold them, side by side and in different batches."""
    rows = [commit(offset, "g", offset, offset) for offset in (0, 1, 1, 2, 2, 3)]

    assert answers(rows, 2)["g", RECORDS_FIELD] == answers(rows, 10)["g", RECORDS_FIELD] == 4


def test_a_hot_group_is_streamed() -> None:
    """The replay asks for the next batch only when it is done with the one before."""
    asked = []

    def batches() -> Iterator[pa.RecordBatch]:
        for number in range(50):
            asked.append(number)
            rows = [commit(100 * number + index, "hot", index % 5, number) for index in range(100)]
            yield pa.RecordBatch.from_pylist(rows, SCHEMA)

    replayed = replay_batches(batches())
    assert asked == []
    (batch,) = list(replayed)

    assert asked == list(range(50))
    assert batch.to_pylist()[0]["number"] == 5_000
    assert [row["text"] for row in batch.to_pylist() if row["field"] == "offset"] == ["49|-1|"] * 5


def test_of_each_partition_the_last_commit_is_loaded(spark: SparkSession, tmp_path: Path) -> None:
    """With its last tombstone, and all of transactions: the responses are those of the whole log. A group without
    offsets exists until its own tombstone.
    """
    log = Log(tmp_path)
    for offset in range(9):
        log.add(commit_record(0, offset), commit_record(1, offset), OffsetCommitRecord("gone", TOPIC, 0, offset))
    log.add(commit_record(2, 10, 7), producer_id=7).add(commit_record(0, 20)).end(7, committed=True)
    log.add(OffsetTombstone(GROUP, TOPIC, 1), OffsetTombstone("gone", TOPIC, 0))
    found = replay(pipeline.read_log(spark, tmp_path)).collect()

    assert {row.group_id: row.number for row in found if row.field == RECORDS_FIELD} == {GROUP: 5, "gone": 2}
    assert {row.group_id: row.text for row in found if row.field == "state"} == {GROUP: "Empty", "gone": "Empty"}
    assert {row.topic_partition: row.text for row in found if row.field == "offset"} == {0: "20|-1|", 2: "10|-1|"}
