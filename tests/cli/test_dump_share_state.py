"""``groupcoord dump --topic __share_group_state``: what is known of share groups, as JSON lines."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any
from uuid import UUID

from groupcoord.core.share_state.records import (
    SharePartitionKey,
    ShareSnapshot,
    ShareTombstone,
    ShareUpdate,
    StateBatch,
)
from groupcoord.records.batches import encode_batch
from groupcoord.records.share_state import encode_share_state
from tests.command import dump

KEY = SharePartitionKey("workers", UUID(int=7), 3)
RECORDS = (
    ShareSnapshot(KEY, 0, 1, 2, -1, 10, 11, -1, ()),
    ShareUpdate(KEY, 0, 2, 5, 1, (StateBatch(5, 6, 2, 1),)),
    ShareTombstone(KEY),
    ShareTombstone(KEY._replace(group_id="others")),
)


def states(data_dir: Path, *options: str) -> tuple[int, list[Any]]:
    done = dump(data_dir, "--topic", "__share_group_state", *options)
    return done.status, [json.loads(line) for line in done.output.splitlines()]


def data_directory(folder: Path) -> Path:
    partition = folder / "__share_group_state-4"
    partition.mkdir()
    records = [(*encode_share_state(record), 1_000) for record in RECORDS]
    records.append((b"\x00\x09", b"?", 1_000))
    (partition / "00000000000000000000.log").write_bytes(encode_batch(0, records))
    (folder / "__consumer_offsets-4").mkdir()
    return folder


def test_states_are_told(tmp_path: Path) -> None:
    """Snapshots, updates and tombstones have the fields of Kafka's schemas; unknown ones are in bytes."""
    status, lines = states(data_directory(tmp_path))
    assert status == 0
    key = {"groupId": "workers", "topicId": "AAAAAAAAAAAAAAAAAAAABw", "partition": 3}
    snapshot = {"snapshotEpoch": 0, "stateEpoch": 1, "leaderEpoch": 2, "startOffset": -1}
    times = {"createTimestamp": 10, "writeTimestamp": 11, "stateBatches": []}
    batch = {"firstOffset": 5, "lastOffset": 6, "deliveryState": 2, "deliveryCount": 1}
    update = {
        "snapshotEpoch": 0,
        "leaderEpoch": 2,
        "startOffset": 5,
        "stateBatches": [batch],
        "deliveryCompleteCount": 1,
    }
    assert lines[0] == {
        "partition": 4,
        "offset": 0,
        "timestamp": 1_000,
        "recordType": "SHARE_SNAPSHOT",
        "key": {"type": 0, "data": key},
        "value": {"version": 0, "data": {**snapshot, **times}},
    }
    assert (lines[1]["recordType"], lines[1]["value"]["data"]) == (
        "SHARE_UPDATE",
        {**update, "deliveryCompleteCount": 1},
    )
    assert (lines[2]["key"], lines[2]["value"]) == ({"type": 0, "data": key}, None)
    assert (lines[4]["recordType"], lines[4]["key"]) == ("UNKNOWN", {"bytes": "0009"})


def test_some_are_told(tmp_path: Path) -> None:
    """Those of a group or of a type; there is no table of them."""
    data_dir = data_directory(tmp_path)
    assert [line["offset"] for line in states(data_dir, "--group", "others")[1]] == [3]
    assert [line["offset"] for line in states(data_dir, "--type", "share_update")[1]] == [1]
    assert states(data_dir, "--format", "table") == (2, [])


def test_share_partitions_are_told(tmp_path: Path) -> None:
    status, lines = states(data_directory(tmp_path), "--history", "--group", "workers")
    (line,) = lines

    assert status == 0
    assert (line["kind"], line["group_id"], line["topic_partition"]) == ("share partition", "workers", 3)
    assert (line["start_offset"], line["acknowledged"], line["is_deleted"], line["log_offset"]) == (5, 2, True, 2)
