"""What Java takes for an empty text."""

from __future__ import annotations

_LAST_TRIMMED = " "
_TRIMMED = "".join(map(chr, range(ord(_LAST_TRIMMED) + 1)))


def is_blank(text: str) -> bool:
    """Tell whether nothing is left of a text when Java's ``trim`` has taken control characters and blanks from it."""
    return text[:1] <= _LAST_TRIMMED and not text.strip(_TRIMMED)
