"""Options of an analysis: selection of the log partitions and groups that are read, and limits of anomalies."""

from __future__ import annotations

import re
from collections.abc import Iterable
from re import Pattern

from attrs import field, frozen

from groupcoord.analysis.errors import InputError


def _patterns(expressions: Iterable[str | Pattern[str]]) -> tuple[Pattern[str], ...]:
    """Return compiled expressions."""
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

WINDOW_COMMITS = 10
"""How many of a partition's last commits are looked at, and of the last looks at its end (Burrow's ``intervals``)."""

OFFSETS_RETENTION_MINUTES = 10_080


@frozen
class Thresholds:
    """From where on something is an anomaly.

    Attributes:
        window_commits: how many of a partition's last commits are looked at, as Burrow's ``intervals``.
        stopped_ms: how long a partition of a live group goes without a commit at least before its commits have stopped,
            or a member has a partition that was never committed.
        commits_per_minute: of one partition, on average over a group's partitions: more is a storm.
        storm_commits: a group's commits in a minute that are no storm, however few partitions they are of.
        rebalances: so many within ``rebalance_window_ms`` are a storm.
        rebalance_window_ms: see there; for flapping members too.
        comebacks: a client that left and joined so many times in that window flaps.
        revocation_ms: a member of a consumer group that takes so long to give partitions up is slow.
        uneven_times: members without partitions or work are told of if another has so many times the mean.
        uneven_ms: and if that is so for so long; likewise of members that are more than there are partitions.
        uneven_records: and, where it is work that they lack, if the last commits of all came to so many records.
    """

    window_commits: int = WINDOW_COMMITS
    stopped_ms: int = 300_000
    commits_per_minute: int = 60
    storm_commits: int = 600
    rebalances: int = 5
    rebalance_window_ms: int = 600_000
    comebacks: int = 3
    revocation_ms: int = 30_000
    uneven_times: float = 2.0
    uneven_ms: int = 300_000
    uneven_records: int = 1_000
