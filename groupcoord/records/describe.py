"""Records as values for :mod:`json`, in the form that Kafka's formatters print.

A key is ``{"type": 1, "data": {…}}``, a value ``{"version": 4, "data": {…}}`` or None for a tombstone, with the field
names of Kafka's schemas. An unreadable one is ``{"type": 77, "hex": "…"}`` with all its bytes.

Kafka prints bytes in base 64, as here if ``raw`` is set. Otherwise subscriptions and assignments of the consumer
protocol are decoded, as ``{"version": 3, "data": {…}}``, and other bytes are hexadecimal.
"""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Callable
from typing import Any

from groupcoord.core.consumer_protocol import (
    CONSUMER_PROTOCOL_TYPE,
    ConsumerProtocolError,
    Fields,
    read_assignment,
    read_subscription,
)
from groupcoord.core.log.records import OpaqueRecord
from groupcoord.core.share_state.records import (
    UNKNOWN_COUNT,
    SharePartitionKey,
    ShareSnapshot,
    ShareTombstone,
)
from groupcoord.records.schemas import RecordType
from groupcoord.records.share_state import SNAPSHOT_TYPE, UPDATE_TYPE, decode_share_state
from groupcoord.records.typed import parse_key, parse_value
from groupcoord.schema.engine import UNKNOWN_TAGS, Values, uuid_text

UNKNOWN = "UNKNOWN"
SHARE_SNAPSHOT, SHARE_UPDATE = "SHARE_SNAPSHOT", "SHARE_UPDATE"

CONTROL_NAMES = {
    0: "ABORT",
    1: "COMMIT",
    2: "LEADER_CHANGE",
    3: "SNAPSHOT_HEADER",
    4: "SNAPSHOT_FOOTER",
    5: "KRAFT_VERSION",
    6: "KRAFT_VOTERS",
}
"""Kafka's names of control record types; transactions write the first two."""


_SHARE_FIELDS = {
    "snapshot_epoch": "snapshotEpoch",
    "state_epoch": "stateEpoch",
    "leader_epoch": "leaderEpoch",
    "start_offset": "startOffset",
    "create_time_ms": "createTimestamp",
    "write_time_ms": "writeTimestamp",
}
"""Kafka's names of the numbers in a snapshot; an update has three of them."""


def describe_record(key: bytes | None, value: bytes | None, *, raw: bool = False) -> dict[str, Any]:
    """Return ``{"key": …, "value": …}`` for a record of any type; ``raw``: print bytes as Kafka does."""
    parsed = None if key is None else parse_key(key)
    if parsed is None:
        return {"key": _undescribed("type", key), "value": _undescribed("version", value)}
    record_type, fields = parsed
    return {"key": {"type": int(record_type), "data": fields}, "value": describe_value(record_type, value, raw=raw)}


def describe_value(record_type: RecordType, value: bytes | None, *, raw: bool = False) -> dict[str, Any] | None:
    """Return the value of a record with a known key, as :func:`describe_record` does."""
    values = None if value is None else parse_value(record_type, value)
    if value is None or values is None:
        return _undescribed("version", value)
    if record_type is RecordType.GROUP_METADATA:
        _describe_members(values, raw)
    elif record_type is RecordType.CONSUMER_GROUP_MEMBER_METADATA:
        _describe_classic_protocols(values, raw)
    _describe_tags(values)
    return {"version": int.from_bytes(value[:2], "big"), "data": values}


def describe_control(key: bytes | None, value: bytes | None) -> dict[str, Any]:
    """Return ``{"key": …, "value": …}`` for a control record, usually a transaction marker (KIP-98)."""
    if key is None or len(key) < 4:
        return {"key": _undescribed("version", key), "value": _undescribed("version", value)}
    control_type = int.from_bytes(key[2:4], "big", signed=True)
    described: dict[str, Any] = {
        "key": {"version": int.from_bytes(key[:2], "big", signed=True), "data": {"type": control_type}},
        "value": _undescribed("version", value),
    }
    if control_type in (0, 1) and value is not None and len(value) >= 6:
        epoch = int.from_bytes(value[2:6], "big", signed=True)
        described["value"] = {
            "version": int.from_bytes(value[:2], "big", signed=True),
            "data": {"coordinatorEpoch": epoch},
        }
    return described


def describe_share_state(key: bytes, value: bytes | None) -> dict[str, Any]:
    """Return ``{"recordType": …, "key": …, "value": …}`` for a record of ``__share_group_state`` (KIP-932)."""
    record = decode_share_state(key, value)
    if isinstance(record, OpaqueRecord):
        undecoded = None if value is None else {"bytes": value.hex()}
        return {"recordType": UNKNOWN, "key": {"bytes": key.hex()}, "value": undecoded}
    if isinstance(record, ShareTombstone):
        return {"recordType": SHARE_SNAPSHOT, "key": _share_key(SNAPSHOT_TYPE, record.key), "value": None}
    is_snapshot = isinstance(record, ShareSnapshot)
    name, record_type = (SHARE_SNAPSHOT, SNAPSHOT_TYPE) if is_snapshot else (SHARE_UPDATE, UPDATE_TYPE)
    data = {name: getattr(record, field) for field, name in _SHARE_FIELDS.items() if hasattr(record, field)}
    names = ("firstOffset", "lastOffset", "deliveryState", "deliveryCount")
    data["stateBatches"] = [dict(zip(names, batch, strict=True)) for batch in record.state_batches]
    if record.delivery_complete_count != UNKNOWN_COUNT:
        data["deliveryCompleteCount"] = record.delivery_complete_count
    return {"recordType": name, "key": _share_key(record_type, record.key), "value": {"version": 0, "data": data}}


def describe_subscription(data: bytes) -> dict[str, Any] | str:
    return _describe_protocol(read_subscription, data)


def describe_assignment(data: bytes) -> dict[str, Any] | str:
    return _describe_protocol(read_assignment, data)


def record_name(key: bytes | None) -> str:
    return _NAMES.get(b"" if key is None else key[:2], UNKNOWN)


def control_name(key: bytes | None) -> str:
    return UNKNOWN if key is None or len(key) < 4 else CONTROL_NAMES.get(int.from_bytes(key[2:4], "big"), UNKNOWN)


_NAMES = {record_type.to_bytes(2, "big"): record_type.name for record_type in RecordType}


def _undescribed(number: str, data: bytes | None) -> dict[str, Any] | None:
    if data is None:
        return None
    if len(data) < 2:
        return {"hex": data.hex()}
    return {number: int.from_bytes(data[:2], "big", signed=True), "hex": data.hex()}


def _share_key(record_type: int, key: SharePartitionKey) -> dict[str, Any]:
    data = {"groupId": key.group_id, "topicId": uuid_text(key.topic_id.bytes), "partition": key.partition}
    return {"type": record_type, "data": data}


def _base64(data: bytes) -> str:
    return b64encode(data).decode("ascii")


def _describe_members(values: Values, raw: bool) -> None:
    subscription: Callable[[bytes], Any] = bytes.hex
    assignment: Callable[[bytes], Any] = bytes.hex
    if raw:
        subscription = assignment = _base64
    elif values["protocolType"] == CONSUMER_PROTOCOL_TYPE:
        subscription, assignment = describe_subscription, describe_assignment
    for member in values["members"]:
        member["subscription"] = subscription(member["subscription"])
        member["assignment"] = assignment(member["assignment"])


def _describe_classic_protocols(values: Values, raw: bool) -> None:
    classic = values.get("classicMemberMetadata")
    for protocol in classic["supportedProtocols"] if classic else ():
        protocol["metadata"] = (_base64 if raw else describe_subscription)(protocol["metadata"])


def _describe_tags(values: Values) -> None:
    if UNKNOWN_TAGS in values:
        values[UNKNOWN_TAGS] = [{"tag": tag, "hex": content.hex()} for tag, content in values[UNKNOWN_TAGS]]
    for name, value in values.items():
        if isinstance(value, dict):
            _describe_tags(value)
        elif isinstance(value, list) and value and isinstance(value[0], dict) and name != UNKNOWN_TAGS:
            for element in value:
                _describe_tags(element)


def _describe_protocol(read: Callable[[bytes], tuple[int, Fields, int]], data: bytes) -> dict[str, Any] | str:
    try:
        version, values, end = read(data)
    except ConsumerProtocolError:
        return data.hex()
    if values["userData"] is not None:
        values["userData"] = values["userData"].hex()
    described = {"version": version, "data": values}
    if end < len(data):
        described["unread"] = data[end:].hex()
    return described
