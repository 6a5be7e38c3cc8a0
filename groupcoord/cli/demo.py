"""Demonstration for ``groupcoord demo``: a consumer group survives kill -9 of a consumer and of its server.

The server is ``groupcoord serve``, the consumers use kafka-python, and each is a process. Consumers print reports as
JSON lines: ``owned`` partitions, ``handled`` orders, and ``committed`` offsets once acknowledged.
"""

from __future__ import annotations

import importlib.metadata
import importlib.util
import json
import re
import signal
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable
from contextlib import ExitStack, closing, suppress
from itertools import chain
from pathlib import Path
from subprocess import PIPE, Popen, TimeoutExpired
from typing import Annotated, Any

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
    """Process with its output in files. It ends with this process, but Ctrl-C reaches the parent only."""

    def __init__(self, name: str, log: Path, program: str, *words: str) -> None:
        self.name = name
        self._log, self._output = log, log.with_suffix(".out")
        command = [sys.executable, "-c", END_WITH_PARENT + program, *words]
        with log.open("a") as errors, self._output.open("w") as output:
            self._process = Popen(command, stdin=PIPE, stdout=output, stderr=errors, start_new_session=True)
        self.pid = self._process.pid

    def lines(self) -> list[str]:
        """Return the complete lines of its output."""
        return self._output.read_text().rpartition("\n")[0].splitlines()

    def reports(self, kind: str) -> list[Any]:
        """Return the contents of a consumer's reports of one kind."""
        return [report[kind] for report in map(json.loads, self.lines()) if kind in report]

    def owned(self) -> list[int]:
        return [*chain.from_iterable(self.reports("owned")[-1:])]

    def owned_text(self) -> str:
        return ", ".join(map(str, self.owned()))

    def acknowledged(self) -> dict[int, int]:
        return {int(partition): offset for report in self.reports("committed") for partition, offset in report.items()}

    def check_alive(self) -> None:
        if (status := self._process.poll()) is not None:
            raise DemoError(f"{self.name} ended with status {status}:\n{self._log.read_text()[-2000:]}")

    def kill(self) -> None:
        self._process.kill()
        # A signal handler may call this while the main thread holds the lock that wait() needs.
        with suppress(TimeoutExpired):
            self._process.wait(KILL_S)

    def terminate(self) -> None:
        self._process.terminate()
        self._process.wait(DEADLINE_S)


def consume(bootstrap: str, name: str) -> None:
    """Handle orders as a member of the group, and commit after each batch, until SIGTERM."""
    from kafka import KafkaConsumer  # type: ignore[import-not-found, import-untyped, unused-ignore]
    from kafka.errors import KafkaError  # type: ignore[import-not-found, import-untyped, unused-ignore]

    is_stopping = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: is_stopping.set())
    consumer = KafkaConsumer(
        TOPIC,
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
    owned: list[int] = []
    while not is_stopping.is_set():
        batch = [record for records in consumer.poll(timeout_ms=50).values() for record in records]
        before, owned = owned, sorted(partition.partition for partition in consumer.assignment())
        if owned != before:
            _report(owned=owned)
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
    """Chapters in order, each with its claim, which is checked."""

    def __init__(self, directory: Path, *, is_quick: bool) -> None:
        self._directory = directory
        self._console = open_console()
        self._reading_s = READING_S if self._console.is_terminal and not is_quick else 0.0
        self._produced = 0
        self._children: list[Child] = []
        self._consumers: list[Child] = []
        self._working: list[Child] = []

    def run(self) -> None:
        begin_s = time.monotonic()
        library = f"kafka-python {importlib.metadata.version('kafka-python')}"
        self.show(f"groupcoord {groupcoord.__version__}: a server in Python, consumers of {library}", "bold")
        chapters = {
            "A server starts": self._start_server,
            "Three consumers share the work": self._share_work,
            "A consumer dies": self._kill_consumer,
            "The server dies": self._kill_server,
            "The group goes on": self._finish,
            "They leave": self._leave,
        }
        for number, (heading, show_and_claim) in enumerate(chapters.items(), 1):
            self.show(f"\n{number}. {heading}", "bold")
            claim = show_and_claim()
            self._console.print(Text.assemble(("   ✓ ", "bold green"), claim), soft_wrap=True)
            time.sleep(self._reading_s)
        self.show(f"\nEvery claim was checked, in {time.monotonic() - begin_s:.0f} s.\n{NEXT}", "bold")

    def show(self, text: str, style: str = "") -> None:
        self._console.print(Text(text, style=style), soft_wrap=True)

    def kill_processes(self) -> None:
        for child in self._children:
            child.kill()

    def _start(self, name: str, program: str, *words: str) -> Child:
        self._children.append(Child(name, self._directory / f"{name}.log", program, *words))
        return self._children[-1]

    def _start_server(self) -> str:
        self._open_server("0")
        self.show(f"   groupcoord serve keeps topics, groups and offsets in {self._directory / 'data'}.")
        return f"Process {self._server.pid} listens on {self._bootstrap}."

    def _share_work(self) -> str:
        program = "from groupcoord.cli.demo import consume; consume(*sys.argv[1:])"
        self._consumers = [self._start(name, program, self._bootstrap, name) for name in CONSUMERS]
        self._working = self._consumers.copy()
        self._wait_for_owners()
        self._produce_and_wait_for_commits()
        return f"Each of the {PARTITION_COUNT} partitions of “{TOPIC}” has exactly one owner, and all commit."

    def _kill_consumer(self) -> str:
        self._produce()
        dead = self._working.pop(1)
        dead.kill()
        self.show(f"   kill -9 {dead.pid}: {dead.name} can't say goodbye. It owned partitions {dead.owned_text()}.")
        self.show(f"   Its session expires {SESSION_TIMEOUT_MS / 1000:g} s after its last heartbeat …")
        took_s = self._wait_for_owners()
        self._produce_and_wait_for_commits()
        return f"After {took_s:.1f} s the others own all partitions, and commit."

    def _kill_server(self) -> str:
        self._produce_and_wait_for_commits()
        self._member_ids = describe_group(self._bootstrap)[1]
        self.show(f"   kill -9 {self._server.pid}, then a start on the same port and data directory.")
        self._server.kill()
        acknowledged = self._acknowledged()
        self._open_server(self._bootstrap.rpartition(":")[2])
        stored = committed_offsets(self._bootstrap)
        partitions = range(PARTITION_COUNT)
        numbers = {partition: partition for partition in partitions}
        rows = {"partition": numbers, "acknowledged before": acknowledged, "stored after restart": stored}
        for heading, row in rows.items():
            self.show(f"   {heading:<20}" + "".join(f"{row.get(partition, '-'):>6}" for partition in partitions))
        # A commit that was written but not answered may be stored as well.
        _check_offsets(all(stored.get(partition, -1) >= offset for partition, offset in acknowledged.items()))
        return "Every offset that was acknowledged is there."

    def _finish(self) -> str:
        self._produce()
        expected = f"all {self._produced} orders are handled and committed"
        self._wait(lambda: len(self._handled()) == sum(self._acknowledged().values()) == self._produced, expected)
        handled = self._handled()
        same = describe_group(self._bootstrap)[1] == self._member_ids
        how = "under their old member ids: none had to rejoin" if same else "after they rejoined"
        self.show(f"   The same processes work for the restarted server, {how}.")
        repeated = f"{sum(count > 1 for count in handled.values())} of them twice (at least once is the promise)"
        return f"{len(handled)} of {self._produced} orders were handled, {repeated}."

    def _leave(self) -> str:
        for consumer in self._working:
            consumer.terminate()
        state, _ = describe_group(self._bootstrap)
        if state != "Empty":
            raise DemoError(f"all members have left, but the group is {state}")
        _check_offsets(committed_offsets(self._bootstrap) == self._acknowledged())
        return "The group is empty; its offsets stay."

    def _open_server(self, port: str) -> None:
        options = f"--port {port} --topic {TOPIC}:{PARTITION_COUNT} --set group.min.session.timeout.ms=1000"
        words = ["serve", *options.split(), "--set", "group.initial.rebalance.delay.ms=500"]
        words += ["--data-dir", str(self._directory / "data")]
        self._server = server = self._start("the server", "from groupcoord.cli import main; main()", *words)
        self._wait(lambda: bool(server.lines()), "the server listens")
        self._bootstrap = re.findall(r"listening on (\S+)", server.lines()[0])[0]

    def _wait(self, condition: Callable[[], bool], expected: str) -> float:
        """Wait until a condition holds, and return the seconds it took; raise DemoError after 30 seconds."""
        begin_s = time.monotonic()
        while not condition():
            for child in (self._server, *self._working):
                child.check_alive()
            if time.monotonic() - begin_s > DEADLINE_S:
                raise DemoError(f"{expected}: not within {DEADLINE_S:g} s")
            time.sleep(CHECK_INTERVAL_S)
        return time.monotonic() - begin_s

    def _produce(self) -> None:
        from kafka import KafkaProducer

        producer = KafkaProducer(bootstrap_servers=self._bootstrap, acks="all")
        numbers = range(self._produced, self._produced + ORDERS_PER_CHAPTER)
        sent = [producer.send(TOPIC, str(number).encode(), partition=number % PARTITION_COUNT) for number in numbers]
        for future in sent:
            future.get(DEADLINE_S)
        producer.close()
        self._produced += ORDERS_PER_CHAPTER
        self.show(f"   {ORDERS_PER_CHAPTER} orders are produced.")

    def _wait_for_owners(self) -> float:
        def own_each_once() -> bool:
            owned = [consumer.owned() for consumer in self._working]
            return all(owned) and sorted(chain.from_iterable(owned)) == list(range(PARTITION_COUNT))

        took_s = self._wait(own_each_once, "every partition has one owner")
        for consumer in self._working:
            self.show(f"   {consumer.name} (process {consumer.pid}) owns partitions {consumer.owned_text()}")
        return took_s

    def _produce_and_wait_for_commits(self) -> None:
        before = {consumer: sum(consumer.acknowledged().values()) for consumer in self._working}
        self._produce()
        self._wait(
            lambda: all(sum(each.acknowledged().values()) > count for each, count in before.items()),
            "every consumer commits",
        )

    def _handled(self) -> Counter[int]:
        return Counter(chain.from_iterable(chain(*(consumer.reports("handled") for consumer in self._consumers))))

    def _acknowledged(self) -> dict[int, int]:
        last: dict[int, int] = {}
        for consumer in self._consumers:
            for partition, offset in consumer.acknowledged().items():
                last[partition] = max(offset, last.get(partition, 0))
        return last


def _check_offsets(is_right: bool) -> None:
    if not is_right:
        raise DemoError("the server does not have the offsets that it acknowledged")


def describe_group(bootstrap: str) -> tuple[str, set[str]]:
    """Return the state of the group and the ids of its members (DescribeGroups)."""
    from kafka import KafkaAdminClient

    with closing(KafkaAdminClient(bootstrap_servers=bootstrap)) as admin:
        described = admin.describe_groups([GROUP_ID])[GROUP_ID]
    return described["group_state"], {member["member_id"] for member in described["members"]}


def committed_offsets(bootstrap: str) -> dict[int, int]:
    """Return the group's committed offset of each partition that has one (OffsetFetch)."""
    from kafka import KafkaAdminClient

    with closing(KafkaAdminClient(bootstrap_servers=bootstrap)) as admin:
        found = admin.list_group_offsets(GROUP_ID)[GROUP_ID]
    return {place.partition: committed.offset for place, committed in found.items()}
