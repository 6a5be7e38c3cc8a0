"""Environment of coordinator tests: a coordinator, its log, a clock and clients, driven step by step."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from typing import Any
from uuid import UUID

from groupcoord.clock import ManualClock
from groupcoord.config import Config, MigrationPolicy
from groupcoord.coordinator import GroupCoordinator
from groupcoord.core.events import Event, GroupRemoved
from groupcoord.core.groups.classic.group import GroupState
from groupcoord.core.messages import (
    CompleteTransaction,
    CompleteTransactionResponse,
    ConsumerGroupHeartbeat,
    DeleteGroups,
    DescribeGroups,
    OffsetCommit,
    OffsetCommitResponse,
    OffsetDelete,
    Reply,
    Request,
    Response,
    TxnOffsetCommit,
    TxnOffsetCommitResponse,
)
from groupcoord.errors import ErrorCode
from groupcoord.laws import (
    OffsetKey,
    check_acknowledged_commits,
    check_answer,
    check_append,
    check_bytes,
    check_compaction_rebuilds,
    check_consumer_group_is_served,
    check_epochs_grow,
    check_every_step,
    check_expiry,
    check_fenced,
    check_fetch_is_the_log,
    check_generations_grow,
    check_hard_state_is_the_log,
    check_log_can_be_loaded,
    check_places,
    check_restart_writes_the_same,
    check_snapshot_rebuilds,
    check_timers,
    check_writes_in_flight,
    consumer_group_of,
    error_codes,
    ids_taken_back,
    offsets_in_log,
    require,
    stranger,
)
from groupcoord.log_store import LogRecord, LogStore, LogStoreError, MemoryLogStore
from groupcoord.testing.contracts.faulty_store import Answer, FaultyLogStore
from groupcoord.testing.machine.consumers import PARTITIONS, TOPIC, ClassicConsumer, Consumer, Fleet, Sent, decode_share
from groupcoord.testing.machine.modern_members import Kip848Consumer
from groupcoord.testing.topics import Topics, readable


class PromisedOffsets:
    """Acknowledged offsets of open transactions, except deleted ones."""

    def __init__(self) -> None:
        self._open: dict[tuple[int, int], set[OffsetKey]] = {}
        self._groups: set[str] = set()
        self._topics: set[str] = set()

    def copy(self) -> PromisedOffsets:
        copy = PromisedOffsets()
        copy._open = {transaction: set(keys) for transaction, keys in self._open.items()}
        copy._groups, copy._topics = set(self._groups), set(self._topics)
        return copy

    def note_request(self, request: Request) -> None:
        if isinstance(request, DeleteGroups):
            self._groups.update(filter(None, request.group_ids))
        elif isinstance(request, OffsetDelete):
            self._groups.add(request.group_id)

    def note_deleted_topic(self, topic: str) -> None:
        self._topics.add(topic)

    def promise(self, partition: int, producer_id: int, key: OffsetKey) -> None:
        self._open.setdefault((partition, producer_id), set()).add(key)

    def check_marker(
        self, log_store: LogStore, marker: CompleteTransaction, response: CompleteTransactionResponse | None
    ) -> None:
        """Check that a committed transaction's offsets, or newer ones, are visible."""
        promised = self._open.pop((marker.partition, marker.producer_id), set())
        if promised and marker.committed and response is not None and response.error_code is ErrorCode.NONE:
            seen = offsets_in_log(log_store, marker.partition)
            for key in promised - seen.keys():
                group_id, topic, _ = key
                is_deleted = group_id in self._groups or topic in self._topics
                require(
                    is_deleted,
                    f"a transaction of {marker.producer_id} is committed, its offset of {key} is missing",
                )

    def forget(self) -> None:
        self._open.clear()


START_MS = 1_700_000_000_000
LOG_PARTITIONS = 2
OTHER_TOPICS = {"audit": 2, "payments": 1}
MAX_SIZE = 4
TICKS_AT_ONE_MOMENT_MAX = 100
RECOVERY_ROUNDS = 140
ROUNDS_BETWEEN_JOINS = 4
ROUND_MS = 2_500
"""350 s in all: longer than the longest wait for a member that died before its first generation."""

Commit = tuple[str, str, int, int]


class World:
    """Coordinator on a manual clock, its log, and its clients.

    Call :meth:`begin` first. Hooks to override: :meth:`make_topics`, :meth:`make_log_store`, :meth:`settle_log_store`,
    :meth:`crash_log_store`, :meth:`make_coordinator`, :meth:`send` and :meth:`receive`.

    Attributes:
        store: its log store, with faults around it.
        topics: the topics of the cluster.
        fleet: the clients and their requests in flight.
        acknowledged: acknowledged commits.
        promised: acknowledged commits of open transactions.
        group_ids: groups whose fetched offsets are compared with the log.
        leader_epoch: leader epoch of the last load or unload.
    """

    coordinator: GroupCoordinator
    coordinator_type: Callable[..., GroupCoordinator] = GroupCoordinator
    store: FaultyLogStore
    group_ids: tuple[str, ...] = ()

    def begin(self, config: Config, *, log_is_late: bool = False, seed: int = 0) -> None:
        """Start a coordinator on an empty log.

        Args:
            config: its settings.
            log_is_late: appends wait until :meth:`write`.
            seed: selects samples where a law cannot check everything.
        """
        self.config = config
        self.random = random.Random(seed)
        self.clock = ManualClock(START_MS)
        self.topics = self.make_topics()
        self.fleet = Fleet(self.send, self.receive, self.on_answer)
        self.acknowledged: set[Commit] = set()
        self.promised = PromisedOffsets()
        self._taken_back: set[str] = set()
        self.leader_epoch = 0
        self._ids: Counter[str] = Counter()
        self._new_member_id: str | None = None
        self.store = FaultyLogStore(self.make_log_store(), is_late=log_is_late, settle=self.settle_log_store)
        self.store.on_append = self.on_append
        self.boot()
        self.coordinator.load_all()

    # ------------------------------------------------------------ hooks

    def make_topics(self) -> Topics:
        """Return the initial topics; those other than ``orders`` may grow and be deleted."""
        return Topics({TOPIC: PARTITIONS, **OTHER_TOPICS})

    def make_config(
        self,
        initial_delay_ms: int = 0,
        policy: MigrationPolicy = MigrationPolicy.BIDIRECTIONAL,
        assignment_interval_ms: int = 0,
    ) -> Config:
        """Return settings for random tests: two log partitions, groups of at most four, retention of a minute.

        Args:
            initial_delay_ms: ``group.initial.rebalance.delay.ms``.
            policy: ``group.consumer.migration.policy``.
            assignment_interval_ms: ``group.consumer.assignment.interval.ms``.
        """
        return Config(
            group_initial_rebalance_delay_ms=initial_delay_ms,
            group_max_size=MAX_SIZE,
            group_consumer_max_size=MAX_SIZE,
            group_share_max_size=MAX_SIZE,
            group_streams_max_size=MAX_SIZE,
            group_streams_num_standby_replicas=1,
            offsets_topic_num_partitions=LOG_PARTITIONS,
            offsets_retention_minutes=1,
            offsets_retention_check_interval_ms=30_000,
            group_consumer_migration_policy=policy,
            group_consumer_assignment_interval_ms=assignment_interval_ms,
        )

    def make_log_store(self) -> LogStore:
        """Return a new, empty log store; late responses are simulated around it."""
        return MemoryLogStore()

    def settle_log_store(self, log_store: Any) -> Iterable[Answer]:
        """Complete the append of a log store that answers later, and return its ticket with the base offset or the
        error.

        It is called after each append that returns None, before any other.
        """
        raise AssertionError(
            f"{type(log_store).__name__}.append() returned None, so it answers later: override settle_log_store()"
        )

    def crash_log_store(self, log_store: LogStore) -> LogStore:
        """Return the log store that a new process opens after a crash.

        By default it is the same store, as for a log in memory. For a log on disk, abandon the store without closing it
        and open another one on its data.
        """
        return log_store

    def make_coordinator(self, config: Config, log_store: LogStore) -> GroupCoordinator:
        """Return a coordinator with nothing loaded."""
        return self.coordinator_type(
            config=config,
            clock=self.clock,
            log_store=log_store,
            topics=self.topics,
            regexes=self.topics,
            new_member_id=self.new_member_id,
            new_uuid=self.new_uuid,
        )

    def send(self, request: Request, token: int) -> None:
        """Send a request to the coordinator; override it for another transport.

        Args:
            request: a request of :mod:`groupcoord.messages`.
            token: :meth:`receive` must return the response with it.
        """
        self.coordinator.submit(request, token)

    def receive(self) -> Iterable[Reply]:
        """Return the responses since the last call, with their tokens."""
        return self.coordinator.take_replies()

    def new_member_id(self, prefix: str) -> str:
        """Return an unused member id."""
        self._ids[prefix] += 1
        self._new_member_id = f"{prefix}-{self._ids[prefix]}"
        return self._new_member_id

    def new_uuid(self) -> str:
        """Return an unused id for a member of a consumer group that joins without one."""
        return self.new_member_id("uuid")

    def on_append(self, records: Sequence[LogRecord]) -> None:
        """Check the laws of single appends."""
        check_append(written := [entry.record for entry in records])
        check_expiry(self.coordinator, written)

    def on_event(self, event: Event) -> None:
        """Process an event of the coordinator."""
        if isinstance(event, GroupRemoved):
            self.fleet.forget_group(event.group_id)

    def on_answer(self, sent: Sent, response: Response | None) -> None:
        """Check a response before its client receives it."""
        check_answer(self.coordinator, sent.request, response)
        if isinstance(response, OffsetCommitResponse | TxnOffsetCommitResponse):
            for commit, error_code in self._answered_commits(sent.request, response):
                self.on_commit_answered(commit, error_code)
                if isinstance(sent.request, TxnOffsetCommit) and error_code is ErrorCode.NONE:
                    partition = self.coordinator.partition_of(commit[0])
                    self.promised.promise(partition, sent.request.producer_id, commit[:3])
        elif isinstance(sent.request, CompleteTransaction):
            assert response is None or isinstance(response, CompleteTransactionResponse)
            self.promised.check_marker(self.store, sent.request, response)
        if response is not None and ErrorCode.FENCED_INSTANCE_ID in error_codes(response):
            self._check_fenced(sent)

    def _check_fenced(self, sent: Sent) -> None:
        consumer = sent.consumer
        if consumer is not None and consumer.is_alive and not self.fleet.successors(consumer):
            partition = self.coordinator.partition_of(consumer.group_id)
            check_fenced(self.store, partition, consumer.group_id, sent.member_id)

    def on_commit_answered(self, commit: Commit, error_code: ErrorCode) -> None:
        """Note the result of a commit of one partition."""
        if error_code is ErrorCode.NONE:
            self.acknowledged.add(commit)

    def topic_name(self, topic_id: UUID) -> str | None:
        """Return the name of a present or deleted topic, or None."""
        return self.topics.topic_name(topic_id) or (readable(topic_id) if topic_id in self.topics.gone else None)

    # ------------------------------------------------------------ the process

    def boot(self) -> None:
        """Start a coordinator on the log with nothing loaded."""
        self.coordinator = self.make_coordinator(self.config, self.store)
        self.coordinator.observe()

    def kill(self, written: int = 0) -> None:
        """Crash the process with ``written`` waiting appends in the log, and start another one."""
        self.store.write(written)
        self.store.lose()
        self.fleet.lose_requests()
        self.promised.forget()
        self.store.store = self.crash_log_store(self.store.store)
        self.store.forget_reads()
        self.boot()

    def load(self, partition: int) -> None:
        """Load a log partition after an election; a load in progress is aborted.

        Raises:
            LawBrokenError: the load fails.
        """
        check_log_can_be_loaded(partial(self.try_to_load, partition))

    def try_to_load(self, partition: int) -> None:
        """Load a log partition where reading may fail.

        Raises:
            LoadError: the load failed.
        """
        self.leader_epoch += 1
        self.store.forget_reads()
        try:
            self.coordinator.load(partition, self.leader_epoch)
            self.coordinator.continue_load(partition)
        finally:
            self.deliver()

    # ------------------------------------------------------------ requests and responses

    def submit(self, request: Request, consumer: Consumer | None = None) -> Sent:
        """Send a request for a consumer, and deliver all responses."""
        self._new_member_id = None
        self.promised.note_request(request)
        sent = self.fleet.send(request, consumer)
        sent.member_id = self._new_member_id or sent.member_id
        self.deliver()
        return sent

    def deliver(self) -> None:
        """Process events and pass responses to their clients."""
        for event in self.coordinator.take_events():
            self.on_event(event)
        self._note_taken_back()
        self.fleet.deliver()

    def _note_taken_back(self) -> None:
        self._taken_back |= ids_taken_back(self.coordinator)

    def _answered_commits(
        self, request: Request, response: OffsetCommitResponse | TxnOffsetCommitResponse
    ) -> Iterator[tuple[Commit, ErrorCode]]:
        assert isinstance(request, OffsetCommit | TxnOffsetCommit)
        sent: dict[tuple[str | UUID, int], list[int]] = {}
        for topic in request.topics:
            for offset in topic.partitions:
                key = topic.name or topic.topic_id, offset.partition_index
                sent.setdefault(key, []).append(offset.committed_offset)
        for answered in response.topics:
            name = answered.name or self.topic_name(answered.topic_id) or ""
            for result in answered.partitions:
                index = result.partition_index
                offsets = sent.get((answered.name or answered.topic_id, index)) or sent.get((answered.topic_id, index))
                require(bool(offsets), f"{response!r} does not answer {request!r}")
                assert offsets
                yield (request.group_id or "", name, index, offsets.pop(0)), result.error_code
        require(not any(sent.values()), f"{response!r} does not answer {request!r}")

    # ------------------------------------------------------------ consumers

    def start_consumer(self, consumer: Consumer) -> Consumer:
        """Start a consumer without a request; a static one replaces its predecessor."""
        if consumer.instance_id is not None:
            for other in self.fleet.living(consumer.group_id):
                if other.instance_id == consumer.instance_id:
                    other.is_alive = False
        self.fleet.consumers.append(consumer)
        return consumer

    def go_on(self, consumer: Consumer, *, commits: bool = False) -> None:
        """Send the next request of a consumer without one in flight; with ``commits`` a commit in
        place of a heartbeat.
        """
        if consumer.is_alive and not consumer.is_waiting:
            self.submit((consumer.commit() if commits else None) or consumer.next_request(), consumer)

    def all_go_on(self, *, commits: bool = False) -> None:
        """Send the next request of each living consumer without one in flight."""
        for consumer in list(self.fleet.consumers):
            self.go_on(consumer, commits=commits)

    def restart_static(self, consumer: Consumer, **changes: Any) -> Consumer:
        """Stop a static consumer without leaving, and restart it without its member id and with the given changes."""
        consumer.is_alive = False
        restarted = consumer.restarted(**changes)
        self.fleet.consumers.append(restarted)
        self.submit(restarted.next_request(), restarted)
        return restarted

    def leave(self, consumer: Consumer) -> None:
        """Stop a consumer that has no request in flight, and send its leave request."""
        if consumer.is_alive and not consumer.is_waiting:
            consumer.is_alive = False
            if consumer.member_id:
                self.submit(consumer.leave_request(), consumer)

    # ------------------------------------------------------------ topics

    def create_topic(self, name: str, partition_count: int) -> None:
        """Create a topic."""
        self.topics.create(name, partition_count)
        self.coordinator.topics_created([name])
        self.deliver()

    def grow_topic(self, name: str, count: int = 1) -> None:
        """Add partitions to a topic."""
        self.topics.grow(name, count)
        self.coordinator.topics_changed([name])
        self.deliver()

    def delete_topic(self, name: str) -> None:
        """Delete a topic."""
        self.promised.note_deleted_topic(name)
        self.coordinator.topic_deleted(name, self.topics.delete(name))
        self.deliver()

    # ------------------------------------------------------------ time

    def tick(self) -> None:
        """Fire due timers."""
        self.coordinator.tick()
        self.deliver()

    def advance(self, duration_ms: int) -> None:
        """Advance the clock, then fire all due timers late and together."""
        self.clock.advance(duration_ms)
        self.tick()

    def sleep(self, duration_ms: int) -> None:
        """Advance the clock from deadline to deadline, so that each timer fires on time."""
        end_ms = self.clock.now_ms() + duration_ms
        ticks = 0
        while (deadline_ms := self.coordinator.next_deadline_ms()) is not None and deadline_ms <= end_ms:
            ticks = 0 if deadline_ms > self.clock.now_ms() else ticks + 1
            require(ticks < TICKS_AT_ONE_MOMENT_MAX, "timers fire without end at one moment")
            self.clock.advance_to(max(deadline_ms, self.clock.now_ms()))
            self.tick()
        self.clock.advance_to(end_ms)
        self.tick()

    # ------------------------------------------------------------ the log

    def pass_on(self, answers: Iterable[Answer]) -> None:
        """Report the outcomes of appends to the coordinator."""
        for ticket, answer in answers:
            if isinstance(answer, LogStoreError):
                self.coordinator.append_failed(ticket, answer)
            else:
                self.coordinator.appended(ticket, answer)
        self.deliver()

    def write(self, count: int | None = None) -> None:
        """Write the oldest ``count`` waiting appends (all by default) and report each."""
        for ticket in self.store.waiting()[:count]:
            self.pass_on([self.store.settle(ticket)])

    def write_together(self, count: int | None = None) -> None:
        """Write the oldest waiting appends, and report only the last of each log partition."""
        self.pass_on({ticket.partition: (ticket, answer) for ticket, answer in self.store.write(count)}.values())

    def write_all(self) -> None:
        """Write until no append waits: a response may cause another append."""
        while self.store.waiting():
            self.write()

    def refuse(self, error: LogStoreError, count: int | None = None) -> None:
        """Fail the oldest ``count`` waiting appends (all by default)."""
        for ticket in self.store.waiting()[:count]:
            self.pass_on([self.store.settle(ticket, error)])

    # ------------------------------------------------------------ laws

    def check_laws(self) -> None:
        """Check every law that always holds.

        Raises:
            LawBrokenError: a law is broken.
        """
        coordinator = self.coordinator
        coordinator.check()
        check_hard_state_is_the_log(coordinator)
        check_fetch_is_the_log(coordinator, self.group_ids)
        check_snapshot_rebuilds(coordinator)
        check_compaction_rebuilds(coordinator, self.random.random())
        check_timers(coordinator)
        self._note_taken_back()
        check_every_step(coordinator, self.fleet.outstanding, self._taken_back)
        check_writes_in_flight(coordinator)
        check_restart_writes_the_same(coordinator, self._what_could_come())
        for consumer in self.fleet.consumers:
            if consumer.is_alive and consumer.phase == "stable":
                consumer.check(coordinator)
        for partition in range(self.config.offsets_topic_num_partitions):
            self.check_log(partition)
        self.check_acknowledged()

    def _what_could_come(self) -> list[ConsumerGroupHeartbeat]:
        members = [
            consumer.heartbeat()
            for consumer in self.fleet.consumers
            if isinstance(consumer, Kip848Consumer) and consumer.is_alive and consumer.epoch > 0
        ]
        return members + [stranger(group_id, (TOPIC,)) for group_id in self.group_ids]

    def check_log(self, partition: int) -> None:
        """Check the laws of a log partition."""
        check_generations_grow(self.store, partition)
        check_epochs_grow(self.store, partition)
        check_bytes(self.store, partition)
        check_places(self.store, partition, self.config.offsets_topic_num_partitions)

    def check_acknowledged(self) -> None:
        """Check that acknowledged commits are in the log; override it if your store compacts."""
        partitions = range(self.config.offsets_topic_num_partitions)
        check_acknowledged_commits(self.store, partitions, sorted(self.acknowledged))

    # ------------------------------------------------------------ recovery

    def recover(self) -> None:
        """Stop the faults, load every log partition again, and let all clients run for
        :data:`RECOVERY_ROUNDS` rounds.
        """
        self.store.mend()
        for consumer in self.fleet.consumers:
            consumer.behave()
        self.write_all()
        self.store.is_late = False
        for partition in range(self.config.offsets_topic_num_partitions):
            self.load(partition)
        self.live_on(RECOVERY_ROUNDS)
        self._rebalance_what_was_converted()

    def _rebalance_what_was_converted(self) -> None:
        """Rebalance classic groups in which members still have assignments made by the coordinator.

        A returning static member may convert its group without a rebalance, and a restart forgets the one begun by a
        conversion (KIP-848, Kafka 4.3).
        """
        for group_id in self.group_ids:
            (described,) = self.coordinator.call(DescribeGroups((group_id,))).groups
            if described.group_state != GroupState.STABLE.value:
                continue
            if all(decode_share(member.member_assignment)[0] is not None for member in described.members):
                continue
            for consumer in self.fleet.living(group_id):
                if isinstance(consumer, ClassicConsumer):
                    consumer.rejoin()
            self.live_on(RECOVERY_ROUNDS)

    def live_on(self, rounds: int, pause_ms: int = ROUND_MS) -> None:
        """Run all clients for some rounds while the log writes.

        Consumers of KIP-848 join only every few rounds and outside rebalances: each attempt to convert a classic group
        fails its pending joins, so joins in every round could continue without end.
        """
        for number in range(rounds):
            for consumer in list(self.fleet.consumers):
                is_joining = isinstance(consumer, Kip848Consumer) and consumer.phase == "joining"
                may_join = (
                    is_joining and number % ROUNDS_BETWEEN_JOINS == 0 and not self._is_rebalancing(consumer.group_id)
                )
                if may_join or not is_joining:
                    self.go_on(consumer)
            self.advance(pause_ms)
            self.write_all()

    def _is_rebalancing(self, group_id: str) -> bool:
        (described,) = self.coordinator.call(DescribeGroups((group_id,))).groups
        return described.group_state == GroupState.PREPARING_REBALANCE.value

    def check_all_are_served(self, group_id: str) -> None:
        """Check that the living consumers of a group own all partitions, as far as the group's size allows.

        Raises:
            LawBrokenError: they do not, or the group has another member.
        """
        living = self.fleet.living(group_id)
        if consumer_group_of(self.coordinator, group_id) is not None:
            self._check_members_are_served(group_id, living)
            return
        living = [consumer for consumer in living if not self.is_kept_out(consumer, Kip848Consumer)]
        (described,) = self.coordinator.call(DescribeGroups((group_id,))).groups
        if not living:
            require(described.group_state in ("Empty", "Dead"), f"without members {group_id!r} is {described!r}")
            return
        require(described.group_state == GroupState.STABLE.value, f"{group_id!r} does not become stable: {described!r}")
        member_ids = {member.member_id for member in described.members}
        serving = [c for c in living if c.member_id in member_ids and isinstance(c, ClassicConsumer)]
        require(
            len(serving) == len(member_ids) == min(len(living), self.config.group_max_size),
            f"the members of {group_id!r} are {sorted(member_ids)}; alive are {living}",
        )
        shares = sorted(index for consumer in serving for index in consumer.owned or ())
        require(shares == list(range(PARTITIONS)), f"{group_id!r} has partitions {shares} assigned")

    def is_kept_out(self, consumer: Consumer, kind: type[Consumer]) -> bool:
        """Return whether settings keep a consumer of this type out of a group of the other protocol."""
        policy = self.config.group_consumer_migration_policy
        allowed = policy.allows_upgrade if kind is Kip848Consumer else policy is not MigrationPolicy.DISABLED
        return isinstance(consumer, kind) and not allowed

    def _check_members_are_served(self, group_id: str, living: list[Consumer]) -> None:
        """Check that the living members of a consumer group own all partitions, and that heartbeats write nothing."""
        serving = [consumer for consumer in living if not self.is_kept_out(consumer, ClassicConsumer)]
        check_consumer_group_is_served(self.coordinator, group_id, [consumer.member_id for consumer in serving])
        written = [len(list(self.store.read(index))) for index in range(self.config.offsets_topic_num_partitions)]
        group = consumer_group_of(self.coordinator, group_id)
        assert group is not None
        for consumer in serving:
            member = group.state.members.get(consumer.member_id)
            if member is None or not isinstance(consumer, Kip848Consumer):
                continue
            has_all = set(consumer.held()) == set(member.partitions())
            require(has_all, f"{consumer} does not have its assignment: {member}")
            self.go_on(consumer)
            require(not consumer.is_waiting, f"the heartbeat of {consumer} waits although nothing changed")
        again = [len(list(self.store.read(index))) for index in range(self.config.offsets_topic_num_partitions)]
        require(written == again, f"group {group_id!r} is stable, but heartbeats of its members are written")
