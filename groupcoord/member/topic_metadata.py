"""What a member knows of topics: now, and as they were when it assigned."""

from __future__ import annotations

from collections.abc import Iterable
from uuid import UUID

from groupcoord.member.assignors import Cluster, ClusterTopic

_Racks = tuple[frozenset[str | None], ...]
_Snapshot = dict[str, tuple[int, _Racks]]


class TopicMetadata:
    """The cluster's topics, now and when the leader assigned.

    Attributes:
        cluster: what is known now.
        has_changed: the topics are not any more as they were when this member assigned.
        is_fresh: all topics were told since the last rebalance; what a pattern needs before a join.
        is_asked: topics were asked for, and not told since.
        names: the names of topics by id, as far as ids are known.
    """

    __slots__ = (
        "_absent",
        "_assigned",
        "_compares_racks",
        "_now",
        "cluster",
        "has_changed",
        "is_asked",
        "is_fresh",
        "names",
    )

    def __init__(self, *, compares_racks: bool) -> None:
        self._compares_racks = compares_racks
        self._absent: frozenset[str] = frozenset()
        self._now: _Snapshot = {}
        self._assigned: _Snapshot | None = None
        self.cluster = Cluster()
        self.has_changed = False
        self.is_fresh = False
        self.is_asked = False
        self.names: dict[UUID, str] = {}

    def update(self, cluster: Cluster, asked: Iterable[str]) -> None:
        """Take a new picture of the cluster.

        Args:
            cluster: the topics there are.
            asked: topics that it must tell of; those that it does not hold don't exist.
        """
        self.cluster = cluster
        self._absent = frozenset(topic for topic in asked if topic not in cluster.topics)
        self.names = {topic.topic_id: name for name, topic in cluster.topics.items() if topic.topic_id is not None}
        self.is_fresh = True
        self.is_asked = False

    def look(self, topics: Iterable[str]) -> None:
        """Compare these topics with what they were when this member assigned."""
        known = self.cluster.topics
        self._now = {topic: self._picture(known[topic]) for topic in topics if topic in known}
        self.has_changed = self._assigned is not None and self._assigned != self._now

    def _picture(self, topic: ClusterTopic) -> tuple[int, _Racks]:
        if not self._compares_racks or topic.replica_racks is None:
            return topic.partition_count, ()
        return topic.partition_count, tuple(frozenset(racks) for racks in topic.replica_racks)

    def missing(self, topics: Iterable[str]) -> bool:
        """Tell whether any of these topics was never told of."""
        return any(topic not in self.cluster.topics and topic not in self._absent for topic in topics)

    def remember(self) -> None:
        """The assignment is made of what is known now."""
        self._assigned = self._now
        self.has_changed = False

    def forget(self) -> None:
        """Somebody else leads."""
        self._assigned = None
        self.has_changed = False
