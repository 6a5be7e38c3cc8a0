"""What is refused before a group is asked, and in which order (Kafka 4.4)."""

from __future__ import annotations

import pytest

from groupcoord import ErrorCode, GroupCoordinator, GroupState
from groupcoord.messages import (
    CompleteTransaction,
    CompleteTransactionResponse,
    DeleteGroups,
    DeleteGroupsResponse,
    DescribeGroups,
    GroupToFetch,
    Heartbeat,
    JoinGroup,
    JoinGroupResponse,
    LeaveGroup,
    LeaveGroupResponse,
    LeavingMember,
    ListGroups,
    ListGroupsResponse,
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


def test_join_with_an_empty_group_id(driver: Driver) -> None:
    """A join without a group id is INVALID_GROUP_ID, echoes the member id, and makes no group (KAFKA-2648)."""
    sent = Group(driver, "").join(member_id="m")
    assert sent.joined == JoinGroupResponse(ErrorCode.INVALID_GROUP_ID, "m")
    assert driver.written() == []


@pytest.mark.parametrize("request_", [SyncGroup("", 1, "m"), Heartbeat("", 1, "m"), LeaveGroup("", ())], ids=str)
def test_other_requests_with_an_empty_group_id(driver: Driver, request_: SyncGroup | Heartbeat | LeaveGroup) -> None:
    """Sync, heartbeat and leave without a group id are INVALID_GROUP_ID."""
    assert driver.submit(request_).error is ErrorCode.INVALID_GROUP_ID


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


def test_after_the_end(driver: Driver) -> None:
    """Of a closed coordinator, every request is COORDINATOR_NOT_AVAILABLE; a join's member id is echoed."""
    coordinator = driver.new_coordinator()
    coordinator.close()
    assert set(errors_of_everything(coordinator).values()) == {ErrorCode.COORDINATOR_NOT_AVAILABLE}
    assert set(errors_of_everything(coordinator, "").values()) == {ErrorCode.COORDINATOR_NOT_AVAILABLE}
    join = coordinator.call(JoinGroup("group", "m", session_timeout_ms=1))
    assert join == JoinGroupResponse(ErrorCode.COORDINATOR_NOT_AVAILABLE, "m")


@pytest.mark.parametrize(
    ("session_ms", "error"),
    [
        (5_999, ErrorCode.INVALID_SESSION_TIMEOUT),
        (6_000, ErrorCode.MEMBER_ID_REQUIRED),
        (1_800_000, ErrorCode.MEMBER_ID_REQUIRED),
        (1_800_001, ErrorCode.INVALID_SESSION_TIMEOUT),
    ],
)
def test_bounds_of_the_session_timeout(group: Group, session_ms: int, error: ErrorCode) -> None:
    """The bounds of the session time-out are inclusive; outside of them no group is made."""
    assert group.join(session_ms=session_ms, asks_for_id=True).error is error
    assert (group.state is None) == (error is ErrorCode.INVALID_SESSION_TIMEOUT)


def test_a_known_member_with_a_bad_session_timeout(group: Group) -> None:
    """A known member that rejoins with a bad session time-out is refused with its id, and stays a member."""
    (a,) = group.stable("a")
    sent = group.rejoin(a, session_timeout_ms=1)
    assert sent.joined == JoinGroupResponse(ErrorCode.INVALID_SESSION_TIMEOUT, a)
    assert group.heartbeat(a) is ErrorCode.NONE


@pytest.mark.parametrize("rebalance_ms", [0, -1, -(2**31)])
def test_the_rebalance_timeout_is_not_checked(group: Group, rebalance_ms: int) -> None:
    """Any rebalance time-out is taken, 0 and negative ones too."""
    assert group.join(rebalance_ms=rebalance_ms).is_waiting


def test_while_loading(driver: Driver) -> None:
    """While a log partition loads, requests are COORDINATOR_LOAD_IN_PROGRESS, except that heartbeats are NONE."""
    coordinator = driver.new_coordinator()
    assert coordinator.begin_load(0)
    errors = errors_of_everything(coordinator)
    assert errors.pop("heartbeat") is ErrorCode.NONE
    assert set(errors.values()) == {ErrorCode.COORDINATOR_LOAD_IN_PROGRESS}
    assert coordinator.call(JoinGroup("group", "m")) == JoinGroupResponse(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, "")
    assert coordinator.call(LeaveGroup("group", (LeavingMember("m"),))).members == ()
    assert coordinator.call(ListGroups()) == ListGroupsResponse(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
    marker = CompleteTransaction(0, 1, 0, committed=True)
    refused = CompleteTransactionResponse(ErrorCode.NOT_LEADER_OR_FOLLOWER)
    assert coordinator.call(marker) == refused


def test_a_partition_that_is_not_owned(driver: Driver) -> None:
    """On a log partition of somebody else, requests are NOT_COORDINATOR; a list just lacks its groups."""
    driver.coordinator.unload(0)
    errors = errors_of_everything(driver.coordinator)
    assert errors.pop("list") is ErrorCode.NONE
    assert set(errors.values()) == {ErrorCode.NOT_COORDINATOR}
    assert Group(driver).join(member_id="m").joined == JoinGroupResponse(ErrorCode.NOT_COORDINATOR, "")


@pytest.mark.parametrize("session_ms", [1, 2_000_000])
def test_what_is_wrong_with_a_join_comes_before_the_partitions_state(driver: Driver, session_ms: int) -> None:
    """Group id and session time-out are checked before ownership, and echo the member id."""
    driver.coordinator.unload(0)
    bad_timeout = Group(driver).join(member_id="m", session_ms=session_ms)
    assert bad_timeout.joined == JoinGroupResponse(ErrorCode.INVALID_SESSION_TIMEOUT, "m")
    no_group = Group(driver, "").join(member_id="m", session_ms=session_ms)
    assert no_group.joined == JoinGroupResponse(ErrorCode.INVALID_GROUP_ID, "m")


def test_join_with_an_id_and_no_group(driver: Driver, group: Group) -> None:
    """A made-up member id in a group that does not exist is UNKNOWN_MEMBER_ID; the group is not made."""
    assert group.join(member_id="m").joined == JoinGroupResponse(ErrorCode.UNKNOWN_MEMBER_ID, "m")
    assert group.state is None
    assert driver.written() == []


def test_join_with_an_unknown_id(group: Group) -> None:
    """A made-up member id in a group that exists is UNKNOWN_MEMBER_ID, without protocol type and name."""
    group.stable("a")
    assert group.join(member_id="m").joined == JoinGroupResponse(ErrorCode.UNKNOWN_MEMBER_ID, "m")


def test_protocols_come_before_identity(group: Group) -> None:
    """An unknown id with another protocol type is INCONSISTENT_GROUP_PROTOCOL, with the id as sent."""
    group.stable("a")
    sent = group.join(member_id="m", protocol_type="connect")
    assert sent.joined == JoinGroupResponse(ErrorCode.INCONSISTENT_GROUP_PROTOCOL, "m")


def test_sync_without_group_or_member(group: Group) -> None:
    """A sync for an absent group, by an unknown member or in an Empty group is UNKNOWN_MEMBER_ID."""
    assert group.sync("m").error is ErrorCode.UNKNOWN_MEMBER_ID
    group.ask_for_id("a")
    assert group.state is GroupState.EMPTY
    assert group.sync("m").error is ErrorCode.UNKNOWN_MEMBER_ID
    group.stable("b")
    assert group.sync("m", generation=99).error is ErrorCode.UNKNOWN_MEMBER_ID


@pytest.mark.parametrize("offset", [-1, 1])
def test_sync_of_another_generation(group: Group, offset: int) -> None:
    """A sync of another generation is ILLEGAL_GENERATION, and comes before protocols (KAFKA-2557)."""
    (a,) = group.stable("a")
    sent = group.sync(a, generation=group.generation + offset, protocol_name="other")
    assert sent.error is ErrorCode.ILLEGAL_GENERATION


@pytest.mark.parametrize(
    ("protocol_type", "protocol_name", "error"),
    [
        (None, None, ErrorCode.NONE),
        ("consumer", "range", ErrorCode.NONE),
        ("consumer", None, ErrorCode.NONE),
        (None, "range", ErrorCode.NONE),
        ("connect", "range", ErrorCode.INCONSISTENT_GROUP_PROTOCOL),
        ("consumer", "sticky", ErrorCode.INCONSISTENT_GROUP_PROTOCOL),
    ],
)
def test_sync_names_the_protocol(
    group: Group, protocol_type: str | None, protocol_name: str | None, error: ErrorCode
) -> None:
    """What a sync says of protocol type and name must fit; what it leaves out is not checked; success echoes both."""
    (a,) = group.stable("a")
    sent = group.sync(a, protocol_type=protocol_type, protocol_name=protocol_name)
    assert sent.error is error
    expected = ("consumer", "range") if error is ErrorCode.NONE else (None, None)
    assert (sent.synced.protocol_type, sent.synced.protocol_name) == expected


def test_heartbeat_without_group_member_or_generation(group: Group) -> None:
    """Absent group, Empty group and unknown member are UNKNOWN_MEMBER_ID, a wrong generation ILLEGAL_GENERATION."""
    assert group.heartbeat("m") is ErrorCode.UNKNOWN_MEMBER_ID
    group.ask_for_id("a")
    assert group.heartbeat("m") is ErrorCode.UNKNOWN_MEMBER_ID
    (b,) = group.stable("b")
    assert group.heartbeat("m") is ErrorCode.UNKNOWN_MEMBER_ID
    assert group.heartbeat(b, generation=0) is ErrorCode.ILLEGAL_GENERATION


def test_leave_of_an_absent_group(group: Group) -> None:
    """Leaving a group that does not exist is NONE at top level and UNKNOWN_MEMBER_ID for each entry."""
    assert group.left("m", LeavingMember("", "i")) == [ErrorCode.UNKNOWN_MEMBER_ID] * 2


def test_leave_with_nobody(group: Group) -> None:
    """An empty batch is answered with an empty batch and has no effect."""
    group.stable("a")
    assert group.leave().answer(LeaveGroupResponse) == LeaveGroupResponse(ErrorCode.NONE)
    assert group.state is GroupState.STABLE
