"""Streams group (KIP-1071): environment, durable state, soft state, and the timers of the group and its members."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from enum import Enum

from attrs import astuple, define, field, frozen

from groupcoord.config import Config, GroupType
from groupcoord.config.group_settings import StreamsGroupSettings
from groupcoord.core.groups.base.group import CommittingGroup, GroupEnvironment, MemberTimers
from groupcoord.core.groups.streams.assignors import MemberTasks, TaskAssignor, walk_tasks
from groupcoord.core.groups.streams.reconciliation import TaskState
from groupcoord.core.groups.streams.records import Subtopology, TopicInfo
from groupcoord.core.groups.streams.state import Endpoints, StreamsMember, StreamsState, task_ids
from groupcoord.core.groups.streams.topology import ConfiguredTopology, InternalTopics
from groupcoord.core.messages import (
    DescribedStreamsGroup,
    DescribedStreamsMember,
    DescribedSubtopology,
    DescribedTasks,
    DescribedTopology,
    TaskOffset,
    TopicToCommit,
)
from groupcoord.core.timers import TimerKind


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


class StreamsGroupState(Enum):
    """States of a streams group by Kafka's names."""

    EMPTY = "Empty"
    NOT_READY = "NotReady"
    ASSIGNING = "Assigning"
    RECONCILING = "Reconciling"
    STABLE = "Stable"
    DEAD = "Dead"


class StreamsGroup(CommittingGroup[StreamsState]):
    """One streams group of one log partition."""

    TYPE = GroupType.STREAMS
    STATE = StreamsState
    STATES = StreamsGroupState
    SESSION = TimerKind.STREAMS_SESSION
    REVOCATION = TimerKind.TASK_REVOCATION
    MEMBER_TIMERS = (TimerKind.STREAMS_SESSION, TimerKind.TASK_REVOCATION)

    def __init__(self, group_id: str, partition: int, environment: StreamsGroupEnvironment) -> None:
        super().__init__(group_id, partition, environment)
        self.memory = StreamsMemory()

    def held_since(self, member: StreamsMember, topic: TopicToCommit) -> Callable[[int], int | None]:
        """Return a function to the epoch since which a member has the active task that reads a partition, or None."""
        name = topic.name if topic.name is not None else self._environment.topics.topic_name(topic.topic_id)
        subtopology_id = self.state.readers.get(name or "")
        if subtopology_id is None:
            # No task of the topology reads the topic.
            return lambda partition: None
        assigned, pending = member.assignment.assigned.active, member.assignment.pending_revocation.active

        def since(partition: int) -> int | None:
            task = (subtopology_id, partition)
            return assigned.get(task, pending.get(task))

        return since

    # ------------------------------------------------------------ administration

    def described(self, last_durable: int) -> DescribedStreamsGroup:
        """Return the group as StreamsGroupDescribe shows it, when this append is the last durable one."""
        state = self.state
        return DescribedStreamsGroup(
            self.group_id,
            group_state=self.group_state.value,
            group_epoch=state.epoch,
            assignment_epoch=state.assignment_epoch,
            topology=self._described_topology(last_durable),
            members=tuple(self._described_member(member) for member in state.members.values()),
            assignor_name=self._environment.settings_of(self.group_id).assignor_name,
        )

    def _described_topology(self, last_durable: int) -> DescribedTopology | None:
        topology, configured = self.state.topology, self.memory.described(last_durable)
        if topology is None:
            return None
        counts = configured.partition_counts if configured is not None and configured.is_ready else {}
        subtopologies = sorted(topology.subtopologies, key=lambda subtopology: subtopology.subtopology_id)
        return DescribedTopology(
            topology.epoch, tuple(_described_subtopology(subtopology, counts) for subtopology in subtopologies)
        )

    def _described_member(self, member: StreamsMember) -> DescribedStreamsMember:
        metadata = member.metadata
        known = self.memory.task_offsets.get(member.member_id, MemberOffsets())
        target = self.state.targets.get(member.member_id, MemberTasks())
        return DescribedStreamsMember(
            member.member_id,
            member.member_epoch,
            metadata.instance_id,
            metadata.rack_id,
            metadata.client_id,
            metadata.client_host,
            metadata.topology_epoch,
            metadata.process_id,
            metadata.user_endpoint,
            metadata.client_tags,
            tuple(sorted(known.offsets)),
            tuple(sorted(known.end_offsets)),
            DescribedTasks(*map(task_ids, member.assignment.assigned.by_role)),
            DescribedTasks(*map(task_ids, map(walk_tasks, astuple(target, recurse=False)))),
        )

    def max_size(self, config: Config) -> int:
        return config.group_streams_max_size

    def topics_changed(self, names: Collection[str]) -> None:
        topology = self.newest_state.topology
        if topology is not None and not set(names).isdisjoint(topology.required_topics):
            self.is_topics_look_due = True

    # ------------------------------------------------------------ looking inside

    def _invariants(self) -> dict[str, bool]:
        held = self.state.active.values()
        return super()._invariants() | {
            "a task is active at one process at a time": all(len(processes) == 1 for processes in held),
        }


def _described_subtopology(subtopology: Subtopology, counts: Mapping[str, int]) -> DescribedSubtopology:
    return DescribedSubtopology(
        subtopology.subtopology_id,
        tuple(sorted(subtopology.source_topics)),
        tuple(sorted(subtopology.repartition_sink_topics)),
        _described_topics(subtopology.state_changelog_topics, counts),
        _described_topics(subtopology.repartition_source_topics, counts),
    )


def _described_topics(topics: tuple[TopicInfo, ...], counts: Mapping[str, int]) -> tuple[TopicInfo, ...]:
    named = sorted(topics, key=lambda topic: topic.name)
    return tuple(topic._replace(partitions=counts.get(topic.name, topic.partitions)) for topic in named)


class StreamsTimers(MemberTimers[StreamsGroup, StreamsMember]):
    """Timers of streams groups and their members."""

    __slots__ = ()

    def follow_assignment(self, group: StreamsGroup, member: StreamsMember, now_ms: int) -> None:
        is_revoking = member.assignment.state is TaskState.UNREVOKED_TASKS
        self.time_revocation(group, member, now_ms, is_revoking=is_revoking)

    def is_delayed(self, group: StreamsGroup, *, was_empty: bool, delay_ms: int, now_ms: int) -> bool:
        """Return whether a group still waits for more members before it assigns tasks."""
        timer = group.timer(TimerKind.ASSIGNMENT_DELAY, "")
        # A timer that runs is not restarted: the delay is that of the first member.
        if was_empty and delay_ms > 0 and timer.deadline_ms is None:
            self._timers.arm(timer, now_ms + delay_ms)
        return timer.deadline_ms is not None

    def take_delay(self, group: StreamsGroup) -> int | None:
        """Cancel the delay of a group that was not created; return its deadline, or None."""
        timer = group.timer(TimerKind.ASSIGNMENT_DELAY, "")
        until_ms = timer.deadline_ms
        self._timers.cancel(timer)
        return until_ms
