"""Upgrade of a classic group with members to a consumer group, and downgrade (KIP-848).

Sources: ``ConsumerGroup.fromClassicGroup``, ``ClassicGroup.fromConsumerGroup`` and the validations of
``GroupMetadataManager`` in Apache Kafka 4.4.
"""

from __future__ import annotations

from collections.abc import Collection

from groupcoord.core.consumer_protocol import (
    CONSUMER_PROTOCOL_TYPE,
    Assignment,
    ConsumerProtocolError,
    decode_assignment,
    decode_subscription,
)
from groupcoord.core.events import Trigger
from groupcoord.core.fast_construct import define
from groupcoord.core.groups.classic.group import GroupMetadata, MemberMetadata
from groupcoord.core.groups.consumer.classic_members import classic_assignment, owned_partitions, with_subscription
from groupcoord.core.groups.consumer.group import (
    ConsumerDraft,
    ConsumerGroup,
    ConsumerGroupEnvironment,
    ConsumerMember,
    ConsumerState,
    Downgrade,
    Partition,
)
from groupcoord.core.groups.consumer.reconciliation import MemberAssignment
from groupcoord.core.groups.consumer.records import (
    ConsumerGroupMemberMetadataRecord,
    ConsumerGroupMetadataRecord,
    ConsumerGroupRecord,
    ConsumerGroupTargetAssignmentMetadataRecord,
)
from groupcoord.core.groups.conversion import WhenConverted
from groupcoord.core.host_queries import ResolveRegexes
from groupcoord.core.javacompat import hash_map_order, timeline_map_order
from groupcoord.core.log.records import GroupMetadataRecord, MemberRecord
from groupcoord.core.messages import JoinProtocol
from groupcoord.core.messages.request import RefusedError
from groupcoord.errors import ErrorCode


def check_upgrade(group: GroupMetadata, environment: ConsumerGroupEnvironment) -> None:
    """Check that a classic group may become a consumer group, or fail with GROUP_ID_NOT_FOUND."""
    # Kafka's order: policy, protocol type, size; all with the same error code.
    if not environment.config.group_consumer_migration_policy.allows_upgrade:
        problem = "group.consumer.migration.policy does not allow to convert it"
    elif group.protocol_type != CONSUMER_PROTOCOL_TYPE:
        problem = "its members are no consumers"
    elif len(group.members) > environment.config.group_consumer_max_size:
        problem = "it is larger than group.consumer.max.size"
    else:
        return
    raise RefusedError(ErrorCode.GROUP_ID_NOT_FOUND, f"Group {group.group_id} is a classic group: {problem}.")


def upgraded(group: GroupMetadata, environment: ConsumerGroupEnvironment) -> list[ConsumerGroupRecord]:
    """Return the records of the consumer group that a classic group with members becomes.

    Raises:
        RefusedError: GROUP_ID_NOT_FOUND if subscriptions or assignments can't be read; UNKNOWN_SERVER_ERROR if a member
            lacks the chosen protocol, or two have one partition.
    """
    # Before its first generation a group has no subscriptions to convert; Kafka fails internally.
    if group.members and group.protocol_name is None:
        raise RefusedError(ErrorCode.UNKNOWN_SERVER_ERROR)
    # The generation becomes the epoch of the group, its target and all members.
    epoch, members = group.generation_id, _upgraded_members(group, environment)
    group_id, state = group.group_id, ConsumerState(group.group_id)
    for metadata, _ in members:
        state.apply(metadata)
    # Kafka's order: members, epoch, targets, epoch of the target, assignments.
    return [
        *(metadata for metadata, _ in members),
        ConsumerGroupMetadataRecord(group_id, epoch, state.topics_hash(environment.topics)),
        *(
            state.target_record(metadata.member_id, {t: tuple(epochs) for t, epochs in held.assigned.items()})
            for metadata, held in members
        ),
        # Time 0: the next target does not wait for the interval (KIP-1263).
        ConsumerGroupTargetAssignmentMetadataRecord(group_id, epoch, 0),
        *(state.assignment_record(metadata.member_id, held) for metadata, held in members),
    ]


def _upgraded_members(
    group: GroupMetadata, environment: ConsumerGroupEnvironment
) -> list[tuple[ConsumerGroupMemberMetadataRecord, MemberAssignment]]:
    """Return the records of each member in the order of Kafka's hash map; the first member's error counts."""
    members, owned = [], set[Partition]()
    for member_id in hash_map_order(group.members):
        try:
            metadata, held = _upgraded_member(group, group.members[member_id], environment)
        except ConsumerProtocolError as error:
            raise RefusedError(ErrorCode.GROUP_ID_NOT_FOUND, str(error)) from None
        partitions = {(topic_id, partition) for topic_id, epochs in held.assigned.items() for partition in epochs}
        # A leader with a bug; a consumer group could not own a partition twice.
        if not owned.isdisjoint(partitions):
            raise RefusedError(ErrorCode.UNKNOWN_SERVER_ERROR)
        owned |= partitions
        members.append((metadata, held))
    return members


def _upgraded_member(
    group: GroupMetadata, member: MemberMetadata, environment: ConsumerGroupEnvironment
) -> tuple[ConsumerGroupMemberMetadataRecord, MemberAssignment]:
    epoch = group.generation_id
    # Empty if the member has not synced yet.
    assignment = decode_assignment(member.assignment) if member.assignment else Assignment()
    # Only built-in assignors can be replaced by the coordinator (KIP-848).
    if assignment.user_data:
        raise ConsumerProtocolError("its assignor is a custom one")
    # Possible if another member lists the chosen protocol twice.
    if all(name != group.protocol_name for name, _ in member.protocols):
        raise RefusedError(ErrorCode.UNKNOWN_SERVER_ERROR)
    subscription = decode_subscription(member.metadata(group.protocol_name))
    assigned = {
        topic_id: dict.fromkeys(sorted(partitions), epoch)
        for topic_id, partitions in owned_partitions(assignment.partitions, environment).items()
    }
    metadata = ConsumerGroupMemberMetadataRecord(group.group_id, member.member_id, None, None, "", "")
    return with_subscription(metadata, member, subscription), MemberAssignment(epoch, epoch, assigned=assigned)


def can_downgrade(
    state: ConsumerState, without: Collection[str], environment: ConsumerGroupEnvironment, *, joining: int = 0
) -> bool:
    """Return whether a group without these members becomes a classic one, because all others are classic."""
    left = len(state.members) - len(without)
    classic_left = state.classic_member_count - sum(state.members[each].uses_classic_protocol for each in without)
    count = left + joining
    # An empty group is not converted; the limit is that of classic groups.
    return (
        count > 0
        and classic_left == left
        and environment.config.group_consumer_migration_policy.allows_downgrade
        and count <= environment.config.group_max_size
    )


def downgrade(
    draft: ConsumerDraft,
    environment: ConsumerGroupEnvironment,
    trigger: Trigger | None,
    now_ms: int,
    *,
    gone: Collection[str] = (),
    joiner_id: str | None = None,
) -> None:
    state = draft.state
    # Kafka writes tombstones of all expressions known before, again of one just forgotten.
    records = state.tombstones(draft.base.resolved)
    left = state.copy()
    left.epoch = draft.base.epoch  # the generation continues from the last written epoch
    for tombstone in state.member_tombstones(*gone):
        left.apply(tombstone)
    # Kafka walks the map of all members: the first that stays leads; the joiner comes last.
    known = timeline_map_order(sorted(draft.base.members))
    staying = [member_id for member_id in known if member_id in left.members and member_id != joiner_id]
    staying += [] if joiner_id is None else [joiner_id]
    draft.write(*records)  # which may change the state itself
    # Not by write: the state of a consumer group can't apply a classic record.
    draft.records.append(downgraded(left, staying, environment, now_ms))
    protocols = {
        member_id: tuple(JoinProtocol(*protocol) for protocol in classic.supported_protocols)
        for member_id, member in left.members.items()
        if (classic := member.metadata.classic_member_metadata) is not None
    }
    draft.downgrade = Downgrade(trigger, protocols)


def downgraded(
    state: ConsumerState, staying: list[str], environment: ConsumerGroupEnvironment, now_ms: int
) -> GroupMetadataRecord:
    members = [state.members[member_id] for member_id in hash_map_order(staying)]
    protocol_name = _vote(members)
    return GroupMetadataRecord(
        state.group_id,
        CONSUMER_PROTOCOL_TYPE,
        state.epoch,
        protocol_name,
        staying[0],
        now_ms,
        tuple(_downgraded_member(state, member, protocol_name, environment) for member in members),
    )


def _vote(members: list[ConsumerMember]) -> str:
    lists = [
        [protocol.name for protocol in metadata.supported_protocols]
        for member in members
        if (metadata := member.metadata.classic_member_metadata) is not None
    ]
    # A join is refused unless a protocol is common to all classic members.
    candidates = set.intersection(*map(set, lists))
    votes: dict[str, int] = {}
    for names in lists:
        vote = next(name for name in names if name in candidates)
        votes[vote] = votes.get(vote, 0) + 1
    # The first of a tie in the order of a Java ``HashMap``.
    return max(hash_map_order(votes), key=votes.__getitem__)


def _downgraded_member(
    state: ConsumerState, member: ConsumerMember, protocol_name: str, environment: ConsumerGroupEnvironment
) -> MemberRecord:
    metadata, classic = member.metadata, member.metadata.classic_member_metadata
    assert classic is not None
    subscription = next(protocol.metadata for protocol in classic.supported_protocols if protocol.name == protocol_name)
    # Kafka takes the target, not the current assignment.
    assignment = classic_assignment(state.targets.get(member.member_id, {}), subscription, environment)
    return MemberRecord(
        member.member_id,
        metadata.instance_id,
        metadata.client_id,
        metadata.client_host,
        metadata.rebalance_timeout_ms,
        classic.session_timeout_ms,
        subscription,
        assignment,
    )


@define(eq=False)
class WhenConsumerGroupConverted(WhenConverted):
    """Conversion between a consumer group and a classic one, with the host query of the new consumer group."""

    MODERN_CLASS = ConsumerGroup

    downgrade: Downgrade | None = None
    question: ResolveRegexes | None = None
