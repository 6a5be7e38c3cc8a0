"""Streams group (KIP-1071): durable state as the fold of its records, drafts, soft state, endpoints and timers.

Sources: ``StreamsGroup`` and the ``replay`` methods of ``GroupMetadataManager`` in Apache Kafka 4.4.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, MutableMapping
from enum import Enum
from typing import Any, ClassVar

from attrs import astuple, field

from groupcoord.config import Config, GroupType
from groupcoord.config.group_settings import StreamsGroupSettings
from groupcoord.core.fast_construct import define, frozen
from groupcoord.core.groups.base.group import CommittingGroup, GroupEnvironment
from groupcoord.core.groups.base.state import Draft, ModernGroupState, ModernMember
from groupcoord.core.groups.streams.assignors import MemberTasks, Task, TaskAssignor, Tasks, by_subtopology, walk_tasks
from groupcoord.core.groups.streams.reconciliation import STATES_BY_NUMBER, HeldTasks, TaskAssignment, TaskState
from groupcoord.core.groups.streams.records import (
    AssignedTaskIds,
    StreamsGroupCurrentMemberAssignmentRecord,
    StreamsGroupMemberMetadataRecord,
    StreamsGroupMetadataRecord,
    StreamsGroupTargetAssignmentMemberRecord,
    StreamsGroupTargetAssignmentMetadataRecord,
    StreamsGroupTopologyRecord,
    Subtopology,
    TaskIds,
    TopicInfo,
)
from groupcoord.core.groups.streams.topology import ConfiguredTopology, InternalTopics
from groupcoord.core.log.records import GroupTombstone, Record
from groupcoord.core.messages import (
    DescribedStreamsGroup,
    DescribedStreamsMember,
    DescribedSubtopology,
    DescribedTasks,
    DescribedTopology,
    EndpointPartitions,
    NamedTopicPartitions,
    TaskOffset,
    TopicToCommit,
)
from groupcoord.core.messages.request import RefusedError
from groupcoord.core.topics import KnownTopics
from groupcoord.errors import ErrorCode

NO_TOPOLOGY_EPOCH = -1

NUM_STANDBY_REPLICAS = "num.standby.replicas"
"""Key of the number of standby copies in an epoch record."""

NEW_ASSIGNMENT = TaskAssignment()

ROLES = ("active", "standby", "warmup")

Holders = tuple[str, ...]
"""The processes that have a task, sorted; one more than once if several of its members do."""

HolderChange = Callable[[str, Task, str], None]


@frozen
class StreamsMember(ModernMember):
    """A member of a streams group."""

    NEVER_CHANGES = True

    metadata: StreamsGroupMemberMetadataRecord
    assignment: TaskAssignment = NEW_ASSIGNMENT


class StreamsState(ModernGroupState[StreamsMember, MemberTasks]):
    """Durable state of one streams group.

    Attributes:
        group_record: the record of the group's epoch, or one without settings.
        active, standby, warmup: task → the processes that have it in this role or have not released it.
    """

    LARGE = frozenset({"active", "members", "standby", "static_members", "targets", "warmup"})
    MEMBER = StreamsMember
    NEW_ASSIGNMENT = NEW_ASSIGNMENT
    RECORDS: ClassVar[Mapping[Any, str]] = {
        StreamsGroupMetadataRecord: "group",
        StreamsGroupMemberMetadataRecord: "member",
        StreamsGroupTargetAssignmentMetadataRecord: "target_epoch",
        StreamsGroupTargetAssignmentMemberRecord: "target",
        StreamsGroupCurrentMemberAssignmentRecord: "assignment",
        StreamsGroupTopologyRecord: "topology",
    }

    def __init__(self, group_id: str) -> None:
        super().__init__(group_id)
        self.group_record = StreamsGroupMetadataRecord(group_id, self.epoch)
        self.topology: StreamsGroupTopologyRecord | None = None
        self.active: MutableMapping[Task, Holders] = {}
        self.standby: MutableMapping[Task, Holders] = {}
        self.warmup: MutableMapping[Task, Holders] = {}

    # ------------------------------------------------------------ records

    def _apply_group(self, record: StreamsGroupMetadataRecord) -> None:
        super()._apply_group(record)
        self.group_record = record

    def _forget_group(self, name: str) -> None:
        super()._forget_group(name)
        self.group_record = StreamsGroupMetadataRecord(self.group_id, self.epoch)

    def _target_of(self, record: StreamsGroupTargetAssignmentMemberRecord) -> MemberTasks:
        return MemberTasks(
            _tasks_of(record.active_tasks), _tasks_of(record.standby_tasks), _tasks_of(record.warmup_tasks)
        )

    def _apply_topology(self, record: StreamsGroupTopologyRecord) -> None:
        self.topology = record

    def _forget_topology(self, _: str) -> None:
        self.topology = None

    def tombstones(self) -> list[GroupTombstone]:
        keys = [
            *(StreamsGroupCurrentMemberAssignmentRecord.key_of(member_id) for member_id in self.members),
            *(StreamsGroupTargetAssignmentMemberRecord.key_of(member_id) for member_id in self.targets),
            StreamsGroupTargetAssignmentMetadataRecord.key,
            *(StreamsGroupMemberMetadataRecord.key_of(member_id) for member_id in self.members),
            # In Kafka the topology comes last, even after the group.
            StreamsGroupMetadataRecord.key,
            StreamsGroupTopologyRecord.key,
        ]
        return [GroupTombstone(self.group_id, key) for key in keys]

    # ------------------------------------------------------------ what follows from them

    def no_metadata(self, member_id: str) -> StreamsGroupMemberMetadataRecord:
        return StreamsGroupMemberMetadataRecord(self.group_id, member_id, None, None, "", "")

    def _assignment_of(self, record: StreamsGroupCurrentMemberAssignmentRecord) -> TaskAssignment:
        return TaskAssignment(
            record.member_epoch,
            record.previous_member_epoch,
            STATES_BY_NUMBER.get(record.state, TaskState.UNKNOWN),
            HeldTasks(
                # Only active tasks have epochs, since commits are checked by them alone.
                _epochs_of(record.active_tasks, record.member_epoch),
                task_set(record.standby_tasks),
                task_set(record.warmup_tasks),
            ),
            HeldTasks(
                _epochs_of(record.active_tasks_pending_revocation, record.member_epoch),
                task_set(record.standby_tasks_pending_revocation),
                task_set(record.warmup_tasks_pending_revocation),
            ),
        )

    def assignment_record(
        self, member_id: str, assignment: TaskAssignment
    ) -> StreamsGroupCurrentMemberAssignmentRecord:
        assigned, pending = assignment.assigned, assignment.pending_revocation
        return StreamsGroupCurrentMemberAssignmentRecord(
            self.group_id,
            member_id,
            assignment.member_epoch,
            assignment.previous_member_epoch,
            assignment.state,
            _with_epochs(assigned.active),
            _without_epochs(assigned.standby),
            _without_epochs(assigned.warmup),
            _with_epochs(pending.active),
            _without_epochs(pending.standby),
            _without_epochs(pending.warmup),
        )

    def target_record(self, member_id: str, target: MemberTasks) -> StreamsGroupTargetAssignmentMemberRecord:
        active, standby, warmup = map(task_ids, map(walk_tasks, (target.active, target.standby, target.warmup)))
        return StreamsGroupTargetAssignmentMemberRecord(self.group_id, member_id, active, standby, warmup)

    def _reassign(self, before: StreamsMember | None, after: StreamsMember | None) -> None:
        if before is not None:
            # Released even if only the metadata changed: the process id may be another.
            self._hold(before, self._let_go)
        if after is not None:
            self._hold(after, self._take)

    def _hold(self, member: StreamsMember, change: HolderChange) -> None:
        process_id = member.metadata.process_id
        for held in (member.assignment.assigned, member.assignment.pending_revocation):
            for role, tasks in zip(ROLES, held.by_role, strict=True):
                for task in tasks:
                    change(role, task, process_id)

    def _take(self, role: str, task: Task, process_id: str) -> None:
        self._own(role)
        holders = getattr(self, role)
        holders[task] = tuple(sorted((*holders.get(task, ()), process_id)))

    def _let_go(self, role: str, task: Task, process_id: str) -> None:
        self._own(role)
        holders = getattr(self, role)
        left = list(holders[task])
        # One entry for each member: another one of the process may keep the task.
        left.remove(process_id)
        if left:
            holders[task] = tuple(left)
        else:
            del holders[task]

    # ------------------------------------------------------------ questions

    @property
    def readers(self) -> Mapping[str, str]:
        return {} if self.topology is None else self.topology.readers

    def has_subscribers(self, topic: str) -> bool:
        # An empty group keeps its topology (Kafka 4.4), but reads nothing.
        return bool(self.members) and topic in self.readers

    def topics_hash(self, topics: KnownTopics) -> int:
        # Unlike in consumer groups, only a heartbeat compares the topics.
        return self.metadata_hash

    def is_settled(self, member: StreamsMember) -> bool:
        assignment = member.assignment
        return assignment.state is TaskState.STABLE and assignment.member_epoch == self.assignment_epoch

    @property
    def standby_replicas(self) -> int:
        return int(dict(self.group_record.last_assignment_configs or ()).get(NUM_STANDBY_REPLICAS, "0"))

    @property
    def is_ready(self) -> bool:
        """True if there is a topology with valid topics at the group's epoch."""
        return self.topology is not None and self.topology.epoch == self.group_record.validated_topology_epoch

    @property
    def is_at_rest(self) -> bool:
        """True if the group is ready, the target is current, and all members have reached it."""
        return (
            self.is_ready and self.epoch == self.assignment_epoch and all(map(self.is_settled, self.members.values()))
        )


# ---------------------------------------------------------------- records of a member


def _epochs_of(tasks: Iterable[AssignedTaskIds], member_epoch: int) -> dict[Task, int]:
    found = {}
    for subtopology_id, partitions, epochs in tasks:
        # Missing or damaged: then the member's epoch counts.
        if epochs is None or len(epochs) != len(partitions):
            epochs = (member_epoch,) * len(partitions)
        found.update({(subtopology_id, partition): epoch for partition, epoch in zip(partitions, epochs, strict=True)})
    return found


def task_set(tasks: Iterable[TaskIds | AssignedTaskIds] | None) -> frozenset[Task]:
    return frozenset((ids.subtopology_id, partition) for ids in tasks or () for partition in ids.partitions)


def _tasks_of(tasks: Iterable[TaskIds]) -> Tasks:
    return {ids.subtopology_id: ids.partitions for ids in tasks if ids.partitions}


def _with_epochs(tasks: Mapping[Task, int]) -> tuple[AssignedTaskIds, ...]:
    return tuple(
        AssignedTaskIds(name, partitions, tuple(tasks[name, partition] for partition in partitions))
        for name, partitions in by_subtopology(tasks)
    )


def _without_epochs(tasks: Iterable[Task]) -> tuple[AssignedTaskIds, ...]:
    return tuple(AssignedTaskIds(name, partitions) for name, partitions in by_subtopology(tasks))


def task_ids(tasks: Iterable[Task]) -> tuple[TaskIds, ...]:
    return tuple(TaskIds(name, partitions) for name, partitions in by_subtopology(tasks))


def gone_members(records: Iterable[Record]) -> list[str]:
    tombstones = (record.key for record in records if isinstance(record, GroupTombstone))
    return [
        member_id
        for record_type, member_id in tombstones
        if record_type == StreamsGroupMemberMetadataRecord.RECORD_TYPE
    ]


def is_empty_between(members: Iterable[str], records: Iterable[Record]) -> bool:
    """Return whether a group is empty at some moment while records are applied."""
    left = set(members)
    for record in records:
        if isinstance(record, StreamsGroupMemberMetadataRecord):
            left.add(record.member_id)
        elif isinstance(record, GroupTombstone) and record.key[0] == StreamsGroupMemberMetadataRecord.RECORD_TYPE:
            left.discard(record.key[1])
            if not left:
                return True
    return False


class StreamsDraft(Draft[StreamsState]):
    """A draft of a streams group."""

    __slots__ = ()

    def epoch_record(self, epoch: int, metadata_hash: int) -> StreamsGroupMetadataRecord:
        known = self.state.group_record
        return StreamsGroupMetadataRecord(
            known.group_id,
            epoch,
            metadata_hash,
            known.validated_topology_epoch,
            known.last_assignment_configs or (),
            known.stored_description_topology_epoch,
            known.failed_description_topology_epoch,
        )


class Endpoints:
    """Cached endpoint information, valid as long as member and topology stay the same."""

    def __init__(self) -> None:
        self._entries: dict[str, tuple[StreamsMember, ConfiguredTopology, EndpointPartitions]] = {}

    def partitions(
        self, members: Mapping[str, StreamsMember], configured: ConfiguredTopology, topics: KnownTopics
    ) -> tuple[EndpointPartitions, ...]:
        """Return the partitions of tasks, warm-up tasks included, for each member with an endpoint.

        Raises:
            RefusedError: UNKNOWN_SERVER_ERROR if topics or subtopologies of a task are missing.
        """
        found = {
            member.member_id: self._entry(member, configured, topics)
            for member in members.values()
            if member.metadata.user_endpoint is not None
        }
        # Entries of members that are gone are dropped.
        self._entries = found
        return tuple(entry for _, _, entry in found.values())

    def _entry(
        self, member: StreamsMember, configured: ConfiguredTopology, topics: KnownTopics
    ) -> tuple[StreamsMember, ConfiguredTopology, EndpointPartitions]:
        known = self._entries.get(member.member_id)
        # Members and topologies are replaced, never changed.
        if known is not None and known[0] is member and known[1] is configured:
            return known
        endpoint, assigned = member.metadata.user_endpoint, member.assignment.assigned
        assert endpoint is not None
        active = _partitions(assigned.active, configured, topics)
        standby = _partitions((*assigned.standby, *assigned.warmup), configured, topics)
        return member, configured, EndpointPartitions(endpoint, active, standby)


def _partitions(
    tasks: Iterable[Task], configured: ConfiguredTopology, topics: KnownTopics
) -> tuple[NamedTopicPartitions, ...]:
    if configured.subtopologies is None:
        raise RefusedError(ErrorCode.UNKNOWN_SERVER_ERROR)
    found = []
    for subtopology_id, partitions in by_subtopology(tasks):
        subtopology = configured.subtopologies.get(subtopology_id)
        if subtopology is None:
            raise RefusedError(ErrorCode.UNKNOWN_SERVER_ERROR)
        names = subtopology.subtopology.read_topics
        existing = topics.existing(names)
        for name in names:
            if name not in existing:
                raise RefusedError(ErrorCode.UNKNOWN_SERVER_ERROR)
            # A topic may have fewer partitions than its subtopology has tasks.
            there = tuple(number for number in partitions if number < existing[name].partition_count)
            if there:
                found.append(NamedTopicPartitions(name, there))
    return tuple(found)


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

    environment: StreamsGroupEnvironment

    def __init__(self, group_id: str, partition: int, environment: StreamsGroupEnvironment) -> None:
        super().__init__(group_id, partition, environment)
        self.memory = StreamsMemory()

    def held_since(self, member: StreamsMember, topic: TopicToCommit) -> Callable[[int], int | None]:
        """Return a function to the epoch since which a member has the active task that reads a partition, or None."""
        name = topic.name if topic.name is not None else self.environment.topics.resolver.topic_name(topic.topic_id)
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
            assignor_name=self.environment.settings_of(self.group_id).assignor_name,
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
