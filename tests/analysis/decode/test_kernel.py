"""Vectorized decoding equals the scalar codec on each record of any log, and reports all damage."""

from __future__ import annotations

from collections import Counter
from itertools import pairwise

import pyarrow as pa
from crc32c import crc32c
from hypothesis import given, settings, strategies as st

from groupcoord.analysis.decode.records import accounts_of_messages, rows_of_messages
from groupcoord.analysis.decode.rows import LOOK_BACK_BYTES, ByteRange, Origin, RangeReader, RowSettings
from groupcoord.core.log.records import OffsetCommitRecord
from groupcoord.records.batches import encode_batch, iter_batches
from groupcoord.records.codec import encode_record
from groupcoord.records.salvage import Damage, SoundBatch, salvage_batches
from groupcoord.testing.logs import GeneratedLog, encode_any_batch, logs, record_bytes

from ...records.broker_segment import segment_bytes
from .scalar import Row, scalar_rows, without_reasons

ORIGIN = Origin("a/file", 3)
EXAMPLES = 60
companies = st.sampled_from([1, 2, 32])
chunk_sizes = st.sampled_from([1, 100, 1_000, 16_777_216])


def read(
    data: bytes,
    start: int = 0,
    end: int | None = None,
    *,
    company_min: int = 1,
    chunk_bytes: int = 16_777_216,
    raw_bytes: bool = False,
) -> list[Row]:
    """Return the rows of a range of bytes, that of all by default."""
    byte_range = ByteRange(start, len(data) if end is None else end, len(data))
    settings = RowSettings(company_min=company_min, raw_bytes=raw_bytes)
    reader = RangeReader(
        lambda position, size: data[position : position + size], byte_range, ORIGIN, settings, chunk_bytes=chunk_bytes
    )
    return [row for batch in reader.rows() for row in batch.to_pylist()]


def expected(data: bytes) -> list[Row]:
    """Return what the scalar codec makes of a sound log."""
    return list(scalar_rows(iter_batches(data), file=ORIGIN.file, log_partition=ORIGIN.log_partition))


def test_a_segment_with_consumer_groups() -> None:
    """Each record type in a segment of real brokers is recognized, without problems."""
    rows = without_reasons(read(segment_bytes()))
    records = [row for row in rows if row["kind"] == "record"]

    assert records == expected(segment_bytes())
    assert Counter(row["record_type"] for row in records) == {
        1: 6,
        2: 6,
        3: 20,
        4: 5,
        5: 19,
        6: 16,
        7: 28,
        8: 33,
        16: 5,
    }
    assert {row["group_id"] for row in records} == {"modern", "regex", "moves"}
    assert not any(row["problem"] for row in records)


@settings(deadline=None, max_examples=EXAMPLES)
@given(logs(), companies, chunk_sizes)
def test_every_record_is_that_of_the_codec(log: GeneratedLog, company_min: int, chunk_bytes: int) -> None:
    rows = read(log.data, company_min=company_min, chunk_bytes=chunk_bytes)
    assert without_reasons(rows) == expected(log.data)
    assert [row["kind"] for row in rows if row["kind"] not in ("record", "control")] == ["read"]


_broken_values = st.tuples(
    st.sampled_from([b"\x00\x00\x00\x01g\x00\x01t\x00\x00\x00\x05", b"\x00\x01\x00\x01g\x00\x01t\x00\x00\x00\x05"]),
    st.builds(bytes.__add__, st.integers(0, 5).map(lambda version: bytes((0, version))), st.binary(max_size=50)),
)


@st.composite
def _spoiled(draw: st.DrawFn) -> tuple[bytes, bytes | None]:
    """Return key and value of a record, one byte of which is changed, or some of which are cut off or added."""
    key, value = draw(record_bytes())
    parts = [key] if value is None else [key, value]
    number = draw(st.integers(0, len(parts) - 1))
    part = bytearray(parts[number])
    position = draw(st.integers(0, len(part)))
    match draw(st.sampled_from(["change", "cut", "add"])):
        case "change" if position < len(part):
            part[position] = draw(st.integers(0, 255))
        case "cut":
            del part[position:]
        case _:
            part += draw(st.binary(min_size=1, max_size=3))
    parts[number] = bytes(part)
    return parts[0], parts[1] if value is not None else None


@settings(deadline=None, max_examples=EXAMPLES)
@given(st.lists(_spoiled() | _broken_values, min_size=1, max_size=20), st.booleans())
def test_malformed_records_are_those_of_the_codec(records: list[tuple[bytes, bytes | None]], is_control: bool) -> None:
    """Records that the codec can't parse have a problem and keep their bytes; all others have its fields."""
    found = [(offset, 1_000, key, value) for offset, (key, value) in enumerate(records)]
    data = encode_any_batch(found, base_offset=0, last_offset=len(found) - 1, is_control=is_control)
    assert without_reasons(read(data)) == expected(data)


def no_account(rows: list[Row]) -> list[Row]:
    """Return the rows of what was found, without those that give account of ranges."""
    return [row for row in rows if row["kind"] != "read"]


def accounts(rows: list[Row]) -> list[tuple[int, int]]:
    """Return start and end of the ranges that were read."""
    return [(row["position"], row["position"] + row["size_bytes"]) for row in rows if row["kind"] == "read"]


def read_in_pieces(data: bytes, cuts: list[int], **settings: int) -> list[Row]:
    """Return the rows of all ranges between the cuts."""
    bounds = [0, *sorted(cuts), len(data)]
    return [row for start, end in pairwise(bounds) for row in read(data, start, end, **settings)]


@settings(deadline=None, max_examples=EXAMPLES)
@given(logs(), st.lists(st.integers(0, 5_000), max_size=4), companies, chunk_sizes)
def test_ranges_may_be_cut_anywhere(log: GeneratedLog, cuts: list[int], company_min: int, chunk_bytes: int) -> None:
    """Ranges give the same rows as the whole, each once and in order, and their accounts lie end to end."""
    data = log.data
    cuts = [cut % (len(data) + 1) for cut in cuts]
    rows = read_in_pieces(data, cuts, company_min=company_min, chunk_bytes=chunk_bytes)
    spans = accounts(rows)

    assert no_account(rows) == no_account(read(data))
    assert (spans[0][0], spans[-1][1]) == (0, len(data))
    assert all(before[1] == after[0] for before, after in pairwise(spans))


@settings(deadline=None, max_examples=EXAMPLES)
@given(logs(max_batches=4), st.data(), companies, chunk_sizes)
def test_damage_is_that_of_the_careful_reader(
    log: GeneratedLog, draw: st.DataObject, company_min: int, chunk_bytes: int
) -> None:
    """After a change of any byte, or a truncation anywhere, intact batches are read, and the rest is reported."""
    data = bytearray(log.data)
    if not data:
        return
    position = draw.draw(st.integers(0, len(data) - 1), "position")
    if draw.draw(st.booleans(), "cut"):
        del data[position:]
    else:
        data[position] ^= draw.draw(st.integers(1, 255), "mask")
    spoiled = bytes(data)
    rows = read(spoiled, company_min=company_min, chunk_bytes=chunk_bytes)
    found = list(salvage_batches(lambda start, size: spoiled[start : start + size], len(spoiled)))
    sound = [one.batch for one in found if isinstance(one, SoundBatch)]
    damages = [(one.position, one.size_bytes, one.end_offset) for one in found if isinstance(one, Damage)]

    assert without_reasons(rows) == list(scalar_rows(sound, file=ORIGIN.file, log_partition=ORIGIN.log_partition))
    told = [row for row in rows if row["kind"] == "corrupt" and not row["problem"].startswith("offsets go back")]
    assert [(row["position"], row["size_bytes"], row["end_offset"]) for row in told] == damages
    assert accounts(rows) == ([(0, len(spoiled))] if spoiled else [(0, 0)])


@settings(deadline=None, max_examples=EXAMPLES)
@given(logs(max_batches=4), st.data())
def test_damage_is_told_once_whoever_reads_it(log: GeneratedLog, draw: st.DataObject) -> None:
    data = bytearray(log.data)
    for _ in range(draw.draw(st.integers(1, 3)) if data else 0):
        data[draw.draw(st.integers(0, len(data) - 1))] ^= draw.draw(st.integers(1, 255))
    spoiled = bytes(data)
    cuts = draw.draw(st.lists(st.integers(0, len(spoiled)), max_size=4), "cuts")
    pieces, whole = read_in_pieces(spoiled, cuts), read(spoiled)

    assert [row for row in pieces if row["kind"] in ("record", "control")] == [
        row for row in whole if row["kind"] in ("record", "control")
    ]
    assert _damage(pieces) == _damage(whole)


def _damage(rows: list[Row]) -> list[tuple[int, int]]:
    return [(row["position"], row["size_bytes"]) for row in rows if row["kind"] == "corrupt" and row["size_bytes"]]


def test_a_batch_inside_of_a_batch_is_none() -> None:
    """Wherever a range starts, a client's bytes that look like a batch are not taken for one."""
    inner = encode_batch(70, [(b"\x00\x02\x00\x06forged", None, 1_000)])
    data = encode_batch(0, [(b"\x00\x02\x00\x01g", b"\x00\x03" + inner, 1_000)]) + encode_batch(
        9, [(b"k", b"v", 1_000)]
    )
    whole = no_account(read(data))

    assert [row["log_offset"] for row in whole] == [0, 9]
    for cut in range(len(data)):
        assert no_account(read_in_pieces(data, [cut])) == whole


def test_ranges_far_into_a_file_start_with_a_batch() -> None:
    """A range that starts inside a batch finds the batches behind it."""
    data = bytearray()
    for offset in range(0, 60_000, 20):
        numbers = range(offset, offset + 20)
        commits = [
            encode_record(OffsetCommitRecord("group", "topic", number, number, commit_timestamp_ms=5))
            for number in numbers
        ]
        data += encode_batch(offset, [(key, value, 1_000) for key, value in commits])
    assert len(data) > 3 * LOOK_BACK_BYTES
    cuts = [len(data) * number // 7 for number in range(1, 7)]
    rows = no_account(read_in_pieces(bytes(data), cuts, company_min=32, chunk_bytes=262_144))

    assert [row["log_offset"] for row in rows] == list(range(60_000))


def test_large_and_small_batches_are_read_side_by_side() -> None:
    """Batches that find no company are read one record at a time, and their rows stand where they belong."""
    sizes = [1, 500, *[3] * 40, 200, 1]
    data, offset = b"", 0
    for size in sizes:
        commits = [
            encode_record(OffsetCommitRecord("g", "t", number, offset + number, commit_timestamp_ms=5))
            for number in range(size)
        ]
        data += encode_batch(offset, [(key, value, 1_000 + offset) for key, value in commits])
        offset += size
    rows = no_account(read(data, company_min=32))

    assert [row["log_offset"] for row in rows] == list(range(sum(sizes)))
    assert without_reasons(rows) == expected(data)


def test_a_batch_that_lies_about_its_records_takes_no_memory() -> None:
    """A sound CRC around a count of two thousand million records is damage, and what follows is read."""
    batch = bytearray(encode_batch(0, [(b"k", b"v", 1_000)]))
    batch[23:27] = batch[57:61] = (2**31 - 2).to_bytes(4, "big")
    batch[17:21] = crc32c(bytes(batch[21:])).to_bytes(4, "big")
    data = bytes(batch) + encode_batch(7, [(b"\x00\x02\x00\x01g", None, 1_000)])
    rows = read(data)

    assert [(row["kind"], row["log_offset"]) for row in rows] == [("corrupt", None), ("record", 7), ("read", 7)]
    assert rows[0]["end_offset"] == 7


def test_bytes_are_kept_when_asked_for() -> None:
    key, value = encode_record(OffsetCommitRecord("g", "t", 0, 42, commit_timestamp_ms=5))
    (row, _) = read(encode_batch(0, [(key, value, 1_000)]), raw_bytes=True)
    assert (row["key"], row["value"], row["committed_offset"]) == (key, value, 42)


def test_offsets_that_go_back_are_told() -> None:
    """Both batches are read, and a row reports the offsets that go back."""
    data = encode_batch(5, [(b"\x00\x02\x00\x01g", None, 1)]) + encode_batch(3, [(b"\x00\x02\x00\x01h", None, 1)])
    rows = read(data)
    assert [row["group_id"] for row in rows if row["kind"] == "record"] == ["g", "h"]
    assert [row["problem"] for row in rows if row["kind"] == "corrupt"] == ["offsets go back: 3 after 5"]


def test_a_file_that_is_cut_meanwhile_is_told() -> None:
    """Bytes that were present when the file was found and are missing at the read are reported."""
    data = encode_batch(0, [(b"\x00\x02\x00\x01g", None, 1)])
    byte_range = ByteRange(0, len(data) + 100, len(data) + 100)
    reader = RangeReader(lambda start, size: data[start : start + size], byte_range, ORIGIN, RowSettings())
    rows = [row for batch in reader.rows() for row in batch.to_pylist()]

    assert [row["kind"] for row in rows] == ["record", "corrupt", "read"]
    assert (rows[1]["position"], rows[1]["size_bytes"]) == (len(data), 100)
    assert "shorter" in rows[1]["problem"]


def test_a_gap_says_nothing_of_what_lies_behind_it() -> None:
    """Each log partition is complete behind its last gap, in any order of messages."""
    places = [(1, 8), (2, 0), (1, 5), (1, 7), (2, 1), (1, 9)]
    messages = pa.RecordBatch.from_pydict(
        {
            "key": [b"k"] * len(places),
            "value": [None] * len(places),
            "partition": pa.array([partition for partition, _ in places], pa.int32()),
            "offset": pa.array([offset for _, offset in places], pa.int64()),
            "timestamp": pa.array([0] * len(places), pa.int64()),
        }
    )
    accounts = accounts_of_messages(rows_of_messages(messages)).to_pylist()

    found = [(row["kind"], row["log_partition"], row["log_offset"], row["end_offset"]) for row in accounts]
    assert found == [("read", 1, 5, 10), ("read", 2, 0, 2)]
    assert [row["complete_from"] for row in accounts] == [7, 0]
