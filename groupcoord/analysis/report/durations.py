"""Durations as people write them: ``90s``, ``1h30m``, ``250ms``."""

from __future__ import annotations

import re

UNITS_MS = {"ms": 1, "s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}
LONGEST_MS = 366 * UNITS_MS["d"]

_PART = re.compile(r"(\d{1,12})(ms|s|m|h|d)")
_WHOLE = re.compile(r"(?:\d{1,12}(?:ms|s|m|h|d))+")


def parse_duration(text: str) -> int:
    """Return a duration in milliseconds.

    Raises:
        ValueError: it is no duration, or longer than a year.
    """
    if not _WHOLE.fullmatch(text):
        raise ValueError(f"{text!r} is no duration; write it like 90s, 1h30m or 250ms")
    duration_ms = sum(int(count) * UNITS_MS[unit] for count, unit in _PART.findall(text))
    if duration_ms > LONGEST_MS:
        raise ValueError(f"{text!r} is longer than a year")
    return duration_ms


def format_duration(duration_ms: float) -> str:
    """Return a duration in few words, rounded to what matters."""
    if duration_ms < 1_000:
        return f"{duration_ms:.0f} ms"
    if duration_ms < 60_000:
        return f"{duration_ms / 1_000:.1f} s"
    if duration_ms < 3_600_000:
        return f"{duration_ms / 60_000:.1f} min"
    return f"{duration_ms / 3_600_000:.1f} h"
