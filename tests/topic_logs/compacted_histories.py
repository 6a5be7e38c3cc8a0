"""Random histories of a compacted topic, and what a real broker's log cleaner made of them: files before and after.

KAFKA_LIBS=FOLDER_OF_THE_JARS python -m tests.topic_logs.compacted_histories --seeds 1-3 [--keep FILE]
"""

from __future__ import annotations

import argparse
import base64
import json
import lzma
import random
import re
import shutil
import tempfile
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any, NamedTuple

from groupcoord.conformance.client import Client
from groupcoord.records.batches import Batch, delete_horizon_ms, iter_batches, raw_records
from groupcoord.records.compression import Compression
from groupcoord.storage.files import read_offset_checkpoint
from groupcoord.testing.logs import encode_any_batch
from tests.ports import free_port
from tests.storage.real_broker import START_S, ask, connected, format_directory, java, started

TOPIC = "written"
SEGMENT_MS = 10_000
DELETE_RETENTION_MS = 1
CONFIGS = {
    "cleanup.policy": "compact",
    "min.cleanable.dirty.ratio": "1",
    "segment.ms": str(SEGMENT_MS),
    "delete.retention.ms": str(DELETE_RETENTION_MS),
}
BROKER = """transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
log.cleaner.backoff.ms=50
"""
PHASES, STEPS = 3, 60
ERROR_CODE = re.compile(r"error_code': '(\w+)'")
Files = dict[str, bytes]


class Phase(NamedTuple):
    """A pass of the broker's cleaner.

    Attributes:
        first_dirty: how far the log was compacted before.
        now_ms: a time at which it was done.
        before: segments and indexes of aborted transactions, by name.
        after: the same when it was done.
    """

    first_dirty: int
    now_ms: int
    before: Files
    after: Files


class _Producer(NamedTuple):
    transactional_id: str | None
    producer_id: int
    epoch: int


class Story:
    """Clients with random writes to one partition of a broker."""

    def __init__(self, client: Client, seed: int, topic: str) -> None:
        self._client = client
        self._random = random.Random(seed)
        self._topic = topic
        self._sequences: dict[int, int] = {}
        self._open: set[str] = set()
        self._time_ms = int(time.time() * 1_000) + 1_800_000  # no marker is as young
        names = [None, None, "a", "b", "c"]
        self._producers = [self._init(name) for name in names]

    def _init(self, name: str | None) -> _Producer:
        own = None if name is None else f"{self._topic}-{name}"
        body = {"transactional_id": own, "transaction_timeout": 60_000}
        while True:
            if own is not None:  # which makes the topic of transactions
                ask(self._client, "FindCoordinator", 1, {"key": own, "key_type": 1})
            answer = ask(self._client, "InitProducerId", 1, body)
            if answer["error_code"] == "NONE":
                self._sequences[answer["producer_id"]] = 0
                return _Producer(own, answer["producer_id"], answer["producer_epoch"])
            time.sleep(0.1)

    def step(self) -> None:
        """Write a batch, or end a transaction."""
        chance = self._random
        self._time_ms += chance.randint(0, 4_000)
        number = chance.randrange(len(self._producers) + 3)
        producer = self._producers[number] if number < len(self._producers) else _Producer(None, -1, -1)
        name = producer.transactional_id
        if name in self._open and chance.random() < 0.4:
            self._end(producer)
            return
        if name is not None and name not in self._open:
            self._open.add(name)
            topics = [{"name": self._topic, "partitions": [0]}]
            ids = {"transactional_id": name, "producer_id": producer.producer_id, "producer_epoch": producer.epoch}
            body = {f"v3_and_below_{field}": value for field, value in {**ids, "topics": topics}.items()}
            self._repeat("AddPartitionsToTxn", 1, body)
        self._produce(producer)

    def end_transactions(self) -> None:
        for producer in self._producers:
            if producer.transactional_id in self._open:
                self._end(producer)

    def _end(self, producer: _Producer) -> None:
        assert producer.transactional_id is not None
        self._open.discard(producer.transactional_id)
        body = {"producer_id": producer.producer_id, "producer_epoch": producer.epoch}
        ids = {"transactional_id": producer.transactional_id, **body}
        self._repeat("EndTxn", 1, {**ids, "committed": self._random.random() < 0.6})

    def _repeat(self, api: str, version: int, body: dict[str, Any]) -> None:
        while "CONCURRENT_TRANSACTIONS" in repr(answer := ask(self._client, api, version, body)):
            time.sleep(0.01)
        assert set(ERROR_CODE.findall(repr(answer))) == {"NONE"}, answer

    def _produce(self, producer: _Producer) -> None:
        chance = self._random
        count = chance.choice([1, 1, 2, 3, 10])
        records = []
        for number in range(count):
            value = None if chance.random() < 0.25 else chance.randbytes(8).hex().encode()
            key = b"k%d" % chance.randrange(8)
            records.append((number, self._time_ms + chance.randrange(100), key, value))
        sequence = self._sequences.get(producer.producer_id, -1)
        if producer.producer_id >= 0:
            self._sequences[producer.producer_id] += count
        data = encode_any_batch(
            records,
            base_offset=0,
            last_offset=count - 1,
            codec=chance.choice([*Compression, Compression.NONE, Compression.NONE]),
            leader_epoch=-1,
            producer_id=producer.producer_id,
            producer_epoch=producer.epoch,
            base_sequence=sequence,
            is_transactional=producer.transactional_id is not None,
            headers=chance.choice([(), (), ((b"h", b"1"), (b"n", None))]),
        )
        partition = {"index": 0, "records": {"hex": data.hex()}}
        topics = [{"name": self._topic, "partition_data": [partition]}]
        body = {"transactional_id": producer.transactional_id, "acks": -1, "timeout": 5_000, "topic_data": topics}
        answer = ask(self._client, "Produce", 7, body)
        assert set(ERROR_CODE.findall(repr(answer))) == {"NONE"}, answer


def alter(client: Client, topic: str, ratio: str) -> None:
    """Start or stop the cleaner."""
    config = {"name": "min.cleanable.dirty.ratio", "config_operation": 0, "value": ratio}
    resource = {"resource_type": 2, "resource_name": topic, "configs": [config]}
    answer = ask(client, "IncrementalAlterConfigs", 1, {"resources": [resource], "validate_only": False})
    assert set(ERROR_CODE.findall(repr(answer))) == {"NONE"}, answer


def files_of(folder: Path) -> Files:
    """Return the segments of a log and their indexes of aborted transactions."""
    return {path.name: path.read_bytes() for path in sorted(folder.iterdir()) if path.suffix in (".log", ".txnindex")}


def play(client: Client, directory: Path, seed: int) -> Iterator[Phase]:
    """Write a random history to a broker, which compacts it several times meanwhile."""
    topic = f"{TOPIC}-{seed}"
    configs = [{"name": name, "value": value} for name, value in CONFIGS.items()]
    made = {"name": topic, "num_partitions": 1, "replication_factor": 1, "assignments": [], "configs": configs}
    ask(client, "CreateTopics", 5, {"topics": [made], "timeout": 10_000, "validate_only": False})
    story = Story(client, seed, topic)
    for _ in range(PHASES):
        for number in range(STEPS):
            if number == STEPS - 10:
                story.end_transactions()  # one that stays open for long would leave nothing to compact
            story.step()
        time.sleep(0.5)
        before, first_dirty = files_of(directory / f"{topic}-0"), cleaned_to(directory, topic)
        alter(client, topic, "0")
        deadline_s = time.monotonic() + START_S
        while cleaned_to(directory, topic) == first_dirty:
            assert time.monotonic() < deadline_s, (directory, topic, first_dirty)
            time.sleep(0.1)
        alter(client, topic, "1")
        time.sleep(1)
        yield Phase(first_dirty, int(time.time() * 1_000), before, files_of(directory / f"{topic}-0"))


def cleaned_to(directory: Path, topic: str) -> int:
    """Return how far the broker has compacted a topic."""
    return read_offset_checkpoint(directory / "cleaner-offset-checkpoint").get((topic, 0), 0)


def content(files: Files) -> dict[str, list[Any]]:
    """Return what is to be compared of a log: all but when the cleaner ran, and how well it compresses."""
    found: dict[str, list[Any]] = {}
    for name, data in files.items():
        is_log = name.endswith(".log")
        entries = [data[at : at + 34] for at in range(0, len(data), 34)]
        batches = [described(batch) for batch in iter_batches(data)] if is_log else entries
        if batches or is_log:
            found[name] = batches
    return found


def described(batch: Batch) -> tuple[Any, ...]:
    """Return the fields of a batch."""
    base_ms = batch.base_timestamp_ms if batch.record_count and delete_horizon_ms(batch) is None else None
    offsets = batch.base_offset, batch.last_offset_delta, batch.leader_epoch, batch.attributes
    producer = batch.producer_id, batch.producer_epoch, batch.base_sequence
    records = [
        record._replace(timestamp_delta_ms=batch.base_timestamp_ms + record.timestamp_delta_ms)
        for record in raw_records(batch, batch.payload(1_000_000))
    ]
    return offsets, producer, base_ms, batch.max_timestamp_ms, records


def save(path: Path, histories: list[list[Phase]]) -> None:
    """Keep what the broker did."""
    text = json.dumps(histories, default=lambda data: base64.b64encode(data).decode())
    path.write_bytes(lzma.compress(text.encode(), preset=9))


def load(path: Path) -> list[list[Phase]]:
    """Return what :func:`save` has kept."""

    def files(encoded: dict[str, str]) -> Files:
        return {name: base64.b64decode(data) for name, data in encoded.items()}

    histories = json.loads(lzma.decompress(path.read_bytes()))
    return [
        [Phase(first, now_ms, files(before), files(after)) for first, now_ms, before, after in phases]
        for phases in histories
    ]


def main() -> None:
    """Play histories."""
    from tests.topic_logs.test_compaction_beside_kafka import differences

    parser = argparse.ArgumentParser()
    parser.add_argument("--seeds", default="1-3")
    parser.add_argument("--keep", type=Path)
    arguments = parser.parse_args()
    first, last = map(int, arguments.seeds.split("-"))
    work = Path(tempfile.mkdtemp())
    directory, log, port = work / "kafka", work / "broker.log", free_port()
    format_directory(directory, work / "server.properties", port, 1, BROKER)
    process = started(java("kafka.Kafka", str(work / "server.properties")), log)
    histories = []
    try:
        with closing(connected(process, port, log)) as client:
            for seed in range(first, last + 1):
                histories.append(list(play(client, directory, seed)))
                for number, phase in enumerate(histories[-1]):
                    sizes = [sum(map(len, files.values())) for files in (phase.before, phase.after)]
                    found = differences(phase, work / f"{seed}-{number}")
                    print(f"seed {seed} pass {number}: {sizes[0]} to {sizes[1]} bytes, {len(found)} differences")
                    for line in found[:6]:
                        print("   ", line)
    finally:
        process.kill()
        process.wait()
        shutil.rmtree(work)
    if arguments.keep:
        save(arguments.keep, histories)


if __name__ == "__main__":
    main()
