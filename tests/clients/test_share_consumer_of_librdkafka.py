"""librdkafka's share consumer (a preview since 2.16), as confluent-kafka has it, on a server."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from groupcoord.conformance.client import Client
from groupcoord.conformance.sockets import SocketServer
from groupcoord.testing import ServerThread
from tests.clients.test_share_workers import lag
from tests.host.serving import serve
from tests.ports import free_port
from tests.storage.real_broker import ask

confluent_kafka = pytest.importorskip("confluent_kafka")

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not hasattr(confluent_kafka, "ShareConsumer"), reason="this one has no share consumer"),
]

GROUP, TOPIC, LETTERS, PATIENCE_S = "workers", "jobs", "dlq.jobs", 60.0
SETTINGS = {"group.share.heartbeat.interval.ms": 500, "group.share.min.heartbeat.interval.ms": 500}
LOCKS = {"group.share.min.record.lock.duration.ms": 1_000, "group.share.record.lock.duration.ms": 3_000}


def consumer(port: int) -> Any:
    mode = {"share.acknowledgement.mode": "explicit"}
    found = confluent_kafka.ShareConsumer(
        {"bootstrap.servers": f"127.0.0.1:{port}", "group.id": GROUP, "log_level": 0, **mode}
    )
    found.subscribe([TOPIC])
    return found


def polled(worker: Any, count: int) -> list[Any]:
    """Return the records of the first poll with at least a number of them."""
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


def test_records_are_accepted_released_and_rejected() -> None:
    types = confluent_kafka.AcknowledgeType
    with ServerThread(topics={TOPIC: 1}, settings=SETTINGS) as server:
        configure(server.port)
        produce(server.port, {b"%d" % number: 0 for number in range(3)})
        worker = consumer(server.port)
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
        assert not server.share(GROUP).acquired()


def letters_in(port: int) -> list[bytes]:
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


def reject_until(worker: Any, is_done: Callable[[set[bytes]], bool]) -> None:
    """Reject all records that come, until that is enough."""
    seen: set[bytes] = set()
    deadline_s = time.monotonic() + PATIENCE_S
    while not is_done(seen):
        assert time.monotonic() < deadline_s, f"only {len(seen)} records came"
        for message in worker.poll(0.2):
            if message.error() is None:
                seen.add(message.value())
                worker.acknowledge(message, confluent_kafka.AcknowledgeType.REJECT)
        worker.commit_sync(PATIENCE_S)


def test_dead_letters_over_a_kill(tmp_path: Path) -> None:
    """Rejected records reach the dead letter topic, though the server is killed meanwhile."""
    port, wave = free_port(), 20
    settings = {**SETTINGS, **LOCKS, "errors.deadletterqueue.auto.create.topics.enable": "true"}
    options = [word for name, value in settings.items() for word in ("--set", f"{name}={value}")]
    arguments = ["--port", str(port), "--data-dir", str(tmp_path), "--topic", f"{TOPIC}:2", *options]
    sent = set()
    with ExitStack() as server:

        def restart() -> None:
            server.close()
            server.enter_context(serve(*arguments))

        restart()
        configure(
            port, **{"errors.deadletterqueue.topic.name": LETTERS, "errors.deadletterqueue.copy.record.enable": "true"}
        )
        worker = consumer(port)
        for first in range(0, 3 * wave, wave):
            values = {b"%d" % number: number % 2 for number in range(first, first + wave)}
            sent |= values.keys()
            produce(port, values)
            killer = threading.Thread(target=restart)
            killer.start()
            reject_until(worker, values.keys().__le__)
            killer.join()
            reject_until(worker, lambda seen: lag(port) == 0)
        worker.close()
        assert set(letters_in(port)) == sent
