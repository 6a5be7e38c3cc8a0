"""The sticky algorithm for members that all want the same topics: everybody gets one of two neighbouring quotas."""

from __future__ import annotations

from collections import Counter, deque
from itertools import chain

from groupcoord.member.assignors.base import AssignmentError
from groupcoord.member.assignors.claims import StickyGroup
from groupcoord.member.assignors.racks import Racks, left_over


class ConstrainedAssignment:
    """Works out the assignment of a group whose subscriptions are equal.

    Members keep what they own up to their quota; what is left over goes, first rack by rack and then anyhow, to those
    below it. Source: ``ConstrainedAssignmentBuilder`` in ``AbstractStickyAssignor`` of Kafka's Java client.

    Attributes:
        assigned: for each member its partitions, once :meth:`build` was called.
        moving: partitions that another member still has to give up, with their new owner.
    """

    def __init__(self, group: StickyGroup, racks: Racks) -> None:
        self.assigned: list[list[int]] = [[] for _ in group.members]
        self.moving: dict[int, int] = {}
        self._group = group
        self._racks = racks
        self._quota, self._larger_shares = divmod(group.numbers.total, len(group.members))
        self._larger_quota = self._quota + (self._larger_shares > 0)
        self._with_larger_share = 0
        self._given_up: dict[int, int] = {}
        self._below_quota: list[int] = []
        self._at_quota: deque[int] = deque()

    def build(self) -> None:
        """Make the assignment.

        Raises:
            AssignmentError: members claim partitions that don't exist, so that the quotas can't be kept.
        """
        self._keep_owned()
        topic_of, partition_of = self._group.numbers.topic_of, self._group.numbers.partition_of
        kept = [number for numbers in self.assigned for number in numbers]
        kept.sort(key=lambda number: (topic_of[number], partition_of[number]))
        unassigned = left_over(list(range(self._group.numbers.total)), kept)
        self._below_quota.sort()
        self._at_quota = deque(sorted(self._at_quota))
        if self._racks.are_used:
            unassigned = self._assign_within_racks(self._racks.fewest_members_first(unassigned))
        self._assign_in_turn(unassigned)

    def _keep_owned(self) -> None:
        topic_of, partition_of = self._group.numbers.topic_of, self._group.numbers.partition_of
        for member in self._group.visiting_order:
            owned = []
            for number in self._group.owned[member]:
                if self._racks.mismatch(member, number):
                    self._given_up[number] = member
                elif number not in self._group.contested:
                    owned.append(number)
            owned.sort(key=lambda number: (partition_of[number], topic_of[number]))
            is_room_for_larger_share = self._with_larger_share < self._larger_shares
            share = self._quota
            if len(owned) < self._quota:
                self._below_quota.append(member)
            elif len(owned) >= self._larger_quota and is_room_for_larger_share:
                share = self._larger_quota
                self._with_larger_share += 1
                if self._with_larger_share == self._larger_shares:
                    self._at_quota.clear()
            elif is_room_for_larger_share:
                self._at_quota.append(member)
            self.assigned[member] += owned[:share]
            self._given_up.update(dict.fromkeys(owned[share:], member))

    def _assign_within_racks(self, unassigned: list[int]) -> list[int]:
        """Assign in turn what fits a member's rack, and return the rest."""
        left = []
        turn = 0
        below = _Waiting(self._below_quota, self._racks)
        at_quota = _Waiting(list(self._at_quota), self._racks)
        for number in unassigned:
            replica_racks = self._racks.of_partition[number]
            place = below.find(replica_racks, turn)
            if place is not None:
                member = below.members[place]
                if len(self.assigned[member]) + 1 == self._quota:
                    below.remove(place)
                    if self._with_larger_share < self._larger_shares:
                        at_quota.append(member)
                else:
                    place += 1
                turn = place % len(below.members) if below.members else 0
            else:
                place = at_quota.find(replica_racks)
                if place is None:
                    left.append(number)
                    continue
                member = at_quota.remove(place)
                self._with_larger_share += 1
                if self._with_larger_share == self._larger_shares:
                    at_quota = _Waiting([], self._racks)
            self._assign(number, member)
        self._below_quota, self._at_quota = below.members, deque(at_quota.members)
        return left

    def _assign_in_turn(self, unassigned: list[int]) -> None:
        """Assign one to each member below the quota, again and again, then one to each at the quota."""
        below = self._below_quota
        turn = 0
        for number in unassigned:
            if not below and not self._at_quota:
                raise AssignmentError("more partitions are left over than the members' quotas have room for")
            is_below = bool(below)
            if is_below:
                turn = turn if turn < len(below) else 0
                member = below[turn]
                turn += 1
            else:
                member = self._at_quota.popleft()
            self._assign(number, member)
            if len(self.assigned[member]) == self._quota and is_below:
                turn -= 1
                del below[turn]
                self._at_quota.append(member)
            elif len(self.assigned[member]) == self._larger_quota:
                self._with_larger_share += 1

    def _assign(self, number: int, member: int) -> None:
        self.assigned[member].append(number)
        if self._given_up.get(number, member) != member or number in self._group.contested:
            self.moving[number] = member


class _Waiting:
    """Members in turn, and how many of them are in each rack, so that a vain search costs nothing."""

    def __init__(self, members: list[int], racks: Racks) -> None:
        self.members = members
        self._rack_of = racks.of_member
        self._in_rack = Counter(self._rack_of[member] for member in members)

    def find(self, replica_racks: frozenset[str], start: int = 0) -> int | None:
        """Return the place of the first member, from ``start`` on and around, that is in one of the racks."""
        if not any(self._in_rack[rack] for rack in replica_racks):
            return None
        places = chain(range(start, len(self.members)), range(start))
        return next(place for place in places if self._rack_of[self.members[place]] in replica_racks)

    def append(self, member: int) -> None:
        """Add a member at the end."""
        self.members.append(member)
        self._in_rack[self._rack_of[member]] += 1

    def remove(self, place: int) -> int:
        """Take a member out and return it."""
        member = self.members.pop(place)
        self._in_rack[self._rack_of[member]] -= 1
        return member
