"""What stands between a request and the group: which topics exist, and what their ids are.

The coordinator itself knows no topics. A host that does passes a :class:`TopicResolver`; then commits to unknown
partitions are refused before the group sees them, and requests by topic id are understood. Kafka does this in its
request layer.
"""

from __future__ import annotations

from typing import NamedTuple, Protocol
from uuid import UUID

from groupcoord.core.commits import no_offset
from groupcoord.core.messages import (
    CommittedPartition,
    CommittedTopic,
    FetchedGroup,
    FetchedTopic,
    GroupToFetch,
    OffsetCommit,
    OffsetCommitResponse,
    TopicToCommit,
    TopicToFetch,
)
from groupcoord.core.records import ZERO_UUID
from groupcoord.errors import ErrorCode


class TopicResolver(Protocol):
    """The topics of a cluster, as the coordinator needs them."""

    def partition_count(self, name: str) -> int | None:
        """Return how many partitions a topic has; None if there is no such topic."""

    def topic_id(self, name: str) -> UUID | None:
        """Return a topic's id; None if there is no such topic."""

    def topic_name(self, topic_id: UUID) -> str | None:
        """Return the name of the topic with this id; None if there is no such topic."""


class AnyTopic:
    """Every topic exists, with any number of partitions and without an id: for hosts that keep no list."""

    def partition_count(self, name: str) -> int | None:
        """Return a number above every partition index."""
        return 2**31

    def topic_id(self, name: str) -> UUID | None:
        """Return the zero id, which stands for none."""
        return ZERO_UUID

    def topic_name(self, topic_id: UUID) -> str | None:
        """Return None: no id is known."""
        return None


class ResolvedCommit(NamedTuple):
    """A commit after the check of its topics.

    Attributes:
        request: what the group gets to see, topics named; None if nothing is left of it.
        refused: the topics that have refused partitions, with those alone.
    """

    request: OffsetCommit | None
    refused: tuple[CommittedTopic, ...]


def resolve_commit(request: OffsetCommit, resolver: TopicResolver) -> ResolvedCommit:
    """Split a commit into what the group may see and what is refused for its topic or partition."""
    accepted, refused = [], []
    for topic in request.topics:
        name = topic.name if topic.name is not None else resolver.topic_name(topic.topic_id)
        count = None if name is None else resolver.partition_count(name)
        if name is None or count is None:
            error_code = ErrorCode.UNKNOWN_TOPIC_ID if name is None else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            errors = tuple(CommittedPartition(offset.partition_index, error_code) for offset in topic.partitions)
            refused.append(CommittedTopic(topic.name, topic.topic_id, errors))
            continue
        good = topic.partitions
        if not all(0 <= offset.partition_index < count for offset in good):
            good = tuple(offset for offset in topic.partitions if 0 <= offset.partition_index < count)
            errors = tuple(
                CommittedPartition(offset.partition_index, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
                for offset in topic.partitions
                if not 0 <= offset.partition_index < count
            )
            refused.append(CommittedTopic(name, topic.topic_id, errors))
        if good:
            topic_id = resolver.topic_id(name) if topic.topic_id == ZERO_UUID else topic.topic_id
            accepted.append(TopicToCommit(name, good, topic_id or ZERO_UUID))
    if not accepted:
        return ResolvedCommit(None, tuple(refused))
    inner = OffsetCommit(
        request.group_id,
        tuple(accepted),
        request.generation_id,
        request.member_id,
        request.group_instance_id,
        request.retention_time_ms,
    )
    return ResolvedCommit(inner, tuple(refused))


def merge_commit(refused: tuple[CommittedTopic, ...], response: OffsetCommitResponse) -> OffsetCommitResponse:
    """Join a group's answer to what was refused before it, as Kafka orders them.

    Refused topics come first. As soon as there is one, each topic is answered once, its refused partitions first.
    """
    if not refused:
        return response
    merged: dict[tuple[str | None, UUID], list[CommittedPartition]] = {}
    for topic in refused:
        merged.setdefault((topic.name, topic.topic_id), []).extend(topic.partitions)
    ids = {name: key for key in merged if (name := key[0]) is not None}
    for topic in response.topics:
        key = ids.get(topic.name or "", (topic.name, topic.topic_id))
        merged.setdefault(key, []).extend(topic.partitions)
    return OffsetCommitResponse(
        tuple(CommittedTopic(name, topic_id, tuple(partitions)) for (name, topic_id), partitions in merged.items())
    )


class ResolvedFetch(NamedTuple):
    """One group of a fetch after its topic ids were looked up: what to fetch, and the topics whose ids are unknown."""

    wanted: GroupToFetch
    refused: tuple[FetchedTopic, ...]


def resolve_fetch(wanted: GroupToFetch, resolver: TopicResolver) -> ResolvedFetch:
    """Name the topics that a fetch gives by id. Names are not checked: offsets may outlive their topic for a while."""
    if wanted.topics is None or all(topic.name is not None for topic in wanted.topics):
        return ResolvedFetch(wanted, ())
    known, refused = [], []
    for topic in wanted.topics:
        name = topic.name if topic.name is not None else resolver.topic_name(topic.topic_id)
        if name is None:
            errors = tuple(no_offset(index, ErrorCode.UNKNOWN_TOPIC_ID) for index in topic.partition_indexes)
            refused.append(FetchedTopic(None, topic.topic_id, errors))
        else:
            known.append(TopicToFetch(name, topic.partition_indexes, topic.topic_id))
    named = GroupToFetch(wanted.group_id, tuple(known), wanted.member_id, wanted.member_epoch)
    return ResolvedFetch(named, tuple(refused))


def identify_topics(fetched: FetchedGroup, resolver: TopicResolver) -> FetchedGroup:
    """Give the topics of a fetch of everything their ids; those that have none any more are left out."""
    topics = []
    for topic in fetched.topics:
        topic_id = resolver.topic_id(topic.name or "")
        if topic_id is not None and topic_id != ZERO_UUID:
            topics.append(topic._replace(topic_id=topic_id))
    return fetched._replace(topics=tuple(topics))
