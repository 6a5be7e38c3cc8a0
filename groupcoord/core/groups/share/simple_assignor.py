"""Kafka's assignor of share groups: partitions are spread evenly, and shared if there are more members.

Assignments are kept as far as they are even. The order of Java's hash maps decides, except that large buckets become no
trees. Source: ``SimpleAssignor`` of Kafka 4.4.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from math import ceil
from typing import Generic, TypeVar
from uuid import UUID

from groupcoord.core.groups.base.assignor import GroupAssignment, GroupSpec, Partitions, SubscriptionType
from groupcoord.core.javacompat import (
    HashTable,
    buckets_for,
    copied_set,
    hash_map_size,
    integer_hash,
    uuid_hash,
)

TopicPartition = tuple[UUID, int]

PlaceT = TypeVar("PlaceT", bound=Hashable)


class SimpleAssignor:
    """Spreads partitions evenly over the members of a share group (``simple``)."""

    name = "simple"

    def assign(self, group: GroupSpec) -> GroupAssignment:
        """Return each member's partitions; see :meth:`.Assignor.assign`."""
        members = group.visiting_order
        if not members:
            return {}
        if group.subscription_type is SubscriptionType.HOMOGENEOUS:
            return _assign_homogeneous(group)
        return _assign_heterogeneous(group)


def _assign_homogeneous(group: GroupSpec) -> GroupAssignment:
    members = group.visiting_order
    topic_ids = group.members[members[0]].topic_ids
    if not topic_ids:
        return {}
    places = [(topic_id, index) for topic_id in topic_ids for index in group.assignable_partitions(topic_id)]
    division = _Division(places, lambda place: 31 * uuid_hash(place[0]) + place[1], range(len(members)))
    assignment: dict[str, dict[UUID, list[int]]] = {}
    for number, member_id in enumerate(members):
        assigned = group.members[member_id].assigned
        division.keep(number, _held(assigned, topic_ids))
        # A topic without partitions left stays in the target, empty.
        assignment[member_id] = {topic_id: [] for topic_id in assigned if topic_id in topic_ids}
    held = division.divide()
    for number, member_id in enumerate(members):
        for topic_id, index in held[number]:
            assignment[member_id].setdefault(topic_id, []).append(index)
    return {member_id: _in_order(by_topic) for member_id, by_topic in assignment.items()}


def _assign_heterogeneous(group: GroupSpec) -> GroupAssignment:
    members = group.visiting_order
    subscribers: dict[UUID, list[int]] = {}
    for number, member_id in enumerate(members):
        for topic_id in group.members[member_id].topic_ids:
            subscribers.setdefault(topic_id, []).append(number)
    if not subscribers:
        return {}
    # As in Kafka, partitions of topics without subscribers stay if other topics have some.
    assignment = {member_id: {**group.members[member_id].assigned} for member_id in members}
    for topic_id, numbers in subscribers.items():
        division = _Division([*group.assignable_partitions(topic_id)], integer_hash, numbers)
        for number, member_id in enumerate(members):
            assigned = group.members[member_id].assigned.get(topic_id, ())
            division.keep(number, copied_set(integer_hash, assigned))
        held = division.divide()
        for number, member_id in enumerate(members):
            if held[number] or topic_id in assignment[member_id]:
                assignment[member_id][topic_id] = tuple(held[number])
    return {member_id: _in_order(by_topic) for member_id, by_topic in assignment.items()}


class _Division(Generic[PlaceT]):
    """Division of places among numbered members, in Java's visiting order."""

    def __init__(self, places: Sequence[PlaceT], hash_of: Callable[[PlaceT], int], members: Sequence[int]) -> None:
        self._places = places
        self._hash_of = hash_of
        # Several members share a partition only if members outnumber partitions.
        self._sharing = ceil(len(members) / len(places)) if places else 0
        # A double in Kafka, so that rounding gives the same counts.
        share = self._sharing * len(places) / len(members)
        self._wanted = {number: ceil(share * (index + 1)) - ceil(share * index) for index, number in enumerate(members)}
        self._holders: dict[PlaceT, HashTable[int]] = {}
        self._order = HashTable(hash_of, buckets=buckets_for(hash_map_size(len(places))))
        self._held: dict[int, HashTable[PlaceT]] = {}

    def keep(self, member: int, places: Iterable[PlaceT]) -> None:
        """Keep a former place of a member, which may be one that gets no others."""
        held = self._held.setdefault(member, HashTable(self._hash_of))
        for place in places:
            self._holders_of(place).put(member)
            held.put(place)

    def divide(self) -> Mapping[int, HashTable[PlaceT]]:
        for member, held in self._held.items():
            # Kafka takes the surplus in the order of a hash set.
            for place in [*held][: max(len(held) - self._wanted.get(member, 0), 0)]:
                self._take(member, place)
        for place, holders in self._holders.items():
            for member in [*holders][: max(len(holders) - self._sharing, 0)]:
                self._take(member, place)
        for place in self._places:
            # Places that no member had come last into Java's map, which matters within a bucket.
            self._holders_of(place)
        self._fill()
        return self._held

    def _holders_of(self, place: PlaceT) -> HashTable[int]:
        if place not in self._holders:
            self._holders[place] = HashTable(integer_hash)
            self._order.compute_if_absent(place)
        return self._holders[place]

    def _take(self, member: int, place: PlaceT) -> None:
        self._held[member].discard(place)
        self._holders[place].discard(member)

    def _fill(self) -> None:
        """Fill places that have too few members, in turn with members that have too few places."""
        ring = [member for member, count in sorted(self._wanted.items()) if len(self._held[member]) < count]
        turn, has_given = 0, False
        for place in self._order:
            holders = self._holders[place]
            missing = self._sharing - len(holders)
            while missing > 0:
                if turn >= len(ring):
                    if not (has_given and ring):  # Kafka fails without members
                        break
                    turn, has_given = 0, False
                member = ring[turn]
                turn += 1
                if member in holders:
                    continue
                held = self._held[member]
                # As in Kafka ``holders`` is not updated: a member may get a place twice, without effect.
                held.put(place)
                missing, has_given = missing - 1, True
                if len(held) >= self._wanted[member]:
                    turn -= 1
                    del ring[turn]


def _held(assigned: Partitions, topic_ids: Iterable[UUID]) -> Iterator[TopicPartition]:
    """Yield a member's partitions of some topics, in the order of Java's map of sets."""
    wanted = set(topic_ids)
    for topic_id in HashTable(uuid_hash, assigned):
        if topic_id in wanted:
            for index in copied_set(integer_hash, assigned[topic_id]):
                yield topic_id, index


def _in_order(by_topic: Mapping[UUID, Sequence[int]]) -> Partitions:
    return {topic_id: tuple(sorted(by_topic[topic_id])) for topic_id in HashTable(uuid_hash, by_topic)}
