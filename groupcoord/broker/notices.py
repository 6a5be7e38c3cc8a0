"""Lines in the log for what clients ask of a server that does not have it, and are not always told.

A client closes over an error, or goes on as if nothing was wrong; who runs the server, or a test, wants to know why.
What isn't served at all closes the connection, and is logged with that (:mod:`groupcoord.host.peer`).
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping

from groupcoord.broker.configs.definitions import settings_without_effect
from groupcoord.broker.connection import Connection
from groupcoord.broker.rate_limited_logger import RateLimitedLogger
from groupcoord.broker.topics.registry import Topic, TopicRegistry
from groupcoord.core.messages import ConsumerGroupHeartbeat

logger = logging.getLogger("groupcoord.host")

TOLD_TOPICS = 5
"""One line names so many topics."""


class Notices:
    """Tells what was asked for in vain; of each kind some lines, and how many there were besides.

    Args:
        topics: the topics that exist.
        now_s: a stopwatch.
    """

    def __init__(self, topics: TopicRegistry, now_s: Callable[[], float]) -> None:
        self._topics = topics
        self._now_s = now_s
        self._lines = RateLimitedLogger(logger)

    def protocol_is_off(self, connection: Connection, request: ConsumerGroupHeartbeat) -> None:
        """A client uses a protocol that the settings leave out: it is told an error without a reason, as by Kafka."""
        self._lines.warning(
            "consumer protocol",
            self._now_s(),
            "client %r at %s asks for group.protocol=consumer in group %r, which is switched off here: "
            "group.coordinator.rebalance.protocols does not name it",
            request.client_id,
            connection.client_host,
            request.group_id,
        )

    def topics_changed(self, before: Mapping[str, Topic | None]) -> None:
        """Tell which settings have no effect that topics have got.

        Args:
            before: the topics that a request was about, by name, as they were before it.
        """
        changed = [topic for name, was in before.items() if (topic := self._topics.get(name)) not in (None, was)]
        idle = [
            f"{topic.name} ({', '.join(f'{key}={topic.configs[key]}' for key in keys)})"
            for topic in changed
            if topic is not None and (keys := settings_without_effect(topic.configs))
        ]
        if idle:
            left_out = f" and {len(idle) - TOLD_TOPICS} more" if len(idle) > TOLD_TOPICS else ""
            self._lines.warning(
                "settings without effect",
                self._now_s(),
                "topics have got settings that have no effect here: %s%s",
                ", ".join(idle[:TOLD_TOPICS]),
                left_out,
            )

    def report(self, *, ends: bool = False) -> None:
        """Tell what was left out; worth calling now and then."""
        self._lines.report(self._now_s(), ends=ends)
