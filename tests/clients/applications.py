"""Programs in Java that Maven fetches the libraries for: Kafka Streams and Kafka Connect."""

from __future__ import annotations

import hashlib
import os
import random
import shutil
import subprocess
import time
from collections import defaultdict
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

import pytest

from tests.clients.beside import PROGRAMS
from tests.processes import wait_until

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
    """Run a Java program with its output in a file, and end it."""
    options = ["-Xmx256m", "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn", "-cp", f"{libs}/*"]
    with log.open("ab") as output:
        process = subprocess.Popen(["java", *options, *arguments], stdout=output, stderr=output)
    try:
        yield process
    finally:
        process.kill()
        process.wait()


def consume(bootstrap: str, topic: str, count: int) -> list[tuple[str, str]]:
    """Return (key, value) of the committed records of a topic: a minimum number, and those of one more second."""
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


class WordCount:
    """Instances of a Kafka Streams application that counts the words of the topic ``words`` into ``counts``.

    Attributes:
        words: words to produce.
    """

    def __init__(self, bootstrap: str, jars: Path, folder: Path, *settings: str) -> None:
        chance = random.Random(7)
        self.words = [f"word-{chance.randrange(20)}" for _ in range(4_000)]
        self._bootstrap, self._jars, self._folder, self._settings = bootstrap, jars, folder, settings

    def running(self, name: str) -> AbstractContextManager[subprocess.Popen[bytes]]:
        """Run an instance with its own state."""
        program, state = str(APPLICATIONS / "WordCount.java"), str(self._folder / name)
        arguments = (program, self._bootstrap, "application", state, "words", "counts", *self._settings)
        return running(self._folder / f"{name}.log", self._jars, *arguments)

    def wait_until_running(self, *names: str) -> None:
        logs = [self._folder / f"{name}.log" for name in names]

        def are_running() -> bool:
            return all(log.exists() and "RUNNING" in log.read_text().splitlines() for log in logs)

        wait_until(are_running, START_S, "all instances are running")

    def produce(self, start: int, end: int) -> None:
        """Produce some of the words."""
        from confluent_kafka import Producer

        producer = Producer({"bootstrap.servers": self._bootstrap, "enable.idempotence": True})
        for word in self.words[start:end]:
            producer.produce("words", word)
            producer.poll(0)
        assert producer.flush(LONGEST_S) == 0

    def counts(self) -> tuple[dict[str, list[int]], dict[str, list[int]]]:
        """Return the counts of each word in the topic, and those that are expected."""
        counts = defaultdict(list)
        for word, count in consume(self._bootstrap, "counts", len(self.words)):
            counts[word].append(int(count))
        return counts, {word: list(range(1, self.words.count(word) + 1)) for word in set(self.words)}
