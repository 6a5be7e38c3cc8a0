"""The batch of a commit in one pass: what brokers write most often, and so what must be quick.

The bytes are those of :func:`~groupcoord.records.codec.encode_record` and
:func:`~groupcoord.records.batches.encode_batch`; here they are put together from pieces that the records of a commit
share.
"""

from __future__ import annotations

from collections.abc import Sequence
from struct import Struct

from groupcoord.core.records import NO_TIMESTAMP, OffsetCommitRecord, PlainCommits, Record
from groupcoord.records.batches import frame_records, varint
from groupcoord.records.codec import OFFSET_COMMIT_VALUE_VERSION, offset_key_names
from groupcoord.records.primitives import MalformedError

# partition; length of the value and its version; offset, leader epoch
_pack_middle = Struct(">iBhqi").pack
_pack_timestamp = Struct(">Bq").pack
_EMPTY_METADATA = 1
_NO_TAGS = b"\x00"
_TOPIC_ID_TAG = b"\x01\x00\x10"
_NO_HEADERS = b"\x00"
_VALUE_BYTES, _VALUE_BYTES_WITH_TOPIC_ID = 24, 42

_RECORDS_MAX = 8_192
_DELTAS = tuple(b"\x00\x00" + varint(delta) for delta in range(_RECORDS_MAX))
"""How each record starts behind its length: attributes, no time since the first, its place in the batch."""


def encode_commit_batch(
    base_offset: int, records: Sequence[Record], timestamp_ms: int, *, leader_epoch: int
) -> bytes | None:
    """Return the batch of a plain or transactional commit.

    Args:
        base_offset: offset of the first record.
        records: what is appended together.
        timestamp_ms: of all of them.
        leader_epoch: of the log partition's leader.

    Returns:
        None if there is anything but commits without metadata and expiry, or too many, or a name that can't be written:
        these take the usual way.

    Raises:
        struct.error: a number does not fit its field.
    """
    commits = records if isinstance(records, PlainCommits) else _plain(records)
    if commits is None or len(commits) > _RECORDS_MAX:
        return None
    topic = topic_id = commit_timestamp_ms = None
    head = tail = b""
    lengths = (b"", b"")
    value_length = 0
    parts: list[bytes] = []
    for record, delta in zip(commits, _DELTAS, strict=False):
        if (
            record.topic != topic
            or record.topic_id is not topic_id
            or record.commit_timestamp_ms != commit_timestamp_ms
        ):
            topic, topic_id, commit_timestamp_ms = record.topic, record.topic_id, record.commit_timestamp_ms
            try:
                names = offset_key_names(record.group_id, topic)
            except (MalformedError, UnicodeEncodeError):
                return None  # the usual way has the right error for it
            head = varint(len(names) + 4) + names
            has_topic_id = bool(topic_id.int)
            value_bytes = _VALUE_BYTES_WITH_TOPIC_ID if has_topic_id else _VALUE_BYTES
            value_length = value_bytes * 2  # as a zig-zag varint, of one byte
            tags = _TOPIC_ID_TAG + topic_id.bytes if has_topic_id else _NO_TAGS
            tail = _pack_timestamp(_EMPTY_METADATA, commit_timestamp_ms) + tags + _NO_HEADERS
            size_bytes = 3 + len(head) + 4 + 1 + value_bytes + 1
            lengths = (varint(size_bytes), varint(size_bytes + 1))
        middle = _pack_middle(
            record.partition, value_length, OFFSET_COMMIT_VALUE_VERSION, record.offset, record.leader_epoch
        )
        parts += (lengths[len(delta) - 3], delta, head, middle, tail)
    return frame_records(
        base_offset,
        parts,
        len(commits),
        timestamp_ms,
        leader_epoch=leader_epoch,
        producer_id=commits[0].producer_id,
        producer_epoch=commits[0].producer_epoch,
    )


def _plain(records: Sequence[Record]) -> Sequence[OffsetCommitRecord] | None:
    """Return the records if all are commits as Kafka 4.4 would write them, without metadata and expiry; else None."""
    commits = []
    for record in records:
        if (
            not isinstance(record, OffsetCommitRecord)
            or record.metadata
            or record.expire_timestamp_ms != NO_TIMESTAMP
            or record.value_version is not None
            or record.raw_value is not None
            or record.key_version != 1
        ):
            return None
        commits.append(record)
    return commits
