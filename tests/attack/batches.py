"""Batches that claim what can't be true, or take long to open; and expressions that take much when they are compiled.

Each kind is sent to a topic that is compacted, which looks into all of it, and to one that isn't, which is then asked
for a record by its time.
"""

from __future__ import annotations

import gzip
import struct
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from groupcoord.records.batches import varint
from groupcoord.records.compression import Compression, compress, lz4_frame
from tests.attack.amplify import PATIENCE_S, exchange
from tests.attack.report import Result
from tests.attack.siege import Siege
from tests.attack.target import Target
from tests.topic_logs.batches import claiming
from tests.wire.kio_client import request_frame

PRODUCE, LIST_OFFSETS, CREATE_TOPICS, HEARTBEAT = 0, 2, 19, 68
COMPACTED, PLAIN = "hostile-compacted", "hostile-plain"
SIZE_BYTES = 1_000_000
TIMES = 3
RECORD = b"\x0c" + bytes(6)
COUNT_MAX = 2**31 - 1
XERIAL = b"\x82SNAPPY\x00\x00\x00\x00\x01\x00\x00\x00\x01"
BOMB_BYTES = 30_000_000
EXPRESSIONS = 1_000


@dataclass(frozen=True)
class Hostile:
    """Requests of one kind.

    Attributes:
        name: what is in them.
        requests: gives them, each without its length.
    """

    name: str
    requests: Callable[[], Iterator[bytes]]


def _filled(piece: bytes) -> bytes:
    return piece * (SIZE_BYTES // len(piece))


def _zeros() -> bytes:
    """Return one record with a value of many zeros."""
    body = bytes(3) + b"\x02k" + varint(BOMB_BYTES) + bytes(BOMB_BYTES + 1)
    return varint(len(body)) + body


def _headers() -> bytes:
    count = SIZE_BYTES // 2
    body = bytes(5) + varint(count) + b"\x00\x01" * count
    return varint(len(body)) + body


def _packed(codec: Compression, *pieces: bytes) -> bytes:
    return claiming(1, b"".join(pieces), attributes=codec)


BATCHES: dict[str, Callable[[], bytes]] = {
    "67 bytes of 2^31-1 records": lambda: claiming(COUNT_MAX, varint(-1) + bytes(5)),
    "67 bytes of 2^31-1 records, compressed": lambda: claiming(
        COUNT_MAX, gzip.compress(varint(-1) + bytes(5)), attributes=Compression.GZIP
    ),
    "records below a size": lambda: claiming(SIZE_BYTES // 7, varint(-1) + bytes(SIZE_BYTES)),
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


def _create() -> bytes:
    common = {"num_partitions": 1, "replication_factor": 1, "assignments": []}
    compaction = [{"name": "cleanup.policy", "value": "compact"}]
    topics = [common | {"name": COMPACTED, "configs": compaction}, common | {"name": PLAIN, "configs": []}]
    return request_frame(CREATE_TOPICS, 5, {"topics": topics, "timeout": 10_000, "validate_only": False})


def _produce(topic: str, records: bytes) -> bytes:
    partitions = [{"index": 0, "records": records}]
    data = [{"name": topic, "partition_data": partitions}]
    return request_frame(PRODUCE, 9, {"transactional_id": None, "acks": 1, "timeout": 10_000, "topic_data": data})


def _look_for_a_time() -> bytes:
    partitions = [{"partition_index": 0, "timestamp": 1}]
    return request_frame(LIST_OFFSETS, 1, {"replica_id": -1, "topics": [{"name": PLAIN, "partitions": partitions}]})


def _requests(make: Callable[[], bytes]) -> Iterator[bytes]:
    yield _create()
    records = make()
    for _ in range(TIMES):
        yield _produce(COMPACTED, records)
        yield _produce(PLAIN, records)
        yield _look_for_a_time()


def _expressions() -> Iterator[bytes]:
    """Yield heartbeats of as many members, each with a large expression of its own."""
    for number in range(EXPRESSIONS):
        yield request_frame(
            HEARTBEAT,
            1,
            {
                "group_id": "hostile-expressions",
                "member_id": f"member-{number}",
                "member_epoch": 0,
                "instance_id": None,
                "rack_id": None,
                "rebalance_timeout": 60_000,
                "subscribed_topic_names": [],
                "subscribed_topic_regex": rf"(\pL|\pN|ä|{number}){{{60 + number % 100}}}",
                "server_assignor": None,
                "topic_partitions": [],
            },
        )


HOSTILE = [
    *[Hostile(name, lambda make=make: _requests(make)) for name, make in BATCHES.items()],  # type: ignore[misc]
    Hostile("expressions that are large when compiled", _expressions),
]


def send_hostile(siege: Siege, case: Hostile, replay: str, patience_s: float = PATIENCE_S) -> Result:
    """Send requests of a kind to a server of its own, one after the other; each must be answered within so long."""

    def attack(target: Target, result: Result) -> None:
        for request in case.requests():
            result.count("requests")
            result.count("bytes asked", len(request))
            answer_bytes, is_whole = exchange(target, request, patience_s)
            result.count("bytes answered", answer_bytes)
            if not is_whole:
                result.fault("the connection was closed" if is_whole is None else "no whole answer")
                return

    return siege.run(Result("batches", case.name, replay), attack)
