"""Dead letters of share groups, for any content of the producers' batches."""

from __future__ import annotations

import gzip

import pytest

from groupcoord.broker.share import letters
from groupcoord.broker.share.letters import PORTION_BYTES, GivenUp, Origin, Portion, write_letters
from groupcoord.records.batches import encode_batch, frame_records, iter_batches
from groupcoord.records.compression import Compression, compress
from tests.topic_logs.batches import claiming
from tests.topic_logs.hostile_batches import BATCHES

ORIGIN = Origin("jobs", 3, "g")
BYTES_MAX = 1_048_588


def written(data: bytes, *offsets: int, bytes_max: int = BYTES_MAX) -> tuple[list[int], list[bytes | None]]:
    """Return how many letters each portion has, and the values of all."""
    portions, count = write_letters(ORIGIN, [GivenUp(offset, 1, True) for offset in offsets], data, bytes_max)
    values = [value for portion in portions for value in values_of(portion)]
    assert len(values) == count
    return [portion.record_count for portion in portions], values


def values_of(portion: Portion) -> list[bytes | None]:
    batch = frame_records(
        0,
        (portion.records,),
        portion.record_count,
        0,
        leader_epoch=0,
        producer_id=-1,
        producer_epoch=-1,
        base_sequence=-1,
    )
    return [value for found in iter_batches(batch) for *_, value in found.records()]


def batch(offset: int, *values: bytes | None) -> bytes:
    return encode_batch(offset, [(b"k", value, 0) for value in values])


def test_each_record_has_its_value() -> None:
    """Across several batches, with records that are not dead letters, and holes of compaction."""
    data = batch(5, b"5", None, b"7") + batch(10, b"10") + batch(12, b"12")
    assert written(data, 5, 6, 9, 12) == ([4], [b"5", None, None, b"12"])


def test_what_was_not_read_is_for_another_time() -> None:
    """Letters are written as far as there are whole batches; of nothing, about all without their values."""
    data = batch(0, b"0", b"1") + batch(2, b"2")
    assert written(data[:-1], 0, 1, 2) == ([2], [b"0", b"1"])
    assert written(data, 0, 1, 2) == ([3], [b"0", b"1", b"2"])
    assert written(b"", 0, 1, 2) == ([3], [None] * 3)


@pytest.mark.parametrize("name", list(BATCHES))
def test_what_cannot_be_read_is_left_out(name: str) -> None:
    """Of a batch of anything there is nothing, or an empty record; what is behind it comes with what it holds."""
    first = BATCHES[name]()
    (read,) = iter_batches(first, check_crc=False)
    data = first + batch(read.next_offset, b"v")
    assert written(data, 0)[1] in ([None], [b""])
    assert written(data, read.next_offset) == ([1], [b"v"])


def test_many_records_are_not_looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    """A batch of more records than are looked at in one go has letters without their values, at once."""
    monkeypatch.setattr(letters, "BATCH_RECORDS_MAX", 3)
    assert written(batch(0, *[b"v"] * 3) + batch(3, *[b"v"] * 4), 0, 3) == ([2], [b"v", None])


def test_a_field_that_reaches_into_the_next_record() -> None:
    spoilt = batch(0, b"vvvv", b"w").replace(b"\x08vvvv", b"\x14vvvv")
    assert written(spoilt, 0, 1) == ([2], [None, None])


def test_what_is_opened_in_one_go_is_little() -> None:
    """Batches of a mebibyte are decompressed one at a time, and those without dead letters never."""
    zeros = encode_batch(0, [(None, bytes(PORTION_BYTES), 0)])[61:]
    blown_up = claiming(1, compress(Compression.GZIP, zeros), attributes=Compression.GZIP)
    moved = [(index).to_bytes(8, "big") + blown_up[8:] for index in range(4)]
    data = b"".join(moved)
    assert len(data) < 10_000
    assert written(data, 0, 1, 2, 3, bytes_max=2 * BYTES_MAX) == ([1], [bytes(PORTION_BYTES)])
    assert written(data, 1, 3, bytes_max=2 * BYTES_MAX) == ([1], [bytes(PORTION_BYTES)])
    broken = moved[0][:61] + gzip.compress(b"\x00")
    broken = broken[:8] + (len(broken) - 12).to_bytes(4, "big") + broken[12:]
    assert written(broken + moved[1], 0, 1, bytes_max=2 * BYTES_MAX) == ([1], [None])


def test_what_is_larger_than_the_topic_takes_is_left_out() -> None:
    """The letter of a record that exceeds the topic's limit has only its origin."""
    data = batch(0, b"s" * 100, b"l" * 1_000, b"s" * 100)
    assert written(data, 0, 1, 2, bytes_max=800) == ([2, 1], [b"s" * 100, None, b"s" * 100])
    for bytes_max in range(1_000, 1_200):
        ((portion,), _) = write_letters(ORIGIN, [GivenUp(1, 1, True)], data, bytes_max)
        assert len(portion.records) <= bytes_max


def test_no_batch_of_letters_is_larger_than_the_topic_takes() -> None:
    """Portions end before."""
    values = [bytes([number]) * (1_000 - number) for number in range(200)]
    data = b"".join(batch(number, value) for number, value in enumerate(values))
    given_up = [GivenUp(number, 1, False) for number in range(200)]
    portions, _ = write_letters(ORIGIN, given_up, data, 5_000)
    assert [value for portion in portions for value in values_of(portion)] == values
    assert max(len(portion.records) + 61 for portion in portions) <= 5_000
    assert len(portions) == 50
