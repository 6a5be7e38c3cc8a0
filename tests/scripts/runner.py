"""Plays scripts: text files of commands, each with its recorded output below it.

    # A follower that syncs after the leader is answered at once.
    # Rule: KIP-..., Kafka's GroupMetadataManager

    > sync b
      sync b: NONE assignment=two

A line that begins with ``> `` is a command, indented lines below it are what it printed; all others are comments or
blank. What the commands are: :mod:`tests.scripts.commands`.
"""

from __future__ import annotations

from collections.abc import Callable

from .commands import Session

PROMPT, INDENT = "> ", "  "


class ScriptError(Exception):
    """A script can't be understood; the message begins with the line."""


def play(text: str) -> str:
    """Return a script with the output that its commands print now.

    Raises:
        ScriptError: a command is unknown, or its arguments can't be understood.
    """
    return replace_output(text, Session().run)


def replace_output(text: str, run: Callable[[str], list[str]]) -> str:
    """Return a script with the lines that ``run`` returns for each command below it.

    Raises:
        ScriptError: a line is out of place, or ``run`` raised ``LookupError`` or ``ValueError``.
    """
    lines: list[str] = []
    is_output_allowed = False
    for number, line in enumerate(text.splitlines(), 1):
        if line.startswith(PROMPT):
            lines.append(line)
            try:
                lines += [INDENT + printed for printed in run(line.removeprefix(PROMPT))]
            except (LookupError, ValueError) as error:
                raise ScriptError(f"line {number}: {error.args[0]}") from error
            is_output_allowed = True
        elif line.startswith(INDENT) and is_output_allowed:
            continue
        elif not line or line.startswith("#"):
            lines.append(line)
            is_output_allowed = False
        else:
            raise ScriptError(f"line {number}: neither a command, its output nor a comment: {line!r}")
    return "\n".join(lines) + "\n"
