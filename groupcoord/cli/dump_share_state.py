"""Records of ``__share_group_state`` as JSON lines, in the shape of Kafka's own formatter."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

from groupcoord.analysis.history.share_partitions import SHARE_PARTITION, SharePartitions
from groupcoord.cli.dump_selection import SHARE_SNAPSHOT, SHARE_UPDATE, Selection
from groupcoord.core.records import OpaqueRecord
from groupcoord.core.share_state.records import (
    UNKNOWN_COUNT,
    SharePartitionKey,
    ShareSnapshot,
    ShareTombstone,
    ShareUpdate,
)
from groupcoord.records.describe import UNKNOWN
from groupcoord.records.salvage import SoundBatch
from groupcoord.records.share_state import SNAPSHOT_TYPE, UPDATE_TYPE, decode_share_state
from groupcoord.records.structures import uuid_text

_encode = json.JSONEncoder(ensure_ascii=False, separators=(",", ":")).encode


class ShareStateLines:
    """Makes one line for each selected record.

    Args:
        selection: which records are wanted.
    """

    def __init__(self, selection: Selection) -> None:
        self._selection = selection

    def lines(self, partition: int | None, sound: SoundBatch) -> list[str]:
        """Return the lines of a batch, without line ends."""
        return [
            _encode({"partition": partition, "offset": offset, "timestamp": timestamp_ms, **described})
            for offset, timestamp_ms, key, value in self._selection.in_time(sound.records)
            if (described := self._described(key or b"", value)) is not None
        ]

    def _described(self, key: bytes, value: bytes | None) -> dict[str, Any] | None:
        record = decode_share_state(key, value)
        name, told = UNKNOWN, _unknown(key, value)
        group_id: str | None = None
        match record:
            case ShareSnapshot():
                name, group_id = SHARE_SNAPSHOT, record.key.group_id
                told = {"key": _key(SNAPSHOT_TYPE, record.key), "value": {"version": 0, "data": _snapshot(record)}}
            case ShareUpdate():
                name, group_id = SHARE_UPDATE, record.key.group_id
                told = {"key": _key(UPDATE_TYPE, record.key), "value": {"version": 0, "data": _update(record)}}
            case ShareTombstone():
                name, group_id = SHARE_SNAPSHOT, record.key.group_id
                told = {"key": _key(SNAPSHOT_TYPE, record.key), "value": None}
        if not (self._selection.has_type(name) and self._selection.has_group(group_id)):
            return None
        return {"recordType": name, **told}


def share_partition_lines(
    log_partition: int | None, files: Iterable[Iterable[SoundBatch]], selection: Selection
) -> list[str]:
    """Return a line for each wanted share-partition of a log partition, without line ends.

    Args:
        log_partition: its number, if it is known.
        files: the batches of each of its files, in the order of the log.
        selection: what is wanted.
    """
    found = SharePartitions(log_partition)
    for offset, timestamp_ms, key, value in (record for file in files for sound in file for record in sound.records):
        record = decode_share_state(key or b"", value)
        if not isinstance(record, OpaqueRecord):
            found.add(offset, timestamp_ms, record)
    return [
        _encode({"kind": SHARE_PARTITION, **row})
        for row in found.rows()
        if selection.has_type(SHARE_PARTITION)
        and selection.has_group(row["group_id"])
        and selection.has_time(row["last_ms"])
    ]


def _unknown(key: bytes, value: bytes | None) -> dict[str, Any]:
    return {"key": {"bytes": key.hex()}, "value": None if value is None else {"bytes": value.hex()}}


def _key(record_type: int, key: SharePartitionKey) -> dict[str, Any]:
    data = {"groupId": key.group_id, "topicId": uuid_text(key.topic_id.bytes), "partition": key.partition}
    return {"type": record_type, "data": data}


def _snapshot(record: ShareSnapshot) -> dict[str, Any]:
    return {
        "snapshotEpoch": record.snapshot_epoch,
        "stateEpoch": record.state_epoch,
        "leaderEpoch": record.leader_epoch,
        "startOffset": record.start_offset,
        "createTimestamp": record.create_time_ms,
        "writeTimestamp": record.write_time_ms,
        **_state(record),
    }


def _update(record: ShareUpdate) -> dict[str, Any]:
    return {
        "snapshotEpoch": record.snapshot_epoch,
        "leaderEpoch": record.leader_epoch,
        "startOffset": record.start_offset,
        **_state(record),
    }


def _state(record: ShareSnapshot | ShareUpdate) -> dict[str, Any]:
    names = ("firstOffset", "lastOffset", "deliveryState", "deliveryCount")
    batches = [dict(zip(names, batch, strict=True)) for batch in record.state_batches]
    count = record.delivery_complete_count
    return {"stateBatches": batches, **({} if count == UNKNOWN_COUNT else {"deliveryCompleteCount": count})}
