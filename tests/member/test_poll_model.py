"""The application's polls, the heartbeats apart from them, and all the times that a member keeps."""

from __future__ import annotations

import pytest

from groupcoord.errors import ErrorCode
from groupcoord.member import (
    CommitCompleted,
    CoordinatorFound,
    CoordinatorLost,
    Failed,
    IllegalCallError,
    LeftGroup,
    Member,
    MemberConfig,
    MemberState,
    OffsetsFetched,
    PartitionsAssigned,
    PartitionsLost,
    RejoinRequested,
    Send,
)
from groupcoord.member.coordinator_link import ExponentialBackoff
from groupcoord.messages import (
    FindCoordinator,
    Heartbeat,
    HeartbeatResponse,
    JoinGroup,
    JoinGroupResponse,
    LeaveGroup,
    LeaveGroupResponse,
    OffsetCommit,
    OffsetFetch,
    SyncGroup,
)
from tests.tables import as_one_test

from .script import GROUP, MEMBER_ID, NODE, START_MS, Script, partitions

OK = HeartbeatResponse(ErrorCode.NONE)


# ---------------------------------------------------------------- polls


def test_nothing_happens_before_the_first_poll() -> None:
    script = Script()
    script.member.subscribe(["topic"], script.now_ms)
    script.wait(10_000)
    assert script.kinds() == []
    assert script.member.next_deadline_ms() is None


def test_answers_dont_wait_for_a_poll_but_events_do() -> None:
    """The sync follows the join between two polls; the assignment is an event of the second one."""
    script = Script().joining(poll_ms=0)
    script.join()
    script.sync(0)
    assert script.names()[-1] == "Joined"
    assert script.member.assignment == ()
    script.poll()
    assert script.told(PartitionsAssigned) == [PartitionsAssigned(partitions(0))]


def test_a_poll_ends_when_its_time_is_over() -> None:
    """Inside of a poll the member rejoins at once; after it, it waits for the next."""
    script = Script().stable(0, poll_ms=10_000)
    script.wait(10_000)
    script.member.enforce_rebalance(script.now_ms)
    assert script.kinds() == ["Heartbeat"] * 3
    script.poll()
    assert "JoinGroup" in script.kinds()


def test_a_newer_poll_takes_the_place_of_the_one_before() -> None:
    script = Script().stable(0)
    script.poll()
    script.member.enforce_rebalance(script.now_ms + 1)
    assert script.kinds() == []


def test_enforce_rebalance() -> None:
    """KIP-568: the application may request a rebalance, with or without a reason."""
    script = Script().stable(0)
    script.member.enforce_rebalance(script.now_ms)
    assert script.told(RejoinRequested) == [RejoinRequested("rebalance enforced by user")]
    assert script.request(JoinGroup).reason == "rebalance enforced by user"


# ---------------------------------------------------------------- heartbeats


def test_heartbeats_come_at_their_interval() -> None:
    """From the join on, every heartbeat.interval.ms, with generation and member id, polls or not."""
    script = Script(heartbeat_interval_ms=700).joining(poll_ms=0)
    script.wait(5_000)
    assert script.kinds() == ["JoinGroup"]
    script.join(7)
    sent_ms = []
    for _ in range(3):
        deadline_ms = script.member.next_deadline_ms()
        assert deadline_ms is not None
        script.wait(deadline_ms - script.now_ms)
        beat = script.request(Heartbeat)
        assert (beat.group_id, beat.generation_id, beat.member_id) == (GROUP, 7, MEMBER_ID)
        sent_ms.append(script.now_ms - START_MS - 5_000)
        script.answer(Heartbeat, OK)
    assert sent_ms == [700, 1_400, 2_100]


def test_a_slow_answer_does_not_hold_heartbeats_back() -> None:
    script = Script().stable(0)
    script.wait(9_000)
    assert script.kinds() == ["Heartbeat"] * 3


def test_no_heartbeats_while_a_join_waits() -> None:
    """The coordinator keeps a member with a waiting join; heartbeats resume with its response."""
    script = Script().stable(0)
    script.member.enforce_rebalance(script.now_ms)
    script.wait(60_000)
    assert script.kinds() == ["JoinGroup"]
    script.join(2)
    script.wait(3_000)
    assert script.kinds() == ["SyncGroup", "Heartbeat"]


def test_a_rebalance_told_while_completing_is_no_news() -> None:
    """REBALANCE_IN_PROGRESS to a heartbeat between join and sync changes nothing."""
    script = Script().joining()
    script.join()
    script.refuse_heartbeat(ErrorCode.REBALANCE_IN_PROGRESS)
    assert script.kinds() == ["SyncGroup"]
    script.sync(0)
    assert script.kinds() == []


def test_a_silent_coordinator_is_lost() -> None:
    """No answer to heartbeats for session.timeout.ms: the coordinator is looked for again; requests to it are void."""
    script = Script(session_timeout_ms=10_000).stable(0)
    script.wait(10_000)
    reason = "session timed out without receiving a heartbeat response"
    assert script.told(CoordinatorLost) == [CoordinatorLost(NODE, reason)]
    lookup = script.sent[-1]
    assert isinstance(lookup.request, FindCoordinator)
    script.refuse(Heartbeat, ErrorCode.UNKNOWN_MEMBER_ID)
    assert script.member.state is MemberState.STABLE
    script.sent = [lookup]
    script.find()
    script.wait(1_000)
    assert script.kinds() == ["Heartbeat"]


def test_the_session_begins_anew_with_the_coordinator() -> None:
    """A coordinator that was found after a long time is not lost at once."""
    script = Script(session_timeout_ms=10_000).stable(0)
    script.wait(10_000)
    script.sent = script.sent[-1:]
    script.wait(20_000)
    script.sent = script.sent[-1:]
    script.forget()
    script.find()
    script.wait(9_000)
    assert script.told(CoordinatorLost) == []


def test_refused_heartbeats_are_repeated_sooner_and_ever_slower() -> None:
    """After an error that may pass, the next heartbeat comes after 100, 200, 400, 800, 1000 ms; then as usual."""
    script = Script().stable(0)
    script.wait(3_000)
    pauses = []
    for _ in range(6):
        script.refuse(Heartbeat, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
        deadline_ms = script.member.next_deadline_ms()
        assert deadline_ms is not None
        pauses.append(deadline_ms - script.now_ms)
        script.wait(pauses[-1])
    assert pauses == [100, 200, 400, 800, 1_000, 1_000]
    script.answer(Heartbeat, OK)
    assert script.member.next_deadline_ms() == script.now_ms + 3_000


# ---------------------------------------------------------------- the poll interval


def test_an_application_that_polls_too_rarely() -> None:
    """After max.poll.interval.ms without a poll it leaves; the next poll brings it back, at a loss."""
    script = Script(max_poll_interval_ms=20_000).stable(0, 1, poll_ms=0)
    for _ in range(6):
        script.wait(3_000)
        script.answer(Heartbeat, OK)
    script.wait(2_000)
    (leaving,) = script.request(LeaveGroup).members
    assert (leaving.member_id, leaving.reason) == (MEMBER_ID, "consumer poll timeout has expired.")
    assert script.events == [LeftGroup("consumer poll timeout has expired.", True)]
    assert (script.member.member_id, script.member.generation_id) == ("", -1)
    script.answer(LeaveGroup, LeaveGroupResponse(ErrorCode.NONE))
    script.wait(60_000)
    assert script.kinds() == []
    script.poll()
    assert script.told(PartitionsLost) == [PartitionsLost(partitions(0, 1))]


def test_a_static_member_that_polls_too_rarely() -> None:
    """KIP-345: it sends no leave, but forgets its generation and beats no more."""
    script = Script(group_instance_id="instance", max_poll_interval_ms=5_000).stable(0, poll_ms=0)
    script.wait(5_000)
    assert script.events == [LeftGroup("consumer poll timeout has expired.", False)]
    script.wait(60_000)
    assert script.kinds() == ["Heartbeat"]


def test_a_poll_without_coordinator_counts() -> None:
    """A poll counts without a coordinator: the member does not leave for that."""
    script = Script(max_poll_interval_ms=5_000).stable(0, poll_ms=0)
    script.member.disconnected(script.now_ms)
    for _ in range(10):
        script.wait(1_000)
        script.poll()
    assert script.told(LeftGroup) == []


def test_a_long_poll_counts_to_its_end() -> None:
    """The interval begins with the end of a poll that takes its time."""
    script = Script(max_poll_interval_ms=5_000, session_timeout_ms=200_000, request_timeout_ms=200_000).stable(
        0, poll_ms=100_000
    )
    script.wait(104_999)
    assert script.told(LeftGroup) == []
    script.wait(1)
    assert len(script.told(LeftGroup)) == 1


def test_a_join_answered_after_the_member_left() -> None:
    """The application unsubscribed while the join was on its way: its answer leads to no sync."""
    script = Script().stable(0)
    script.member.enforce_rebalance(script.now_ms)
    script.member.unsubscribe(script.now_ms)
    script.join(2)
    assert script.kinds() == ["LeaveGroup"]
    assert script.member.state is MemberState.UNJOINED
    script.member.subscribe(["topic"], script.now_ms)
    script.wait(100)
    assert script.request(JoinGroup).member_id == ""


def test_left_between_join_and_sync() -> None:
    """The poll interval is over before the sync's answer comes: the assignment is not taken."""
    script = Script(max_poll_interval_ms=5_000).joining(poll_ms=0)
    script.join()
    script.wait(5_000)
    script.sync(0)
    script.poll()
    assert script.told(PartitionsAssigned) == []
    assert script.request(JoinGroup).member_id == ""


# ---------------------------------------------------------------- finding the coordinator


def test_lookups_go_to_any_broker_and_everything_else_to_the_coordinator() -> None:
    """Each request has its destination."""
    script = Script().subscribed()
    assert [send.to for send in script.sent] == [None]
    script.find()
    assert script.told(CoordinatorFound) == [CoordinatorFound(NODE)]
    assert [send.to for send in script.sent] == [NODE]


def test_lookups_are_repeated_ever_slower() -> None:
    """After 100, 200, 400, 800, then every 1000 ms; a successful lookup resets the backoff."""
    script = Script().subscribed()
    pauses = []
    for _ in range(6):
        script.find(ErrorCode.COORDINATOR_NOT_AVAILABLE)
        deadline_ms = script.member.next_deadline_ms()
        assert deadline_ms is not None
        pauses.append(deadline_ms - script.now_ms)
        script.wait(pauses[-1])
    assert pauses == [100, 200, 400, 800, 1_000, 1_000]
    script.find()
    script.member.disconnected(script.now_ms)
    script.find(ErrorCode.COORDINATOR_NOT_AVAILABLE)
    assert script.member.next_deadline_ms() == script.now_ms + 100


def test_a_lookup_without_answer_is_repeated() -> None:
    """After request.timeout.ms it counts as failed."""
    script = Script(request_timeout_ms=4_000).subscribed()
    script.wait(4_000)
    script.sent.clear()
    script.wait(100)
    assert script.kinds() == ["FindCoordinator"]


def test_a_join_without_answer_is_waited_for_longer() -> None:
    """A join may wait for the whole rebalance time-out and 5 s; then the connection counts as lost."""
    script = Script(max_poll_interval_ms=60_000).joining()
    script.wait(64_999)
    assert script.kinds() == ["JoinGroup"]
    script.wait(1)
    assert script.told(CoordinatorLost) == [CoordinatorLost(NODE, "a request timed out")]
    assert script.kinds() == ["JoinGroup", "FindCoordinator"]


def test_a_sync_without_answer() -> None:
    """After request.timeout.ms the coordinator is looked for; the member joins again with its id."""
    script = Script(request_timeout_ms=2_000).joining()
    script.join()
    script.wait(2_000)
    script.sent = [send for send in script.sent if isinstance(send.request, FindCoordinator)]
    script.find()
    script.wait(100)
    assert script.request(JoinGroup).member_id == MEMBER_ID


def test_joins_are_repeated_at_a_fixed_pace() -> None:
    """Java's consumer repeats joins every retry.backoff.ms, without growing pauses."""
    script = Script(retry_backoff_ms=150).joining()
    for _ in range(4):
        script.refuse(JoinGroup, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
        assert script.member.next_deadline_ms() == script.now_ms + 150
        script.wait(150)


def test_late_and_strange_answers_are_left_aside() -> None:
    """An answer to a request that was given up, or never sent, changes nothing."""
    script = Script().stable(0)
    script.member.receive(999, OK, script.now_ms)
    script.member.request_failed(999, ErrorCode.NETWORK_EXCEPTION, script.now_ms)
    assert (script.kinds(), script.events, script.member.state) == ([], [], MemberState.STABLE)


def test_a_version_that_the_broker_lacks() -> None:
    """A request that can't be sent for its version fails the member."""
    script = Script().joining()
    script.lose(JoinGroup, ErrorCode.UNSUPPORTED_VERSION)
    (failed,) = script.told(Failed)
    assert (failed.api, failed.error_code) == ("JoinGroup", ErrorCode.UNSUPPORTED_VERSION)


def test_commits_in_a_version_that_the_broker_lacks() -> None:
    """A commit or an offset fetch that can't be sent ends with the error; the member continues."""
    script = Script().stable(0)
    script.member.commit_sync({partitions(0)[0]: 1}, script.now_ms)
    script.member.fetch_offsets(partitions(0), script.now_ms)
    script.lose(OffsetCommit, ErrorCode.UNSUPPORTED_VERSION)
    script.lose(OffsetFetch, ErrorCode.UNSUPPORTED_VERSION)
    assert [event.error_code for event in script.told(CommitCompleted)] == [ErrorCode.UNSUPPORTED_VERSION]
    assert [event.error_code for event in script.told(OffsetsFetched)] == [ErrorCode.UNSUPPORTED_VERSION]
    assert script.member.state is MemberState.STABLE


def test_waits_have_no_jitter_unless_a_source_is_given() -> None:
    """Without a random source the member waits exactly the specified times."""
    member = Member(MemberConfig(group_id=GROUP), now_ms=START_MS)
    member.subscribe(["topic"], START_MS)
    member.poll(START_MS, 1_000)
    (send,) = [output for output in member.take_outputs() if isinstance(output, Send)]
    member.request_failed(send.request_id, ErrorCode.NETWORK_EXCEPTION, START_MS)
    assert member.next_deadline_ms() == START_MS + 100


# ---------------------------------------------------------------- back-off


@as_one_test
@pytest.mark.parametrize(
    ("initial_ms", "longest_ms", "attempts", "random", "expected"),
    [
        (100, 1_000, 0, 0.5, 100),
        (100, 1_000, 1, 0.5, 200),
        (100, 1_000, 3, 0.5, 800),
        (100, 1_000, 4, 0.5, 1_000),
        (100, 1_000, 10**6, 0.5, 1_000),
        (100, 1_000, 0, 0.0, 80),
        (100, 1_000, 1, 0.999999, 239),
        (100, 1_000, 9, 0.0, 800),
        (100, 1_000, 9, 0.999999, 1_000),
        (100, 100, 5, 0.0, 100),
        (500, 200, 5, 0.0, 200),
        (0, 1_000, 5, 0.5, 0),
    ],
)
def test_waits(initial_ms: int, longest_ms: int, attempts: int, random: float, expected: int) -> None:
    """Doubled with each try, 20 % jitter, never above the longest; constant where there is nothing to grow."""
    assert ExponentialBackoff(initial_ms, longest_ms, lambda: random).wait_ms(attempts) == expected


def test_the_jitter_is_injected() -> None:
    """The same source gives the same waits; another one others."""
    for random, expected in ((0.0, 80), (0.25, 90), (0.75, 110)):
        script = Script(random=random).subscribed()
        script.find(ErrorCode.COORDINATOR_NOT_AVAILABLE)
        assert script.member.next_deadline_ms() == script.now_ms + expected


# ---------------------------------------------------------------- failing, and going on


def test_going_on_after_a_failure() -> None:
    """The member's partitions are lost; it joins again with its id."""
    script = Script().stable(0)
    script.member.enforce_rebalance(script.now_ms)
    script.refuse(JoinGroup, ErrorCode.GROUP_AUTHORIZATION_FAILED)
    assert script.member.state is MemberState.FAILED
    script.poll(100)
    assert script.kinds() == []
    script.member.recover(script.now_ms)
    script.poll()
    assert script.request(JoinGroup).member_id == MEMBER_ID


def test_going_on_after_a_failure_loses_partitions() -> None:
    """Partitions at the failure get a lost event before the join."""
    script = Script([], group_instance_id="instance", partition_assignment_strategy=())
    with pytest.raises(IllegalCallError):
        script.member.recover(script.now_ms)
    script = Script(group_instance_id="instance").stable(0)
    script.refuse_heartbeat(ErrorCode.FENCED_INSTANCE_ID)
    assert script.member.assignment == partitions(0)
    script.member.recover(script.now_ms)
    script.poll()
    assert script.told(PartitionsLost) == [PartitionsLost(partitions(0))]
    assert script.request(JoinGroup).member_id == ""


def test_going_on_while_a_join_is_under_way() -> None:
    """The answer to the join of before is left aside, and not taken for that to the next."""
    script = Script().stable(0)
    script.wait(3_000)
    script.member.enforce_rebalance(script.now_ms)
    script.poll(100)
    (former,) = [send for send in script.sent if isinstance(send.request, JoinGroup)]
    script.answer(Heartbeat, JoinGroupResponse(ErrorCode.NONE))
    assert script.member.state is MemberState.FAILED
    script.sent.remove(former)
    script.member.recover(script.now_ms)
    script.poll(100)
    script.member.receive(former.request_id, JoinGroupResponse(ErrorCode.NONE, 2, MEMBER_ID), script.now_ms)
    assert script.kinds() == ["JoinGroup"]
    assert script.member.state is MemberState.PREPARING_REBALANCE


def test_steadiness() -> None:
    """Steady: in the group, nothing under way, nothing to be done but heartbeats."""
    script = Script().joining()
    assert not script.member.is_steady
    script.join()
    script.sync(0)
    assert script.member.is_steady
    script.member.commit_async({partitions(0)[0]: 1}, script.now_ms)
    assert not script.member.is_steady
    script.committed()
    assert script.member.is_steady
    script.member.enforce_rebalance(script.now_ms)
    assert not script.member.is_steady
    script.join(2)
    assert script.request(SyncGroup).generation_id == 2
