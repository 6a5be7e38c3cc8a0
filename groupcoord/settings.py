"""Kinds of settings: what values there are, and how one stands in text.

A kind has three methods: ``parse`` turns text, or a value at hand, into a setting's value; ``check`` refuses what is
not allowed; ``text`` writes a value as ``server.properties`` has it.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import Any, Protocol

from attrs import field, frozen

from groupcoord.errors import ConfigError

INT32_MAX = 2**31 - 1
INT64_MAX = 2**63 - 1


class Kind(Protocol):
    """One kind of setting; each method raises :class:`ConfigError` for what is no value of it."""

    def parse(self, key: str, raw: Any) -> Any:
        """Return the value that text stands for; what isn't text is returned as it is, or nearly."""

    def check(self, key: str, value: object) -> None:
        """Refuse a value that is not allowed."""

    def text(self, value: Any) -> str:
        """Write a value as text."""


@frozen
class Number:
    """A whole number, or with ``is_fraction`` any, between two bounds that are allowed too."""

    at_least: int
    at_most: int = INT32_MAX
    is_fraction: bool = False

    def parse(self, key: str, raw: Any) -> int | float:
        """See :class:`Kind`."""
        try:
            if self.is_fraction:
                return float(raw)
            return int(raw.strip() if isinstance(raw, str) else raw)
        except (ValueError, TypeError):
            raise ConfigError(f"setting {key!r} must be {self._noun}, not {raw!r}") from None

    def check(self, key: str, value: object) -> None:
        """See :class:`Kind`."""
        check_number(key, value, self.at_least, self.at_most, is_fraction=self.is_fraction)

    def text(self, value: float) -> str:
        """See :class:`Kind`."""
        return str(value)

    @property
    def _noun(self) -> str:
        return "a number" if self.is_fraction else "a whole number"


@frozen
class Flag:
    """True or false."""

    def parse(self, key: str, raw: Any) -> Any:
        """See :class:`Kind`."""
        text = raw.strip().lower() if isinstance(raw, str) else raw
        return text == "true" if text in ("true", "false") else raw

    def check(self, key: str, value: object) -> None:
        """See :class:`Kind`."""
        if not isinstance(value, bool):
            raise ConfigError(f"setting {key!r} must be true or false, not {value!r}")

    def text(self, value: bool) -> str:
        """See :class:`Kind`."""
        return "true" if value else "false"


@frozen
class Choice:
    """One of the members of ``choices``; in text the case of letters doesn't matter."""

    choices: type[StrEnum]

    def parse(self, key: str, raw: Any) -> Any:
        """See :class:`Kind`."""
        if isinstance(raw, str) and raw.strip().lower() in list(self.choices):
            return self.choices(raw.strip().lower())
        return raw

    def check(self, key: str, value: object) -> None:
        """See :class:`Kind`."""
        if not isinstance(value, self.choices):
            raise ConfigError(f"setting {key!r} must be one of {', '.join(self.choices)}, not {value!r}")

    def text(self, value: StrEnum) -> str:
        """See :class:`Kind`."""
        return value.value


@frozen
class Names:
    """A list of names, at least one: members of ``choices``, or any if that is None. In text it has commas.

    As in Kafka, a name that is listed twice counts once. ``aliases``: what other names stand for, in text.
    """

    choices: type[StrEnum] | None = None
    aliases: Mapping[str, str] = field(factory=dict)

    def parse(self, key: str, raw: Any) -> Any:
        """See :class:`Kind`."""
        if not isinstance(raw, str):
            return raw
        listed = [name.strip() for name in raw.split(",")] if raw.strip() else []
        names = dict.fromkeys(self.aliases.get(name, name) for name in listed)
        known = {choice.value: choice for choice in self.choices or ()}
        return tuple(known.get(name, name) for name in names)

    def check(self, key: str, value: object) -> None:
        """See :class:`Kind`."""
        wanted = str if self.choices is None else self.choices
        if not isinstance(value, tuple) or not value or not all(isinstance(name, wanted) and name for name in value):
            what = "names" if self.choices is None else f"some of {', '.join(self.choices)}"
            raise ConfigError(f"setting {key!r} must be a list of {what}, not {self._shown(value)!r}")
        if len(set(value)) < len(value):
            raise ConfigError(f"setting {key!r} has a name twice: {self.text(value)}")

    def text(self, value: tuple[str, ...]) -> str:
        """See :class:`Kind`."""
        return ",".join(value)

    @staticmethod
    def _shown(value: object) -> object:
        is_text = isinstance(value, tuple) and all(isinstance(name, str) for name in value)
        return ",".join(value) if is_text and isinstance(value, tuple) else value


def check_number(key: str, value: object, at_least: int, at_most: int, *, is_fraction: bool = False) -> None:
    """Check the value of a numeric setting.

    Raises:
        ConfigError: it is no number (no whole one, unless ``is_fraction``), or out of bounds, which are inclusive.
    """
    allowed = int | float if is_fraction else int
    if not isinstance(value, allowed) or isinstance(value, bool) or value != value:
        raise ConfigError(f"setting {key!r} must be a whole number, not {value!r}")
    if value < at_least:
        raise ConfigError(f"setting {key!r} must be at least {at_least}, not {value}")
    if value > at_most:
        raise ConfigError(f"setting {key!r} must be at most {at_most}, not {value}")
