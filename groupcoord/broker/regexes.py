"""Regular expressions of consumer groups, matched against the broker's topics: RE2, as linear as Kafka's RE2J."""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache
from typing import Any

import re2

from groupcoord.broker.topics.registry import TopicRegistry
from groupcoord.core.front.authorization import Authorize, Operation, Permissions, Principal

REMEMBERED = 1_000
"""So many expressions are kept compiled."""


ExpressionError: type[Exception] = re2.error
"""Why an expression is none."""


@lru_cache(REMEMBERED)
def compile_expression(regex: str) -> Any:
    """Return an expression of RE2, ready to match.

    Raises:
        ExpressionError: it is none.
    """
    options = re2.Options()
    options.log_errors = False
    return re2.compile(regex, options)


class TopicMatcher:
    """Matches expressions against the names of all topics.

    Args:
        topics: the topics.
        authorize: decides which topics somebody may describe; all if there is none.
    """

    def __init__(self, topics: TopicRegistry, authorize: Authorize | None) -> None:
        self._topics = topics
        self._authorize = authorize

    def problem(self, regex: str) -> str | None:
        """Return why an expression can't be used; None if it can."""
        try:
            compile_expression(regex)
        except re2.error as error:
            reason = error.args[0]
            text = reason.decode(errors="replace") if isinstance(reason, bytes) else str(reason)
            return f"SubscribedTopicRegex `{regex}` is not a valid regular expression: {text}."
        return None

    def matching_topics(self, regex: str, principal: Principal) -> Iterable[str]:
        """Return the topics whose whole name an expression matches, as far as ``principal`` may describe them."""
        permissions = Permissions(self._authorize, principal)
        expression = compile_expression(regex)
        return [
            topic.name
            for topic in self._topics
            if expression.fullmatch(topic.name) and permissions.on_topic(topic.name, Operation.DESCRIBE)
        ]
