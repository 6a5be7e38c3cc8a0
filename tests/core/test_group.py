"""One group by itself: members, votes, leaders, and the invariants that ``check`` proves."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from groupcoord import ErrorCode, GroupState, InvariantError
from groupcoord.core.groups.classic.group import GroupMetadata
from groupcoord.core.groups.classic.member import MemberMetadata, Parked
from groupcoord.core.log.records import GroupMetadataRecord
from groupcoord.core.timers import Timer, TimerKey, TimerKind
from tests.core.driver import protocols_of
from tests.tables import as_one_test


def member(member_id: str, *names: str, instance: str | None = None, rebalance_ms: int = 1_000) -> MemberMetadata:
    """Return a member that supports these protocols."""
    return MemberMetadata(
        member_id,
        group_instance_id=instance,
        client_id="client",
        client_host="/127.0.0.1",
        rebalance_timeout_ms=rebalance_ms,
        session_timeout_ms=10_000,
        protocols=protocols_of(*(names or ("range",))),
        session_timer=Timer(TimerKey(TimerKind.SESSION, 0, "group", member_id)),
    )


def group_of(*members: MemberMetadata, state: GroupState = GroupState.PREPARING_REBALANCE) -> GroupMetadata:
    """Return a group of these members."""
    group = GroupMetadata("group", 0, 0)
    group.protocol_type = "consumer"
    group.protocol_name = "range" if state is GroupState.STABLE else None
    group.state = state
    for one in members:
        group.add(one)
    group.check()
    return group


# ---------------------------------------------------------------- members


def test_a_member_by_itself() -> None:
    """A member knows its metadata by protocol, and votes for its first choice among the candidates, if any."""
    one = member("a", "range", "sticky")
    assert (one.metadata("sticky"), one.metadata("other"), one.metadata(None)) == (b"metadata", b"", b"")
    assert one.vote({"sticky", "range"}) == "range"
    assert one.vote({"sticky"}) == "sticky"
    assert one.vote({"other"}) is None
    assert repr(one) == "MemberMetadata('a', group_instance_id=None)"


def test_when_a_session_is_kept() -> None:
    """A waiting request proves that a member lives, but for a newcomer's first join."""
    one = member("a")
    assert not one.keeps_session
    one.parked_join = Parked("token")
    assert not one.keeps_session
    one.is_new = False
    assert one.keeps_session
    one.parked_join, one.parked_sync = None, Parked("token")
    assert one.keeps_session


def test_the_first_member_leads() -> None:
    """When it goes the next in line leads, and at last nobody."""
    members = [member("a"), member("b")]
    group = group_of(*members)
    assert group.leader == "a"
    group.remove(members[0])
    assert group.leader == "b"
    group.remove(members[1])
    assert group.leader is None
    assert group.supported_protocols == {}


def test_rename() -> None:
    """A static member keeps everything under a new id, leadership too, but goes to the end of the line."""
    group = group_of(member("i-1", instance="i"), member("b"))
    group.pending_sync["i-1"] = None
    group.rename(group.members["i-1"], "i-2")
    assert list(group.members) == ["b", "i-2"]
    assert (group.leader, group.static_members, list(group.pending_sync)) == ("i-2", {"i": "i-2"}, ["i-1"])
    group.rename(group.members["i-2"], "i-3")
    assert group.leader == "i-3"


def test_the_rebalance_timeout_is_the_longest() -> None:
    """Without members it is 0."""
    assert group_of().rebalance_timeout_ms == 0
    assert group_of(member("a", rebalance_ms=5), member("b", rebalance_ms=9)).rebalance_timeout_ms == 9


def test_update() -> None:
    """Counts of protocols follow what a member supports."""
    group = group_of(member("a", "range", "sticky"), member("b", "range"))
    group.update(group.members["a"], protocols_of("range", "other"), 7, 8)
    assert group.supported_protocols == {"range": 2, "other": 1}
    assert (group.members["a"].rebalance_timeout_ms, group.members["a"].session_timeout_ms) == (7, 8)


def test_waiting_joins() -> None:
    """At most one join of a member waits; the older comes back when a newer takes its place."""
    group = group_of(member("a"))
    one = group.members["a"]
    assert group.park_join(one, Parked(1)) is None
    assert group.park_join(one, Parked(2)) == Parked(1)
    assert (group.waiting_joins, group.all_joined, group.parked_tokens()) == (1, True, [2])
    assert group.take_join(one) == Parked(2)
    assert group.take_join(one) is None
    assert (group.waiting_joins, group.all_joined) == (0, False)


@as_one_test
@pytest.mark.parametrize(
    ("member_id", "instance", "error"),
    [
        ("i-1", "i", None),
        ("i-1", None, None),
        ("a", None, None),
        ("a", "i", ErrorCode.FENCED_INSTANCE_ID),
        ("a", "other", ErrorCode.UNKNOWN_MEMBER_ID),
        ("stranger", None, ErrorCode.UNKNOWN_MEMBER_ID),
        ("", None, ErrorCode.UNKNOWN_MEMBER_ID),
        ("", "i", ErrorCode.FENCED_INSTANCE_ID),
    ],
)
def test_identify(member_id: str, instance: str | None, error: ErrorCode | None) -> None:
    """A member is who has the id, and the instance id that belongs to it, if one is given."""
    group = group_of(member("a"), member("i-1", instance="i"))
    assert group.identify(member_id, instance) is (error if error is not None else group.members[member_id])


# ---------------------------------------------------------------- vote and leader


@as_one_test
@pytest.mark.parametrize(
    ("lists", "chosen"),
    [
        (["range"], "range"),
        (["range sticky", "sticky range"], "sticky"),
        (["range sticky", "range sticky", "sticky range"], "range"),
        (["range sticky roundrobin", "roundrobin sticky"], "sticky"),
        (["range range"], None),
        (["range range sticky"], "sticky"),
        (["range", "sticky"], None),
        (["x x", "y"], None),
        (["range range", "range"], None),
        ([], None),
    ],
)
def test_select_protocol(lists: list[str], chosen: str | None) -> None:
    """The vote is among what is counted once for each member; there may be no winner."""
    group = group_of(*[member(str(place), *names.split()) for place, names in enumerate(lists)])
    assert group.select_protocol() == chosen


@pytest.mark.parametrize("state", list(GroupState)[:4])
def test_supports(state: GroupState) -> None:
    """An Empty group takes any type and list that is not empty; others want their type and a common protocol."""
    members = [] if state is GroupState.EMPTY else [member("a", "range", "sticky"), member("b", "range")]
    group = group_of(*members, state=state)
    assert group.supports("consumer", protocols_of("range"))
    assert group.supports("consumer", protocols_of("other", "range"))
    assert not group.supports("", protocols_of("range"))
    assert not group.supports("consumer", ())
    assert group.supports("connect", protocols_of("other")) == (state is GroupState.EMPTY)
    assert group.supports("consumer", protocols_of("sticky")) == (state is GroupState.EMPTY)


@pytest.mark.parametrize(("joined", "leader"), [("", None), ("a", "a"), ("b", "b"), ("ab", "a"), ("bc", "b")])
def test_elect_joined_leader(joined: str, leader: str | None) -> None:
    """The leader stays if it has joined, else the first that has leads; if nobody has, there is no leader to have."""
    group = group_of(member("a"), member("b"), member("c"))
    for name in joined:
        group.park_join(group.members[name], Parked(name))
    assert group.elect_joined_leader() == (leader is not None)
    assert group.leader == (leader or "a")


def test_nobody_to_elect() -> None:
    """Without members there is nobody to lead."""
    assert not group_of().elect_joined_leader()


# ---------------------------------------------------------------- records


def test_a_record_without_state_timestamp() -> None:
    """An unknown moment is written as -1 and read as unknown."""
    record = GroupMetadataRecord("group", "consumer", 3, None, None)
    group = GroupMetadata.from_record(record, 0)
    assert group.state_timestamp_ms is None
    assert group.to_record({}) == record


def test_subscriptions() -> None:
    """Topics are known for consumers with a readable subscription only; an emptied consumer group has none."""
    subscription = b"\x00\x01\x00\x00\x00\x01\x00\x06orders\xff\xff\xff\xff"
    group = group_of(member("a"))
    assert group.subscriptions() is None
    group.protocol_name = "range"
    assert group.subscriptions() is None
    group.members["a"].protocols = protocols_of("range", metadata=subscription)
    assert group.subscriptions() == {"orders"}
    group.protocol_type = "connect"
    assert group.subscriptions() is None
    empty = group_of()
    assert empty.subscriptions() == frozenset()
    empty.protocol_type = None
    assert empty.subscriptions() is None


# ---------------------------------------------------------------- check


def _stranger_syncs(group: GroupMetadata) -> None:
    group.members["a"].parked_sync = Parked("token")


BREAKS: dict[str, Callable[[GroupMetadata], object]] = {
    "a member's key is its id": lambda group: setattr(group.members["a"], "member_id", "b"),
    "static index and members mirror each other": lambda group: group.static_members.update(i="a"),
    "protocol counts are those of the members": lambda group: group.supported_protocols.update(["range"]),
    "waiting joins are counted": lambda group: setattr(group, "waiting_joins", 1),
    "a pending id is no member": lambda group: group.pending_members.update(a=Timer(TimerKey(TimerKind.SESSION, 0))),
    "members imply that the group is not empty": lambda group: setattr(group, "state", GroupState.EMPTY),
    "the leader is a member": lambda group: setattr(group, "leader", "stranger"),
    "a sync waits only while completing": _stranger_syncs,
    "the join timer runs only while preparing": lambda group: setattr(group.join_timer, "deadline_ms", 5),
    "the sync timer runs only in a generation": lambda group: (
        setattr(group, "state", GroupState.PREPARING_REBALANCE),
        group.pending_sync.update(a=None),
    ),
    "the chosen protocol is supported by all": lambda group: setattr(group, "protocol_name", "other"),
    "a stable group has members": lambda group: group.remove(group.members["a"]),
}


@as_one_test
@pytest.mark.parametrize("rule", BREAKS)
def test_check_finds(rule: str) -> None:
    """A group that contradicts itself is found out, and the message names the rule."""
    group = group_of(member("a"))
    group.state, group.protocol_name = GroupState.STABLE, "range"
    group.check()
    BREAKS[rule](group)
    with pytest.raises(InvariantError, match=rule):
        group.check()


def test_repr() -> None:
    """A group tells its id, state and generation."""
    assert repr(group_of()) == "GroupMetadata('group', PreparingRebalance, generation_id=0)"
