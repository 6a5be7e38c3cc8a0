"""Programs in Java that Maven fetches the libraries for: Kafka Streams and Kafka Connect."""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.clients.beside import PROGRAMS

APPLICATIONS = PROGRAMS / "applications"
CACHE = Path(os.environ.get("GROUPCOORD_APPLICATIONS", Path.home() / ".cache/groupcoord"))
START_S, LONGEST_S = 180.0, 240.0


def fetched(pom: str) -> Path:
    """Return the folder of the jars that a project of Maven names, or skip where they can't be had."""
    if shutil.which("mvn") is None or shutil.which("javac") is None:
        pytest.skip("there is no JDK, or no Maven")
    project = APPLICATIONS / pom
    libs = CACHE / f"{project.stem}-{hashlib.sha256(project.read_bytes()).hexdigest()[:12]}"
    if not (libs / "complete").exists():
        goal = ["dependency:copy-dependencies", f"-DoutputDirectory={libs}"]
        done = subprocess.run(["mvn", "-q", "-B", "-f", str(project), *goal], capture_output=True)
        if done.returncode:
            pytest.skip(f"Maven can't fetch what {pom} names")
        (libs / "complete").touch()
    return libs


@contextmanager
def running(log: Path, libs: Path, *arguments: str) -> Iterator[subprocess.Popen[bytes]]:
    """Run a program of Java, whose output goes to a file, and see that it is gone afterwards."""
    options = ["-Xmx256m", "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn", "-cp", f"{libs}/*"]
    with log.open("ab") as output:
        process = subprocess.Popen(["java", *options, *arguments], stdout=output, stderr=output)
    try:
        yield process
    finally:
        process.kill()
        process.wait()


def consume(bootstrap: str, topic: str, count: int) -> list[tuple[str, str]]:
    """Return (key, value) of the committed records of a topic, so many at least, and what comes in a second more."""
    from confluent_kafka import Consumer

    settings = {"group.id": "reader", "isolation.level": "read_committed", "auto.offset.reset": "earliest"}
    consumer = Consumer({"bootstrap.servers": bootstrap, "enable.auto.commit": False} | settings)
    consumer.subscribe([topic])
    found: list[tuple[str, str]] = []
    until_s = time.monotonic() + LONGEST_S
    while time.monotonic() < until_s:
        found += [((m.key() or b"").decode(), m.value().decode()) for m in consumer.consume(500, 0.2)]
        if len(found) >= count:
            until_s = min(until_s, time.monotonic() + 1)
    consumer.close()
    return found
