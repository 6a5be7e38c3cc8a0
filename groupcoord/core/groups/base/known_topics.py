"""The topics of the cluster as they are now, and what is worth keeping of each."""

from __future__ import annotations

from collections.abc import Iterable
from uuid import UUID

from attrs import define, field

from groupcoord.core.groups.base.metadata_hash import metadata_hash, topic_hash
from groupcoord.core.groups.base.topics import Topic
from groupcoord.core.topics import TopicResolver


@define(eq=False)
class KnownTopics:
    """The topics of the cluster, with what is worth keeping of each. All kinds of groups share it.

    Attributes:
        resolver: knows them.
        version: grows when topics are created.
    """

    resolver: TopicResolver
    version: int = 0
    _known: dict[str, Topic] = field(factory=dict)  # as they were when somebody last looked
    _hashes: dict[str, tuple[Topic, int]] = field(factory=dict)

    def topic_id(self, name: str) -> UUID | None:
        """Return a topic's id; None if there is no such topic."""
        return self.resolver.topic_id(name)

    def topic_name(self, topic_id: UUID) -> str | None:
        """Return the name of the topic with this id; None if there is no such topic."""
        return self.resolver.topic_name(topic_id)

    def existing(self, names: Iterable[str]) -> dict[str, Topic]:
        """Return those of these topics that exist and have an id, by name."""
        found = {}
        for name in names:
            topic_id = self.resolver.topic_id(name)
            if topic_id is None or not topic_id.int:
                continue
            partition_count = self.resolver.partition_count(name)
            if partition_count is not None:
                topic = self._known.get(name)
                if topic is None or topic.topic_id != topic_id or topic.partition_count != partition_count:
                    topic = self._known[name] = Topic(name, topic_id, partition_count)
                found[name] = topic
        return found

    def metadata_hash(self, names: Iterable[str]) -> int:
        """Return what stands for these topics as they are now."""
        return metadata_hash({name: self._hash(topic) for name, topic in self.existing(names).items()})

    def _hash(self, topic: Topic) -> int:
        known = self._hashes.get(topic.name)
        if known is None or known[0] is not topic:
            known = self._hashes[topic.name] = (topic, topic_hash(topic))
        return known[1]
