"""Static members come back under their instance id (KIP-345, KIP-814)."""

from __future__ import annotations

import pytest

from groupcoord import ErrorCode, GroupState
from groupcoord.core.log.records import GroupMetadataRecord
from groupcoord.log_store import NotEnoughReplicasError
from groupcoord.messages import JoinedMember, JoinGroupResponse, LeavingMember, SyncGroupResponse
from tests.core.driver import REBALANCE_MS, SESSION_MS, Driver, Group, protocols_of


@pytest.fixture
def driver() -> Driver:
    return Driver()


@pytest.fixture
def group(driver: Driver) -> Group:
    return Group(driver)


def back(group: Group, name: str, *names: str, **how: object) -> JoinGroupResponse:
    """The static member ``name`` restarts; return the answer of its join."""
    return group.join(name, *names, instance=name, **how).joined


def test_a_follower_comes_back(driver: Driver, group: Group) -> None:
    """It gets a new id and the running generation; nobody rebalances, and the new id is durable (KAFKA-10284)."""
    a, b = group.stable("a", "@b")
    assert back(group, "b") == JoinGroupResponse(ErrorCode.NONE, "b-2", 1, "consumer", "range", a)
    assert (group.state, group.generation) == (GroupState.STABLE, 1)
    assert group.sync("b-2", instance="b").synced.assignment == b"b-1"
    record = driver.written()[-1]
    assert isinstance(record, GroupMetadataRecord)
    assert [(m.member_id, m.assignment) for m in record.members] == [(a, b"a-1"), ("b-2", b"b-1")]
    assert group.heartbeat(b, instance="b") is ErrorCode.FENCED_INSTANCE_ID
    assert group.heartbeat(b) is ErrorCode.UNKNOWN_MEMBER_ID


def test_a_leader_comes_back(group: Group) -> None:
    """From version 9 on it leads under its new id, sees the members, and is told to skip the assignment."""
    _, b = group.stable("@a", "b")
    answer = back(group, "a")
    members = (JoinedMember(b, None, b"metadata"), JoinedMember("a-2", "a", b"metadata"))
    assert answer == JoinGroupResponse(ErrorCode.NONE, "a-2", 1, "consumer", "range", "a-2", True, members)
    assert group.sync("a-2").synced.assignment == b"a-1"
    assert group.inside.leader == "a-2"


def test_an_old_leader_comes_back(group: Group) -> None:
    """Before version 9 it is told the leader's old id, so that it does not believe to lead."""
    group.stable("@a", "b")
    expected = JoinGroupResponse(ErrorCode.NONE, "a-2", 1, "consumer", "range", "a-1")
    assert back(group, "a", skips=False) == expected
    assert group.inside.leader == "a-2"


@pytest.mark.parametrize("skips", [False, True])
@pytest.mark.parametrize("name", ["a", "b"])
def test_the_new_id_cannot_be_written(driver: Driver, group: Group, name: str, skips: bool) -> None:
    """The join gets the error, and everything is as before: id, protocols, time-outs, leadership."""
    group.stable("@a", "@b")
    driver.store.fail_next(NotEnoughReplicasError())
    answer = back(group, name, "range", "sticky", session_ms=50_000, rebalance_ms=1_000, skips=skips)
    unavailable = ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert answer == JoinGroupResponse(unavailable, "", 1, "consumer", "range", "a-1")
    member = group.inside.members[f"{name}-1"]
    assert (member.session_timeout_ms, member.rebalance_timeout_ms) == (SESSION_MS, REBALANCE_MS)
    assert member.protocols == protocols_of("range")
    assert group.inside.leader == "a-1"
    assert group.heartbeat(f"{name}-1", instance=name) is ErrorCode.NONE
    assert group.heartbeat(f"{name}-2", instance=name) is ErrorCode.FENCED_INSTANCE_ID
    driver.sleep(SESSION_MS)
    assert group.state is GroupState.EMPTY


def test_new_timeouts(driver: Driver, group: Group) -> None:
    """The old session time-out runs on until the session starts anew, then the new one counts (KAFKA-14009)."""
    a, _ = group.stable("a", "@b", session_ms=SESSION_MS)
    back(group, "b", session_ms=30_000, rebalance_ms=1_000)
    assert group.inside.members["b-2"].rebalance_timeout_ms == 1_000
    assert group.inside.members["b-2"].session_timer.deadline_ms == driver.clock.now_ms() + SESSION_MS
    group.heartbeat("b-2")
    driver.sleep(9_999)
    group.heartbeat(a)
    driver.sleep(20_000)
    assert "b-2" in group.members
    driver.sleep(1)
    assert "b-2" not in group.members


def test_another_list_with_the_same_choice(group: Group) -> None:
    """Other protocols or metadata do not matter as long as the chosen protocol stays the same."""
    group.stable("a", "@b")
    assert back(group, "b", "sticky", "range").error_code is ErrorCode.NONE
    assert back(group, "b", protocols=protocols_of("range", metadata=b"new")).generation_id == 1
    assert group.state is GroupState.STABLE


def test_another_choice(driver: Driver, group: Group) -> None:
    """A returning member whose list changes the choice makes everybody rebalance."""
    group.join("a", "range", "sticky")
    group.join("b", "range", "sticky", instance="b")
    driver.sleep(6_000)
    group.assign()
    chosen = group.inside.protocol_name
    other = {"range": "sticky", "sticky": "range"}[chosen or ""]
    assert group.join("b", other, instance="b").is_waiting
    assert group.state is GroupState.PREPARING_REBALANCE


def test_an_incompatible_list(group: Group) -> None:
    """A list that fits nobody is refused before anything is replaced."""
    group.stable("a", "@b")
    assert back(group, "b", "sticky").error_code is ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    assert group.heartbeat("b-1", instance="b") is ErrorCode.NONE


def test_return_while_completing(group: Group) -> None:
    """In CompletingRebalance a return always means a new round; the old id's sync is fenced (KAFKA-9801)."""
    a, b = group.generation_of("a", "@b")
    c = group.sync(b)
    assert group.join("b", instance="b").is_waiting
    assert c.synced == SyncGroupResponse(ErrorCode.FENCED_INSTANCE_ID)
    assert group.state is GroupState.PREPARING_REBALANCE
    assert group.rejoin(a).joined.generation_id == 2


def test_return_while_others_wait_in_sync(group: Group) -> None:
    """The others' syncs are REBALANCE_IN_PROGRESS."""
    group.generation_of("a", "@b", "c")
    waiting = group.sync("c-1")
    group.join("b", instance="b")
    assert waiting.error is ErrorCode.REBALANCE_IN_PROGRESS


def test_return_while_preparing(group: Group) -> None:
    """The old id's waiting join is fenced, the new one counts as joined (KAFKA-8500)."""
    a, b = group.stable("a", "@b")
    old = group.rejoin(b, "range", "sticky")
    assert old.is_waiting
    new = group.join("b", instance="b")
    assert old.joined == JoinGroupResponse(ErrorCode.FENCED_INSTANCE_ID, b)
    assert group.rejoin(a).joined.generation_id == 2
    assert new.joined.member_id == "b-2"


@pytest.mark.parametrize(
    ("member_id", "instance", "error"),
    [
        ("x-1", "x", ErrorCode.NONE),
        ("x-1", None, ErrorCode.NONE),
        ("a-1", "x", ErrorCode.FENCED_INSTANCE_ID),
        ("stranger", "x", ErrorCode.FENCED_INSTANCE_ID),
        ("a-1", "stranger", ErrorCode.UNKNOWN_MEMBER_ID),
        ("stranger", "stranger", ErrorCode.UNKNOWN_MEMBER_ID),
        ("stranger", None, ErrorCode.UNKNOWN_MEMBER_ID),
    ],
)
def test_pairs_of_ids(group: Group, member_id: str, instance: str | None, error: ErrorCode) -> None:
    """Join, sync, heartbeat and commit judge a pair of member id and instance id alike; an error echoes the id."""
    group.stable("a", "@x")
    joined = group.join("x", member_id=member_id, instance=instance).joined
    assert (joined.error_code, joined.member_id) == (error, member_id)
    assert group.sync(member_id, instance=instance).error is error
    assert group.heartbeat(member_id, instance=instance) is error
    assert group.commit(1, member_id=member_id, instance=instance).error is error


def test_a_static_leader_rejoins_with_its_id(group: Group) -> None:
    """A static leader that rejoins under its id wants a rebalance, like a dynamic one."""
    a, _ = group.stable("@a", "b")
    assert group.rejoin(a).is_waiting
    assert group.state is GroupState.PREPARING_REBALANCE


def test_a_static_member_misses_a_round(driver: Driver, group: Group) -> None:
    """It stays with its old metadata, is shown to the leader, and is removed when it has not synced in time."""
    a, x = group.stable("a", "@x", session_ms=200_000)
    rejoined = group.rejoin(a, protocols=protocols_of("range", metadata=b"new"))
    driver.sleep(REBALANCE_MS)
    assert rejoined.joined.members == (JoinedMember(a, None, b"new"), JoinedMember(x, "x", b"metadata"))
    group.sync(a)
    driver.sleep(REBALANCE_MS - 1)
    assert (group.state, group.members) == (GroupState.STABLE, [a, x])
    driver.sleep(1)
    assert (group.state, group.members) == (GroupState.PREPARING_REBALANCE, [a])


def test_a_missing_static_member_expires(driver: Driver, group: Group) -> None:
    """Its session, which started anew with the generation, may end before that."""
    a, x = group.stable("a", "@x", session_ms=70_000)
    group.rejoin(a)
    driver.sleep(REBALANCE_MS)
    assert group.members == [a, x]
    group.sync(a)
    driver.sleep(REBALANCE_MS - 1)
    group.heartbeat(a)
    assert group.members == [a, x]
    group.sync(x)
    driver.sleep(70_000 - REBALANCE_MS)
    assert group.members == [a, x]
    driver.sleep(1)
    assert group.members == [a]


def test_a_static_leader_misses_a_round(driver: Driver, group: Group) -> None:
    """Another member leads, the old leader stays a member."""
    x, a = group.stable("@x", "a", session_ms=200_000)
    rejoined = group.rejoin(a, "range", "sticky")
    driver.sleep(REBALANCE_MS)
    assert rejoined.joined.leader == a
    assert group.members == [x, a]


def test_removal_by_instance(group: Group) -> None:
    """An administrator removes a static member at once by its instance id alone."""
    a, _ = group.stable("a", "@x")
    group.left(LeavingMember("", "x"))
    assert (group.members, group.inside.static_members) == ([a], {})


def test_two_clients_with_one_instance(driver: Driver, group: Group) -> None:
    """The second fences the waiting join of the first, whose next request is fenced too (KAFKA-8225)."""
    first = group.join("one", instance="i")
    second = group.join("two", instance="i")
    assert first.joined == JoinGroupResponse(ErrorCode.FENCED_INSTANCE_ID, "i-1")
    driver.sleep(3_000)
    assert second.joined.member_id == "i-2"
    assert group.heartbeat("i-1", instance="i") is ErrorCode.FENCED_INSTANCE_ID
    assert group.inside.members["i-2"].client_id == "one"


def test_return_after_a_restart_of_the_coordinator(driver: Driver, group: Group) -> None:
    """The persisted new id is known after a failover, and its member comes back again without a rebalance."""
    a, _ = group.stable("a", "@x")
    back(group, "x")
    driver.restart()
    assert group.heartbeat("x-2", instance="x") is ErrorCode.NONE
    assert back(group, "x").member_id == "x-3"
    assert (group.state, group.members) == (GroupState.STABLE, [a, "x-3"])


@pytest.mark.parametrize("others", [(), ("b",)], ids=["alone", "beside another"])
def test_a_first_join_that_is_replaced_while_it_waits(others: tuple[str, ...]) -> None:
    """Whoever takes the place is not new: no session time-out ends its membership while its join waits."""
    driver = Driver(group_initial_rebalance_delay_ms=2 * SESSION_MS)
    group = Group(driver)
    first = group.join("a", instance="a")
    waiting = [group.join(name) for name in others]
    driver.sleep(60)
    second = group.join("a", instance="a")
    assert first.error is ErrorCode.FENCED_INSTANCE_ID
    driver.sleep(2 * SESSION_MS - 61)
    assert second.is_waiting
    assert "a-2" in group.members
    driver.sleep(2 * SESSION_MS + 61)
    assert [sent.error for sent in (second, *waiting)] == [ErrorCode.NONE] * (1 + len(others))


def test_a_return_before_the_sync(driver: Driver, group: Group) -> None:
    """Who returns before it has synced is still missed under its old id: at sync expiry all rebalance, none goes."""
    a, _ = group.generation_of("a", "@x", session_ms=200_000)
    group.sync(a)
    back(group, "x")
    group.sync("x-2")
    driver.sleep(REBALANCE_MS - 1)
    assert group.state is GroupState.STABLE
    driver.sleep(1)
    assert (group.state, group.members) == (GroupState.PREPARING_REBALANCE, [a, "x-2"])
