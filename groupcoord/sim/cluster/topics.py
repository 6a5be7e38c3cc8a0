"""Topics of a simulated cluster: metadata for clients and coordinators."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any
from uuid import NAMESPACE_URL, UUID, uuid5

from groupcoord.broker.topics.registry import Topic, TopicRegistry
from groupcoord.core.groups.consumer.records import AssignedTopicPartitions
from groupcoord.member import Cluster as TopicMetadata, TopicPartition
from groupcoord.messages import TopicPartitions


class Topics(TopicRegistry):
    """Topics, which are created, grow and are deleted. A topic that is created again has another id.

    Regular expressions of consumer groups (KIP-848) are matched by Python's ``re``, where brokers use RE2: use
    expressions with the same meaning in both. Every client may describe every topic.

    Attributes:
        names_by_id: names of present and former topics.
    """

    metadata: TopicMetadata

    def __init__(self, partition_counts: Mapping[str, int]) -> None:
        super().__init__()
        self._last_counts: dict[str, int] = {}
        self.names_by_id: dict[UUID, str] = {}
        self._deletions: Counter[str] = Counter()
        self._set({name: Topic(name, _id_of(name), count) for name, count in partition_counts.items()})

    def _set(self, topics: dict[str, Topic]) -> None:
        super()._set(topics)
        counts = {name: topic.partition_count for name, topic in topics.items()}
        self._last_counts.update(counts)
        self.names_by_id.update({topic.topic_id: name for name, topic in topics.items()})
        self.metadata = TopicMetadata.of(counts, {name: topic.topic_id for name, topic in topics.items()})

    def names(self) -> list[str]:
        """Return the names, sorted."""
        return sorted(self._topics)

    def partitions_of(self, topics: tuple[str, ...]) -> tuple[TopicPartition, ...]:
        """Return the partitions of existing topics."""
        return tuple(TopicPartition(name, index) for name in topics for index in range(self.partition_count(name) or 0))

    def remembered_names(self) -> list[str]:
        """Return the names of present and former topics, sorted."""
        return sorted(self._last_counts)

    def remembered_partitions_of(self, topics: tuple[str, ...]) -> tuple[TopicPartition, ...]:
        """Return all partitions of present and former topics, since clients may not know of a deletion yet."""
        counts = self._last_counts
        return tuple(TopicPartition(name, index) for name in topics for index in range(counts.get(name, 0)))

    def was_deleted(self, topic: str) -> bool:
        """Return whether a topic of this name was ever deleted."""
        return topic in self._deletions

    def set_partition_count(self, name: str, partition_count: int) -> tuple[TopicPartition, ...]:
        """Add partitions to a topic or create it; return the new ones."""
        old_count = self.partition_count(name) or 0
        topic_id = _id_of(f"{name}#{self._deletions[name]}" if name in self._deletions else name)
        self._set({**self._topics, name: Topic(name, topic_id, partition_count)})
        return tuple(TopicPartition(name, index) for index in range(old_count, partition_count))

    def delete(self, name: str) -> Topic:
        """Delete a topic; return it."""
        topic = self._topics[name]
        self._deletions[name] += 1
        self._set({other: topic for other, topic in self._topics.items() if other != name})
        return topic

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


def indices_of(topics: Iterable[TopicPartitions | AssignedTopicPartitions]) -> set[tuple[UUID, int]]:
    return {(topic.topic_id, index) for topic in topics for index in topic.partitions}
