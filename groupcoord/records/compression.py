"""Compression codecs of record batches, with bounded decompression.

Kafka's framings: gzip as is; snappy in the blocks of the Java library "xerial" (a raw block is read too, as in Kafka);
lz4 and zstd in their standard frame formats.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterator
from enum import IntEnum
from functools import partial
from struct import Struct

import cramjam

from groupcoord.errors import GroupcoordError

_XERIAL_MAGIC = b"\x82SNAPPY\x00"
_XERIAL_HEADER_BYTES = 16
_XERIAL_VERSIONS = b"\x00\x00\x00\x01\x00\x00\x00\x01"
_SNAPPY_BLOCK_BYTES = 32_768
_GZIP_WINDOW_BITS = 31
_GZIP_MAGIC = b"\x1f\x8b"
_GZIP_INPUT_BYTES_MIN, _GZIP_INPUT_BYTES_MAX = 4_096, 65_536
_FIRST_OUTPUT_BYTES = 65_536

_unpack_int32_from = Struct(">i").unpack_from
_pack_int32 = Struct(">i").pack

_LZ4_MAGIC = b"\x04\x22\x4d\x18"
_LZ4_CONTENT_SIZE = 0x08
_LZ4_DICTIONARY_ID = 0x01
_XXH32_PRIMES = (2_654_435_761, 2_246_822_519, 3_266_489_917, 668_265_263, 374_761_393)
_UINT32 = 0xFFFF_FFFF


PART_BYTES_MAX = 1_048_576
"""Bytes of gzip that are decompressed at a time."""

GZIP_EMPTY_MEMBERS_MAX = 10_000
"""Largest number of empty members of a gzip file. Kafka 4.4 reads 8,000 of them, and fails at 12,000."""


class Compression(IntEnum):
    """Codecs, bits 0 to 2 of a batch's attributes."""

    NONE = 0
    GZIP = 1
    SNAPPY = 2
    LZ4 = 3
    ZSTD = 4


class DecompressionError(GroupcoordError, ValueError):
    """The compressed bytes are malformed, or decompress to more than the limit."""


def decompress(codec: Compression, data: bytes, bytes_max: int) -> bytes:
    """Return the decompressed data, without allocating much more than ``bytes_max`` bytes.

    Raises:
        DecompressionError: the data is malformed, or decompresses to more than ``bytes_max`` bytes.
    """
    return data if codec is Compression.NONE else b"".join(decompressed_parts(codec, data, bytes_max))


def decompressed_parts(codec: Compression, data: bytes, bytes_max: int) -> Iterator[bytes]:
    """Yield the decompressed data of a codec but NONE in parts, so that the caller can do other work between them.

    A part, which may be empty, is at most ``PART_BYTES_MAX`` of gzip or a block of snappy; lz4 and zstd, which are
    fast, yield one part. Raises as :func:`decompress` does.
    """
    return _DECOMPRESSORS[codec](data, bytes_max)


def repair_lz4_header(data: bytes) -> bytes:
    """Return an LZ4 frame with the right checksum in its header; other data unchanged.

    Kafka's writers of message format v0 included the magic number in the checksum (KAFKA-3160).
    """
    if len(data) < 7 or data[:4] != _LZ4_MAGIC:
        return data
    flags = data[4]
    end = 6 + (8 if flags & _LZ4_CONTENT_SIZE else 0) + (4 if flags & _LZ4_DICTIONARY_ID else 0)
    return data[:end] + bytes((xxh32_short(data[4:end]) >> 8 & 0xFF,)) + data[end + 1 :]


def xxh32_short(data: bytes) -> int:
    """Return the xxHash32 (seed 0) of less than 16 bytes."""
    first, second, third, fourth, fifth = _XXH32_PRIMES
    value = fifth + len(data) & _UINT32
    whole = len(data) // 4 * 4
    for start in range(0, whole, 4):
        value = value + int.from_bytes(data[start : start + 4], "little") * third & _UINT32
        value = _rotate(value, 17) * fourth & _UINT32
    for byte in data[whole:]:
        value = value + byte * fifth & _UINT32
        value = _rotate(value, 11) * first & _UINT32
    value = (value ^ value >> 15) * second & _UINT32
    value = (value ^ value >> 13) * third & _UINT32
    return value ^ value >> 16


def _rotate(value: int, count: int) -> int:
    return (value << count | value >> 32 - count) & _UINT32


def _too_large(bytes_max: int) -> DecompressionError:
    return DecompressionError(f"decompressed records exceed {bytes_max} bytes")


def _gunzip(data: bytes, bytes_max: int) -> Iterator[bytes]:
    """Yield the content of the members of a gzip file. As in Java, other bytes after a member are ignored."""
    view = memoryview(data)
    position, left, empty_count = 0, bytes_max, 0
    while not position or data.startswith(_GZIP_MAGIC, position):
        member, input_bytes, is_empty = zlib.decompressobj(_GZIP_WINDOW_BITS), _GZIP_INPUT_BYTES_MIN, True
        while not member.eof:
            # zlib copies the bytes after a member, so slices are small at first.
            piece: bytes | memoryview = member.unconsumed_tail
            if not piece:
                piece = view[position : position + input_bytes]
                position += len(piece)
                input_bytes = min(2 * input_bytes, _GZIP_INPUT_BYTES_MAX)
            try:
                part = member.decompress(piece, min(left + 1, PART_BYTES_MAX))  # a limit of 0 would mean "no limit"
            except zlib.error as error:
                raise DecompressionError(f"gzip: {error}") from None
            if not part and not piece:
                raise DecompressionError("gzip: the data ends early")
            left -= len(part)
            if left < 0:
                raise _too_large(bytes_max)
            is_empty = is_empty and not part
            yield part
        position -= len(member.unused_data)
        empty_count += is_empty
        if empty_count > GZIP_EMPTY_MEMBERS_MAX:
            raise DecompressionError(f"gzip: more than {GZIP_EMPTY_MEMBERS_MAX} members hold nothing")


def _unsnappy(data: bytes, bytes_max: int) -> Iterator[bytes]:
    if not data.startswith(_XERIAL_MAGIC):
        yield _unsnappy_block(data, bytes_max)
        return
    left = bytes_max
    position = 0
    while position < len(data):
        if data.startswith(_XERIAL_MAGIC, position):  # streams may be concatenated
            position += _XERIAL_HEADER_BYTES
            continue
        if position + 4 > len(data):
            raise DecompressionError("snappy: the data ends early")
        (size,) = _unpack_int32_from(data, position)
        position += 4
        if size < 0 or position + size > len(data):
            raise DecompressionError(f"snappy: a block of {size} bytes, {len(data) - position} left")
        part = _unsnappy_block(data[position : position + size], left)
        left -= len(part)
        yield part
        position += size


def _unsnappy_block(block: bytes, bytes_max: int) -> bytes:
    try:
        if cramjam.snappy.decompress_raw_len(block) > bytes_max:
            raise _too_large(bytes_max)
        return bytes(cramjam.snappy.decompress_raw(block))
    except cramjam.DecompressionError as error:
        raise DecompressionError(str(error)) from None


def _decompress_growing(
    decompress_into: Callable[[bytes, bytearray], int], data: bytes, bytes_max: int
) -> Iterator[bytes]:
    capacity = max(_FIRST_OUTPUT_BYTES, 4 * len(data))  # a frame need not state its size
    while True:
        output = bytearray(min(capacity, bytes_max))
        try:
            yield bytes(memoryview(output)[: decompress_into(data, output)])
            return
        except cramjam.DecompressionError as error:
            if "whole buffer" not in str(error):
                raise DecompressionError(str(error)) from None
        if capacity >= bytes_max:
            raise _too_large(bytes_max)
        capacity *= 8


_DECOMPRESSORS: dict[Compression, Callable[[bytes, int], Iterator[bytes]]] = {
    Compression.GZIP: _gunzip,
    Compression.SNAPPY: _unsnappy,
    Compression.LZ4: partial(_decompress_growing, cramjam.lz4.decompress_into),
    Compression.ZSTD: partial(_decompress_growing, cramjam.zstd.decompress_into),
}


# ---------------------------------------------------------------- compressing


def compress(codec: Compression, data: bytes) -> bytes:
    return _COMPRESSORS[codec](data)


def _snappy(data: bytes) -> bytes:
    parts = [_XERIAL_MAGIC, _XERIAL_VERSIONS]
    for start in range(0, len(data), _SNAPPY_BLOCK_BYTES):
        block = bytes(cramjam.snappy.compress_raw(data[start : start + _SNAPPY_BLOCK_BYTES]))
        parts += (_pack_int32(len(block)), block)
    return b"".join(parts)


def lz4_frame(data: bytes) -> bytes:
    """Return an LZ4 frame of independent blocks, the only ones that Kafka reads and writes."""
    frame = cramjam.lz4.Compressor(content_checksum=False, block_linked=False)
    frame.compress(data)
    return bytes(frame.finish())


_COMPRESSORS: dict[Compression, Callable[[bytes], bytes]] = {
    Compression.NONE: bytes,
    Compression.GZIP: partial(zlib.compress, wbits=_GZIP_WINDOW_BITS),
    Compression.SNAPPY: _snappy,
    Compression.LZ4: lz4_frame,
    Compression.ZSTD: lambda data: bytes(cramjam.zstd.compress(data)),
}
