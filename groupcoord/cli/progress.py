"""A bar for long work: on stderr, on a terminal only, and gone when the work is done or a signal ends it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import Progress, ProgressColumn

from groupcoord.cli.interrupts import BeforeTheEnd, show_cursor


@contextmanager
def progress_bar(*columns: ProgressColumn, is_wanted: bool = True) -> Iterator[Progress]:
    """Give a bar as long as the context lasts.

    Args:
        columns: what it consists of.
        is_wanted: whether it is shown at all; on anything but a terminal it never is.
    """
    console = Console(stderr=True, highlight=False, markup=False)
    is_shown = is_wanted and console.is_terminal
    with BeforeTheEnd(show_cursor), Progress(*columns, console=console, transient=True, disable=not is_shown) as bar:
        yield bar
