"""What the sticky and the cooperative sticky assignor have in common: from claims to an assignment."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from attrs import define

from groupcoord.consumer_protocol import Assignment, Subscription, TopicPartition
from groupcoord.member.assignors.base import Cluster
from groupcoord.member.assignors.claims import Claim, settle_claims
from groupcoord.member.assignors.constrained import ConstrainedAssignment
from groupcoord.member.assignors.general import GeneralAssignment
from groupcoord.member.assignors.racks import Racks


@define
class StickyAnswer:
    """An assignment in the making.

    Attributes:
        partitions: each member's, in the order of the subscriptions.
        visiting_order: the member ids in the order of the Java map that holds the answer.
        moving: partitions that another member still has to give up, with their new owner; None if nobody kept count.
    """

    partitions: dict[str, list[TopicPartition]]
    visiting_order: list[str]
    moving: dict[TopicPartition, str] | None

    def assignments(self) -> dict[str, Assignment]:
        """Return the assignments."""
        return {member_id: Assignment(tuple(partitions)) for member_id, partitions in self.partitions.items()}

    def withhold_moving(self, subscriptions: Mapping[str, Subscription]) -> None:
        """Take out the partitions that another member still has to give up."""
        moving = self._find_moving(subscriptions) if self.moving is None else self.moving
        withheld: dict[str, set[TopicPartition]] = {}
        for partition, member_id in moving.items():
            withheld.setdefault(member_id, set()).add(partition)
        for member_id, taken in withheld.items():
            kept = []
            for partition in self.partitions[member_id]:
                if partition in taken:
                    # Once only, should a member's wrong claim have given it the same partition twice.
                    taken.remove(partition)
                else:
                    kept.append(partition)
            self.partitions[member_id] = kept

    def _find_moving(self, subscriptions: Mapping[str, Subscription]) -> dict[TopicPartition, str]:
        added: dict[TopicPartition, str] = {}
        given_up: set[TopicPartition] = set()
        for member_id in self.visiting_order:
            owned = subscriptions[member_id].owned_partitions
            owned_set, assigned_set = set(owned), set(self.partitions[member_id])
            for partition in self.partitions[member_id]:
                if partition not in owned_set:
                    added[partition] = member_id
            given_up.update(partition for partition in owned if partition not in assigned_set)
        return {partition: member_id for partition, member_id in added.items() if partition in given_up}


def assign_sticky(
    cluster: Cluster, subscriptions: Mapping[str, Subscription], claim_of: Callable[[Subscription], Claim]
) -> StickyAnswer:
    """Return the sticky assignment.

    Args:
        cluster: the topics there are.
        subscriptions: by member id, in the order of the join's answer.
        claim_of: what a subscription says that its member owns.

    Raises:
        AssignmentError: members claim partitions in a way that defeats the algorithm.
    """
    if not subscriptions:
        return StickyAnswer({}, [], None)
    group = settle_claims(cluster, subscriptions, claim_of)
    racks = Racks(group, subscriptions)
    name, members = group.numbers.name, group.members
    moving = None
    if group.are_subscriptions_equal:
        constrained = ConstrainedAssignment(group, racks)
        constrained.build()
        assigned, order = constrained.assigned, group.visiting_order
        moving = {name(number): members[member] for number, member in constrained.moving.items()}
    else:
        general = GeneralAssignment(group, racks)
        general.build()
        assigned, order = general.assigned, general.visiting_order
    by_id = {members[member]: [name(number) for number in numbers] for member, numbers in enumerate(assigned)}
    return StickyAnswer(
        {member_id: by_id[member_id] for member_id in subscriptions}, [members[member] for member in order], moving
    )
