"""The records that a batch claims, checked against its bytes."""

from __future__ import annotations

import random
from collections.abc import Callable
from itertools import accumulate

import pytest

from groupcoord.errors import ErrorCode
from groupcoord.records.batches import Batch, encode_batch, record_heads
from groupcoord.schema.primitives import MalformedError, write_varint
from groupcoord.storage.errors import RefusedBatchError
from groupcoord.storage.log.batches import (
    check_keys,
    check_produced,
    check_sizes,
    first_since,
    read_produced,
)
from groupcoord.storage.log.settings import TopicLogSettings
from tests.samples import seeds
from tests.topic_logs.batches import NOW_MS, claiming

COUNT_MAX = 2**31 - 1
SIZES = (6, 7, 62, 63, 64, 65, 8_191, 8_192, 8_193, 100_000)
"""Of records: around the ends of sizes with one, two and three bytes."""


class Watched(bytes):
    """Bytes of which one at a time is read no more often than a look at all of them could need."""

    reads = 0

    def __getitem__(self, key: object) -> int:  # type: ignore[override]
        found: int = super().__getitem__(key)  # type: ignore[call-overload]
        if not isinstance(key, slice):
            self.reads += 1
            assert self.reads <= 3 * len(self) + 10, "bytes are read again and again"
        return found


def records(*sizes: int) -> list[bytes]:
    return [write_varint(size) + bytes(size) for size in sizes]


@pytest.mark.parametrize("is_compacted", [False, True])
@pytest.mark.parametrize("payload", [b"\x01" + bytes(5), b"\x00" * 5, b"\x0c" + bytes(6)])
def test_more_records_than_bytes_are_refused_at_once(payload: bytes, is_compacted: bool) -> None:
    """67 bytes that claim 2^31-1 records, of sizes that don't go on: nothing is looped over."""
    batch = read_produced(Watched(claiming(COUNT_MAX, payload)))
    with pytest.raises(RefusedBatchError) as refused:
        check_produced(batch, TopicLogSettings(is_compacted=is_compacted), NOW_MS)
    assert refused.value.error_code is ErrorCode.INVALID_RECORD


def test_a_codec_that_does_not_exist() -> None:
    with pytest.raises(RefusedBatchError, match="there is no codec 5"):
        check_produced(read_produced(claiming(1, b"", attributes=5)), TopicLogSettings(), NOW_MS)


@pytest.mark.parametrize("count", [COUNT_MAX, 100])
@pytest.mark.parametrize("payload", [write_varint(-1) + bytes(699), write_varint(-20) + bytes(699), bytes(700)])
def test_heads_of_records_that_do_not_go_on(count: int, payload: bytes) -> None:
    """Sizes below 0, or too small for a record, end the search for records, wherever they come from."""
    with pytest.raises(MalformedError):
        list(record_heads(Watched(payload), count))


def test_a_log_from_elsewhere_may_claim_anything() -> None:
    """A time that is looked for in a batch of 2^31-1 records, which an older version took, is answered at once."""
    with pytest.raises(RefusedBatchError) as refused:
        first_since(claiming(COUNT_MAX, write_varint(-1) + bytes(5)), 0, 0)
    assert refused.value.error_code is ErrorCode.UNKNOWN_SERVER_ERROR


@pytest.mark.parametrize("kind", [bytes, memoryview])
@pytest.mark.parametrize("seed", seeds(20))
def test_sizes_lead_from_the_first_record_to_the_end(kind: Callable[[bytes], bytes], seed: int) -> None:
    """Records of any size are taken; one more or less isn't, nor a byte more or less at the end."""
    chance = random.Random(seed)
    found = records(*chance.choices(SIZES[: chance.choice((3, 6, 10))], k=chance.randint(1, 40)))
    payload = b"".join(found)
    check_sizes(kind(claiming(len(found), payload)), len(found))
    for count, changed in (
        (len(found) + 1, payload),
        (len(found) - 1, payload),
        (len(found), payload + b"\x00"),
        (len(found), payload[:-1]),
        (len(found), b"".join((*found[:-1], write_varint(-(len(found[-1])) // 2), found[-1][1:]))),
    ):
        with pytest.raises(MalformedError):
            check_sizes(kind(claiming(count, changed)), count)


def test_batches_of_every_kind_of_field() -> None:
    """Batches of the package itself are accepted: nulls, no headers, times and keys of all lengths."""
    for seed in seeds(30):
        chance = random.Random(seed)
        times_ms = accumulate(chance.choices((0, 1, 70, 10_000, 2**40), k=30))
        some: list[tuple[bytes | None, bytes | None, int]] = [
            (bytes(chance.choice((0, 1, 63, 64, 9_000))), chance.choice((None, b"", bytes(100))), NOW_MS + time_ms)
            for time_ms in times_ms
        ]
        data = encode_batch(0, some, leader_epoch=-1, base_sequence=-1)
        settings = TopicLogSettings(is_compacted=True, timestamp_after_max_ms=2**62)
        check_produced(read_produced(data), settings, NOW_MS)
        assert len(list(record_heads(Batch(data, 0, 0).payload(1 << 20), 30))) == 30


@pytest.mark.parametrize("length", [61, 62, 65])
def test_keys_of_a_batch_that_ends_early(length: int) -> None:
    """A batch for a compacted topic that lacks records fails with INVALID_RECORD, as recorded from Kafka 4.4."""
    data = encode_batch(0, [(b"k", b"value", NOW_MS)] * 2, leader_epoch=-1, base_sequence=-1)
    with pytest.raises(RefusedBatchError) as refused:
        check_keys(Batch(data[:length], 0, 0))
    assert refused.value.error_code is ErrorCode.INVALID_RECORD


@pytest.mark.parametrize("sizes", [(-2, -1), (-1, -2)], ids=["key", "value"])
def test_a_size_below_minus_one_is_malformed(sizes: tuple[int, int]) -> None:
    body = bytes(3) + b"".join(map(write_varint, sizes)) + b"\x00"
    with pytest.raises(RefusedBatchError, match="a length of -2"):
        check_keys(Batch(claiming(1, write_varint(len(body)) + body), 0, 0))
