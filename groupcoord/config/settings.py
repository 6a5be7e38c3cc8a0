"""Types of settings: their values and their text."""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any

from attrs import field, frozen

from groupcoord.errors import ConfigError

INT32_MAX = 2**31 - 1
INT64_MAX = 2**63 - 1


class Kind(ABC):
    """Type of a setting; ``parse`` may, and ``check`` must raise :class:`ConfigError` for an invalid value."""

    def parse(self, key: str, raw: Any) -> Any:
        """Return the value of a text; other values are returned unchanged, except for conversions of numbers."""
        return raw

    @abstractmethod
    def check(self, key: str, value: object) -> None:
        """Raise :class:`ConfigError` for a value that is not allowed."""

    def text(self, value: Any) -> str:
        """Return a value as text."""
        return str(value)


_WHOLE = re.compile(r"[+-]?\d+")
_FRACTION = re.compile(r"[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?(?=[fFdD]?\Z)")
_BLANKS = "".join(map(chr, range(ord(" ") + 1)))


def trim(text: str) -> str:
    """Return a text without the control characters and blanks around it, as ``String.trim`` of Java does."""
    return text.strip(_BLANKS)


@frozen
class Number(Kind):
    """An integer, or with ``is_fraction`` any number, within inclusive bounds, or ``besides``."""

    at_least: int
    at_most: int = INT32_MAX
    is_fraction: bool = False
    besides: int | None = None

    def parse(self, key: str, raw: Any) -> int | float:
        text = raw
        if isinstance(raw, str):
            # Java takes the digits of every script in whole numbers, and an f or d behind a fraction.
            found = _FRACTION.match(trim(raw)) if self.is_fraction else _WHOLE.fullmatch(trim(raw))
            if found is None:
                raise self._mismatch(key, raw)
            text = found.group()
        try:
            return float(text) if self.is_fraction else int(text)
        except (ValueError, TypeError):
            raise self._mismatch(key, raw) from None

    def check(self, key: str, value: object) -> None:
        allowed = int | float if self.is_fraction else int
        if not isinstance(value, allowed) or isinstance(value, bool) or value != value:  # NaN
            raise self._mismatch(key, value)
        if self.besides is not None and value == self.besides:
            return
        if value < self.at_least:
            raise ConfigError(f"setting {key!r} must be at least {self.at_least}, not {value}")
        if value > self.at_most:
            raise ConfigError(f"setting {key!r} must be at most {self.at_most}, not {value}")

    def _mismatch(self, key: str, raw: object) -> ConfigError:
        noun = "a number" if self.is_fraction else "a whole number"
        return ConfigError(f"setting {key!r} must be {noun}, not {raw!r}")


@frozen
class Text(Kind):
    """Type of a setting: any text."""

    def check(self, key: str, value: object) -> None:
        if not isinstance(value, str):
            raise ConfigError(f"setting {key!r} must be text, not {value!r}")


@frozen
class Flag(Kind):
    """Type of a setting: true or false."""

    def parse(self, key: str, raw: Any) -> Any:
        text = trim(raw).upper() if isinstance(raw, str) else raw
        return text == "TRUE" if text in ("TRUE", "FALSE") else raw

    def check(self, key: str, value: object) -> None:
        if not isinstance(value, bool):
            raise ConfigError(f"setting {key!r} must be true or false, not {value!r}")

    def text(self, value: bool) -> str:
        return "true" if value else "false"


@frozen
class Choice(Kind):
    """One of several texts, or of the members of an enumeration.

    Attributes:
        choices: in lower case with ``ignores_case``.
        ignores_case: in text, capital and small letters are the same.
    """

    choices: tuple[str, ...]
    ignores_case: bool = False

    def parse(self, key: str, raw: Any) -> Any:
        text = trim(raw) if isinstance(raw, str) else raw
        if isinstance(text, str) and self.ignores_case:
            text = text.lower()
        return next((choice for choice in self.choices if choice == text), raw)

    def check(self, key: str, value: object) -> None:
        if not _is_among(self.choices, value):
            raise ConfigError(f"setting {key!r} must be one of {', '.join(self.choices)}, not {value!r}")


@frozen
class Names(Kind):
    """Names, comma-separated in text. As in Kafka, a repeated name in text counts once.

    Attributes:
        choices: the allowed names; None: any.
        aliases: other spellings of names in text.
        may_be_empty: no name is required.
    """

    choices: tuple[str, ...] | None = None
    aliases: Mapping[str, str] = field(factory=dict)
    may_be_empty: bool = False

    def parse(self, key: str, raw: Any) -> Any:
        if not isinstance(raw, str):
            return raw
        listed = [trim(name) for name in raw.split(",")] if trim(raw) else []
        names = dict.fromkeys(self.aliases.get(name, name) for name in listed)
        known = {choice: choice for choice in self.choices or ()}
        return tuple(known.get(name, name) for name in names)

    def check(self, key: str, value: object) -> None:
        is_list = isinstance(value, tuple) and all(isinstance(name, str) for name in value)
        if not isinstance(value, tuple) or not is_list or not (value or self.may_be_empty):
            raise self._mismatch(key, ",".join(value) if is_list and isinstance(value, tuple) else value)
        if not all(name and (self.choices is None or _is_among(self.choices, name)) for name in value):
            raise self._mismatch(key, ",".join(value))
        if len(set(value)) < len(value):
            raise ConfigError(f"setting {key!r} has a name twice: {self.text(value)}")

    def text(self, value: tuple[str, ...]) -> str:
        return ",".join(value)

    def _mismatch(self, key: str, shown: object) -> ConfigError:
        what = "names" if self.choices is None else f"some of {', '.join(self.choices)}"
        return ConfigError(f"setting {key!r} must be a list of {what}, not {shown!r}")


def _is_among(choices: tuple[str, ...], value: object) -> bool:
    """Return whether a value is one of the choices itself; text that equals a member is not."""
    return any(choice == value and type(choice) is type(value) for choice in choices)
