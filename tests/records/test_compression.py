"""Hostile compressed data: work and output are bounded by its size."""

from __future__ import annotations

import gzip
import struct
import zlib
from typing import Any

import cramjam
import pytest

from groupcoord.records.compression import (
    GZIP_EMPTY_MEMBERS_MAX,
    PART_BYTES_MAX,
    Compression,
    DecompressionError,
    compress,
    decompress,
    decompressed_parts,
    lz4_frame,
)

BYTES_MAX = 33_554_432
XERIAL = b"\x82SNAPPY\x00\x00\x00\x00\x01\x00\x00\x00\x01"
SKIPPABLE = struct.pack("<II", 0x184D2A50, 0)
ZSTD_HEADER = b"\x28\xb5\x2f\xfd\x00"


def member(data: bytes) -> bytes:
    return gzip.compress(data, mtime=0)


def block(data: bytes) -> bytes:
    packed = bytes(cramjam.snappy.compress_raw(data))
    return struct.pack(">i", len(packed)) + packed


class CountedInput:
    """Stands for zlib, and counts the bytes that it is given."""

    error = zlib.error

    def __init__(self) -> None:
        self.size_bytes = 0

    def decompressobj(self, window_bits: int) -> CountedMember:
        return CountedMember(self, window_bits)


class CountedMember:
    def __init__(self, zlib_: CountedInput, window_bits: int) -> None:
        self._zlib = zlib_
        self._stream = zlib.decompressobj(window_bits)

    def decompress(self, data: bytes, bytes_max: int) -> bytes:
        self._zlib.size_bytes += len(data)
        return self._stream.decompress(data, bytes_max)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


@pytest.mark.parametrize("content", [b"", b"a"])
def test_small_members_cost_what_they_are_large(content: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of many members of a gzip file each is given little more than itself, not all that comes behind it."""
    counted = CountedInput()
    monkeypatch.setattr("groupcoord.records.compression.zlib", counted)
    data = member(content) * 9_000

    assert decompress(Compression.GZIP, data, BYTES_MAX) == content * 9_000
    assert counted.size_bytes <= 9_000 * 4_096 < len(data) ** 2 / 500


def test_members_that_give_nothing_are_bounded() -> None:
    """Kafka reads some thousand of them as well, and fails at more."""
    empty, good = member(b""), member(b"good")
    assert decompress(Compression.GZIP, empty * GZIP_EMPTY_MEMBERS_MAX + good, BYTES_MAX) == b"good"
    with pytest.raises(DecompressionError, match="members hold nothing"):
        decompress(Compression.GZIP, empty * (GZIP_EMPTY_MEMBERS_MAX + 1) + good, BYTES_MAX)


@pytest.mark.parametrize("behind", [b"abc", b"garbage that is no member", bytes(100), b"\x1f"])
def test_what_stands_behind_the_last_member_counts_for_nothing(behind: bytes) -> None:
    """As in Java, and so in Kafka."""
    assert decompress(Compression.GZIP, member(b"a") + member(b"b") + behind, BYTES_MAX) == b"ab"


@pytest.mark.parametrize("cut", [1, 8, 9, 15])
def test_a_member_that_ends_early(cut: int) -> None:
    """The error names the member that ends early; empty input is an error, too."""
    good = member(b"good")
    for data in (good[:-cut], good + good[:-cut], b""):
        with pytest.raises(DecompressionError, match="ends early"):
            decompress(Compression.GZIP, data, BYTES_MAX)


@pytest.mark.parametrize("size_bytes", [PART_BYTES_MAX - 1, PART_BYTES_MAX, 3 * PART_BYTES_MAX + 1])
@pytest.mark.parametrize("level", [0, 9])
def test_gzip_comes_in_parts(size_bytes: int, level: int) -> None:
    """However much a member holds, there is little work between two parts, and all of it comes."""
    data = gzip.compress(bytes(size_bytes), level, mtime=0)
    parts = list(decompressed_parts(Compression.GZIP, data, BYTES_MAX))
    assert b"".join(parts) == bytes(size_bytes)
    assert max(map(len, parts)) <= PART_BYTES_MAX
    with pytest.raises(DecompressionError, match="exceed"):
        decompress(Compression.GZIP, data, size_bytes - 1)


def test_each_block_of_snappy_is_a_part() -> None:
    """So that work can pause between them, also where they hold nothing; streams that were put together are one."""
    data = XERIAL + block(b"") * 1_000 + block(b"a") + XERIAL + block(b"b")
    parts = list(decompressed_parts(Compression.SNAPPY, data, BYTES_MAX))
    assert (len(parts), b"".join(parts)) == (1_002, b"ab")


@pytest.mark.parametrize(
    "data",
    [
        XERIAL + struct.pack(">i", -5) + b"abc",
        XERIAL + struct.pack(">i", 2**31 - 1) + b"abc",
        XERIAL + struct.pack(">i", 6) + b"\xff\xff\xff\xff\x0f\x00",
        b"\xff\xff\xff\xff\x07\x00",
    ],
)
def test_sizes_that_snappy_claims(data: bytes) -> None:
    """A claim is held against the bytes that are there, and against the bound, before anything is made room for."""
    with pytest.raises(DecompressionError):
        decompress(Compression.SNAPPY, data, BYTES_MAX)


def stored(data: bytes, *, is_last: bool = True) -> bytes:
    return struct.pack("<I", len(data) << 3 | is_last)[:3] + data


@pytest.mark.parametrize(
    ("codec", "data", "content"),
    [
        (Compression.LZ4, lz4_frame(b"") * 50_000 + lz4_frame(b"a"), b"a"),
        (Compression.LZ4, SKIPPABLE * 50_000 + lz4_frame(b"a"), b"a"),
        (Compression.ZSTD, compress(Compression.ZSTD, b"") * 50_000 + compress(Compression.ZSTD, b"a"), b"a"),
        (Compression.ZSTD, SKIPPABLE * 50_000 + compress(Compression.ZSTD, b"a"), b"a"),
        (Compression.ZSTD, (ZSTD_HEADER + b"\x88" + stored(b"a")) * 20_000, b"a" * 20_000),
        (Compression.ZSTD, ZSTD_HEADER + b"\x88" + stored(b"", is_last=False) * 100_000 + stored(b"a"), b"a"),
    ],
)
def test_frames_that_give_little(codec: Compression, data: bytes, content: bytes) -> None:
    """Empty and skippable frames, windows of 128 MiB, and empty blocks by the thousand, as Kafka reads them, too."""
    assert decompress(codec, data, BYTES_MAX) == content


@pytest.mark.parametrize(
    ("codec", "data"),
    [
        (Compression.LZ4, struct.pack("<II", 0x184D2A50, 2**32 - 1) + b"abc"),
        (Compression.ZSTD, struct.pack("<II", 0x184D2A50, 2**32 - 1) + b"abc"),
        (Compression.ZSTD, ZSTD_HEADER + b"\x90" + stored(b"a")),
        (Compression.ZSTD, b"\x28\xb5\x2f\xfd\xc0\x50" + struct.pack("<Q", 2**40) + stored(b"a")),
        (Compression.ZSTD, ZSTD_HEADER + b"\x88" + (struct.pack("<I", 100_000 << 3 | 2)[:3] + b"a") * 400),
    ],
)
def test_frames_that_claim_much(codec: Compression, data: bytes) -> None:
    """Windows and contents of any size may be claimed in few bytes, and 40 MB be made of 1,600: all that is refused."""
    with pytest.raises(DecompressionError):
        decompress(codec, data, BYTES_MAX)
