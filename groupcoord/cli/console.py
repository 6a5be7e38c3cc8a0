"""Consoles of commands: fitted to a terminal, as wide as the lines in a pipe, with escapes for control characters."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from rich.console import Console, ConsoleOptions, RenderableType
from rich.segment import Segment
from rich.text import Text

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

    Args:
        is_for_errors: print to stderr instead of stdout.
    """
    console = _EscapingConsole(stderr=is_for_errors, highlight=False, markup=False)
    if console.is_terminal:
        return console
    return _EscapingConsole(stderr=is_for_errors, highlight=False, markup=False, width=UNBOUNDED_COLUMNS)
