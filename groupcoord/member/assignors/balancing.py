"""Balancing of the sticky assignors, and the partitions that members claim to own in their subscriptions.

The cooperative sticky assignor reads claims from the subscription, and the generation from the user data if the
subscription has none. The sticky assignor reads everything from the user data. It writes version 1: partitions and
generation. Version 0, from before Kafka 2.4, lacks the generation; the bytes hold no version number.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from itertools import takewhile
from struct import Struct
from typing import Any, NamedTuple

from attrs import define, field
from sortedcontainers import SortedList

from groupcoord.core.consumer_protocol import (
    UNKNOWN_GENERATION_ID,
    UNREADABLE,
    Subscription,
    TopicPartition,
    partitions_by_topic,
    read_partitions,
    write_partitions,
)
from groupcoord.core.javacompat import HashTable, hash_map_order, string_hash, string_sort_key
from groupcoord.member.assignors.base import AssignmentError, Cluster, ClusterTopic, subscribed_topics


class Claim(NamedTuple):
    """Claim of one member: partitions in the order in which it sends them, and the generation in which it got them."""

    partitions: tuple[TopicPartition, ...]
    generation_id: int | None


class PartitionNumbers:
    """Numbers of partitions, from 0 in order of topic and partition.

    A claimed partition beyond a topic's count gets a higher number on its first lookup.

    Attributes:
        topics: the names, sorted as in Java.
        starts: the number of partition 0 of each topic.
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
        return self._index.get(name)

    def number(self, partition: TopicPartition) -> int | None:
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
        return range(self.starts[topic], self.starts[topic] + self.counts[topic])

    def name(self, number: int) -> TopicPartition:
        return TopicPartition(self.topics[self.topic_of[number]], self.partition_of[number])


@define
class StickyGroup:
    """Group as the sticky algorithms see it. A member is its index in ``members``, a partition its number.

    Attributes:
        members: the member ids, sorted as in Java.
        visiting_order: the members in the order of a Java ``HashMap``.
        topics: the subscribed topics that exist, by name.
        numbers: the numbers of their partitions.
        subscribed: the topics of each member, by index in ``numbers.topics``.
        are_subscriptions_equal: whether all subscriptions are equal by Kafka's check.
        owned: the accepted claims of each member, in the order of the claim.
        contested: partitions that several members claim in the same generation.
        outdated: by partition, the member with the newest claim from before the newest generation.
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
    Source: ``AbstractStickyAssignor`` of Kafka's Java client (KIP-54, KIP-341, KIP-792).
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

    Two claims are compared by the generation in the later claim and the one in the earlier member's subscription, as in
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
                owners[number] = member  # for the comparison with a third claim, as in Kafka
            elif generation_id > generation_ids[other]:
                owned[other].pop(number, None)
                owned[member][number] = None
                owners[number] = member


def _note_outdated(group: StickyGroup, claims: list[Claim], newest: int) -> None:
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


def encode_sticky_user_data(partitions: Iterable[TopicPartition], generation_id: int) -> bytes:
    """Encode the user data of the sticky assignor, version 1. Topics are in the order of Java's maps."""
    grouped = partitions_by_topic(partitions)
    previous = [{"topic": topic, "partitions": grouped[topic]} for topic in hash_map_order(grouped)]
    return write_partitions(previous) + _GENERATION.pack(generation_id)


def decode_sticky_user_data(data: bytes | None) -> Claim:
    """Decode a claim: as in Kafka, missing data claim nothing, malformed data nothing in generation -1."""
    if not data:
        return Claim((), None)
    try:
        topics, end = read_partitions(data, 0)
    except UNREADABLE:
        return Claim((), UNKNOWN_GENERATION_ID)
    partitions = tuple(TopicPartition(topic["topic"], number) for topic in topics for number in topic["partitions"])
    return Claim(partitions, _GENERATION.unpack_from(data, end)[0] if len(data) >= end + _GENERATION.size else None)


def encode_generation(generation_id: int) -> bytes:
    return _GENERATION.pack(generation_id)


def decode_generation(data: bytes | None) -> int | None:
    """Return the generation in the user data of the cooperative sticky assignor; None without data, -1 if malformed."""
    if data is None:
        return None
    generation_id: int = _GENERATION.unpack_from(data)[0] if len(data) >= _GENERATION.size else UNKNOWN_GENERATION_ID
    return generation_id


class Balancer:
    """Balances an assignment in place.

    Kafka checks before each partition whether the whole assignment is balanced. Here the result is cached until a
    partition moves, and computed by topic. The moves are the same.

    Args:
        assigned: the partitions of each member, by number; changed in place.
        owner: the owner of each partition; changed in place.
        subscribers: the members that subscribe to each topic.
        fixed: the members that take no part.
    """

    def __init__(
        self,
        group: StickyGroup,
        assigned: list[list[int]],
        owner: dict[int, int],
        subscribers: list[list[int]],
        fixed: set[int],
    ) -> None:
        self._group = group
        self._numbers = group.numbers
        self._assigned = assigned
        self._owner = owner
        self._fixed = fixed
        self._before = [list(numbers) for numbers in assigned]
        self._movements = PartitionMovements(group.numbers)
        self._possible = [sum(group.numbers.counts[topic] for topic in topics) for topics in group.subscribed]
        given = [number for numbers in assigned for number in numbers if number < group.numbers.total]
        self._are_some_given_twice = len(given) != len(set(given))
        self._owned = [
            Counter(owner[number] for number in group.numbers.of_topic(topic)) for topic in range(len(subscribers))
        ]
        # Subscribers of each topic by size; topics with the same subscribers share a list.
        candidates = [tuple(member for member in members if member not in fixed) for members in subscribers]
        rankings = {each: SortedList((len(assigned[member]), member) for member in each) for each in candidates}
        self._by_size = [rankings[each] for each in candidates]
        self._rankings_of: list[list[Any]] = [[] for _ in assigned]
        for members, ranking in rankings.items():
            for member in members:
                self._rankings_of[member].append(ranking)
        self._topics = [topic for topic, members in enumerate(subscribers) if len(members) >= 2]
        self._unbalanced_place = 0
        self._is_balanced: bool | None = None

    def move_while_unbalanced(self, numbers: list[int]) -> bool:
        """Move partitions in passes until one moves none or all is balanced; return whether any was moved.

        Raises:
            AssignmentError: a partition would have to return to a member that can't take it.
        """
        is_any_moved = False
        while True:
            is_moved = False
            for number in numbers:
                if self._is_all_balanced():
                    break
                is_moved |= self._move_to_someone_smaller(number)
            if not is_moved:
                return is_any_moved
            is_any_moved = True

    def undo_unless_better(self) -> None:
        """Undo all moves if the assignment is not more balanced than before; the last call."""
        if self._score(self._assigned) >= self._score(self._before):
            self._assigned[:] = self._before

    def _score(self, assigned: list[list[int]]) -> int:
        """Return the sum of the differences of all pairs of sizes in Java's 32 bits, 0 if all are equal."""
        sizes = sorted(len(numbers) for member, numbers in enumerate(assigned) if member not in self._fixed)
        score = sum(size * (2 * place - len(sizes) + 1) for place, size in enumerate(sizes))
        return (score + 2**31) % 2**32 - 2**31

    def _move_to_someone_smaller(self, number: int) -> bool:
        size = len(self._assigned[self._owner[number]])
        earlier = self._group.outdated.get(number)
        if earlier is not None:
            if earlier in self._fixed:  # the Java client fails here, too
                raise AssignmentError(
                    f"member {self._group.members[earlier]!r} claimed {self._numbers.name(number)} in an older "
                    "generation and can't get it back"
                )
            if size > len(self._assigned[earlier]) + 1:
                self._move(number, earlier)
                return True
        fewest, member = self._by_size[self._numbers.topic_of[number]][0]
        if size > fewest + 1:
            self._move(number, member)
            return True
        return False

    def _move(self, number: int, new_owner: int) -> None:
        number = self._movements.partition_to_move(number, self._owner[number], new_owner)
        old_owner, topic = self._owner[number], self._numbers.topic_of[number]
        self._movements.note(number, old_owner, new_owner)
        for member, change in ((old_owner, -1), (new_owner, 1)):
            size = len(self._assigned[member])
            for ranking in self._rankings_of[member]:
                ranking.remove((size, member))
                ranking.add((size + change, member))
        self._assigned[old_owner].remove(number)
        self._assigned[new_owner].append(number)
        self._owner[number] = new_owner
        self._owned[topic][old_owner] -= 1
        self._owned[topic][new_owner] += 1
        self._is_balanced = None

    def _is_all_balanced(self) -> bool:
        if self._is_balanced is None:
            look = self._look_through_partitions if self._are_some_given_twice else self._look_through_topics
            self._is_balanced = look()
        return self._is_balanced

    def _look_through_topics(self) -> bool:
        """Return whether no member could get a partition from one that has at least two more."""
        for _ in self._topics:
            if not self._is_topic_balanced(self._topics[self._unbalanced_place]):
                return False
            self._unbalanced_place = (self._unbalanced_place + 1) % len(self._topics)
        return True

    def _is_topic_balanced(self, topic: int) -> bool:
        most = max(len(self._assigned[member]) for member, count in self._owned[topic].items() if count)
        smaller = takewhile(lambda entry: entry[0] + 1 < most, self._by_size[topic])
        # A member that has all it can have does not count.
        return all(size == self._possible[member] for size, member in smaller)

    def _look_through_partitions(self) -> bool:
        """Return whether no member could get a partition, for a group with partitions of several owners.

        Of several owners, the last one in visiting order counts.
        """
        sizes = [len(numbers) for numbers in self._assigned]
        active = [member for member in self._group.visiting_order if member not in self._fixed]
        owner = {number: member for member in active for number in self._assigned[member]}
        most = max((sizes[member] for member in active), default=0)
        for member in active:
            if sizes[member] + 1 >= most or sizes[member] == self._possible[member]:
                continue
            held = set(self._assigned[member])
            for topic in self._group.subscribed[member]:
                for number in self._numbers.of_topic(topic):
                    if number not in held and sizes[member] + 1 < sizes[owner[number]]:
                        return False
        return True


Pair = tuple[int, int]


class PartitionMovements:
    """First and last owner of each moved partition. Source: ``PartitionMovements`` of Kafka's Java client."""

    def __init__(self, numbers: PartitionNumbers) -> None:
        self._numbers = numbers
        self._pairs: dict[int, Pair] = {}
        self._moved: dict[int, dict[Pair, HashTable[int]]] = {}
        self._topic_hashes: dict[int, int] = {}

    def note(self, number: int, old_owner: int, new_owner: int) -> None:
        first_owner = old_owner
        if number in self._pairs:
            first_owner = self._forget(number)
            if first_owner == new_owner:
                return
        topic = self._numbers.topic_of[number]
        pair = (first_owner, new_owner)
        self._pairs[number] = pair
        self._moved.setdefault(topic, {}).setdefault(pair, HashTable(self._hash)).put(number)

    def partition_to_move(self, number: int, old_owner: int, new_owner: int) -> int:
        """Return the partition to move, or one of its topic that moved in the opposite direction and can move back."""
        moved = self._moved.get(self._numbers.topic_of[number])
        if not moved:
            return number
        if number in self._pairs:
            old_owner = self._pairs[number][0]
        reverse = moved.get((new_owner, old_owner))
        return number if reverse is None else reverse.in_order()[0]

    def _forget(self, number: int) -> int:
        pair = self._pairs.pop(number)
        moved = self._moved[self._numbers.topic_of[number]]
        moved[pair].discard(number)
        if not moved[pair]:
            del moved[pair]
        return pair[0]

    def _hash(self, number: int) -> int:
        """Return Java's hash code of a ``TopicPartition``."""
        topic = self._numbers.topic_of[number]
        if topic not in self._topic_hashes:
            self._topic_hashes[topic] = string_hash(self._numbers.topics[topic])
        return 31 * (31 + self._numbers.partition_of[number]) + self._topic_hashes[topic]
