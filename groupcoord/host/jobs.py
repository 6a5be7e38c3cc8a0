"""The one thread of a process that does jobs: what is long, and depends on nothing that event loops hold."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable
from queue import SimpleQueue
from threading import Thread

from groupcoord.broker.work import Job

SWITCH_INTERVAL_S = 0.0001
"""So long a job goes on while an event loop wants to, instead of Python's usual 5 ms."""


class JobThread:
    """Does one job after the other; begins with the first, and ends with the process.

    One for all servers of a process, as there is one interpreter lock, and one switch interval.
    """

    def __init__(self) -> None:
        self._waiting: SimpleQueue[tuple[Job, Callable[[], object]]] = SimpleQueue()
        self._thread: Thread | None = None

    def start(self, job: Job, then: Callable[[], object]) -> None:
        """Have a job done.

        Args:
            job: what to do.
            then: called in the thread when it is done.
        """
        self._waiting.put((job, then))
        if self._thread is None or not self._thread.is_alive():  # as in a child that was forked
            self._thread = Thread(target=self._work, name="groupcoord-jobs", daemon=True)
            self._thread.start()

    def _work(self) -> None:
        while True:
            job, then = self._waiting.get()
            interval_s = sys.getswitchinterval()
            sys.setswitchinterval(SWITCH_INTERVAL_S)
            job.run()
            sys.setswitchinterval(interval_s)
            with contextlib.suppress(RuntimeError):  # the loop is closed
                then()
            del job, then


JOBS = JobThread()
