"""Signals to ``groupcoord analyze``: exit status, no output of Java and its bridge, no files left."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest

from tests.cli.interrupted import DEADLINE_S, children, interrupted, is_gone, on_a_terminal

pytestmark = pytest.mark.ci

LAUNCH = "bin/spark-submit"
"""What Spark runs to start Java."""


def check_quiet(text: str) -> None:
    """There may be lines about Java's start, but no stack."""
    for sign in ("Traceback", "Exception", "\tat ", "KeyboardInterrupt", "Py4J"):
        assert sign not in text


@pytest.mark.parametrize(("number", "status"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)], ids=["SIGINT", "SIGTERM"])
def test_a_signal_while_java_starts(tmp_path: Path, broker_log: Path, number: signal.Signals, status: int) -> None:
    """It ends with Java, and removes the files of the start."""
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    words = ("analyze", str(broker_log), "--engine", "spark", "--out", str(tmp_path / "out"))
    with interrupted(temporary, *words, moment=1, number=number, text=LAUNCH) as run:
        ended, errors = run.result()
        check_quiet(errors)
        assert ended == status, errors
    assert list(temporary.iterdir()) == []


@pytest.mark.slow
@pytest.mark.parametrize("step", ["reading the log", "offsets and histories of groups"])
def test_a_signal_while_it_works(tmp_path: Path, broker_log: Path, step: str) -> None:
    """In the midst of a call to Java it ends at once, with Java."""
    with on_a_terminal(tmp_path, "analyze", broker_log, "--engine", "spark", "--out", tmp_path / "out") as (run, shown):
        assert shown(step)
        java = children(run.process.pid)
        run.send(signal.SIGINT)
        assert run.process.wait(DEADLINE_S) == 130
        assert all(map(is_gone, java))
        shown("$^")  # all that is left
        check_quiet(shown.text)
