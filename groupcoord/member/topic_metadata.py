"""Topic metadata of a member: now, and as of its last assignment as leader."""

from __future__ import annotations

from collections.abc import Iterable
from uuid import UUID

from groupcoord.member.assignors import Cluster, ClusterTopic

_Racks = tuple[frozenset[str | None], ...]
_Snapshot = dict[str, tuple[int, _Racks]]


class TopicMetadata:
    """Topics of the cluster, now and when the leader assigned.

    Attributes:
        cluster: the topics now.
        has_changed: whether they differ from those of the leader's assignment.
        is_fresh: whether all topics were updated since the last rebalance, as a pattern needs before a join.
        is_asked: whether metadata was requested and has not arrived.
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
        """Replace the topics.

        Args:
            cluster: the topics.
            asked: topics that were requested; those that are missing do not exist.
        """
        self.cluster = cluster
        self._absent = frozenset(topic for topic in asked if topic not in cluster.topics)
        self.names = {topic.topic_id: name for name, topic in cluster.topics.items() if topic.topic_id is not None}
        self.is_fresh = True
        self.is_asked = False

    def look(self, topics: Iterable[str]) -> None:
        """Compare these topics with those of the leader's assignment."""
        known = self.cluster.topics
        self._now = {topic: self._picture(known[topic]) for topic in topics if topic in known}
        self.has_changed = self._assigned is not None and self._assigned != self._now

    def _picture(self, topic: ClusterTopic) -> tuple[int, _Racks]:
        if not self._compares_racks or topic.replica_racks is None:
            return topic.partition_count, ()
        return topic.partition_count, tuple(frozenset(racks) for racks in topic.replica_racks)

    def missing(self, topics: Iterable[str]) -> bool:
        """Return whether the metadata of any of these topics is unknown."""
        return any(topic not in self.cluster.topics and topic not in self._absent for topic in topics)

    def remember(self) -> None:
        """Store the topics of the assignment that is being made."""
        self._assigned = self._now
        self.has_changed = False

    def forget(self) -> None:
        """Drop the stored topics, because another member leads."""
        self._assigned = None
        self.has_changed = False
