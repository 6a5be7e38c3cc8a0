"""Steps of a member of a consumer group: contents and times of heartbeats, and events for the application."""

from __future__ import annotations

from uuid import UUID

import pytest

from groupcoord.errors import ConfigError, ErrorCode
from groupcoord.member import (
    Closed,
    CloseOperation,
    Cluster,
    CommitCompleted,
    Failed,
    IllegalCallError,
    Joined,
    LeftGroup,
    Member,
    MemberConfig,
    MemberState,
    MetadataNeeded,
    PartitionsAssigned,
    PartitionsLost,
    PartitionsRevoked,
    RejoinRequested,
    SubscriptionPattern,
)
from groupcoord.member.assignors import RangeAssignor
from groupcoord.messages import (
    ConsumerGroupHeartbeat,
    ConsumerGroupHeartbeatResponse,
    HeartbeatResponse,
    OffsetCommit,
    TopicPartitions,
)
from tests.tables import as_one_test

from ..script import CLUSTER, FOREVER_MS, GROUP, INTERVAL_MS, TOPIC, TOPIC_ID, Script, partitions
from .scripted import MEMBER_ID, ConsumerScript

OTHER_ID = UUID(int=8)


def waiting(*numbers: int) -> ConsumerScript:
    """Be in the group with these partitions and a slow listener, with a heartbeat in flight."""
    script = ConsumerScript(waits_for_listener=True).in_group(*numbers)
    script.wait(INTERVAL_MS)
    return script


# ---------------------------------------------------------------- joining and heartbeats


def test_the_join_tells_everything() -> None:
    """With the first poll: epoch 0, the member's own id, its settings and topics, and that it has nothing."""
    script = ConsumerScript(client_rack="r1", group_remote_assignor="range", max_poll_interval_ms=70_000)
    script.member.subscribe([TOPIC], script.now_ms)
    script.look()
    assert script.kinds() == []
    script.poll(FOREVER_MS)
    script.find()
    assert script.heartbeat == ConsumerGroupHeartbeat(
        GROUP,
        MEMBER_ID,
        0,
        rack_id="r1",
        rebalance_timeout_ms=70_000,
        subscribed_topic_names=(TOPIC,),
        server_assignor="range",
        topic_partitions=(),
    )


def test_an_assignment_is_told_then_acknowledged_then_all_is_quiet() -> None:
    """Events have only changes: the partitions at once, and nothing at the coordinator's interval."""
    script = ConsumerScript().joining()
    script.beat(3, 0, 2)
    assert script.told(Joined) == [Joined(3, MEMBER_ID, "consumer", is_leader=False)]
    assert script.told(PartitionsAssigned) == [PartitionsAssigned(partitions(0, 2))]
    expected = ConsumerGroupHeartbeat(GROUP, MEMBER_ID, 3, topic_partitions=(TopicPartitions(TOPIC_ID, (0, 2)),))
    assert script.heartbeat == expected
    script.beat(3)
    assert (script.member.state, script.member.generation_id) == (MemberState.STABLE, 3)
    assert script.member.heartbeat_interval_ms == INTERVAL_MS
    script.wait(INTERVAL_MS - 1)
    assert script.kinds() == []
    script.wait(1)
    assert script.heartbeat == ConsumerGroupHeartbeat(GROUP, MEMBER_ID, 3)


def test_an_empty_assignment_is_acknowledged_too() -> None:
    """A member without partitions emits an empty assignment, and reports that it owns nothing."""
    script = ConsumerScript().joining()
    script.beat(1, assignment=())
    assert script.told(PartitionsAssigned) == [PartitionsAssigned(())]
    assert script.heartbeat.topic_partitions == ()
    script.beat(1)
    assert script.member.state is MemberState.STABLE


def test_a_new_epoch_alone_changes_nothing_but_the_epoch() -> None:
    script = ConsumerScript().in_group(0)
    script.wait(INTERVAL_MS)
    script.beat(2)
    assert script.names() == []
    script.wait(INTERVAL_MS)
    assert script.heartbeat == ConsumerGroupHeartbeat(GROUP, MEMBER_ID, 2)


def test_another_interval_counts_from_its_answer() -> None:
    script = ConsumerScript().in_group(0)
    script.wait(INTERVAL_MS + 700)
    script.beat(1, heartbeat_interval_ms=1_000)
    script.wait(999)
    assert script.kinds() == []
    script.wait(1)
    assert script.kinds() == ["ConsumerGroupHeartbeat"]


def test_one_heartbeat_at_a_time() -> None:
    script = ConsumerScript().in_group(0, 1)
    script.wait(3 * INTERVAL_MS)
    assert script.kinds() == ["ConsumerGroupHeartbeat"]


def test_other_topics_are_told_with_the_next_heartbeat() -> None:
    """As in Java, a changed subscription does not hurry; records of the old topic are not wanted any more."""
    script = ConsumerScript().in_group(0)
    script.member.subscribe(["other"], script.now_ms)
    script.poll(FOREVER_MS)
    assert script.kinds() == []
    assert script.member.fetchable == ()
    script.wait(INTERVAL_MS)
    assert script.heartbeat == ConsumerGroupHeartbeat(GROUP, MEMBER_ID, 1, subscribed_topic_names=("other",))


# ---------------------------------------------------------------- reconciliation


def test_revocation_comes_before_its_acknowledgement() -> None:
    """With a slow listener: commit, revoke, assign, and only then the heartbeat that acknowledges."""
    script = ConsumerScript(enable_auto_commit=True, waits_for_listener=True).joining()
    script.beat(1, 0, 1)
    script.member.listener_returned(script.now_ms)
    script.beat(1)
    script.member.consumed(dict.fromkeys(partitions(0, 1), 7))
    script.forget()
    script.wait(INTERVAL_MS)
    assert [kind for kind in script.kinds() if kind != "OffsetCommit"] == ["ConsumerGroupHeartbeat"]
    script.committed()
    script.beat(2, 1, 2)
    assert script.member.state is MemberState.RECONCILING
    assert script.request(OffsetCommit).generation_id == 2, "the commit carries the epoch of now"
    assert script.member.fetchable == partitions(1), "what will be revoked is not read any more"
    assert script.told(PartitionsRevoked) == []
    script.committed()
    assert script.told(PartitionsRevoked) == [PartitionsRevoked(partitions(0))]
    assert script.kinds() == []
    script.member.listener_returned(script.now_ms)
    assert script.told(PartitionsAssigned) == [PartitionsAssigned(partitions(2))]
    assert script.member.fetchable == partitions(1), "the listener does not know of the new one yet"
    assert script.kinds() == []
    script.member.listener_returned(script.now_ms)
    assert script.heartbeat.topic_partitions == (TopicPartitions(TOPIC_ID, (1, 2)),)
    assert script.member.fetchable == partitions(1, 2)


def test_reconciliation_waits_for_a_poll() -> None:
    """The application hears of assignments in its polls alone; heartbeats go on."""
    script = ConsumerScript().in_group(0, poll_ms=0)
    script.wait(INTERVAL_MS)
    script.beat(2, 1)
    script.wait(INTERVAL_MS)
    script.beat(2)
    assert (script.member.state, script.names()) == (MemberState.RECONCILING, [])
    script.poll()
    assert script.names() == ["PartitionsRevoked", "PartitionsAssigned"]


def test_a_target_that_goes_and_comes_back() -> None:
    """A target that equals what the member has is acknowledged all the same if there was another one between."""
    script = waiting(0)
    script.member.poll(script.now_ms, 0)
    script.beat(2, 0, 1)
    script.wait(INTERVAL_MS)
    script.beat(3, 0)
    script.poll()
    assert script.member.state is MemberState.STABLE
    script.wait(INTERVAL_MS)


@pytest.mark.parametrize(
    ("code", "again"),
    [
        (ErrorCode.STALE_MEMBER_EPOCH, True),
        (ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, True),
        (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, False),
        (ErrorCode.UNKNOWN_MEMBER_ID, False),
        (ErrorCode.OFFSET_METADATA_TOO_LARGE, False),
    ],
    ids=lambda value: getattr(value, "name", str(value)),
)
def test_the_commit_before_a_revocation(code: ErrorCode, again: bool) -> None:
    """It is retried while that may help, with the current epoch; finally the revocation continues without it."""
    script = ConsumerScript(enable_auto_commit=True, auto_commit_interval_ms=10**6).in_group(0, 1)
    script.member.consumed({partitions(0)[0]: 7})
    script.wait(INTERVAL_MS)
    script.beat(2, 0)
    script.committed(code)
    assert (script.told(PartitionsRevoked) == []) == again
    if again:
        script.wait(1_000)
        assert script.request(OffsetCommit).generation_id == 2
        script.committed()
    assert script.told(PartitionsRevoked) == [PartitionsRevoked(partitions(1))]
    assert [done.error_code for done in script.told(CommitCompleted)] == [ErrorCode.NONE if again else code]


def test_a_commit_that_is_never_done_holds_up_a_revocation_for_the_rebalance_timeout() -> None:
    """After ``max.poll.interval.ms`` the partitions are revoked anyhow."""
    script = ConsumerScript(enable_auto_commit=True, auto_commit_interval_ms=10**6, max_poll_interval_ms=10_000)
    script.in_group(0, 1)
    script.member.consumed({partitions(0)[0]: 7})
    script.wait(INTERVAL_MS)
    script.beat(2, 0)
    script.wait(9_999)
    assert script.told(PartitionsRevoked) == []
    script.wait(1)
    assert script.told(PartitionsRevoked) == [PartitionsRevoked(partitions(1))]


def test_topics_without_a_name_yet() -> None:
    """Named topics are assigned and acknowledged; metadata is requested, and again after a pause; then the rest."""
    script = ConsumerScript().joining()
    script.cluster = None
    both = (TopicPartitions(OTHER_ID, (0,)), TopicPartitions(TOPIC_ID, (3,)))
    script.beat(1, assignment=both)
    assert script.told(MetadataNeeded) == [MetadataNeeded((TOPIC,))]
    assert script.heartbeat.topic_partitions == (TopicPartitions(TOPIC_ID, (3,)),)
    script.beat(1)
    assert script.member.state is MemberState.RECONCILING
    script.member.update_metadata(CLUSTER, script.now_ms)
    script.wait(script.config.retry_backoff_ms)
    assert len(script.told(MetadataNeeded)) == 2
    script.forget()
    script.member.update_metadata(Cluster.of({TOPIC: 4, "b": 1}, {TOPIC: TOPIC_ID, "b": OTHER_ID}), script.now_ms)
    assert script.told(PartitionsAssigned) == [PartitionsAssigned(partitions(0, topic="b"))]
    assert set(script.heartbeat.topic_partitions or ()) == set(both)


def test_a_topic_that_is_deleted_is_revoked_by_its_name() -> None:
    """Metadata may forget a topic before the coordinator takes its partitions away."""
    script = ConsumerScript().in_group(0)
    script.member.update_metadata(Cluster(), script.now_ms)
    script.wait(INTERVAL_MS)
    script.beat(2, assignment=())
    assert script.told(PartitionsRevoked) == [PartitionsRevoked(partitions(0))]


# ---------------------------------------------------------------- out of the group


def test_fenced() -> None:
    """All partitions are lost, with an event in a poll; then the member joins again: same id, epoch 0, all fields."""
    script = waiting(0)
    script.beat(0, error_code=ErrorCode.FENCED_MEMBER_EPOCH)
    assert script.member.state is MemberState.FENCED
    assert (script.told(PartitionsLost), script.kinds()) == ([PartitionsLost(partitions(0))], [])
    assert (script.member.fetchable, script.member.generation_id) == ((), -1)
    script.member.listener_returned(script.now_ms)
    assert script.member.assignment == ()
    assert (script.heartbeat.member_id, script.heartbeat.member_epoch) == (MEMBER_ID, 0)
    assert (script.heartbeat.subscribed_topic_names, script.heartbeat.topic_partitions) == ((TOPIC,), ())
    assert len(script.told(RejoinRequested)) == 1


def test_fenced_without_partitions() -> None:
    """There is nothing to tell, so the join does not wait for a poll."""
    script = ConsumerScript().joining(poll_ms=0)
    script.beat(0, error_code=ErrorCode.FENCED_MEMBER_EPOCH)
    assert script.heartbeat.member_epoch == 0


def test_fenced_in_the_middle_of_a_reconciliation() -> None:
    """The listener's present callback no longer counts when it returns: the rest is lost, and nothing acknowledged."""
    script = waiting(0, 1)
    script.beat(2, 0, 2)
    assert script.names() == ["PartitionsRevoked"]
    script.wait(INTERVAL_MS)
    script.beat(0, error_code=ErrorCode.UNKNOWN_MEMBER_ID)
    script.member.listener_returned(script.now_ms)
    assert script.told(PartitionsLost) == [PartitionsLost(partitions(0))]
    script.member.listener_returned(script.now_ms)
    assert script.told(PartitionsAssigned) == []
    assert script.heartbeat.member_epoch == 0


@pytest.mark.parametrize(("instance_id", "epoch"), [(None, -1), ("instance", -2)])
def test_an_application_that_does_not_poll(instance_id: str | None, epoch: int) -> None:
    """After ``max.poll.interval.ms`` the member leaves; with the next poll all is lost, and it joins again."""
    script = ConsumerScript(max_poll_interval_ms=20_000, group_instance_id=instance_id).in_group(0, poll_ms=0)
    for _ in range(3):
        script.wait(INTERVAL_MS)
        script.beat(1)
    script.wait(4_999)
    assert (script.member.state, script.kinds()) == (MemberState.STABLE, [])
    script.wait(1)
    assert script.member.state.value == "Stale"
    assert (script.heartbeat.member_epoch, script.heartbeat.topic_partitions) == (epoch, ())
    assert script.told(LeftGroup) == [LeftGroup("consumer poll timeout has expired.", was_sent=True)]
    script.beat(epoch)
    script.wait(100_000)
    assert (script.kinds(), script.told(PartitionsLost)) == ([], [])
    script.poll()
    assert script.told(PartitionsLost) == [PartitionsLost(partitions(0))]
    assert script.heartbeat.member_epoch == 0


@as_one_test
@pytest.mark.parametrize(
    ("instance_id", "operation", "epoch"),
    [
        (None, CloseOperation.DEFAULT, -1),
        (None, CloseOperation.LEAVE_GROUP, -1),
        (None, CloseOperation.REMAIN_IN_GROUP, None),
        ("instance", CloseOperation.DEFAULT, -2),
        ("instance", CloseOperation.LEAVE_GROUP, -1),
        ("instance", CloseOperation.REMAIN_IN_GROUP, -2),
    ],
)
def test_closing(instance_id: str | None, operation: CloseOperation, epoch: int | None) -> None:
    """Revoked, left with the epoch of KIP-1092, closed with the response; or closed at once."""
    script = ConsumerScript(group_instance_id=instance_id).in_group(0, 1)
    script.member.close(script.now_ms, operation=operation)
    assert script.told(PartitionsRevoked) == [PartitionsRevoked(partitions(0, 1))]
    assert [left.was_sent for left in script.told(LeftGroup)] == [epoch is not None]
    if epoch is not None:
        assert (script.heartbeat.member_epoch, script.heartbeat.instance_id) == (epoch, instance_id)
        assert script.told(Closed) == []
        script.beat(epoch)
    assert script.events[-1] == Closed()
    assert script.member.next_deadline_ms() is None


def test_unsubscribing_and_subscribing_again() -> None:
    """The member leaves once the listener is done; the join waits for the answer, and has the same id."""
    script = ConsumerScript(waits_for_listener=True).in_group(0)
    script.member.unsubscribe(script.now_ms)
    script.look()
    assert (script.member.state, script.kinds()) == (MemberState.PREPARE_LEAVING, [])
    script.member.listener_returned(script.now_ms)
    assert script.heartbeat.member_epoch == -1
    assert script.member.state is MemberState.UNSUBSCRIBED
    script.member.subscribe(["other"], script.now_ms)
    script.poll(FOREVER_MS)
    assert script.heartbeat.member_epoch == -1
    script.beat(-1)
    assert (script.heartbeat.member_epoch, script.heartbeat.subscribed_topic_names) == (0, ("other",))
    assert script.heartbeat.member_id == MEMBER_ID


def test_fenced_while_it_prepares_to_leave() -> None:
    script = ConsumerScript(waits_for_listener=True).in_group(0)
    script.member.unsubscribe(script.now_ms)
    script.wait(INTERVAL_MS)
    script.beat(0, error_code=ErrorCode.UNKNOWN_MEMBER_ID)
    script.member.listener_returned(script.now_ms)
    assert (script.member.state, script.kinds()) == (MemberState.UNSUBSCRIBED, [])


def test_an_answer_to_what_was_before() -> None:
    """A heartbeat's response after the member has left is ignored."""
    script = ConsumerScript().in_group(0)
    script.wait(INTERVAL_MS)
    script.member.unsubscribe(script.now_ms)
    assert script.kinds() == ["ConsumerGroupHeartbeat"] * 2
    script.answer(ConsumerGroupHeartbeat, ConsumerGroupHeartbeatResponse(ErrorCode.UNKNOWN_MEMBER_ID))
    assert script.member.state is MemberState.UNSUBSCRIBED
    assert script.told(RejoinRequested) == []


def test_a_lost_connection() -> None:
    """The coordinator is looked up; the next heartbeat is a full one with the member's epoch."""
    script = ConsumerScript().in_group(0)
    script.wait(INTERVAL_MS)
    script.lose(ConsumerGroupHeartbeat)
    assert script.kinds() == ["FindCoordinator"]
    script.find()
    assert script.kinds() == []
    script.wait(script.config.retry_backoff_ms)
    heartbeat = script.heartbeat
    assert (heartbeat.member_epoch, heartbeat.subscribed_topic_names) == (1, (TOPIC,))
    assert heartbeat.topic_partitions == (TopicPartitions(TOPIC_ID, (0,)),)
    assert script.names() == ["CoordinatorLost", "CoordinatorFound"]


def test_closing_while_the_listener_deals_with_what_is_revoked() -> None:
    """Partitions with an earlier event get no second one; the rest is revoked."""
    script = waiting(0, 1)
    script.beat(2, 1)
    script.member.close(script.now_ms)
    assert script.told(PartitionsRevoked) == [PartitionsRevoked(partitions(0)), PartitionsRevoked(partitions(1))]


def test_closing_while_the_listener_deals_with_what_is_lost() -> None:
    """No event is repeated, and there is no group to leave."""
    script = waiting(0, 1)
    script.beat(0, error_code=ErrorCode.FENCED_MEMBER_EPOCH)
    script.member.close(script.now_ms)
    assert script.names()[-2:] == ["PartitionsLost", "Closed"]
    assert (script.kinds(), script.told(PartitionsRevoked), script.told(LeftGroup)) == ([], [], [])


def test_answers_that_make_no_sense() -> None:
    """A negative epoch is left aside; what is no answer to a heartbeat fails the member, and partitions are lost."""
    script = ConsumerScript().in_group(0)
    script.wait(INTERVAL_MS)
    script.beat(-1)
    assert (script.member.state, script.member.generation_id) == (MemberState.STABLE, 1)
    script.wait(INTERVAL_MS)
    script.answer(ConsumerGroupHeartbeat, HeartbeatResponse(ErrorCode.NONE))
    (failed,) = script.told(Failed)
    assert (failed.api, failed.error_code) == ("ConsumerGroupHeartbeat", ErrorCode.UNKNOWN_SERVER_ERROR)
    assert script.told(PartitionsLost) == [PartitionsLost(partitions(0))]


# ---------------------------------------------------------------- expressions, and what there is not


def test_an_expression_for_the_coordinator() -> None:
    """It is sent once, without names; an empty one removes it."""
    script = ConsumerScript()
    script.member.update_metadata(CLUSTER, script.now_ms)
    script.member.subscribe_pattern(SubscriptionPattern("t.*"), script.now_ms)
    script.poll(FOREVER_MS)
    script.find()
    assert (script.heartbeat.subscribed_topic_regex, script.heartbeat.subscribed_topic_names) == ("t.*", ())
    assert script.member.metadata_topics is None
    script.beat(1, 0)
    assert script.told(PartitionsAssigned) == [PartitionsAssigned(partitions(0))]
    assert script.heartbeat.subscribed_topic_regex is None
    script.beat(1)
    assert script.member.fetchable == partitions(0)
    script.member.unsubscribe(script.now_ms)
    assert script.heartbeat.subscribed_topic_regex == ""


def test_an_expression_for_the_member() -> None:
    """A Python expression is matched by the member, which sends names; new topics follow with the next heartbeat."""
    script = ConsumerScript()
    script.member.subscribe_pattern("top.*", script.now_ms)
    script.poll(FOREVER_MS)
    script.find()
    assert (script.heartbeat.subscribed_topic_names, script.heartbeat.subscribed_topic_regex) == ((TOPIC,), None)
    script.beat(1, 0)
    script.beat(1)
    script.member.update_metadata(Cluster.of({TOPIC: 4, "topper": 1}), script.now_ms)
    script.wait(INTERVAL_MS)
    assert script.heartbeat.subscribed_topic_names == (TOPIC, "topper")


def test_what_only_one_protocol_has() -> None:
    """An expression for the coordinator needs a consumer group; assignors and recovery don't go with one."""
    with pytest.raises(IllegalCallError, match=r"'group\.protocol' to be 'consumer'"):
        Script().member.subscribe_pattern(SubscriptionPattern("t.*"), 0)
    with pytest.raises(ConfigError, match="the coordinator assigns, not the member"):
        Member(MemberConfig(group_id=GROUP, group_protocol="consumer"), [RangeAssignor()])
    script = ConsumerScript().joining()
    script.beat(0, error_code=ErrorCode.INVALID_REQUEST)
    with pytest.raises(IllegalCallError, match="can't go on: close it, and make another one"):
        script.member.recover(script.now_ms)
    calm = ConsumerScript().in_group(0)
    calm.member.enforce_rebalance(calm.now_ms)
    assert (calm.kinds(), calm.names()) == ([], [])


def test_ids() -> None:
    """Two members differ by default; with a random source of the host, equal sources make equal ids."""
    config = MemberConfig(group_id=GROUP, group_protocol="consumer")
    assert Member(config).member_id != Member(config).member_id
    source = iter([0.97, *[0.1] * 31])
    made = Member(config, random=lambda: next(source)).member_id
    assert made == Member(config, random=lambda: 0.1).member_id == "GRkZGRkZGRkZGRkZGRkZGQ"
