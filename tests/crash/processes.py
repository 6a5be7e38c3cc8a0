"""``groupcoord serve`` in processes that are made to be killed.

A server takes 0.3 s to start, nearly all of it for importing. A *nursery* imports once and forks a server whenever it
is asked for one: the same command in a process of its own, several times as often. Every few kills a server is
started from scratch all the same.
"""

from __future__ import annotations

import contextlib
import gc
import io
import logging
import os
import re
import select
import signal
import subprocess
import sys
import time
from pathlib import Path

from tests import client

START_DEADLINE_S = 60.0
COMMAND = [sys.executable, "-c", "from groupcoord.cli import main; main()"]
NURSERY = [sys.executable, "-m", "tests.crash.processes"]


class ServerFailedError(AssertionError):
    """The server did not start, or ended by itself. The message holds what it wrote to stderr."""


class Running:
    """A server process: forked by the nursery, or started from scratch."""

    def __init__(self, pid: int, lines: _Lines, errors: Path, process: subprocess.Popen[bytes] | None) -> None:
        self.pid = pid
        self._lines = lines
        self._errors = errors
        self._process = process
        self._is_gone = False

    def wait_for_port(self) -> int:
        """Wait until it listens; return its port.

        Raises:
            ServerFailedError: it doesn't.
        """
        while True:
            line = self._lines.next_line()
            if line is None or line.startswith("ended"):
                raise ServerFailedError(f"the server did not start:\n{self._errors.read_text()[-4000:]}")
            if found := re.search(r"listening on \S+:(\d+)", line):
                return int(found[1])

    def wait_for_log(self, text: str) -> None:
        """Wait until it has written a line with this text to stderr.

        Raises:
            ServerFailedError: it doesn't.
        """
        deadline_s = time.monotonic() + START_DEADLINE_S
        while text not in self._errors.read_text():
            if time.monotonic() > deadline_s:
                raise ServerFailedError(f"no {text!r} in its log:\n{self._errors.read_text()[-4000:]}")
            time.sleep(0.01)

    def kill(self) -> None:
        """Send SIGKILL and wait until the process is gone; nothing if it was killed before."""
        if self._is_gone:
            return
        self._is_gone = True
        with contextlib.suppress(ProcessLookupError):
            os.kill(self.pid, signal.SIGKILL)
        if self._process is not None:
            self._process.wait()
            self._lines.close()
            return
        self._lines.write(f"reap {self.pid}\n")
        while True:
            line = self._lines.next_line()
            assert line is not None, "the nursery is gone"
            if line == f"gone {self.pid}":
                return


class Launcher:
    """Starts servers.

    Args:
        folder: where their stderr goes.
    """

    def __init__(self, folder: Path) -> None:
        self._errors = folder / "stderr.txt"
        with open(self._errors, "wb") as errors:
            self._nursery = subprocess.Popen(NURSERY, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=errors)
        self._lines = _Lines(self._nursery)

    def start(self, arguments: list[str], *, from_scratch: bool = False) -> Running:
        """Start ``groupcoord`` with these arguments; it need not listen yet when this returns."""
        os.truncate(self._errors, 0)
        if from_scratch:
            with open(self._errors, "ab") as errors:
                process = subprocess.Popen([*COMMAND, *arguments], stdout=subprocess.PIPE, stderr=errors)
            return Running(process.pid, _Lines(process), self._errors, process)
        self._lines.write("fork " + "\t".join(arguments) + "\n")
        line = self._lines.next_line()
        assert line is not None, f"the nursery is gone:\n{self._errors.read_text()[-4000:]}"
        assert line.startswith("pid "), line
        return Running(int(line[4:]), self._lines, self._errors, None)

    def close(self) -> None:
        """End the nursery."""
        self._nursery.kill()
        self._nursery.wait()
        self._lines.close()


class _Lines:
    """The lines that a child process prints, and a way to write to it."""

    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        assert process.stdout is not None
        self._process = process
        self._output = process.stdout.fileno()
        self._buffer = b""

    def next_line(self) -> str | None:
        """Return the next line without its end; None when there will be none in time."""
        deadline_s = time.monotonic() + START_DEADLINE_S
        while b"\n" not in self._buffer:
            readable, _, _ = select.select([self._output], [], [], max(deadline_s - time.monotonic(), 0))
            part = os.read(self._output, 65_536) if readable else b""
            if not part:
                return None
            self._buffer += part
        line, _, self._buffer = self._buffer.partition(b"\n")
        return line.decode()

    def write(self, line: str) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(line.encode())
        self._process.stdin.flush()

    def close(self) -> None:
        for stream in (self._process.stdin, self._process.stdout):
            if stream is not None:
                stream.close()


def _warm_up() -> None:
    """Import what a server needs, and let a broker in memory answer what the clients will send."""
    import uvloop  # noqa: F401

    import groupcoord.host.metrics
    import groupcoord.storage.stores.segments  # noqa: F401
    from groupcoord import Config, ManualClock, MemoryLogStore
    from groupcoord.broker.broker import make_broker
    from groupcoord.cli import main

    broker = make_broker(config=Config(), clock=ManualClock(0), log_store=MemoryLogStore())
    connection = broker.connect("/127.0.0.1")
    for request in (
        client.offset_fetch("g"),
        client.offset_commit("g", "t", {0: 0}),
        client.sync_group("g", 1, "m", {}),
        client.heartbeat("g", 1, "m"),
        client.join_group("g"),
        client.init_producer_id("p", 1_000),
    ):
        connection.receive_data(request.encode())
    connection.take_output()
    with contextlib.suppress(SystemExit), contextlib.redirect_stderr(io.StringIO()):
        main(["serve", "--set", "refused"])
    logging.getLogger().handlers.clear()  # they write where nobody reads
    broker.close()


def nurse() -> None:
    """Fork a server for each line ``fork ARGUMENTS`` and bury it at ``reap PID``."""
    _warm_up()
    gc.collect()
    gc.freeze()
    for line in sys.stdin:
        word, _, rest = line.rstrip("\n").partition(" ")
        if word == "reap":
            os.waitpid(int(rest), 0)
            print("gone", rest, flush=True)
            continue
        go, ready = os.pipe()
        pid = os.fork()
        if pid == 0:
            from groupcoord.cli import main

            os.read(go, 1)  # the line with the process id comes first
            os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
            try:
                main(rest.split("\t"))
            except SystemExit as end:
                print("ended", end.code, flush=True)
            finally:
                os._exit(0)
        print("pid", pid, flush=True)
        os.write(ready, b".")
        os.close(ready)
        os.close(go)


if __name__ == "__main__":
    nurse()
