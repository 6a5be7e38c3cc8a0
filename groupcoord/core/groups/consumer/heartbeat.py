"""ConsumerGroupHeartbeat: join, subscription by name or regular expression, assignment and revocation (KIP-848).

Functions of a draft, without timers, in Kafka's order of steps. Sources: ``GroupMetadataManager``
(``consumerGroupHeartbeat``, ``getOrMaybeSubscribe…ConsumerMember``, ``maybeUpdateRegularExpressions``) of Apache Kafka
4.4; KIP-345 for static members.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import NamedTuple
from uuid import UUID

from groupcoord.config import GroupType
from groupcoord.core.events import Cause, MemberAdded, Trigger
from groupcoord.core.groups.base.assignor import Partitions, SubscriptionType, changed_targets
from groupcoord.core.groups.base.state import check_capacity, identify, replace_member
from groupcoord.core.groups.consumer.group import (
    ConsumerDraft,
    ConsumerGroup,
    ConsumerGroupEnvironment,
    ConsumerMember,
    ConsumerState,
    preferred_assignor,
    preferred_assignor_after,
)
from groupcoord.core.groups.consumer.reconciliation import MemberAssignment, Reconciliation
from groupcoord.core.groups.consumer.records import (
    ConsumerGroupMemberMetadataRecord,
    ConsumerGroupPartitionMetadataRecord,
    ConsumerGroupRegularExpressionRecord,
)
from groupcoord.core.host_queries import ResolvedRegexes
from groupcoord.core.javacompat import timeline_map_order
from groupcoord.core.log.records import GroupTombstone
from groupcoord.core.messages import (
    JOIN_GROUP_MEMBER_EPOCH,
    ConsumerGroupHeartbeat,
    ConsumerGroupHeartbeatResponse,
    TopicPartitions,
)
from groupcoord.core.timers import NEVER_MS
from groupcoord.errors import ErrorCode

REFRESH_PAUSE_MS = 10_000
"""Minimum interval between matches of a group's expressions."""

LONG_AGO_MS = -(2**63)


def change_regex(draft: ConsumerDraft, old: str, new: str, environment: ConsumerGroupEnvironment) -> bool:
    """Change a member's expression, and return whether its topics are known, so that the assignment has to change."""
    # State before this request: the member still counts for its old expression.
    stored = draft.base
    # Kafka checks an expression once per group, when it is new.
    if new and new not in stored.regex_subscribers:
        environment.check_regex(new)
    # No other member uses the old expression.
    if old and stored.regex_subscribers.get(old) == 1:
        draft.write(GroupTombstone(stored.group_id, ConsumerGroupRegularExpressionRecord.key_of(old)))
    # Topics of an unresolved expression count as none, so the assignment does not change yet.
    return not new or (new in stored.regex_subscribers and new in stored.resolved)


def needs_resolution(
    stored: ConsumerState, state: ConsumerState, regex: str, environment: ConsumerGroupEnvironment, now_ms: int
) -> bool:
    if not state.regex_subscribers:
        return False
    refreshed_ms, version = _last_resolution(stored)
    if now_ms <= refreshed_ms + REFRESH_PAUSE_MS:
        # Matching walks all topics of the cluster, so Kafka does it at most every ten seconds.
        return False
    return (
        # Of the stored state: a tombstone of this heartbeat counts only with the next one.
        (bool(regex) and regex not in stored.regex_subscribers)
        # Kafka compares numbers: one expression less and one more are no difference.
        or len(state.regex_subscribers) != len(stored.resolved)
        or version < environment.topics.version
        or now_ms > refreshed_ms + environment.config.group_consumer_regex_refresh_interval_ms
    )


def next_resolution_ms(state: ConsumerState, environment: ConsumerGroupEnvironment) -> int:
    """Return until when a group's expressions need no new match, unless they or the topics change."""
    if not state.regex_subscribers:
        return NEVER_MS
    refreshed_ms, version = _last_resolution(state)
    if len(state.regex_subscribers) != len(state.resolved) or version < environment.topics.version:
        return refreshed_ms + REFRESH_PAUSE_MS
    return refreshed_ms + environment.config.group_consumer_regex_refresh_interval_ms


def _last_resolution(state: ConsumerState) -> tuple[int, int]:
    # Usually all are resolved together; after a refused write an old one may differ.
    moments = {(record.timestamp_ms, record.version) for record in state.resolved.values()}
    if len(moments) <= 1:
        return moments.pop() if moments else (LONG_AGO_MS, 0)
    # Kafka reads the first of a hash map (``lastResolvedRegularExpressionRefreshTimeMs``).
    first = state.resolved[timeline_map_order(sorted(state.resolved))[0]]
    return first.timestamp_ms, first.version


def take_resolution(draft: ConsumerDraft, resolved: ResolvedRegexes, environment: ConsumerGroupEnvironment) -> bool:
    """Write resolved expressions; return True if that began a new epoch."""
    stored, group_id, question = draft.base, draft.base.group_id, resolved.question
    has_changed = False
    for regex, names in sorted(resolved.topics.items()):
        # Its last member may have left during the query.
        if regex not in stored.regex_subscribers:
            continue
        topics = tuple(sorted(names))
        before = stored.resolved.get(regex)
        has_changed = has_changed or topics != (() if before is None else tuple(sorted(before.topics)))
        # With the time of the query, from which the pause counts, not of the answer.
        draft.write(ConsumerGroupRegularExpressionRecord(group_id, regex, topics, question.version, question.asked_ms))
    metadata_hash = draft.state.topics_hash(environment.topics)
    # The matched topics may have grown since.
    if not has_changed and metadata_hash == stored.metadata_hash:
        return False
    draft.begin_epoch(metadata_hash, Trigger(Cause.REGEX_CHANGE if has_changed else Cause.TOPIC_CHANGE))
    return True


def resolve_member(draft: ConsumerDraft, request: ConsumerGroupHeartbeat, member_id: str) -> ConsumerMember:
    """Return the sender of a heartbeat, or a new member without records, or fail with an error of its ids or epoch."""
    member, takes_place = identify(
        draft.state,
        member_id,
        request.member_epoch,
        request.instance_id,
        lost_nothing=lambda member: _is_assigned(member, request.topic_partitions),
        # A classic member that restarts with the new protocol sends no leave first.
        may_be_replaced=lambda member: member.has_left or member.uses_classic_protocol,
    )
    if member is None:
        return new_member(draft.state, member_id)
    return replace_member(draft, member, member_id, no_target={}) if takes_place else member


def _is_assigned(member: ConsumerMember, owned: tuple[TopicPartitions, ...] | None) -> bool:
    assigned = member.assignment.assigned
    # A client that reports no partitions has not proved that it lost none.
    return owned is not None and all(
        partition in assigned.get(topic_id, ()) for topic_id, partitions in owned for partition in partitions
    )


def new_member(state: ConsumerState, member_id: str) -> ConsumerMember:
    return ConsumerMember(ConsumerGroupMemberMetadataRecord(state.group_id, member_id, None, None, "", "", (), ""))


class Step(NamedTuple):
    """Member with the draft's records after a request, and what the group has to do next."""

    member: ConsumerMember
    looked_at_topics: bool
    wants_resolution: bool


def handle_heartbeat(
    group: ConsumerGroup, draft: ConsumerDraft, request: ConsumerGroupHeartbeat, member_id: str, now_ms: int
) -> tuple[ConsumerGroupHeartbeatResponse, Step]:
    """Handle a heartbeat of a member that joins or stays; after a RefusedError the draft has to be rolled back."""
    # Kafka's order: the group's size before member id and epoch, then the metadata.
    check_room(draft.state, request.instance_id, member_id, group.environment)
    member = resolve_member(draft, request, member_id)
    updated = _update(member.metadata, request)
    owned = _by_topic(request.topic_partitions)
    step = advance_member(group, draft, member, updated, owned, now_ms)
    assignment = step.member.assignment
    # Otherwise the member has the assignment already.
    shows_assignment = _is_full(request) or assignment.assigned != member.assignment.assigned
    response = ConsumerGroupHeartbeatResponse(
        ErrorCode.NONE,
        None,
        member.metadata.member_id,
        assignment.member_epoch,
        group.environment.settings_of(group.group_id).heartbeat_interval_ms,
        assignment.by_topic() if shows_assignment else None,
    )
    return response, step


def advance_member(
    group: ConsumerGroup,
    draft: ConsumerDraft,
    member: ConsumerMember,
    metadata: ConsumerGroupMemberMetadataRecord,
    owned: Mapping[UUID, Collection[int]] | None,
    now_ms: int,
    *,
    ends_group: bool = False,
) -> Step:
    """Write a member's new metadata, the group's epoch, its target (unless ``ends_group``) and the assignment."""
    member_id, environment = metadata.member_id, group.environment
    # False for a replacing member: the draft has its records already.
    is_new = member_id not in draft.state.members
    # Nearly all heartbeats: comparing objects spares comparing fields.
    says_the_same = metadata is member.metadata
    updated = member if says_the_same else ConsumerMember(metadata, member.assignment)
    if is_new or not (says_the_same or metadata == member.metadata):
        draft.write(metadata)
    if is_new:
        draft.add_event(MemberAdded, member_id, metadata.instance_id, metadata.client_id, metadata.client_host)
    names_changed = not says_the_same and set(metadata.subscribed_topic_names) != set(
        member.metadata.subscribed_topic_names
    )
    old_regex, regex = member.regex, updated.regex
    regex_changed = old_regex != regex
    is_resolved = regex_changed and change_regex(draft, old_regex, regex, environment)
    wants_resolution = needs_resolution(draft.base, draft.state, regex, environment, now_ms)
    assignor = (
        # The vote includes this member's change; in a tie Kafka reads another map here than below.
        preferred_assignor_after(draft.base.votes, member.metadata.server_assignor, metadata.server_assignor)
        or environment.default_assignor
    )
    bumps = (
        names_changed
        or is_resolved
        # A classic join uses the voted assignor, but a changed vote alone begins no epoch.
        or (
            metadata.classic_member_metadata is None
            and assignor != (preferred_assignor(draft.base.votes) or environment.default_assignor)
        )
    )
    looks = bumps or group.is_topics_look_due
    if looks:
        metadata_hash = environment.topics.metadata_hash(draft.state.subscribed_topics())
        draft.begin_epoch_if_changed(metadata_hash, _reason(draft, member, is_new=is_new) if bumps else None)
        # Kafka 4.1 replaced the record by the hash (KIP-1101), and removes it with the next comparison.
        if draft.state.has_partition_metadata:
            draft.write(GroupTombstone(draft.state.group_id, ConsumerGroupPartitionMetadataRecord.key))
    # A classic group follows, which rebalances without this target (KAFKA-17317).
    if ends_group and draft.state.assignment_epoch < draft.state.epoch:
        return Step(updated, looks, wants_resolution)
    has_new_target = draft.state.is_target_due(environment.settings_of(group.group_id).assignment_interval_ms, now_ms)
    if has_new_target:
        # Kafka updates the subscription type only together with the topics.
        subscriptions = draft.state.subscription_type() if looks else draft.base.last_seen_subscriptions()
        _assign_target(draft, assignor, metadata, subscriptions, environment, now_ms)
    # Kafka finds targets by instance id: a member that just became static has an empty one.
    has_target = has_new_target or metadata.instance_id is None or metadata.instance_id in draft.base.static_members
    target = draft.state.targets.get(member_id, {}) if has_target else {}
    subscription_changed = names_changed or regex_changed
    assignment = _reconcile(draft, updated, target, owned, environment, subscription_changed=subscription_changed)
    if assignment != updated.assignment:
        draft.write(draft.state.assignment_record(member_id, assignment))
        updated = ConsumerMember(metadata, assignment)
    return Step(updated, looks, wants_resolution)


def _reason(draft: ConsumerDraft, member: ConsumerMember, *, is_new: bool) -> Trigger:
    if is_new:
        return Trigger(Cause.JOIN, member.metadata.member_id)
    # A replacing member is in the draft, but not in the state before the request.
    is_known = member.metadata.member_id in draft.base.members
    return Trigger(Cause.METADATA_CHANGE if is_known else Cause.STATIC_REPLACE, member.metadata.member_id)


def check_room(
    state: ConsumerState, instance_id: str | None, member_id: str, environment: ConsumerGroupEnvironment
) -> None:
    # A returning static member always has room (Kafka 4.4).
    if member_id not in state.members and (instance_id is None or instance_id not in state.static_members):
        check_capacity(state, GroupType.CONSUMER, environment.config.group_consumer_max_size)


def _update(
    metadata: ConsumerGroupMemberMetadataRecord, request: ConsumerGroupHeartbeat
) -> ConsumerGroupMemberMetadataRecord:
    names = request.subscribed_topic_names
    regex = request.subscribed_topic_regex
    if (
        names is None
        and regex is None
        and request.instance_id is None
        and request.rack_id is None
        and request.rebalance_timeout_ms == -1
        and request.server_assignor is None
        and request.client_id == metadata.client_id
        and request.client_host == metadata.client_host
        # A heartbeat of a classic member upgrades it, which is a change.
        and metadata.classic_member_metadata is None
        and metadata.raw_value is None
    ):
        return metadata
    return ConsumerGroupMemberMetadataRecord(
        metadata.group_id,
        metadata.member_id,
        metadata.instance_id if request.instance_id is None else request.instance_id,
        metadata.rack_id if request.rack_id is None else request.rack_id,
        request.client_id,
        request.client_host,
        # Sorted, so that an equal subscription in another order is no change.
        metadata.subscribed_topic_names if names is None else tuple(sorted(set(names))),
        metadata.subscribed_topic_regex if regex is None else regex,
        metadata.rebalance_timeout_ms if request.rebalance_timeout_ms == -1 else request.rebalance_timeout_ms,
        metadata.server_assignor if request.server_assignor is None else request.server_assignor,
    )


def _targets_so_far(draft: ConsumerDraft, metadata: ConsumerGroupMemberMetadataRecord) -> Mapping[str, Partitions]:
    """Return the targets that Kafka compares a new target with; an equal one gets no record."""
    # A replacement of a member without target has an empty one by now; for Kafka it has none.
    replaced_id, targets = draft.base.static_members.get(metadata.instance_id or ""), draft.state.targets
    if replaced_id is None or replaced_id in draft.base.targets or metadata.member_id not in targets:
        return targets
    return {member_id: target for member_id, target in targets.items() if member_id != metadata.member_id}


def _assign_target(
    draft: ConsumerDraft,
    assignor: str,
    asker: ConsumerGroupMemberMetadataRecord,
    subscriptions: SubscriptionType,
    environment: ConsumerGroupEnvironment,
    now_ms: int,
) -> None:
    state = draft.state
    # A static member under a new id counts as newcomer, too.
    newcomer_id = None if asker.member_id in draft.base.members else asker.member_id
    members = {member_id: member.metadata for member_id, member in state.members.items()}
    changed = changed_targets(
        environment.assignor(assignor),
        members,
        # Kafka has them in the order of arrival, which a restart forgets: its next target may differ.
        arrivals=sorted(members.keys() - {newcomer_id}),
        newcomer_id=newcomer_id,
        targets=_targets_so_far(draft, asker),
        subscriptions=subscriptions,
        resolved={regex: record.topics for regex, record in state.resolved.items()},
        topics=environment.topics.existing(state.subscribed_topics()),
    )
    draft.write_targets(changed, now_ms)


def _reconcile(
    draft: ConsumerDraft,
    member: ConsumerMember,
    target: Partitions,
    owned: Mapping[UUID, Collection[int]] | None,
    environment: ConsumerGroupEnvironment,
    *,
    subscription_changed: bool,
) -> MemberAssignment:
    state = draft.state
    # Settled members stay as they are until the target or their subscription changes.
    if not subscription_changed and state.is_settled(member):
        return member.assignment
    names = state.topics_of(member)
    return Reconciliation(
        member.assignment,
        owned=owned,
        target=target,
        target_epoch=state.assignment_epoch,
        subscribed={topic.topic_id for topic in environment.topics.existing(names).values()},
        subscribes_to_nothing=not names,
        has_subscription_changed=subscription_changed,
        # A replacing member also keeps its own former partitions until that is written.
        owner_epochs=draft.base.owner_epochs,
    ).result()


def _by_topic(owned: tuple[TopicPartitions, ...] | None) -> dict[UUID, frozenset[int]] | None:
    if owned is None:
        return None
    partitions: dict[UUID, frozenset[int]] = {}
    for topic_id, indexes in owned:
        # A request may name a topic twice.
        partitions[topic_id] = partitions.get(topic_id, frozenset()).union(indexes)
    return partitions


def _is_full(request: ConsumerGroupHeartbeat) -> bool:
    """Return whether a request is a join or has all fields."""
    return request.member_epoch == JOIN_GROUP_MEMBER_EPOCH or (
        request.rebalance_timeout_ms != -1
        and (request.subscribed_topic_names is not None or request.subscribed_topic_regex is not None)
        and request.topic_partitions is not None
    )
