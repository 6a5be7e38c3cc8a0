"""The table of records made by the scalar codec, one record at a time: what the kernel has to equal."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from groupcoord.analysis.decode.schema import RECORDS
from groupcoord.core.log.records import ZERO_UUID, OffsetCommitRecord, OffsetTombstone, OpaqueRecord, TransactionMarker
from groupcoord.records.batches import Batch
from groupcoord.records.codec import decode_control, decode_record
from groupcoord.records.schemas import RecordType
from groupcoord.records.typed import group_id_of, parse_key

Row = dict[str, Any]

EMPTY: Row = dict.fromkeys(RECORDS.names)


def scalar_row(key: bytes | None, value: bytes | None, *, is_control: bool = False) -> Row:
    """Return the row of a key and value; ``problem`` is only whether there is one."""
    row = EMPTY | {
        "kind": "control" if is_control else "record",
        "tombstone": value is None,
        "value_version": int.from_bytes(value[:2], "big", signed=True)
        if value is not None and len(value) > 1
        else None,
        "size_bytes": len(key or b"") + len(value or b""),
        "key": key,
        "value": value,
        "problem": False,
    }
    if is_control:
        return row | control_fields(key or b"", value)
    if key is None or len(key) < 2:
        return row | {"problem": True}
    row["record_type"] = int.from_bytes(key[:2], "big", signed=True)
    parsed = parse_key(key)
    if parsed is None:
        return row | {"problem": True}
    record_type, fields = parsed
    row["group_id"] = group_id_of(fields)
    if record_type > RecordType.OFFSET_COMMIT:
        return row | {"problem": has_strange_version(record_type, value)}
    row |= {"topic": fields["topic"], "topic_partition": fields["partition"]}
    record = decode_record(key, value)
    if isinstance(record, OpaqueRecord):
        return row | {"problem": True}
    row |= {"key": None, "value": None}
    if isinstance(record, OffsetTombstone):
        return row
    assert isinstance(record, OffsetCommitRecord)
    return row | {
        "committed_offset": record.offset,
        "leader_epoch": record.leader_epoch,
        "metadata": record.metadata,
        "commit_timestamp_ms": record.commit_timestamp_ms,
        "expire_timestamp_ms": record.expire_timestamp_ms,
        "topic_id": None if record.topic_id == ZERO_UUID else record.topic_id.bytes,
    }


def control_fields(key: bytes, value: bytes | None) -> Row:
    marker = decode_control(key, value, 7, 7)
    if isinstance(marker, TransactionMarker):
        return {"control_type": int(marker.committed)}
    number = int.from_bytes(key[2:4], "big", signed=True) if len(key) >= 4 else None
    is_sound = number is not None and number not in (0, 1) and key[0] < 0x80
    return {"control_type": number if is_sound else None, "problem": not is_sound}


def has_strange_version(record_type: RecordType, value: bytes | None) -> bool:
    """Return whether a value has no version or an unknown one."""
    newest = 4 if record_type is RecordType.GROUP_METADATA else 0
    return value is not None and (len(value) < 2 or not 0 <= int.from_bytes(value[:2], "big", signed=True) <= newest)


def scalar_rows(batches: Iterable[Batch], *, file: str | None, log_partition: int | None) -> Iterator[Row]:
    """Yield a row for each record of batches."""
    for batch in batches:
        for offset, timestamp_ms, key, value in batch.records():
            yield scalar_row(key, value, is_control=batch.is_control) | {
                "log_partition": log_partition,
                "log_offset": offset,
                "log_timestamp_ms": timestamp_ms,
                "producer_id": batch.producer_id,
                "producer_epoch": batch.producer_epoch,
                "is_transactional": batch.is_transactional,
                "partition_leader_epoch": batch.leader_epoch,
                "file": file,
                "position": batch.position,
            }


def without_reasons(rows: Iterable[Row]) -> list[Row]:
    """Return the rows that are records, with whether they have a problem in place of which it is."""
    return [row | {"problem": row["problem"] is not None} for row in rows if row["kind"] in ("record", "control")]
