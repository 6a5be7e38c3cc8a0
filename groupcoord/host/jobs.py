"""Job thread of the process, for long computations without shared state."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable
from queue import SimpleQueue
from threading import Thread

from groupcoord.broker.work import Job

SWITCH_INTERVAL_S = 0.0001
"""How long a job keeps the interpreter lock while an event loop waits, instead of Python's 5 ms."""


class JobThread:
    """Runs jobs one after the other; starts with the first job and ends with the process.

    One thread serves all servers of a process, which share the interpreter lock and the switch interval.
    """

    def __init__(self) -> None:
        self._waiting: SimpleQueue[tuple[Job, Callable[[], object]]] = SimpleQueue()
        self._thread: Thread | None = None

    def start(self, job: Job, then: Callable[[], object]) -> None:
        """Queue a job.

        Args:
            job: the function.
            then: called in the thread afterwards.
        """
        self._waiting.put((job, then))
        if self._thread is None or not self._thread.is_alive():  # such as in a forked child
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
