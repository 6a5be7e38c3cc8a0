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
from groupcoord.coordinator import GroupCoordinator, GroupState
from groupcoord.core.events import Event, GroupRemoved
from groupcoord.core.messages import (
    CompleteTransaction,
    CompleteTransactionResponse,
    ConsumerGroupHeartbeat,
    DeleteGroups,
    DescribeGroups,
    OffsetCommit,
    OffsetCommitResponse,
    OffsetDelete,
    Request,
    Response,
    TxnOffsetCommit,
    TxnOffsetCommitResponse,
)
from groupcoord.core.replies import Reply
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
    check_every_wait_ends,
    check_expiry,
    check_fenced,
    check_fetch_is_the_log,
    check_generations_grow,
    check_hard_state_is_the_log,
    check_log_can_be_loaded,
    check_members_are_durable,
    check_nobody_waits_for_nobody,
    check_places,
    check_restart_writes_the_same,
    check_size,
    check_snapshot_rebuilds,
    check_timers,
    check_tokens,
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
    """Offsets of open transactions that were answered with NONE.

    Those that somebody has asked to delete are promised to nobody.
    """

    def __init__(self) -> None:
        self._open: dict[tuple[int, int], set[OffsetKey]] = {}
        self._groups: set[str] = set()
        self._topics: set[str] = set()

    def copy(self) -> PromisedOffsets:
        """Return the same promises, to go on with apart from these."""
        copy = PromisedOffsets()
        copy._open = {transaction: set(keys) for transaction, keys in self._open.items()}
        copy._groups, copy._topics = set(self._groups), set(self._topics)
        return copy

    def note_request(self, request: Request) -> None:
        """Take note of who asks for a deletion."""
        if isinstance(request, DeleteGroups):
            self._groups.update(filter(None, request.group_ids))
        elif isinstance(request, OffsetDelete):
            self._groups.add(request.group_id)

    def note_deleted_topic(self, topic: str) -> None:
        """A topic is gone, and its offsets with it."""
        self._topics.add(topic)

    def promise(self, partition: int, producer_id: int, key: OffsetKey) -> None:
        """A producer was told that an offset of its transaction is taken, on a log partition."""
        self._open.setdefault((partition, producer_id), set()).add(key)

    def check_marker(
        self, log_store: LogStore, marker: CompleteTransaction, response: CompleteTransactionResponse | None
    ) -> None:
        """The offsets of a transaction that was committed are seen, or newer ones.

        Args:
            log_store: the log.
            marker: what ends the transaction.
            response: its answer; None: there is none.

        Raises:
            LawBrokenError: an offset is gone that nobody has asked to delete.
        """
        promised = self._open.pop((marker.partition, marker.producer_id), set())
        if promised and marker.committed and response is not None and response.error_code is ErrorCode.NONE:
            seen = offsets_in_log(log_store, marker.partition)
            for key in promised - seen.keys():
                group_id, topic, _ = key
                is_deleted = group_id in self._groups or topic in self._topics
                require(
                    is_deleted, f"a transaction of {marker.producer_id} is committed, and its offset of {key} is gone"
                )

    def forget(self) -> None:
        """Nobody knows any more which transactions go on: answers to markers were lost."""
        self._open.clear()


START_MS = 1_700_000_000_000
LOG_PARTITIONS = 2
OTHER_TOPICS = {"audit": 2, "payments": 1}
MAX_SIZE = 4
TICKS_AT_ONE_MOMENT_MAX = 100
RECOVERY_ROUNDS = 140
ROUNDS_BETWEEN_JOINS = 4
ROUND_MS = 2_500
"""350 s in all: longer than a member may wait that died before its first generation."""

Commit = tuple[str, str, int, int]
"""Group, topic, partition, offset."""


class World:
    """A coordinator on a manual clock, its log, and its clients.

    Call :meth:`begin` first. Override the hooks: :meth:`make_topics`, :meth:`make_log_store`,
    :meth:`settle_log_store`, :meth:`crash_log_store`, :meth:`make_coordinator`, :meth:`send` and :meth:`receive`.

    Attributes:
        config: the coordinator's settings.
        coordinator: the coordinator of the moment.
        store: what it writes to, with faults around it.
        clock: its clock.
        topics: the topics of the cluster.
        fleet: the clients, and the requests that wait.
        acknowledged: every commit that was answered with NONE.
        promised: those of transactions that go on.
        group_ids: the groups whose fetched offsets are compared with the log.
        leader_epoch: of the last move of a log partition.
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
            seed: decides what the laws look at where they can't look at everything.
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
        """Return the topics that there are at first. Those besides ``orders`` may grow and go."""
        return Topics({TOPIC: PARTITIONS, **OTHER_TOPICS})

    def make_config(
        self,
        initial_delay_ms: int = 0,
        policy: MigrationPolicy = MigrationPolicy.BIDIRECTIONAL,
        assignment_interval_ms: int = 0,
    ) -> Config:
        """Return settings for random tests: two log partitions, groups of at most four, a minute of retention.

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
        """Return a new, empty log store. Late answers are made around it; see :meth:`settle_log_store`."""
        return MemoryLogStore()

    def settle_log_store(self, log_store: Any) -> Iterable[Answer]:
        """Let a log store that answers later come to an end with its append, and return what became of it.

        It is asked after each append that returns None; nothing else is on its way then.

        Args:
            log_store: the store of :meth:`make_log_store`.

        Returns:
            The ticket of the append with its base offset, or with the error that it ended in.
        """
        raise AssertionError(
            f"{type(log_store).__name__}.append() returned None, so it answers later: override settle_log_store()"
        )

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
            config: its settings.
            log_store: the store to give it.
        """
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
        self._new_member_id = f"{prefix}-{self._ids[prefix]}"
        return self._new_member_id

    def new_uuid(self) -> str:
        """Return an id for who joins a consumer group without one, which was never given before."""
        return self.new_member_id("uuid")

    def on_append(self, records: Sequence[LogRecord]) -> None:
        """Take note of what is to be written; some laws are about single appends."""
        check_append(written := [entry.record for entry in records])
        check_expiry(self.coordinator, written)

    def on_event(self, event: Event) -> None:
        """Take note of what happened to a group."""
        if isinstance(event, GroupRemoved):
            self.fleet.forget_group(event.group_id)

    def on_answer(self, sent: Sent, response: Response | None) -> None:
        """Take note of an answer, before it is given to who asked."""
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
        """Who is fenced has a successor: one that was started later under its instance id."""
        consumer = sent.consumer
        if consumer is not None and consumer.is_alive and not self.fleet.successors(consumer):
            partition = self.coordinator.partition_of(consumer.group_id)
            check_fenced(self.store, partition, consumer.group_id, sent.member_id)

    def on_commit_answered(self, commit: Commit, error_code: ErrorCode) -> None:
        """Take note of what a commit of one partition was answered."""
        if error_code is ErrorCode.NONE:
            self.acknowledged.add(commit)

    def topic_name(self, topic_id: UUID) -> str | None:
        """Return the name of the topic with this id, if there is one or was one."""
        return self.topics.topic_name(topic_id) or (readable(topic_id) if topic_id in self.topics.gone else None)

    # ------------------------------------------------------------ the process

    def boot(self) -> None:
        """Start a coordinator on the log, which has not loaded anything."""
        self.coordinator = self.make_coordinator(self.config, self.store)
        self.coordinator.observe()

    def kill(self, written: int = 0) -> None:
        """Kill the process, with ``written`` of the appends that wait in the log; and boot another one."""
        self.store.write(written)
        self.store.lose()
        self.fleet.lose_requests()
        self.promised.forget()
        self.store.store = self.crash_log_store(self.store.store)
        self.store.forget_reads()
        self.boot()

    def load(self, partition: int) -> None:
        """Let a log partition be served here, after an election; a load under way is ended.

        Raises:
            LawBrokenError: it can't be loaded.
        """
        check_log_can_be_loaded(partial(self.try_to_load, partition))

    def try_to_load(self, partition: int) -> None:
        """Load a log partition as :meth:`load` does, for a test in which reading it may fail.

        Raises:
            LoadError: it can't be loaded.
        """
        self.leader_epoch += 1
        self.store.forget_reads()
        try:
            self.coordinator.load(partition, self.leader_epoch)
            self.coordinator.continue_load(partition)
        finally:
            self.deliver()

    # ------------------------------------------------------------ requests and answers

    def submit(self, request: Request, consumer: Consumer | None = None) -> Sent:
        """Send a request, and deliver what there is to deliver; the answer goes to ``consumer``."""
        self._new_member_id = None
        self.promised.note_request(request)
        sent = self.fleet.send(request, consumer)
        sent.member_id = self._new_member_id or sent.member_id
        self.deliver()
        return sent

    def deliver(self) -> None:
        """Take note of what happened to groups, and give every answer to who asked."""
        for event in self.coordinator.take_events():
            self.on_event(event)
        self._note_taken_back()
        self.fleet.deliver()

    def _note_taken_back(self) -> None:
        """Remember the ids that static members have not got after all: the log may have them later."""
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
        """Start a consumer; a static one takes the place of those of its instance. It has sent nothing yet."""
        if consumer.instance_id is not None:
            for other in self.fleet.living(consumer.group_id):
                if other.instance_id == consumer.instance_id:
                    other.is_alive = False
        self.fleet.consumers.append(consumer)
        return consumer

    def go_on(self, consumer: Consumer, *, commits: bool = False) -> None:
        """Let a consumer that waits for nothing send its next request; in place of a heartbeat it can commit."""
        if consumer.is_alive and not consumer.is_waiting:
            self.submit(consumer.next_request(commits=commits), consumer)

    def all_go_on(self, *, commits: bool = False) -> None:
        """Let every living consumer that waits for nothing send its next request."""
        for consumer in list(self.fleet.consumers):
            self.go_on(consumer, commits=commits)

    def restart_static(self, consumer: Consumer, **changes: Any) -> Consumer:
        """Let a static consumer end without a word and come back without its member id; ``changes``: what is new."""
        consumer.is_alive = False
        restarted = consumer.restarted(**changes)
        self.fleet.consumers.append(restarted)
        self.submit(restarted.next_request(), restarted)
        return restarted

    def leave(self, consumer: Consumer) -> None:
        """Let a consumer that waits for nothing leave in good order; without an id it ends without a word."""
        if consumer.is_alive and not consumer.is_waiting:
            consumer.is_alive = False
            if consumer.member_id:
                self.submit(consumer.leave_request(), consumer)

    # ------------------------------------------------------------ topics

    def create_topic(self, name: str, partition_count: int) -> None:
        """A topic comes."""
        self.topics.create(name, partition_count)
        self.coordinator.topics_created([name])
        self.deliver()

    def grow_topic(self, name: str, count: int = 1) -> None:
        """A topic gets more partitions."""
        self.topics.grow(name, count)
        self.coordinator.topics_changed([name])
        self.deliver()

    def delete_topic(self, name: str) -> None:
        """A topic goes."""
        self.promised.note_deleted_topic(name)
        self.coordinator.topic_deleted(name, self.topics.delete(name))
        self.deliver()

    # ------------------------------------------------------------ time

    def tick(self) -> None:
        """Let the coordinator do what is due."""
        self.coordinator.tick()
        self.deliver()

    def advance(self, duration_ms: int) -> None:
        """Let time pass, and then look at the timers: all fire late, together."""
        self.clock.advance(duration_ms)
        self.tick()

    def sleep(self, duration_ms: int) -> None:
        """Let time pass from deadline to deadline, so that every timer fires at its moment."""
        end_ms = self.clock.now_ms() + duration_ms
        ticks = 0
        while (deadline_ms := self.coordinator.next_deadline_ms()) is not None and deadline_ms <= end_ms:
            ticks = 0 if deadline_ms > self.clock.now_ms() else ticks + 1
            require(ticks < TICKS_AT_ONE_MOMENT_MAX, "timers fire without end while time stands still")
            self.clock.advance_to(max(deadline_ms, self.clock.now_ms()))
            self.tick()
        self.clock.advance_to(end_ms)
        self.tick()

    # ------------------------------------------------------------ the log

    def pass_on(self, answers: Iterable[Answer]) -> None:
        """Tell the coordinator what became of appends."""
        for ticket, answer in answers:
            if isinstance(answer, LogStoreError):
                self.coordinator.append_failed(ticket, answer)
            else:
                self.coordinator.appended(ticket, answer)
        self.deliver()

    def write(self, count: int | None = None) -> None:
        """Let the log write the oldest ``count`` appends that wait (all by default), and answer each."""
        for ticket in self.store.waiting()[:count]:
            self.pass_on([self.store.settle(ticket)])

    def write_together(self, count: int | None = None) -> None:
        """Let the log write the oldest appends that wait, and answer each log partition once, for the last of them."""
        self.pass_on({ticket.partition: (ticket, answer) for ticket, answer in self.store.write(count)}.values())

    def write_all(self) -> None:
        """Let the log write until nothing waits: an answer can lead to another append."""
        while self.store.waiting():
            self.write()

    def refuse(self, error: LogStoreError, count: int | None = None) -> None:
        """Let the log refuse the oldest ``count`` appends that wait (all by default)."""
        for ticket in self.store.waiting()[:count]:
            self.pass_on([self.store.settle(ticket, error)])

    # ------------------------------------------------------------ laws

    def check_laws(self) -> None:
        """Check every law that holds at every moment.

        Raises:
            LawBrokenError: one doesn't.
        """
        coordinator = self.coordinator
        coordinator.check()
        check_hard_state_is_the_log(coordinator)
        check_fetch_is_the_log(coordinator, self.group_ids)
        check_snapshot_rebuilds(coordinator)
        check_compaction_rebuilds(coordinator, self.random.random())
        check_timers(coordinator)
        check_tokens(coordinator, self.fleet.outstanding)
        check_size(coordinator)
        self._note_taken_back()
        check_members_are_durable(coordinator, self._taken_back)
        check_nobody_waits_for_nobody(coordinator)
        check_every_wait_ends(coordinator)
        check_writes_in_flight(coordinator)
        check_restart_writes_the_same(coordinator, self._what_could_come())
        for consumer in self.fleet.consumers:
            if consumer.is_alive and consumer.phase == "stable":
                consumer.check(coordinator)
        for partition in range(self.config.offsets_topic_num_partitions):
            self.check_log(partition)
        self.check_acknowledged()

    def _what_could_come(self) -> list[ConsumerGroupHeartbeat]:
        """Return heartbeats that members, or somebody new, could send now."""
        members = [
            consumer.heartbeat()
            for consumer in self.fleet.consumers
            if isinstance(consumer, Kip848Consumer) and consumer.is_alive and consumer.epoch > 0
        ]
        return members + [stranger(group_id, (TOPIC,)) for group_id in self.group_ids]

    def check_log(self, partition: int) -> None:
        """Check what must hold of a log partition by itself."""
        check_generations_grow(self.store, partition)
        check_epochs_grow(self.store, partition)
        check_bytes(self.store, partition)
        check_places(self.store, partition, self.config.offsets_topic_num_partitions)

    def check_acknowledged(self) -> None:
        """What a client was told is committed is in the log. Override it if your store compacts."""
        partitions = range(self.config.offsets_topic_num_partitions)
        check_acknowledged_commits(self.store, partitions, sorted(self.acknowledged))

    # ------------------------------------------------------------ the end

    def recover(self) -> None:
        """Let faults stop, load every log partition again, and let everybody go on for five minutes."""
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
        """Let classic groups rebalance whose members still have the shares that the coordinator made for them.

        A static member that comes back with the classic protocol may convert its group without a rebalance, and a
        restart forgets the one that a conversion begins (KIP-848, Kafka 4.3). Until the next, shares are not told,
        or are nobody's.
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
        """Let everybody go on so many times, with pauses, while the log writes what waits.

        Who wants to join a consumer group and was refused tries again later, as clients do, and when a rebalance is
        over: each attempt to convert a classic group sends away who waits in it, so it could go on for ever.
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
        """The living consumers of a group have all partitions between them, as many of them as fit.

        Raises:
            LawBrokenError: they don't, or somebody else is a member.
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
        require(described.group_state == GroupState.STABLE.value, f"{group_id!r} does not come to rest: {described!r}")
        member_ids = {member.member_id for member in described.members}
        serving = [c for c in living if c.member_id in member_ids and isinstance(c, ClassicConsumer)]
        require(
            len(serving) == len(member_ids) == min(len(living), self.config.group_max_size),
            f"the members of {group_id!r} are {sorted(member_ids)}; alive are {living}",
        )
        shares = sorted(index for consumer in serving for index in consumer.owned or ())
        require(shares == list(range(PARTITIONS)), f"{group_id!r} has partitions {shares} assigned")

    def is_kept_out(self, consumer: Consumer, kind: type[Consumer]) -> bool:
        """Tell whether it is a consumer of this kind, and can't get into a group of the other: settings say so."""
        policy = self.config.group_consumer_migration_policy
        allowed = policy.allows_upgrade if kind is Kip848Consumer else policy is not MigrationPolicy.DISABLED
        return isinstance(consumer, kind) and not allowed

    def _check_members_are_served(self, group_id: str, living: list[Consumer]) -> None:
        """The living members of a consumer group have all partitions between them, and go on without a write."""
        serving = [consumer for consumer in living if not self.is_kept_out(consumer, ClassicConsumer)]
        check_consumer_group_is_served(self.coordinator, group_id, [consumer.member_id for consumer in serving])
        written = [len(list(self.store.read(index))) for index in range(self.config.offsets_topic_num_partitions)]
        group = consumer_group_of(self.coordinator, group_id)
        assert group is not None
        for consumer in serving:
            member = group.state.members.get(consumer.member_id)
            if member is None or not isinstance(consumer, Kip848Consumer):
                continue
            held = {(topic_id, index) for topic_id, indexes in consumer.owned.items() for index in indexes}
            require(held == set(member.partitions()), f"{consumer} does not have what it was given: {member}")
            self.go_on(consumer)
            require(not consumer.is_waiting, f"the heartbeat of {consumer} waits although nothing changes")
        again = [len(list(self.store.read(index))) for index in range(self.config.offsets_topic_num_partitions)]
        require(written == again, f"group {group_id!r} is at rest, and heartbeats of its members are written")
