"""Moving partitions from members with many to members with few, the way Kafka's sticky assignors do."""

from __future__ import annotations

from collections import Counter

from groupcoord.member.assignors.base import AssignmentError
from groupcoord.member.assignors.claims import StickyGroup
from groupcoord.member.assignors.loads import FewestFirst, LargestOwner, Loads
from groupcoord.member.assignors.movements import PartitionMovements


class Balancer:
    """Balances an assignment in place.

    Kafka looks at every partition again and again, and before each at the whole assignment: is it balanced? Here the
    answer is kept until something moves, and is found topic by topic, from the most partitions that an owner has and
    the fewest that a subscriber has. The moves are the same.

    Args:
        group: the group.
        assigned: for each member its partitions.
        owner: for each partition the member that it was given to last.
        subscribers: for each topic the members that want it.
        fixed: members that are left alone.
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
        self._loads = Loads([len(numbers) for numbers in assigned])
        self._possible = [sum(group.numbers.counts[topic] for topic in topics) for topics in group.subscribed]
        self._candidates = [[member for member in members if member not in fixed] for members in subscribers]
        self._fewest: dict[int, FewestFirst] = {}
        self._largest: dict[int, LargestOwner] = {}
        self._held: dict[int, Counter[int]] = {}
        self._topics = [topic for topic, members in enumerate(subscribers) if len(members) >= 2]
        self._unbalanced_place = 0
        self._is_balanced: bool | None = None
        given = [number for numbers in assigned for number in numbers if number < group.numbers.total]
        self._are_some_given_twice = len(given) != len(set(given))

    def move_while_unbalanced(self, numbers: list[int]) -> bool:
        """Go through the partitions until none was moved in a whole pass or all is balanced; tell if any was moved.

        Raises:
            AssignmentError: a partition belongs back to a member that can't take it.
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
        """Take all moves back if the assignment is not more balanced than before the first."""
        if self._score(self._assigned) >= self._score(self._before):
            self._assigned[:] = self._before

    def _score(self, assigned: list[list[int]]) -> int:
        """Return the sum of the differences of all pairs of sizes, 0 if all are equal, as Java's 32 bits have it."""
        sizes = sorted(len(numbers) for member, numbers in enumerate(assigned) if member not in self._fixed)
        score = sum(size * (2 * place - len(sizes) + 1) for place, size in enumerate(sizes))
        return (score + 2**31) % 2**32 - 2**31

    def _move_to_someone_smaller(self, number: int) -> bool:
        sizes, owner = self._loads.sizes, self._owner[number]
        earlier = self._group.outdated.get(number)
        if earlier is not None:
            if earlier in self._fixed:
                raise AssignmentError(
                    f"member {self._group.members[earlier]!r} claimed {self._numbers.name(number)} in an older "
                    "generation and can't get it back"
                )
            if sizes[owner] > sizes[earlier] + 1:
                self._move(number, earlier)
                return True
        size, member = self._fewest_of(self._numbers.topic_of[number]).first()
        if sizes[owner] > size + 1:
            self._move(number, member)
            return True
        return False

    def _move(self, number: int, new_owner: int) -> None:
        number = self._movements.partition_to_move(number, self._owner[number], new_owner)
        old_owner = self._owner[number]
        self._movements.note(number, old_owner, new_owner)
        self._assigned[old_owner].remove(number)
        self._assigned[new_owner].append(number)
        self._owner[number] = new_owner
        self._loads.shrank(old_owner)
        self._loads.grew(new_owner)
        self._is_balanced = None
        moved_topic = self._numbers.topic_of[number]
        if moved_topic in self._largest:
            self._largest[moved_topic].lost(old_owner)
            self._largest[moved_topic].gained(new_owner)
        self._topics_held_by(old_owner)[moved_topic] -= 1
        held = self._topics_held_by(new_owner)
        for topic, count in held.items():
            if count and topic != moved_topic and topic in self._largest:
                self._largest[topic].grew(new_owner)
        held[moved_topic] += 1

    def _topics_held_by(self, member: int) -> Counter[int]:
        """Return how many partitions of each topic a member had before the move under way."""
        if member not in self._held:
            self._held[member] = Counter(self._numbers.topic_of[number] for number in self._before[member])
        return self._held[member]

    def _is_all_balanced(self) -> bool:
        if self._is_balanced is None:
            self._is_balanced = (
                self._look_through_partitions() if self._are_some_given_twice else self._look_through_topics()
            )
        return self._is_balanced

    def _look_through_topics(self) -> bool:
        """Tell whether nobody could get a partition from someone who has at least two more."""
        for _ in self._topics:
            topic = self._topics[self._unbalanced_place]
            most = self._largest_of(topic).size()
            fewest, member = self._fewest_of(topic).first()
            if most > fewest + 1 and (fewest != self._possible[member] or self._could_get_more(topic, most)):
                return False
            self._unbalanced_place = (self._unbalanced_place + 1) % len(self._topics)
        return True

    def _could_get_more(self, topic: int, most: int) -> bool:
        """Tell whether someone small enough wants the topic and has not as many partitions as it could have at all."""
        sizes = self._loads.sizes
        return any(
            most > sizes[member] + 1 and sizes[member] != self._possible[member] for member in self._candidates[topic]
        )

    def _look_through_partitions(self) -> bool:
        """Tell the same where members' claims left partitions with several owners: the last one in the map counts."""
        sizes = self._loads.sizes
        active = [member for member in self._group.visiting_order if member not in self._fixed]
        owner = {number: member for member in active for number in self._assigned[member]}
        active.sort(key=lambda member: (sizes[member], member))
        if not active or sizes[active[0]] >= sizes[active[-1]] - 1:
            return True
        for member in active:
            if sizes[member] == self._possible[member]:
                continue
            held = set(self._assigned[member])
            for topic in self._group.subscribed[member]:
                for number in self._numbers.of_topic(topic):
                    if number not in held and sizes[member] + 1 < sizes[owner[number]]:
                        return False
        return True

    def _fewest_of(self, topic: int) -> FewestFirst:
        if topic not in self._fewest:
            self._fewest[topic] = self._loads.rank(self._candidates[topic])
        return self._fewest[topic]

    def _largest_of(self, topic: int) -> LargestOwner:
        if topic not in self._largest:
            owners = [self._owner[number] for number in self._numbers.of_topic(topic)]
            self._largest[topic] = LargestOwner(owners, self._loads.sizes)
        return self._largest[topic]
