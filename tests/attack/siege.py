"""An attack on a running server from beginning to end, and what must hold at the end of each.

A server is started, offsets are committed that must outlive everything, and a healthy client begins to ask. Then comes
the attack. Afterwards the healthy client must have had every answer, right and soon enough; the server must live, have
let go of every connection, and have no traceback in its log; it is killed, or ended by SIGTERM; and a server that is
started on what it left must know all that was acknowledged.
"""

from __future__ import annotations

import dataclasses
import shutil
import socket
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from tests.attack.healthy import COMMITS_GROUP, PARTITION_COUNT, TOPIC, Findings, Watch
from tests.attack.report import Result
from tests.attack.target import Target
from tests.crash.harness import ask
from tests.crash.processes import ServerFailedError
from tests.crash.requests import commit_errors, fetched_offsets, offset_commit, offset_fetch

WITNESS_COUNT = 30
POLL_S = 0.05

Attack = Callable[[Target, Result], None]
"""Does what it does to a server, and counts it."""


@dataclass(frozen=True)
class Bounds:
    """What is too much.

    Attributes:
        slowest_ms: a healthy client's slowest answer.
        memory_mib: the server's memory at the most.
        release_s: how long the server may hold connections whose clients are gone.
        end_s: how long it may take to end when it gets SIGTERM.
    """

    slowest_ms: float = 500.0
    memory_mib: float = 512.0
    release_s: float = 45.0
    end_s: float = 5.0


@dataclass(frozen=True)
class Siege:
    """How an attack is carried out.

    Attributes:
        bounds: what is too much.
        settings: of the server.
        ends_by_signal: SIGTERM ends the attacked server, while it may still be at work; otherwise it is killed.
        may_be_refused: the log is attacked, so the healthy client's commits may be refused.
        connects: the healthy client opens new connections as well.
        survives: what was acknowledged before and during the attack must be there in the end.
        command: what starts the server, for another way to run the same command.
        keeps: leave the folder for whoever wants to look.
    """

    bounds: Bounds = Bounds()
    settings: dict[str, str | int] = dataclasses.field(default_factory=dict)
    ends_by_signal: bool = False
    may_be_refused: bool = False
    connects: bool = True
    survives: bool = True
    command: list[str] | None = None
    keeps: bool = False

    def ended_by_signal(self) -> Siege:
        """Return one that ends the attacked server by SIGTERM."""
        return dataclasses.replace(self, ends_by_signal=True)

    def run(self, result: Result, attack: Attack, data_dir: Path | None = None) -> Result:
        """Carry it out; what is wrong is in the result."""
        folder = Path(tempfile.mkdtemp(prefix="groupcoord-attack-"))
        target = Target(folder, self.settings, data_dir, self.command)
        try:
            target.start()
            _commit_witnesses(target)
            findings = self._attacked(target, result, attack)
            self._end(target, result)
            self._check_what_is_left(target, result, findings)
        except (ServerFailedError, OSError, AssertionError) as error:
            result.fault(f"{type(error).__name__}: {error}")
        finally:
            target.kill()
            if self.keeps or result.faults:
                result.notes.append(f"everything is in {folder}")
            else:
                shutil.rmtree(folder)
        return result

    def _attacked(self, target: Target, result: Result, attack: Attack) -> Findings:
        watch = Watch(target.port, may_be_refused=self.may_be_refused, connects=self.connects)
        try:
            begin_s = time.monotonic()
            attack(target, result)
            result.duration_s = time.monotonic() - begin_s
            findings = watch.stop()
        finally:
            watch.kill()
        self._judge(result, findings)
        return findings

    def _judge(self, result: Result, findings: Findings) -> None:
        """Take over what the healthy client found."""
        result.healthy_answers += sum(findings["answers"].values())
        result.slowest_ms = findings["slowest_ms"]
        result.faults += findings["faults"]
        if findings["refused"]:
            result.notes.append(f"{findings['refused']} requests of the healthy client were refused")
        slowest_ms, asked = result.slowest
        if slowest_ms > self.bounds.slowest_ms:
            result.fault(f"a healthy client waited {slowest_ms:,.0f} ms for {asked}")

    def _end(self, target: Target, result: Result) -> None:
        """Look at the server for the last time, and end it."""
        if not target.is_alive():
            result.fault("the server has ended by itself")
        else:
            result.memory_mib = target.memory_mib()[1]
            if not self.ends_by_signal:
                self._wait_for_release(target, result)
                target.kill()
            else:
                status, duration_s = target.end()
                if status != 0 or duration_s > self.bounds.end_s:
                    result.fault(f"SIGTERM: exit status {status} after {duration_s:.1f} s")
        if result.memory_mib > self.bounds.memory_mib:
            result.fault(f"the server took {result.memory_mib:,.0f} MiB")
        log = target.log()
        result.log_lines = log.count("\n")
        if "Traceback" in log:
            result.fault(f"a traceback in the log: {log[log.index('Traceback') :][:1_500]}")

    def _wait_for_release(self, target: Target, result: Result) -> None:
        deadline_s = time.monotonic() + self.bounds.release_s
        while (sockets := target.socket_count()) > 0 and time.monotonic() < deadline_s:
            time.sleep(POLL_S)
        result.sockets = sockets
        if sockets:
            result.fault(f"{sockets} connections are held {self.bounds.release_s:g} s after their clients went away")

    def _check_what_is_left(self, target: Target, result: Result, findings: Findings) -> None:
        target.start()
        with target.connect() as sock:
            found = fetched_offsets(ask(sock, offset_fetch(1, COMMITS_GROUP)))
            offsets = {found.get((TOPIC, index), -1) for index in range(PARTITION_COUNT)}
            acknowledged, sent = findings["acknowledged"], findings["sent"]
            is_kept = len(offsets) == 1 and acknowledged <= min(offsets) <= sent
            if self.survives and not is_kept:
                result.fault(f"{acknowledged} was acknowledged and {sent} sent; after a restart there is {found}")
            if self.survives:
                lost = [group_id for group_id in _witnesses() if _fetched(sock, group_id) != _witnesses()[group_id]]
                if lost:
                    result.fault(f"{len(lost)} of {WITNESS_COUNT} groups lost acknowledged offsets: {lost[:3]}")
        status, duration_s = target.end()
        if status != 0 or duration_s > self.bounds.end_s:
            result.fault(f"SIGTERM of the restarted server: exit status {status} after {duration_s:.1f} s")
        if "Traceback" in target.log():
            result.fault(f"a traceback after the restart: {target.log()[:1_500]}")


def _witnesses() -> dict[str, dict[int, int]]:
    """Return what is committed before each attack: group → partition → offset."""
    return {f"witness-{number}": {0: 1_000 + number, 1: 2_000 + number} for number in range(WITNESS_COUNT)}


def _commit_witnesses(target: Target) -> None:
    with target.connect() as sock:
        for group_id, offsets in _witnesses().items():
            errors = commit_errors(ask(sock, offset_commit(1, group_id, -1, "", TOPIC, offsets)))
            assert errors == [0, 0], f"a commit before the attack was refused with {errors}"


def _fetched(sock: socket.socket, group_id: str) -> dict[int, int]:
    return {index: offset for (_, index), offset in fetched_offsets(ask(sock, offset_fetch(1, group_id))).items()}
