"""Options of an analysis: selected log partitions and groups, and limits of anomalies."""

from __future__ import annotations

import re
from collections.abc import Iterable
from re import Pattern

from attrs import field, frozen

from groupcoord.analysis.errors import InputError


def _patterns(expressions: Iterable[str | Pattern[str]]) -> tuple[Pattern[str], ...]:
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
    """The log partitions to read, all if empty, and the groups to exclude, by regular expressions for the full name."""

    partitions: frozenset[int] = field(default=frozenset(), converter=_numbers)
    excluded_groups: tuple[Pattern[str], ...] = field(default=(), converter=_patterns)

    def excludes(self, group_id: str) -> bool:
        return any(pattern.fullmatch(group_id) for pattern in self.excluded_groups)

    @property
    def expressions(self) -> tuple[str, ...]:
        return tuple(pattern.pattern for pattern in self.excluded_groups)


EVERYTHING = Selection()
WINDOW_COMMITS = 10
"""Number of last commits of a partition, and of last end offsets, that count for a status (Burrow's ``intervals``)."""

MS_PER_MINUTE = 60_000
OFFSETS_RETENTION_MINUTES = 10_080


@frozen
class Thresholds:
    """Limits above which something is an anomaly.

    Attributes:
        window_commits: number of last commits of a partition that count, as Burrow's ``intervals``.
        stopped_ms: least time without a commit, or with an owner but no commit at all.
        commits_per_minute: commits per partition and minute, averaged over a group's partitions; more is a storm.
        storm_commits: commits of a group per minute that are never a storm.
        rebalances: rebalances within ``rebalance_window_ms`` that are a storm.
        rebalance_window_ms: time window for rebalance storms and flapping members.
        comebacks: number of times that a flapping client left and joined within that window.
        revocation_ms: time after which a revocation is slow.
        uneven_times: multiple of the mean that one member has when others have no partitions or work.
        uneven_ms: least duration of uneven shares, and of more members than partitions.
        uneven_records: least number of records between the last commits of all members, for members without work.
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
