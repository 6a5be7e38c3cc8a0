"""One test in a process that is killed at its time-out."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import time
from pathlib import Path

from attrs import frozen

from tests.peers.suite import Outcome, Suite


@frozen
class Attempt:
    """What became of a test here.

    Attributes:
        test: its name.
        outcome: what became of it; a test that ran out of time failed.
        seconds: how long it took.
        output: where all that it wrote is.
    """

    test: str
    outcome: Outcome
    seconds: float
    output: Path


def attempt(suite: Suite, folder: Path, test: str, bootstrap: str, output: Path) -> Attempt:
    """Run one test of a suite against a server, and end all its processes afterwards.

    Args:
        suite: the suite.
        folder: what it was built in.
        test: the test's name.
        bootstrap: the server's address.
        output: where to write what it says.
    """
    command = suite.command(folder, test, bootstrap)
    begin_s = time.monotonic()
    with open(output, "wb") as file:
        process = subprocess.Popen(
            command.words,
            cwd=command.folder,
            env=command.full_environment(),
            stdin=subprocess.DEVNULL,
            stdout=file,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        try:
            status = process.wait(timeout=suite.timeout_s)
        except subprocess.TimeoutExpired:
            status = -signal.SIGKILL
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
    seconds = time.monotonic() - begin_s
    text = output.read_text("utf-8", errors="replace")
    outcome = Outcome.FAILED if status == -signal.SIGKILL else suite.outcome(status, text)
    return Attempt(test, outcome, seconds, output)
