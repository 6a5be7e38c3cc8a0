"""All groups of consumers in a run."""

from __future__ import annotations

from collections.abc import Sequence

from groupcoord.sim.actors.consumers import Consumer
from groupcoord.sim.actors.groups import SimulatedGroup
from groupcoord.sim.actors.options import GroupOptions
from groupcoord.sim.actors.stage import Stage


class Population:
    """The groups and their consumers.

    Attributes:
        groups: in the order of the options.
        consumers: all of them, by number.
    """

    def __init__(self, options: Sequence[GroupOptions], stage: Stage) -> None:
        self.groups: list[SimulatedGroup] = []
        for group_options in options:
            self.groups.append(SimulatedGroup(group_options, stage, sum(len(g.consumers) for g in self.groups)))
        self.consumers: list[Consumer] = [consumer for group in self.groups for consumer in group.consumers]
        self._group_of = {group.options.group_id: group for group in self.groups}
        self._stage = stage

    def find(self, group_id: str) -> SimulatedGroup | None:
        """Return the group of this name, or None if there is none that has consumers."""
        return self._group_of.get(group_id)

    def group(self, group_id: str) -> SimulatedGroup:
        """Return the group of this name, which there must be."""
        return self._group_of[group_id]

    def grow(self, topic: str, partition_count: int) -> None:
        """Give a topic more partitions, or create it; all nodes and consumers learn of it at once.

        One that comes again has no fewer than it had: members of the classic protocol with sticky assignors hand on
        partitions that they have and that are not there any more, as Java's do.
        """
        stage = self._stage
        old_count = stage.topics.partition_count(topic)
        partition_count = max(partition_count, len(stage.topics.remembered_partitions_of((topic,))))
        if old_count is not None and partition_count <= old_count:
            return
        was = "is created with" if old_count is None else f"grows from {old_count} to"
        stage.record(f"{topic} {was} {partition_count} partitions")
        added = stage.cluster.set_partition_count(topic, partition_count)
        for group in self.groups:
            if group.options.subscribes_to(topic):
                group.observations.add_partitions(added, stage.scheduler.time_ms)
        self._tell()

    def delete(self, topic: str) -> None:
        """Delete a topic, if there is one of that name; all nodes and consumers learn of it at once."""
        stage = self._stage
        gone = stage.topics.partitions_of((topic,))
        if not gone:
            return
        stage.record(f"{topic} is deleted")
        stage.cluster.delete_topic(topic)
        for group in self.groups:
            if group.options.subscribes_to(topic):
                group.observations.remove_partitions(gone, stage.scheduler.time_ms)
        self._tell()

    def _tell(self) -> None:
        for consumer in self.consumers:
            consumer.metadata_changed()
