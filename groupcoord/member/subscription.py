"""Subscription of a member, its assignment and positions, and the topic metadata that it knows."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping
from enum import Enum
from uuid import UUID

from attrs import define, field, frozen

from groupcoord.core.consumer_protocol import TopicPartition
from groupcoord.member.assignors import Cluster, ClusterTopic
from groupcoord.member.membership import IllegalCallError
from groupcoord.member.outputs import OffsetAndMetadata

_Racks = tuple[frozenset[str | None], ...]
_Snapshot = dict[str, tuple[int, _Racks]]


@define(eq=False, repr=False)
class TopicMetadata:
    """Topics of the cluster, now and when the leader assigned.

    Attributes:
        cluster: the topics of the last update.
        has_changed: whether they differ from those of the leader's assignment.
        is_fresh: whether all topics were updated since the last rebalance.
        is_requested: whether metadata was requested and has not arrived.
        names: known names of topics by id.
    """

    _compares_racks: bool
    _absent: frozenset[str] = field(default=frozenset(), init=False)
    _snapshot: _Snapshot = field(factory=dict, init=False)
    _assignment_snapshot: _Snapshot | None = field(default=None, init=False)
    cluster: Cluster = field(factory=Cluster, init=False)
    has_changed: bool = field(default=False, init=False)
    is_fresh: bool = field(default=False, init=False)
    is_requested: bool = field(default=False, init=False)
    names: dict[UUID, str] = field(factory=dict, init=False)

    def update(self, cluster: Cluster, requested: Iterable[str]) -> None:
        """Replace the topics. Those of ``requested`` that are missing do not exist."""
        self.cluster = cluster
        self._absent = frozenset(topic for topic in requested if topic not in cluster.topics)
        self.names = {topic.topic_id: name for name, topic in cluster.topics.items() if topic.topic_id is not None}
        self.is_fresh = True
        self.is_requested = False

    def take_snapshot(self, topics: Iterable[str]) -> None:
        """Store the metadata of these topics, and compare it with that of the leader's assignment."""
        known = self.cluster.topics
        self._snapshot = {topic: self._picture(known[topic]) for topic in topics if topic in known}
        self.has_changed = self._assignment_snapshot is not None and self._assignment_snapshot != self._snapshot

    def _picture(self, topic: ClusterTopic) -> tuple[int, _Racks]:
        if not self._compares_racks or topic.replica_racks is None:
            return topic.partition_count, ()
        return topic.partition_count, tuple(frozenset(racks) for racks in topic.replica_racks)

    def missing(self, topics: Iterable[str]) -> bool:
        """Return whether the metadata of any of these topics is unknown; that of absent topics is known."""
        return any(topic not in self.cluster.topics and topic not in self._absent for topic in topics)

    def mark_assigned(self) -> None:
        """Store the topics of the last :meth:`take_snapshot` as those of the leader's assignment."""
        self._assignment_snapshot = self._snapshot
        self.has_changed = False

    def forget(self) -> None:
        self._assignment_snapshot = None
        self.has_changed = False


INTERNAL_TOPICS = frozenset({"__consumer_offsets", "__transaction_state", "__share_group_state"})


class SubscriptionKind(Enum):
    """Way in which a member gets its partitions."""

    NONE = "none"
    TOPICS = "topics"
    PATTERN = "pattern"
    REGEX = "an expression that the coordinator resolves"
    MANUAL = "manual"


@frozen
class SubscriptionPattern:
    """RE2 expression for topics, which the coordinator resolves (``group.protocol=consumer``)."""

    pattern: str


@define(eq=False, repr=False)
class SubscriptionState:
    """Subscription, and a position for each owned partition.

    Attributes:
        topics: the subscribed topics, sorted; for a pattern, those that match.
        joined_topics: the topics of the last join, or None.
        group_topics: in the leader, the topics of all members.
        positions: the owned partitions, sorted, with their positions, or None if unknown.
        regex: the expression that the coordinator resolves, or None.
        withheld: partitions that are not fetched: about to be revoked, or not reported to the listener yet.
    """

    _excludes_internal: bool
    _pattern: re.Pattern[str] | None = field(default=None, init=False)
    _paused: set[TopicPartition] = field(factory=set, init=False)
    kind: SubscriptionKind = field(default=SubscriptionKind.NONE, init=False)
    topics: tuple[str, ...] = field(default=(), init=False)
    joined_topics: tuple[str, ...] | None = field(default=None, init=False)
    group_topics: frozenset[str] = field(default=frozenset(), init=False)
    positions: dict[TopicPartition, OffsetAndMetadata | None] = field(factory=dict, init=False)
    regex: str | None = field(default=None, init=False)
    withheld: frozenset[TopicPartition] = field(default=frozenset(), init=False)

    @property
    def is_auto_assigned(self) -> bool:
        return self.kind not in (SubscriptionKind.NONE, SubscriptionKind.MANUAL)

    @property
    def has_changed(self) -> bool:
        return self.joined_topics is not None and self.joined_topics != self.topics

    # ------------------------------------------------------------ what the application wants

    def subscribe(self, topics: Iterable[str]) -> None:
        self._become(SubscriptionKind.TOPICS)
        self.topics = tuple(sorted(set(topics)))

    def subscribe_pattern(self, pattern: str, known: Iterable[str]) -> None:
        """Subscribe to the topics in ``known`` that match, and to later ones."""
        compiled = re.compile(pattern)  # first, because an invalid pattern must change nothing
        self._become(SubscriptionKind.PATTERN)
        self._pattern = compiled
        self.match(known)

    def subscribe_regex(self, pattern: SubscriptionPattern) -> None:
        self._become(SubscriptionKind.REGEX)
        self.regex = pattern.pattern

    def match(self, known: Iterable[str]) -> None:
        if self.kind is SubscriptionKind.PATTERN:
            self.topics = tuple(sorted(topic for topic in known if self._matches_pattern(topic)))

    def assign(self, partitions: Iterable[TopicPartition]) -> None:
        self._become(SubscriptionKind.MANUAL)
        self.take(partitions)

    def unsubscribe(self) -> None:
        self.kind = SubscriptionKind.NONE
        self._pattern = None
        self.regex = None
        self.topics = ()
        self.joined_topics = None
        self.group_topics = frozenset()
        self.take(())

    def _become(self, kind: SubscriptionKind) -> None:
        if self.kind not in (kind, SubscriptionKind.NONE):
            raise IllegalCallError("subscriptions to topics, to a pattern and by partitions exclude each other")
        self.kind = kind

    def _matches_pattern(self, topic: str) -> bool:
        if self._excludes_internal and topic in INTERNAL_TOPICS:
            return False
        return self._pattern is not None and self._pattern.fullmatch(topic) is not None

    # ------------------------------------------------------------ what the group gives

    def allows(self, partitions: Iterable[TopicPartition]) -> bool:
        """Return whether all these partitions belong to subscribed topics, or to any that match the pattern."""
        topics = {partition.topic for partition in partitions}
        if self._pattern is not None:
            return all(self._pattern.fullmatch(topic) for topic in topics)
        return topics <= set(self.topics)

    def assign_from_group(self, partitions: Iterable[TopicPartition]) -> None:
        """With a pattern, add the topics to the subscription, and to that of the last join so that :attr:`has_changed`
        stays.
        """
        self.take(partitions)
        topics = {partition.topic for partition in self.positions}
        if self.kind is SubscriptionKind.PATTERN and not topics <= set(self.joined_topics or ()):
            self.topics = tuple(sorted(topics.union(self.topics)))
            self.joined_topics = tuple(sorted(topics.union(self.joined_topics or ())))

    def take(self, partitions: Iterable[TopicPartition]) -> None:
        """Own exactly these partitions. Those owned before keep their position and pause."""
        self.positions = {partition: self.positions.get(partition) for partition in sorted(set(partitions))}
        self._paused &= self.positions.keys()
        self.withheld = frozenset()

    def withhold(self, partitions: Iterable[TopicPartition]) -> None:
        """Exclude partitions from fetches until the next assignment."""
        self.withheld = frozenset(partitions)

    # ------------------------------------------------------------ reading

    def consumed(self, positions: Mapping[TopicPartition, int | OffsetAndMetadata]) -> None:
        for partition, position in positions.items():
            if partition in self.positions:
                self.positions[partition] = to_offset(position)

    def all_consumed(self) -> dict[TopicPartition, OffsetAndMetadata]:
        return {partition: position for partition, position in self.positions.items() if position is not None}

    def pause(self, partitions: Collection[TopicPartition]) -> None:
        self._paused.update(partition for partition in partitions if partition in self.positions)

    def resume(self, partitions: Collection[TopicPartition]) -> None:
        self._paused.difference_update(partitions)

    def fetchable(self) -> tuple[TopicPartition, ...]:
        subscribed = set(self.topics) if self.kind is SubscriptionKind.TOPICS else None
        return tuple(
            partition
            for partition in self.positions
            if partition not in self._paused
            and partition not in self.withheld
            and (subscribed is None or partition.topic in subscribed)
        )

    def watched_topics(self) -> frozenset[str]:
        """Return the topics with changes that matter: the member's, and in the leader the group's."""
        return self.group_topics.union(self.topics)

    def metadata_topics(self) -> tuple[str, ...] | None:
        """Return the topics that the member needs metadata of, or None for all."""
        if self.kind in (SubscriptionKind.PATTERN, SubscriptionKind.REGEX):
            return None
        if self.kind is SubscriptionKind.MANUAL:
            return tuple(dict.fromkeys(partition.topic for partition in self.positions))
        return tuple(sorted(self.watched_topics()))


def to_offset(value: int | OffsetAndMetadata) -> OffsetAndMetadata:
    """Return an offset with its metadata; a bare number gets none.

    Raises:
        ValueError: the offset is negative.
    """
    offset = value if isinstance(value, OffsetAndMetadata) else OffsetAndMetadata(value)
    if offset.offset < 0:
        raise ValueError(f"an offset can't be {offset.offset}")
    return offset
