"""``groupcoord serve --workers N``: its processes."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from groupcoord.storage.directory_lock import DirectoryLock
from tests.host.serving import DEADLINE_S, Serving, serve


class Workers:
    """A server of several processes.

    Attributes:
        serving: the supervisor.
        count: how many workers there are.
        bootstrap: the address of the first.
    """

    def __init__(self, serving: Serving, count: int) -> None:
        self.serving = serving
        self.count = count
        self.bootstrap = f"127.0.0.1:{serving.port}"

    def pids(self) -> list[int]:
        """Return the workers that run, in order of their last start."""
        found = []
        for folder in Path("/proc").iterdir():
            if folder.name.isdigit():
                try:
                    fields = (folder / "stat").read_text().rpartition(")")[2].split()
                except OSError:
                    continue
                if int(fields[1]) == self.serving.process.pid and fields[0] != "Z":
                    found.append((int(fields[19]), int(folder.name)))
        return [pid for _, pid in sorted(found)]

    def kill_one(self) -> None:
        """Kill the worker that has run for longest, and wait until it is started again."""
        before = self.pids()
        os.kill(before[0], signal.SIGKILL)
        wait_until(lambda: len(set(self.pids()) - {before[0]}) == self.count)


def wait_until(is_so: object) -> None:
    """Wait until something is so, by looking."""
    assert callable(is_so)
    deadline_s = time.monotonic() + DEADLINE_S
    while not is_so():
        assert time.monotonic() < deadline_s
        time.sleep(0.01)


@contextmanager
def serve_by_workers(path: Path, *arguments: str, count: int = 2) -> Iterator[Workers]:
    """Have a server of workers with a data directory; its orphans end with it."""
    with serve("--data-dir", str(path), "--workers", str(count), *arguments) as serving:
        yield Workers(serving, count)
    wait_until(lambda: is_free(path))


def is_free(path: Path) -> bool:
    """Tell whether nobody has a directory, as soon after a kill."""
    try:
        DirectoryLock(path).close()
    except OSError:
        return False
    return True
