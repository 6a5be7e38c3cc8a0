"""The topics that there are: as brokers know them, and as they tell clients of them."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any, Protocol
from uuid import NAMESPACE_URL, UUID, uuid5

from groupcoord.member import Cluster as TopicMetadata
from groupcoord.member import TopicPartition


class Topics:
    """The topics that there are; they come, grow and go (a :class:`~groupcoord.TopicResolver`).

    A topic that comes again has another id.

    Regular expressions of consumer groups (KIP-848) are matched by Python's ``re`` where brokers have RE2: write what
    both read the same way. Everybody may describe every topic.

    Attributes:
        metadata: what brokers tell of them.
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
        """Return the names of all topics, sorted."""
        return sorted(self._partition_counts)

    def partitions_of(self, topics: tuple[str, ...]) -> tuple[TopicPartition, ...]:
        """Return all partitions of those of these topics that exist."""
        counts = self._partition_counts
        return tuple(TopicPartition(name, index) for name in topics for index in range(counts.get(name, 0)))

    def remembered_names(self) -> list[str]:
        """Return the names of all topics that there are, or were, sorted."""
        return sorted(self._last_counts)

    def remembered_partitions_of(self, topics: tuple[str, ...]) -> tuple[TopicPartition, ...]:
        """Return all partitions of these topics as they are, or were: clients may not know yet that a topic is gone."""
        counts = self._last_counts
        return tuple(TopicPartition(name, index) for name in topics for index in range(counts.get(name, 0)))

    def remembered_name(self, topic_id: UUID) -> str | None:
        """Return the name of the topic that has this id, or had it; None if there was never one."""
        return self._remembered_names.get(topic_id)

    def was_deleted(self, topic: str) -> bool:
        """Tell whether a topic of this name is gone, or was, before it came again."""
        return topic in self._deletions

    def set_partition_count(self, topic: str, partition_count: int) -> tuple[TopicPartition, ...]:
        """Give a topic more partitions, or create it; return the new ones."""
        old_count = self._partition_counts.get(topic, 0)
        self._partition_counts[topic] = self._last_counts[topic] = partition_count
        self._ids[topic] = topic_id = _id_of(f"{topic}#{self._deletions[topic]}" if topic in self._deletions else topic)
        self._names[topic_id] = self._remembered_names[topic_id] = topic
        self.metadata = TopicMetadata.of(self._partition_counts, self._ids)
        return tuple(TopicPartition(topic, index) for index in range(old_count, partition_count))

    def delete(self, topic: str) -> UUID:
        """Delete a topic; return the id that it had."""
        del self._partition_counts[topic]
        self._deletions[topic] += 1
        topic_id = self._ids.pop(topic)
        del self._names[topic_id]
        self.metadata = TopicMetadata.of(self._partition_counts, self._ids)
        return topic_id

    # ------------------------------------------------------------ what a coordinator asks

    def partition_count(self, name: str) -> int | None:
        """See :class:`groupcoord.TopicResolver`."""
        return self._partition_counts.get(name)

    def topic_id(self, name: str) -> UUID | None:
        """See :class:`groupcoord.TopicResolver`."""
        return self._ids.get(name)

    def topic_name(self, topic_id: UUID) -> str | None:
        """See :class:`groupcoord.TopicResolver`."""
        return self._names.get(topic_id)

    def problem(self, regex: str) -> str | None:
        """See :class:`groupcoord.core.topics.RegexResolver`."""
        try:
            re.compile(regex)
        except re.error as error:
            return str(error)
        return None

    def matching_topics(self, regex: str, principal: Any = None) -> list[str]:
        """See :class:`groupcoord.core.topics.RegexResolver`."""
        return [name for name in self.names() if re.fullmatch(regex, name)]


def _id_of(topic: str) -> UUID:
    """Return an id that looks random and is the same in each run, since assignors sort by ids."""
    return uuid5(NAMESPACE_URL, topic)


class _PartitionsOfTopic(Protocol):
    @property
    def topic_id(self) -> UUID: ...

    @property
    def partitions(self) -> Iterable[int]: ...


def indices_of(topics: Iterable[_PartitionsOfTopic]) -> set[tuple[UUID, int]]:
    """Return which partitions topics name, by the topic's id, whatever kind of message or record names them."""
    return {(topic.topic_id, index) for topic in topics for index in topic.partitions}
