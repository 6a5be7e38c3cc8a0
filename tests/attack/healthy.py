"""A healthy client beside an attack: ``python -m tests.attack.healthy PORT``, in a process of its own.

It asks one thing after the other and measures each answer: ApiVersions, a member's Heartbeat, a commit and the fetch
that must give it back, and a new connection now and then. It goes on until its standard input ends, and prints what it
found as JSON. An answer that hasn't come by then counts as long as it was waited for.
"""

from __future__ import annotations

import argparse
import json
import select
import socket
import subprocess
import sys
import time
from typing import Any, TypedDict

from tests.crash.requests import (
    Answer,
    commit_errors,
    fetched_offsets,
    frame,
    heartbeat,
    join_group,
    offset_commit,
    offset_fetch,
    sync_group,
)

API_VERSIONS = 18
TOPIC, PARTITION_COUNT = "healthy", 2
PAUSE_S = 0.01
CONNECT_EVERY_S = 0.1
GRACE_S = 1.0
MEMBERS_GROUP, COMMITS_GROUP = "healthy-members", "healthy-commits"
UNKNOWN_MEMBER_ID, REBALANCE_IN_PROGRESS = 25, 27
REFUSALS = (14, 15, 16, UNKNOWN_MEMBER_ID, 22, REBALANCE_IN_PROGRESS, 56)
"""What a coordinator whose log fails may answer; and what a member is told whose session went with it."""


class Findings(TypedDict):
    """What a healthy client saw.

    ``slowest_ms`` and ``answers`` are by what was asked; ``acknowledged`` is the offset of the newest commit that was
    answered, ``sent`` that of the newest that was sent.
    """

    answers: dict[str, int]
    slowest_ms: dict[str, float]
    median_ms: float
    refused: int
    acknowledged: int
    sent: int
    faults: list[str]


class _StoppedError(Exception):
    """The attack is over."""


class HealthyClient:
    """The client itself.

    Args:
        port: of the server.
        may_be_refused: the server's log is attacked, so commits may be refused and sessions lost.
        connects: open new connections as well.
    """

    def __init__(self, port: int, *, may_be_refused: bool, connects: bool) -> None:
        self._port = port
        self._may_be_refused = may_be_refused
        self._connects = connects
        self._times_ms: dict[str, list[float]] = {}
        self._acknowledged = self._sent = -1
        self._refused = 0
        self._faults: list[str] = []
        self._correlation_id = 0
        self._member_id, self._generation_id = "", -1
        self._is_ending = False

    def run(self) -> Findings:
        """Ask until standard input ends."""
        try:
            sock = self._connect()
            print("ready", flush=True)
            last_s = time.monotonic()
            while True:
                self._ask_all(sock)
                if self._connects and time.monotonic() - last_s >= CONNECT_EVERY_S:
                    last_s = time.monotonic()
                    self._ask_anew()
                if select.select([sys.stdin], [], [], PAUSE_S)[0]:
                    break
        except _StoppedError:
            pass
        except (OSError, AssertionError) as error:
            self._faults.append(f"the healthy client got no answer: {type(error).__name__}: {error}")
        times = sorted(time for times in self._times_ms.values() for time in times)
        return Findings(
            answers={name: len(times) for name, times in self._times_ms.items()},
            slowest_ms={name: round(max(times), 2) for name, times in self._times_ms.items()},
            median_ms=round(times[len(times) // 2], 3) if times else 0.0,
            refused=self._refused,
            acknowledged=self._acknowledged,
            sent=self._sent,
            faults=self._faults[:20],
        )

    def _connect(self) -> socket.socket:
        sock = socket.create_connection(("127.0.0.1", self._port), timeout=None)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return sock

    def _ask_anew(self) -> None:
        begin_s = time.monotonic()
        with self._connect() as sock:
            self._ask(sock, "new connection", frame(API_VERSIONS, 0, 1, b""), begin_s)

    def _ask_all(self, sock: socket.socket) -> None:
        self._correlation_id += 1
        number = self._correlation_id
        if self._ask(sock, "ApiVersions", frame(API_VERSIONS, 0, number, b"")).int16():
            self._faults.append("ApiVersions was refused")
        self._beat(sock)
        self._sent += 1
        offsets = dict.fromkeys(range(PARTITION_COUNT), self._sent)
        commit = offset_commit(number, COMMITS_GROUP, -1, "", TOPIC, offsets)
        error = max(commit_errors(self._ask(sock, "OffsetCommit", commit)))
        if not error:
            self._acknowledged = self._sent
        else:
            self._refuse("OffsetCommit", error)
        answer = self._ask(sock, "OffsetFetch", offset_fetch(number, COMMITS_GROUP))
        self._check(answer)

    def _check(self, answer: Answer) -> None:
        try:
            fetched = fetched_offsets(answer)
        except AssertionError:
            self._refuse("OffsetFetch", -1)
            return
        expected = {(TOPIC, index): self._acknowledged for index in range(PARTITION_COUNT)}
        if fetched != (expected if self._acknowledged >= 0 else {}):
            self._faults.append(f"{self._acknowledged} was acknowledged, and fetched is {fetched}")

    def _beat(self, sock: socket.socket) -> None:
        if self._generation_id < 0:
            self._join(sock)
            return
        request = heartbeat(self._correlation_id, MEMBERS_GROUP, self._generation_id, self._member_id)
        answer = self._ask(sock, "Heartbeat", request)
        answer.int32()
        if error := answer.int16():
            self._refuse("Heartbeat", error)
            self._generation_id = -1
            if error == UNKNOWN_MEMBER_ID:
                self._member_id = ""

    def _join(self, sock: socket.socket) -> None:
        for _ in range(2):
            answer = self._ask(sock, "JoinGroup", join_group(self._correlation_id, MEMBERS_GROUP, self._member_id))
            answer.int32()
            error, generation_id = answer.int16(), answer.int32()
            answer.string(), answer.string()
            self._member_id = answer.string()
            if not error:
                break
        else:
            self._refuse("JoinGroup", error)
            return
        assignments = {self._member_id: b"everything"}
        request = sync_group(self._correlation_id, MEMBERS_GROUP, generation_id, self._member_id, assignments)
        answer = self._ask(sock, "SyncGroup", request)
        answer.int32()
        if error := answer.int16():
            self._refuse("SyncGroup", error)
        else:
            self._generation_id = generation_id

    def _refuse(self, what: str, error: int) -> None:
        self._refused += 1
        if not self._may_be_refused or error not in (*REFUSALS, -1):
            self._faults.append(f"{what} was refused with {error}")

    def _ask(self, sock: socket.socket, name: str, request: bytes, begin_s: float | None = None) -> Answer:
        begin_s = begin_s or time.monotonic()
        sock.sendall(request)
        buffer = bytearray()
        stop_s: float | None = None
        while len(buffer) < 4 or len(buffer) < 4 + int.from_bytes(buffer[:4], "big"):
            watched: list[Any] = [sock] if stop_s else [sock, sys.stdin]
            ready, _, _ = select.select(watched, [], [], 0.05 if stop_s else 1.0)
            now_s = time.monotonic()
            if sys.stdin in ready and not stop_s:
                stop_s = now_s + GRACE_S
            if sock in ready:
                part = sock.recv(65_536)
                assert part, f"the server closed the connection before it answered {name}"
                buffer += part
            elif stop_s and now_s >= stop_s:
                self._note(name, begin_s)
                self._faults.append(f"{name} was not answered in {now_s - begin_s:.1f} s")
                raise _StoppedError
        self._note(name, begin_s)
        return Answer(bytes(buffer[8:]))

    def _note(self, name: str, begin_s: float) -> None:
        self._times_ms.setdefault(name, []).append(1000 * (time.monotonic() - begin_s))


class Watch:
    """A healthy client's process, as the attack sees it.

    Args:
        port: of the server.
        may_be_refused: as for :class:`HealthyClient`.
        connects: as for :class:`HealthyClient`.
    """

    def __init__(self, port: int, *, may_be_refused: bool = False, connects: bool = True) -> None:
        arguments = [sys.executable, "-m", "tests.attack.healthy", str(port)]
        arguments += ["--may-be-refused"] * may_be_refused + ["--no-connections"] * (not connects)
        self._process = subprocess.Popen(arguments, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        assert self._process.stdout is not None
        assert self._process.stdout.readline() == "ready\n", "the healthy client can't connect"

    def stop(self) -> Findings:
        """End it; return what it found."""
        output, _ = self._process.communicate(timeout=60)
        findings: Findings = json.loads(output)
        return findings

    def kill(self) -> None:
        """End it, whatever it does."""
        if self._process.poll() is None:
            self._process.kill()
            self._process.communicate()


def main() -> None:
    """Run the client until standard input ends, and print what it found."""
    parser = argparse.ArgumentParser(prog="python -m tests.attack.healthy", description=__doc__)
    parser.add_argument("port", type=int)
    parser.add_argument("--may-be-refused", action="store_true")
    parser.add_argument("--no-connections", action="store_true")
    options = parser.parse_args()
    client = HealthyClient(options.port, may_be_refused=options.may_be_refused, connects=not options.no_connections)
    print(json.dumps(client.run()))


if __name__ == "__main__":
    main()
