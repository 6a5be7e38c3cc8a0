"""Topics of a cluster as hosts describe them to the coordinator, legal topic names, and Kafka's internal topics."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any, Protocol
from uuid import UUID

from groupcoord.core.log.records import OFFSETS_TOPIC, ZERO_UUID

TRANSACTIONS_TOPIC = "__transaction_state"
SHARE_STATE_TOPIC = "__share_group_state"
INTERNAL_TOPICS = frozenset({OFFSETS_TOPIC, TRANSACTIONS_TOPIC, SHARE_STATE_TOPIC})
MAX_NAME_LENGTH = 249
_LEGAL_NAME = re.compile(r"[a-zA-Z0-9._-]+", re.ASCII)


def illegal_name_reason(name: str) -> str | None:
    """Return why a topic name is illegal by Kafka's rules (``Topic``), or None.

    1 to 249 of ASCII letters, digits, dot, underscore and dash are allowed; not ``.`` or ``..``.
    """
    if not name:
        return "the empty string is not allowed"
    if name in (".", ".."):
        return f"'{name}' is not allowed"
    if len(name) > MAX_NAME_LENGTH:
        return f"the length of '{name}' is longer than the max allowed length {MAX_NAME_LENGTH}"
    if not _LEGAL_NAME.fullmatch(name):
        return f"'{name}' contains one or more characters other than ASCII alphanumerics, '.', '_' and '-'"
    return None


class TopicResolver(Protocol):
    """The topics of a cluster, as the coordinator needs them."""

    def partition_count(self, name: str) -> int | None:
        """Return a topic's partition count, or None."""

    def topic_id(self, name: str) -> UUID | None:
        """Return a topic's id, or None."""

    def topic_name(self, topic_id: UUID) -> str | None:
        """Return the name of a topic id, or None."""


class AnyTopic:
    """Every topic exists, with any number of partitions and without an id: for hosts that keep no list."""

    def partition_count(self, name: str) -> int | None:
        """Return a number above every partition index."""
        return 2**31

    def topic_id(self, name: str) -> UUID | None:
        """Return the zero id."""
        return ZERO_UUID

    def topic_name(self, topic_id: UUID) -> str | None:
        """Return None: no id is known."""
        return None


class RegexResolver(Protocol):
    """Resolver of regular expressions that members subscribe by.

    Expressions come from clients, in RE2 syntax: matching has to take linear time in the names.
    """

    def problem(self, regex: str) -> str | None:
        """Return why an expression can't be used; None if it can."""

    def matching_topics(self, regex: str, principal: Any) -> Iterable[str]:
        """Return the topics whose whole name an expression matches and that ``principal`` may describe."""


class NoRegexes:
    """No expression can be used: for hosts that match none."""

    def problem(self, regex: str) -> str | None:
        """Return that regular expressions are not supported."""
        return "this coordinator matches no regular expressions"

    def matching_topics(self, regex: str, principal: Any) -> Iterable[str]:
        """Return no topics."""
        return ()
