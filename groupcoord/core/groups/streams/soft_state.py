"""Soft state of a streams group, and the environment of streams groups."""

from __future__ import annotations

from collections.abc import Mapping

from attrs import define, field, frozen

from groupcoord.config.group_settings import StreamsGroupSettings
from groupcoord.core.groups.base.group import GroupEnvironment
from groupcoord.core.groups.streams.assignors import MemberTasks, TaskAssignor
from groupcoord.core.groups.streams.state import Endpoints
from groupcoord.core.groups.streams.topology import ConfiguredTopology, InternalTopics
from groupcoord.core.messages import TaskOffset


@define(eq=False)
class StreamsGroupEnvironment(GroupEnvironment[StreamsGroupSettings, TaskAssignor]):
    """Dependencies of all streams groups of one coordinator."""

    internal_topics: InternalTopics = field(factory=InternalTopics)


@define
class MemberOffsets:
    """Last reported offsets of a member's tasks: of its copies of state, and the ends of the changelogs."""

    offsets: tuple[TaskOffset, ...] = ()
    end_offsets: tuple[TaskOffset, ...] = ()


@frozen
class UsedTarget:
    """Target by member that was used last, and its epoch.

    A member that leaves and returns under it gets its tasks back, although the log has forgotten them (Kafka 4.4, for
    warm-up tasks).
    """

    NEVER_CHANGES = True

    epoch: int
    tasks: Mapping[str, MemberTasks]


Findings = tuple[ConfiguredTopology | None, UsedTarget | None]
"""Configured topology and target that was used last, both made without a write."""


@define
class StreamsMemory:
    """Soft state of a streams group: a restart forgets it, and a refused heartbeat does not take it back.

    Attributes:
        configured: the topology with the partitions of its topics; None until a heartbeat has configured it.
        endpoint_epoch: counts changes of members' endpoints and their partitions.
        shutdown_by: the first member that requested a shutdown of the application, if any.
    """

    configured: ConfiguredTopology | None = None
    endpoint_epoch: int = 0
    task_offsets: dict[str, MemberOffsets] = field(factory=dict)
    shutdown_by: str | None = None
    used_target: UsedTarget | None = None
    endpoints: Endpoints = field(factory=Endpoints)
    # Kafka versions the findings by the writes of the log partition, of any group.
    _found_before: Findings = (None, None)
    _found_at: int = 0

    @property
    def findings(self) -> Findings:
        return self.configured, self.used_target

    def note_findings(self, before: Findings, next_append: int, last_durable: int) -> None:
        """Note that changed findings belong to the next append of the log partition."""
        if self.configured is not before[0] or self.used_target is not before[1]:
            # Findings of appends in flight may be reverted, so the last durable ones are kept.
            if self._found_at <= last_durable:
                self._found_before = before
            self._found_at = next_append

    def described(self, last_durable: int) -> ConfiguredTopology | None:
        """Return the configured topology as of the last durable append."""
        return self.configured if self._found_at <= last_durable else self._found_before[0]

    def revert(self, last_durable: int) -> None:
        """Discard the findings since the last durable append, after the log has refused a later one."""
        if self._found_at > last_durable:
            self.configured, self.used_target = self._found_before

    def note_offsets(
        self,
        member_id: str,
        offsets: tuple[TaskOffset, ...] | None,
        end_offsets: tuple[TaskOffset, ...] | None,
    ) -> None:
        if offsets is None and end_offsets is None:
            return
        known = self.task_offsets.setdefault(member_id, MemberOffsets())
        known.offsets = known.offsets if offsets is None else offsets
        known.end_offsets = known.end_offsets if end_offsets is None else end_offsets

    def uses(self, targets: Mapping[str, MemberTasks]) -> bool:
        return self.used_target is None or self.used_target.tasks == targets

    def replace_member(self, old_member_id: str, member_id: str) -> None:
        """Rename a static member that another id replaces, or tries to."""
        if self.used_target is not None and old_member_id in self.used_target.tasks:
            tasks = dict(self.used_target.tasks)
            tasks[member_id] = tasks.pop(old_member_id)
            self.used_target = UsedTarget(self.used_target.epoch, tasks)
