"""Produce: key 0, versions 3-13, flexible from 9.

5: log start offsets in the response. 7: zstd (KIP-110). 8: errors of single records and a message in the response
(KIP-467). 10: current leaders and their addresses (KIP-951). 11, 12: abortable transactions, and partitions that are
added implicitly (KIP-890). 13: topics by id.

ApiVersions lists versions 0 to 2, too, because librdkafka depends on them (KAFKA-18659); a request of these versions
closes the connection. Written by hand for speed: each batch is passed on as a view of the frame.
"""

from __future__ import annotations

import struct
from functools import lru_cache
from typing import cast

from groupcoord.core.fast_construct import maker
from groupcoord.core.log.records import ZERO_UUID
from groupcoord.schema import primitives
from groupcoord.schema.primitives import (
    INT32,
    INT32_FROM,
    MalformedError,
    read_content,
    read_uuid,
    write_compact_nullable_string,
    write_compact_string,
    write_uvarint,
)
from groupcoord.wire.api import Api, RequestHeader, VersionRange
from groupcoord.wire.broker_messages import (
    NO_LEADER,
    CurrentLeader,
    MetadataBroker,
    Produce,
    ProducedPartition,
    ProducePartition,
    ProduceResponse,
    TopicNameOrIdEntry,
)

_KEY_BYTES = b"\x00\x00"
_version_from = struct.Struct(">hih").unpack_from  # followed by the correlation id and the length of the client id

FEW = 64
"""Most topics and partitions in a request that is decoded at once."""

_LEADER_TAG = 0
_THROTTLE_TIME = bytes(4)
_UUID_BYTES = 16
_acks_from = struct.Struct(">hi").unpack_from  # followed by a timeout, which is ignored
_make_partition, _make_topic = maker(ProducePartition), maker(TopicNameOrIdEntry)


class _Layout:
    """Layout of request and response in a version."""

    def __init__(self, version: int) -> None:
        dialect = primitives.FLEXIBLE if version >= API.flexible_from else primitives.PLAIN
        self._dialect = dialect
        self._read_length, self._read_array_length = dialect.read_length, dialect.read_array_length
        self._skip_tagged_fields = dialect.skip_tagged_fields
        self._has_topic_ids = version >= 13
        self._has_start = version >= 5
        self._pack_partition = struct.Struct(">ihqqq" if self._has_start else ">ihqq").pack
        self._has_messages = version >= 8
        no_message = dialect.write_length(0) + dialect.write_nullable_string(None)
        self._no_message = (no_message if self._has_messages else b"") + dialect.nothing_tagged
        self._has_leaders = version >= 10
        self._capabilities = version >= 7, version >= 11, version >= 12

    def decode(self, frame: bytes, position: int, header: RequestHeader, client_host: str) -> Produce:
        dialect = self._dialect
        transactional_id, position = dialect.read_nullable_string(frame, position)
        acks, _ = _acks_from(frame, position)
        count, position = dialect.read_array_length(frame, position + 6)
        topics = []
        for _ in range(count):
            topic, position = self._read_topic(frame, position)
            topics.append(topic)
        dialect.skip_tagged_fields(frame, position)
        return Produce(tuple(topics), acks, transactional_id, *self._capabilities)

    def _read_topic(self, frame: bytes, position: int) -> tuple[TopicNameOrIdEntry[ProducePartition], int]:
        name, topic_id = None, ZERO_UUID
        if self._has_topic_ids:
            # The cache of UUIDs must not hold a view of a frame.
            topic_id, _ = read_uuid(bytes(frame[position : position + _UUID_BYTES]), 0)
            position += _UUID_BYTES
        else:
            name, position = self._dialect.read_string(frame, position)
        read_length, skip_tagged_fields = self._read_length, self._skip_tagged_fields
        count, position = self._read_array_length(frame, position)
        view = memoryview(frame)
        partitions = []
        for _ in range(count):
            (index,) = INT32_FROM(frame, position)
            length, position = read_length(frame, position + 4)
            records = None
            if length >= 0:
                records, position = read_content(view, position, length)
            position = skip_tagged_fields(frame, position)
            partitions.append(_make_partition((index, records)))
        return _make_topic((name, topic_id, tuple(partitions))), skip_tagged_fields(frame, position)

    def names_few(self, frame: bytes, position: int) -> bool:
        """Return whether there are few topics and partitions, and no tagged fields before the last ones.

        ``position``: that of the header's tagged fields, or of the body in versions without them.
        """
        dialect = self._dialect
        tags_bytes = len(dialect.nothing_tagged)
        if tags_bytes and frame[position]:
            return False
        _, position = dialect.read_nullable_string(frame, position + tags_bytes)
        topic_count, position = dialect.read_array_length(frame, position + 6)
        left = FEW - topic_count
        for _ in range(min(topic_count, FEW)):
            position = position + _UUID_BYTES if self._has_topic_ids else dialect.read_string(frame, position)[1]
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

    def encode(self, response: ProduceResponse, header: RequestHeader) -> bytes:
        dialect = self._dialect
        parts = [dialect.write_length(len(response.topics))]
        for name, topic_id, partitions in response.topics:
            parts.append(topic_id.bytes if self._has_topic_ids else dialect.write_string(name or ""))
            parts.append(dialect.write_length(len(partitions)))
            parts += [self._write_partition(partition) for partition in partitions]
            parts.append(dialect.nothing_tagged)
        has_endpoints = self._has_leaders and response.node_endpoints
        parts += (_THROTTLE_TIME, write_endpoints(response.node_endpoints) if has_endpoints else dialect.nothing_tagged)
        return b"".join(parts)

    def _write_partition(self, partition: ProducedPartition) -> bytes:
        index, error_code, message, base_offset, append_time_ms, start_offset, refused, leader = partition
        numbers = (index, error_code, base_offset, append_time_ms, start_offset)
        written = self._pack_partition(*(numbers if self._has_start else numbers[:-1]))
        if not self._has_messages or (message is None and not refused and leader is NO_LEADER):
            return written + self._no_message
        dialect = self._dialect
        text = dialect.write_nullable_string(message)
        parts = [written, dialect.write_length(len(refused))]
        for number in refused:
            parts += (INT32.pack(number), text, dialect.nothing_tagged)
        has_leader = self._has_leaders and leader is not NO_LEADER
        return b"".join((*parts, text, write_leader(_LEADER_TAG, leader) if has_leader else dialect.nothing_tagged))


@lru_cache
def _layout(version: int) -> _Layout:
    return _Layout(version)


def names_few(frame: bytes | memoryview) -> bool:
    """Return whether a frame is a Produce with few topics and partitions, reading no more than needed.

    A malformed request counts as one with few.
    """
    if frame[:2] != _KEY_BYTES:
        return False
    try:
        version, _, length = _version_from(frame, 2)
        return _layout(version).names_few(cast(bytes, frame), 10 + max(length, 0))
    except (struct.error, IndexError, MalformedError):
        return True


API = Api(
    *(0, "Produce", VersionRange(3, 13), 9),
    make_decoder=lambda version: _layout(version).decode,
    make_encoder=lambda version: _layout(version).encode,
    listed_from=0,
)


_NOTHING_TAGGED = b"\x00"
_ENDPOINTS_TAG = b"\x00"


def write_leader(tag: int, leader: CurrentLeader) -> bytes:
    """Encode the tagged fields of a partition: its current leader (KIP-951)."""
    return write_tagged(tag, INT32.pack(leader.leader_id) + INT32.pack(leader.leader_epoch))


def write_tagged(tag: int, numbers: bytes) -> bytes:
    value = numbers + _NOTHING_TAGGED
    return b"\x01" + write_uvarint(tag) + write_uvarint(len(value)) + value


def write_endpoints(endpoints: tuple[MetadataBroker, ...]) -> bytes:
    """Encode the tagged fields of a response: addresses of nodes (KIP-951)."""
    value = write_uvarint(len(endpoints) + 1)
    for node_id, host, port, rack in endpoints:
        value += INT32.pack(node_id) + write_compact_string(host) + INT32.pack(port)
        value += write_compact_nullable_string(rack) + _NOTHING_TAGGED
    return b"\x01" + _ENDPOINTS_TAG + write_uvarint(len(value)) + value
