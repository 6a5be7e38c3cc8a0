"""Burrow's rules by example, and lag as time between looks at a log's end."""

from __future__ import annotations

import pytest

from groupcoord.analysis.rules.statuses import (
    WORST_FIRST,
    EndOffsetSample,
    Evidence,
    LagMethod,
    LagStatus,
    PartitionEnd,
    TimeLag,
    WindowCommit,
    group_status,
    has_stopped,
    lag_status,
    partition_status,
    records_behind,
    time_lag,
)
from tests.tables import as_one_test

UNKNOWN, OK, WARN, ERR, STOP, STALL, REWIND, LOST, AHEAD, NO_OWNER, NO_COMMIT, BEHIND = LagStatus


def window(*commits: tuple[int, int | None]) -> list[WindowCommit]:
    """Return commits one second apart, from their offsets and lags; the last one is at 10 s."""
    first_ms = 10_000 - 1_000 * (len(commits) - 1)
    return [WindowCommit(first_ms + 1_000 * index, *commit) for index, commit in enumerate(commits)]


@as_one_test
@pytest.mark.parametrize(
    ("commits", "lag", "status"),
    [
        ([(10, 5), (20, 5), (30, 5)], 0, OK),
        ([(10, 5), (20, 5), (30, 5)], 5, WARN),
        ([(10, 5), (20, 7), (30, 9)], 9, WARN),
        ([(10, 5), (20, 4), (30, 9)], 9, OK),
        ([(10, 5), (20, None), (30, 4)], 9, OK),
        ([(10, 5), (20, None), (30, 5)], 9, WARN),
        ([(10, None), (20, None), (30, 5)], 9, OK),
        ([(10, 5), (10, 6), (10, 7)], 7, STALL),
        ([(10, None), (10, None), (10, None)], 7, STALL),
        ([(10, 0), (10, 6), (10, 7)], 7, OK),
        ([(10, 5), (30, 5), (20, 15)], 15, REWIND),
        ([(10, 5), (30, 5), (20, 15), (40, 5)], 5, REWIND),
        ([(10, 5), (30, 0), (20, 15)], 15, OK),
        ([(10, 5)], 5, OK),
        ([], 5, OK),
    ],
)
def test_a_window_of_commits_has_a_status(commits: list[tuple[int, int | None]], lag: int, status: LagStatus) -> None:
    """No lag now or in the window is fine; else rewinds go before standing still, and that before slowness."""
    assert partition_status(window(*commits), lag, 11_000, was_at_end=False) is status


def test_silence_longer_than_the_window_is_a_stop() -> None:
    """It precedes all other statuses, even with lag 0 in the window, unless the group was recently at the end."""
    commits = window((30, 0), (20, 5), (20, 5))

    assert partition_status(commits, 5, 12_000, was_at_end=False) is OK
    assert partition_status(commits, 5, 12_001, was_at_end=False) is STOP
    assert partition_status(commits, 5, 12_001, was_at_end=True) is OK
    assert partition_status(commits, 0, 12_001, was_at_end=False) is OK
    assert partition_status(commits[1:], 5, 11_001, was_at_end=True) is STALL
    assert not has_stopped(8_000, 10_000, 12_000)


IN_ORDER = tuple(WindowCommit(1_000 * number, 10 * number, 5) for number in range(1, 4))
"""Of a group whose lag never becomes less."""

SEEMS_TO_CATCH_UP = tuple(WindowCommit(1_000 * number, number, 30 - number) for number in range(1, 11))
"""Of a group that is behind an end that was looked at once meanwhile."""


@as_one_test
@pytest.mark.parametrize(
    ("committed_offset", "log", "lag_ms", "seen", "status"),
    [
        (None, PartitionEnd(0, None), None, Evidence(), UNKNOWN),
        (10, PartitionEnd(0, None), None, Evidence(IN_ORDER), UNKNOWN),
        (-1, PartitionEnd(0, 30), None, Evidence(), NO_COMMIT),
        (None, PartitionEnd(0, 30), None, Evidence(has_owner=True), NO_COMMIT),
        (None, PartitionEnd(0, 0), None, Evidence(has_owner=True), OK),
        (None, PartitionEnd(30, 30), None, Evidence(has_owner=True), OK),
        (10, PartitionEnd(11, 30), None, Evidence(IN_ORDER), LOST),
        (1_000, PartitionEnd(0, 30), 0, Evidence(IN_ORDER), AHEAD),
        (31, PartitionEnd(0, 30), 0, Evidence(), AHEAD),
        (31, PartitionEnd(0, 30), 0, Evidence(is_end_older=True), OK),
        (30, PartitionEnd(0, 30), 0, Evidence(IN_ORDER, has_owner=False), OK),
        (25, PartitionEnd(0, 30), 5_000, Evidence(IN_ORDER, 4_000), WARN),
        (25, PartitionEnd(0, 30), 999, Evidence(IN_ORDER, 4_000), OK),
        (25, PartitionEnd(0, 30), 9_001, Evidence(SEEMS_TO_CATCH_UP, 10_000, lag_before=5), WARN),
        (25, PartitionEnd(0, 30), 9_001, Evidence(SEEMS_TO_CATCH_UP, 10_000, lag_before=6), OK),
        (25, PartitionEnd(0, 30), 9_000, Evidence(SEEMS_TO_CATCH_UP, 10_000, lag_before=5), OK),
        (25, PartitionEnd(0, 30), 9_001, Evidence(SEEMS_TO_CATCH_UP[1:], 10_000, lag_before=5), OK),
        (25, PartitionEnd(0, 30), 9_001, Evidence(SEEMS_TO_CATCH_UP, 20_000, lag_before=5), STOP),
        (25, PartitionEnd(0, 30), 999, Evidence(IN_ORDER, 9_000), STOP),
        (25, PartitionEnd(0, 30), 5_000, Evidence(IN_ORDER, 9_000, has_owner=False), STOP),
        (25, PartitionEnd(0, 30), 5_000, Evidence(IN_ORDER[:1], 9_000, has_owner=False, is_stuck=True), NO_OWNER),
        (25, PartitionEnd(0, 30), 5_000, Evidence(has_owner=True, is_stuck=True), STOP),
        (25, PartitionEnd(None, 30), None, Evidence(), BEHIND),
        (25, PartitionEnd(0, 30), 1_000, Evidence(has_owner=True), BEHIND),
        (25, PartitionEnd(0, 30), 999, Evidence(has_owner=True), OK),
    ],
)
def test_a_partition_has_a_status(
    committed_offset: int | None, log: PartitionEnd, lag_ms: int | None, seen: Evidence, status: LagStatus
) -> None:
    """Committed offset and log range precede commits over time, and these precede ownership."""
    assert lag_status(committed_offset, log, records_behind(committed_offset, log), lag_ms, seen) is status


def test_a_group_is_as_bad_as_its_worst_partition() -> None:
    """Statuses above ERR count as ERR, as in Burrow."""
    assert group_status([]) is OK
    assert group_status([OK, WARN, OK]) is WARN
    assert [group_status([OK, worst]) for worst in (STOP, STALL, REWIND, LOST, AHEAD, NO_OWNER)] == [ERR] * 6
    assert group_status([OK, NO_COMMIT, BEHIND, UNKNOWN]) is OK


def test_every_status_has_a_label_and_a_sentence() -> None:
    """Tables and pages have labels; all but OK have an explanation."""
    assert [LagStatus.of(status.label) for status in LagStatus] == list(LagStatus)
    assert sorted(WORST_FIRST) == list(LagStatus)
    assert {status for status in LagStatus if "{}" not in status.sentence} == {OK}


def test_lag_as_time_is_read_from_the_looks() -> None:
    """Between two looks records came evenly; before the first as fast as since then; 0 at the end."""
    first, middle, last = EndOffsetSample(1_000, 100), EndOffsetSample(2_000, 150), EndOffsetSample(10_000, 200)
    looks = [first, middle, last]

    assert time_lag(125, looks, 0) == TimeLag(8_500, LagMethod.INTERPOLATED)
    assert time_lag(100, looks, 0) == TimeLag(9_000, LagMethod.INTERPOLATED)
    assert time_lag(50, looks, -1) == TimeLag(13_500, LagMethod.EXTRAPOLATED)
    for ahead in (200, 210):
        assert time_lag(ahead, looks, 2) == TimeLag(0, LagMethod.INTERPOLATED)
        assert time_lag(ahead, [last], 0) == TimeLag(0, LagMethod.INTERPOLATED)


def test_lag_as_time_needs_a_log_that_grew() -> None:
    first, last = EndOffsetSample(1_000, 100), EndOffsetSample(2_000, 100)
    assert time_lag(50, [first], -1) is None
    assert time_lag(50, [first, last], -1) is None
