"""Invariants of groups and partitions that ``check`` verifies, and the legal moves of a group's state."""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable

import pytest

from groupcoord import GroupState, InvariantError
from groupcoord.core.groups.classic.group import GroupMetadata, MemberMetadata, Parked
from groupcoord.core.log.records import CommitRecords, GroupMetadataRecord
from groupcoord.core.timers import Timer, TimerKey, TimerKind
from groupcoord.errors import IllegalTransitionError
from tests.core.driver import Driver, Group, protocols_of
from tests.tables import as_one_test

# ---------------------------------------------------------------- partitions


def _misplaced(driver: Driver) -> None:
    groups = driver.coordinator.partition(0).groups
    groups["other"] = groups.pop("group")


def _orphan_timer(driver: Driver) -> None:
    driver.coordinator._timers.arm(Timer(TimerKey(TimerKind.SESSION, 0, "group", "nobody")), 10**15)


def _forgotten_group(driver: Driver) -> None:
    group = driver.coordinator.partition(0).groups.pop("group")
    for member in group.members.values():
        driver.coordinator._timers.cancel(member.session_timer)


def _unknown_to_the_log(driver: Driver) -> None:
    driver.coordinator.partition(0).writer.hard.groups.clear()


def _never_to_be_seen(driver: Driver) -> None:
    partition = driver.coordinator.partition(0)
    partition.groups["group"].first_append = partition.writer.next_number


def _unseen_though_in_the_log(driver: Driver) -> None:
    partition = driver.coordinator.partition(0)
    group = partition.groups["group"]
    group.first_append = partition.writer.next_number
    partition.writer.unseen[partition.writer.next_number] = [group]


def _never_in_flight(driver: Driver) -> None:
    driver.coordinator.partition(0).hard.offsets.pending[99] = CommitRecords([])


def _of_another_generation(driver: Driver) -> None:
    hard = driver.coordinator.partition(0).writer.hard
    record = GroupMetadataRecord("group", "consumer", 99, "range", "a-1")
    hard.groups["group"] = {record.key: (0, record)}


@as_one_test
@pytest.mark.parametrize(
    ("break_it", "message"),
    [
        (_misplaced, "group 'group' is kept under 'other'"),
        (_orphan_timer, "has no owner"),
        (_forgotten_group, "the log has groups that memory lacks: {'group'}"),
        (_unknown_to_the_log, "is Stable, but the log has None"),
        (_never_to_be_seen, "is seen and waits to be, or neither"),
        (_unseen_though_in_the_log, "is not seen, but the log has it"),
        (_never_in_flight, "pending commits [99]"),
        (_of_another_generation, "is Stable, but the log has GroupMetadataRecord"),
    ],
)
def test_check_finds(break_it: Callable[[Driver], None], message: str) -> None:
    """Every kind of contradiction is found, and named."""
    driver = Driver()
    Group(driver).stable("a")
    driver.coordinator.check()
    break_it(driver)
    with pytest.raises(InvariantError, match=re.escape(message)):
        driver.coordinator.check()


# ---------------------------------------------------------------- groups


def _stranger_syncs(group: GroupMetadata) -> None:
    group.members["a"].parked_sync = Parked("token")


BREAKS: dict[str, Callable[[GroupMetadata], object]] = {
    "a member's key is its id": lambda group: setattr(group.members["a"], "member_id", "b"),
    "static index and members mirror each other": lambda group: group.static_members.update(i="a"),
    "protocol counts are those of the members": lambda group: group.supported_protocols.update(range=2),
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
def test_check_of_a_group_finds(rule: str) -> None:
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


# ---------------------------------------------------------------- states


EMPTY, PREPARING, COMPLETING, STABLE, DEAD = GroupState
LEGAL = {
    (EMPTY, PREPARING),
    (STABLE, PREPARING),
    (COMPLETING, PREPARING),
    (PREPARING, COMPLETING),
    (COMPLETING, STABLE),
    (PREPARING, EMPTY),
    (EMPTY, DEAD),
    (PREPARING, DEAD),
    (COMPLETING, DEAD),
    (STABLE, DEAD),
}


@as_one_test
@pytest.mark.parametrize(("current", "target"), list(itertools.product(GroupState, GroupState)), ids=lambda s: s.value)
def test_every_move(current: GroupState, target: GroupState) -> None:
    """A legal move is made and remembered; any other raises and leaves the group as it was."""
    group = GroupMetadata("group", 0, 5)
    group.state = current
    if (current, target) in LEGAL:
        group.to(target, 99)
        assert (group.state, group.previous_state, group.state_timestamp_ms) == (target, current, 99)
        return
    with pytest.raises(IllegalTransitionError, match=f"from {current.value} to {target.value}"):
        group.to(target, 99)
    assert (group.state, group.previous_state, group.state_timestamp_ms) == (current, DEAD, 5)
