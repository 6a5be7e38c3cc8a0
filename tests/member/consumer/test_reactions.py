"""What a member of a consumer group does about each error of each API: every pair, against the table written out here.

The expectations are those of the response handlers of Kafka 4.4's Java consumer.
"""

from __future__ import annotations

import pytest

from groupcoord.errors import ErrorCode
from groupcoord.member import (
    CommitCompleted,
    CommitFailure,
    Failed,
    MemberState,
    OffsetsFetched,
    PartitionsLost,
    Reaction,
    RequestRefused,
    reaction_to,
)
from groupcoord.messages import (
    ConsumerGroupHeartbeat,
    FindCoordinator,
    OffsetCommit,
    OffsetFetch,
)
from tests.tables import as_one_test

from ..script import FOREVER_MS, INTERVAL_MS, OWNED, Script
from ..test_reactions import FIND, LONGEST_PAUSE_MS, RETRIABLE, Case, Table, cases_of, name_of
from .scripted import MEMBER_ID, ConsumerScript

E = ErrorCode
FENCED = (E.FENCED_MEMBER_EPOCH, E.UNKNOWN_MEMBER_ID)

TABLE: Table = {
    FindCoordinator: (Reaction.REPORT, {Reaction.RETRY: RETRIABLE}),
    ConsumerGroupHeartbeat: (
        Reaction.FAIL,
        {
            Reaction.RETRY: (E.COORDINATOR_LOAD_IN_PROGRESS,),
            Reaction.FIND_COORDINATOR: FIND,
            Reaction.RESET_GENERATION: FENCED,
            Reaction.REPORT: (E.TOPIC_AUTHORIZATION_FAILED,),
        },
    ),
    OffsetCommit: (
        Reaction.REPORT,
        {
            Reaction.RETRY: (E.COORDINATOR_LOAD_IN_PROGRESS, E.UNKNOWN_TOPIC_OR_PARTITION, E.UNKNOWN_TOPIC_ID),
            Reaction.FIND_COORDINATOR: (*FIND, E.REQUEST_TIMED_OUT),
            Reaction.OUT_OF_GROUP: (E.UNKNOWN_MEMBER_ID,),
            Reaction.TAKE_EPOCH: (E.STALE_MEMBER_EPOCH,),
        },
    ),
    OffsetFetch: (
        Reaction.REPORT,
        {
            Reaction.RETRY: tuple(code for code in RETRIABLE if code not in FIND),
            Reaction.FIND_COORDINATOR: FIND,
            Reaction.TAKE_EPOCH: (E.STALE_MEMBER_EPOCH,),
        },
    ),
}


# ---------------------------------------------------------------- what must follow


def check_repeated(script: Script, api: type) -> None:
    assert api.__name__ not in script.kinds(), "there is a pause"
    script.wait(LONGEST_PAUSE_MS)
    assert script.kinds()[0] == api.__name__
    assert script.member.coordinator is not None or api is FindCoordinator


def check_reported(script: Script, case: Case, failure: CommitFailure = CommitFailure.ERROR) -> None:
    assert not script.told(Failed)
    if case.api is OffsetCommit:
        (done,) = script.told(CommitCompleted)
        assert (done.failure, done.error_code) == (failure, case.error_code)
    elif case.api is OffsetFetch:
        (fetched,) = script.told(OffsetsFetched)
        assert (fetched.offsets, fetched.error_code) == ({}, case.error_code)
    else:
        (refused,) = script.told(RequestRefused)
        assert (refused.api, refused.error_code) == (case.api.__name__, case.error_code)
        check_repeated(script, case.api)


def check_fenced(script: Script) -> None:
    assert script.told(PartitionsLost) == [PartitionsLost(OWNED)]
    (heartbeat,) = [send.request for send in script.sent]
    assert isinstance(heartbeat, ConsumerGroupHeartbeat)
    assert (heartbeat.member_id, heartbeat.member_epoch) == (MEMBER_ID, 0)


def check_failed(script: Script, case: Case) -> None:
    (failed,) = script.told(Failed)
    assert (failed.api, failed.error_code) == (case.api.__name__, case.error_code)
    assert script.told(PartitionsLost) == [PartitionsLost(OWNED)]
    assert (script.member.state, script.member.assignment) == (MemberState.FAILED, ())
    script.wait(10 * INTERVAL_MS)
    script.poll(FOREVER_MS)
    assert script.kinds() == []


@as_one_test
@pytest.mark.parametrize("case", cases_of(TABLE), ids=name_of)
def test_reaction(case: Case) -> None:
    """The member acts as in the table, and ``reaction_to`` returns the same."""
    assert reaction_to(case.api, case.error_code, "consumer") is case.reaction
    script = ConsumerScript().come_to(case.api)
    if case.api is OffsetFetch:
        (fetch,) = script.request(OffsetFetch).groups
        assert (fetch.member_id, fetch.member_epoch) == (MEMBER_ID, 1)
    script.refuse(case.api, case.error_code)
    if case.reaction is Reaction.RETRY:
        check_repeated(script, case.api)
    elif case.reaction is Reaction.FIND_COORDINATOR:
        script.wait(LONGEST_PAUSE_MS)
        assert (script.kinds(), script.member.coordinator) == (["FindCoordinator"], None)
        script.find()
        script.wait(LONGEST_PAUSE_MS)
        assert case.api.__name__ in script.kinds()
    elif case.reaction is Reaction.RESET_GENERATION:
        check_fenced(script)
    elif case.reaction is Reaction.TAKE_EPOCH and case.api is OffsetFetch:
        check_repeated(script, case.api)
    elif case.reaction in (Reaction.TAKE_EPOCH, Reaction.OUT_OF_GROUP):
        check_reported(script, case, CommitFailure.COMMIT_FAILED)
    elif case.reaction is Reaction.REPORT:
        check_reported(script, case)
    else:
        check_failed(script, case)


def test_a_stale_commit_that_is_asynchronous() -> None:
    """Unlike a synchronous one it fails as the error that it met, as in Java."""
    script = ConsumerScript().in_group(0)
    script.member.commit_async({OWNED[0]: 7}, script.now_ms)
    script.committed(E.STALE_MEMBER_EPOCH)
    script.poll(FOREVER_MS)
    (done,) = script.told(CommitCompleted)
    assert (done.failure, done.error_code) == (CommitFailure.ERROR, E.STALE_MEMBER_EPOCH)


def test_a_stale_fetch_outside_of_the_group() -> None:
    script = ConsumerScript().in_group(0)
    script.member.fetch_offsets(OWNED, script.now_ms)
    script.wait(INTERVAL_MS)
    script.beat(0, error_code=E.FENCED_MEMBER_EPOCH)
    script.refuse(OffsetFetch, E.STALE_MEMBER_EPOCH)
    (fetched,) = script.told(OffsetsFetched)
    assert fetched.error_code is E.STALE_MEMBER_EPOCH


def test_commits_outside_of_the_group() -> None:
    """They are sent all the same, and the coordinator judges: before the first epoch without a member, then with it."""
    script = ConsumerScript(group_instance_id="instance").joining()
    script.member.commit_sync({OWNED[0]: 7}, script.now_ms)
    commit = script.request(OffsetCommit)
    assert (commit.generation_id, commit.member_id, commit.group_instance_id) == (-1, "", "instance")
    script.committed()
    script.beat(4, 0)
    script.beat(4)
    script.member.unsubscribe(script.now_ms)
    script.member.commit_sync({OWNED[0]: 8}, script.now_ms)
    commit = script.request(OffsetCommit)
    assert (commit.generation_id, commit.member_id) == (-1, MEMBER_ID)


def test_asynchronous_commits_wait_for_the_coordinator() -> None:
    """A lookup that fails with what may pass does not fail them; one that is refused does."""
    script = ConsumerScript().in_group(0)
    script.member.disconnected(script.now_ms)
    script.member.commit_async({OWNED[0]: 7}, script.now_ms)
    script.find(E.COORDINATOR_NOT_AVAILABLE)
    assert script.told(CommitCompleted) == []
    script.wait(LONGEST_PAUSE_MS)
    script.find()
    script.committed()
    script.poll(FOREVER_MS)
    assert [done.failure for done in script.told(CommitCompleted)] == [None]
    script.member.disconnected(script.now_ms)
    script.member.commit_async({OWNED[0]: 8}, script.now_ms)
    script.find(E.GROUP_AUTHORIZATION_FAILED)
    script.poll(FOREVER_MS)
    assert script.told(CommitCompleted)[-1].error_code is E.GROUP_AUTHORIZATION_FAILED


def test_a_broker_that_does_not_know_the_api() -> None:
    """A host that can't send the heartbeat reports it, and the member fails."""
    script = ConsumerScript().joining()
    script.lose(ConsumerGroupHeartbeat, E.UNSUPPORTED_VERSION)
    (failed,) = script.told(Failed)
    assert (failed.error_code, failed.message) == (
        E.UNSUPPORTED_VERSION,
        "the broker does not know consumer groups (KIP-848)",
    )


def test_a_join_without_an_assignment() -> None:
    """A response to a join without an assignment, even an empty one, is requested again after a pause."""
    script = ConsumerScript().joining()
    script.beat(3)
    assert (script.member.state, script.kinds()) == (MemberState.JOINING, [])
    script.wait(LONGEST_PAUSE_MS)
    assert (script.heartbeat.member_epoch, script.heartbeat.subscribed_topic_names) == (3, ("topic",))


def test_who_is_no_coordinator_is_not_asked_without_a_pause() -> None:
    """A node that is found and says each time that it isn't the coordinator is looked for again after a pause, as by
    Java's ``CoordinatorRequestManager``: brokers that disagree are not asked as often as messages travel.
    """
    script = ConsumerScript().come_to(ConsumerGroupHeartbeat)
    script.refuse(ConsumerGroupHeartbeat, E.NOT_COORDINATOR)
    script.wait(LONGEST_PAUSE_MS)
    script.find()

    script.refuse(ConsumerGroupHeartbeat, E.NOT_COORDINATOR)

    assert script.kinds() == []
    script.wait(LONGEST_PAUSE_MS)
    assert script.kinds() == ["FindCoordinator"]
