"""A group that changes its kind, with its members and without losing offsets (KIP-848): what has to be written for it.

Source: ``ConsumerGroup.fromClassicGroup``, ``ClassicGroup.fromConsumerGroup`` and the validations of
``GroupMetadataManager`` in Apache Kafka 4.4.
"""

from __future__ import annotations

from collections.abc import Collection

from groupcoord.config import MigrationPolicy
from groupcoord.core.classic.group import GroupMetadata
from groupcoord.core.classic.member import MemberMetadata
from groupcoord.core.consumer.classic_members import in_hash_order, owned_partitions
from groupcoord.core.consumer.draft import Downgrade, Draft
from groupcoord.core.consumer.identity import target_record, tombstones_of
from groupcoord.core.consumer.reconciliation import MemberAssignment
from groupcoord.core.consumer.records import (
    ClassicMemberMetadata,
    ClassicProtocol,
    ConsumerGroupMemberMetadataRecord,
    ConsumerGroupMetadataRecord,
    ConsumerGroupRecord,
    ConsumerGroupTargetAssignmentMetadataRecord,
)
from groupcoord.core.consumer.refusal import RefusedError
from groupcoord.core.consumer.rules import Rules
from groupcoord.core.consumer.state import ConsumerMember, ConsumerState, Partition, assignment_record, group_tombstones
from groupcoord.core.consumer_protocol import (
    CONSUMER_PROTOCOL_TYPE,
    Assignment,
    ConsumerProtocolError,
    TopicPartition,
    decode_assignment,
    decode_subscription,
    encode_assignment,
)
from groupcoord.core.events import Trigger
from groupcoord.core.group_size import check_group_size
from groupcoord.core.java.hashing import hash_map_order, timeline_map_order
from groupcoord.core.messages import JoinProtocol
from groupcoord.core.records import GroupMetadataRecord, MemberRecord
from groupcoord.errors import ErrorCode


def check_upgrade(group: GroupMetadata, rules: Rules) -> None:
    """Check that a classic group may become a consumer group.

    Raises:
        RefusedError: GROUP_ID_NOT_FOUND.
    """
    problem = _upgrade_problem(group, rules)
    if problem is not None:
        raise RefusedError(ErrorCode.GROUP_ID_NOT_FOUND, f"Group {group.group_id} is a classic group: {problem}.")


def upgraded(group: GroupMetadata, rules: Rules) -> list[ConsumerGroupRecord]:
    """Return the records of the consumer group that a classic group with members becomes.

    The members keep what they have; their generation is everybody's epoch.

    Raises:
        RefusedError: GROUP_ID_NOT_FOUND if what the members told each other can't be read, UNKNOWN_SERVER_ERROR if they
            have not agreed on a protocol yet, or if their leader has given a partition to two of them.
    """
    if group.members and group.protocol_name is None:
        raise RefusedError(ErrorCode.UNKNOWN_SERVER_ERROR)
    epoch, members = group.generation_id, _upgraded_members(group, rules)
    group_id, state = group.group_id, ConsumerState(group.group_id)
    for metadata, _ in members:
        state.apply(metadata)
    return [
        *(metadata for metadata, _ in members),
        ConsumerGroupMetadataRecord(group_id, epoch, rules.metadata_hash(state.subscribed_topics())),
        *(
            target_record(group_id, metadata.member_id, {t: tuple(epochs) for t, epochs in held.assigned.items()})
            for metadata, held in members
        ),
        ConsumerGroupTargetAssignmentMetadataRecord(group_id, epoch, 0),
        *(assignment_record(group_id, metadata.member_id, held) for metadata, held in members),
    ]


def _upgrade_problem(group: GroupMetadata, rules: Rules) -> str | None:
    if rules.config.group_consumer_migration_policy not in (MigrationPolicy.UPGRADE, MigrationPolicy.BIDIRECTIONAL):
        return "group.consumer.migration.policy does not allow to convert it"
    if group.protocol_type != CONSUMER_PROTOCOL_TYPE:
        return "its members are no consumers"
    if check_group_size(len(group.members), rules.config.group_consumer_max_size) is not ErrorCode.NONE:
        return "it is larger than group.consumer.max.size"
    return None


def _upgraded_members(
    group: GroupMetadata, rules: Rules
) -> list[tuple[ConsumerGroupMemberMetadataRecord, MemberAssignment]]:
    """Return what is written of each member, in the order of Kafka's hash map.

    Where several members are in the way, the first one's error is told.
    """
    members, owned = [], set[Partition]()
    for member_id in hash_map_order(group.members):
        try:
            metadata, held = _upgraded_member(group, group.members[member_id], rules)
        except ConsumerProtocolError as error:
            raise RefusedError(ErrorCode.GROUP_ID_NOT_FOUND, str(error)) from None
        partitions = {(topic_id, partition) for topic_id, epochs in held.assigned.items() for partition in epochs}
        if not owned.isdisjoint(partitions):
            raise RefusedError(ErrorCode.UNKNOWN_SERVER_ERROR)
        owned |= partitions
        members.append((metadata, held))
    return members


def _upgraded_member(
    group: GroupMetadata, member: MemberMetadata, rules: Rules
) -> tuple[ConsumerGroupMemberMetadataRecord, MemberAssignment]:
    epoch = group.generation_id
    assignment = decode_assignment(member.assignment) if member.assignment else Assignment()
    if assignment.user_data:
        raise ConsumerProtocolError("its assignor is a custom one")
    if all(name != group.protocol_name for name, _ in member.protocols):
        raise RefusedError(ErrorCode.UNKNOWN_SERVER_ERROR)
    subscription = decode_subscription(member.metadata(group.protocol_name))
    assigned = {
        topic_id: dict.fromkeys(sorted(partitions), epoch)
        for topic_id, partitions in owned_partitions(assignment.partitions, rules).items()
    }
    metadata = ConsumerGroupMemberMetadataRecord(
        group.group_id,
        member.member_id,
        member.group_instance_id,
        subscription.rack_id,
        member.client_id,
        member.client_host,
        tuple(sorted(set(subscription.topics))),
        "",
        member.rebalance_timeout_ms,
        None,
        ClassicMemberMetadata(
            member.session_timeout_ms, tuple(ClassicProtocol(*protocol) for protocol in member.protocols)
        ),
    )
    return metadata, MemberAssignment(epoch, epoch, assigned=assigned)


def can_downgrade(state: ConsumerState, without: Collection[str], rules: Rules, *, joining: int = 0) -> bool:
    """Tell whether a group becomes a classic one when these members are gone: all that are left use that protocol.

    Args:
        state: the group.
        without: the ids of the members that leave.
        rules: the policy, and how large a classic group may be.
        joining: how many come in their place, with the classic protocol.
    """
    leaving = [state.members[member_id] for member_id in set(without) if member_id in state.members]
    left = len(state.members) - len(leaving)
    classic_left = state.classic_member_count - sum(member.uses_classic_protocol for member in leaving)
    count = left + joining
    return (
        count > 0
        and classic_left == left
        and rules.config.group_consumer_migration_policy in (MigrationPolicy.DOWNGRADE, MigrationPolicy.BIDIRECTIONAL)
        and check_group_size(count, rules.config.group_max_size) is ErrorCode.NONE
    )


def downgrade(
    draft: Draft,
    rules: Rules,
    trigger: Trigger | None,
    now_ms: int,
    *,
    gone: Collection[str] = (),
    joiner_id: str | None = None,
) -> None:
    """Write that a group is a classic one from now on.

    Args:
        draft: the group.
        rules: the topics.
        trigger: why the classic group has to rebalance; None if it need not.
        now_ms: the time.
        gone: the members that leave with this.
        joiner_id: the member that has taken another's place with this; None if none has.
    """
    state = draft.state
    # Kafka forgets all expressions that were known before, one that has just been forgotten once more.
    records = group_tombstones(state, draft.base.resolved)
    left = state.copy()
    left.epoch = draft.base.epoch  # the generation goes on from the last epoch that was written
    for member_id in gone:
        for tombstone in tombstones_of(state.group_id, member_id):
            left.apply(tombstone)
    # Kafka takes them from the map of all members, of whom the first that stays is the leader, and then the joiner.
    known = timeline_map_order(sorted(draft.base.members))
    staying = [member_id for member_id in known if member_id in left.members and member_id != joiner_id]
    staying += [] if joiner_id is None else [joiner_id]
    draft.write(*records)  # which may change the state itself
    draft.records.append(downgraded(left, staying, rules, now_ms))
    protocols = {
        member_id: tuple(JoinProtocol(*protocol) for protocol in classic.supported_protocols)
        for member_id, member in left.members.items()
        if (classic := member.metadata.classic_member_metadata) is not None
    }
    draft.downgrade = Downgrade(trigger, protocols)


def downgraded(state: ConsumerState, staying: list[str], rules: Rules, now_ms: int) -> GroupMetadataRecord:
    """Return the record of the classic group that a group becomes whose members all use the classic protocol.

    Args:
        state: the group, without those that leave.
        staying: the ids of its members; the first leads.
        rules: the topics.
        now_ms: the time.
    """
    members = [state.members[member_id] for member_id in hash_map_order(staying)]
    protocol_name = _vote(members)
    return GroupMetadataRecord(
        state.group_id,
        CONSUMER_PROTOCOL_TYPE,
        state.epoch,
        protocol_name,
        staying[0],
        now_ms,
        tuple(_downgraded_member(state, member, protocol_name, rules) for member in members),
    )


def _vote(members: list[ConsumerMember]) -> str:
    """Return the protocol that most members prefer among those that all support."""
    lists = [
        [protocol.name for protocol in metadata.supported_protocols]
        for member in members
        if (metadata := member.metadata.classic_member_metadata) is not None
    ]
    candidates = set.intersection(*map(set, lists))
    votes: dict[str, int] = {}
    for names in lists:
        vote = next(name for name in names if name in candidates)
        votes[vote] = votes.get(vote, 0) + 1
    return max(hash_map_order(votes), key=votes.__getitem__)


def _downgraded_member(state: ConsumerState, member: ConsumerMember, protocol_name: str, rules: Rules) -> MemberRecord:
    metadata, classic = member.metadata, member.metadata.classic_member_metadata
    assert classic is not None
    subscription = next(protocol.metadata for protocol in classic.supported_protocols if protocol.name == protocol_name)
    partitions = tuple(
        TopicPartition(name, partition)
        for topic_id, indexes in in_hash_order(state.targets.get(member.member_id, {}))
        if (name := rules.topics.topic_name(topic_id)) is not None
        for partition in sorted(indexes)
    )
    version = int.from_bytes(subscription[:2], "big")
    return MemberRecord(
        member.member_id,
        metadata.instance_id,
        metadata.client_id,
        metadata.client_host,
        metadata.rebalance_timeout_ms,
        classic.session_timeout_ms,
        subscription,
        encode_assignment(Assignment(partitions), version),
    )
