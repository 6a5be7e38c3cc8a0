"""Text output of commands and servers, with escapes for control characters, and errors that end a command.

Clients choose the names of groups, members and topics: they must not control the terminal, or look like a line of
output.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

import typer

from groupcoord.analysis.report.text import escape
from groupcoord.cli.interrupts import USAGE_ERROR


class CommandError(Exception):
    """A command cannot be carried out, or failed: the message to print, and the exit status."""

    def __init__(self, message: object, status: int = USAGE_ERROR) -> None:
        super().__init__(str(message))
        self.status = status


@contextmanager
def command_errors(*kinds: type[Exception], prefix: str = "", status: int = USAGE_ERROR) -> Iterator[None]:
    """Turn errors of these kinds within the context into a :class:`CommandError`."""
    try:
        yield
    except kinds as error:
        reason = error.strerror if isinstance(error, OSError) else None
        raise CommandError(f"{prefix}{reason or error}", status) from None


def escape_lines(text: str) -> str:
    """Return text with escapes for unprintable characters except line ends."""
    return text if text.isprintable() else "\n".join(map(escape, text.split("\n")))


def escape_json(line: str) -> str:
    return line if line.isprintable() else "".join(c if c.isprintable() else json.dumps(c)[1:-1] for c in line)


def say(text: str, *, is_error: bool = False) -> None:
    typer.echo(escape_lines(text), err=is_error)


def complain(command: str, message: str) -> None:
    """Print why a command failed, or a warning, to stderr; further lines are indented."""
    say(f"groupcoord {command}: {message}".replace("\n", "\n  "), is_error=True)


class EscapingFormatter(logging.Formatter):
    """Writes each record as one line, and a traceback below it."""

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802
        return escape(super().formatMessage(record))

    def format(self, record: logging.LogRecord) -> str:
        return escape_lines(super().format(record))


def key_values(option: str, words: Iterable[str]) -> dict[str, str]:
    found = {}
    for word in words:
        key, equals, value = word.partition("=")
        if not equals or not key.strip():
            raise CommandError(f"{option} takes KEY=VALUE, not {word!r}")
        found[key.strip()] = value.strip()
    return found


def read_given(path: Path) -> str:
    from groupcoord.config.files import read_text

    try:
        with command_errors(OSError, prefix=f"{path} can't be read: "):
            return read_text(path)
    except UnicodeDecodeError:
        raise CommandError(f"{path} can't be read: it is no text in UTF-8") from None


def write_text(path: Path, text: str) -> None:
    with command_errors(OSError, prefix=f"{path} can't be written: "):
        path.write_text(text, "utf-8")
