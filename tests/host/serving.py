"""Fixtures that start ``groupcoord serve`` as a process."""

from __future__ import annotations

import asyncio
import functools
import re
import select
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from typing import Any

DEADLINE_S = 20.0
COMMAND = [sys.executable, "-c", "from groupcoord.cli import main; main()", "serve"]


class Serving:
    """A server that listens."""

    def __init__(self, process: subprocess.Popen[str], line: str) -> None:
        self.process = process
        self.line = line
        found = re.search(r"listening on \S+:(\d+)", line)
        assert found, line
        self.port = int(found[1])

    def ask(self, request: bytes) -> bytes:
        with socket.create_connection(("127.0.0.1", self.port), timeout=DEADLINE_S) as sock:
            sock.sendall(request)
            with sock.makefile("rb") as file:
                size = file.read(4)
                return size + file.read(int.from_bytes(size, "big"))

    def stop(self, number: signal.Signals = signal.SIGTERM) -> tuple[int, str]:
        """Stop it; return its exit status and what it wrote to stderr."""
        self.process.send_signal(number)
        _, errors = self.process.communicate(timeout=DEADLINE_S)
        return self.process.returncode, errors


@contextmanager
def serve(*arguments: str) -> Iterator[Serving]:
    process = subprocess.Popen(
        [*COMMAND, "--port", "0", *arguments], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    try:
        assert process.stdout is not None
        readable, _, _ = select.select([process.stdout], [], [], DEADLINE_S)
        line = process.stdout.readline() if readable else ""
        assert line, process.communicate(timeout=DEADLINE_S)
        yield Serving(process, line)
    finally:
        process.kill()
        process.communicate()


def in_a_loop(test: Callable[..., Coroutine[Any, Any, None]]) -> Callable[..., None]:
    """Run a test with coroutines."""

    @functools.wraps(test)
    def run(**fixtures: Any) -> None:
        asyncio.run(test(**fixtures))

    return run
