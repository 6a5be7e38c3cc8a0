"""Current and target assignment of a member of a consumer group: partitions by topic id."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from types import MappingProxyType
from uuid import UUID

from attrs import frozen

from groupcoord.core.messages import TopicPartitions

Partitions = Mapping[UUID, tuple[int, ...]]


@frozen
class LocalAssignment:
    """Partitions, and a number that grows with each assignment that differs from the one before.

    The number distinguishes an assignment that was given, replaced and given again: each must be acknowledged.

    Attributes:
        number: -1 before there is any assignment.
    """

    number: int = -1
    partitions: Partitions = MappingProxyType({})

    @property
    def is_none(self) -> bool:
        """Whether there was no assignment yet, which differs from an empty one."""
        return self.number < 0

    def replaced_by(self, partitions: Partitions) -> LocalAssignment:
        """Return the assignment that follows this one, or this one if nothing changes."""
        if not self.is_none and partitions == self.partitions:
            return self
        return LocalAssignment(self.number + 1, partitions)


NO_ASSIGNMENT = LocalAssignment()


def read_partitions(topics: Iterable[TopicPartitions]) -> Partitions:
    """Return the partitions in a response, each topic once, partitions sorted."""
    found: dict[UUID, set[int]] = {}
    for topic_id, partitions in topics:
        found.setdefault(topic_id, set()).update(partitions)
    return {topic_id: tuple(sorted(partitions)) for topic_id, partitions in found.items()}


def write_partitions(partitions: Partitions) -> tuple[TopicPartitions, ...]:
    """Return partitions in the form of a request."""
    return tuple(TopicPartitions(topic_id, numbers) for topic_id, numbers in partitions.items())
