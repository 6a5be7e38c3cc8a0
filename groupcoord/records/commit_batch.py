"""The batch of a commit in one pass: what brokers write most often, and so what must be quick.

The bytes are those of :func:`~groupcoord.records.codec.encode_record` and
:func:`~groupcoord.records.batches.encode_batch`; here they are put together column by column from pieces that the
records of a commit share.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache
from itertools import groupby
from struct import Struct

from groupcoord.core.records import NO_TIMESTAMP, CommittedTopic, OffsetCommitRecord, PlainCommits, Record
from groupcoord.records.batches import RECORD_STARTS, frame_records, varint
from groupcoord.records.codec import OFFSET_COMMIT_VALUE_VERSION, offset_key_names
from groupcoord.records.primitives import MalformedError

_pack_partition = Struct(">i").pack
_pack_timestamp = Struct(">Bq").pack
_EMPTY_METADATA = 1
_NO_TAGS = b"\x00"
_TOPIC_ID_TAG = b"\x01\x00\x10"
_NO_HEADERS = b"\x00"
_VERSION_AND_OFFSET_BYTES = 14

_VALUE_VERSION = Struct(">h").pack(OFFSET_COMMIT_VALUE_VERSION)

_CACHED_STARTS_MAX, _CACHED_NAMES_LENGTH_MAX = 64, 256


def encode_commit_batch(
    base_offset: int, records: Sequence[Record], timestamp_ms: int, leader_epoch: int
) -> bytes | None:
    """Return the batch of a plain or transactional commit.

    Args:
        base_offset: offset of the first record.
        records: what is appended together.
        timestamp_ms: of all of them.
        leader_epoch: of the log partition's leader.

    Returns:
        None if there is no record, anything but commits without metadata and expiry, too many, or a name that can't be
        written: these take the usual way.

    Raises:
        struct.error: a number does not fit its field.
    """
    topics = records.topics if isinstance(records, PlainCommits) else _plain(records)
    record_count = len(records)
    if not topics or record_count > len(RECORD_STARTS):
        return None
    parts: list[bytes] = []
    position = 0
    try:
        for topic in topics:
            parts.append(_records_of_topic(topic, position))
            position += len(topic.offsets)
    except (MalformedError, UnicodeEncodeError):
        return None  # the usual way has the right error for it
    like = topics[0].like
    return frame_records(
        base_offset,
        parts,
        record_count,
        timestamp_ms,
        leader_epoch=leader_epoch,
        producer_id=like.producer_id,
        producer_epoch=like.producer_epoch,
    )


def _records_of_topic(topic: CommittedTopic, position: int) -> bytes:
    """Return a topic's records, the first of which is the batch's ``position``-th."""
    like, partition_indexes, offsets, leader_epochs = topic
    count = len(offsets)
    topic_id = like.topic_id
    tags = _TOPIC_ID_TAG + topic_id.bytes if topic_id.int else _NO_TAGS
    tail = _pack_timestamp(_EMPTY_METADATA, like.commit_timestamp_ms) + tags + _NO_HEADERS
    is_small = count <= _CACHED_STARTS_MAX and len(like.group_id) + len(like.topic) <= _CACHED_NAMES_LENGTH_MAX
    make_frame = _cached_frame if is_small else _frame
    starts, pack = make_frame(like.group_id, like.topic, len(tail), position, partition_indexes)
    fields: list[object] = [tail] * (4 * count)
    fields[0::4] = starts
    fields[1::4] = offsets
    fields[2::4] = leader_epochs
    return pack(*fields)


def _frame(
    group_id: str, topic: str, tail_bytes: int, position: int, partition_indexes: tuple[int, ...]
) -> tuple[list[bytes], Callable[..., bytes]]:
    """Return each record up to its offset, and what packs these, offset, leader epoch and the rest of each.

    It starts with its length, the key, and the value's length and version.
    """
    names = offset_key_names(group_id, topic)
    head = varint(len(names) + 4) + names
    value_bytes = _VERSION_AND_OFFSET_BYTES + tail_bytes - len(_NO_HEADERS)
    value_start = varint(value_bytes) + _VALUE_VERSION
    rest_bytes = len(head) + 4 + 1 + value_bytes + 1
    sizes = {len(delta): varint(len(delta) + rest_bytes) for delta in (RECORD_STARTS[0], RECORD_STARTS[-1])}
    starts = [
        sizes[len(delta)] + delta + head + _pack_partition(index) + value_start
        for delta, index in zip(
            RECORD_STARTS[position : position + len(partition_indexes)], partition_indexes, strict=True
        )
    ]
    return starts, Struct(">" + "".join([f"{len(start)}sqi{tail_bytes}s" for start in starts])).pack


_cached_frame = lru_cache(maxsize=1_024)(_frame)
"""A consumer commits its partitions again and again."""


def _plain(records: Sequence[Record]) -> Sequence[CommittedTopic] | None:
    """Return the records by topic if all are commits as Kafka 4.4 would write them, without metadata and expiry."""
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
    topics = []
    for _, found in groupby(
        commits, lambda commit: (commit.group_id, commit.topic, commit.topic_id, commit.commit_timestamp_ms)
    ):
        of_topic = list(found)
        topics.append(
            CommittedTopic(
                of_topic[0],
                tuple([commit.partition for commit in of_topic]),
                tuple([commit.offset for commit in of_topic]),
                tuple([commit.leader_epoch for commit in of_topic]),
            )
        )
    return topics
