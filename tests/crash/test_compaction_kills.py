"""A server is killed while it compacts a topic: the last acknowledged value of each key is there, each time."""

from __future__ import annotations

import random
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from groupcoord.conformance.client import Client
from groupcoord.conformance.sockets import SocketServer
from groupcoord.records.batches import encode_batch, iter_batches
from tests.processes import ServerProcess, wait_until
from tests.storage.real_broker import ask

TOPIC, KEYS = "compacted", 5
SETTINGS = {"log.cleaner.backoff.ms": 1}
CONFIGS = {"cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0.01", "segment.ms": "1000"}
START_MS = 1_700_000_000_000


def create(client: Client) -> None:
    configs = [{"name": name, "value": value} for name, value in CONFIGS.items()]
    topic = {"name": TOPIC, "num_partitions": 1, "replication_factor": 1, "assignments": [], "configs": configs}
    ask(client, "CreateTopics", 5, {"topics": [topic], "timeout": 10_000, "validate_only": False})


def put(client: Client, number: int) -> None:
    """Write a number under one of the keys; each batch is older than the one before by more than a segment may be."""
    record = (b"k%d" % (number % KEYS), b"%d" % number, START_MS + number * 2_000)
    partition = {"index": 0, "records": {"hex": encode_batch(0, [record], leader_epoch=-1, base_sequence=-1).hex()}}
    topics = [{"name": TOPIC, "partition_data": [partition]}]
    body = {"transactional_id": None, "acks": -1, "timeout": 5_000, "topic_data": topics}
    answer = ask(client, "Produce", 7, body)
    assert "'error_code': 'NONE'" in repr(answer), answer


def read(client: Client) -> list[tuple[bytes, int]]:
    partition: dict[str, Any] = {"partition": 0, "fetch_offset": 0, "partition_max_bytes": 10_000_000}
    partition |= {"log_start_offset": -1, "current_leader_epoch": -1}
    topics = [{"topic": TOPIC, "partitions": [partition]}]
    asked = {"max_wait": 0, "min_bytes": 1, "max_bytes": 10_000_000, "isolation_level": 0, "topics": topics}
    session = {"replica_id": -1, "session_id": 0, "session_epoch": -1, "forgotten_topics_data": []}
    (answer,) = ask(client, "Fetch", 9, {**asked, **session})["responses"][0]["partitions"]
    data = bytes.fromhex((answer["records"] or {"hex": ""})["hex"])
    return [(key or b"", int(value or b"-1")) for batch in iter_batches(data) for _, _, key, value in batch.records()]


@pytest.mark.parametrize("kills", [pytest.param(2, marks=pytest.mark.ci), pytest.param(30, marks=pytest.mark.slow)])
def test_nothing_acknowledged_is_lost(tmp_path: Path, kills: int) -> None:
    """After each kill every key has at least the last value that was acknowledged, and old ones go."""
    chance = random.Random(kills)
    number, folder = 0, tmp_path / f"{TOPIC}-0"
    for _ in range(kills):
        with (
            ServerProcess(tmp_path, settings=SETTINGS) as server,
            closing(Client(SocketServer("127.0.0.1", server.port), "test")) as client,
        ):
            if not number:
                create(client)
            values = dict(read(client)) if number else {}
            assert values == {b"k%d" % (last % KEYS): last for last in range(max(number - KEYS, 0), number)}
            for _ in range(chance.randint(20, 50)):
                put(client, number)
                number += 1
            few = chance.randint(5, 20)
            wait_until(lambda few=few: len(list(folder.glob("*.log"))) <= few, 60, "compaction")
