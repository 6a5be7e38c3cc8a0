"""Closing, leaving, unsubscribing: commits, events, requests and time-outs."""

from __future__ import annotations

import pytest

from groupcoord.errors import ErrorCode
from groupcoord.member import (
    Closed,
    CloseOperation,
    CommitCompleted,
    CommitFailure,
    IllegalCallError,
    LeftGroup,
    MemberState,
    PartitionsLost,
    PartitionsRevoked,
)
from groupcoord.messages import (
    JoinGroup,
    LeaveGroup,
    LeaveGroupResponse,
    OffsetCommit,
)
from tests.tables import as_one_test

from .script import GROUP, MEMBER_ID, Script, partitions

LEFT = LeaveGroupResponse(ErrorCode.NONE)
OWNED = partitions(0, 1)


def committing(**settings: object) -> Script:
    script = Script(enable_auto_commit=True, **settings).stable(0, 1)
    script.member.consumed({OWNED[0]: 5})
    return script


def test_closing() -> None:
    """Committed, revoked, left with a reason, and closed with the response."""
    script = committing()
    script.member.close(script.now_ms)
    assert script.kinds() == ["OffsetCommit"]
    assert script.told(PartitionsRevoked) == []
    script.committed()
    assert script.names() == ["CommitCompleted", "PartitionsRevoked", "LeftGroup"]
    leave = script.request(LeaveGroup)
    (leaving,) = leave.members
    assert (leave.group_id, leaving.member_id, leaving.group_instance_id) == (GROUP, MEMBER_ID, None)
    assert leaving.reason == "the consumer is being closed"
    script.answer(LeaveGroup, LEFT)
    assert script.events[-1] == Closed()
    assert script.member.state is MemberState.CLOSED
    assert script.member.next_deadline_ms() is None


def test_closing_without_automatic_commits() -> None:
    script = Script().stable(0, 1)
    script.member.consumed({OWNED[0]: 5})
    script.member.close(script.now_ms)
    assert script.kinds() == ["LeaveGroup"]


def test_closing_before_joining() -> None:
    script = Script().subscribed()
    script.member.close(script.now_ms)
    assert script.names() == ["Closed"]


def test_a_static_member_stays() -> None:
    """KIP-345: closing revokes and sends no leave: the instance may come back until its session is over."""
    script = Script(group_instance_id="instance").stable(0)
    script.member.close(script.now_ms)
    script.look()
    assert script.events == [
        PartitionsRevoked(partitions(0)),
        LeftGroup("the consumer is being closed", False),
        Closed(),
    ]


@pytest.mark.parametrize(
    ("operation", "instance_id", "leaves"),
    [
        (CloseOperation.LEAVE_GROUP, "instance", True),
        (CloseOperation.LEAVE_GROUP, None, True),
        (CloseOperation.REMAIN_IN_GROUP, "instance", False),
        (CloseOperation.REMAIN_IN_GROUP, None, False),
        (CloseOperation.DEFAULT, None, True),
    ],
)
def test_the_operation_of_a_close(operation: CloseOperation, instance_id: str | None, leaves: bool) -> None:
    """KIP-1092: the application may choose it."""
    script = Script(group_instance_id=instance_id).stable(0)
    script.member.close(script.now_ms, operation=operation)
    assert script.kinds() == (["LeaveGroup"] if leaves else [])


def test_a_last_commit_is_repeated() -> None:
    """Errors that may pass are waited out, within the close's time."""
    script = committing()
    script.member.close(script.now_ms)
    script.committed(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
    script.wait(100)
    script.committed()
    assert script.told(CommitCompleted)[0].failure is None
    assert script.kinds() == ["LeaveGroup"]


def test_a_last_commit_that_fails() -> None:
    script = committing()
    script.member.close(script.now_ms)
    script.committed(ErrorCode.GROUP_AUTHORIZATION_FAILED)
    assert script.told(CommitCompleted)[0].failure is CommitFailure.ERROR
    assert script.kinds() == ["LeaveGroup"]


def test_closing_in_time() -> None:
    """Without answers the member is closed when its time is over; it beats until it has committed."""
    script = committing()
    script.member.close(script.now_ms, timeout_ms=4_000)
    script.wait(3_999)
    assert script.kinds() == ["OffsetCommit", "Heartbeat"]
    script.wait(1)
    assert script.names()[-4:] == ["CommitCompleted", "PartitionsRevoked", "LeftGroup", "Closed"]
    assert script.told(CommitCompleted)[0].failure is CommitFailure.TIMED_OUT
    assert script.kinds()[-1] == "LeaveGroup"


def test_closing_waits_for_commits_under_way() -> None:
    """A sent asynchronous commit may still be answered; its event precedes the close's."""
    script = Script().stable(0)
    commit_id = script.member.commit_async({OWNED[0]: 1}, script.now_ms)
    script.member.close(script.now_ms)
    script.answer(LeaveGroup, LEFT)
    assert script.told(Closed) == []
    script.committed()
    assert script.names()[-2:] == ["CommitCompleted", "Closed"]
    assert script.told(CommitCompleted)[0].commit_id == commit_id


def test_closing_waits_for_commits_that_wait_for_the_coordinator() -> None:
    script = Script().stable(0)
    script.member.disconnected(script.now_ms)
    script.member.commit_async({OWNED[0]: 1}, script.now_ms)
    script.member.close(script.now_ms)
    assert script.kinds() == ["FindCoordinator"]
    script.find()
    assert script.kinds() == ["OffsetCommit", "LeaveGroup"]


def test_closing_without_coordinator() -> None:
    """With nothing to commit, no coordinator is looked up: the session expires."""
    script = Script().stable(0)
    script.poll()
    script.member.disconnected(script.now_ms)
    script.member.close(script.now_ms)
    script.look()
    assert script.events[-2:] == [LeftGroup("the consumer is being closed", False), Closed()]


def test_closing_in_a_rebalance() -> None:
    """During a rebalance the ownership is uncertain: partitions are lost; the member leaves all the same."""
    script = Script(partition_assignment_strategy="cooperative-sticky").stable(0, 1)
    script.member.enforce_rebalance(script.now_ms)
    script.forget()
    script.member.close(script.now_ms)
    assert script.told(PartitionsLost) == [PartitionsLost(OWNED)]
    assert script.kinds() == ["JoinGroup", "LeaveGroup"]


def test_closing_after_a_failure() -> None:
    """A failed member's partitions are lost; it still leaves, if it has an id."""
    script = Script(partition_assignment_strategy="cooperative-sticky").stable(0, 1)
    script.member.enforce_rebalance(script.now_ms)
    script.refuse(JoinGroup, ErrorCode.GROUP_AUTHORIZATION_FAILED)
    script.member.close(script.now_ms)
    assert script.told(PartitionsLost) == [PartitionsLost(OWNED)]
    assert script.kinds() == ["LeaveGroup"]


def test_closing_after_being_fenced() -> None:
    """A fenced member has no id: it must not remove its successor."""
    script = Script(group_instance_id="instance").stable(0)
    script.refuse_heartbeat(ErrorCode.FENCED_INSTANCE_ID)
    script.member.close(script.now_ms, operation=CloseOperation.LEAVE_GROUP)
    assert script.kinds() == []
    assert script.told(Closed) == [Closed()]


def test_closing_waits_for_the_listener() -> None:
    """The listener may commit what is revoked; then the member leaves."""
    script = Script(waits_for_listener=True).stable(0)
    script.member.close(script.now_ms)
    assert script.told(PartitionsRevoked) == [PartitionsRevoked(partitions(0))]
    assert script.kinds() == []
    script.member.listener_returned(script.now_ms)
    assert script.kinds() == ["LeaveGroup"]


def test_a_closed_member() -> None:
    """It accepts no calls except a second close; responses are ignored."""
    script = Script().stable(0)
    script.member.close(script.now_ms)
    script.member.close(script.now_ms)
    for call in (
        lambda: script.member.poll(script.now_ms),
        lambda: script.member.subscribe(["topic"], script.now_ms),
        lambda: script.member.unsubscribe(script.now_ms),
        lambda: script.member.commit_sync({}, script.now_ms),
    ):
        with pytest.raises(IllegalCallError, match="closed"):
            call()
    script.answer(LeaveGroup, LEFT)
    script.member.tick(script.now_ms + 10**9)
    script.member.disconnected(script.now_ms + 10**9)
    assert script.names().count("Closed") == 1


def test_unsubscribing() -> None:
    """Revoked, left with a reason, and quiet; a new subscription joins as a new member."""
    script = Script().stable(0, 1)
    script.member.unsubscribe(script.now_ms)
    script.look()
    assert script.events == [
        PartitionsRevoked(OWNED),
        LeftGroup("the consumer unsubscribed from all topics", True),
    ]
    assert (script.member.assignment, script.member.metadata_topics) == ((), ())
    script.answer(LeaveGroup, LEFT)
    script.wait(60_000)
    assert script.kinds() == []
    script.member.subscribe(["topic"], script.now_ms)
    assert script.request(JoinGroup).member_id == ""


def test_subscribing_to_nothing_is_unsubscribing() -> None:
    script = Script().stable(0)
    script.member.subscribe([], script.now_ms)
    assert script.kinds() == ["LeaveGroup"]


def test_unsubscribing_waits_for_the_listener() -> None:
    """Until it returns the partitions belong to the member, and other calls are refused."""
    script = Script(waits_for_listener=True).stable(0)
    script.member.unsubscribe(script.now_ms)
    assert script.member.assignment == partitions(0)
    with pytest.raises(IllegalCallError, match="listener"):
        script.member.subscribe(["topic"], script.now_ms)
    script.member.listener_returned(script.now_ms)
    assert script.kinds() == ["LeaveGroup"]


# ---------------------------------------------------------------- partitions of one's own choice


def test_manual_assignment() -> None:
    """No group, no lookup, no heartbeats; the partitions are there at once, without events."""
    script = Script()
    script.member.assign([*OWNED, OWNED[0]], script.now_ms)
    script.poll(60_000)
    script.wait(60_000)
    assert script.member.assignment == script.member.fetchable == OWNED
    assert script.member.metadata_topics == ("topic",)
    assert (script.kinds(), script.events) == ([], [])


def test_manual_commits() -> None:
    """They are those of a consumer outside of group management: generation -1, no member, no instance."""
    script = Script(group_instance_id="instance")
    script.member.assign(OWNED, script.now_ms)
    script.member.commit_sync({OWNED[0]: 5}, script.now_ms)
    script.find()
    commit = script.request(OffsetCommit)
    assert (commit.generation_id, commit.member_id, commit.group_instance_id) == (-1, "", None)
    script.committed()
    assert script.told(CommitCompleted)[0].failure is None


def test_manual_automatic_commits() -> None:
    script = Script(enable_auto_commit=True)
    script.member.assign(OWNED, script.now_ms)
    script.member.consumed({OWNED[1]: 7})
    script.poll(60_000)
    script.wait(5_000)
    script.find()
    assert script.request(OffsetCommit).topics[0].partitions[0].committed_offset == 7


def test_a_consumer_without_a_group() -> None:
    script = Script(group_id=None)
    script.member.assign(OWNED, script.now_ms)
    with pytest.raises(IllegalCallError, match=r"group\.id"):
        Script(group_id=None).member.subscribe(["topic"], script.now_ms)
    script.member.close(script.now_ms)
    assert script.names() == ["Closed"]


@as_one_test
@pytest.mark.parametrize("first", ["subscribe", "subscribe_pattern", "assign"])
@pytest.mark.parametrize("second", ["subscribe", "subscribe_pattern", "assign"])
def test_subscriptions_exclude_each_other(first: str, second: str) -> None:
    """Topics, a pattern and partitions don't go together; each may be replaced by its like, or after unsubscribing."""
    script = Script()
    arguments = {"subscribe": ["topic"], "subscribe_pattern": "t.*", "assign": OWNED}
    getattr(script.member, first)(arguments[first], script.now_ms)
    if first != second:
        with pytest.raises(IllegalCallError, match="exclude"):
            getattr(script.member, second)(arguments[second], script.now_ms)
        script.member.unsubscribe(script.now_ms)
    getattr(script.member, second)(arguments[second], script.now_ms)


def test_arguments_that_make_no_sense() -> None:
    member = Script().member
    with pytest.raises(ValueError, match="regular expression"):
        member.subscribe_pattern("(", 0)
    for topics in ("topic", [""], ["ok", " "]):
        with pytest.raises(ValueError, match="topics"):
            member.subscribe(topics, 0)
    member.assign(OWNED, 0)


def test_assigning_nothing_is_unsubscribing() -> None:
    script = Script()
    script.member.assign(OWNED, script.now_ms)
    script.member.assign([], script.now_ms)
    assert script.member.assignment == ()
    script.subscribed()


def test_no_assignors() -> None:
    """A consumer without assignors may not subscribe; the error names the empty setting."""
    script = Script(partition_assignment_strategy=())
    script.member.assign(OWNED, script.now_ms)
    script.member.unsubscribe(script.now_ms)
    with pytest.raises(IllegalCallError, match=r"partition\.assignment\.strategy"):
        script.member.subscribe(["topic"], script.now_ms)
