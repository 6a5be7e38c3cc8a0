"""One group by itself: members, votes, leaders, and the invariants that ``check`` proves."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from groupcoord import GroupState, InvariantError
from groupcoord.core.groups.classic.group import GroupMetadata
from groupcoord.core.groups.classic.state import MemberMetadata, Parked
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
