"""Processes of one program that are kept running: each is started again when it ends, until all are to stop."""

from __future__ import annotations

import logging
import os
import select
import signal
import sys
import time
import traceback
from collections.abc import Callable
from contextlib import suppress

from attrs import define

logger = logging.getLogger("groupcoord.host")

FIRST_PAUSE_S, LONGEST_PAUSE_S = 0.1, 5.0
"""So long a process that ended soon is left alone, longer each time."""

SETTLED_S = 5.0
"""Who ran for so long is started again at once."""

FAILURE = 1


@define
class _Life:
    """A process, or what is known of it between two lives.

    Attributes:
        pid: of the process; 0: it does not run.
        ready: the pipe by which it says that it is ready; -1: it has.
        began_s: when it was started.
        pause_s: how long it is left alone when it ends soon.
        due_s: when it is started again.
    """

    pid: int = 0
    ready: int = -1
    began_s: float = 0.0
    pause_s: float = FIRST_PAUSE_S
    due_s: float = 0.0


class Work:
    """What a process is given by its supervisor.

    Args:
        number: which of the processes it is, counted from 0.
        ready: a descriptor on which it says that it is ready.
        lifeline: a descriptor that can be read to its end when the supervisor is gone.

    Attributes:
        number, lifeline: as given.
    """

    def __init__(self, number: int, ready: int, lifeline: int) -> None:
        self.number = number
        self.lifeline = lifeline
        self._ready = ready

    def is_ready(self) -> None:
        """Say that this process does what it is for."""
        os.write(self._ready, b".")
        os.close(self._ready)


class Supervisor:
    """Starts processes by ``fork``, and starts each again that ends.

    One that ends before all were ready is not started again: then none is, and its exit status is that of
    :meth:`run`. This process must have one thread.

    Args:
        count: how many.
        work: what a process does, until a signal ends it; returns its exit status.
        on_ready: is called when all are ready.
    """

    def __init__(self, count: int, work: Callable[[Work], int], on_ready: Callable[[], None]) -> None:
        self._lives = [_Life() for _ in range(count)]
        self._work = work
        self._on_ready = on_ready
        self._is_ready = False
        self._is_stopping = False
        self._status = 0
        self._lifeline = os.pipe()
        self._wake = os.pipe()
        for descriptor in self._wake:
            os.set_blocking(descriptor, False)

    def stop(self) -> None:
        """Have all end in order, and none started again. May be called by a signal's handler."""
        self._is_stopping = True
        for life in self._lives:
            if life.pid:
                with suppress(ProcessLookupError):
                    os.kill(life.pid, signal.SIGTERM)

    def run(self) -> int:
        """Keep them running until :meth:`stop` is called; return the exit status."""
        signal.set_wakeup_fd(self._wake[1], warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, lambda number, frame: None)
        for number in range(len(self._lives)):
            self._start(number)
        while any(life.pid or (life.due_s and not self._is_stopping) for life in self._lives):
            self._wait()
            self._see_who_is_ready()
            self._reap()
            self._restart_due()
        return self._status

    def _wait(self) -> None:
        pauses_s = [max(life.due_s - time.monotonic(), 0) for life in self._lives if life.due_s]
        descriptors = [self._wake[0], *(life.ready for life in self._lives if life.ready >= 0)]
        select.select(descriptors, [], [], min(pauses_s, default=None))
        with suppress(BlockingIOError):
            os.read(self._wake[0], 4096)

    def _see_who_is_ready(self) -> None:
        for life in self._lives:
            if life.ready >= 0 and select.select([life.ready], [], [], 0)[0]:
                os.close(life.ready)
                life.ready = -1
        if not self._is_ready and all(life.pid and life.ready < 0 for life in self._lives):
            self._reap()
            if all(life.pid for life in self._lives):
                self._is_ready = True
                self._on_ready()

    def _reap(self) -> None:
        for number, life in enumerate(self._lives):
            if not life.pid:
                continue
            pid, status = os.waitpid(life.pid, os.WNOHANG)
            if pid:
                life.pid = 0
                self._has_ended(number, life, os.waitstatus_to_exitcode(status))

    def _has_ended(self, number: int, life: _Life, status: int) -> None:
        if self._is_stopping:
            return
        if not self._is_ready:
            self._status = status if status > 0 else FAILURE
            self.stop()
            return
        has_settled = time.monotonic() - life.began_s >= SETTLED_S
        life.pause_s = FIRST_PAUSE_S if has_settled else min(2 * life.pause_s, LONGEST_PAUSE_S)
        life.due_s = time.monotonic() + (0 if has_settled else life.pause_s)
        how = f"was killed by signal {-status}" if status < 0 else f"ended with status {status}"
        logger.error("worker %d %s; it is started again", number + 1, how)

    def _restart_due(self) -> None:
        for number, life in enumerate(self._lives):
            if life.due_s and not self._is_stopping and time.monotonic() >= life.due_s:
                self._start(number)

    def _start(self, number: int) -> None:
        ready, says_ready = os.pipe()
        sys.stdout.flush()
        sys.stderr.flush()
        signals = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM, signal.SIGINT, signal.SIGHUP})
        pid = os.fork()
        if not pid:
            self._be(Work(number, says_ready, self._lifeline[0]))
        signal.pthread_sigmask(signal.SIG_SETMASK, signals)
        os.close(says_ready)
        life = self._lives[number]
        life.pid, life.ready, life.began_s, life.due_s = pid, ready, time.monotonic(), 0.0

    def _be(self, work: Work) -> None:
        """Do a process's work in it, and end it. Signals are blocked: the work takes them."""
        status = FAILURE
        try:
            os.setpgid(0, 0)  # Ctrl-C is the supervisor's, who says what becomes of it
            signal.set_wakeup_fd(-1)
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            os.close(self._lifeline[1])
            status = self._work(work)
        except BaseException:
            traceback.print_exc()
        finally:
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(status)
