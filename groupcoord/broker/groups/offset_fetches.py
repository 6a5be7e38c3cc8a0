"""OffsetFetch of many offsets: so many at a time, with the answer of one go."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence

from attrs import evolve

from groupcoord.broker.topics.registry import TopicRegistry
from groupcoord.broker.work import Work, portions
from groupcoord.core.columns import NO_OFFSET, offset_columns
from groupcoord.core.messages import (
    FetchedGroup,
    FetchedOffset,
    FetchedTopic,
    GroupToFetch,
    OffsetFetch,
    OffsetFetchResponse,
    TopicToFetch,
)
from groupcoord.core.messages.commits import FetchedOffsets, fetched_offsets
from groupcoord.errors import ErrorCode

FEW_GROUPS = 8
MANY_OFFSETS = 1_000
"""So many offsets are looked up in one go."""

ANY_PARTITION = (0,)
REFUSED_TOPICS = frozenset((ErrorCode.UNKNOWN_TOPIC_ID, ErrorCode.TOPIC_AUTHORIZATION_FAILED))

OffsetsOfGroup = Mapping[str, Mapping[int, object]]
"""By topic and partition, what is committed there now."""

Committed = Callable[[str | None], OffsetsOfGroup]
"""Returns the committed offsets of a group, which change as others commit."""

Ask = Callable[[OffsetFetch], Work[OffsetFetchResponse]]
"""Asks the coordinator."""


def names_many(request: OffsetFetch, committed: Committed) -> bool:
    """Tell whether a request asks for more than is looked up in one go."""
    if len(request.groups) > FEW_GROUPS:
        return True
    for wanted in request.groups:  # no generator: this is asked for each fetch
        topics = wanted.topics
        if topics is None:
            if has_many_offsets(committed(wanted.group_id)):
                return True
        elif len(topics) + sum([len(topic.partition_indexes) for topic in topics]) > MANY_OFFSETS:
            return True
    return False


def has_many_offsets(committed: OffsetsOfGroup) -> bool:
    """Tell whether a group has more offsets than are looked up in one go."""
    return len(committed) > MANY_OFFSETS or sum(map(len, committed.values())) > MANY_OFFSETS


class OffsetFetches:
    """The work of answering an OffsetFetch.

    Args:
        request: what is asked for.
        ask: has a part of it answered.
        committed: what is committed for a group.
        topics: the topics that there are.
    """

    def __init__(self, request: OffsetFetch, ask: Ask, committed: Committed, topics: TopicRegistry) -> None:
        self._request = request
        self._ask = ask
        self._committed = committed
        self._topics = topics

    def work(self) -> Work[OffsetFetchResponse]:
        """Fetch each group once, however often it is named."""
        found: dict[Hashable, FetchedGroup] = {}
        groups = []
        for wanted in self._request.groups:
            key = _key_of(wanted)
            if key not in found:
                found[key] = yield from self._fetch_group(wanted)
            groups.append(found[key])
            yield None
        return OffsetFetchResponse(tuple(groups))

    def _fetch_group(self, wanted: GroupToFetch) -> Work[FetchedGroup]:
        if wanted.topics is None:
            committed = self._committed(wanted.group_id)
            if has_many_offsets(committed):
                return (yield from self._fetch_all(wanted, committed))
        elif len(wanted.topics) + sum([len(topic.partition_indexes) for topic in wanted.topics]) > MANY_OFFSETS:
            return (yield from self._fetch_by_topic(wanted, wanted.topics))
        return (yield from self._fetch(wanted))

    def _fetch(self, wanted: GroupToFetch) -> Work[FetchedGroup]:
        response = yield from self._ask(evolve(self._request, groups=(wanted,)))
        return response.groups[0]

    def _fetch_all(self, wanted: GroupToFetch, committed: OffsetsOfGroup) -> Work[FetchedGroup]:
        """Fetch all offsets of a group, in the order in which they are fetched in one go.

        What is no longer there, and what the asker may not see, is left out as it is then; so are topics without an id
        where topics are asked for by their ids.
        """
        group = yield from self._fetch(evolve(wanted, topics=()))
        topics: dict[str | None, tuple[FetchedTopic, _Gathered]] = {}
        for portion in self._portions(committed):
            found = yield from self._fetch(evolve(wanted, topics=portion))
            if found.error_code is not ErrorCode.NONE:
                return found
            for topic in found.topics:
                present = _present(fetched_offsets(topic.partitions))
                if len(present):
                    topics.setdefault(topic.name, (topic, _Gathered()))[1].add(present)
            yield None
        whole = [topic._replace(partitions=gathered.whole()) for topic, gathered in topics.values()]
        return group._replace(topics=tuple(whole))

    def _portions(self, committed: OffsetsOfGroup) -> Iterator[tuple[TopicToFetch, ...]]:
        """Divide a group's partitions into such as are looked up in one go; what they are is seen at their turn."""
        portion: list[TopicToFetch] = []
        room = MANY_OFFSETS
        for name in tuple(committed):
            indexes = tuple(committed.get(name, ()))
            start = 0
            while start < len(indexes):
                part = indexes[start : start + room]
                if not self._request.uses_topic_ids:
                    portion.append(TopicToFetch(name, part))
                elif (topic := self._topics.get(name)) is not None:
                    portion.append(TopicToFetch(None, part, topic.topic_id))
                start += len(part)
                room -= len(part)
                if not room:
                    yield tuple(portion)
                    portion, room = [], MANY_OFFSETS
        if portion:
            yield tuple(portion)

    def _fetch_by_topic(self, wanted: GroupToFetch, topics: tuple[TopicToFetch, ...]) -> Work[FetchedGroup]:
        """Fetch the offsets of a group that are named one by one; as in one go, refused topics come last."""
        group = yield from self._fetch(evolve(wanted, topics=()))
        read: list[FetchedTopic] = []
        refused: list[FetchedTopic] = []
        for topic in topics:
            gathered = _Gathered()
            named = topic.partition_indexes
            # Without a partition nothing would tell whether the topic is refused: any will do.
            asked = named or ANY_PARTITION
            for indexes in portions(asked, MANY_OFFSETS):
                some = TopicToFetch(topic.name, tuple(indexes), topic.topic_id)
                found = yield from self._fetch(evolve(wanted, topics=(some,)))
                if found.error_code is not ErrorCode.NONE:
                    return found
                for fetched in found.topics:
                    gathered.add(fetched_offsets(fetched.partitions))
                yield None
            partitions = gathered.whole()
            is_refused = partitions.error_codes is not None and partitions.error_codes[0] in REFUSED_TOPICS
            answered = FetchedTopic(topic.name, topic.topic_id, partitions if named else ())
            (refused if is_refused else read).append(answered)
        return group._replace(topics=tuple(read + refused))


class _Gathered:
    """The offsets of a topic, of which some are added at a time: of a million, all at once would take long."""

    def __init__(self) -> None:
        self._columns: tuple[list[int], list[int], list[int], list[str]] = ([], [], [], [])
        self._error_codes: list[ErrorCode] = []
        self._has_metadata = False
        self._has_errors = False

    def add(self, fetched: FetchedOffsets) -> None:
        """Add what was found for some partitions."""
        indexes, offsets, leader_epochs, metadata = self._columns
        indexes += fetched.columns.partition_indexes
        offsets += fetched.columns.offsets
        leader_epochs += fetched.columns.leader_epochs
        metadata += fetched.columns.texts()
        self._error_codes += fetched.error_codes or (ErrorCode.NONE,) * len(fetched)
        self._has_metadata = self._has_metadata or fetched.columns.metadata is not None
        self._has_errors = self._has_errors or fetched.error_codes is not None

    def whole(self) -> FetchedOffsets:
        """Return all that was added."""
        indexes, offsets, leader_epochs, metadata = self._columns
        columns = offset_columns(indexes, offsets, leader_epochs, metadata if self._has_metadata else None)
        return FetchedOffsets(columns, tuple(self._error_codes) if self._has_errors else None)


def _key_of(wanted: GroupToFetch) -> Hashable:
    """Return what those have in common that want all offsets of one group; others are taken as they are."""
    return (wanted.group_id, wanted.member_id, wanted.member_epoch) if wanted.topics is None else id(wanted)


def _present(fetched: FetchedOffsets) -> FetchedOffsets:
    """Leave out partitions that have no offset, or may not be seen."""
    error_codes = fetched.error_codes or (ErrorCode.NONE,) * len(fetched)
    rows: Sequence[FetchedOffset] = [
        row
        for row, error_code in zip(fetched, error_codes, strict=True)
        if error_code not in REFUSED_TOPICS and (error_code is not ErrorCode.NONE or row.committed_offset != NO_OFFSET)
    ]
    return fetched if len(rows) == len(fetched) else fetched_offsets(rows)
