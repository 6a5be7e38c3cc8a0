"""What CPython is slow at and requests do often, done another way with the same result."""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from enum import Enum
from functools import partial
from typing import Any, TypeVar

E = TypeVar("E", bound=Enum)
T = TypeVar("T", bound=tuple[Any, ...])

MANY_OBJECTS = 100_000
"""So many that it takes the cyclic garbage collector 10 ms and more to look through them."""


def plain_members(enumeration: type[E]) -> type[E]:
    """Make the members of an enumeration plain attributes of it, as they are from Python 3.12 on.

    Python 3.11 finds a member by a function written in Python, at 70 ns for each look. Another one hashes members that
    aren't numbers, by their names; they are equal to nothing but themselves, so that their identity does as well.
    """
    for name, member in enumeration.__members__.items():
        type.__setattr__(enumeration, name, member)
    if enumeration.__hash__ is Enum.__hash__:
        type.__setattr__(enumeration, "__hash__", object.__hash__)
    return enumeration


def maker(named_tuple: type[T]) -> Callable[[tuple[Any, ...]], T]:
    """Return what makes a named tuple of a tuple with all of its fields, in order.

    The constructor of a named tuple is written in Python, and takes twice as long.
    """
    return partial(tuple.__new__, named_tuple)


@contextmanager
def collector_paused() -> Iterator[None]:
    """Do without Python's cyclic garbage collector for a while: for programs that load much, such as the server.

    Whoever makes millions of objects, none of them in a cycle, would have it look through them again and again. If they
    are that many, they are at the end put where a whole collection alone finds them, unless the program keeps frozen
    objects.
    """
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if gc.get_count()[0] > MANY_OBJECTS and not gc.get_freeze_count():
            gc.freeze()
            gc.unfreeze()
        if was_enabled:
            gc.enable()


def collect_garbage_seldom() -> None:
    """Let more objects come before Python's cyclic garbage collector looks at them: for a process that is a server.

    What a request makes goes with its last reference, and what stays of it, members and offsets, is in no cycle: to
    look through that again and again, as it grows, takes time and finds nothing.
    """
    gc.set_threshold(20_000, 20, 20)


def keep_freed_memory() -> None:
    """Let the C library keep what was freed, up to some megabytes: for a process that is a server and nothing else.

    It would give memory of the size of a batch back to the system each time, and the system would clear every page of
    it for the next batch. Without effect where the C library isn't glibc.
    """
    import ctypes

    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        mallopt(_MMAP_THRESHOLD, 4 * MEBIBYTE)
        mallopt(_TRIM_THRESHOLD, 32 * MEBIBYTE)


_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3  # of malloc.h
MEBIBYTE = 1_048_576
