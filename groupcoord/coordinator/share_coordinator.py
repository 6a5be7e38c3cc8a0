"""``ShareCoordinator``: the share coordinator of KIP-932 for programs that embed it.

It keeps the state of share-partitions in the log partitions of ``__share_group_state``.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from itertools import groupby
from operator import attrgetter
from typing import Any, NamedTuple, TypeVar, cast
from uuid import UUID

from groupcoord.clock import Clock, SystemClock
from groupcoord.config import Config
from groupcoord.config.group_settings import ShareGroupSettings
from groupcoord.coordinator.group_coordinator import GroupCoordinator
from groupcoord.coordinator.loading import Appending
from groupcoord.core.fast_construct import define
from groupcoord.core.host_queries import (
    AskShareCoordinator,
    AwaitedAnswer,
    LatestOffset,
    ShareCoordinatorAnswered,
    known_ends,
)
from groupcoord.core.log.log_partition import Effects
from groupcoord.core.messages import Token
from groupcoord.core.messages.request import Request
from groupcoord.core.messages.share_state import ShareStateRequest, StateRequest, state_message
from groupcoord.core.router.authorization import Authorize, Operation, Permissions, Principal
from groupcoord.core.router.partition_table import PartitionStatus, PartitionTable
from groupcoord.core.share_state.partition import AnyResult, StatePartition, StateQuestion
from groupcoord.core.share_state.records import SharePartitionKey
from groupcoord.core.timers import NEVER_MS, TimerQueue
from groupcoord.core.topics import TopicResolver
from groupcoord.errors import ErrorCode
from groupcoord.log_store import LogStore, MemoryLogStore, PrunableStore

R = TypeVar("R")

RECORDS_AT_ONCE = 2_000
"""Number of records that are loaded without yielding."""


class StateReply(NamedTuple):
    """Response to the request with ``token``."""

    token: Token
    response: Any


@define(eq=False)
class _Gathering:
    """Results of a request as they come."""

    token: Token
    kind: type[StateRequest[Any]]
    results: dict[UUID, dict[int, AnyResult | None]]
    # One more while the request is still being split.
    missing_count: int

    def response(self) -> Any:
        topics = [self.kind.TOPIC_RESULT(topic_id, tuple(found.values())) for topic_id, found in self.results.items()]
        return self.kind.RESPONSE(tuple(topics))


class ShareCoordinator(Appending[StatePartition]):
    """Share coordinator without I/O: requests in, responses out, clock and log injected.

    >>> from groupcoord import ManualClock
    >>> coordinator = ShareCoordinator(clock=ManualClock())
    >>> coordinator.load_all()

    It is used like :class:`~groupcoord.GroupCoordinator`: :meth:`submit`, :meth:`take_replies`, :meth:`tick` at
    :meth:`next_deadline_ms`. Not thread-safe.

    Args:
        config: the number of log partitions, and the intervals of snapshots (``share.coordinator.…``).
        clock: the clock; the system's if left out.
        log_store: the log store; in memory if left out. A :class:`~groupcoord.log_store.PrunableStore` is pruned.
        topics: the topics of the cluster; any topic and partition exists if left out.
        authorize: the authorizer (CLUSTER_ACTION); everything is allowed if left out.
        partition_count: the number of log partitions, if it differs from the configuration.
    """

    def __init__(
        self,
        *,
        config: Config | None = None,
        clock: Clock | None = None,
        log_store: LogStore | None = None,
        topics: TopicResolver | None = None,
        authorize: Authorize | None = None,
        partition_count: int | None = None,
    ) -> None:
        self.config = config or Config()
        self.clock = clock or SystemClock()
        self.log_store = log_store or MemoryLogStore()
        self._topics = topics
        self._authorize = authorize
        self._effects, self._timers = Effects(), TimerQueue()
        self._replies: list[StateReply] = []
        count = partition_count or self.config.share_coordinator_state_topic_num_partitions
        super().__init__(PartitionTable[SharePartitionKey, StatePartition](count, attrgetter("text")))
        self._due_ms = {
            self._write_cold: self.config.share_coordinator_cold_partition_snapshot_interval_ms,
            self._prune: self.config.share_coordinator_state_topic_prune_interval_ms,
        }
        now_ms = self.clock.now_ms()
        self._next_ms = {act: now_ms + interval_ms for act, interval_ms in self._due_ms.items()}
        self._is_settling = False

    def _make_partition(self, index: int, first_append: int) -> StatePartition:
        return StatePartition(
            index,
            config=self.config,
            effects=self._effects,
            timers=self._timers,
            has_partition=self._has_partition,
            first_append=first_append,
        )

    # ------------------------------------------------------------ requests and answers

    def partition_of(self, key: SharePartitionKey) -> int:
        """Return the log partition of a share-partition's state."""
        return self._partitions.index_of(key)

    def submit(
        self,
        request: ShareStateRequest,
        token: Token = None,
        principal: Principal = None,
        *,
        is_own: bool = False,
    ) -> None:
        """Handle a request. :meth:`take_replies` returns its response, now or later, with ``token``.

        Args:
            request: one of :mod:`groupcoord.core.messages.share_state`.
            token: identifies the request to the caller.
            principal: the client's principal.
            is_own: whether the server itself sends it, which may do anything.

        Raises:
            KeyError: the share coordinator does not handle this request.
        """
        for _ in self.submit_in_steps(request, token, principal, is_own=is_own):
            pass

    def submit_in_steps(
        self,
        request: ShareStateRequest,
        token: Token = None,
        principal: Principal = None,
        *,
        is_own: bool = False,
    ) -> Iterator[None]:
        """Handle a request as :meth:`submit`, one share-partition at each step.

        Raises:
            KeyError: the share coordinator does not handle this request.
        """
        if not isinstance(request, StateRequest):
            raise KeyError(f"{type(request).__name__} is no request of a share coordinator")
        # Kafka answers such a request without results, before permissions.
        if not request.group_id or not request.topics or not all(topic.partitions for topic in request.topics):
            self._replies.append(StateReply(token, request.RESPONSE(())))
            return
        may_ask = is_own or Permissions(self._authorize, principal).on_cluster(Operation.CLUSTER_ACTION)
        gathering = _Gathering(token, type(request), {topic.topic_id: {} for topic in request.topics}, 1)
        topics: Sequence[Any] = request.topics
        for topic, _ in groupby(topics):
            for entry, _ in groupby(topic.partitions):  # consecutive duplicates have no further effect
                key = SharePartitionKey(request.group_id, topic.topic_id, entry.partition)
                question = StateQuestion(key, entry, request.RESULT, (gathering, topic.topic_id))
                gathering.missing_count += 1
                gathering.results[topic.topic_id].setdefault(entry.partition, None)
                # Read at each step, because other work may come between.
                now_ms = self.clock.now_ms()
                if may_ask:
                    self._ask(question, request, now_ms)
                else:
                    denied = ErrorCode.CLUSTER_AUTHORIZATION_FAILED
                    self._take(question.token, question.refuse(denied, state_message(denied)))
                self._settle(now_ms)
                yield
        self._answer_if_complete(gathering)

    def _ask(self, question: StateQuestion, request: ShareStateRequest, now_ms: int) -> None:
        # The share-partitions of a request may be in different log partitions.
        partition = self._partitions.serving(question.key)
        if partition is None:
            error_code = self._partitions.refusal(self._partitions.index_of(question.key))
            self._take(question.token, question.refuse(error_code, request.FAILURE + state_message(error_code)))
        else:
            partition.ask(question, now_ms)

    def take_replies(self) -> list[StateReply]:
        """Return the responses since the last call, in order."""
        replies, self._replies = self._replies, []
        return replies

    def call(self, request: Request[R], principal: Principal = None) -> R:
        """Return the response to a request that is answered at once, in the response type of the request.

        Raises:
            LookupError: the response has to wait for the log.
        """
        token = object()
        self.submit(cast(ShareStateRequest, request), token, principal)
        for reply in self._replies:
            if reply.token is token:
                self._replies.remove(reply)
                return cast(R, reply.response)
        raise LookupError(f"{type(request).__name__} is not answered at once")

    def _take(self, token: Token, result: AnyResult) -> None:
        gathering, topic_id = token
        gathering.results[topic_id][result.partition] = result
        self._answer_if_complete(gathering)

    def _answer_if_complete(self, gathering: _Gathering) -> None:
        gathering.missing_count -= 1
        if not gathering.missing_count:
            self._replies.append(StateReply(gathering.token, gathering.response()))

    def topic_deleted(self, topic_id: UUID) -> None:
        """Delete the state of a deleted topic."""
        for partition in self._partitions:
            partition.topic_deleted(topic_id)
        self._settle(self.clock.now_ms())

    def _has_partition(self, key: SharePartitionKey) -> bool:
        if self._topics is None:
            return True
        name = self._topics.topic_name(key.topic_id)
        count = None if name is None else self._topics.partition_count(name)
        return count is not None and key.partition < count

    # ------------------------------------------------------------ time

    def next_deadline_ms(self) -> int | None:
        """Return when :meth:`tick` is due, in milliseconds since the Unix epoch, or None if nothing is loaded."""
        if not any(self._partitions.active):
            return None
        return min(self._timers.next_deadline_ms() or NEVER_MS, *self._next_ms.values())

    @property
    def timer_advances(self) -> int:
        """Number that changes when :meth:`next_deadline_ms` may have become earlier."""
        return self._timers.advances

    def tick(self) -> None:
        """Write old snapshots again, prune the log, and time out requests.

        Requests that have waited for the log for ``share.coordinator.write.timeout.ms`` fail with
        COORDINATOR_NOT_AVAILABLE.
        """
        now_ms = self.clock.now_ms()
        while (timer := self._timers.pop_due(now_ms)) is not None:
            partition = self._partitions.active[timer.key.partition]
            # An unload cancels the timer of its partition.
            assert partition is not None
            partition.on_append_timer(timer.key, now_ms)
            self._settle(now_ms)
        for act, interval_ms in self._due_ms.items():
            if now_ms >= self._next_ms[act]:
                # From now, so that a pause does not cause several runs.
                self._next_ms[act] = now_ms + interval_ms
                act(now_ms)
                self._settle(now_ms)

    def _write_cold(self, now_ms: int) -> None:
        for partition in self._partitions:
            partition.snapshot_cold(now_ms)

    def _prune(self, now_ms: int) -> None:
        store = self.log_store
        if isinstance(store, PrunableStore):
            for partition in self._partitions:
                offset = partition.take_prunable()
                if offset is not None:
                    store.delete_before(partition.index, offset)

    # ------------------------------------------------------------ the log

    def _settle(self, now_ms: int) -> None:
        effects = self._effects
        if self._is_settling:  # the outer call continues
            return
        self._is_settling = True
        try:
            while effects.appends or effects.replies:
                replies, effects.replies = effects.replies, []
                for token, result in replies:
                    self._take(token, cast(Any, result))
                if effects.appends:
                    self._append(effects.appends.popleft(), now_ms)
        finally:
            self._is_settling = False

    def _stop(self, partition: StatePartition, error_code: ErrorCode, status: PartitionStatus) -> None:
        self._withdraw(partition, status)
        # Withdrawn first, so that no request reaches it any more.
        # Waiting requests fail with NOT_COORDINATOR for every error, so that their senders find the new coordinator.
        partition.unload(ErrorCode.NOT_COORDINATOR)

    # ------------------------------------------------------------ life cycle

    def failed_partitions(self) -> list[int]:
        """Return the log partitions that have failed and must be loaded again."""
        return [index for index, status in enumerate(self._partitions.status) if status is PartitionStatus.FAILED]

    def load(self, partition: int, leader_epoch: int = 0) -> None:
        for _ in self.load_in_steps(partition, leader_epoch):
            pass

    def load_in_steps(self, partition: int, leader_epoch: int = 0) -> Iterator[None]:
        """Load as :meth:`load`, some records at each step.

        Until the last step requests fail with COORDINATOR_LOAD_IN_PROGRESS.

        Raises:
            LoadError: as :meth:`load`.
        """
        if self._begin_load(partition, leader_epoch):
            while not self._step_load(partition, RECORDS_AT_ONCE):
                yield

    def unload(self, partition: int) -> None:
        """Stop serving a log partition: waiting requests fail with NOT_COORDINATOR."""
        # Without an epoch, so that the next load may have any.
        self._stop_load(partition, None)
        if (active := self._partitions.active[partition]) is not None:
            self._stop(active, ErrorCode.NOT_COORDINATOR, PartitionStatus.UNLOADED)
        self._settle(self.clock.now_ms())

    def check(self) -> None:
        """Check all invariants.

        Raises:
            InvariantError: an invariant does not hold.
        """
        for partition in self._partitions:
            partition.check()


class EmbeddedShare:
    """Host of share groups with a share coordinator in the same program: ``GroupCoordinator(share=…)``.

    Args:
        states: the share coordinator.
        settings_of: returns the settings of a share group by its id; those in the configuration of ``states`` if left
            out.
        latest_offset: returns the end offset of a partition for the lag of groups; unknown (None) if left out.
    """

    def __init__(
        self,
        states: ShareCoordinator,
        *,
        settings_of: Callable[[str], ShareGroupSettings] | None = None,
        latest_offset: LatestOffset | None = None,
    ) -> None:
        usual = ShareGroupSettings.of(states.config)
        self.states = states
        self.settings_of = settings_of or (lambda group_id: usual)
        self._latest_offset = latest_offset or (lambda topic, partition: None)
        self._found: deque[ShareCoordinatorAnswered] = deque()
        self._replies: list[StateReply] = []

    def ask(self, question: AskShareCoordinator) -> ShareCoordinatorAnswered | None:
        """Return the response of the share coordinator, or None if its log answers later."""
        awaited = AwaitedAnswer(question, self._found.append)
        # The group coordinator needs no CLUSTER_ACTION.
        self.states.submit(question.request, awaited, is_own=True)
        self._sort_replies()
        return awaited.now_or_late()

    def take_replies(self, coordinator: GroupCoordinator) -> list[StateReply]:
        """Pass responses to the waiting group coordinator, and return the other ones since the last call.

        With a log store that answers later, call it after each answer.
        """
        self._sort_replies()
        # Answers may lead to further queries.
        while self._found:
            coordinator.found_out(self._found.popleft())
            self._sort_replies()
        replies, self._replies = self._replies, []
        return replies

    def _sort_replies(self) -> None:
        for reply in self.states.take_replies():
            if isinstance(reply.token, AwaitedAnswer):
                question, response = reply.token.question, reply.response
                ends = known_ends(question.ends_wanted(response), self._latest_offset)
                reply.token.found_out(ShareCoordinatorAnswered(question, response, ends))
            else:
                self._replies.append(reply)
