"""Errors of requests whose log partition is not served, and checks that come before that (Kafka 4.4)."""

from __future__ import annotations

import pytest

from groupcoord import ErrorCode
from groupcoord.laws import error_codes
from groupcoord.messages import (
    DeleteGroups,
    DescribeGroups,
    FindCoordinator,
    JoinGroupResponse,
    ListGroups,
    OffsetCommit,
    OffsetFetch,
)
from tests.core.driver import Driver, Group
from tests.laws.refusals import requests_of_every_kind


@pytest.mark.parametrize("was_loaded", [False, True])
def test_where_no_log_partition_is_led(was_loaded: bool) -> None:
    """No group is served, none is listed, and that is no error: so answers a Kafka 4.4.0 broker in both cases.

    It was asked before its ``__consumer_offsets`` was made, and after that topic was deleted.
    """
    driver = Driver()
    coordinator = driver.new_coordinator()
    if was_loaded:
        coordinator.load_all()
        for partition in range(driver.config.offsets_topic_num_partitions):
            coordinator.unload(partition)
    named, unnamed = (
        {type(request): set(error_codes(coordinator.call(request))) for request in requests_of_every_kind(name, "m")}
        for name in ("group", "")
    )
    for found in (named, unnamed):
        assert found.pop(FindCoordinator) == {ErrorCode.COORDINATOR_NOT_AVAILABLE}
        assert found.pop(ListGroups) == {ErrorCode.NONE}
    assert set.union(*named.values()) == {ErrorCode.NOT_COORDINATOR}
    without_a_check = (DescribeGroups, DeleteGroups, OffsetCommit, OffsetFetch)
    assert set.union(*map(unnamed.pop, without_a_check)) == {ErrorCode.NOT_COORDINATOR}
    assert set.union(*unnamed.values()) == {ErrorCode.INVALID_GROUP_ID}


@pytest.mark.parametrize("session_ms", [1, 2_000_000])
def test_what_is_wrong_with_a_join_comes_before_the_partitions_state(session_ms: int) -> None:
    """Group id and session time-out are checked before ownership, and echo the member id."""
    driver = Driver()
    driver.coordinator.unload(0)
    bad_timeout = Group(driver).join(member_id="m", session_ms=session_ms)
    assert bad_timeout.joined == JoinGroupResponse(ErrorCode.INVALID_SESSION_TIMEOUT, "m")
    no_group = Group(driver, "").join(member_id="m", session_ms=session_ms)
    assert no_group.joined == JoinGroupResponse(ErrorCode.INVALID_GROUP_ID, "m")
