"""Produce: key 0, versions 3-13, flexible from 9.

5: log start offsets in the response. 7: zstd (KIP-110). 8: errors of single records and a message in the response
(KIP-467). 10: current leaders and their addresses (KIP-951). 11, 12: abortable transactions, and partitions that are
added implicitly (KIP-890). 13: topics by id.

ApiVersions lists versions 0 to 2, too, because librdkafka depends on them (KAFKA-18659); a request of these versions
closes the connection. Each batch is passed on as a view of the frame.
"""

from __future__ import annotations

import struct
from typing import cast

from groupcoord.schema.engine import parse_structures
from groupcoord.schema.primitives import FLEXIBLE, PLAIN, MalformedError
from groupcoord.wire.api import Api, VersionRange
from groupcoord.wire.broker_messages import (
    CurrentLeader,
    MetadataBroker,
    Produce,
    ProducedPartition,
    ProducePartition,
    ProduceResponse,
    RefusedRecord,
    TopicNameOrIdEntry,
)
from groupcoord.wire.by_schema import request_decoder, response_encoder

_FLEXIBLE_FROM, _TOPIC_IDS_FROM = 9, 13

STRUCTURES = parse_structures(
    """
    CurrentLeader: leader_id int32, leader_epoch int32
    NodeEndpoint: node_id int32, host string, port int32, rack string?

    ProducePartition: partition_index int32, records records?
    ProduceTopic: name string 0-12, topic_id uuid 13+ = 0, partitions ProducePartition[]
    Produce: transactional_id string?, acks int16, _ int32, topics ProduceTopic[]

    RefusedRecord: batch_index int32, message string?
    ProducedPartition: partition_index int32, error_code int16, base_offset int64, log_append_time_ms int64,
        log_start_offset int64 5+, refused_records RefusedRecord[] 8+, error_message string? 8+,
        current_leader CurrentLeader 10+ tag 0 = (-1,-1)
    ProducedTopic: name string 0-12, topic_id uuid 13+ = 0, partitions ProducedPartition[]
    ProduceResponse: topics ProducedTopic[], _ int32 = 0, node_endpoints NodeEndpoint[] 10+ tag 0 = ()
    """,
    made={
        "CurrentLeader": CurrentLeader,
        "NodeEndpoint": MetadataBroker,
        "ProducePartition": ProducePartition,
        "ProduceTopic": TopicNameOrIdEntry,
        "Produce": Produce,
        "RefusedRecord": RefusedRecord,
        "ProducedPartition": ProducedPartition,
        "ProducedTopic": TopicNameOrIdEntry,
        "ProduceResponse": ProduceResponse,
    },
    by_name=True,
)
"""The ignored fields are the timeout and the throttle time."""

API = Api(
    *(0, "Produce", VersionRange(3, 13), _FLEXIBLE_FROM),
    make_decoder=lambda version: request_decoder(
        *(STRUCTURES["Produce"], version, version >= _FLEXIBLE_FROM),
        {"allows_zstd": 7, "knows_abortable": 11, "adds_partitions": 12},
    ),
    make_encoder=lambda version: response_encoder(STRUCTURES["ProduceResponse"], version, version >= _FLEXIBLE_FROM),
    listed_from=0,
)

FEW = 64
"""Most topics and partitions in a request that is decoded at once."""

_KEY_BYTES = b"\x00\x00"
_UUID_BYTES = 16
_version_from = struct.Struct(">hih").unpack_from  # followed by the correlation id and the length of the client id


def names_few(frame: bytes | memoryview) -> bool:
    """Return whether a frame is a Produce with few topics and partitions, reading no more than needed.

    A malformed request counts as one with few, one with tagged fields before the last ones as one with many.
    """
    if frame[:2] != _KEY_BYTES:
        return False
    try:
        version, _, length = _version_from(frame, 2)
        return _names_few(cast(bytes, frame), 10 + max(length, 0), version)
    except (struct.error, IndexError, MalformedError):
        return True


def _names_few(frame: bytes, position: int, version: int) -> bool:
    dialect = FLEXIBLE if version >= _FLEXIBLE_FROM else PLAIN
    tags_bytes = len(dialect.nothing_tagged)
    if tags_bytes and frame[position]:
        return False
    _, position = dialect.read_nullable_string(frame, position + tags_bytes)
    topic_count, position = dialect.read_array_length(frame, position + 6)
    left = FEW - topic_count
    for _ in range(min(topic_count, FEW)):
        position = position + _UUID_BYTES if version >= _TOPIC_IDS_FROM else dialect.read_string(frame, position)[1]
        partition_count, position = dialect.read_array_length(frame, position)
        left -= partition_count
        if left < 0:
            return False
        for _ in range(partition_count):
            length, position = dialect.read_length(frame, position + 4)
            position += max(length, 0) + tags_bytes
            if tags_bytes and frame[position - 1]:
                return False
        position += tags_bytes
        if tags_bytes and frame[position - 1]:
            return False
    return left >= 0
