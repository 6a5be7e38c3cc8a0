"""Records without a key, where the topic is compacted."""

from __future__ import annotations

import gzip
from collections.abc import Callable

import pytest
from crc32c import crc32c

from groupcoord.errors import ErrorCode
from groupcoord.records.batches import BATCH_HEADER_BYTES, LOG_OVERHEAD_BYTES, Batch, encode_batch
from groupcoord.records.compression import Compression
from groupcoord.storage.errors import RefusedBatchError
from groupcoord.storage.log_settings import TopicLogSettings
from groupcoord.storage.produced_batch import check_produced, read_produced
from groupcoord.storage.record_keys import check_keys

NOW_MS = 1_700_000_000_000
COMPACTED = TopicLogSettings(is_compacted=True)


def batch(*keys: bytes | None) -> bytes:
    records = [(key, b"value", NOW_MS + 300 * number) for number, key in enumerate(keys)]
    return encode_batch(0, records, leader_epoch=-1, base_sequence=-1)


def gzipped(data: bytes) -> bytes:
    """Return a batch whose records are compressed with gzip."""
    head, records = bytearray(data[:BATCH_HEADER_BYTES]), gzip.compress(data[BATCH_HEADER_BYTES:])
    head[8:12] = (BATCH_HEADER_BYTES - LOG_OVERHEAD_BYTES + len(records)).to_bytes(4, "big")
    head[22] |= Compression.GZIP
    head[17:21] = crc32c(bytes(head[21:]) + records).to_bytes(4, "big")
    return bytes(head) + records


@pytest.mark.parametrize("packed", [bytes, gzipped])
def test_records_without_a_key_are_named(packed: Callable[[bytes], bytes]) -> None:
    """All of them are found, compressed or not, in a batch of more than 64 records, too."""
    keys = [None if number in (3, 70) else b"k" * number for number in range(80)]
    with pytest.raises(RefusedBatchError) as refused:
        check_produced(read_produced(packed(batch(*keys))), COMPACTED, NOW_MS)

    assert refused.value.error_code is ErrorCode.INVALID_RECORD
    assert refused.value.records == (3, 70)


def test_an_empty_key_is_a_key() -> None:
    """What is empty can be told from what isn't there."""
    check_produced(read_produced(batch(b"", b"k")), COMPACTED, NOW_MS)


def test_other_topics_take_records_without_a_key() -> None:
    """Only compaction needs keys, and only for it a batch is opened."""
    check_produced(read_produced(batch(None)), TopicLogSettings(), NOW_MS)


@pytest.mark.parametrize("length", [61, 62, 65])
def test_a_batch_that_ends_early_is_refused(length: int) -> None:
    """Records that aren't all there can't be looked into, and are refused, as recorded from Kafka 4.4."""
    with pytest.raises(RefusedBatchError) as refused:
        check_keys(Batch(batch(b"k", b"k")[:length], 0, 0))

    assert refused.value.error_code is ErrorCode.INVALID_RECORD
