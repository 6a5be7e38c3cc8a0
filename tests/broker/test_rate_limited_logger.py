"""Log lines that come in floods: some are written, the others are counted."""

from __future__ import annotations

import logging

import pytest

from groupcoord.broker.log_lines import RateLimitedLogger

logger = logging.getLogger("groupcoord.tests.limited_log")


@pytest.fixture
def log() -> RateLimitedLogger:
    return RateLimitedLogger(logger, burst=2, interval_s=10)


def test_the_first_lines_of_a_kind_are_written_as_they_come(
    log: RateLimitedLogger, caplog: pytest.LogCaptureFixture
) -> None:
    """Up to the burst, each line is written at once."""
    log.warning("closed", 0.0, "closed %s", "a")
    log.error("closed", 0.1, "closed %s", "b")

    assert caplog.record_tuples == [
        (logger.name, logging.WARNING, "closed a"),
        (logger.name, logging.ERROR, "closed b"),
    ]


def test_lines_beyond_the_burst_are_counted_and_told_in_one_line(
    log: RateLimitedLogger, caplog: pytest.LogCaptureFixture
) -> None:
    """A flood of 1,000 lines is two lines, and one that has the number of the others and the last of them."""
    for number in range(1_000):
        log.warning("closed", number / 1_000, "closed %d", number)
    log.report(12.0)

    assert caplog.messages == ["closed 0", "closed 1", "closed 999 (closed: the last of 998 lines left out in 12 s)"]


def test_a_line_after_the_interval_tells_what_was_left_out_first(
    log: RateLimitedLogger, caplog: pytest.LogCaptureFixture
) -> None:
    """Nobody has to call report() for the count while lines of the kind still come."""
    for now_s in (0.0, 1.0, 2.0, 10.0):
        log.warning("closed", now_s, "closed at %g", now_s)

    assert caplog.messages == [
        "closed at 0",
        "closed at 1",
        "closed at 2 (closed: the last of 1 line left out in 10 s)",
        "closed at 10",
    ]


def test_each_kind_has_a_limit_of_its_own(log: RateLimitedLogger, caplog: pytest.LogCaptureFixture) -> None:
    """A flood of one kind hides no line of another."""
    for _ in range(100):
        log.warning("closed", 0.0, "closed")
    log.error("full disk", 0.0, "full disk")

    assert caplog.messages == ["closed", "closed", "full disk"]


def test_a_report_is_as_loud_as_the_loudest_line_it_stands_for(
    log: RateLimitedLogger, caplog: pytest.LogCaptureFixture
) -> None:
    """An error among warnings that were left out makes the line about them an error."""
    for level in (logging.WARNING, logging.WARNING, logging.ERROR, logging.WARNING):
        log.log(level, "kind", 0.0, "100% full")
    log.report(9.9)
    log.report(10.0)
    log.report(30.0)

    assert caplog.record_tuples[2:] == [
        (logger.name, logging.ERROR, "100% full (kind: the last of 2 lines left out in 10 s)")
    ]


def test_lines_that_nobody_wants_are_not_counted(log: RateLimitedLogger, caplog: pytest.LogCaptureFixture) -> None:
    """A line below the logger's level costs nothing and is not told of later."""
    with caplog.at_level(logging.ERROR, logger.name):
        for _ in range(100):
            log.warning("closed", 0.0, "closed")
        log.report(10.0)

    assert caplog.messages == []


def test_a_traceback_can_go_with_a_line(log: RateLimitedLogger, caplog: pytest.LogCaptureFixture) -> None:
    try:
        raise ValueError("planted")
    except ValueError:
        log.log(logging.ERROR, "internal error", 0.0, "it failed", exc_info=True)

    assert "ValueError: planted" in caplog.text
