"""Topics of a cluster in tests, as ``TopicResolver`` and ``RegexResolver``."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any
from uuid import UUID

NAME_LENGTH = 14
"""Bytes of a topic's name in its id; the rest of a longer name is missing."""


class Topics:
    """Topics that are created, extended and deleted, for :class:`~groupcoord.GroupCoordinator`; also resolves
    expressions.

    Each creation has its own id, from which :func:`readable` gets the beginning of the name. Expressions are matched by
    Python's ``re``, which suffices for the RE2 syntax of tests.

    Args:
        partition_counts: initial partition counts by name.

    Attributes:
        partition_counts: partition counts by name.
        ids: ids by name.
        gone: ids of deleted topics.
    """

    def __init__(self, partition_counts: Mapping[str, int] | None = None, /, **more: int) -> None:
        self.partition_counts: dict[str, int] = {}
        self.ids: dict[str, UUID] = {}
        self.gone: list[UUID] = []
        self._creations: dict[str, int] = {}
        for name, count in {**(partition_counts or {}), **more}.items():
            self.create(name, count)

    def create(self, name: str, partition_count: int) -> UUID:
        """Create a topic and return its id."""
        creation = self._creations[name] = self._creations.get(name, 0) + 1
        self.partition_counts[name] = partition_count
        self.ids[name] = UUID(bytes=name.encode()[:NAME_LENGTH].ljust(NAME_LENGTH, b"\0") + creation.to_bytes(2, "big"))
        return self.ids[name]

    def grow(self, name: str, count: int = 1) -> None:
        """Add partitions to a topic."""
        self.partition_counts[name] += count

    def delete(self, name: str) -> UUID:
        """Delete a topic and return its id."""
        del self.partition_counts[name]
        self.gone.append(self.ids.pop(name))
        return self.gone[-1]

    # ------------------------------------------------------------ what a coordinator asks

    def partition_count(self, name: str) -> int | None:
        """Return the partition count of a topic; None if it does not exist."""
        return self.partition_counts.get(name)

    def topic_id(self, name: str) -> UUID | None:
        """Return the id of a topic; None if it does not exist."""
        return self.ids.get(name)

    def topic_name(self, topic_id: UUID) -> str | None:
        """Return the name of a topic id; None if it does not exist."""
        return next((name for name, known in self.ids.items() if known == topic_id), None)

    def problem(self, regex: str) -> str | None:
        """Return why an expression is invalid; None if it is valid."""
        try:
            re.compile(regex)
        except re.error as error:
            return str(error)
        return None

    def matching_topics(self, regex: str, principal: Any) -> list[str]:
        """Return the names that match an expression; every principal may describe every topic."""
        return [name for name in self.ids if re.fullmatch(regex, name)]


def readable(topic_id: UUID) -> str:
    """Return the beginning of the name in an id of :class:`Topics`; ``#2`` marks the second creation."""
    name = topic_id.bytes[:NAME_LENGTH].rstrip(b"\0").decode("utf-8", "replace")
    creation = int.from_bytes(topic_id.bytes[NAME_LENGTH:], "big")
    return name if creation == 1 else f"{name}#{creation}"
