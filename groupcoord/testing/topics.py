"""The topics of a cluster in tests: they come, grow and go."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any
from uuid import UUID

NAME_LENGTH = 14
"""So many bytes of a topic's name stand in its id."""


class Topics:
    """Topics that come, grow and go, for :class:`~groupcoord.GroupCoordinator`; it resolves expressions as well.

    Every creation has an id of its own, in which the name can be read: see :func:`readable`. Expressions are matched
    by Python's ``re``, whose syntax is that of RE2 in all that tests need.

    Args:
        partition_counts: the topics that exist from the start, with their numbers of partitions.

    Attributes:
        partition_counts: topic name → how many partitions it has.
        ids: topic name → its id.
        gone: the ids of topics that were deleted.
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
        """Delete a topic and return the id that it had."""
        del self.partition_counts[name]
        self.gone.append(self.ids.pop(name))
        return self.gone[-1]

    # ------------------------------------------------------------ what a coordinator asks

    def partition_count(self, name: str) -> int | None:
        """See :class:`groupcoord.TopicResolver`."""
        return self.partition_counts.get(name)

    def topic_id(self, name: str) -> UUID | None:
        """See :class:`groupcoord.TopicResolver`."""
        return self.ids.get(name)

    def topic_name(self, topic_id: UUID) -> str | None:
        """See :class:`groupcoord.TopicResolver`."""
        return next((name for name, known in self.ids.items() if known == topic_id), None)

    def problem(self, regex: str) -> str | None:
        """See :class:`groupcoord.core.topics.RegexResolver`."""
        try:
            re.compile(regex)
        except re.error as error:
            return str(error)
        return None

    def matching_topics(self, regex: str, principal: Any) -> list[str]:
        """See :class:`groupcoord.core.topics.RegexResolver`; everybody may describe every topic."""
        return [name for name in self.ids if re.fullmatch(regex, name)]


def readable(topic_id: UUID) -> str:
    """Return the name that stands in an id of :class:`Topics`; ``#2`` behind it: of the topic's second creation."""
    name = topic_id.bytes[:NAME_LENGTH].rstrip(b"\0").decode("utf-8", "replace")
    creation = int.from_bytes(topic_id.bytes[NAME_LENGTH:], "big")
    return name if creation == 1 else f"{name}#{creation}"
