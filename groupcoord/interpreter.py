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

    Python 3.11 finds a member by a function written in Python, at 70 ns for each look.
    """
    for name, member in enumeration.__members__.items():
        type.__setattr__(enumeration, name, member)
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
