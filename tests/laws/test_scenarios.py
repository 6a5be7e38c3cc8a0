"""Scenarios that random tests reach too rarely, step by step, with all laws checked after each."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import pytest
from attrs import evolve

from groupcoord import ErrorCode, GroupCoordinator, GroupState, LogRecord, ManualClock, PartitionStatus, Ticket
from groupcoord.core.columns import OffsetColumns
from groupcoord.core.log.records import GroupTombstone, OpaqueRecord
from groupcoord.errors import StoreContractError
from groupcoord.laws import error_codes
from groupcoord.log_store import StorageError
from groupcoord.messages import (
    CompleteTransaction,
    DeleteGroups,
    DescribeGroups,
    GroupToFetch,
    Heartbeat,
    JoinGroup,
    JoinGroupResponse,
    JoinProtocol,
    OffsetCommit,
    OffsetDelete,
    OffsetFetch,
    OffsetToCommit,
    Response,
    SyncGroupResponse,
    TopicToCommit,
    TopicToDelete,
    TxnOffsetCommit,
)
from groupcoord.storage.stores.segments import SegmentLogStore
from groupcoord.testing.machine.consumers import ClassicConsumer, Consumer, Sent, subscription
from tests.laws.actions import Actions
from tests.laws.full_world import CLERK, ELSEWHERE, HERE, SOMEBODY
from tests.laws.refusals import requests_of_every_kind


class Scenario(Actions):
    """A world that checks the laws with every answer."""

    def __init__(self, *, late: bool = False, delay_ms: int = 0, **settings: int) -> None:
        self.answers: list[tuple[int, Response | None]] = []
        self.begin(evolve(self.make_config(delay_ms), **settings), log_is_late=late)

    def on_answer(self, sent: Sent, response: Response | None) -> None:
        super().on_answer(sent, response)
        self.answers.append((sent.token, response))

    def deliver(self) -> None:
        """Deliver the responses, and check the laws."""
        super().deliver()
        self.check_laws()

    def join(self, name: str, *protocols: str, member_id: str = "", **changes: Any) -> Sent:
        """Join the group ``alpha`` as a client that needs no member id."""
        joins = tuple(JoinProtocol(protocol, subscription("orders")) for protocol in protocols or ("range",))
        patience = {"session_timeout_ms": 10_000, "rebalance_timeout_ms": 20_000, "requires_known_member_id": False}
        return self.submit(JoinGroup("alpha", member_id, "consumer", joins, client_id=name, **{**patience, **changes}))

    def stable(self, *instances: str | None) -> list[Consumer]:
        self.a_group_comes_to_be("alpha", instances, 0)
        assert self.state() is GroupState.STABLE
        return self.fleet.consumers[-len(instances) :]

    def state(self) -> GroupState | None:
        """Return the state of the group ``alpha``; None if there is no such group."""
        group = self.coordinator.partition(0).groups.get("alpha")
        return None if group is None else group.state

    def described(self) -> str:
        """Return groups, members and timers as they print."""
        groups = self.coordinator.partition(0).groups
        armed = sorted(map(str, self.coordinator._timers.armed()))
        return str([groups, [group.members for group in groups.values()], armed])

    def commit_much(self, name: str, count: int) -> None:
        """Commit an offset for each of many partitions of a topic."""
        self.topics.create(name, count)
        self.submit(OffsetCommit("alpha", self.offsets(name, *range(count))))


# ---------------------------------------------------------------- members


def test_a_return_that_waits_for_longer_than_its_session() -> None:
    """A returning static member doesn't expire while the log keeps it waiting."""
    scenario = Scenario(late=True, offsets_commit_timeout_ms=60_000)
    scenario.stable("i1")
    scenario.a_static_consumer_returns(0, skips=True)
    scenario.sleep(30_000)
    assert scenario.state() is GroupState.STABLE
    scenario.come_to_rest()


def test_a_group_whose_first_record_takes_long() -> None:
    """A newcomer to a group that isn't in the log yet waits for as long as it takes."""
    scenario = Scenario(late=True, delay_ms=20_000)
    join = scenario.join("a")
    scenario.sleep(10_000)
    assert join.is_waiting
    scenario.write_all()
    scenario.sleep(20_000)
    assert join.error is ErrorCode.NONE
    scenario.come_to_rest()


def test_a_member_without_a_vote() -> None:
    """A member without a possible vote, since another one lists a candidate twice, blocks the group
    until one leaves.
    """
    scenario = Scenario(delay_ms=3_000)
    joins = [scenario.join("a", "x", "x", "y"), scenario.join("b", "y")]
    scenario.sleep(6_000)
    first, second = (sent.answer(JoinGroupResponse) for sent in joins)
    again = [
        scenario.join("b", "y", "z", member_id=second.member_id),
        scenario.join("a", "x", "x", member_id=first.member_id),
    ]
    scenario.sleep(60_000)
    assert all(sent.is_waiting for sent in again)
    scenario.submit(ClassicConsumer("a", "alpha", None, (), member_id=first.member_id).leave_request())
    assert again[0].answer(JoinGroupResponse).protocol_name in ("y", "z")
    scenario.come_to_rest()


def test_a_sole_member_that_lists_its_only_protocol_twice() -> None:
    """No response is sent until the initial rebalance delay is over."""
    scenario = Scenario()
    join = scenario.join("a", "x", "x")
    scenario.sleep(299_999)
    assert join.is_waiting
    scenario.sleep(1)
    assert join.error is ErrorCode.UNKNOWN_MEMBER_ID
    scenario.come_to_rest()


def test_a_vote_with_many_candidates() -> None:
    """A vote between more protocols than a small Java table holds comes to the same end each time."""
    winners = set()
    for _ in range(2):
        scenario = Scenario(delay_ms=3_000, group_max_size=20)
        names = [f"p{number}" for number in range(14)]
        joins = [scenario.join(name, *names[place:], *names[:place]) for place, name in enumerate(names)]
        scenario.sleep(6_000)
        winners |= {sent.answer(JoinGroupResponse).protocol_name for sent in joins}
        scenario.come_to_rest()
    assert len(winners) == 1


def test_a_rebalance_that_starts_over_and_over() -> None:
    """However often a rebalance is interrupted, it ends, and remembers why it began."""
    scenario = Scenario()
    scenario.stable(None, None)
    for _ in range(20):
        for who in (0, 0):
            scenario.a_consumer_joins_again(who, changes=True)
    assert scenario.state() is GroupState.COMPLETING_REBALANCE
    scenario.come_to_rest()


@pytest.mark.parametrize(
    "metadata",
    [
        b"\x00\x00\xff\xff\xff\xff\x00\x00\x00\x00",
        b"\x00\x00\x00\x00\x00\x01\x00\x09orders",
        b"\x00\x00\x00\x00\x00\x00\x00\x00\x00\x09",
        b"",
    ],
)
def test_a_subscription_that_cannot_be_read(metadata: bytes) -> None:
    """A member with unknown topics may use any: none of its group's offsets is deleted or expires."""
    scenario = Scenario()
    scenario.start_consumer(ClassicConsumer("c0", "alpha", metadata=metadata))
    scenario.submit(OffsetCommit("alpha", scenario.offsets("audit", 0)))
    scenario.live_on(4, 1_000)
    assert scenario.state() is GroupState.STABLE
    deletion = scenario.submit(OffsetDelete("alpha", (TopicToDelete("audit", (0,)),)))
    assert deletion.error is ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC
    scenario.live_on(40, 5_000)
    assert scenario.coordinator.partition(0).offset_count() == 1
    scenario.come_to_rest()


# ---------------------------------------------------------------- much of it


def test_more_offsets_expire_than_an_append_should_hold(monkeypatch: pytest.MonkeyPatch) -> None:
    """A sweep writes its tombstones in several appends; a group goes with its last offset."""
    monkeypatch.setattr("groupcoord.core.administration.MAX_RECORDS_PER_APPEND", 50)
    scenario = Scenario()
    scenario.commit_much("wide", 120)
    scenario.submit(OffsetCommit("beta", scenario.offsets("orders", 0)))
    scenario.sleep(120_000)
    assert not scenario.coordinator.partition(0).groups
    assert isinstance(scenario.observed_store.appended[-1], GroupTombstone)
    scenario.come_to_rest()


def test_more_timers_are_due_than_a_tick_fires(monkeypatch: pytest.MonkeyPatch) -> None:
    """A tick does a bounded amount of work; the next one continues."""
    monkeypatch.setattr("groupcoord.coordinator.group_coordinator.MAX_TIMERS_PER_TICK", 20)
    scenario = Scenario()
    for number in range(30):
        scenario.join(f"c{number}", requires_known_member_id=True)
    group = scenario.coordinator.partition(0).groups["alpha"]
    scenario.clock.advance(20_000)
    scenario.tick()
    assert len(group.pending_members) == 10
    assert scenario.coordinator.next_deadline_ms() <= scenario.clock.now_ms()
    scenario.tick()
    assert not group.pending_members
    scenario.come_to_rest()


def test_more_groups_are_asked_for_than_are_remembered(monkeypatch: pytest.MonkeyPatch) -> None:
    """The log partitions of a bounded number of groups are cached; others are computed again."""
    scenario = Scenario()
    monkeypatch.setattr("groupcoord.core.router.partition_table.MAX_CACHED_ROUTES", 10)
    for _ in range(2):
        described = scenario.coordinator.call(DescribeGroups(tuple(f"g{number}" for number in range(25))))
        assert len(described.groups) == 25
    assert {scenario.coordinator.partition_of(group_id) for group_id in ("alpha", "workers")} == {0, 1}
    scenario.come_to_rest()


# ---------------------------------------------------------------- the log


def test_records_of_other_kinds() -> None:
    """Records that the coordinator doesn't know are passed over when they are loaded."""
    scenario = Scenario()
    scenario.memory_log.append(0, Ticket(0, 0), [LogRecord(OpaqueRecord(b"\x00\x63", b"?"), 0)])
    scenario.the_process_restarts(0, 4, loads=True, breaks_after=None)
    scenario.check_laws()
    scenario.come_to_rest()


def test_offsets_in_columns() -> None:
    """A commit with columns of offsets has the response and the records of one with a list."""
    answers = []
    for columns in (False, True):
        scenario = Scenario()
        offsets: Any = (OffsetToCommit(0, 7), OffsetToCommit(3, 9, 2))
        offsets = OffsetColumns((0, 3), (7, 9), (-1, 2)) if columns else offsets
        nothing: Any = OffsetColumns((), (), ()) if columns else ()
        topics = (TopicToCommit("orders", offsets), TopicToCommit("ledger", nothing), TopicToCommit("nowhere", offsets))
        for principal in (SOMEBODY, CLERK):
            answers.append(scenario.coordinator.call(OffsetCommit("alpha", topics), principal))
        answers.append(scenario.coordinator.call(OffsetCommit("alpha", topics[:1])))
        answers.append([entry.record for entry in scenario.store.read(0)])
        scenario.come_to_rest()
    assert answers[:4] == answers[4:]
    assert str(answers[:3]) == str(answers[4:7])
    assert hash(answers[2]) == hash(answers[6])
    assert answers[2].topics[0].partitions[1] == answers[6].topics[0].partitions[1]


def test_a_log_in_files(tmp_path: Path) -> None:
    """Commits are loaded from segment files unchanged, although a load reads no more than it needs."""
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
    """Requests that wait too long for the log fail, once; late writes still count."""
    scenario = Scenario(late=True)
    first, second = scenario.stable(None, None)
    scenario.submit(TxnOffsetCommit("alpha", scenario.offsets("orders", 1), 7, 0))
    scenario.submit(OffsetCommit("beta", scenario.offsets("orders", 1)))
    scenario.write_all()
    scenario.submit(first.leave_request())
    requests = [scenario.submit(second.leave_request())]
    requests.append(scenario.submit(OffsetCommit("beta", scenario.offsets("orders", 0, 1))))
    requests.append(scenario.submit(TxnOffsetCommit("beta", scenario.offsets("orders", 2), 7, 0)))
    requests.append(scenario.submit(OffsetDelete("beta", (TopicToDelete("orders", (1,)),))))
    requests.append(scenario.submit(CompleteTransaction(0, 7, 0, True)))
    requests.append(scenario.submit(DeleteGroups(("beta", "workers"))))
    scenario.join("c", group_instance_id="i1")
    scenario.sleep(5_000)
    for sent in requests:
        assert ErrorCode.NONE not in error_codes(sent.answer(object))
    if is_written:
        scenario.write_all()
    else:
        scenario.the_log_refuses(StorageError, None)
    scenario.come_to_rest()


def test_late_answers_of_a_log_that_was_loaded_again() -> None:
    """Answers of a log store to appends from before a load are ignored."""
    scenario = Scenario(late=True)
    requests = [scenario.submit(OffsetCommit("alpha", scenario.offsets("orders", index))) for index in range(2)]
    scenario.a_partition_moves_away(0, is_late=False)
    assert {token.error for token in requests} == {ErrorCode.NOT_COORDINATOR}
    (written,) = scenario.store.write(1)
    (lost,) = scenario.store.lose()
    scenario.a_partition_moves_here(0, is_late=False, records_at_once=None)
    scenario.coordinator.appended(*written)
    scenario.coordinator.append_failed(lost, StorageError("late"))
    scenario.deliver()
    scenario.come_to_rest()


def test_more_producers_than_are_remembered(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of producers that wrote long ago, nothing is known any more: the markers of their transactions are taken."""
    monkeypatch.setattr("groupcoord.core.offsets.cache.TRACKED_PRODUCERS_MAX", 2)
    scenario = Scenario()
    for producer_id in (7, 8, 9):
        scenario.submit(TxnOffsetCommit("alpha", scenario.offsets("orders", 0), producer_id, 3))
    assert scenario.submit(CompleteTransaction(0, 8, 2, True)).error is ErrorCode.INVALID_PRODUCER_EPOCH
    assert scenario.submit(CompleteTransaction(0, 7, 2, True)).error is ErrorCode.NONE
    scenario.come_to_rest()


def test_markers_of_older_transactions() -> None:
    """The end of a transaction that a newer one, or a newer coordinator, has overtaken is refused."""
    scenario = Scenario()
    scenario.submit(TxnOffsetCommit("alpha", scenario.offsets("orders", 0), 7, 3))
    assert scenario.submit(CompleteTransaction(0, 7, 2, True, 5)).error is ErrorCode.INVALID_PRODUCER_EPOCH
    assert scenario.submit(CompleteTransaction(0, 7, 3, True, 5)).error is ErrorCode.NONE
    assert scenario.submit(CompleteTransaction(0, 7, 3, True, 4)).error is ErrorCode.TRANSACTION_COORDINATOR_FENCED
    scenario.come_to_rest()


def test_a_topic_is_deleted_while_nobody_looks() -> None:
    """Offsets of a topic deleted while their log partition was elsewhere have no topic id to be listed with."""
    scenario = Scenario()
    scenario.submit(OffsetCommit("alpha", scenario.offsets("orders", 0) + scenario.offsets("audit", 0)))
    scenario.a_partition_moves_away(0, is_late=False)
    scenario.a_topic_is_deleted("audit")
    scenario.a_partition_moves_here(0, is_late=False, records_at_once=1)
    scenario.somebody_asks_where_nobody_serves("alpha")
    scenario.a_load_goes_on(0, None)
    fetched = scenario.coordinator.call(OffsetFetch((GroupToFetch("alpha"),), uses_topic_ids=True)).groups[0]
    assert [topic.name for topic in fetched.topics] == ["orders"]
    scenario.come_to_rest()


def test_deletions_and_commits_on_their_way() -> None:
    """A deletion covers what is on its way to the log when it comes, of its group alone."""
    scenario = Scenario(late=True)
    for group_id in ("alpha", "beta"):
        scenario.submit(OffsetCommit(group_id, scenario.offsets("orders", 0, 1)))
    scenario.write_all()
    for group_id in ("alpha", "beta"):
        scenario.submit(OffsetCommit(group_id, scenario.offsets("audit", 0)))
    scenario.somebody_deletes(["alpha"])
    waiting = scenario.submit(Heartbeat("alpha", 1, "nobody"))
    assert waiting.is_waiting
    scenario.write_all()
    assert waiting.error is ErrorCode.UNKNOWN_MEMBER_ID
    fetched = scenario.coordinator.call(OffsetFetch((GroupToFetch("alpha"), GroupToFetch("beta")))).groups
    assert [len(group.topics) for group in fetched] == [0, 2]
    scenario.come_to_rest()


def _skips_an_answer(scenario: Scenario) -> None:
    _, second = scenario.store.write(2)
    scenario.coordinator.append_failed(second[0], StorageError("out of turn"))


def _answers_twice(scenario: Scenario) -> None:
    for ticket, base_offset in scenario.store.write(1) * 2:
        scenario.coordinator.appended(ticket, base_offset)


def _answers_what_was_never_made(scenario: Scenario) -> None:
    scenario.coordinator.appended(Ticket(0, 9), 100)


def _goes_back(scenario: Scenario) -> None:
    first, second = scenario.store.write(2)
    scenario.coordinator.appended(*first)
    scenario.coordinator.appended(second[0], first[1])


def _leaves_no_room(scenario: Scenario) -> None:
    _, second = scenario.store.write(2)
    scenario.coordinator.appended(second[0], 0)


def _knows_better(scenario: Scenario) -> None:
    scenario.coordinator.appended(Ticket(99, 0), 0)


@pytest.mark.parametrize(
    ("break_contract", "message"),
    [
        (_skips_an_answer, "append 1 failed out of turn"),
        (_answers_twice, "append 0 is not in flight"),
        (_answers_what_was_never_made, "append 9 is not in flight"),
        (_goes_back, "append 1 was acknowledged at offset 0, but the log already reached 1"),
        (_leaves_no_room, "at offset -1"),
        (_knows_better, "names no log partition"),
    ],
)
def test_a_store_that_breaks_its_contract(break_contract: Any, message: str) -> None:
    """The store's author gets an error; the log partition fails until it is loaded again, others are served."""
    scenario = Scenario(late=True)
    scenario.submit(OffsetCommit("alpha", scenario.offsets("orders", 0)))
    scenario.submit(OffsetCommit("beta", scenario.offsets("orders", 1)))
    with pytest.raises(StoreContractError, match=message):
        break_contract(scenario)
    scenario.deliver()
    is_named = break_contract is not _knows_better
    assert scenario.coordinator.status(0) is (PartitionStatus.FAILED if is_named else PartitionStatus.ACTIVE)
    assert scenario.coordinator.status(1) is PartitionStatus.ACTIVE
    scenario.come_to_rest()


def test_a_store_that_raises_what_it_should_not() -> None:
    """Its exception propagates to the caller of the append; the log partition fails."""
    scenario = Scenario()

    def append(*_: Any) -> int:
        raise ZeroDivisionError

    scenario.observed_store.append = append
    with pytest.raises(ZeroDivisionError):
        scenario.submit(OffsetCommit("alpha", scenario.offsets("orders", 0)))
    scenario.deliver()
    assert scenario.coordinator.status(0) is PartitionStatus.FAILED
    del scenario.observed_store.append
    scenario.come_to_rest()


def test_a_log_whose_offsets_go_back() -> None:
    """A load that finds offsets out of order fails, and can be repeated."""
    scenario = Scenario()
    for index in range(2):
        scenario.submit(OffsetCommit("alpha", scenario.offsets("orders", index)))
    scenario.memory_log._logs[0].reverse()
    scenario.the_process_restarts(0, 4, loads=True, breaks_after=None)
    assert scenario.coordinator.status(0) is PartitionStatus.FAILED
    scenario.memory_log._logs[0].reverse()
    scenario.come_to_rest()


# ---------------------------------------------------------------- the whole


def test_a_copy_lives_on_as_the_original_does() -> None:
    """A deep copy of a coordinator with all around it is a full snapshot: both answer the same from there on."""
    scenario = Scenario(late=True)
    scenario.stable("i1", None, None)
    scenario.start_consumer(ClassicConsumer("b", "beta"))
    scenario.a_consumer_joins_again(1, changes=True)
    scenario.submit(OffsetCommit("workers", scenario.offsets("orders", 1)))
    other = copy.deepcopy(scenario)
    assert other.described() == scenario.described()
    for one in (scenario, other):
        one.leave(one.fleet.consumers[2])
        one.sleep(60_000)
        one.come_to_rest()
    assert scenario.answers == other.answers


def test_a_coordinator_by_itself() -> None:
    """Without anything around it, a coordinator has memory for a log, any topic, random ids, and knows no other."""
    coordinator = GroupCoordinator(clock=ManualClock())
    assert coordinator.next_deadline_ms() is None
    assert (coordinator.partition_count, coordinator.node.host) == (50, "127.0.0.1")
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
    with pytest.raises(LookupError, match="JoinGroup is not answered at once"):
        coordinator.call(JoinGroup("alpha", ids[0], protocols=(JoinProtocol("range", b""),)))
    assert coordinator.timer_advances > before
    topics = (TopicToCommit("anything", (OffsetToCommit(2**31 - 1, 7),)), TopicToCommit(None, (OffsetToCommit(0, 7),)))
    commit = coordinator.call(OffsetCommit("beta", topics))
    assert set(error_codes(commit)) == {ErrorCode.NONE, ErrorCode.UNKNOWN_TOPIC_ID}
    assert coordinator.call(OffsetFetch((GroupToFetch("beta"),), uses_topic_ids=True)).groups[0].topics == ()
    coordinator.check()
    with pytest.raises(TypeError, match="SyncGroupResponse is no request of the group coordinator"):
        coordinator.submit(SyncGroupResponse(ErrorCode.NONE))
    for request in requests_of_every_kind("gamma", ""):
        coordinator.submit(request)
    coordinator.close()
    coordinator.check()
