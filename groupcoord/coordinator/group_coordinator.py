"""``GroupCoordinator``: the entry point for programs that embed the coordinator.

It holds what the core must not have (clock, log store, source of ids), routes requests, passes appends to the store and
collects the responses.
"""

from __future__ import annotations

import base64
import uuid
from collections.abc import Callable, Collection, Iterable
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, Self, TypeVar, cast
from uuid import UUID

from groupcoord.clock import Clock, SystemClock
from groupcoord.config import Config, GroupType
from groupcoord.coordinator.loading import Appending
from groupcoord.coordinator.ownership import ownership_of
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
    from groupcoord.core.events import AppendFailures, Counters, Event
    from groupcoord.core.host_queries import CreateTopics, Found, ShareHost
    from groupcoord.core.messages import Node, Reply, Request, Token
    from groupcoord.core.partition import Partition
    from groupcoord.core.router.authorization import Authorize, Principal
    from groupcoord.core.router.request_router import VerifyTransaction
    from groupcoord.core.router.split_requests import Owner, ShareOwner, TransactionOwner
    from groupcoord.core.timers import Timer
    from groupcoord.core.topics import RegexResolver, TopicResolver
    from groupcoord.forking.fingerprints import Names
    from groupcoord.forking.saved_state import Forking, SavedState


def random_member_id(prefix: str) -> str:
    """Return a member id as in Kafka: the client id or instance id, and a random UUID."""
    return f"{prefix}-{uuid.uuid4()}"


def random_uuid() -> str:
    """Return a random UUID in the form of Kafka's ``Uuid``: 22 characters of URL-safe base64 without a leading dash."""
    while True:
        # Tools take an id that begins with a dash for an option.
        text = base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")
        if not text.startswith("-"):
            return text


MAX_TIMERS_PER_TICK = 10_000
R = TypeVar("R")


class GroupCoordinator(Appending["Partition"]):
    """Group coordinator without I/O.

    Pass requests to :meth:`submit`, take responses with :meth:`take_replies`, and call :meth:`tick` at
    :meth:`next_deadline_ms`. No method blocks, or raises for an error of a client. Not thread-safe.

    Args:
        config: limits and timeouts; by default Kafka's.
        clock: the clock; by default the system's.
        log_store: the log store; by default in memory.
        topics: the topics of the cluster; by default every topic exists.
        assignors: custom assignors for consumer groups, to be named in ``group.consumer.assignors``.
        regexes: resolves regular expressions of consumer group members; by default none are supported.
        consumer_group_settings: returns the settings of a consumer group by its id; by default those of ``config``.
        task_assignors: custom assignors for streams groups, to be named in ``group.streams.assignors``.
        streams_group_settings: returns the settings of a streams group (KIP-1071) by its id; by default those of
            ``config``.
        create_internal_topics: creates internal topics of streams groups (KIP-1071); by default none.
        share: the host's part of share groups (KIP-932); by default their state is in memory.
        share_assignors: custom assignors for share groups, to be named in ``group.share.assignors``.
        node: this node in FindCoordinator responses; by default node 1 at 127.0.0.1:9092.
        owner: returns the node that coordinates a log partition; by default this node.
        transaction_owner: returns the node that coordinates a transactional id; by default this node.
        share_owner: returns the node that coordinates a share-partition (KIP-932) by its key; by default none.
        authorize: the authorizer, called where Kafka calls its own; by default everything is allowed.
        verify_transaction: returns whether a producer may commit offsets of a group in its transaction; by default any
            may.
        new_member_id: returns a member id for a prefix; by default random, like Kafka's.
        new_uuid: returns ids for members that join a consumer group without one; by default random.

    Attributes:
        on_lost: called with the error of the log store when another process has taken over the log, or None. It must
            not call back into the coordinator.
        on_durable: called with the number of a log partition after an append, or None.

    Raises:
        TypeError: ``topics`` is no TopicResolver, such as a dict, or ``log_store`` is no LogStore.
        ConfigError: a setting of assignors names an unknown one, or two of one name; or the lease of the log store is
            longer than sessions of consumer groups.
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
        # An iterator could be read only once, and forks need it again.
        assignors, task_assignors = tuple(assignors), tuple(task_assignors)
        self._arguments = {name: value for name, value in locals().items() if name not in ("self", "__class__")}
        # The usual mistakes: a dict of topics, a path in place of a store.
        for name, method, value in (("topics", "partition_count", topics), ("log_store", "append", log_store)):
            if value is not None and not hasattr(value, method):
                raise TypeError(f"{name} must be an object with {method}() and more, not {value!r}")
        self.config = config or Config()
        self.clock = clock or SystemClock()
        self.log_store = log_store or MemoryLogStore()
        self.on_lost: Callable[[OwnershipLostError], None] | None = None
        # This imports the handlers of all types of groups, which programs that only name the class don't need.
        from groupcoord.coordinator.composition import Composition

        composed = Composition(self.config, SimpleNamespace(**self._arguments))
        self._host, self._environments, self._router = composed.host, composed.environments, composed.router
        super().__init__(composed.partitions)
        self._split_requests = composed.split_requests
        self._effects, self._timers, self._observer = composed.effects, composed.timers, composed.observer
        self._cluster, self._make_partition = composed.cluster, composed.make_partition
        self._ownership = ownership_of(self.log_store, self.config, self.clock, self._lose)
        self._is_settling = False
        self._forking: Forking | None = None

    def _read(self, index: int) -> Iterable[LogRecord | LoadedCommits]:
        store = self.log_store
        # Replaced commits change no state, so a load may skip them.
        return store.read_last(index) if isinstance(store, CondensingStore) else store.read(index)

    def _loaded(self, partition: Partition, started_ms: int) -> None:
        now_ms = self.clock.now_ms()
        partition.loaded(now_ms)
        self._observer.partition_loaded(now_ms - started_ms)
        if self._ownership is not None:
            self._ownership.loaded(started_ms)

    @property
    def node(self) -> Node:
        """This node in FindCoordinator responses."""
        return self._cluster.node

    @node.setter
    def node(self, node: Node) -> None:
        self._cluster.node = node

    def serve(self, protocols: frozenset[GroupType]) -> None:
        """Serve only requests of these group types from now on; existing groups continue."""
        self._router.serve(protocols)

    # ------------------------------------------------------------ requests and answers

    def submit(self, request: Request, token: Token = None, principal: Principal = None) -> None:
        """Handle a request. :meth:`take_replies` returns its response, now or later, with ``token``.

        Args:
            request: one of :mod:`groupcoord.messages`.
            token: identifies the request to the caller.
            principal: the client's principal, passed to ``authorize``.

        Raises:
            TypeError: the coordinator does not handle this request.
        """
        now_ms = self.clock.now_ms()
        self._router.handle(request, token, principal, now_ms)
        # Saves a call for most heartbeats, which have neither.
        if self._effects.appends or self._effects.questions:
            self._settle(now_ms)

    def take_replies(self) -> list[Reply]:
        """Return the responses since the last call, in order."""
        replies, self._effects.replies = self._effects.replies, []
        if self._split_requests.awaited:
            replies = list(self._split_requests.join(replies))
        ownership = self._ownership
        # Without ownership, or within the lease, nothing is withheld.
        if ownership is None or (self.clock.now_ms() < ownership.lease_end_ms and not ownership.withheld):
            return replies
        replies = ownership.let_out(replies)
        return replies + self.take_replies() if self._effects.replies else replies  # the log was found to be lost

    def put_back(self, reply: Reply) -> None:
        """Take back a response not sent within the lease (:meth:`may_answer`): it is returned again, or a refusal
        is.
        """
        self._effects.replies.append(reply)

    def call(self, request: Request[R], principal: Principal = None) -> R:
        """Return the response to a request that is answered at once, in the response type of the request.

        Raises:
            LookupError: the response has to wait for other members or for the log.
        """
        token = object()
        self.submit(request, token, principal)
        # This way a response outside of the lease is withheld.
        self._effects.replies = self.take_replies()
        for reply in self._effects.replies:
            if reply.token is token and reply.response is not None:
                self._effects.replies.remove(reply)
                return cast(R, reply.response)
        raise LookupError(f"{type(request).__name__} is not answered at once")

    # ------------------------------------------------------------ time

    def tick(self) -> None:
        """Fire due timers: a bounded number, the rest at the next call."""
        if self._ownership is not None:
            self._ownership.tick()
        now_ms = self.clock.now_ms()
        # Bounded, so that many due timers don't hold back requests.
        for _ in range(MAX_TIMERS_PER_TICK):
            timer = self._timers.pop_due(now_ms)
            if timer is None:
                break
            partition = self._partitions.active[timer.key.partition]
            # An unload cancels the timers of its partition.
            assert partition is not None
            partition.on_timer(timer.key, now_ms)
            self._settle(now_ms)

    def next_deadline_ms(self) -> int | None:
        """Return when :meth:`tick` is due, in milliseconds since the Unix epoch, or None."""
        deadline_ms = self._timers.next_deadline_ms()
        look_ms = None if self._ownership is None else self._ownership.next_look_ms
        return min((each for each in (deadline_ms, look_ms) if each is not None), default=None)

    @property
    def timer_advances(self) -> int:
        """Number that changes when :meth:`next_deadline_ms` may have become earlier; cheap enough for each request."""
        return self._timers.advances

    # ------------------------------------------------------------ the log store's answers

    def ownership_checked(self, error: LogStoreError | None = None) -> None:
        """Handle the result of the log store's ownership check (:class:`~groupcoord.log_store.OwnedStore`).

        Args:
            error: None if the log is still owned, otherwise why it is lost or the owner is unknown.
        """
        if self._ownership is not None:
            self._ownership.checked(error)
            self._settle(self.clock.now_ms())

    def may_answer(self) -> bool:
        """Return whether the lease lasts, so that no other process can have taken over the log and answered.

        :meth:`take_replies` checks it. A host that keeps responses after that checks again and puts them back.
        """
        return self._ownership is None or self._ownership.may_answer()

    @property
    def is_lease_over(self) -> bool:
        """True if a lease has ended and ownership has not been checked again yet."""
        return self._ownership is not None and self._ownership.is_over

    @property
    def lost(self) -> OwnershipLostError | None:
        """The error if another process has taken over the log, otherwise None."""
        return None if self._ownership is None else self._ownership.lost

    def found_out(self, found: Found | None) -> None:
        """Handle a late answer of the host to a query."""
        # The partition may have been unloaded since the query.
        partition = None if found is None else self._partitions.active[found.question.partition]
        if found is not None and partition is not None:
            partition.answered(found, self.clock.now_ms())
            self._settle(self.clock.now_ms())

    def _lose(self, error: OwnershipLostError) -> None:
        self._observer.ownership_lost(self.clock.now_ms())
        for index in range(len(self._partitions)):
            # All, because the new owner's writes can't be followed.
            self._abandon_load(index)
            self._fail(index, error.error_code)
        if self.on_lost is not None:
            self.on_lost(error)

    def _refused(self, partition: Partition, number: int, error: LogStoreError, now_ms: int) -> None:
        # A client's fault, unlike a log that can't be written.
        if not isinstance(error, RecordTooLargeError):
            self._observer.append_failed(partition.index, str(error), partition.writer.next_log_offset)
        super()._refused(partition, number, error, now_ms)
        if isinstance(error, OwnershipLostError) and self._ownership is not None:
            self._ownership.lose(error)

    def _settle(self, now_ms: int) -> None:
        appends, questions = self._effects.appends, self._effects.questions
        # A store or host may call back; the outer call continues.
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
        """Fail a log partition with a log that can't be trusted; then :meth:`load` it again.

        For failures other than of an append. Waiting and later requests fail with
        NOT_COORDINATOR.

        Args:
            partition: the log partition; ignored if it is not served.
            error: what has happened to its log.
        """
        self._fail(partition, error.error_code)
        self._settle(self.clock.now_ms())

    # ------------------------------------------------------------ life cycle

    def load(self, partition: int, leader_epoch: int = 0) -> None:
        if self.begin_load(partition, leader_epoch):
            self.continue_load(partition)

    def begin_load(self, partition: int, leader_epoch: int = 0) -> bool:
        """Begin a load; until it ends, requests fail with COORDINATOR_LOAD_IN_PROGRESS.

        Returns:
            True if :meth:`continue_load` is needed, or False if there is nothing to load.
        """
        if self._ownership is not None:
            self._ownership.claim()
        return self._begin_load(partition, leader_epoch)

    def continue_load(self, partition: int, max_records: int | None = None) -> bool:
        """Load at most ``max_records`` records, or all that are left.

        Returns:
            True when the partition is served, or is not loading any more.

        Raises:
            LoadError: as for :meth:`load`.
        """
        is_over = self._step_load(partition, max_records)
        if is_over:
            self._settle(self.clock.now_ms())
        return is_over

    def unload(self, partition: int, leader_epoch: int | None = None) -> None:
        """Stop serving a log partition: waiting requests fail with NOT_COORDINATOR.

        An epoch that is not newer than that of the last load is ignored. Without an epoch the partition is always
        unloaded, and the next load accepts any epoch.
        """
        # News of an earlier election.
        if not self._stop_load(partition, leader_epoch):
            return
        if self._ownership is not None:
            self._ownership.disown_withheld()
        if (active := self._partitions.active[partition]) is not None:
            self._stop(active, ErrorCode.NOT_COORDINATOR, PartitionStatus.UNLOADED)
        self._settle(self.clock.now_ms())

    def _stop(self, partition: Partition, error_code: ErrorCode, status: PartitionStatus) -> None:
        # Before the appends fail, which would resume these requests.
        for request, token in partition.take_waiting():
            self._router.refuse_unserved(request, token, ErrorCode.NOT_COORDINATOR)
        partition.fail_appends(self.clock.now_ms(), error_code)
        self._forget_untold(partition.index)
        partition.unload(self.clock.now_ms())
        self._withdraw(partition, status)

    def _forget_untold(self, index: int) -> None:
        # Events after the lease may contradict those of the new owner.
        if self._ownership is not None and not self._ownership.may_answer():
            # Events without a group, such as the loss of the log, are kept.
            self._observer.forget_untold(
                lambda event: event.group_id != "" and self._partitions.index_of(event.group_id) == index
            )

    def close(self) -> None:
        """Unload everything; until the next load all requests fail with COORDINATOR_NOT_AVAILABLE."""
        # Before the unload: responses within the lease may still be sent.
        self._effects.replies = self.take_replies()
        if not (self.lost or self.may_answer()):
            self._observer.forget_untold()
        for partition in range(len(self._partitions)):
            self.unload(partition)
        self._partitions.is_closed = True
        if self._ownership is not None:
            self._ownership.rest()

    def topic_deleted(self, name: str, topic_id: UUID = ZERO_UUID) -> None:
        """Delete the committed offsets of a deleted topic in every group."""
        for partition in self._partitions:
            partition.topic_deleted(name, topic_id, self.clock.now_ms())
        self._settle(self.clock.now_ms())

    def topics_created(self, names: Collection[str]) -> None:
        """Refresh groups that subscribe to new topics, and resolve regular expressions again."""
        # Only new topics count: resolved expressions keep deleted ones, as in Kafka.
        self._environments.topics.version += 1
        self.topics_changed(names)

    def topics_changed(self, names: Collection[str]) -> None:
        """Refresh groups that subscribe to topics that were created, deleted or extended."""
        for partition in self._partitions:
            partition.topics_changed(names)

    # ------------------------------------------------------------ copies

    def _forks(self) -> Forking:
        if self._forking is None:
            from groupcoord.forking.saved_state import Forking  # few programs need it

            self._forking = Forking(self)
        return self._forking

    def fork(self, **changes: Any) -> Self:
        """Return an independent coordinator in the same state.

        Both respond alike to the same requests, times and answers of the log. They share all collaborators, so pass
        another log store (with the same content and appends in flight) and clock if both continue.

        Args:
            changes: arguments of the constructor that differ.

        Raises:
            RuntimeError: a log partition is loading, or the log store can lose its log to another owner.
        """
        return self._forks().fork(changes)  # type: ignore[no-any-return]

    def save(self) -> SavedState:
        """Return a copy of the state of this coordinator, for :meth:`restore`.

        Queries to the host in flight belong to this coordinator alone.

        Raises:
            RuntimeError: as for :meth:`fork`.
        """
        return self._forks().save()

    def hand_over(self) -> SavedState:
        """Return the state of this coordinator without a copy.

        :meth:`restore` must be called before anything else.

        Raises:
            RuntimeError: as for :meth:`fork`.
        """
        return self._forks().hand_over()

    def restore(self, saved: SavedState) -> None:
        """Restore a state of this coordinator, or of one with the same settings.

        Args:
            saved: the result of :meth:`save`; it can be used again.
        """
        self._forks().restore(saved)

    def fingerprint(self, names: Names | None = None) -> bytes:
        """Return a digest of the state: 16 bytes, equal in every process.

        Times count relative to now, epochs and generations relative to the group's, and offsets in the log by their
        order. Apart from counters, untaken events and untaken responses, two coordinators with equal fingerprints
        respond alike to all requests.

        Args:
            names: maps ids and tokens, so that states with permuted members are equal; they may differ where ids break
                ties. Without it ids and tokens count as they are.
        """
        return self._forks().fingerprint(names)

    # ------------------------------------------------------------ for tests of members

    def end_session(self, group_id: str, member_id: str) -> bool:
        """Expire a member's session now.

        Returns:
            False if the group has no such member.
        """
        for timer in self._timers.armed():
            # A search through all timers: this is for tests.
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
        """Start a rebalance of a group without a cause; return False if that is impossible now."""
        partition, now_ms = self._partitions.serving(group_id), self.clock.now_ms()
        if partition is None or not partition.begin_rebalance(group_id, now_ms):
            return False
        self._settle(now_ms)
        return True

    # ------------------------------------------------------------ looking inside

    def observe(self, *, events: bool = True) -> None:
        """Turn events on or off: events from now on are kept for :meth:`take_events`."""
        self._observer.events = [] if events else None

    def take_events(self) -> list[Event]:
        """Return and clear the events of groups, in order; empty while events are off.

        A program that turns them on must take them: they are kept until then, and until the lease allows to deliver
        them.
        """
        events = self._observer.events
        if not events or not (self.lost or self.may_answer()):
            return []
        self._observer.events = []
        return events

    @property
    def has_events(self) -> bool:
        """True if :meth:`take_events` has events, now or later."""
        return bool(self._observer.events)

    def take_append_failures(self) -> dict[int, AppendFailures]:
        """Return and clear the failed appends by log partition, except too large ones, which clients cause."""
        failures, self._observer.append_failures = self._observer.append_failures, {}
        return failures

    @property
    def counters(self) -> Counters:
        """Totals since this coordinator was created; read only."""
        return self._observer.counters

    def partition_of(self, group_id: str) -> int:
        """Return the log partition of a group."""
        return self._partitions.index_of(group_id)

    def status(self, partition: int) -> PartitionStatus:
        """Return the status of a log partition here."""
        return self._partitions.status[partition]

    def waiting_tokens(self) -> list[Token]:
        """Return the tokens of all unanswered requests."""
        withheld = [] if self._ownership is None else [reply.token for reply in self._ownership.withheld]
        parked = [token for partition in self._partitions for token in partition.parked_tokens()]
        return self._split_requests.original_tokens(parked) + withheld

    def check(self, partitions: Collection[int] | None = None) -> None:
        """Check all invariants.

        Args:
            partitions: the log partitions to check, if the others have not changed since their last check; all if None.

        Raises:
            InvariantError: an invariant does not hold.
        """
        self._timers.check()
        armed: dict[int, list[Timer]] = {}
        for timer in self._timers.armed():
            armed.setdefault(timer.key.partition, []).append(timer)
        for partition in self._partitions:
            if partitions is None or partition.index in partitions:
                partition.check(armed.get(partition.index, ()))
