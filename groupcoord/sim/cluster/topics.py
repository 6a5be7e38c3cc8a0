"""Topics of a simulated cluster: metadata for clients and coordinators."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any, Protocol
from uuid import NAMESPACE_URL, UUID, uuid5

from groupcoord.member import Cluster as TopicMetadata
from groupcoord.member import TopicPartition


class Topics:
    """Topics, which are created, grow and are deleted (a :class:`~groupcoord.TopicResolver`).

    A topic that is created again has another id.

    Regular expressions of consumer groups (KIP-848) are matched by Python's ``re``, where brokers use RE2: use
    expressions with the same meaning in both. Every client may describe every topic.
    """

    def __init__(self, partition_counts: Mapping[str, int]) -> None:
        self._partition_counts = dict(partition_counts)
        self._ids = {name: _id_of(name) for name in partition_counts}
        self._names = {topic_id: name for name, topic_id in self._ids.items()}
        self._remembered_names = dict(self._names)
        self._last_counts = dict(partition_counts)
        self._deletions: Counter[str] = Counter()
        self.metadata = TopicMetadata.of(self._partition_counts, self._ids)

    def names(self) -> list[str]:
        """Return the names, sorted."""
        return sorted(self._partition_counts)

    def partitions_of(self, topics: tuple[str, ...]) -> tuple[TopicPartition, ...]:
        """Return the partitions of existing topics."""
        counts = self._partition_counts
        return tuple(TopicPartition(name, index) for name in topics for index in range(counts.get(name, 0)))

    def remembered_names(self) -> list[str]:
        """Return the names of present and former topics, sorted."""
        return sorted(self._last_counts)

    def remembered_partitions_of(self, topics: tuple[str, ...]) -> tuple[TopicPartition, ...]:
        """Return all partitions of present and former topics, since clients may not know of a deletion yet."""
        counts = self._last_counts
        return tuple(TopicPartition(name, index) for name in topics for index in range(counts.get(name, 0)))

    def remembered_name(self, topic_id: UUID) -> str | None:
        """Return the name of the present or former topic with this id, or None."""
        return self._remembered_names.get(topic_id)

    def was_deleted(self, topic: str) -> bool:
        """Return whether a topic of this name was ever deleted."""
        return topic in self._deletions

    def set_partition_count(self, topic: str, partition_count: int) -> tuple[TopicPartition, ...]:
        """Add partitions to a topic or create it; return the new ones."""
        old_count = self._partition_counts.get(topic, 0)
        self._partition_counts[topic] = self._last_counts[topic] = partition_count
        self._ids[topic] = topic_id = _id_of(f"{topic}#{self._deletions[topic]}" if topic in self._deletions else topic)
        self._names[topic_id] = self._remembered_names[topic_id] = topic
        self.metadata = TopicMetadata.of(self._partition_counts, self._ids)
        return tuple(TopicPartition(topic, index) for index in range(old_count, partition_count))

    def delete(self, topic: str) -> UUID:
        """Delete a topic; return its former id."""
        del self._partition_counts[topic]
        self._deletions[topic] += 1
        topic_id = self._ids.pop(topic)
        del self._names[topic_id]
        self.metadata = TopicMetadata.of(self._partition_counts, self._ids)
        return topic_id

    # ------------------------------------------------------------ what a coordinator asks

    def partition_count(self, name: str) -> int | None:
        """Return the number of partitions, or None."""
        return self._partition_counts.get(name)

    def topic_id(self, name: str) -> UUID | None:
        """Return the id of a topic, or None."""
        return self._ids.get(name)

    def topic_name(self, topic_id: UUID) -> str | None:
        """Return the name of the topic with an id, or None."""
        return self._names.get(topic_id)

    def problem(self, regex: str) -> str | None:
        """Return the error of a regular expression, or None."""
        try:
            re.compile(regex)
        except re.error as error:
            return str(error)
        return None

    def matching_topics(self, regex: str, principal: Any = None) -> list[str]:
        """Return the names of matching topics."""
        return [name for name in self.names() if re.fullmatch(regex, name)]


def _id_of(topic: str) -> UUID:
    """Return an id that is the same in each run, because assignors sort by ids."""
    return uuid5(NAMESPACE_URL, topic)


class _PartitionsOfTopic(Protocol):
    @property
    def topic_id(self) -> UUID: ...

    @property
    def partitions(self) -> Iterable[int]: ...


def indices_of(topics: Iterable[_PartitionsOfTopic]) -> set[tuple[UUID, int]]:
    return {(topic.topic_id, index) for topic in topics for index in topic.partitions}
