"""``GroupCoordinator``: the way in for programs that embed the coordinator.

It holds what the core must not have (a clock, a log store, a source of ids), routes each group to its log
partition, hands appends to the store and collects the answers.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from typing import TYPE_CHECKING, Any, Self, TypeVar, cast
from uuid import UUID

from groupcoord.clock import Clock, SystemClock
from groupcoord.config import Config, GroupType
from groupcoord.coordinator.appending import Appending
from groupcoord.coordinator.loading import Loader, load_each
from groupcoord.coordinator.ownership import ownership_of
from groupcoord.coordinator.random_ids import random_member_id, random_uuid
from groupcoord.core.events import Cause
from groupcoord.core.log.records import ZERO_UUID
from groupcoord.core.router.partition_table import PartitionStatus
from groupcoord.errors import ErrorCode, OwnershipLostError
from groupcoord.log_store import (
    CondensingStore,
    LoadedCommits,
    LogRecord,
    LogStore,
    LogStoreError,
    MemoryLogStore,
    RecordTooLargeError,
)

if TYPE_CHECKING:
    from groupcoord.assignors import Assignor, TaskAssignor
    from groupcoord.config.group_settings import SettingsOfConsumerGroup, SettingsOfStreamsGroup
    from groupcoord.coordinator.forking import Forking, SavedState
    from groupcoord.core.events import AppendFailures, Counters, Event
    from groupcoord.core.fingerprints import Names
    from groupcoord.core.host_queries import CreateTopics, Found, ShareHost
    from groupcoord.core.messages import Node, Request
    from groupcoord.core.partition import Partition
    from groupcoord.core.replies import Reply, Token
    from groupcoord.core.router.authorization import Authorize, Principal
    from groupcoord.core.router.request_router import VerifyTransaction
    from groupcoord.core.router.split_requests import Owner, ShareOwner, TransactionOwner
    from groupcoord.core.timers import Timer
    from groupcoord.core.topics import RegexResolver, TopicResolver

MAX_TIMERS_PER_TICK = 10_000
R = TypeVar("R")


class GroupCoordinator(Appending["Partition"]):
    """A group coordinator without I/O of its own.

    Give it requests with :meth:`submit`, take answers with :meth:`take_replies`, and call :meth:`tick` when
    :meth:`next_deadline_ms` has come. Nothing here blocks or raises for what a client did. Not thread-safe: use it
    from one thread.

    Args:
        config: limits and time-outs; Kafka's defaults if left out.
        clock: where time comes from; the system's clock if left out.
        log_store: where records go; memory if left out.
        topics: the topics of the cluster; every topic exists if left out.
        assignors: more assignors for consumer groups than Kafka's own, to be named in ``group.consumer.assignors``.
        regexes: matches regular expressions that members of consumer groups subscribe to; none can be used if left out.
        consumer_group_settings: says what holds for a consumer group, by its id; what ``config`` says if left out.
        task_assignors: more assignors for streams groups than Kafka's own, to be named in ``group.streams.assignors``.
        streams_group_settings: says what holds for a streams group (KIP-1071), by its id; likewise.
        create_internal_topics: creates topics that streams groups need (KIP-1071); none are created if left out.
        share: what share groups (KIP-932) need; one that keeps what they have done in memory if left out.
        share_assignors: more assignors for share groups than Kafka's own, to be named in ``group.share.assignors``.
        node: what FindCoordinator says of this coordinator; node 1 at 127.0.0.1:9092 if left out.
        owner: which node coordinates a log partition, for one coordinator among several; this node if left out.
        transaction_owner: which node coordinates a transactional id, likewise; this node if left out.
        share_owner: which node coordinates a share-partition (KIP-932), by its key; nobody does if left out.
        authorize: decides who may do what, asked wherever Kafka asks its authorizer; all is allowed if left out.
        verify_transaction: decides whether a producer may commit offsets of a group in its transaction, asked before
            the group is looked at; any producer may if left out.
        new_member_id: makes member ids from a prefix; random ones, as Kafka's, if left out.
        new_uuid: makes ids for members that join a consumer group without one; random ones if left out.

    Attributes:
        on_lost: is called when somebody else has taken the log over, with what the log store said; None: nobody is. It
            had better only pass it on: the coordinator is in the middle of something.
        on_durable: is called with the number of a log partition to which something was appended; None: nobody is.

    Raises:
        TypeError: ``topics`` is no TopicResolver, such as a dict, or ``log_store`` no LogStore.
        ConfigError: ``group.consumer.assignors``, ``group.share.assignors`` or ``group.streams.assignors`` names what
            is no assignor, or two of one name; or the log store's lease is longer than sessions of consumer groups.
    """

    NOT_STATE = ("_arguments", "_forking", "_is_settling", "_ownership", "on_durable", "on_lost")

    def __init__(
        self,
        *,
        config: Config | None = None,
        clock: Clock | None = None,
        log_store: LogStore | None = None,
        topics: TopicResolver | None = None,
        assignors: Iterable[Assignor] = (),
        regexes: RegexResolver | None = None,
        consumer_group_settings: SettingsOfConsumerGroup | None = None,
        task_assignors: Iterable[TaskAssignor] = (),
        streams_group_settings: SettingsOfStreamsGroup | None = None,
        create_internal_topics: CreateTopics | None = None,
        share: ShareHost | None = None,
        share_assignors: Iterable[Assignor] = (),
        node: Node | None = None,
        owner: Owner | None = None,
        transaction_owner: TransactionOwner | None = None,
        share_owner: ShareOwner | None = None,
        authorize: Authorize | None = None,
        verify_transaction: VerifyTransaction | None = None,
        new_member_id: Callable[[str], str] = random_member_id,
        new_uuid: Callable[[], str] = random_uuid,
    ) -> None:
        assignors, task_assignors = tuple(assignors), tuple(task_assignors)
        self._arguments = {name: value for name, value in locals().items() if name not in ("self", "__class__")}
        for name, method, value in (("topics", "partition_count", topics), ("log_store", "append", log_store)):
            if value is not None and not hasattr(value, method):
                raise TypeError(f"{name} must be an object with {method}() and more, not {value!r}")
        self.config = config or Config()
        self.clock = clock or SystemClock()
        self.log_store = log_store or MemoryLogStore()
        self.on_lost: Callable[[OwnershipLostError], None] | None = None
        # This imports the handlers of all types of groups, which programs that only name the class don't need.
        from groupcoord.coordinator.composition import Composition

        composed = Composition(**{**self._arguments, "config": self.config})
        self._host, self._environments, self._router = composed.host, composed.environments, composed.router
        self._partitions, self._split_requests = composed.partitions, composed.split_requests
        self._effects, self._timers, self._observer = composed.effects, composed.timers, composed.observer
        self._cluster, self._make_partition = composed.cluster, composed.make_partition
        self._ownership = ownership_of(self.log_store, self.config, self.clock, self._lose)
        self._loader = Loader(self._partitions, self._read, self.clock, self._make_partition, self._loaded)
        self._is_settling = False
        self._forking: Forking | None = None

    def _read(self, index: int) -> Iterable[LogRecord | LoadedCommits]:
        store = self.log_store
        return store.read_last(index) if isinstance(store, CondensingStore) else store.read(index)

    def _loaded(self, partition: Partition, started_ms: int) -> None:
        now_ms = self.clock.now_ms()
        partition.loaded(now_ms)
        self._observer.partition_loaded(now_ms - started_ms)
        if self._ownership is not None:
            self._ownership.loaded(started_ms)

    @property
    def node(self) -> Node:
        """What FindCoordinator says of this coordinator."""
        return self._cluster.node

    @node.setter
    def node(self, node: Node) -> None:
        self._cluster.node = node

    def serve(self, protocols: frozenset[GroupType]) -> None:
        """Serve requests of these kinds of groups from now on, and no others; groups that there are go on."""
        self._router.serve(protocols)

    # ------------------------------------------------------------ requests and answers

    def submit(self, request: Request, token: Token = None, principal: Principal = None) -> None:
        """Take a request. Its answer comes out of :meth:`take_replies`, now or later, with ``token``.

        Args:
            request: one of :mod:`groupcoord.messages`.
            token: whatever tells the caller whose answer it is.
            principal: for whom it speaks; given to ``authorize``.

        Raises:
            TypeError: this is no request of the coordinator.
        """
        now_ms = self.clock.now_ms()
        self._router.handle(request, token, principal, now_ms)
        if self._effects.appends or self._effects.questions:
            self._settle(now_ms)

    def take_replies(self) -> list[Reply]:
        """Return the answers since the last call, in the order in which they were given."""
        replies, self._effects.replies = self._effects.replies, []
        if self._split_requests.awaited:
            replies = list(self._split_requests.join(replies))
        ownership = self._ownership
        if ownership is None or (self.clock.now_ms() < ownership.lease_end_ms and not ownership.withheld):
            return replies
        replies = ownership.let_out(replies)
        return replies + self.take_replies() if self._effects.replies else replies  # the log was found to be lost

    def put_back(self, reply: Reply) -> None:
        """Take an answer back that was not out in time (:meth:`may_answer`): it comes out again, or a refusal."""
        self._effects.replies.append(reply)

    def call(self, request: Request[R], principal: Principal = None) -> R:
        """Return the answer of a request that is answered at once, whose type is that of the request.

        Raises:
            LookupError: the answer has to wait (for other members, or for the log).
        """
        token = object()
        self.submit(request, token, principal)
        self._effects.replies = self.take_replies()
        for reply in self._effects.replies:
            if reply.token is token and reply.response is not None:
                self._effects.replies.remove(reply)
                return cast(R, reply.response)
        raise LookupError(f"{type(request).__name__} is not answered at once")

    # ------------------------------------------------------------ time

    def tick(self) -> None:
        """Time has passed: fire what is due (a bounded number of timers; the rest at the next call)."""
        if self._ownership is not None:
            self._ownership.tick()
        now_ms = self.clock.now_ms()
        for _ in range(MAX_TIMERS_PER_TICK):
            timer = self._timers.pop_due(now_ms)
            if timer is None:
                break
            partition = self._partitions.active[timer.key.partition]
            assert partition is not None
            partition.on_timer(timer.key, now_ms)
            self._settle(now_ms)

    def next_deadline_ms(self) -> int | None:
        """Return when :meth:`tick` is wanted at the latest, in milliseconds since the Unix epoch; None: not at all."""
        deadline_ms = self._timers.next_deadline_ms()
        look_ms = None if self._ownership is None else self._ownership.next_look_ms
        return min((each for each in (deadline_ms, look_ms) if each is not None), default=None)

    @property
    def timer_advances(self) -> int:
        """A number that changes when :meth:`next_deadline_ms` may have come nearer; cheap to ask for each request."""
        return self._timers.advances

    # ------------------------------------------------------------ the log store's answers

    def ownership_checked(self, error: LogStoreError | None = None) -> None:
        """The log store has looked whose the log is; see :class:`~groupcoord.log_store.OwnedStore`.

        Args:
            error: None if the log is owned still. Otherwise why it is lost, or why nobody knows.
        """
        if self._ownership is not None:
            self._ownership.checked(error)
            self._settle(self.clock.now_ms())

    def may_answer(self) -> bool:
        """Tell whether an answer may leave now: nobody else can have taken the log over and answered yet.

        :meth:`take_replies` asks that itself; whoever holds on to answers after that asks again, and puts them back.
        """
        return self._ownership is None or self._ownership.may_answer()

    @property
    def is_lease_over(self) -> bool:
        """True if answers could leave for a while, and now can't until the log store has looked again."""
        return self._ownership is not None and self._ownership.is_over

    @property
    def lost(self) -> OwnershipLostError | None:
        """Why nothing is served any more, if somebody else has taken the log over; None otherwise."""
        return None if self._ownership is None else self._ownership.lost

    def found_out(self, found: Found | None) -> None:
        """The host has found out what it was asked, and could not tell at once."""
        partition = None if found is None else self._partitions.active[found.question.partition]
        if found is not None and partition is not None:
            partition.answered(found, self.clock.now_ms())
            self._settle(self.clock.now_ms())

    def _lose(self, error: OwnershipLostError) -> None:
        """Give everything up: what the new owner writes can't be followed from here."""
        self._observer.ownership_lost(self.clock.now_ms())
        for index in range(len(self._partitions)):
            self._loader.abandon(index)
            self._fail(index, error.error_code)
        if self.on_lost is not None:
            self.on_lost(error)

    def _refused(self, partition: Partition, number: int, error: LogStoreError, now_ms: int) -> None:
        if not isinstance(error, RecordTooLargeError):
            self._observer.append_failed(partition.index, str(error), partition.writer.next_log_offset)
        super()._refused(partition, number, error, now_ms)
        if isinstance(error, OwnershipLostError) and self._ownership is not None:
            self._ownership.lose(error)

    def _wait_for(self, partition: Partition, number: int, now_ms: int) -> None:
        partition.append_timeouts.begin(number, now_ms)

    def _settle(self, now_ms: int) -> None:
        """Hand appends to the store, first in, first out, until it has nothing left to answer at once."""
        appends, questions = self._effects.appends, self._effects.questions
        if (appends or questions) and not self._is_settling:
            self._is_settling = True
            try:
                while appends or questions:
                    if appends:
                        self._append(appends.popleft(), now_ms)
                    else:
                        self.found_out(self._host.answer(questions.popleft()))
            finally:
                self._is_settling = False

    def fail(self, partition: int, error: LogStoreError) -> None:
        """Give a log partition up whose log can't be trusted any more: :meth:`load` it again.

        For a host that learns of it other than by an append that fails. Whoever waits there is told NOT_COORDINATOR,
        as every request is until then.

        Args:
            partition: the log partition; nothing happens if it isn't served.
            error: what has happened to its log.
        """
        self._fail(partition, error.error_code)
        self._settle(self.clock.now_ms())

    def _fail(self, index: int, error_code: ErrorCode) -> None:
        if (partition := self._partitions.active[index]) is not None:
            self._stop(partition, error_code, PartitionStatus.FAILED)

    # ------------------------------------------------------------ life cycle

    def load_all(self) -> None:
        """Load every log partition: this coordinator is the only one.

        Raises:
            LoadError: some could not be loaded; the others are served.
        """
        load_each(self.load, len(self._partitions))

    def load(self, partition: int, leader_epoch: int = 0) -> None:
        """Become the coordinator of a log partition: read its records and serve its groups.

        Many objects are made meanwhile, none of them in a cycle. A program that loads large logs may want to pause
        Python's cyclic garbage collector, as the server does.

        An epoch that isn't newer than the last one is out of date and ignored; on a partition that is served already a
        newer one is only remembered.

        Raises:
            LoadError: the log can't be read; the partition answers NOT_COORDINATOR until it is loaded again.
        """
        if self.begin_load(partition, leader_epoch):
            self.continue_load(partition)

    def begin_load(self, partition: int, leader_epoch: int = 0) -> bool:
        """Begin what :meth:`load` does at once: until it is finished, requests are COORDINATOR_LOAD_IN_PROGRESS.

        Returns:
            True if :meth:`continue_load` is wanted now; False if there is nothing to load.
        """
        if self._ownership is not None:
            self._ownership.claim()
        return self._loader.begin(partition, leader_epoch)

    def continue_load(self, partition: int, max_records: int | None = None) -> bool:
        """Load on: at most ``max_records`` records, or all that are left.

        Returns:
            True when the partition is served, or isn't loading any more.

        Raises:
            LoadError: the log can't be read; the partition answers NOT_COORDINATOR until it is loaded again.
        """
        is_over = self._loader.step(partition, max_records)
        if is_over:
            self._settle(self.clock.now_ms())
        return is_over

    def unload(self, partition: int, leader_epoch: int | None = None) -> None:
        """Stop coordinating a log partition: whoever waits there is told NOT_COORDINATOR.

        An epoch that isn't newer than the last load's is out of date and ignored. Without one it is always done, and
        the next load counts epochs anew.
        """
        if not self._loader.stop(partition, leader_epoch):
            return
        if self._ownership is not None:
            self._ownership.disown_withheld()
        if (active := self._partitions.active[partition]) is not None:
            self._stop(active, ErrorCode.NOT_COORDINATOR, PartitionStatus.UNLOADED)
        self._settle(self.clock.now_ms())

    def _stop(self, partition: Partition, error_code: ErrorCode, status: PartitionStatus) -> None:
        for request, token in partition.take_waiting():
            self._router.refuse_unserved(request, token, ErrorCode.NOT_COORDINATOR)
        partition.fail_appends(self.clock.now_ms(), error_code)
        self._forget_untold(partition.index)
        partition.unload(self.clock.now_ms())
        self._loader.withdraw(partition, status)

    def _forget_untold(self, index: int) -> None:
        """A log partition is about to be served no longer: what was found out after the lease is not told any more."""
        if self._ownership is not None and not self._ownership.may_answer():
            # What is of all groups, that the log is lost, names none: it is to be told.
            self._observer.forget_untold(
                lambda event: event.group_id != "" and self._partitions.index_of(event.group_id) == index
            )

    def close(self) -> None:
        """Unload everything; until something is loaded again, every request is COORDINATOR_NOT_AVAILABLE."""
        self._effects.replies = self.take_replies()
        if not (self.lost or self.may_answer()):
            self._observer.forget_untold()
        for partition in range(len(self._partitions)):
            self.unload(partition)
        self._partitions.is_closed = True
        if self._ownership is not None:
            self._ownership.rest()

    def topic_deleted(self, name: str, topic_id: UUID = ZERO_UUID) -> None:
        """A topic is gone from the cluster: delete the offsets that were committed for it, in every group."""
        for partition in self._partitions:
            partition.topic_deleted(name, topic_id, self.clock.now_ms())
        self._settle(self.clock.now_ms())

    def topics_created(self, names: Collection[str]) -> None:
        """There are new topics: groups that subscribe to them look at them, and expressions are matched again."""
        self._environments.topics.version += 1
        self.topics_changed(names)

    def topics_changed(self, names: Collection[str]) -> None:
        """Topics came, went or have more partitions than before: groups that subscribe to them look at them again."""
        for partition in self._partitions:
            partition.topics_changed(names)

    # ------------------------------------------------------------ copies

    def _forks(self) -> Forking:
        if self._forking is None:
            from groupcoord.coordinator.forking import Forking  # what only a few programs need

            self._forking = Forking(self)
        return self._forking

    def fork(self, **changes: Any) -> Self:
        """Return another coordinator in the same state, which goes on by itself.

        Both answer alike if they are given the same requests, times and answers of the log. It has the same
        collaborators, so give it a log store and a clock of its own if both are to go on: the log store must hold what
        this one's does, with the same appends in flight.

        Args:
            changes: arguments of the constructor that are to differ.

        Raises:
            RuntimeError: a log partition is loading, or the log store can lose its log to another owner.
        """
        return self._forks().fork(changes)  # type: ignore[no-any-return]

    def save(self) -> SavedState:
        """Return a copy of all that can change in this coordinator, for :meth:`restore`.

        It takes some fifty microseconds for a small group, and grows with the state in memory. Questions to the host
        that are not answered yet belong to this coordinator alone.

        Raises:
            RuntimeError: a log partition is loading, or the log store can lose its log to another owner.
        """
        return self._forks().save()

    def hand_over(self) -> SavedState:
        """Return all that can change in this coordinator as it is, which takes a third of the time of :meth:`save`.

        The coordinator must be given another state by :meth:`restore` before anything else is done with it.

        Raises:
            RuntimeError: as for :meth:`save`.
        """
        return self._forks().hand_over()

    def restore(self, saved: SavedState) -> None:
        """Go to a state that this coordinator, or one with the same settings, was in.

        Args:
            saved: as :meth:`save` returned it; it can be used again.
        """
        self._forks().restore(saved)

    def fingerprint(self, names: Names | None = None) -> bytes:
        """Return a digest of the state of this coordinator: 16 bytes, in every process the same.

        Times count from now, epochs and generations from the group's, and places in the log by their order. Counters,
        events that were not taken and answers that were not taken are left out. Two coordinators with equal
        fingerprints answer all requests alike, but for these.

        Args:
            names: replaces ids and tokens, so that states are equal in which members have changed places; they may
                differ where ids decide ties. Ids and tokens count as they are if left out.
        """
        return self._forks().fingerprint(names)

    # ------------------------------------------------------------ for tests of members

    def end_session(self, group_id: str, member_id: str) -> bool:
        """Let a member's session end now, as if it had been silent for too long. Every timer there is is looked at.

        Returns:
            False if the group has no such member.
        """
        for timer in self._timers.armed():
            key = timer.key
            if key.kind.cause is Cause.SESSION_EXPIRY and (key.group_id, key.member_id) == (group_id, member_id):
                partition, now_ms = self._partitions.active[key.partition], self.clock.now_ms()
                assert partition is not None
                self._timers.cancel(timer)
                partition.on_timer(key, now_ms)
                self._settle(now_ms)
                return True
        return False

    def begin_rebalance(self, group_id: str) -> bool:
        """Let a group rebalance though nothing has happened to it. See :meth:`Partition.begin_rebalance`."""
        partition, now_ms = self._partitions.serving(group_id), self.clock.now_ms()
        if partition is None or not partition.begin_rebalance(group_id, now_ms):
            return False
        self._settle(now_ms)
        return True

    # ------------------------------------------------------------ looking inside

    def observe(self, *, events: bool = True) -> None:
        """Turn events on (or off): what happens to groups from now on is kept for :meth:`take_events`."""
        self._observer.events = [] if events else None

    def take_events(self) -> list[Event]:
        """Return what happened to groups since the last call, in order; nothing while events are off.

        Whoever turns them on has to take them: they are kept until then, and until they may be told.
        """
        events = self._observer.events
        if not events or not (self.lost or self.may_answer()):
            return []
        self._observer.events = []
        return events

    @property
    def has_events(self) -> bool:
        """True if :meth:`take_events` has some to give, now or later."""
        return bool(self._observer.events)

    def take_append_failures(self) -> dict[int, AppendFailures]:
        """Return the appends that the log store could not write since the last call, by log partition.

        Records larger than the store takes are not among them: that is the client's doing.
        """
        failures, self._observer.append_failures = self._observer.append_failures, {}
        return failures

    @property
    def counters(self) -> Counters:
        """Totals since this coordinator was made. Read them; they are not yours to change."""
        return self._observer.counters

    def partition_of(self, group_id: str) -> int:
        """Return the log partition that holds a group."""
        return self._partitions.index_of(group_id)

    def status(self, partition: int) -> PartitionStatus:
        """Return whether a log partition is served here."""
        return self._partitions.status[partition]

    def waiting_tokens(self) -> list[Token]:
        """Return the token of every request that is not answered yet."""
        withheld = [] if self._ownership is None else [reply.token for reply in self._ownership.withheld]
        parked = [token for partition in self._partitions for token in partition.parked_tokens()]
        return self._split_requests.original_tokens(parked) + withheld

    def check(self, partitions: Collection[int] | None = None) -> None:
        """Prove the invariants of everything inside.

        Args:
            partitions: the log partitions to look into, where it is known that nothing has happened to the others since
                they were looked at; None: all.

        Raises:
            InvariantError: one does not hold.
        """
        self._timers.check()
        armed: dict[int, list[Timer]] = {}
        for timer in self._timers.armed():
            armed.setdefault(timer.key.partition, []).append(timer)
        for partition in self._partitions:
            if partitions is None or partition.index in partitions:
                partition.check(armed.get(partition.index, ()))
