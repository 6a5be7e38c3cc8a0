"""Fetch: planning, reading, and waiting for ``min_bytes``.

As in Kafka, a Fetch that finds too little waits ``max_wait_ms``, unless it wants no bytes, has no readable partition,
or one of them fails. Unreadable partitions come last, unknown topic ids before others. Sources:
``KafkaApis.handleFetchRequest``, ``ReplicaManager.fetchMessages``, ``DelayedFetch`` of Apache Kafka 4.4.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple
from uuid import UUID

from attrs import define, field

from groupcoord.broker.connection import Connection
from groupcoord.broker.records.fetch_sessions import FetchContext, Fetched, FetchSessions, Target, Targets
from groupcoord.broker.records.topic_data import (
    READ_COMMITTED,
    READ_UNCOMMITTED,
    CurrentLeaders,
    TopicData,
    check_leader_epoch,
    log_error,
)
from groupcoord.broker.topics.registry import Topic
from groupcoord.broker.work import Timers, Work, each_partition, portions
from groupcoord.core.fast_construct import maker
from groupcoord.core.router.authorization import UNRESTRICTED, Operation, Permissions
from groupcoord.errors import ErrorCode
from groupcoord.storage.errors import FailedLogError, TopicLogError
from groupcoord.storage.log.settings import NO_LEADER_EPOCH
from groupcoord.wire import WireResponse
from groupcoord.wire.broker_messages import (
    NO_LEADER,
    Fetch,
    FetchedPartitionData,
    FetchPartition,
    FetchResponse,
)

if TYPE_CHECKING:
    from groupcoord.storage.log.index import EpochEnd
    from groupcoord.storage.log.memory_log import PartitionLog


NO_REPLICA = -1
_make_fetched = maker(FetchedPartitionData)


class Readable(NamedTuple):
    """Readable partition; ``log`` is None if topics have no logs."""

    target: Target
    partition: FetchPartition
    log: PartitionLog | None
    leader_epoch: int


@define(eq=False)
class FetchPlan:
    """Partitions that a request reads, now and after a wait; ``refused`` has the responses for the others."""

    request: Fetch
    bytes_max: int
    readable: list[Readable]
    refused: Fetched

    @property
    def min_bytes(self) -> int:
        # As in KafkaApis: no response could reach a larger minimum.
        return min(self.request.min_bytes, self.bytes_max)

    def end_of(self, log: PartitionLog) -> int:
        # KIP-98: committed readers stop before the first open transaction.
        return log.last_stable_offset if self.request.isolation_level == READ_COMMITTED else log.end_offset


def plan_fetch(
    request: Fetch, targets: Targets, data: TopicData, permissions: Permissions = UNRESTRICTED
) -> Work[FetchPlan]:
    readable: list[Readable] = []
    without_topic: list[tuple[Target, FetchedPartitionData]] = []
    refused: list[tuple[Target, FetchedPartitionData]] = []
    topics: dict[str | UUID, tuple[Topic | None, ErrorCode]] = {}
    for portion in portions(targets):
        for target, partition in portion:
            key = target.topic_id if target.name is None else target.name
            if key not in topics:
                topics[key] = _find(request, target, data, permissions)
            topic, error_code = topics[key]
            index = target.partition_index
            if topic is not None and topic.has_partition(index):
                try:
                    log = data.log(topic, index)
                    # Checked at read time, which may come after an election.
                    leader_epoch = data.leader_epoch(topic, index) if log is None else log.leader_epoch
                    readable.append(Readable(target, partition, log, leader_epoch))
                except FailedLogError as error:
                    error_code = log_error(error, partition.current_leader_epoch)
                    # Kafka returns null for an unreadable partition, an empty list for a missing one.
                    refused.append((target, FetchedPartitionData(index, error_code, aborted_transactions=None)))
            else:
                errors = without_topic if error_code is ErrorCode.UNKNOWN_TOPIC_ID else refused
                errors.append((target, FetchedPartitionData(index, error_code)))
        if portion is not targets:
            yield None
            # Others may delete or create topics before the next portion.
            topics.clear()
    bytes_max = min(request.max_bytes, data.config.fetch_max_bytes)
    return FetchPlan(request, bytes_max, readable, without_topic + refused)


def _find(request: Fetch, target: Target, data: TopicData, permissions: Permissions) -> tuple[Topic | None, ErrorCode]:
    """Return a topic if it may be read, and the error for a missing partition."""
    known = data.find(target.name, target.topic_id)
    name = target.name if known is None else known.name
    # An unknown id has no name to authorize (KIP-516).
    if name is None:
        return None, ErrorCode.UNKNOWN_TOPIC_ID
    is_follower = request.replica_id >= 0
    is_allowed = (
        # Followers read without READ on topics.
        permissions.on_cluster(Operation.CLUSTER_ACTION) if is_follower else permissions.on_topic(name, Operation.READ)
    )
    # Checked before the topic's existence, which must not be revealed.
    if not is_allowed:
        return None, ErrorCode.TOPIC_AUTHORIZATION_FAILED
    return known, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


class FetchResult(NamedTuple):
    """Result of a read. ``waits``: for more bytes. ``has_failed``: a partition has an error or diverges."""

    fetched: Fetched
    waits: bool
    has_failed: bool


def read(plan: FetchPlan) -> Work[FetchResult]:
    """Read the partitions of a plan."""
    left, has_read, has_failed = plan.bytes_max, False, False
    read_bytes = 0
    found: list[tuple[Target, FetchedPartitionData]] = []
    for portion in portions(plan.readable):
        for readable in portion:
            fetched, size_bytes = _read(readable, plan, left, takes_first=not has_read)
            found.append((readable.target, fetched))
            has_failed = has_failed or fetched.error_code is not ErrorCode.NONE or fetched.diverging_epoch is not None
            # KIP-74: only the first non-empty partition may exceed the limits by one batch.
            has_read = has_read or bool(size_bytes)
            left = max(left - size_bytes, 0)
            read_bytes += size_bytes
        if portion is not plan.readable:
            yield None
    # Kafka responds at once if nothing is readable or a read failed.
    waits = bool(found) and not has_failed and read_bytes < plan.min_bytes and plan.request.max_wait_ms > 0
    return FetchResult([*found, *plan.refused], waits, has_failed or bool(plan.refused))


def _read(readable: Readable, plan: FetchPlan, left: int, *, takes_first: bool) -> tuple[FetchedPartitionData, int]:
    index, partition, log = readable.target.partition_index, readable.partition, readable.log
    is_committed = plan.request.isolation_level == READ_COMMITTED
    error_code = _check(readable, plan.request)
    if error_code is not ErrorCode.NONE:
        return FetchedPartitionData(index, error_code, aborted_transactions=None), 0
    # Without logs the partition seems to end at the fetch offset, so consumers neither lag nor reset.
    if log is None:
        end = partition.fetch_offset
        return FetchedPartitionData(index, error_code, end, end, 0, () if is_committed else None), 0
    # KIP-595: a diverging reader gets the end of the common epoch, not records.
    diverging = None if partition.last_fetched_epoch < 0 else _diverging(partition, log)
    if diverging is not None:
        numbers = index, error_code, log.end_offset, log.last_stable_offset, log.start_offset
        return FetchedPartitionData(*numbers, None, diverging_epoch=diverging), 0
    try:
        batches = log.read(
            partition.fetch_offset,
            plan.end_of(log),
            min(partition.partition_max_bytes, left),
            takes_first=takes_first,
            lists_aborted=is_committed,
        )
    except TopicLogError as error:
        return FetchedPartitionData(index, error.error_code, aborted_transactions=None), 0
    aborted = tuple(transaction[:2] for transaction in batches.aborted) if is_committed else None
    numbers = index, error_code, log.end_offset, log.last_stable_offset, log.start_offset
    return _make_fetched((*numbers, aborted, NO_REPLICA, batches.parts, NO_LEADER, None)), batches.size_bytes


def _check(readable: Readable, request: Fetch) -> ErrorCode:
    partition, log = readable.partition, readable.log
    if log is not None and log.is_closed:
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    # FetchRequest.optionalEpoch: any negative epoch counts as absent.
    error_code = check_leader_epoch(max(partition.current_leader_epoch, NO_LEADER_EPOCH), readable.leader_epoch)
    if error_code is not ErrorCode.NONE:
        return error_code
    # Nodes share their logs, so this server has no followers.
    if request.replica_id >= 0:
        return ErrorCode.NOT_LEADER_OR_FOLLOWER
    leader_epoch = readable.leader_epoch if log is None else log.leader_epoch
    offset, last_epoch = partition.fetch_offset, partition.last_fetched_epoch
    # A fetcher that names the epoch of its last record gets the end of that epoch.
    is_beyond = log is not None and (offset < log.start_offset or (offset > log.end_offset and last_epoch < 0))
    if is_beyond or offset < 0 or last_epoch > leader_epoch:
        return ErrorCode.OFFSET_OUT_OF_RANGE
    return ErrorCode.NONE


def _diverging(partition: FetchPartition, log: PartitionLog) -> EpochEnd | None:
    """Return the end of the epoch of a reader's last record if that record is not in the log."""
    end = log.end_of_epoch(partition.last_fetched_epoch)
    if end is None or (end.epoch == partition.last_fetched_epoch and end.end_offset >= partition.fetch_offset):
        return None
    return end


@define(eq=False)
class FetchWait:
    """Waiting Fetch.

    Attributes:
        fetched: the results of the read; None if the partitions are read again.
        has_moved: the leader of one of its partitions has changed.
    """

    connection: Connection
    context: FetchContext
    plan: FetchPlan
    fetched: Fetched | None
    _on_ready: Callable[[FetchWait], None]
    timer: int = field(init=False)
    has_moved: bool = field(default=False, init=False)
    is_over: bool = field(default=False, init=False)
    # Offset, maximum bytes, readable bytes, leader epoch.
    _counts: dict[PartitionLog, tuple[int, int, int, int]] = field(factory=dict, init=False)
    _total_bytes: int = field(default=0, init=False)

    def watch(self) -> Work[bool]:
        """Count the readable bytes, and watch the logs; return False if there are enough already."""
        for portion in portions(self.plan.readable):
            for _, partition, log, _ in portion:
                # The client may leave during a yield.
                if self.is_over:
                    return True
                if log is not None:
                    self._counts[log] = partition.fetch_offset, partition.partition_max_bytes, 0, log.leader_epoch
                    log.watchers[self._changed] = None
                    self._count(log)
            if portion is not self.plan.readable:
                yield None
        return self.is_over or self._total_bytes < self.plan.min_bytes

    def unwatch(self) -> None:
        self.is_over = True
        for log in self._counts:
            log.watchers.pop(self._changed, None)

    def _changed(self, log: PartitionLog) -> None:
        # The log has changed, so what was read is out of date.
        self.fetched = None
        self._count(log)
        self.has_moved = self.has_moved or log.leader_epoch != self._counts[log][3]
        # Errors end the wait at once, as in DelayedFetch.
        if log.is_closed or self.has_moved or self._total_bytes >= self.plan.min_bytes:
            self._on_ready(self)

    def _count(self, log: PartitionLog) -> None:
        offset, bytes_max, counted, leader_epoch = self._counts[log]
        try:
            readable_bytes = min(log.readable_bytes(offset, self.plan.end_of(log)), bytes_max)
        except TopicLogError:
            readable_bytes = self.plan.min_bytes
        self._counts[log] = offset, bytes_max, readable_bytes, leader_epoch
        self._total_bytes += readable_bytes - counted


class FetchRequests:
    """Handler of Fetch."""

    def __init__(self, data: TopicData, leaders: CurrentLeaders) -> None:
        self._data = data
        self._leaders = leaders
        self._sessions = FetchSessions(
            data.config.max_incremental_fetch_session_cache_slots if data.logs is not None else 0, data.clock.now_ms
        )
        self.timers = Timers()
        self._waiting: dict[Connection, FetchWait] = {}

    def fetch(self, connection: Connection, request: Fetch) -> Work[WireResponse | None]:
        # Kafka's IsolationLevel.forId throws, which fails the whole request.
        if request.isolation_level not in (READ_UNCOMMITTED, READ_COMMITTED):
            failed = ErrorCode.UNKNOWN_SERVER_ERROR
            named: Any = [topic for topic in request.topics if topic.name is not None]
            refused: Any = yield from each_partition(
                named, lambda name, entry: FetchedPartitionData(entry.partition_index, failed)
            )
            return FetchResponse(failed, topics=refused)
        context = yield from self._sessions.open(request)
        if isinstance(context, ErrorCode):
            return FetchResponse(context)
        plan = yield from plan_fetch(request, context.targets, self._data, connection.permissions)
        result = yield from read(plan)
        if result.waits:
            has_read = any(fetched.records for _, fetched in result.fetched)
            # Records are read again after the wait, which holds no memory for them.
            first = None if has_read else result.fetched
            # Registered before `watch` yields, when the client may leave.
            wait = self._waiting[connection] = FetchWait(connection, context, plan, first, self._end_wait)
            deadline_ms = self._data.clock.now_ms() + request.max_wait_ms
            wait.timer = self.timers.add(deadline_ms, partial(self._end_wait, wait))
            # A timer or an append sends the response.
            if (yield from wait.watch()):
                return None
            # Enough arrived before the wait began.
            self.disconnected(connection)
            result = yield from read(plan)
        response = yield from context.respond(result.fetched)
        return self._leaders.add(response, connection.nodes) if result.has_failed else response

    def disconnected(self, connection: Connection) -> None:
        wait = self._waiting.pop(connection, None)
        if wait is not None:
            wait.unwatch()
            self.timers.cancel(wait.timer)

    def _end_wait(self, wait: FetchWait) -> None:
        self.disconnected(wait.connection)
        work = self._answer_wait(wait)
        if wait.fetched is None:
            wait.connection.answer_later(work)
        else:
            wait.connection.answer_when_done(work)

    def _answer_wait(self, wait: FetchWait) -> Work[WireResponse]:
        plan, fetched = wait.plan, wait.fetched
        # Another node may lead now, which the plan would not notice.
        if wait.has_moved:
            permissions = wait.connection.permissions
            plan = yield from plan_fetch(plan.request, wait.context.targets, self._data, permissions)
        has_failed = False
        if fetched is None:
            fetched, _, has_failed = yield from read(plan)
        response = yield from wait.context.respond(fetched)
        return self._leaders.add(response, wait.connection.nodes) if has_failed else response
