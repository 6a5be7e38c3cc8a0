"""Groups in memory alone, left by a commit that was refused for every partition."""

from __future__ import annotations

import pytest

from groupcoord import ErrorCode
from groupcoord.events import Cause, GroupRemoved
from groupcoord.log_store import NotLeaderError
from groupcoord.messages import (
    DeleteGroupsResponse,
)
from tests.core.driver import Driver, Group

TOO_LONG = "four"


@pytest.fixture
def driver() -> Driver:
    return Driver(offset_metadata_max_bytes=3)


@pytest.fixture
def group(driver: Driver) -> Group:
    return Group(driver)


@pytest.fixture
def other(driver: Driver) -> Group:
    return Group(driver, "other")


def refused_plainly(group: Group) -> None:
    """Commit to every partition what is refused."""
    assert group.commit({0: 1, 1: 2, 2: 3}, metadata=TOO_LONG).error is ErrorCode.OFFSET_METADATA_TOO_LARGE


def deletion_of(group: Group) -> ErrorCode:
    return group.driver.delete(group.group_id).answer(DeleteGroupsResponse).results[0].error_code


def test_a_failed_write_takes_it_along(driver: Driver, group: Group, other: Group) -> None:
    """An unwritten group is removed when the next write fails, whichever request caused that."""
    driver.coordinator.observe()
    refused_plainly(group)
    driver.store.fail_next(NotLeaderError())
    assert other.commit(1).error is ErrorCode.NOT_COORDINATOR
    assert (group.state, other.state) == (None, None)
    events = [event for event in driver.coordinator.take_events() if isinstance(event, GroupRemoved)]
    assert {(event.group_id, event.cause) for event in events} == {
        ("group", Cause.CREATION_FAILED),
        ("other", Cause.CREATION_FAILED),
    }


def test_a_deletion_that_fails(driver: Driver, group: Group) -> None:
    """The group does not return."""
    refused_plainly(group)
    driver.store.fail_next(NotLeaderError())
    assert deletion_of(group) is ErrorCode.NOT_COORDINATOR
    assert (group.state, deletion_of(group)) == (None, ErrorCode.GROUP_ID_NOT_FOUND)
