"""Simple consumers: they commit from outside of group management, for a group of their own or somebody else's."""

from __future__ import annotations

from typing import TYPE_CHECKING

from attrs import frozen

from groupcoord.messages import GroupToFetch, OffsetCommit, OffsetFetch, OffsetToCommit, TopicToCommit
from groupcoord.sim.faults import Fault
from groupcoord.sim.observations import head
from groupcoord.sim.randomness import stream
from groupcoord.sim.visitors import Ask, Errand, Pause, Visitor

if TYPE_CHECKING:
    from groupcoord.sim.world import World


@frozen(kw_only=True)
class SimpleConsumer(Fault):
    """Somebody commits offsets without being a member, and reads them.

    Attributes:
        group: for which group; consumers may have one of that name, or nobody.
        topics: what it commits offsets of; all topics if empty.
        pauses_ms: it pauses for one of these between two commits.
        metadata_lengths: its commits come with so many characters of metadata; empty: up to the limit, and over.
    """

    group: str
    topics: tuple[str, ...] = ()
    pauses_ms: tuple[int, ...] = (100, 1_000, 10_000)
    metadata_lengths: tuple[int, ...] = ()

    @property
    def group_id(self) -> str | None:
        """The only group that is touched."""
        return self.group

    def begin(self, world: World) -> None:
        """Let it start."""
        groups = [group for group in world.groups if group.options.group_id == self.group]
        Visitor(world, "simple consumer", groups, self._errand(world))

    def _errand(self, world: World) -> Errand:
        chance = stream(world.seed, "simple consumer", self.group, self.start_ms)
        limit = world.options.cluster.config.offset_metadata_max_bytes
        while world.scheduler.time_ms <= world.start_ms + self.end_ms:
            topic = chance.choice(sorted(self.topics or world.topics.topics))
            partition = chance.choice(world.partitions_of((topic,))).partition
            metadata = "x" * chance.choice(self.metadata_lengths or (0, 1, limit, limit + 1))
            offset = OffsetToCommit(partition, head(world.scheduler.time_ms, world.start_ms), -1, metadata)
            yield Ask(OffsetCommit(self.group, (TopicToCommit(topic, (offset,)),)), self.group)
            yield Ask(OffsetFetch((GroupToFetch(self.group),)), self.group)
            yield Pause(chance.choice(self.pauses_ms))
