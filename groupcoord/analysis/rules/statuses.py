"""Statuses of groups: lag status, time lag and kinds of anomalies.

With several commits the rules are those of Burrow's wiki page "Consumer Lag Evaluation Rules" and its
``evaluator/caching.go``; :func:`partition_status` lists the differences. Time lag is computed as in kafka-lag-exporter.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from enum import Enum, IntEnum
from itertools import pairwise
from typing import Any, NamedTuple

from groupcoord.analysis.options import WINDOW_COMMITS

SAMPLES_MAX = 1_000
FRESH_MS = 1_000
"""Age of the next record below which a group is not behind."""


class LagStatus(IntEnum):
    """Status of a group in a partition, with the number in metrics, which is Burrow's up to REWIND.

    Attributes:
        of_group: Burrow's status of a group with this worst partition: OK, WARN or ERR.
        sentence: description with ``{}`` for the partition; empty if all is well.
    """

    UNKNOWN = 0
    OK = 1
    WARN = 2
    ERR = 3
    STOP = 4
    STALL = 5
    REWIND = 6
    LOST = 7
    AHEAD = 8
    NO_OWNER = 9
    NO_COMMIT = 10
    BEHIND = 11

    @classmethod
    def of(cls, label: str | None) -> LagStatus:
        """Return the status with this label; UNKNOWN for None."""
        return cls.UNKNOWN if label is None else cls[label.replace(" ", "_")]

    @property
    def label(self) -> str:
        return self.name.replace("_", " ")

    @property
    def of_group(self) -> LagStatus:
        return _OF_GROUPS_AND_SENTENCES[self][0]

    @property
    def sentence(self) -> str:
        return _OF_GROUPS_AND_SENTENCES[self][1]


_OF_GROUPS_AND_SENTENCES = {
    LagStatus.LOST: (LagStatus.ERR, "records of {} were deleted before it has read them"),
    LagStatus.AHEAD: (
        LagStatus.ERR,
        "its offset of {} is beyond the end of the log, so its consumer starts over by auto.offset.reset",
    ),
    LagStatus.REWIND: (LagStatus.ERR, "its offset of {} went back"),
    LagStatus.STALL: (LagStatus.ERR, "commits the same offset of {} again and again, though records wait"),
    LagStatus.STOP: (LagStatus.ERR, "no commit of {} for longer than its last ones took, though records wait"),
    LagStatus.NO_OWNER: (LagStatus.ERR, "records of {} wait, and no member has the partition"),
    LagStatus.ERR: (LagStatus.ERR, "it does not keep up with {}"),
    LagStatus.WARN: (LagStatus.WARN, "its lag in {} never became less"),
    LagStatus.NO_COMMIT: (LagStatus.OK, "nothing of {} is committed, though records are there"),
    LagStatus.BEHIND: (LagStatus.OK, "records of {} wait"),
    LagStatus.UNKNOWN: (LagStatus.OK, "the end of {} is not known"),
    LagStatus.OK: (LagStatus.OK, ""),
}
WORST_FIRST = tuple(_OF_GROUPS_AND_SENTENCES)


OFFSET_REWIND, COMMITS_STOPPED, STALLED = "offset rewind", "commits stopped", "stalled"
COMMIT_STORM, REBALANCE_STORM = "commit storm", "rebalance storm"
FLAPPING_MEMBER, DUPLICATE_OWNER = "flapping member", "duplicate owner"
SLOW_REVOCATION, FENCED_MEMBER = "slow revocation", "fenced member"
NEVER_COMMITTED, UNEVEN_SHARES, IDLE_MEMBERS = "never committed", "uneven shares", "idle members"

BROKEN_KINDS = (COMMITS_STOPPED, STALLED, NEVER_COMMITTED, OFFSET_REWIND, DUPLICATE_OWNER)
"""Kinds with which records are not processed, or more than once; the worst first."""

KINDS_WORST_FIRST = (
    *(*BROKEN_KINDS, FENCED_MEMBER, FLAPPING_MEMBER, SLOW_REVOCATION),
    *(REBALANCE_STORM, UNEVEN_SHARES, IDLE_MEMBERS, COMMIT_STORM),
)
REWIND, STOP, STALL = LagStatus.REWIND.name, LagStatus.STOP.name, LagStatus.STALL.name


class WindowCommit(NamedTuple):
    """A commit and its lag; None if the end was unknown."""

    at_ms: int
    committed_offset: int
    lag: int | None


class EndOffsetSample(NamedTuple):
    """An end offset at one time."""

    at_ms: int
    end_offset: int


class LagMethod(Enum):
    """Method of computing time lag: by the next record's timestamp, or by samples around or after it."""

    RECORD = "record"
    INTERPOLATED = "interpolated"
    EXTRAPOLATED = "extrapolated"


class TimeLag(NamedTuple):
    """Age of the next record to read."""

    lag_ms: int
    method: LagMethod


def has_stopped(first_ms: Any, last_ms: Any, now_ms: Any) -> Any:
    """Return whether the last commit is older than the window is long; for numbers or arrays."""
    return now_ms - last_ms > last_ms - first_ms


def stands_still(lowest: Any, highest: Any) -> Any:
    """Return whether all commits of a window have one offset; for numbers or arrays."""
    return lowest == highest


def partition_status(window: Sequence[WindowCommit], lag: int, now_ms: int, *, was_at_end: bool) -> LagStatus:
    """Return the status by the commits of a window. The first that applies:

    - OK without a lag.
    - STOP if the last commit is older than the window's duration, unless the group was at the end recently.
    - OK with lag 0 at a commit of the window.
    - REWIND if a commit of the window decreased.
    - STALL if all have one offset.
    - WARN if the lag never decreased.

    Unlike in Burrow, one commit has no duration and shows nothing, and WARN needs two known lags. As in Burrow's wiki,
    a rewind in a window with lag 0 is OK; Burrow reports it since its pull request 716.
    """
    if not lag or len(window) < 2:
        return LagStatus.OK
    if has_stopped(window[0].at_ms, window[-1].at_ms, now_ms) and not was_at_end:
        return LagStatus.STOP
    if any(commit.lag == 0 for commit in window):
        return LagStatus.OK
    offsets = [commit.committed_offset for commit in window]
    if any(later < earlier for earlier, later in pairwise(offsets)):
        return LagStatus.REWIND
    if stands_still(min(offsets), max(offsets)):
        return LagStatus.STALL
    lags = [commit.lag for commit in window if commit.lag is not None]
    if len(lags) > 1 and all(later >= earlier for earlier, later in pairwise(lags)):
        return LagStatus.WARN
    return LagStatus.OK


class PartitionEnd(NamedTuple):
    """Start and end of a partition's log; None if unknown."""

    start: int | None
    end: int | None


NO_OFFSET = -1


def known_offset(committed_offset: int | None) -> int | None:
    """Return a committed offset; None for -1, which clients and Kafka's tools treat as no commit."""
    return None if committed_offset is None or committed_offset < 0 else committed_offset


def records_behind(committed_offset: int | None, log: PartitionEnd) -> int | None:
    if log.end is None:
        return None
    offset = known_offset(committed_offset)
    if offset is None:
        return 0 if log.end <= (log.start or 0) else None
    return max(log.end - offset, 0)


class Evidence(NamedTuple):
    """Facts for the status of a partition.

    Attributes:
        window: the last commits since the last tombstone, oldest first.
        was_at_end: the log ended at the committed offset in one of the last samples.
        has_owner: a member owns the partition; None if unknown.
        is_stuck: a window of snapshots showed the same offset while the end increased.
        is_end_older: the end was sampled before the commit.
        lag_before: lag at the first commit of the window; None if unknown.
    """

    window: Sequence[WindowCommit] = ()
    now_ms: int = 0
    was_at_end: bool = False
    has_owner: bool | None = None
    is_stuck: bool = False
    is_end_older: bool = False
    lag_before: int | None = None


def lag_status(
    committed_offset: int | None, log: PartitionEnd, lag: int | None, lag_ms: int | None, seen: Evidence
) -> LagStatus:
    """Return the status of a group in a partition. The first that applies:

    - UNKNOWN if the end is unknown.
    - NO_COMMIT without a commit, if there are records.
    - LOST if the log starts after the committed offset; AHEAD if the end, sampled later, is before it.
    - OK without a lag.
    - With two commits or more :func:`partition_status`, with OK instead of WARN within :data:`FRESH_MS`. WARN instead
      of OK if the next record has waited longer than a full window in which the lag did not decrease: commits may be
      more frequent than samples of the end.
    - NO_OWNER without an owner.
    - STOP if the offset stayed the same while the end increased.
    - OK within :data:`FRESH_MS`, else BEHIND.
    """
    if log.end is None:
        return LagStatus.UNKNOWN
    offset = known_offset(committed_offset)
    if offset is None:
        return LagStatus.OK if lag == 0 else LagStatus.NO_COMMIT
    if log.start is not None and offset < log.start:
        return LagStatus.LOST
    if offset > log.end and not seen.is_end_older:
        return LagStatus.AHEAD
    if not lag:
        return LagStatus.OK
    is_fresh = lag_ms is not None and lag_ms < FRESH_MS
    if len(seen.window) > 1:
        status = partition_status(seen.window, lag, seen.now_ms, was_at_end=seen.was_at_end)
        if status is LagStatus.OK and _falls_behind(lag, lag_ms, seen):
            return LagStatus.WARN
        return LagStatus.OK if status is LagStatus.WARN and is_fresh else status
    if seen.has_owner is False:
        return LagStatus.NO_OWNER
    if seen.is_stuck:
        return LagStatus.STOP
    return LagStatus.OK if is_fresh else LagStatus.BEHIND


def _falls_behind(lag: int, lag_ms: int | None, seen: Evidence) -> bool:
    if lag_ms is None or seen.lag_before is None or len(seen.window) < WINDOW_COMMITS:
        return False
    return lag_ms > max(seen.window[-1].at_ms - seen.window[0].at_ms, FRESH_MS) and lag >= seen.lag_before


def worst_status(labels: Iterable[str | None]) -> LagStatus:
    return min((LagStatus.of(label) for label in labels if label), key=WORST_FIRST.index, default=LagStatus.OK)


def group_status(statuses: Iterable[LagStatus]) -> LagStatus:
    """Return Burrow's status of a group, by its worst partition."""
    return max((status.of_group for status in statuses), default=LagStatus.OK)


def time_lag(committed_offset: int, samples: Sequence[EndOffsetSample], number: int) -> TimeLag | None:
    """Return the age of the next record at the last sample; None if unknown.

    ``number`` is the index of the last sample at or below the offset, -1 without one. Records are assumed to be evenly
    spaced between samples, and before the first at the rate of all samples.
    """
    last = samples[-1]
    if committed_offset >= last.end_offset:
        return TimeLag(0, LagMethod.INTERPOLATED)
    left, right = (samples[0], last) if number < 0 else (samples[number], samples[number + 1])
    grown, took_ms = right.end_offset - left.end_offset, right.at_ms - left.at_ms
    if grown <= 0 or took_ms <= 0:
        return None
    written_ms = left.at_ms + (committed_offset - left.end_offset) * took_ms // grown
    method = LagMethod.EXTRAPOLATED if number < 0 else LagMethod.INTERPOLATED
    return TimeLag(last.at_ms - written_ms, method)
