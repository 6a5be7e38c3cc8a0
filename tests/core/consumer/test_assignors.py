"""Assignors of consumer groups: groups without members or topics, errors, and votes."""

from __future__ import annotations

from collections.abc import Mapping
from uuid import UUID

import pytest

from groupcoord.core.groups.base.assignor import (
    Assignor,
    GroupSpec,
    MemberSpec,
    PartitionAssignorError,
    SubscriptionType,
)
from groupcoord.core.groups.consumer.assignors import RangeAssignor, UniformAssignor
from groupcoord.core.groups.consumer.group import preferred_assignor, preferred_assignor_after
from groupcoord.core.javacompat import hash_map_order
from groupcoord.core.topics import Topic

UNIFORM = UniformAssignor()
GONE, TOPIC = UUID(int=7), UUID(int=1)

both = pytest.mark.parametrize("assignor", [RangeAssignor(), UNIFORM], ids=lambda assignor: assignor.name)


def group_of(members: Mapping[str, MemberSpec], partition_count: int = 3) -> GroupSpec:
    """Return a group that knows one topic."""
    are_equal = len({frozenset(member.topic_ids) for member in members.values()}) <= 1
    kind = SubscriptionType.HOMOGENEOUS if are_equal else SubscriptionType.HETEROGENEOUS
    topics = {TOPIC: Topic("topic", TOPIC, partition_count)}
    return GroupSpec(members, kind, topics, tuple(hash_map_order(sorted(members))))


@both
def test_a_group_without_members_or_topics_has_nothing(assignor: Assignor) -> None:
    assert not assignor.assign(group_of({}))
    for members in ({"m": MemberSpec(())}, {"m": MemberSpec(()), "n": MemberSpec(())}):
        assert not any(assignor.assign(group_of(members)).values())
    assert assignor.assign(group_of({"m": MemberSpec(()), "n": MemberSpec((TOPIC,))}))["n"] == {TOPIC: (0, 1, 2)}


@both
@pytest.mark.parametrize("others", [(), (TOPIC,)])
def test_a_topic_that_does_not_exist_is_an_error(assignor: Assignor, others: tuple[UUID, ...]) -> None:
    """With equal and with different subscriptions."""
    group = group_of({"m": MemberSpec((GONE,)), "n": MemberSpec((GONE, *others))})
    with pytest.raises(PartitionAssignorError, match=str(GONE)):
        assignor.assign(group)


def test_partitions_that_two_members_have_leave_no_room() -> None:
    """The uniform assignor refuses former targets that contradict each other, so that quotas can't be kept."""
    had = MemberSpec((TOPIC,), {TOPIC: (0, 1, 2)})
    with pytest.raises(PartitionAssignorError, match="left over"):
        UNIFORM.assign(group_of({"m": had, "n": had}, 4))


def test_the_order_of_large_numbers_is_that_of_javas_sets() -> None:
    """Of 20 partitions a member keeps the 10 that come first in Java's set of them, which has 32 buckets."""
    members = {member_id: MemberSpec((TOPIC,)) for member_id in "abc"}
    members["m"] = MemberSpec((TOPIC,), {TOPIC: tuple(range(20, 40))})
    assert UNIFORM.assign(group_of(members, 40))["m"][TOPIC] == (*range(32, 40), 20, 21)


# ---------------------------------------------------------------- votes


def test_most_votes_win() -> None:
    """Members without a preference do not count; without any votes there is no preference."""
    assert preferred_assignor({"range": 2, "uniform": 1}) == "range"
    assert preferred_assignor_after({"range": 1, "uniform": 1}, None, "range") == "range"
    assert preferred_assignor_after({"range": 1, "uniform": 1}, "uniform", None) == "range"
    assert preferred_assignor_after({"range": 1}, "range", "uniform") == "uniform"
    assert preferred_assignor({}) is None
    assert preferred_assignor_after({"range": 1}, "range", None) is None
    assert preferred_assignor_after({}, None, "own") == "own"
