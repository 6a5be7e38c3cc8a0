"""Simple consumers: they commit from outside of group management, for a group of their own or somebody else's."""

from __future__ import annotations

from attrs import frozen

from groupcoord.messages import GroupToFetch, OffsetCommit, OffsetFetch, OffsetToCommit, TopicToCommit
from groupcoord.sim.actors.fault import Fault
from groupcoord.sim.actors.observations import head
from groupcoord.sim.actors.population import Population
from groupcoord.sim.actors.scripted_clients import Ask, Pause, Script, ScriptedClient
from groupcoord.sim.actors.stage import Stage
from groupcoord.sim.kernel.randomness import stream


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
        """The only group that is affected."""
        return self.group

    def begin(self, stage: Stage, population: Population) -> None:
        """Let it start."""
        ScriptedClient(stage, "simple consumer", population.find(self.group), self._script(stage))

    def _script(self, stage: Stage) -> Script:
        chance = stream(stage.seed, "simple consumer", self.group, self.start_ms)
        limit = stage.cluster.config.offset_metadata_max_bytes
        while stage.scheduler.time_ms <= stage.start_ms + self.end_ms:
            topic = chance.choice(sorted(self.topics or stage.topics.remembered_names()))
            partition = chance.choice(stage.topics.remembered_partitions_of((topic,))).partition
            metadata = "x" * chance.choice(self.metadata_lengths or (0, 1, limit, limit + 1))
            offset = OffsetToCommit(partition, head(stage.scheduler.time_ms, stage.start_ms), -1, metadata)
            yield Ask(OffsetCommit(self.group, (TopicToCommit(topic, (offset,)),)), self.group)
            yield Ask(OffsetFetch((GroupToFetch(self.group),)), self.group)
            yield Pause(chance.choice(self.pauses_ms))
