"""Real brokers, one or three of them, each a process that can be killed and started again on what it has written.

``KAFKA_SERVE`` is a program that starts one in the foreground: ``PROGRAM PORT DIR --set KEY=VALUE…``. It takes PORT for
clients and the port behind it for the controller, and gives every broker the same cluster id, so that three of them are
one cluster. What ``KAFKA_HEAP`` says goes to Java; by default that is little, since three brokers are three of them.
"""

from __future__ import annotations

import os
import signal
import subprocess
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, ElectionType, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient, PartitionMetadata

from groupcoord.analysis.decode.files import cut_ranges, find_segments, rows_of_files
from groupcoord.analysis.decode.rows import RowSettings
from groupcoord.core.log.records import OFFSETS_TOPIC
from tests.ports import free_port
from tests.processes import wait_until

from .test_reading import Rows

needs_kafka = [
    pytest.mark.slow,
    pytest.mark.skipif("KAFKA_SERVE" not in os.environ, reason="KAFKA_SERVE names no program that starts a broker"),
]

TIMEOUT_S = 120.0
"""How long a broker may take to start, or a cluster to come to rest."""


class KafkaProcess:
    """One broker.

    Args:
        folder: where it writes.
        port: for its clients, unless the settings have other listeners.
        settings: more than what the program sets by itself.
    """

    def __init__(self, folder: Path, port: int, settings: Mapping[str, object]) -> None:
        self.folder = folder
        self.bootstrap = f"127.0.0.1:{port}"
        self._log = folder.with_name(folder.name + ".log")
        words = [word for key, value in settings.items() for word in ("--set", f"{key}={value}")]
        self._words = [str(port), str(folder), *words]
        self._process: subprocess.Popen[bytes] | None = None

    def launch(self) -> None:
        """Start it, and don't wait."""
        command = [os.environ["KAFKA_SERVE"], *self._words]
        environment = {"KAFKA_HEAP": "-Xmx256m", **os.environ}
        with open(self._log, "ab") as log:
            self._process = subprocess.Popen(command, stdout=log, stderr=log, stdin=subprocess.DEVNULL, env=environment)

    def wait(self) -> None:
        admin = AdminClient({"bootstrap.servers": self.bootstrap, "log_level": 0})

        def answers() -> bool:
            assert self._process is not None
            assert self._process.poll() is None, self._log.read_text()[-2_000:]
            with suppress(KafkaException):
                return bool(admin.list_topics(timeout=2).brokers)
            return False

        wait_until(answers, TIMEOUT_S, "it does not answer")

    def start(self) -> None:
        """Start it, and wait until it answers."""
        self.launch()
        self.wait()

    def kill(self) -> None:
        """Kill it at once, if it runs."""
        if self._process is not None and self._process.poll() is None:
            self._process.send_signal(signal.SIGKILL)
            self._process.wait()

    def rows_on_disk(self) -> Rows:
        (files,) = find_segments([self.folder / "data"])
        rows = (rows_of_files(files.file_system, ranges, RowSettings()) for ranges in cut_ranges(files.ranges()))
        return [row for found in rows for batch in found for row in batch.to_pylist()]


class ThreeBrokers:
    """A cluster of three brokers, which are its controllers, too.

    Attributes:
        nodes: the brokers by id.
        bootstrap: the addresses of all of them.
    """

    def __init__(self, folder: Path, settings: Mapping[str, object]) -> None:
        first = free_port(6)
        ports = {number: first + 2 * (number - 1) for number in (1, 2, 3)}
        voters = ",".join(f"{number}@127.0.0.1:{port + 1}" for number, port in ports.items())
        common = {
            "controller.quorum.voters": voters,
            "offsets.topic.replication.factor": 3,
            "transaction.state.log.replication.factor": 3,
            "broker.heartbeat.interval.ms": 500,
            "broker.session.timeout.ms": 3_000,
            "auto.leader.rebalance.enable": "false",
            **settings,
        }
        self.nodes = {
            number: KafkaProcess(folder / f"node-{number}", port, {"node.id": number, **common})
            for number, port in ports.items()
        }
        self.bootstrap = ",".join(node.bootstrap for node in self.nodes.values())

    def start(self) -> None:
        """Start all of them, and wait until they are one cluster."""
        for node in self.nodes.values():
            node.launch()
        for node in self.nodes.values():
            node.wait()
        wait_until(
            lambda: len(self._admin().list_topics(timeout=5).brokers) == len(self.nodes),
            TIMEOUT_S,
            "they are not three",
        )

    def kill(self) -> None:
        for node in self.nodes.values():
            node.kill()

    def partitions(self, topic: str = OFFSETS_TOPIC) -> dict[int, PartitionMetadata]:
        """Return the partitions of a topic by Metadata: leaders, replicas and in-sync replicas."""
        partitions: dict[int, PartitionMetadata] = self._admin().list_topics(topic, timeout=5).topics[topic].partitions
        return partitions

    def lead_as_preferred(self) -> None:
        self.wait_for_sync()
        admin = self._admin()

        def lead() -> bool:
            with suppress(KafkaException):
                admin.elect_leaders(ElectionType.PREFERRED).result(30)
            return all(one.leader == one.replicas[0] for one in self.partitions().values())

        wait_until(lead, TIMEOUT_S, "preferred leaders are not elected")

    def wait_for_sync(self) -> None:
        wait_until(self._is_in_sync, TIMEOUT_S, "replicas are not in sync")

    def _is_in_sync(self) -> bool:
        with suppress(KafkaException):
            return all(len(one.isrs) == len(self.nodes) for one in self.partitions().values())
        return False

    def _admin(self) -> AdminClient:
        return AdminClient({"bootstrap.servers": self.bootstrap, "log_level": 0})


def commit_offsets(bootstrap: str, topic: str, groups: Sequence[str], rounds: int) -> None:
    """Commit offsets up to a number, for four partitions at a time, in each group."""
    settings: dict[str, Any] = {"bootstrap.servers": bootstrap, "enable.auto.commit": False}
    consumers = [Consumer({**settings, "group.id": group}) for group in groups]
    for consumer in consumers:
        wait_until(partial(_has_coordinator, consumer, topic), TIMEOUT_S, "a group has no coordinator")
    for number in range(rounds):
        for consumer in consumers:
            consumer.commit(offsets=[TopicPartition(topic, p, number) for p in range(4)], asynchronous=False)
    for consumer in consumers:
        consumer.close()


def _has_coordinator(consumer: Consumer, topic: str) -> bool:
    with suppress(KafkaException):
        consumer.committed([TopicPartition(topic, 0)], timeout=10)
        return True
    return False


@contextmanager
def committing(bootstrap: str, topic: str, groups: Sequence[str]) -> Iterator[None]:
    """Commit in groups while the context lasts, whatever fails."""
    ended = threading.Event()

    def commit(group: str) -> None:
        consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": group, "enable.auto.commit": False})
        number = 0
        while not ended.is_set():
            number += 1
            with suppress(KafkaException):
                offsets = [TopicPartition(topic, p, number) for p in range(4)]
                consumer.commit(offsets=offsets, asynchronous=False)
            ended.wait(0.02)
        consumer.close()

    threads = [threading.Thread(target=commit, args=(group,)) for group in groups]
    for thread in threads:
        thread.start()
    try:
        yield
    finally:
        ended.set()
        for thread in threads:
            thread.join()
