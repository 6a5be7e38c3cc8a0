"""What consumers tell each other through the coordinator: subscriptions and assignments, and their bytes.

The coordinator passes these bytes on and, as a rule, does not look inside. Versions 0 to 3 of Kafka's
``ConsumerProtocolSubscription`` and ``ConsumerProtocolAssignment``: 1 added the owned partitions (KIP-429), 2 the
generation (KIP-792), 3 the rack (KIP-881). Each later version only appends, so a version newer than the newest known is
read as that one, and whatever follows behind it is not looked at. Kafka does the same.
"""

from __future__ import annotations

from collections.abc import Iterable
from struct import error as StructError  # noqa: N812
from typing import NamedTuple

from attrs import frozen

from groupcoord.core.java import string_sort_key
from groupcoord.core.messages import UNKNOWN_GENERATION_ID
from groupcoord.errors import GroupcoordError
from groupcoord.records.primitives import MalformedError
from groupcoord.records.schemas import ASSIGNMENT, CONSUMER_PROTOCOL_VERSION, SUBSCRIPTION
from groupcoord.records.structures import Structure, Values, reader_of, writer_of

PROTOCOL_TYPE = "consumer"
"""The protocol type of a group of consumers."""

NEWEST_VERSION = CONSUMER_PROTOCOL_VERSION

_UNREADABLE = (MalformedError, StructError, IndexError, UnicodeDecodeError)
_UNWRITABLE = (MalformedError, StructError, UnicodeEncodeError)


class TopicPartition(NamedTuple):
    """One partition of a topic."""

    topic: str
    partition: int


@frozen
class Subscription:
    """What a member wants, and what it has.

    Attributes:
        topics: the topics that it subscribes to.
        user_data: whatever its assignor puts here for the leader's; None for nothing.
        owned_partitions: what a cooperative member has now (KIP-429).
        generation_id: the generation in which it got them; -1 for none (KIP-792).
        rack_id: the rack that the member is in; None if unknown (KIP-881).
        group_instance_id: its id as a static member (KIP-345). It is not part of the bytes: the leader knows it from
            the join's answer.
    """

    topics: tuple[str, ...] = ()
    user_data: bytes | None = None
    owned_partitions: tuple[TopicPartition, ...] = ()
    generation_id: int = UNKNOWN_GENERATION_ID
    rack_id: str | None = None
    group_instance_id: str | None = None


@frozen
class Assignment:
    """What a member gets.

    Attributes:
        partitions: its partitions, in the order in which the leader listed them.
        user_data: whatever the leader's assignor puts here for the member's; None for nothing.
    """

    partitions: tuple[TopicPartition, ...] = ()
    user_data: bytes | None = None


class ConsumerProtocolError(GroupcoordError, ValueError):
    """Bytes are no subscription or assignment, or a value doesn't fit into one; the message says what is wrong."""


def encode_subscription(subscription: Subscription, version: int = NEWEST_VERSION) -> bytes:
    """Return a subscription's bytes, as the Java consumer writes them.

    Topics and owned partitions are sorted. What an older version has no room for is left out.

    Args:
        subscription: what to write.
        version: 0 to 3; a newer one is written as 3.

    Raises:
        ConsumerProtocolError: the version is negative, a name is longer than 32,767 bytes, or a number does not fit.
    """
    owned = sorted(subscription.owned_partitions, key=lambda held: (string_sort_key(held.topic), held.partition))
    values: Values = {
        "topics": sorted(subscription.topics, key=string_sort_key),
        "userData": subscription.user_data,
        "ownedPartitions": _by_topic(owned),
        "generationId": max(subscription.generation_id, UNKNOWN_GENERATION_ID),
        "rackId": subscription.rack_id,
    }
    return _encode("subscription", SUBSCRIPTION, values, version)


def decode_subscription(data: bytes, group_instance_id: str | None = None) -> Subscription:
    """Return the subscription in these bytes.

    Args:
        data: the version and what follows it.
        group_instance_id: the member's, from the join's answer.

    Raises:
        ConsumerProtocolError: the bytes are cut short or malformed, or the version is negative.
    """
    values = _decode("subscription", SUBSCRIPTION, data)
    return Subscription(
        topics=tuple(values["topics"]),
        user_data=values["userData"],
        owned_partitions=_flattened(values.get("ownedPartitions", ())),
        generation_id=max(values.get("generationId", UNKNOWN_GENERATION_ID), UNKNOWN_GENERATION_ID),
        rack_id=values.get("rackId") or None,
        group_instance_id=group_instance_id,
    )


def encode_assignment(assignment: Assignment, version: int = NEWEST_VERSION) -> bytes:
    """Return an assignment's bytes, as the Java consumer writes them: topics in order of their first appearance.

    Args:
        assignment: what to write.
        version: 0 to 3; a newer one is written as 3.

    Raises:
        ConsumerProtocolError: the version is negative, a name is longer than 32,767 bytes, or a number does not fit.
    """
    values = {"assignedPartitions": _by_topic(assignment.partitions), "userData": assignment.user_data}
    return _encode("assignment", ASSIGNMENT, values, version)


def decode_assignment(data: bytes) -> Assignment:
    """Return the assignment in these bytes.

    No bytes at all are no assignment here, though a member has those that the leader gave nothing: look for them first.

    Raises:
        ConsumerProtocolError: the bytes are cut short or malformed, or the version is negative.
    """
    values = _decode("assignment", ASSIGNMENT, data)
    return Assignment(_flattened(values["assignedPartitions"]), values["userData"])


def partitions_by_topic(partitions: Iterable[TopicPartition]) -> dict[str, list[int]]:
    """Return the partitions of each topic, both in order of appearance."""
    grouped: dict[str, list[int]] = {}
    for topic, partition in partitions:
        grouped.setdefault(topic, []).append(partition)
    return grouped


def _by_topic(partitions: Iterable[TopicPartition]) -> list[Values]:
    grouped = partitions_by_topic(partitions)
    return [{"topic": topic, "partitions": numbers} for topic, numbers in grouped.items()]


def _flattened(topics: Iterable[Values]) -> tuple[TopicPartition, ...]:
    return tuple(TopicPartition(topic["topic"], number) for topic in topics for number in topic["partitions"])


def _encode(kind: str, schema: Structure, values: Values, version: int) -> bytes:
    if version < 0:
        raise ConsumerProtocolError(f"there is no {kind} of version {version}")
    version = min(version, NEWEST_VERSION)
    try:
        return version.to_bytes(2, "big") + writer_of(schema, version, False)(values)
    except _UNWRITABLE as error:
        raise ConsumerProtocolError(f"the {kind} can't be encoded: {error}") from error


def _decode(kind: str, schema: Structure, data: bytes) -> Values:
    version = int.from_bytes(data[:2], "big", signed=True)
    if len(data) < 2 or version < 0:
        why = f"its version is {version}" if len(data) >= 2 else f"it has {len(data)} bytes"
        raise ConsumerProtocolError(f"this is no {kind}: {why}")
    try:
        values: Values
        values, _ = reader_of(schema, min(version, NEWEST_VERSION), False)(data, 2)
    except _UNREADABLE as error:
        raise ConsumerProtocolError(f"the {kind} of version {version} is malformed: {error}") from error
    return values
