"""Fetch: key 1, versions 4-18, flexible from 12.

5: log start offsets. 7: fetch sessions (KIP-227) and a top-level error. 9: leader epochs. 11: rack and preferred
replica (KIP-392). 12: last fetched epoch, cluster id. 13: topics by id (KIP-516). 15: the replica id becomes a tagged
field (KIP-903). 12 and 16: the current leader and where it is, for who asked another node (KIP-951).

Gaps: what only followers and controllers need (diverging epochs, snapshots, directory ids, high watermarks) is not
passed on.
"""

import struct
from collections.abc import Mapping
from typing import Any

from groupcoord.core.records import ZERO_UUID
from groupcoord.wire import primitives, schema
from groupcoord.wire.api import Api, Decoder, Encoder, PartsEncoder, VersionRange
from groupcoord.wire.broker_messages import (
    NO_LEADER,
    CurrentLeader,
    Fetch,
    FetchedPartitionData,
    FetchPartition,
    FetchResponse,
    FetchTopic,
    ForgottenTopic,
    MetadataBroker,
)
from groupcoord.wire.header import RequestHeader
from groupcoord.wire.pacing import paced

_KEY = 1


def _request(values: Mapping[str, Any], header: RequestHeader, client_host: str) -> Fetch:
    replica_state = values.get("replica_state")
    return Fetch(
        tuple(
            FetchTopic(topic.get("topic"), topic.get("topic_id", ZERO_UUID), _partitions(topic["partitions"]))
            for topic in paced(values["topics"])
        ),
        max_wait_ms=values["max_wait_ms"],
        min_bytes=values["min_bytes"],
        max_bytes=values["max_bytes"],
        isolation_level=values["isolation_level"],
        session_id=values.get("session_id", 0),
        session_epoch=values.get("session_epoch", -1),
        forgotten_topics=tuple(
            ForgottenTopic(topic.get("topic"), topic.get("topic_id", ZERO_UUID), topic["partitions"])
            for topic in values.get("forgotten_topics_data", ())
        ),
        replica_id=replica_state["replica_id"] if replica_state else values.get("replica_id", -1),
        cluster_id=values.get("cluster_id"),
        rack_id=values.get("rack_id", ""),
    )


def _partitions(partitions: tuple[Mapping[str, Any], ...]) -> tuple[FetchPartition, ...]:
    return tuple(
        FetchPartition(
            partition["partition"],
            partition["fetch_offset"],
            partition["partition_max_bytes"],
            partition.get("current_leader_epoch", -1),
            partition.get("last_fetched_epoch", -1),
            partition.get("log_start_offset", -1),
        )
        for partition in paced(partitions)
    )


_INT32, _INT64 = primitives.INT32.pack, primitives.INT64.pack
_HEAD = struct.Struct(">hi").pack
_ABORTED = struct.Struct(">qq").pack
_PARTITION = struct.Struct(">ihqq").pack
_NOTHING_TAGGED = b"\x00"


def _tagged_leader(leader: CurrentLeader) -> bytes:
    """Write the tagged fields of a partition: the current leader, whose tag is 1."""
    value = _INT32(leader.leader_id) + _INT32(leader.leader_epoch) + _NOTHING_TAGGED
    return b"\x01\x01" + primitives.write_uvarint(len(value)) + value


def _tagged_endpoints(endpoints: tuple[MetadataBroker, ...]) -> bytes:
    """Write the tagged fields of an answer: where nodes are, whose tag is 0."""
    value = primitives.write_uvarint(len(endpoints) + 1)
    for node_id, host, port, rack in endpoints:
        place = _INT32(node_id) + primitives.write_compact_string(host) + _INT32(port)
        value += place + primitives.write_compact_nullable_string(rack) + _NOTHING_TAGGED
    return b"\x01\x00" + primitives.write_uvarint(len(value)) + value


class _Layout:
    """How a version writes its answer. By hand, so that records go out in the pieces in which they are kept."""

    def __init__(self, version: int) -> None:
        self._is_flexible = version >= API.flexible_from
        self._has_start = version >= 5
        self._has_session = version >= 7
        self._has_preferred_replica = version >= 11
        self._has_topic_ids = version >= 13
        self._has_endpoints = version >= 16
        self._tagged = _NOTHING_TAGGED if self._is_flexible else b""

    def parts(self, response: FetchResponse, header: RequestHeader) -> list[bytes]:
        """Write an answer, in pieces."""
        head = _INT32(0)  # the throttle time
        if self._has_session:
            head += _HEAD(response.error_code, response.session_id)
        parts: list[Any] = [head + self._length(len(response.topics))]
        for topic in paced(response.topics):
            if self._has_topic_ids:
                name = topic.topic_id.bytes
            elif self._is_flexible:
                name = primitives.write_compact_string(topic.name or "")
            else:
                name = primitives.write_string(topic.name or "")
            parts.append(name + self._length(len(topic.partitions)))
            for partition in paced(topic.partitions):
                parts.append(self._partition(partition))
                parts += partition.records
                if self._is_flexible:
                    leader = partition.current_leader
                    parts.append(_NOTHING_TAGGED if leader is NO_LEADER else _tagged_leader(leader))
            if self._is_flexible:
                parts.append(_NOTHING_TAGGED)
        if self._is_flexible:
            tells = self._has_endpoints and response.node_endpoints
            parts.append(_tagged_endpoints(response.node_endpoints) if tells else _NOTHING_TAGGED)
        return parts

    def whole(self, response: FetchResponse, header: RequestHeader) -> bytes:
        """Write an answer in one piece."""
        return b"".join(self.parts(response, header))

    def _partition(self, partition: FetchedPartitionData) -> bytes:
        """Write what stands before a partition's records."""
        written = _PARTITION(
            partition.partition_index, partition.error_code, partition.high_watermark, partition.last_stable_offset
        )
        if self._has_start:
            written += _INT64(partition.log_start_offset)
        if partition.aborted_transactions is None:
            written += self._length(-1)
        else:
            written += self._length(len(partition.aborted_transactions))
            aborted = [_ABORTED(*transaction) + self._tagged for transaction in paced(partition.aborted_transactions)]
            written += b"".join(aborted)
        if self._has_preferred_replica:
            written += _INT32(partition.preferred_read_replica)
        return written + self._length(sum(map(len, partition.records)))

    def _length(self, length: int) -> bytes:
        return primitives.write_uvarint(length + 1) if self._is_flexible else _INT32(length)


def _decoder(version: int) -> Decoder:
    return schema.request_decoder(_KEY, version, _request)


def _encoder(version: int) -> Encoder:
    return _Layout(version).whole


def _parts_encoder(version: int) -> PartsEncoder:
    return _Layout(version).parts


API = Api(_KEY, "Fetch", VersionRange(4, 18), 12, _decoder, _encoder, _parts_encoder)
