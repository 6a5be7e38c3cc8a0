"""What a group looked like at one moment of its log: the members of a generation or of an epoch, decoded."""

from __future__ import annotations

from attrs import define

from groupcoord.analysis.fold.history.embedded import (
    NO_PARTITIONS,
    NO_SUBSCRIPTION,
    TopicPartition,
    TopicPartitions,
    decode_partitions,
    decode_subscription,
)
from groupcoord.core.consumer_protocol import CONSUMER_PROTOCOL_TYPE
from groupcoord.records.structures import Values

CLASSIC, CONSUMER, SHARE, STREAMS = "Classic", "Consumer", "Share", "Streams"
"""Types of groups, as Kafka's administration client names them."""

LEFT_MEMBER_EPOCH = -2
"""The epoch of a static member of a consumer group that has left for a while (KIP-848)."""


@define
class MemberView:
    """One member at one moment.

    Attributes:
        member_id: its id.
        instance_id: its id as a static member (KIP-345); None if it is none.
        client_id: what the client calls itself.
        client_host: where it connects from.
        rebalance_timeout_ms: how long it may take to rejoin, or to give partitions up.
        session_timeout_ms: how long it may be silent; None: a setting of the broker, which the log does not tell.
        topics: what it subscribes to by name; None if its subscription can't be read.
        topic_regex: the pattern that it subscribes to (KIP-848).
        rack_id: where it runs.
        owned: what it said it held when it joined (KIP-429).
        owned_generation: the generation it held that in; -1 if it does not tell (KIP-792).
        user_data: what its assignor adds to its subscription.
        assigned: what it is to have.
        held: what it has, since the record at ``held_since`` of the log.
        held_since: the offset of that record.
        metadata: the subscription's bytes, of classic members.
        epoch: its own epoch (KIP-848); -1 in a classic group.
        alive_ms: the last moment at which the log shows that it lived.
        assignor: what it wants partitions to be assigned by (KIP-848); None if it does not say.
        pending: what it was told to give up and has not yet (KIP-848).
        revoking_ms: since when it is to give that up; None if there is nothing.
        standby: tasks of which it keeps a copy of the state (KIP-1071).
        warmup: tasks of which it makes one.
    """

    member_id: str
    instance_id: str | None
    client_id: str
    client_host: str
    rebalance_timeout_ms: int
    session_timeout_ms: int | None
    topics: frozenset[str] | None
    topic_regex: str | None
    rack_id: str | None
    owned: TopicPartitions
    owned_generation: int
    user_data: bytes | None
    assigned: TopicPartitions
    held: TopicPartitions
    held_since: int
    metadata: bytes
    epoch: int
    alive_ms: int
    assignor: str | None = None
    pending: TopicPartitions = NO_PARTITIONS
    revoking_ms: int | None = None
    standby: TopicPartitions = NO_PARTITIONS
    warmup: TopicPartitions = NO_PARTITIONS

    @property
    def identity(self) -> str:
        """What stays the same over restarts: the instance id of a static member, the member id of another."""
        return self.member_id if self.instance_id is None else f"instance {self.instance_id}"

    @property
    def name(self) -> str:
        """How to call it in words."""
        return f"{self.instance_id or self.client_id} ({self.member_id})"


@define
class GroupView:
    """A group at one moment.

    Attributes:
        group_type: :data:`CLASSIC` or another.
        generation: or epoch.
        protocol_type: what its members speak: ``consumer``, ``connect``, ...; None if there was no member yet.
        protocol: the assignor; None without members, or if each member may ask for another.
        leader: of a classic group.
        members: by member id, in the log's order.
        at_ms: when the join phase of the generation ended, or the epoch began.
        log_offset: of the record that tells it.
        log_timestamp_ms: of that record.
    """

    group_type: str
    generation: int
    protocol_type: str | None
    protocol: str | None
    leader: str | None
    members: dict[str, MemberView]
    at_ms: int
    log_offset: int
    log_timestamp_ms: int

    def owners(self) -> dict[TopicPartition, str]:
        """Return who has each partition, by identity; the first of several."""
        owners: dict[TopicPartition, str] = {}
        for member in self.members.values():
            for partition in member.assigned:
                owners.setdefault(partition, member.identity)
        return owners

    def duplicate_owners(self) -> dict[TopicPartition, list[str]]:
        """Return the partitions that several members have, with the members' ids."""
        owners: dict[TopicPartition, list[str]] = {}
        for member in self.members.values():
            for partition in member.assigned:
                owners.setdefault(partition, []).append(member.member_id)
        return {partition: owners[partition] for partition in sorted(owners) if len(owners[partition]) > 1}


def classic_view(values: Values, log_offset: int, log_timestamp_ms: int) -> GroupView:
    """Return the view of a classic group's record (type 2), from the fields of its value.

    Subscriptions and assignments are read if the protocol type is ``consumer``; others, such as those of Connect, mean
    something else. A member lived when the join phase of the generation ended: its session started anew then.
    """
    state_timestamp_ms = values.get("currentStateTimestamp", -1)
    at_ms = state_timestamp_ms if state_timestamp_ms >= 0 else log_timestamp_ms
    is_consumer = values["protocolType"] == CONSUMER_PROTOCOL_TYPE
    members = [_classic_member(member, is_consumer, at_ms, log_offset) for member in values["members"]]
    return GroupView(
        CLASSIC,
        values["generation"],
        values["protocolType"] or None,
        values["protocol"],
        values["leader"],
        {member.member_id: member for member in members},
        at_ms,
        log_offset,
        log_timestamp_ms,
    )


def _classic_member(values: Values, is_consumer: bool, alive_ms: int, log_offset: int) -> MemberView:
    metadata = values["subscription"]
    assigned = decode_partitions(values["assignment"]) if is_consumer else NO_PARTITIONS
    decoded = decode_subscription(metadata) if is_consumer else NO_SUBSCRIPTION
    session_timeout_ms = values["sessionTimeout"]
    rebalance_timeout_ms = values.get("rebalanceTimeout", -1)
    return MemberView(
        values["memberId"],
        values.get("groupInstanceId"),
        values["clientId"],
        values["clientHost"],
        session_timeout_ms if rebalance_timeout_ms == -1 else rebalance_timeout_ms,
        session_timeout_ms,
        decoded.topics,
        None,
        decoded.rack_id,
        decoded.owned,
        decoded.owned_generation,
        decoded.user_data,
        assigned,
        assigned,
        log_offset,
        metadata,
        -1,
        alive_ms,
    )


def by_topic(partitions: TopicPartitions) -> list[tuple[str, list[int]]]:
    """Return topics with their partitions, both sorted."""
    grouped: dict[str, list[int]] = {}
    for topic, partition in sorted(partitions):
        grouped.setdefault(topic, []).append(partition)
    return list(grouped.items())
