"""What is written when a classic group becomes a consumer group: its members stay, and keep what they have (KIP-848).

Source: ``ConsumerGroup.fromClassicGroup`` and the validations of ``GroupMetadataManager`` in Apache Kafka 4.4.
"""

from __future__ import annotations

from groupcoord.core.consumer_protocol import (
    CONSUMER_PROTOCOL_TYPE,
    Assignment,
    ConsumerProtocolError,
    decode_assignment,
    decode_subscription,
)
from groupcoord.core.groups.base.refusal import RefusedError
from groupcoord.core.groups.classic.group import GroupMetadata
from groupcoord.core.groups.classic.member import MemberMetadata
from groupcoord.core.groups.consumer.classic_members import owned_partitions
from groupcoord.core.groups.consumer.environment import ConsumerGroupEnvironment
from groupcoord.core.groups.consumer.member_lookup import target_record
from groupcoord.core.groups.consumer.reconciliation import MemberAssignment
from groupcoord.core.groups.consumer.records import (
    ClassicMemberMetadata,
    ClassicProtocol,
    ConsumerGroupMemberMetadataRecord,
    ConsumerGroupMetadataRecord,
    ConsumerGroupRecord,
    ConsumerGroupTargetAssignmentMetadataRecord,
)
from groupcoord.core.groups.consumer.state import ConsumerState, Partition, assignment_record
from groupcoord.core.groups.group import check_group_size
from groupcoord.core.javacompat.hashing import hash_map_order
from groupcoord.errors import ErrorCode


def check_upgrade(group: GroupMetadata, environment: ConsumerGroupEnvironment) -> None:
    """Check that a classic group may become a consumer group.

    Raises:
        RefusedError: GROUP_ID_NOT_FOUND.
    """
    problem = _upgrade_problem(group, environment)
    if problem is not None:
        raise RefusedError(ErrorCode.GROUP_ID_NOT_FOUND, f"Group {group.group_id} is a classic group: {problem}.")


def upgraded(group: GroupMetadata, environment: ConsumerGroupEnvironment) -> list[ConsumerGroupRecord]:
    """Return the records of the consumer group that a classic group with members becomes.

    The members keep what they have; their generation is everybody's epoch.

    Raises:
        RefusedError: GROUP_ID_NOT_FOUND if what the members told each other can't be read, UNKNOWN_SERVER_ERROR if they
            have not agreed on a protocol yet, or if their leader has given a partition to two of them.
    """
    if group.members and group.protocol_name is None:
        raise RefusedError(ErrorCode.UNKNOWN_SERVER_ERROR)
    epoch, members = group.generation_id, _upgraded_members(group, environment)
    group_id, state = group.group_id, ConsumerState(group.group_id)
    for metadata, _ in members:
        state.apply(metadata)
    return [
        *(metadata for metadata, _ in members),
        ConsumerGroupMetadataRecord(group_id, epoch, environment.topics.metadata_hash(state.subscribed_topics())),
        *(
            target_record(group_id, metadata.member_id, {t: tuple(epochs) for t, epochs in held.assigned.items()})
            for metadata, held in members
        ),
        ConsumerGroupTargetAssignmentMetadataRecord(group_id, epoch, 0),
        *(assignment_record(group_id, metadata.member_id, held) for metadata, held in members),
    ]


def _upgrade_problem(group: GroupMetadata, environment: ConsumerGroupEnvironment) -> str | None:
    if not environment.config.group_consumer_migration_policy.allows_upgrade:
        return "group.consumer.migration.policy does not allow to convert it"
    if group.protocol_type != CONSUMER_PROTOCOL_TYPE:
        return "its members are no consumers"
    if check_group_size(len(group.members), environment.config.group_consumer_max_size) is not ErrorCode.NONE:
        return "it is larger than group.consumer.max.size"
    return None


def _upgraded_members(
    group: GroupMetadata, environment: ConsumerGroupEnvironment
) -> list[tuple[ConsumerGroupMemberMetadataRecord, MemberAssignment]]:
    """Return what is written of each member, in the order of Kafka's hash map.

    Where several members are in the way, the first one's error is told.
    """
    members, owned = [], set[Partition]()
    for member_id in hash_map_order(group.members):
        try:
            metadata, held = _upgraded_member(group, group.members[member_id], environment)
        except ConsumerProtocolError as error:
            raise RefusedError(ErrorCode.GROUP_ID_NOT_FOUND, str(error)) from None
        partitions = {(topic_id, partition) for topic_id, epochs in held.assigned.items() for partition in epochs}
        if not owned.isdisjoint(partitions):
            raise RefusedError(ErrorCode.UNKNOWN_SERVER_ERROR)
        owned |= partitions
        members.append((metadata, held))
    return members


def _upgraded_member(
    group: GroupMetadata, member: MemberMetadata, environment: ConsumerGroupEnvironment
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
        for topic_id, partitions in owned_partitions(assignment.partitions, environment).items()
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
