"""Damaged logs: every byte of every format may be wrong, and hostile bytes cost no more than time in proportion."""

from __future__ import annotations

import random
import zlib
from collections.abc import Callable
from contextlib import suppress
from struct import pack

import pytest
from crc32c import crc32c

from groupcoord.records.batches import BATCH_HEADER_BYTES, InvalidBatchError, encode_batch, iter_batches
from groupcoord.records.compression import Compression
from groupcoord.records.salvage import DIRECT_BYTES_MAX, Damage, RangeChecksums, SoundBatch, find_batch, salvage_batches
from groupcoord.testing.logs import encode_any_batch, encode_messages
from tests.tables import as_one_test

RECORDS = [(3, 1_000, b"\x00\x01key", b"a value" * 4), (4, 1_001, b"\x00\x02group", None), (6, 1_002, None, b"")]
FORMATS = [(2, codec) for codec in Compression] + [
    (magic, codec) for magic in (0, 1) for codec in Compression if codec is not Compression.ZSTD
]


class Log:
    """A log in memory that counts what is read of it."""

    def __init__(self, data: bytes) -> None:
        self.data = data
        self.read_bytes = 0

    def read_at(self, position: int, size: int) -> bytes:
        part = self.data[position : position + size]
        self.read_bytes += len(part)
        return part

    def salvage(self, chunk_bytes: int = 4_194_304) -> list[SoundBatch | Damage]:
        return list(salvage_batches(self.read_at, len(self.data), chunk_bytes=chunk_bytes))


def encoded(magic: int, codec: Compression, first_offset: int) -> bytes:
    records = [(first_offset + offset, time, key, value) for offset, time, key, value in RECORDS]
    if magic < 2:
        return encode_messages(magic, records, codec=codec)
    return encode_any_batch(records, base_offset=first_offset, last_offset=first_offset + 9, codec=codec)


def check_flips(magic: int, codec: Compression, masks: Callable[[int], list[int]]) -> None:
    parts = [encoded(magic, codec, first_offset) for first_offset in (0, 10, 20)]
    whole = b"".join(parts)
    intact = {batch.position: list(batch.records()) for batch in iter_batches(whole)}
    start, end = len(parts[0]), len(parts[0]) + len(parts[1])
    for position in range(start, end):
        for mask in masks(position):
            changed = bytearray(whole)
            changed[position] ^= mask
            data = bytes(changed)
            with suppress(InvalidBatchError):
                for batch in iter_batches(data):
                    list(batch.records())
            found = Log(data).salvage()
            sound = {one.batch.position: one for one in found if isinstance(one, SoundBatch)}
            for one in sound.values():
                one.batch.check_crc()
                content = data[one.batch.position : one.batch.position + one.batch.size_bytes]
                crc = crc32c(content[21:]) if content[16] == 2 else zlib.crc32(content[16:])
                assert one.batch.crc == crc
            sizes = [one.batch.size_bytes if isinstance(one, SoundBatch) else one.size_bytes for one in found]
            assert sum(sizes) == len(data)
            for place, records in intact.items():
                if place < start or place >= end:
                    assert sound[place].records == records
            # Only the first 16 bytes of a header are not covered: offset, length, leader epoch.
            touched = max(place for place in intact if place <= position)
            if position - touched >= (16 if magic < 2 else 17):
                assert touched not in sound


@as_one_test
@pytest.mark.parametrize(("magic", "codec"), FORMATS)
def test_a_flipped_byte_of_any_format(magic: int, codec: Compression) -> None:
    """Each byte of a batch in turn: the batches around it are read, its own only if its CRC doesn't cover it."""
    check_flips(magic, codec, lambda position: [1 << position % 8])


@pytest.mark.slow
@pytest.mark.parametrize(("magic", "codec"), FORMATS)
def test_every_change_of_every_byte_of_any_format(magic: int, codec: Compression) -> None:
    """The same for all 255 changes of each byte."""
    check_flips(magic, codec, lambda position: list(range(1, 256)))


# ---------------------------------------------------------------- hostile bytes


def nested_headers(size: int) -> bytes:
    """Headers back to back, each claiming that its batch reaches to the end."""
    parts = []
    for position in range(0, size - BATCH_HEADER_BYTES, BATCH_HEADER_BYTES):
        covered = pack(">hiqqqhii", 0, 0, 0, 0, -1, -1, -1, 1)
        parts.append(pack(">qiibI", position, size - position - 12, 0, 2, 7) + covered)
    return b"".join(parts).ljust(size, b"\xff")


def nested_messages(size: int) -> bytes:
    """The same in format v1: keys that reach to the end, and there a value that is null."""
    parts = []
    for position in range(0, size - 34, 34):
        parts.append(pack(">qiIbbqi", position, size - position - 12, 7, 1, 0, 0, size - position - 34))
        parts.append(bytes(4))
    return b"".join(parts)[: size - 4].ljust(size, b"\xff")


def headers_between_batches(size: int) -> bytes:
    parts: list[bytes] = []
    position = 0
    while position < size - 200:
        sound = encode_batch(position, [(b"k", b"v", 1)])
        covered = pack(">hiqqqhii", 0, 0, 0, 0, -1, -1, -1, 1)
        fake = pack(">qiibI", 0, size - position - len(sound) - 12, 0, 2, 7) + covered
        parts += (sound, fake)
        position += len(sound) + len(fake)
    return b"".join(parts).ljust(size, b"\xff")


def nested_sound_batches(size: int) -> bytes:
    """Batches with right CRCs around impossible records, each inside the one before."""
    data = b""
    while len(data) < size:
        covered = pack(">hiqqqhii", 0, 0, 0, 0, -1, -1, -1, 1) + b"\xff" + data
        data = pack(">qiibI", 0, len(covered) + 9, 0, 2, crc32c(covered)) + covered
    return b"\xff" + data


@pytest.mark.parametrize(
    "make",
    [nested_headers, nested_messages, headers_between_batches, nested_sound_batches],
    ids=lambda make: make.__name__,
)
def test_hostile_bytes_take_time_in_proportion(make: Callable[[int], bytes]) -> None:
    """The bytes read are bounded by a multiple of the input's size, and all bytes are accounted for."""
    log = Log(make(400_000))
    found = log.salvage()
    sizes = [one.batch.size_bytes if isinstance(one, SoundBatch) else one.size_bytes for one in found]
    assert sum(sizes) == len(log.data)
    assert log.read_bytes <= 1_000 * len(log.data)


def test_a_batch_inside_a_sound_one_is_none() -> None:
    """Where the CRC is valid but the records don't match, all is skipped: a batch inside is content."""
    inner, following = encode_batch(5, [(b"k", b"v", 1)]), encode_batch(9, [(b"k", b"v", 1)])
    covered = pack(">hiqqqhii", 0, 0, 0, 0, -1, -1, -1, 1) + b"\xff" + inner
    outer = pack(">qiibI", 4, len(covered) + 9, 0, 2, crc32c(covered)) + covered
    damage, sound = Log(outer + following).salvage()

    assert isinstance(damage, Damage)
    assert (damage.position, damage.size_bytes, damage.end_offset) == (0, len(outer), 9)
    assert isinstance(sound, SoundBatch)
    assert sound.batch.base_offset == 9


def test_damage_that_touches_is_one() -> None:
    """Garbage, and a batch that can't be read right behind it, are skipped together."""
    covered = pack(">hiqqqhii", 0, 0, 0, 0, -1, -1, -1, 1) + b"\xff"
    unreadable = pack(">qiibI", 4, len(covered) + 9, 0, 2, crc32c(covered)) + covered
    data = b"\xff" * 40 + unreadable + b"\xfe" * 20
    assert [(one.position, one.size_bytes) for one in Log(data).salvage() if isinstance(one, Damage)] == [
        (0, len(data))
    ]


@pytest.mark.parametrize("size", [1_000, 100_000, 3_000_000])
def test_a_large_batch_behind_damage_is_found(size: int) -> None:
    """Damage before a batch does not hide it, for any size of batch and chunks."""
    value = random.Random(size).randbytes(size)
    batch = encode_batch(7, [(b"k", value, 1)])
    data = b"\x00\x01" * 5_000 + batch + encode_batch(8, [(b"k", b"v", 1)])
    for chunk_bytes in (100, 70_000, 4_194_304):
        found = Log(data).salvage(chunk_bytes)
        assert [one.batch.base_offset for one in found if isinstance(one, SoundBatch)] == [7, 8]
    assert find_batch(Log(data).read_at, 0, len(data)) == 10_000
    assert find_batch(Log(data).read_at, 10_001, len(data)) == 10_000 + len(batch)
    cut = 10_000 + len(batch) - 1
    assert find_batch(Log(data).read_at, 0, cut) == cut


@pytest.mark.parametrize("is_legacy", [False, True])
def test_checksums_of_ranges(is_legacy: bool) -> None:
    source = random.Random(3)
    data = source.randbytes(400_000)
    checksums = RangeChecksums(Log(data).read_at, 1_000, is_legacy=is_legacy)
    checksum = zlib.crc32 if is_legacy else crc32c
    ranges = [(1_000, 1_000), (1_000, 400_000), (1_000 + DIRECT_BYTES_MAX, 1_000 + 3 * DIRECT_BYTES_MAX)]
    starts = [source.randint(1_000, 400_000) for _ in range(100)]
    ranges += [(start, source.randint(start, 400_000)) for start in starts]
    for start, end in ranges:
        assert checksums.of(start, end) == checksum(data[start:end])
