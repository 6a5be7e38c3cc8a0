"""Racks of members and replicas, as the sticky algorithms look at them (KIP-881)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

from groupcoord.consumer_protocol import Subscription
from groupcoord.member.assignors.base import are_racks_useful, racks_by_partition
from groupcoord.member.assignors.claims import StickyGroup


class Racks:
    """Who is where. Unless racks can make a difference, nobody is anywhere.

    Attributes:
        are_used: racks can make a difference.
        of_member: the rack of each member; None if it has none.
        of_partition: the racks of each partition's replicas; empty if racks are not used.
    """

    def __init__(self, group: StickyGroup, subscriptions: Mapping[str, Subscription]) -> None:
        of_member = [subscriptions[member_id].rack_id or None for member_id in group.members]
        member_racks = {rack for rack in of_member if rack is not None}
        of_partition: list[frozenset[str]] = []
        if member_racks:
            for name in group.numbers.topics:
                of_partition += racks_by_partition(group.topics[name])
        self.are_used = are_racks_useful(member_racks, set().union(*of_partition), of_partition)
        self.of_member: list[str | None] = of_member if self.are_used else [None] * len(of_member)
        self.of_partition = of_partition if self.are_used else []

    def mismatch(self, member: int, number: int) -> bool:
        """Tell whether a member has a rack in which a partition has no replica."""
        rack = self.of_member[member]
        return rack is not None and (number >= len(self.of_partition) or rack not in self.of_partition[number])

    def fewest_members_first(self, numbers: list[int]) -> list[int]:
        """Return partitions in the order of how many members are in their racks."""
        members = Counter(rack for rack in self.of_member if rack is not None)
        return sorted(numbers, key=lambda number: sum(members[rack] for rack in self.of_partition[number]))


def left_over(ordered: list[int], taken: list[int]) -> list[int]:
    """Return what of ``ordered`` is not in ``taken``; both are in the same order.

    As in Kafka, a partition in ``taken`` that is not in ``ordered``, or comes twice, ends the search: everything behind
    it counts as left over.
    """
    if not taken:
        return ordered
    queue = iter(taken)
    following: int | None = next(queue)
    left = []
    for number in ordered:
        if number == following:
            following = next(queue, None)
        else:
            left.append(number)
    return left
