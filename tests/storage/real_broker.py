"""A real Kafka broker to compare with: Java, and the jars of Kafka 4.4 in ``KAFKA_LIBS`` or the usual cache folder."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from groupcoord.conformance.client import Client
from groupcoord.conformance.sockets import SocketServer
from groupcoord.conformance.targets import ConnectionClosedError

LIBS = Path(os.environ.get("KAFKA_LIBS", Path.home() / ".cache/groupcoord-kafka/libs"))
START_S, ANSWER_MS = 120.0, 30_000
CLUSTER_ID = "AAAAAAAAAAAAAAAAAAAAAQ"

HAS_KAFKA = shutil.which("java") is not None and any(LIBS.glob("kafka_2.13-4.*.jar"))

needs_kafka = [
    pytest.mark.skipif(shutil.which("java") is None, reason="there is no java"),
    pytest.mark.skipif(not any(LIBS.glob("kafka_2.13-4.*.jar")), reason=f"there are no jars of Kafka 4 in {LIBS}"),
]

PROPERTIES = """
process.roles=broker,controller
node.id=1
controller.quorum.voters=1@127.0.0.1:{controller_port}
listeners=PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller_port}
inter.broker.listener.name=PLAINTEXT
controller.listener.names=CONTROLLER
listener.security.protocol.map=PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT
log.dirs={directory}
offsets.topic.replication.factor=1
offsets.topic.num.partitions={partitions}
"""


def java(*arguments: str) -> list[str]:
    """Return the command that runs a class of the jars, with options of Java before its name."""
    return ["java", "-Xmx512m", "-cp", f"{LIBS}/*", *arguments]


def format_directory(directory: Path, properties: Path, port: int, log_partitions: int, settings: str = "") -> None:
    """Write the properties of a broker on this port, with more settings line by line, and prepare its log directory."""
    own = PROPERTIES.format(port=port, controller_port=port + 1, directory=directory, partitions=log_partitions)
    properties.write_text(own + settings)
    subprocess.run(
        java("kafka.tools.StorageTool", "format", "-t", CLUSTER_ID, "-c", str(properties)),
        check=True,
        capture_output=True,
    )


@contextmanager
def running(command: list[str], port: int, log: Path) -> Iterator[Client]:
    """Run a server until it is not needed any more, then stop it with SIGTERM; yield a connection to it."""
    process = started(command, log)
    try:
        client = connected(process, port, log)
        yield client
        client.close()
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(60)


def started(command: list[str], log: Path) -> subprocess.Popen[bytes]:
    """Start a server with its output in ``log``."""
    with log.open("ab") as output:
        return subprocess.Popen(command, stdout=output, stderr=output)


def connected(process: subprocess.Popen[bytes], port: int, log: Path) -> Client:
    deadline_s = time.monotonic() + START_S
    while True:
        try:
            return Client(SocketServer("127.0.0.1", port), "test")
        except ConnectionClosedError:
            assert process.poll() is None, log.read_text()[-3000:]
            assert time.monotonic() < deadline_s, log.read_text()[-3000:]
            time.sleep(0.2)


def ask(client: Client, api: str, version: int, body: dict[str, Any]) -> Any:
    """Send a request and return the answer."""
    client.send(api, version, body)
    return client.receive(ANSWER_MS)


def wait_for_groups(client: Client, group_ids: list[str]) -> None:
    """Wait until the coordinator of every group answers; the first request makes the offsets topic."""
    deadline_s = time.monotonic() + START_S
    errors = {""}
    while not errors <= {"NONE", "GROUP_ID_NOT_FOUND"}:  # kfake says the latter of a group that is new
        assert time.monotonic() < deadline_s, errors
        found = ask(client, "FindCoordinator", 4, {"key_type": 0, "coordinator_keys": group_ids})
        errors = {coordinator["error_code"] for coordinator in found["coordinators"]}
        if errors == {"NONE"}:
            named = [{"group_id": group_id, "topics": None} for group_id in group_ids]
            fetched = ask(client, "OffsetFetch", 8, {"groups": named})
            errors = {group["error_code"] for group in fetched["groups"]}
        time.sleep(0.2)
