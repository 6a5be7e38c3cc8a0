"""Log lines of kinds that a peer or a broken disk can cause without end: some are written, the others are counted."""

from __future__ import annotations

import logging
from typing import NamedTuple

BURST = 5
INTERVAL_S = 10.0


class _Interval(NamedTuple):
    """What came of one kind since ``started_s``."""

    started_s: float
    written: int
    level: int = logging.NOTSET
    left_out: int = 0
    last: str = ""


class RateLimitedLogger:
    """A logger that writes some lines of each kind in an interval, then how many more there were and the last of them.

    >>> log = RateLimitedLogger(logging.getLogger("example"), burst=1, interval_s=10)
    >>> log.warning("bad request", 0.0, "closed the connection of %s", "10.0.0.1:3141")  # is written
    >>> log.warning("bad request", 0.1, "closed the connection of %s", "10.0.0.2:2718")  # is counted
    >>> log.report(10.0)  # writes "… of 10.0.0.2:2718 (bad request: the last of 1 line left out in 10 s)"

    An interval of a kind begins with its first line and is over when the next line or :meth:`report` comes after its
    end. Call :meth:`report` now and then, so that what was left out at the end of a flood is told as well.

    Args:
        logger: where lines go.
        burst: how many lines of one kind are written in an interval.
        interval_s: how long an interval is, in seconds.
    """

    def __init__(self, logger: logging.Logger, *, burst: int = BURST, interval_s: float = INTERVAL_S) -> None:
        self._logger = logger
        self._burst = burst
        self._interval_s = interval_s
        self._intervals: dict[str, _Interval] = {}

    def log(
        self, level: int, kind: str, now_s: float, message: str, *arguments: object, exc_info: bool = False
    ) -> None:
        """Write a line, or count it.

        Args:
            level: of :mod:`logging`.
            kind: what is counted together: a fixed phrase of the program, never something that a peer has sent, since
                each kind is remembered for an interval.
            now_s: the time by any clock that never goes back, in seconds.
            message: the line, with ``%`` places for ``arguments``.
            arguments: go into the message.
            exc_info: write the traceback of the exception that is being handled, too.
        """
        if not self._logger.isEnabledFor(level):
            return
        interval = self._intervals.get(kind)
        if interval is None or now_s - interval.started_s >= self._interval_s:
            if interval is not None:
                self._tell(kind, interval, now_s)
            interval = _Interval(now_s, 0)
        if interval.written < self._burst:
            self._logger.log(level, message, *arguments, exc_info=exc_info)
            self._intervals[kind] = interval._replace(written=interval.written + 1)
        else:
            self._intervals[kind] = interval._replace(
                level=max(level, interval.level),
                left_out=interval.left_out + 1,
                last=message % arguments if arguments else message,
            )

    def warning(self, kind: str, now_s: float, message: str, *arguments: object) -> None:
        """Write or count a warning; see :meth:`log`."""
        self.log(logging.WARNING, kind, now_s, message, *arguments)

    def error(self, kind: str, now_s: float, message: str, *arguments: object) -> None:
        """Write or count an error; see :meth:`log`."""
        self.log(logging.ERROR, kind, now_s, message, *arguments)

    def report(self, now_s: float, *, ends: bool = False) -> None:
        """Tell what was left out in intervals that are over, and forget them.

        Args:
            now_s: the time, in seconds.
            ends: tell of all intervals: no more lines will come.
        """
        for kind, interval in list(self._intervals.items()):
            if ends or now_s - interval.started_s >= self._interval_s:
                del self._intervals[kind]
                self._tell(kind, interval, now_s)

    def _tell(self, kind: str, interval: _Interval, now_s: float) -> None:
        if interval.left_out:
            self._logger.log(
                interval.level,
                "%s (%s: the last of %d %s left out in %.0f s)",
                interval.last,
                kind,
                interval.left_out,
                "line" if interval.left_out == 1 else "lines",
                now_s - interval.started_s,
            )
