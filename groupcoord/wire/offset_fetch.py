"""OffsetFetch: key 9, versions 1-10, flexible from 6.

1: an error of the group is repeated for every requested partition; from 2 on it is at the top. 2: null topics stand for
all. 3: throttle time in the response. 5: leader epochs (KIP-320). 7: stable offsets on request (KIP-447). 8: several
groups (KIP-709). 9: member id and epoch (KIP-848). 10: topics by id.

Requests are decoded by schema, responses encoded by hand for speed (:mod:`.offset_columns`).
"""

from typing import NamedTuple

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
from groupcoord.schema.primitives import INT16, INT32
from groupcoord.wire.api import Api, Decoder, Encoder, PartsEncoder, RequestHeader, VersionRange, write_each
from groupcoord.wire.by_schema import request_decoder
from groupcoord.wire.newer_schemas import request_schema
from groupcoord.wire.offset_columns import OffsetsWriter
from groupcoord.wire.schema import SAME_NAMES, is_flexible, structure_of

_KEY = 9

# ---------------------------------------------------------------- requests


class _OneGroup(NamedTuple):
    """A request of the versions before 8."""

    group_id: str
    topics: tuple[TopicToFetch, ...] | None
    require_stable: bool = False


def _request_of_one_group(request: _OneGroup, header: RequestHeader) -> OffsetFetch:
    if header.api_version == 1:
        header.reply_context = request.topics
    return OffsetFetch((GroupToFetch(request.group_id, request.topics),), request.require_stable)


def _decoder(version: int) -> Decoder:
    schema = request_schema(_KEY, version)
    flexible = is_flexible(schema)
    if version < 8:
        fields = structure_of(schema, _OneGroup, SAME_NAMES)
        return request_decoder(fields, version, flexible, adapt=_request_of_one_group)
    return request_decoder(structure_of(schema, OffsetFetch, SAME_NAMES), version, flexible, {"uses_topic_ids": 10})


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
    topics = header.reply_context  # version 1 has no other place for the error
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
    ((_, error_code, topics),) = response.groups  # versions 6 and 7 have one
    return b"\x00\x00\x00\x00%b%b\x00" % (_write_flexible_topics(topics, False), INT16.pack(error_code))


def _parts_encoder(version: int) -> PartsEncoder:
    if version < 8:
        encode_in_one = _encoder(version)
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
    if version < 8:
        return _encode_single_group if version >= 6 else _plain_encoder(version)
    encode_parts = _parts_encoder(version)
    return lambda response, header: b"".join(encode_parts(response, header))


API = Api(_KEY, "OffsetFetch", VersionRange(1, 10), 6, _decoder, _encoder, _parts_encoder)
