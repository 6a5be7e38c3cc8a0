"""OffsetFetch: key 9, versions 1-10, flexible from 6.

1: an error of the group is repeated for every requested partition; from 2 on it is at the top. 2: null topics stand for
all. 3: throttle time in the response. 5: leader epochs (KIP-320). 7: stable offsets on request (KIP-447). 8: several
groups (KIP-709). 9: member id and epoch (KIP-848). 10: topics by id.

Written by hand for speed, as OffsetCommit is.
"""

from groupcoord.core.log.records import ZERO_UUID
from groupcoord.core.messages import (
    FetchedGroup,
    FetchedTopic,
    GroupToFetch,
    OffsetFetch,
    OffsetFetchResponse,
    TopicToFetch,
)
from groupcoord.core.messages.commits import without_offsets
from groupcoord.schema import primitives
from groupcoord.schema.primitives import (
    INT16,
    INT32,
    INT32_FROM,
    check_array_length,
    read_array_length,
    read_compact_array_length,
    read_compact_length,
    read_compact_nullable_string,
    read_compact_string,
    read_int32_length,
    read_int32s,
    read_string,
    read_uuid,
    skip_tagged_fields,
)
from groupcoord.wire.api import Api, Decoder, Encoder, PartsEncoder, RequestHeader, VersionRange, write_each
from groupcoord.wire.offset_columns import OffsetsWriter

_Topics = tuple[TopicToFetch, ...] | None


# ---------------------------------------------------------------- requests


def _read_topics(frame: bytes, position: int, nullable: bool) -> tuple[_Topics, int]:
    """Read topics in versions up to 5."""
    length, position = read_int32_length(frame, position)
    if nullable and length < 0:
        return None, position
    topics = []
    for _ in range(check_array_length(frame, position, length)):
        name, position = read_string(frame, position)
        count, position = read_array_length(frame, position)
        indexes, position = read_int32s(frame, position, count)
        topics.append(TopicToFetch(name, indexes))
    return tuple(topics), position


def _read_flexible_topics(frame: bytes, position: int, uses_topic_ids: bool) -> tuple[_Topics, int]:
    """Read topics in versions from 6."""
    length, position = read_compact_length(frame, position)
    if length < 0:
        return None, position
    topics = []
    for _ in range(check_array_length(frame, position, length)):
        name, topic_id = None, ZERO_UUID
        if uses_topic_ids:
            topic_id, position = read_uuid(frame, position)
        else:
            name, position = read_compact_string(frame, position)
        count, position = read_compact_array_length(frame, position)
        indexes, position = read_int32s(frame, position, count)
        position = skip_tagged_fields(frame, position)
        topics.append(TopicToFetch(name, indexes, topic_id))
    return tuple(topics), position


def _decode_version_1(frame: bytes, position: int, header: RequestHeader, client_host: str) -> OffsetFetch:
    group_id, position = read_string(frame, position)
    topics, _ = _read_topics(frame, position, nullable=False)
    header.reply_context = topics
    return OffsetFetch((GroupToFetch(group_id, topics),))


def _decode_plain(frame: bytes, position: int, header: RequestHeader, client_host: str) -> OffsetFetch:
    group_id, position = read_string(frame, position)
    topics, _ = _read_topics(frame, position, nullable=True)
    return OffsetFetch((GroupToFetch(group_id, topics),))


def _single_group_decoder(version: int) -> Decoder:
    has_require_stable = version >= 7

    def decode(frame: bytes, position: int, header: RequestHeader, client_host: str) -> OffsetFetch:
        group_id, position = read_compact_string(frame, position)
        topics, position = _read_flexible_topics(frame, position, False)
        require_stable = has_require_stable and frame[position] != 0
        skip_tagged_fields(frame, position + has_require_stable)
        return OffsetFetch((GroupToFetch(group_id, topics),), require_stable)

    return decode


def _batch_decoder(version: int) -> Decoder:
    has_member = version >= 9
    uses_topic_ids = version >= 10

    def decode(frame: bytes, position: int, header: RequestHeader, client_host: str) -> OffsetFetch:
        count, position = read_compact_array_length(frame, position)
        groups = []
        for _ in range(count):
            group_id, position = read_compact_string(frame, position)
            member_id, member_epoch = None, -1
            if has_member:
                member_id, position = read_compact_nullable_string(frame, position)
                (member_epoch,) = INT32_FROM(frame, position)
                position += 4
            topics, position = _read_flexible_topics(frame, position, uses_topic_ids)
            position = skip_tagged_fields(frame, position)
            groups.append(GroupToFetch(group_id, topics, member_id, member_epoch))
        require_stable = frame[position] != 0
        skip_tagged_fields(frame, position + 1)
        return OffsetFetch(tuple(groups), require_stable, uses_topic_ids)

    return decode


def _decoder(version: int) -> Decoder:
    if version >= 8:
        return _batch_decoder(version)
    if version >= 6:
        return _single_group_decoder(version)
    return _decode_plain if version >= 2 else _decode_version_1


# ---------------------------------------------------------------- responses


_write_flexible_offsets = OffsetsWriter(has_leader_epoch=True, is_flexible=True).write


def _write_flexible_topics(topics: tuple[FetchedTopic, ...], uses_topic_ids: bool) -> bytes:
    parts = [primitives.write_uvarint(len(topics) + 1)]
    for name, topic_id, partitions in topics:
        parts.append(topic_id.bytes if uses_topic_ids else primitives.write_compact_string(name or ""))
        parts.append(primitives.write_uvarint(len(partitions) + 1))
        parts.append(_write_flexible_offsets(partitions))
        parts.append(b"\x00")
    return b"".join(parts)


def _with_error_everywhere(group: FetchedGroup, header: RequestHeader) -> FetchedGroup:
    """Copy the error of a group to all requested partitions, because version 1 has no other place."""
    topics = header.reply_context
    if not group.error_code or not isinstance(topics, tuple):
        return group
    return FetchedGroup(
        group.group_id,
        group.error_code,
        tuple(
            FetchedTopic(topic.name, ZERO_UUID, without_offsets(topic.partition_indexes, group.error_code))
            for topic in topics
        ),
    )


def _plain_encoder(version: int) -> Encoder:
    throttle_time = bytes(4) if version >= 3 else b""
    write_offsets = OffsetsWriter(has_leader_epoch=version >= 5, is_flexible=False).write

    def encode(response: OffsetFetchResponse, header: RequestHeader) -> bytes:
        (group,) = response.groups
        if version == 1:
            group = _with_error_everywhere(group, header)
        parts = [throttle_time, INT32.pack(len(group.topics))]
        for name, _, partitions in group.topics:
            parts += (primitives.write_string(name or ""), INT32.pack(len(partitions)), write_offsets(partitions))
        if version >= 2:
            parts.append(INT16.pack(group.error_code))
        return b"".join(parts)

    return encode


def _encode_single_group(response: OffsetFetchResponse, header: RequestHeader) -> bytes:
    """Encode versions 6 and 7."""
    ((_, error_code, topics),) = response.groups
    return b"\x00\x00\x00\x00%b%b\x00" % (_write_flexible_topics(topics, False), INT16.pack(error_code))


def _batch_encoder(version: int) -> Encoder:
    uses_topic_ids = version >= 10

    def encode(response: OffsetFetchResponse, header: RequestHeader) -> bytes:
        parts = [b"\x00\x00\x00\x00", primitives.write_uvarint(len(response.groups) + 1)]
        for group_id, error_code, topics in response.groups:
            parts.append(primitives.write_compact_string(group_id))
            parts.append(_write_flexible_topics(topics, uses_topic_ids))
            parts.append(INT16.pack(error_code) + b"\x00")
        parts.append(b"\x00")
        return b"".join(parts)

    return encode


def _parts_encoder(version: int) -> PartsEncoder:
    encode_in_one = _encoder(version)
    if version < 8:
        return lambda response, header: [encode_in_one(response, header)]
    uses_topic_ids = version >= 10

    def write_group(group: FetchedGroup) -> bytes:
        topics = _write_flexible_topics(group.topics, uses_topic_ids)
        return b"%b%b%b\x00" % (primitives.write_compact_string(group.group_id), topics, INT16.pack(group.error_code))

    def encode(response: OffsetFetchResponse, header: RequestHeader) -> list[bytes]:
        groups = write_each(response.groups, write_group)
        return [b"\x00\x00\x00\x00", primitives.write_uvarint(len(groups) + 1), *groups, b"\x00"]

    return encode


def _encoder(version: int) -> Encoder:
    if version >= 8:
        return _batch_encoder(version)
    return _encode_single_group if version >= 6 else _plain_encoder(version)


API = Api(9, "OffsetFetch", VersionRange(1, 10), 6, _decoder, _encoder, _parts_encoder)
