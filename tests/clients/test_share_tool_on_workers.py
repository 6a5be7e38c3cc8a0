"""Kafka's tool for share groups prints of a server of several processes what it prints of one process."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from groupcoord.conformance.client import Client
from groupcoord.conformance.sockets import SocketServer
from groupcoord.core.java.hashing import partition_for
from tests.clients.kafka_tools import Printed, Tools
from tests.clients.test_kafka_tools import needs_java, needs_tools
from tests.host.serving import serve
from tests.host.workers import serve_by_workers
from tests.ports import free_port
from tests.storage.real_broker import ask

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("client_libraries"), needs_java, needs_tools]

LOG_PARTITIONS, PARTITIONS, DEADLINE_S = 50, 4, 30.0
TOOL = "kafka-share-groups --bootstrap-server BROKER"


def group_of(worker: int) -> str:
    """Return a group that a worker of two coordinates."""
    names = (f"group{number}" for number in itertools.count())
    return next(name for name in names if partition_for(name, LOG_PARTITIONS) % 2 == worker)


@contextmanager
def served(folder: Path, workers: int) -> Iterator[int]:
    """Run a server of so many processes; yield its first port."""
    port = free_port()
    words = ("--port", str(port), "--topic", f"jobs:{PARTITIONS}")
    with serve("--data-dir", str(folder), *words) if workers == 1 else serve_by_workers(folder, *words, count=workers):
        yield port


def produce(bootstrap: str, count: int) -> None:
    """Produce some records more to each partition than to the one before."""
    from confluent_kafka import Producer

    producer = Producer({"bootstrap.servers": bootstrap})
    for index in range(PARTITIONS):
        for number in range(count + index):
            producer.produce("jobs", b"%d" % number, partition=index)
    assert producer.flush(DEADLINE_S) == 0


def printed_of(port: int, folder: Path, group: str, coordinator_port: int) -> list[Printed]:
    """Have a group read, and be described, changed and deleted; return what the tool printed."""
    bootstrap = f"127.0.0.1:{port}"
    tools = Tools(bootstrap, folder)
    member = Client(SocketServer("127.0.0.1", coordinator_port), "member")

    def heartbeat(epoch: int) -> None:
        names = ["jobs"] if epoch == 0 else None
        body = {"group_id": group, "member_id": "ann", "member_epoch": epoch, "rack_id": None}
        answer = ask(member, "ShareGroupHeartbeat", 1, {**body, "subscribed_topic_names": names})
        assert answer["error_code"] == "NONE", answer

    def run(*lines: str) -> list[Printed]:
        return [tools.run(line) for line in lines]

    described = f"{TOOL} --describe --group {group}"
    reset = f"{TOOL} --reset-offsets --group {group}"
    try:
        found = run(
            f"kafka-configs --bootstrap-server BROKER --alter --entity-type groups --entity-name {group} "
            "--add-config share.auto.offset.reset=earliest"
        )
        produce(bootstrap, 5)
        found += run(
            f"kafka-console-share-consumer --bootstrap-server BROKER --topic jobs --group {group} --timeout-ms 6000",
            described,
        )
        produce(bootstrap, 10)
        heartbeat(0)
        found += run(
            described,
            f"{described} --offsets --verbose",
            f"{described} --members --verbose",
            f"{described} --state --verbose",
            f"{TOOL} --list --state",
            f"{reset} --topic jobs --to-earliest --execute",
            f"{TOOL} --delete --group {group}",
        )
        heartbeat(-1)
        found += run(
            f"{reset} --topic jobs --to-earliest --dry-run",
            f"{reset} --topic jobs --to-earliest --execute",
            described,
            f"{reset} --all-topics --to-latest --execute",
            described,
            f"{TOOL} --delete-offsets --group {group} --topic jobs",
            described,
            f"{TOOL} --delete --group {group}",
            f"{TOOL} --list",
        )
        return found
    finally:
        member.close()
        tools.close()


@pytest.mark.parametrize("worker", [0, 1])
def test_the_tool_prints_the_same_of_workers(tmp_path: Path, worker: int) -> None:
    """Whoever of two workers coordinates a group, whose partitions both lead."""
    group = group_of(worker)
    found = []
    for workers in (1, 2):
        folder = tmp_path / f"{workers}"
        folder.mkdir()
        with served(folder / "data", workers) as port:
            found.append(printed_of(port, folder, group, port + worker * (workers - 1)))
    one, two = found
    for theirs, own in zip(one, two, strict=True):
        lines = tuple(sorted(line.replace("ADDRESS (2)", "ADDRESS (1)") for line in own.lines))
        assert (own.status, lines) == (theirs.status, theirs.lines), theirs.command
