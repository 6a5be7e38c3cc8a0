"""The sticky algorithm for members that want different topics: as balanced as can be, with few partitions moved."""

from __future__ import annotations

from groupcoord.java import hash_map_order
from groupcoord.member.assignors.balancing import Balancer
from groupcoord.member.assignors.claims import StickyGroup
from groupcoord.member.assignors.loads import FewestFirst, Loads
from groupcoord.member.assignors.racks import Racks, left_over


class GeneralAssignment:
    """Works out the assignment of a group whose subscriptions differ.

    Members keep what they own and still want; each partition left over goes to the one with the fewest that wants its
    topic; then partitions are moved as long as that makes it more balanced. Source: ``GeneralAssignmentBuilder`` in
    ``AbstractStickyAssignor`` of Kafka's Java client.

    Attributes:
        assigned: for each member its partitions, once :meth:`build` was called.
        visiting_order: the members in the order of the Java map that holds the answer.
    """

    def __init__(self, group: StickyGroup, racks: Racks) -> None:
        self.assigned: list[list[int]] = [[] for _ in group.members]
        self.visiting_order = group.visiting_order
        self._group = group
        self._racks = racks
        self._subscribers: list[list[int]] = [[] for _ in group.numbers.topics]
        for member in group.visiting_order:
            for topic in group.subscribed[member]:
                self._subscribers[topic].append(member)
        self._owner: dict[int, int] = {
            number: member for member in group.visiting_order for number in group.owned[member]
        }

    def build(self) -> None:
        """Make the assignment.

        Raises:
            AssignmentError: members claim partitions that they can't be given back.
        """
        group, numbers = self._group, self._group.numbers
        is_revocation_needed = self._keep_owned()
        topics = sorted(range(len(numbers.topics)), key=lambda topic: (len(self._subscribers[topic]), topic))
        ordered = [number for topic in topics for number in numbers.of_topic(topic)]
        place = {topic: rank for rank, topic in enumerate(topics)}
        kept = [number for owned in self.assigned for number in owned]
        kept.sort(key=lambda number: (place[numbers.topic_of[number]], numbers.partition_of[number]))
        unassigned = left_over(ordered, kept)
        is_first = not kept
        rest = self._assign_left_over(unassigned, within_racks=True) if self._racks.are_used else unassigned
        self._assign_left_over(rest, within_racks=False)

        movable = {topic for topic, subscribers in enumerate(self._subscribers) if len(subscribers) >= 2}
        fixed = {member for member in range(len(group.members)) if not self._can_change(member, movable)}
        balancer = Balancer(group, self.assigned, self._owner, self._subscribers, fixed)
        if not is_revocation_needed:
            balancer.move_while_unbalanced([number for number in unassigned if numbers.topic_of[number] in movable])
        is_changed = balancer.move_while_unbalanced(
            [number for number in ordered if numbers.topic_of[number] in movable]
        )
        if not is_first and is_changed:
            balancer.undo_unless_better()
        self._put_fixed_members_last(fixed)

    def _put_fixed_members_last(self, fixed: set[int]) -> None:
        """Kafka takes the members that can't change out of its map for the time, then puts them in again."""
        members = self._group.members
        order = [member for member in self._group.visiting_order if member not in fixed]
        order += [member for member in self._group.visiting_order if member in fixed]
        index = {member_id: member for member, member_id in enumerate(members)}
        self.visiting_order = [index[member_id] for member_id in hash_map_order(members[member] for member in order)]

    def _keep_owned(self) -> bool:
        """Let members keep what they still want, and return whether they own more than that."""
        is_more_owned = False
        topic_of = self._group.numbers.topic_of
        for member in self._group.visiting_order:
            wanted = set(self._group.subscribed[member])
            for number in self._group.owned[member]:
                if topic_of[number] in wanted and not self._racks.mismatch(member, number):
                    self.assigned[member].append(number)
                else:
                    is_more_owned = True
        return is_more_owned

    def _assign_left_over(self, unassigned: list[int], *, within_racks: bool) -> list[int]:
        """Assign each partition to the one with the fewest that wants it, and return those that nobody wants."""
        loads = Loads([len(numbers) for numbers in self.assigned])
        left = []
        rankings: dict[str | None, FewestFirst] = {}
        ranked_topic = -1
        for number in unassigned:
            topic = self._group.numbers.topic_of[number]
            if topic != ranked_topic:
                rankings, ranked_topic = self._rank(loads, topic, within_racks), topic
            racks = (None, *self._racks.of_partition[number]) if within_racks else (None,)
            candidates = [rankings[rack].first() for rack in racks if rack in rankings]
            if not candidates:
                left.append(number)
                continue
            _, member = min(candidates)
            self.assigned[member].append(number)
            self._owner[number] = member
            loads.grew(member)
        return left

    def _rank(self, loads: Loads, topic: int, within_racks: bool) -> dict[str | None, FewestFirst]:
        """Rank a topic's subscribers, those of each rack by themselves, or all as if they had none."""
        by_rack: dict[str | None, list[int]] = {}
        for member in self._subscribers[topic]:
            rack = self._racks.of_member[member] if within_racks else None
            by_rack.setdefault(rack, []).append(member)
        return {rack: FewestFirst(loads, members) for rack, members in by_rack.items()}

    def _can_change(self, member: int, movable: set[int]) -> bool:
        """Tell whether a member could get more, or has something that another could get."""
        counts, topic_of = self._group.numbers.counts, self._group.numbers.topic_of
        possible = sum(counts[topic] for topic in self._group.subscribed[member])
        assigned = self.assigned[member]
        return len(assigned) < possible or any(topic_of[number] in movable for number in assigned)
