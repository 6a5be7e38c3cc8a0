"""Workers of a share group (Java's KafkaShareConsumer) and their server are killed: nothing is lost, or accepted twice.

The test needs a JDK and Maven; see ``test_applications.py``.
"""

from __future__ import annotations

import random
import signal
import subprocess
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.client import Client, Request
from tests.clients.applications import APPLICATIONS, LONGEST_S, START_S, running
from tests.clients.test_applications import jars
from tests.host.serving import serve
from tests.ports import free_port
from tests.processes import wait_until

__all__ = ["jars"]
pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("client_libraries")]

INCREMENTAL_ALTER_CONFIGS, DESCRIBE_SHARE_GROUP_OFFSETS = 44, 90
GROUP, GROUP_RESOURCE = "workers", 32
JOBS, WAVE = 1_200, 40
SETTINGS = ("group.share.min.record.lock.duration.ms=1000", "group.share.record.lock.duration.ms=3000")


def ask(port: int, api_key: int, version: int, fields: dict[str, Any]) -> Any:
    """Send a request on a new connection."""
    with Client(port, LONGEST_S) as client:
        return client.ask(Request(api_key, version, fields))


def begin_with_the_earliest(port: int) -> None:
    config = {"name": "share.auto.offset.reset", "config_operation": 0, "value": "earliest"}
    resource = {"resource_type": GROUP_RESOURCE, "resource_name": GROUP, "configs": [config]}
    ask(port, INCREMENTAL_ALTER_CONFIGS, 1, {"resources": [resource], "validate_only": False})


def lag(port: int) -> int:
    """Return how many jobs are not done with; -1 while that isn't known."""
    response = ask(port, DESCRIBE_SHARE_GROUP_OFFSETS, 1, {"groups": [{"group_id": GROUP, "topics": None}]})
    topics = response["groups"][0]["topics"]
    found = [partition["lag"] for topic in topics for partition in topic["partitions"]]
    return sum(found) if len(found) == 2 and min(found) >= 0 else -1


class Crew:
    """Three workers of a share group, which may be killed, and the producer of their jobs. Args: jars: Java's
    libraries. folder: the folder of the workers' output. port: the server's port.
    """

    def __init__(self, jars: Path, folder: Path, port: int) -> None:
        from confluent_kafka import Producer

        self._jars, self._folder, self._port = jars, folder, port
        self._logs: list[Path] = []
        self._stack = ExitStack()
        self._producer = Producer(
            {"bootstrap.servers": f"127.0.0.1:{port}", "enable.idempotence": True, "log_level": 0}
        )
        self._job_count = 0
        begin_with_the_earliest(port)
        for _ in range(3):
            self._mortal = self._hired()
        wait_until(lambda: all("started" in log.read_text() for log in self._logs), START_S, "the workers run")

    def _hired(self) -> subprocess.Popen[bytes]:
        self._logs.append(self._folder / f"worker-{len(self._logs)}.log")
        program = str(APPLICATIONS / "ShareWorker.java")
        arguments = (program, f"127.0.0.1:{self._port}", GROUP, "jobs")
        process: subprocess.Popen[bytes] = self._stack.enter_context(running(self._logs[-1], self._jars, *arguments))
        return process

    def replace_one(self) -> None:
        """Kill a worker; another one comes."""
        self._mortal.send_signal(signal.SIGKILL)
        self._mortal = self._hired()

    def make_jobs(self, count: int = WAVE) -> None:
        for number in range(self._job_count, self._job_count + count):
            self._producer.produce("jobs", f"job-{number}".encode(), partition=number % 2)
        self._job_count += count
        assert self._producer.flush(LONGEST_S) == 0

    def wait_until_done(self) -> None:
        wait_until(lambda: lag(self._port) == 0, LONGEST_S, "all jobs are done")

    def check(self) -> None:
        """Each job is got, and accepted once."""
        lines = [line.split() for log in self._logs for line in log.read_text().splitlines()]
        got = {words[1] for words in lines if words[0] == "got"}
        accepted = Counter(words[1] for words in lines if words[0] == "accepted")
        assert got == {f"job-{number}" for number in range(self._job_count)}
        assert [job for job, count in accepted.items() if count > 1] == []
        assert len(accepted) > self._job_count * 0.8  # whoever is killed can't say what it has accepted last

    def dismiss(self) -> None:
        """Kill all workers."""
        self._stack.close()


@contextmanager
def crew_at(jars: Path, folder: Path, port: int) -> Iterator[Crew]:
    """Run workers at a server within the context."""
    crew = Crew(jars, folder, port)
    try:
        yield crew
    finally:
        crew.dismiss()


def words(port: int) -> list[str]:
    """Return the options of a server."""
    return ["--port", str(port), "--topic", "jobs:2", *(word for each in SETTINGS for word in ("--set", each))]


def test_jobs_survive_workers_and_server(jars: Path, tmp_path: Path) -> None:
    """Three workers, one of which is repeatedly killed, as is the server: each job is delivered, and accepted once."""
    chance = random.Random(11)
    port = free_port()
    arguments = ["--data-dir", str(tmp_path / "data"), *words(port)]
    with ExitStack() as stack:
        server = stack.enter_context(ExitStack())
        server.enter_context(serve(*arguments))
        crew = stack.enter_context(crew_at(jars, tmp_path, port))
        for wave in range(JOBS // WAVE):
            crew.make_jobs()
            time.sleep(chance.uniform(0, 0.4))
            if wave % 6 == 2:
                crew.replace_one()
            if wave % 10 == 5:
                server.close()
                server.enter_context(serve(*arguments))
        crew.wait_until_done()
        server.close()
        server.enter_context(serve(*arguments))
        assert lag(port) == 0
    crew.check()
