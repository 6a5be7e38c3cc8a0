"""What the sticky assignors put into the user data of a subscription: what the member has, and since which generation.

The sticky assignor writes version 1: its partitions and the generation; version 0, from before Kafka 2.4, lacks the
generation. Nothing in the bytes tells the two apart: what is too short for version 1 is read as version 0. The
cooperative one writes the generation alone, since its partitions are in the subscription itself.
"""

from __future__ import annotations

from collections.abc import Iterable
from struct import Struct
from struct import error as StructError  # noqa: N812

from groupcoord.consumer_protocol import (
    UNKNOWN_GENERATION_ID,
    TopicPartition,
    partitions_by_topic,
    read_partitions,
    write_partitions,
)
from groupcoord.java import hash_map_order
from groupcoord.member.assignors.claims import Claim

_GENERATION = Struct(">i")
_UNREADABLE = (StructError, ValueError)


def encode_sticky_user_data(partitions: Iterable[TopicPartition], generation_id: int) -> bytes:
    """Return the user data of the sticky assignor, version 1. Topics are in the order of Java's maps.

    Args:
        partitions: what the member has.
        generation_id: the generation in which it got them.
    """
    grouped = partitions_by_topic(partitions)
    previous = [{"topic": topic, "partitions": grouped[topic]} for topic in hash_map_order(grouped)]
    return write_partitions(previous) + _GENERATION.pack(generation_id)


def decode_sticky_user_data(data: bytes | None) -> Claim:
    """Return what a member claims in the user data of the sticky assignor, version 0 or 1.

    As in Kafka, no bytes claim nothing, and bytes that can't be read claim nothing in generation -1.
    """
    if not data:
        return Claim((), None)
    try:
        topics, end = read_partitions(data, 0)
    except _UNREADABLE:
        return Claim((), UNKNOWN_GENERATION_ID)
    partitions = tuple(TopicPartition(topic["topic"], number) for topic in topics for number in topic["partitions"])
    return Claim(partitions, _GENERATION.unpack_from(data, end)[0] if len(data) >= end + _GENERATION.size else None)


def encode_generation(generation_id: int) -> bytes:
    """Return the user data of the cooperative sticky assignor."""
    return _GENERATION.pack(generation_id)


def decode_generation(data: bytes | None) -> int | None:
    """Return the generation in the user data of the cooperative sticky assignor; -1 if it can't be read."""
    if data is None:
        return None
    generation_id: int = _GENERATION.unpack_from(data)[0] if len(data) >= _GENERATION.size else UNKNOWN_GENERATION_ID
    return generation_id
