"""Sticky assignors: balanced assignments in which each member keeps its partitions as far as possible."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Mapping
from heapq import heapify, heapreplace
from itertools import chain, groupby

from attrs import define

from groupcoord.core.consumer_protocol import Assignment, Subscription, TopicPartition
from groupcoord.core.javacompat import hash_map_order
from groupcoord.core.messages import UNKNOWN_GENERATION_ID
from groupcoord.member.assignors.balancing import (
    Balancer,
    Claim,
    StickyGroup,
    decode_generation,
    decode_sticky_user_data,
    encode_generation,
    encode_sticky_user_data,
    settle_claims,
)
from groupcoord.member.assignors.base import (
    AssignmentError,
    Cluster,
    RebalanceProtocol,
    are_racks_useful,
    racks_by_partition,
)


@define
class StickyAnswer:
    """An assignment in progress.

    Attributes:
        partitions: those of each member, in the order of the subscriptions.
        visiting_order: the member ids in the order of the Java map that holds the result.
        moving: partitions that another member must revoke first, with their new owner; None if not computed.
    """

    partitions: dict[str, list[TopicPartition]]
    visiting_order: list[str]
    moving: dict[TopicPartition, str] | None

    def assignments(self) -> dict[str, Assignment]:
        return {member_id: Assignment(tuple(partitions)) for member_id, partitions in self.partitions.items()}

    def withhold_moving(self, subscriptions: Mapping[str, Subscription]) -> None:
        """Remove the partitions that another member must revoke first."""
        moving = self._find_moving(subscriptions) if self.moving is None else self.moving
        withheld: dict[str, set[TopicPartition]] = {}
        for partition, member_id in moving.items():
            withheld.setdefault(member_id, set()).add(partition)
        for member_id, taken in withheld.items():
            kept = []
            for partition in self.partitions[member_id]:
                if partition in taken:
                    # Only once: a wrong claim may have given the member the same partition twice.
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


class ConstrainedAssignment:
    """Assignment of a group with equal subscriptions.

    Members keep what they own up to their quota. The rest goes, first by rack and then to any member, to those below
    it. Source: ``ConstrainedAssignmentBuilder`` in ``AbstractStickyAssignor`` of Kafka's Java client.

    Attributes:
        moving: partitions that another member must revoke first, with their new owner.
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
        """Compute the assignment.

        Raises:
            AssignmentError: members claim partitions that don't exist, so that the quotas can't be met.
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
        """Assign partitions in turn to members in the rack of a replica; return the rest."""
        left = []
        turn = 0
        below, at_quota = self._below_quota, list(self._at_quota)
        for number in unassigned:
            replica_racks = self._racks.of_partition[number]
            place = self._first_within(replica_racks, below, turn)
            if place is not None:
                member = below[place]
                if len(self.assigned[member]) + 1 == self._quota:
                    del below[place]
                    if self._with_larger_share < self._larger_shares:
                        at_quota.append(member)
                else:
                    place += 1
                turn = place % len(below) if below else 0
            else:
                place = self._first_within(replica_racks, at_quota)
                if place is None:
                    left.append(number)
                    continue
                member = at_quota.pop(place)
                self._with_larger_share += 1
                if self._with_larger_share == self._larger_shares:
                    at_quota.clear()
            self._assign(number, member)
        self._at_quota = deque(at_quota)
        return left

    def _first_within(self, racks: frozenset[str], members: list[int], start: int = 0) -> int | None:
        """Return the index of the first member in one of the racks, from ``start`` on and around, or None."""
        places = chain(range(start, len(members)), range(start))
        return next((place for place in places if self._racks.of_member[members[place]] in racks), None)

    def _assign_in_turn(self, unassigned: list[int]) -> None:
        """Assign partitions in turn to members below the minimum quota, then one to each member at it."""
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


class GeneralAssignment:
    """Assignment of a group with different subscriptions.

    Members keep what they own and still subscribe to. Each remaining partition goes to the subscriber with the fewest
    partitions, and then partitions move while that improves the balance. Source: ``GeneralAssignmentBuilder`` in
    ``AbstractStickyAssignor`` of Kafka's Java client.

    Attributes:
        visiting_order: the members in the order of the Java map that holds the result.
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
        """Compute the assignment.

        Raises:
            AssignmentError: members claim partitions that can't be returned to them.
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
        """Put the members that can't change into the Java map last: Kafka removes and adds them again."""
        members = self._group.members
        order = [member for member in self._group.visiting_order if member not in fixed]
        order += [member for member in self._group.visiting_order if member in fixed]
        index = {member_id: member for member, member_id in enumerate(members)}
        self.visiting_order = [index[member_id] for member_id in hash_map_order(members[member] for member in order)]

    def _keep_owned(self) -> bool:
        """Keep owned partitions of subscribed topics in the member's rack; return whether others are owned."""
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
        """Assign each partition to the subscriber with the fewest partitions; return those without a candidate."""
        left = []
        for topic, numbers in groupby(unassigned, self._group.numbers.topic_of.__getitem__):
            by_rack = self._subscribers_by_size(topic, within_racks)
            for number in numbers:
                racks = (None, *self._racks.of_partition[number]) if within_racks else (None,)
                heaps = [by_rack[rack] for rack in racks if rack in by_rack]
                if not heaps:
                    left.append(number)
                    continue
                heap = min(heaps)
                size, member = heap[0]
                heapreplace(heap, (size + 1, member))
                self.assigned[member].append(number)
                self._owner[number] = member
        return left

    def _subscribers_by_size(self, topic: int, within_racks: bool) -> dict[str | None, list[tuple[int, int]]]:
        """Return heaps of the numbers of partitions of a topic's subscribers, by rack or all together."""
        by_rack: dict[str | None, list[tuple[int, int]]] = {}
        for member in self._subscribers[topic]:
            rack = self._racks.of_member[member] if within_racks else None
            by_rack.setdefault(rack, []).append((len(self.assigned[member]), member))
        for heap in by_rack.values():
            heapify(heap)
        return by_rack

    def _can_change(self, member: int, movable: set[int]) -> bool:
        """Return whether a member could get more, or owns a partition that another member could get."""
        counts, topic_of = self._group.numbers.counts, self._group.numbers.topic_of
        possible = sum(counts[topic] for topic in self._group.subscribed[member])
        assigned = self.assigned[member]
        return len(assigned) < possible or any(topic_of[number] in movable for number in assigned)


class Racks:
    """Racks of members and of the replicas of partitions; none if racks make no difference."""

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
        rack = self.of_member[member]
        return rack is not None and (number >= len(self.of_partition) or rack not in self.of_partition[number])

    def fewest_members_first(self, numbers: list[int]) -> list[int]:
        """Return partitions sorted by the number of members in their replicas' racks."""
        members = Counter(rack for rack in self.of_member if rack is not None)
        return sorted(numbers, key=lambda number: sum(members[rack] for rack in self.of_partition[number]))


def left_over(ordered: list[int], taken: list[int]) -> list[int]:
    """Return the elements of ``ordered`` that are not in ``taken``; both have the same order.

    As in Kafka, an element of ``taken`` that is not in ``ordered`` or occurs twice ends the search, and everything
    after it is left over.
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


class StickyAssignor:
    """Balances first and then minimizes moves (KIP-54, KIP-341), with regard to racks (KIP-881).

    Members are eager: they revoke everything before they join, and send what they had in the user data of their
    subscription. Source: ``StickyAssignor`` of Kafka's Java client.
    """

    name = "sticky"
    supported_protocols = (RebalanceProtocol.EAGER,)

    def __init__(self) -> None:
        self._partitions: tuple[TopicPartition, ...] | None = None
        self._generation_id = UNKNOWN_GENERATION_ID

    def subscription_user_data(self, topics: tuple[str, ...]) -> bytes | None:
        """Return the last assignment of this member and its generation, or None before the first."""
        return None if self._partitions is None else encode_sticky_user_data(self._partitions, self._generation_id)

    def on_assignment(self, assignment: Assignment, generation_id: int) -> None:
        """Store the partitions and the generation."""
        self._partitions, self._generation_id = assignment.partitions, generation_id

    def assign(self, cluster: Cluster, subscriptions: Mapping[str, Subscription]) -> dict[str, Assignment]:
        """Return the assignment of each member.

        Raises:
            AssignmentError: the members' claims are inconsistent.
        """
        sticky = assign_sticky(cluster, subscriptions, lambda given: decode_sticky_user_data(given.user_data))
        return sticky.assignments()


class CooperativeStickyAssignor:
    """Assigns as :class:`StickyAssignor`, but takes no partition away from an owner.

    A partition that changes its owner is withheld. Its old owner finds it missing from its assignment, revokes it and
    joins again (KIP-429). Subscriptions hold the owned partitions; a member that sends no generation there sends it in
    the user data. Source: ``CooperativeStickyAssignor`` of Kafka's Java client.
    """

    name = "cooperative-sticky"
    supported_protocols = (RebalanceProtocol.COOPERATIVE, RebalanceProtocol.EAGER)

    def __init__(self) -> None:
        self._generation_id = UNKNOWN_GENERATION_ID

    def subscription_user_data(self, topics: tuple[str, ...]) -> bytes | None:
        """Return the generation of the last assignment, or -1 before the first."""
        return encode_generation(self._generation_id)

    def on_assignment(self, assignment: Assignment, generation_id: int) -> None:
        """Store the generation."""
        self._generation_id = generation_id

    def assign(self, cluster: Cluster, subscriptions: Mapping[str, Subscription]) -> dict[str, Assignment]:
        """Return the assignment of each member, without partitions that another member still owns.

        Raises:
            AssignmentError: the members' claims are inconsistent.
        """
        answer = assign_sticky(cluster, subscriptions, _claim_in_subscription)
        answer.withhold_moving(subscriptions)
        return answer.assignments()


def _claim_in_subscription(subscription: Subscription) -> Claim:
    if subscription.generation_id > UNKNOWN_GENERATION_ID:
        return Claim(subscription.owned_partitions, subscription.generation_id)
    return Claim(subscription.owned_partitions, decode_generation(subscription.user_data))
