"""The target assignment of a streams group: which tasks each member is to have, worked out when its epoch has grown.

Source: ``TargetAssignmentBuilder`` of Kafka's streams groups; KIP-1071.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from groupcoord.core.groups.base.assignor import PartitionAssignorError
from groupcoord.core.groups.base.refusal import RefusedError
from groupcoord.core.groups.streams.assignors import (
    MemberTasks,
    StreamsGroupSpec,
    StreamsMemberSpec,
    SubtopologySpec,
    TaskAssignorError,
)
from groupcoord.core.groups.streams.draft import StreamsDraft
from groupcoord.core.groups.streams.environment import StreamsGroupEnvironment
from groupcoord.core.groups.streams.reconciliation import Task
from groupcoord.core.groups.streams.records import StreamsGroupTargetAssignmentMetadataRecord
from groupcoord.core.groups.streams.soft_state import MemberOffsets, StreamsMemory
from groupcoord.core.groups.streams.state import StreamsMember, by_subtopology, target_record
from groupcoord.core.groups.streams.topology import ConfiguredTopology
from groupcoord.core.javacompat.hashing import hash_map_order, timeline_map_order
from groupcoord.errors import ErrorCode


def assign_target(
    draft: StreamsDraft,
    memory: StreamsMemory,
    configured: ConfiguredTopology,
    environment: StreamsGroupEnvironment,
    now_ms: int,
) -> Mapping[str, MemberTasks]:
    """Work out who is to have what, write what is new of it, and return all of it.

    As long as topics are not in order nobody is to have anything. What members run now counts, not what they were to
    run: it is where state lies.

    Args:
        draft: the group.
        memory: how far members have come with their tasks.
        configured: what the topology comes to in the cluster.
        environment: settings and assignors.
        now_ms: the time.

    Raises:
        RefusedError: the assignor failed.
    """
    state = draft.state
    newcomers = [member_id for member_id in state.members if member_id not in draft.base.members]
    # Kafka fills the map that the assignor gets from the group's own, and at last with who has just come.
    known = timeline_map_order(sorted(state.members.keys() - set(newcomers)))
    visiting_order = hash_map_order([*known, *newcomers])
    assignment: Mapping[str, MemberTasks] = {}
    if configured.is_ready:
        settings = environment.settings_of(state.group_id)
        spec = StreamsGroupSpec(
            {m: _member_spec(state.members[m], memory.task_offsets.get(m)) for m in visiting_order},
            {
                name: SubtopologySpec(subtopology.task_count, subtopology.is_stateful)
                for name, subtopology in (configured.subtopologies or {}).items()
            },
            state.standby_replicas,
            tuple(visiting_order),
        )
        try:
            assignment = environment.assignor(settings.assignor_name).assign(spec)
        except (PartitionAssignorError, TaskAssignorError):
            raise RefusedError(ErrorCode.UNKNOWN_SERVER_ERROR) from None
    targets = {member_id: assignment.get(member_id, MemberTasks()) for member_id in visiting_order}
    before = _targets_so_far(draft)
    draft.write(
        *(
            target_record(state.group_id, member_id, target)
            for member_id, target in targets.items()
            if before.get(member_id) != target
        ),
        StreamsGroupTargetAssignmentMetadataRecord(state.group_id, state.epoch, now_ms),
    )
    return targets


def _targets_so_far(draft: StreamsDraft) -> Mapping[str, MemberTasks]:
    """Return the targets with which Kafka compares a new one: whoever has one that stays gets no record.

    One that takes the place of a static member without a target is written an empty one, but has none for that.
    """
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
    running = MemberTasks(_tasks(assigned.active), _tasks(assigned.standby), _tasks(assigned.warmup))
    return StreamsMemberSpec(
        metadata.process_id, running, offsets, metadata.instance_id, metadata.rack_id, dict(metadata.client_tags)
    )


def _tasks(tasks: Iterable[Task]) -> dict[str, tuple[int, ...]]:
    return dict(by_subtopology(tasks))
