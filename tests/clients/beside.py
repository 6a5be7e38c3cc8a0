"""Consumers in separate processes that print their partitions: ours, librdkafka's, Java's and Go's."""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path

from tests.storage.real_broker import LIBS

ROOT = Path(__file__).parents[2]
PROGRAMS = Path(__file__).parent / "programs"
STOP_S = 20
CONSUMER = "consumer"
"""In place of a strategy: the coordinator assigns (KIP-848)."""

JAVA_CLASSES = {
    "range": "RangeAssignor",
    "roundrobin": "RoundRobinAssignor",
    "sticky": "StickyAssignor",
    "cooperative-sticky": "CooperativeStickyAssignor",
    CONSUMER: CONSUMER,
}


class Consumer:
    """Process of a consumer. Attributes: lines: its output. owned: its partitions, by its output."""

    def __init__(self, command: list[str]) -> None:
        self.lines: list[str] = []
        self.owned: set[int] = set()
        self._process = subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL, text=True, cwd=ROOT
        )
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            self.lines.append(line.rstrip())
            word, *names = line.split() or [""]
            partitions = {int(name.rpartition("-")[2]) for name in names} if word in WORDS else set()
            self.owned = self.owned | partitions if word == "assigned" else self.owned - partitions

    def said(self, word: str) -> list[list[int]]:
        """Return the partitions of each line that begins with this word."""
        told = [line.split()[1:] for line in self.lines if line.split()[:1] == [word]]
        return [sorted(int(name.rpartition("-")[2]) for name in names) for names in told]

    def stop(self) -> None:
        """Leave the group, and wait for the end of the process."""
        self._process.terminate()
        try:
            self._process.wait(STOP_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            raise AssertionError(f"it does not end:\n{self}") from None
        finally:
            self._reader.join(STOP_S)

    def kill(self) -> None:
        """End it at once, if it still runs."""
        self._process.kill()
        self._process.wait()
        self._reader.join(STOP_S)
        assert self._process.stdout is not None
        self._process.stdout.close()

    def __str__(self) -> str:
        return "\n".join([f"owns {sorted(self.owned)}", *self.lines])


WORDS = ("assigned", "revoked", "lost")


@cache
def programs_folder() -> tempfile.TemporaryDirectory[str]:
    return tempfile.TemporaryDirectory()


@cache
def java_consumer() -> str:
    """Return the folder with Java's consumer, which is compiled once: that takes longer than a consumer to start."""
    folder = programs_folder().name
    compiler = ["javac", "-cp", f"{LIBS}/*", "-d", folder, str(PROGRAMS / "JavaConsumer.java")]
    subprocess.run(compiler, check=True, capture_output=True)
    return folder


@cache
def franz(package: str = ".") -> str | None:
    """Return a program with franz-go, which is built once; None where Go or its packages can't be had.

    Args:
        package: the folder of the program.
    """
    program = Path(programs_folder().name) / f"franz-{Path(package).name}"
    if shutil.which("go") is None:
        return None
    built = subprocess.run(["go", "build", "-o", str(program), package], cwd=PROGRAMS / "franz", capture_output=True)
    return str(program) if built.returncode == 0 else None


def command_of(kind: str, bootstrap: str, group: str, topic: str, strategy: str, *more: str) -> list[str]:
    """Return the command line of a consumer: ``ours``, ``librdkafka``, ``java`` or ``franz``.

    All but ours take more words: an offset to commit for each partition, and, but for franz-go, an instance id.
    """
    if kind == "ours":
        settings: dict[str, object] = {"auto.commit.interval.ms": 500}
        if strategy == CONSUMER:
            settings |= {"group.protocol": CONSUMER}
        else:
            settings |= {"session.timeout.ms": 6_000, "heartbeat.interval.ms": 300}
            settings |= {"partition.assignment.strategy": strategy}
        words = [word for key, value in settings.items() for word in ("--set", f"{key}={value}")]
        return [sys.executable, str(ROOT / "examples/asyncio_member.py"), bootstrap, group, topic, *words]
    if kind == "librdkafka":
        program = str(PROGRAMS / "librdkafka_consumer.py")
        return [sys.executable, program, bootstrap, group, topic, strategy, *more]
    if kind == "franz":
        program = franz() or ""
        return [program, bootstrap, group, topic, strategy, *more]
    options = ["-Xmx128m", "-Dorg.slf4j.simpleLogger.defaultLogLevel=error", "-cp", f"{java_consumer()}:{LIBS}/*"]
    java = ["java", *options, "JavaConsumer", bootstrap, group, topic]
    return [*java, JAVA_CLASSES.get(strategy, strategy), *more]


@contextmanager
def running(kind: str, bootstrap: str, group: str, topic: str, strategy: str, *more: str) -> Iterator[Consumer]:
    """Start a consumer, and see that it is gone afterwards."""
    consumer = Consumer(command_of(kind, bootstrap, group, topic, strategy, *more))
    try:
        yield consumer
    finally:
        consumer.kill()
