"""librdkafka's share consumer (a preview since 2.16), as confluent-kafka has it, on a server."""

from __future__ import annotations

import time
from typing import Any

import pytest

from groupcoord.conformance.client import Client
from groupcoord.conformance.sockets import SocketServer
from groupcoord.testing import ServerThread
from tests.storage.real_broker import ask

confluent_kafka = pytest.importorskip("confluent_kafka")

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not hasattr(confluent_kafka, "ShareConsumer"), reason="this one has no share consumer"),
]

GROUP, TOPIC, PATIENCE_S = "workers", "jobs", 60.0
SETTINGS = {"group.share.heartbeat.interval.ms": 500, "group.share.min.heartbeat.interval.ms": 500}


def consumer(port: int) -> Any:
    """Return a consumer that says of each record what becomes of it."""
    mode = {"share.acknowledgement.mode": "explicit"}
    found = confluent_kafka.ShareConsumer({"bootstrap.servers": f"127.0.0.1:{port}", "group.id": GROUP, **mode})
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


def test_records_are_accepted_released_and_rejected() -> None:
    """What is accepted or rejected is done with, and what is released comes again, once more counted."""
    types = confluent_kafka.AcknowledgeType
    with ServerThread(topics={TOPIC: 1}, settings=SETTINGS) as server:
        client = Client(SocketServer("127.0.0.1", server.port), "test")
        config = {"name": "share.auto.offset.reset", "config_operation": 0, "value": "earliest"}
        resources = [{"resource_type": 32, "resource_name": GROUP, "configs": [config]}]
        ask(client, "IncrementalAlterConfigs", 1, {"resources": resources, "validate_only": False})
        client.close()
        producer = confluent_kafka.Producer({"bootstrap.servers": f"127.0.0.1:{server.port}"})
        for number in range(3):
            producer.produce(TOPIC, b"%d" % number, partition=0)
        assert producer.flush(PATIENCE_S) == 0
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
