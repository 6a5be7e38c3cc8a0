"""Where commands print for people: fitted to a terminal, and for everybody else as wide as the lines are."""

from __future__ import annotations

from rich.console import Console

UNBOUNDED_COLUMNS = 100_000


def open_console(*, is_for_errors: bool = False) -> Console:
    """Return a console that prints text as it is.

    On a terminal long lines are folded to its width. In a file or a pipe nothing is folded or cut: who reads that is a
    program, or a person who scrolls.

    Args:
        is_for_errors: print to stderr instead of stdout.
    """
    console = Console(stderr=is_for_errors, highlight=False, markup=False)
    if console.is_terminal:
        return console
    return Console(stderr=is_for_errors, highlight=False, markup=False, width=UNBOUNDED_COLUMNS)
