"""Share groups (KIP-932): epochs, states of share-partitions, late logs and restarts."""

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
    DeletedGroup,
    DeleteGroupsResponse,
    DeleteShareGroupOffsetsResponse,
    DescribeShareGroupOffsetsResponse,
    Heartbeat,
    JoinGroup,
    LeaveGroup,
    LeavingMember,
    ListGroups,
    OffsetCommit,
    OffsetToCommit,
    SyncGroup,
    TopicToCommit,
)
from groupcoord.testing.machine.consumers import Sent
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
    return [record for record in driver.written() if isinstance(record, ShareGroupStatePartitionMetadataRecord)]


# ---------------------------------------------------------------- members


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


def test_a_heartbeat_like_the_last_writes_nothing(driver: ShareDriver, members: Members) -> None:
    """It only renews the session."""
    members.join("a")
    members.heartbeat("a", 2)
    members.heartbeat("a", 3)
    written = len(driver.written())
    for _ in range(3):
        driver.sleep(SESSION_MS - 1)
        assert told(members.heartbeat("a", 3)) == (3, None)
    assert len(driver.written()) == written


class AllToFirst:
    """Assigns everything to the member with the lowest id, unless there are three members."""

    name = "all-to-first"

    def assign(self, group: GroupSpec) -> GroupAssignment:
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


# ---------------------------------------------------------------- the share coordinator is slow, or out of reach


def test_states_are_asked_for_again(driver: ShareDriver, members: Members) -> None:
    """A failed initialization is retried by the next heartbeat."""
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
    """It is requested again after ``group.share.initialize.retry.interval.ms``, and not before."""
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


def test_how_much_is_left(driver: ShareDriver, members: Members) -> None:
    """The lag is known if the host has the end offset and the share coordinator the delivered count (Kafka 4.4)."""
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
    """They fail with NOT_COORDINATOR; answers of the share coordinator before and after the next load are dropped."""
    driver.host.is_slow = True
    requests = [members.ask_where("orders", 0) for _ in range(2)]
    driver.coordinator.unload(0)
    driver.host.answer(driver.coordinator)
    driver.coordinator.load(0, 1)
    driver.host.answer(driver.coordinator)
    driver.deliver()
    for sent in requests:
        (group,) = sent.answer(DescribeShareGroupOffsetsResponse).groups
        assert group.error_code is ErrorCode.NOT_COORDINATOR


def test_what_the_share_coordinator_refuses(driver: ShareDriver, members: Members) -> None:
    """The response has the error, and deleting the topic is retried."""
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
    """Reading or altering it starts it again; nothing more is written about its deletion."""
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
    """The response has no topics, and nothing is written (Kafka 4.4)."""
    members.join("a", "nowhere")
    members.leave("a")
    before = len(driver.written())
    assert members.forget("orders", "nobody's").answer(DeleteShareGroupOffsetsResponse).responses == ()
    assert len(driver.written()) == before


def test_groups_are_deleted_with_their_states(driver: ShareDriver, members: Members) -> None:
    """A group is removed when its states are deleted; otherwise it stays, and the response has the error (KIP-932)."""
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


def test_who_waits_when_the_group_is_deleted(driver: ShareDriver, members: Members) -> None:
    """Each request is answered, whatever the order of the share coordinator's answers."""
    members.alter("orders", p0=7)
    driver.host.is_slow = True
    altered, *deleted = members.alter("orders", p0=9), driver.delete("group"), driver.delete("group")
    driver.host.asked.reverse()
    while driver.host.asked:
        driver.host.answer(driver.coordinator)
    driver.deliver()
    results = [sent.answer(DeleteGroupsResponse).results[0].error_code for sent in deleted]
    assert results == [ErrorCode.GROUP_ID_NOT_FOUND, ErrorCode.NONE]
    assert altered.answer(AlterShareGroupOffsetsResponse).error_code is ErrorCode.GROUP_ID_NOT_FOUND


def test_who_waits_when_the_log_is_lost(driver: ShareDriver, members: Members) -> None:
    """Requests that wait for the share coordinator fail with NOT_COORDINATOR."""
    members.alter("payments", p0=1)
    driver.host.is_slow = True
    altered, deleted = members.alter("orders", p0=7), Members(driver, "second").alter("orders", p0=1)
    driver.coordinator.unload(0)
    driver.deliver()
    for sent in (altered, deleted):
        assert sent.answer(AlterShareGroupOffsetsResponse).error_code is ErrorCode.NOT_COORDINATOR


# ---------------------------------------------------------------- the log is late, or refuses


def test_joins_share_a_write(late_driver: ShareDriver) -> None:
    """Joins that arrive during an append share the next one."""
    members = Members(late_driver)
    first, rest = members.join("a"), [members.join("b"), members.join("c")]
    late_driver.write(1)
    assert told(first) == (2, [])
    assert all(sent.is_waiting for sent in rest)
    late_driver.write_all()
    assert [told(sent)[0] for sent in rest] == [3, 4]


def test_a_refused_append_changes_nothing(late_driver: ShareDriver) -> None:
    """A refused join leaves no member, and the share coordinator gets no request; offset requests likewise."""
    members = Members(late_driver)
    sent = members.join("a")
    late_driver.refuse(NotEnoughReplicasError("refused"))
    assert answered(sent).error_code is ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert (members.inside, late_driver.host.asked) == (None, [])
    altered = members.alter("orders", p0=7)
    late_driver.refuse(NotEnoughReplicasError("refused"))
    assert altered.answer(AlterShareGroupOffsetsResponse).error_code is ErrorCode.COORDINATOR_NOT_AVAILABLE
