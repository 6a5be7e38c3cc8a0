"""Topics of a cluster as hosts describe them, their legal names, and the metadata hash of a group's topics (KIP-1101).

A group's epoch record holds the metadata hash of its topics; another hash begins another epoch. Sources: ``Topic`` of
Kafka's clients, ``computeTopicHash`` and ``computeGroupHash`` in ``Utils`` of its group coordinator.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping
from struct import Struct
from typing import Any, Protocol
from uuid import UUID

from attrs import field

from groupcoord.core.fast_construct import define, frozen
from groupcoord.core.javacompat import copied_set, string_hash, string_sort_key, xxh3_64
from groupcoord.core.log.records import OFFSETS_TOPIC, ZERO_UUID

TRANSACTIONS_TOPIC = "__transaction_state"
SHARE_STATE_TOPIC = "__share_group_state"
INTERNAL_TOPICS = frozenset({OFFSETS_TOPIC, TRANSACTIONS_TOPIC, SHARE_STATE_TOPIC})
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
        """Return the topics whose whole name an expression matches and that ``principal`` may describe."""


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
