"""Share groups (KIP-932) in the coordinator: members, epochs, states of partitions, offsets, late logs and restarts."""

from __future__ import annotations

import pytest

from groupcoord import ErrorCode
from groupcoord.assignors import GroupAssignment, GroupSpec
from groupcoord.core.consumer_protocol import TopicPartition
from groupcoord.core.host_queries import ShareCoordinatorAnswered
from groupcoord.core.log.records import ShareGroupStatePartitionMetadataRecord
from groupcoord.core.messages.share_state import ReadShareGroupStateSummaryResponse, StateSummary, StateTopicSummary
from groupcoord.log_store import NotEnoughReplicasError
from groupcoord.messages import (
    AlterShareGroupOffsets,
    AlterShareGroupOffsetsResponse,
    ConsumerGroupHeartbeat,
    DeletedGroup,
    DeleteGroupsResponse,
    DeleteShareGroupOffsets,
    DeleteShareGroupOffsetsResponse,
    DescribeShareGroupOffsetsResponse,
    Heartbeat,
    JoinGroup,
    LeaveGroup,
    LeavingMember,
    ListGroups,
    OffsetCommit,
    OffsetToCommit,
    ShareGroupHeartbeat,
    ShareTopicToForget,
    StreamsGroupHeartbeat,
    SyncGroup,
    TopicToCommit,
)
from groupcoord.testing.fleet import Sent
from groupcoord.testing.topics import Topics

from .conftest import ShareDriver
from .members import Members, answered, told

SESSION_MS, RETRY_MS = 45_000, 30_000


def codes(sent: Sent) -> list[ErrorCode]:
    """Return the results of an alteration by partition, or of a deletion by topic."""
    if isinstance(sent.request, AlterShareGroupOffsets):
        response = sent.answer(AlterShareGroupOffsetsResponse)
        return [result.error_code for topic in response.responses for result in topic.partitions]
    return [topic.error_code for topic in sent.answer(DeleteShareGroupOffsetsResponse).responses]


def state_records(driver: ShareDriver) -> list[ShareGroupStatePartitionMetadataRecord]:
    """Return what was written of the states of partitions."""
    return [record for record in driver.written() if isinstance(record, ShareGroupStatePartitionMetadataRecord)]


# ---------------------------------------------------------------- members


def test_partitions_come_with_the_next_heartbeat(members: Members) -> None:
    """The first join has epoch 2 and nothing yet; when there are states, the next heartbeat has all (KIP-932)."""
    assert told(members.join("a")) == (2, [])
    assert told(members.heartbeat("a", 2)) == (3, [0, 1])
    assert told(members.heartbeat("a", 3)) == (3, None)
    assert (members.described.group_state, members.described.assignor_name) == ("Stable", "simple")


def test_a_second_member_waits_for_nobody(members: Members) -> None:
    """It gets its share at once, and the first learns of that with its next heartbeat."""
    members.join("a")
    members.heartbeat("a", 2)
    epoch, mine = told(members.join("b"))
    assert (epoch, len(mine or [])) == (4, 1)
    epoch, rest = told(members.heartbeat("a", 3))
    assert (epoch, sorted((mine or []) + (rest or []))) == (4, [0, 1])


def test_epochs(members: Members) -> None:
    """The epoch before the last is good enough, others are fenced; 0 joins again (Kafka 4.4)."""
    members.join("a")
    members.heartbeat("a", 2)
    members.join("b")
    members.heartbeat("a", 3)
    assert answered(members.heartbeat("a", 9)).error_code is ErrorCode.FENCED_MEMBER_EPOCH
    assert answered(members.heartbeat("a", 1)).error_code is ErrorCode.FENCED_MEMBER_EPOCH
    assert told(members.heartbeat("a", 3))[0] == 4
    assert told(members.join("a"))[0] == 4
    assert answered(members.heartbeat("nobody", 4)).error_code is ErrorCode.UNKNOWN_MEMBER_ID


def test_who_leaves_is_gone(driver: ShareDriver, members: Members) -> None:
    """The group's epoch grows; of an empty group the assignment is up to date."""
    members.join("a")
    members.heartbeat("a", 2)
    assert answered(members.leave("a")).member_epoch == -1
    group = members.described
    assert (group.group_state, group.group_epoch, group.assignment_epoch) == ("Empty", 4, 4)
    assert answered(members.leave("a")).error_code is ErrorCode.UNKNOWN_MEMBER_ID
    assert answered(Members(driver, "other").leave("a")).error_code is ErrorCode.GROUP_ID_NOT_FOUND


def test_silence_ends_a_session(driver: ShareDriver, members: Members) -> None:
    """A member that is silent is put out; a refused heartbeat is no sign of life (Kafka 4.4)."""
    members.join("a")
    driver.sleep(SESSION_MS - 1)
    members.heartbeat("a", 9)
    assert members.described.members
    driver.sleep(1)
    assert not members.described.members


def test_a_heartbeat_like_the_last_writes_nothing(driver: ShareDriver, members: Members) -> None:
    """It renews the session, and that is all."""
    members.join("a")
    members.heartbeat("a", 2)
    members.heartbeat("a", 3)
    written = len(driver.written())
    for _ in range(3):
        driver.sleep(SESSION_MS - 1)
        assert told(members.heartbeat("a", 3)) == (3, None)
    assert len(driver.written()) == written


class AllToFirst:
    """Gives everything to the member whose id sorts first; of three it wants nothing to do with."""

    name = "all-to-first"

    def assign(self, group: GroupSpec) -> GroupAssignment:
        """See :class:`groupcoord.assignors.Assignor`."""
        if len(group.members) > 2:
            raise RuntimeError("too many")
        first = min(group.members)
        topic_ids = group.members[first].topic_ids
        return {first: {topic_id: tuple(group.assignable_partitions(topic_id)) for topic_id in topic_ids}}


def test_an_assignor_of_ones_own(topics: Topics) -> None:
    """The first that ``group.share.assignors`` names divides partitions; if it fails, the request does, alone."""

    class Own(ShareDriver):
        share_assignors = (AllToFirst(),)

    driver = Own(topics=topics, group_share_assignment_interval_ms=0, group_share_assignors=("all-to-first", "simple"))
    members = Members(driver)
    members.join("b")
    assert told(members.heartbeat("b", 2)) == (3, [0, 1])
    assert told(members.join("a")) == (4, [0, 1])
    assert told(members.heartbeat("b", 3)) == (4, [])
    assert members.described.assignor_name == "all-to-first"
    assert answered(members.join("c")).error_code is ErrorCode.UNKNOWN_SERVER_ERROR
    assert len(members.described.members) == 2


def test_full_groups(members: Members) -> None:
    """``group.share.max.size`` members are enough, and that is said before who is unknown (Kafka 4.4)."""
    for member_id in ("a", "b", "c"):
        members.join(member_id)
    assert answered(members.join("d")).error_code is ErrorCode.GROUP_MAX_SIZE_REACHED
    assert answered(members.heartbeat("d", 4)).error_code is ErrorCode.GROUP_MAX_SIZE_REACHED
    assert answered(members.join("a")).error_code is ErrorCode.NONE


def test_subscriptions_change(members: Members) -> None:
    """A topic that is no longer subscribed to goes at once, one that comes waits for its state."""
    members.join("a", "orders", "payments")
    assert sorted(told(members.heartbeat("a", 2))[1] or []) == [0, 0, 1]
    assert told(members.heartbeat("a", 3, "payments")) == (4, [0])
    assert told(members.heartbeat("a", 4, "payments")) == (4, [0])
    assert answered(members.heartbeat("a", 4)).assignment is None


def test_topics_grow_come_and_go(driver: ShareDriver, topics: Topics, members: Members) -> None:
    """New partitions are initialized from their beginning, and a topic that goes is forgotten at once."""
    members.join("a", "orders", "later")
    members.heartbeat("a", 2)
    topics.grow("orders")
    driver.coordinator.topics_changed(["orders"])
    assert told(members.heartbeat("a", 3)) == (4, None)
    assert told(members.heartbeat("a", 4)) == (5, [0, 1, 2])
    assert members.starts == {"orders": [-1, -1, 0]}
    topics.create("later", 1)
    driver.coordinator.topics_created(["later"])
    members.heartbeat("a", 5)
    assert sorted(told(members.heartbeat("a", 6))[1] or []) == [0, 0, 1, 2]
    driver.coordinator.topic_deleted("orders", topics.delete("orders"))
    assert [topic.topic_name for topic in state_records(driver)[-1].initialized_topics] == ["later"]
    assert told(members.heartbeat("a", 7)) == (8, [0])


# ---------------------------------------------------------------- other protocols


@pytest.mark.parametrize("is_refused", [False, True])
def test_a_deleted_topic_is_forgotten_with_one_write(
    late_driver: ShareDriver, topics: Topics, *, is_refused: bool
) -> None:
    """By all groups of a log partition together (Kafka 4.4); one that is writing follows. A refusal is borne."""
    first, second, third = groups = [Members(late_driver, name) for name in ("g1", "g2", "g3")]
    for group in groups:
        group.join("a")
    late_driver.write_all()
    third.join("b")
    late_driver.coordinator.topic_deleted("orders", topics.delete("orders"))
    assert len(late_driver.store.waiting()) == 2
    late_driver.write(1)
    if is_refused:
        late_driver.refuse(NotEnoughReplicasError("refused"), 1)
    else:
        late_driver.write(1)
        assert [record.group_id for record in state_records(late_driver)[-2:]] == ["g1", "g2"]
    late_driver.write_all()
    known = [bool(group.inside and group.inside.state.state_partitions.initialized) for group in groups]
    assert known == [is_refused, is_refused, False]
    sent = [first.heartbeat("a", 2), second.heartbeat("a", 2)]
    late_driver.write_all()
    assert [told(each)[0] for each in sent] == [3, 3]


def test_members_of_other_protocols_are_refused(driver: ShareDriver, members: Members) -> None:
    """A share group takes no part in the classic protocol, and nothing is committed in it (Kafka 4.4)."""
    members.join("a")
    call, group = driver.coordinator.call, members.group_id
    joined = call(
        JoinGroup(group, "", protocol_type="consumer", session_timeout_ms=10_000, rebalance_timeout_ms=10_000)
    )
    assert joined.error_code is ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    assert call(SyncGroup(group, 1, "a")).error_code is ErrorCode.UNKNOWN_MEMBER_ID
    assert call(Heartbeat(group, 1, "a")).error_code is ErrorCode.UNKNOWN_MEMBER_ID
    left = call(LeaveGroup(group, (LeavingMember("a"),)))
    assert [member.error_code for member in left.members] == [ErrorCode.UNKNOWN_MEMBER_ID]
    commit = OffsetCommit(group, (TopicToCommit("orders", (OffsetToCommit(0, 1),)),))
    (result,) = call(commit).topics[0].partitions
    assert result.error_code is ErrorCode.GROUP_ID_NOT_FOUND
    (listed,) = call(ListGroups((), ("SHARE",))).groups
    assert (listed.protocol_type, listed.group_state, listed.group_type) == ("share", "Stable", "share")


def test_who_comes_to_a_group_of_another_kind_is_told_so(driver: ShareDriver, members: Members) -> None:
    """And who says to be in one that isn't there is told that; administrators in other words (Kafka 4.4)."""
    members.join("a")
    call = driver.coordinator.call
    call(JoinGroup("older", "", protocol_type="consumer", session_timeout_ms=10_000, rebalance_timeout_ms=10_000))
    requests = [
        kind(group_id, "m", 3)
        for group_id in ("group", "older", "none")
        for kind in (ShareGroupHeartbeat, ConsumerGroupHeartbeat, StreamsGroupHeartbeat)
    ]
    forgotten = [DeleteShareGroupOffsets(name, (ShareTopicToForget("orders"),)) for name in ("older", "none")]
    assert [call(request).error_message for request in (*requests[1:], *forgotten)] == [
        "Group group is not a consumer group.",
        "Group group is not a streams group.",
        "Group older is not a share group.",
        "Group older is not a consumer group.",
        "Group older is not a streams group.",
        "Share group none not found.",
        "Consumer group none not found.",
        "Streams group none not found.",
        "Group older is not a share group.",
        "Group none not found.",
    ]


# ---------------------------------------------------------------- the share coordinator is slow, or out of reach


def test_states_are_asked_for_again(driver: ShareDriver, members: Members) -> None:
    """What could not be initialized is tried again with the next heartbeat."""
    driver.host.is_slow = True
    members.join("a")
    assert len(driver.host.asked) == 1
    assert told(members.heartbeat("a", 2)) == (2, None)
    driver.host.answer(driver.coordinator, reachable=False)
    assert state_records(driver)[-1].initializing_topics == ()
    members.heartbeat("a", 2)
    driver.host.answer(driver.coordinator)
    assert told(members.heartbeat("a", 2)) == (3, [0, 1])


def test_an_answer_that_never_comes(driver: ShareDriver, members: Members) -> None:
    """After ``group.share.initialize.retry.interval.ms`` it is asked again; until then nobody does."""
    driver.host.is_slow = True
    members.join("a")
    members.heartbeat("a", 2)
    driver.sleep(RETRY_MS - 1)
    members.heartbeat("a", 2)
    assert len(driver.host.asked) == 1
    driver.sleep(1)
    members.heartbeat("a", 2)
    assert len(driver.host.asked) == 2


def test_a_restart_asks_again(driver: ShareDriver, members: Members) -> None:
    """What was asked before a restart counts as asked then, and late answers to it are nobody's."""
    driver.host.is_slow = True
    members.join("a")
    driver.restart()
    driver.host.answer(driver.coordinator)
    driver.sleep(RETRY_MS - 1)
    members.heartbeat("a", 2)
    assert not driver.host.asked
    driver.sleep(1)
    members.heartbeat("a", 2)
    driver.host.answer(driver.coordinator)
    assert told(members.heartbeat("a", 2)) == (3, [0, 1])


# ---------------------------------------------------------------- offsets


def test_where_a_group_stands_is_altered(driver: ShareDriver, members: Members) -> None:
    """An empty group, or one that isn't there yet, stands elsewhere; unknown partitions are named (KIP-932)."""
    driver.host.is_slow = True
    sent = members.alter("orders", p0=7, p9=1)
    assert sent.is_waiting
    driver.host.answer(driver.coordinator)
    driver.deliver()
    assert codes(sent) == [ErrorCode.NONE, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]
    driver.host.is_slow = False
    assert (members.starts, members.described.group_state) == ({"orders": [7]}, "Empty")
    members.join("a")
    refused = members.alter("orders", p0=1).answer(AlterShareGroupOffsetsResponse)
    assert refused.error_code is ErrorCode.NON_EMPTY_GROUP


def test_how_much_is_left(driver: ShareDriver, members: Members) -> None:
    """Where the host knows where a partition ends, and the share coordinator how much is finished (Kafka 4.4)."""
    driver.host.is_slow = True
    sent = members.ask_where("orders", 0, 1, 2)
    (question,) = driver.host.asked
    (asked,) = question.request.topics
    summaries = (
        StateSummary(0, ErrorCode.NONE, start_offset=3, delivery_complete_count=2),
        StateSummary(1, ErrorCode.NONE, start_offset=3, delivery_complete_count=2),
        StateSummary(2, ErrorCode.NONE, start_offset=3),
    )
    response = ReadShareGroupStateSummaryResponse((StateTopicSummary(asked.topic_id, summaries),))
    assert question.ends_wanted(response) == [("orders", 0), ("orders", 1)]
    ends = {TopicPartition("orders", 0): 10, TopicPartition("orders", 2): 10}
    driver.coordinator.found_out(ShareCoordinatorAnswered(question, response, ends))
    driver.deliver()
    (topic,) = sent.answer(DescribeShareGroupOffsetsResponse).groups[0].topics
    assert [entry.lag for entry in topic.partitions] == [5, -1, -1]


def test_who_has_asked_how_much_is_left_before_the_log_was_lost(driver: ShareDriver, members: Members) -> None:
    """They are told to look for another coordinator; an answer that comes when the log is back is nobody's."""
    driver.host.is_slow = True
    sent = members.ask_where("orders", 0)
    driver.coordinator.unload(0)
    driver.coordinator.load(0, 1)
    driver.host.answer(driver.coordinator)
    driver.deliver()
    (group,) = sent.answer(DescribeShareGroupOffsetsResponse).groups
    assert group.error_code is ErrorCode.NOT_COORDINATOR


def test_a_group_forgets_topics(driver: ShareDriver, members: Members) -> None:
    """It then stands nowhere in them; what it never read is unknown (KIP-932)."""
    members.alter("orders", p0=7)
    assert codes(members.forget("orders", "payments")) == [ErrorCode.NONE, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]
    assert members.starts == {}
    unknown = Members(driver, "other").forget("orders").answer(DeleteShareGroupOffsetsResponse)
    assert unknown.error_code is ErrorCode.GROUP_ID_NOT_FOUND


def test_a_topic_of_which_a_partition_was_asked_for_that_is_not_there(driver: ShareDriver, members: Members) -> None:
    """That none of its partitions begins is still written when the group has forgotten the topic (Kafka 4.4)."""
    members.alter("orders", p0=7, p1=3)
    assert codes(members.alter("orders", p9=1)) == [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]
    assert codes(members.forget("orders")) == [ErrorCode.NONE]
    last = state_records(driver)[-1]
    assert [(topic.topic_name, topic.partitions) for topic in last.initializing_topics] == [("orders", ())]
    assert (last.initialized_topics, last.deleting_topics) == ((), ())


def test_what_the_share_coordinator_refuses(driver: ShareDriver, members: Members) -> None:
    """The answer says so, and a topic that could not be forgotten is tried again."""
    driver.host.is_slow = True
    altered = members.alter("orders", p0=7)
    driver.host.answer(driver.coordinator, reachable=False)
    driver.deliver()
    assert codes(altered) == [ErrorCode.COORDINATOR_NOT_AVAILABLE]
    driver.host.is_slow = False
    members.alter("orders", p0=7)
    driver.host.is_slow = True
    deleted = members.forget("orders")
    driver.host.answer(driver.coordinator, reachable=False)
    driver.deliver()
    assert codes(deleted) == [ErrorCode.COORDINATOR_NOT_AVAILABLE]
    again = members.forget("orders")
    driver.host.answer(driver.coordinator)
    driver.deliver()
    assert codes(again) == [ErrorCode.NONE]


@pytest.mark.parametrize("is_by_altering", [False, True])
def test_a_topic_that_could_not_be_forgotten_is_begun_anew(
    driver: ShareDriver, members: Members, *, is_by_altering: bool
) -> None:
    """By who reads it again, or says where to: then nothing is written any more of that it is to be forgotten."""
    members.alter("orders", p0=7)
    driver.host.is_slow = True
    members.forget("orders")
    driver.host.answer(driver.coordinator, reachable=False)
    assert [topic.topic_name for topic in state_records(driver)[-1].deleting_topics] == ["orders"]
    if is_by_altering:
        members.alter("orders", p0=3)
    else:
        members.join("a")
    begun = state_records(driver)[-1]
    assert [topic.topic_name for topic in begun.initializing_topics] == ["orders"]
    assert begun.deleting_topics == ()


def test_a_group_that_never_stood_anywhere_forgets_nothing(driver: ShareDriver, members: Members) -> None:
    """Nothing is said of the topics, and nothing is written (Kafka 4.4)."""
    members.join("a", "nowhere")
    members.leave("a")
    before = len(driver.written())
    assert members.forget("orders", "nobody's").answer(DeleteShareGroupOffsetsResponse).responses == ()
    assert len(driver.written()) == before


def test_a_group_that_stands_nowhere_says_so_before_it_goes(driver: ShareDriver, members: Members) -> None:
    """If it ever stood anywhere: in Kafka 4.4 that is an append of its own, before the one with the tombstones."""
    members.alter("orders", p0=7)
    members.forget("orders")
    Members(driver, "other").join("a", "nowhere")
    Members(driver, "other").leave("a")
    before = len(driver.written())
    assert driver.delete("group", "other").answer(DeleteGroupsResponse).results == (
        DeletedGroup("group", ErrorCode.NONE),
        DeletedGroup("other", ErrorCode.NONE),
    )
    written = [(type(record).__name__, record.group_id) for record in driver.written()[before:]]
    assert written[0] == ("ShareGroupStatePartitionMetadataRecord", "group")
    assert [record for record in written if record[0] == "ShareGroupStatePartitionMetadataRecord"] == written[:1]


def test_groups_are_deleted_with_their_states(driver: ShareDriver, members: Members) -> None:
    """Nothing is left of one whose states are forgotten; else it stays, with the error (KIP-932)."""
    members.alter("orders", p0=7)
    driver.host.is_slow = True
    sent = driver.delete("group", "nobody")
    driver.host.answer(driver.coordinator, reachable=False)
    driver.deliver()
    assert sent.answer(DeleteGroupsResponse).results == (
        DeletedGroup("group", ErrorCode.COORDINATOR_NOT_AVAILABLE),
        DeletedGroup("nobody", ErrorCode.GROUP_ID_NOT_FOUND),
    )
    driver.host.is_slow = False
    assert driver.delete("group").answer(DeleteGroupsResponse).results == (DeletedGroup("group", ErrorCode.NONE),)
    assert members.inside is None
    assert members.described.error_code is ErrorCode.GROUP_ID_NOT_FOUND


def test_share_groups_do_not_expire(driver: ShareDriver, members: Members) -> None:
    """An empty one stays until somebody deletes it (Kafka 4.4)."""
    members.join("a")
    members.leave("a")
    driver.sleep(30 * 24 * 3_600_000)
    assert members.described.group_state == "Empty"


def test_who_waits_when_the_log_is_lost(driver: ShareDriver, members: Members) -> None:
    """Whatever waits for the share coordinator is told to look for another coordinator."""
    members.alter("payments", p0=1)
    driver.host.is_slow = True
    altered, deleted = members.alter("orders", p0=7), Members(driver, "second").alter("orders", p0=1)
    driver.coordinator.unload(0)
    driver.deliver()
    for sent in (altered, deleted):
        assert sent.answer(AlterShareGroupOffsetsResponse).error_code is ErrorCode.NOT_COORDINATOR


# ---------------------------------------------------------------- the log is late, or refuses


def test_joins_share_a_write(late_driver: ShareDriver) -> None:
    """Whoever comes meanwhile waits, and shares the next append."""
    members = Members(late_driver)
    first, rest = members.join("a"), [members.join("b"), members.join("c")]
    late_driver.write(1)
    assert told(first) == (2, [])
    assert all(sent.is_waiting for sent in rest)
    late_driver.write_all()
    assert [told(sent)[0] for sent in rest] == [3, 4]


def test_a_refused_append_changes_nothing(late_driver: ShareDriver) -> None:
    """A join is as if it had not been, and the share coordinator was asked nothing; a request for offsets likewise."""
    members = Members(late_driver)
    sent = members.join("a")
    late_driver.refuse(NotEnoughReplicasError("refused"))
    assert answered(sent).error_code is ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert (members.inside, late_driver.host.asked) == (None, [])
    altered = members.alter("orders", p0=7)
    late_driver.refuse(NotEnoughReplicasError("refused"))
    assert altered.answer(AlterShareGroupOffsetsResponse).error_code is ErrorCode.COORDINATOR_NOT_AVAILABLE


def test_a_group_is_what_its_records_say(driver: ShareDriver, members: Members) -> None:
    """After a restart it goes on as before, and its members have full sessions."""
    members.join("a")
    members.heartbeat("a", 2)
    members.join("b", "payments")
    before = members.described
    driver.sleep(SESSION_MS - 1)
    driver.restart()
    driver.sleep(SESSION_MS - 1)
    assert members.described == before
    epoch, partitions = told(members.heartbeat("a", before.members[0].member_epoch))
    assert (epoch, partitions) == (before.group_epoch + 1, None)  # there is a state of payments now, for the other
