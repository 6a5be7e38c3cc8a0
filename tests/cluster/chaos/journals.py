"""Journals of clients: requests and responses in files that outlive the process, and their analysis."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from attrs import define, field

SHARDS = 20
"""Position N of a group belongs to shard N % SHARDS, so many are there at the end that nobody has committed over."""

ASKED, ACKNOWLEDGED, TOLD, REFUSED, BROKEN = "?", "=", "<", "-", "!"
"""What a line is about: a position that is about to be committed, or was; one that is told; a refusal; a loss."""


class Line(NamedTuple):
    """One line of a journal. ``at_s`` is by the clock of the machine, which all processes share."""

    at_s: float
    group: str
    kind: str
    position: int
    words: str = ""

    def __str__(self) -> str:
        return f"{self.at_s:.3f} {self.group} {self.kind} {self.position} {self.words}\n"


class Journal:
    """Journal of a client; each line is on disk at once, whatever happens to the process."""

    def __init__(self, path: Path) -> None:
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)

    def write(self, group: str, kind: str, position: int, words: str = "") -> Line:
        """Add a line, and return it."""
        line = Line(time.monotonic(), group, kind, position, words)
        os.write(self._file, str(line).encode())
        return line


@define
class Record:
    """What is known of a group.

    Attributes:
        acknowledged: by shard, the last position that was.
        unknown: positions that were asked for, and of which nobody knows: they may be written at any time later.
        next_position: the first that was never asked for.
        answered_s: when something was answered last.
        longest_s: how long nothing was, at most, since that was set to 0.
        acknowledged_count, refused_count: how often that was.
    """

    acknowledged: dict[int, int] = field(factory=dict)
    unknown: set[int] = field(factory=set)
    next_position: int = 0
    answered_s: float = 0.0
    longest_s: float = 0.0
    acknowledged_count: int = 0
    refused_count: int = 0

    def take(self, line: Line) -> None:
        """Go on with a line."""
        if line.kind == ASKED:
            self.unknown.add(line.position)
            self.next_position = line.position + 1
        elif line.kind == REFUSED:
            self.refused_count += 1
        elif line.kind in (ACKNOWLEDGED, TOLD):
            self.longest_s = max(self.longest_s, line.at_s - self.answered_s)
            self.answered_s = line.at_s
            if line.kind == ACKNOWLEDGED:
                self.unknown.discard(line.position)
                self.acknowledged[line.position % SHARDS] = line.position
                self.acknowledged_count += 1

    def loss(self, shard: int, told: int, at_least: int) -> str | None:
        """Return what is wrong with a position that is told; None: nothing.

        Args:
            shard: where.
            told: what is told.
            at_least: what was acknowledged there before that was asked.
        """
        if told >= at_least or told in self.unknown:
            return None
        return f"{at_least} was acknowledged in shard {shard}, and {told} is told"


class Reader:
    """Reads a journal that is being written."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._place = 0
        self._rest = b""

    def new_lines(self) -> Iterator[Line]:
        """Yield what was written since the last time."""
        if not self._path.exists():
            return
        with self._path.open("rb") as file:
            file.seek(self._place)
            content = file.read()
        self._place += len(content)
        *lines, self._rest = (self._rest + content).split(b"\n")
        for line in lines:
            at_s, group, kind, position, words = line.decode().split(" ", 4)
            yield Line(float(at_s), group, kind, int(position), words)
