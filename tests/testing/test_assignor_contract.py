"""``check_assignor`` accepts assignors that keep the contract, and reports what others break."""

from __future__ import annotations

import re
from collections.abc import Callable
from uuid import UUID

import pytest

from groupcoord.assignors import (
    Assignor,
    GroupAssignment,
    GroupSpec,
    PartitionAssignorError,
    RangeAssignor,
    UniformAssignor,
)
from groupcoord.testing import check_assignor
from tests.samples import portion, seeds
from tests.tables import as_one_test

Assign = Callable[[GroupSpec], GroupAssignment]


@as_one_test
@pytest.mark.parametrize("assignor", [RangeAssignor(), UniformAssignor()], ids=lambda assignor: assignor.name)
@pytest.mark.parametrize("seed", portion(seeds(3)))
def test_our_assignors_keep_the_contract(assignor: Assignor, seed: int) -> None:
    check_assignor(assignor, seed=seed)


class FromFunction:
    """An assignor that does what a function does."""

    def __init__(self, assign: Assign, name: str = "own") -> None:
        self.name = name
        self.assign = assign


def whole_topics(group: GroupSpec, choose: Callable[[list[str]], str]) -> dict[str, dict[UUID, tuple[int, ...]]]:
    taken: dict[str, dict[UUID, tuple[int, ...]]] = {}
    for topic_id in sorted(group.topics):
        subscribers = [member_id for member_id, member in group.members.items() if topic_id in member.topic_ids]
        if subscribers:
            partitions = tuple(range(group.topics[topic_id].partition_count))
            taken.setdefault(choose(subscribers), {})[topic_id] = partitions
    return taken


def first_member_takes_all(group: GroupSpec) -> GroupAssignment:
    """Give each topic to the first of its subscribers by id: sound, if not fair."""
    return whole_topics(group, min)


def test_an_assignor_of_ones_own_passes() -> None:
    """Balance is not required."""
    check_assignor(FromFunction(first_member_takes_all))


def all_get_all(group: GroupSpec) -> GroupAssignment:
    return {
        member_id: {topic_id: tuple(range(group.topics[topic_id].partition_count)) for topic_id in member.topic_ids}
        for member_id, member in group.members.items()
    }


def anybody_gets_all(group: GroupSpec) -> GroupAssignment:
    everything = {topic_id: tuple(range(topic.partition_count)) for topic_id, topic in sorted(group.topics.items())}
    return {min(group.members): everything} if group.members else {}


def one_too_many(group: GroupSpec) -> GroupAssignment:
    return {
        member_id: {topic_id: (*partitions, len(partitions)) for topic_id, partitions in assigned.items()}
        for member_id, assigned in first_member_takes_all(group).items()
    }


def a_stranger_gets_it(group: GroupSpec) -> GroupAssignment:
    return {f"not {member_id}": assigned for member_id, assigned in first_member_takes_all(group).items()}


def twice_is_better(group: GroupSpec) -> GroupAssignment:
    return {
        member_id: {topic_id: partitions * 2 for topic_id, partitions in assigned.items()}
        for member_id, assigned in first_member_takes_all(group).items()
    }


def first_in_the_mapping(group: GroupSpec) -> GroupAssignment:
    return whole_topics(group, lambda subscribers: subscribers[0])


def topics_in_the_order_of_the_mapping(group: GroupSpec) -> GroupAssignment:
    assignment = first_member_takes_all(group)
    return {
        member_id: {topic_id: assigned[topic_id] for topic_id in group.topics if topic_id in assigned}
        for member_id, assigned in assignment.items()
    }


def takers_by_hash(group: GroupSpec) -> GroupAssignment:
    return whole_topics(group, lambda subscribers: min(subscribers, key=hash))


def refuses(group: GroupSpec) -> GroupAssignment:
    if group.members:
        raise PartitionAssignorError("not today")
    return {}


def takes_members_away(group: GroupSpec) -> GroupAssignment:
    assignment = first_member_takes_all(group)
    group.members.clear()  # type: ignore[attr-defined]
    return assignment


@as_one_test
@pytest.mark.parametrize(
    ("assign", "message"),
    [
        (lambda group: {}, "is not assigned"),
        (all_get_all, "is given to '.*' and to '"),
        (anybody_gets_all, "but is not subscribed to it"),
        (one_too_many, "does not exist"),
        (a_stranger_gets_it, "but is no member"),
        (twice_is_better, "twice"),
        (first_in_the_mapping, "another answer with mappings in another order: .* sort them"),
        (
            topics_in_the_order_of_the_mapping,
            "the same partitions in another order with mappings .*: sort topics and partitions in the answer",
        ),
        (takers_by_hash, r"another answer in a process with another PYTHONHASHSEED: it depends on hash\(\)"),
        (refuses, r"raised PartitionAssignorError\('not today'\) for a sound group"),
        (takes_members_away, r"changed its argument"),
        (lambda group: {"m": {UUID(int=1): (0,)}}, "partitions for a group without members"),
    ],
)
def test_what_is_wrong_is_told(assign: Assign, message: str) -> None:
    """Gaps, doubles, strangers, unwanted and missing partitions, order, refusals and side effects are each named."""
    with pytest.raises(AssertionError, match=message):
        check_assignor(FromFunction(assign))


def test_the_message_has_the_smallest_group_and_both_answers() -> None:
    """One topic with one partition and two members are enough to see that the order of the mapping counts."""
    with pytest.raises(AssertionError) as told:
        check_assignor(FromFunction(first_in_the_mapping))

    lines = [re.sub("[0-9a-f]{8}", "id", line) for line in str(told.value).splitlines()]
    members = ["  member id: topics id"] * 2
    assert lines[1:4] == ["the group:", "  topic id: 1 partition", members[0]]
    assert lines[4:] == [members[1], "the answer:", "  id: id [0]", "the other answer:", "  id: id [0]"]


def test_what_another_process_can_not_import_is_warned_of() -> None:
    with pytest.warns(UserWarning, match="not checked in a process with another PYTHONHASHSEED"):
        check_assignor(FromFunction(lambda group: first_member_takes_all(group)))


def test_a_name_is_needed() -> None:
    with pytest.raises(AssertionError, match="its name is ''"):
        check_assignor(FromFunction(first_member_takes_all, ""))


def test_what_is_remembered_shows_when_all_was_asked() -> None:
    """An assignor whose results depend on earlier calls is detected, though each result is valid."""
    seen: set[tuple[str, ...]] = set()

    def assign(group: GroupSpec) -> GroupAssignment:
        if not group.members:
            return {}
        seen.add(group.visiting_order)
        return (UniformAssignor() if len(seen) > 20 else RangeAssignor()).assign(group)

    with pytest.raises(AssertionError, match="in a later call"):
        check_assignor(FromFunction(assign))
