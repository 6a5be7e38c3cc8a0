"""librdkafka's share consumer (a preview since 2.16), as confluent-kafka has it, on a server."""

from __future__ import annotations

import os
import signal
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from groupcoord.conformance.client import Client
from groupcoord.conformance.sockets import SocketServer
from groupcoord.testing import ServerThread
from tests.clients.test_share_workers import lag, lags
from tests.host.workers import serve_by_workers, wait_until
from tests.ports import free_port
from tests.storage.real_broker import ask

confluent_kafka = pytest.importorskip("confluent_kafka")

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not hasattr(confluent_kafka, "ShareConsumer"), reason="this one has no share consumer"),
]

GROUP, TOPIC, LETTERS, PATIENCE_S, STILL_S = "workers", "jobs", "dlq.jobs", 60.0, 4.0
SETTINGS = {"group.share.heartbeat.interval.ms": 500, "group.share.min.heartbeat.interval.ms": 500}
LOCKS = {"group.share.min.record.lock.duration.ms": 1_000, "group.share.record.lock.duration.ms": 3_000}


def consumer(port: int) -> Any:
    """Return a consumer that says of each record what becomes of it."""
    mode = {"share.acknowledgement.mode": "explicit"}
    found = confluent_kafka.ShareConsumer(
        {"bootstrap.servers": f"127.0.0.1:{port}", "group.id": GROUP, "log_level": 0, **mode}
    )
    found.subscribe([TOPIC])
    return found


def polled(worker: Any, count: int) -> list[Any]:
    """Return the records of the first poll that brings so many."""
    deadline_s = time.monotonic() + PATIENCE_S
    messages: list[Any] = []
    while len(messages) < count:
        assert time.monotonic() < deadline_s, f"only {len(messages)} records came"
        messages = list(worker.poll(1.0))
        assert all(message.error() is None for message in messages)
    return messages


def configure(port: int, **configs: str) -> None:
    """Give the group configs, and let it begin at the beginning."""
    client = Client(SocketServer("127.0.0.1", port), "test")
    entries = {"share.auto.offset.reset": "earliest", **configs}
    altered = [{"name": name, "config_operation": 0, "value": value} for name, value in entries.items()]
    resources = [{"resource_type": 32, "resource_name": GROUP, "configs": altered}]
    answer = ask(client, "IncrementalAlterConfigs", 1, {"resources": resources, "validate_only": False})
    client.close()
    assert answer["responses"][0]["error_code"] == "NONE"


def produce(port: int, values: dict[bytes, int]) -> None:
    """Produce values, each to a partition."""
    settings = {"bootstrap.servers": f"127.0.0.1:{port}", "enable.idempotence": True, "log_level": 0}
    producer = confluent_kafka.Producer(settings)
    for value, index in values.items():
        producer.produce(TOPIC, value, partition=index)
    assert producer.flush(PATIENCE_S) == 0


def accept_release_and_reject(port: int, index: int) -> None:
    """See that of the records of a partition only what is released comes again, once more counted."""
    types = confluent_kafka.AcknowledgeType
    configure(port)
    produce(port, {b"%d" % number: index for number in range(3)})
    worker = consumer(port)
    first = polled(worker, 3)
    assert [message.value() for message in first] == [b"0", b"1", b"2"]
    for message, kind in zip(first, (types.ACCEPT, types.RELEASE, types.REJECT), strict=True):
        worker.acknowledge(message, kind)
    worker.commit_sync(PATIENCE_S)
    (again,) = polled(worker, 1)
    assert again.value() == b"1"
    worker.acknowledge(again, types.ACCEPT)
    worker.commit_sync(PATIENCE_S)
    worker.close()


def test_records_are_accepted_released_and_rejected() -> None:
    """What is accepted or rejected is done with, and what is released comes again, once more counted."""
    with ServerThread(topics={TOPIC: 1}, settings=SETTINGS) as server:
        accept_release_and_reject(server.port, 0)
        assert not server.share(GROUP).acquired()


@pytest.mark.parametrize("index", [0, 1])
def test_it_is_the_same_with_workers(tmp_path: Path, index: int) -> None:
    """So it is whichever of two processes leads the partition, and all is done afterwards."""
    port = free_port()
    with serve_by_workers(tmp_path, *words(port)):
        accept_release_and_reject(port, index)
        assert lags(port)[index] == 0


def words(port: int) -> list[str]:
    """Return the options of a server by workers."""
    settings = {**SETTINGS, **LOCKS, "errors.deadletterqueue.auto.create.topics.enable": "true"}
    options = [word for name, value in settings.items() for word in ("--set", f"{name}={value}")]
    return ["--port", str(port), "--topic", f"{TOPIC}:2", *options]


def letters_in(port: int) -> list[bytes]:
    """Return what is in the topic of dead letters."""
    settings = {"bootstrap.servers": f"127.0.0.1:{port}", "group.id": "reader", "auto.offset.reset": "earliest"}
    reader = confluent_kafka.Consumer({**settings, "log_level": 0})
    topic = reader.list_topics(LETTERS, timeout=PATIENCE_S).topics[LETTERS]
    found = []
    for index in topic.partitions:
        place = confluent_kafka.TopicPartition(LETTERS, index, 0)
        _, end = reader.get_watermark_offsets(place, timeout=PATIENCE_S)
        reader.assign([place])
        found += [message.value() for message in reader.consume(end, PATIENCE_S)] if end else []
    reader.close()
    return found


def done_with(port: int, worker: Any, kind: Any, values: set[bytes]) -> None:
    """Let a worker say the same of all records, until none is left."""
    left, deadline_s = set(values), time.monotonic() + PATIENCE_S
    while left or lag(port):
        assert time.monotonic() < deadline_s, f"{len(left)} records never came, the lag is {lag(port)}"
        for message in worker.poll(0.2):
            if message.error() is None:
                left.discard(message.value())
                worker.acknowledge(message, kind)
        worker.commit_sync(PATIENCE_S)


def test_letters_of_workers(tmp_path: Path) -> None:
    """What is rejected goes to the topic of dead letters, whichever process is killed meanwhile."""
    port, wave = free_port(), 20
    with serve_by_workers(tmp_path, *words(port)) as workers:
        configure(
            port, **{"errors.deadletterqueue.topic.name": LETTERS, "errors.deadletterqueue.copy.record.enable": "true"}
        )
        worker = consumer(port)
        sent = set()
        for first in range(0, 6 * wave, wave):
            values = {b"%d" % number: number % 2 for number in range(first, first + wave)}
            sent |= values.keys()
            produce(port, values)
            killer = threading.Thread(target=workers.kill_one)
            killer.start()
            done_with(port, worker, confluent_kafka.AcknowledgeType.REJECT, set(values))
            killer.join()
        worker.close()
        wait_until(lambda: set(letters_in(port)) == sent)


def test_a_process_that_stands_still(tmp_path: Path) -> None:
    """While a process of the server is stopped for seconds, and goes on, nothing is lost, and clients go on as well."""
    port, wave = free_port(), 50
    with serve_by_workers(tmp_path, *words(port)) as workers:
        configure(port)
        worker = consumer(port)
        for part, pid in enumerate(2 * workers.pids()):
            values = {b"%d" % number: number % 2 for number in range(part * wave, part * wave + wave)}
            os.kill(pid, signal.SIGSTOP)
            awakener = threading.Timer(STILL_S, os.kill, (pid, signal.SIGCONT))
            awakener.start()
            produce(port, values)
            done_with(port, worker, confluent_kafka.AcknowledgeType.ACCEPT, set(values))
            awakener.join()
        worker.close()
        assert lag(port) == 0
