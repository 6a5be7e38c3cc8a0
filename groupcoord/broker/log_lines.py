"""Rate limit of log lines that peers can cause, and warnings about unsupported features that clients use."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from typing import NamedTuple

from groupcoord.broker.configs.definitions import settings_without_effect
from groupcoord.broker.connection import Connection
from groupcoord.broker.topics.registry import TopicRegistry
from groupcoord.core.messages import ConsumerGroupHeartbeat

BURST = 5
INTERVAL_S = 10.0


class _Interval(NamedTuple):
    """Lines of one kind since ``started_s``."""

    started_s: float
    written: int
    level: int = logging.NOTSET
    left_out: int = 0
    last: str = ""


class RateLimitedLogger:
    """Logger that writes a few lines of each kind per interval, then the number of omitted ones and the last of them.

    >>> log = RateLimitedLogger(logging.getLogger("example"), burst=1, interval_s=10)
    >>> log.warning("bad request", 0.0, "closed the connection of %s", "10.0.0.1:3141")  # is written
    >>> log.warning("bad request", 0.1, "closed the connection of %s", "10.0.0.2:2718")  # is counted
    >>> log.report(10.0)  # writes "… of 10.0.0.2:2718 (bad request: the last of 1 line left out in 10 s)"
    """

    def __init__(self, logger: logging.Logger, *, burst: int = BURST, interval_s: float = INTERVAL_S) -> None:
        self._logger = logger
        self._burst = burst
        self._interval_s = interval_s
        self._intervals: dict[str, _Interval] = {}

    def log(
        self, level: int, kind: str, now_s: float, message: str, *arguments: object, exc_info: bool = False
    ) -> None:
        """Write or count a line. ``kind`` is a fixed phrase of the program, since each kind is remembered for an
        interval.
        """
        # A suppressed line must not be counted as omitted.
        if not self._logger.isEnabledFor(level):
            return
        interval = self._intervals.get(kind)
        if interval is None or now_s - interval.started_s >= self._interval_s:
            if interval is not None:
                self._report_interval(kind, interval, now_s)
            interval = _Interval(now_s, 0)
        if interval.written < self._burst:
            self._logger.log(level, message, *arguments, exc_info=exc_info)
            self._intervals[kind] = interval._replace(written=interval.written + 1)
        else:
            self._intervals[kind] = interval._replace(
                # The summary is as severe as the worst omitted line.
                level=max(level, interval.level),
                left_out=interval.left_out + 1,
                # Formatted now, since the arguments may change until the report.
                last=message % arguments if arguments else message,
            )

    def warning(self, kind: str, now_s: float, message: str, *arguments: object) -> None:
        self.log(logging.WARNING, kind, now_s, message, *arguments)

    def error(self, kind: str, now_s: float, message: str, *arguments: object) -> None:
        self.log(logging.ERROR, kind, now_s, message, *arguments)

    def report(self, now_s: float, *, ends: bool = False) -> None:
        """Log the omissions of intervals that are over, or of all if ``ends``."""
        # Also forgets kinds without omissions, so memory is bounded by the kinds of one interval.
        for kind, interval in list(self._intervals.items()):
            if ends or now_s - interval.started_s >= self._interval_s:
                del self._intervals[kind]
                self._report_interval(kind, interval, now_s)

    def _report_interval(self, kind: str, interval: _Interval, now_s: float) -> None:
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


logger = logging.getLogger("groupcoord.host")

NAMED_TOPICS_MAX = 5
"""Most topics that one line names."""


class Notices:
    """Rate-limited warnings about unsupported features."""

    def __init__(self, topics: TopicRegistry, now_s: Callable[[], float]) -> None:
        self._topics = topics
        self._now_s = now_s
        self._lines = RateLimitedLogger(logger)

    def protocol_is_off(self, connection: Connection, request: ConsumerGroupHeartbeat) -> None:
        """Log that a client uses a disabled protocol."""
        self._lines.warning(
            # As in Kafka, the response has no reason.
            "consumer protocol",
            self._now_s(),
            "client %r at %s asks for group.protocol=consumer in group %r, which is switched off here: "
            "group.coordinator.rebalance.protocols does not name it",
            request.client_id,
            connection.client_host,
            request.group_id,
        )

    def topics_changed(self, names: Iterable[str]) -> None:
        idle = [
            f"{topic.name} ({', '.join(f'{key}={topic.configs[key]}' for key in keys)})"
            for name in names
            if (topic := self._topics.get(name)) is not None and (keys := settings_without_effect(topic.configs))
        ]
        if idle:
            # A request may configure thousands of topics.
            left_out = f" and {len(idle) - NAMED_TOPICS_MAX} more" if len(idle) > NAMED_TOPICS_MAX else ""
            self._lines.warning(
                "settings without effect",
                self._now_s(),
                "topics have got settings that have no effect here: %s%s",
                ", ".join(idle[:NAMED_TOPICS_MAX]),
                left_out,
            )

    def report(self, *, ends: bool = False) -> None:
        self._lines.report(self._now_s(), ends=ends)
