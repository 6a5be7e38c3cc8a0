"""What is written when a consumer group becomes a classic one, since all that are left use its protocol (KIP-848).

Source: ``ClassicGroup.fromConsumerGroup`` and the validations of ``GroupMetadataManager`` in Apache Kafka 4.4.
"""

from __future__ import annotations

from collections.abc import Collection

from groupcoord.core.consumer_protocol import CONSUMER_PROTOCOL_TYPE, Assignment, TopicPartition, encode_assignment
from groupcoord.core.events import Trigger
from groupcoord.core.groups.consumer.classic_members import in_hash_order
from groupcoord.core.groups.consumer.draft import ConsumerDraft, Downgrade
from groupcoord.core.groups.consumer.environment import ConsumerGroupEnvironment
from groupcoord.core.groups.consumer.state import ConsumerMember, ConsumerState
from groupcoord.core.groups.group import check_group_size
from groupcoord.core.javacompat.hashing import hash_map_order, timeline_map_order
from groupcoord.core.log.records import GroupMetadataRecord, MemberRecord
from groupcoord.core.messages import JoinProtocol
from groupcoord.errors import ErrorCode


def can_downgrade(
    state: ConsumerState, without: Collection[str], environment: ConsumerGroupEnvironment, *, joining: int = 0
) -> bool:
    """Tell whether a group becomes a classic one when these members are gone: all that are left use that protocol.

    Args:
        state: the group.
        without: the ids of the members that leave.
        environment: the policy, and how large a classic group may be.
        joining: how many come in their place, with the classic protocol.
    """
    leaving = [state.members[member_id] for member_id in set(without) if member_id in state.members]
    left = len(state.members) - len(leaving)
    classic_left = state.classic_member_count - sum(member.uses_classic_protocol for member in leaving)
    count = left + joining
    return (
        count > 0
        and classic_left == left
        and environment.config.group_consumer_migration_policy.allows_downgrade
        and check_group_size(count, environment.config.group_max_size) is ErrorCode.NONE
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
    """Write that a group is a classic one from now on.

    Args:
        draft: the group.
        environment: the topics.
        trigger: why the classic group has to rebalance; None if it need not.
        now_ms: the time.
        gone: the members that leave with this.
        joiner_id: the member that has taken another's place with this; None if none has.
    """
    state = draft.state
    # Kafka forgets all expressions that were known before, one that has just been forgotten once more.
    records = state.tombstones(draft.base.resolved)
    left = state.copy()
    left.epoch = draft.base.epoch  # the generation goes on from the last epoch that was written
    for member_id in gone:
        for tombstone in state.member_tombstones(member_id):
            left.apply(tombstone)
    # Kafka takes them from the map of all members, of whom the first that stays is the leader, and then the joiner.
    known = timeline_map_order(sorted(draft.base.members))
    staying = [member_id for member_id in known if member_id in left.members and member_id != joiner_id]
    staying += [] if joiner_id is None else [joiner_id]
    draft.write(*records)  # which may change the state itself
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
    """Return the record of the classic group that a group becomes whose members all use the classic protocol.

    Args:
        state: the group, without those that leave.
        staying: the ids of its members; the first leads.
        environment: the topics.
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
        tuple(_downgraded_member(state, member, protocol_name, environment) for member in members),
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


def _downgraded_member(
    state: ConsumerState, member: ConsumerMember, protocol_name: str, environment: ConsumerGroupEnvironment
) -> MemberRecord:
    metadata, classic = member.metadata, member.metadata.classic_member_metadata
    assert classic is not None
    subscription = next(protocol.metadata for protocol in classic.supported_protocols if protocol.name == protocol_name)
    partitions = tuple(
        TopicPartition(name, partition)
        for topic_id, indexes in in_hash_order(state.targets.get(member.member_id, {}))
        if (name := environment.topics.topic_name(topic_id)) is not None
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
