"""Fetch: key 1, versions 4-18, flexible from 12.

5: log start offsets. 7: fetch sessions (KIP-227) and a top-level error. 9: leader epochs. 11: rack and preferred
replica (KIP-392). 12: last fetched epoch, cluster id, diverging epoch (KIP-595), current leader. 13: topics by id
(KIP-516). 15: the replica id becomes a tagged field (KIP-903). 16: addresses of current leaders (KIP-951).

Fields for followers and controllers (snapshots, directory ids, high watermarks) are ignored. Written by hand for speed:
records are sent in the pieces in which they are stored.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any
from uuid import UUID

from groupcoord.core.fast_construct import maker
from groupcoord.core.log.records import ZERO_UUID
from groupcoord.schema import primitives
from groupcoord.schema.primitives import (
    INT32_FROM,
    read_compact_nullable_string,
    read_content,
    read_int32s,
    read_uuid,
    read_uvarint,
    skip_tagged_content,
    skip_tagged_fields,
)
from groupcoord.wire.api import Api, RequestHeader, VersionRange
from groupcoord.wire.broker_messages import (
    NO_LEADER,
    Fetch,
    FetchedPartitionData,
    FetchPartition,
    FetchResponse,
    TopicNameOrIdEntry,
)
from groupcoord.wire.produce import write_endpoints, write_leader, write_tagged

_CLUSTER_ID_TAG, _REPLICA_STATE_TAG = 0, 1
_DIVERGING_TAG, _LEADER_TAG = 0, 1
_REPLICA_STATE_BYTES = 12
"""Size of a follower's id and broker epoch, which tagged fields follow."""

_Numbers = tuple[struct.Struct, Callable[..., tuple[int, ...]]]
"""Layout of consecutive numbers, and a function that puts them into the order of the message's fields."""

_SETTINGS: dict[int, _Numbers] = {
    4: (struct.Struct(">4ib"), lambda replica, wait, least, most, level: (wait, least, most, level, 0, -1, replica)),
    7: (struct.Struct(">4ib2i"), lambda replica, *others: (*others, replica)),
    15: (struct.Struct(">3ib2i"), lambda *others: (*others, -1)),
}
"""Fields before the topics by first version: those from ``max_wait_ms`` to ``session_epoch``, and ``replica_id``."""

_PARTITIONS: dict[int, _Numbers] = {
    4: (struct.Struct(">iqi"), lambda index, offset, most: (index, offset, most, -1, -1, -1)),
    5: (struct.Struct(">iqqi"), lambda index, offset, start, most: (index, offset, most, -1, -1, start)),
    9: (struct.Struct(">iiqqi"), lambda index, epoch, offset, start, most: (index, offset, most, epoch, -1, start)),
    12: (
        struct.Struct(">iiqiqi"),
        lambda index, epoch, offset, last_epoch, start, most: (index, offset, most, epoch, last_epoch, start),
    ),
}
"""Fields of a partition by first version."""

_DIRECTORY_ID_BYTES, _HIGH_WATERMARK_BYTES = 16, 8
_PARTITION_TAGS = {17: {0: _DIRECTORY_ID_BYTES}, 18: {0: _DIRECTORY_ID_BYTES, 1: _HIGH_WATERMARK_BYTES}}
"""Sizes of the tagged fields that only followers send, by version."""

COPIED_BYTES = 16_384
"""Smaller records are copied into the response; larger ones are sent from where they are stored."""

COPIED_PARTS = 64
"""Small parts of a response that are joined into one."""

_make_partition, _make_topic = maker(FetchPartition), maker(TopicNameOrIdEntry)


def _of_version(version: int, numbers: dict[int, _Numbers]) -> _Numbers:
    return numbers[max(since for since in numbers if since <= version)]


class _RequestLayout:
    def __init__(self, version: int) -> None:
        self._dialect = primitives.FLEXIBLE if version >= API.flexible_from else primitives.PLAIN
        self._has_session = version >= 7
        self._has_rack = version >= 11
        self._is_flexible = version >= API.flexible_from
        self._has_topic_ids = version >= 13
        self._settings, self._in_order = _of_version(version, _SETTINGS)
        self._partition, self._partition_in_order = _of_version(version, _PARTITIONS)
        nothing = self._dialect.write_length(0) * self._has_session
        nothing += self._dialect.write_string("") * self._has_rack + self._dialect.nothing_tagged
        self._nothing_behind = nothing  # no forgotten topics, no rack, no tagged fields
        self._skip_behind_partition = self._dialect.skip_tagged_fields
        if sizes := _PARTITION_TAGS.get(version):
            self._skip_behind_partition = partial(_skip_known_tags, sizes)

    def decode(self, frame: bytes, position: int, header: RequestHeader, client_host: str) -> Fetch:
        *settings, replica_id = self._in_order(*self._settings.unpack_from(frame, position))
        count, position = self._dialect.read_array_length(frame, position + self._settings.size)
        topics = []
        for _ in range(count):
            topic, position = self._read_topic(frame, position)
            topics.append(topic)
        max_wait_ms, min_bytes, max_bytes, isolation_level, session_id, session_epoch = settings
        request = Fetch(
            tuple(topics), max_wait_ms, min_bytes, max_bytes, isolation_level, session_id, session_epoch, (), replica_id
        )
        if frame[position:] == self._nothing_behind:  # nearly always
            return request
        if self._has_session:
            request.forgotten_topics, position = self._read_forgotten(frame, position)
        if self._has_rack:
            request.rack_id, position = self._dialect.read_string(frame, position)
        if self._is_flexible and frame[position]:
            _read_tagged(frame, position, request, header.api_version)
        return request

    def _read_topic(self, frame: bytes, position: int) -> tuple[TopicNameOrIdEntry[FetchPartition], int]:
        (name, topic_id), position = self._read_name(frame, position)
        count, position = self._dialect.read_array_length(frame, position)
        unpack_from, size, in_order = self._partition.unpack_from, self._partition.size, self._partition_in_order
        skip = self._skip_behind_partition
        partitions = []
        for _ in range(count):
            partitions.append(_make_partition(in_order(*unpack_from(frame, position))))
            position = skip(frame, position + size)
        position = self._dialect.skip_tagged_fields(frame, position)
        return _make_topic((name, topic_id, tuple(partitions))), position

    def _read_name(self, frame: bytes, position: int) -> tuple[tuple[str | None, UUID], int]:
        if self._has_topic_ids:
            topic_id, position = read_uuid(frame, position)
            return (None, topic_id), position
        name, position = self._dialect.read_string(frame, position)
        return (name, ZERO_UUID), position

    def _read_forgotten(self, frame: bytes, position: int) -> tuple[tuple[TopicNameOrIdEntry[int], ...], int]:
        dialect = self._dialect
        count, position = dialect.read_array_length(frame, position)
        topics = []
        for _ in range(count):
            name, position = self._read_name(frame, position)
            count, position = dialect.read_array_length(frame, position)
            indexes, position = read_int32s(frame, position, count)
            position = dialect.skip_tagged_fields(frame, position)
            topics.append(TopicNameOrIdEntry(*name, indexes))
        return tuple(topics), position


def _skip_known_tags(sizes: Mapping[int, int], frame: bytes, position: int) -> int:
    if frame[position] == 0:
        return position + 1
    count, position = read_uvarint(frame, position)
    for _ in range(count):
        tag, position = read_uvarint(frame, position)
        if tag in sizes:  # as in Kafka, the size that a known field claims is ignored
            _, position = read_uvarint(frame, position)
            _, position = read_content(frame, position, sizes[tag])
        else:
            position = skip_tagged_content(frame, position)
    return position


def _read_tagged(frame: bytes, position: int, request: Fetch, version: int) -> None:
    count, position = read_uvarint(frame, position)
    for _ in range(count):
        tag, position = read_uvarint(frame, position)
        if tag == _CLUSTER_ID_TAG:  # as in Kafka, the size that a known field claims is ignored
            _, position = read_uvarint(frame, position)
            request.cluster_id, position = read_compact_nullable_string(frame, position)
        elif tag == _REPLICA_STATE_TAG and version >= 15:
            _, position = read_uvarint(frame, position)
            (request.replica_id,) = INT32_FROM(frame, position)
            position = skip_tagged_fields(frame, position + _REPLICA_STATE_BYTES)
        else:
            position = skip_tagged_content(frame, position)


_INT32, _INT64 = primitives.INT32.pack, primitives.INT64.pack
_HEAD = struct.Struct(">hi").pack
_ABORTED = struct.Struct(">qq").pack
_PARTITION = struct.Struct(">ihqq").pack
_EPOCH_END = struct.Struct(">iq").pack


class _Layout:
    def __init__(self, version: int) -> None:
        self._dialect = primitives.FLEXIBLE if version >= API.flexible_from else primitives.PLAIN
        self._has_start = version >= 5
        self._has_session = version >= 7
        self._has_preferred_replica = version >= 11
        self._has_topic_ids = version >= 13
        self._has_endpoints = version >= 16

    def parts(self, response: FetchResponse, header: RequestHeader) -> list[bytes]:
        write_length, nothing_tagged = self._dialect.write_length, self._dialect.nothing_tagged
        head = _INT32(0)  # the throttle time
        if self._has_session:
            head += _HEAD(response.error_code, response.session_id)
        parts: list[Any] = []
        small: list[Any] = [head + write_length(len(response.topics))]
        for topic in response.topics:
            name = topic.topic_id.bytes if self._has_topic_ids else self._dialect.write_string(topic.name or "")
            small.append(name + write_length(len(topic.partitions)))
            for partition in topic.partitions:
                small.append(self._partition(partition))
                for records in partition.records:
                    if len(records) < COPIED_BYTES:
                        small.append(records)
                    else:
                        parts += (b"".join(small), records)
                        small.clear()
                if nothing_tagged:
                    is_plain = partition.current_leader is NO_LEADER and partition.diverging_epoch is None
                    small.append(nothing_tagged if is_plain else self._tagged(partition))
                if len(small) > COPIED_PARTS:
                    parts.append(b"".join(small))
                    small.clear()
            if nothing_tagged:
                small.append(nothing_tagged)
        if nothing_tagged:
            has_endpoints = self._has_endpoints and response.node_endpoints
            small.append(write_endpoints(response.node_endpoints) if has_endpoints else nothing_tagged)
        if small:
            parts.append(b"".join(small))
        return parts

    def whole(self, response: FetchResponse, header: RequestHeader) -> bytes:
        return b"".join(self.parts(response, header))

    def _tagged(self, partition: FetchedPartitionData) -> bytes:
        if partition.diverging_epoch is not None:
            return write_tagged(_DIVERGING_TAG, _EPOCH_END(*partition.diverging_epoch))
        if not self._has_endpoints:
            return self._dialect.nothing_tagged
        return write_leader(_LEADER_TAG, partition.current_leader)

    def _partition(self, partition: FetchedPartitionData) -> bytes:
        written = _PARTITION(
            partition.partition_index, partition.error_code, partition.high_watermark, partition.last_stable_offset
        )
        if self._has_start:
            written += _INT64(partition.log_start_offset)
        write_length = self._dialect.write_length
        if partition.aborted_transactions is None:
            written += write_length(-1)
        else:
            written += write_length(len(partition.aborted_transactions))
            end = self._dialect.nothing_tagged
            written += b"".join([_ABORTED(*transaction) + end for transaction in partition.aborted_transactions])
        if self._has_preferred_replica:
            written += _INT32(partition.preferred_read_replica)
        return written + write_length(sum(map(len, partition.records)))


API = Api(
    *(1, "Fetch", VersionRange(4, 18), 12),
    make_decoder=lambda version: _RequestLayout(version).decode,
    make_encoder=lambda version: _Layout(version).whole,
    make_parts_encoder=lambda version: _Layout(version).parts,
)
