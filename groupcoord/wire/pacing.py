"""Pauses in long work: what reads or writes a great many things stops between two of them, and goes on later.

One thread serves every peer, so a request that names a million things must not be read, or its answer be written, in
one go. Readers and writers pass over what they read and write with :func:`paced`; whoever calls them through
:func:`in_portions` gets control back whenever its :class:`Pace` says that time is up. Called directly they run to the
end, as any function does; through :func:`if_short` only if there is little to pass over.
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
        idle: greenlets that have done such work, and can do more.
    """

    __slots__ = ("idle", "now_s", "until_s")

    def __init__(self, now_s: Callable[[], float] = perf_counter) -> None:
        self.now_s = now_s
        self.until_s = 0.0
        self.idle: list[greenlet] = []


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


def rest() -> None:
    """Pause, if time is up, before much that is done in one go: where few entries stand together that are large."""
    pause = _pause.get()
    if pause is not None:
        pause()


class NotShortError(Exception):
    """There is more to pass over than is done in one go."""


def if_short(function: Callable[..., T], *arguments: Any) -> T:
    """Call a function that passes over its entries with :func:`paced`, if no more than ``SHORT`` stand together.

    Raises:
        NotShortError: there are more, which it did not come to.
    """
    token = _pause.set(_give_up)
    try:
        return function(*arguments)
    finally:
        _pause.reset(token)


def _give_up() -> None:
    raise NotShortError


def in_portions(pace: Pace, function: Callable[..., T], *arguments: Any) -> Generator[None, None, T]:
    """Call a function that passes over its entries with :func:`paced`; yield whenever it is to go on later.

    The function must depend on nothing that may change in the meantime. Closing the generator ends it.
    """
    work = pace.idle.pop() if pace.idle else _ready()
    work.parent = getcurrent()
    returned: list[T] = []
    try:
        work.switch(pace, function, arguments, returned)
        while not returned:
            yield
            work.switch()
    finally:
        if not returned and not work.dead:
            work.throw()
    if len(pace.idle) < IDLE_MAX:
        pace.idle.append(work)
    return returned[0]


def _ready() -> greenlet:
    """Return a greenlet that waits for calls."""
    work = greenlet(_make_calls)
    work.switch()
    return work


def _make_calls() -> None:
    """Make one call after the other, in a greenlet: its stack costs more to map than many a call to make.

    An error that a call raises ends it. While it waits it refers to nothing, not even to first arguments of its own,
    since the collector of garbage can't look into a greenlet.
    """
    while True:
        pace, function, arguments, returned = _caller().switch()
        _pause.set(_pausing(pace))  # a greenlet has a context of its own
        returned.append(function(*arguments))
        _pause.set(None)
        del pace, function, arguments, returned


def _pausing(pace: Pace) -> Callable[[], None]:
    now_s, give_back = pace.now_s, _caller().switch

    def pause() -> None:
        if now_s() >= pace.until_s:
            give_back()

    return pause


def _caller() -> greenlet:
    caller = getcurrent().parent
    assert caller is not None
    return caller
