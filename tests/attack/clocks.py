"""Clocks that step: the wall clock of a server jumps, the machine sleeps, and a server starts in another year."""

from __future__ import annotations

import dataclasses
import os
import signal
import sys
import tempfile
import time
from pathlib import Path

from tests.attack.report import Result
from tests.attack.siege import Attack, Siege
from tests.attack.stepped_clock import STEPS_FILE, read_step
from tests.attack.target import Target
from tests.crash.harness import ask
from tests.crash.requests import commit_errors, fetched_offsets, frame, offset_commit, offset_fetch

HOUR_S, DAY_S, YEAR_S = 3_600.0, 86_400.0, 31_536_000.0
STEPS_S = (HOUR_S, -HOUR_S, DAY_S, -DAY_S, 10 * YEAR_S, -10 * YEAR_S, -0.001, 0.0)
STEP_PAUSE_S = 0.5
SLEEP_S = 3.0
API_VERSIONS = 18
COMMAND = [sys.executable, "-m", "tests.attack.stepped_clock", "serve"]
START_OFFSETS_S = (-DAY_S, DAY_S, -10 * YEAR_S)
"""Ten years ahead would be more than ``offsets.retention.minutes``, and offsets rightly gone."""


def clock_steps(siege: Siege, replay: str) -> Result:
    """The wall clock jumps forth and back under a running server: nobody is expired, nothing waits."""

    def attack(target: Target, result: Result) -> None:
        path = Path(os.environ[STEPS_FILE])
        for step_s in STEPS_S:
            _step(path, step_s)
            time.sleep(STEP_PAUSE_S)
            with target.connect() as sock:
                ask(sock, frame(API_VERSIONS, 0, 1, b""))
            result.count("steps of the clock")

    return _with_steps(siege, "the wall clock steps", replay, attack)


def sleeping_machine(siege: Siege, replay: str) -> Result:
    """The server's process stands still for seconds, as on a machine that sleeps; then everybody is answered."""
    bounds = dataclasses.replace(siege.bounds, slowest_ms=siege.bounds.slowest_ms + 1_000 * SLEEP_S)

    def attack(target: Target, result: Result) -> None:
        os.kill(target.pid, signal.SIGSTOP)
        time.sleep(SLEEP_S)
        os.kill(target.pid, signal.SIGCONT)
        time.sleep(STEP_PAUSE_S)
        result.count("pauses")

    slow = dataclasses.replace(siege, bounds=bounds)
    return slow.run(Result("clocks", f"the process stands still for {SLEEP_S:g} s", replay), attack)


def other_years(siege: Siege, replay: str) -> Result:
    """A server starts while its clock is far from where it was: what was committed before is there."""

    def attack(target: Target, result: Result) -> None:
        path = Path(os.environ[STEPS_FILE])
        for offset_s in START_OFFSETS_S:
            _step(path, offset_s)
            # On data of its own: the attacked server goes on meanwhile.
            folder = target.folder / f"started-{offset_s:.0f}"
            folder.mkdir()
            _start_with_other_clock(folder, path, result)
            result.count("starts")

    return _with_steps(siege, "a server starts in another year", replay, attack)


def _start_with_other_clock(folder: Path, path: Path, result: Result) -> None:
    """Commit now, start with the clock as it was before, look, commit, start again with the other clock."""
    offset_s = read_step(path)
    server = Target(folder, command=COMMAND)
    offset = 0
    try:
        for now_s in (0.0, offset_s, 0.0):
            _step(path, now_s)
            server.start()
            with server.connect() as sock:
                found = fetched_offsets(ask(sock, offset_fetch(1, "years")))
                if found != ({("orders", 0): offset} if offset else {}):
                    result.fault(f"{offset} was acknowledged; {now_s:+.0f} s off there is {found}")
                offset += 1
                errors = commit_errors(ask(sock, offset_commit(1, "years", -1, "", "orders", {0: offset})))
                if errors != [0]:
                    result.fault(f"a commit {now_s:+.0f} s off was refused with {errors}")
            server.kill()
    finally:
        server.kill()


def _with_steps(siege: Siege, case: str, replay: str, attack: Attack) -> Result:
    """Run an attack on a server whose wall clock follows a file."""
    with tempfile.NamedTemporaryFile("w", prefix="groupcoord-clock-") as file:
        os.environ[STEPS_FILE] = file.name
        try:
            return dataclasses.replace(siege, command=COMMAND).run(Result("clocks", case, replay), attack)
        finally:
            del os.environ[STEPS_FILE]


def _step(path: Path, offset_s: float) -> None:
    path.write_text(repr(offset_s))
