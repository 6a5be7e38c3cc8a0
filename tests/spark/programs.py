"""Programs started by tests, which are killed or ended."""

from __future__ import annotations

import os
import queue
import signal
import subprocess
import sys
import threading
from contextlib import suppress

LINE_TIMEOUT_S = 600.0


class Process:
    """Python program that prints a line per step. Attributes: process: the process. said: all lines so far."""

    def __init__(self, program: str, *words: str) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-c", program, *words],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            stdin=subprocess.DEVNULL,
            text=True,
            start_new_session=True,
            env={**os.environ, "PYTHONUNBUFFERED": "1", "COLUMNS": "200"},
        )
        self.said: list[str] = []
        self._lines: queue.Queue[str] = queue.Queue()
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        with self.process.stdout as lines:
            for line in lines:
                self.said.append(line)
                self._lines.put(line)
        self._lines.put("")

    def wait_for(self, word: str) -> None:
        """Wait for the next line with a word in it."""
        while word not in (line := self._lines.get(timeout=LINE_TIMEOUT_S)):
            assert line, f"it ended before it said {word!r}:\n{''.join(self.said[-40:])}"

    def end(self, number: signal.Signals = signal.SIGTERM) -> int:
        """Send a signal to it and its children, and wait for the end; return the exit status."""
        with suppress(ProcessLookupError):
            os.killpg(self.process.pid, number)
        return self.wait()

    def wait(self) -> int:
        status = self.process.wait(LINE_TIMEOUT_S)
        self._reader.join(LINE_TIMEOUT_S)
        return status
