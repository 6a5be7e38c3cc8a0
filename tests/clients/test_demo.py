"""``groupcoord demo`` as a user runs it: what it tells, on a terminal and in a pipe, and that nothing stays behind."""

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

from groupcoord.cli.demo_processes import wait_until
from tests.clients.fleet import DEADLINE_S, LIBRARIES

DEMO_S = 120.0
RUN = "from groupcoord.cli import main; main()"
HIDE_LIBRARIES = "import sys; sys.modules.update(dict.fromkeys(['kafka', 'aiokafka', 'confluent_kafka'])); "
LOSE_OFFSETS = "import groupcoord.cli.demo as demo; demo.committed_offsets = lambda *_: {0: 1}; "

pytestmark = [pytest.mark.ci, pytest.mark.usefixtures("client_libraries")]


class Run:
    """A demo that runs while other things are tested. Its temporary files go to a directory of their own."""

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
        """Return its exit status, what it told, and its stderr."""
        told, errors = self._process.communicate(timeout=DEMO_S)
        return self._process.returncode, told, errors

    def end(self) -> None:
        """End it if it still runs, as when a test has failed."""
        self._process.terminate()
        self._process.communicate(timeout=DEADLINE_S)


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Run]]:
    """Demos with each library, and one that loses offsets, all at the same time."""
    directory = tmp_path_factory.mktemp("demo")
    runs = {library: Run(directory / library, "--client", library) for library in LIBRARIES}
    runs["losing"] = Run(directory / "losing", before=LOSE_OFFSETS)
    yield runs
    for run in runs.values():
        run.end()


def processes(text: str) -> set[int]:
    """Return the processes that a demo's output names."""
    return {int(number) for number in re.findall(r"(?:[Pp]rocess|member-\d +\S \w+) +(\d+)", text)}


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
        """Read what it shows until a pattern has been seen; tell whether it was before the end."""
        while not re.search(pattern, self.shown):
            try:
                data = os.read(self._descriptor, 1 << 16)
            except OSError:  # the other end is closed
                return False
            self.shown += re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", data.decode(errors="replace"))
        return True

    def read_to_the_end(self) -> int:
        """Read all it shows; return its exit status."""
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
def test_on_a_terminal() -> None:
    """A table shows the processes as they work, are killed, and leave; it ends with status 0."""
    with on_a_terminal("--quick") as terminal:
        for pattern in (
            r"member-1 +… joins",
            r"member-3 +● works +\d+ +4:\d+ +5:\d+",
            r"member-2 +✗ killed",
            r"● paused",
            r"All was as told",
        ):
            assert terminal.read_until(pattern), terminal.shown[-2000:]
        assert terminal.read_to_the_end() == 0


@pytest.mark.usefixtures("runs")
def test_a_signal_ends_it() -> None:
    """Ctrl-C and the like end it with the status a shell expects, without traceback; even kill -9 leaves nothing."""
    with ThreadPoolExecutor() as pool:
        list(pool.map(_end_by_signal, (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGKILL)))


def _end_by_signal(number: signal.Signals) -> None:
    with on_a_terminal("--quick") as terminal:
        assert terminal.read_until(r"member-3 +● works"), terminal.shown
        children = processes(terminal.shown)
        assert len(children) == 4
        terminal.process.send_signal(number)
        assert terminal.read_to_the_end() == (-number if number is signal.SIGKILL else 128 + number)
        assert "Traceback" not in terminal.shown
        wait_until(lambda: all(map(is_gone, children)), DEADLINE_S, "all processes are gone")


@pytest.mark.parametrize(
    ("words", "named"), [([], "pip install 'groupcoord[demo]'"), (["--client", "aiokafka"], "pip install aiokafka")]
)
def test_a_library_that_is_not_installed(tmp_path: Path, words: list[str], named: str) -> None:
    """Without any client library, or without the one asked for, one line says what to install; exit status 2."""
    status, told, errors = Run(tmp_path / "hidden", *words, before=HIDE_LIBRARIES).result()
    assert (status, told, errors.count("\n")) == (2, "", 1)
    assert named in errors


@pytest.mark.parametrize("library", LIBRARIES)
def test_the_whole_story(runs: dict[str, Run], library: str) -> None:
    """It is told in plain lines, in well under a minute, with any of the libraries; nothing stays behind."""
    status, told, errors = runs[library].result()
    assert (status, errors) == (0, ""), told
    assert "\x1b" not in told
    assert f"clients that are {library} " in told
    headings = re.findall(r"^\d\. (.*)", told, re.MULTILINE)
    assert (headings[0], headings[-1]) == ("A server starts", "They leave")
    assert told.count("✓") == len(headings) + 1
    assert len(re.findall(r"owns partitions \d", told)) == 3 + 2
    (before,) = re.findall(r"acknowledged before +(.*)", told)
    (after,) = re.findall(r"stored after restart +(.*)", told)
    assert before == after
    assert [int(offset) > 0 for offset in before.split()] == [True] * 6
    assert len(processes(told)) >= 4
    assert all(map(is_gone, processes(told)))
    assert list(runs[library].directory.iterdir()) == []


def test_something_not_as_told(runs: dict[str, Run]) -> None:
    """If offsets are not what was acknowledged, the story ends there with the reason and exit status 1."""
    status, told, _ = runs["losing"].result()
    assert status == 1
    assert told.endswith("✗ the server does not have the offsets that it acknowledged\n")
    assert "The group goes on" not in told
    assert all(map(is_gone, processes(told)))
    assert list(runs["losing"].directory.iterdir()) == []
