"""Invariants of a classic group that ``GroupMetadata.check`` verifies."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from groupcoord import GroupState, InvariantError
from groupcoord.core.groups.classic.group import GroupMetadata
from groupcoord.core.groups.classic.state import MemberMetadata, Parked
from groupcoord.core.timers import Timer, TimerKey, TimerKind
from tests.core.driver import protocols_of
from tests.tables import as_one_test


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
    group = GroupMetadata("group", 0, 0)
    group.protocol_type, group.state = "consumer", GroupState.PREPARING_REBALANCE
    timer = Timer(TimerKey(TimerKind.SESSION, 0, "group", "a"))
    group.add(
        MemberMetadata(
            "a",
            group_instance_id=None,
            client_id="client",
            client_host="/127.0.0.1",
            rebalance_timeout_ms=1_000,
            session_timeout_ms=10_000,
            protocols=protocols_of("range"),
            session_timer=timer,
        )
    )
    group.state, group.protocol_name = GroupState.STABLE, "range"
    group.check()
    BREAKS[rule](group)
    with pytest.raises(InvariantError, match=rule):
        group.check()
