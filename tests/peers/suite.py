"""Interface of a suite: build, run of one test, and its outcome."""

from __future__ import annotations

import enum
import os
from collections.abc import Callable, Mapping
from pathlib import Path

from attrs import field, frozen


class UnavailableError(Exception):
    """A suite can't be built or run here. The message is one line with what is missing."""


class Outcome(enum.Enum):
    """Outcome of a test."""

    PASSED = "passed"
    FAILED = "failed"
    SKIPPED = "skipped"


@frozen
class Command:
    """Command of one test, in a process of its own. Attributes: words: the program and its arguments. folder: the
    working directory. environment: additional variables.
    """

    words: tuple[str, ...]
    folder: Path
    environment: Mapping[str, str] = field(factory=dict)

    def full_environment(self) -> dict[str, str]:
        return os.environ | dict(self.environment)


@frozen
class Suite:
    """The tests of one client.

    Attributes:
        name: what it is called; its tests are listed in ``expected/NAME.txt``.
        build: fetches and builds what isn't there yet below a folder; returns a folder to run tests in. Raises
            :class:`UnavailableError`.
        command: makes the command of a test from that folder, the test's name and the server's address.
        outcome: reads what became of a test from its exit status and its output.
        settings: those of the broker that differ from the defaults, as ``key=value``.
        timeout_s: how long a test may take.
        source: of this checkout, what is built; None: all of it is fetched.
    """

    name: str
    build: Callable[[Path], Path]
    command: Callable[[Path, str, str], Command]
    outcome: Callable[[int, str], Outcome]
    settings: tuple[str, ...] = ()
    timeout_s: float = 100.0
    source: Path | None = None


def outcome_of_go(status: int, output: str) -> Outcome:
    """Read what became of a Go test that was run alone with ``-test.v``."""
    if status != 0 or "\n--- PASS" not in f"\n{output}":
        return Outcome.SKIPPED if status == 0 and "--- SKIP" in output else Outcome.FAILED
    return Outcome.PASSED
