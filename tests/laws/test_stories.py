"""Lives that chance reaches too rarely: told from beginning to end, under the laws of every other life."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import pytest
from attrs import evolve

from groupcoord import ErrorCode, GroupCoordinator, GroupState, LogRecord, ManualClock, PartitionStatus, Ticket
from groupcoord.core.messages.columns import OffsetColumns
from groupcoord.core.records import GroupTombstone, OpaqueRecord
from groupcoord.errors import StoreContractError
from groupcoord.log_store import NotEnoughReplicasError, StorageError
from groupcoord.messages import (
    CompleteTransaction,
    DeleteGroups,
    DescribeGroups,
    GroupToFetch,
    Heartbeat,
    JoinGroup,
    JoinProtocol,
    OffsetCommit,
    OffsetDelete,
    OffsetFetch,
    OffsetToCommit,
    Response,
    SyncGroup,
    SyncGroupResponse,
    TopicToCommit,
    TopicToDelete,
    TxnOffsetCommit,
)
from groupcoord.storage.segment_store import SegmentLogStore
from tests.laws.actions import Lives
from tests.laws.actors import Actor, Manner, subscription
from tests.laws.denials import error_codes, requests_of_every_kind
from tests.laws.world import CLERK, ELSEWHERE, HERE, SOMEBODY


class Story(Lives):
    """A life whose every step is followed by the laws; it keeps what was answered."""

    def __init__(self, *, late: bool = False, delay_ms: int = 0, **settings: int) -> None:
        self.answers: dict[int, Response | None] = {}
        self.begin(late=late, delay_ms=delay_ms)
        if settings:
            self.config = evolve(self.config, **settings)
            self.boot()
            self.coordinator.load_all()
            self.deliver()

    def deliver(self) -> None:
        """Give the answers to who asked, and check the laws."""
        replies = self.coordinator.take_replies()
        self.answers.update(replies)
        self.coordinator._effects.replies[:0] = replies
        super().deliver()
        self.laws_hold()

    def code(self, token: int) -> ErrorCode:
        """Return the error of an answer, which must be there."""
        answer = self.answers[token]
        assert answer is not None
        (error_code,) = error_codes(answer)
        return error_code

    def join(self, name: str, *protocols: str, member_id: str = "", **changes: Any) -> int:
        """Somebody joins the group ``alpha`` who isn't told to come back with an id."""
        joins = tuple(JoinProtocol(protocol, subscription("orders")) for protocol in protocols or ("range",))
        patience = {"session_timeout_ms": 10_000, "rebalance_timeout_ms": 20_000, "requires_known_member_id": False}
        return self.submit(JoinGroup("alpha", member_id, "consumer", joins, client_id=name, **{**patience, **changes}))

    def stable(self, *instances: str | None, manner: int = 0) -> list[Actor]:
        """Return consumers of a stable group."""
        self.a_group_comes_to_be("alpha", instances, manner)
        assert self.state() is GroupState.STABLE
        return self.actors[-len(instances) :]

    def state(self) -> GroupState | None:
        """Return the state of the group ``alpha``; None if there is no such group."""
        group = self.coordinator.partition(0).groups.get("alpha")
        return None if group is None else group.state

    def described(self) -> str:
        """Return groups, members and timers as they print."""
        groups = self.coordinator.partition(0).groups
        return str([groups, [group.members for group in groups.values()], self.coordinator._timers.armed()])

    def commit_much(self, name: str, count: int) -> None:
        """Commit an offset for each of many partitions of a topic."""
        self.topics.create(name, count)
        self.submit(OffsetCommit("alpha", self.offsets(name, *range(count))))


# ---------------------------------------------------------------- members


@pytest.mark.parametrize("is_overtaken", [False, True])
def test_a_return_that_cannot_be_written(is_overtaken: bool) -> None:
    """A static member whose new id the log refuses is told so, and the old id counts again; if nothing came between."""
    story = Story(late=True)
    old, _ = story.stable("i1", None)
    story.a_static_consumer_restarts(0, None, skips=True)
    assert story.state() is GroupState.STABLE
    if is_overtaken:
        story.a_consumer_leaves(1)
    story.the_log_refuses(NotEnoughReplicasError, None)
    heartbeat = story.submit(Heartbeat("alpha", old.generation_id, old.member_id, "i1"))
    assert story.code(heartbeat) is (ErrorCode.FENCED_INSTANCE_ID if is_overtaken else ErrorCode.NONE)
    story.come_to_rest()


def test_a_return_that_is_written_when_the_group_has_moved_on() -> None:
    """A static member that came back is answered once: by the rebalance that began before the log answered."""
    story = Story(late=True)
    story.stable("i1", None)
    story.a_static_consumer_restarts(0, None, skips=True)
    story.a_consumer_leaves(1)
    assert not story.actors[-1].is_waiting
    story.write_all()
    story.come_to_rest()


def test_a_return_that_waits_for_longer_than_its_session() -> None:
    """A returning static member doesn't expire while the log keeps it waiting."""
    story = Story(late=True, offsets_commit_timeout_ms=60_000)
    story.stable("i1")
    story.a_static_consumer_restarts(0, None, skips=True)
    story.time_passes(30_000, exactly=True)
    assert story.state() is GroupState.STABLE
    story.come_to_rest()


def test_the_old_self_waits_for_the_leader() -> None:
    """Whoever waits under the old id of a static member is fenced when the new one comes."""
    story = Story(delay_ms=3_000)
    joins = [story.join("a", group_instance_id="i0"), story.join("b", group_instance_id="i1")]
    story.time_passes(6_000, exactly=True)
    _, follower = (story.answers[token] for token in joins)
    sync = story.submit(SyncGroup("alpha", follower.generation_id, follower.member_id, "i1"))
    story.join("b again", group_instance_id="i1")
    assert story.code(sync) is ErrorCode.FENCED_INSTANCE_ID
    story.come_to_rest()


def test_a_member_leaves_while_it_waits_for_the_leader() -> None:
    """The waiting sync of a member that leaves is given back without an answer, as Kafka never gives one."""
    story = Story(delay_ms=3_000)
    joins = [story.join("a"), story.join("b")]
    story.time_passes(6_000, exactly=True)
    _, follower = (story.answers[token] for token in joins)
    sync = story.submit(SyncGroup("alpha", follower.generation_id, follower.member_id))
    actor = Actor("b", "alpha", None, ("range",), member_id=follower.member_id)
    story.submit(actor.leave_request())
    assert story.answers[sync] is None
    story.come_to_rest()


def test_a_follower_of_a_group_that_never_was() -> None:
    """If a group's first record can't be written, a sync that waits there is refused, and the group is gone."""
    story = Story(late=True, delay_ms=2_000)
    joins = [story.join("a"), story.join("b")]
    story.clock.advance(2_000)
    story.let_timers_fire()
    story.clock.advance(2_000)
    story.let_timers_fire()
    _, follower = (story.answers[token] for token in joins)
    sync = story.submit(SyncGroup("alpha", follower.generation_id, follower.member_id))
    story.the_log_refuses(NotEnoughReplicasError, None)
    assert story.code(sync) is ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert story.state() is None
    story.come_to_rest()


def test_a_group_whose_first_record_takes_long() -> None:
    """A newcomer to a group that isn't in the log yet waits for as long as it takes."""
    story = Story(late=True, delay_ms=20_000)
    join = story.join("a")
    story.time_passes(10_000, exactly=True)
    assert join not in story.answers
    story.write_all()
    story.time_passes(20_000, exactly=True)
    assert story.code(join) is ErrorCode.NONE
    story.come_to_rest()


def test_a_group_whose_second_record_follows() -> None:
    """A group whose first record can't be written is there all the same if its next one can."""
    story = Story(late=True)
    join = story.join("a")
    story.let_timers_fire()
    leader = story.answers[join]
    sync = story.submit(SyncGroup("alpha", leader.generation_id, leader.member_id))
    story.the_log_refuses(NotEnoughReplicasError, 1)
    story.write_all()
    assert story.code(sync) is ErrorCode.NONE
    story.come_to_rest()


def test_a_member_without_a_vote() -> None:
    """A member that no candidate suits, since another lists one twice, leaves the group stuck until somebody goes."""
    story = Story(delay_ms=3_000)
    joins = [story.join("a", "x", "x", "y"), story.join("b", "y")]
    story.time_passes(6_000, exactly=True)
    first, second = (story.answers[token] for token in joins)
    again = [
        story.join("b", "y", "z", member_id=second.member_id),
        story.join("a", "x", "x", member_id=first.member_id),
    ]
    story.time_passes(60_000, exactly=True)
    assert not story.answers.keys() & set(again)
    story.submit(Actor("a", "alpha", None, (), member_id=first.member_id).leave_request())
    assert story.answers[again[0]].protocol_name in ("y", "z")
    story.come_to_rest()


def test_a_sole_member_that_lists_its_only_protocol_twice() -> None:
    """Nobody is answered until the time for a first join is over."""
    story = Story()
    join = story.join("a", "x", "x")
    story.time_passes(299_999, exactly=True)
    assert join not in story.answers
    story.time_passes(1, exactly=True)
    assert story.code(join) is ErrorCode.UNKNOWN_MEMBER_ID
    story.come_to_rest()


def test_a_vote_with_many_candidates() -> None:
    """A vote between more protocols than a small Java table holds comes to the same end each time."""
    winners = set()
    for _ in range(2):
        story = Story(delay_ms=3_000, group_max_size=20)
        names = [f"p{number}" for number in range(14)]
        joins = [story.join(name, *names[place:], *names[:place]) for place, name in enumerate(names)]
        story.time_passes(6_000, exactly=True)
        winners |= {story.answers[token].protocol_name for token in joins}
        story.come_to_rest()
    assert len(winners) == 1


def test_a_rebalance_that_starts_over_and_over() -> None:
    """However often a rebalance is interrupted, it ends, and remembers why it began."""
    story = Story()
    story.stable(None, None)
    for _ in range(20):
        for who in (0, 0):
            story.a_consumer_joins_again(who, changes=True)
    assert story.state() is GroupState.COMPLETING_REBALANCE
    story.come_to_rest()


@pytest.mark.parametrize(
    "metadata",
    [
        b"\xff\xff\x00\x00\x00\x00\x00\x00\x00\x00",
        b"\x00\x00\xff\xff\xff\xff\x00\x00\x00\x00",
        b"\x00\x00\x00\x00\x00\x01\x00\x09orders",
        b"\x00\x00\x00\x00\x00\x01\x00\x01\xff\x00\x00\x00\x00",
        b"\x00\x00\x00\x00\x00\x00\x00\x00\x00\x09",
        b"",
    ],
)
def test_a_subscription_that_cannot_be_read(metadata: bytes) -> None:
    """A member whose topics can't be known may use any: none of its group's offsets is deleted or expires."""
    story = Story()
    story._new_actor("alpha", None, ("range",), Manner(metadata=metadata))
    story.submit(OffsetCommit("alpha", story.offsets("audit", 0)))
    for _ in range(4):
        story.go_on(1_000)
    assert story.state() is GroupState.STABLE
    assert story.code(story.submit(OffsetDelete("alpha", (TopicToDelete("audit", (0,)),)))) is (
        ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC
    )
    for _ in range(40):
        story.go_on(5_000)
    assert story.coordinator.partition(0).offset_count() == 1
    story.come_to_rest()


# ---------------------------------------------------------------- much of it


def test_more_offsets_expire_than_an_append_should_hold(monkeypatch: pytest.MonkeyPatch) -> None:
    """A sweep writes its tombstones in several appends; a group goes with its last offset."""
    monkeypatch.setattr("groupcoord.core.offsets.retention.MAX_RECORDS_PER_APPEND", 50)
    story = Story()
    story.commit_much("wide", 120)
    story.submit(OffsetCommit("beta", story.offsets("orders", 0)))
    story.time_passes(120_000, exactly=True)
    assert not story.coordinator.partition(0).groups
    assert isinstance(story.line.appended[-1], GroupTombstone)
    story.come_to_rest()


def test_more_timers_are_due_than_a_tick_fires(monkeypatch: pytest.MonkeyPatch) -> None:
    """A tick does a bounded amount of work; the next one goes on."""
    monkeypatch.setattr("groupcoord.coordinator.MAX_TIMERS_PER_TICK", 20)
    story = Story()
    for number in range(30):
        story.join(f"c{number}", requires_known_member_id=True)
    group = story.coordinator.partition(0).groups["alpha"]
    story.clock.advance(20_000)
    story.let_timers_fire()
    assert len(group.pending_members) == 10
    assert story.coordinator.next_deadline_ms() <= story.clock.now_ms()
    story.let_timers_fire()
    assert not group.pending_members
    story.come_to_rest()


def test_more_groups_are_asked_for_than_are_remembered(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where groups belong is remembered for so many of them; the rest is found out anew."""
    story = Story()
    monkeypatch.setattr("groupcoord.core.front.partition_table.MAX_CACHED_ROUTES", 10)
    for _ in range(2):
        described = story.coordinator.call(DescribeGroups(tuple(f"g{number}" for number in range(25))))
        assert len(described.groups) == 25
    assert {story.coordinator.partition_of(group_id) for group_id in ("alpha", "workers")} == {0, 1}
    story.come_to_rest()


# ---------------------------------------------------------------- the log


def test_records_of_other_kinds() -> None:
    """Records that the coordinator doesn't know are passed over when they are loaded."""
    story = Story()
    story.store.append(0, Ticket(0, 0), [LogRecord(OpaqueRecord(b"\x00\x63", b"?"), 0)])
    story.the_process_restarts(0, 4, loads=True, breaks_after=None)
    story.laws_hold()
    story.come_to_rest()


def test_offsets_in_columns() -> None:
    """A commit whose offsets come as columns is answered, and stands in the log, as one that lists them."""
    answers = []
    for columns in (False, True):
        story = Story()
        offsets: Any = (OffsetToCommit(0, 7), OffsetToCommit(3, 9, 2))
        offsets = OffsetColumns((0, 3), (7, 9), (-1, 2)) if columns else offsets
        nothing: Any = OffsetColumns((), (), ()) if columns else ()
        topics = (TopicToCommit("orders", offsets), TopicToCommit("ledger", nothing), TopicToCommit("nowhere", offsets))
        for principal in (SOMEBODY, CLERK):
            answers.append(story.coordinator.call(OffsetCommit("alpha", topics), principal))
        answers.append(story.coordinator.call(OffsetCommit("alpha", topics[:1])))
        answers.append([entry.record for entry in story.store.read(0)])
        story.come_to_rest()
    assert answers[:4] == answers[4:]
    assert str(answers[:3]) == str(answers[4:7])
    assert hash(answers[2]) == hash(answers[6])
    assert answers[2].topics[0].partitions[1] == answers[6].topics[0].partitions[1]


def test_a_log_in_files(tmp_path: Path) -> None:
    """What was committed is loaded from segment files as it stood, although a load reads no more than it needs."""
    fetched = []
    for run in range(2):
        with SegmentLogStore(tmp_path) as store:
            coordinator = GroupCoordinator(clock=ManualClock(), log_store=store)
            coordinator.load_all()
            for offset in range(0 if run else 3):
                columns = OffsetColumns((0, 1, 2), (offset, 5, offset), (-1, -1, 3))
                coordinator.call(OffsetCommit("alpha", (TopicToCommit("orders", columns),)))
            fetched.append(coordinator.call(OffsetFetch((GroupToFetch("alpha"),))))
    assert fetched[0] == fetched[1]
    assert [partition.committed_offset for partition in fetched[1].groups[0].topics[0].partitions] == [2, 5, 2]


@pytest.mark.parametrize("is_written", [False, True])
def test_the_log_answers_when_everybody_has_been_told(is_written: bool) -> None:
    """Whoever waits too long for the log is told so, once; what is written after all counts."""
    story = Story(late=True)
    first, second = story.stable(None, None)
    story.a_producer_commits(7, "alpha", 1)
    story.somebody_commits_from_outside("beta", 1)
    story.write_all()
    story.submit(first.leave_request())
    tokens = [story.submit(second.leave_request())]
    tokens.append(story.submit(OffsetCommit("beta", story.offsets("orders", 0, 1))))
    tokens.append(story.submit(TxnOffsetCommit("beta", story.offsets("orders", 2), 7, 0)))
    tokens.append(story.submit(OffsetDelete("beta", (TopicToDelete("orders", (1,)),))))
    tokens.append(story.submit(CompleteTransaction(0, 7, 0, True)))
    tokens.append(story.submit(DeleteGroups(("beta", "workers"))))
    story.join("c", group_instance_id="i1")
    story.time_passes(5_000, exactly=True)
    for token in tokens:
        assert ErrorCode.NONE not in error_codes(story.answers[token])
    if is_written:
        story.write_all()
    else:
        story.the_log_refuses(StorageError, None)
    story.come_to_rest()


def test_late_answers_of_a_log_that_was_loaded_again() -> None:
    """What a log store has to say of appends from before a load is ignored."""
    story = Story(late=True)
    tokens = [story.submit(OffsetCommit("alpha", story.offsets("orders", index))) for index in range(2)]
    story.a_partition_moves_away(0, is_late=False)
    assert {story.code(token) for token in tokens} == {ErrorCode.NOT_COORDINATOR}
    (written,) = story.store.write_waiting(1)
    (lost,) = story.store.drop_waiting()
    story.a_partition_moves_here(0, is_late=False, records_at_once=None)
    story.coordinator.appended(*written)
    story.coordinator.append_failed(lost, StorageError("late"))
    story.deliver()
    story.come_to_rest()


def test_more_producers_than_are_remembered(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of producers that wrote long ago, nothing is known any more: the markers of their transactions are taken."""
    monkeypatch.setattr("groupcoord.core.offsets.producers.TRACKED_PRODUCERS_MAX", 2)
    story = Story()
    for producer_id in (7, 8, 9):
        story.submit(TxnOffsetCommit("alpha", story.offsets("orders", 0), producer_id, 3))
    assert story.code(story.submit(CompleteTransaction(0, 8, 2, True))) is ErrorCode.INVALID_PRODUCER_EPOCH
    assert story.code(story.submit(CompleteTransaction(0, 7, 2, True))) is ErrorCode.NONE
    story.come_to_rest()


def test_markers_of_older_transactions() -> None:
    """The end of a transaction that a newer one, or a newer coordinator, has overtaken is refused."""
    story = Story()
    story.submit(TxnOffsetCommit("alpha", story.offsets("orders", 0), 7, 3))
    assert story.code(story.submit(CompleteTransaction(0, 7, 2, True, 5))) is ErrorCode.INVALID_PRODUCER_EPOCH
    assert story.code(story.submit(CompleteTransaction(0, 7, 3, True, 5))) is ErrorCode.NONE
    assert story.code(story.submit(CompleteTransaction(0, 7, 3, True, 4))) is ErrorCode.TRANSACTION_COORDINATOR_FENCED
    story.come_to_rest()


def test_a_topic_is_deleted_while_nobody_looks() -> None:
    """Offsets of a topic that was deleted while their log partition was elsewhere have no id to be listed by."""
    story = Story()
    story.submit(OffsetCommit("alpha", story.offsets("orders", 0) + story.offsets("audit", 0)))
    story.a_partition_moves_away(0, is_late=False)
    story.a_topic_is_deleted("audit")
    story.a_partition_moves_here(0, is_late=False, records_at_once=1)
    story.somebody_asks_where_nobody_serves("alpha")
    story.a_load_goes_on(0, None)
    fetched = story.coordinator.call(OffsetFetch((GroupToFetch("alpha"),), uses_topic_ids=True)).groups[0]
    assert [topic.name for topic in fetched.topics] == ["orders"]
    story.come_to_rest()


def test_deletions_and_commits_on_their_way() -> None:
    """A deletion covers what is on its way to the log when it comes, of its group alone."""
    story = Story(late=True)
    for group_id in ("alpha", "beta"):
        story.submit(OffsetCommit(group_id, story.offsets("orders", 0, 1)))
    story.write_all()
    for group_id in ("alpha", "beta"):
        story.submit(OffsetCommit(group_id, story.offsets("audit", 0)))
    story.somebody_deletes(["alpha"])
    waiting = story.submit(Heartbeat("alpha", 1, "nobody"))
    assert waiting not in story.answers
    story.write_all()
    assert story.code(waiting) is ErrorCode.UNKNOWN_MEMBER_ID
    fetched = story.coordinator.call(OffsetFetch((GroupToFetch("alpha"), GroupToFetch("beta")))).groups
    assert [len(group.topics) for group in fetched] == [0, 2]
    story.come_to_rest()


def _skips_an_answer(story: Story) -> None:
    _, second = story.store.write_waiting(2)
    story.coordinator.append_failed(second[0], StorageError("out of turn"))


def _answers_twice(story: Story) -> None:
    for ticket, base_offset in story.store.write_waiting(1) * 2:
        story.coordinator.appended(ticket, base_offset)


def _goes_back(story: Story) -> None:
    first, second = story.store.write_waiting(2)
    story.coordinator.appended(*first)
    story.coordinator.appended(second[0], first[1])


def _knows_better(story: Story) -> None:
    story.coordinator.appended(Ticket(99, 0), 0)


@pytest.mark.parametrize("break_contract", [_skips_an_answer, _answers_twice, _goes_back, _knows_better])
def test_a_store_that_breaks_its_contract(break_contract: Any) -> None:
    """The store's author is told; the log partition is given up until it is loaded again, others are served."""
    story = Story(late=True)
    story.submit(OffsetCommit("alpha", story.offsets("orders", 0)))
    story.submit(OffsetCommit("beta", story.offsets("orders", 1)))
    with pytest.raises(StoreContractError):
        break_contract(story)
    story.deliver()
    is_named = break_contract is not _knows_better
    assert story.coordinator.status(0) is (PartitionStatus.FAILED if is_named else PartitionStatus.ACTIVE)
    assert story.coordinator.status(1) is PartitionStatus.ACTIVE
    story.come_to_rest()


def test_a_store_that_raises_what_it_should_not() -> None:
    """Its exception comes out where the append was asked for; the log partition is given up."""
    story = Story()

    def append(*_: Any) -> int:
        raise ZeroDivisionError

    story.line.append = append
    with pytest.raises(ZeroDivisionError):
        story.submit(OffsetCommit("alpha", story.offsets("orders", 0)))
    story.deliver()
    assert story.coordinator.status(0) is PartitionStatus.FAILED
    del story.line.append
    story.come_to_rest()


def test_a_log_whose_offsets_go_back() -> None:
    """A load that finds offsets out of order fails, and can be repeated."""
    story = Story()
    for index in range(2):
        story.submit(OffsetCommit("alpha", story.offsets("orders", index)))
    story.store._logs[0].reverse()
    story.the_process_restarts(0, 4, loads=True, breaks_after=None)
    assert story.coordinator.status(0) is PartitionStatus.FAILED
    story.store._logs[0].reverse()
    story.come_to_rest()


# ---------------------------------------------------------------- the whole


def test_a_copy_lives_on_as_the_original_does() -> None:
    """A deep copy of a coordinator with all around it is a full snapshot: both answer the same from there on."""
    story = Story(late=True)
    story.stable("i1", None, None)
    story.a_consumer_starts("beta", None, 0, 0)
    story.a_consumer_joins_again(1, changes=True)
    story.somebody_commits_from_outside("workers", 1)
    other = copy.deepcopy(story)
    assert other.described() == story.described()
    for life in (story, other):
        life.a_consumer_leaves(2)
        life.time_passes(60_000, exactly=True)
        life.come_to_rest()
    assert story.answers == other.answers


def test_a_coordinator_by_itself() -> None:
    """Without anything around it, a coordinator has memory for a log, any topic, random ids, and knows no other."""
    coordinator = GroupCoordinator(clock=ManualClock())
    assert coordinator.next_deadline_ms() is None
    coordinator.load_all()
    coordinator.node = ELSEWHERE
    assert coordinator.node == ELSEWHERE != HERE
    coordinator.submit(JoinGroup("alpha", client_id="a", protocols=(JoinProtocol("range", b""),)), "join")
    ids = [coordinator.call(JoinGroup("alpha", client_id="a", protocols=(JoinProtocol("range", b""),))).member_id]
    (reply,) = coordinator.take_replies()
    assert reply.token == "join"
    ids.append(reply.response.member_id)
    assert len({member_id for member_id in ids if member_id.startswith("a-")}) == 2
    before = coordinator.timer_advances
    with pytest.raises(LookupError):
        coordinator.call(JoinGroup("alpha", ids[0], protocols=(JoinProtocol("range", b""),)))
    assert coordinator.timer_advances > before
    topics = (TopicToCommit("anything", (OffsetToCommit(2**31 - 1, 7),)), TopicToCommit(None, (OffsetToCommit(0, 7),)))
    commit = coordinator.call(OffsetCommit("beta", topics))
    assert error_codes(commit) == {ErrorCode.NONE, ErrorCode.UNKNOWN_TOPIC_ID}
    coordinator.check()
    with pytest.raises(TypeError, match="SyncGroupResponse"):
        coordinator.submit(SyncGroupResponse(ErrorCode.NONE))
    for request in requests_of_every_kind("gamma", ""):
        coordinator.submit(request)
    coordinator.close()
    coordinator.check()
