"""A log that grows."""

from __future__ import annotations

import random
from pathlib import Path


class Growing:
    """A copy of a log directory that holds a part of it: of each log partition the first bytes of all its segments."""

    def __init__(self, whole: Path, part: Path) -> None:
        self.folder = part
        self._logs: dict[str, list[Path]] = {}
        for segment in sorted(whole.glob("__consumer_offsets-*/*.log")):
            self._logs.setdefault(segment.parent.name, []).append(segment)

    def grow(self, shares: dict[str, float]) -> None:
        """Let each log partition have a part of its bytes."""
        for name, segments in self._logs.items():
            room = round(sum(segment.stat().st_size for segment in segments) * shares[name])
            for segment in segments:
                place = self.folder / name / segment.name
                place.parent.mkdir(parents=True, exist_ok=True)
                place.write_bytes(segment.read_bytes()[:room])
                room -= segment.stat().st_size
                if room <= 0:
                    break

    def random_shares(self, draw: random.Random, least: dict[str, float] | None = None) -> dict[str, float]:
        """Draw a share for each log partition, not below those before."""
        return {name: draw.uniform((least or {}).get(name, 0.0), 1.0) for name in self._logs}

    def finish(self) -> None:
        self.grow(dict.fromkeys(self._logs, 1.0))
