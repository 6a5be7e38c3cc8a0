"""Consumer protocol: subscriptions and assignments that consumers exchange through the coordinator, and their bytes.

Versions 0 to 3 of Kafka's ``ConsumerProtocolSubscription`` and ``ConsumerProtocolAssignment``: 1 added owned partitions
(KIP-429), 2 the generation (KIP-792), 3 the rack (KIP-881). Later versions append fields, so an unknown one is read as
version 3, as in Kafka.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from struct import Struct, unpack_from
from struct import error as StructError  # noqa: N812
from typing import Any, NamedTuple

from attrs import frozen

from groupcoord.core.javacompat.hashing import string_sort_key
from groupcoord.errors import GroupcoordError

CONSUMER_PROTOCOL_TYPE = "consumer"
NEWEST_VERSION = 3

UNKNOWN_GENERATION_ID = -1
"""Generation of a member without one."""

Fields = dict[str, Any]
"""Fields under the names of Kafka's JSON, in the order of the bytes."""

_INT16, _INT32 = Struct(">h"), Struct(">i")
_STRING_BYTES_MAX = 32_767
_UNREADABLE = (StructError, UnicodeDecodeError, ValueError)
_UNWRITABLE = (StructError, UnicodeEncodeError, ValueError)


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
            _INT16.unpack_from(data)
            topics.update(_read_subscription(data, 0)[0]["topics"])
        except _UNREADABLE:
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
    return _read("subscription", _read_subscription, data)


def read_assignment(data: bytes) -> tuple[int, Fields, int]:
    """Return the version of an assignment, its fields, and the position after them; errors as
    :func:`decode_assignment`.
    """
    return _read("assignment", _read_assignment, data)


def write_subscription(fields: Mapping[str, Any], version: int = NEWEST_VERSION) -> bytes:
    """Return the bytes of a subscription; fields that the version lacks may be missing.

    Raises:
        ConsumerProtocolError: the version is negative, or a field does not fit.
    """

    def parts() -> list[bytes]:
        written = [_INT32.pack(len(fields["topics"]))]
        written += [_string(topic) for topic in fields["topics"]]
        written.append(_bytes(fields["userData"]))
        if version >= 1:
            written.append(write_partitions(fields["ownedPartitions"]))
        if version >= 2:
            written.append(_INT32.pack(fields["generationId"]))
        if version >= 3:
            written.append(b"\xff\xff" if fields["rackId"] is None else _string(fields["rackId"]))
        return written

    return _write("subscription", parts, version)


def write_assignment(fields: Mapping[str, Any], version: int = NEWEST_VERSION) -> bytes:
    """Return the bytes of an assignment; errors as :func:`write_subscription`."""
    return _write(
        "assignment", lambda: [write_partitions(fields["assignedPartitions"]), _bytes(fields["userData"])], version
    )


def read_partitions(data: bytes, position: int) -> tuple[list[Fields], int]:
    """Return partitions by topic, as in assignments, subscriptions and the sticky assignor's user data.

    Raises:
        ValueError: the bytes are malformed, or (``struct.error``) cut short.
    """
    count, position = _read_count(data, position)
    topics = []
    for _ in range(count):
        topic, position = _read_string(data, position)
        size, position = _read_count(data, position)
        topics.append({"topic": topic, "partitions": list(unpack_from(f">{size}i", data, position))})
        position += size * _INT32.size
    return topics, position


def write_partitions(topics: Iterable[Mapping[str, Any]]) -> bytes:
    """Return the bytes of partitions by topic.

    Raises:
        ValueError: a name is longer than 32,767 bytes; ``struct.error``: a number does not fit.
    """
    written = []
    for topic in topics:
        numbers = topic["partitions"]
        written.append(_string(topic["topic"]) + Struct(f">i{len(numbers)}i").pack(len(numbers), *numbers))
    return _INT32.pack(len(written)) + b"".join(written)


def _version_of(kind: str, data: bytes) -> int:
    version = int.from_bytes(data[:2], "big", signed=True)
    if len(data) < 2 or version < 0:
        why = f"its version is {version}" if len(data) >= 2 else f"it has {len(data)} bytes"
        raise ConsumerProtocolError(f"this is no {kind}: {why}")
    return version


def _read(kind: str, read: Callable[[bytes, int], tuple[Fields, int]], data: bytes) -> tuple[int, Fields, int]:
    version = _version_of(kind, data)
    try:
        fields, position = read(data, version)
    except _UNREADABLE as error:
        raise ConsumerProtocolError(f"the {kind} of version {version} is malformed: {error}") from error
    return version, fields, position


def _read_subscription(data: bytes, version: int) -> tuple[Fields, int]:
    count, position = _read_count(data, _INT16.size)
    topics = []
    for _ in range(count):
        topic, position = _read_string(data, position)
        topics.append(topic)
    fields: Fields = {"topics": topics}
    fields["userData"], position = _read_bytes(data, position)
    if version >= 1:
        fields["ownedPartitions"], position = read_partitions(data, position)
    if version >= 2:
        fields["generationId"] = _INT32.unpack_from(data, position)[0]
        position += _INT32.size
    if version >= 3:
        fields["rackId"], position = _read_nullable_string(data, position)
    return fields, position


def _read_assignment(data: bytes, version: int) -> tuple[Fields, int]:
    partitions, position = read_partitions(data, _INT16.size)
    user_data, position = _read_bytes(data, position)
    return {"assignedPartitions": partitions, "userData": user_data}, position


def _read_count(data: bytes, position: int) -> tuple[int, int]:
    (count,) = _INT32.unpack_from(data, position)
    position += _INT32.size
    # An element takes a byte at least, so a peer can't make us allocate more than it sent.
    if not 0 <= count <= len(data) - position:
        raise ValueError(f"{count} elements, {len(data) - position} bytes left")
    return count, position


def _read_string(data: bytes, position: int) -> tuple[str, int]:
    text, position = _read_nullable_string(data, position)
    # Kafka's schema allows null only for the rack.
    if text is None:
        raise ValueError("a name is null")
    return text, position


def _read_nullable_string(data: bytes, position: int) -> tuple[str | None, int]:
    (length,) = _INT16.unpack_from(data, position)
    position += _INT16.size
    if length < 0:
        return None, position
    end = position + length
    if end > len(data):
        raise ValueError(f"a text of {length} bytes, {len(data) - position} bytes left")
    return data[position:end].decode(errors="replace"), end  # Java's decoder refuses nothing


def _read_bytes(data: bytes, position: int) -> tuple[bytes | None, int]:
    (length,) = _INT32.unpack_from(data, position)
    position += _INT32.size
    if length < 0:
        return None, position
    end = position + length
    if end > len(data):
        raise ValueError(f"{length} bytes, {len(data) - position} bytes left")
    return data[position:end], end


def _write(kind: str, parts: Callable[[], list[bytes]], version: int) -> bytes:
    if version < 0:
        raise ConsumerProtocolError(f"there is no {kind} of version {version}")
    try:
        # A newer version is written as the newest that is known.
        return b"".join((_INT16.pack(min(version, NEWEST_VERSION)), *parts()))
    except _UNWRITABLE as error:
        raise ConsumerProtocolError(f"the {kind} can't be encoded: {error}") from error


def _string(text: str) -> bytes:
    encoded = text.encode()
    if len(encoded) > _STRING_BYTES_MAX:
        raise ValueError(f"a text of {len(encoded)} bytes, at most {_STRING_BYTES_MAX} fit")
    return _INT16.pack(len(encoded)) + encoded


def _bytes(content: bytes | None) -> bytes:
    return b"\xff\xff\xff\xff" if content is None else _INT32.pack(len(content)) + content
