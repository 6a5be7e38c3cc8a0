"""Assignments in the making, which keep what nobody touches and walk everything as Kafka's hash maps do."""

from __future__ import annotations

from uuid import UUID

from groupcoord.core.groups.base.assignor import Partitions
from groupcoord.core.javacompat.hashing import HashTable, buckets_for, buckets_of_copy, integer_hash, uuid_hash

DEFAULT_BUCKETS = 16


def partitions_in_order(partitions: tuple[int, ...]) -> HashTable[int]:
    """Return the partitions of one topic as Kafka's set of them, made from a record or from another set."""
    return HashTable(integer_hash, partitions, max(DEFAULT_BUCKETS, buckets_of_copy(len(partitions))))


class AssignmentDraft:
    """The partitions of one member while they change.

    It begins as a copy of what the member has. Where nothing changes, what comes out is the very same mapping.

    Args:
        assigned: what the member has.
    """

    __slots__ = ("_assigned", "_partitions", "_topics")

    def __init__(self, assigned: Partitions) -> None:
        self._assigned = assigned
        self._topics: HashTable[UUID] | None = None
        self._partitions: dict[UUID, HashTable[int]] = {}

    def topics_in_order(self) -> list[UUID]:
        """Return the topics that the member had at the beginning, as Kafka walks them."""
        return list(HashTable(uuid_hash, self._assigned))

    def drop_topic(self, topic_id: UUID) -> None:
        """Take all partitions of a topic away."""
        self._copied().discard(topic_id)
        del self._partitions[topic_id]

    def remove(self, topic_id: UUID, partition: int) -> None:
        """Take a partition away that the member has."""
        topics, partitions = self._copied(), self._partitions[topic_id]
        partitions.discard(partition)
        if not partitions:
            topics.discard(topic_id)
            del self._partitions[topic_id]

    def add(self, topic_id: UUID, partition: int, buckets: int = DEFAULT_BUCKETS) -> None:
        """Give the member a partition.

        Args:
            topic_id: of which topic.
            partition: its number.
            buckets: how many the set begins with that holds the topic's partitions, if the member has none of them.
        """
        self._copied().compute_if_absent(topic_id)
        if topic_id not in self._partitions:
            self._partitions[topic_id] = HashTable(integer_hash, (), buckets)
        self._partitions[topic_id].put(partition)

    def result(self) -> Partitions:
        """Return what the member has now."""
        if self._topics is None:
            return self._assigned
        return {topic_id: tuple(self._partitions[topic_id]) for topic_id in self._topics}

    def _copied(self) -> HashTable[UUID]:
        if self._topics is None:
            self._topics = HashTable(uuid_hash, self.topics_in_order(), buckets_for(len(self._assigned)))
            for topic_id, partitions in self._assigned.items():
                self._partitions[topic_id] = partitions_in_order(partitions)
        return self._topics
