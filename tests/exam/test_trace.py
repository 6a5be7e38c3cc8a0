"""Trace of an exam: owners, early commits and fencing, from requests and responses alone."""

from __future__ import annotations

from itertools import count
from uuid import UUID

import pytest
from attrs import evolve

from groupcoord import ErrorCode
from groupcoord.core.consumer_protocol import Assignment, TopicPartition, encode_assignment
from groupcoord.messages import (
    NO_NODE,
    ConsumerGroupHeartbeat,
    ConsumerGroupHeartbeatResponse,
    CoordinatorType,
    FindCoordinator,
    FindCoordinatorResponse,
    FoundCoordinator,
    Heartbeat,
    HeartbeatResponse,
    JoinGroup,
    JoinGroupResponse,
    LeaveGroup,
    LeaveGroupResponse,
    OffsetCommit,
    OffsetCommitResponse,
    OffsetToCommit,
    PartitionResult,
    SyncGroup,
    SyncGroupResponse,
    TopicPartitions,
    TopicResult,
    TopicToCommit,
)
from groupcoord.testing.asserting.records import RecordFields, encode_records
from groupcoord.testing.asserting.requests import ReceivedRequest
from groupcoord.testing.exams.trace import Trace
from groupcoord.wire.broker_messages import (
    Fetch,
    FetchedPartitionData,
    FetchPartition,
    FetchResponse,
    Produce,
    ProducedPartition,
    ProducePartition,
    ProduceResponse,
    TopicNameOrIdEntry,
)

TOPIC_ID = UUID(int=7)


class Stand:
    """Trace of requests and responses between instances and a broker."""

    def __init__(self, works_late_s: float = 3.0, output: str | None = "out") -> None:
        self.trace = Trace("exam", "in", output, {TOPIC_ID: "in"}.get, works_late_s=works_late_s)
        self.numbers = count(1)

    def say(self, who: str, message: object, answer: object, *, is_answered: bool = True) -> None:
        came = ReceivedRequest(
            next(self.numbers), type(message).__name__, 0, "client", "/h", 1, 1, 0, message, listener=who.upper()
        )
        self.trace.watch(came)
        if is_answered:
            self.trace.watch(evolve(came, answer=answer, answered_ms=1))

    def sync(self, who: str, *partitions: int) -> None:
        data = encode_assignment(Assignment(tuple(TopicPartition("in", index) for index in partitions)))
        self.say(who, SyncGroup("exam", 1, "m"), SyncGroupResponse(ErrorCode.NONE, assignment=data))

    def commit(self, who: str, partition: int, offset: int, code: ErrorCode = ErrorCode.NONE) -> None:
        asked = OffsetCommit("exam", (TopicToCommit("in", (OffsetToCommit(partition, offset),)),), 1, "m")
        results = (TopicResult("in", None, (PartitionResult(partition, code),)),)
        self.say(who, asked, OffsetCommitResponse(results))

    def produce(
        self, who: str, *numbers: str, code: ErrorCode = ErrorCode.NONE, transactional_id: str | None = None
    ) -> None:
        batch = encode_records([RecordFields(0, None, number.encode(), ()) for number in numbers])
        topics = (TopicNameOrIdEntry("out", UUID(int=0), (ProducePartition(0, batch),)),)
        asked = Produce(topics, transactional_id=transactional_id)
        self.say(who, asked, ProduceResponse((TopicNameOrIdEntry("out", UUID(int=0), (ProducedPartition(0, code),)),)))

    def fetch(self, who: str, partition: int, count: int, offset: int = 0) -> None:
        """An instance is sent the first records of a partition, or those from an offset on."""
        batch = offset.to_bytes(8, "big") + encode_records([RecordFields(0, None, b"", ()) for _ in range(count)])[8:]
        answer = FetchedPartitionData(partition, ErrorCode.NONE, records=(batch[:20], batch[20:]))
        asked = Fetch((TopicNameOrIdEntry(None, TOPIC_ID, (FetchPartition(partition, offset, 1),)),))
        self.say(who, asked, FetchResponse(topics=(TopicNameOrIdEntry(None, TOPIC_ID, (answer,)),)))


@pytest.fixture
def stand() -> Stand:
    return Stand()


def test_a_commit_that_passes_the_work_is_seen(stand: Stand) -> None:
    """The missing record is named; a commit up to the processed offset is valid, and a refused one as well."""
    stand.produce("a", "0-0", "0-1", "0-3")
    stand.commit("a", 0, 2)
    assert not stand.trace.ahead
    stand.commit("a", 0, 9, ErrorCode.ILLEGAL_GENERATION)
    assert not stand.trace.ahead
    stand.commit("a", 0, 4)
    assert [(breach.who, breach.text) for breach in stand.trace.ahead] == [
        ("a", "commits 4 of partition 0, and record 0-2 is not processed")
    ]


def test_what_was_not_written_is_not_processed(stand: Stand) -> None:
    stand.produce("a", "0-0", code=ErrorCode.NOT_LEADER_OR_FOLLOWER)
    assert stand.trace.unprocessed(0, 1) == [0]
    stand.trace.excuse(0, 0)
    assert stand.trace.unprocessed(0, 1) == []


def test_a_commit_that_goes_back_is_seen(stand: Stand) -> None:
    stand.produce("a", "0-0", "0-1", "1-0")
    stand.commit("a", 0, 2)
    stand.commit("a", 1, 1)
    stand.commit("b", 0, 1)

    (breach,) = stand.trace.backward
    assert (breach.who, breach.text) == ("b", "commits 1 of partition 0, and 2 was committed before")
    assert [(event.who, event.text) for event in breach.causes] == [
        ("a", "OffsetCommit exam, generation 1: in-0 at 2 -> fine")
    ]


def test_work_on_what_another_owns_is_seen() -> None:
    """After losing a partition an instance may finish within a time; later it is a breach, if another one owns it."""
    stand = Stand(works_late_s=0.0)
    stand.sync("a", 0, 1)
    stand.sync("a", 0)
    stand.produce("a", "1-0")
    assert not stand.trace.trespasses
    stand.sync("b", 1)
    stand.produce("a", "0-0", "1-1")

    (trespass,) = stand.trace.trespasses
    assert (trespass.who, "record 1-1" in trespass.text, "which b owns" in trespass.text) == ("a", True, True)


def test_who_is_fenced_is_known_until_it_joins_again(stand: Stand) -> None:
    """An error that ends a membership is remembered; an error that doesn't is not; a new join ends the matter."""
    stand.sync("a", 0)
    stand.say("a", Heartbeat("exam", 1, "m"), HeartbeatResponse(ErrorCode.REBALANCE_IN_PROGRESS))
    assert stand.trace.seats["a"].fenced_s is None
    stand.commit("a", 0, 0, ErrorCode.UNKNOWN_MEMBER_ID)
    seat = stand.trace.seats["a"]
    assert (seat.fenced_by, seat.owned) == ("UNKNOWN_MEMBER_ID", frozenset())
    stand.say("a", JoinGroup("exam"), JoinGroupResponse(ErrorCode.NONE, "m2"))
    assert seat.fenced_s is None
    assert seat.member_ids == {"m2"}


def test_members_of_consumer_groups_are_followed(stand: Stand) -> None:
    own = (TopicPartitions(TOPIC_ID, (0, 2)),)
    stand.say(
        "a",
        ConsumerGroupHeartbeat("exam", "m", 0),
        ConsumerGroupHeartbeatResponse(ErrorCode.NONE, member_id="m", member_epoch=1, assignment=own),
    )
    seat = stand.trace.seats["a"]
    assert (seat.owned, seat.member_ids, seat.has_left) == ({0, 2}, {"m"}, False)
    stand.say(
        "a",
        ConsumerGroupHeartbeat("exam", "m", -1),
        ConsumerGroupHeartbeatResponse(ErrorCode.NONE, member_id="m", member_epoch=-1),
    )
    assert (seat.owned, seat.has_left) == (frozenset(), True)


def test_leaving_is_heard(stand: Stand) -> None:
    stand.sync("a", 0)
    stand.say("a", LeaveGroup("exam", ()), LeaveGroupResponse(ErrorCode.NONE))

    assert (stand.trace.seats["a"].has_left, stand.trace.seats["a"].owned) == (True, frozenset())


def test_requests_that_bring_news_are_events(stand: Stand) -> None:
    """Heartbeats that are fine are none; an error is marked as one."""
    stand.say("a", Heartbeat("exam", 1, "m"), HeartbeatResponse(ErrorCode.NONE))
    stand.say("a", Heartbeat("exam", 1, "m"), HeartbeatResponse(ErrorCode.UNKNOWN_MEMBER_ID))

    (event,) = stand.trace.events
    assert (event.who, event.text, event.is_error) == (
        "a",
        "Heartbeat exam, generation 1, member m -> UNKNOWN_MEMBER_ID",
        True,
    )


def test_a_topic_that_is_made_again_begins_anew(stand: Stand) -> None:
    """Nothing of it is processed or committed yet: an offset of the topic before passes what was processed."""
    stand.produce("a", "0-0", "0-1")
    stand.commit("a", 0, 2)
    stand.trace.begin_again("made again")
    stand.produce("a", "0-0")
    stand.commit("a", 0, 1)
    assert stand.trace.backward == stand.trace.ahead == []

    stand.commit("a", 0, 2)
    assert [breach.text for breach in stand.trace.ahead] == [
        "commits 2 of partition 0, and record 0-1 is not processed"
    ]


def test_an_offset_that_was_set_back_is_no_breach(stand: Stand) -> None:
    """After an administrator has set a group back, commits go on from there; lower ones are seen again."""
    stand.produce("a", "0-0", "0-1")
    stand.commit("a", 0, 2)
    stand.trace.set_back("reset", {0: 1})
    stand.commit("a", 0, 1)
    assert stand.trace.backward == []

    stand.commit("a", 0, 0)
    assert [breach.text for breach in stand.trace.backward] == ["commits 0 of partition 0, and 1 was committed before"]


def test_who_was_late_by_a_generation_is_not_fenced() -> None:
    """A commit of a generation before that which was joined meanwhile is refused, and its sender is a member."""
    stand = Stand()
    commit = OffsetCommit("exam", (TopicToCommit("in", (OffsetToCommit(0, 5),)),), generation_id=3, member_id="m")
    refused = OffsetCommitResponse(
        (TopicResult("in", UUID(int=0), (PartitionResult(0, ErrorCode.ILLEGAL_GENERATION),)),)
    )
    stand.trace.seats["a"].generation = 4
    stand.say("a", commit, refused)
    assert stand.trace.seats["a"].fenced_s is None

    stand.trace.seats["a"].generation = 3
    stand.say("a", commit, refused)
    assert stand.trace.seats["a"].fenced_by == "ILLEGAL_GENERATION"
    stand.say("a", Heartbeat("exam", 4, "m"), HeartbeatResponse(ErrorCode.NONE))
    assert stand.trace.seats["a"].fenced_s is None


def test_without_an_output_a_commit_must_not_pass_what_was_sent() -> None:
    """Records that no instance of the group received can't have been processed."""
    stand = Stand(output=None)
    stand.fetch("b", 0, 3)
    stand.commit("a", 0, 3)
    assert not stand.trace.ahead
    stand.commit("a", 0, 4)
    assert [(each.who, each.text) for each in stand.trace.ahead] == [
        ("a", "commits 4 of partition 0, and record 0-3 was sent to no instance")
    ]


def test_work_in_a_transaction_is_no_trespass() -> None:
    """Its end decides whether it counts: an instance that lost a partition can't commit it."""
    stand = Stand(works_late_s=-1.0)
    stand.sync("a", 0)
    stand.sync("a")
    stand.sync("b", 0)
    stand.produce("a", "0-0", transactional_id="t")
    assert not stand.trace.trespasses
    stand.produce("a", "0-1")
    assert len(stand.trace.trespasses) == 1


def test_what_is_not_written_for_readers_of_what_is_committed_is_missing() -> None:
    """Records written only in an aborted transaction are not processed; unreadable ones need not be."""
    stand = Stand()
    stand.produce("a", "0-0", "0-1", transactional_id="t")
    stand.trace.excuse(0, 2)
    assert stand.trace.unprocessed(0, 3) == []
    assert stand.trace.unprocessed(0, 3, {(0, 1): 1}) == [0]


def test_what_is_written_without_acknowledgements_is_processed() -> None:
    """A program that wants no answer gets none: it counts when it has come."""
    stand = Stand()
    batch = encode_records([RecordFields(0, None, b"0-0", ())])
    topics = (TopicNameOrIdEntry("out", UUID(int=0), (ProducePartition(0, batch),)),)
    stand.say("a", Produce(topics, acks=0), None, is_answered=False)
    assert stand.trace.unprocessed(0, 1) == []


def test_where_an_instance_reads_on_is_told(stand: Stand) -> None:
    """Continuing is no event; starting at another offset is, as is an error."""
    stand.fetch("a", 0, 3)
    stand.fetch("a", 0, 2, offset=3)
    stand.fetch("a", 0, 4, offset=1)
    stand.trace.begin_again("made again")
    stand.fetch("a", 0, 1, offset=5)
    assert [event.text for event in stand.trace.events] == [
        "reads in-0 from 0",
        "reads in-0 from 1",
        "made again",
        "reads in-0 from 5",
    ]


def test_without_an_output_who_reads_what_another_owns_is_seen() -> None:
    """Without output, an instance is taken to process what it reads."""
    stand = Stand(works_late_s=0.0, output=None)
    stand.sync("a", 0, 1)
    stand.fetch("a", 1, 3)
    stand.sync("a", 0)
    stand.sync("b", 1)
    stand.fetch("a", 0, 3)
    assert not stand.trace.trespasses
    stand.fetch("a", 1, 3, offset=3)
    (trespass,) = stand.trace.trespasses
    assert trespass.text.startswith("reads record 1-3 ")


def test_who_does_not_find_its_coordinator_is_known(stand: Stand) -> None:
    """Until the coordinator is found it can't leave its group; other groups do not matter."""

    def asks(group_id: str, code: ErrorCode) -> None:
        told = FindCoordinatorResponse((FoundCoordinator(group_id, NO_NODE, code),))
        stand.say("a", FindCoordinator(CoordinatorType.GROUP, (group_id,)), told)

    asks("exam", ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
    assert stand.trace.seats["a"].seeks
    asks("another", ErrorCode.NONE)
    assert stand.trace.seats["a"].seeks
    asks("exam", ErrorCode.NONE)
    assert not stand.trace.seats["a"].seeks
