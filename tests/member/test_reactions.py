"""What a member does about each error of each API: every pair of the two, against the table written out here.

The expectations are those of the response handlers of Kafka 4.4's Java consumer.
"""

from __future__ import annotations

from typing import NamedTuple

import pytest

from groupcoord.errors import ErrorCode
from groupcoord.member import (
    Closed,
    CommitCompleted,
    CommitFailure,
    Failed,
    MemberState,
    OffsetsFetched,
    PartitionsLost,
    Reaction,
    reaction_to,
)
from groupcoord.messages import (
    FindCoordinator,
    Heartbeat,
    JoinGroup,
    LeaveGroup,
    OffsetCommit,
    OffsetFetch,
    SyncGroup,
)
from tests.tables import as_one_test

from .script import MEMBER_ID, OWNED, Script

E = ErrorCode
LONGEST_PAUSE_MS = 1_000

RETRIABLE = (
    *(E.CORRUPT_MESSAGE, E.UNKNOWN_TOPIC_OR_PARTITION, E.LEADER_NOT_AVAILABLE, E.NOT_LEADER_OR_FOLLOWER),
    *(E.REQUEST_TIMED_OUT, E.REPLICA_NOT_AVAILABLE, E.NETWORK_EXCEPTION, E.COORDINATOR_LOAD_IN_PROGRESS),
    *(E.COORDINATOR_NOT_AVAILABLE, E.NOT_COORDINATOR, E.NOT_ENOUGH_REPLICAS, E.NOT_ENOUGH_REPLICAS_AFTER_APPEND),
    *(E.NOT_CONTROLLER, E.CONCURRENT_TRANSACTIONS, E.KAFKA_STORAGE_ERROR, E.FETCH_SESSION_ID_NOT_FOUND),
    *(E.INVALID_FETCH_SESSION_EPOCH, E.LISTENER_NOT_FOUND, E.FENCED_LEADER_EPOCH, E.UNKNOWN_LEADER_EPOCH),
    *(E.OFFSET_NOT_AVAILABLE, E.PREFERRED_LEADER_NOT_AVAILABLE, E.ELIGIBLE_LEADERS_NOT_AVAILABLE),
    *(E.ELECTION_NOT_NEEDED, E.UNSTABLE_OFFSET_COMMIT, E.THROTTLING_QUOTA_EXCEEDED, E.UNKNOWN_TOPIC_ID),
    *(E.INCONSISTENT_TOPIC_ID, E.FETCH_SESSION_TOPIC_ID_ERROR, E.SHARE_SESSION_NOT_FOUND),
    *(E.INVALID_SHARE_SESSION_EPOCH, E.SHARE_SESSION_LIMIT_REACHED),
)
"""Asked of the Java client: ``Errors.exception() instanceof RetriableException``."""

FIND, AGAIN, GENERATION, MEMBER = (
    (E.COORDINATOR_NOT_AVAILABLE, E.NOT_COORDINATOR),
    *(
        (E.REBALANCE_IN_PROGRESS,),
        (E.ILLEGAL_GENERATION,),
        (E.UNKNOWN_MEMBER_ID,),
    ),
)

Table = dict[type, tuple[Reaction, dict[Reaction, tuple[ErrorCode, ...]]]]
"""For each API, what follows on any error, and what on these."""

TABLE: Table = {
    FindCoordinator: (Reaction.FAIL, {Reaction.RETRY: RETRIABLE}),
    JoinGroup: (
        Reaction.FAIL,
        {
            Reaction.RETRY: (E.COORDINATOR_LOAD_IN_PROGRESS,),
            Reaction.FIND_COORDINATOR: FIND,
            Reaction.REJOIN: AGAIN,
            Reaction.RESET_MEMBER_ID: MEMBER,
            Reaction.TAKE_MEMBER_ID: (E.MEMBER_ID_REQUIRED,),
        },
    ),
    SyncGroup: (
        Reaction.FAIL,
        {
            Reaction.FIND_COORDINATOR: FIND,
            Reaction.REJOIN: AGAIN,
            Reaction.RESET_GENERATION: GENERATION,
            Reaction.RESET_MEMBER_ID: MEMBER,
        },
    ),
    Heartbeat: (
        Reaction.RETRY,
        {
            Reaction.FIND_COORDINATOR: FIND,
            Reaction.REJOIN: AGAIN,
            Reaction.RESET_GENERATION: GENERATION,
            Reaction.RESET_MEMBER_ID: MEMBER,
            Reaction.FAIL: (E.FENCED_INSTANCE_ID,),
        },
    ),
    OffsetCommit: (
        Reaction.REPORT,
        {
            Reaction.RETRY: (E.COORDINATOR_LOAD_IN_PROGRESS, E.UNKNOWN_TOPIC_OR_PARTITION),
            Reaction.FIND_COORDINATOR: (*FIND, E.REQUEST_TIMED_OUT),
            Reaction.REJOIN: AGAIN,
            Reaction.RESET_GENERATION: GENERATION,
            Reaction.RESET_MEMBER_ID: MEMBER,
            Reaction.FAIL: (E.FENCED_INSTANCE_ID,),
        },
    ),
    OffsetFetch: (
        Reaction.REPORT,
        {Reaction.RETRY: tuple(code for code in RETRIABLE if code not in FIND), Reaction.FIND_COORDINATOR: FIND},
    ),
    LeaveGroup: (Reaction.IGNORE, {}),
}


class Case(NamedTuple):
    """An API, an error, and what follows."""

    api: type
    error_code: ErrorCode
    reaction: Reaction


def cases_of(table: Table) -> list[Case]:
    """Return every API of a table with every error."""
    found = []
    for api, (otherwise, exceptions) in table.items():
        by_code = {code: reaction for reaction, codes in exceptions.items() for code in codes}
        codes = [code for code in ErrorCode if code is not E.NONE]
        found += [Case(api, code, by_code.get(code, otherwise)) for code in codes]
    return found


def name_of(case: Case) -> str:
    return f"{case.api.__name__}-{case.error_code.name}"


REPEATED: dict[type, type] = {SyncGroup: JoinGroup}
"""What is sent again; a sync is repeated by joining."""

JOINS = {
    Reaction.REJOIN: (MEMBER_ID, False),
    Reaction.RESET_GENERATION: (MEMBER_ID, True),
    Reaction.RESET_MEMBER_ID: ("", True),
    Reaction.TAKE_MEMBER_ID: ("given", False),
}
"""Member id of the next JoinGroup, and whether partitions are lost."""

KEEPS_OWNED = (Heartbeat, OffsetCommit, OffsetFetch)
"""Errors of these meet a member that has partitions; before a join it has revoked them."""


# ---------------------------------------------------------------- what must follow


def check_retry(script: Script, case: Case) -> None:
    again = REPEATED.get(case.api, case.api).__name__
    assert again not in script.kinds(), "there is a pause"
    script.wait(LONGEST_PAUSE_MS)
    assert script.kinds()[0] == again
    assert script.member.coordinator is not None or case.api is FindCoordinator


def check_find_coordinator(script: Script, case: Case) -> None:
    assert script.kinds() == ["FindCoordinator"]
    assert script.member.coordinator is None
    script.find()
    script.wait(LONGEST_PAUSE_MS)
    assert script.kinds()[0] == REPEATED.get(case.api, case.api).__name__


def check_join(script: Script, case: Case, member_id: str, lost: bool) -> None:
    assert script.request(JoinGroup).member_id == member_id
    expected = [PartitionsLost(OWNED)] if lost and case.api in KEEPS_OWNED else []
    assert script.told(PartitionsLost) == expected
    if case.api is OffsetCommit:
        (done,) = script.told(CommitCompleted)
        failure = CommitFailure.REBALANCE_IN_PROGRESS if not lost else CommitFailure.COMMIT_FAILED
        assert (done.failure, done.error_code) == (failure, case.error_code)


def check_report(script: Script, case: Case) -> None:
    assert script.kinds() == []
    assert script.member.state is MemberState.STABLE
    if case.api is OffsetCommit:
        (done,) = script.told(CommitCompleted)
        assert (done.failure, done.error_code) == (CommitFailure.ERROR, case.error_code)
    else:
        (fetched,) = script.told(OffsetsFetched)
        assert (fetched.offsets, fetched.error_code) == ({}, case.error_code)


def check_fail(script: Script, case: Case) -> None:
    (failed,) = script.told(Failed)
    assert (failed.api, failed.error_code) == (case.api.__name__, case.error_code)
    assert script.member.state is MemberState.FAILED
    assert script.kinds() == []
    script.wait(script.config.session_timeout_ms * 2)
    assert script.kinds() == []


@as_one_test
@pytest.mark.parametrize("case", cases_of(TABLE), ids=name_of)
def test_reaction(case: Case) -> None:
    """The member acts as in the table, and ``reaction_to`` returns the same."""
    assert reaction_to(case.api, case.error_code) is case.reaction
    settings = {"group_instance_id": "instance"} if case.api in (Heartbeat, OffsetCommit) else {}
    script = Script(**settings).come_to(case.api)
    script.refuse(case.api, case.error_code)
    if case.reaction is Reaction.RETRY:
        check_retry(script, case)
    elif case.reaction is Reaction.FIND_COORDINATOR:
        check_find_coordinator(script, case)
    elif case.reaction in JOINS:
        check_join(script, case, *JOINS[case.reaction])
    elif case.reaction is Reaction.REPORT:
        check_report(script, case)
    elif case.reaction is Reaction.FAIL:
        check_fail(script, case)
    else:
        assert script.told(Closed)


@pytest.mark.parametrize("api", [JoinGroup, SyncGroup, Heartbeat, OffsetCommit, OffsetFetch], ids=lambda a: a.__name__)
def test_a_lost_connection(api: type) -> None:
    """The coordinator is looked up at once, and lost requests are repeated."""
    script = Script().come_to(api)
    script.lose(api)
    assert script.kinds() == ["FindCoordinator"]
    script.find()
    script.wait(LONGEST_PAUSE_MS)
    assert REPEATED.get(api, api).__name__ in script.kinds()
