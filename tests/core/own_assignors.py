"""Assignors, good and bad, that settings name by their paths."""

from __future__ import annotations

from uuid import UUID

from groupcoord.assignors import GroupAssignment, GroupSpec, PartitionAssignorError


class Deal:
    """Deals the partitions of each topic like cards, to the members in the order of their ids."""

    name = "deal"

    def assign(self, group: GroupSpec) -> GroupAssignment:
        hands: dict[str, dict[UUID, tuple[int, ...]]] = {member_id: {} for member_id in group.members}
        for topic_id in sorted({topic for member in group.members.values() for topic in member.topic_ids}):
            takers = sorted(name for name, member in group.members.items() if topic_id in member.topic_ids)
            for number, taker in enumerate(takers):
                hand = tuple(range(number, group.partition_count(topic_id), len(takers)))
                if hand:
                    hands[taker][topic_id] = hand
        return hands


class Broken(Deal):
    """Answers what is no assignment."""

    name = "broken"

    def assign(self, group: GroupSpec) -> GroupAssignment:
        """Break."""
        return {member_id: {UUID(int=1): (0 // 0,)} for member_id in group.members}


class Undecided(Deal):
    """Returns no assignment."""

    name = "undecided"

    def assign(self, group: GroupSpec) -> GroupAssignment:
        """Refuse."""
        raise PartitionAssignorError("no")


class Uniform(Deal):
    """Has a name that Kafka's own assignor has."""

    name = "uniform"


class Nameless:
    """Assignor without a name."""

    def assign(self, group: GroupSpec) -> GroupAssignment:
        """Give nothing."""
        return {}


class Needy(Deal):
    """Can't be made without an argument."""

    def __init__(self, rack: str) -> None:
        self.rack = rack


class Packages:
    """A name space for an assignor that is made already."""

    deal = Deal()
