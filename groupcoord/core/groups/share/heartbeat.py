"""ShareGroupHeartbeat: join, subscription, assignment, leave (KIP-932).

Functions of a draft, in Kafka's order of steps. Source: ``GroupMetadataManager.shareGroupHeartbeat`` of Apache Kafka
4.4.
"""

from __future__ import annotations

from uuid import UUID

from groupcoord.config import GroupType
from groupcoord.core.events import Cause, MemberAdded, Trigger
from groupcoord.core.groups.base.assignor import Partitions, changed_targets
from groupcoord.core.groups.base.state import check_capacity, check_epoch, find_member
from groupcoord.core.groups.share.group import (
    ShareAssignment,
    ShareDraft,
    ShareGroup,
    ShareGroupEnvironment,
    ShareMember,
    ShareState,
    StateChange,
)
from groupcoord.core.groups.share.records import ShareGroupMemberMetadataRecord
from groupcoord.core.javacompat import string_sort_key
from groupcoord.core.messages import JOIN_GROUP_MEMBER_EPOCH, ShareGroupHeartbeat, ShareGroupHeartbeatResponse
from groupcoord.core.messages.share_state import InitializeShareGroupState, StateToInitialize, StateTopicToInitialize
from groupcoord.errors import ErrorCode

BY_POLICY_OFFSET = -1
"""Start offset of a new partition: the share coordinator's settings decide."""
FIRST_OFFSET = 0
"""Start offset of a partition that a topic has got after the group began to read it."""


def handle_heartbeat(
    group: ShareGroup, draft: ShareDraft, request: ShareGroupHeartbeat, now_ms: int
) -> tuple[ShareGroupHeartbeatResponse, ShareMember]:
    """Handle a heartbeat of a member that joins or stays; after a RefusedError the draft has to be rolled back."""
    environment = group.environment
    member = _identified(draft.state, request, environment)
    metadata = _update(member.metadata, request)
    is_new = request.member_id not in draft.state.members
    if is_new or metadata != member.metadata:
        draft.write(metadata)
    if is_new:
        draft.add_event(MemberAdded, request.member_id, None, metadata.client_id, metadata.client_host)
    # Names alone: another rack or client gets a record, but begins no epoch.
    bumps = set(metadata.subscribed_topic_names) != set(member.metadata.subscribed_topic_names)
    state = draft.base
    # Partitions were initialized since the last target: only these may be assigned.
    # A target that is due already will cover them.
    if state.assignment_epoch >= state.epoch and not state.is_initialized_assigned():
        bumps = True
    if bumps or group.is_topics_look_due:
        cause = Cause.JOIN if is_new else Cause.METADATA_CHANGE
        metadata_hash = environment.topics.metadata_hash(draft.state.name_subscribers)
        bumps = draft.begin_epoch_if_changed(metadata_hash, Trigger(cause, request.member_id) if bumps else None)
    settings = environment.settings_of(group.group_id)
    if draft.state.is_target_due(settings.assignment_interval_ms, now_ms):
        _assign_target(draft, environment, now_ms)
    assignment = _reconcile(draft.state, ShareMember(metadata, member.assignment), environment, has_bumped=bumps)
    if assignment != member.assignment:
        draft.write(draft.state.assignment_record(request.member_id, assignment))
    _initialize(group, draft, now_ms)
    # A member with an unchanged assignment is not sent it again.
    shows_assignment = (
        request.member_epoch == JOIN_GROUP_MEMBER_EPOCH
        or request.subscribed_topic_names is not None
        or assignment.assigned != member.assignment.assigned
    )
    response = ShareGroupHeartbeatResponse(
        ErrorCode.NONE,
        None,
        request.member_id,
        assignment.member_epoch,
        settings.heartbeat_interval_ms,
        assignment.by_topic() if shows_assignment else None,
    )
    return response, ShareMember(metadata, assignment)


def _identified(state: ShareState, request: ShareGroupHeartbeat, environment: ShareGroupEnvironment) -> ShareMember:
    member = state.members.get(request.member_id)
    if member is None:
        # Kafka checks the size before the member id.
        check_capacity(state, GroupType.SHARE, environment.config.group_share_max_size)
        if request.member_epoch == JOIN_GROUP_MEMBER_EPOCH:
            return ShareMember(state.no_metadata(request.member_id))
        return find_member(state, request.member_id)
    # Share members own nothing exclusively, so the previous epoch is always allowed.
    check_epoch(member, request.member_epoch, lambda _: True)
    return member


def _update(metadata: ShareGroupMemberMetadataRecord, request: ShareGroupHeartbeat) -> ShareGroupMemberMetadataRecord:
    names = request.subscribed_topic_names
    # The record keeps its order while the names are the same.
    if names is None or set(names) == set(metadata.subscribed_topic_names):
        in_order = metadata.subscribed_topic_names
    else:
        in_order = tuple(sorted(set(names), key=string_sort_key))
    return ShareGroupMemberMetadataRecord(
        metadata.group_id,
        metadata.member_id,
        metadata.rack_id if request.rack_id is None else request.rack_id,
        request.client_id,
        request.client_host,
        in_order,
    )


def _assign_target(draft: ShareDraft, environment: ShareGroupEnvironment, now_ms: int) -> None:
    state = draft.state
    changed = changed_targets(
        environment.assignor(environment.default_assignor),
        {member_id: member.metadata for member_id, member in state.members.items()},
        arrivals=sorted(state.members),
        newcomer_id=None,  # other than in a consumer group, Kafka has put it to the others by now
        targets=state.targets,
        subscriptions=state.subscription_type(),
        resolved={},
        topics=environment.topics.existing(state.name_subscribers),
        assignable={topic_id: entry.partitions for topic_id, entry in state.state_partitions.initialized.items()},
    )
    draft.write_targets(changed, now_ms)


def _reconcile(
    state: ShareState, member: ShareMember, environment: ShareGroupEnvironment, *, has_bumped: bool
) -> ShareAssignment:
    assignment = member.assignment
    is_behind = assignment.member_epoch != state.assignment_epoch
    # Unsubscribed topics go with the new epoch, even if the target comes later.
    if not (is_behind or has_bumped):
        return assignment
    topics = environment.topics.existing(member.metadata.subscribed_topic_names).values()
    subscribed = {topic.topic_id for topic in topics}
    target = state.targets.get(member.member_id, {})
    assigned: Partitions = {topic_id: indexes for topic_id, indexes in target.items() if topic_id in subscribed}
    if is_behind:
        return ShareAssignment(state.assignment_epoch, assignment.member_epoch, assigned)
    return ShareAssignment(assignment.member_epoch, assignment.previous_member_epoch, assigned)


def _initialize(group: ShareGroup, draft: ShareDraft, now_ms: int) -> None:
    state, environment = draft.state, group.environment
    known = state.state_partitions
    # A restart forgets the query in flight; after the interval it is sent again.
    waits = now_ms < group.state_partitions_ms + environment.config.group_share_initialize_retry_interval_ms
    missing: dict[UUID, frozenset[int]] = {}
    for topic in environment.topics.existing(state.name_subscribers).values():
        partitions = known.missing(topic.topic_id, topic.partition_count, counts_initializing=waits)
        if partitions:
            missing[topic.topic_id] = partitions
    if not missing:
        return
    # In the append of this heartbeat, before the query.
    draft.write(known.begin(missing, environment.topics.resolver.topic_name).to_record(state.group_id))
    topics = [
        StateTopicToInitialize(
            topic_id,
            tuple(
                [
                    # The share coordinator fences requests with a lower state epoch.
                    StateToInitialize(index, state.epoch, FIRST_OFFSET if known.knows(topic_id) else BY_POLICY_OFFSET)
                    for index in sorted(partitions)
                ]
            ),
        )
        for topic_id, partitions in missing.items()
    ]
    draft.changes.append(StateChange(InitializeShareGroupState(state.group_id, tuple(topics))))
