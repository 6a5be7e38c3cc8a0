"""Command in processes that get signals at moments of their start, the same in every run."""

from __future__ import annotations

import json
import os
import pty
import re
import select
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

DEADLINE_S = 120.0
NEVER = 1 << 60

PROGRAM = """
import json, mmap, os, sys
wanted, number, text, place = json.loads(sys.argv.pop(1))
from groupcoord.cli import main
counter = mmap.mmap(os.open(place, os.O_RDWR), 8)
seen = 0

def hear(event, arguments):
    # Every import, file that is opened, piece of code that is made, socket and child is such a moment.
    global seen
    if text and text not in f"{event} {arguments}":
        return
    seen += 1
    counter[:] = seen.to_bytes(8, "big")
    if seen == wanted:
        os.kill(os.getpid(), number)

sys.addaudithook(hear)
main()
"""


class Interrupted:
    """A command that gets a signal from itself at a moment of its start, if it comes that far.

    Args:
        folder: where it may put files of its own.
        words: the command line.
        moment: the number of the moment.
        number: the signal.
        text: only moments in whose description this is are counted.
        terminal: a file descriptor that is its stdin, stdout and stderr; without one these are pipes, and nothing.
    """

    def __init__(
        self,
        folder: Path,
        *words: str | Path,
        moment: int = NEVER,
        number: signal.Signals = signal.SIGINT,
        text: str = "",
        terminal: int | None = None,
    ) -> None:
        self._place = folder / f"moments-{os.getpid()}-{moment}-{number}"
        self._place.write_bytes(bytes(8))
        output = subprocess.PIPE if terminal is None else terminal
        self.process = subprocess.Popen(
            [sys.executable, "-c", PROGRAM, json.dumps([moment, number, text, str(self._place)]), *map(str, words)],
            stdout=output,
            stderr=output,
            stdin=subprocess.DEVNULL if terminal is None else terminal,
            text=True,
            start_new_session=True,  # as a terminal would, tests send signals to the whole group
            env={**os.environ, "TMPDIR": str(folder), "TERM": "xterm", "COLUMNS": "120", "LINES": "40"},
        )

    @property
    def moments(self) -> int:
        return int.from_bytes(self._place.read_bytes(), "big")

    def line(self) -> str:
        assert self.process.stdout is not None
        readable, _, _ = select.select([self.process.stdout], [], [], DEADLINE_S)
        assert readable, "it prints nothing"
        return self.process.stdout.readline()

    def send(self, number: signal.Signals) -> None:
        """Send a signal to it and to its children, as Ctrl-C in a terminal does."""
        os.killpg(self.process.pid, number)

    def result(self) -> tuple[int, str]:
        """Wait for its end; return its exit status and what it wrote to stderr."""
        _, errors = self.process.communicate(timeout=DEADLINE_S)
        return self.process.returncode, errors

    def close(self) -> None:
        if self.process.poll() is None:
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.communicate()
        self._place.unlink()


@contextmanager
def interrupted(
    folder: Path,
    *words: str | Path,
    moment: int = NEVER,
    number: signal.Signals = signal.SIGINT,
    text: str = "",
) -> Iterator[Interrupted]:
    """Run a command that gets a signal from itself at a moment of its start: see :class:`Interrupted`."""
    run = Interrupted(folder, *words, moment=moment, number=number, text=text)
    try:
        yield run
    finally:
        run.close()


class Shown:
    """Output of a terminal; called with a pattern, it returns whether that appears before the other end is closed."""

    def __init__(self, descriptor: int) -> None:
        self.text = ""
        self._descriptor = descriptor

    def __call__(self, pattern: str) -> bool:
        end_s = time.monotonic() + DEADLINE_S
        while not re.search(pattern, self.text):
            readable, _, _ = select.select([self._descriptor], [], [], max(end_s - time.monotonic(), 0))
            assert readable, self.text[-2000:]
            try:
                self.text += os.read(self._descriptor, 1 << 16).decode(errors="replace")
            except OSError:  # the other end is closed
                return False
        return True


@contextmanager
def on_a_terminal(folder: Path, *words: str | Path) -> Iterator[tuple[Interrupted, Shown]]:
    own, others = pty.openpty()
    run = Interrupted(folder, *words, terminal=others)
    os.close(others)
    try:
        yield run, Shown(own)
    finally:
        run.close()
        os.close(own)


def children(process_id: int) -> set[int]:
    """Return the processes that a process has started and that still run.

    They are looked for among all processes: what ``/proc`` lists as the children of a thread may be incomplete.
    """
    found = set()
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            stat = path.read_text()
        except (FileNotFoundError, ProcessLookupError):  # it has ended meanwhile
            continue
        if int(re.split(r"\) ", stat)[-1].split()[1]) == process_id:
            found.add(int(path.parent.name))
    return found


def is_gone(process_id: int) -> bool:
    try:
        stat = Path(f"/proc/{process_id}/stat").read_text()
    except FileNotFoundError:
        return True
    return re.split(r"\) ", stat)[-1][0] == "Z"  # an orphan that has ended, until init looks at it
