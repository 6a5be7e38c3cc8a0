"""TxnOffsetCommit: key 28, versions 0-6, flexible from 3.

2: leader epochs. 3: who the member is and its generation (KIP-447). 4: TRANSACTION_ABORTABLE in answers, which is
INVALID_TXN_STATE before (KIP-890). 5: the group is added to the transaction if it is not in it yet (KIP-890). 6: topics
by id, and GROUP_ID_NOT_FOUND and STALE_MEMBER_EPOCH in answers, which are ILLEGAL_GENERATION before (KIP-1319).

0 and 1: COORDINATOR_LOAD_IN_PROGRESS is COORDINATOR_NOT_AVAILABLE, since their clients don't try again after the former
(KAFKA-7296).
"""

from collections.abc import Mapping

from groupcoord.core.log.records import ZERO_UUID
from groupcoord.core.messages import UNKNOWN_GENERATION_ID, UNKNOWN_MEMBER_ID, TopicToCommit, TxnOffsetCommit
from groupcoord.errors import ErrorCode
from groupcoord.wire.api import Api, Decoder, Encoder, VersionRange
from groupcoord.wire.header import RequestHeader
from groupcoord.wire.offset_columns import ResultsWriter, offsets_reader
from groupcoord.wire.primitives import (
    INT16,
    INT32_FROM,
    INT64,
    read_array_length,
    read_compact_array_length,
    read_compact_nullable_string,
    read_compact_string,
    read_string,
    read_uuid,
    skip_tagged_fields,
)


def _errors_of(version: int) -> Mapping[ErrorCode, ErrorCode]:
    """Return what stands for the error codes that a version does not know."""
    errors = {}
    if version <= 5:
        errors[ErrorCode.STALE_MEMBER_EPOCH] = ErrorCode.ILLEGAL_GENERATION
    if version <= 3:
        errors[ErrorCode.TRANSACTION_ABORTABLE] = ErrorCode.INVALID_TXN_STATE
    if version <= 1:
        errors[ErrorCode.COORDINATOR_LOAD_IN_PROGRESS] = ErrorCode.COORDINATOR_NOT_AVAILABLE
    return errors


def _decoder(version: int) -> Decoder:
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


def _encoder(version: int) -> Encoder:
    is_flexible = version >= 3
    write_topics = ResultsWriter(_errors_of(version), is_flexible=is_flexible, uses_topic_ids=version >= 6).write
    tags = b"\x00" if is_flexible else b""

    return lambda response, header: b"\x00\x00\x00\x00%b%b" % (write_topics(response.topics), tags)


API = Api(28, "TxnOffsetCommit", VersionRange(0, 6), 3, _decoder, _encoder)
