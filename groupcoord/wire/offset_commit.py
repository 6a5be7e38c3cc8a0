"""Codecs of OffsetCommit and TxnOffsetCommit, written by hand for speed (:mod:`.offset_columns`).

OffsetCommit: key 8, versions 2-10, flexible from 8. 2-4: the client may send a retention time. 3: throttle time in the
response. 6: leader epochs (KIP-320). 7: instance id (KIP-345). 9: member epoch in place of the generation (KIP-848).
10: topics by id.

TxnOffsetCommit: key 28, versions 0-6, flexible from 3. 2: leader epochs. 3: member id and generation (KIP-447). 5: the
group is added to the transaction if necessary (KIP-890). 6: topics by id (KIP-1319).
"""

from collections.abc import Mapping
from typing import NamedTuple
from uuid import UUID

from groupcoord.core.log.records import ZERO_UUID
from groupcoord.core.messages import (
    UNKNOWN_GENERATION_ID,
    UNKNOWN_MEMBER_ID,
    OffsetCommit,
    TopicToCommit,
    TxnOffsetCommit,
)
from groupcoord.errors import ErrorCode
from groupcoord.schema.primitives import (
    INT16,
    INT32_FROM,
    INT64,
    read_array_length,
    read_compact_array_length,
    read_compact_nullable_string,
    read_compact_string,
    read_nullable_string,
    read_string,
    read_uuid,
    skip_tagged_fields,
)
from groupcoord.wire.api import Api, Decoder, Encoder, RequestHeader, VersionRange
from groupcoord.wire.offset_columns import ResultsWriter, offsets_reader

_HEADS_MAX, _HEAD_BYTES_MAX = 8_192, 256


class _Head(NamedTuple):
    """Fields of a commit of one topic before its offsets."""

    group_id: str | None
    generation_id: int
    member_id: str
    group_instance_id: str | None
    retention_time_ms: int
    name: str | None
    topic_id: UUID


class _Heads:
    """Cache of the fields before the offsets, which a member repeats in each commit.

    Attributes:
        end_of: returns the end of these fields in the last cached request of equal length.
        find: returns the fields for these bytes, or None.
    """

    def __init__(self) -> None:
        self._ends: dict[int, int] = {}
        self._heads: dict[bytes, _Head] = {}
        self.end_of = self._ends.get
        self.find = self._heads.get

    def remember(self, frame: bytes, start: int, end: int, head: _Head) -> None:
        if end - start > _HEAD_BYTES_MAX:  # so that clients can't make the cache large
            return
        if len(self._ends) >= _HEADS_MAX or len(self._heads) >= _HEADS_MAX:
            self._ends.clear()
            self._heads.clear()
        self._ends[len(frame)] = end
        self._heads[frame[start:end]] = head


def _decoder(version: int) -> Decoder:
    is_flexible, uses_topic_ids = version >= 8, version >= 10
    has_instance_id, has_retention_time, supports_epochs = version >= 7, version <= 4, version >= 9
    read_text = read_compact_string if is_flexible else read_string
    read_nullable_text = read_compact_nullable_string if is_flexible else read_nullable_string
    read_count = read_compact_array_length if is_flexible else read_array_length
    read_offsets = offsets_reader(has_leader_epoch=version >= 6, is_flexible=is_flexible)
    heads = _Heads()
    end_of, find_head = heads.end_of, heads.find

    def decode(frame: bytes, position: int, header: RequestHeader, client_host: str) -> OffsetCommit:
        end = end_of(len(frame), 0)
        head = find_head(frame[position:end])
        if head is None:
            return decode_anew(frame, position)
        group_id, generation_id, member_id, group_instance_id, retention_time_ms, name, topic_id = head
        offsets, position = read_offsets(frame, end)
        if is_flexible:
            skip_tagged_fields(frame, skip_tagged_fields(frame, position))
        topics = (TopicToCommit(name, offsets, topic_id),)
        return OffsetCommit(
            group_id, topics, generation_id, member_id, group_instance_id, retention_time_ms, supports_epochs
        )

    def decode_anew(frame: bytes, position: int) -> OffsetCommit:
        start = position
        group_id, position = read_text(frame, position)
        (generation_id,) = INT32_FROM(frame, position)
        member_id, position = read_text(frame, position + 4)
        group_instance_id, retention_time_ms = None, -1
        if has_instance_id:
            group_instance_id, position = read_nullable_text(frame, position)
        elif has_retention_time:
            (retention_time_ms,) = INT64.unpack_from(frame, position)
            position += 8
        count, position = read_count(frame, position)
        topics = []
        for _ in range(count):
            name, topic_id = None, ZERO_UUID
            if uses_topic_ids:
                topic_id, position = read_uuid(frame, position)
            else:
                name, position = read_text(frame, position)
            if count == 1:
                known = (group_id, generation_id, member_id, group_instance_id, retention_time_ms, name, topic_id)
                heads.remember(frame, start, position, _Head(*known))
            offsets, position = read_offsets(frame, position)
            topics.append(TopicToCommit(name, offsets, topic_id))
            if is_flexible:
                position = skip_tagged_fields(frame, position)
        if is_flexible:
            skip_tagged_fields(frame, position)
        return OffsetCommit(
            group_id, tuple(topics), generation_id, member_id, group_instance_id, retention_time_ms, supports_epochs
        )

    return decode


def _encoder(version: int) -> Encoder:
    is_flexible = version >= 8
    write_topics = ResultsWriter({}, is_flexible=is_flexible, uses_topic_ids=version >= 10).write
    throttle_time = bytes(4) if version >= 3 else b""

    if is_flexible:
        return lambda response, header: b"\x00\x00\x00\x00%b\x00" % write_topics(response.topics)
    return lambda response, header: throttle_time + write_topics(response.topics)


API = Api(8, "OffsetCommit", VersionRange(2, 10), 8, _decoder, _encoder)


# ---------------------------------------------------------------- TxnOffsetCommit


def _errors_of(version: int) -> Mapping[ErrorCode, ErrorCode]:
    """Return replacements of error codes that a version does not know (KIP-890, KIP-1319)."""
    errors = {}
    if version <= 5:
        errors[ErrorCode.STALE_MEMBER_EPOCH] = ErrorCode.ILLEGAL_GENERATION
    if version <= 3:
        errors[ErrorCode.TRANSACTION_ABORTABLE] = ErrorCode.INVALID_TXN_STATE
    if version <= 1:
        errors[ErrorCode.COORDINATOR_LOAD_IN_PROGRESS] = ErrorCode.COORDINATOR_NOT_AVAILABLE
    return errors


def _txn_decoder(version: int) -> Decoder:
    is_flexible, uses_topic_ids = version >= 3, version >= 6
    read_text = read_compact_string if is_flexible else read_string
    read_count = read_compact_array_length if is_flexible else read_array_length
    read_offsets = offsets_reader(has_leader_epoch=version >= 2, is_flexible=is_flexible)

    def decode(frame: bytes, position: int, header: RequestHeader, client_host: str) -> TxnOffsetCommit:
        transactional_id, position = read_text(frame, position)
        group_id, position = read_text(frame, position)
        (producer_id,) = INT64.unpack_from(frame, position)
        (producer_epoch,) = INT16.unpack_from(frame, position + 8)
        position += 10
        generation_id, member_id, group_instance_id = UNKNOWN_GENERATION_ID, UNKNOWN_MEMBER_ID, None
        if is_flexible:
            (generation_id,) = INT32_FROM(frame, position)
            member_id, position = read_compact_string(frame, position + 4)
            group_instance_id, position = read_compact_nullable_string(frame, position)
        count, position = read_count(frame, position)
        topics = []
        for _ in range(count):
            name, topic_id = None, ZERO_UUID
            if uses_topic_ids:
                topic_id, position = read_uuid(frame, position)
            else:
                name, position = read_text(frame, position)
            offsets, position = read_offsets(frame, position)
            topics.append(TopicToCommit(name, offsets, topic_id))
            if is_flexible:
                position = skip_tagged_fields(frame, position)
        if is_flexible:
            skip_tagged_fields(frame, position)
        return TxnOffsetCommit(
            group_id=group_id,
            topics=tuple(topics),
            producer_id=producer_id,
            producer_epoch=producer_epoch,
            transactional_id=transactional_id,
            generation_id=generation_id,
            member_id=member_id,
            group_instance_id=group_instance_id,
            adds_group=version >= 5,
            supports_member_epoch=version >= 6,
        )

    return decode


def _txn_encoder(version: int) -> Encoder:
    is_flexible = version >= 3
    write_topics = ResultsWriter(_errors_of(version), is_flexible=is_flexible, uses_topic_ids=version >= 6).write
    tags = b"\x00" if is_flexible else b""

    return lambda response, header: b"\x00\x00\x00\x00%b%b" % (write_topics(response.topics), tags)


TXN_API = Api(28, "TxnOffsetCommit", VersionRange(0, 6), 3, _txn_decoder, _txn_encoder)
