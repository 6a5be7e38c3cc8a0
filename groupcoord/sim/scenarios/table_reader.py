"""Tables of a scenario file: durations, and errors that name the key and the line."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, NoReturn

from attrs import define

from groupcoord.analysis.report.text import parse_duration
from groupcoord.config.files import REQUIRED, KeyPath, TableReader, format_path
from groupcoord.errors import GroupcoordError

_TABLE = re.compile(r"\s*\[(?P<array>\[)?\s*(?P<name>[^\]]+?)\s*\]\]?\s*(#.*)?$")
_NAME = r"""(?:"[^"]*"|'[^']*'|[A-Za-z0-9_-]+)"""
_KEY = re.compile(rf"\s*(?P<name>{_NAME}(?:\s*\.\s*{_NAME})*)\s*=")
_PART = re.compile(r"""\s*(?:"([^"]*)"|'([^']*)'|([A-Za-z0-9_-]+))\s*\.?""")


def line_numbers(text: str) -> dict[KeyPath, int]:
    """Return the line of every table and key, from 1 on, of a valid TOML text."""
    lines: dict[KeyPath, int] = {}
    counts: dict[KeyPath, int] = {}
    table: KeyPath = ()
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


def _resolve(parts: list[str], counts: dict[KeyPath, int], *, is_array: bool) -> KeyPath:
    """Return the path of a table's heading; one below an array of tables belongs to the last table of the array."""
    path: KeyPath = ()
    for place, part in enumerate(parts):
        path = (*path, part)
        if is_array and place == len(parts) - 1:
            counts[path] = counts.get(path, -1) + 1
        if path in counts:
            path = (*path, counts[path])
    return path


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


def scenario_reader(values: Mapping[str, Any], lines: Mapping[KeyPath, int]) -> ScenarioReader:
    def fail(path: KeyPath, message: str) -> NoReturn:
        *table, key = path or ("",)
        if path not in lines and isinstance(key, str):
            # Kafka's keys have dots, which TOML takes for tables unless they are quoted.
            path = (*table, *key.split("."))
        line = next((lines[path[:n]] for n in range(len(path), 0, -1) if path[:n] in lines), None)
        raise ScenarioError(message, format_path(path), line)

    return ScenarioReader(values, (), fail)


@define(eq=False)
class ScenarioReader(TableReader):
    """Table with durations, such as ``1h30m``."""

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
            self.fail(key, f"must be a duration or a list of two, not {value!r:.60}")
        least_ms, most_ms = (self._to_duration(key, bound) for bound in bounds)
        if most_ms < least_ms:
            self.fail(key, f"must not begin with the longer of two durations: {value!r}")
        return least_ms, most_ms

    def _to_duration(self, key: str, value: object) -> int:
        if not isinstance(value, str):
            self.fail(key, f"must be a duration such as 90s or 1h30m, not {value!r:.60}")
        try:
            return parse_duration(value)
        except ValueError as error:
            self.fail(key, str(error))
