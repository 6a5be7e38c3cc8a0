"""Pauses in long work: what reads or writes a great many things stops between two of them, and goes on later.

One thread serves every peer, so a request that names a million things must not be read, or its answer be written, in
one go. Readers and writers pass over what they read and write with :func:`paced`; whoever calls them through
:func:`in_portions` gets control back whenever its :class:`Pace` says that time is up. Called directly they run to the
end, as any function does.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from contextvars import ContextVar
from time import perf_counter
from typing import Any, TypeVar

from greenlet import getcurrent, greenlet

T = TypeVar("T")

SHORT = 64
"""So many entries are passed over without a look at the clock."""

IDLE_MAX = 4
"""So many greenlets are kept for the next work; more work than that is rarely under way."""

_pause: ContextVar[Callable[[], object] | None] = ContextVar("groupcoord_pause", default=None)


class Pace:
    """How long the work that is being done may go on.

    Args:
        now_s: a clock that never goes back, in seconds.

    Attributes:
        now_s: that clock.
        until_s: the time at which work pauses.
        idle: who has done such work, and can do more.
    """

    __slots__ = ("idle", "now_s", "until_s")

    def __init__(self, now_s: Callable[[], float] = perf_counter) -> None:
        self.now_s = now_s
        self.until_s = 0.0
        self.idle: list[_Worker] = []


def paced(entries: Sequence[T]) -> Iterable[T]:
    """Return the entries, between which work that is done in portions may pause."""
    if len(entries) <= SHORT:
        return entries
    pause = _pause.get()
    return entries if pause is None else _with_pauses(entries, pause)


def _with_pauses(entries: Sequence[T], pause: Callable[[], object]) -> Iterator[T]:
    for entry in entries:
        pause()
        yield entry


def in_portions(pace: Pace, function: Callable[..., T], *arguments: Any) -> Generator[None, None, T]:
    """Call a function that passes over its entries with :func:`paced`; yield whenever it is to go on later.

    The function must depend on nothing that may change in the meantime. Closing the generator ends it.
    """
    worker = pace.idle.pop() if pace.idle else _Worker(pace)
    work = worker.work
    work.parent = getcurrent()
    try:
        work.switch(function, arguments)
        while worker.is_busy:
            yield
            work.switch()
    finally:
        if worker.is_busy and not work.dead:
            work.throw()
    if len(pace.idle) < IDLE_MAX:
        pace.idle.append(worker)
    returned: T = worker.take_returned()
    return returned


class _Worker:
    """A greenlet that makes one call after the other: its stack costs more to map than many a call to make.

    Attributes:
        work: the greenlet.
        is_busy: there is more to do of the call.
    """

    __slots__ = ("_error", "_pace", "_returned", "is_busy", "work")

    def __init__(self, pace: Pace) -> None:
        self.work = greenlet(self._run)
        self.is_busy = False
        self._pace = pace
        self._returned: Any = None
        self._error: Exception | None = None

    def take_returned(self) -> Any:
        """Return what the call has returned, or raise what it has raised; nothing is kept of it."""
        returned, error, self._returned, self._error = self._returned, self._error, None, None
        if error is not None:
            raise error
        return returned

    def _run(self, function: Callable[..., Any], arguments: tuple[Any, ...]) -> None:
        pace = self._pace

        def pause() -> None:
            if pace.now_s() >= pace.until_s:
                self.work.parent.switch()

        _pause.set(pause)  # a greenlet has a context of its own
        while True:
            self.is_busy = True
            try:
                self._returned = function(*arguments)
            except Exception as error:
                self._error = error
            self.is_busy = False
            del function, arguments
            function, arguments = self.work.parent.switch()
