"""What classic members of type ``consumer`` say in bytes that the group's record only carries.

The log may hold what any client of the last ten years wrote. So nothing here fails: what can't be read is not known.
"""

from __future__ import annotations

from collections.abc import Iterable

from attrs import frozen

from groupcoord.core import consumer_protocol
from groupcoord.core.consumer_protocol import ConsumerProtocolError, subscribed_topics

TopicPartition = tuple[str, int]
TopicPartitions = frozenset[TopicPartition]

NO_PARTITIONS: TopicPartitions = frozenset()


@frozen
class MemberSubscription:
    """What a member asked for.

    Attributes:
        topics: by name; None if that can't be read.
        owned: what it said it held (KIP-429).
        owned_generation: the generation it held that in; -1 if it does not tell (KIP-792).
        rack_id: where it runs; None if it does not tell (KIP-881).
        user_data: what its assignor adds.
    """

    topics: frozenset[str] | None = None
    owned: TopicPartitions = NO_PARTITIONS
    owned_generation: int = -1
    rack_id: str | None = None
    user_data: bytes | None = None


NO_SUBSCRIPTION = MemberSubscription()
"""That of a member whose group is of another type: its bytes mean something else."""


def decode_subscription(data: bytes) -> MemberSubscription:
    """Return what can be read of a subscription: some clients write versions that lack their last fields."""
    try:
        subscription = consumer_protocol.decode_subscription(data)
    except ConsumerProtocolError:
        return MemberSubscription(subscribed_topics([data]))
    return MemberSubscription(
        frozenset(subscription.topics),
        _pairs(subscription.owned_partitions),
        subscription.generation_id,
        subscription.rack_id,
        subscription.user_data,
    )


def decode_partitions(data: bytes) -> TopicPartitions:
    """Return the partitions of an assignment; none if it can't be read."""
    if not data:
        return NO_PARTITIONS
    try:
        return _pairs(consumer_protocol.decode_assignment(data).partitions)
    except ConsumerProtocolError:
        return NO_PARTITIONS


def _pairs(partitions: Iterable[tuple[str, int]]) -> TopicPartitions:
    return frozenset((topic, partition) for topic, partition in partitions)
