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

from groupcoord.core.log.records import ZERO_UUID
from groupcoord.schema.engine import INT16, INT32, INT64, RECORDS, STRING, UUID, Array, Field, FieldType, Structure
from groupcoord.schema.primitives import FLEXIBLE, PLAIN, MalformedError
from groupcoord.wire.api import Api, VersionRange
from groupcoord.wire.broker_messages import (
    NO_LEADER,
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


def topics_of(partition: FieldType) -> Array:
    """Return the type of topics that are named by id from version 13 on, in Fetch as in Produce."""
    name = Field("name", STRING, until=_TOPIC_IDS_FROM - 1)
    topic_id = Field("topic_id", UUID, since=_TOPIC_IDS_FROM, default=ZERO_UUID)
    return Array(Structure((name, topic_id, Field("partitions", Array(partition))), TopicNameOrIdEntry))


LEADER = Structure((Field("leader_id", INT32), Field("leader_epoch", INT32)), CurrentLeader)
NODE_ENDPOINTS = Array(
    Structure(
        (Field("node_id", INT32), Field("host", STRING), Field("port", INT32), Field("rack", STRING, nullable=True)),
        MetadataBroker,
    )
)

_REQUEST = Structure(
    (
        Field("transactional_id", STRING, nullable=True),
        Field("acks", INT16),
        Field("", INT32),  # the timeout
        Field(
            "topics",
            topics_of(
                Structure((Field("index", INT32), Field("records", RECORDS, nullable=True)), ProducePartition),
            ),
        ),
    ),
    Produce,
    by_name=True,
)
_PARTITION = Structure(
    (
        Field("partition_index", INT32),
        Field("error_code", INT16),
        Field("base_offset", INT64),
        Field("log_append_time_ms", INT64),
        Field("log_start_offset", INT64, since=5),
        Field(
            "refused_records",
            Array(Structure((Field("batch_index", INT32), Field("message", STRING, nullable=True)), RefusedRecord)),
            since=8,
        ),
        Field("error_message", STRING, since=8, nullable=True),
        Field("current_leader", LEADER, since=10, tag=0, default=NO_LEADER),
    ),
    ProducedPartition,
    by_name=True,
)
_RESPONSE = Structure(
    (
        Field("topics", topics_of(_PARTITION)),
        Field("", INT32, default=0),  # the throttle time
        Field("node_endpoints", NODE_ENDPOINTS, since=10, tag=0, default=()),
    ),
    ProduceResponse,
    by_name=True,
)

API = Api(
    *(0, "Produce", VersionRange(3, 13), _FLEXIBLE_FROM),
    make_decoder=lambda version: request_decoder(
        *(_REQUEST, version, version >= _FLEXIBLE_FROM),
        {"allows_zstd": 7, "knows_abortable": 11, "adds_partitions": 12},
    ),
    make_encoder=lambda version: response_encoder(_RESPONSE, version, version >= _FLEXIBLE_FROM),
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
