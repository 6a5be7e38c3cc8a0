"""Consoles of commands, with escapes for control characters, and progress bars on stderr."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

from rich.console import Console, ConsoleOptions, RenderableType
from rich.progress import BarColumn, MofNCompleteColumn, Progress, ProgressColumn, TextColumn, TimeElapsedColumn
from rich.segment import Segment
from rich.table import Table
from rich.text import Text

from groupcoord.cli.interrupts import BeforeTheEnd, show_cursor
from groupcoord.cli.messages import escape_lines

NAME_LENGTH_MAX = 60
UNBOUNDED_COLUMNS = 100_000


class _EscapingConsole(Console):
    """Escapes text before it is measured, and the rest when it is written."""

    def render_str(self, text: str, **options: Any) -> Text:
        return super().render_str(escape_lines(text), **options)

    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterable[Segment]:
        for segment in super().render(renderable, options):
            is_plain = segment.control or segment.text.isprintable() or segment.text == "\n"
            yield segment if is_plain else segment._replace(text=escape_lines(segment.text))


def open_console(*, is_for_errors: bool = False) -> Console:
    """Return a console that escapes control characters, and folds long lines on a terminal only."""
    console = _EscapingConsole(stderr=is_for_errors, highlight=False, markup=False)
    if console.is_terminal:
        return console
    return _EscapingConsole(stderr=is_for_errors, highlight=False, markup=False, width=UNBOUNDED_COLUMNS)


def table(texts: Iterable[str], numbers: Iterable[str], more_texts: Iterable[str] = (), **options: Any) -> Table:
    """Return a table with columns of texts, which may be folded, of numbers, and of further texts."""
    made = Table(**options)
    for title in texts:
        made.add_column(title, overflow="fold")
    for title in numbers:
        made.add_column(title, justify="right", no_wrap=True)
    for title in more_texts:
        made.add_column(title, overflow="fold")
    return made


LINE_INTERVAL_S = 10.0


@contextmanager
def progress_bar(*columns: ProgressColumn, is_wanted: bool = True) -> Iterator[Progress]:
    """Yield a progress bar; without a terminal, print a line every :data:`LINE_INTERVAL_S`."""
    console = open_console(is_for_errors=True)
    with ExitStack() as stack:
        stack.enter_context(BeforeTheEnd(show_cursor))
        is_bar = is_wanted and console.is_terminal
        bar = stack.enter_context(Progress(*columns, console=console, transient=True, disable=not is_bar))
        if is_wanted and not is_bar:
            stack.enter_context(repeated(lambda: _print_lines(bar), LINE_INTERVAL_S))
        yield bar


@contextmanager
def counting_bar(total: int, *, is_wanted: bool) -> Iterator[Callable[[str], None]]:
    """Yield a function that counts one more of ``total`` on a progress bar, with its description."""
    columns = (BarColumn(), MofNCompleteColumn(), TimeElapsedColumn(), TextColumn("{task.description}", markup=False))
    with progress_bar(*columns, is_wanted=is_wanted) as bar:
        task = bar.add_task("", total=total)
        yield lambda description: bar.update(task, advance=1, description=description)


@contextmanager
def repeated(work: Callable[[], object], interval_s: float) -> Iterator[None]:
    """Call a function at intervals in another thread within the context."""
    has_ended = threading.Event()

    def run() -> None:
        while not has_ended.wait(interval_s):
            work()

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    try:
        yield
    finally:
        has_ended.set()
        thread.join()


def _print_lines(bar: Progress) -> None:
    for task in bar.tasks:
        bar.console.print(f"{task.percentage:.0f} % after {task.elapsed or 0:.0f} s: {task.description}")
