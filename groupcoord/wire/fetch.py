"""Fetch: key 1, versions 4-18, flexible from 12.

5: log start offsets. 7: fetch sessions (KIP-227) and a top-level error. 9: leader epochs. 11: rack and preferred
replica (KIP-392). 12: last fetched epoch, cluster id, diverging epoch (KIP-595), current leader. 13: topics by id
(KIP-516). 15: the replica id becomes a tagged field (KIP-903). 16: addresses of current leaders (KIP-951).

Fields for followers and controllers (snapshots, directory ids, high watermarks) are ignored. Records are sent in the
pieces in which they are stored.
"""

from __future__ import annotations

from typing import Any

from groupcoord.schema.engine import (
    ALONE,
    INT8,
    INT16,
    INT32,
    INT64,
    PROTOCOL,
    STRING,
    UUID,
    Array,
    Field,
    Structure,
    writer_of,
)
from groupcoord.schema.primitives import FLEXIBLE, PLAIN
from groupcoord.wire.api import Api, PartsEncoder, RequestHeader, VersionRange
from groupcoord.wire.broker_messages import NO_LEADER, Fetch, FetchedPartitionData, FetchPartition, FetchResponse
from groupcoord.wire.by_schema import joined, request_decoder
from groupcoord.wire.produce import LEADER, NODE_ENDPOINTS, topics_of

_FLEXIBLE_FROM = 12

_PARTITION = Structure(
    (
        Field("partition_index", INT32),
        Field("current_leader_epoch", INT32, since=9),
        Field("fetch_offset", INT64),
        Field("last_fetched_epoch", INT32, since=12),
        Field("log_start_offset", INT64, since=5),
        Field("partition_max_bytes", INT32),
        Field("", UUID, since=17, tag=0),  # the directory id of a follower
        Field("", INT64, since=18, tag=1),  # its high watermark
    ),
    FetchPartition,
    by_name=True,
)
_REPLICA_STATE = Structure((Field("replica_id", INT32), Field("replica_epoch", INT64)), ALONE)
_REQUEST = Structure(
    (
        Field("replica_id", INT32, until=14),
        Field("max_wait_ms", INT32),
        Field("min_bytes", INT32),
        Field("max_bytes", INT32),
        Field("isolation_level", INT8),
        Field("session_id", INT32, since=7),
        Field("session_epoch", INT32, since=7),
        Field("topics", topics_of(_PARTITION)),
        Field("forgotten_topics", topics_of(INT32), since=7),
        Field("rack_id", STRING, since=11),
        Field("cluster_id", STRING, since=12, nullable=True, tag=0),
        Field("replica_id", _REPLICA_STATE, since=15, tag=1, default=-1),
    ),
    Fetch,
    by_name=True,
)

_RESPONSE_HEAD = Structure(
    (Field("", INT32, default=0), Field("error_code", INT16, since=7), Field("session_id", INT32, since=7)),
    FetchResponse,
    by_name=True,
)
_PARTITION_HEAD = Structure(
    (
        Field("partition_index", INT32),
        Field("error_code", INT16),
        Field("high_watermark", INT64),
        Field("last_stable_offset", INT64),
        Field("log_start_offset", INT64, since=5),
        Field(
            "aborted_transactions",
            Array(Structure((Field("producer_id", INT64), Field("first_offset", INT64)))),
            nullable=True,
        ),
        Field("preferred_read_replica", INT32, since=11),
    ),
    FetchedPartitionData,
    by_name=True,
)
_PARTITION_END = Structure(
    (
        Field("diverging_epoch", Structure((Field("epoch", INT32), Field("end_offset", INT64))), tag=0),
        Field("current_leader", LEADER, since=16, tag=1, default=NO_LEADER),
    ),
    FetchedPartitionData,
    by_name=True,
)
_RESPONSE_END = Structure(
    (Field("node_endpoints", NODE_ENDPOINTS, since=16, tag=0, default=()),), FetchResponse, by_name=True
)

COPIED_BYTES = 16_384
"""Smaller records are copied into the response; larger ones are sent from where they are stored."""

COPIED_PARTS = 64
"""Small parts of a response that are joined into one."""


def _parts_encoder(version: int) -> PartsEncoder:
    flexible, has_topic_ids = version >= _FLEXIBLE_FROM, version >= 13
    dialect = FLEXIBLE if flexible else PLAIN
    write_length, write_string, nothing_tagged = dialect.write_length, dialect.write_string, dialect.nothing_tagged
    write_head, write_partition = (
        writer_of(fields, version, flexible, PROTOCOL, has_end=False) for fields in (_RESPONSE_HEAD, _PARTITION_HEAD)
    )
    write_partition_end, write_end = (
        writer_of(fields, version, flexible, PROTOCOL) for fields in (_PARTITION_END, _RESPONSE_END)
    )

    def encode(response: FetchResponse, header: RequestHeader) -> list[bytes]:
        parts: list[Any] = []
        small: list[Any] = [write_head(response), write_length(len(response.topics))]
        for topic in response.topics:
            small.append(topic.topic_id.bytes if has_topic_ids else write_string(topic.name or ""))
            small.append(write_length(len(topic.partitions)))
            for partition in topic.partitions:
                records = partition.records
                small += (write_partition(partition), write_length(sum(map(len, records))))
                for piece in records:
                    if len(piece) < COPIED_BYTES:
                        small.append(piece)
                    else:
                        parts += (b"".join(small), piece)
                        small.clear()
                if flexible:
                    small.append(write_partition_end(partition))
                if len(small) > COPIED_PARTS:
                    parts.append(b"".join(small))
                    small.clear()
            small.append(nothing_tagged)
        small.append(write_end(response))
        parts.append(b"".join(small))
        return parts

    return encode


API = Api(
    *(1, "Fetch", VersionRange(4, 18), _FLEXIBLE_FROM),
    make_decoder=lambda version: request_decoder(_REQUEST, version, version >= _FLEXIBLE_FROM),
    make_encoder=lambda version: joined(_parts_encoder(version)),
    make_parts_encoder=_parts_encoder,
)
