"""Classic members of a consumer group: JoinGroup, SyncGroup and Heartbeat (KIP-848).

Source: ``GroupMetadataManager`` (``classicGroupJoinToConsumerGroup``, ``classicGroupSyncToConsumerGroup``,
``classicGroupHeartbeatToConsumerGroup``) of Apache Kafka 4.4.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from uuid import UUID

from attrs import evolve

from groupcoord.config import MigrationPolicy
from groupcoord.core.consumer_protocol import (
    CONSUMER_PROTOCOL_TYPE,
    Assignment,
    ConsumerProtocolError,
    Subscription,
    TopicPartition,
    decode_subscription,
    encode_assignment,
)
from groupcoord.core.groups.base.state import find_sender, find_static_member, replace_member
from groupcoord.core.groups.classic.group import MemberMetadata
from groupcoord.core.groups.consumer.group import (
    ConsumerDraft,
    ConsumerGroup,
    ConsumerGroupEnvironment,
    ConsumerMember,
    ConsumerState,
)
from groupcoord.core.groups.consumer.heartbeat import Step, advance_member, check_room, new_member
from groupcoord.core.groups.consumer.reconciliation import MemberState
from groupcoord.core.groups.consumer.records import (
    ClassicMemberMetadata,
    ClassicProtocol,
    ConsumerGroupMemberMetadataRecord,
)
from groupcoord.core.javacompat import HashTable, uuid_hash, uuid_sort_key
from groupcoord.core.messages import (
    Heartbeat,
    JoinGroup,
    JoinGroupResponse,
    JoinProtocol,
    SyncGroup,
    SyncGroupResponse,
)
from groupcoord.core.messages.request import RefusedError
from groupcoord.errors import ErrorCode


def check_join(state: ConsumerState, request: JoinGroup, environment: ConsumerGroupEnvironment) -> None:
    # Kafka's order: policy, size, protocols, then the member id.
    if environment.config.group_consumer_migration_policy is MigrationPolicy.DISABLED:
        raise RefusedError(ErrorCode.INCONSISTENT_GROUP_PROTOCOL, "The group uses the consumer protocol.")
    check_room(state, request.group_instance_id, request.member_id, environment)
    if request.protocol_type != CONSUMER_PROTOCOL_TYPE or not _is_supported(state, request.protocols):
        raise RefusedError(ErrorCode.INCONSISTENT_GROUP_PROTOCOL, "No protocol is supported by all classic members.")


def _is_supported(state: ConsumerState, protocols: tuple[JoinProtocol, ...]) -> bool:
    supported = [
        {protocol.name for protocol in member.metadata.classic_member_metadata.supported_protocols}
        for member in state.members.values()
        if member.metadata.classic_member_metadata is not None
    ]
    # Without classic members any protocol is supported.
    return any(all(name in names for names in supported) for name, _ in protocols)


def join(
    group: ConsumerGroup, draft: ConsumerDraft, request: JoinGroup, member_id: str, now_ms: int, *, ends_group: bool
) -> tuple[JoinGroupResponse, Step]:
    """Handle a join that passed :func:`check_join`."""
    member = _resolve(draft, request, member_id)
    try:
        # The coordinator assigns, so the first protocol stands for all.
        subscription = decode_subscription(request.protocols[0].metadata)
    except ConsumerProtocolError:
        raise RefusedError(ErrorCode.INCONSISTENT_GROUP_PROTOCOL, "The subscription can't be read.") from None
    updated = with_subscription(member.metadata, request, subscription)
    owned = owned_partitions(subscription.owned_partitions, group.environment)
    step = advance_member(group, draft, member, updated, owned, now_ms, ends_group=ends_group)
    response = JoinGroupResponse(
        ErrorCode.NONE,
        member_id,
        step.member.assignment.member_epoch,
        CONSUMER_PROTOCOL_TYPE,
        request.protocols[0].name,
    )
    return response, step


def _resolve(draft: ConsumerDraft, request: JoinGroup, member_id: str) -> ConsumerMember:
    state, instance_id = draft.state, request.group_instance_id
    if instance_id is None:
        # Unknown ids may join: MEMBER_ID_REQUIRED stores none.
        return state.members.get(member_id) or new_member(state, member_id)
    if request.member_id:
        # A member id must be the instance's; without one the client has restarted.
        return find_static_member(state, instance_id, member_id)
    # Unlike in heartbeats, a member is replaced here without having left.
    known_id = state.static_members.get(instance_id)
    if known_id is None:
        return new_member(state, member_id)
    return replace_member(draft, state.members[known_id], member_id, no_target={})


def with_subscription(
    metadata: ConsumerGroupMemberMetadataRecord, member: JoinGroup | MemberMetadata, subscription: Subscription
) -> ConsumerGroupMemberMetadataRecord:
    """Return the metadata of a member that joins with the classic protocol, or did so in a classic group."""
    return evolve(
        metadata,
        instance_id=metadata.instance_id if member.group_instance_id is None else member.group_instance_id,
        rack_id=metadata.rack_id if subscription.rack_id is None else subscription.rack_id,
        client_id=member.client_id,
        client_host=member.client_host,
        subscribed_topic_names=tuple(sorted(set(subscription.topics))),
        # Classic members subscribe to the names that they matched themselves.
        subscribed_topic_regex="",
        rebalance_timeout_ms=member.rebalance_timeout_ms,
        classic_member_metadata=ClassicMemberMetadata(
            member.session_timeout_ms, tuple(ClassicProtocol(*protocol) for protocol in member.protocols)
        ),
        raw_value=None,
    )


def owned_partitions(
    partitions: Iterable[TopicPartition], environment: ConsumerGroupEnvironment
) -> dict[UUID, set[int]]:
    """Return the partitions of existing topics by topic id."""
    owned: dict[UUID, set[int]] = {}
    for topic, partition in partitions:
        topic_id = environment.topics.resolver.topic_id(topic)
        # Partitions of deleted topics are lost anyway.
        if topic_id is not None and topic_id.int:
            owned.setdefault(topic_id, set()).add(partition)
    return owned


def identify_classic(state: ConsumerState, member_id: str, instance_id: str | None) -> ConsumerMember:
    """Return the sender of a request, or fail with UNKNOWN_MEMBER_ID or FENCED_INSTANCE_ID."""
    member = find_sender(state, member_id, instance_id)
    # An upgraded member has to use ConsumerGroupHeartbeat (KIP-848).
    if not member.uses_classic_protocol:
        raise RefusedError(ErrorCode.UNKNOWN_MEMBER_ID)
    return member


def heartbeat_error(state: ConsumerState, member: ConsumerMember, request: Heartbeat) -> ErrorCode:
    """Return NONE, or REBALANCE_IN_PROGRESS if the member has to join again within its rebalance timeout."""
    assignment = member.assignment
    if request.generation_id != assignment.member_epoch:
        return ErrorCode.ILLEGAL_GENERATION
    # A join fetches the next assignment; until others release partitions it would change nothing.
    must_rejoin = (
        assignment.member_epoch < state.assignment_epoch
        or assignment.state is MemberState.UNREVOKED_PARTITIONS
        or (assignment.state is MemberState.UNRELEASED_PARTITIONS and not _waits_for_others(state, member))
    )
    return ErrorCode.REBALANCE_IN_PROGRESS if must_rejoin else ErrorCode.NONE


def _waits_for_others(state: ConsumerState, member: ConsumerMember) -> bool:
    held = set(member.partitions())
    # A partition of its target that another member still holds.
    return any(
        (topic_id, partition) not in held and (topic_id, partition) in state.owner_epochs
        for topic_id, partitions in state.targets.get(member.member_id, {}).items()
        for partition in partitions
    )


def sync_error(state: ConsumerState, member: ConsumerMember, request: SyncGroup) -> ErrorCode:
    metadata, assignment = member.metadata.classic_member_metadata, member.assignment
    assert metadata is not None
    # Kafka's order: generation, protocol, then the state of the assignment.
    if request.generation_id != assignment.member_epoch:
        return ErrorCode.ILLEGAL_GENERATION
    if (request.protocol_type is not None and request.protocol_type != CONSUMER_PROTOCOL_TYPE) or (
        request.protocol_name is not None and request.protocol_name != metadata.supported_protocols[0].name
    ):
        return ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    # A member that still has to revoke gets its reduced assignment first.
    if state.assignment_epoch > assignment.member_epoch and assignment.state is not MemberState.UNREVOKED_PARTITIONS:
        return ErrorCode.REBALANCE_IN_PROGRESS
    return ErrorCode.NONE


def classic_assignment(
    partitions: Mapping[UUID, Collection[int]], subscription: bytes, environment: ConsumerGroupEnvironment
) -> bytes:
    """Return partitions in the bytes of the consumer protocol, in the version of the member's subscription."""
    named = tuple(
        TopicPartition(name, partition)
        # In the order of a Java ``HashMap``, which shows in the bytes.
        for topic_id in HashTable(uuid_hash, sorted(partitions, key=uuid_sort_key))
        # The protocol has names only, so deleted topics are left out.
        if (name := environment.topics.resolver.topic_name(topic_id)) is not None
        for partition in sorted(partitions[topic_id])
    )
    return encode_assignment(Assignment(named), int.from_bytes(subscription[:2], "big"))


def synced(member: ConsumerMember, environment: ConsumerGroupEnvironment) -> SyncGroupResponse:
    metadata = member.metadata.classic_member_metadata
    assert metadata is not None
    protocol = metadata.supported_protocols[0]
    assignment = classic_assignment(member.assignment.assigned, protocol.metadata, environment)
    return SyncGroupResponse(ErrorCode.NONE, CONSUMER_PROTOCOL_TYPE, protocol.name, assignment)
