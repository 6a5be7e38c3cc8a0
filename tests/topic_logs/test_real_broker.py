"""A real Kafka broker and ``groupcoord serve`` take turns on one directory: each serves what the other has written.

Needs Java and the jars of Kafka 4.4, as ``tests/storage/test_real_broker.py`` does.
"""

from __future__ import annotations

import itertools
import shutil
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import pytest

from groupcoord.conformance.client import Client
from groupcoord.conformance.sockets import SocketServer
from tests.ports import free_port
from tests.processes import ServerProcess
from tests.storage.real_broker import START_S, ask, connected, format_directory, java, needs_kafka, started

TOPIC, PARTITION_COUNT, LOG_PARTITIONS = "orders", 2, 3
SETTINGS = "log.segment.bytes=1048576\ntransaction.state.log.replication.factor=1\ntransaction.state.log.min.isr=1\n"

pytestmark = [pytest.mark.slow, *needs_kafka]


def write(port: int, name: str) -> None:
    """Produce plain records, compressed ones of a producer that counts, and transactions of which one is aborted."""
    kafka = pytest.importorskip("confluent_kafka")
    settings = {"bootstrap.servers": f"127.0.0.1:{port}", "linger.ms": 1}

    def produce(producer: Any, what: str, count: int, size: int) -> None:
        for number in range(count):
            value = f"{name} {what} {number} ".encode() + b"x" * size
            producer.produce(TOPIC, value, key=f"{number % 9}", partition=number % PARTITION_COUNT)
            if number % 10 == 9:
                producer.flush()
        assert not producer.flush(30)

    produce(kafka.Producer(settings), "plain", 100, 30_000)
    produce(kafka.Producer({**settings, "enable.idempotence": True, "compression.type": "gzip"}), "gzip", 300, 200)
    producer = kafka.Producer({**settings, "transactional.id": f"{name}-producer"})
    producer.init_transactions(30)
    for is_committed in (True, False, True):
        producer.begin_transaction()
        produce(producer, "committed" if is_committed else "aborted", 20, 500)
        producer.commit_transaction(30) if is_committed else producer.abort_transaction(30)


def answers(client: Client) -> dict[str, Any]:
    """Return a server's responses about the topic, read from many offsets."""
    found: dict[str, Any] = {}
    for index in range(PARTITION_COUNT):
        (low, _), (high, _), (stable, _) = (list_offset(client, index, *asked) for asked in ((-2, 0), (-1, 0), (-1, 1)))
        found[f"offsets {index}"] = low, high, stable
        for offset, is_committed in itertools.product(range(low, high, max((high - low) // 25, 1)), (0, 1)):
            found[f"fetch {index} {offset} {is_committed}"] = fetch(client, index, offset, is_committed)
        largest = list_offset(client, index, -3, 0)
        found[f"largest {index}"] = largest
        for time_ms in range(largest[1] - 3_000, largest[1], 100):
            found[f"time {index} {time_ms}"] = list_offset(client, index, time_ms, 0)
    topics = [{"name": TOPIC, "partition_indexes": list(range(PARTITION_COUNT))}]
    (described,) = ask(client, "DescribeProducers", 0, {"topics": topics})["topics"]
    for partition in described["partitions"]:
        producers = partition.pop("active_producers")
        found[f"producers {partition['partition_index']}"] = sorted(producers, key=repr), partition
    return found


def list_offset(client: Client, index: int, timestamp: int, isolation_level: int) -> tuple[int, int]:
    partition = {"partition_index": index, "current_leader_epoch": -1, "timestamp": timestamp}
    body = {
        "replica_id": -1,
        "isolation_level": isolation_level,
        "topics": [{"name": TOPIC, "partitions": [partition]}],
    }
    deadline_s = time.monotonic() + START_S
    while True:
        (answer,) = ask(client, "ListOffsets", 7, body)["topics"][0]["partitions"]
        if answer["error_code"] != "NOT_LEADER_OR_FOLLOWER" or time.monotonic() > deadline_s:
            break  # a broker that has just started says so until it has read its metadata
        time.sleep(0.2)
    assert answer["error_code"] == "NONE", answer
    return answer["offset"], answer["timestamp"]


def fetch(client: Client, index: int, offset: int, isolation_level: int) -> Any:
    partition = {
        "partition": index,
        "fetch_offset": offset,
        "partition_max_bytes": 100_000,
        "log_start_offset": -1,
        "current_leader_epoch": -1,
    }
    body = {
        "max_wait": 0,
        "min_bytes": 1,
        "max_bytes": 1_048_576,
        "isolation_level": isolation_level,
        "topics": [{"partitions": [partition], "topic": TOPIC}],
        "replica_id": -1,
        "session_id": 0,
        "session_epoch": -1,
        "forgotten_topics_data": [],
    }
    (answer,) = ask(client, "Fetch", 9, body)["responses"][0]["partitions"]
    assert answer["error_code"] == "NONE", answer
    return answer


def begin(client: Client, port: int) -> None:
    """Create the topic on a broker, and write to it."""
    topic = {"name": TOPIC, "num_partitions": PARTITION_COUNT, "replication_factor": 1, "assignments": []}
    ask(client, "CreateTopics", 7, {"topics": [{**topic, "configs": []}], "timeout": 10_000, "validate_only": False})
    write(port, "broker")


@contextmanager
def broker(properties: Path, port: int, log: Path, *, is_killed: bool) -> Iterator[Client]:
    process = started(java("kafka.Kafka", str(properties)), log)
    try:
        with closing(connected(process, port, log)) as client:
            yield client
    finally:
        process.kill() if is_killed else process.terminate()
        process.wait(60)


@contextmanager
def serving(directory: Path, *, is_killed: bool, **more: Any) -> Iterator[tuple[int, Client]]:
    settings = {"offsets.topic.num.partitions": LOG_PARTITIONS, "log.segment.bytes": 1_048_576, **more}
    with ServerProcess(directory, settings=settings) as server:
        with closing(Client(SocketServer("127.0.0.1", server.port), "test")) as client:
            yield server.port, client
        if not is_killed:
            server.stop()


@pytest.mark.parametrize("is_killed", [False, True])
def test_a_broker_and_a_server_in_turn(tmp_path: Path, is_killed: bool) -> None:
    """Stopped or killed, each leaves what the other serves as its own: records, offsets, times, transactions."""
    directory, properties, log = tmp_path / "kafka", tmp_path / "server.properties", tmp_path / "broker.log"
    port = free_port()
    format_directory(directory, properties, port, LOG_PARTITIONS, SETTINGS)
    with broker(properties, port, log, is_killed=is_killed) as client:
        begin(client, port)
        theirs = answers(client)

    with serving(directory, is_killed=is_killed) as (port_of_server, client):
        assert answers(client) == theirs
        write(port_of_server, "server")
        ours = answers(client)
    copy = tmp_path / "copy"
    shutil.copytree(directory, copy)
    with serving(copy, is_killed=True) as (_, client):
        assert answers(client) == ours

    with broker(properties, port, log, is_killed=False) as client:
        again = answers(client)
        assert again == ours
    assert "ERROR" not in log.read_text()


def test_a_broker_serves_what_was_compacted(tmp_path: Path) -> None:
    """A log with gaps, emptied batches and markers of nothing is a broker's own, too."""
    directory, properties, log = tmp_path / "kafka", tmp_path / "server.properties", tmp_path / "broker.log"
    port = free_port()
    format_directory(directory, properties, port, LOG_PARTITIONS, SETTINGS)
    with broker(properties, port, log, is_killed=False) as client:
        begin(client, port)
    cleaning = {"log.cleanup.policy": "compact", "log.cleaner.min.cleanable.ratio": 0.01, "log.cleaner.backoff.ms": 10}
    with serving(directory, is_killed=True, **cleaning) as (port_of_server, client):
        write(port_of_server, "server")
        deadline_s = time.monotonic() + START_S
        while len((directory / "cleaner-offset-checkpoint").read_text().split()) < 2 + 3 * PARTITION_COUNT:
            assert time.monotonic() < deadline_s
            time.sleep(0.1)
        time.sleep(1)
        ours = answers(client)
    with broker(properties, port, log, is_killed=False) as client:
        theirs = answers(client)
    assert theirs.keys() == ours.keys()
    for asked, answer in theirs.items():
        if asked.startswith("fetch"):  # a broker stops at the end of a segment
            found, expected = ours[asked]["records"]["hex"], answer["records"]["hex"]
            assert found.startswith(expected) or expected.startswith(found)
            assert min(len(found), len(expected)) > 0 or not expected
        elif answer != (-1, -1):  # it looks at one batch only for the largest time, be it an emptied one
            assert answer == ours[asked], asked
    assert "ERROR" not in log.read_text()
