"""Durable state of a streams group (KIP-1071) as the fold of its records, its drafts, and its members' endpoints.

Sources: ``StreamsGroup`` and the ``replay`` methods of ``GroupMetadataManager`` in Apache Kafka 4.4.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, MutableMapping
from typing import Any, ClassVar

from attrs import frozen

from groupcoord.core.fast_construct import fast_init
from groupcoord.core.groups.base.state import Draft, ModernGroupState, ModernMember
from groupcoord.core.groups.base.topics import KnownTopics
from groupcoord.core.groups.streams.assignors import MemberTasks, Task, Tasks, by_subtopology, walk_tasks
from groupcoord.core.groups.streams.reconciliation import HeldTasks, TaskAssignment, TaskState
from groupcoord.core.groups.streams.records import (
    AssignedTaskIds,
    KeyValue,
    StreamsGroupCurrentMemberAssignmentRecord,
    StreamsGroupMemberMetadataRecord,
    StreamsGroupMetadataRecord,
    StreamsGroupTargetAssignmentMemberRecord,
    StreamsGroupTargetAssignmentMetadataRecord,
    StreamsGroupTopologyRecord,
    TaskIds,
)
from groupcoord.core.groups.streams.topology import ConfiguredTopology
from groupcoord.core.log.records import GroupTombstone, Record
from groupcoord.core.messages import EndpointPartitions, NamedTopicPartitions

NO_TOPOLOGY_EPOCH = -1

NUM_STANDBY_REPLICAS = "num.standby.replicas"
"""Key of the number of standby copies in an epoch record."""

NEW_ASSIGNMENT = TaskAssignment()

ROLES = ("active", "standby", "warmup")

Holders = tuple[str, ...]
"""The processes that have a task, sorted; one more than once if several of its members do."""

HolderChange = Callable[[str, Task, str], None]


@fast_init
@frozen
class StreamsMember(ModernMember):
    """A member of a streams group."""

    NEVER_CHANGES = True

    metadata: StreamsGroupMemberMetadataRecord
    assignment: TaskAssignment = NEW_ASSIGNMENT


class StreamsState(ModernGroupState[StreamsMember, MemberTasks]):
    """Durable state of one streams group.

    Attributes:
        validated_topology_epoch: the topology's epoch if its topics were valid at the group's epoch, otherwise -1.
        described_topology_epochs: topologies with a description that a plugin has stored, and failed to store
            (KIP-1331).
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
        self.validated_topology_epoch = NO_TOPOLOGY_EPOCH
        self.assignment_configs: tuple[KeyValue, ...] = ()
        self.described_topology_epochs = (NO_TOPOLOGY_EPOCH, NO_TOPOLOGY_EPOCH)
        self.topology: StreamsGroupTopologyRecord | None = None
        self.active: MutableMapping[Task, Holders] = {}
        self.standby: MutableMapping[Task, Holders] = {}
        self.warmup: MutableMapping[Task, Holders] = {}

    # ------------------------------------------------------------ records

    def _apply_group(self, record: StreamsGroupMetadataRecord) -> None:
        super()._apply_group(record)
        self.validated_topology_epoch = record.validated_topology_epoch
        self.assignment_configs = record.last_assignment_configs or ()
        self.described_topology_epochs = (
            record.stored_description_topology_epoch,
            record.failed_description_topology_epoch,
        )

    def _forget_group(self, name: str) -> None:
        super()._forget_group(name)
        self.validated_topology_epoch = NO_TOPOLOGY_EPOCH
        self.assignment_configs = ()
        self.described_topology_epochs = (NO_TOPOLOGY_EPOCH, NO_TOPOLOGY_EPOCH)

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
            TaskState.of(record.state),
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

    def is_settled(self, member: StreamsMember) -> bool:
        assignment = member.assignment
        return assignment.state is TaskState.STABLE and assignment.member_epoch == self.assignment_epoch

    @property
    def standby_replicas(self) -> int:
        return int(dict(self.assignment_configs).get(NUM_STANDBY_REPLICAS, "0"))

    @property
    def is_ready(self) -> bool:
        """True if there is a topology with valid topics at the group's epoch."""
        return self.topology is not None and self.topology.epoch == self.validated_topology_epoch

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
        state = self.state
        return StreamsGroupMetadataRecord(
            state.group_id,
            epoch,
            metadata_hash,
            state.validated_topology_epoch,
            state.assignment_configs,
            *state.described_topology_epochs,
        )


class EndpointError(Exception):
    """Topics or subtopologies of an endpoint's tasks are missing: Kafka's request fails."""


class Endpoints:
    """Cached endpoint information, valid as long as member and topology stay the same."""

    def __init__(self) -> None:
        self._entries: dict[str, tuple[StreamsMember, ConfiguredTopology, EndpointPartitions]] = {}

    def partitions(
        self, members: Mapping[str, StreamsMember], configured: ConfiguredTopology, topics: KnownTopics
    ) -> tuple[EndpointPartitions, ...]:
        """Return the partitions of tasks, warm-up tasks included, for each member with an endpoint.

        Raises:
            EndpointError: topics are missing.
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
        raise EndpointError
    found = []
    for subtopology_id, partitions in by_subtopology(tasks):
        subtopology = configured.subtopologies.get(subtopology_id)
        if subtopology is None:
            raise EndpointError
        names = subtopology.subtopology.read_topics
        existing = topics.existing(names)
        for name in names:
            if name not in existing:
                raise EndpointError
            # A topic may have fewer partitions than its subtopology has tasks.
            there = tuple(number for number in partitions if number < existing[name].partition_count)
            if there:
                found.append(NamedTopicPartitions(name, there))
    return tuple(found)
