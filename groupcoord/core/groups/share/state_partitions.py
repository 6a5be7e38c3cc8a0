"""For which partitions the share coordinator has a state of a group, is to make one, or is to forget it.

Values: a change makes another one. The record says all of it but when something began to be initialized, which is the
time of the last such record. Source: ``ShareGroupStatePartitionMetadata…`` in ``GroupMetadataManager`` of Kafka 4.4.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import NamedTuple
from uuid import UUID

from attrs import evolve, field, frozen

from groupcoord.core.groups.share.records import (
    NamedTopic,
    NamedTopicPartitions,
    ShareGroupStatePartitionMetadataRecord,
)
from groupcoord.core.javacompat.hashing import HashTable, uuid_hash

UNKNOWN_TOPIC_NAME = "<UNKNOWN>"
"""What stands for the name of a topic that is gone."""


class NamedPartitions(NamedTuple):
    """Partitions of a topic, with its name."""

    name: str
    partitions: frozenset[int]


PartitionsByTopic = Mapping[UUID, frozenset[int]]
"""Partitions by topic id."""


@frozen
class StatePartitions:
    """Where the states of a group's partitions stand.

    Attributes:
        initializing: topic id → partitions for which the share coordinator was asked to make a state.
        initialized: topic id → partitions for which it has one.
        deleting: topic id → name of the topics whose states it was asked to forget.
        is_written: the log has a record of it, if only one that says that there are none.
    """

    initializing: Mapping[UUID, NamedPartitions] = field(factory=dict)
    initialized: Mapping[UUID, NamedPartitions] = field(factory=dict)
    deleting: Mapping[UUID, str] = field(factory=dict)
    is_written: bool = True

    @classmethod
    def of(cls, record: ShareGroupStatePartitionMetadataRecord) -> StatePartitions:
        """Return what a record says."""
        return cls(
            _by_topic(record.initializing_topics),
            _by_topic(record.initialized_topics),
            dict(record.deleting_topics),
        )

    def to_record(self, group_id: str) -> ShareGroupStatePartitionMetadataRecord:
        """Return the record that says it, in the order of Java's hash maps."""
        return ShareGroupStatePartitionMetadataRecord(
            group_id,
            _named_topics(self.initializing),
            _named_topics(self.initialized),
            tuple([NamedTopic(topic_id, self.deleting[topic_id]) for topic_id in HashTable(uuid_hash, self.deleting)]),
        )

    # ------------------------------------------------------------ changes

    def begin(self, partitions: PartitionsByTopic, name_of: Callable[[UUID], str | None]) -> StatePartitions:
        """Return what is when the share coordinator is about to be asked to make states of these partitions."""
        return StatePartitions(
            _with(self.initializing, partitions, name_of),
            self.initialized,
            {topic_id: name for topic_id, name in self.deleting.items() if topic_id not in partitions},
        )

    def complete(self, partitions: PartitionsByTopic, name_of: Callable[[UUID], str | None]) -> StatePartitions:
        """Return what is when it has made them."""
        return StatePartitions(
            _without(self.initializing, partitions), _with(self.initialized, partitions, name_of), self.deleting
        )

    def give_up(self, partitions: PartitionsByTopic) -> StatePartitions:
        """Return what is when it could not make them."""
        return evolve(self, initializing=_without(self.initializing, partitions))

    def forgotten(self, topic_ids: Iterable[UUID]) -> StatePartitions:
        """Return what is when it has forgotten what it was asked to forget."""
        gone = set(topic_ids)
        return evolve(
            self, deleting={topic_id: name for topic_id, name in self.deleting.items() if topic_id not in gone}
        )

    def without_topics(self, topic_ids: Iterable[UUID]) -> StatePartitions:
        """Return what is without topics that are gone."""
        gone = set(topic_ids)
        return evolve(
            self,
            initializing={topic_id: entry for topic_id, entry in self.initializing.items() if topic_id not in gone},
            initialized={topic_id: entry for topic_id, entry in self.initialized.items() if topic_id not in gone},
            deleting={topic_id: name for topic_id, name in self.deleting.items() if topic_id not in gone},
        )

    # ------------------------------------------------------------ questions

    def name_of(self, topic_id: UUID, name_of: Callable[[UUID], str | None]) -> str:
        """Return the name of a topic, by what is written of it, or as it is now."""
        for topics in (self.initialized, self.initializing):
            if topic_id in topics:
                return topics[topic_id].name
        return self.deleting.get(topic_id) or name_of(topic_id) or UNKNOWN_TOPIC_NAME

    def knows(self, topic_id: UUID) -> bool:
        """Tell whether there is a state of a topic, or is about to be."""
        return topic_id in self.initialized or topic_id in self.initializing

    def missing(self, topic_id: UUID, partition_count: int, *, counts_initializing: bool) -> frozenset[int]:
        """Return the partitions of a topic for which states are to be made.

        Args:
            topic_id: the topic.
            partition_count: how many partitions it has.
            counts_initializing: those are left out for which it was asked not long ago.
        """
        missing = set(range(partition_count)) - _partitions_of(self.initialized, topic_id)
        return frozenset(missing - _partitions_of(self.initializing, topic_id) if counts_initializing else missing)


NO_STATE_PARTITIONS = StatePartitions(is_written=False)


def _by_topic(topics: Iterable[NamedTopicPartitions]) -> dict[UUID, NamedPartitions]:
    return {topic_id: NamedPartitions(name, frozenset(partitions)) for topic_id, name, partitions in topics}


def _named_topics(topics: Mapping[UUID, NamedPartitions]) -> tuple[NamedTopicPartitions, ...]:
    return tuple(
        [
            NamedTopicPartitions(topic_id, topics[topic_id].name, tuple(sorted(topics[topic_id].partitions)))
            for topic_id in HashTable(uuid_hash, topics)
        ]
    )


def _partitions_of(topics: Mapping[UUID, NamedPartitions], topic_id: UUID) -> frozenset[int]:
    found = topics.get(topic_id)
    return frozenset() if found is None else found.partitions


def _with(
    topics: Mapping[UUID, NamedPartitions], partitions: PartitionsByTopic, name_of: Callable[[UUID], str | None]
) -> dict[UUID, NamedPartitions]:
    changed = dict(topics)
    for topic_id, more in partitions.items():
        name = name_of(topic_id) or UNKNOWN_TOPIC_NAME
        changed[topic_id] = NamedPartitions(name, _partitions_of(topics, topic_id) | more)
    return changed


def _without(topics: Mapping[UUID, NamedPartitions], partitions: PartitionsByTopic) -> dict[UUID, NamedPartitions]:
    left = {}
    for topic_id, (name, found) in topics.items():
        rest = found - partitions.get(topic_id, frozenset())
        if rest or topic_id not in partitions:
            left[topic_id] = NamedPartitions(name, rest)
    return left
