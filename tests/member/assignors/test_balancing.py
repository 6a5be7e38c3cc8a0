"""Corners of the balancing that random groups hardly get to."""

from __future__ import annotations

from groupcoord.core.consumer_protocol import TopicPartition
from groupcoord.member.assignors.balancing import (
    Balancer,
    PartitionMovements,
    PartitionNumbers,
    StickyGroup,
)
from groupcoord.member.assignors.base import ClusterTopic


def balancer_of(assigned: list[list[int]], partition_count: int) -> Balancer:
    topics = {"t": ClusterTopic(partition_count)}
    members = list(range(len(assigned)))
    group = StickyGroup(
        members=[f"m{member}" for member in members],
        visiting_order=members,
        topics=topics,
        numbers=PartitionNumbers(topics),
        subscribed=[[0] for _ in members],
        are_subscriptions_equal=False,
        owned=[{} for _ in members],
    )
    owner = {number: member for member in members for number in assigned[member]}
    return Balancer(group, assigned, owner, [members], set())


def test_moves_that_improve_are_kept() -> None:
    """Four and none become two and two, and nothing is undone."""
    assigned = [[0, 1, 2, 3], []]
    balancer = balancer_of(assigned, 4)

    assert balancer.move_while_unbalanced([0, 1, 2, 3])
    balancer.undo_unless_better()
    assert assigned == [[2, 3], [0, 1]]


def test_moves_that_do_not_improve_are_undone() -> None:
    """If the sizes in the end are no better than at first, everybody has what it had at first, in the same order."""
    assigned = [[0, 1, 2, 3], []]
    balancer = balancer_of(assigned, 4)
    assigned[0], assigned[1] = [], [3, 2, 1, 0]

    balancer.undo_unless_better()
    assert assigned == [[0, 1, 2, 3], []]


def test_the_score_has_32_bits_as_in_java() -> None:
    """A spread so uneven that Java's sum turns negative counts as better than any that is positive."""
    large = list(range(2**16))
    assigned = [large, *([] for _ in range(2**15))]
    balancer = balancer_of(assigned, len(large))
    assigned[0], assigned[1] = large[1:], large[:1]  # the sum was 2^31 and is now less by two

    balancer.undo_unless_better()
    assert [len(numbers) for numbers in assigned[:2]] == [2**16, 0]


def test_partitions_of_a_topic_are_not_exchanged() -> None:
    """If one of the topic went from ann to bob, and another is to go from bob to ann, the first goes back instead."""
    numbers = PartitionNumbers({"t": ClusterTopic(4), "u": ClusterTopic(2)})
    ann, bob, cid = 0, 1, 2
    movements = PartitionMovements(numbers)
    movements.note(0, ann, bob)

    assert movements.partition_to_move(3, bob, ann) == 0
    assert movements.partition_to_move(3, bob, cid) == 3
    assert movements.partition_to_move(4, bob, ann) == 4
    movements.note(0, bob, cid)
    assert movements.partition_to_move(3, bob, ann) == 3
    assert movements.partition_to_move(3, cid, ann) == 0
    movements.note(0, cid, ann)
    assert movements.partition_to_move(3, cid, ann) == 3


def test_of_several_partitions_the_first_of_javas_set_goes_back() -> None:
    """The one in the lowest bucket, in a table that grows with the thirteenth and never shrinks."""
    numbers = PartitionNumbers({"t": ClusterTopic(16)})  # Java's hash of t-n is 1077 + 31 * n
    movements = PartitionMovements(numbers)
    for number in range(12):
        movements.note(number, 0, 1)
    assert movements.partition_to_move(15, 1, 0) == 5  # 1232 is in bucket 0 of 16

    movements.note(12, 0, 1)
    assert movements.partition_to_move(15, 1, 0) == 12  # 1449 is in bucket 9 of 32
    movements.note(12, 1, 0)
    assert movements.partition_to_move(15, 1, 0) == 11  # 1418 is in bucket 10 of 32


def test_partitions_that_are_gone_have_numbers_too() -> None:
    """They follow those that there are, each one its own; partitions of unknown topics have none."""
    numbers = PartitionNumbers({"b": ClusterTopic(1), "a": ClusterTopic(2)})
    gone = (TopicPartition("a", 7), TopicPartition("b", -1), TopicPartition("a", 7))

    assert [numbers.name(number) for number in range(3)] == [("a", 0), ("a", 1), ("b", 0)]
    assert [numbers.number(partition) for partition in gone] == [3, 4, 3]
    assert numbers.name(4) == ("b", -1)
    assert numbers.number(TopicPartition("c", 0)) is None
    assert numbers.total == 3
