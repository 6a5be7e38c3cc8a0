"""Rebalances: order of events, eager and cooperative, as follower and as leader."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from groupcoord.core.consumer_protocol import decode_subscription, encode_assignment
from groupcoord.errors import ErrorCode
from groupcoord.member import (
    Assignment,
    Cluster,
    Joined,
    MemberState,
    MetadataNeeded,
    PartitionsAssigned,
    PartitionsLost,
    PartitionsRevoked,
    RejoinRequested,
    Subscription,
)
from groupcoord.messages import (
    Heartbeat,
    JoinGroup,
    JoinGroupResponse,
    OffsetCommit,
    SyncGroup,
    SyncGroupResponse,
)

from .script import CLUSTER, FOREVER_MS, GROUP, MEMBER_ID, NODE, TOPIC, Script, partitions

COOPERATIVE = {"partition_assignment_strategy": "cooperative-sticky"}


REBALANCE = ErrorCode.REBALANCE_IN_PROGRESS


def subscribed_to_pattern(pattern: str = "t.*") -> Script:
    script = Script()
    script.member.subscribe_pattern(pattern, script.now_ms)
    script.poll(FOREVER_MS)
    script.find()
    return script


def with_two_topics(**settings: Any) -> Script:
    """Be in a cooperative group with a partition of each of two topics."""
    script = Script(**COOPERATIVE, **settings)
    script.cluster = Cluster.of({TOPIC: 2, "other": 2})
    script.subscribed(topics=(TOPIC, "other"))
    script.find()
    script.join()
    both = (*partitions(0, topic="other"), *partitions(0))
    data = encode_assignment(Assignment(both))
    script.answer(SyncGroup, SyncGroupResponse(ErrorCode.NONE, "consumer", "cooperative-sticky", data))
    script.member.listener_returned(script.now_ms)
    assert script.member.assignment == both
    return script


# ---------------------------------------------------------------- joining


def test_the_first_join() -> None:
    """It finds the coordinator, joins with its settings and subscription, syncs as follower, and
    emits its assignment.
    """
    script = Script(client_id="me", session_timeout_ms=10_000, max_poll_interval_ms=20_000).subscribed()
    assert script.kinds() == ["FindCoordinator"]
    script.find()
    join = script.request(JoinGroup)
    assert (join.group_id, join.member_id, join.protocol_type) == (GROUP, "", "consumer")
    assert (join.session_timeout_ms, join.rebalance_timeout_ms, join.client_id) == (10_000, 20_000, "me")
    assert [protocol.name for protocol in join.protocols] == ["range"]
    assert decode_subscription(join.protocols[0].metadata) == Subscription((TOPIC,))
    script.join(3)
    sync = script.request(SyncGroup)
    assert (sync.generation_id, sync.member_id, sync.assignments) == (3, MEMBER_ID, ())
    assert (sync.protocol_type, sync.protocol_name) == ("consumer", "range")
    script.sync(1, 2)
    assert script.events[-2:] == [Joined(3, MEMBER_ID, "range", False), PartitionsAssigned(partitions(1, 2))]
    assert (script.member.state, script.member.generation_id) == (MemberState.STABLE, 3)
    assert script.member.assignment == script.member.fetchable == partitions(1, 2)


def test_the_member_id_is_taken() -> None:
    """KIP-394: the id that comes with MEMBER_ID_REQUIRED is sent in the next join, at once."""
    script = Script().joining()
    script.answer(JoinGroup, JoinGroupResponse(ErrorCode.MEMBER_ID_REQUIRED, "given"))
    join = script.request(JoinGroup)
    assert join.member_id == "given"
    assert join.reason == "need to re-join with the given member-id: given"


def test_a_static_member_names_its_instance() -> None:
    """KIP-345: join, sync, heartbeat and commit carry the instance id."""
    script = Script(group_instance_id="instance").joining()
    assert script.request(JoinGroup).group_instance_id == "instance"
    script.join()
    assert script.request(SyncGroup).group_instance_id == "instance"
    script.sync(0)
    script.wait(script.config.heartbeat_interval_ms)
    assert script.request(Heartbeat).group_instance_id == "instance"
    script.member.commit_async({partitions(0)[0]: 1}, script.now_ms)
    assert script.request(OffsetCommit).group_instance_id == "instance"


def test_reasons_are_cut() -> None:
    """KIP-800: a reason has 255 characters at most."""
    script = Script().stable(0)
    script.member.enforce_rebalance(script.now_ms, "x" * 300)
    assert script.request(JoinGroup).reason == "x" * 255


def test_an_assignment_that_does_not_fit() -> None:
    """Partitions of topics that are not, or no longer, subscribed are not accepted: it joins again."""
    script = Script().joining()
    script.join()
    script.sync(0, topic="other")
    assert script.told(PartitionsAssigned) == []
    reason = "received assignment does not match the current subscription"
    assert script.told(RejoinRequested) == [RejoinRequested(reason)]
    assert script.request(JoinGroup).reason == reason


# ---------------------------------------------------------------- eager


def test_eager_gives_up_everything_first() -> None:
    """Revoked before the join, assigned after the sync; the join owns nothing."""
    script = Script().stable(0, 1)
    script.refuse_heartbeat(REBALANCE)
    assert script.events == [RejoinRequested("group is already rebalancing"), PartitionsRevoked(partitions(0, 1))]
    assert script.member.assignment == ()
    join = script.request(JoinGroup)
    assert (join.member_id, join.reason) == (MEMBER_ID, "group is already rebalancing")
    assert decode_subscription(join.protocols[0].metadata).owned_partitions == ()
    script.join(2)
    script.sync(1, 2)
    assert script.events[2:] == [Joined(2, MEMBER_ID, "range", False), PartitionsAssigned(partitions(1, 2))]


def test_eager_tells_of_nothing_too() -> None:
    """A member without partitions emits an empty revocation and an empty assignment, as Java's listener gets."""
    script = Script().stable()
    script.refuse_heartbeat(REBALANCE)
    assert script.told(PartitionsRevoked) == [PartitionsRevoked(())]
    script.join(2)
    script.sync()
    assert script.told(PartitionsAssigned) == [PartitionsAssigned(())]


def test_a_rebalance_is_told_once_by_many_heartbeats() -> None:
    """While the application does not poll, further heartbeats fail alike; nothing is revoked before the poll."""
    script = Script().stable(0, poll_ms=0)
    for _ in range(3):
        script.refuse_heartbeat(REBALANCE)
    assert script.events == [RejoinRequested("group is already rebalancing")]
    assert script.member.assignment == partitions(0)
    script.poll()
    assert script.told(PartitionsRevoked) == [PartitionsRevoked(partitions(0))]


# ---------------------------------------------------------------- cooperative (KIP-429)


def test_cooperative_keeps_what_it_has() -> None:
    """Nothing is revoked before the join, which has the owned partitions and their generation; events have only new
    ones.
    """
    script = Script(**COOPERATIVE).stable(0, 1)
    script.refuse_heartbeat(REBALANCE)
    assert script.told(PartitionsRevoked) == []
    assert script.member.fetchable == partitions(0, 1)
    owned = decode_subscription(script.request(JoinGroup).protocols[0].metadata)
    assert (owned.owned_partitions, owned.generation_id) == (partitions(0, 1), 1)
    script.forget()
    script.join(2)
    script.sync(0, 1, 3)
    assert script.events == [
        Joined(2, MEMBER_ID, "cooperative-sticky", False),
        PartitionsAssigned(partitions(3)),
    ]
    assert script.member.assignment == partitions(0, 1, 3)
    assert script.kinds() == []


def test_cooperative_revokes_after_the_sync_and_joins_again() -> None:
    script = Script(**COOPERATIVE).stable(0, 1)
    script.refuse_heartbeat(REBALANCE)
    script.forget()
    script.join(2)
    script.sync(0)
    assert [type(event) for event in script.events] == [
        Joined,
        PartitionsRevoked,
        RejoinRequested,
        PartitionsAssigned,
    ]
    assert script.told(PartitionsRevoked) == [PartitionsRevoked(partitions(1))]
    assert script.told(PartitionsAssigned) == [PartitionsAssigned(())]
    join = script.request(JoinGroup)
    assert join.reason == "need to revoke partitions and re-join"
    assert decode_subscription(join.protocols[0].metadata).owned_partitions == partitions(0)


def test_cooperative_revokes_topics_it_left() -> None:
    """Partitions of a topic that is not subscribed to any more are revoked before the join; the rest stays."""
    script = with_two_topics()
    script.member.subscribe([TOPIC], script.now_ms)
    script.look()
    assert script.told(PartitionsRevoked) == [PartitionsRevoked(partitions(0, topic="other"))]
    assert script.member.assignment == partitions(0)
    join = script.request(JoinGroup)
    assert join.reason == "subscription has changed"
    assert decode_subscription(join.protocols[0].metadata).topics == (TOPIC,)


def test_positions_stay_with_partitions_that_stay() -> None:
    """A cooperative rebalance forgets neither how far a partition was read nor that it is paused."""
    script = Script(**COOPERATIVE, enable_auto_commit=True).stable(0, 1)
    script.member.consumed({partitions(0)[0]: 5, partitions(1)[0]: 6, partitions(3)[0]: 7})
    script.member.pause(partitions(0))
    script.refuse_heartbeat(REBALANCE)
    script.committed()
    script.join(2)
    script.sync(0, 2)
    script.look()
    assert script.member.fetchable == partitions(2)
    script.member.resume(partitions(0))
    assert script.member.fetchable == partitions(0, 2)
    script.committed()
    script.forget()
    script.join(3)
    script.sync(0, 2)
    script.wait(5_000)
    (topic,) = script.request(OffsetCommit).topics
    assert [(p.partition_index, p.committed_offset) for p in topic.partitions] == [(0, 5)]


def test_the_highest_common_protocol() -> None:
    """With assignors of which one is eager only, the member is eager."""
    script = Script(partition_assignment_strategy=("range", "cooperative-sticky")).stable(0)
    script.refuse_heartbeat(REBALANCE)
    assert script.told(PartitionsRevoked) == [PartitionsRevoked(partitions(0))]
    assert [protocol.name for protocol in script.request(JoinGroup).protocols] == ["range", "cooperative-sticky"]


# ---------------------------------------------------------------- lost


@pytest.mark.parametrize("settings", [{}, COOPERATIVE], ids=["eager", "cooperative"])
@pytest.mark.parametrize("error_code", [ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.ILLEGAL_GENERATION])
def test_lost_partitions(settings: Mapping[str, str], error_code: ErrorCode) -> None:
    """A removed member emits its partitions as lost, not revoked, and joins owning nothing."""
    script = Script(**settings).stable(0, 1)
    script.refuse_heartbeat(error_code)
    assert script.told(PartitionsLost) == [PartitionsLost(partitions(0, 1))]
    assert script.told(PartitionsRevoked) == []
    join = script.request(JoinGroup)
    assert join.member_id == ("" if error_code is ErrorCode.UNKNOWN_MEMBER_ID else MEMBER_ID)
    subscribed = decode_subscription(join.protocols[0].metadata)
    assert (subscribed.owned_partitions, subscribed.generation_id) == ((), -1)


def test_an_answer_to_an_older_generation_is_stale() -> None:
    """A late refused heartbeat of the last generation is ignored."""
    script = Script(**COOPERATIVE).stable(0)
    script.wait(script.config.heartbeat_interval_ms)
    script.member.enforce_rebalance(script.now_ms)
    script.join(2)
    script.sync(0)
    script.refuse(Heartbeat, ErrorCode.UNKNOWN_MEMBER_ID)
    assert (script.member.state, script.member.generation_id) == (MemberState.STABLE, 2)
    assert script.kinds() == []


def test_reset_between_sync_and_poll() -> None:
    """The generation is refused after the sync and before the poll: the assignment is dropped, and the member joins
    again.
    """
    script = Script().joining(poll_ms=0)
    script.join()
    script.sync(0)
    script.refuse_heartbeat(ErrorCode.ILLEGAL_GENERATION)
    script.poll()
    assert script.told(PartitionsAssigned) == []
    assert script.request(JoinGroup).member_id == ""


# ---------------------------------------------------------------- the listener


def test_the_listener_is_waited_for() -> None:
    """Between revoked and join, and after revoked and assigned, the member waits for the listener, and beats."""
    script = Script(waits_for_listener=True).joining()
    script.join()
    script.sync(0, 1)
    assert script.names()[-1] == "PartitionsAssigned"
    script.member.listener_returned(script.now_ms)
    script.member.enforce_rebalance(script.now_ms)
    assert script.told(PartitionsRevoked) == [PartitionsRevoked(partitions(0, 1))]
    script.wait(10_000)
    assert script.kinds() == ["Heartbeat"] * 3
    script.member.commit_sync({partitions(0)[0]: 3}, script.now_ms)
    assert script.request(OffsetCommit).generation_id == 1
    script.committed()
    assert script.member.assignment == partitions(0, 1)
    script.member.listener_returned(script.now_ms)
    script.look()
    assert script.member.assignment == ()
    assert script.request(JoinGroup).member_id == MEMBER_ID


def test_a_cooperative_listener_can_commit_what_is_revoked() -> None:
    """After the sync the revoked partitions are still owned, in the new generation, until the listener returns."""
    script = Script(**COOPERATIVE, waits_for_listener=True).stable(0, 1)
    script.member.enforce_rebalance(script.now_ms)
    script.join(2)
    script.sync(0)
    assert script.events[-2:] == [
        PartitionsRevoked(partitions(1)),
        RejoinRequested("need to revoke partitions and re-join"),
    ]
    script.member.commit_sync({partitions(1)[0]: 3}, script.now_ms)
    assert script.request(OffsetCommit).generation_id == 2
    script.committed()
    script.member.listener_returned(script.now_ms)
    assert script.told(PartitionsAssigned)[-1] == PartitionsAssigned(())
    assert script.kinds() == []
    script.member.listener_returned(script.now_ms)
    assert script.kinds() == ["JoinGroup"]


def test_the_coordinator_is_lost_while_the_listener_is_busy() -> None:
    """The join waits until the coordinator is found again."""
    script = Script(waits_for_listener=True).stable(0)
    script.member.enforce_rebalance(script.now_ms)
    script.member.disconnected(script.now_ms)
    script.member.listener_returned(script.now_ms)
    assert script.kinds() == ["FindCoordinator"]
    script.find()
    assert [send.to for send in script.sent] == [NODE]
    assert script.kinds() == ["JoinGroup"]


def test_lost_while_the_listener_is_busy() -> None:
    """The generation is refused during the listener's revocation: the kept partitions are emitted as lost."""
    script = with_two_topics(waits_for_listener=True)
    script.member.subscribe([TOPIC], script.now_ms)
    script.look()
    assert script.told(PartitionsRevoked) == [PartitionsRevoked(partitions(0, topic="other"))]
    script.refuse_heartbeat(ErrorCode.UNKNOWN_MEMBER_ID)
    script.member.listener_returned(script.now_ms)
    assert script.told(PartitionsLost) == [PartitionsLost(partitions(0))]
    script.member.listener_returned(script.now_ms)
    assert decode_subscription(script.request(JoinGroup).protocols[0].metadata).owned_partitions == ()


# ---------------------------------------------------------------- patterns


def test_a_pattern() -> None:
    """Topics that match as a whole are subscribed, except internal ones; all topics are requested before the join."""
    script = Script()
    script.cluster = None
    script.member.subscribe_pattern("(__)?t.*", script.now_ms)
    script.poll(FOREVER_MS)
    script.find()
    assert script.told(MetadataNeeded) == [MetadataNeeded(None)]
    assert script.kinds() == []
    cluster = Cluster.of({"topic": 1, "tea": 1, "not": 1, "__transaction_state": 1})
    script.member.update_metadata(cluster, script.now_ms)
    join = script.request(JoinGroup)
    assert decode_subscription(join.protocols[0].metadata).topics == ("tea", "topic")
    assert script.member.metadata_topics is None


def test_a_pattern_finds_a_new_topic() -> None:
    """A new matching topic leads to a rebalance; before its join all topics are requested again."""
    script = subscribed_to_pattern()
    script.join()
    script.sync(0)
    script.cluster = None
    script.member.update_metadata(Cluster.of({TOPIC: 4, "tea": 1}), script.now_ms)
    script.look()
    join = script.request(JoinGroup)
    assert join.reason == "subscription has changed"
    assert decode_subscription(join.protocols[0].metadata).topics == ("tea", TOPIC)


def test_a_pattern_is_looked_at_anew_before_each_join() -> None:
    """A rebalance that others began makes the member ask for all topics, and wait for them."""
    script = subscribed_to_pattern()
    script.join()
    script.sync(0)
    script.cluster = None
    script.forget()
    script.refuse_heartbeat(REBALANCE)
    assert script.told(MetadataNeeded) == [MetadataNeeded(None)]
    assert script.kinds() == []
    script.member.update_metadata(CLUSTER, script.now_ms)
    assert script.kinds() == ["JoinGroup"]


def test_a_pattern_obeys_the_leader() -> None:
    """A topic that the leader found and that matches is taken, and is no reason to join again."""
    script = subscribed_to_pattern()
    script.join()
    script.sync(0, topic="tea")
    assert script.told(PartitionsAssigned) == [PartitionsAssigned(partitions(0, topic="tea"))]
    assert script.kinds() == []


# ---------------------------------------------------------------- connections


def test_the_coordinator_moves_in_a_rebalance() -> None:
    """NOT_COORDINATOR to the sync: the new coordinator is found, and the member joins again there."""
    script = Script().joining()
    script.join()
    script.refuse(SyncGroup, ErrorCode.NOT_COORDINATOR)
    script.find(node=NODE._replace(node_id=2))
    script.wait(100)
    assert [send.to for send in script.sent] == [NODE._replace(node_id=2)]
    assert script.kinds() == ["JoinGroup"]
