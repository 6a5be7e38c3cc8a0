"""A newcomer's first join, and member ids that are handed out before it (KIP-394)."""

from __future__ import annotations

import pytest

from groupcoord import ErrorCode, GroupState
from groupcoord.core.log.records import GroupMetadataRecord
from groupcoord.log_store import (
    LogStoreError,
    NotEnoughReplicasError,
    NotLeaderError,
    RecordTooLargeError,
    StorageError,
)
from groupcoord.messages import JoinGroupResponse
from tests.core.driver import START_MS, Driver, Group, protocols_of


@pytest.fixture
def driver() -> Driver:
    return Driver()


@pytest.fixture
def group(driver: Driver) -> Group:
    return Group(driver)


def test_an_id_is_handed_out(driver: Driver, group: Group) -> None:
    """A dynamic newcomer is answered MEMBER_ID_REQUIRED: the group is Empty, durable, and has no member."""
    sent = group.join("client", asks_for_id=True)
    assert sent.joined == JoinGroupResponse(ErrorCode.MEMBER_ID_REQUIRED, "client-1")
    assert group.state is GroupState.EMPTY
    assert group.members == []
    assert list(group.inside.pending_members) == ["client-1"]
    assert driver.written() == [GroupMetadataRecord("group", "", 0, None, None, START_MS, ())]


def test_the_id_is_used(group: Group) -> None:
    """The second join waits, starts the initial rebalance, and makes the client a member and the leader."""
    a = group.ask_for_id("a")
    sent = group.rejoin(a)
    assert sent.is_waiting
    assert group.state is GroupState.PREPARING_REBALANCE
    assert (group.members, group.inside.leader, group.inside.pending_members) == ([a], a, {})


@pytest.mark.parametrize("instance", [None, "i", ""])
def test_a_first_join_that_waits_at_once(group: Group, instance: str | None) -> None:
    """A join of an old version waits at once, and so does a static one at any version; "" is an instance id too."""
    assert group.join("a", instance=instance, asks_for_id=instance is not None).is_waiting
    assert group.state is GroupState.PREPARING_REBALANCE


def test_an_id_that_is_not_used(driver: Driver, group: Group) -> None:
    """An id is forgotten when the session time-out of its request is over; its join is UNKNOWN_MEMBER_ID then."""
    a = group.ask_for_id("a", session_ms=7_000)
    driver.sleep(6_999)
    assert a in group.inside.pending_members
    driver.sleep(1)
    assert group.inside.pending_members == {}
    assert group.rejoin(a).joined == JoinGroupResponse(ErrorCode.UNKNOWN_MEMBER_ID, a)


def test_a_handed_out_id_with_an_instance_id(group: Group) -> None:
    """A handed-out id together with an instance id is UNKNOWN_SERVER_ERROR, not echoed; the id stays usable."""
    a = group.ask_for_id("a")
    assert group.rejoin(a, group_instance_id="i").joined == JoinGroupResponse(ErrorCode.UNKNOWN_SERVER_ERROR, "")
    assert group.rejoin(a, group_instance_id=None).is_waiting


@pytest.mark.parametrize("state", list(GroupState)[:4])
def test_a_handed_out_id_is_no_member(driver: Driver, group: Group, state: GroupState) -> None:
    """Heartbeat, sync and commit with an id that has not joined are UNKNOWN_MEMBER_ID in every state."""
    if state is GroupState.PREPARING_REBALANCE:
        group.join("b")
    elif state is GroupState.COMPLETING_REBALANCE:
        group.generation_of("b")
    elif state is GroupState.STABLE:
        group.stable("b")
    a = group.ask_for_id("a")
    assert group.state is state
    assert group.heartbeat(a) is ErrorCode.UNKNOWN_MEMBER_ID
    assert group.sync(a).error is ErrorCode.UNKNOWN_MEMBER_ID
    assert group.commit(member_id=a).error is ErrorCode.UNKNOWN_MEMBER_ID


def test_a_handed_out_id_leaves_while_others_wait(driver: Driver, group: Group) -> None:
    """An id that leaves in PreparingRebalance ends the round if nobody else is missing (KAFKA-7909)."""
    (a,) = group.stable("a")
    pending = group.ask_for_id("b")
    rejoined = group.rejoin(a)
    assert rejoined.is_waiting
    assert group.left(pending) == [ErrorCode.NONE]
    assert rejoined.joined.generation_id == 2


def test_a_handed_out_id_leaves_a_stable_group(group: Group) -> None:
    """An id that leaves a Stable group makes the others rebalance, as in Kafka 4."""
    (a,) = group.stable("a")
    assert group.left(group.ask_for_id("b")) == [ErrorCode.NONE]
    assert (group.state, group.generation) == (GroupState.PREPARING_REBALANCE, 1)
    assert group.heartbeat(a) is ErrorCode.REBALANCE_IN_PROGRESS


def test_a_handed_out_id_leaves_an_empty_group(group: Group) -> None:
    """An id that leaves an Empty group changes nothing else."""
    assert group.left(group.ask_for_id("a")) == [ErrorCode.NONE]
    assert (group.state, group.inside.pending_members) == (GroupState.EMPTY, {})


def test_handed_out_ids_do_not_count_for_the_size() -> None:
    """With room for two, three ids are handed out; the third to join is GROUP_MAX_SIZE_REACHED and forgotten."""
    group = Group(Driver(group_max_size=2))
    ids = [group.ask_for_id(client) for client in "abc"]
    first, second, third = [group.rejoin(member_id) for member_id in ids]
    assert first.is_waiting
    assert second.is_waiting
    assert third.joined == JoinGroupResponse(ErrorCode.GROUP_MAX_SIZE_REACHED, "")
    assert group.inside.pending_members == {}


@pytest.mark.parametrize(("protocol_type", "names"), [("", ("range",)), ("consumer", ())])
def test_a_first_join_without_type_or_protocols(
    driver: Driver, group: Group, protocol_type: str, names: tuple[str, ...]
) -> None:
    """It is INCONSISTENT_GROUP_PROTOCOL, and still leaves a durable Empty group (KAFKA-6005)."""
    sent = group.join(protocol_type=protocol_type, protocols=protocols_of(*names))
    assert sent.joined == JoinGroupResponse(ErrorCode.INCONSISTENT_GROUP_PROTOCOL, "")
    assert group.state is GroupState.EMPTY
    assert group.describe().group_state == "Empty"
    assert len(driver.written()) == 1


def test_refused_protocols_leave_a_handed_out_id_usable(group: Group) -> None:
    """An id whose join was refused for its protocols is echoed and can join with better ones."""
    a = group.ask_for_id("a")
    refused = group.rejoin(a, protocol_type="")
    assert refused.joined == JoinGroupResponse(ErrorCode.INCONSISTENT_GROUP_PROTOCOL, a)
    assert group.rejoin(a, protocol_type="consumer").is_waiting


def test_ids_differ(group: Group) -> None:
    """Each newcomer gets its own id, with its client id as prefix: an empty one leaves the dash."""
    assert [group.ask_for_id("a"), group.ask_for_id("a"), group.ask_for_id("")] == ["a-1", "a-2", "-1"]


def test_a_static_id_is_named_after_the_instance(group: Group) -> None:
    """A static member's id starts with the instance id, and is another one after every return."""
    assert [group.join("a", instance="i").member_id, group.join("a", instance="i").member_id] == ["i-1", "i-2"]


@pytest.mark.parametrize(
    ("error", "answer"),
    [
        (NotEnoughReplicasError(), ErrorCode.COORDINATOR_NOT_AVAILABLE),
        (NotLeaderError(), ErrorCode.NOT_COORDINATOR),
        (StorageError(), ErrorCode.NOT_COORDINATOR),
        (RecordTooLargeError(), ErrorCode.UNKNOWN_SERVER_ERROR),
    ],
)
def test_the_first_record_fails(driver: Driver, group: Group, error: LogStoreError, answer: ErrorCode) -> None:
    """When the record of a new group cannot be written, the join that waits gets the error and the group is gone."""
    driver.store.fail_next(error)
    assert group.join("a").joined == JoinGroupResponse(answer, "")
    assert group.state is None
    assert group.join("a").is_waiting


def test_the_first_record_fails_after_an_id_was_handed_out() -> None:
    """The answer that went out stands, but the group is gone, and the id's join is UNKNOWN_MEMBER_ID."""
    driver = Driver(late=True)
    group = Group(driver)
    a = group.ask_for_id("a")
    driver.refuse(NotEnoughReplicasError())
    assert group.state is None
    assert group.rejoin(a).error is ErrorCode.UNKNOWN_MEMBER_ID


def test_an_empty_group_takes_another_type(driver: Driver, group: Group) -> None:
    """An emptied group keeps its protocol type until a member with another one joins."""
    (a,) = group.stable("a")
    group.left(a)
    assert (group.state, group.inside.protocol_type) == (GroupState.EMPTY, "consumer")
    assert group.join("b", protocol_type="connect").is_waiting
    assert group.inside.protocol_type == "connect"
