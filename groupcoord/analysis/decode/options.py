"""Options of a source of rows that are text, by names in any case, as Spark passes them."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from groupcoord.analysis.decode.errors import InputError
from groupcoord.analysis.decode.schema import RECORDS


def known_options(given: Mapping[str, str], names: tuple[str, ...]) -> dict[str, str]:
    """Return options by their names in small letters.

    Raises:
        InputError: one is not among the names.
    """
    unknown = sorted(name for name in given if name.lower() not in names)
    if unknown:
        raise InputError(f"unknown option {unknown[0]}; there are {', '.join(names)}")
    return {name.lower(): value for name, value in given.items()}


def words(text: str) -> list[str]:
    """Return what stands between commas."""
    return [word.strip() for word in text.split(",") if word.strip()]


def chosen_columns(text: str) -> tuple[str, ...]:
    """Return the columns asked for in the table's order, and ``kind``, without which no row says what it is."""
    wanted = set(words(text)) or set(RECORDS.names)
    unknown = sorted(wanted - set(RECORDS.names))
    if unknown:
        raise InputError(f"option columns: there is no column {unknown[0]}")
    return tuple(name for name in RECORDS.names if name in wanted | {"kind"})


def flag(name: str, text: str) -> bool:
    """Return what true, false or nothing means."""
    if text.lower() not in ("", "true", "false"):
        raise InputError(f"option {name}: {text} is neither true nor false")
    return text.lower() == "true"


def number(name: str, text: str, at_least: int) -> int:
    """Return a number that may not be smaller than another."""
    if not text.isdecimal() or int(text) < at_least:
        raise InputError(f"option {name}: {text} is no number of {at_least} or more")
    return int(text)


def json_value(name: str, text: str, kind: type) -> Any:
    """Return a JSON array (``list``) or object (``dict``)."""
    try:
        value = json.loads(text)
    except ValueError:
        value = None
    if not isinstance(value, kind):
        raise InputError(f"option {name}: {text} is no JSON {'array' if kind is list else 'object'}")
    return value
