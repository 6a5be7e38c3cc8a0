"""Selection of what an analysis reads: the log partitions that are read, and the groups that are left out."""

from __future__ import annotations

import re
from collections.abc import Iterable
from re import Pattern

from attrs import field, frozen

from groupcoord.analysis.errors import InputError


def _patterns(expressions: Iterable[str | Pattern[str]]) -> tuple[Pattern[str], ...]:
    """Return compiled expressions.

    Raises:
        InputError: one is not a regular expression.
    """
    found = []
    for one in expressions:
        try:
            found.append(re.compile(one))
        except re.error as error:
            raise InputError(f"{one} is not a regular expression: {error}") from error
    return tuple(found)


def _numbers(partitions: Iterable[int]) -> frozenset[int]:
    return frozenset(partitions)


@frozen
class Selection:
    """The records that a source hands out.

    Attributes:
        partitions: these log partitions; all if empty.
        excluded_groups: regular expressions of Python; groups whose whole name matches one are left out.

    Raises:
        InputError: an expression is invalid.
    """

    partitions: frozenset[int] = field(default=frozenset(), converter=_numbers)
    excluded_groups: tuple[Pattern[str], ...] = field(default=(), converter=_patterns)

    def excludes(self, group_id: str) -> bool:
        """Return whether a group is left out."""
        return any(pattern.fullmatch(group_id) for pattern in self.excluded_groups)

    @property
    def expressions(self) -> tuple[str, ...]:
        """The expressions of the groups that are left out, as text."""
        return tuple(pattern.pattern for pattern in self.excluded_groups)


EVERYTHING = Selection()
"""The selection that leaves nothing out."""
