"""Rows of a group's history, and the views of its members in a generation or an epoch that they are made from.

Subscriptions and assignments of classic consumers are bytes of any client version: bytes that cannot be parsed count as
unknown.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from operator import itemgetter
from typing import Any, TypeVar

from attrs import define, field

from groupcoord.core import consumer_protocol
from groupcoord.core.consumer_protocol import CONSUMER_PROTOCOL_TYPE, ConsumerProtocolError, subscribed_topics
from groupcoord.schema.engine import Values

Item = TypeVar("Item")
Key = TypeVar("Key")
Row = dict[str, Any]
TopicPartition = tuple[str, int]
TopicPartitions = frozenset[TopicPartition]

NO_PARTITIONS: TopicPartitions = frozenset()


def decode_subscription(data: bytes) -> Row:
    """Return a subscription as fields of a :class:`MemberView`. Some clients omit the last fields of their version."""
    try:
        subscription = consumer_protocol.decode_subscription(data)
    except ConsumerProtocolError:
        return {"topics": subscribed_topics([data])}
    return {
        "topics": frozenset(subscription.topics),
        "owned": _pairs(subscription.owned_partitions),
        "owned_generation": subscription.generation_id,
        "rack_id": subscription.rack_id,
        "user_data": subscription.user_data,
    }


def decode_partitions(data: bytes) -> TopicPartitions:
    if not data:
        return NO_PARTITIONS
    try:
        return _pairs(consumer_protocol.decode_assignment(data).partitions)
    except ConsumerProtocolError:
        return NO_PARTITIONS


def _pairs(partitions: Iterable[tuple[str, int]]) -> TopicPartitions:
    return frozenset((topic, partition) for topic, partition in partitions)


CLASSIC, CONSUMER, SHARE, STREAMS = "Classic", "Consumer", "Share", "Streams"
"""Types of groups, as Kafka's administration client names them."""

LEFT_MEMBER_EPOCH = -2
"""Epoch of a static member that has left temporarily (KIP-848)."""


@define
class MemberView:
    """A member at one moment.

    Attributes:
        rebalance_timeout_ms: time to rejoin, or to revoke partitions; -1 if unknown.
        session_timeout_ms: None for a broker setting.
        topics: subscribed topic names; None if unreadable.
        owned: owned partitions in its JoinGroup (KIP-429).
        owned_generation: generation of ``owned``; -1 if absent (KIP-792).
        assigned: target assignment; in a classic group the assignment.
        held: current assignment, since the record at ``held_since``.
        metadata: the subscription's bytes, of classic members.
        epoch: member epoch; -1 in a classic group.
        alive_ms: its last sign of life in the log.
        revoking_ms: start of the revocation, or None.
    """

    member_id: str
    instance_id: str | None = None
    client_id: str = ""
    client_host: str = ""
    rebalance_timeout_ms: int = -1
    session_timeout_ms: int | None = None
    topics: frozenset[str] | None = None
    topic_regex: str | None = None
    rack_id: str | None = None
    owned: TopicPartitions = NO_PARTITIONS
    owned_generation: int = -1
    user_data: bytes | None = None
    assigned: TopicPartitions = NO_PARTITIONS
    held: TopicPartitions = NO_PARTITIONS
    held_since: int = -1
    metadata: bytes = b""
    epoch: int = -1
    alive_ms: int = -1
    assignor: str | None = None
    pending: TopicPartitions = NO_PARTITIONS
    revoking_ms: int | None = None
    standby: TopicPartitions = NO_PARTITIONS
    warmup: TopicPartitions = NO_PARTITIONS

    @property
    def identity(self) -> str:
        """Id across restarts: the instance id of a static member, else the member id."""
        return self.member_id if self.instance_id is None else f"instance {self.instance_id}"

    @property
    def name(self) -> str:
        return f"{self.instance_id or self.client_id} ({self.member_id})"


@define
class GroupView:
    """A group at one moment.

    Attributes:
        protocol_type: ``consumer``, ``connect``, ...; None before the first member.
        protocol: the assignor; None without members, or if each member selects one.
        members: by member id, in log order.
        at_ms: end of the generation's join phase, or start of the epoch.
    """

    group_type: str
    generation: int
    protocol_type: str | None = None
    protocol: str | None = None
    leader: str | None = None
    members: dict[str, MemberView] = field(factory=dict)
    at_ms: int = -1
    log_offset: int = -1
    log_timestamp_ms: int = -1

    def owners(self) -> dict[TopicPartition, str]:
        owners: dict[TopicPartition, str] = {}
        for member in self.members.values():
            for partition in member.assigned:
                owners.setdefault(partition, member.identity)
        return owners

    def duplicate_owners(self) -> dict[TopicPartition, list[str]]:
        """Return the partitions that several members have."""
        owners: dict[TopicPartition, list[str]] = {}
        for member in self.members.values():
            for partition in member.assigned:
                owners.setdefault(partition, []).append(member.member_id)
        return {partition: owners[partition] for partition in sorted(owners) if len(owners[partition]) > 1}


def classic_view(values: Values, log_offset: int, log_timestamp_ms: int) -> GroupView:
    """Return the view of a classic group's record (type 2), from the fields of its value.

    Subscriptions and assignments are decoded for protocol type ``consumer`` only. The end of the join phase is a sign
    of life of each member, since its session restarts then.
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
    session_timeout_ms = values["sessionTimeout"]
    rebalance_timeout_ms = values.get("rebalanceTimeout", -1)
    return MemberView(
        values["memberId"],
        values.get("groupInstanceId"),
        values["clientId"],
        values["clientHost"],
        session_timeout_ms if rebalance_timeout_ms == -1 else rebalance_timeout_ms,
        session_timeout_ms,
        assigned=assigned,
        held=assigned,
        held_since=log_offset,
        metadata=metadata,
        alive_ms=alive_ms,
        **(decode_subscription(metadata) if is_consumer else {}),
    )


def by_topic(partitions: TopicPartitions) -> list[tuple[str, list[int]]]:
    topics = grouped(sorted(partitions), itemgetter(0))
    return [(topic, [partition for _, partition in some]) for topic, some in topics.items()]


def grouped(items: Iterable[Item], key: Callable[[Item], Key]) -> dict[Key, list[Item]]:
    """Return the items of each key, both in their order."""
    found: dict[Key, list[Item]] = {}
    for item in items:
        found.setdefault(key(item), []).append(item)
    return found


GENERATION, MEMBER, REBALANCE, GROUP = "generation", "member", "rebalance", "group"
EPOCH, MEMBERSHIP, MOVE, REVOCATION = "epoch", "membership", "move", "revocation"
DUPLICATE = "duplicate"
"""Kinds of rows. Epochs and memberships exist for KIP-848 groups, moves and revocations for those without shared
partitions. A duplicate is a partition that several members own at a time.
"""

HOLDER = ("member_id", "client_id", "client_host")
IDENTITY = ("member_id", "instance_id", "client_id", "client_host")
_BY_TOPIC = ("assignment", "pending", "target", "partitions")


def fields_of(source: object, *names: str) -> Row:
    """Return attributes as columns of the same names."""
    return {name: getattr(source, name) for name in names}


def subscribed(view: GroupView | None) -> list[str] | None:
    """Return the topics with offsets that do not expire; None if unknown."""
    if view is None or not view.members:
        return []
    topics: set[str] = set()
    for member in view.members.values():
        if member.topics is None or view.protocol_type != CONSUMER_PROTOCOL_TYPE:
            return None
        topics |= member.topics
    return sorted(topics)


def member_row(view: GroupView, member: MemberView, topics: dict[str, str]) -> Row:
    is_classic = view.group_type == CLASSIC
    is_by_name = view.group_type in (CLASSIC, STREAMS)
    return {
        "type": view.group_type,
        "generation": view.generation,
        **fields_of(member, *IDENTITY, "session_timeout_ms", "rebalance_timeout_ms"),
        "subscription": {
            "topics": None if member.topics is None else sorted(member.topics),
            "topic_regex": member.topic_regex,
            "owned_partitions": [{"topic": topic, "partitions": found} for topic, found in by_topic(member.owned)],
            "generation": member.owned_generation,
            "rack_id": member.rack_id,
            "user_data": member.user_data,
            "raw": member.metadata or None,
        },
        "assignment": _by_name(member.held) if is_by_name else _by_id(member.held, topics),
        "pending": None if is_by_name else _by_id(member.pending, topics),
        "target": None if is_by_name else _by_id(member.assigned, topics),
        "standby": _by_name(member.standby) if view.group_type == STREAMS else None,
        "warmup": _by_name(member.warmup) if view.group_type == STREAMS else None,
        "assignor": member.assignor,
        "is_leader": member.member_id == view.leader,
        "member_epoch": None if is_classic else member.epoch,
        "log_offset": view.log_offset,
    }


def _by_name(partitions: TopicPartitions) -> list[Row]:
    return [{"topic": topic, "topic_id": None, "partitions": found} for topic, found in by_topic(partitions)]


def _by_id(partitions: TopicPartitions, topics: dict[str, str]) -> list[Row]:
    rows = [
        {"topic": topics.get(topic_id), "topic_id": topic_id, "partitions": found}
        for topic_id, found in by_topic(partitions)
    ]
    return sorted(rows, key=lambda row: row["topic"] or row["topic_id"])


def named(row: Row, topics: dict[str, str]) -> Row:
    renamed: Row = {name: _named(row[name], topics) for name in _BY_TOPIC if isinstance(row.get(name), list)}
    if row.get("topic_id") is not None:
        renamed["topic"] = topics.get(row["topic_id"], row["topic"])
    return row | renamed


def _named(partitions: list[Row], topics: dict[str, str]) -> list[Row]:
    found = [one | {"topic": topics.get(one["topic_id"], one["topic"])} for one in partitions]
    return sorted(found, key=lambda one: one["topic"] or one["topic_id"])
