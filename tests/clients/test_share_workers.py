"""Workers of a share group (Java's KafkaShareConsumer) and their server are killed: nothing is lost, or accepted twice.

They need a JDK and Maven; see ``test_applications.py``.
"""

from __future__ import annotations

import random
import signal
import socket
import struct
import subprocess
import time
from collections import Counter
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from groupcoord.cli.demo_processes import wait_until
from groupcoord.records.batches import encode_batch
from tests.clients.test_applications import APPLICATIONS, LONGEST_S, START_S, jars, running
from tests.ports import free_port
from tests.wire.kio_client import read_response, request_frame

__all__ = ["jars"]
pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("client_libraries")]

PRODUCE, INCREMENTAL_ALTER_CONFIGS, DESCRIBE_SHARE_GROUP_OFFSETS = 0, 44, 90
GROUP, GROUP_RESOURCE = "workers", 32
JOBS, WAVE = 1_200, 40


def ask(port: int, api_key: int, version: int, body: dict[str, Any]) -> Any:
    """Ask a server on a connection of its own."""
    with socket.create_connection(("127.0.0.1", port), timeout=LONGEST_S) as connection:
        frame = request_frame(api_key, version, body)
        connection.sendall(struct.pack(">i", len(frame)) + frame)
        with connection.makefile("rb") as file:
            head = file.read(4)
            return read_response(api_key, version, head + file.read(*struct.unpack(">i", head)))


def begin_with_the_earliest(port: int) -> None:
    """Let the group begin at the beginning."""
    config = {"name": "share.auto.offset.reset", "config_operation": 0, "value": "earliest"}
    resource = {"resource_type": GROUP_RESOURCE, "resource_name": GROUP, "configs": [config]}
    ask(port, INCREMENTAL_ALTER_CONFIGS, 1, {"resources": [resource], "validate_only": False})


def produce(port: int, first: int) -> None:
    """Produce a wave of jobs, half to each partition."""
    now_ms = round(time.time() * 1000)
    for index in (0, 1):
        values = [f"job-{number}".encode() for number in range(first + index, first + WAVE, 2)]
        batch = encode_batch(0, [(None, value, now_ms) for value in values], base_sequence=-1)
        data = {"index": index, "records": batch}
        topic = {"name": "jobs", "partition_data": [data]}
        ask(port, PRODUCE, 9, {"transactional_id": None, "acks": -1, "timeout": 30_000, "topic_data": [topic]})


def lag(port: int) -> int:
    """Return how many jobs are not done with; -1 while that isn't known."""
    response = ask(port, DESCRIBE_SHARE_GROUP_OFFSETS, 1, {"groups": [{"group_id": GROUP, "topics": None}]})
    lags = [partition["lag"] for topic in response["groups"][0]["topics"] for partition in topic["partitions"]]
    return sum(lags) if len(lags) == 2 and min(lags) >= 0 else -1


def test_jobs_survive_workers_and_server(jars: Path, tmp_path: Path) -> None:
    """Three workers of whom one is killed again and again, as the server is: each job is got, and accepted once."""
    chance = random.Random(11)
    port = free_port()
    data_dir = tmp_path / "data"
    settings = ("group.share.min.record.lock.duration.ms=1000", "group.share.record.lock.duration.ms=3000")
    arguments = [word for setting in settings for word in ("--set", setting)]
    server = _serve(port, data_dir, *arguments)
    lives: list[Path] = []

    def worker(stack: ExitStack) -> subprocess.Popen[bytes]:
        lives.append(tmp_path / f"worker-{len(lives)}.log")
        program = str(APPLICATIONS / "ShareWorker.java")
        process: subprocess.Popen[bytes] = stack.enter_context(
            running(lives[-1], jars, program, f"127.0.0.1:{port}", GROUP, "jobs")
        )
        return process

    with ExitStack() as stack:
        stack.callback(lambda: _kill(server))
        begin_with_the_earliest(port)
        worker(stack)
        worker(stack)
        mortal = worker(stack)
        wait_until(lambda: all("started" in log.read_text() for log in lives), START_S, "the workers run")
        for first in range(0, JOBS, WAVE):
            produce(port, first)
            time.sleep(chance.uniform(0, 0.4))
            if first // WAVE % 6 == 2:
                mortal.send_signal(signal.SIGKILL)
                mortal = worker(stack)
            if first // WAVE % 10 == 5:
                _kill(server)
                server = _serve(port, data_dir, *arguments)
        wait_until(lambda: lag(port) == 0, LONGEST_S, "all jobs are done")
        _kill(server)
        server = _serve(port, data_dir, *arguments)
        assert lag(port) == 0

    lines = [line.split() for log in lives for line in log.read_text().splitlines()]
    got = {words[1] for words in lines if words[0] == "got"}
    accepted = Counter(words[1] for words in lines if words[0] == "accepted")
    assert got == {f"job-{number}" for number in range(JOBS)}
    assert [job for job, count in accepted.items() if count > 1] == []
    assert len(accepted) > JOBS * 0.8  # whoever is killed can't say what it has accepted last


def _kill(server: subprocess.Popen[str]) -> None:
    server.kill()
    server.communicate()


def _serve(port: int, data_dir: Path, *arguments: str) -> subprocess.Popen[str]:
    """Start a server on a port, and wait until it listens."""
    from tests.host.serving import COMMAND

    words = [*COMMAND, "--port", str(port), "--data-dir", str(data_dir), "--topic", "jobs:2", *arguments]
    process = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    assert process.stdout is not None
    assert "listening" in process.stdout.readline()
    return process
