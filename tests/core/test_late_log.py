"""Classic groups on a log that answers late, in orders that scripts can't play."""

from __future__ import annotations

import pytest

from groupcoord import ErrorCode, GroupState
from groupcoord.log_store import NotEnoughReplicasError
from groupcoord.messages import DeleteGroupsResponse, LeaveGroupResponse, OffsetDelete
from tests.core.driver import SESSION_MS, Driver, Group

UNAVAILABLE = ErrorCode.COORDINATOR_NOT_AVAILABLE


@pytest.fixture
def driver() -> Driver:
    return Driver(late=True, offsets_commit_timeout_ms=3_600_000)


@pytest.fixture
def group(driver: Driver) -> Group:
    return Group(driver)


def finish(driver: Driver, fails: bool) -> None:
    """The log answers everything."""
    if fails:
        driver.refuse(NotEnoughReplicasError())
    else:
        driver.write()


@pytest.fixture
def doomed(driver: Driver, group: Group) -> Group:
    """A simple group whose tombstones are on their way to the log."""
    group.commit(5)
    driver.write()
    driver.delete("group")
    return group


def test_readers_see_a_group_until_it_is_gone(driver: Driver, doomed: Group) -> None:
    """It is described and fetched as before; a second deletion does not find it."""
    assert doomed.describe().group_state == "Empty"
    assert doomed.committed() == {"orders": {0: 5}}
    again = driver.delete("group").answer(DeleteGroupsResponse)
    assert again.results[0].error_code is ErrorCode.GROUP_ID_NOT_FOUND
    driver.write()
    assert (doomed.describe().group_state, doomed.committed()) == ("Dead", {})


@pytest.mark.parametrize("fails", [False, True])
def test_requests_wait_for_the_outcome(driver: Driver, doomed: Group, fails: bool) -> None:
    """Joins, commits, heartbeats and the rest are taken when it is known what they meet."""
    join = doomed.join("a")
    commits = [doomed.commit({1: 6}), doomed.commit(1, generation=1, member_id="m")]
    leave = doomed.leave("m")
    sync = doomed.sync("m")
    offset_delete = driver.submit(OffsetDelete("group", ()))
    assert all(sent.is_waiting for sent in (join, *commits, leave, sync, offset_delete))
    finish(driver, fails)
    assert join.is_waiting
    assert doomed.state is GroupState.PREPARING_REBALANCE
    driver.write()
    assert doomed.committed() == ({"orders": {0: 5}} if fails else {})
    assert [sent.error for sent in commits] == [ErrorCode.UNKNOWN_MEMBER_ID] * 2
    assert sync.error is ErrorCode.UNKNOWN_MEMBER_ID
    assert leave.answer(LeaveGroupResponse).members[0].error_code is ErrorCode.UNKNOWN_MEMBER_ID


@pytest.mark.parametrize("waits_ms", [0, SESSION_MS])
def test_an_id_that_was_handed_out_outlives_a_deletion_that_fails(driver: Driver, group: Group, waits_ms: int) -> None:
    """It can be used after it, as long as it would have been without it."""
    member_id = group.ask_for_id("a")
    driver.write()
    deletion = driver.delete("group")
    driver.sleep(waits_ms)
    driver.refuse(NotEnoughReplicasError())
    assert deletion.answer(DeleteGroupsResponse).results[0].error_code is UNAVAILABLE
    join = group.join("a", member_id=member_id)
    assert join.is_waiting if not waits_ms else join.error is ErrorCode.UNKNOWN_MEMBER_ID


def test_a_failed_creation_a_commit_and_a_failed_deletion(driver: Driver, group: Group) -> None:
    """A group that comes back from a failed deletion is visible if the log knows anything of it."""
    group.ask_for_id("a")
    group.commit(5)
    driver.delete("group")
    driver.refuse(NotEnoughReplicasError(), 1)
    driver.write(1)
    driver.refuse(NotEnoughReplicasError(), 1)
    assert group.state is GroupState.EMPTY
    assert group.describe().group_state == "Empty"


def test_a_group_that_does_not_come_back_without_a_trace(driver: Driver, group: Group) -> None:
    """If neither creation nor deletion could be written, there is no group."""
    group.ask_for_id("a")
    deletion = driver.delete("group")
    driver.refuse(NotEnoughReplicasError())
    assert deletion.answer(DeleteGroupsResponse).results[0].error_code is UNAVAILABLE
    assert group.state is None
    assert driver.delete("group").answer(DeleteGroupsResponse).results[0].error_code is ErrorCode.GROUP_ID_NOT_FOUND
