"""Batches as producers send them."""

from __future__ import annotations

from typing import Any, NamedTuple
from uuid import UUID

from groupcoord.records.batches import encode_batch
from groupcoord.storage.produced_batch import ProducedBatch, read_produced

NOW_MS = 1_700_000_000_000


class SomeTopic(NamedTuple):
    """What logs want to know of a topic."""

    name: str
    topic_id: UUID
    partition_count: int


TOPIC = SomeTopic("orders", UUID(int=1), 100)


def encoded(*values: bytes, at_ms: int = NOW_MS, step_ms: int = 1_000, **fields: Any) -> bytes:
    """Return the bytes of a batch; its records are ``step_ms`` apart."""
    records = [(b"k", value, at_ms + step_ms * number) for number, value in enumerate(values)]
    return encode_batch(0, records, **{"leader_epoch": -1, "base_sequence": -1, **fields})


def produced(*values: bytes, **fields: Any) -> ProducedBatch:
    """Return a batch whose header was read."""
    return read_produced(encoded(*values, **fields))


def numbered(count: int, sequence: int, producer: tuple[int, int] = (7, 0), **fields: Any) -> ProducedBatch:
    """Return a batch of a producer that counts."""
    producer_id, epoch = producer
    values = [b"v"] * count
    return produced(*values, producer_id=producer_id, producer_epoch=epoch, base_sequence=sequence, **fields)
