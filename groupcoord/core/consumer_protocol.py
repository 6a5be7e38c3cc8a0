"""Consumer protocol: subscriptions and assignments that consumers exchange through the coordinator, and their bytes.

Versions 0 to 3 of Kafka's ``ConsumerProtocolSubscription`` and ``ConsumerProtocolAssignment``: 1 added owned partitions
(KIP-429), 2 the generation (KIP-792), 3 the rack (KIP-881). Later versions append fields, so an unknown one is read as
version 3, as in Kafka.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from struct import error as StructError  # noqa: N812
from typing import Any, NamedTuple

from groupcoord.core.fast_construct import frozen
from groupcoord.core.javacompat import string_sort_key
from groupcoord.errors import GroupcoordError
from groupcoord.schema.engine import Form, parse_structures, reader_of, writer_of
from groupcoord.schema.primitives import INT16, Reader, Writer

CONSUMER_PROTOCOL_TYPE = "consumer"
NEWEST_VERSION = 3

UNKNOWN_GENERATION_ID = -1
Fields = dict[str, Any]
"""Fields under the names of Kafka's JSON, in the order of the bytes."""

_SCHEMAS = parse_structures(
    """
    TopicPartition: topic string, partitions int32[]
    subscription: topics string[], userData bytes?, ownedPartitions TopicPartition[] 1+, generationId int32 2+,
        rackId string? 3+
    assignment: assignedPartitions TopicPartition[], userData bytes?
    partitions: partitions TopicPartition[]
    """,
    made={},
)
_FORM = Form(is_dict=True, is_lenient=True, is_of_tools=True)
UNREADABLE = (StructError, IndexError, ValueError)
"""Errors of readers and writers, MalformedError among them."""


class TopicPartition(NamedTuple):
    """One partition of a topic."""

    topic: str
    partition: int


@frozen
class Subscription:
    """Topics that a member subscribes to, and its state.

    Attributes:
        user_data: data of its assignor for the leader's; None without any.
        owned_partitions: the partitions that a cooperative member owns (KIP-429).
        generation_id: the generation in which it got them; -1 for none (KIP-792).
        rack_id: the rack of the member; None if unknown (KIP-881).
        group_instance_id: its id as a static member (KIP-345); not in the bytes, but in the leader's join response.
    """

    topics: tuple[str, ...] = ()
    user_data: bytes | None = None
    owned_partitions: tuple[TopicPartition, ...] = ()
    generation_id: int = UNKNOWN_GENERATION_ID
    rack_id: str | None = None
    group_instance_id: str | None = None


@frozen
class Assignment:
    """Partitions that a member gets, in the order in which the leader listed them.

    Attributes:
        user_data: data of the leader's assignor for the member's; None without any.
    """

    partitions: tuple[TopicPartition, ...] = ()
    user_data: bytes | None = None


class ConsumerProtocolError(GroupcoordError, ValueError):
    """Invalid bytes of a subscription or assignment, or a value that does not fit into one."""


def encode_subscription(subscription: Subscription, version: int = NEWEST_VERSION) -> bytes:
    """Return a subscription's bytes, as the Java consumer writes them.

    Topics and owned partitions are sorted. Fields that an older version lacks are omitted.

    Raises:
        ConsumerProtocolError: the version is negative, a name is longer than 32,767 bytes, or a number does not fit.
    """
    owned = sorted(subscription.owned_partitions, key=lambda held: (string_sort_key(held.topic), held.partition))
    fields = {
        "topics": sorted(subscription.topics, key=string_sort_key),
        "userData": subscription.user_data,
        "ownedPartitions": _by_topic(owned),
        "generationId": max(subscription.generation_id, UNKNOWN_GENERATION_ID),
        "rackId": subscription.rack_id,
    }
    return write_subscription(fields, version)


def decode_subscription(data: bytes, group_instance_id: str | None = None) -> Subscription:
    """Return the subscription in these bytes.

    Raises:
        ConsumerProtocolError: the bytes are cut short or malformed, or the version is negative.
    """
    _, values, _ = read_subscription(data)
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

    Raises:
        ConsumerProtocolError: the version is negative, a name is longer than 32,767 bytes, or a number does not fit.
    """
    fields = {"assignedPartitions": _by_topic(assignment.partitions), "userData": assignment.user_data}
    return write_assignment(fields, version)


def decode_assignment(data: bytes) -> Assignment:
    """Return the assignment in these bytes.

    Empty bytes, which a member without an assignment gets, are an error here.

    Raises:
        ConsumerProtocolError: the bytes are cut short or malformed, or the version is negative.
    """
    _, values, _ = read_assignment(data)
    return Assignment(_flattened(values["assignedPartitions"]), values["userData"])


def subscribed_topics(subscriptions: Iterable[bytes]) -> frozenset[str] | None:
    """Return the union of the topics in subscriptions, or None if one can't be read."""
    topics: set[str] = set()
    for data in set(subscriptions):  # members of one application often send the same bytes
        try:
            # Kafka's coordinator reads only fields of version 0, for any version.
            topics.update(_reader("subscription", 0)(data, INT16.size)[0]["topics"])
        except UNREADABLE:
            return None
    return frozenset(topics)


def partitions_by_topic(partitions: Iterable[TopicPartition]) -> dict[str, list[int]]:
    """Return the partitions of each topic, both in order of appearance."""
    grouped: dict[str, list[int]] = {}
    for topic, partition in partitions:
        grouped.setdefault(topic, []).append(partition)
    return grouped


def _by_topic(partitions: Iterable[TopicPartition]) -> list[Fields]:
    grouped = partitions_by_topic(partitions)
    return [{"topic": topic, "partitions": numbers} for topic, numbers in grouped.items()]


def _flattened(topics: Iterable[Fields]) -> tuple[TopicPartition, ...]:
    return tuple(TopicPartition(topic["topic"], number) for topic in topics for number in topic["partitions"])


# ---------------------------------------------------------------- fields, as they are in the bytes


def read_subscription(data: bytes) -> tuple[int, Fields, int]:
    """Return the version of a subscription, its fields, and the position after them; errors as
    :func:`decode_subscription`.
    """
    return _read("subscription", data)


def read_assignment(data: bytes) -> tuple[int, Fields, int]:
    """Return the version of an assignment, its fields, and the position after them; errors as
    :func:`decode_assignment`.
    """
    return _read("assignment", data)


def write_subscription(fields: Mapping[str, Any], version: int = NEWEST_VERSION) -> bytes:
    """Return the bytes of a subscription; fields that the version lacks may be missing.

    Raises:
        ConsumerProtocolError: the version is negative, or a field does not fit.
    """
    return _write("subscription", fields, version)


def write_assignment(fields: Mapping[str, Any], version: int = NEWEST_VERSION) -> bytes:
    """Return the bytes of an assignment; errors as :func:`write_subscription`."""
    return _write("assignment", fields, version)


def read_partitions(data: bytes, position: int) -> tuple[list[Fields], int]:
    """Return partitions by topic, as in assignments, subscriptions and the sticky assignor's user data.

    Raises:
        ValueError: the bytes are malformed, or (``struct.error``, ``IndexError``) cut short.
    """
    fields, position = _reader("partitions", 0)(data, position)
    return fields["partitions"], position


def write_partitions(topics: Sequence[Mapping[str, Any]]) -> bytes:
    """Return the bytes of partitions by topic.

    Raises:
        ValueError: a name is longer than 32,767 bytes; ``struct.error``: a number does not fit.
    """
    return _writer("partitions", 0)({"partitions": topics})


# A newer version is read and written as the newest that is known.


@cache
def _reader(kind: str, version: int) -> Reader[Fields]:
    return reader_of(_SCHEMAS[kind], version, False, _FORM)


@cache
def _writer(kind: str, version: int) -> Writer:
    return writer_of(_SCHEMAS[kind], version, False, _FORM)


def _read(kind: str, data: bytes) -> tuple[int, Fields, int]:
    version = int.from_bytes(data[:2], "big", signed=True)
    if len(data) < 2 or version < 0:
        why = f"its version is {version}" if len(data) >= 2 else f"it has {len(data)} bytes"
        raise ConsumerProtocolError(f"this is no {kind}: {why}")
    try:
        fields, position = _reader(kind, min(version, NEWEST_VERSION))(data, INT16.size)
    except UNREADABLE as error:
        raise ConsumerProtocolError(f"the {kind} of version {version} is malformed: {error}") from error
    return version, fields, position


def _write(kind: str, fields: Mapping[str, Any], version: int) -> bytes:
    if version < 0:
        raise ConsumerProtocolError(f"there is no {kind} of version {version}")
    version = min(version, NEWEST_VERSION)
    try:
        return INT16.pack(version) + _writer(kind, version)(fields)
    except UNREADABLE as error:
        raise ConsumerProtocolError(f"the {kind} can't be encoded: {error}") from error
