"""Partitions that members claim to own in their subscriptions, and which claims are accepted.

The cooperative sticky assignor reads them from the subscription, and the generation from the user data if the
subscription has none. The sticky assignor reads everything from the user data. It writes version 1, partitions and
generation; version 0, from before Kafka 2.4, lacks the generation. The bytes hold no version: what is too short for
version 1 is read as version 0.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from struct import Struct
from struct import error as StructError  # noqa: N812
from typing import NamedTuple

from attrs import define, field

from groupcoord.core.consumer_protocol import (
    UNKNOWN_GENERATION_ID,
    Subscription,
    TopicPartition,
    partitions_by_topic,
    read_partitions,
    write_partitions,
)
from groupcoord.core.javacompat.hashing import hash_map_order, string_sort_key
from groupcoord.member.assignors.base import Cluster, ClusterTopic, subscribed_topics


class Claim(NamedTuple):
    """Claim of one member.

    Attributes:
        partitions: the partitions that it owns, in its order.
        generation_id: the generation in which it got them, or None.
    """

    partitions: tuple[TopicPartition, ...]
    generation_id: int | None


class PartitionNumbers:
    """Numbers of partitions, from 0 in order of topic and partition.

    Claimed partitions that the cluster does not have get higher numbers when they are requested.

    Attributes:
        topics: the names, sorted as in Java.
        starts: the number of partition 0 of each topic.
        counts: the number of partitions of each topic.
        total: the number of all partitions.
        topic_of: for each number the index of the topic in ``topics``.
        partition_of: for each number the partition within the topic.
    """

    def __init__(self, topics: Mapping[str, ClusterTopic]) -> None:
        self.topics = sorted(topics, key=string_sort_key)
        self.starts: list[int] = []
        self.counts = [topics[name].partition_count for name in self.topics]
        self.topic_of: list[int] = []
        self.partition_of: list[int] = []
        for topic, count in enumerate(self.counts):
            self.starts.append(len(self.topic_of))
            self.topic_of += [topic] * count
            self.partition_of += range(count)
        self.total = len(self.topic_of)
        self._index = {name: topic for topic, name in enumerate(self.topics)}
        self._gone: dict[TopicPartition, int] = {}

    def topic(self, name: str) -> int | None:
        """Return the index of a topic, or None."""
        return self._index.get(name)

    def number(self, partition: TopicPartition) -> int | None:
        """Return the number of a partition, or None if the topic does not exist."""
        topic = self._index.get(partition[0])
        if topic is None:
            return None
        if 0 <= partition[1] < self.counts[topic]:
            return self.starts[topic] + partition[1]
        if partition not in self._gone:
            self._gone[partition] = len(self.topic_of)
            self.topic_of.append(topic)
            self.partition_of.append(partition[1])
        return self._gone[partition]

    def of_topic(self, topic: int) -> range:
        """Return the numbers of a topic's partitions."""
        return range(self.starts[topic], self.starts[topic] + self.counts[topic])

    def name(self, number: int) -> TopicPartition:
        """Return the partition with this number."""
        return TopicPartition(self.topics[self.topic_of[number]], self.partition_of[number])


@define
class StickyGroup:
    """Group as the sticky algorithms see it. A member is its index in ``members``, a partition its number.

    Attributes:
        members: the member ids, sorted as in Java.
        visiting_order: the members in the order of a Java ``HashMap``.
        topics: the topics to assign.
        numbers: the numbers of their partitions.
        subscribed: the topics of each member.
        are_subscriptions_equal: whether all subscriptions are equal by Kafka's check.
        owned: the accepted claims of each member, in its order.
        contested: partitions that several members claim in the same generation.
        outdated: the last claim of a partition in an older generation.
    """

    members: list[str]
    visiting_order: list[int]
    topics: dict[str, ClusterTopic]
    numbers: PartitionNumbers
    subscribed: list[list[int]]
    are_subscriptions_equal: bool
    owned: list[dict[int, None]]
    contested: set[int] = field(factory=set)
    outdated: dict[int, int] = field(factory=dict)


def settle_claims(
    cluster: Cluster, subscriptions: Mapping[str, Subscription], claim_of: Callable[[Subscription], Claim]
) -> StickyGroup:
    """Return the group with each claim accepted, contested or outdated.

    The newest generation wins. Two claims of the same generation make the partition contested, and no member keeps it.
    Source: ``AbstractStickyAssignor`` of Kafka's Java client, from KIP-54, KIP-341 and KIP-792.
    """
    order = hash_map_order(subscriptions)
    topics = subscribed_topics(cluster, subscriptions, order)
    numbers = PartitionNumbers(topics)
    members = sorted(order, key=string_sort_key)
    index = {member_id: member for member, member_id in enumerate(members)}
    group = StickyGroup(
        members=members,
        visiting_order=[index[member_id] for member_id in order],
        topics=topics,
        numbers=numbers,
        subscribed=[_topics_of(subscriptions[member_id], numbers) for member_id in members],
        are_subscriptions_equal=_are_equal([subscriptions[member_id].topics for member_id in order]),
        owned=[{} for _ in members],
    )
    claims = [claim_of(subscriptions[member_id]) for member_id in members]
    _believe(group, claims, [subscriptions[member_id].generation_id for member_id in members])
    newest = max((_known(claim.generation_id) for claim in claims), default=UNKNOWN_GENERATION_ID)
    _note_outdated(group, claims, newest)
    return group


def _topics_of(subscription: Subscription, numbers: PartitionNumbers) -> list[int]:
    found = (numbers.topic(name) for name in dict.fromkeys(subscription.topics))
    return [topic for topic in found if topic is not None]


def _are_equal(subscribed: list[tuple[str, ...]]) -> bool:
    """Compare each subscription with the first that is not empty; an empty one before that counts as equal."""
    common: set[str] = set()
    for topics in subscribed:
        if not common:
            common.update(topics)
        elif len(topics) != len(common) or not common.issuperset(topics):
            return False
    return True


def _known(generation_id: int | None) -> int:
    return UNKNOWN_GENERATION_ID if generation_id is None else generation_id


def _believe(group: StickyGroup, claims: list[Claim], generation_ids: list[int]) -> None:
    """Give each claimed partition to one member or to none.

    The generation of an earlier claim is the one in the subscription, that of a later one the one in the claim, as in
    Kafka.
    """
    owners: dict[int, int] = {}
    number_of, owned = group.numbers.number, group.owned
    for member in group.visiting_order:
        partitions, claimed_generation = claims[member]
        generation_id = _known(claimed_generation)
        for partition in partitions:
            number = number_of(partition)
            if number is None:
                continue
            other = owners.get(number)
            if other is None:
                owned[member][number] = None
                owners[number] = member
            elif generation_id == generation_ids[other]:
                group.contested.add(number)
                owned[other].pop(number, None)
                owners[number] = member
            elif generation_id > generation_ids[other]:
                owned[other].pop(number, None)
                owned[member][number] = None
                owners[number] = member


def _note_outdated(group: StickyGroup, claims: list[Claim], newest: int) -> None:
    """Store for each partition the newest claim before the newest generation."""
    generations: dict[int, int] = {}
    for member in group.visiting_order:
        partitions, claimed_generation = claims[member]
        generation_id = _known(claimed_generation)
        if generation_id >= newest:
            continue
        for partition in partitions:
            number = group.numbers.number(partition)
            if number is not None and generation_id > generations.get(number, UNKNOWN_GENERATION_ID - 1):
                generations[number] = generation_id
                group.outdated[number] = member


_GENERATION = Struct(">i")
_UNREADABLE = (StructError, ValueError)


def encode_sticky_user_data(partitions: Iterable[TopicPartition], generation_id: int) -> bytes:
    """Encode the user data of the sticky assignor, version 1. Topics are in the order of Java's maps.

    Args:
        partitions: the partitions of the member.
        generation_id: the generation in which it got them.
    """
    grouped = partitions_by_topic(partitions)
    previous = [{"topic": topic, "partitions": grouped[topic]} for topic in hash_map_order(grouped)]
    return write_partitions(previous) + _GENERATION.pack(generation_id)


def decode_sticky_user_data(data: bytes | None) -> Claim:
    """Parse the user data of the sticky assignor, version 0 or 1.

    As in Kafka, missing data claim nothing, and malformed data claim nothing in generation -1.
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
    """Encode the user data of the cooperative sticky assignor."""
    return _GENERATION.pack(generation_id)


def decode_generation(data: bytes | None) -> int | None:
    """Return the generation in the user data of the cooperative sticky assignor, or -1 if it is malformed."""
    if data is None:
        return None
    generation_id: int = _GENERATION.unpack_from(data)[0] if len(data) >= _GENERATION.size else UNKNOWN_GENERATION_ID
    return generation_id
