"""A state machine for Hypothesis: random lives of consumer groups over your log store, under every fault there is.

class TestMyStore(CoordinatorMachine.TestCase): ...

Subclass :class:`CoordinatorMachine`, override :meth:`~CoordinatorMachine.make_log_store` (and what else is yours), and
let pytest run its ``TestCase``. After every step the laws of ``docs/design.md`` are checked, among them: hard state ==
replay(durable log).
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterable
from typing import Any

from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, initialize, invariant, rule

from groupcoord.clock import ManualClock
from groupcoord.config import Config
from groupcoord.coordinator import GroupCoordinator, GroupState
from groupcoord.core.events import GroupRemoved
from groupcoord.core.messages import (
    CompleteTransaction,
    DeleteGroups,
    DescribeGroups,
    OffsetCommit,
    OffsetDelete,
    OffsetToCommit,
    Request,
    TopicToCommit,
    TopicToDelete,
    TxnOffsetCommit,
)
from groupcoord.core.replies import Reply
from groupcoord.log_store import (
    LogStore,
    LogStoreError,
    MemoryLogStore,
    NotEnoughReplicasError,
    NotLeaderError,
    RecordTooLargeError,
)
from groupcoord.testing.faulty_store import Answer, FaultyLogStore
from groupcoord.testing.fleet import PARTITIONS, TOPIC, Consumer, Fleet
from groupcoord.testing.laws import (
    check_acknowledged_commits,
    check_bytes,
    check_compaction_rebuilds,
    check_fetch_is_the_log,
    check_generations_grow,
    check_hard_state_is_the_log,
    check_size,
    check_snapshot_rebuilds,
    check_timers,
    check_tokens,
    require,
)

__all__ = ["CoordinatorMachine"]

GROUPS = ("alpha", "beta")
PRODUCERS = (7, 8)
LOG_PARTITIONS = 2
MAX_SIZE = 4
CONSUMERS_MAX = 8
START_MS = 1_700_000_000_000
ERRORS = (NotEnoughReplicasError, NotLeaderError, RecordTooLargeError)
DURATIONS_MS = (1, 500, 3_000, 9_999, 10_000, 20_000, 60_000, 300_000)
PROTOCOLS = (("range", "roundrobin"), ("roundrobin", "range"), ("range", "roundrobin", "sticky"))
"""All share those that can be chosen: after a load the group knows only the chosen one, and refuses who lacks it."""
RECOVERY_ROUNDS = 120
ROUND_MS = 2_500
"""300 s in all: as long as a member may wait that died before its first generation."""

_partitions = st.integers(0, PARTITIONS - 1)
_log_partitions = st.integers(0, LOG_PARTITIONS - 1)
_offsets = st.integers(0, 1000)


class CoordinatorMachine(RuleBasedStateMachine):
    """Consumers, administrators, producers, a log store and a clock, in any order.

    Override the hooks that are yours: :meth:`make_log_store`, :meth:`crash_log_store`, :meth:`make_coordinator`,
    :meth:`send` and :meth:`receive`. Rules and invariants can be added, as to any machine of Hypothesis.

    Attributes:
        coordinator: the coordinator of the moment.
        store: what it writes to: yours, with faults around it.
        clock: its clock.
        fleet: the consumers, and the requests that wait.
    """

    consumers: Bundle[Consumer] = Bundle("consumers")

    def __init__(self) -> None:
        super().__init__()
        self.coordinator: GroupCoordinator
        self.store: FaultyLogStore
        self.clock = ManualClock(START_MS)
        self.fleet = Fleet(lambda request, token: self.send(request, token), lambda: self.receive())
        self._ids: Counter[str] = Counter()
        self._random = random.Random(0)
        self._leader_epoch = 0
        self._is_started = False

    # ------------------------------------------------------------ hooks

    def make_log_store(self) -> LogStore:
        """Return a new, empty log store. It must answer at once: late answers are made around it."""
        return MemoryLogStore()

    def crash_log_store(self, log_store: LogStore) -> LogStore:
        """The process is killed: return the log store that a new process opens.

        By default it is the same one, which is right for a log in memory. Override it for one on disk: let go of it
        as a kill does, without an orderly close, and open another one on the same data.

        Args:
            log_store: the store of the process that is gone.
        """
        return log_store

    def make_coordinator(self, config: Config, log_store: LogStore) -> GroupCoordinator:
        """Return a coordinator with nothing loaded.

        Args:
            config: its settings: two log partitions, groups of at most four, a minute of retention.
            log_store: the store to give it.
        """
        return GroupCoordinator(config=config, clock=self.clock, log_store=log_store, new_member_id=self.new_member_id)

    def send(self, request: Request, token: int) -> None:
        """Bring a request to the coordinator. Override it to send it through a transport of your own.

        Args:
            request: one of :mod:`groupcoord.messages`.
            token: the answer must come out of :meth:`receive` with it.
        """
        self.coordinator.submit(request, token)

    def receive(self) -> Iterable[Reply]:
        """Return the answers since the last call, with their tokens; see :meth:`send`."""
        return self.coordinator.take_replies()

    def new_member_id(self, prefix: str) -> str:
        """Return a member id that was never given before."""
        self._ids[prefix] += 1
        return f"{prefix}-{self._ids[prefix]}"

    # ------------------------------------------------------------ the process

    @initialize(initial_delay_ms=st.sampled_from([0, 3_000]), log_is_late=st.booleans())
    def start(self, initial_delay_ms: int, log_is_late: bool) -> None:
        """Start a coordinator on an empty log."""
        self._config = Config(
            group_initial_rebalance_delay_ms=initial_delay_ms,
            group_max_size=MAX_SIZE,
            offsets_topic_num_partitions=LOG_PARTITIONS,
            offsets_retention_minutes=1,
            offsets_retention_check_interval_ms=30_000,
        )
        self.store = FaultyLogStore(self.make_log_store(), is_late=log_is_late)
        self._boot()
        self._is_started = True

    def _boot(self) -> None:
        self.coordinator = self.make_coordinator(self._config, self.store)
        self.coordinator.observe()
        self.coordinator.load_all()
        self._leader_epoch = 0

    def _deliver(self) -> None:
        for event in self.coordinator.take_events():
            if isinstance(event, GroupRemoved):
                self.fleet.forget_group(event.group_id)
        self.fleet.deliver()

    def _submit(self, request: Request, consumer: Consumer | None = None) -> None:
        self.fleet.submit(request, consumer)
        self._deliver()

    def _pass_on(self, answers: list[Answer]) -> None:
        for ticket, answer in answers:
            if isinstance(answer, LogStoreError):
                self.coordinator.append_failed(ticket, answer)
            else:
                self.coordinator.appended(ticket, answer)
        self._deliver()

    @rule(written=st.integers(0, 3))
    def process_is_killed(self, written: int) -> None:
        """The process dies; of the appends that wait, the oldest ones have reached the log."""
        self.store.write(min(written, len(self.store.waiting())))
        self.store.lose()
        self.fleet.lose_requests()
        self.store.store = self.crash_log_store(self.store.store)
        self.store.forget_reads()
        self._boot()

    @rule(partition=_log_partitions)
    def log_partition_moves_away(self, partition: int) -> None:
        """Another coordinator takes a log partition over."""
        self._leader_epoch += 1
        self.coordinator.unload(partition, self._leader_epoch)
        self._deliver()

    @rule(partition=_log_partitions, is_outdated=st.booleans())
    def log_partition_moves_here(self, partition: int, is_outdated: bool) -> None:
        """A log partition is to be served here (again); or was to be, and the word comes late."""
        if is_outdated:
            self.coordinator.load(partition, self._leader_epoch - 1)
        elif not self.store.waiting():
            self._leader_epoch += 1
            self.store.forget_reads()
            self.coordinator.load(partition, self._leader_epoch)

    # ------------------------------------------------------------ consumers

    @rule(
        target=consumers,
        group_id=st.sampled_from(GROUPS),
        instance_id=st.sampled_from([None, "i1", "i2"]),
        protocols=st.sampled_from(PROTOCOLS),
    )
    def consumer_starts(self, group_id: str, instance_id: str | None, protocols: tuple[str, ...]) -> Any:
        """A consumer is started, which has sent nothing yet. A static one stands in for those of its instance."""
        if sum(consumer.is_alive for consumer in self.fleet.consumers) >= CONSUMERS_MAX:
            return self.fleet.consumers[-1]
        if instance_id is not None:
            for other in self.fleet.living(group_id):
                if other.instance_id == instance_id:
                    other.is_alive = False
        consumer = Consumer(f"c{len(self.fleet.consumers)}", group_id, instance_id, protocols)
        self.fleet.consumers.append(consumer)
        return consumer

    @rule(consumer=consumers, commits=st.booleans())
    def consumer_goes_on(self, consumer: Consumer, commits: bool) -> None:
        """A consumer sends what comes next: a join, a sync, a heartbeat, or a commit in its place."""
        if consumer.is_alive and not consumer.is_waiting:
            self._submit(consumer.next_request(commits=commits), consumer)

    @rule(rounds=st.integers(1, 8), interval_ms=st.sampled_from([0, 1_000, 3_000]), commits=st.booleans())
    def everybody_goes_on(self, rounds: int, interval_ms: int, commits: bool) -> None:
        """All consumers go on, several times, with pauses."""
        for _ in range(rounds):
            self.fleet.go_on(commits=commits)
            self._deliver()
            self.time_passes(interval_ms)

    @rule(consumer=consumers)
    def consumer_repeats_its_join(self, consumer: Consumer) -> None:
        """A waiting join is sent a second time, as after a broken connection."""
        if consumer.is_alive and consumer.is_waiting and consumer.phase == "joining" and consumer.member_id:
            self._submit(consumer.next_request())

    @rule(target=consumers, consumer=consumers, protocols=st.sampled_from(PROTOCOLS))
    def static_consumer_restarts(self, consumer: Consumer, protocols: tuple[str, ...]) -> Any:
        """A static member comes back without its member id (KIP-345)."""
        if not (consumer.is_alive and consumer.instance_id and consumer.phase == "stable"):
            return consumer
        consumer.is_alive = False
        restarted = Consumer(f"{consumer.name}+", consumer.group_id, consumer.instance_id, protocols)
        self.fleet.consumers.append(restarted)
        self._submit(restarted.next_request(), restarted)
        return restarted

    @rule(consumer=consumers)
    def consumer_dies(self, consumer: Consumer) -> None:
        """A consumer falls silent."""
        consumer.is_alive = False

    @rule(consumer=consumers)
    def consumer_leaves(self, consumer: Consumer) -> None:
        """A consumer leaves its group in an orderly way."""
        if consumer.is_alive and consumer.member_id and not consumer.is_waiting:
            consumer.is_alive = False
            self._submit(consumer.leave_request(), consumer)

    # ------------------------------------------------------------ administrators and producers

    @rule(group_id=st.sampled_from(GROUPS), partition=_partitions, offset=_offsets)
    def commit_from_outside(self, group_id: str, partition: int, offset: int) -> None:
        """Somebody who is no member commits; that is accepted while the group is empty."""
        self._submit(OffsetCommit(group_id, _one_offset(partition, offset)))

    @rule(group_ids=st.permutations(GROUPS))
    def groups_are_deleted(self, group_ids: list[str]) -> None:
        """An administrator deletes groups."""
        self._submit(DeleteGroups(tuple(group_ids)))

    @rule(group_id=st.sampled_from(GROUPS), partitions=st.sets(_partitions, min_size=1))
    def offsets_are_deleted(self, group_id: str, partitions: set[int]) -> None:
        """An administrator deletes offsets (KIP-496)."""
        self._submit(OffsetDelete(group_id, (TopicToDelete(TOPIC, tuple(sorted(partitions))),)))

    @rule()
    def topic_is_deleted(self) -> None:
        """The topic is deleted, and its offsets with it."""
        self.coordinator.topic_deleted(TOPIC)
        self._deliver()

    @rule(
        producer_id=st.sampled_from(PRODUCERS), group_id=st.sampled_from(GROUPS), partition=_partitions, offset=_offsets
    )
    def producer_commits(self, producer_id: int, group_id: str, partition: int, offset: int) -> None:
        """A producer commits an offset in a transaction (KIP-98)."""
        self._submit(TxnOffsetCommit(group_id, _one_offset(partition, offset), producer_id, 0))

    @rule(producer_id=st.sampled_from(PRODUCERS), partition=_log_partitions, is_committed=st.booleans())
    def transaction_ends(self, producer_id: int, partition: int, is_committed: bool) -> None:
        """A producer's transaction is committed or aborted on a log partition."""
        self._submit(CompleteTransaction(partition, producer_id, 0, is_committed))

    # ------------------------------------------------------------ time and the log
    #
    # Rules that have nothing to do do nothing: with preconditions Hypothesis finds it harder to make a story short.

    @rule(duration_ms=st.sampled_from(DURATIONS_MS))
    def time_passes(self, duration_ms: int) -> None:
        """Time passes, and then the timers are looked at."""
        self.clock.advance(duration_ms)
        self.coordinator.tick()
        self._deliver()

    @rule(count=st.integers(1, 5))
    def log_writes(self, count: int) -> None:
        """The log writes the oldest appends that wait."""
        self._pass_on(self.store.write(count))

    @rule(error=st.sampled_from(ERRORS))
    def log_refuses(self, error: type[LogStoreError]) -> None:
        """The log refuses all appends that wait."""
        self._pass_on(self.store.refuse(error("refused by the test")))

    @rule(is_written=st.booleans())
    def log_times_out(self, is_written: bool) -> None:
        """Nobody knows what became of an append: its log partition fails, and must be loaded again."""
        if self.store.waiting():
            self._pass_on(self.store.time_out(is_written=is_written))

    @rule(error=st.sampled_from(ERRORS))
    def next_append_fails(self, error: type[LogStoreError]) -> None:
        """The log refuses the next append that does not wait."""
        self.store.fail_next(error("refused by the test"))

    # ------------------------------------------------------------ laws

    @invariant()
    def laws_hold(self) -> None:
        """The laws that hold at every moment."""
        if self._is_started:
            self.coordinator.check()
            check_hard_state_is_the_log(self.coordinator)
            check_fetch_is_the_log(self.coordinator, GROUPS)
            check_snapshot_rebuilds(self.coordinator)
            check_compaction_rebuilds(self.coordinator, self._random.random())
            check_timers(self.coordinator)
            check_tokens(self.coordinator, self.fleet.outstanding)
            check_size(self.coordinator)
            for partition in range(LOG_PARTITIONS):
                check_generations_grow(self.store, partition)
                check_bytes(self.store, partition)
            self.check_acknowledged()

    def check_acknowledged(self) -> None:
        """What a client was told is committed is in the log. Override it if your store compacts."""
        check_acknowledged_commits(self.store, range(LOG_PARTITIONS), sorted(self.fleet.acknowledged))

    def teardown(self) -> None:
        """Once faults stop, every live consumer gets its share and every group comes to rest."""
        if not self._is_started:
            return
        self.laws_hold()  # if a step has broken one, that is what is to be told
        while self.store.waiting():  # an answer can lead to another append
            self._pass_on(self.store.write())
        self.store.lose()
        self.store.is_late = False
        self.store.forget_reads()
        for partition in range(LOG_PARTITIONS):
            self._leader_epoch += 1
            self.coordinator.load(partition, self._leader_epoch)
        for _ in range(RECOVERY_ROUNDS):
            self.fleet.go_on()
            self.clock.advance(ROUND_MS)
            self.coordinator.tick()
            self._deliver()
        self.laws_hold()
        for group_id in GROUPS:
            self._check_that_all_are_served(group_id)

    def _check_that_all_are_served(self, group_id: str) -> None:
        living = self.fleet.living(group_id)
        (described,) = self.coordinator.call(DescribeGroups((group_id,))).groups
        if not living:
            require(described.group_state in ("Empty", "Dead"), f"without members {group_id!r} is {described!r}")
        elif len(living) <= MAX_SIZE:
            member_ids = {member.member_id for member in described.members}
            require(
                described.group_state == GroupState.STABLE.value, f"{group_id!r} does not come to rest: {described!r}"
            )
            require(
                member_ids == {consumer.member_id for consumer in living},
                f"the members of {group_id!r} are {sorted(member_ids)}; alive are {living}",
            )
            shares = sorted(index for consumer in living for index in consumer.owned or ())
            require(shares == list(range(PARTITIONS)), f"{group_id!r} has partitions {shares} assigned")


def _one_offset(partition: int, offset: int) -> tuple[TopicToCommit, ...]:
    return (TopicToCommit(TOPIC, (OffsetToCommit(partition, offset),)),)
