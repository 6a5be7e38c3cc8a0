"""Messages and tracebacks of the errors that tests get."""

from __future__ import annotations

import re
from collections.abc import Iterable
from difflib import get_close_matches
from types import TracebackType

from groupcoord.errors import GroupcoordError

__tracebackhide__ = True

_PARTS = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|[0-9]+")


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """Return words that propose the known name nearest to another one; empty if none is near.

    A name whose parts are the same is nearest, whatever their order and form: ``CommitOffset`` means ``OffsetCommit``,
    ``NotCoordinator`` means ``NOT_COORDINATOR``.
    """
    names = sorted(known)
    wanted = _parts(name)
    close = [other for other in names if _parts(other) == wanted] or get_close_matches(name, names, n=1)
    return f"; did you mean {close[0]!r}?" if close else ""


def _parts(name: str) -> list[str]:
    return sorted(part.lower() for part in _PARTS.findall(name))


def counted(number: int, noun: str) -> str:
    """Return a number of things in words: ``1 member``, ``2 members``."""
    return f"1 {noun}" if number == 1 else f"{number} {noun}s"


def callers_frames(error: BaseException) -> TracebackType | None:
    """Return the traceback of an error of another thread from the first frame on that is the caller's own code.

    Frames of this package and of the standard library's futures say nothing about a mistake of a caller. An error that
    is no mistake in an argument keeps all frames.
    """
    if not isinstance(error, GroupcoordError | ValueError | TypeError | LookupError | RuntimeError | TimeoutError):
        return error.__traceback__
    traceback = error.__traceback__
    while traceback is not None and _is_inside(traceback.tb_frame.f_globals.get("__name__", "")):
        traceback = traceback.tb_next
    return traceback


def _is_inside(module: str) -> bool:
    return module.partition(".")[0] in ("groupcoord", "concurrent", "asyncio", "threading")
