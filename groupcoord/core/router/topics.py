"""Topics in requests: existence and ids, by a :class:`TopicResolver`, and permissions."""

from __future__ import annotations

from functools import lru_cache
from uuid import UUID

from groupcoord.core.log.records import ZERO_UUID
from groupcoord.core.messages import (
    FetchedGroup,
    FetchedTopic,
    GroupToFetch,
    PartitionResult,
    TopicResult,
    TopicToCommit,
    TopicToDelete,
    TopicToFetch,
)
from groupcoord.core.messages.commits import PartitionResults, refused_partitions, without_offsets
from groupcoord.core.router.authorization import Operation, Permissions
from groupcoord.core.topics import TopicResolver
from groupcoord.errors import NO_ERROR, ErrorCode

_CACHED_EXTREMES_MAX = 64


def _extremes(indexes: tuple[int, ...]) -> tuple[int, int]:
    """Return the lowest and highest partition; without any, values that are valid for every topic."""
    return min(indexes, default=0), max(indexes, default=-1)


_cached_extremes = lru_cache(maxsize=1_024)(_extremes)


def resolve_commit(
    topics: tuple[TopicToCommit, ...], resolver: TopicResolver, permissions: Permissions | None = None
) -> tuple[tuple[TopicToCommit, ...], tuple[TopicResult, ...]]:
    """Return the topics of a commit that the group handles, with names, and the errors of the others."""
    accepted, refused = [], []
    for topic in topics:
        # An unknown id wins over a missing permission, and that over an unknown partition.
        name, columns = topic.name, topic.columns
        if name is None:
            # The id of a deleted topic is unknown, even if its name exists again.
            name = resolver.topic_name(topic.topic_id)
        indexes, topic_id = columns[0], topic.topic_id
        error_code, count = NO_ERROR, None
        if name is None:
            error_code = ErrorCode.UNKNOWN_TOPIC_ID
        else:
            if permissions is not None:
                error_code = permissions.topic_error(name, Operation.READ)
            count = resolver.partition_count(name)
        if name is None or count is None or error_code is not NO_ERROR:
            if error_code is NO_ERROR:
                error_code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            refused.append(TopicResult(topic.name, topic_id, refused_partitions(indexes, error_code)))
            continue
        # Consumers commit the same partitions again and again.
        lowest, highest = (_cached_extremes if len(indexes) <= _CACHED_EXTREMES_MAX else _extremes)(indexes)
        if lowest < 0 or highest >= count:
            refused.append(TopicResult(name, topic_id, _unknown_partitions(indexes, count)))
            columns = columns.select([place for place, index in enumerate(indexes) if 0 <= index < count])
        # A known topic without partitions is missing in Kafka's response.
        if columns[0]:
            if topic_id is ZERO_UUID or topic_id == ZERO_UUID:
                # The record has the id, so that a later topic of this name does not inherit the offset.
                topic_id = resolver.topic_id(name) or ZERO_UUID
            accepted.append(TopicToCommit(name, columns, topic_id))
    return tuple(accepted), tuple(refused)


def resolve_delete(
    topics: tuple[TopicToDelete, ...], resolver: TopicResolver, permissions: Permissions | None = None
) -> tuple[tuple[TopicToDelete, ...], tuple[TopicResult, ...]]:
    accepted, refused = [], []
    for topic in topics:
        # Kafka deletes offsets with READ on the topic (KIP-496).
        if permissions is not None and not permissions.on_topic(topic.name, Operation.READ):
            denied = ErrorCode.TOPIC_AUTHORIZATION_FAILED
            refused.append(TopicResult(topic.name, ZERO_UUID, refused_partitions(topic.partition_indexes, denied)))
            continue
        count = resolver.partition_count(topic.name) or 0
        good = tuple(index for index in topic.partition_indexes if 0 <= index < count)
        errors = _unknown_partitions(topic.partition_indexes, count)
        # An unknown topic has an entry even without partitions.
        if errors or not count:
            refused.append(TopicResult(topic.name, ZERO_UUID, errors))
        if good:
            accepted.append(TopicToDelete(topic.name, good))
    return tuple(accepted), tuple(refused)


def _unknown_partitions(indexes: tuple[int, ...], count: int) -> PartitionResults:
    unknown = tuple(index for index in indexes if not 0 <= index < count)
    return refused_partitions(unknown, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)


def merge_results(refused: tuple[TopicResult, ...], results: tuple[TopicResult, ...]) -> tuple[TopicResult, ...]:
    if not refused:
        return results
    # With any error each topic has one entry, errors first; topics with errors lead.
    merged: dict[tuple[str | None, UUID], list[PartitionResult]] = {}
    for topic in refused:
        merged.setdefault((topic.name, topic.topic_id), []).extend(topic.partitions)
    # Errors have the topic id of the request, accepted topics may have one resolved from their name.
    ids = {name: key for key in merged if (name := key[0]) is not None}
    for topic in results:
        key = ids.get(topic.name or "", (topic.name, topic.topic_id))
        merged.setdefault(key, []).extend(topic.partitions)
    return tuple(TopicResult(name, topic_id, tuple(partitions)) for (name, topic_id), partitions in merged.items())


def resolve_fetch(
    wanted: GroupToFetch, resolver: TopicResolver, permissions: Permissions | None = None
) -> tuple[GroupToFetch, tuple[FetchedTopic, ...]]:
    """Return a fetch with topic names, and the errors of topics with an unknown id or no permission to DESCRIBE."""
    topics = wanted.topics
    # Usually nothing has to be resolved. Names are not checked: offsets may outlive their topic.
    if topics is None or (permissions is None and None not in [topic.name for topic in topics]):
        return wanted, ()
    known, refused = [], []
    for topic in topics:
        name = topic.name if topic.name is not None else resolver.topic_name(topic.topic_id)
        error_code = ErrorCode.UNKNOWN_TOPIC_ID if name is None else ErrorCode.NONE
        if name is not None and permissions is not None:
            error_code = permissions.topic_error(name, Operation.DESCRIBE)
        if error_code is not ErrorCode.NONE:
            errors = without_offsets(topic.partition_indexes, error_code)
            refused.append(FetchedTopic(topic.name, topic.topic_id, errors))
        else:
            known.append(TopicToFetch(name, topic.partition_indexes, topic.topic_id))
    named = GroupToFetch(wanted.group_id, tuple(known), wanted.member_id, wanted.member_epoch)
    return named, tuple(refused)


def hide_topics(fetched: FetchedGroup, permissions: Permissions) -> FetchedGroup:
    shown = tuple(topic for topic in fetched.topics if permissions.on_topic(topic.name or "", Operation.DESCRIBE))
    return fetched._replace(topics=shown)


def identify_topics(fetched: FetchedGroup, resolver: TopicResolver) -> FetchedGroup:
    topics = []
    for topic in fetched.topics:
        topic_id = resolver.topic_id(topic.name or "")
        # A deleted topic has no id to be listed by.
        if topic_id is not None and topic_id != ZERO_UUID:
            topics.append(topic._replace(topic_id=topic_id))
    return fetched._replace(topics=tuple(topics))
