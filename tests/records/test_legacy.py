"""Messages of formats v0 and v1: bytes that Kafka's own writer made, and what can be wrong with them."""

from __future__ import annotations

import zlib
from struct import pack

import pytest

from groupcoord.records.batches import CorruptBatchError, TruncatedBatchError, encode_batch, iter_batches
from groupcoord.records.compression import Compression, repair_lz4_header
from groupcoord.testing.logs import encode_messages
from tests.tables import as_one_test

# Three records at offsets 100, 101 and 103 as Kafka 4.4's MemoryRecordsBuilder writes them, by format, codec and kind
# of timestamp: a commit, a tombstone and an empty group.
GOLDEN = {
    (0, "none", "CreateTime"): (
        "000000000000006400000030ed9a2d0100000000000e000100026731000274310000000000000014000000000000000000640000"
        "00000000000003e800000000000000650000001c563cf6c600000000000e0001000267310002743100000001ffffffff00000000"
        "000000670000002611b3e2b90000000000060002000267310000001200000000000000000000ffffffff00000000"
    ),
    (0, "gzip", "CreateTime"): (
        "00000000000000670000006d8f6321f80001ffffffff0000005f1f8b08000000000000ff63600083142036783b4b9711cce36360"
        "64604a3764602a318448338830c0400a8cc1fc02ca48056299309b6fc7b0e865fc0f045075e940ac26b8f9d14e308f8d8109ac8e"
        "8141086e36034c35008bedb18496000000"
    ),
    (0, "snappy", "CreateTime"): (
        "00000000000000670000009a6e02bbc30002ffffffff0000008c82534e4150505900000000010000000100000078960100000901"
        "246400000030ed9a2d01000101280e00010002673100027431010f1000000014001101012a05010403e805072c0000650000001c"
        "563cf6c6000101000e323c001001ffffffff01172c000000670000002611b3e2b9010d0c00060002056408000012051030000000"
        "0000ffffffff00000000"
    ),
    (0, "lz4", "CreateTime"): (
        "00000000000000670000008fa53074b80003ffffffff0000008104224d1860401a7200000012000100916400000030ed9a2d010f"
        "00b10e000100026731000274311000300000140500010200002a000102002103e80700b00000650000001c563cf6c60d000b3c00"
        "5101ffffffff1800b00000670000002611b3e2b90d004100060002640031000012100001020080ffffffff0000000000000000"
    ),
    (1, "none", "CreateTime"): (
        "000000000000006400000038fa049f5c010000000000000003e80000000e00010002673100027431000000000000001400000000"
        "000000000064000000000000000003e8000000000000006500000024d21eea60010000000000000003ed0000000e000100026731"
        "0002743100000001ffffffff00000000000000670000002e8e24e0aa010000000000000003eb0000000600020002673100000012"
        "00000000000000000000ffffffff00000000"
    ),
    (1, "none", "LogAppendTime"): (
        "00000000000000640000003898e38054010800000000000013880000000e00010002673100027431000000000000001400000000"
        "000000000064000000000000000003e8000000000000006500000024464a8d3a010800000000000013880000000e000100026731"
        "0002743100000001ffffffff00000000000000670000002e64d4d77f010800000000000013880000000600020002673100000012"
        "00000000000000000000ffffffff00000000"
    ),
    (1, "gzip", "CreateTime"): (
        "00000000000000670000007838fc7b6e010100000000000003edffffffff000000621f8b08000000000000ff636080038b5f2cf3"
        "6318a11ce61740828f81918129dd9081a9c4102a2c02579dc280ac1204405a552ec9bd4a809bf116c30cc6ff4000930662bd3e95"
        "07abe0ea5f0309360626b07a06062184d360ba002cddf763ae000000"
    ),
    (1, "gzip", "LogAppendTime"): (
        "000000000000006700000075b032b01701090000000000001388ffffffff0000005f1f8b08000000000000ff636080038b198f1b"
        "421839201ce10e20c1c7c0c8c0946ec8c0546208552302579d026330bf8032188158c5cdabd70a8f198cff8100a61188f552ae5c"
        "af4751cfc6c00456cfc02084701a4c1700d8fb6d01ae000000"
    ),
    (1, "snappy", "CreateTime"): (
        "0000000000000067000000a3fb4224c0010200000000000003edffffffff0000008d82534e415050590000000001000000010000"
        "0079ae01000019011438fa049f5c010d103c03e80000000e000100026731000274310d1700140d080c000064000d01052a010101"
        "3b1024d21eea60010901010403ed4244001001ffffffff011c2c000000030000002e8e24e0aa153018eb00000006000205740800"
        "0012012534000000000000ffffffff00000000"
    ),
    (1, "snappy", "LogAppendTime"): (
        "00000000000000670000009b83111eff010a0000000000001388ffffffff0000008582534e415050590000000001000000010000"
        "0071ae0100001901183898e38054010809113c13880000000e0001000267310002743109160400140d080c000064000d010403e8"
        "0d09200100000024464a8d3a6a44001401ffffffff00090124030000002e64d4d77f012e74000806000205740800001209272c00"
        "000000ffffffff00000000"
    ),
    (1, "lz4", "CreateTime"): (
        "00000000000000670000009f82a90ddc010300000000000003edffffffff0000008904224d186040827a000000160001006338fa"
        "049f5c011000f30103e80000000e00010002673100027431170013140800300000640500000200012a00000200003b005024d21e"
        "ea6009000002002d03ed44005001ffffffff1c00c5000000030000002e8e24e0aa300071eb000000060002740031000012260001"
        "020080ffffffff0000000000000000"
    ),
    (1, "lz4", "LogAppendTime"): (
        "000000000000006700000098dbd2c35e010b0000000000001388ffffffff0000008204224d186040827300000016000100723898"
        "e3805401081100f20113880000000e00010002673100027431160023001408003000006405000002002003e80600cf0000000100"
        "000024464a8d3a4400085101ffffffff2e00b90000030000002e64d4d77f300031060002740030000012250002020080ffffffff"
        "0000000000000000"
    ),
}
KEYS = tuple(map(bytes.fromhex, ("0001000267310002743100000000", "0001000267310002743100000001", "000200026731")))
VALUES = (
    bytes.fromhex("00000000000000000064000000000000000003e8"),
    None,
    bytes.fromhex("00000000000000000000ffffffff00000000"),
)
CODECS = {"none": Compression.NONE, "gzip": Compression.GZIP, "snappy": Compression.SNAPPY, "lz4": Compression.LZ4}
TIMES = {
    (0, "CreateTime"): (-1, -1, -1),
    (1, "CreateTime"): (1000, 1005, 1003),
    (1, "LogAppendTime"): (5000, 5000, 5000),
}


def expected_records(magic: int, kind: str) -> list[tuple[int, int, bytes | None, bytes | None]]:
    return list(zip((100, 101, 103), TIMES[magic, kind], KEYS, VALUES, strict=True))


def with_crc(entry: bytes) -> bytes:
    """Repair size and checksum of a message that was tampered with."""
    covered = entry[16:]
    return entry[:8] + pack(">iI", len(covered) + 4, zlib.crc32(covered)) + covered


MESSAGE = encode_messages(1, [(5, 1000, b"k", b"v")])
WRAPPER = encode_messages(1, [(5, 1000, b"k", b"v"), (6, 1001, b"k", b"w")], codec=Compression.GZIP)


def wrapped(inner: bytes, *, magic: int = 1, codec: int = 1) -> bytes:
    """Return a wrapper around bytes, compressed with gzip whatever ``codec`` is."""
    compressor = zlib.compressobj(wbits=31)
    entry = encode_messages(magic, [(9, 1, None, compressor.compress(inner) + compressor.flush())])
    return with_crc(entry[:17] + bytes((codec,)) + entry[18:])


@as_one_test
@pytest.mark.parametrize(("magic", "codec", "kind"), list(GOLDEN))
def test_golden(magic: int, codec: str, kind: str) -> None:
    """Offsets, timestamps, keys and values come out as Kafka's reader shows them."""
    found = list(iter_batches(bytes.fromhex(GOLDEN[magic, codec, kind]), base_position=50))

    assert [record for batch in found for record in batch.records()] == expected_records(magic, kind)
    assert len(found) == (3 if codec == "none" else 1)
    assert (found[0].position, found[0].base_offset, found[0].magic) == (50, 100, magic)
    assert (found[-1].next_offset, sum(batch.record_count for batch in found)) == (104, 3)
    assert {batch.compression for batch in found} == {CODECS[codec]}
    assert not any(batch.is_transactional or batch.is_control for batch in found)
    assert {(batch.producer_id, batch.producer_epoch, batch.leader_epoch) for batch in found} == {(-1, -1, -1)}
    assert max(batch.max_timestamp_ms for batch in found) == max(TIMES[magic, kind])


@as_one_test
@pytest.mark.parametrize(("magic", "codec", "kind"), [key for key in GOLDEN if key[1] in ("none", "gzip")])
def test_the_generator_writes_what_kafka_writes(magic: int, codec: str, kind: str) -> None:
    """Messages made for tests are those of Kafka's writer; compressed ones hold the same, in other bytes."""
    times = TIMES[magic, "CreateTime"]
    records = list(zip((100, 101, 103), times, KEYS, VALUES, strict=True))
    append_time_ms = 5000 if kind == "LogAppendTime" else None
    made = encode_messages(magic, records, codec=CODECS[codec], append_time_ms=append_time_ms)

    if codec == "none":
        assert made.hex() == GOLDEN[magic, codec, kind]
    assert [record for batch in iter_batches(made) for record in batch.records()] == expected_records(magic, kind)


def test_formats_follow_each_other() -> None:
    """A log that was written while a broker was upgraded holds messages of all formats."""
    data = b"".join(
        (
            encode_messages(0, [(1, -1, b"k", b"v")]),
            encode_messages(1, [(2, 5, b"k", None)]),
            encode_batch(3, [(b"k", None, 7)]),
        )
    )

    assert [record for batch in iter_batches(data) for record in batch.records()] == [
        (1, -1, b"k", b"v"),
        (2, 5, b"k", None),
        (3, 7, b"k", None),
    ]


def test_absolute_offsets_inside() -> None:
    """A wrapper of format v1 whose messages have absolute offsets already is read, too."""
    inner = encode_messages(1, [(7, 1, b"a", None), (9, 1, b"b", None)])
    (batch,) = iter_batches(wrapped(inner))

    assert [record[0] for record in batch.records()] == [7, 9]
    assert (batch.base_offset, batch.next_offset) == (7, 10)


def test_every_cut_is_noticed() -> None:
    """A message cut anywhere is truncated, and the error has its full length if known."""
    for end in range(1, len(MESSAGE)):
        with pytest.raises(TruncatedBatchError) as raised:
            list(iter_batches(MESSAGE[:end]))
        assert raised.value.size_bytes == (26 if end <= 16 else len(MESSAGE))


def test_crc_may_go_unchecked() -> None:
    """After an earlier check the CRC can be skipped."""
    broken = MESSAGE[:12] + bytes(4) + MESSAGE[16:]

    with pytest.raises(CorruptBatchError, match="CRC"):
        list(iter_batches(broken))
    (batch,) = iter_batches(broken, check_crc=False)
    assert list(batch.records()) == [(5, 1000, b"k", b"v")]


@as_one_test
@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (with_crc(MESSAGE[:16] + b"\x01\x00" + bytes(8) + pack(">ii", 5, 0)), "5 bytes, 4 left"),
        (with_crc(MESSAGE[:16] + b"\x01\x00" + bytes(8) + pack(">ii", -2, 0)), "-2 bytes"),
        (with_crc(MESSAGE + b"x"), "1 bytes are left behind a message's value"),
        (wrapped(b""), "holds none"),
        (wrapped(MESSAGE[:-1]), "a message of 24 bytes inside another, 35 left"),
        (wrapped(MESSAGE[:-1] + b"?"), "inside another has a wrong CRC"),
        (wrapped(MESSAGE + MESSAGE), "offsets inside a message go back"),
        (wrapped(WRAPPER), "compressed again"),
        (wrapped(encode_messages(0, [(5, -1, b"k", b"v")])), "of another format"),
        (wrapped(MESSAGE, codec=4), "unknown codec 4"),
        (wrapped(MESSAGE, codec=2), "snappy"),
        (with_crc(MESSAGE[:17] + b"\x01" + MESSAGE[18:]), "gzip"),
        (with_crc(MESSAGE[:17] + b"\x01" + MESSAGE[18:26] + pack(">ii", -1, -1)), "without a value"),
    ],
)
def test_what_does_not_fit(data: bytes, reason: str) -> None:
    """Messages with a valid CRC and impossible content are refused, with the reason."""
    with pytest.raises(CorruptBatchError, match=reason):
        list(iter_batches(data))


def test_lz4_headers_are_repaired() -> None:
    """The checksum of a frame's header is set right, however long the header; other bytes are left alone."""
    right = bytes.fromhex("04224d18604082")
    assert repair_lz4_header(right[:6] + b"\x1a" + b"rest") == right + b"rest"
    sized = bytes.fromhex("04224d1868400500000000000000")
    repaired = repair_lz4_header(sized + b"\x00")
    assert repaired[:-1] == sized
    assert repair_lz4_header(repaired) == repaired
    assert repair_lz4_header(b"no frame at all") == b"no frame at all"
    assert repair_lz4_header(b"\x04\x22\x4d\x18") == b"\x04\x22\x4d\x18"
