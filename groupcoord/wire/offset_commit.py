"""OffsetCommit: key 8, versions 2-10, flexible from 8.

2-4: the client may bring its own retention time. 3: throttle time in the answer. 6: leader epochs (KIP-320). 7: the
member's instance id (KIP-345). 9: the member's epoch in place of the generation, and GROUP_ID_NOT_FOUND in answers
(KIP-848), which is ILLEGAL_GENERATION before. 10: topics by id.

Read and written by hand: with heartbeats these are most of a coordinator's work.
"""

import struct

from groupcoord.core.messages import (
    OffsetCommit,
    OffsetCommitResponse,
    OffsetToCommit,
    PartitionResult,
    TopicToCommit,
)
from groupcoord.errors import ErrorCode
from groupcoord.wire import primitives
from groupcoord.wire.api import Api, Decoder, Encoder, VersionRange
from groupcoord.wire.header import RequestHeader
from groupcoord.wire.primitives import (
    INT32,
    INT32_FROM,
    INT64,
    check_array_length,
    read_array_length,
    read_compact_array_length,
    read_compact_nullable_string,
    read_compact_string,
    read_nullable_string,
    read_string,
    read_uuid,
    skip_tagged_fields,
)

_OFFSET_AND_LENGTH = struct.Struct(">iqh")
_OFFSET_EPOCH_AND_LENGTH = struct.Struct(">iqih")
_FLEXIBLE_OFFSET = struct.Struct(">iqiBB")  # then the length of the metadata and the number of tags
_RESULT = struct.Struct(">ih")
_FLEXIBLE_RESULT = struct.Struct(">ihx")

_ERRORS_UNTIL_8 = {ErrorCode.GROUP_ID_NOT_FOUND: ErrorCode.ILLEGAL_GENERATION}


def _read_partitions(frame: bytes, position: int) -> tuple[tuple[OffsetToCommit, ...], int]:
    """Versions 6 and 7."""
    (count,) = INT32_FROM(frame, position)
    position += 4
    partitions = []
    for _ in range(check_array_length(frame, position, count)):
        partition_index, offset, leader_epoch, length = _OFFSET_EPOCH_AND_LENGTH.unpack_from(frame, position)
        position += 18
        metadata: str | None = ""
        if length:
            metadata, position = read_nullable_string(frame, position - 2)
        partitions.append(OffsetToCommit(partition_index, offset, leader_epoch, metadata))
    return tuple(partitions), position


def _read_partitions_without_epoch(frame: bytes, position: int) -> tuple[tuple[OffsetToCommit, ...], int]:
    """Versions 2 to 5."""
    count, position = read_array_length(frame, position)
    partitions = []
    for _ in range(count):
        partition_index, offset, length = _OFFSET_AND_LENGTH.unpack_from(frame, position)
        position += 14
        metadata: str | None = ""
        if length:
            metadata, position = read_nullable_string(frame, position - 2)
        partitions.append(OffsetToCommit(partition_index, offset, -1, metadata))
    return tuple(partitions), position


def _read_flexible_partitions(frame: bytes, position: int) -> tuple[tuple[OffsetToCommit, ...], int]:
    """Versions from 8."""
    count, position = read_compact_array_length(frame, position)
    partitions = []
    for _ in range(count):
        partition_index, offset, leader_epoch, length, tag_count = _FLEXIBLE_OFFSET.unpack_from(frame, position)
        metadata: str | None = ""
        if length == 1 and tag_count == 0:
            position += 18
        else:
            metadata, position = read_compact_nullable_string(frame, position + 16)
            position = skip_tagged_fields(frame, position)
        partitions.append(OffsetToCommit(partition_index, offset, leader_epoch, metadata))
    return tuple(partitions), position


def _plain_decoder(version: int) -> Decoder:
    read_partitions = _read_partitions if version >= 6 else _read_partitions_without_epoch
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
        for _ in range(count):
            name, position = read_string(frame, position)
            partitions, position = read_partitions(frame, position)
            topics.append(TopicToCommit(name, partitions))
        return OffsetCommit(group_id, tuple(topics), generation_id, member_id, group_instance_id, retention_time_ms)

    return decode


def _flexible_decoder(version: int) -> Decoder:
    uses_topic_ids = version >= 10

    def decode(frame: bytes, position: int, header: RequestHeader, client_host: str) -> OffsetCommit:
        group_id, position = read_compact_string(frame, position)
        (generation_id,) = INT32_FROM(frame, position)
        member_id, position = read_compact_string(frame, position + 4)
        group_instance_id, position = read_compact_nullable_string(frame, position)
        count, position = read_compact_array_length(frame, position)
        topics = []
        for _ in range(count):
            if uses_topic_ids:
                topic_id, position = read_uuid(frame, position)
                partitions, position = _read_flexible_partitions(frame, position)
                topics.append(TopicToCommit(None, partitions, topic_id))
            else:
                name, position = read_compact_string(frame, position)
                partitions, position = _read_flexible_partitions(frame, position)
                topics.append(TopicToCommit(name, partitions))
            position = skip_tagged_fields(frame, position)
        skip_tagged_fields(frame, position)
        return OffsetCommit(group_id, tuple(topics), generation_id, member_id, group_instance_id)

    return decode


def _write_partitions(partitions: tuple[PartitionResult, ...]) -> bytes:
    """Versions up to 8, where a group that is absent is told from a wrong generation by nobody."""
    return b"".join([_RESULT.pack(index, _ERRORS_UNTIL_8.get(error, error)) for index, error in partitions])


def _write_flexible_partitions(partitions: tuple[PartitionResult, ...]) -> bytes:
    return b"".join([_FLEXIBLE_RESULT.pack(index, error) for index, error in partitions])


def _write_flexible_partitions_of_8(partitions: tuple[PartitionResult, ...]) -> bytes:
    return b"".join([_FLEXIBLE_RESULT.pack(index, _ERRORS_UNTIL_8.get(error, error)) for index, error in partitions])


def _plain_encoder(version: int) -> Encoder:
    throttle_time = bytes(4) if version >= 3 else b""

    def encode(response: OffsetCommitResponse, header: RequestHeader) -> bytes:
        parts = [throttle_time, INT32.pack(len(response.topics))]
        for name, _, partitions in response.topics:
            parts += (primitives.write_string(name or ""), INT32.pack(len(partitions)), _write_partitions(partitions))
        return b"".join(parts)

    return encode


def _flexible_encoder(version: int) -> Encoder:
    write_uvarint = primitives.write_uvarint
    write_partitions = _write_flexible_partitions if version >= 9 else _write_flexible_partitions_of_8

    def encode(response: OffsetCommitResponse, header: RequestHeader) -> bytes:
        parts = [b"\x00\x00\x00\x00", write_uvarint(len(response.topics) + 1)]
        for name, topic_id, partitions in response.topics:
            topic = topic_id.bytes if version >= 10 else primitives.write_compact_string(name or "")
            parts += (topic, write_uvarint(len(partitions) + 1), write_partitions(partitions), b"\x00")
        parts.append(b"\x00")
        return b"".join(parts)

    return encode


def _decoder(version: int) -> Decoder:
    return _flexible_decoder(version) if version >= 8 else _plain_decoder(version)


def _encoder(version: int) -> Encoder:
    return _flexible_encoder(version) if version >= 8 else _plain_encoder(version)


API = Api(8, "OffsetCommit", VersionRange(2, 10), 8, _decoder, _encoder)
