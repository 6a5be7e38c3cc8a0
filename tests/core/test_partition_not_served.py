"""Errors of requests whose log partition is not served, and checks that come before that (Kafka 4.4)."""

from __future__ import annotations

import pytest

from groupcoord import ErrorCode, GroupCoordinator
from groupcoord.messages import (
    DeleteGroups,
    DeleteGroupsResponse,
    DescribeGroups,
    GroupToFetch,
    Heartbeat,
    JoinGroup,
    JoinGroupResponse,
    LeaveGroup,
    LeavingMember,
    ListGroups,
    OffsetCommit,
    OffsetDelete,
    OffsetFetch,
    OffsetToCommit,
    SyncGroup,
    TopicToCommit,
    TxnOffsetCommit,
)
from tests.core.driver import Driver, Group

COMMITTED = (TopicToCommit("orders", (OffsetToCommit(0, 1),)),)


@pytest.fixture
def driver() -> Driver:
    return Driver()


@pytest.fixture
def group(driver: Driver) -> Group:
    return Group(driver)


def errors_of_everything(coordinator: GroupCoordinator, group_id: str = "group") -> dict[str, ErrorCode]:
    """Return the error that a client without a group gets from each request."""
    join = coordinator.call(JoinGroup(group_id, "m"))
    assert isinstance(join, JoinGroupResponse)
    deleted = coordinator.call(DeleteGroups((group_id,)))
    assert isinstance(deleted, DeleteGroupsResponse)
    commits = [
        coordinator.call(OffsetCommit(group_id, COMMITTED)),
        coordinator.call(TxnOffsetCommit(group_id, COMMITTED, 1, 0)),
    ]
    return {
        "join": join.error_code,
        "sync": coordinator.call(SyncGroup(group_id, 1, "m")).error_code,
        "heartbeat": coordinator.call(Heartbeat(group_id, 1, "m")).error_code,
        "leave": coordinator.call(LeaveGroup(group_id, (LeavingMember("m"),))).error_code,
        "describe": coordinator.call(DescribeGroups((group_id,))).groups[0].error_code,
        "list": coordinator.call(ListGroups()).error_code,
        "delete": deleted.results[0].error_code,
        "commit": commits[0].topics[0].partitions[0].error_code,
        "txn commit": commits[1].topics[0].partitions[0].error_code,
        "fetch": coordinator.call(OffsetFetch((GroupToFetch(group_id),))).groups[0].error_code,
        "offset delete": coordinator.call(OffsetDelete(group_id, ())).error_code,
    }


@pytest.mark.parametrize("was_loaded", [False, True])
def test_where_no_log_partition_is_led(driver: Driver, was_loaded: bool) -> None:
    """No group is served, none is listed, and that is no error: so answers a Kafka 4.4.0 broker in both cases.

    It was asked before its ``__consumer_offsets`` was made, and after that topic was deleted.
    """
    coordinator = driver.new_coordinator()
    if was_loaded:
        coordinator.load_all()
        for partition in range(driver.config.offsets_topic_num_partitions):
            coordinator.unload(partition)
    errors = errors_of_everything(coordinator)
    assert errors.pop("list") is ErrorCode.NONE
    assert set(errors.values()) == {ErrorCode.NOT_COORDINATOR}
    unnamed = errors_of_everything(coordinator, "")
    assert unnamed.pop("list") is ErrorCode.NONE
    not_coordinator = {name for name, error in unnamed.items() if error is ErrorCode.NOT_COORDINATOR}
    assert not_coordinator == {"describe", "delete", "commit", "fetch"}
    assert {unnamed[name] for name in unnamed.keys() - not_coordinator} == {ErrorCode.INVALID_GROUP_ID}
    join = coordinator.call(JoinGroup("group", "m", session_timeout_ms=1))
    assert join == JoinGroupResponse(ErrorCode.INVALID_SESSION_TIMEOUT, "m")


@pytest.mark.parametrize("session_ms", [1, 2_000_000])
def test_what_is_wrong_with_a_join_comes_before_the_partitions_state(driver: Driver, session_ms: int) -> None:
    """Group id and session time-out are checked before ownership, and echo the member id."""
    driver.coordinator.unload(0)
    bad_timeout = Group(driver).join(member_id="m", session_ms=session_ms)
    assert bad_timeout.joined == JoinGroupResponse(ErrorCode.INVALID_SESSION_TIMEOUT, "m")
    no_group = Group(driver, "").join(member_id="m", session_ms=session_ms)
    assert no_group.joined == JoinGroupResponse(ErrorCode.INVALID_GROUP_ID, "m")
