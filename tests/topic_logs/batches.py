"""Batches as producers send them."""

from __future__ import annotations

import gzip
import struct
from typing import Any, NamedTuple
from uuid import UUID

from crc32c import crc32c

from groupcoord.broker.records import list_offsets
from groupcoord.broker.work import do_whole
from groupcoord.records.batches import BATCH_HEADER_BYTES, LOG_OVERHEAD_BYTES, encode_batch
from groupcoord.records.compression import Compression
from groupcoord.storage.log.batches import FoundRecord, ProducedBatch, read_produced
from groupcoord.storage.log.memory_log import PartitionLog

NOW_MS = 1_700_000_000_000


class SomeTopic(NamedTuple):
    """Properties of a topic that logs use."""

    name: str
    topic_id: UUID
    partition_count: int
    is_internal: bool = False


TOPIC = SomeTopic("orders", UUID(int=1), 100)


def encoded(*values: bytes, at_ms: int = NOW_MS, step_ms: int = 1_000, **fields: Any) -> bytes:
    """Return the bytes of a batch; its records are ``step_ms`` apart."""
    records = [(b"k", value, at_ms + step_ms * number) for number, value in enumerate(values)]
    return encode_batch(0, records, **{"leader_epoch": -1, "base_sequence": -1, **fields})


def produced(*values: bytes, **fields: Any) -> ProducedBatch:
    """Return a batch with a parsed header."""
    return read_produced(encoded(*values, **fields))


def claiming(count: int, payload: bytes, *, attributes: int = 0) -> bytes:
    """Return the bytes of a batch whose header claims a number of records, whatever follows it."""
    data = bytearray(encoded(b"v")[:BATCH_HEADER_BYTES] + payload)
    data[8:12] = struct.pack(">i", len(data) - LOG_OVERHEAD_BYTES)
    data[21:27] = struct.pack(">hi", attributes, count - 1)
    data[57:61] = struct.pack(">i", count)
    data[17:21] = crc32c(bytes(data[21:])).to_bytes(4, "big")
    return bytes(data)


def numbered(count: int, sequence: int, producer: tuple[int, int] = (7, 0), **fields: Any) -> ProducedBatch:
    """Return a batch of a producer that counts."""
    producer_id, epoch = producer
    values = [b"v"] * count
    return produced(*values, producer_id=producer_id, producer_epoch=epoch, base_sequence=sequence, **fields)


def find_time(log: PartitionLog, timestamp_ms: int) -> FoundRecord | None:
    """Return the first record of a log that has this time or a later one, as a ListOffsets finds it."""
    return do_whole(list_offsets.find_time(log, timestamp_ms))


def gzipped(data: bytes) -> bytes:
    head, records = bytearray(data[:BATCH_HEADER_BYTES]), gzip.compress(data[BATCH_HEADER_BYTES:])
    head[8:12] = (BATCH_HEADER_BYTES - LOG_OVERHEAD_BYTES + len(records)).to_bytes(4, "big")
    head[22] |= Compression.GZIP
    head[17:21] = crc32c(bytes(head[21:]) + records).to_bytes(4, "big")
    return bytes(head) + records
