"""Text of reports: durations (``1h30m``), times, sizes and names."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime, timedelta
from itertools import groupby

UNITS_MS = {"ms": 1, "s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}
LONGEST_MS = 366 * UNITS_MS["d"]

_PART = re.compile(r"(\d{1,12})(ms|s|m|h|d)")
_WHOLE = re.compile(r"(?:\d{1,12}(?:ms|s|m|h|d))+")


def parse_duration(text: str) -> int:
    if not _WHOLE.fullmatch(text):
        raise ValueError(f"{text!r} is no duration; write it like 90s, 1h30m or 250ms")
    duration_ms = sum(int(count) * UNITS_MS[unit] for count, unit in _PART.findall(text))
    if duration_ms > LONGEST_MS:
        raise ValueError(f"{text!r} is longer than a year")
    return duration_ms


def format_duration(duration_ms: float) -> str:
    """Return a duration as text, rounded."""
    if duration_ms < 1_000:
        return f"{duration_ms:.0f} ms"
    if duration_ms < 60_000:
        return f"{duration_ms / 1_000:.1f} s"
    if duration_ms < 3_600_000:
        return f"{duration_ms / 60_000:.1f} min"
    return f"{duration_ms / 3_600_000:.1f} h"


TEXT_LENGTH_MAX = 280
NOTHING = "-"

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_LATEST_MS = (datetime(9999, 12, 31, tzinfo=UTC) - _EPOCH) // timedelta(milliseconds=1)
_SECONDS_MATTER_MS = 4 * UNITS_MS["m"]
_SIZES = ("bytes", "KiB", "MiB", "GiB", "TiB", "PiB")


def format_time(at_ms: int | None) -> str:
    """Return a time as ISO 8601 in UTC, to the second; a time after 9999 in milliseconds."""
    if at_ms is None or at_ms < 0:
        return NOTHING
    if at_ms > _LATEST_MS:
        return f"{at_ms} ms"
    return (_EPOCH + timedelta(milliseconds=at_ms)).strftime("%Y-%m-%dT%H:%M:%SZ")


def format_clock(at_ms: int, span_ms: int) -> str:
    """Return an axis label: the part of the time that may differ within a span."""
    if not 0 <= at_ms <= _LATEST_MS:
        return NOTHING
    at = _EPOCH + timedelta(milliseconds=at_ms)
    if span_ms > 3 * UNITS_MS["d"]:
        return at.strftime("%Y-%m-%d")
    if span_ms > UNITS_MS["d"]:
        return at.strftime("%m-%d %H:%M")
    return at.strftime("%H:%M:%S" if span_ms <= _SECONDS_MATTER_MS else "%H:%M")


def format_span(duration_ms: int | None) -> str:
    if duration_ms is None or duration_ms < 0:
        return NOTHING
    if duration_ms >= 2 * UNITS_MS["d"]:
        return f"{duration_ms / UNITS_MS['d']:,.1f} days"
    return format_duration(duration_ms)


def format_limit(duration_ms: int) -> str:
    """Return a round duration, such as a limit or the width of a column, in its own unit: ``2 s``, ``10 min``."""
    for unit, name in (("d", "days"), ("h", "h"), ("m", "min"), ("s", "s")):
        number, rest = divmod(duration_ms, UNITS_MS[unit])
        if number and not rest:
            return "1 day" if (number, unit) == (1, "d") else f"{number:,} {name}"
    return f"{duration_ms:,} ms"


def format_size(size_bytes: int | None) -> str:
    if size_bytes is None:
        return NOTHING
    size, unit = float(size_bytes), 0
    while size >= 1024 and unit < len(_SIZES) - 1:
        size, unit = size / 1024, unit + 1
    return f"{size_bytes:,} bytes" if unit == 0 else f"{size:,.1f} {_SIZES[unit]}"


def format_number(number: int | None) -> str:
    return NOTHING if number is None else f"{number:,}"


def format_share(share: float | None) -> str:
    return NOTHING if share is None else f"{share:.0%}"


def format_ranges(numbers: Iterable[int]) -> str:
    """Return ascending numbers with neighbours as a range: ``0-3,7``."""
    runs = [[number for _, number in run] for _, run in groupby(enumerate(numbers), lambda pair: pair[1] - pair[0])]
    return ",".join(f"{run[0]}-{run[-1]}" if len(run) > 1 else str(run[0]) for run in runs)


def noun(number: int, one: str, many: str | None = None) -> str:
    return one if number == 1 else many or one + "s"


def counted(number: int, one: str, many: str | None = None) -> str:
    return f"{number:,} {noun(number, one, many)}"


def listed(parts: Sequence[str]) -> str:
    """Return ``a, b and c``."""
    return " and ".join(parts) if len(parts) < 3 else f"{', '.join(parts[:-1])} and {parts[-1]}"


def escape(text: str) -> str:
    """Return text with Python's escapes for unprintable characters: controls, line ends, text direction.

    Names in the log are chosen by clients and may contain anything.
    """
    return text if text.isprintable() else "".join(c if c.isprintable() else ascii(c)[1:-1] for c in text)


def clipped(text: str, length_max: int = TEXT_LENGTH_MAX) -> str:
    """Return escaped text of bounded length."""
    text = text[: length_max + 1]
    shown = escape(text[:length_max])
    return shown[:length_max] + "…" if len(text) > length_max or len(shown) > length_max else shown
