"""Internal topics that streams groups miss: which the host was asked to create, and which it could not.

Source: ``AutoTopicCreationManager`` of Kafka's broker, which does this for streams groups (KIP-1071).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from attrs import define, field

from groupcoord.core.groups.streams.topology import names_of_few
from groupcoord.core.host_queries import CreateInternalTopics, InternalTopic, InternalTopicsCreated
from groupcoord.core.router.authorization import Operation, Permissions

INTERVALS = 2
"""For so many intervals of heartbeats an error is remembered, and told; then the topic is asked for again.

An answer that has not come by then never will: whoever was asked may be gone."""


@define
class _Asked:
    until_ms: int
    reason: str | None = None


@define(eq=False)
class InternalTopics:
    """Remembers what was asked of the host, so that members that all miss a topic don't ask for it all the time."""

    _asked: dict[str, _Asked] = field(factory=dict)
    _swept_count: int = 0

    def ask(
        self, topics: Iterable[InternalTopic], permissions: Permissions | None, heartbeat_interval_ms: int, now_ms: int
    ) -> tuple[tuple[InternalTopic, ...], str]:
        """Return the topics that the host is to create now, and what members are told of all of them.

        Args:
            topics: those that are missing.
            permissions: what the asking member may do; None: everything.
            heartbeat_interval_ms: of its group.
            now_ms: the time.
        """
        missing = sorted(topics, key=lambda topic: topic.name)
        self._forget_old([topic.name for topic in missing], now_ms)
        refused = [] if permissions is None else _may_not_create(missing, permissions)
        if refused:
            return (), f"; Unauthorized to CREATE on topics {names_of_few(refused)}."
        new = tuple(topic for topic in missing if topic.name not in self._asked)
        for topic in new:
            self._asked[topic.name] = _Asked(now_ms + INTERVALS * heartbeat_interval_ms)
        failed = [
            f"{topic.name} ({reason})"
            for topic in missing
            if (asked := self._asked[topic.name]) and (reason := asked.reason) is not None
        ]
        return new, f"; Creation failed: {names_of_few(failed)}." if failed else ""

    def _forget_old(self, names: Iterable[str], now_ms: int) -> None:
        """Forget what is told no more of these topics, and of all if there are twice as many as were left then."""
        is_large = len(self._asked) > 2 * self._swept_count
        for name in list(self._asked) if is_large else names:
            if name in self._asked and self._asked[name].until_ms <= now_ms:
                del self._asked[name]
        if is_large:
            self._swept_count = len(self._asked)

    def created(self, answer: InternalTopicsCreated, heartbeat_interval_ms: int, now_ms: int) -> None:
        """The host has created topics, or could not."""
        self._note(answer.question, answer.errors, heartbeat_interval_ms, now_ms)

    def _note(
        self, question: CreateInternalTopics, errors: Mapping[str, str], heartbeat_interval_ms: int, now_ms: int
    ) -> None:
        for topic in question.topics:
            self._asked.pop(topic.name, None)
            if topic.name in errors:
                self._asked[topic.name] = _Asked(now_ms + INTERVALS * heartbeat_interval_ms, errors[topic.name])


def _may_not_create(topics: Iterable[InternalTopic], permissions: Permissions) -> list[str]:
    """Return the names of the topics that somebody may not create who may not create all."""
    if permissions.on_cluster(Operation.CREATE):
        return []
    return [topic.name for topic in topics if not permissions.on_topic(topic.name, Operation.CREATE)]
