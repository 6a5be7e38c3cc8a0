"""Ctrl-C, SIGTERM and SIGHUP at every moment of a command: a status, no traceback, nothing left behind."""

from __future__ import annotations

import shlex
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from groupcoord import cli
from tests.processes import wait_until

from .interrupted import DEADLINE_S, children, interrupted, is_gone, on_a_terminal
from .test_dump import COMMIT, batch

SERVE = ("serve", "--port", "0")
SIMULATE = ("simulate", "--seeds", "1", "--jobs", "1")
CONFORMANCE = ("conformance", "--area", "versions")
DUMP = ("dump", "--format", "table", "LOG")
DEMO = ("demo", "--quick")
TALK_FIRST = (SERVE, DEMO)
"""These print a line when they have started, the others when they have ended."""

SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


@pytest.fixture(name="folder", scope="module")
def _folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("interrupts")


@pytest.fixture(name="log", scope="module")
def _log(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a segment file with more printed records than a pipe holds."""
    path = tmp_path_factory.mktemp("log") / f"{0:020d}.log"
    path.write_bytes(b"".join(batch(offset, COMMIT) for offset in range(5_000)))
    return path


def words_of(command: tuple[str, ...], log: Path) -> list[str]:
    return [str(log) if word == "LOG" else word for word in command]


def expected_status(command: tuple[str, ...], number: signal.Signals) -> int:
    return 0 if command is SERVE else 128 + number


def check_moments(folder: Path, command: tuple[str, ...], log: Path, sample_size: int) -> None:
    """Interrupt the start of a command at a number of its moments, from the first to the last."""
    if command is DEMO:
        pytest.importorskip("kafka")
    words = words_of(command, log)
    # The first start may have to write the modules' bytecode, which takes more moments than the others have.
    for _ in range(2):
        with interrupted(folder, *words) as run:
            if command in TALK_FIRST:
                assert run.line(), run.result()
            else:
                assert run.result()[0] == 0
            total = run.moments
    assert total > 500, "a start without imports"
    # The last hundredth is for what differs from run to run.
    for index in range(sample_size):
        moment = 1 + index * total * 99 // (sample_size * 100)
        number = SIGNALS[index % len(SIGNALS)]
        with interrupted(folder, *words, moment=moment, number=number) as run:
            assert run.result() == (expected_status(command, number), ""), f"{number.name} at moment {moment}"


@pytest.mark.ci
@pytest.mark.parametrize("command", [SERVE, SIMULATE, CONFORMANCE, DUMP, DEMO], ids=lambda command: command[0])
def test_a_signal_while_it_starts(folder: Path, log: Path, command: tuple[str, ...]) -> None:
    """At any import, file or child of its start a signal ends a command with its status and nothing on stderr."""
    check_moments(folder, command, log, 5)


@pytest.mark.slow
@pytest.mark.parametrize("command", [SERVE, SIMULATE, CONFORMANCE, DUMP, DEMO], ids=lambda command: command[0])
def test_a_signal_at_many_moments(folder: Path, log: Path, command: tuple[str, ...]) -> None:
    check_moments(folder, command, log, 100)


def test_the_handler_stands_before_the_imports() -> None:
    """All that is imported before it are the modules that install it, and what Python's signal module needs."""
    program = "import sys; before = set(sys.modules); import groupcoord.cli; print(*(set(sys.modules) - before))"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=True)
    ours = {name for name in done.stdout.split() if name.partition(".")[0] not in sys.stdlib_module_names}
    assert ours == {"groupcoord", "groupcoord.cli", "groupcoord.cli.interrupts", "groupcoord.lazy"}
    assert not {"typing", "importlib.metadata", "inspect", "contextlib", "asyncio"} & set(done.stdout.split())


@pytest.mark.parametrize(
    ("first", "second"),
    [(signal.SIGINT, signal.SIGTERM), (signal.SIGTERM, signal.SIGINT), (signal.SIGHUP, signal.SIGINT)],
)
def test_two_signals_end_the_server(folder: Path, first: signal.Signals, second: signal.Signals) -> None:
    """A second Ctrl-C or SIGTERM while it stops ends it as cleanly as one does."""
    with interrupted(folder, *SERVE) as run:
        assert "listening" in run.line()
        run.send(first)
        run.send(second)
        assert run.result() == (0, "")


def test_a_signal_after_the_end() -> None:
    """A server that has stopped takes no signal any more: Python ends with what signals do by default."""
    told = (
        "import atexit, signal as s; atexit.register(lambda: print(*map(s.getsignal, (s.SIGINT, s.SIGTERM, s.SIGHUP))))"
    )
    words = [sys.executable, "-c", f"{told}; from groupcoord.cli import main; main()", *SERVE]
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert "listening" in process.stdout.readline()
        process.terminate()
        assert process.communicate(timeout=DEADLINE_S)[0] == f"{signal.SIG_IGN} {signal.SIG_IGN} {signal.SIG_IGN}\n"
    assert process.returncode == 0


def test_without_uvloop(folder: Path) -> None:
    hidden = "import sys; sys.modules['uvloop'] = None; from groupcoord.cli import main; main()"
    words = [sys.executable, "-c", hidden, *SERVE]
    with subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert "listening" in process.stdout.readline()
        process.terminate()
        assert process.communicate(timeout=DEADLINE_S) == ("", "")
    assert process.returncode == 0


def test_a_signal_while_it_prints(folder: Path, log: Path) -> None:
    with interrupted(folder, "dump", log) as run:
        assert run.line()
        run.send(signal.SIGINT)
        assert run.result() == (130, "")


@pytest.mark.ci
def test_a_simulation_ends_with_its_workers(folder: Path) -> None:
    """Ctrl-C in a terminal reaches them all: the bar goes, the cursor comes back, no process stays."""
    with on_a_terminal(folder, "simulate", "--seeds", "1000", "--jobs", "2") as (run, shown):
        assert shown("seed ")
        workers = children(run.process.pid)
        assert len(workers) == 2
        run.send(signal.SIGINT)
        assert run.process.wait(DEADLINE_S) == 130
        assert shown(r"\x1b\[\?25h")
        wait_until(lambda: all(map(is_gone, workers)), DEADLINE_S, "the workers are gone")
    assert "Traceback" not in shown.text


@pytest.mark.ci
def test_workers_end_when_nobody_can_end_them(folder: Path) -> None:
    """Also kill -9 of a simulation leaves no process."""
    with on_a_terminal(folder, "simulate", "--seeds", "1000", "--jobs", "2") as (run, shown):
        assert shown("seed ")
        workers = children(run.process.pid)
        run.process.kill()
        wait_until(lambda: all(map(is_gone, workers)), DEADLINE_S, "the workers are gone")


LAUNCH = shlex.join([sys.executable, "-c", "from groupcoord.cli import main; main()", "serve", "--port", "{port}"])


@pytest.mark.ci
@pytest.mark.parametrize(
    ("pattern", "number"), [("", signal.SIGTERM), (r" [1-9]\d*/", signal.SIGINT)], ids=["launch", "midst"]
)
def test_servers_that_were_launched_end(folder: Path, pattern: str, number: signal.Signals) -> None:
    """A signal ends the server that is being started, or that talks, and takes away all that it has written."""
    launch = f"{LAUNCH} --data-dir {{dir}} {{sets}}"
    before = set(folder.iterdir())
    with on_a_terminal(folder, "conformance", "--area", "expiry", "--launch", launch) as (run, shown):
        wait_until(lambda: bool(children(run.process.pid)), DEADLINE_S, "a server is started")
        assert shown(pattern)
        servers = children(run.process.pid)
        assert len(servers) == 1
        run.send(number)
        assert run.process.wait(DEADLINE_S) == 128 + number
        assert all(map(is_gone, servers))
    assert "Traceback" not in shown.text
    assert {path for path in set(folder.iterdir()) - before if path.is_dir()} == set()


def test_a_program_keeps_its_signals(capsys: pytest.CaptureFixture[str]) -> None:
    before = [signal.getsignal(number) for number in SIGNALS]
    with pytest.raises(SystemExit):
        cli.main(["conformance", "--list", "--area", "versions"])
    assert [signal.getsignal(number) for number in SIGNALS] == before
    assert capsys.readouterr().out


STUCK = """
import os, signal, time
from groupcoord.cli.interrupts import BeforeTheEnd, take_signals

output = os.dup(1)

def tell(what):
    os.write(output, f"{what}\\n".encode())

def stick():
    tell("stuck")
    print("nothing is printed any more", flush=True)
    time.sleep(600)

def fail():
    tell("failed")
    raise OSError

take_signals()
with BeforeTheEnd(lambda: tell("last")), BeforeTheEnd(stick), BeforeTheEnd(fail):
    with BeforeTheEnd(lambda: tell("never")):
        pass
    print("ready", flush=True)
    time.sleep(600)
"""


def test_what_is_done_before_the_end() -> None:
    """The last comes first; one that fails keeps no other from being done, and another signal ends one that sticks."""
    with subprocess.Popen([sys.executable, "-c", STUCK], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        process.send_signal(signal.SIGINT)
        assert [process.stdout.readline() for _ in range(2)] == ["failed\n", "stuck\n"]
        process.send_signal(signal.SIGTERM)
        assert process.communicate(timeout=DEADLINE_S)[0] == "last\n"
    assert process.returncode == 128 + signal.SIGTERM


def test_signals_that_are_ignored_stay_so(folder: Path, log: Path) -> None:
    """Under nohup the end of the terminal ends nothing."""
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        with interrupted(folder, *SERVE) as run:
            assert "listening" in run.line()
            run.send(signal.SIGHUP)
            run.send(signal.SIGHUP)
            assert run.process.poll() is None
            run.send(signal.SIGTERM)
            assert run.result() == (0, "")
    finally:
        signal.signal(signal.SIGHUP, before)
