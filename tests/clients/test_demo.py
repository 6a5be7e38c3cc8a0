"""``groupcoord demo`` as a user runs it, on a terminal and in a pipe: its output, its status, and what it leaves."""

from __future__ import annotations

import os
import pty
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.clients.fleet import DEADLINE_S
from tests.processes import wait_until

DEMO_S = 120.0
RUN = "from groupcoord.cli import main; main()"
HIDE_LIBRARY = "import sys; sys.modules['kafka'] = None; "
LOSE_OFFSETS = "import groupcoord.cli.demo as demo; demo.committed_offsets = lambda *_: {0: 1}; "

pytestmark = [pytest.mark.ci, pytest.mark.usefixtures("client_libraries")]


class Run:
    """Concurrent demo with a directory for its temporary files."""

    def __init__(self, directory: Path, *words: str, before: str = "") -> None:
        self.directory = directory
        directory.mkdir()
        self._process = subprocess.Popen(
            [sys.executable, "-c", before + RUN, "demo", *words],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env={**os.environ, "TMPDIR": str(directory)},
        )

    def result(self) -> tuple[int, str, str]:
        """Return its exit status, stdout and stderr."""
        output, errors = self._process.communicate(timeout=DEMO_S)
        return self._process.returncode, output, errors

    def end(self) -> None:
        """End it if it still runs, as when a test has failed."""
        self._process.terminate()
        self._process.communicate(timeout=DEADLINE_S)


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Run]]:
    """A demo, and one with lost offsets, at the same time."""
    directory = tmp_path_factory.mktemp("demo")
    runs = {"whole": Run(directory / "whole"), "losing": Run(directory / "losing", before=LOSE_OFFSETS)}
    yield runs
    for run in runs.values():
        run.end()


def processes(text: str) -> set[int]:
    """Return the processes that a demo's output names."""
    return {int(number) for number in re.findall(r"[Pp]rocess (\d+)", text)}


def is_gone(process_id: int) -> bool:
    try:
        stat = Path(f"/proc/{process_id}/stat").read_text()
    except FileNotFoundError:
        return True
    return stat.rpartition(")")[2].split()[0] == "Z"  # an orphan that has ended, until init looks at it


class Terminal:
    """A demo that runs on a terminal."""

    def __init__(self, process: subprocess.Popen[bytes], descriptor: int) -> None:
        self.process = process
        self.shown = ""
        self._descriptor = descriptor

    def read_until(self, pattern: str) -> bool:
        """Read the output until a pattern appears; return whether it came before the end."""
        while not re.search(pattern, self.shown):
            try:
                data = os.read(self._descriptor, 1 << 16)
            except OSError:  # the other end is closed
                return False
            self.shown += re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", data.decode(errors="replace"))
        return True

    def read_to_the_end(self) -> int:
        self.read_until("$^")
        return self.process.wait(DEADLINE_S)


@contextmanager
def on_a_terminal(*words: str) -> Iterator[Terminal]:
    own, others = pty.openpty()
    environment = {**os.environ, "TERM": "xterm", "COLUMNS": "120", "LINES": "40"}
    process = subprocess.Popen(
        [sys.executable, "-c", RUN, "demo", *words], stdin=others, stdout=others, stderr=others, env=environment
    )
    os.close(others)
    try:
        yield Terminal(process, own)
    finally:
        process.terminate()
        process.wait(DEADLINE_S)
        os.close(own)


@pytest.mark.usefixtures("runs")
def test_a_signal_ends_it() -> None:
    """Ctrl-C and the like end it with the status a shell expects, without traceback; even kill -9 leaves nothing."""
    with ThreadPoolExecutor() as pool:
        list(pool.map(_end_by_signal, (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGKILL)))


def _end_by_signal(number: signal.Signals) -> None:
    with on_a_terminal("--quick") as terminal:
        assert terminal.read_until(r"and all commit"), terminal.shown
        children = processes(terminal.shown)
        assert len(children) == 4
        terminal.process.send_signal(number)
        assert terminal.read_to_the_end() == (-number if number is signal.SIGKILL else 128 + number)
        assert "Traceback" not in terminal.shown
        wait_until(lambda: all(map(is_gone, children)), DEADLINE_S, "all processes are gone")


def test_library_not_installed(tmp_path: Path) -> None:
    """Without kafka-python one line has the package to install; exit status 2."""
    status, output, errors = Run(tmp_path / "hidden", before=HIDE_LIBRARY).result()
    assert (status, output, errors.count("\n")) == (2, "", 1)
    assert "pip install 'groupcoord[demo]'" in errors


def test_whole_story(runs: dict[str, Run]) -> None:
    """It prints plain lines, keeps order and acknowledged offsets, and leaves no process or file."""
    status, output, errors = runs["whole"].result()
    assert (status, errors) == (0, ""), output
    assert "\x1b" not in output
    headings = re.findall(r"^\d\. (.*)", output, re.MULTILINE)
    assert (headings[0], headings[-1]) == ("A server starts", "They leave")
    assert output.count("✓") == len(headings) == 6
    assert len(re.findall(r"owns partitions \d", output)) == 3 + 2
    (before,) = re.findall(r"acknowledged before +(.*)", output)
    (after,) = re.findall(r"stored after restart +(.*)", output)
    offsets = [[0 if cell == "-" else int(cell) for cell in row.split()] for row in (before, after)]
    assert [one <= other for one, other in zip(*offsets, strict=True)] == [True] * 6
    assert any(offsets[0])
    assert "1500 of 1500 orders were handled" in output
    assert len(processes(output)) == 4
    assert all(map(is_gone, processes(output)))
    assert list(runs["whole"].directory.iterdir()) == []


def test_lost_offsets(runs: dict[str, Run]) -> None:
    """If offsets are not those that were acknowledged, the demo ends with the reason and exit status 1."""
    status, output, _ = runs["losing"].result()
    assert status == 1
    assert output.endswith("✗ the server does not have the offsets that it acknowledged\n")
    assert "The group goes on" not in output
    assert all(map(is_gone, processes(output)))
    assert list(runs["losing"].directory.iterdir()) == []
