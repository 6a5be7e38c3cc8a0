"""Consoles of commands: fitted to a terminal, as wide as the lines in a pipe, with escapes for control characters."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

from rich.console import Console, ConsoleOptions, RenderableType
from rich.progress import Progress, ProgressColumn
from rich.segment import Segment
from rich.text import Text

from groupcoord.cli.interrupts import BeforeTheEnd, show_cursor
from groupcoord.cli.messages import escape_lines

NAME_LENGTH_MAX = 60
"""So much of a name is shown in a table."""
UNBOUNDED_COLUMNS = 100_000


class _EscapingConsole(Console):
    """Escapes texts before they are measured, and what is left in a renderable when it is written."""

    def render_str(self, text: str, **options: Any) -> Text:
        return super().render_str(escape_lines(text), **options)

    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterable[Segment]:
        for segment in super().render(renderable, options):
            is_plain = segment.control or segment.text.isprintable() or segment.text == "\n"
            yield segment if is_plain else segment._replace(text=escape_lines(segment.text))


def open_console(*, is_for_errors: bool = False) -> Console:
    """Return a console that prints text as it is, but for control characters, which are escaped.

    On a terminal long lines are folded to its width. In a file or a pipe nothing is folded or cut: who reads that is a
    program, or a person who scrolls.
    """
    console = _EscapingConsole(stderr=is_for_errors, highlight=False, markup=False)
    if console.is_terminal:
        return console
    return _EscapingConsole(stderr=is_for_errors, highlight=False, markup=False, width=UNBOUNDED_COLUMNS)


LINE_INTERVAL_S = 10.0
"""Who reads a log wants to know that the work goes on, not each step of it."""


@contextmanager
def progress_bar(*columns: ProgressColumn, is_wanted: bool = True) -> Iterator[Progress]:
    """Give a bar as long as the context lasts. Where no terminal is, a line says now and then how far it is."""
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
