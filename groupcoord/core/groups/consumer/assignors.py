"""Server-side assignors of consumer groups with Kafka's results: uniform and range.

:class:`Assignor` is the interface of custom ones. Sources: ``UniformHomogeneousAssignmentBuilder``,
``UniformHeterogeneousAssignmentBuilder`` and ``RangeAssignor`` of Kafka.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby, islice
from operator import itemgetter
from uuid import UUID

from groupcoord.core.groups.base.assignor import (
    GroupAssignment,
    GroupSpec,
    PartitionAssignorError,
    Partitions,
    SubscriptionType,
)
from groupcoord.core.javacompat import (
    HashTable,
    buckets_for,
    buckets_of_copy,
    copied_set,
    integer_hash,
    string_sort_key,
    uuid_hash,
    uuid_sort_key,
)

DEFAULT_BUCKETS = 16


class AssignmentDraft:
    """Changing partitions of one member. Without a change the result is the same mapping."""

    __slots__ = ("_assigned", "_partitions", "_topics")

    def __init__(self, assigned: Partitions) -> None:
        self._assigned = assigned
        self._topics: HashTable[UUID] | None = None
        self._partitions: dict[UUID, HashTable[int]] = {}

    def topics_in_order(self) -> list[UUID]:
        """Return the topics that the member had at the beginning, as Kafka walks them."""
        return HashTable(uuid_hash, self._assigned).in_order() if self._assigned else []

    def drop_topic(self, topic_id: UUID) -> None:
        self._copied().discard(topic_id)
        del self._partitions[topic_id]

    def remove(self, topic_id: UUID, partition: int) -> None:
        topics, partitions = self._copied(), self._partitions[topic_id]
        partitions.discard(partition)
        if not partitions:
            topics.discard(topic_id)
            del self._partitions[topic_id]

    def add(self, topic_id: UUID, added: Sequence[int], buckets: int = DEFAULT_BUCKETS) -> None:
        """Give the member some partitions of a topic, in their order.

        ``buckets`` are those of the new set of the topic's partitions, if the member has none of them.
        """
        topics = self._copied() if self._topics is None else self._topics
        for _ in added[:2]:  # Java makes room with each call, so the second partition may double the table
            topics.compute_if_absent(topic_id)
        partitions = self._partitions.get(topic_id)
        if partitions is None:
            partitions = self._partitions[topic_id] = HashTable(integer_hash, (), buckets)
        for partition in added:
            partitions.put(partition)

    def result(self) -> Partitions:
        if self._topics is None:
            return self._assigned
        return {topic_id: tuple(self._partitions[topic_id].in_order()) for topic_id in self._topics.in_order()}

    def _copied(self) -> HashTable[UUID]:
        if self._topics is None:
            self._topics = HashTable(uuid_hash, self.topics_in_order(), buckets_for(len(self._assigned)))
            for topic_id, partitions in self._assigned.items():
                self._partitions[topic_id] = copied_set(integer_hash, partitions)
        return self._topics


class RangeAssignor:
    """Assigns each topic separately: consecutive partitions to the members in order, one more to the first few.

    Static members come first, by instance id, then the others by member id. Former assignments and racks are ignored.
    Source: ``RangeAssignor`` of Kafka's group coordinator.
    """

    name = "range"

    def assign(self, group: GroupSpec) -> GroupAssignment:
        """Return each member's partitions.

        Raises:
            PartitionAssignorError: a subscribed topic does not exist.
        """
        if not group.members:
            return {}
        members = sorted(
            group.visiting_order, key=lambda member_id: _place(member_id, group.members[member_id].instance_id)
        )
        wanted = {member_id: group.members[member_id].topic_ids for member_id in members}
        if group.subscription_type is SubscriptionType.HOMOGENEOUS:
            # Kafka reads the topics of the first member alone.
            wanted = dict.fromkeys(members, wanted[members[0]])
        subscribers: dict[UUID, int] = {}
        for topic_ids in wanted.values():
            for topic_id in topic_ids:
                subscribers[topic_id] = subscribers.get(topic_id, 0) + 1
        runs = {topic_id: _Runs(group.partition_count(topic_id), count) for topic_id, count in subscribers.items()}
        # Kafka's map of a member's assignment is made for the number of its topics.
        orders = {ids: list(HashTable(uuid_hash, ids, buckets_of_copy(len(ids)))) for ids in set(wanted.values())}
        return {member_id: _next_runs(orders[topic_ids], runs) for member_id, topic_ids in wanted.items()}


def _place(member_id: str, instance_id: str | None) -> tuple[bool, bytes]:
    return instance_id is None, string_sort_key(member_id if instance_id is None else instance_id)


def _next_runs(topic_ids: list[UUID], runs: dict[UUID, _Runs]) -> Partitions:
    taken = ((topic_id, runs[topic_id].take()) for topic_id in topic_ids)
    return {topic_id: run for topic_id, run in taken if run}


class _Runs:
    """Consecutive partitions of one topic for its subscribers in order."""

    def __init__(self, partition_count: int, subscribers: int) -> None:
        self._quota, self._larger = divmod(partition_count, subscribers)
        self._next = 0

    def take(self) -> tuple[int, ...]:
        start = self._next
        self._next += self._quota + (self._larger > 0)
        self._larger -= 1
        return tuple(range(start, self._next))


PASSES_MAX = 16
"""Maximum number of passes over all topics that move partitions to members with fewer."""

NOBODY = -1


class HeterogeneousAssignment:
    """Assignment of a group with different subscriptions.

    Members keep their partitions. The rest goes to the subscribers of a topic with the fewest. Then partitions move,
    topic by topic, from members with most to those with fewest. A load is the number of partitions over all topics.
    """

    def __init__(self, group: GroupSpec) -> None:
        self._group = group
        self._drafts: list[AssignmentDraft] = []
        self._loads = [0] * len(group.visiting_order)
        self._subscribers: dict[UUID, list[int]] = {}
        for member, member_id in enumerate(group.visiting_order):
            for topic_id in group.members[member_id].topic_ids:
                self._subscribers.setdefault(topic_id, []).append(member)
        self._owners = {topic_id: [NOBODY] * group.partition_count(topic_id) for topic_id in self._subscribers}

    def build(self) -> GroupAssignment:
        if not self._subscribers:
            return {}
        self._keep_assigned()
        topics = sorted(self._subscribers, key=self._urgency)
        for topic_id in topics:
            self._assign_rest(topic_id)
        self._balance([topic_id for topic_id in topics if len(self._subscribers[topic_id]) > 1])
        drafts = zip(self._group.visiting_order, self._drafts, strict=True)
        return {member_id: draft.result() for member_id, draft in drafts}

    def _urgency(self, topic_id: UUID) -> tuple[float, int, tuple[int, int]]:
        """Return the sort key of a topic: most partitions for each subscriber first."""
        subscribers = len(self._subscribers[topic_id])
        # Equal ratios: fewer subscribers first, then the smaller topic id, as in Kafka.
        return -len(self._owners[topic_id]) / subscribers, subscribers, uuid_sort_key(topic_id)

    def _keep_assigned(self) -> None:
        for member, member_id in enumerate(self._group.visiting_order):
            spec = self._group.members[member_id]
            draft = AssignmentDraft(spec.assigned)
            self._drafts.append(draft)
            subscribed = set(spec.topic_ids)
            for topic_id, partitions in spec.assigned.items():
                if topic_id not in subscribed:
                    draft.drop_topic(topic_id)
                    continue
                self._loads[member] += len(partitions)
                for partition in partitions:
                    self._owners[topic_id][partition] = member

    def _assign_rest(self, topic_id: UUID) -> None:
        unassigned = [number for number, owner in enumerate(self._owners[topic_id]) if owner == NOBODY]
        if unassigned:
            levels = _Levels(self._loads, self._subscribers[topic_id])
            for partition in unassigned:
                self._move(topic_id, partition, levels.next_least_loaded())

    def _balance(self, topics: list[UUID]) -> None:
        last_changed: UUID | None = None
        for _ in range(PASSES_MAX):
            for topic_id in topics:
                if topic_id == last_changed:
                    # A whole round since the last change.
                    return
                if self._balance_topic(topic_id) or last_changed is None:
                    last_changed = topic_id

    def _balance_topic(self, topic_id: UUID) -> bool:
        """Move partitions of a topic from members with most to members with least; return whether any moved."""
        loads = [self._loads[member] for member in self._subscribers[topic_id]]
        if max(loads) - min(loads) <= 1:
            # No move could help.
            return False
        owned: dict[int, list[int]] = {}
        for partition, owner in enumerate(self._owners[topic_id]):
            owned.setdefault(owner, []).append(partition)
        levels = _Levels(self._loads, self._subscribers[topic_id])
        has_moved = False
        while not levels.are_balanced:
            giver = levels.next_most_loaded()
            # Loads count all topics, so a loaded member may have nothing of this one.
            while giver != NOBODY and not owned.get(giver):
                levels.exclude_most_loaded()
                giver = levels.next_most_loaded()
            if giver == NOBODY:
                break
            # Kafka moves the highest partition first.
            partition = owned[giver].pop()
            taker = levels.next_least_loaded()
            if levels.are_balanced:
                break
            self._move(topic_id, partition, taker)
            has_moved = True
        return has_moved

    def _move(self, topic_id: UUID, partition: int, taker: int) -> None:
        owners = self._owners[topic_id]
        if owners[partition] != NOBODY:
            self._drafts[owners[partition]].remove(topic_id, partition)
            self._loads[owners[partition]] -= 1
        # Kafka makes a new set with room for the average share.
        share = -(-len(owners) // len(self._subscribers[topic_id]))
        self._drafts[taker].add(topic_id, (partition,), buckets_of_copy(share))
        self._loads[taker] += 1
        owners[partition] = taker


class _Levels:
    """Subscribers of a topic by load: those at the lowest level take in turn, those at the highest give in turn.

    When all at a level had their turn, their loads have changed by one, and the next level joins them.
    """

    def __init__(self, loads: list[int], subscribers: list[int]) -> None:
        self._loads = loads
        self._members = sorted(subscribers, key=lambda member: (loads[member], member))
        self._low_level = loads[self._members[0]] - 1
        self._low_end = self._next_taker = 0
        self._high_level = loads[self._members[-1]] + 1
        self._high_start = self._high_end = len(self._members)
        self._next_giver = self._high_start - 1

    @property
    def are_balanced(self) -> bool:
        return self._high_level - self._low_level <= 1

    def next_least_loaded(self) -> int:
        if self._next_taker == self._low_end:
            self._low_level += 1
            while self._low_end < len(self._members) and self._load_at(self._low_end) == self._low_level:
                self._low_end += 1
            self._next_taker = 0
        self._next_taker += 1
        return self._members[self._next_taker - 1]

    def next_most_loaded(self) -> int:
        """Return the member that gives next, or NOBODY if all were excluded."""
        if self._next_giver < self._high_start:
            if self._high_end == self._high_start and self._high_start > 0:
                # All members at the level were excluded: continue with the most loaded one below.
                self._high_level = self._load_at(self._high_start - 1)
            else:
                self._high_level -= 1
            while self._high_start > 0 and self._load_at(self._high_start - 1) == self._high_level:
                self._high_start -= 1
            self._next_giver = self._high_end - 1
        if self._next_giver < 0:
            return NOBODY
        self._next_giver -= 1
        return self._members[self._next_giver + 1]

    def exclude_most_loaded(self) -> None:
        members, last = self._members, self._high_end - 1
        members[self._next_giver + 1], members[last] = members[last], members[self._next_giver + 1]
        self._high_end -= 1

    def _load_at(self, place: int) -> int:
        return self._loads[self._members[place]]


class UniformAssignor:
    """Balances over all topics together, and moves as few partitions as possible.

    With equal subscriptions the members differ by at most one partition. Otherwise partitions go to the subscriber with
    the fewest. Racks are ignored. Ties go to the first in ``visiting_order``. Source: ``UniformAssignor`` of Kafka's
    group coordinator.
    """

    name = "uniform"

    def assign(self, group: GroupSpec) -> GroupAssignment:
        """Return each member's partitions.

        Raises:
            PartitionAssignorError: a subscribed topic does not exist, or former assignments do not fit the topics.
        """
        if not group.members:
            return {}
        if group.subscription_type is SubscriptionType.HOMOGENEOUS:
            return _HomogeneousAssignment(group).build()
        return HeterogeneousAssignment(group).build()


class _HomogeneousAssignment:
    """Assignment of a group in which all members subscribe to the same topics."""

    def __init__(self, group: GroupSpec) -> None:
        self._group = group
        # All members subscribe to the same topics, so Kafka reads those of the first.
        wanted = group.members[group.visiting_order[0]].topic_ids
        self._topics = dict.fromkeys(copied_set(uuid_hash, wanted).in_order())
        self._assignment: dict[str, Partitions] = {}
        self._drafts: dict[str, AssignmentDraft] = {}
        self._below_quota: list[tuple[str, int]] = []
        self._unassigned: list[tuple[UUID, int]] = []

    def build(self) -> GroupAssignment:
        if not self._topics:
            return {}
        partition_count = self._find_unassigned()
        self._keep_assigned(*divmod(partition_count, len(self._group.members)))
        self._assign_rest()
        for member_id, draft in self._drafts.items():
            self._assignment[member_id] = draft.result()
        return self._assignment

    def _find_unassigned(self) -> int:
        """Collect the free partitions, and return the total number of partitions."""
        taken: dict[UUID, set[int]] = {}
        for topic_id in self._topics:
            taken[topic_id] = set()
        for member in self._group.members.values():
            for topic_id, partitions in member.assigned.items():
                if topic_id in taken:
                    taken[topic_id].update(partitions)
        total = 0
        for topic_id, numbers in taken.items():
            partition_count = self._group.partition_count(topic_id)
            total += partition_count
            if len(numbers) < partition_count:
                self._unassigned += [(topic_id, number) for number in range(partition_count) if number not in numbers]
        return total

    def _keep_assigned(self, quota: int, larger_shares: int) -> None:
        members_left = len(self._group.members)
        for member_id in self._group.visiting_order:
            assigned = self._assignment[member_id] = self._group.members[member_id].assigned
            has_larger_share = larger_shares > 0
            room = quota + has_larger_share
            size = sum(map(len, assigned.values()))
            if size <= room and self._topics.keys() >= assigned.keys():
                room -= size
            else:
                room = self._trim(member_id, room)
            # Later members can use the larger share; the last ones have to take it.
            if room and has_larger_share and members_left > larger_shares:
                room -= 1
                has_larger_share = False
            if room:
                self._below_quota.append((member_id, room))
            larger_shares -= has_larger_share
            members_left -= 1

    def _trim(self, member_id: str, room: int) -> int:
        """Remove unsubscribed partitions and those beyond the quota; return the remaining room."""
        assigned = self._assignment[member_id]
        draft = self._drafts[member_id] = AssignmentDraft(assigned)
        for topic_id in draft.topics_in_order():
            partitions = assigned[topic_id]
            if topic_id not in self._topics:
                draft.drop_topic(topic_id)
            elif len(partitions) <= room:
                room -= len(partitions)
            else:
                for partition in list(copied_set(integer_hash, partitions))[room:]:
                    draft.remove(topic_id, partition)
                    self._unassigned.append((topic_id, partition))
                room = 0
        return room

    def _assign_rest(self) -> None:
        rest = iter(self._unassigned)
        for member_id, room in self._below_quota:
            draft = self._drafts.get(member_id)
            if draft is None:
                draft = self._drafts[member_id] = AssignmentDraft(self._assignment[member_id])
            for topic_id, group in groupby(islice(rest, room), key=itemgetter(0)):
                draft.add(topic_id, [partition for _, partition in group])
        # Possible if two members had the same partition in their former targets.
        if next(rest, None) is not None:
            raise PartitionAssignorError("more partitions are left over than the members' quotas have room for")
