"""Answers that make no sense: the member fails with an event that says why, and nothing is ever raised."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from groupcoord.core.log.records import ZERO_UUID
from groupcoord.errors import ErrorCode, IllegalTransitionError
from groupcoord.member import CONSUMER_TRANSITIONS, TRANSITIONS, Failed, MemberState
from groupcoord.member.classic.heartbeats import MembershipManager
from groupcoord.member.consumer.heartbeats import ConsumerMembership
from groupcoord.member.membership import Membership, Transitions
from groupcoord.messages import (
    FetchedGroup,
    FetchedOffset,
    FetchedTopic,
    FindCoordinator,
    FindCoordinatorResponse,
    FoundCoordinator,
    Heartbeat,
    HeartbeatResponse,
    JoinedMember,
    JoinGroup,
    JoinGroupResponse,
    OffsetCommit,
    OffsetCommitResponse,
    OffsetFetch,
    OffsetFetchResponse,
    PartitionResult,
    SyncGroup,
    SyncGroupResponse,
    TopicResult,
)
from tests.tables import as_one_test

from .script import GROUP, MEMBER_ID, NODE, TOPIC, Script, partitions

E = ErrorCode
JOINED = {"member_id": MEMBER_ID, "generation_id": 1, "protocol_type": "consumer", "protocol_name": "range"}
COORDINATOR = FoundCoordinator(GROUP, NODE, E.NONE)


def looking() -> Script:
    return Script().subscribed()


def joining() -> Script:
    return Script().joining()


def syncing() -> Script:
    script = Script().joining()
    script.join()
    return script


def beating() -> Script:
    script = Script().stable(0)
    script.wait(3_000)
    return script


def committing() -> Script:
    script = Script().stable(0)
    script.member.commit_async({partitions(0)[0]: 1}, script.now_ms)
    return script


def fetching() -> Script:
    script = Script().stable(0)
    script.member.fetch_offsets(partitions(0), script.now_ms)
    return script


def synced(data: bytes, **fields: Any) -> SyncGroupResponse:
    return SyncGroupResponse(
        E.NONE, **({"protocol_type": "consumer", "protocol_name": "range"} | fields), assignment=data
    )


def joined(**fields: Any) -> JoinGroupResponse:
    return JoinGroupResponse(E.NONE, **(JOINED | fields))


def offset(partition_index: int, topic: str = TOPIC) -> OffsetFetchResponse:
    found = FetchedOffset(partition_index, 1, -1, "", E.NONE)
    return OffsetFetchResponse((FetchedGroup(GROUP, E.NONE, (FetchedTopic(topic, ZERO_UUID, (found,)),)),))


MALFORMED: list[tuple[Callable[[], Script], type, Any, str]] = [
    (looking, FindCoordinator, HeartbeatResponse(E.NONE), "HeartbeatResponse"),
    (looking, FindCoordinator, FindCoordinatorResponse(()), "FindCoordinatorResponse is no answer"),
    (looking, FindCoordinator, FindCoordinatorResponse((COORDINATOR, COORDINATOR)), "is no answer"),
    (joining, JoinGroup, HeartbeatResponse(E.NONE), "HeartbeatResponse"),
    (joining, JoinGroup, joined(protocol_type="connect"), "its protocol type is 'connect', not 'consumer'"),
    (joining, JoinGroup, joined(protocol_name="sticky"), "names the protocol 'sticky', which was not offered"),
    (joining, JoinGroup, joined(protocol_name=None), "names the protocol None"),
    (
        joining,
        JoinGroup,
        joined(leader=MEMBER_ID, members=(JoinedMember("other", None, b"\x00"),)),
        "the subscription of 'other' is malformed",
    ),
    (
        joining,
        JoinGroup,
        joined(leader=MEMBER_ID, members=(JoinedMember("other", None, b"\x00\x01\x7f\xff\xff\xff"),)),
        "the subscription of 'other' is malformed",
    ),
    (syncing, SyncGroup, HeartbeatResponse(E.NONE), "HeartbeatResponse"),
    (syncing, SyncGroup, synced(b"", protocol_type="connect"), "its protocol type is 'connect'"),
    (syncing, SyncGroup, synced(b"", protocol_name="sticky"), "its protocol is 'sticky', not 'range'"),
    (syncing, SyncGroup, synced(b""), "the assignment has 0 bytes: the leader gave this member none"),
    (syncing, SyncGroup, synced(b"\x00"), "the assignment has 1 bytes"),
    (syncing, SyncGroup, synced(b"\x00\x01\x00\x00"), "malformed"),
    (syncing, SyncGroup, synced(b"\xff\xff\x00\x00\x00\x00"), "malformed"),
    (syncing, SyncGroup, synced(b"\x00\x01\x7f\xff\xff\xff\x00"), "malformed"),
    (beating, Heartbeat, SyncGroupResponse(E.NONE), "SyncGroupResponse"),
    (committing, OffsetCommit, HeartbeatResponse(E.NONE), "HeartbeatResponse"),
    (
        committing,
        OffsetCommit,
        OffsetCommitResponse((TopicResult(TOPIC, ZERO_UUID, (PartitionResult(7, E.NONE),)),)),
        "it answers for topic-7, not asked for",
    ),
    (fetching, OffsetFetch, HeartbeatResponse(E.NONE), "HeartbeatResponse"),
    (fetching, OffsetFetch, OffsetFetchResponse(()), "is no answer"),
    (fetching, OffsetFetch, offset(5), "it answers for topic-5, not asked for"),
    (fetching, OffsetFetch, offset(0, "other"), "it answers for other-0, not asked for"),
]


@as_one_test
@pytest.mark.parametrize(("come", "kind", "answer", "words"), MALFORMED)
def test_a_malformed_answer(come: Callable[[], Script], kind: type, answer: Any, words: str) -> None:
    """One event says what is wrong; after it the member is silent."""
    script = come()
    script.answer(kind, answer)
    (failed,) = script.told(Failed)
    assert words in failed.message, failed.message
    assert (failed.api, failed.error_code) == (kind.__name__, E.UNKNOWN_SERVER_ERROR)
    assert script.member.state is MemberState.FAILED
    script.wait(100_000)
    assert script.kinds() == []


@as_one_test
@pytest.mark.parametrize("state", MemberState)
@pytest.mark.parametrize("target", MemberState)
@pytest.mark.parametrize(
    ("membership", "table"),
    [
        pytest.param(MembershipManager(None, []), TRANSITIONS, id="classic"),
        pytest.param(ConsumerMembership("member", None, []), CONSUMER_TRANSITIONS, id="consumer"),
    ],
)
def test_transitions(membership: Membership, table: Transitions, state: MemberState, target: MemberState) -> None:
    """The table's moves are made; every other raises, and changes nothing."""
    membership.state = state
    if target in table.get(state, ()):
        membership.move(target)
        assert membership.state is target
    else:
        with pytest.raises(IllegalTransitionError):
            membership.move(target)
        assert membership.state is state
