"""LeaveGroup: batches, identities, and what follows for the others."""

from __future__ import annotations

import pytest

from groupcoord import ErrorCode, GroupState
from groupcoord.messages import JoinGroupResponse, LeaveGroupResponse, LeavingMember, LeftMember
from tests.core.driver import Driver, Group

NONE, UNKNOWN, FENCED = ErrorCode.NONE, ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.FENCED_INSTANCE_ID


@pytest.fixture
def driver() -> Driver:
    return Driver()


@pytest.fixture
def group(driver: Driver) -> Group:
    return Group(driver)


def test_the_last_member_leaves(group: Group) -> None:
    """The group is Empty at once and one generation further."""
    (a,) = group.stable("a")
    answer = group.leave(a).answer(LeaveGroupResponse)
    assert answer == LeaveGroupResponse(NONE, (LeftMember(a, None, NONE),))
    assert (group.state, group.generation) == (GroupState.EMPTY, 2)


@pytest.mark.parametrize(
    ("entry", "error"),
    [
        (LeavingMember("", "x"), NONE),
        (LeavingMember("", "stranger"), UNKNOWN),
        (LeavingMember("", None), UNKNOWN),
        (LeavingMember("x-1", None), NONE),
        (LeavingMember("x-1", "x"), NONE),
        (LeavingMember("x-1", "y"), FENCED),
        (LeavingMember("a-1", "y"), FENCED),
        (LeavingMember("stranger", "x"), FENCED),
        (LeavingMember("x-1", "stranger"), UNKNOWN),
        (LeavingMember("stranger", None), UNKNOWN),
        (LeavingMember("pending-1", None), NONE),
        (LeavingMember("pending-1", "x"), NONE),
    ],
    ids=str,
)
def test_one_entry(group: Group, entry: LeavingMember, error: ErrorCode) -> None:
    """Each entry names a member by id, by instance id, or both; the answer repeats the ids as they were sent."""
    group.stable("a", "@x", "@y")
    group.ask_for_id("pending")
    answer = group.leave(entry).answer(LeaveGroupResponse)
    assert answer.members == (LeftMember(entry.member_id, entry.group_instance_id, error),)
    assert group.state is (GroupState.PREPARING_REBALANCE if error is NONE else GroupState.STABLE)


def test_static_members_are_removed_by_instance(group: Group) -> None:
    """A batch of instance ids removes them all, and one rebalance follows."""
    a, *_ = group.stable("a", "@x", "@y")
    assert group.left(LeavingMember("", "x"), LeavingMember("", "y")) == [NONE, NONE]
    assert (group.members, group.generation) == ([a], 1)
    assert group.rejoin(a).joined.generation_id == 2


def test_a_wrong_entry_does_not_spoil_the_batch(group: Group) -> None:
    """Only the wrong entry gets an error."""
    group.stable("a", "@x", "@y")
    assert group.left(LeavingMember("", "x"), LeavingMember("a-1", "y"), "stranger") == [NONE, FENCED, UNKNOWN]
    assert group.members == ["a-1", "y-1"]


def test_leaving_twice_in_one_batch(group: Group) -> None:
    """The second entry of a member is unknown."""
    group.stable("a", "b")
    assert group.left("a-1", "a-1", "stranger") == [NONE, UNKNOWN, UNKNOWN]


def test_a_member_and_a_handed_out_id(group: Group) -> None:
    """Members and handed-out ids may leave together."""
    a, _ = group.stable("a", "b")
    pending = group.ask_for_id("c")
    assert group.left("stranger", pending, a) == [UNKNOWN, NONE, NONE]
    assert group.inside.pending_members == {}


def test_only_wrong_entries(group: Group) -> None:
    """Without a success nothing follows."""
    group.stable("a")
    assert group.left("stranger") == [UNKNOWN]
    assert group.state is GroupState.STABLE


def test_the_only_missing_member_leaves(group: Group) -> None:
    """The round that waited for it ends (redpanda #3300)."""
    a, b = group.stable("a", "b")
    rejoined = group.rejoin(a)
    assert group.left(b) == [NONE]
    assert rejoined.joined.generation_id == 2


def test_a_member_with_a_waiting_join_leaves(group: Group) -> None:
    """Its join is UNKNOWN_MEMBER_ID, with an empty member id."""
    a, _ = group.stable("a", "b")
    waiting = group.rejoin(a)
    group.left(a)
    assert waiting.joined == JoinGroupResponse(UNKNOWN, "")


def test_a_member_with_a_waiting_sync_leaves(group: Group) -> None:
    """Its sync is never answered, as in Kafka; those of the others are REBALANCE_IN_PROGRESS."""
    _, b, c = group.generation_of("a", "b", "c")
    leaving, staying = group.sync(b), group.sync(c)
    group.left(b)
    assert leaving.is_dropped
    assert staying.error is ErrorCode.REBALANCE_IN_PROGRESS


def test_leadership_passes_on(group: Group) -> None:
    """When the leader leaves, the member that joined first leads."""
    a, b, _ = group.stable("a", "b", "c")
    group.left(a)
    assert group.inside.leader == b


def test_leaving_an_empty_group(group: Group) -> None:
    """In an Empty group everybody is unknown."""
    group.ask_for_id("a")
    assert group.left("stranger", LeavingMember("", "x")) == [UNKNOWN, UNKNOWN]
    assert group.state is GroupState.EMPTY
