"""Batches of tombstones of offsets, put together from what those of a topic share: a deletion may have 30,000 of them.

The bytes are those of :func:`~groupcoord.records.codec.encode_record` and
:func:`~groupcoord.records.batches.encode_batch`.
"""

from __future__ import annotations

from collections.abc import Sequence
from struct import Struct

from groupcoord.core.log.records import NO_PRODUCER_EPOCH, NO_PRODUCER_ID, GroupTombstone, OffsetTombstone, Record
from groupcoord.records.batches import VARINTS, frame_records, record_starts, varint
from groupcoord.records.codec import OFFSET_COMMIT_KEY, encode_record, offset_key_names
from groupcoord.records.primitives import STRING_BYTES_MAX, MalformedError

_pack_length = Struct(">h").pack
_pack_partition = Struct(">i").pack
_PARTITION_BYTES, _SMALL = 4, len(VARINTS)
_END = varint(-1) + b"\x00"
"""No value, and no headers."""


def encode_tombstone_batch(
    base_offset: int, records: Sequence[Record], timestamp_ms: int, leader_epoch: int
) -> bytes | None:
    """Return the batch of tombstones of offsets, among which there may be tombstones of groups.

    Args:
        base_offset: offset of the first record.
        records: what is appended together.
        timestamp_ms: of all of them.
        leader_epoch: of the log partition's leader.

    Returns:
        None if there are other records, or a name can't be written: these take the usual way.

    Raises:
        struct.error: a number does not fit its field.
        RecordEncodingError: the name of a group can't be written.
    """
    parts: list[bytes] = []
    group_id = topic = None
    group_name = head = b""
    try:
        for slot, record in zip(record_starts(0, len(records)), records, strict=True):
            if type(record) is OffsetTombstone and record.key_version == OFFSET_COMMIT_KEY:
                if record.group_id != group_id:
                    group_id, topic = record.group_id, None
                    group_name = offset_key_names(group_id, "")[: -len(_pack_length(0))]
                if record.topic != topic:
                    topic = record.topic
                    if topic.isascii() and len(topic) <= STRING_BYTES_MAX:
                        names = group_name + _pack_length(len(topic)) + topic.encode("ascii")
                    else:
                        names = offset_key_names(group_id, topic)
                    head = varint(len(names) + _PARTITION_BYTES) + names
                body = b"%b%b%b%b" % (slot, head, _pack_partition(record.partition), _END)
            elif type(record) is GroupTombstone:
                key, _ = encode_record(record)
                body = b"%b%b%b%b" % (slot, varint(len(key)), key, _END)
            else:
                return None
            size = len(body)
            parts += (VARINTS[size] if size < _SMALL else varint(size), body)
    except (MalformedError, UnicodeEncodeError):
        return None  # the usual way has the right error for it
    return frame_records(
        base_offset,
        parts,
        len(records),
        timestamp_ms,
        leader_epoch=leader_epoch,
        producer_id=NO_PRODUCER_ID,
        producer_epoch=NO_PRODUCER_EPOCH,
    )
