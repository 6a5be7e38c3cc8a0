"""Random lives of consumer groups under a log that answers late, fails and crashes: the laws hold at every step."""

from __future__ import annotations

import random

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from groupcoord import Config, ErrorCode, GroupCoordinator, GroupState, ManualClock, MemoryLogStore
from groupcoord.core.records import OffsetCommitRecord
from groupcoord.events import GroupRemoved, RebalanceCompleted
from groupcoord.log_store import LogStoreError, NotEnoughReplicasError, NotLeaderError, RecordTooLargeError
from groupcoord.messages import (
    CompleteTransaction,
    CoordinatorType,
    DeleteGroups,
    DescribeGroups,
    FindCoordinator,
    ListGroups,
    OffsetCommit,
    OffsetCommitResponse,
    OffsetDelete,
    OffsetToCommit,
    TopicToCommit,
    TopicToDelete,
    TxnOffsetCommit,
    TxnOffsetCommitResponse,
)
from tests.laws.actors import PARTITIONS, TOPIC, Actor
from tests.laws.denials import allowed_in, requests_of_every_kind
from tests.laws.laws import (
    check_fetch_is_the_log,
    check_generations_grow,
    check_hard_state_is_the_log,
    check_size,
    check_snapshot_rebuilds,
    check_tokens,
)

GROUPS = ("alpha", "beta")
LOG_PARTITIONS = 2
MAX_SIZE = 4
NOBODY = "User:nobody"
ERRORS = (NotEnoughReplicasError, NotLeaderError, RecordTooLargeError)


class CoordinatorMachine(RuleBasedStateMachine):
    """Consumers, an administrator, a log store and a clock, in any order."""

    @initialize(seed=st.integers(0, 2**32), delay_ms=st.sampled_from([0, 3_000]), late=st.booleans())
    def start(self, seed: int, delay_ms: int, late: bool) -> None:
        self.random = random.Random(seed)
        self.config = Config(
            group_initial_rebalance_delay_ms=delay_ms,
            group_max_size=MAX_SIZE,
            offsets_topic_num_partitions=LOG_PARTITIONS,
            offsets_retention_minutes=1,
            offsets_retention_check_interval_ms=30_000,
        )
        self.clock = ManualClock(1_700_000_000_000)
        self.store = self.make_store(late)
        self.actors: list[Actor] = []
        self.outstanding: dict[int, tuple[object, Actor | None]] = {}
        self.next_token = 0
        self.acknowledged: set[tuple[str, int, int]] = set()
        self.leader_epoch = 0
        self.boot()

    def make_store(self, late: bool) -> MemoryLogStore:
        """Return the log to live on."""
        return MemoryLogStore(acknowledge_late=late)

    def boot(self) -> None:
        """Start a coordinator on the log."""
        self.coordinator = GroupCoordinator(
            config=self.config,
            clock=self.clock,
            log_store=self.store,
            authorize=lambda principal, operation, resource: principal is not NOBODY,
            new_member_id=self.new_member_id,
        )
        self.coordinator.observe()
        self.coordinator.load_all()
        self.owners: dict[tuple[str, int, int], str] = {}

    def new_member_id(self, prefix: str) -> str:
        return f"{prefix}-{self.random.getrandbits(32):08x}"

    # ------------------------------------------------------------ talking to the coordinator

    def submit(self, request: object, actor: Actor | None = None) -> None:
        self.next_token += 1
        self.outstanding[self.next_token] = (request, actor)
        if actor is not None:
            actor.waiting = True
        self.coordinator.submit(request, self.next_token)
        self.deliver()

    def deliver(self) -> None:
        """Give every answer to who asked; an answer that nobody waits for is a KeyError."""
        for event in self.coordinator.take_events():
            if isinstance(event, GroupRemoved):
                self.forget_group(event.group_id)
            elif isinstance(event, RebalanceCompleted):
                assert event.triggers
                assert event.generation_id > event.old_generation_id
        for token, response in self.coordinator.take_replies():
            request, actor = self.outstanding.pop(token)
            if isinstance(response, OffsetCommitResponse | TxnOffsetCommitResponse):
                self.note_commit(request, response)
            if actor is not None:
                actor.receive(response)
                self.note_owned(actor)

    def forget_group(self, group_id: str) -> None:
        """A group is gone, or its last generation with it: generations of the next one count anew."""
        self.owners = {key: owner for key, owner in self.owners.items() if key[0] != group_id}

    def note_commit(
        self, request: OffsetCommit | TxnOffsetCommit, response: OffsetCommitResponse | TxnOffsetCommitResponse
    ) -> None:
        for sent, answered in zip(request.topics[0].partitions, response.topics[0].partitions, strict=True):
            assert sent.partition_index == answered.partition_index
            if answered.error_code is ErrorCode.NONE:
                self.acknowledged.add((request.group_id, sent.partition_index, sent.committed_offset))

    def note_owned(self, actor: Actor) -> None:
        """Within one generation, as members see it, a partition has one owner."""
        for index in actor.owned or ():
            key = (actor.group_id, actor.generation_id, index)
            owner = self.owners.setdefault(key, actor.instance_id or actor.member_id)
            assert owner == (actor.instance_id or actor.member_id)

    # ------------------------------------------------------------ consumers

    @rule(
        group_id=st.sampled_from(GROUPS),
        instance=st.sampled_from([None, None, "i1", "i2"]),
        protocols=st.sampled_from([("range",), ("range", "roundrobin"), ("roundrobin", "range")]),
    )
    def a_consumer_starts(self, group_id: str, instance: str | None, protocols: tuple[str, ...]) -> None:
        if len(self.actors) < 8:
            if instance is not None:
                for other in self.actors:
                    if (other.group_id, other.instance_id) == (group_id, instance):
                        other.is_alive = False
            self.actors.append(Actor(f"c{len(self.actors)}", group_id, instance, protocols))

    @precondition(lambda self: any(a.is_alive and not a.waiting for a in self.actors))
    @rule(data=st.data(), commits=st.booleans())
    def a_consumer_goes_on(self, data: st.DataObject, commits: bool) -> None:
        actor = data.draw(st.sampled_from([a for a in self.actors if a.is_alive and not a.waiting]))
        self.submit(actor.next_request(commits=commits), actor)

    @rule(rounds=st.integers(1, 6))
    def everybody_goes_on(self, rounds: int) -> None:
        for _ in range(rounds):
            for actor in self.actors:
                if actor.is_alive and not actor.waiting:
                    self.submit(actor.next_request(commits=self.random.random() < 0.3), actor)

    @precondition(lambda self: any(a.is_alive and a.waiting and a.phase == "joining" for a in self.actors))
    @rule(data=st.data())
    def a_consumer_repeats_its_join(self, data: st.DataObject) -> None:
        waiting = [a for a in self.actors if a.is_alive and a.waiting and a.phase == "joining" and a.member_id]
        if waiting:
            actor = data.draw(st.sampled_from(waiting))
            self.submit(actor.next_request(), None)

    @precondition(lambda self: any(a.is_alive and a.instance_id and a.phase == "stable" for a in self.actors))
    @rule(data=st.data(), protocols=st.sampled_from([None, ("range",), ("roundrobin",)]))
    def a_static_consumer_restarts(self, data: st.DataObject, protocols: tuple[str, ...] | None) -> None:
        stable = [a for a in self.actors if a.is_alive and a.instance_id and a.phase == "stable"]
        old = data.draw(st.sampled_from(stable))
        old.is_alive = False
        actor = Actor(f"{old.name}+", old.group_id, old.instance_id, protocols or old.protocols)
        self.actors.append(actor)
        self.submit(actor.next_request(), actor)

    @precondition(lambda self: any(a.is_alive for a in self.actors))
    @rule(data=st.data())
    def a_consumer_dies(self, data: st.DataObject) -> None:
        data.draw(st.sampled_from([a for a in self.actors if a.is_alive])).is_alive = False

    @precondition(lambda self: any(a.is_alive and a.member_id and not a.waiting for a in self.actors))
    @rule(data=st.data())
    def a_consumer_leaves(self, data: st.DataObject) -> None:
        actor = data.draw(st.sampled_from([a for a in self.actors if a.is_alive and a.member_id and not a.waiting]))
        actor.is_alive = False
        self.submit(actor.leave_request(), actor)

    # ------------------------------------------------------------ administrators

    @rule(group_id=st.sampled_from(GROUPS), offset=st.integers(0, 1000), index=st.integers(0, PARTITIONS - 1))
    def somebody_commits_from_outside(self, group_id: str, offset: int, index: int) -> None:
        self.submit(OffsetCommit(group_id, (TopicToCommit(TOPIC, (OffsetToCommit(index, offset),)),)))

    @rule(group_ids=st.permutations(GROUPS))
    def somebody_deletes(self, group_ids: list[str]) -> None:
        self.submit(DeleteGroups(tuple(group_ids)))

    @rule(group_id=st.sampled_from(GROUPS), indexes=st.sets(st.integers(0, PARTITIONS - 1), min_size=1))
    def somebody_deletes_offsets(self, group_id: str, indexes: set[int]) -> None:
        self.submit(OffsetDelete(group_id, (TopicToDelete(TOPIC, tuple(sorted(indexes))),)))

    @rule()
    def the_topic_is_deleted(self) -> None:
        self.coordinator.topic_deleted(TOPIC)
        self.deliver()

    @rule(group_id=st.sampled_from([*GROUPS, "", "gamma"]), member_id=st.sampled_from(["", "nobody"]))
    def somebody_without_permission_asks(self, group_id: str, member_id: str) -> None:
        """Every request of a principal without any permission is refused at once, whatever state the group is in."""
        for request in requests_of_every_kind(group_id, member_id):
            assert not allowed_in(self.coordinator.call(request, NOBODY))

    @rule(group_id=st.sampled_from([*GROUPS, "gamma"]))
    def an_observer_looks(self, group_id: str) -> None:
        """Describing, listing and fetching are answered in every state and change nothing."""
        described = self.coordinator.call(DescribeGroups((group_id, None), include_authorized_operations=True))
        assert [group.group_id for group in described.groups] == [group_id, ""]
        found = self.coordinator.call(FindCoordinator(CoordinatorType.GROUP, (group_id,)))
        assert found.coordinators[0].error_code is ErrorCode.NONE
        listed = {
            group.group_id for group in self.coordinator.call(ListGroups(("stable", "Empty"), ("Classic",))).groups
        }
        assert listed <= {*GROUPS, "gamma"}

    # ------------------------------------------------------------ producers

    @rule(
        producer_id=st.sampled_from([7, 8]),
        group_id=st.sampled_from(GROUPS),
        offset=st.integers(0, 1000),
        index=st.integers(0, PARTITIONS - 1),
    )
    def a_producer_commits(self, producer_id: int, group_id: str, offset: int, index: int) -> None:
        topics = (TopicToCommit(TOPIC, (OffsetToCommit(index, offset),)),)
        self.submit(TxnOffsetCommit(group_id, topics, producer_id, 0))

    @rule(producer_id=st.sampled_from([7, 8]), partition=st.integers(0, LOG_PARTITIONS - 1), committed=st.booleans())
    def a_transaction_ends(self, producer_id: int, partition: int, committed: bool) -> None:
        self.submit(CompleteTransaction(partition, producer_id, 0, committed))

    # ------------------------------------------------------------ time, log, process

    @rule(duration_ms=st.sampled_from([1, 500, 3_000, 9_999, 10_000, 20_000, 60_000, 300_000]))
    def time_passes(self, duration_ms: int) -> None:
        self.clock.advance(duration_ms)
        self.coordinator.tick()
        self.deliver()

    @precondition(lambda self: self.store.waiting())
    @rule(data=st.data(), together=st.booleans())
    def the_log_answers(self, data: st.DataObject, together: bool) -> None:
        count = data.draw(st.integers(1, len(self.store.waiting())))
        answers = self.store.write_waiting(count)
        if together:
            answers = list({ticket.partition: (ticket, base_offset) for ticket, base_offset in answers}.values())
        for ticket, base_offset in answers:
            self.coordinator.appended(ticket, base_offset)
        self.deliver()

    @precondition(lambda self: self.store.waiting())
    @rule(error=st.sampled_from(ERRORS))
    def the_log_refuses_what_waits(self, error: type[LogStoreError]) -> None:
        for ticket in self.store.drop_waiting():
            self.coordinator.append_failed(ticket, error("injected"))
        self.deliver()

    @rule(error=st.sampled_from(ERRORS))
    def the_log_will_refuse(self, error: type[LogStoreError]) -> None:
        if not self.store.waiting():
            self.store.fail_next(error("injected"))

    @precondition(lambda self: not self.store.waiting())
    @rule(partition=st.integers(0, LOG_PARTITIONS - 1), count=st.integers(1, 3))
    def another_writer_leaves_a_gap(self, partition: int, count: int) -> None:
        self.store.skip_offsets(partition, count)

    @rule(data=st.data())
    def the_process_restarts(self, data: st.DataObject) -> None:
        self.store.write_waiting(data.draw(st.integers(0, len(self.store.waiting()))))
        self.store.drop_waiting()
        for _, actor in self.outstanding.values():
            if actor is not None:
                actor.receive(None)
        self.outstanding.clear()
        self.boot()

    @rule(partition=st.integers(0, LOG_PARTITIONS - 1))
    def a_partition_moves_away(self, partition: int) -> None:
        self.leader_epoch += 1
        self.coordinator.unload(partition, self.leader_epoch)
        self.deliver()

    @rule(partition=st.integers(0, LOG_PARTITIONS - 1), is_late=st.booleans())
    def a_partition_moves_here(self, partition: int, is_late: bool) -> None:
        if is_late:
            self.coordinator.load(partition, self.leader_epoch - 1)
        elif not self.store.waiting():
            self.leader_epoch += 1
            self.coordinator.load(partition, self.leader_epoch)

    # ------------------------------------------------------------ laws

    @invariant()
    def laws_hold(self) -> None:
        if not hasattr(self, "coordinator"):
            return
        self.coordinator.check()
        check_hard_state_is_the_log(self.coordinator)
        check_fetch_is_the_log(self.coordinator, GROUPS)
        check_snapshot_rebuilds(self.coordinator)
        check_tokens(self.coordinator, self.outstanding)
        check_size(self.coordinator)
        for partition in range(LOG_PARTITIONS):
            check_generations_grow(self.store, partition)

    @invariant()
    def acknowledged_commits_are_in_the_log(self) -> None:
        if not hasattr(self, "coordinator"):
            return
        written = {
            (entry.record.group_id, entry.record.partition, entry.record.offset)
            for partition in range(LOG_PARTITIONS)
            for entry in self.store.read(partition)
            if isinstance(entry.record, OffsetCommitRecord)
        }
        assert self.acknowledged <= written

    def teardown(self) -> None:
        """Once faults stop, every live consumer gets its share and every group comes to rest."""
        if not hasattr(self, "coordinator"):
            return
        self.store.fail_next()
        self.store._failures.clear()
        for ticket, base_offset in self.store.write_waiting():
            self.coordinator.appended(ticket, base_offset)
        for partition in range(LOG_PARTITIONS):
            self.leader_epoch += 1
            self.coordinator.load(partition, self.leader_epoch)
        for _ in range(120):
            for ticket, base_offset in self.store.write_waiting():
                self.coordinator.appended(ticket, base_offset)
            self.deliver()
            for actor in self.actors:
                if actor.is_alive and not actor.waiting:
                    self.submit(actor.next_request(), actor)
            self.clock.advance(2_500)
            self.coordinator.tick()
            self.deliver()
        self.laws_hold()
        self.everybody_is_served()

    def everybody_is_served(self) -> None:
        for group_id in GROUPS:
            live = [a for a in self.actors if a.is_alive and a.group_id == group_id]
            described = self.coordinator.call(DescribeGroups((group_id,))).groups[0]
            if not live:
                assert described.group_state in ("Empty", "Dead")
            elif len(live) <= MAX_SIZE:
                assert described.group_state == GroupState.STABLE.value
                assert {m.member_id for m in described.members} == {a.member_id for a in live}
                assert sorted(index for a in live for index in a.owned or ()) == list(range(PARTITIONS))


TestCoordinatorMachine = CoordinatorMachine.TestCase
TestCoordinatorMachine.settings = settings(max_examples=150, stateful_step_count=50, deadline=None)


@pytest.mark.slow
class TestCoordinatorMachineForLong(CoordinatorMachine.TestCase):
    """The same, for ten times as many lives."""

    settings = settings(max_examples=1500, stateful_step_count=80, deadline=None)
