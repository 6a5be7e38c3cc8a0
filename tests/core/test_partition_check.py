"""``check`` on a whole coordinator finds what does not fit together."""

from __future__ import annotations

import re
from collections.abc import Callable

import pytest

from groupcoord import InvariantError
from groupcoord.core.log.records import CommitRecords, GroupMetadataRecord
from groupcoord.core.timers import Timer, TimerKey, TimerKind
from tests.core.driver import Driver, Group
from tests.tables import as_one_test


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
