"""Kafka Streams with ``group.protocol=streams`` (KIP-1071) on ``groupcoord serve``: instances and servers are killed.

They need a JDK and Maven, which fetches them once into ``GROUPCOORD_APPLICATIONS`` or the usual cache folder.
"""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.clients.applications import WordCount, consume, fetched
from tests.ports import free_port

SETTINGS = {
    "group.streams.min.session.timeout.ms": 1_000,
    "group.streams.session.timeout.ms": 6_000,
    "group.streams.min.heartbeat.interval.ms": 100,
    "group.streams.heartbeat.interval.ms": 500,
    "group.streams.initial.rebalance.delay.ms": 1_000,
}

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("client_libraries")]


@pytest.fixture(scope="module")
def jars() -> Path:
    return fetched("streams.xml")


class Server:
    """Server process that may be killed and restarted, with the same address and folder."""

    def __init__(self, folder: Path) -> None:
        port = free_port()
        self.bootstrap = f"127.0.0.1:{port}"
        arguments = ["serve", "--port", str(port), "--data-dir", str(folder / "data")]
        arguments += [word for topic in ("words:4", "counts:4") for word in ("--topic", topic)]
        arguments += [word for key, value in SETTINGS.items() for word in ("--set", f"{key}={value}")]
        self._command = [sys.executable, "-c", "from groupcoord.cli import main; main()", *arguments]
        self._log = folder / "server.log"
        self.start()

    def start(self) -> None:
        """Start it, and wait until it listens."""
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(self._command, stdout=subprocess.PIPE, stderr=log)
        assert self._process.stdout is not None
        assert b"listening" in self._process.stdout.readline()

    def kill(self) -> None:
        self._process.kill()
        self._process.wait()
        assert self._process.stdout is not None
        self._process.stdout.close()


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    server = Server(tmp_path)
    yield server
    server.kill()


@pytest.mark.parametrize("guarantee", ["at_least_once", "exactly_once_v2"])
def test_words_are_counted_whoever_is_killed(server: Server, jars: Path, tmp_path: Path, guarantee: str) -> None:
    """Two instances count words; one of them is killed and comes back, the server twice: no word is lost, and none is
    counted twice where that is promised.
    """
    settings = ("group.protocol=streams", f"processing.guarantee={guarantee}")
    application = WordCount(server.bootstrap, jars, tmp_path, *settings)
    with ExitStack() as stack:
        stack.enter_context(application.running("stays"))
        with application.running("dies") as dies:
            application.wait_until_running("stays", "dies")
            application.produce(0, 1_500)
            consume(server.bootstrap, "counts", 500)
            server.kill()
            server.start()
            application.produce(1_500, 2_500)
            consume(server.bootstrap, "counts", 1_800)
            dies.send_signal(signal.SIGKILL)
            application.produce(2_500, 3_000)
            server.kill()
            server.start()
        stack.enter_context(application.running("dies"))
        application.produce(3_000, 4_000)
        counts, expected = application.counts()
    if guarantee == "exactly_once_v2":
        assert counts == expected
    else:
        assert counts.keys() == expected.keys()
        assert all(set(counts[word]) >= set(numbers) for word, numbers in expected.items())
