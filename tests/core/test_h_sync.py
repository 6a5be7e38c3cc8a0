"""Assignments: brought by the leader, durable before anybody hears of them (KAFKA-2017)."""

from __future__ import annotations

import pytest

from groupcoord import ErrorCode, GroupState
from groupcoord.core.log.records import GroupMetadataRecord
from groupcoord.log_store import LogStoreError
from groupcoord.messages import SyncGroupResponse
from tests.core.driver import REBALANCE_MS, SESSION_MS, Driver, Group


@pytest.fixture
def driver() -> Driver:
    return Driver()


@pytest.fixture
def group(driver: Driver) -> Group:
    return Group(driver)


@pytest.fixture
def late_group() -> Group:
    """A group of a and b in generation 1 whose log answers late."""
    driver = Driver(late=True)
    group = Group(driver)
    group.generation_of("a", "b")
    driver.write()
    return group


def failure(error_code: ErrorCode) -> LogStoreError:
    """Return a log store's error with this code."""
    error = LogStoreError("injected")
    error.error_code = error_code
    return error


def test_nobody_is_answered_before_the_log(late_group: Group) -> None:
    """The leader's sync is written and all wait; after the write, each is told its share and the group is Stable."""
    leader = late_group.sync("a-1", {"a-1": b"A", "b-1": b"B"})
    follower = late_group.sync("b-1")
    assert late_group.state is GroupState.COMPLETING_REBALANCE
    assert leader.is_waiting
    assert follower.is_waiting
    late_group.driver.write()
    assert late_group.state is GroupState.STABLE
    assert leader.synced == SyncGroupResponse(ErrorCode.NONE, "consumer", "range", b"A")
    assert follower.synced.assignment == b"B"


def test_what_is_written(driver: Driver, group: Group) -> None:
    """The record has the generation, the leader, and each member with its metadata and share."""
    a, b = group.generation_of("a", "@b")
    entered = group.inside.state_timestamp_ms
    driver.sleep(1_000)
    group.sync(a, {b: b"B"})
    record = driver.written()[-1]
    assert isinstance(record, GroupMetadataRecord)
    head = (record.generation_id, record.protocol_type, record.protocol_name, record.leader, record.state_timestamp_ms)
    assert head == (1, "consumer", "range", a, entered)
    assert [(m.member_id, m.group_instance_id, m.subscription, m.assignment) for m in record.members] == [
        (a, None, b"metadata", b""),
        (b, "b", b"metadata", b"B"),
    ]
    assert {(m.client_host, m.rebalance_timeout_ms, m.session_timeout_ms) for m in record.members} == {
        ("/127.0.0.1", REBALANCE_MS, SESSION_MS)
    }


def test_a_follower_before_and_after(group: Group) -> None:
    """A follower that syncs first waits; one that syncs when the group is Stable is answered at once."""
    a, b, c = group.generation_of("a", "b", "c")
    early = group.sync(b)
    assert early.is_waiting
    group.sync(a, {b: b"B", c: b"C"})
    assert early.synced.assignment == b"B"
    assert group.sync(c).synced.assignment == b"C"


def test_who_gets_nothing(group: Group) -> None:
    """Members that the leader leaves out get empty bytes; ids that are no members are ignored; the last of two wins."""
    a, b = group.generation_of("a", "b")
    leader = group.sync(a, {"stranger": b"S"})
    assert leader.synced == SyncGroupResponse(ErrorCode.NONE, "consumer", "range", b"")
    assert group.sync(b).synced.assignment == b""
    assert group.state is GroupState.STABLE


def test_no_assignments_at_all(group: Group) -> None:
    """A leader that brings nothing makes the group Stable all the same."""
    (a,) = group.generation_of("a")
    assert group.sync(a).synced.assignment == b""
    assert group.state is GroupState.STABLE


@pytest.mark.parametrize(
    ("reason", "answer"),
    [
        (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.COORDINATOR_NOT_AVAILABLE),
        (ErrorCode.NOT_ENOUGH_REPLICAS, ErrorCode.COORDINATOR_NOT_AVAILABLE),
        (ErrorCode.REQUEST_TIMED_OUT, ErrorCode.COORDINATOR_NOT_AVAILABLE),
        (ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.NOT_COORDINATOR),
        (ErrorCode.KAFKA_STORAGE_ERROR, ErrorCode.NOT_COORDINATOR),
        (ErrorCode.MESSAGE_TOO_LARGE, ErrorCode.UNKNOWN_SERVER_ERROR),
        (ErrorCode.RECORD_LIST_TOO_LARGE, ErrorCode.UNKNOWN_SERVER_ERROR),
        (ErrorCode.INVALID_FETCH_SIZE, ErrorCode.UNKNOWN_SERVER_ERROR),
        (ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND, ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND),
        (ErrorCode.NOT_COORDINATOR, ErrorCode.NOT_COORDINATOR),
    ],
)
def test_the_write_fails(late_group: Group, reason: ErrorCode, answer: ErrorCode) -> None:
    """All that wait are told the error as clients see it, the generation stays and a new round starts."""
    syncs = [late_group.sync("b-1"), late_group.sync("a-1", {"a-1": b"A"})]
    late_group.driver.refuse(failure(reason))
    assert [sent.synced for sent in syncs] == [SyncGroupResponse(answer)] * 2
    assert (late_group.state, late_group.generation) == (GroupState.PREPARING_REBALANCE, 1)


def test_a_leader_leaves(group: Group) -> None:
    """When the leader leaves, waiting syncs are REBALANCE_IN_PROGRESS."""
    a, b = group.generation_of("a", "b")
    waiting = group.sync(b)
    group.left(a)
    assert waiting.error is ErrorCode.REBALANCE_IN_PROGRESS
    assert group.state is GroupState.PREPARING_REBALANCE


def test_a_leader_expires(driver: Driver, group: Group) -> None:
    """When the leader's session ends before it syncs, the follower starts over and leads."""
    _, b = group.generation_of("a", "b")
    driver.sleep(SESSION_MS - 1)
    waiting = group.sync(b)
    driver.sleep(1)
    assert waiting.error is ErrorCode.REBALANCE_IN_PROGRESS
    rejoined = group.rejoin(b)
    assert (rejoined.joined.leader, rejoined.joined.generation_id) == (b, 2)


def test_sync_while_preparing(group: Group) -> None:
    """A sync during the join phase is REBALANCE_IN_PROGRESS."""
    a, b = group.stable("a", "b")
    group.rejoin(a)
    assert group.sync(b).synced == SyncGroupResponse(ErrorCode.REBALANCE_IN_PROGRESS)


def test_nobody_syncs(driver: Driver, group: Group) -> None:
    """When the rebalance time-out is over and nobody synced, all are removed and the group is Empty (KAFKA-12890)."""
    a, b = group.generation_of("a", "b", rebalance_ms=20_000)
    for _ in range(3):
        driver.sleep(5_000)
        assert group.heartbeat(a) is group.heartbeat(b) is ErrorCode.NONE
    driver.sleep(4_999)
    assert group.state is GroupState.COMPLETING_REBALANCE
    driver.sleep(1)
    assert (group.state, group.generation) == (GroupState.EMPTY, 2)
    assert group.heartbeat(a, generation=1) is ErrorCode.UNKNOWN_MEMBER_ID


def test_only_followers_do_not_sync(driver: Driver, group: Group) -> None:
    """In a Stable group, members that have not synced in time are removed; the others rebalance."""
    a, b, _ = group.generation_of("a", "b", "c", rebalance_ms=9_000)
    group.sync(a)
    group.sync(b)
    driver.sleep(8_999)
    assert group.state is GroupState.STABLE
    driver.sleep(1)
    assert (group.members, group.state) == ([a, b], GroupState.PREPARING_REBALANCE)
    assert group.heartbeat(a) is ErrorCode.REBALANCE_IN_PROGRESS


def test_only_the_leader_does_not_sync(driver: Driver, group: Group) -> None:
    """A leader that never syncs is removed; waiting followers start over."""
    a, b = group.generation_of("a", "b", rebalance_ms=9_000)
    waiting = group.sync(b)
    driver.sleep(9_000)
    assert waiting.error is ErrorCode.REBALANCE_IN_PROGRESS
    assert group.heartbeat(a) is ErrorCode.UNKNOWN_MEMBER_ID
    assert group.members == [b]


def test_everybody_has_synced(driver: Driver, group: Group) -> None:
    """Once all have synced, nothing happens when the rebalance time-out is over."""
    a, b = group.stable("a", "b", rebalance_ms=9_000)
    for _ in range(4):
        driver.sleep(4_000)
        assert group.heartbeat(a) is group.heartbeat(b) is ErrorCode.NONE
    assert (group.state, group.generation) == (GroupState.STABLE, 1)


def test_syncing_twice_while_waiting(late_group: Group) -> None:
    """A newer sync of a member replaces the older one, which is never answered; a leader's is written again."""
    driver = late_group.driver
    follower = [late_group.sync("b-1"), late_group.sync("b-1")]
    leader = [late_group.sync("a-1", {"b-1": b"1"}), late_group.sync("a-1", {"b-1": b"2"})]
    assert len(driver.store.waiting()) == 2
    driver.write()
    assert follower[0].is_dropped
    assert leader[0].is_dropped
    assert follower[1].synced.assignment == b"1"
    assert leader[1].error is ErrorCode.NONE


def test_syncing_again_when_stable(group: Group) -> None:
    """A sync in a Stable group returns the same bytes each time; what a leader brings then is ignored."""
    (a,) = group.generation_of("a")
    group.sync(a, {a: b"A"})
    assert [group.sync(a, {a: b"other"}).synced.assignment for _ in range(2)] == [b"A", b"A"]


def test_being_answered_renews_the_session(driver: Driver) -> None:
    """Who waited in sync has a full session from the answer on; who syncs afterwards does not get a new one."""
    group = Group(Driver(late=True))
    a, b, c = group.generation_of("a", "b", "c", session_ms=20_000)
    group.driver.write()
    group.sync(a)
    group.sync(b)
    group.driver.sleep(5_000)
    group.driver.write()
    group.sync(c)
    group.driver.sleep(14_999)
    assert group.members == [a, b, c]
    group.driver.sleep(1)
    assert group.members == [a, b]
    group.driver.sleep(5_000)
    assert group.members == []


def test_assignments_are_cleared_by_a_failed_round(group: Group) -> None:
    """A round that ends in CompletingRebalance clears what members had; one that starts from Stable keeps it."""
    (a,) = group.stable("a")
    group.rejoin(a, "range", "sticky")
    assert group.describe().members[0].member_assignment == b"a-1"
    group.join("b", "range")
    assert group.state is GroupState.PREPARING_REBALANCE
    assert group.describe().members[0].member_assignment == b""
