"""A directory that a real broker wrote while it led under several epochs, and what it said of these.

``python -m tests.topic_logs.led_in_turn`` records both anew, with Java and the jars of Kafka 4.4 as
``tests/storage/test_real_broker.py`` wants them: a broker on its own begins a new epoch whenever it starts.
"""

from __future__ import annotations

import base64
import json
import lzma
import tempfile
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

from groupcoord.conformance.client import Client
from tests.ports import free_port
from tests.storage.real_broker import START_S, ask, connected, format_directory, java, started

TOPIC, PARTITION_COUNT, GROUP, COMMITTED = "orders", 3, "readers", 9
RECORDED = Path(__file__).parent / "led_in_turn.json.xz"
WRITTEN: tuple[dict[int, int], ...] = ({0: 5, 1: 5}, {0: 5, 1: 5}, {}, {0: 3, 1: 3})
"""How many records each partition got in each of the broker's lives; the last partition never got one."""

KEPT = ("*-*/*.log", "*-*/leader-epoch-checkpoint", "*-*/partition.metadata", "*checkpoint", "meta.properties")


def value(life: int, number: int) -> bytes:
    return f"life {life} record {number}".encode()


def read_recorded() -> tuple[dict[str, bytes], dict[str, Any]]:
    """Return the files by their paths, and the broker's answers."""
    recorded = json.loads(lzma.decompress(RECORDED.read_bytes()))
    return {path: base64.b64decode(text) for path, text in recorded["files"].items()}, recorded["answers"]


def write_directory(directory: Path) -> dict[str, Any]:
    """Write the recorded files, and return the broker's recorded responses."""
    files, answers = read_recorded()
    for name, data in files.items():
        path = directory / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
    return answers


# ---------------------------------------------------------------- what a server says of epochs


def epoch_answers(client: Client) -> dict[str, Any]:
    (topic,) = metadata(client)["topics"]
    current = {partition["partition_index"]: partition["leader_epoch"] for partition in topic["partitions"]}
    found: dict[str, Any] = {f"leader epoch {index}": epoch for index, epoch in current.items()}
    for index, now in current.items():
        for epoch in range(-1, now + 2):
            for told in (-1, now - 1, now, now + 1):
                found[f"end {index} {epoch} {told}"] = end_of_epoch(client, index, epoch, told)
        for timestamp in (-1, -2, -3, -4, 1):
            for told in (-1, now - 1, now, now + 1):
                found[f"offset {index} {timestamp} {told}"] = list_offset(client, index, timestamp, told)
        for offset in range(-1, 15):
            for last in range(-1, now + 2):
                found[f"fetch {index} {offset} {last}"] = fetch(client, index, offset, now, last)
        for told in (now - 1, now + 1):
            found[f"fetch by {index} {told}"] = fetch(client, index, 8, told, -1)
    return found


def metadata(client: Client) -> Any:
    """Return a server's Metadata of the topic."""
    topics = [{"topic_id": None, "name": TOPIC}]
    flags = {"include_topic_authorized_operations": False, "allow_auto_topic_creation": False}
    return ask(client, "Metadata", 12, {"topics": topics, **flags})


def end_of_epoch(client: Client, index: int, epoch: int, told: int) -> Any:
    partition = {"partition": index, "current_leader_epoch": told, "leader_epoch": epoch}
    body = {"replica_id": -1, "topics": [{"topic": TOPIC, "partitions": [partition]}]}
    (answer,) = ask(client, "OffsetForLeaderEpoch", 4, body)["topics"][0]["partitions"]
    return answer


def list_offset(client: Client, index: int, timestamp: int, told: int) -> Any:
    partition = {"partition_index": index, "current_leader_epoch": told, "timestamp": timestamp}
    body = {"replica_id": -1, "isolation_level": 0, "topics": [{"name": TOPIC, "partitions": [partition]}]}
    (answer,) = ask(client, "ListOffsets", 8, body)["topics"][0]["partitions"]
    return answer


def fetch(client: Client, index: int, offset: int, told: int, last: int) -> Any:
    """Return the Fetch response for a reader whose last record has an epoch."""
    partition = {
        "partition": index,
        "fetch_offset": offset,
        "partition_max_bytes": 1,
        "log_start_offset": -1,
        "current_leader_epoch": told,
        "last_fetched_epoch": last,
    }
    body = {
        "max_wait": 0,
        "min_bytes": 0,
        "max_bytes": 1,
        "isolation_level": 0,
        "topics": [{"partitions": [partition], "topic": TOPIC}],
        "replica_id": -1,
        "session_id": 0,
        "session_epoch": -1,
        "forgotten_topics_data": [],
        "rack_id": "",
    }
    (answer,) = ask(client, "Fetch", 12, body)["responses"][0]["partitions"]
    return answer


# ---------------------------------------------------------------- recording


@contextmanager
def _broker(properties: Path, port: int, log: Path) -> Iterator[Client]:
    process = started(java("kafka.Kafka", str(properties)), log)
    try:
        with closing(connected(process, port, log)) as client:
            yield client
    finally:
        process.terminate()
        process.wait(60)


def _wait_for_leaders(client: Client) -> None:
    deadline_s = time.monotonic() + START_S
    while time.monotonic() < deadline_s:
        topics = metadata(client)["topics"]
        if topics and len(topics[0]["partitions"]) == PARTITION_COUNT:
            errors = {list_offset(client, index, -1, -1)["error_code"] for index in range(PARTITION_COUNT)}
            if errors == {"NONE"}:
                return
        time.sleep(0.2)
    raise TimeoutError("the broker does not lead")


def _write(port: int, life: int, counts: dict[int, int]) -> None:
    import confluent_kafka as kafka

    producer = kafka.Producer({"bootstrap.servers": f"127.0.0.1:{port}"})
    for index, count in counts.items():
        for number in range(count):
            producer.produce(TOPIC, value(life, number), partition=index)
            producer.flush(30)


def _commit(port: int) -> None:
    """Consume partition 0 up to an offset, and commit it with its epoch."""
    import confluent_kafka as kafka

    settings = {"bootstrap.servers": f"127.0.0.1:{port}", "group.id": GROUP, "enable.auto.commit": False}
    consumer = kafka.Consumer({**settings, "auto.offset.reset": "earliest"})
    consumer.assign([kafka.TopicPartition(TOPIC, 0, 0)])
    while True:
        message = consumer.poll(10)
        if message is not None and message.offset() == COMMITTED:
            break
    consumer.commit(message=message, asynchronous=False)
    consumer.close()


def record() -> None:
    """Run a broker several times on one directory; store its files and its last responses."""
    with tempfile.TemporaryDirectory() as folder:
        directory, properties, log = Path(folder, "data"), Path(folder, "broker.properties"), Path(folder, "log")
        port = free_port()
        format_directory(directory, properties, port, 1)
        for life, counts in enumerate(WRITTEN):
            with _broker(properties, port, log) as client:
                if life == 0:
                    topic = {"name": TOPIC, "num_partitions": PARTITION_COUNT, "replication_factor": 1}
                    topics = [{**topic, "assignments": [], "configs": []}]
                    ask(client, "CreateTopics", 7, {"topics": topics, "timeout": 10_000, "validate_only": False})
                _wait_for_leaders(client)
                _write(port, life, counts)
                if life == len(WRITTEN) - 1:
                    wanted = [{"name": TOPIC, "partitions": [{"partition_index": 1, "offset": 7}]}]
                    ask(client, "DeleteRecords", 2, {"topics": wanted, "timeout": 10_000})
                    _commit(port)
                    answers = epoch_answers(client)
        paths = [path for pattern in KEPT for path in sorted(directory.glob(pattern)) if path.is_file()]
        files = {
            str(path.relative_to(directory)): base64.b64encode(path.read_bytes()).decode()
            for path in paths
            if not path.parent.name.startswith("__cluster_metadata")
        }
    RECORDED.write_bytes(lzma.compress(json.dumps({"files": files, "answers": answers}, sort_keys=True).encode()))


if __name__ == "__main__":
    record()
