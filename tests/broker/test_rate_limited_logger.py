"""Log lines that come in floods: some are written, the others are counted."""

from __future__ import annotations

import logging

import pytest

from groupcoord.broker.log_lines import RateLimitedLogger

logger = logging.getLogger("groupcoord.tests.limited_log")
WARNING, ERROR = logging.WARNING, logging.ERROR


@pytest.mark.parametrize(
    ("calls", "expected"),
    [
        ([(WARNING, "a", 0.0, "1"), (ERROR, "a", 0.1, "2")], [(WARNING, "1"), (ERROR, "2")]),
        (
            [*((WARNING, "a", number / 1_000, str(number)) for number in range(1_000)), 12.0],
            [(WARNING, "0"), (WARNING, "1"), (WARNING, "999 (a: the last of 998 lines left out in 12 s)")],
        ),
        (
            [(WARNING, "a", now_s, f"{now_s:g}") for now_s in (0.0, 1.0, 2.0, 10.0)],
            [(WARNING, text) for text in ("0", "1", "2 (a: the last of 1 line left out in 10 s)", "10")],
        ),
        (
            [*[(WARNING, "a", 0.0, "x")] * 100, (ERROR, "b", 0.0, "y")],
            [(WARNING, "x"), (WARNING, "x"), (ERROR, "y")],
        ),
        (
            [(level, "a", 0.0, "100% full") for level in (WARNING, WARNING, ERROR, WARNING)] + [9.9, 10.0, 30.0],
            [(WARNING, "100% full")] * 2 + [(ERROR, "100% full (a: the last of 2 lines left out in 10 s)")],
        ),
        ([*[(logging.DEBUG, "a", 0.0, "x")] * 100, 10.0], []),
    ],
    ids=["burst", "count", "next interval", "kinds", "loudest level", "suppressed"],
)
def test_lines(
    calls: list[tuple[int, str, float, str] | float], expected: object, caplog: pytest.LogCaptureFixture
) -> None:
    """A number among the calls is the time of a report."""
    log = RateLimitedLogger(logger, burst=2, interval_s=10)
    for call in calls:
        if isinstance(call, float):
            log.report(call)
        else:
            log.log(*call)

    assert [(level, text) for _, level, text in caplog.record_tuples] == expected


def test_a_traceback_can_go_with_a_line(caplog: pytest.LogCaptureFixture) -> None:
    try:
        raise ValueError("planted")
    except ValueError:
        RateLimitedLogger(logger).log(ERROR, "internal error", 0.0, "it failed", exc_info=True)

    assert "ValueError: planted" in caplog.text
