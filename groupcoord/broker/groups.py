"""Handlers of requests that may name many groups, members or offsets, and retries of failed log partitions.

The coordinator answers one request in one step, so large requests are divided, and others get their turn in between.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple, TypeVar

from attrs import define, evolve

from groupcoord.broker.connection import Connection
from groupcoord.broker.log_lines import RateLimitedLogger
from groupcoord.broker.topics.registry import TopicRegistry
from groupcoord.broker.transactions.requests import TransactionRequests
from groupcoord.broker.work import Answer, Work, each_long, portions
from groupcoord.clock import Clock
from groupcoord.coordinator import GroupCoordinator, LoadError, PartitionStatus
from groupcoord.core.columns import NO_OFFSET, offset_columns
from groupcoord.core.fast_construct import collector_paused
from groupcoord.core.log.records import ZERO_UUID
from groupcoord.core.messages import (
    NO_NODE,
    CoordinatorType,
    DeletedGroup,
    DeleteGroups,
    DeleteGroupsResponse,
    DescribedShareGroupOffsets,
    DescribedShareOffset,
    DescribedShareTopic,
    DescribeGroups,
    DescribeGroupsResponse,
    DescribeShareGroupOffsets,
    DescribeShareGroupOffsetsResponse,
    FetchedGroup,
    FetchedOffset,
    FetchedTopic,
    FindCoordinator,
    FindCoordinatorResponse,
    FoundCoordinator,
    GroupToFetch,
    LeaveGroup,
    LeaveGroupResponse,
    LeftMember,
    ListGroups,
    OffsetDelete,
    OffsetDeleteResponse,
    OffsetFetch,
    OffsetFetchResponse,
    PartitionResult,
    ShareGroupToDescribe,
    ShareTopicToDescribe,
    TopicResult,
    TopicToDelete,
    TopicToFetch,
)
from groupcoord.core.messages.commits import FetchedOffsets, fetched_offsets
from groupcoord.core.messages.request import Request
from groupcoord.core.router.request_router import DESCRIBED_KINDS
from groupcoord.errors import ErrorCode
from groupcoord.log_store import FailingStore
from groupcoord.wire import WireResponse

GROUPS_AT_ONCE = 8
MANY_OFFSETS = 1_000
"""Most offsets that are looked up in one step."""

ANY_PARTITION = (0,)
REFUSED_TOPICS = frozenset((ErrorCode.UNKNOWN_TOPIC_ID, ErrorCode.TOPIC_AUTHORIZATION_FAILED))

OffsetsOfGroup = Mapping[str, Mapping[int, object]]
"""Committed offsets by topic and partition."""

Committed = Callable[[str | None], OffsetsOfGroup]
"""Returns a live view of a group's committed offsets."""

FetchOffsets = Callable[[OffsetFetch], Work[OffsetFetchResponse]]


def wants_many(wanted: GroupToFetch, committed: Committed) -> bool:
    if wanted.topics is None:
        topics = committed(wanted.group_id)
        return len(topics) > MANY_OFFSETS or sum(map(len, topics.values())) > MANY_OFFSETS
    return len(wanted.topics) + sum([len(topic.partition_indexes) for topic in wanted.topics]) > MANY_OFFSETS


class OffsetFetches(NamedTuple):
    """Work of a large OffsetFetch. ``response_to`` fetches offsets of one group, ``committed`` finds what there is."""

    request: OffsetFetch
    response_to: FetchOffsets
    committed: Committed
    topics: TopicRegistry

    def work(self) -> Work[OffsetFetchResponse]:
        found: dict[Hashable, FetchedGroup] = {}
        groups = []
        for wanted in self.request.groups:
            key = _key_of(wanted)
            if key not in found:
                # All offsets of a group are fetched once.
                found[key] = yield from self._fetch_group(wanted)
            groups.append(found[key])
            yield None
        return OffsetFetchResponse(tuple(groups))

    def _fetch_group(self, wanted: GroupToFetch) -> Work[FetchedGroup]:
        if not wants_many(wanted, self.committed):
            return (yield from self._fetch(wanted))
        if wanted.topics is None:
            return (yield from self._fetch_all(wanted, self.committed(wanted.group_id)))
        return (yield from self._fetch_by_topic(wanted, wanted.topics))

    def _fetch(self, wanted: GroupToFetch) -> Work[FetchedGroup]:
        return (yield from self.response_to(evolve(self.request, groups=(wanted,)))).groups[0]

    def _fetch_all(self, wanted: GroupToFetch, committed: OffsetsOfGroup) -> Work[FetchedGroup]:
        """Fetch all offsets of a group, in the order of a fetch in one step."""
        # Checks permission, member and epoch before any offset is read.
        group = yield from self._fetch(evolve(wanted, topics=()))
        topics: dict[str | None, tuple[FetchedTopic, _Gathered]] = {}
        for portion in self._portions(committed):
            found = yield from self._fetch(evolve(wanted, topics=portion))
            # The member may have left or been fenced.
            if found.error_code is not ErrorCode.NONE:
                return found
            for topic in found.topics:
                # As if the fetch had come later, offsets may be deleted between two portions.
                present = _present(fetched_offsets(topic.partitions))
                if len(present):
                    topics.setdefault(topic.name, (topic, _Gathered()))[1].add(present)
            yield None
        whole = [topic._replace(partitions=gathered.whole()) for topic, gathered in topics.values()]
        return group._replace(topics=tuple(whole))

    def _portions(self, committed: OffsetsOfGroup) -> Iterator[tuple[TopicToFetch, ...]]:
        """Divide a group's partitions into portions, each read at its turn."""
        portion: list[TopicToFetch] = []
        room = MANY_OFFSETS
        for name in tuple(committed):
            # The topic may be gone since the names were listed.
            indexes = tuple(committed.get(name, ()))
            start = 0
            while start < len(indexes):
                part = indexes[start : start + room]
                if not self.request.uses_topic_ids:
                    portion.append(TopicToFetch(name, part))
                # As in Kafka, topics without an id are omitted.
                elif (topic := self.topics.get(name)) is not None:
                    portion.append(TopicToFetch(None, part, topic.topic_id))
                start += len(part)
                room -= len(part)
                if not room:
                    yield tuple(portion)
                    portion, room = [], MANY_OFFSETS
        if portion:
            yield tuple(portion)

    def _fetch_by_topic(self, wanted: GroupToFetch, topics: tuple[TopicToFetch, ...]) -> Work[FetchedGroup]:
        """Fetch named offsets of a group; refused topics come last, as in one step."""
        group = yield from self._fetch(evolve(wanted, topics=()))
        read: list[FetchedTopic] = []
        refused: list[FetchedTopic] = []
        for topic in topics:
            gathered = _Gathered()
            named = topic.partition_indexes
            # Any partition shows whether the topic is refused.
            to_read = named or ANY_PARTITION
            for indexes in portions(to_read, MANY_OFFSETS):
                some = TopicToFetch(topic.name, tuple(indexes), topic.topic_id)
                found = yield from self._fetch(evolve(wanted, topics=(some,)))
                if found.error_code is not ErrorCode.NONE:
                    return found
                for fetched in found.topics:
                    gathered.add(fetched_offsets(fetched.partitions))
                yield None
            partitions = gathered.whole()
            # These errors concern the topic.
            is_refused = partitions.error_codes is not None and partitions.error_codes[0] in REFUSED_TOPICS
            answered = FetchedTopic(topic.name, topic.topic_id, partitions if named else ())
            # KafkaApis appends topics with authorization errors behind the others.
            (refused if is_refused else read).append(answered)
        return group._replace(topics=tuple(read + refused))


class _Gathered:
    def __init__(self) -> None:
        self._columns: tuple[list[int], list[int], list[int], list[str]] = ([], [], [], [])
        self._error_codes: list[ErrorCode] = []
        self._has_metadata = False
        self._has_errors = False

    def add(self, fetched: FetchedOffsets) -> None:
        indexes, offsets, leader_epochs, metadata = self._columns
        indexes += fetched.columns.partition_indexes
        offsets += fetched.columns.offsets
        leader_epochs += fetched.columns.leader_epochs
        metadata += fetched.columns.texts()
        self._error_codes += fetched.error_codes or (ErrorCode.NONE,) * len(fetched)
        self._has_metadata = self._has_metadata or fetched.columns.metadata is not None
        self._has_errors = self._has_errors or fetched.error_codes is not None

    def whole(self) -> FetchedOffsets:
        indexes, offsets, leader_epochs, metadata = self._columns
        columns = offset_columns(indexes, offsets, leader_epochs, metadata if self._has_metadata else None)
        return FetchedOffsets(columns, tuple(self._error_codes) if self._has_errors else None)


def _key_of(wanted: GroupToFetch) -> Hashable:
    """Return a key that is equal for fetches of all offsets of one group by one member, and unique for others."""
    # The request keeps its entries alive, so `id` is not reused.
    return (wanted.group_id, wanted.member_id, wanted.member_epoch) if wanted.topics is None else id(wanted)


def _present(fetched: FetchedOffsets) -> FetchedOffsets:
    """Omit partitions without an offset, and denied ones."""
    error_codes = fetched.error_codes or (ErrorCode.NONE,) * len(fetched)
    rows: Sequence[FetchedOffset] = [
        row
        for row, error_code in zip(fetched, error_codes, strict=True)
        if error_code not in REFUSED_TOPICS and (error_code is not ErrorCode.NONE or row.committed_offset != NO_OFFSET)
    ]
    return fetched if len(rows) == len(fetched) else fetched_offsets(rows)


FEW_GROUPS = 8
"""Most groups that are deleted in one step; their records may share an append."""

MANY_MEMBERS = 1_000
"""Most members that leave in one step."""

NameT = TypeVar("NameT")
FoundT = TypeVar("FoundT")
ResponseT = TypeVar("ResponseT")


@define(eq=False)
class GroupRequests:
    """Handlers of requests to the group coordinator that may have to be divided."""

    _coordinator: GroupCoordinator
    _topics: TopicRegistry
    _transactions: TransactionRequests | None

    def _response_to(self, connection: Connection, request: Request[ResponseT]) -> Work[ResponseT]:
        answer = Answer()
        connection.submit(request, answer)
        if not answer.is_done:
            yield answer
        response: ResponseT = answer.response
        return response

    # ------------------------------------------------------------ offsets

    def fetch_offsets(self, connection: Connection, request: OffsetFetch) -> Work[WireResponse | None] | None:
        is_large = len(request.groups) > GROUPS_AT_ONCE
        if is_large or any(wants_many(wanted, self._committed) for wanted in request.groups):
            return OffsetFetches(
                request, lambda each: self._response_to(connection, each), self._committed, self._topics
            ).work()
        connection.submit(request)
        return None

    def _committed(self, group_id: str | None) -> OffsetsOfGroup:
        """Return committed offsets without checks of permissions, to choose how to fetch them."""
        if group_id is None:
            return {}
        coordinator = self._coordinator
        partition = coordinator.partition(coordinator.partition_of(group_id))
        return {} if partition is None else partition.hard.offsets.of_group(group_id)

    def delete_offsets(self, connection: Connection, request: OffsetDelete) -> Work[WireResponse | None]:
        if sum(1 + len(topic.partition_indexes) for topic in request.topics) <= MANY_OFFSETS:
            return (yield from self._response_to(connection, request))
        topics: list[TopicResult] = []
        for topic in request.topics:
            partitions: list[PartitionResult] = []
            for indexes in portions(topic.partition_indexes, MANY_OFFSETS):
                some = OffsetDelete(request.group_id, (TopicToDelete(topic.name, tuple(indexes)),))
                response = yield from self._response_to(connection, some)
                if response.error_code is not ErrorCode.NONE:
                    return response
                partitions += (partition for found in response.topics for partition in found.partitions)
                yield None
            topics.append(TopicResult(topic.name, ZERO_UUID, tuple(partitions)))
        return OffsetDeleteResponse(ErrorCode.NONE, tuple(topics))

    # ------------------------------------------------------------ groups and members

    def find_coordinators(self, connection: Connection, request: FindCoordinator) -> Work[WireResponse | None]:
        is_transactional, transactions = request.key_type == CoordinatorType.TRANSACTION, self._transactions
        # Nodes that share a log have none; clients do not retry this error.
        if is_transactional and transactions is None:
            return request.refused(ErrorCode.INVALID_REQUEST)
        nodes = connection.nodes

        def find(key: str) -> Work[FoundCoordinator]:
            part = request if len(request.keys) == 1 else evolve(request, keys=(key,))
            if is_transactional and transactions is not None:
                transactions.prepare(connection, key)
            found = (yield from self._response_to(connection, part)).coordinators[0]
            # Each listener has its own advertised addresses.
            if nodes is None or found.node == NO_NODE:
                return found
            return found._replace(node=nodes[found.node.node_id])

        if len(request.keys) == 1:  # as most clients do
            return FindCoordinatorResponse(((yield from find(request.keys[0])),))
        return FindCoordinatorResponse(tuple((yield from _each_once(request.keys, find))))

    def list_groups(self, connection: Connection, request: ListGroups) -> Work[WireResponse | None]:
        response = yield from self._response_to(connection, request)
        # Others have their turn before a large response.
        yield None
        return response

    def describe_groups(self, connection: Connection, request: Any) -> Work[WireResponse | None]:
        def describe(group_id: str | None) -> Work[Any]:
            return (yield from self._response_to(connection, evolve(request, group_ids=(group_id,)))).groups[0]

        groups = yield from _each_once(request.group_ids, describe)
        yield None  # the result may be large
        if isinstance(request, DescribeGroups):
            denied = ErrorCode.GROUP_AUTHORIZATION_FAILED
            # KafkaApis puts groups that are denied first.
            return DescribeGroupsResponse(tuple(sorted(groups, key=lambda group: group.error_code is not denied)))
        response: WireResponse = DESCRIBED_KINDS[type(request)].answer(groups)
        return response

    def describe_share_offsets(
        self, connection: Connection, request: DescribeShareGroupOffsets
    ) -> Work[WireResponse | None]:
        def describe_partitions(
            group_id: str, topics: tuple[ShareTopicToDescribe, ...] | None
        ) -> Work[DescribedShareGroupOffsets]:
            part = DescribeShareGroupOffsets((ShareGroupToDescribe(group_id, topics),))
            return (yield from self._response_to(connection, part)).groups[0]

        def describe(wanted: ShareGroupToDescribe) -> Work[DescribedShareGroupOffsets]:
            group_id, topics = wanted
            if topics is None or sum(1 + len(topic.partitions) for topic in topics) <= MANY_OFFSETS:
                return (yield from describe_partitions(group_id, topics))
            described: list[DescribedShareTopic] = []
            for name, partitions in topics:
                found: list[DescribedShareOffset] = []
                for some in portions(partitions, MANY_OFFSETS):
                    group = yield from describe_partitions(group_id, (ShareTopicToDescribe(name, tuple(some)),))
                    if group.error_code is not ErrorCode.NONE:
                        return group
                    found += group.topics[0].partitions
                    yield None
                # `portions` yields one portion even of nothing, so `group` is set.
                described.append(DescribedShareTopic(name, group.topics[0].topic_id, tuple(found)))
            # As in Kafka, denied topics come last.
            described.sort(key=_is_refused)
            return DescribedShareGroupOffsets(group_id, tuple(described))

        return DescribeShareGroupOffsetsResponse(tuple((yield from _each_once(request.groups, describe))))

    def delete_groups(self, connection: Connection, request: DeleteGroups) -> Work[WireResponse | None]:
        # Their tombstones can share an append.
        if len(request.group_ids) <= FEW_GROUPS:
            return (yield from self._response_to(connection, request))

        def delete(group_id: str | None) -> Work[tuple[DeletedGroup, ...]]:
            return (yield from self._response_to(connection, DeleteGroups((group_id,)))).results

        # Kafka answers a repeated group once.
        deleted = yield from each_long(dict.fromkeys(request.group_ids), delete)
        return DeleteGroupsResponse(tuple(result for results in deleted for result in results))

    def leave(self, connection: Connection, request: LeaveGroup) -> Work[WireResponse | None]:
        if len(request.members) <= MANY_MEMBERS:
            return (yield from self._response_to(connection, request))
        left: list[LeftMember] = []
        for members in portions(request.members, MANY_MEMBERS):
            some = LeaveGroup(request.group_id, tuple(members))
            response = yield from self._response_to(connection, some)
            if response.error_code is not ErrorCode.NONE:
                return response
            left += response.members
            yield None
        return LeaveGroupResponse(ErrorCode.NONE, tuple(left))


def _is_refused(topic: DescribedShareTopic) -> bool:
    return bool(topic.partitions) and topic.partitions[0].error_code is ErrorCode.TOPIC_AUTHORIZATION_FAILED


def _each_once(names: Sequence[NameT], find: Callable[[NameT], Work[FoundT]]) -> Work[list[FoundT]]:
    """Look up each distinct name once, and return the results in the order of the names."""
    once = dict.fromkeys(names)
    found = dict(zip(once, (yield from each_long(once, find)), strict=True))
    return [found[name] for name in names]


logger = logging.getLogger("groupcoord.host")

PAUSE_MS = 10_000
"""Pause between two log lines about failed appends."""


class AppendFailureLog:
    """Log lines about failed appends: one at once, then one every ten seconds with reason and count, and one when
    appends work again.
    """

    def __init__(self, coordinator: GroupCoordinator, clock: Clock) -> None:
        self._coordinator = coordinator
        self._clock = clock
        self._failing: dict[int, int] = {}  # log partition → its log end offset at that time
        self._reason = ""
        self._unlogged_count = 0
        self._count = 0
        self._is_logged = False
        self._next_line_ms = 0

    def report(self) -> None:
        for partition, failures in self._coordinator.take_append_failures().items():
            self._failing[partition] = failures.next_log_offset
            self._reason = failures.reason
            self._unlogged_count += failures.count
            self._count += failures.count
        now_ms = self._clock.now_ms()
        if self._unlogged_count and now_ms >= self._next_line_ms:
            logger.error("the log can't be written: %s (appends refused: %d)", self._reason, self._unlogged_count)
            self._unlogged_count, self._next_line_ms, self._is_logged = 0, now_ms + PAUSE_MS, True
        # All failing partitions must be written again; success in one proves nothing for another.
        # `_take_written` may empty it, so it is tested twice.
        if self._failing and self._take_written() and not self._failing and self._is_logged:
            logger.warning("the log can be written again (appends refused in the meantime: %d)", self._count)
            self._unlogged_count, self._count, self._is_logged = 0, 0, False

    def _take_written(self) -> bool:
        """Remove log partitions that were written since, or have failed; return whether any was written."""
        has_written = False
        for index, next_log_offset in list(self._failing.items()):
            partition = self._coordinator.partition(index)
            # The partition failed as a whole; Reloading logs that.
            if partition is None:
                del self._failing[index]
            elif partition.writer.next_log_offset > next_log_offset:
                del self._failing[index]
                has_written = True
        return has_written


FIRST_PAUSE_MS, LONGEST_PAUSE_MS = 1_000, 60_000


class _Failure(NamedTuple):
    message: str
    pause_ms: int
    retry_ms: int


class Reloading:
    """Loader of log partitions that retries failed ones.

    The pause doubles with each failed attempt, up to a minute. A line is logged when a partition fails, when the reason
    changes, and when it is served again.
    """

    def __init__(self, coordinator: GroupCoordinator, clock: Clock) -> None:
        self._coordinator = coordinator
        self._clock = clock
        self._count = coordinator.config.offsets_topic_num_partitions
        self._failures: dict[int, _Failure] = {}
        self._append_failures = AppendFailureLog(coordinator, clock)
        self._log = RateLimitedLogger(logger)

    def load_all(self, leader_epochs: Mapping[int, int]) -> None:
        """Load log partitions with their leader epochs.

        Raises:
            LoadError: none of them could be loaded.
        """
        causes: dict[int, Exception] = {}
        # Loading creates millions of objects and no garbage.
        with collector_paused():
            for partition, leader_epoch in leader_epochs.items():
                try:
                    self._coordinator.load(partition, leader_epoch)
                except LoadError as error:
                    causes.update(error.causes)
        for partition, cause in causes.items():
            self._failed(partition, cause)
        # With one readable partition the server is useful, so it starts.
        if causes and len(causes) == len(leader_epochs):
            raise LoadError(causes)

    def retry(self) -> None:
        """Load failed log partitions that are due, and log append failures."""
        self._append_failures.report()
        now_ms = self._clock.now_ms()
        # A file may disappear without a failed append.
        self._fail_unreadable(now_ms)
        self._log.report(now_ms / 1000)
        for partition in range(self._count):
            if self._coordinator.status(partition) is not PartitionStatus.FAILED:
                continue
            # None: failed while it was served, so it is loaded at once.
            failure = self._failures.get(partition)
            if failure is not None and now_ms < failure.retry_ms:
                continue
            try:
                with collector_paused():
                    # After a failure any epoch is accepted, and the newest is kept.
                    self._coordinator.load(partition)
            except LoadError as error:
                self._failed(partition, error.causes[partition])
            else:
                self._failures.pop(partition, None)
                again = "log partition %d had failed and is loaded again"
                self._log.warning("loaded again", now_ms / 1000, again, partition)

    def _fail_unreadable(self, now_ms: int) -> None:
        store = self._coordinator.log_store
        if isinstance(store, FailingStore):
            for partition, error in store.find_failed().items():
                self._log.error("failed", now_ms / 1000, "log partition %d has failed: %s", partition, error)
                self._coordinator.fail(partition, error)

    def _failed(self, partition: int, cause: Exception) -> None:
        message, before = str(cause), self._failures.get(partition)
        # Retries never end.
        if before is None or before.message != message:
            logger.error("log partition %d can't be loaded, its groups are not served: %s", partition, message)
        pause_ms = FIRST_PAUSE_MS if before is None else min(2 * before.pause_ms, LONGEST_PAUSE_MS)
        self._failures[partition] = _Failure(message, pause_ms, self._clock.now_ms() + pause_ms)
