"""OffsetFetch: key 9, versions 1-10, flexible from 6.

1: an error of the group is repeated for every requested partition; from 2 on it is at the top. 2: null topics stand for
all. 3: throttle time in the response. 5: leader epochs (KIP-320). 7: stable offsets on request (KIP-447). 8: several
groups (KIP-709). 9: member id and epoch (KIP-848). 10: topics by id.

Offsets are in columns for speed (:mod:`.offset_columns`).
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
from groupcoord.schema.engine import PROTOCOL, TYPES, Custom, parse_structures, writer_of
from groupcoord.wire.api import Api, Decoder, Encoder, PartsEncoder, RequestHeader, VersionRange
from groupcoord.wire.by_schema import Entries, joined, parts_encoder, request_decoder
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


_STRUCTURES = parse_structures(
    """
    FetchedTopic: name string 0-9, topic_id uuid 10+, partitions offsets
    FetchedGroup: group_id string 8+, topics FetchedTopic[], error_code int16 2+
    OffsetFetchResponse: _ int32 = 0, groups FetchedGroup[]
    """,
    made={"FetchedTopic": FetchedTopic, "FetchedGroup": FetchedGroup, "OffsetFetchResponse": OffsetFetchResponse},
    types={
        **TYPES,
        "offsets": Custom(
            lambda version, flexible: OffsetsWriter(has_leader_epoch=version >= 5, is_flexible=flexible).write
        ),
    },
    by_name=True,
)


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


def _encoder(version: int) -> Encoder:
    if version >= 8:
        return joined(_parts_encoder(version))
    throttle_time = bytes(4) if version >= 3 else b""
    write_group = writer_of(_STRUCTURES["FetchedGroup"], version, version >= 6, PROTOCOL)

    def encode(response: OffsetFetchResponse, header: RequestHeader) -> bytes:
        (group,) = response.groups
        return throttle_time + write_group(_with_error_everywhere(group, header) if version == 1 else group)

    return encode


def _parts_encoder(version: int) -> PartsEncoder:
    if version < 8:
        encode = _encoder(version)
        return lambda response, header: [encode(response, header)]
    return parts_encoder(_STRUCTURES["OffsetFetchResponse"], version, True, Entries("groups"))


API = Api(_KEY, "OffsetFetch", VersionRange(1, 10), 6, _decoder, _encoder, _parts_encoder)
