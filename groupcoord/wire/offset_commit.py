"""OffsetCommit: key 8, versions 2-10, flexible from 8.

2-4: the client may bring its own retention time. 3: throttle time in the answer. 6: leader epochs (KIP-320). 7: the
member's instance id (KIP-345). 9: the member's epoch in place of the generation, and GROUP_ID_NOT_FOUND in answers
(KIP-848), which is ILLEGAL_GENERATION before. 10: topics by id.

Read and written by hand: with heartbeats these are most of a coordinator's work.
"""

import struct
from collections.abc import Callable, Sequence
from functools import lru_cache

from groupcoord.core.messages import OffsetCommit, OffsetCommitResponse, OffsetToCommit, PartitionResult, TopicToCommit
from groupcoord.core.messages.columns import AllAccepted, OffsetColumns
from groupcoord.errors import ErrorCode
from groupcoord.wire import primitives
from groupcoord.wire.api import Api, Decoder, Encoder, VersionRange
from groupcoord.wire.header import RequestHeader
from groupcoord.wire.pacing import paced
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
_CACHED_RESULTS_MAX = 64
_COLUMNS_MAX = 256

_ERRORS_UNTIL_8 = {ErrorCode.GROUP_ID_NOT_FOUND: ErrorCode.ILLEGAL_GENERATION}


def _read_columns(frame: bytes, position: int, count: int, layout: str, empty: int) -> OffsetColumns | None:
    """Read partitions of which none has metadata, in one go.

    Args:
        frame: the request.
        position: where the first partition starts.
        count: how many there are, as the request claims.
        layout: of a partition without metadata: its number, the offset, the leader epoch and the rest as one number.
        empty: that number.

    Returns:
        None if one has metadata, or the request is cut short, or these are too many to be read at once.
    """
    if not 0 < count <= _COLUMNS_MAX:
        return None
    read, size = _columns_reader(layout, count)
    if position + size > len(frame):
        return None
    fields = read(frame, position)
    if fields[3::4].count(empty) != count:
        return None
    return OffsetColumns(fields[0::4], fields[1::4], fields[2::4])


@lru_cache(maxsize=2 * _COLUMNS_MAX)
def _columns_reader(layout: str, count: int) -> tuple[Callable[[bytes, int], tuple[int, ...]], int]:
    partitions = struct.Struct(">" + layout * count)
    return partitions.unpack_from, partitions.size


def _read_partitions(frame: bytes, position: int) -> tuple[Sequence[OffsetToCommit], int]:
    """Versions 6 and 7."""
    (count,) = INT32_FROM(frame, position)
    position += 4
    columns = _read_columns(frame, position, count, "iqih", 0)
    if columns is not None:
        return columns, position + count * _OFFSET_EPOCH_AND_LENGTH.size
    partitions = []
    for _ in paced(range(check_array_length(frame, position, count))):
        partition_index, offset, leader_epoch, length = _OFFSET_EPOCH_AND_LENGTH.unpack_from(frame, position)
        position += 18
        metadata: str | None = ""
        if length:
            metadata, position = read_nullable_string(frame, position - 2)
        partitions.append(OffsetToCommit(partition_index, offset, leader_epoch, metadata))
    return tuple(partitions), position


def _read_partitions_without_epoch(frame: bytes, position: int) -> tuple[Sequence[OffsetToCommit], int]:
    """Versions 2 to 5."""
    count, position = read_array_length(frame, position)
    partitions = []
    for _ in paced(range(count)):
        partition_index, offset, length = _OFFSET_AND_LENGTH.unpack_from(frame, position)
        position += 14
        metadata: str | None = ""
        if length:
            metadata, position = read_nullable_string(frame, position - 2)
        partitions.append(OffsetToCommit(partition_index, offset, -1, metadata))
    return tuple(partitions), position


def _read_flexible_partitions(frame: bytes, position: int) -> tuple[Sequence[OffsetToCommit], int]:
    """Versions from 8."""
    count, position = read_compact_array_length(frame, position)
    columns = _read_columns(frame, position, count, "iqiH", 0x0100)
    if columns is not None:
        return columns, position + count * _FLEXIBLE_OFFSET.size
    partitions = []
    for _ in paced(range(count)):
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
        for _ in paced(range(count)):
            name, position = read_string(frame, position)
            partitions, position = read_partitions(frame, position)
            topics.append(TopicToCommit(name, partitions))
        return OffsetCommit(
            group_id, tuple(topics), generation_id, member_id, group_instance_id, retention_time_ms, False
        )

    return decode


def _flexible_decoder(version: int) -> Decoder:
    uses_topic_ids = version >= 10
    supports_member_epoch = version >= 9

    def decode(frame: bytes, position: int, header: RequestHeader, client_host: str) -> OffsetCommit:
        group_id, position = read_compact_string(frame, position)
        (generation_id,) = INT32_FROM(frame, position)
        member_id, position = read_compact_string(frame, position + 4)
        group_instance_id, position = read_compact_nullable_string(frame, position)
        count, position = read_compact_array_length(frame, position)
        topics = []
        for _ in paced(range(count)):
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
        return OffsetCommit(
            group_id, tuple(topics), generation_id, member_id, group_instance_id, -1, supports_member_epoch
        )

    return decode


def _write_results(partitions: Sequence[PartitionResult], pack: Callable[[int, int], bytes]) -> bytes:
    if type(partitions) is not AllAccepted:
        return b"".join([pack(index, error) for index, error in paced(partitions)])
    indexes = partitions.partition_indexes
    return _write_few_accepted(indexes, pack) if len(indexes) <= _CACHED_RESULTS_MAX else _write_accepted(indexes, pack)


def _write_accepted(partition_indexes: tuple[int, ...], pack: Callable[[int, int], bytes]) -> bytes:
    return b"".join([pack(index, 0) for index in partition_indexes])


_write_few_accepted = lru_cache(maxsize=1_024)(_write_accepted)
"""A consumer commits its partitions again and again."""


def _write_results_until_8(partitions: Sequence[PartitionResult], pack: Callable[[int, int], bytes]) -> bytes:
    """There, nobody tells a group that is absent from a wrong generation."""
    if type(partitions) is not AllAccepted:
        known = [PartitionResult(index, _ERRORS_UNTIL_8.get(error, error)) for index, error in paced(partitions)]
        partitions = tuple(known)
    return _write_results(partitions, pack)


def _plain_encoder(version: int) -> Encoder:
    throttle_time = bytes(4) if version >= 3 else b""
    pack = _RESULT.pack

    def encode(response: OffsetCommitResponse, header: RequestHeader) -> bytes:
        parts = [throttle_time, INT32.pack(len(response.topics))]
        for name, _, partitions in paced(response.topics):
            results = _write_results_until_8(partitions, pack)
            parts += (primitives.write_string(name or ""), INT32.pack(len(partitions)), results)
        return b"".join(parts)

    return encode


def _flexible_encoder(version: int) -> Encoder:
    write_uvarint = primitives.write_uvarint
    write_results = _write_results if version >= 9 else _write_results_until_8
    pack = _FLEXIBLE_RESULT.pack

    def encode(response: OffsetCommitResponse, header: RequestHeader) -> bytes:
        parts = [b"\x00\x00\x00\x00", write_uvarint(len(response.topics) + 1)]
        for name, topic_id, partitions in paced(response.topics):
            topic = topic_id.bytes if version >= 10 else primitives.write_compact_string(name or "")
            results = write_results(partitions, pack)
            parts += (topic, write_uvarint(len(partitions) + 1), results, b"\x00")
        parts.append(b"\x00")
        return b"".join(parts)

    return encode


def _decoder(version: int) -> Decoder:
    return _flexible_decoder(version) if version >= 8 else _plain_decoder(version)


def _encoder(version: int) -> Encoder:
    return _flexible_encoder(version) if version >= 8 else _plain_encoder(version)


API = Api(8, "OffsetCommit", VersionRange(2, 10), 8, _decoder, _encoder)
