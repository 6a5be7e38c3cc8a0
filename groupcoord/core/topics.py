"""Topics of a cluster as hosts describe them, topics in requests, and the metadata hash of a group's topics (KIP-1101).

A group's epoch record holds the metadata hash of its topics; another hash begins another epoch. Sources: ``Topic`` of
Kafka's clients, ``computeTopicHash`` and ``computeGroupHash`` in ``Utils`` of its group coordinator.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping
from functools import lru_cache
from struct import Struct
from typing import Any, Protocol
from uuid import UUID

from attrs import field

from groupcoord.core.fast_construct import define, frozen
from groupcoord.core.javacompat import copied_set, string_hash, string_sort_key, xxh3_64
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
from groupcoord.errors import NO_ERROR, ErrorCode

MAX_NAME_LENGTH = 249
_LEGAL_NAME = re.compile(r"[a-zA-Z0-9._-]+", re.ASCII)


def illegal_name_reason(name: str) -> str | None:
    """Return why a topic name is illegal by Kafka's rules (``Topic``), or None.

    1 to 249 of ASCII letters, digits, dot, underscore and dash are allowed; not ``.`` or ``..``.
    """
    if not name:
        return "the empty string is not allowed"
    if name in (".", ".."):
        return f"'{name}' is not allowed"
    if len(name) > MAX_NAME_LENGTH:
        return f"the length of '{name}' is longer than the max allowed length {MAX_NAME_LENGTH}"
    if not _LEGAL_NAME.fullmatch(name):
        return f"'{name}' contains one or more characters other than ASCII alphanumerics, '.', '_' and '-'"
    return None


class TopicResolver(Protocol):
    """The topics of a cluster, as the coordinator needs them."""

    def partition_count(self, name: str) -> int | None:
        """Return a topic's partition count, or None."""

    def topic_id(self, name: str) -> UUID | None:
        """Return a topic's id, or None."""

    def topic_name(self, topic_id: UUID) -> str | None:
        """Return the name of a topic id, or None."""


class AnyTopic:
    """Every topic exists, with any number of partitions and without an id: for hosts that keep no list."""

    def partition_count(self, name: str) -> int | None:
        """Return a number above every partition index."""
        return 2**31

    def topic_id(self, name: str) -> UUID | None:
        """Return the zero id."""
        return ZERO_UUID

    def topic_name(self, topic_id: UUID) -> str | None:
        """Return None: no id is known."""
        return None


class RegexResolver(Protocol):
    """Resolver of regular expressions that members subscribe by.

    Expressions come from clients, in RE2 syntax: matching has to take linear time in the names.
    """

    def problem(self, regex: str) -> str | None:
        """Return why an expression can't be used; None if it can."""

    def matching_topics(self, regex: str, principal: Any) -> Iterable[str]:
        """Return the topics that an expression matches by their whole name and ``principal`` may describe."""


class NoRegexes:
    """No expression can be used: for hosts that match none."""

    def problem(self, regex: str) -> str | None:
        """Return that regular expressions are not supported."""
        return "this coordinator matches no regular expressions"

    def matching_topics(self, regex: str, principal: Any) -> Iterable[str]:
        """Return no topics."""
        return ()


NO_TOPICS_HASH = 0

_INT = Struct("<i")
_LONG = Struct("<q")
_VERSION = b"\x00"


@frozen
class Topic:
    """One topic of the cluster.

    Attributes:
        name: its name.
        topic_id: its id, which changes when the topic is created again.
        partition_count: number of partitions, numbered from 0.
        racks: for each partition the known racks of its replicas; empty without racks.
    """

    NEVER_CHANGES = True

    name: str
    topic_id: UUID
    partition_count: int
    racks: tuple[tuple[str, ...], ...] = ()


def subscribed_names(
    names: Collection[str], regular_expression: str | None, resolved: Mapping[str, Collection[str]]
) -> list[str]:
    """Return the distinct topic names of a subscription, in the order in which Kafka walks its sets."""
    named = _names_in_order(names)
    matched = _names_in_order(resolved.get(regular_expression, ()) if regular_expression else ())
    # Kafka walks the larger set first, and that of the expression if both are as large.
    first, second = (named, matched) if len(named) > len(matched) else (matched, named)
    return list(dict.fromkeys((*first, *second)))


def _names_in_order(names: Collection[str]) -> list[str]:
    # Nothing to order; most members name one topic.
    if len(names) < 2:
        return list(names)
    return copied_set(string_hash, sorted(names, key=string_sort_key)).in_order()


def topic_hash(topic: Topic) -> int:
    """Return a signed 64-bit hash of a topic's id, name, partitions and racks."""
    # The id as two little-endian halves, high half first, as Java writes them.
    parts = [_VERSION, topic.topic_id.bytes[7::-1], topic.topic_id.bytes[:7:-1], _string(topic.name)]
    parts.append(_INT.pack(topic.partition_count))
    for partition in range(topic.partition_count):
        parts.append(_INT.pack(partition))
        # Sorted as in Kafka, so the order of replicas does not change the hash.
        for rack in sorted(topic.racks[partition] if topic.racks else (), key=string_sort_key):
            string = _string(rack)
            parts += (string[-4:], string)
    value = xxh3_64(b"".join(parts))
    return value - (value >> 63 << 64)


def metadata_hash(topic_hashes: Mapping[str, int]) -> int:
    """Return a signed 64-bit hash of a group's topics; 0 without any."""
    if not topic_hashes:
        return NO_TOPICS_HASH
    # In the order of Java strings.
    names = sorted(topic_hashes, key=string_sort_key) if len(topic_hashes) > 1 else topic_hashes
    value = xxh3_64(b"".join(map(_LONG.pack, map(topic_hashes.__getitem__, names))))
    return value - (value >> 63 << 64)


def _string(text: str) -> bytes:
    # Java hashes UTF-16 code units, and writes their number after them.
    encoded = text.encode("utf-16-le", "surrogatepass")
    return encoded + _INT.pack(len(encoded) // 2)


@define(eq=False)
class KnownTopics:
    """Topics of the cluster with cached hashes, shared by all groups.

    Attributes:
        resolver: the host's topics.
        version: increases when topics are created.
    """

    NOT_STATE = ("_hashes", "_known")
    NOT_COUNTED = ("version",)

    resolver: TopicResolver
    version: int = 0
    _known: dict[str, Topic] = field(factory=dict)  # as of the last look
    _hashes: dict[str, tuple[Topic, int]] = field(factory=dict)

    def existing(self, names: Iterable[str]) -> dict[str, Topic]:
        found = {}
        for name in names:
            topic_id = self.resolver.topic_id(name)
            # Without an id a topic can't be assigned: assignments are by topic id (KIP-848).
            if topic_id is None or not topic_id.int:
                continue
            partition_count = self.resolver.partition_count(name)
            if partition_count is not None:
                topic = self._known.get(name)
                # The same object as long as the topic is the same, so that its hash stays cached.
                if topic is None or topic.topic_id != topic_id or topic.partition_count != partition_count:
                    topic = self._known[name] = Topic(name, topic_id, partition_count)
                found[name] = topic
        return found

    def metadata_hash(self, names: Iterable[str]) -> int:
        hashes = {}
        for name, topic in self.existing(names).items():
            known = self._hashes.get(name)
            # Hashing takes time for each partition, and topics rarely change.
            if known is None or known[0] is not topic:
                known = self._hashes[name] = (topic, topic_hash(topic))
            hashes[name] = known[1]
        return metadata_hash(hashes)


# ---------------------------------------------------------------- topics in requests

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
