"""Malformed responses: the member fails with an event that has the reason, and nothing is raised."""

from __future__ import annotations

from typing import Any

import pytest

from groupcoord.core.log.records import ZERO_UUID
from groupcoord.errors import ErrorCode, IllegalTransitionError
from groupcoord.member import CONSUMER_TRANSITIONS, TRANSITIONS, Failed, MemberState
from groupcoord.member.classic.heartbeats import MembershipManager
from groupcoord.member.consumer import ConsumerMembership
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

from .script import GROUP, MEMBER_ID, NODE, TOPIC, Script

E = ErrorCode
JOINED = {"member_id": MEMBER_ID, "generation_id": 1, "protocol_type": "consumer", "protocol_name": "range"}
COORDINATOR = FoundCoordinator(GROUP, NODE, E.NONE)


def synced(data: bytes, **fields: Any) -> SyncGroupResponse:
    return SyncGroupResponse(
        E.NONE, **({"protocol_type": "consumer", "protocol_name": "range"} | fields), assignment=data
    )


def joined(**fields: Any) -> JoinGroupResponse:
    return JoinGroupResponse(E.NONE, **(JOINED | fields))


def offset(partition_index: int, topic: str = TOPIC) -> OffsetFetchResponse:
    found = FetchedOffset(partition_index, 1, -1, "", E.NONE)
    return OffsetFetchResponse((FetchedGroup(GROUP, E.NONE, (FetchedTopic(topic, ZERO_UUID, (found,)),)),))


MALFORMED: list[tuple[type, Any, str]] = [
    (FindCoordinator, HeartbeatResponse(E.NONE), "HeartbeatResponse"),
    (FindCoordinator, FindCoordinatorResponse(()), "FindCoordinatorResponse is no answer"),
    (FindCoordinator, FindCoordinatorResponse((COORDINATOR, COORDINATOR)), "is no answer"),
    (JoinGroup, HeartbeatResponse(E.NONE), "HeartbeatResponse"),
    (JoinGroup, joined(protocol_type="connect"), "its protocol type is 'connect', not 'consumer'"),
    (JoinGroup, joined(protocol_name="sticky"), "names the protocol 'sticky', which was not offered"),
    (JoinGroup, joined(protocol_name=None), "names the protocol None"),
    (
        JoinGroup,
        joined(leader=MEMBER_ID, members=(JoinedMember("other", None, b"\x00"),)),
        "the subscription of 'other' is malformed",
    ),
    (SyncGroup, HeartbeatResponse(E.NONE), "HeartbeatResponse"),
    (SyncGroup, synced(b"", protocol_type="connect"), "its protocol type is 'connect'"),
    (SyncGroup, synced(b"", protocol_name="sticky"), "its protocol is 'sticky', not 'range'"),
    (SyncGroup, synced(b""), "the assignment has 0 bytes: the leader gave this member none"),
    (SyncGroup, synced(b"\x00"), "the assignment has 1 bytes"),
    (SyncGroup, synced(b"\x00\x01\x00\x00"), "malformed"),
    (Heartbeat, SyncGroupResponse(E.NONE), "SyncGroupResponse"),
    (OffsetCommit, HeartbeatResponse(E.NONE), "HeartbeatResponse"),
    (
        OffsetCommit,
        OffsetCommitResponse((TopicResult(TOPIC, ZERO_UUID, (PartitionResult(7, E.NONE),)),)),
        "it answers for topic-7, not requested",
    ),
    (OffsetFetch, HeartbeatResponse(E.NONE), "HeartbeatResponse"),
    (OffsetFetch, OffsetFetchResponse(()), "is no answer"),
    (OffsetFetch, offset(5), "it answers for topic-5, not requested"),
    (OffsetFetch, offset(0, "other"), "it answers for other-0, not requested"),
]


@as_one_test
@pytest.mark.parametrize(("kind", "answer", "words"), MALFORMED)
def test_a_malformed_answer(kind: type, answer: Any, words: str) -> None:
    """One event has the reason; after it the member sends nothing."""
    script = Script().come_to(kind)
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
        pytest.param(ConsumerMembership(None, [], "member"), CONSUMER_TRANSITIONS, id="consumer"),
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
