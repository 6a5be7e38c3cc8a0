"""Demonstration for ``groupcoord demo``: a consumer group survives kill -9 of a consumer and of its server.

The server is ``groupcoord serve``, the consumers use kafka-python, and each is a process. Consumers print JSON lines:
``owned`` partitions, ``handled`` orders, and ``committed`` offsets once acknowledged.
"""

from __future__ import annotations

import importlib.metadata
import importlib.util
import json
import re
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterable
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import IO, Annotated, Any

import typer
from rich.text import Text

import groupcoord
from groupcoord.cli.console import open_console
from groupcoord.cli.interrupts import FAILED, BeforeTheEnd
from groupcoord.cli.messages import CommandError
from groupcoord.errors import GroupcoordError

TOPIC, PARTITION_COUNT, GROUP_ID = "orders", 6, "demo"
CONSUMERS = ("consumer-1", "consumer-2", "consumer-3")
SESSION_TIMEOUT_MS = 2_000
ORDERS_PER_CHAPTER, ORDERS_PER_POLL, WORK_S = 300, 5, 0.02
DEADLINE_S, KILL_S, READING_S, CHECK_INTERVAL_S = 30.0, 5.0, 1.6, 0.02
NEXT = "Now with your own clients: groupcoord serve --port 9092 --topic orders:6"
END_WITH_PARENT = """\
import os, sys, threading
threading.Thread(target=lambda: (sys.stdin.read(), os._exit(1)), daemon=True).start()
"""


class DemoError(GroupcoordError):
    """A claim of the demonstration does not hold."""


def demo(
    quick: Annotated[bool, typer.Option("--quick", help="Do not pause after each claim.")] = False,
) -> None:
    """Watch a group at work: real clients join over TCP, one dies, nothing is lost when the server is killed.

    Exit status: 0 if every claim holds, 1 if one does not, 2 if kafka-python is not installed.
    """
    if getattr(importlib.util.find_spec("kafka"), "origin", None) is None:
        raise CommandError("kafka-python is not installed; try: pip install 'groupcoord[demo]'")
    with ExitStack() as stack:
        directory = tempfile.TemporaryDirectory(prefix="groupcoord-demo-")
        stack.enter_context(directory)
        stack.enter_context(BeforeTheEnd(directory.cleanup))
        story = Story(Path(directory.name), is_quick=quick)
        stack.enter_context(BeforeTheEnd(story.kill_processes))
        stack.callback(story.kill_processes)
        try:
            story.run()
        except DemoError as error:
            story.show(f"   ✗ {error}", "bold red")
            raise typer.Exit(FAILED) from None


class Child:
    """Process with output read by line. It ends with this process, but Ctrl-C reaches the parent only."""

    def __init__(self, name: str, log: Path, program: str, *words: str) -> None:
        self.name = name
        self._log = log
        with log.open("a") as errors:
            self._process = subprocess.Popen(
                [sys.executable, "-c", END_WITH_PARENT + program, *words],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
                start_new_session=True,
            )
        assert self._process.stdout is not None
        self._reader = threading.Thread(target=self._read, args=(self._process.stdout,), daemon=True)
        self._reader.start()

    @property
    def pid(self) -> int:
        return self._process.pid

    def take(self, line: str) -> None:
        """Handle a line of its output."""

    def check_alive(self) -> None:
        if (status := self._process.poll()) is not None:
            raise DemoError(f"{self.name} ended with status {status}:\n{self._log.read_text()[-2000:]}")

    def kill(self) -> None:
        self._process.kill()
        # A signal handler may call this while the main thread holds the lock that wait() needs.
        with suppress(subprocess.TimeoutExpired):
            self._end(KILL_S)

    def terminate(self) -> None:
        self._process.terminate()
        self._end(DEADLINE_S)

    def _end(self, timeout_s: float) -> None:
        self._process.wait(timeout_s)
        self._reader.join(timeout_s)

    def _read(self, output: IO[str]) -> None:
        for line in output:
            self.take(line)


class DemoServer(Child):
    """``groupcoord serve``, with its port once it listens."""

    def __init__(self, directory: Path, port: int) -> None:
        self.port = 0
        settings = {"group.min.session.timeout.ms": 1_000, "group.initial.rebalance.delay.ms": 500}
        words = ["serve", "--port", str(port), "--data-dir", str(directory / "data")]
        words += ["--topic", f"{TOPIC}:{PARTITION_COUNT}"]
        words += [word for key, value in settings.items() for word in ("--set", f"{key}={value}")]
        super().__init__("the server", directory / "server.log", "from groupcoord.cli import main; main()", *words)

    @property
    def bootstrap(self) -> str:
        return f"127.0.0.1:{self.port}"

    def take(self, line: str) -> None:
        if found := re.search(r"listening on \S+:(\d+)", line):
            self.port = int(found[1])


class Consumer(Child):
    """Process that runs :func:`consume`, and its reports."""

    def __init__(self, directory: Path, bootstrap: str, name: str) -> None:
        self.owned: set[int] = set()
        self.handled: Counter[int] = Counter()
        self.acknowledged: dict[int, int] = {}
        program = "from groupcoord.cli.demo import consume; consume(*sys.argv[1:])"
        super().__init__(name, directory / f"{name}.log", program, bootstrap, name)

    def take(self, line: str) -> None:
        match json.loads(line):
            case {"owned": partitions}:
                self.owned = set(partitions)
            case {"handled": numbers}:
                self.handled.update(numbers)
            case {"committed": offsets}:
                self.acknowledged.update({int(partition): offset for partition, offset in offsets.items()})


def consume(bootstrap: str, name: str) -> None:
    """Handle orders as a member of the group, and commit after each batch, until SIGTERM."""
    from kafka import ConsumerRebalanceListener, KafkaConsumer  # type: ignore[import-not-found, import-untyped, unused-ignore]
    from kafka.errors import KafkaError  # type: ignore[import-not-found, import-untyped, unused-ignore]

    is_stopping = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: is_stopping.set())

    class Reporter(ConsumerRebalanceListener):  # type: ignore[misc, unused-ignore]
        def on_partitions_revoked(self, revoked: Collection[Any]) -> None:
            _report(owned=[])

        def on_partitions_assigned(self, assigned: Collection[Any]) -> None:
            _report(owned=[partition.partition for partition in assigned])

    consumer = KafkaConsumer(
        bootstrap_servers=bootstrap,
        group_id=GROUP_ID,
        client_id=name,
        session_timeout_ms=SESSION_TIMEOUT_MS,
        heartbeat_interval_ms=SESSION_TIMEOUT_MS // 5,
        reconnect_backoff_max_ms=200,
        max_poll_records=ORDERS_PER_POLL,
        auto_offset_reset="earliest",
        enable_auto_commit=False,
    )
    consumer.subscribe([TOPIC], listener=Reporter())
    while not is_stopping.is_set():
        batch = [record for records in consumer.poll(timeout_ms=50).values() for record in records]
        if not batch:
            continue
        time.sleep(WORK_S)
        _report(handled=[int(record.value) for record in batch])
        # Commits fail while the server is down or the group rebalances; their records are handled again.
        with suppress(KafkaError):
            consumer.commit()
            _report(committed={record.partition: record.offset + 1 for record in batch})
    consumer.close()


def _report(**fields: Any) -> None:
    print(json.dumps(fields), flush=True)


class Story:
    """The chapters in order, each with its claims, which are checked."""

    def __init__(self, directory: Path, *, is_quick: bool) -> None:
        self._directory = directory
        self._console = open_console()
        self._reading_s = READING_S if self._console.is_terminal and not is_quick else 0.0
        self._chapter = self._produced = 0
        self._server: DemoServer | None = None
        self._consumers: list[Consumer] = []
        self._working: list[Consumer] = []

    def run(self) -> None:
        begin_s = time.monotonic()
        library = f"kafka-python {importlib.metadata.version('kafka-python')}"
        self.show(f"groupcoord {groupcoord.__version__}: a server in Python, consumers of {library}", "bold")
        self._start_server()
        self._share_work()
        self._kill_consumer()
        self._kill_server()
        self._finish()
        self._leave()
        self.show(f"\nEvery claim was checked, in {time.monotonic() - begin_s:.0f} s.\n{NEXT}", "bold")

    def show(self, text: str, style: str = "") -> None:
        self._console.print(Text(text, style=style), soft_wrap=True)

    def kill_processes(self) -> None:
        for child in (*self._consumers, self._server):
            if child is not None:
                child.kill()

    def _start_server(self) -> None:
        self._begin("A server starts")
        server = self._open_server(port=0)
        self.show(f"   groupcoord serve keeps topics, groups and offsets in {self._directory / 'data'}.")
        self._confirm(f"Process {server.pid} listens on {server.bootstrap}.")

    def _share_work(self) -> None:
        self._begin("Three consumers share the work")
        for name in CONSUMERS:
            self._consumers.append(Consumer(self._directory, self._running.bootstrap, name))
            self._working.append(self._consumers[-1])
        self._wait_for_owners()
        self._produce_and_wait_for_commits()
        self._confirm(f"Each of the {PARTITION_COUNT} partitions of “{TOPIC}” has exactly one owner, and all commit.")

    def _kill_consumer(self) -> None:
        self._begin("A consumer dies")
        self._produce()
        dead = self._working.pop(1)
        dead.kill()
        owned = ", ".join(map(str, sorted(dead.owned)))
        self.show(f"   kill -9 {dead.pid}: {dead.name} can't say goodbye. It owned partitions {owned}.")
        self.show(f"   Its session expires {SESSION_TIMEOUT_MS / 1000:g} s after its last heartbeat …")
        took_s = self._wait_for_owners()
        self._produce_and_wait_for_commits()
        self._confirm(f"After {took_s:.1f} s the others own all partitions, and commit.")

    def _kill_server(self) -> None:
        self._begin("The server dies")
        self._produce_and_wait_for_commits()
        self._member_ids = self._describe_group()[1]
        self.show(f"   kill -9 {self._running.pid}, then a start on the same port and data directory.")
        self._running.kill()
        acknowledged = self._acknowledged()
        self._open_server(self._running.port)
        stored = committed_offsets(self._running.bootstrap)
        self._compare(acknowledged, stored)
        # A commit that was written but not answered may be stored as well.
        if any(stored.get(partition, -1) < offset for partition, offset in acknowledged.items()):
            raise DemoError("the server does not have the offsets that it acknowledged")
        self._confirm("Every offset that was acknowledged is there.")

    def _finish(self) -> None:
        self._begin("The group goes on")
        self._produce()
        expected = f"all {self._produced} orders are handled and committed"
        self._wait(lambda: len(self._handled()) == sum(self._acknowledged().values()) == self._produced, expected)
        handled = self._handled()
        same = self._describe_group()[1] == self._member_ids
        how = "under their old member ids: none had to rejoin" if same else "after they rejoined"
        self.show(f"   The same processes work for the restarted server, {how}.")
        repeated = f"{sum(count > 1 for count in handled.values())} of them twice (at least once is the promise)"
        self._confirm(f"{len(handled)} of {self._produced} orders were handled, {repeated}.")

    def _leave(self) -> None:
        self._begin("They leave")
        for consumer in self._working:
            consumer.terminate()
        state, _ = self._describe_group()
        if state != "Empty":
            raise DemoError(f"all members have left, but the group is {state}")
        if committed_offsets(self._running.bootstrap) != self._acknowledged():
            raise DemoError("the server does not have the offsets that it acknowledged")
        self._confirm("The group is empty; its offsets stay.")

    @property
    def _running(self) -> DemoServer:
        assert self._server is not None
        return self._server

    def _begin(self, heading: str) -> None:
        self._chapter += 1
        self.show(f"\n{self._chapter}. {heading}", "bold")

    def _confirm(self, claim: str) -> None:
        self._console.print(Text.assemble(("   ✓ ", "bold green"), claim), soft_wrap=True)
        time.sleep(self._reading_s)

    def _wait(self, condition: Callable[[], bool], expected: str) -> float:
        """Wait until a condition holds, and return the seconds it took; raise DemoError after 30 seconds."""
        begin_s = time.monotonic()
        while not condition():
            for child in (self._running, *self._working):
                child.check_alive()
            if time.monotonic() - begin_s > DEADLINE_S:
                raise DemoError(f"{expected}: not within {DEADLINE_S:g} s")
            time.sleep(CHECK_INTERVAL_S)
        return time.monotonic() - begin_s

    def _open_server(self, port: int) -> DemoServer:
        self._server = server = DemoServer(self._directory, port)
        self._wait(lambda: server.port != 0, "the server listens")
        return server

    def _produce(self) -> None:
        from kafka import KafkaProducer

        producer = KafkaProducer(bootstrap_servers=self._running.bootstrap, acks="all")
        numbers = range(self._produced, self._produced + ORDERS_PER_CHAPTER)
        sent = [producer.send(TOPIC, str(number).encode(), partition=number % PARTITION_COUNT) for number in numbers]
        for future in sent:
            future.get(DEADLINE_S)
        producer.close()
        self._produced += ORDERS_PER_CHAPTER
        self.show(f"   {ORDERS_PER_CHAPTER} orders are produced.")

    def _own_each_once(self) -> bool:
        owned = [partition for consumer in self._working for partition in consumer.owned]
        return sorted(owned) == list(range(PARTITION_COUNT)) and all(consumer.owned for consumer in self._working)

    def _wait_for_owners(self) -> float:
        took_s = self._wait(self._own_each_once, "every partition has one owner")
        for consumer in self._working:
            owned = ", ".join(map(str, sorted(consumer.owned)))
            self.show(f"   {consumer.name} (process {consumer.pid}) owns partitions {owned}")
        return took_s

    def _produce_and_wait_for_commits(self) -> None:
        before = {consumer: sum(consumer.acknowledged.values()) for consumer in self._working}
        self._produce()

        def have_committed() -> bool:
            return all(sum(each.acknowledged.values()) > count for each, count in before.items())

        self._wait(have_committed, "every consumer commits")

    def _handled(self) -> Counter[int]:
        return sum((consumer.handled.copy() for consumer in self._consumers), Counter())

    def _acknowledged(self) -> dict[int, int]:
        last: dict[int, int] = {}
        for consumer in self._consumers:
            for partition, offset in consumer.acknowledged.copy().items():
                last[partition] = max(offset, last.get(partition, 0))
        return last

    def _describe_group(self) -> tuple[str, set[str]]:
        from kafka import KafkaAdminClient

        admin = KafkaAdminClient(bootstrap_servers=self._running.bootstrap)
        described = admin.describe_groups([GROUP_ID])[GROUP_ID]
        admin.close()
        return described["group_state"], {member["member_id"] for member in described["members"]}

    def _compare(self, acknowledged: dict[int, int], stored: dict[int, int]) -> None:
        def row(heading: str, cells: Iterable[object]) -> None:
            self.show(f"   {heading:<20}" + "".join(f"{cell!s:>6}" for cell in cells))

        partitions = range(PARTITION_COUNT)
        row("partition", partitions)
        row("acknowledged before", (acknowledged.get(partition, "-") for partition in partitions))
        row("stored after restart", (stored.get(partition, "-") for partition in partitions))


def committed_offsets(bootstrap: str) -> dict[int, int]:
    """Return the group's committed offset of each partition that has one (OffsetFetch)."""
    from kafka import KafkaConsumer, TopicPartition

    consumer = KafkaConsumer(bootstrap_servers=bootstrap, group_id=GROUP_ID, enable_auto_commit=False)
    found = {partition: consumer.committed(TopicPartition(TOPIC, partition)) for partition in range(PARTITION_COUNT)}
    consumer.close()
    return {partition: offset for partition, offset in found.items() if offset is not None}
