"""Fetch: key 1, versions 4-18, flexible from 12.

5: log start offsets. 7: fetch sessions (KIP-227) and a top-level error. 9: leader epochs. 11: rack and preferred
replica (KIP-392). 12: last fetched epoch, cluster id, diverging epoch (KIP-595), current leader. 13: topics by id
(KIP-516). 15: the replica id becomes a tagged field (KIP-903). 16: addresses of current leaders (KIP-951).

Fields for followers and controllers (snapshots, directory ids, high watermarks) are ignored. Records are sent in the
pieces in which they are stored.
"""

from __future__ import annotations

from typing import Any

from groupcoord.schema.engine import ALONE, PROTOCOL, TYPES, parse_structures, writer_of
from groupcoord.schema.primitives import FLEXIBLE, PLAIN
from groupcoord.wire.api import Api, PartsEncoder, RequestHeader, VersionRange
from groupcoord.wire.broker_messages import (
    Fetch,
    FetchedPartitionData,
    FetchPartition,
    FetchResponse,
    TopicNameOrIdEntry,
)
from groupcoord.wire.by_schema import joined, request_decoder
from groupcoord.wire.produce import STRUCTURES

_FLEXIBLE_FROM = 12

_STRUCTURES = parse_structures(
    """
    FetchPartition: partition_index int32, current_leader_epoch int32 9+, fetch_offset int64,
        last_fetched_epoch int32 12+, log_start_offset int64 5+, partition_max_bytes int32, _ uuid 17+ tag 0,
        _ int64 18+ tag 1
    FetchTopic: name string 0-12, topic_id uuid 13+ = 0, partitions FetchPartition[]
    ForgottenTopic: name string 0-12, topic_id uuid 13+ = 0, partitions int32[]
    ReplicaState: replica_id int32, replica_epoch int64
    Fetch: replica_id int32 0-14, max_wait_ms int32, min_bytes int32, max_bytes int32, isolation_level int8,
        session_id int32 7+, session_epoch int32 7+, topics FetchTopic[], forgotten_topics ForgottenTopic[] 7+,
        rack_id string 11+, cluster_id string? 12+ tag 0, replica_id ReplicaState 15+ tag 1 = -1

    AbortedTransaction: producer_id int64, first_offset int64
    EpochEndOffset: epoch int32, end_offset int64
    PartitionHead: partition_index int32, error_code int16, high_watermark int64, last_stable_offset int64,
        log_start_offset int64 5+, aborted_transactions AbortedTransaction[]?, preferred_read_replica int32 11+
    PartitionEnd: diverging_epoch EpochEndOffset tag 0, current_leader CurrentLeader 16+ tag 1 = (-1,-1)
    ResponseHead: _ int32 = 0, error_code int16 7+, session_id int32 7+
    ResponseEnd: node_endpoints NodeEndpoint[] 16+ tag 0 = ()
    """,
    made={
        "FetchPartition": FetchPartition,
        "FetchTopic": TopicNameOrIdEntry,
        "ForgottenTopic": TopicNameOrIdEntry,
        "ReplicaState": ALONE,
        "Fetch": Fetch,
        "PartitionHead": FetchedPartitionData,
        "PartitionEnd": FetchedPartitionData,
        "ResponseHead": FetchResponse,
        "ResponseEnd": FetchResponse,
    },
    types={**TYPES, **STRUCTURES},
    by_name=True,
)
"""Between the head and the end of a partition are its records. Of the state of a replica only its id counts."""

COPIED_BYTES = 16_384
"""Smaller records are copied into the response; larger ones are sent from where they are stored."""

COPIED_PARTS = 64
"""Small parts of a response that are joined into one."""


def _parts_encoder(version: int) -> PartsEncoder:
    flexible, has_topic_ids = version >= _FLEXIBLE_FROM, version >= 13
    dialect = FLEXIBLE if flexible else PLAIN
    write_length, write_string, nothing_tagged = dialect.write_length, dialect.write_string, dialect.nothing_tagged
    write_head, write_partition = (
        writer_of(_STRUCTURES[name], version, flexible, PROTOCOL, has_end=False)
        for name in ("ResponseHead", "PartitionHead")
    )
    write_partition_end, write_end = (
        writer_of(_STRUCTURES[name], version, flexible, PROTOCOL) for name in ("PartitionEnd", "ResponseEnd")
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
    make_decoder=lambda version: request_decoder(_STRUCTURES["Fetch"], version, version >= _FLEXIBLE_FROM),
    make_encoder=lambda version: joined(_parts_encoder(version)),
    make_parts_encoder=_parts_encoder,
)
