"""How far long work is: a bar on a terminal, gone when the work is done; elsewhere a line now and then. On stderr."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

from rich.progress import Progress, ProgressColumn

from groupcoord.cli.console import open_console
from groupcoord.cli.interrupts import BeforeTheEnd, show_cursor

LINE_INTERVAL_S = 10.0
"""Who reads a log wants to know that the work goes on, not each step of it."""


@contextmanager
def progress_bar(*columns: ProgressColumn, is_wanted: bool = True) -> Iterator[Progress]:
    """Give a bar as long as the context lasts. Where no terminal is, a line says now and then how far it is.

    Args:
        columns: what the bar consists of.
        is_wanted: whether it is shown at all.
    """
    console = open_console(is_for_errors=True)
    with ExitStack() as stack:
        stack.enter_context(BeforeTheEnd(show_cursor))
        is_bar = is_wanted and console.is_terminal
        bar = stack.enter_context(Progress(*columns, console=console, transient=True, disable=not is_bar))
        if is_wanted and not is_bar:
            stack.enter_context(_lines(bar))
        yield bar


@contextmanager
def _lines(bar: Progress) -> Iterator[None]:
    """Print a line every ``LINE_INTERVAL_S`` seconds as long as the context lasts."""
    has_ended = threading.Event()

    def run() -> None:
        while not has_ended.wait(LINE_INTERVAL_S):
            for task in bar.tasks:
                bar.console.print(f"{task.percentage:.0f} % after {task.elapsed or 0:.0f} s: {task.description}")

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    try:
        yield
    finally:
        has_ended.set()
        thread.join()
