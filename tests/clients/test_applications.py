"""Applications of others live on ``groupcoord serve``: Kafka Streams counts words exactly once, Connect reads a file.

They need a JDK and Maven, which fetches them once into ``GROUPCOORD_APPLICATIONS`` or the usual cache folder.
"""

from __future__ import annotations

import json
import signal
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from groupcoord.testing import ServerThread
from tests.clients.applications import START_S, WordCount, consume, fetched, running
from tests.ports import free_port
from tests.processes import wait_until

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("client_libraries")]


@pytest.fixture(scope="module")
def jars() -> Path:
    return fetched("pom.xml")


@pytest.fixture
def server(tmp_path: Path) -> Iterator[ServerThread]:
    """A server with logs of topics."""
    with ServerThread(topics={"words": 4, "counts": 4}) as server:
        yield server


def test_kafka_streams_counts_each_word_once(server: ServerThread, jars: Path, tmp_path: Path) -> None:
    """Of two instances with exactly-once processing one is killed and comes back: no word is lost or counted twice."""
    session = ("consumer.session.timeout.ms=6000", "consumer.heartbeat.interval.ms=500")
    application = WordCount(server.bootstrap, jars, tmp_path, *session)
    with ExitStack() as stack:
        stack.enter_context(application.running("stays"))
        with application.running("dies") as dies:
            application.wait_until_running("stays", "dies")
            application.produce(0, 2_000)
            consume(server.bootstrap, "counts", 500)
            dies.send_signal(signal.SIGKILL)
            application.produce(2_000, 3_000)
        stack.enter_context(application.running("dies"))
        application.produce(3_000, 4_000)
        counts, expected = application.counts()
    assert counts == expected


CONNECT = """
bootstrap.servers={bootstrap}
group.id=connect
listeners=HTTP://127.0.0.1:{port}
key.converter=org.apache.kafka.connect.storage.StringConverter
value.converter=org.apache.kafka.connect.storage.StringConverter
exactly.once.source.support=enabled
plugin.discovery=only_scan
session.timeout.ms=6000
heartbeat.interval.ms=500
offset.flush.interval.ms=500
"""
STORED = "".join(
    f"{kind}.storage.topic=connect-{kind}\n{kind}.storage.replication.factor=1\n"
    for kind in ("offset", "config", "status")
)


def ask_connect(port: int, path: str, body: Any = None) -> Any:
    """Return what a worker of Kafka Connect answers; None while it does not."""
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(
        f"http://127.0.0.1:{port}/{path}", data, {"Content-Type": "application/json"}, method="PUT" if data else "GET"
    )
    try:
        with urllib.request.urlopen(request, timeout=30) as answer:
            return json.load(answer)
    except (urllib.error.URLError, ConnectionError):
        return None


def test_kafka_connect_reads_each_line_of_a_file_once(server: ServerThread, jars: Path, tmp_path: Path) -> None:
    """A worker with exactly-once sources is killed in the middle of a file, and another one continues there."""
    source, port = tmp_path / "source.txt", free_port()
    lines = [f"line {number}" for number in range(3_000)]
    source.write_text("".join(f"{line}\n" for line in lines[:1_000]))
    connector = {
        "connector.class": "org.apache.kafka.connect.file.FileStreamSourceConnector",
        "file": str(source),
        "topic": "lines",
        "batch.size": 100,
    }
    worker = tmp_path / "worker.properties"
    worker.write_text(CONNECT.format(bootstrap=server.bootstrap, port=port) + STORED)

    def connect() -> Any:
        return running(tmp_path / "connect.log", jars, "org.apache.kafka.connect.cli.ConnectDistributed", str(worker))

    with connect() as dies:
        wait_until(lambda: bool(ask_connect(port, "connectors/file/config", connector)), START_S, "the worker answers")
        consume(server.bootstrap, "lines", 1_000)
        with source.open("a") as more:
            more.writelines(f"{line}\n" for line in lines[1_000:2_000])
        consume(server.bootstrap, "lines", 1_100)
        dies.send_signal(signal.SIGKILL)
    with source.open("a") as more:
        more.writelines(f"{line}\n" for line in lines[2_000:])
    with connect():
        told = consume(server.bootstrap, "lines", len(lines))
    assert [value for _, value in told] == lines
