"""Batches that take long to look into: others are answered meanwhile. What can't be true is refused at once."""

from __future__ import annotations

import gzip
import itertools
import struct

import pytest

from groupcoord.broker.broker import Broker
from groupcoord.records.compression import Compression
from groupcoord.schema.primitives import write_varint
from tests.broker.data_world import START_MS
from tests.broker.driving import LateJobs, drain
from tests.broker.kafka_bytes import array, blob, correlation_ids, frame, heartbeat, string
from tests.broker.wire_world import WireWorld
from tests.topic_logs.batches import claiming

RECORD = b"\x0c" + bytes(6)
GZIPPED = gzip.compress(RECORD, mtime=0)


HEADERS = bytes(5) + write_varint(1_000) + b"\x00\x01" * 1_000
EMPTY_BLOCK = struct.pack(">i", 1) + b"\x00"
XERIAL = b"\x82SNAPPY\x00\x00\x00\x00\x01\x00\x00\x00\x01"
SNAPPY_RECORD = struct.pack(">i", 9) + b"\x07\x18" + RECORD
GZIP_BATCH = claiming(1, GZIPPED + gzip.compress(b"", mtime=0) * 1_000, attributes=Compression.GZIP)


def always_over(broker: Broker) -> None:
    """End each portion of work as early as possible."""
    broker.now_s = broker.turns.now_s = itertools.count(1e9).__next__


def turns_of_others(world: WireWorld, data: bytes) -> int:
    """Send a request; return the number of turns of others before its response is complete."""
    broker, jobs = world.broker, LateJobs(world.broker)
    always_over(broker)
    busy, other = broker.connect("/127.0.0.1"), broker.connect("/127.0.0.2")
    busy.receive_data(data)
    turns = 0
    while busy.is_waiting or not turns:
        broker.run_turn()
        other.receive_data(heartbeat(turns))
        broker.run_turn()
        turns += bool(correlation_ids(other.take_output()))
        jobs.do_next()
    assert struct.pack(">ih", 0, 0) in drain(busy), "index 0, no error"
    return turns


def make_world() -> WireWorld:
    """Return a broker with the topic ``c``, which is compacted, and ``t``, which is not."""
    world = WireWorld()
    world.clock.advance(START_MS)
    with world.broker.topics.edit() as edit:
        edit.create("c", 1)
        edit.configure("c", {"cleanup.policy": "compact"})
    return world


def produce(topic: str, records: bytes) -> bytes:
    partition = struct.pack(">i", 0) + blob(records)
    return frame(0, 3, 1, string(None) + struct.pack(">hi", 1, 1000) + array([string(topic) + array([partition])]))


@pytest.mark.parametrize(
    ("topic", "records"),
    [
        ("t", claiming(20_000, RECORD * 20_000)),
        ("c", claiming(1, write_varint(len(HEADERS)) + HEADERS)),
        ("c", GZIP_BATCH),
        ("c", claiming(1, XERIAL + EMPTY_BLOCK * 1_000 + SNAPPY_RECORD, attributes=Compression.SNAPPY)),
    ],
    ids=["many records", "many headers", "empty members of gzip", "empty blocks of snappy"],
)
def test_others_are_answered_while_a_batch_is_looked_into(topic: str, records: bytes) -> None:
    """Validating any large batch is a job, and other connections are served during it."""
    assert turns_of_others(make_world(), produce(topic, records)) > 1


def test_others_are_answered_while_a_time_is_looked_for() -> None:
    """A topic that isn't compacted takes a compressed batch without a look; looking for a time comes later."""
    world = make_world()
    assert turns_of_others(world, produce("t", GZIP_BATCH)) == 1
    asked = string("t") + array([struct.pack(">iq", 0, 1)])
    assert turns_of_others(world, frame(2, 1, 1, struct.pack(">i", -1) + array([asked]))) > 1
