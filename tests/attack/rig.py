"""Rig of the attacks: a server in a process of its own, a healthy client in another, and what must hold afterwards.

Offsets are committed before each attack. During it the healthy client commits, fetches, sends heartbeats and connects.
Afterwards all its requests must have succeeded in time, the server must have released every connection and logged no
traceback, and a server that is started on the same directory must have everything that was acknowledged.
"""

from __future__ import annotations

import multiprocessing
import os
import re
import shutil
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from pathlib import Path
from typing import NamedTuple

from tests.client import (
    Client,
    api_versions,
    commit_errors,
    fetched_offsets,
    heartbeat,
    join_group,
    offset_commit,
    offset_fetch,
    sync_group,
)
from tests.processes import ProcessError, ServerProcess, wait_until

MIB = 1_048_576
TOPICS = {"healthy": 2, "orders": 6, "bills": 1, "wide": 2_000}
SETTINGS: dict[str, str | int] = {
    "group.initial.rebalance.delay.ms": 0,
    "group.streams.initial.rebalance.delay.ms": 0,
    "offsets.topic.num.partitions": 3,
}
TOPIC, PARTITIONS, COMMITS, MEMBERS = "healthy", range(2), "healthy-commits", "healthy-members"
WITNESSES = {f"witness-{number}": {0: 1_000 + number, 1: 2_000 + number} for number in range(30)}
PAUSE_S, CONNECT_EVERY_S, PATIENCE_S = 0.01, 0.25, 120.0


@dataclass
class Result:
    """What an attack did and found.

    Attributes:
        inputs: how much was sent, by what it is.
        slowest: the healthy client's longest wait in milliseconds, and for which API.
        memory_mib: the server's largest resident set.
        again: options that repeat it, if they are not its name and seed.
        faults: what must not have happened.
    """

    kind: str
    name: str
    inputs: Counter[str] = field(default_factory=Counter)
    slowest: tuple[float, str] = (0.0, "")
    memory_mib: float = 0.0
    again: str = ""
    notes: list[str] = field(default_factory=list)
    faults: list[str] = field(default_factory=list)

    def count(self, what: str, number: int = 1) -> None:
        self.inputs[what] += number

    def fault(self, text: str) -> None:
        self.faults.append(text)

    def expect(self, condition: bool, text: str) -> None:
        if not condition:
            self.fault(text)

    def __str__(self) -> str:
        wait_ms, api = self.slowest
        figures = [f"{number:,} {what}" for what, number in self.inputs.items()]
        figures += [f"slowest answer {wait_ms:,.0f} ms ({api})"] if api else []
        figures += [f"{self.memory_mib:,.0f} MiB"] if self.memory_mib else []
        state = f"{len(self.faults)} faults" if self.faults else "held"
        return "\n  ".join([f"{self.kind}, {self.name}: {state}; {', '.join(figures)}", *self.notes, *self.faults])


@dataclass(frozen=True)
class Bounds:
    """Limits for a server under attack.

    Attributes:
        slowest_ms: longest wait of the healthy client.
        memory_mib: largest resident set of the server.
        release_s: how long the server may hold connections whose clients are gone.
        end_s: how long it may take to end after SIGTERM.
    """

    slowest_ms: float = 500.0
    memory_mib: float = 512.0
    release_s: float = 45.0
    end_s: float = 5.0


class Server(ServerProcess):
    """Server under attack; ``last_words`` holds its whole log."""

    kept_lines = None

    def __init__(self, folder: Path, settings: Mapping[str, str | int]) -> None:
        self.data_dir = folder
        super().__init__(folder, topics=TOPICS, settings={**SETTINGS, **settings})
        self._quiet_sockets = self._all_sockets()

    def memory_mib(self) -> float:
        """Return the largest resident set since it started."""
        found = re.search(r"VmHWM:\s*(\d+)", Path(f"/proc/{self.pid}/status").read_text())
        assert found is not None
        return int(found[1]) / 1024

    def socket_count(self) -> int:
        return self._all_sockets() - self._quiet_sockets

    def connect(self, timeout_s: float = 30.0) -> Client:
        return Client(self.port, timeout_s)

    def end(self, result: Result, end_s: float) -> None:
        """Send SIGTERM, and check the exit status and how long it takes."""
        begin_s = time.monotonic()
        try:
            status: int | None = self.stop()
        except ProcessError:
            status = None
        duration_s = time.monotonic() - begin_s
        result.expect(status == 0 and duration_s <= end_s, f"SIGTERM: exit status {status} after {duration_s:.1f} s")

    def check_log(self, result: Result) -> None:
        log = "\n".join(self.last_words)
        result.expect("Traceback" not in log, f"a traceback in the log: {log[-1_500:]}")

    def _all_sockets(self) -> int:
        folder, count = f"/proc/{self.pid}/fd", 0
        for name in os.listdir(folder):
            with suppress(FileNotFoundError):
                count += os.readlink(f"{folder}/{name}").startswith("socket:")
        return count


Act = Callable[[Server, Result], None]


@dataclass(frozen=True)
class Attack:
    """Attack on a server.

    Attributes:
        act: sends to the server, and counts what.
        settings: of the server.
        ends_by_signal: whether SIGTERM ends the server, perhaps while it is still busy, instead of SIGKILL.
    """

    name: str
    act: Act
    settings: Mapping[str, str | int] = field(default_factory=dict)
    ends_by_signal: bool = False

    def run(self, result: Result, bounds: Bounds) -> None:
        """Start a server, attack it, and check what is left of it."""
        folder = Path(tempfile.mkdtemp(prefix="groupcoord-attack-"))
        servers = [Server(folder, self.settings)]
        (server,) = servers
        try:
            with server.connect() as client:
                for group_id, offsets in WITNESSES.items():
                    assert commit_errors(client.ask(offset_commit(group_id, TOPIC, offsets))) == [0, 0]
            healthy = HealthyProcess(server.port)
            try:
                self.act(server, result)
                findings = healthy.stop()
            finally:
                healthy.kill()
            result.slowest = findings.slowest
            result.faults += findings.faults
            result.expect(findings.slowest[0] <= bounds.slowest_ms, f"a healthy client waited {findings.slowest}")
            self._end(server, result, bounds)
            servers.append(Server(folder, self.settings))
            _check_offsets(servers[-1], result, findings)
            servers[-1].end(result, bounds.end_s)
            servers[-1].check_log(result)
        except (ProcessError, OSError, AssertionError) as error:
            result.fault(f"{type(error).__name__}: {error}")
        finally:
            for server in servers:
                server.kill()
            if result.faults:
                result.notes.append(f"the data is in {folder}")
            else:
                shutil.rmtree(folder)

    def _end(self, server: Server, result: Result, bounds: Bounds) -> None:
        server.check_alive()
        result.memory_mib = server.memory_mib()
        if self.ends_by_signal:
            server.end(result, bounds.end_s)
        else:
            try:
                wait_until(lambda: server.socket_count() <= 0, bounds.release_s, "connections are released")
            except ProcessError as error:
                result.fault(f"{server.socket_count()} connections are held: {error}")
            server.kill()
        result.expect(result.memory_mib <= bounds.memory_mib, f"the server took {result.memory_mib:,.0f} MiB")
        server.check_log(result)


def _check_offsets(server: Server, result: Result, findings: Findings) -> None:
    with server.connect() as client:
        found = fetched_offsets(client.ask(offset_fetch(COMMITS)))
        offsets = {found.get((TOPIC, index), -1) for index in PARTITIONS}
        result.expect(
            len(offsets) == 1 and findings.acknowledged <= min(offsets) <= findings.sent,
            f"{findings.acknowledged} was acknowledged, {findings.sent} sent; after a restart there is {found}",
        )
        for group_id, committed in WITNESSES.items():
            expected = {(TOPIC, index): offset for index, offset in committed.items()}
            found = fetched_offsets(client.ask(offset_fetch(group_id)))
            result.expect(found == expected, f"{group_id} lost acknowledged offsets: {found}")


class Findings(NamedTuple):
    """Findings of a healthy client."""

    slowest: tuple[float, str]
    acknowledged: int
    sent: int
    faults: list[str]


class HealthyClient:
    """Client whose requests must all succeed: ApiVersions, Heartbeat, OffsetCommit, OffsetFetch, new connections."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._client = Client(port, PATIENCE_S)
        self.acknowledged = self.sent = -1
        self.slowest = (0.0, "")
        member_id = self._client.ask(join_group(MEMBERS))["member_id"]
        joined = self._client.ask(join_group(MEMBERS, member_id))
        self._member = joined["generation_id"], joined["member_id"]
        self._client.ask(sync_group(MEMBERS, *self._member, {member_id: b"everything"}))

    def ask_all(self) -> None:
        """Send one request of each kind.

        Raises:
            AssertionError: an error code, or offsets that were not acknowledged last.
        """
        with self._timed("ApiVersions"):
            assert self._client.ask(api_versions())["error_code"] == 0
        with self._timed("Heartbeat"):
            assert self._client.ask(heartbeat(MEMBERS, *self._member))["error_code"] == 0
        self.sent += 1
        with self._timed("OffsetCommit"):
            commit = offset_commit(COMMITS, TOPIC, dict.fromkeys(PARTITIONS, self.sent))
            errors = commit_errors(self._client.ask(commit))
        assert not any(errors), f"OffsetCommit failed with {errors}"
        self.acknowledged = self.sent
        with self._timed("OffsetFetch"):
            found = fetched_offsets(self._client.ask(offset_fetch(COMMITS)))
        assert set(found.values()) == {self.acknowledged}, f"{self.acknowledged} was acknowledged, and {found} fetched"

    def connect(self) -> None:
        with self._timed("a new connection"), Client(self._port, PATIENCE_S) as client:
            client.ask(api_versions())

    @contextmanager
    def _timed(self, what: str) -> Iterator[None]:
        begin_s = time.monotonic()
        try:
            yield
        finally:
            self.slowest = max(self.slowest, (1_000 * (time.monotonic() - begin_s), what))


class HealthyProcess:
    """Healthy client in a separate process, whose waits do not depend on the attack's CPU use."""

    def __init__(self, port: int) -> None:
        context = multiprocessing.get_context("spawn")
        self._pipe, there = context.Pipe()
        self._process = context.Process(target=_be_healthy, args=(port, there), daemon=True)
        self._process.start()
        there.close()
        assert self._pipe.recv() == "ready"

    def stop(self) -> Findings:
        self._pipe.send("stop")
        findings: Findings = self._pipe.recv()
        return findings

    def kill(self) -> None:
        self._process.kill()
        self._process.join()
        self._pipe.close()


def _be_healthy(port: int, pipe: Connection) -> None:
    client, faults = HealthyClient(port), []
    pipe.send("ready")
    last_s = time.monotonic()
    try:
        while True:
            client.ask_all()
            if time.monotonic() - last_s >= CONNECT_EVERY_S:
                last_s = time.monotonic()
                client.connect()
            if pipe.poll(PAUSE_S):
                break
    except (OSError, AssertionError) as error:
        faults.append(f"the healthy client: {type(error).__name__}: {error}")
    pipe.send(Findings(client.slowest, client.acknowledged, client.sent, faults))
