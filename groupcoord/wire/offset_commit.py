"""OffsetCommit: key 8, versions 2-10, flexible from 8.

2-4: the client may bring its own retention time. 3: throttle time in the answer. 6: leader epochs (KIP-320). 7: the
member's instance id (KIP-345). 9: the member's epoch in place of the generation, and GROUP_ID_NOT_FOUND in answers
(KIP-848), which is ILLEGAL_GENERATION before. 10: topics by id.

Read and written by hand: with heartbeats these are most of a coordinator's work (:mod:`.offset_columns`).
"""

from collections.abc import Mapping

from groupcoord.core.messages import OffsetCommit, TopicToCommit
from groupcoord.core.records import ZERO_UUID
from groupcoord.errors import ErrorCode
from groupcoord.wire.api import Api, Decoder, Encoder, VersionRange
from groupcoord.wire.header import RequestHeader
from groupcoord.wire.offset_columns import ResultsWriter, offsets_reader
from groupcoord.wire.pacing import paced
from groupcoord.wire.primitives import (
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


def _errors_of(version: int) -> Mapping[ErrorCode, ErrorCode]:
    """Return what stands for the error codes that a version does not know.

    Until 8, nobody tells a group that is absent from a wrong generation.
    """
    return {ErrorCode.GROUP_ID_NOT_FOUND: ErrorCode.ILLEGAL_GENERATION} if version <= 8 else {}


def _plain_decoder(version: int) -> Decoder:
    read_offsets = offsets_reader(has_leader_epoch=version >= 6, is_flexible=False)
    has_instance_id = version >= 7
    has_retention_time = version <= 4

    def decode(frame: bytes, position: int, header: RequestHeader, client_host: str) -> OffsetCommit:
        group_id, position = read_string(frame, position)
        (generation_id,) = INT32_FROM(frame, position)
        member_id, position = read_string(frame, position + 4)
        group_instance_id, retention_time_ms = None, -1
        if has_instance_id:
            group_instance_id, position = read_nullable_string(frame, position)
        elif has_retention_time:
            (retention_time_ms,) = INT64.unpack_from(frame, position)
            position += 8
        count, position = read_array_length(frame, position)
        topics = []
        for _ in paced(range(count)):
            name, position = read_string(frame, position)
            offsets, position = read_offsets(frame, position)
            topics.append(TopicToCommit(name, offsets))
        return OffsetCommit(
            group_id, tuple(topics), generation_id, member_id, group_instance_id, retention_time_ms, False
        )

    return decode


def _flexible_decoder(version: int) -> Decoder:
    uses_topic_ids = version >= 10
    supports_member_epoch = version >= 9
    read_offsets = offsets_reader(has_leader_epoch=True, is_flexible=True)

    def decode(frame: bytes, position: int, header: RequestHeader, client_host: str) -> OffsetCommit:
        group_id, position = read_compact_string(frame, position)
        (generation_id,) = INT32_FROM(frame, position)
        member_id, position = read_compact_string(frame, position + 4)
        group_instance_id, position = read_compact_nullable_string(frame, position)
        count, position = read_compact_array_length(frame, position)
        topics = []
        for _ in paced(range(count)):
            name, topic_id = None, ZERO_UUID
            if uses_topic_ids:
                topic_id, position = read_uuid(frame, position)
            else:
                name, position = read_compact_string(frame, position)
            offsets, position = read_offsets(frame, position)
            topics.append(TopicToCommit(name, offsets, topic_id))
            position = skip_tagged_fields(frame, position)
        skip_tagged_fields(frame, position)
        return OffsetCommit(
            group_id, tuple(topics), generation_id, member_id, group_instance_id, -1, supports_member_epoch
        )

    return decode


def _decoder(version: int) -> Decoder:
    return _flexible_decoder(version) if version >= 8 else _plain_decoder(version)


def _encoder(version: int) -> Encoder:
    is_flexible = version >= 8
    write_topics = ResultsWriter(_errors_of(version), is_flexible=is_flexible, uses_topic_ids=version >= 10).write
    throttle_time = bytes(4) if version >= 3 else b""

    if is_flexible:
        return lambda response, header: b"\x00\x00\x00\x00%b\x00" % write_topics(response.topics)
    return lambda response, header: throttle_time + write_topics(response.topics)


API = Api(8, "OffsetCommit", VersionRange(2, 10), 8, _decoder, _encoder)
