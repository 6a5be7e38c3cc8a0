"""How well a group keeps up with a partition: Burrow's statuses, and lag as time.

The rules are those of Burrow's wiki page "Consumer Lag Evaluation Rules" and of its ``evaluator/caching.go``; where
ours differ, :func:`partition_status` says so. Lag as time is found as kafka-lag-exporter does.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from enum import Enum, IntEnum
from itertools import pairwise
from typing import Any, NamedTuple

WINDOW_COMMITS = 10
"""How many of a partition's last commits are looked at, and of the last looks at its end (Burrow's ``intervals``)."""

SAMPLES_MAX = 1_000
"""So many of the last looks at a partition's end count."""


class LagStatus(IntEnum):
    """Burrow's statuses, with its numbers: the greater, the worse."""

    OK = 1
    WARN = 2
    ERR = 3
    STOP = 4
    STALL = 5
    REWIND = 6


class WindowCommit(NamedTuple):
    """A commit.

    Attributes:
        at_ms: when it was made.
        committed_offset: the next offset to read.
        lag: records behind the end as it was known then; None: it was not.
    """

    at_ms: int
    committed_offset: int
    lag: int | None


class EndOffsetSample(NamedTuple):
    """A look at where a log ends.

    Attributes:
        at_ms: when it was.
        end_offset: the offset after the last record.
    """

    at_ms: int
    end_offset: int


class LagMethod(Enum):
    """How lag as time was found."""

    RECORD = "record"
    INTERPOLATED = "interpolated"
    EXTRAPOLATED = "extrapolated"


class TimeLag(NamedTuple):
    """Lag as time.

    Attributes:
        lag_ms: how old the next record to read is, in milliseconds.
        method: how that was found.
    """

    lag_ms: int
    method: LagMethod


def has_stopped(first_ms: Any, last_ms: Any, now_ms: Any) -> Any:
    """Tell whether there was no commit for longer than the window's commits took; of numbers or Spark's columns."""
    return now_ms - last_ms > last_ms - first_ms


def stands_still(lowest: Any, highest: Any) -> Any:
    """Tell whether all of a window's commits are of one offset; of numbers or Spark's columns."""
    return lowest == highest


def partition_status(window: Sequence[WindowCommit], lag: int, now_ms: int, *, was_at_end: bool) -> LagStatus:
    """Return how well a group keeps up with a partition.

    In this order: without a lag all is well. STOP: no commit for longer than the commits of the window took, unless the
    group was at the end of late. With lag 0 at some commit of the window all is well. REWIND: a commit of the window
    went back. STALL: all are of one offset. WARN: the lag never became less.

    Other than in Burrow, a window of one commit, which has no duration, says nothing, and lags that did not become less
    are at least two that are known. As in the wiki, a rewind after lag 0 is none; Burrow tells it since its pull
    request 716.

    Args:
        window: the last commits, oldest first, up to :data:`WINDOW_COMMITS`; none that were deleted.
        lag: records behind now.
        now_ms: when that is, in milliseconds since 1970.
        was_at_end: at one of the last looks the log ended where the group had committed last.
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


def group_status(statuses: Iterable[LagStatus]) -> LagStatus:
    """Return the status of a group from those of its partitions: the worst, where all above ERR are ERR."""
    return min(max(statuses, default=LagStatus.OK), LagStatus.ERR)


def time_lag_by_record(record_timestamp_ms: int, now_ms: int) -> TimeLag:
    """Return how old a record is that was looked at; not less than 0, though clocks of producers may be ahead."""
    return TimeLag(max(now_ms - record_timestamp_ms, 0), LagMethod.RECORD)


def time_lag(
    committed_offset: int,
    first: EndOffsetSample,
    last: EndOffsetSample,
    before: EndOffsetSample | None,
    after: EndOffsetSample | None,
) -> TimeLag | None:
    """Return how old the next record to read is at the last look; None if that can't be told.

    Between two looks records are taken to have come evenly. What came before the first look is taken to have come as
    fast as between the first and the last one.

    Args:
        committed_offset: of the next record to read.
        first: the first look at the log's end.
        last: the last one.
        before: the last one at which that record was not there yet; None: it was there at the first.
        after: the one that followed.
    """
    if committed_offset >= last.end_offset:
        return TimeLag(0, LagMethod.INTERPOLATED)
    left, right = (first, last) if before is None or after is None else (before, after)
    grown, took_ms = right.end_offset - left.end_offset, right.at_ms - left.at_ms
    if grown <= 0 or took_ms <= 0:
        return None
    written_ms = left.at_ms + (committed_offset - left.end_offset) * took_ms // grown
    method = LagMethod.EXTRAPOLATED if before is None else LagMethod.INTERPOLATED
    return TimeLag(last.at_ms - written_ms, method)


def judged(row: Mapping[str, Any]) -> dict[str, Any]:
    """Return the lag as time and the status of a partition, by the names of the table of lag.

    Args:
        row: its ``committed_offset`` and ``lag``; ``first`` and ``last``, the looks at its end, and ``before``, the
            last one at which the next record was not there yet, with the one that followed as ``next``: each with
            ``at_ms`` and ``end_offset``, or None; ``window``, the last commits in order, tombstones among them, or
            None; ``was_at_end`` and ``now_ms``, as :func:`partition_status` takes them; ``at_ms``, when the cluster was
            asked, and ``record_timestamp_ms``, when the next record was written, or None where that is not known.
    """
    return _time_lag(row) | _status(row)


def _time_lag(row: Mapping[str, Any]) -> dict[str, Any]:
    if row["lag"] is None or row["last"] is None:
        return {}
    if row["lag"] and row["at_ms"] is not None and row["record_timestamp_ms"] is not None:
        found: TimeLag | None = time_lag_by_record(row["record_timestamp_ms"], row["at_ms"])
    else:
        before = row["before"]
        after = before and before["next"]
        first, last = _look(row["first"]), _look(row["last"])
        found = time_lag(row["committed_offset"], first, last, before and _look(before), after and _look(after))
    return {} if found is None else {"lag_ms": found.lag_ms, "lag_ms_method": found.method.value}


def _look(row: Mapping[str, Any]) -> EndOffsetSample:
    return EndOffsetSample(row["at_ms"], row["end_offset"])


def _status(row: Mapping[str, Any]) -> dict[str, Any]:
    if row["lag"] is None or not row["window"]:
        return {}
    window: list[WindowCommit] = []
    for commit in row["window"]:
        if commit["tombstone"]:
            window.clear()
        else:
            window.append(WindowCommit(commit["at_ms"], commit["committed_offset"], commit["lag"]))
    status = partition_status(window, row["lag"], row["now_ms"], was_at_end=row["was_at_end"])
    return {"status": status.name, "complete": len(window) / WINDOW_COMMITS}
