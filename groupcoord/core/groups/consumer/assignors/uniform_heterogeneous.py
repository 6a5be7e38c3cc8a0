"""The uniform assignor where members subscribe to different topics: each partition to whoever has the fewest.

Source: ``UniformHeterogeneousAssignmentBuilder`` of Kafka's group coordinator.
"""

from __future__ import annotations

from uuid import UUID

from groupcoord.core.groups.base.assignor import GroupAssignment, GroupSpec
from groupcoord.core.groups.consumer.assignors.draft import AssignmentDraft
from groupcoord.core.javacompat.hashing import buckets_of_copy, uuid_sort_key

PASSES_MAX = 16
"""How often all topics are looked at for partitions that can move to somebody with fewer."""

NOBODY = -1


class HeterogeneousAssignment:
    """Works out the assignment of a group whose members subscribe to different topics.

    Members keep what they have; what is left over goes to whoever has the fewest partitions among those that subscribe
    to the topic; then partitions move, topic by topic, from who has most of these to who has least. A member is its
    index in the visiting order, and its load is how many partitions it has over all topics.
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
        """Return the assignment."""
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
        """Return where a topic comes: first those with the most partitions for each subscriber."""
        subscribers = len(self._subscribers[topic_id])
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
        """Give the partitions of a topic that nobody has to the subscribers with the fewest."""
        unassigned = [number for number, owner in enumerate(self._owners[topic_id]) if owner == NOBODY]
        if unassigned:
            levels = _Levels(self._loads, self._subscribers[topic_id])
            for partition in unassigned:
                self._move(topic_id, partition, levels.next_least_loaded())

    def _balance(self, topics: list[UUID]) -> None:
        """Look at all topics again and again until, for a whole round, nothing moves."""
        last_changed: UUID | None = None
        for _ in range(PASSES_MAX):
            for topic_id in topics:
                if topic_id == last_changed:
                    return
                if self._balance_topic(topic_id) or last_changed is None:
                    last_changed = topic_id

    def _balance_topic(self, topic_id: UUID) -> bool:
        """Move partitions of a topic from who has most to who has least, and tell whether any moved."""
        loads = [self._loads[member] for member in self._subscribers[topic_id]]
        if max(loads) - min(loads) <= 1:
            return False
        owned: dict[int, list[int]] = {}
        for partition, owner in enumerate(self._owners[topic_id]):
            owned.setdefault(owner, []).append(partition)
        levels = _Levels(self._loads, self._subscribers[topic_id])
        has_moved = False
        while not levels.are_balanced:
            giver = levels.next_most_loaded()
            while giver != NOBODY and not owned.get(giver):
                levels.exclude_most_loaded()
                giver = levels.next_most_loaded()
            if giver == NOBODY:
                break
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
        share = -(-len(owners) // len(self._subscribers[topic_id]))
        self._drafts[taker].add(topic_id, partition, buckets_of_copy(share))
        self._loads[taker] += 1
        owners[partition] = taker


class _Levels:
    """The subscribers of a topic by load: those at the lowest level take in turn, those at the highest give in turn.

    When all at a level have had their turn, their loads have changed by one, and the next level joins them.

    Attributes:
        are_balanced: nobody at the highest level has two more than somebody at the lowest.
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
        """Return who takes next."""
        if self._next_taker == self._low_end:
            self._low_level += 1
            while self._low_end < len(self._members) and self._load_at(self._low_end) == self._low_level:
                self._low_end += 1
            self._next_taker = 0
        self._next_taker += 1
        return self._members[self._next_taker - 1]

    def next_most_loaded(self) -> int:
        """Return who gives next; NOBODY if all were excluded."""
        if self._next_giver < self._high_start:
            if self._high_end == self._high_start and self._high_start > 0:
                # Everybody at the level was excluded: it goes on with whoever has most below.
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
        """Leave out whoever was returned last: it has nothing of the topic."""
        members, last = self._members, self._high_end - 1
        members[self._next_giver + 1], members[last] = members[last], members[self._next_giver + 1]
        self._high_end -= 1

    def _load_at(self, place: int) -> int:
        return self._loads[self._members[place]]
