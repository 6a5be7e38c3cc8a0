"""``GroupCoordinator``: the way in for programs that embed the coordinator.

It holds what the core must not have (a clock, a log store, a source of ids), routes each group to its log
partition, hands appends to the store and collects the answers.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable
from enum import Enum
from typing import Any
from uuid import UUID

from attrs import evolve

from groupcoord.clock import Clock, SystemClock
from groupcoord.config import Config
from groupcoord.core.commits import refused_topics
from groupcoord.core.effects import Append, Effects, Reply, Token
from groupcoord.core.gathering import Gathering, original_tokens
from groupcoord.core.java import partition_for
from groupcoord.core.messages import (
    CompleteTransaction,
    CompleteTransactionResponse,
    DeletedGroup,
    DeleteGroups,
    DeleteGroupsResponse,
    DescribedGroup,
    DescribeGroups,
    DescribeGroupsResponse,
    FetchedGroup,
    FindCoordinator,
    FindCoordinatorResponse,
    GroupToFetch,
    Heartbeat,
    JoinGroup,
    LeaveGroup,
    ListedGroup,
    ListGroups,
    ListGroupsResponse,
    Node,
    OffsetCommit,
    OffsetCommitResponse,
    OffsetDelete,
    OffsetFetch,
    OffsetFetchResponse,
    Request,
    Response,
    SyncGroup,
    TxnOffsetCommit,
    TxnOffsetCommitResponse,
)
from groupcoord.core.partition import Partition
from groupcoord.core.records import ZERO_UUID
from groupcoord.core.refusals import refuse
from groupcoord.core.routing import Owner, find_coordinators
from groupcoord.core.shard import GroupRequest
from groupcoord.core.timers import TimerQueue
from groupcoord.core.topics import (
    AnyTopic,
    TopicResolver,
    identify_topics,
    merge_results,
    resolve_commit,
    resolve_delete,
    resolve_fetch,
)
from groupcoord.errors import ErrorCode, GroupcoordError, StoreContractError
from groupcoord.log_store import LogRecord, LogStore, LogStoreError, MemoryLogStore, Ticket

ALL_OPERATIONS_ON_A_GROUP = 1 << 3 | 1 << 6 | 1 << 8 | 1 << 10 | 1 << 11
"""READ, DELETE, DESCRIBE, DESCRIBE_CONFIGS and ALTER_CONFIGS: what DescribeGroups reports without an authorizer."""

LOCAL_NODE = Node(1, "127.0.0.1", 9092)
MAX_TIMERS_PER_TICK = 10_000
MAX_CACHED_ROUTES = 100_000
"""Group ids come from clients, so the memory of where they belong is bounded."""


class PartitionStatus(Enum):
    """Whether a log partition's groups are coordinated here."""

    UNLOADED = "unloaded"
    LOADING = "loading"
    ACTIVE = "active"
    FAILED = "failed"


_STATUS_ERRORS = {
    PartitionStatus.UNLOADED: ErrorCode.NOT_COORDINATOR,
    PartitionStatus.LOADING: ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    PartitionStatus.FAILED: ErrorCode.NOT_COORDINATOR,
}


class LoadError(GroupcoordError):
    """Log partitions could not be loaded: their groups are answered NOT_COORDINATOR, all others are served.

    Attributes:
        causes: log partition → what went wrong.
    """

    def __init__(self, causes: dict[int, Exception]) -> None:
        super().__init__("; ".join(f"log partition {partition}: {cause}" for partition, cause in causes.items()))
        self.causes = causes


def random_member_id(prefix: str) -> str:
    """Return a member id as Kafka makes them: the client's or the instance's id, and a random UUID."""
    return f"{prefix}-{uuid.uuid4()}"


class GroupCoordinator:
    """A group coordinator without I/O of its own.

    Give it requests with :meth:`submit`, take answers with :meth:`take_replies`, and call :meth:`tick` when
    :meth:`next_deadline_ms` has come. Nothing here blocks or raises for what a client did. Not thread-safe: use it
    from one thread.

    Args:
        config: limits and time-outs; Kafka's defaults if left out.
        clock: where time comes from; the system's clock if left out.
        log_store: where records go; memory if left out.
        topics: the topics of the cluster; every topic exists if left out.
        node: what FindCoordinator says of this coordinator.
        owner: which node coordinates a log partition, for one coordinator among several; this node if left out.
        new_member_id: makes member ids from a prefix; random ones, as Kafka's, if left out.
    """

    def __init__(
        self,
        *,
        config: Config | None = None,
        clock: Clock | None = None,
        log_store: LogStore | None = None,
        topics: TopicResolver | None = None,
        node: Node = LOCAL_NODE,
        owner: Owner | None = None,
        new_member_id: Callable[[str], str] = random_member_id,
    ) -> None:
        self.config = config or Config()
        self.clock = clock or SystemClock()
        self.log_store = log_store or MemoryLogStore()
        self.node = node
        self._topics = topics or AnyTopic()
        self._owner = owner
        self._new_member_id = new_member_id
        count = self.config.offsets_topic_num_partitions
        self._active: list[Partition | None] = [None] * count
        self._status = [PartitionStatus.UNLOADED] * count
        self._leader_epochs = [-1] * count
        self._next_appends = [0] * count
        self._is_started = False
        self._effects = Effects()
        self._timers = TimerQueue()
        self._routes: dict[str, int] = {}
        self._gathering = Gathering()
        self._is_settling = False
        self._handlers: dict[type, Callable[[Any, Token], None]] = {
            JoinGroup: self._to_group,
            SyncGroup: self._to_group,
            Heartbeat: self._to_group,
            LeaveGroup: self._to_group,
            OffsetCommit: self._commit,
            TxnOffsetCommit: self._commit_transactional,
            OffsetDelete: self._delete_offsets,
            CompleteTransaction: self._complete_transaction,
            OffsetFetch: self._fetch,
            DescribeGroups: self._describe,
            ListGroups: self._list,
            DeleteGroups: self._delete,
            FindCoordinator: self._find_coordinator,
        }

    # ------------------------------------------------------------ requests and answers

    def submit(self, request: Request, token: Token = None) -> None:
        """Take a request. Its answer comes out of :meth:`take_replies`, now or later, with ``token``.

        Raises:
            TypeError: this is no request of the coordinator.
        """
        handler = self._handlers.get(type(request))
        if handler is None:
            raise TypeError(f"{type(request).__name__} is no request of the group coordinator")
        handler(request, token)
        if self._effects.appends or self._gathering.awaited:
            self._settle()

    def take_replies(self) -> list[Reply]:
        """Return the answers since the last call, in the order in which they were given."""
        replies, self._effects.replies = self._effects.replies, []
        return replies

    def call(self, request: Request) -> Response:
        """Return the answer of a request that is answered at once.

        Raises:
            LookupError: the answer has to wait (for other members, or for the log).
        """
        token = object()
        self.submit(request, token)
        for reply in self._effects.replies:
            if reply.token is token and reply.response is not None:
                self._effects.replies.remove(reply)
                return reply.response
        raise LookupError(f"{type(request).__name__} is not answered at once")

    # ------------------------------------------------------------ time

    def tick(self) -> None:
        """Time has passed: fire what is due (a bounded number of timers; the rest at the next call)."""
        now_ms = self.clock.now_ms()
        for _ in range(MAX_TIMERS_PER_TICK):
            timer = self._timers.pop_due(now_ms)
            if timer is None:
                break
            partition = self._active[timer.key.partition]
            assert partition is not None
            partition.on_timer(timer.key, now_ms)
            self._settle()

    def next_deadline_ms(self) -> int | None:
        """Return when :meth:`tick` is wanted at the latest, in milliseconds since the Unix epoch; None: not at all."""
        return self._timers.next_deadline_ms()

    # ------------------------------------------------------------ the log store's answers

    def appended(self, ticket: Ticket, base_offset: int) -> None:
        """The log store wrote the append ``ticket``, and with it every earlier one of that log partition.

        Args:
            ticket: as given to :meth:`LogStore.append`.
            base_offset: the offset of its first record.

        Raises:
            StoreContractError: the ticket is unknown or was answered already, or the offset went back. The
                partition has failed.
        """
        partition = self._active[ticket.partition]
        if partition is None:
            return
        try:
            partition.appended(ticket.number, base_offset, self.clock.now_ms())
        except StoreContractError:
            self._fail(ticket.partition, ErrorCode.UNKNOWN_SERVER_ERROR)
            raise
        self._settle()

    def append_failed(self, ticket: Ticket, error: LogStoreError) -> None:
        """The log store did not write the append ``ticket``, or does not know whether it did.

        Raises:
            StoreContractError: it isn't the oldest unanswered append of its log partition. The partition has failed.
        """
        partition = self._active[ticket.partition]
        if partition is None:
            return
        try:
            partition.append_failed(ticket.number, error.error_code, self.clock.now_ms())
        except StoreContractError:
            self._fail(ticket.partition, ErrorCode.UNKNOWN_SERVER_ERROR)
            raise
        if error.outcome_unknown:
            self._fail(ticket.partition, error.error_code)
        self._settle()

    def _settle(self) -> None:
        """Hand appends to the store, first in, first out, until it has nothing left to answer at once."""
        appends = self._effects.appends
        if appends and not self._is_settling:
            self._is_settling = True
            try:
                while appends:
                    self._append(appends.popleft())
            finally:
                self._is_settling = False
        if self._gathering.awaited:
            self._effects.replies = list(self._gathering.finish(self._effects.replies))

    def _append(self, append: Append) -> None:
        partition = self._active[append.partition]
        if partition is None:
            return
        now_ms = self.clock.now_ms()
        ticket = Ticket(append.partition, append.number)
        try:
            base_offset = self.log_store.append(
                append.partition, ticket, [LogRecord(record, now_ms) for record in append.records]
            )
        except LogStoreError as error:
            self.append_failed(ticket, error)
        except BaseException:
            self._fail(append.partition, ErrorCode.UNKNOWN_SERVER_ERROR)
            raise
        else:
            if base_offset is not None:
                self.appended(ticket, base_offset)

    def _fail(self, index: int, error_code: ErrorCode) -> None:
        """Give a log partition up until it is loaded again: memory may differ from the log."""
        partition = self._active[index]
        if partition is not None:
            self._stop(partition, error_code)
            self._status[index] = PartitionStatus.FAILED

    # ------------------------------------------------------------ life cycle

    def load_all(self) -> None:
        """Load every log partition: this coordinator is the only one.

        Raises:
            LoadError: some could not be loaded; the others are served.
        """
        causes: dict[int, Exception] = {}
        for index in range(len(self._active)):
            try:
                self.load(index)
            except LoadError as error:
                causes.update(error.causes)
        if causes:
            raise LoadError(causes)

    def load(self, partition: int, leader_epoch: int = 0) -> None:
        """Become the coordinator of a log partition: read its records and serve its groups.

        An epoch that isn't newer than the last one is out of date and ignored; on a partition that is served
        already a newer one is only remembered.

        Raises:
            LoadError: the log can't be read; the partition answers NOT_COORDINATOR until it is loaded again.
        """
        status = self._status[partition]
        is_newer = leader_epoch > self._leader_epochs[partition]
        if not is_newer and status is not PartitionStatus.FAILED:
            return
        self._is_started = True
        self._leader_epochs[partition] = max(leader_epoch, self._leader_epochs[partition])
        if status is PartitionStatus.ACTIVE:
            return
        self._status[partition] = PartitionStatus.LOADING
        loaded = Partition(
            partition,
            config=self.config,
            effects=self._effects,
            timers=self._timers,
            new_member_id=self._new_member_id,
            first_append=self._next_appends[partition],
        )
        try:
            records = ((entry.offset, entry.record) for entry in self.log_store.read(partition))
            loaded.load(records, self.clock.now_ms())
        except (LogStoreError, StoreContractError) as error:
            self._status[partition] = PartitionStatus.FAILED
            raise LoadError({partition: error}) from error
        self._active[partition] = loaded
        self._status[partition] = PartitionStatus.ACTIVE
        self._settle()

    def unload(self, partition: int, leader_epoch: int | None = None) -> None:
        """Stop coordinating a log partition: whoever waits there is told NOT_COORDINATOR.

        An epoch that isn't newer than the last load's is out of date and ignored; without one it is always done.
        """
        if leader_epoch is not None:
            if leader_epoch <= self._leader_epochs[partition]:
                return
            self._leader_epochs[partition] = leader_epoch
        active = self._active[partition]
        if active is not None:
            self._stop(active, ErrorCode.NOT_COORDINATOR)
        self._status[partition] = PartitionStatus.UNLOADED
        self._settle()

    def _stop(self, partition: Partition, error_code: ErrorCode) -> None:
        partition.unload(self.clock.now_ms(), error_code)
        self._next_appends[partition.index] = partition.next_append
        self._active[partition.index] = None

    def close(self) -> None:
        """Unload everything; every request from now on is COORDINATOR_NOT_AVAILABLE."""
        for partition in range(len(self._active)):
            self.unload(partition)
        self._is_started = False

    def topic_deleted(self, name: str, topic_id: UUID = ZERO_UUID) -> None:
        """A topic is gone from the cluster: delete the offsets that were committed for it, in every group."""
        for partition in self._active:
            if partition is not None:
                partition.forget_topic(name, topic_id)
        self._settle()

    # ------------------------------------------------------------ routing

    def partition_of(self, group_id: str) -> int:
        """Return the log partition that holds a group."""
        index = self._routes.get(group_id)
        if index is None:
            if len(self._routes) >= MAX_CACHED_ROUTES:
                self._routes.clear()
            index = self._routes[group_id] = partition_for(group_id, len(self._active))
        return index

    def status(self, partition: int) -> PartitionStatus:
        """Return whether a log partition is served here."""
        return self._status[partition]

    def _unavailable(self, index: int) -> ErrorCode:
        return _STATUS_ERRORS[self._status[index]] if self._is_started else ErrorCode.COORDINATOR_NOT_AVAILABLE

    def _to_group(self, request: GroupRequest, token: Token) -> None:
        index = self.partition_of(request.group_id or "")
        partition = self._active[index]
        if partition is not None:
            partition.handle(request, token, self.clock.now_ms())
        else:
            self._effects.reply(token, refuse(request, self._unavailable(index), self.config))

    def _commit(self, request: OffsetCommit, token: Token) -> None:
        topics, refused = resolve_commit(request.topics, self._topics)
        if request.group_id is None:
            topics, refused = (), merge_results(refused, refused_topics(topics, ErrorCode.INVALID_GROUP_ID))
        if not topics:
            self._effects.reply(token, OffsetCommitResponse(merge_results(refused, ())))
        else:
            resolved = OffsetCommit(
                request.group_id,
                topics,
                request.generation_id,
                request.member_id,
                request.group_instance_id,
                request.retention_time_ms,
            )
            self._to_group(resolved, self._gathering.beside(token, refused))

    def _commit_transactional(self, request: TxnOffsetCommit, token: Token) -> None:
        topics, refused = resolve_commit(request.topics, self._topics)
        if not topics:
            self._effects.reply(token, TxnOffsetCommitResponse(merge_results(refused, ())))
        else:
            self._to_group(evolve(request, topics=topics), self._gathering.beside(token, refused))

    def _delete_offsets(self, request: OffsetDelete, token: Token) -> None:
        topics, refused = resolve_delete(request.topics, self._topics)
        self._to_group(OffsetDelete(request.group_id, topics), self._gathering.beside(token, refused))

    def _complete_transaction(self, request: CompleteTransaction, token: Token) -> None:
        partition = self._active[request.partition]
        if partition is not None:
            partition.complete_transaction(request, token)
        else:
            self._effects.reply(token, CompleteTransactionResponse(ErrorCode.NOT_LEADER_OR_FOLLOWER))

    def _fetch(self, request: OffsetFetch, token: Token) -> None:
        groups = tuple(self._fetch_group(wanted, request) for wanted in request.groups)
        self._effects.reply(token, OffsetFetchResponse(groups))

    def _fetch_group(self, wanted: GroupToFetch, request: OffsetFetch) -> FetchedGroup:
        if wanted.group_id is None:
            return FetchedGroup("", ErrorCode.INVALID_GROUP_ID, ())
        index = self.partition_of(wanted.group_id)
        partition = self._active[index]
        if partition is None:
            return FetchedGroup(wanted.group_id, self._unavailable(index), ())
        named, refused = resolve_fetch(wanted, self._topics)
        fetched = partition.fetch(named, require_stable=request.require_stable)
        if request.uses_topic_ids and wanted.topics is None:
            return identify_topics(fetched, self._topics)
        return fetched._replace(topics=fetched.topics + refused) if refused else fetched

    def _describe(self, request: DescribeGroups, token: Token) -> None:
        groups = tuple(self._describe_group(group_id) for group_id in request.group_ids)
        if request.include_authorized_operations:
            groups = tuple(_with_operations(group) for group in groups)
        self._effects.reply(token, DescribeGroupsResponse(groups))

    def _describe_group(self, group_id: str | None) -> DescribedGroup:
        if group_id is None:
            return DescribedGroup("", ErrorCode.INVALID_GROUP_ID)
        index = self.partition_of(group_id)
        partition = self._active[index]
        return (
            DescribedGroup(group_id, self._unavailable(index))
            if partition is None
            else partition.describe_group(group_id)
        )

    def _list(self, request: ListGroups, token: Token) -> None:
        if not self._is_started:
            self._effects.reply(token, ListGroupsResponse(ErrorCode.COORDINATOR_NOT_AVAILABLE))
        elif PartitionStatus.LOADING in self._status:
            self._effects.reply(token, ListGroupsResponse(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS))
        else:
            states = frozenset(state.strip().lower() for state in request.states_filter)
            types = frozenset(group_type.lower() for group_type in request.types_filter)
            groups: list[ListedGroup] = []
            for partition in self._active:
                if partition is not None:
                    groups += partition.list_groups(states, types)
            self._effects.reply(token, ListGroupsResponse(ErrorCode.NONE, tuple(groups)))

    def _delete(self, request: DeleteGroups, token: Token) -> None:
        results: list[DeletedGroup] = []
        served: dict[int, list[str]] = {}
        for group_id in dict.fromkeys(request.group_ids):
            index = -1 if group_id is None else self.partition_of(group_id)
            if group_id is None:
                results.append(DeletedGroup("", ErrorCode.INVALID_GROUP_ID))
            elif self._active[index] is None:
                results.append(DeletedGroup(group_id, self._unavailable(index)))
            else:
                served.setdefault(index, []).append(group_id)
        if not served:
            self._effects.reply(token, DeleteGroupsResponse(tuple(results)))
        deletion = self._gathering.deletion(token, results, len(served))
        for index, group_ids in served.items():
            partition = self._active[index]
            assert partition is not None
            partition.delete_groups(group_ids, deletion)

    def _find_coordinator(self, request: FindCoordinator, token: Token) -> None:
        owner = self._owner or (lambda _: self.node)
        found = find_coordinators(request, len(self._active), owner, self.node)
        self._effects.reply(token, FindCoordinatorResponse(found))

    # ------------------------------------------------------------ looking inside

    def partition(self, index: int) -> Partition | None:
        """Return the core of a log partition that is served here. For observers and tests: change nothing."""
        return self._active[index]

    def waiting_tokens(self) -> list[Token]:
        """Return the token of every request that is not answered yet."""
        active = [partition for partition in self._active if partition is not None]
        return original_tokens([token for partition in active for token in partition.parked_tokens()])

    def check(self) -> None:
        """Prove the invariants of everything inside.

        Raises:
            InvariantError: one does not hold.
        """
        self._timers.check()
        for partition in self._active:
            if partition is not None:
                partition.check()


def _with_operations(group: DescribedGroup) -> DescribedGroup:
    is_known = group.error_code in (ErrorCode.NONE, ErrorCode.GROUP_ID_NOT_FOUND)
    return evolve(group, authorized_operations=ALL_OPERATIONS_ON_A_GROUP) if is_known else group
