"""The one thing the coordinator reads inside members' metadata: the topics of an embedded consumer subscription."""

from __future__ import annotations

from collections.abc import Iterable
from struct import Struct, error

_INT16 = Struct(">h")
_INT32 = Struct(">i")
_VERSION_AND_COUNT = Struct(">hi")


def subscribed_topics(subscriptions: Iterable[bytes]) -> frozenset[str] | None:
    """Return the union of the topics in consumer-protocol subscriptions, or None if one cannot be read.

    Only the prefix that version 0 has is read: every later version starts with it.
    """
    topics: set[str] = set()
    for subscription in subscriptions:
        try:
            topics.update(_topics(subscription))
        except (error, UnicodeDecodeError, ValueError):
            return None
    return frozenset(topics)


def _topics(subscription: bytes) -> list[str]:
    version, count = _VERSION_AND_COUNT.unpack_from(subscription)
    if version < 0 or count < 0:
        raise ValueError("no consumer subscription")
    position = _VERSION_AND_COUNT.size
    topics = []
    for _ in range(count):
        (length,) = _INT16.unpack_from(subscription, position)
        position += _INT16.size
        if length < 0 or position + length > len(subscription):
            raise ValueError("a topic name is cut short")
        topics.append(subscription[position : position + length].decode())
        position += length
    (user_data_length,) = _INT32.unpack_from(subscription, position)
    if user_data_length > len(subscription) - position - _INT32.size:
        raise ValueError("the user data is cut short")
    return topics
