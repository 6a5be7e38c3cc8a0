"""Commits: synchronous, asynchronous, automatic; in order, repeated or not, in the midst of rebalances."""

from __future__ import annotations

import pytest

from groupcoord.core.log.records import ZERO_UUID
from groupcoord.errors import ErrorCode
from groupcoord.member import (
    CommitCompleted,
    CommitFailure,
    Failed,
    IllegalCallError,
    MemberState,
    OffsetAndMetadata,
    OffsetsFetched,
    PartitionsLost,
    PartitionsRevoked,
    TopicPartition,
)
from groupcoord.messages import (
    FetchedGroup,
    FetchedOffset,
    FetchedTopic,
    JoinGroup,
    OffsetCommit,
    OffsetCommitResponse,
    OffsetFetch,
    OffsetFetchResponse,
    PartitionResult,
    SyncGroup,
    TopicResult,
)
from tests.tables import as_one_test

from .script import FOREVER_MS, GROUP, MEMBER_ID, TOPIC, Script, partitions

E = ErrorCode
P0, P1, P2 = partitions(0, 1, 2)


def outcomes(script: Script) -> list[tuple[int, CommitFailure | None]]:
    return [(done.commit_id, done.failure) for done in script.told(CommitCompleted)]


# ---------------------------------------------------------------- what is sent


def test_what_a_commit_says() -> None:
    """Generation, member, and per topic each partition's offset, leader epoch and metadata."""
    script = Script().stable(0, 1)
    offsets = {P0: 5, TopicPartition("other", 3): OffsetAndMetadata(7, 2, "half way"), P1: 6}
    commit_id = script.member.commit_sync(offsets, script.now_ms)
    commit = script.request(OffsetCommit)
    assert (commit.group_id, commit.generation_id, commit.member_id) == (GROUP, 1, MEMBER_ID)
    said = {
        topic.name: [
            (p.partition_index, p.committed_offset, p.committed_leader_epoch, p.committed_metadata)
            for p in topic.partitions
        ]
        for topic in commit.topics
    }
    assert said == {TOPIC: [(0, 5, -1, ""), (1, 6, -1, "")], "other": [(3, 7, 2, "half way")]}
    script.committed()
    (done,) = script.told(CommitCompleted)
    assert (done.commit_id, done.failure, done.error_code) == (commit_id, None, E.NONE)
    assert done.offsets[P0] == OffsetAndMetadata(5)


def test_a_negative_offset_is_refused() -> None:
    script = Script().stable(0)
    with pytest.raises(ValueError, match="an offset can't be -1"):
        script.member.commit_async({P0: -1}, script.now_ms)


# ---------------------------------------------------------------- asynchronous


def test_asynchronous_commits_are_told_in_order_and_in_polls() -> None:
    """All are sent at once; their completions are events of the next poll, in the order of the responses."""
    script = Script().stable(0, poll_ms=0)
    first = script.member.commit_async({P0: 1}, script.now_ms)
    second = script.member.commit_async({P0: 2}, script.now_ms)
    assert script.kinds() == ["OffsetCommit"] * 2
    script.committed()
    script.committed(E.NOT_COORDINATOR)
    assert outcomes(script) == []
    script.poll()
    assert outcomes(script) == [(first, None), (second, CommitFailure.RETRIABLE)]
    assert "OffsetCommit" not in script.kinds()


def test_a_later_commit_tells_of_earlier_ones() -> None:
    script = Script().stable(0, poll_ms=0)
    first = script.member.commit_async({P0: 1}, script.now_ms)
    script.committed()
    second = script.member.commit_async({P0: 2}, script.now_ms)
    assert outcomes(script) == [(first, None)]
    script.committed()
    third = script.member.commit_sync({P0: 3}, script.now_ms)
    script.committed()
    assert outcomes(script) == [(first, None), (second, None), (third, None)]


def test_an_empty_synchronous_commit_waits_for_asynchronous_ones() -> None:
    """It completes when all pending ones have, and after their events."""
    script = Script().stable(0, poll_ms=0)
    first = script.member.commit_async({P0: 1}, script.now_ms)
    empty = script.member.commit_sync({}, script.now_ms)
    assert outcomes(script) == []
    script.committed()
    assert outcomes(script) == [(first, None), (empty, None)]


def test_an_empty_commit_is_done_at_once() -> None:
    script = Script().stable(0)
    asynchronous = script.member.commit_async({}, script.now_ms)
    synchronous = script.member.commit_sync({}, script.now_ms)
    assert outcomes(script) == [(asynchronous, None), (synchronous, None)]
    assert script.kinds() == []


def test_asynchronous_commits_wait_for_one_lookup() -> None:
    script = Script().stable(0, poll_ms=0)
    script.member.disconnected(script.now_ms)
    script.member.commit_async({P0: 1}, script.now_ms)
    script.member.commit_async({P0: 2}, script.now_ms)
    assert script.kinds() == ["FindCoordinator"]
    script.find()
    sent = [send.request for send in script.sent if isinstance(send.request, OffsetCommit)]
    assert [commit.topics[0].partitions[0].committed_offset for commit in sent] == [1, 2]


def test_asynchronous_commits_fail_with_the_lookup() -> None:
    """They are not kept for another lookup: newer commits could be overtaken."""
    script = Script().stable(0, poll_ms=0)
    script.member.disconnected(script.now_ms)
    first = script.member.commit_async({P0: 1}, script.now_ms)
    script.find(E.COORDINATOR_NOT_AVAILABLE)
    script.poll()
    assert outcomes(script) == [(first, CommitFailure.RETRIABLE)]


def test_a_fenced_asynchronous_commit_fails_the_member() -> None:
    """KIP-345: another member has the instance id; this one is done."""
    script = Script(group_instance_id="instance").stable(0)
    first = script.member.commit_async({P0: 1}, script.now_ms)
    script.committed(E.FENCED_INSTANCE_ID)
    assert script.member.state is MemberState.FAILED
    assert script.told(Failed)[0].error_code is E.FENCED_INSTANCE_ID
    assert outcomes(script) == [(first, CommitFailure.ERROR)]


def test_a_failed_member_commits_nothing() -> None:
    """Commits and questions that come after a failure, or wait for the coordinator, end at once; nothing is sent."""
    script = Script().stable(0)
    script.member.disconnected(script.now_ms)
    waiting = [script.member.commit_async({P0: 1}, script.now_ms), script.member.commit_sync({P0: 1}, script.now_ms)]
    script.find(E.GROUP_AUTHORIZATION_FAILED)
    assert script.told(Failed)
    later = [script.member.commit_sync({P0: 1}, script.now_ms), script.member.commit_async({P0: 1}, script.now_ms)]
    script.member.fetch_offsets([P0], script.now_ms)
    failures = dict(outcomes(script))
    assert failures == {waiting[0]: CommitFailure.RETRIABLE} | dict.fromkeys([waiting[1], *later], CommitFailure.ERROR)
    assert [done.error_code for done in script.told(OffsetsFetched)] == [E.UNKNOWN_SERVER_ERROR]
    assert script.kinds() == []


# ---------------------------------------------------------------- synchronous


def test_synchronous_commits_are_repeated_ever_slower() -> None:
    """While errors may pass: after 100, 200, 400 ms; polls or not."""
    script = Script().stable(0, poll_ms=0)
    commit_id = script.member.commit_sync({P0: 1}, script.now_ms)
    for pause_ms in (100, 200, 400):
        script.committed(E.COORDINATOR_LOAD_IN_PROGRESS)
        script.wait(pause_ms - 1)
        assert script.kinds() == []
        script.wait(1)
        assert script.kinds() == ["OffsetCommit"]
    script.committed()
    assert outcomes(script) == [(commit_id, None)]


@pytest.mark.parametrize("answered", [True, False])
def test_a_synchronous_commit_ends_in_time(answered: bool) -> None:
    """Repeated or without an answer: when its time is over, it has failed; a late answer changes nothing."""
    script = Script().stable(0, poll_ms=0)
    commit_id = script.member.commit_sync({P0: 1}, script.now_ms, timeout_ms=1_000)
    if answered:
        script.committed(E.COORDINATOR_LOAD_IN_PROGRESS)
    script.wait(999)
    assert outcomes(script) == []
    script.wait(1)
    assert outcomes(script) == [(commit_id, CommitFailure.TIMED_OUT)]
    if not answered:
        script.committed()
        assert len(outcomes(script)) == 1


def test_a_synchronous_commit_without_coordinator() -> None:
    """It waits for any number of lookups, up to its timeout."""
    script = Script(default_api_timeout_ms=700).stable(0, poll_ms=0)
    script.member.disconnected(script.now_ms)
    commit_id = script.member.commit_sync({P0: 1}, script.now_ms)
    script.find(E.COORDINATOR_NOT_AVAILABLE)
    script.wait(100)
    script.find(E.COORDINATOR_NOT_AVAILABLE)
    script.wait(200)
    script.find()
    assert script.kinds() == ["OffsetCommit"]
    script.wait(400)
    assert outcomes(script) == [(commit_id, CommitFailure.TIMED_OUT)]


def test_the_first_error_counts() -> None:
    """Partitions are looked at in the order of the answer; only a denied topic lets the others be looked at."""
    script = Script().stable(0, 1, 2)
    script.member.commit_sync({P0: 1, P1: 1, P2: 1}, script.now_ms)
    topic = script.request(OffsetCommit).topics[0]
    codes = (E.TOPIC_AUTHORIZATION_FAILED, E.OFFSET_METADATA_TOO_LARGE, E.UNKNOWN_MEMBER_ID)
    results = tuple(PartitionResult(number, code) for number, code in enumerate(codes))
    script.answer(OffsetCommit, OffsetCommitResponse((TopicResult(TOPIC, topic.topic_id, results),)))
    (done,) = script.told(CommitCompleted)
    assert (done.failure, done.error_code) == (CommitFailure.ERROR, E.OFFSET_METADATA_TOO_LARGE)
    assert script.member.state is MemberState.STABLE


def test_a_denied_topic() -> None:
    script = Script().stable(0)
    script.member.commit_sync({P0: 1}, script.now_ms)
    script.committed(E.TOPIC_AUTHORIZATION_FAILED)
    (done,) = script.told(CommitCompleted)
    assert (done.failure, done.error_code) == (CommitFailure.ERROR, E.TOPIC_AUTHORIZATION_FAILED)
    assert TOPIC in done.message


# ---------------------------------------------------------------- in a rebalance


def test_a_commit_while_the_member_rebalances() -> None:
    """It fails at once, without a request: the application has to poll first."""
    script = Script().stable(0)
    script.member.enforce_rebalance(script.now_ms)
    commit_id = script.member.commit_sync({P0: 1}, script.now_ms)
    assert outcomes(script) == [(commit_id, CommitFailure.REBALANCE_IN_PROGRESS)]
    assert script.kinds() == ["JoinGroup"]
    script.join(2)
    commit_id = script.member.commit_async({P0: 1}, script.now_ms)
    assert outcomes(script)[1:] == [(commit_id, CommitFailure.REBALANCE_IN_PROGRESS)]


def test_a_commit_outside_of_the_group() -> None:
    """Outside of the group, a commit fails at once: other members may own the partitions."""
    script = Script(max_poll_interval_ms=5_000).stable(0, poll_ms=0)
    script.wait(5_000)
    commit_id = script.member.commit_sync({P0: 1}, script.now_ms)
    assert outcomes(script) == [(commit_id, CommitFailure.COMMIT_FAILED)]


def test_the_group_rebalances_while_a_commit_is_on_its_way() -> None:
    """REBALANCE_IN_PROGRESS: the commit fails, the member joins again with the next poll and loses nothing."""
    script = Script(partition_assignment_strategy="cooperative-sticky").stable(0, poll_ms=0)
    commit_id = script.member.commit_sync({P0: 1}, script.now_ms)
    script.committed(E.REBALANCE_IN_PROGRESS)
    assert outcomes(script) == [(commit_id, CommitFailure.REBALANCE_IN_PROGRESS)]
    script.poll()
    assert script.request(JoinGroup).reason == "offset commit failed since group is already rebalancing"
    assert script.member.assignment == (P0,)


@as_one_test
@pytest.mark.parametrize("code", [E.ILLEGAL_GENERATION, E.UNKNOWN_MEMBER_ID, E.FENCED_INSTANCE_ID])
@pytest.mark.parametrize("phase", ["preparing", "completed"])
def test_a_stale_commit_is_refused(code: ErrorCode, phase: str) -> None:
    """The answer is about a generation that the member has left: in a rebalance it just fails the commit.

    After it, ILLEGAL_GENERATION and UNKNOWN_MEMBER_ID reset the member all the same, as they do Java's.
    """
    settings = {"partition_assignment_strategy": "cooperative-sticky", "group_instance_id": "instance"}
    script = Script(**settings).stable(0)
    commit_id = script.member.commit_sync({P0: 1}, script.now_ms)
    script.member.enforce_rebalance(script.now_ms)
    script.join(2)
    if phase == "preparing":
        script.refuse(SyncGroup, E.REBALANCE_IN_PROGRESS)
        assert script.member.state is MemberState.PREPARING_REBALANCE
    else:
        script.sync(0)
    script.committed(code)
    failure = CommitFailure.REBALANCE_IN_PROGRESS if phase == "preparing" else CommitFailure.COMMIT_FAILED
    assert outcomes(script) == [(commit_id, failure)]
    assert script.member.state is not MemberState.FAILED
    was_reset = phase == "completed" and code is not E.FENCED_INSTANCE_ID
    assert bool(script.told(PartitionsLost)) == was_reset


# ---------------------------------------------------------------- automatic


def auto(*numbers: int, poll_ms: int = FOREVER_MS, **settings: object) -> Script:
    """A member that commits by itself, with a position for each of its partitions."""
    script = Script(enable_auto_commit=True, **settings).stable(*numbers, poll_ms=poll_ms)
    script.member.consumed({partition: 10 + partition.partition for partition in partitions(*numbers)})
    return script


def committed_positions(script: Script) -> list[tuple[int, int]]:
    (topic,) = script.request(OffsetCommit).topics
    return [(p.partition_index, p.committed_offset) for p in topic.partitions]


def test_automatic_commits() -> None:
    """Every auto.commit.interval.ms in a poll, all positions, counted from the assignment on."""
    script = auto(0, 1, auto_commit_interval_ms=2_000)
    script.wait(1_999)
    assert script.kinds() == []
    script.wait(1)
    assert committed_positions(script) == [(0, 10), (1, 11)]
    script.committed()
    assert outcomes(script) == [(0, None)]
    script.member.consumed({P1: 20})
    script.wait(2_000)
    assert committed_positions(script) == [(0, 10), (1, 20)]


def test_automatic_commits_wait_for_polls() -> None:
    script = auto(0, poll_ms=0)
    script.wait(12_000)
    assert "OffsetCommit" not in script.kinds()
    script.poll()
    assert committed_positions(script) == [(0, 10)]


def test_partitions_without_a_position_are_not_committed() -> None:
    script = Script(enable_auto_commit=True).stable(0)
    script.member.consumed({P1: 5})
    script.wait(20_000)
    assert "OffsetCommit" not in script.kinds()


def test_an_automatic_commit_is_repeated_soon() -> None:
    """After an error that may pass, the next one comes after retry.backoff.ms, with the positions of then."""
    script = auto(0)
    script.wait(5_000)
    script.committed(E.COORDINATOR_LOAD_IN_PROGRESS)
    script.member.consumed({P0: 12})
    script.wait(100)
    assert committed_positions(script) == [(0, 12)]


def test_commit_before_revocation() -> None:
    """Eager: positions are committed first, and nothing is read meanwhile; then revoked, then joined."""
    script = auto(0, 1)
    script.member.enforce_rebalance(script.now_ms)
    assert committed_positions(script) == [(0, 10), (1, 11)]
    assert script.kinds() == ["OffsetCommit"]
    assert script.told(PartitionsRevoked) == []
    assert (script.member.fetchable, script.member.assignment) == ((), (P0, P1))
    script.forget()
    script.committed()
    assert script.names() == ["CommitCompleted", "PartitionsRevoked"]
    assert script.kinds() == ["JoinGroup"]


def test_cooperative_reads_on_while_it_commits() -> None:
    script = auto(0, 1, partition_assignment_strategy="cooperative-sticky")
    script.member.enforce_rebalance(script.now_ms)
    assert script.kinds() == ["OffsetCommit"]
    assert script.member.fetchable == (P0, P1)


def test_a_commit_before_revocation_is_repeated() -> None:
    """Errors that may pass hold the rebalance up, every retry.backoff.ms, no longer than the rebalance may take."""
    script = auto(0, max_poll_interval_ms=6_000)
    script.member.enforce_rebalance(script.now_ms)
    for _ in range(3):
        script.committed(E.COORDINATOR_LOAD_IN_PROGRESS)
        assert script.kinds() == []
        script.wait(100)
        assert script.kinds() == ["OffsetCommit"]
    script.wait(5_700)
    assert script.told(PartitionsRevoked) == [PartitionsRevoked((P0,))]
    assert "JoinGroup" in script.kinds()


@pytest.mark.parametrize("code", [E.UNKNOWN_SERVER_ERROR, E.REBALANCE_IN_PROGRESS])
def test_a_commit_before_revocation_that_fails(code: ErrorCode) -> None:
    script = auto(0)
    script.member.enforce_rebalance(script.now_ms)
    script.committed(code)
    assert script.told(PartitionsRevoked) == [PartitionsRevoked((P0,))]
    assert script.kinds() == ["JoinGroup"]


def test_put_out_while_committing_before_revocation() -> None:
    """The commit shows that the member was removed: its partitions are lost, not revoked."""
    script = auto(0)
    script.member.enforce_rebalance(script.now_ms)
    script.committed(E.UNKNOWN_MEMBER_ID)
    assert script.told(PartitionsLost) == [PartitionsLost((P0,))]
    assert script.told(PartitionsRevoked) == []
    assert script.request(JoinGroup).member_id == ""


def test_heartbeats_go_on_while_committing_before_revocation() -> None:
    script = auto(0)
    script.refuse_heartbeat(E.REBALANCE_IN_PROGRESS)
    assert script.kinds() == ["OffsetCommit"]
    script.wait(3_000)
    assert script.kinds() == ["OffsetCommit", "Heartbeat"]


# ---------------------------------------------------------------- fetching committed offsets


def fetched(*offsets: tuple[int, int, ErrorCode]) -> OffsetFetchResponse:
    found = tuple(FetchedOffset(number, offset, 3, "note", code) for number, offset, code in offsets)
    return OffsetFetchResponse((FetchedGroup(GROUP, E.NONE, (FetchedTopic(TOPIC, ZERO_UUID, found),)),))


def test_committed_offsets() -> None:
    """One request names all partitions and wants stable offsets; a partition without an offset is None."""
    script = Script().stable(0, 1)
    fetch_id = script.member.fetch_offsets([P0, P1], script.now_ms)
    request = script.request(OffsetFetch)
    assert request.require_stable
    (group,) = request.groups
    assert group.topics is not None
    assert [(topic.name, topic.partition_indexes) for topic in group.topics] == [(TOPIC, (0, 1))]
    script.answer(OffsetFetch, fetched((0, 42, E.NONE), (1, -1, E.NONE)))
    expected = {P0: OffsetAndMetadata(42, 3, "note"), P1: None}
    assert script.told(OffsetsFetched) == [OffsetsFetched(fetch_id, expected)]


def test_unstable_offsets_are_asked_for_again() -> None:
    """KIP-447: while a transaction is open, the question is repeated."""
    script = Script().stable(0)
    script.member.fetch_offsets([P0], script.now_ms)
    script.answer(OffsetFetch, fetched((0, -1, E.UNSTABLE_OFFSET_COMMIT)))
    script.wait(100)
    assert script.kinds() == ["OffsetFetch"]


@pytest.mark.parametrize("code", [E.TOPIC_AUTHORIZATION_FAILED, E.UNKNOWN_TOPIC_OR_PARTITION, E.UNKNOWN_SERVER_ERROR])
def test_a_partition_that_cant_be_asked_for(code: ErrorCode) -> None:
    script = Script().stable(0)
    fetch_id = script.member.fetch_offsets([P0], script.now_ms)
    script.answer(OffsetFetch, fetched((0, -1, code)))
    (done,) = script.told(OffsetsFetched)
    assert (done.fetch_id, done.error_code) == (fetch_id, code)


def test_a_question_ends_in_time() -> None:
    """Without an answer it ends with REQUEST_TIMED_OUT; for no partitions it ends at once."""
    script = Script().stable(0)
    first = script.member.fetch_offsets([], script.now_ms)
    second = script.member.fetch_offsets([P0], script.now_ms, timeout_ms=500)
    script.wait(500)
    told = [(done.fetch_id, done.error_code) for done in script.told(OffsetsFetched)]
    assert told == [(first, E.NONE), (second, E.REQUEST_TIMED_OUT)]


def test_nothing_to_commit_to() -> None:
    script = Script(group_id=None)
    with pytest.raises(IllegalCallError, match=r"group\.id"):
        script.member.commit_sync({P0: 1}, script.now_ms)
    with pytest.raises(IllegalCallError, match=r"group\.id"):
        script.member.fetch_offsets([P0], script.now_ms)
