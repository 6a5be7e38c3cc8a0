"""Reader of TOML tables of a scenario file: every error names the key and the line."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from difflib import get_close_matches
from typing import Any, NoReturn

from attrs import define, field

from groupcoord.analysis.report.text import parse_duration
from groupcoord.errors import GroupcoordError

Path = tuple[str | int, ...]
"""Path of a value: keys, and for arrays of tables the index of the table."""

_TABLE = re.compile(r"\s*\[(?P<array>\[)?\s*(?P<name>[^\]]+?)\s*\]\]?\s*(#.*)?$")
_NAME = r"""(?:"[^"]*"|'[^']*'|[A-Za-z0-9_-]+)"""
_KEY = re.compile(rf"\s*(?P<name>{_NAME}(?:\s*\.\s*{_NAME})*)\s*=")
_PART = re.compile(r"""\s*(?:"([^"]*)"|'([^']*)'|([A-Za-z0-9_-]+))\s*\.?""")


def line_numbers(text: str) -> dict[Path, int]:
    """Return the line of every table and key, from 1 on, of a valid TOML text."""
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
    """Return the path of a table's heading; one below an array of tables belongs to the last table of the array."""
    path: Path = ()
    for place, part in enumerate(parts):
        path = (*path, part)
        if is_array and place == len(parts) - 1:
            counts[path] = counts.get(path, -1) + 1
        if path in counts:
            path = (*path, counts[path])
    return path


REQUIRED: Any = object()
"""Stands for no default."""


class ScenarioError(GroupcoordError):
    """Invalid scenario file. The message holds the place and the reason.

    Attributes:
        key: the invalid key, such as ``groups[0].members``; empty for the file as a whole.
        line: its line, from 1 on, or None.
    """

    def __init__(self, message: str, key: str = "", line: int | None = None) -> None:
        place = "" if line is None else f"line {line}: "
        super().__init__(f"{place}{key}: {message}" if key else f"{place}{message}")
        self.key = key
        self.line = line


@define(eq=False)
class TableReader:
    """Reader of a table. Call :meth:`expect` first, or take every known key and then call :meth:`finish`.

    Each getter takes its key, and raises :class:`ScenarioError` for an invalid value.
    """

    _values: Mapping[str, Any]
    _path: Path
    lines: Mapping[Path, int]
    _known: list[str] = field(factory=list, init=False)

    def fail(self, key: str | None, message: str) -> NoReturn:
        path = self._path if key is None else (*self._path, key)
        if path not in self.lines and key is not None:
            # Kafka's keys have dots, which TOML takes for tables unless they are quoted.
            path = (*self._path, *key.split("."))
        line = next((self.lines[path[:n]] for n in range(len(path), 0, -1) if path[:n] in self.lines), None)
        raise ScenarioError(message, format_path(path), line)

    def require_known(self, key: str, name: str, known: Iterable[str]) -> None:
        names = list(known)
        if name not in names:
            self.fail(key, f"there is no {key.removesuffix('s')} {name!r}; there are {', '.join(names)}")

    def take(self, key: str, default: Any = REQUIRED) -> Any:
        self._known.append(key)
        if key in self._values:
            return self._values[key]
        if default is REQUIRED:
            self.fail(key, "is missing")
        return default

    def number(self, key: str, default: int = REQUIRED, *, at_least: int = 0, at_most: int = 1_000_000) -> int:
        value = self.take(key, default)
        if not isinstance(value, int) or isinstance(value, bool) or not at_least <= value <= at_most:
            self.fail(key, f"must be a whole number from {at_least} to {at_most}, not {value!r}")
        return value

    def flag(self, key: str, default: bool) -> bool:
        value = self.take(key, default)
        if not isinstance(value, bool):
            self.fail(key, f"must be true or false, not {value!r}")
        return value

    def text(self, key: str, default: str = REQUIRED) -> str:
        value = self.take(key, default)
        if not isinstance(value, str) or (not value and default is REQUIRED):
            self.fail(key, f"must be a text, not {value!r}")
        return value

    def names(self, key: str) -> tuple[str, ...]:
        value = self.take(key)
        if not isinstance(value, list) or not value or not all(isinstance(name, str) and name for name in value):
            self.fail(key, f"must be a list of names, not {value!r}")
        return tuple(value)

    def duration(self, key: str, default: str = REQUIRED) -> int:
        return self._to_duration(key, self.take(key, default))

    def positive_duration(self, key: str, default: str = REQUIRED) -> int:
        duration_ms = self.duration(key, default)
        if not duration_ms:
            self.fail(key, "must not be 0")
        return duration_ms

    def duration_range(self, key: str, default: Any = REQUIRED) -> tuple[int, int]:
        """Return the bounds of a random duration: a list of two, or one duration for both."""
        value = self.take(key, default)
        bounds = value if isinstance(value, list) else [value, value]
        if len(bounds) != 2:
            self.fail(key, f"must be a duration or a list of two, not {value!r}")
        least_ms, most_ms = (self._to_duration(key, bound) for bound in bounds)
        if most_ms < least_ms:
            self.fail(key, f"must not begin with the longer of two durations: {value!r}")
        return least_ms, most_ms

    def _to_duration(self, key: str, value: object) -> int:
        if not isinstance(value, str):
            self.fail(key, f"must be a duration such as 90s or 1h30m, not {value!r}")
        try:
            return parse_duration(value)
        except ValueError as error:
            self.fail(key, str(error))

    def table(self, key: str, default: Any = REQUIRED) -> TableReader:
        value = self.take(key, default)
        if not isinstance(value, dict):
            self.fail(key, f"must be a table, not {value!r}")
        return TableReader(value, (*self._path, key), self.lines)

    def tables(self, key: str, default: Any = REQUIRED) -> list[TableReader]:
        value = self.take(key, default)
        if not isinstance(value, list) or not all(isinstance(entry, dict) for entry in value):
            self.fail(key, f"must be written as [[{key}]] tables")
        return [TableReader(entry, (*self._path, key, place), self.lines) for place, entry in enumerate(value)]

    def all_keys(self) -> list[str]:
        self._known += self._values
        return list(self._values)

    def properties(self) -> dict[str, Any]:
        """Return all values under Kafka's dotted keys, also where TOML takes the dots for tables."""
        self._known += self._values
        return dict(flattened("", self._values))

    def expect(self, *keys: str) -> None:
        self._known += keys
        self.finish()

    def finish(self) -> None:
        for key in self._values:
            if key not in self._known:
                close = get_close_matches(key, self._known, 1)
                self.fail(key, "is an unknown key" + (f"; did you mean {close[0]}?" if close else ""))


def flattened(prefix: str, values: Mapping[str, Any]) -> list[tuple[str, Any]]:
    found: list[tuple[str, Any]] = []
    for key, value in values.items():
        name = f"{prefix}{key}"
        found += flattened(f"{name}.", value) if isinstance(value, dict) else [(name, value)]
    return found


def format_path(path: Path) -> str:
    text = ""
    for part in path:
        text += f"[{part}]" if isinstance(part, int) else f".{part}" if text else part
    return text
