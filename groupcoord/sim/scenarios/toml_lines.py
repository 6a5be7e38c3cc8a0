"""Which line of a TOML file a key stands on: ``tomllib`` tells that for broken files only."""

from __future__ import annotations

import re

Path = tuple[str | int, ...]
"""The way to a value: keys, and for arrays of tables the number of the table, from 0 on."""

_TABLE = re.compile(r"\s*\[(?P<array>\[)?\s*(?P<name>[^\]]+?)\s*\]\]?\s*(#.*)?$")
_NAME = r"""(?:"[^"]*"|'[^']*'|[A-Za-z0-9_-]+)"""
_KEY = re.compile(rf"\s*(?P<name>{_NAME}(?:\s*\.\s*{_NAME})*)\s*=")
_PART = re.compile(r"""\s*(?:"([^"]*)"|'([^']*)'|([A-Za-z0-9_-]+))\s*\.?""")


def line_numbers(text: str) -> dict[Path, int]:
    """Return the line of every table and key, from 1 on, of a text that is valid TOML.

    Values over several lines are fine as long as none of their lines looks like a key or a table.
    """
    lines: dict[Path, int] = {}
    counts: dict[Path, int] = {}
    table: Path = ()
    for number, line in enumerate(text.splitlines(), 1):
        if heading := _TABLE.match(line):
            table = _resolve(_parts(heading["name"]), counts, is_array=heading["array"] is not None)
            lines.setdefault(table, number)
        elif key := _KEY.match(line):
            path = table
            for part in _parts(key["name"]):
                path = (*path, part)
                lines.setdefault(path, number)
    return lines


def _parts(name: str) -> list[str]:
    return [double or single or bare for double, single, bare in _PART.findall(name)]


def _resolve(parts: list[str], counts: dict[Path, int], *, is_array: bool) -> Path:
    """Return the path of a table's heading; one below an array of tables belongs to the last of them."""
    path: Path = ()
    for place, part in enumerate(parts):
        path = (*path, part)
        if is_array and place == len(parts) - 1:
            counts[path] = counts.get(path, -1) + 1
        if path in counts:
            path = (*path, counts[path])
    return path
