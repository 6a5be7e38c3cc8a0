"""Record batches that claim more than they hold, or cost much to decompress."""

from __future__ import annotations

import gzip
import struct
from collections.abc import Callable

from groupcoord.records.compression import Compression, compress, lz4_frame
from groupcoord.schema.primitives import write_varint
from tests.topic_logs.batches import claiming

SIZE_BYTES = 1_000_000
RECORD = b"\x0c" + bytes(6)
COUNT_MAX = 2**31 - 1
XERIAL = b"\x82SNAPPY\x00\x00\x00\x00\x01\x00\x00\x00\x01"
BOMB_BYTES = 30_000_000


def _filled(piece: bytes) -> bytes:
    return piece * (SIZE_BYTES // len(piece))


def _zeros() -> bytes:
    body = bytes(3) + b"\x02k" + write_varint(BOMB_BYTES) + bytes(BOMB_BYTES + 1)
    return write_varint(len(body)) + body


def _headers() -> bytes:
    count = SIZE_BYTES // 2
    body = bytes(5) + write_varint(count) + b"\x00\x01" * count
    return write_varint(len(body)) + body


def _packed(codec: Compression, *pieces: bytes) -> bytes:
    return claiming(1, b"".join(pieces), attributes=codec)


BATCHES: dict[str, Callable[[], bytes]] = {
    "67 bytes of 2^31-1 records": lambda: claiming(COUNT_MAX, write_varint(-1) + bytes(5)),
    "67 bytes of 2^31-1 records, compressed": lambda: claiming(
        COUNT_MAX, gzip.compress(write_varint(-1) + bytes(5)), attributes=Compression.GZIP
    ),
    "records below a size": lambda: claiming(SIZE_BYTES // 7, write_varint(-1) + bytes(SIZE_BYTES)),
    "as many records as there may be": lambda: claiming(SIZE_BYTES // 7, _filled(RECORD)),
    "as many headers as there may be": lambda: claiming(1, _headers()),
    "gzip, empty members": lambda: _packed(Compression.GZIP, _filled(gzip.compress(b"")), gzip.compress(RECORD)),
    "gzip, members of a byte": lambda: _packed(Compression.GZIP, _filled(gzip.compress(b"\x00"))),
    "gzip, zeros": lambda: _packed(Compression.GZIP, compress(Compression.GZIP, _zeros())),
    "snappy, empty blocks": lambda: _packed(Compression.SNAPPY, XERIAL, _filled(struct.pack(">i", 1) + b"\x00")),
    "snappy, claims": lambda: _packed(Compression.SNAPPY, XERIAL, struct.pack(">i", 6), b"\xff\xff\xff\xff\x07\x00"),
    "lz4, empty frames": lambda: _packed(Compression.LZ4, _filled(lz4_frame(b"")), lz4_frame(RECORD)),
    "zstd, empty frames": lambda: _packed(Compression.ZSTD, _filled(compress(Compression.ZSTD, b""))),
    "zstd, windows": lambda: _packed(Compression.ZSTD, _filled(b"\x28\xb5\x2f\xfd\x00\x88\x09\x00\x00a")),
    "zstd, zeros": lambda: _packed(Compression.ZSTD, compress(Compression.ZSTD, _zeros())),
}
