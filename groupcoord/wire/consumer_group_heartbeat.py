"""ConsumerGroupHeartbeat: key 68, versions 0-1, flexible (KIP-848).

1: a regular expression for topics, and the member generates its id (KIP-1082).

Written by hand for speed, as Heartbeat is: members of stable consumer groups send nothing else.
"""

import struct

from groupcoord.core.messages import ConsumerGroupHeartbeat, ConsumerGroupHeartbeatResponse, TopicPartitions
from groupcoord.wire import primitives
from groupcoord.wire.api import Api, Decoder, Encoder, KeptAnswers, RequestHeader, VersionRange
from groupcoord.wire.primitives import (
    INT32_FROM,
    check_array_length,
    read_compact_array_length,
    read_compact_length,
    read_compact_nullable_string,
    read_compact_string,
    read_int32s,
    read_uuid,
    skip_tagged_fields,
    write_compact_nullable_string,
    write_uvarint,
)

_START = struct.Struct(">ih")
_EPOCH_AND_INTERVAL = struct.Struct(">ii")
_NO_ASSIGNMENT = b"\xff\x00"
"""A null structure followed by no tagged fields."""


def _read_names(frame: bytes, position: int) -> tuple[tuple[str, ...] | None, int]:
    length, position = read_compact_length(frame, position)
    if length < 0:
        return None, position
    names = []
    for _ in range(check_array_length(frame, position, length)):
        name, position = read_compact_string(frame, position)
        names.append(name)
    return tuple(names), position


def _read_topic_partitions(frame: bytes, position: int) -> tuple[tuple[TopicPartitions, ...] | None, int]:
    length, position = read_compact_length(frame, position)
    if length < 0:
        return None, position
    topics = []
    for _ in range(check_array_length(frame, position, length)):
        topic_id, position = read_uuid(frame, position)
        count, position = read_compact_array_length(frame, position)
        partitions, position = read_int32s(frame, position, count)
        position = skip_tagged_fields(frame, position)
        topics.append(TopicPartitions(topic_id, partitions))
    return tuple(topics), position


def _decoder(version: int) -> Decoder:
    has_regex = requires_member_id = version >= 1

    def decode(frame: bytes, position: int, header: RequestHeader, client_host: str) -> ConsumerGroupHeartbeat:
        group_id, position = read_compact_string(frame, position)
        member_id, position = read_compact_string(frame, position)
        (member_epoch,) = INT32_FROM(frame, position)
        instance_id, position = read_compact_nullable_string(frame, position + 4)
        rack_id, position = read_compact_nullable_string(frame, position)
        (rebalance_timeout_ms,) = INT32_FROM(frame, position)
        names, position = _read_names(frame, position + 4)
        regex = None
        if has_regex:
            regex, position = read_compact_nullable_string(frame, position)
        server_assignor, position = read_compact_nullable_string(frame, position)
        topic_partitions, position = _read_topic_partitions(frame, position)
        skip_tagged_fields(frame, position)
        return ConsumerGroupHeartbeat(
            group_id,
            member_id,
            member_epoch,
            instance_id,
            rack_id,
            rebalance_timeout_ms,
            names,
            regex,
            server_assignor,
            topic_partitions,
            header.client_id,
            client_host,
            requires_member_id,
        )

    return decode


def _write_assignment(topics: tuple[TopicPartitions, ...]) -> bytes:
    parts = [b"\x01", write_uvarint(len(topics) + 1)]
    for topic_id, partitions in topics:
        parts += (topic_id.bytes, primitives.write_compact_int32s(partitions), b"\x00")
    parts.append(b"\x00\x00")
    return b"".join(parts)


def _write(response: ConsumerGroupHeartbeatResponse, _: RequestHeader) -> bytes:
    assignment = response.assignment
    return b"%b%b%b%b%b" % (
        _START.pack(0, response.error_code),
        write_compact_nullable_string(response.error_message),
        write_compact_nullable_string(response.member_id),
        _EPOCH_AND_INTERVAL.pack(response.member_epoch, response.heartbeat_interval_ms),
        _NO_ASSIGNMENT if assignment is None else _write_assignment(assignment),
    )


def _encoder(version: int) -> Encoder:
    return KeptAnswers(_write, lambda response: response.assignment is None).encode


API = Api(68, "ConsumerGroupHeartbeat", VersionRange(0, 1), 0, _decoder, _encoder)
