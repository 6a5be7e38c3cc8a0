"""StreamsGroupHeartbeat: join, tasks, and the target assignment of tasks (KIP-1071), in Kafka's order of steps.

Sources: ``GroupMetadataManager`` (``streamsGroupHeartbeat``, ``getOrMaybeCreate…StreamsGroupMember``,
``replaceStreamsMember``) and ``TargetAssignmentBuilder`` of Apache Kafka 4.4.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import chain

from attrs import evolve

from groupcoord.config import GroupType
from groupcoord.core.events import Cause, MemberAdded, RebalanceStarted, Trigger
from groupcoord.core.fast_construct import frozen
from groupcoord.core.groups.base.assignor import PartitionAssignorError
from groupcoord.core.groups.base.state import check_capacity, identify, replace_member
from groupcoord.core.groups.streams.assignors import (
    MemberTasks,
    StreamsGroupSpec,
    StreamsMemberSpec,
    SubtopologySpec,
    TaskAssignorError,
    by_subtopology,
    walk_tasks,
)
from groupcoord.core.groups.streams.group import (
    NO_TOPOLOGY_EPOCH,
    NUM_STANDBY_REPLICAS,
    MemberOffsets,
    StreamsDraft,
    StreamsGroup,
    StreamsGroupEnvironment,
    StreamsMember,
    StreamsState,
    UsedTarget,
    task_set,
)
from groupcoord.core.groups.streams.reconciliation import HeldTasks, Reconciliation, TaskAssignment
from groupcoord.core.groups.streams.records import (
    StreamsGroupMemberMetadataRecord,
    StreamsGroupMetadataRecord,
    StreamsGroupTargetAssignmentMetadataRecord,
    StreamsGroupTopologyRecord,
    Subtopology,
)
from groupcoord.core.groups.streams.topology import (
    ConfiguredTopology,
    configure,
)
from groupcoord.core.javacompat import hash_map_order, timeline_map_order
from groupcoord.core.messages import KeyValue, StreamsGroupHeartbeat, TaskOffset, Topology
from groupcoord.core.messages.request import RefusedError
from groupcoord.errors import ErrorCode


def owned_tasks(request: StreamsGroupHeartbeat) -> HeldTasks | None:
    if request.active_tasks is None:
        return None
    return HeldTasks(
        dict.fromkeys(task_set(request.active_tasks), 0),
        task_set(request.standby_tasks),
        task_set(request.warmup_tasks),
    )


def resolve_member(group: StreamsGroup, draft: StreamsDraft, request: StreamsGroupHeartbeat) -> StreamsMember:
    """Return the sender of a heartbeat, or a new member without records, or fail with an error of its ids or epoch."""

    def lost_nothing(member: StreamsMember) -> bool:
        owned = owned_tasks(request)
        # A client that reports no tasks has not proved that it lost none.
        return owned is not None and member.assignment.assigned.has_all(owned)

    holder_id = draft.state.static_members.get(request.instance_id or "")
    if holder_id is not None and holder_id != request.member_id:
        # Kafka renames before it checks whether the member is replaced, and even if not.
        group.memory.replace_member(holder_id, request.member_id)
        # The holder has lost its target, so its next heartbeat may change it.
        group.steady.clear()
    member, takes_place = identify(
        draft.state,
        request.member_id,
        request.member_epoch,
        request.instance_id,
        lost_nothing=lost_nothing,
        may_be_replaced=lambda member: member.has_left,
    )
    if member is None:
        return StreamsMember(draft.state.no_metadata(request.member_id))
    if not takes_place:
        return member
    return replace_member(draft, member, request.member_id, no_target=MemberTasks())


def assign_target(
    group: StreamsGroup, draft: StreamsDraft, configured: ConfiguredTopology, now_ms: int
) -> Mapping[str, MemberTasks]:
    """Compute and write the target assignment; return all of it, or fail if the assignor does."""
    state = draft.state
    newcomers = [member_id for member_id in state.members if member_id not in draft.base.members]
    # Kafka copies the map of known members, and adds the newcomer last.
    known = timeline_map_order(sorted(state.members.keys() - set(newcomers)))
    visiting_order = hash_map_order([*known, *newcomers])
    assignment: Mapping[str, MemberTasks] = {}
    if configured.is_ready:
        # Otherwise all targets are empty.
        environment, task_offsets = group.environment, group.memory.task_offsets
        spec = StreamsGroupSpec(
            # Running tasks count, not former targets: state is where they run.
            {m: _member_spec(state.members[m], task_offsets.get(m)) for m in visiting_order},
            {
                name: SubtopologySpec(subtopology.task_count, subtopology.is_stateful)
                for name, subtopology in (configured.subtopologies or {}).items()
            },
            # Of the epoch's record, which may differ from the present settings.
            state.standby_replicas,
            tuple(visiting_order),
        )
        try:
            assignment = environment.assignor(environment.settings_of(group.group_id).assignor_name).assign(spec)
        except (PartitionAssignorError, TaskAssignorError):
            raise RefusedError(ErrorCode.UNKNOWN_SERVER_ERROR) from None
    targets = {member_id: assignment.get(member_id, MemberTasks()) for member_id in visiting_order}
    before = _targets_so_far(draft)
    draft.write_targets(
        {member_id: target for member_id, target in targets.items() if before.get(member_id) != target}, now_ms
    )
    return targets


def _targets_so_far(draft: StreamsDraft) -> Mapping[str, MemberTasks]:
    """Return the targets that Kafka compares a new target with; an equal one gets no record."""
    # A replacement of a member without target has an empty one by now; for Kafka it has none.
    base, targets = draft.base, draft.state.targets
    written_empty = {
        member_id
        for member_id in targets.keys() - base.targets.keys()
        if base.static_members.get(draft.state.members[member_id].metadata.instance_id or "") not in base.targets
    }
    return {member_id: target for member_id, target in targets.items() if member_id not in written_empty}


def _member_spec(member: StreamsMember, known: MemberOffsets | None) -> StreamsMemberSpec:
    metadata, assigned = member.metadata, member.assignment.assigned
    offsets: dict[str, dict[int, int]] = {}
    for subtopology_id, partition, offset in known.offsets if known is not None else ():
        offsets.setdefault(subtopology_id, {})[partition] = offset
    running = MemberTasks(*(dict(by_subtopology(tasks)) for tasks in assigned.by_role))
    return StreamsMemberSpec(
        metadata.process_id, running, offsets, metadata.instance_id, metadata.rack_id, dict(metadata.client_tags)
    )


RACK_AWARE_ASSIGNMENT_TAGS = "rack.aware.assignment.tags"

TASK_OFFSETS_MAX = 10_000
"""Maximum number of task offsets of a member, which are kept in memory."""


@frozen
class Step:
    """Result of a member's heartbeat: the member before (with its present id) and after.

    ``is_stale``: the member has an older topology than the group; ``is_delayed``: a new target is due later.
    """

    before: StreamsMember
    member: StreamsMember
    configured: ConfiguredTopology
    is_stale: bool
    is_delayed: bool

    @property
    def has_changed_tasks(self) -> bool:
        return self.member.assignment.assigned != self.before.assignment.assigned

    @property
    def has_changed_endpoint(self) -> bool:
        """True if the endpoint information of the group changed with the member."""
        endpoint = self.member.metadata.user_endpoint
        return endpoint != self.before.metadata.user_endpoint or (endpoint is not None and self.has_changed_tasks)


def handle_heartbeat(
    group: StreamsGroup,
    draft: StreamsDraft,
    request: StreamsGroupHeartbeat,
    now_ms: int,
    *,
    begins_delay: Callable[[], bool],
) -> Step:
    """Handle a heartbeat of a member that joins or stays; after a RefusedError the draft has to be rolled back."""
    # Kafka's order: size, member, metadata, topology, topics, tasks, offsets, epoch, target, assignment.
    # A returning static member always has room; unknown ids with an epoch fail later.
    is_known = request.member_id in draft.state.members or request.instance_id in draft.state.static_members
    if not (is_known or request.member_epoch):
        check_capacity(draft.state, GroupType.STREAMS, group.environment.config.group_streams_max_size)
    before = resolve_member(group, draft, request)
    metadata = _updated(before.metadata, request)
    bumps = _write_member(draft, before, metadata, request)
    topology = _group_topology(draft, request)
    configured, metadata_hash = _look_at_topics(group, draft, topology)
    _check_tasks(request, configured)
    _check_offsets(request.task_offsets)
    _check_offsets(request.task_end_offsets)
    # Kept even if a later step fails: Kafka writes them to memory at this point.
    group.memory.note_offsets(before.member_id, request.task_offsets, request.task_end_offsets)
    validated_epoch = topology.epoch if configured.is_ready else NO_TOPOLOGY_EPOCH
    state = draft.state
    epoch_record = StreamsGroupMetadataRecord(
        state.group_id,
        state.epoch + 1,
        metadata_hash,
        validated_epoch,
        assignment_configs(state.group_id, group.environment),
        state.group_record.stored_description_topology_epoch,
        state.group_record.failed_description_topology_epoch,
    )
    goes_by_log = _write_epoch(group, draft, before, epoch_record, bumps=bumps)
    member = StreamsMember(metadata, before.assignment)
    target, is_delayed = _target(
        group,
        draft,
        member,
        configured,
        now_ms,
        # Called only now: a heartbeat that fails above starts no delay.
        is_delayed=begins_delay(),
        goes_by_log=goes_by_log,
    )
    assignment = _reconcile(draft, member, target, request)
    if assignment != member.assignment:
        draft.write(draft.state.assignment_record(member.member_id, assignment))
        member = StreamsMember(metadata, assignment)
    return Step(before, member, configured, metadata.topology_epoch < topology.epoch, is_delayed)


# ---------------------------------------------------------------- metadata of a member


def _updated(
    metadata: StreamsGroupMemberMetadataRecord, request: StreamsGroupHeartbeat
) -> StreamsGroupMemberMetadataRecord:
    tags = request.client_tags
    if tags is not None:
        tags = tuple(sorted(tags))
        # Kafka has no specific error for a duplicate tag.
        if len(dict(tags)) < len(tags):
            raise RefusedError(ErrorCode.UNKNOWN_SERVER_ERROR)
    joins = request.member_epoch == 0
    updated = StreamsGroupMemberMetadataRecord(
        metadata.group_id,
        metadata.member_id,
        metadata.instance_id if request.instance_id is None else request.instance_id,
        metadata.rack_id if request.rack_id is None else request.rack_id,
        request.client_id,
        request.client_host,
        metadata.rebalance_timeout_ms if request.rebalance_timeout_ms == -1 else request.rebalance_timeout_ms,
        metadata.topology_epoch if request.topology is None else request.topology.epoch,
        metadata.process_id if request.process_id is None else request.process_id,
        # A join without an endpoint clears it; other heartbeats keep it.
        request.user_endpoint if joins or request.user_endpoint is not None else metadata.user_endpoint,
        metadata.client_tags if tags is None else tags,
    )
    # Unknown tagged fields of a newer broker are no change.
    known = metadata if metadata.raw_value is None else evolve(metadata, raw_value=None)
    return metadata if updated == known else updated


def _write_member(
    draft: StreamsDraft,
    before: StreamsMember,
    metadata: StreamsGroupMemberMetadataRecord,
    request: StreamsGroupHeartbeat,
) -> bool:
    """Write changed metadata of a member, and return whether the group's epoch increases."""
    is_new = before.member_id not in draft.state.members
    if metadata is before.metadata and not is_new:
        return False
    draft.write(metadata)
    if is_new:
        draft.add_event(MemberAdded, metadata.member_id, metadata.instance_id, metadata.client_id, metadata.client_host)
    # Any change of a dynamic member counts; as in Kafka the request decides which it is.
    return request.instance_id is None or _facts_for_assignor(before.metadata) != _facts_for_assignor(metadata)


def _facts_for_assignor(metadata: StreamsGroupMemberMetadataRecord) -> tuple[object, ...]:
    return metadata.topology_epoch, metadata.rack_id, metadata.client_tags, metadata.process_id


def _write_epoch(
    group: StreamsGroup, draft: StreamsDraft, before: StreamsMember, record: StreamsGroupMetadataRecord, *, bumps: bool
) -> bool:
    """Write the group's next epoch if it begins with this heartbeat; return whether the logged target is to be used."""
    state = draft.state
    # The record includes topics, settings and the validated topology, so any difference begins an epoch.
    if bumps or evolve(record, epoch=state.epoch) != draft.epoch_record(state.epoch, state.metadata_hash):
        draft.add_event(RebalanceStarted, state.epoch, _trigger(draft, before, bumps=bumps))
        draft.write(record)
        return False
    # The target in memory may differ from the logged one after a refused write.
    has_target = _has_target(draft.base, before)
    if (has_target and group.memory.uses(draft.base.targets)) or not draft.base.is_at_rest:
        return False
    if not has_target:
        draft.add_event(RebalanceStarted, state.epoch, Trigger(Cause.METADATA_CHANGE, before.member_id))
        # The time stays, because no target was computed.
        last_ms = state.assignment_timestamp_ms
        draft.write(record, StreamsGroupTargetAssignmentMetadataRecord(state.group_id, state.epoch + 1, last_ms))
    return True


def _trigger(draft: StreamsDraft, before: StreamsMember, *, bumps: bool) -> Trigger:
    if not bumps:
        return Trigger(Cause.TOPIC_CHANGE, before.member_id)
    if before.member_id in draft.base.members:
        return Trigger(Cause.METADATA_CHANGE, before.member_id)
    replaces = before.metadata.instance_id in draft.base.static_members
    return Trigger(Cause.STATIC_REPLACE if replaces else Cause.JOIN, before.member_id)


def _check_offsets(offsets: Sequence[TaskOffset] | None) -> None:
    """Refuse offsets that name a task twice, or too many tasks."""
    if offsets is not None and len(offsets) > TASK_OFFSETS_MAX:
        raise RefusedError(ErrorCode.INVALID_REQUEST, f"There are offsets of more than {TASK_OFFSETS_MAX} tasks.")
    tasks = [(offset.subtopology_id, offset.partition) for offset in offsets or ()]
    if len(set(tasks)) < len(tasks):
        raise RefusedError(ErrorCode.INVALID_REQUEST, "Task offsets name a task twice.")


# ---------------------------------------------------------------- the topology


def _group_topology(draft: StreamsDraft, request: StreamsGroupHeartbeat) -> StreamsGroupTopologyRecord:
    """Return the group's topology: the first one sent, which can't be replaced (Kafka 4.4)."""
    known, brought = draft.state.topology, request.topology
    if brought is None:
        # A damaged log may lack it.
        return known or StreamsGroupTopologyRecord(draft.state.group_id, NO_TOPOLOGY_EPOCH)
    ids = Counter(subtopology.subtopology_id for subtopology in brought.subtopologies)
    # Kafka has no specific error for these.
    if brought.epoch < 0 or len(ids) < len(brought.subtopologies):
        raise RefusedError(ErrorCode.UNKNOWN_SERVER_ERROR)
    if known is None:
        record = StreamsGroupTopologyRecord(draft.state.group_id, brought.epoch, brought.subtopologies)
        draft.write(record)
        return record
    # An older topology is only reported as stale.
    if brought.epoch >= known.epoch and not _is_same(known, brought):
        raise RefusedError(ErrorCode.INVALID_REQUEST, "Topology updates are not supported yet.")
    return known


def _is_same(known: StreamsGroupTopologyRecord, brought: Topology) -> bool:
    return known.epoch == brought.epoch and _by_id(known.subtopologies) == _by_id(brought.subtopologies)


def _by_id(subtopologies: Iterable[Subtopology]) -> dict[str, Subtopology]:
    return {subtopology.subtopology_id: subtopology for subtopology in subtopologies}


def _look_at_topics(
    group: StreamsGroup, draft: StreamsDraft, topology: StreamsGroupTopologyRecord
) -> tuple[ConfiguredTopology, int]:
    """Return the configured topology and the hash of its topics, compared with the cluster if that is due."""
    state, memory, topics = draft.state, group.memory, group.environment.topics
    is_new = memory.configured is None or draft.base.topology is None
    # Configuring walks the whole topology, so its result is kept.
    if memory.configured is not None and not (is_new or group.is_topics_look_due):
        return memory.configured, state.metadata_hash
    names = topology.required_topics
    metadata_hash = topics.metadata_hash(names)
    if memory.configured is None or is_new or metadata_hash != state.metadata_hash:
        existing = {name: topic.partition_count for name, topic in topics.existing(names).items()}
        memory.configured = configure(topology, existing)
    return memory.configured, metadata_hash


def _check_tasks(request: StreamsGroupHeartbeat, configured: ConfiguredTopology) -> None:
    if not configured.is_ready:
        # Without tasks there is nothing to compare with.
        return
    named = (request.active_tasks, request.standby_tasks, request.warmup_tasks)
    for subtopology_id, partitions in chain.from_iterable(tasks or () for tasks in named):
        subtopology = (configured.subtopologies or {}).get(subtopology_id)
        if subtopology is None or not all(0 <= partition < subtopology.task_count for partition in partitions):
            raise RefusedError(ErrorCode.INVALID_REQUEST, f"Subtopology {subtopology_id} has no such task.")


def assignment_configs(group_id: str, environment: StreamsGroupEnvironment) -> tuple[KeyValue, ...]:
    settings = environment.settings_of(group_id)
    configs = [KeyValue(NUM_STANDBY_REPLICAS, str(settings.num_standby_replicas))]
    if settings.rack_aware_assignment_tags:
        configs.append(KeyValue(RACK_AWARE_ASSIGNMENT_TAGS, ",".join(settings.rack_aware_assignment_tags)))
    return tuple(configs)


# ---------------------------------------------------------------- tasks


def _target(
    group: StreamsGroup,
    draft: StreamsDraft,
    member: StreamsMember,
    configured: ConfiguredTopology,
    now_ms: int,
    *,
    is_delayed: bool,
    goes_by_log: bool,
) -> tuple[MemberTasks, bool]:
    """Return a member's target, and whether a new one is due but has to wait."""
    # A group that was empty waits for more members before its first assignment.
    if is_delayed:
        return MemberTasks(), True
    state = draft.state
    settings = group.environment.settings_of(state.group_id)
    targets: Mapping[str, MemberTasks] = state.targets
    if state.is_target_due(settings.assignment_interval_ms, now_ms):
        targets = assign_target(group, draft, configured, now_ms)
        state = draft.state
    used = group.memory.used_target
    if goes_by_log or used is None or used.epoch != state.assignment_epoch:
        # A copy, because the state's mapping changes with later drafts.
        used = UsedTarget(state.assignment_epoch, dict(targets.items()))
        # Kafka keeps it for warm-up tasks, although 4.4 assigns none.
        if settings.num_warmup_replicas > 0:
            group.memory.used_target = used
    return used.tasks.get(member.member_id, MemberTasks()), state.assignment_epoch < state.epoch


def _wanted(target: MemberTasks) -> HeldTasks:
    return HeldTasks(
        dict.fromkeys(walk_tasks(target.active), 0),
        frozenset(walk_tasks(target.standby)),
        frozenset(walk_tasks(target.warmup)),
    )


def _has_target(state: StreamsState, member: StreamsMember) -> bool:
    wanted = _wanted(state.targets.get(member.member_id, MemberTasks()))
    return wanted.by_role == member.assignment.assigned.by_role


def _reconcile(
    draft: StreamsDraft, member: StreamsMember, target: MemberTasks, request: StreamsGroupHeartbeat
) -> TaskAssignment:
    if draft.state.is_settled(member):
        # Settled members stay as they are until the next target.
        return member.assignment
    return Reconciliation(
        member.assignment,
        process_id=member.metadata.process_id,
        target_epoch=draft.state.assignment_epoch,
        target=_wanted(target),
        owned=owned_tasks(request),
        # A replacing member also keeps its own former tasks until that is written.
        processes=draft.base,
    ).result()
