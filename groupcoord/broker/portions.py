"""Requests that name many things, answered in portions: each thing once, however often it is named.

Kafka answers a request that names one group of 2,000 offsets 5,000 times with 200 MB. So is it done here; but what is
asked for several times is looked up once, and between two things others get their turn.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Hashable, Iterator, Mapping, Sequence
from typing import Any, TypeVar

from attrs import evolve

from groupcoord.core.messages import (
    ConsumerGroupDescribe,
    ConsumerGroupDescribeResponse,
    DeletedGroup,
    DeleteGroups,
    DeleteGroupsResponse,
    DescribedGroup,
    DescribeGroups,
    DescribeGroupsResponse,
    FetchedGroup,
    FetchedTopic,
    FindCoordinator,
    FindCoordinatorResponse,
    FoundCoordinator,
    GroupToFetch,
    LeaveGroup,
    LeaveGroupResponse,
    LeftMember,
    ListGroupsResponse,
    OffsetDelete,
    OffsetDeleteResponse,
    OffsetFetch,
    OffsetFetchResponse,
    PartitionResult,
    ShareGroupDescribe,
    ShareGroupDescribeResponse,
    StreamsGroupDescribe,
    StreamsGroupDescribeResponse,
    TopicResult,
    TopicToDelete,
    TopicToFetch,
)
from groupcoord.core.messages.fetches import GatheredOffsets, PortionOfAll
from groupcoord.core.records import ZERO_UUID
from groupcoord.errors import ErrorCode
from groupcoord.wire.broker_messages import FetchResponse, MetadataResponse
from groupcoord.wire.config_messages import DescribeConfigsResponse
from groupcoord.wire.transaction_messages import (
    DescribedTransaction,
    DescribeTransactions,
    DescribeTransactionsResponse,
)

F = TypeVar("F")
T = TypeVar("T")

FEW = 8
"""A request that names no more than so many things is answered in one go."""

MANY_ENTRIES = 1_000
"""So many members or offsets are looked at in one go; an answer with more entries is written in portions."""

ANY_PARTITION = (0,)
REFUSED_TOPICS = frozenset((ErrorCode.UNKNOWN_TOPIC_ID, ErrorCode.TOPIC_AUTHORIZATION_FAILED))


class Answer:
    """A token for one portion: keeps the answer, and tells when it has come.

    Attributes:
        response: the answer, once it is there.
        on_answer: called when the answer comes, if it comes later.
    """

    __slots__ = ("on_answer", "response")

    def __init__(self) -> None:
        self.response: Any = None
        self.on_answer: Callable[[], None] | None = None

    def answer(self, response: Any) -> None:
        """Take the answer."""
        self.response = response
        if self.on_answer is not None:
            self.on_answer()


Ask = Callable[[Any], Answer]
"""Asks whoever answers a request of this type."""

OffsetsOfGroup = Mapping[str, Mapping[int, object]]
"""By topic and partition, what is committed there now."""

Committed = Callable[[str | None], OffsetsOfGroup]
"""Returns the committed offsets of a group, which change as others commit."""

Work = Generator[Answer | None, None, T]
"""Yields None where others may have their turn, or an answer that has to be there before it goes on."""


def _one_by_one(names: Sequence[T], key_of: Callable[[T], Hashable], ask_about: Callable[[T], F]) -> Work[list[F]]:
    """Ask once about each name, and return what was found for all of them, in their order."""
    found: dict[Hashable, F] = {}
    keys = []
    for name in names:
        key = key_of(name)
        keys.append(key)
        if key not in found:
            found[key] = ask_about(name)
            yield None
    return [found[key] for key in keys]


def _itself(name: T) -> T:
    return name


def _fetch_offsets(request: OffsetFetch, ask: Ask, committed: Committed) -> Work[OffsetFetchResponse]:
    def fetch(wanted: GroupToFetch) -> FetchedGroup:
        answer = ask(OffsetFetch((wanted,), request.require_stable, request.uses_topic_ids))
        fetched: FetchedGroup = answer.response.groups[0]
        return fetched

    found: dict[Hashable, FetchedGroup] = {}
    groups = []
    for wanted in request.groups:
        key = _key_of_fetch(wanted)
        if key not in found:
            if wanted.topics is None and has_many_offsets(committed(wanted.group_id)):
                found[key] = yield from _fetch_all(wanted, committed(wanted.group_id), fetch)
            elif _count_offsets(wanted) > MANY_ENTRIES:
                found[key] = yield from _fetch_by_topic(wanted, fetch)
            else:
                found[key] = fetch(wanted)
            yield None
        groups.append(found[key])
    return OffsetFetchResponse(tuple(groups))


def _fetch_all(
    wanted: GroupToFetch, committed: OffsetsOfGroup, fetch: Callable[[GroupToFetch], FetchedGroup]
) -> Work[FetchedGroup]:
    """Fetch all offsets of a group, so many at a time, in the order in which they are fetched in one go."""

    def fetch_some(topics: tuple[TopicToFetch, ...]) -> FetchedGroup:
        return fetch(PortionOfAll(wanted.group_id, topics, wanted.member_id, wanted.member_epoch))

    group = fetch_some(())
    topics: dict[str, tuple[FetchedTopic, GatheredOffsets]] = {}
    for portion in _portions_of_all(committed):
        found = fetch_some(portion)
        if found.error_code is not ErrorCode.NONE:
            return found
        for topic in found.topics:
            _, gathered = topics.setdefault(topic.name or "", (topic, GatheredOffsets()))
            gathered.add(topic.partitions)
        yield None
    whole = [topic._replace(partitions=gathered.whole()) for topic, gathered in topics.values()]
    return group._replace(topics=tuple(whole))


def _portions_of_all(committed: OffsetsOfGroup) -> Iterator[tuple[TopicToFetch, ...]]:
    """Divide a group's partitions into such as are looked at in one go; what they are is seen when it is their turn."""
    portion: list[TopicToFetch] = []
    room = MANY_ENTRIES
    for name in tuple(committed):
        indexes = tuple(committed.get(name, ()))
        start = 0
        while start < len(indexes):
            part = indexes[start : start + room]
            portion.append(TopicToFetch(name, part))
            start += len(part)
            room -= len(part)
            if not room:
                yield tuple(portion)
                portion, room = [], MANY_ENTRIES
    if portion:
        yield tuple(portion)


def _fetch_by_topic(wanted: GroupToFetch, fetch: Callable[[GroupToFetch], FetchedGroup]) -> Work[FetchedGroup]:
    """Fetch the offsets of a group that are named one by one; as without portions, refused topics come last."""
    group = fetch(evolve(wanted, topics=()))
    read: list[FetchedTopic] = []
    refused: list[FetchedTopic] = []
    for topic in wanted.topics or ():
        gathered = GatheredOffsets()
        named = topic.partition_indexes
        # Without a partition nothing would tell whether the topic is refused: any will do.
        asked = named or ANY_PARTITION
        for start in range(0, len(asked), MANY_ENTRIES):
            indexes = asked[start : start + MANY_ENTRIES]
            found = fetch(evolve(wanted, topics=(TopicToFetch(topic.name, indexes, topic.topic_id),)))
            if found.error_code is not ErrorCode.NONE:
                return found
            for fetched in found.topics:
                gathered.add(fetched.partitions)
            yield None
        partitions = gathered.whole()
        is_refused = partitions.error_codes is not None and partitions.error_codes[0] in REFUSED_TOPICS
        answered = FetchedTopic(topic.name, topic.topic_id, partitions if named else ())
        (refused if is_refused else read).append(answered)
    return group._replace(topics=tuple(read + refused))


def has_many_offsets(committed: OffsetsOfGroup) -> bool:
    """Tell whether a group has more offsets than are looked at in one go."""
    return len(committed) > MANY_ENTRIES or sum(map(len, committed.values())) > MANY_ENTRIES


def _count_offsets(wanted: GroupToFetch) -> int:
    return 0 if wanted.topics is None else sum(1 + len(topic.partition_indexes) for topic in wanted.topics)


def _key_of_fetch(wanted: GroupToFetch) -> Hashable:
    """Return what those have in common that want all offsets of one group; others are taken as they are."""
    return (wanted.group_id, wanted.member_id, wanted.member_epoch) if wanted.topics is None else id(wanted)


def _describe_groups(request: DescribeGroups, ask: Ask) -> Work[DescribeGroupsResponse]:
    def describe(group_id: str | None) -> DescribedGroup:
        asked = DescribeGroups((group_id,), request.include_authorized_operations)
        described: DescribedGroup = ask(asked).response.groups[0]
        return described

    groups = yield from _one_by_one(request.group_ids, _itself, describe)
    denied = ErrorCode.GROUP_AUTHORIZATION_FAILED
    # As in Kafka, groups that the asker may not see come first.
    return DescribeGroupsResponse(tuple(sorted(groups, key=lambda group: group.error_code is not denied)))


def _describe_kind(request: ConsumerGroupDescribe | ShareGroupDescribe | StreamsGroupDescribe, ask: Ask) -> Work[Any]:
    def describe(group_id: str | None) -> Any:
        return ask(evolve(request, group_ids=(group_id,))).response.groups[0]

    groups = yield from _one_by_one(request.group_ids, _itself, describe)
    # As in Kafka, groups that the asker may not see come first, and then those without a name.
    early = {ErrorCode.GROUP_AUTHORIZATION_FAILED: 0, ErrorCode.INVALID_GROUP_ID: 1}
    ordered = tuple(sorted(groups, key=lambda group: early.get(group.error_code, len(early))))
    return _DESCRIPTIONS[type(request)](ordered)


_DESCRIPTIONS: dict[type, Callable[[Any], Any]] = {
    ConsumerGroupDescribe: ConsumerGroupDescribeResponse,
    ShareGroupDescribe: ShareGroupDescribeResponse,
    StreamsGroupDescribe: StreamsGroupDescribeResponse,
}


def _find_coordinators(request: FindCoordinator, ask: Ask) -> Work[FindCoordinatorResponse]:
    def find(key: str) -> FoundCoordinator:
        found: FoundCoordinator = ask(
            FindCoordinator(request.key_type, (key,), supports_share_keys=request.supports_share_keys)
        ).response.coordinators[0]
        return found

    coordinators = yield from _one_by_one(request.keys, _itself, find)
    return FindCoordinatorResponse(tuple(coordinators))


def _describe_transactions(request: DescribeTransactions, ask: Ask) -> Work[DescribeTransactionsResponse]:
    def describe(transactional_id: str) -> DescribedTransaction:
        described: DescribedTransaction = ask(DescribeTransactions((transactional_id,))).response.transaction_states[0]
        return described

    transactions = yield from _one_by_one(request.transactional_ids, _itself, describe)
    return DescribeTransactionsResponse(tuple(transactions))


def _delete_groups(request: DeleteGroups, ask: Ask) -> Work[DeleteGroupsResponse]:
    results: list[DeletedGroup] = []
    for group_id in dict.fromkeys(request.group_ids):
        answer = ask(DeleteGroups((group_id,)))
        if answer.response is None:
            yield answer
        results += answer.response.results
        yield None
    return DeleteGroupsResponse(tuple(results))


def _leave(request: LeaveGroup, ask: Ask) -> Work[LeaveGroupResponse]:
    left: list[LeftMember] = []
    for start in range(0, len(request.members), MANY_ENTRIES):
        answer = ask(LeaveGroup(request.group_id, request.members[start : start + MANY_ENTRIES]))
        if answer.response is None:
            yield answer
        response: LeaveGroupResponse = answer.response
        if response.error_code is not ErrorCode.NONE:
            return response
        left += response.members
        yield None
    return LeaveGroupResponse(ErrorCode.NONE, tuple(left))


def _delete_offsets(request: OffsetDelete, ask: Ask) -> Work[OffsetDeleteResponse]:
    topics: list[TopicResult] = []
    for topic in request.topics:
        partitions: list[PartitionResult] = []
        for start in range(0, max(len(topic.partition_indexes), 1), MANY_ENTRIES):
            indexes = topic.partition_indexes[start : start + MANY_ENTRIES]
            answer = ask(OffsetDelete(request.group_id, (TopicToDelete(topic.name, indexes),)))
            if answer.response is None:
                yield answer
            response: OffsetDeleteResponse = answer.response
            if response.error_code is not ErrorCode.NONE:
                return response
            partitions += (partition for found in response.topics for partition in found.partitions)
            yield None
        topics.append(TopicResult(topic.name, ZERO_UUID, tuple(partitions)))
    return OffsetDeleteResponse(ErrorCode.NONE, tuple(topics))


_PORTIONS: dict[type, Callable[[Any, Ask], Work[Any]]] = {
    OffsetDelete: _delete_offsets,
    DescribeGroups: _describe_groups,
    ConsumerGroupDescribe: _describe_kind,
    ShareGroupDescribe: _describe_kind,
    StreamsGroupDescribe: _describe_kind,
    DeleteGroups: _delete_groups,
    LeaveGroup: _leave,
    FindCoordinator: _find_coordinators,
    DescribeTransactions: _describe_transactions,
}

DIVISIBLE: dict[type, Callable[[Any], int]] = {
    OffsetFetch: lambda request: len(request.groups),
    DescribeGroups: lambda request: len(request.group_ids),
    ConsumerGroupDescribe: lambda request: len(request.group_ids),
    ShareGroupDescribe: lambda request: len(request.group_ids),
    StreamsGroupDescribe: lambda request: len(request.group_ids),
    DeleteGroups: lambda request: len(request.group_ids),
    FindCoordinator: lambda request: len(request.keys),
    DescribeTransactions: lambda request: len(request.transactional_ids),
}
"""How many things a request names of which each can take long, even if the request is short."""


def in_portions_of(request: object, ask: Ask, committed: Committed) -> Work[Any] | None:
    """Return the work of answering a request bit by bit; None if it can't be divided."""
    if isinstance(request, OffsetFetch):
        return _fetch_offsets(request, ask, committed)
    answer = _PORTIONS.get(type(request))
    return None if answer is None else answer(request, ask)


def _count_fetched(response: OffsetFetchResponse) -> int:
    if len(response.groups) > FEW:
        return MANY_ENTRIES
    count = 0
    for group in response.groups:
        for topic in group.topics:
            count += len(topic.partitions)
    return count


def _count_partitions(response: FetchResponse | MetadataResponse) -> int:
    count = 0
    for topic in response.topics[:MANY_ENTRIES]:  # no generator: this is asked for each fetch
        count += 1 + len(topic.partitions)
    return count


def _count_members(response: Any) -> int:
    count = 0
    for group in response.groups[:MANY_ENTRIES]:
        count += 1 + len(group.members)
    return count


_ENTRIES: dict[type, Callable[[Any], int]] = {
    OffsetFetchResponse: _count_fetched,
    DescribeGroupsResponse: _count_members,
    ConsumerGroupDescribeResponse: _count_members,
    ShareGroupDescribeResponse: _count_members,
    StreamsGroupDescribeResponse: _count_members,
    DescribeConfigsResponse: lambda response: sum(
        1 + len(result.configs) for result in response.results[:MANY_ENTRIES]
    ),
    FetchResponse: _count_partitions,
    ListGroupsResponse: lambda response: len(response.groups),
    MetadataResponse: _count_partitions,
}

CAN_BE_LONG = frozenset(_ENTRIES)
"""The types of answers that :func:`is_long` knows."""


def is_long(response: object) -> bool:
    """Tell whether writing an answer takes so long that others should get their turn meanwhile.

    Args:
        response: of a type in ``CAN_BE_LONG``.
    """
    return _ENTRIES[type(response)](response) >= MANY_ENTRIES
