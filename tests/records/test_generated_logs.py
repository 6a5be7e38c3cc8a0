"""The generator of logs and the reader agree, and damage is skipped."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from crc32c import crc32c
from hypothesis import given, strategies as st

from groupcoord.records.batches import Batch, encode_batch, iter_batches
from groupcoord.records.codec import decode_control, decode_record, encode_record
from groupcoord.records.describe import describe_control, describe_record
from groupcoord.records.salvage import Damage, SoundBatch, salvage_batches
from groupcoord.records.schemas import SCHEMAS, RecordType
from groupcoord.records.typed import TypedRecord, build_record, parse_record
from groupcoord.testing.logs import GeneratedLog, logs, record_bytes, records

chunk_sizes = st.sampled_from([1, 20, 100, 1_000, 4_194_304])


def reader(data: bytes) -> Callable[[int, int], bytes]:
    return lambda position, size: data[position : position + size]


def salvage(data: bytes, chunk_bytes: int = 4_194_304) -> list[SoundBatch | Damage]:
    return list(salvage_batches(reader(data), len(data), chunk_bytes=chunk_bytes))


@given(records())
def test_typed_records_survive(record: TypedRecord) -> None:
    """parse(build(record)) is the record, for every type and version."""
    assert parse_record(*build_record(record)) == record


@given(record_bytes())
def test_record_bytes_survive(key_and_value: tuple[bytes, bytes | None]) -> None:
    """encode(decode(b)) is b, for records as the coordinator holds them and field by field."""
    assert encode_record(decode_record(*key_and_value)) == key_and_value
    typed = parse_record(*key_and_value)
    assert typed is None or build_record(typed) == key_and_value


@given(records(unknown_tags=False))
def test_known_records_are_described(record: TypedRecord) -> None:
    key, value = build_record(record)
    described = describe_record(key, value)

    assert described["key"] == {"type": record.type, "data": record.key}
    if record.value is None:
        assert described["value"] is None
    else:
        assert described["value"]["version"] == record.version
        assert set(described["value"]["data"]) == set(record.value)


@given(st.sampled_from(list(RecordType)), st.integers(0, 5), st.binary(max_size=60), st.binary(max_size=60))
def test_any_bytes_are_described(record_type: RecordType, version: int, key: bytes, value: bytes) -> None:
    """Any record is described, and typed only if the result encodes to the same bytes."""
    key = record_type.to_bytes(2, "big") + key
    value = version.to_bytes(2, "big") + value
    describe_record(key, value)
    describe_control(key, value)
    typed = parse_record(key, value)
    assert typed is None or build_record(typed) == (key, value)


def test_every_type_has_a_schema() -> None:
    """The table is complete: the types that released brokers write, 9 and 18 not among them."""
    assert sorted(SCHEMAS) == [number for number in range(24) if number not in (9, 18)]


@given(logs(), chunk_sizes)
def test_logs_are_read_as_generated(log: GeneratedLog, chunk_bytes: int) -> None:
    """A whole log is read without damage, for any chunk size."""
    found = salvage(log.data, chunk_bytes)

    assert [record for sound in found if isinstance(sound, SoundBatch) for record in sound.records] == list(log.records)
    assert not any(isinstance(sound, Damage) for sound in found)
    transactional = [sound.batch.producer_id for sound in found if sound.batch.is_transactional]  # type: ignore[union-attr]
    assert transactional == [batch.producer_id for batch in log.batches if batch.is_transactional]


@given(logs())
def test_markers_survive(log: GeneratedLog) -> None:
    """encode(decode(b)) is b for control records too."""
    for batch in log.batches:
        if batch.is_control:
            for _, _, key, value in batch.records:
                assert key is not None
                assert encode_record(decode_control(key, value, batch.producer_id, batch.producer_epoch)) == (
                    key,
                    value,
                )


@given(logs(max_batches=2), st.binary(max_size=80), st.booleans())
def test_garbage_between_batches_is_skipped(log: GeneratedLog, garbage: bytes, is_behind: bool) -> None:
    """Bytes that are no batch are damage, and the log before or behind them is read all the same."""
    data = log.data + garbage if is_behind else garbage + log.data
    found = [sound for sound in salvage(data) if isinstance(sound, SoundBatch)]

    start = 0 if is_behind else len(garbage)
    expected = [batch.position + start for batch in iter_batches(log.data)]
    assert [sound.batch.position for sound in found] == expected


def three_batches() -> tuple[bytes, list[Batch]]:
    """Return a log of three batches with offsets 0, 1 and 2."""
    data = b"".join(encode_batch(offset, [(b"k", b"v" * 30, 1_000)]) for offset in range(3))
    return data, list(iter_batches(data))


def test_damage_says_what_was_skipped() -> None:
    """Position, size, reason and the offsets on both sides."""
    data, (first, second, _) = three_batches()
    size = first.size_bytes
    changed = data[: second.position + 70] + b"?" + data[second.position + 71 :]
    _, damage, last = salvage(changed)

    assert isinstance(damage, Damage)
    assert (damage.position, damage.size_bytes, damage.first_offset, damage.end_offset) == (size, size, 1, 2)
    assert "CRC" in damage.reason
    assert isinstance(last, SoundBatch)
    assert last.batch.base_offset == 2


def test_damage_at_both_ends() -> None:
    """At the start nothing is known of the offsets before, at the end nothing of those behind."""
    data, (first, _, third) = three_batches()
    damage, *_ = salvage(b"\xff" + data)
    *_, torn = salvage(data[:-1])

    assert isinstance(damage, Damage)
    assert damage == Damage(0, 1, damage.reason, None, 0)
    assert isinstance(torn, Damage)
    assert (torn.position, torn.size_bytes, torn.first_offset, torn.end_offset) == (
        third.position,
        first.size_bytes - 1,
        2,
        None,
    )
    assert f"needs {first.size_bytes} bytes and only {first.size_bytes - 1} are left" in torn.reason


@pytest.mark.parametrize("chunk_bytes", [1, 100, 1_000])
def test_a_log_that_is_cut_meanwhile(chunk_bytes: int) -> None:
    """A log shorter than its announced size ends there."""
    data, (first, second, _) = three_batches()
    whole = list(salvage_batches(reader(data[: second.position]), len(data), chunk_bytes=chunk_bytes))
    torn = list(salvage_batches(reader(data[: second.position + 30]), len(data), chunk_bytes=chunk_bytes))

    assert [sound.batch.position for sound in whole if isinstance(sound, SoundBatch)] == [first.position]
    assert len(whole) == 1
    assert isinstance(torn[0], SoundBatch)
    assert isinstance(torn[1], Damage)
    assert (torn[1].position, torn[1].size_bytes) == (second.position, 30)


def test_a_sound_crc_around_impossible_records() -> None:
    """A batch with a valid CRC whose records don't match its header is damaged; the next one is read."""
    data, (first, _, _) = three_batches()
    covered = bytearray(data[21 : first.size_bytes])
    covered[36:40] = (2).to_bytes(4, "big")
    covered[2:6] = (1).to_bytes(4, "big")
    broken = data[:17] + crc32c(bytes(covered)).to_bytes(4, "big") + bytes(covered)
    found = salvage(broken + data[first.size_bytes :])

    assert isinstance(found[0], Damage)
    assert [sound.batch.base_offset for sound in found[1:] if isinstance(sound, SoundBatch)] == [1, 2]


def test_a_preallocated_tail_is_one_damage() -> None:
    """Zeros behind the last batch, as a broker preallocates them, are passed over at once."""
    data, _ = three_batches()
    *found, damage = salvage(data + bytes(1_000_000))

    assert len(found) == 3
    assert isinstance(damage, Damage)
    assert (damage.position, damage.size_bytes) == (len(data), 1_000_000)
