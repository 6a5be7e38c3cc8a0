"""Record batches v2: golden bytes of Kafka 4.4 (compressed ones too), round trips, and broken bytes."""

from __future__ import annotations

import gzip
import mmap
import tempfile
from collections.abc import Callable
from struct import pack

import cramjam
import pytest
from crc32c import crc32c
from hypothesis import given, strategies as st

from groupcoord.core.log.records import OffsetCommitRecord
from groupcoord.records.batches import (
    BATCH_HEADER_BYTES,
    Batch,
    CorruptBatchError,
    InvalidBatchError,
    TruncatedBatchError,
    encode_batch,
    iter_batches,
    sized,
)
from groupcoord.records.codec import decode_record
from groupcoord.records.compression import Compression
from groupcoord.schema.primitives import write_varint
from tests.tables import as_one_test

TWO_RECORDS = bytes.fromhex(
    "000000000000000a00000043ffffffff02e1e25ff800000000000100000000000003e800000000000003edffffffffffffffffffffffffffff"
    "00000002120000000401020203000e000a0202040100"
)
TRANSACTIONAL = bytes.fromhex(
    "00000000000000140000003b00000005020a1e032800100000000000000000000003e800000000000003e8000000000000004d000300000000"
    "0000000112000000040102020300"
)
COMMIT_MARKER = bytes.fromhex(
    "000000000000001e000000420000000502530c774400300000000000000000000003e800000000000003e8000000000000004d0003ffffffff"
    "000000012000000008000000010c00000000000900"
)
ABORT_MARKER = bytes.fromhex(
    "000000000000001f000000420000000502a732a10c00300000000000000000000003e800000000000003e8000000000000004d0003ffffffff"
    "000000012000000008000000000c00000000000900"
)
# The first batch of a log that a 4.4.0 broker's coordinator wrote: a group was created.
COORDINATOR_BATCH = bytes.fromhex(
    "00000000000000000000006a0000000002484e0bd8000000000000000001a1fcfd693c000001a1fcfd693cffffffffffffff"
    "ffffff0000000000000001700000003400020016636875726e2d6c696272646b61666b612d72616e67653000030000000000"
    "00ffffffff000001a1fcfd693b0000000000"
)
# What a 4.4.0 broker wrote with offsets.topic.compression.codec 1 to 4, for a commit of offsets 100 to 103 of t1 by g1.
COMPRESSED = {
    Compression.GZIP: "00000000000000000000009d00000000029a6ff2c4000100000003000001a1fe1299f9000001a1fe1299f9ffff"
    "ffffffffffffffff00000000000000041f8b08000000000000ffab61606090616064604a3764602a3104f21842"
    "1858182020e53f10303230302efc2734f323238380b2cad5564f7fdf9bbb26d52e75fc54f599a186818109553b"
    "23427b2a31da5950b53321b4a711a39d0d553b33427b3a41ed0087411b52fc000000",
    Compression.SNAPPY: "0000000000000000000000b20000000002543f3f7d000200000003000001a1fe12c8c7000001a1fe12c8c7ffff"
    "ffffffffffffffff000000000000000482534e415050590000000001000000010000006dfc01587c0000001c00"
    "010002673100027431000000005400040009019864ffffffff01000001a1fe12c8c1010010b9e27c7a08174377"
    "bd5dcd6b59a95a88007c0000021c323f00040154153f00658e3f000004367e000002193f00668e3f000006363f"
    "000003193f0067823f00",
    Compression.LZ4: "0000000000000000000000b00000000002856f16ef000300000003000001a1fe12f586000001a1fe12f586ffff"
    "ffffffffffffffff000000000000000404224d1860408270000000f0077c0000001c0001000267310002743100"
    "0000005400040700fa1a00000064ffffffff01000001a1fe12f57e010010e4481eb17b8245fcb90bb7d80a3487"
    "fe007c0000023f0016013f001f653f00111a043f0016023f001f663f00111a063f0016033f001f673f0009500a"
    "3487fe0000000000",
    Compression.ZSTD: "00000000000000000000009b000000000251ba49fc000400000003000001a1fe131c3f000001a1fe131c3fffff"
    "ffffffffffffffff000000000000000428b52ffd0058f4020054047c0000001c00010002673100027431000000"
    "005400040064ffffffff01000001a1fe131c3a0100100a729ce38cf04000921b0ea12fc7fdde007c0000020165"
    "0402660603670a006008800fc82c2002e003320b88007c2d04f962a009010000",
}


def only_batch(data: bytes) -> Batch:
    (batch,) = iter_batches(data)
    return batch


def with_crc(batch: bytes) -> bytes:
    """Repair length and checksum of a batch that was tampered with."""
    return batch[:8] + pack(">i", len(batch) - 12) + batch[12:17] + pack(">I", crc32c(batch[21:])) + batch[21:]


def test_golden_two_records() -> None:
    """A batch with a tombstone and two timestamps, written without leader epoch and sequence as clients do."""
    records = [(b"\x01\x02", b"\x03", 1000), (b"\x04", None, 1005)]

    assert encode_batch(10, records, leader_epoch=-1, base_sequence=-1) == TWO_RECORDS
    batch = only_batch(TWO_RECORDS)
    assert list(batch.records()) == [(10, 1000, b"\x01\x02", b"\x03"), (11, 1005, b"\x04", None)]
    assert (batch.base_offset, batch.next_offset, batch.record_count) == (10, 12, 2)
    assert (batch.leader_epoch, batch.producer_id, batch.producer_epoch, batch.base_sequence) == (-1, -1, -1, -1)
    assert (batch.is_transactional, batch.is_control, batch.compression) == (False, False, Compression.NONE)


def test_golden_transactional() -> None:
    written = encode_batch(
        20, [(b"\x01\x02", b"\x03", 1000)], leader_epoch=5, producer_id=77, producer_epoch=3, is_transactional=True
    )

    assert written == TRANSACTIONAL
    batch = only_batch(TRANSACTIONAL)
    assert (batch.is_transactional, batch.is_control) == (True, False)
    assert (batch.producer_id, batch.producer_epoch, batch.leader_epoch, batch.base_sequence) == (77, 3, 5, 0)


@pytest.mark.parametrize(("offset", "key", "golden"), [(30, "00000001", COMMIT_MARKER), (31, "00000000", ABORT_MARKER)])
def test_golden_marker(offset: int, key: str, golden: bytes) -> None:
    """Markers are control records of the transaction, with sequence -1."""
    record = (bytes.fromhex(key), bytes.fromhex("000000000009"), 1000)
    written = encode_batch(
        offset, [record], leader_epoch=5, producer_id=77, producer_epoch=3, is_transactional=True, is_control=True
    )

    assert written == golden
    batch = only_batch(golden)
    assert (batch.is_transactional, batch.is_control) == (True, True)
    assert list(batch.records()) == [(offset, 1000, record[0], record[1])]


def test_golden_coordinator_batch() -> None:
    """A batch is written as the coordinator of a real broker wrote it: leader epoch 0, sequence 0."""
    batch = only_batch(COORDINATOR_BATCH)
    records = list(batch.records())

    assert encode_batch(0, [(key, value, timestamp_ms) for _, timestamp_ms, key, value in records]) == COORDINATOR_BATCH


@pytest.mark.parametrize("codec", list(COMPRESSED))
def test_golden_compressed(codec: Compression) -> None:
    """Batches that a real broker compressed with each codec hold the four offsets that were committed."""
    batch = only_batch(bytes.fromhex(COMPRESSED[codec]))

    assert batch.compression is codec
    records = [decode_record(key or b"", value) for _, _, key, value in batch.records()]
    offsets = [record for record in records if isinstance(record, OffsetCommitRecord)]
    assert [(r.group_id, r.topic, r.offset - 100) for r in offsets] == [("g1", "t1", r.partition) for r in offsets]
    assert sorted(record.partition for record in offsets) == [0, 1, 2, 3]


def test_batches_back_to_back_in_any_buffer() -> None:
    """A buffer's batches come in order with their positions, from bytes, memoryview and mmap alike."""
    data = TWO_RECORDS + TRANSACTIONAL + COMMIT_MARKER
    expected = [(10, 100, 79), (20, 179, 71), (30, 250, 78)]
    with tempfile.TemporaryFile() as file:
        file.write(data)
        file.flush()
        with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as mapped:
            for buffer in (data, bytearray(data), memoryview(data), mapped):
                found = list(iter_batches(buffer, base_position=100))
                assert [(batch.base_offset, batch.position, batch.size_bytes) for batch in found] == expected
                assert len([record for batch in found for record in batch.records()]) == 4
            del buffer, found


def test_no_records() -> None:
    """A batch can't be written without records, but one that compaction emptied is read."""
    with pytest.raises(ValueError, match="at least one"):
        encode_batch(0, [])
    emptied = with_crc(TWO_RECORDS[:57] + pack(">i", 0))
    batch = only_batch(emptied)
    assert list(batch.records()) == []
    assert batch.next_offset == 12


def test_gaps_of_compaction_and_negative_deltas() -> None:
    """Offsets keep their place in a compacted batch, and timestamps may lie before the base (the delete horizon)."""
    record = b"\x00" + write_varint(-7) + write_varint(3) + write_varint(1) + b"k" + write_varint(-1) + b"\x00"
    header = bytearray(TWO_RECORDS[:BATCH_HEADER_BYTES])
    header[21:23] = pack(">h", 0x40)
    header[23:27] = pack(">i", 5)
    header[57:61] = pack(">i", 1)
    batch = only_batch(with_crc(bytes(header) + write_varint(len(record)) + record))

    assert list(batch.records()) == [(13, 993, b"k", None)]
    assert batch.next_offset == 16


def test_log_append_time() -> None:
    changed = with_crc(TWO_RECORDS[:21] + pack(">h", 0x08) + TWO_RECORDS[23:])

    assert [timestamp_ms for _, timestamp_ms, _, _ in only_batch(changed).records()] == [1005, 1005]


def test_headers_are_skipped() -> None:
    """Record headers, which no coordinator writes, don't get in the way."""
    headers = write_varint(2) + sized(b"a") + sized(b"b") + sized(b"c") + sized(None)
    record = b"\x00\x00\x00" + write_varint(1) + b"k" + write_varint(1) + b"v" + headers
    header = TWO_RECORDS[:57] + pack(">i", 1)

    assert list(only_batch(with_crc(header + write_varint(len(record)) + record)).records()) == [(10, 1000, b"k", b"v")]


def test_every_cut_is_noticed() -> None:
    """Wherever a batch is cut, the batches before it are yielded and the error names its position."""
    data = TWO_RECORDS + TRANSACTIONAL
    for end in range(len(TWO_RECORDS) + 1, len(data)):
        batches = iter_batches(data[:end], base_position=1000)
        assert next(batches).base_offset == 10
        with pytest.raises(TruncatedBatchError) as raised:
            next(batches)
        assert raised.value.position == 1000 + len(TWO_RECORDS)


def test_crc_may_go_unchecked() -> None:
    """After an earlier check the CRC can be skipped."""
    broken = TWO_RECORDS[:17] + b"\x00\x00\x00\x00" + TWO_RECORDS[21:]

    with pytest.raises(CorruptBatchError, match="CRC"):
        only_batch(broken)
    (batch,) = iter_batches(broken, check_crc=False)
    assert len(list(batch.records())) == 2


@as_one_test
@pytest.mark.parametrize(
    ("changed", "reason"),
    [
        (TWO_RECORDS[:8] + pack(">i", 48) + TWO_RECORDS[12:], "length of 48 bytes"),
        (TWO_RECORDS[:8] + pack(">i", -1) + TWO_RECORDS[12:], "length of -1 bytes"),
        (TWO_RECORDS[:8] + pack(">i", 2**31 - 1) + TWO_RECORDS[12:], "length of 2147483647 bytes"),
        (TWO_RECORDS[:16] + b"\x03" + TWO_RECORDS[17:], "unknown message format 3"),
        (TWO_RECORDS[:16] + b"\x01" + TWO_RECORDS[17:], "its CRC is"),
        (bytes(100), "length of 0 bytes"),
        (with_crc(TWO_RECORDS[:57] + pack(">i", -1) + TWO_RECORDS[61:]), "-1 records in 2 offset slots"),
        (with_crc(TWO_RECORDS[:57] + pack(">i", 3) + TWO_RECORDS[61:]), "3 records in 2 offset slots"),
        (with_crc(TWO_RECORDS[:23] + pack(">i", -1) + TWO_RECORDS[27:]), "2 records in 0 offset slots"),
    ],
)
def test_impossible_headers(changed: bytes, reason: str) -> None:
    """Impossible lengths, formats and counts are refused, with the reason."""
    with pytest.raises(CorruptBatchError, match=reason) as raised:
        only_batch(changed)

    assert raised.value.position == 0


@as_one_test
@pytest.mark.parametrize(
    ("records", "reason"),
    [
        (b"", "end early"),
        (write_varint(-1), "a record of"),
        (write_varint(2**40), "a record of 1099511627776 bytes"),
        (b"\x80" * 11, "more than ten bytes"),
        (write_varint(6) + b"\x00\x00\x00\x01\x01\x00" + b"\x00", "bytes are left behind"),
        (write_varint(7) + b"\x00\x00\x00\x01\x01\x00\x00", "length is not that of its fields"),
        (write_varint(10) + b"\x00\x00\x00" + write_varint(2**30) + b"\x01\x00", "end early"),
        (write_varint(8) + b"\x00\x00\x00" + write_varint(60) + b"\x01\x00\x00\x00", "end early"),
        (write_varint(6) + b"\x00\x00\x00\x03\x01\x00", "a length of -2"),
        (write_varint(6) + b"\x00\x00\x00\x01\x01\x01", "negative number of headers"),
        (write_varint(6) + b"\x00\x00\x00\x01\x01\x7e", "end early"),
    ],
)
def test_impossible_records(records: bytes, reason: str) -> None:
    """Records that don't fit their lengths are refused while reading them, although the CRC is right."""
    batch = only_batch(with_crc(TWO_RECORDS[:57] + pack(">i", 1) + records))

    with pytest.raises(CorruptBatchError, match=reason):
        list(batch.records())


def compressed_batch(codec: int, blob: bytes) -> bytes:
    return with_crc(TWO_RECORDS[:21] + pack(">h", codec) + TWO_RECORDS[23:61] + blob)


def xerial(data: bytes) -> bytes:
    """Blocks of at most ten bytes in the framing of snappy-java."""
    blocks = [bytes(cramjam.snappy.compress_raw(data[start : start + 10])) for start in range(0, len(data), 10)]
    framed = b"".join(pack(">i", len(block)) + block for block in blocks)
    return b"\x82SNAPPY\x00" + pack(">ii", 1, 1) + framed


COMPRESSORS: list[tuple[int, Callable[[bytes], bytes]]] = [
    (1, gzip.compress),
    (1, lambda data: gzip.compress(data[:7]) + gzip.compress(data[7:])),
    (2, xerial),
    (2, lambda data: bytes(cramjam.snappy.compress_raw(data))),
    (3, lambda data: bytes(cramjam.lz4.compress(data))),
    (4, lambda data: bytes(cramjam.zstd.compress(data))),
]


@as_one_test
@pytest.mark.parametrize(("codec", "compress"), COMPRESSORS)
def test_compressed_records(codec: int, compress: Callable[[bytes], bytes]) -> None:
    """Each codec and framing gives the records back; cutting the compressed bytes anywhere is an error."""
    blob = compress(TWO_RECORDS[61:])
    expected = list(only_batch(TWO_RECORDS).records())

    assert list(only_batch(compressed_batch(codec, blob)).records()) == expected
    for end in range(len(blob)):
        with pytest.raises(CorruptBatchError):
            list(only_batch(compressed_batch(codec, blob[:end])).records())


@as_one_test
@pytest.mark.parametrize(("codec", "compress"), COMPRESSORS)
def test_decompression_is_bounded(codec: int, compress: Callable[[bytes], bytes]) -> None:
    """Records that decompress to more than the limit are refused; just the limit is fine."""
    value = bytes(300_000)
    record = b"\x00\x00\x00" + write_varint(1) + b"k" + write_varint(len(value)) + value + b"\x00"
    plain = write_varint(len(record)) + record
    data = compressed_batch(codec, compress(plain))
    data = with_crc(data[:57] + pack(">i", 1) + data[61:])

    assert list(only_batch(data).records(decompressed_bytes_max=len(plain))) == [(10, 1000, b"k", value)]
    with pytest.raises(CorruptBatchError, match="exceed"):
        list(only_batch(data).records(decompressed_bytes_max=len(plain) - 1))


def test_unknown_codec() -> None:
    """Codecs 5 to 7 don't exist."""
    with pytest.raises(CorruptBatchError, match="unknown codec 5"):
        list(only_batch(compressed_batch(5, b"x")).records())


timestamps = st.integers(0, 2**50)
batch_records = st.tuples(st.none() | st.binary(max_size=300), st.none() | st.binary(max_size=5000), timestamps)


@given(st.lists(batch_records, min_size=1, max_size=30), st.integers(0, 2**40), st.integers(-1, 2**40), st.booleans())
def test_batches_survive(
    records: list[tuple[bytes | None, bytes | None, int]], base_offset: int, producer_id: int, is_control: bool
) -> None:
    """Reading gives what was written, and writing that again gives the same bytes."""
    written = encode_batch(base_offset, records, producer_id=producer_id, producer_epoch=1, is_control=is_control)
    batch = only_batch(written)
    read = list(batch.records())

    assert [(key, value, timestamp_ms) for _, timestamp_ms, key, value in read] == records
    assert [offset for offset, _, _, _ in read] == list(range(base_offset, base_offset + len(records)))
    assert batch.max_timestamp_ms == max(timestamp_ms for _, _, timestamp_ms in records)
    assert (batch.producer_id, batch.is_control, batch.size_bytes) == (producer_id, is_control, len(written))


def test_many_and_large_records() -> None:
    """Counts and lengths beyond the tables of small varints are written all the same."""
    records: list[tuple[bytes | None, bytes | None, int]] = [(b"k" * 3_000, b"v" * 70_000, 5)] * 3 + [
        (b"", b"", 5)
    ] * 5_000
    batch = only_batch(encode_batch(0, records))

    assert [(key, value, timestamp_ms) for _, timestamp_ms, key, value in batch.records()] == records


@given(st.binary(max_size=200))
def test_garbage_raises_the_documented_error(data: bytes) -> None:
    """Any bytes are read or refused with InvalidBatchError."""
    for buffer in (data, with_crc(TWO_RECORDS[:61] + data)):
        try:
            for batch in iter_batches(buffer):
                list(batch.records())
        except InvalidBatchError:
            pass
