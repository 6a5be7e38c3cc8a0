"""Topics of the cluster, subscriptions, and the metadata hash by which a group detects changed topics (KIP-1101).

A group's epoch record holds the hash; another hash begins another epoch. Sources: ``computeTopicHash`` and
``computeGroupHash`` in ``Utils`` of Kafka's group coordinator.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from struct import Struct
from typing import TYPE_CHECKING, NamedTuple
from uuid import UUID

from attrs import define, field, frozen

from groupcoord.core.javacompat.hashing import HashTable, buckets_of_copy, string_hash, string_sort_key
from groupcoord.core.javacompat.xxh3 import xxh3_64

if TYPE_CHECKING:
    from groupcoord.core.topics import TopicResolver


@frozen
class Topic:
    """One topic of the cluster.

    Attributes:
        name: its name.
        topic_id: its id; a topic that is made anew under the same name has another.
        partition_count: how many partitions it has; they are numbered from 0.
        racks: for each partition the racks of its replicas, as far as they have one; empty if none has.
    """

    NEVER_CHANGES = True

    name: str
    topic_id: UUID
    partition_count: int
    racks: tuple[tuple[str, ...], ...] = ()


def subscribed_names(
    names: Collection[str], regular_expression: str | None, resolved: Mapping[str, Collection[str]]
) -> list[str]:
    """Return the names of the topics that a member subscribes to, be there such topics or not, each once.

    The order is that in which Kafka walks its sets of them.

    Args:
        names: those that the member gives.
        regular_expression: the one that it gives; None or empty if it gives none.
        resolved: the names that regular expressions stand for. One that is not resolved yet stands for none.
    """
    named = _names_in_order(names)
    matched = _names_in_order(resolved.get(regular_expression, ()) if regular_expression else ())
    # Kafka walks the larger set first, and that of the expression if both are as large.
    first, second = (named, matched) if len(named) > len(matched) else (matched, named)
    return list(dict.fromkeys((*first, *second)))


def _names_in_order(names: Collection[str]) -> list[str]:
    if len(names) < 2:
        return list(names)
    in_record_order = sorted(names, key=string_sort_key)
    return HashTable(string_hash, in_record_order, max(16, buckets_of_copy(len(in_record_order)))).in_order()


class TopicPartitions(NamedTuple):
    """Partitions of one topic: in a target assignment, a heartbeat or its answer.

    Attributes:
        topic_id: the topic.
        partitions: their numbers, as the assignor gave them.
    """

    topic_id: UUID
    partitions: tuple[int, ...]


NO_TOPICS_HASH = 0

_INT = Struct("<i")
_LONG = Struct("<q")
_VERSION = b"\x00"


def topic_hash(topic: Topic) -> int:
    """Return the hash of a topic: of its id, its name, its partitions and their racks; a signed number of 64 bits.

    It changes only when the topic does, and costs time in proportion to the partitions: worth keeping.
    """
    parts = [_VERSION, topic.topic_id.bytes[7::-1], topic.topic_id.bytes[:7:-1], _string(topic.name)]
    parts.append(_INT.pack(topic.partition_count))
    for partition in range(topic.partition_count):
        parts.append(_INT.pack(partition))
        for rack in sorted(topic.racks[partition] if topic.racks else (), key=string_sort_key):
            string = _string(rack)
            parts += (string[-4:], string)
    return _signed(xxh3_64(b"".join(parts)))


def metadata_hash(topic_hashes: Mapping[str, int]) -> int:
    """Return the hash of a group's topics, a signed number of 64 bits; 0 if there are none.

    Args:
        topic_hashes: by name, those of the topics that somebody in the group subscribes to and that exist.
    """
    if not topic_hashes:
        return NO_TOPICS_HASH
    names = sorted(topic_hashes, key=string_sort_key) if len(topic_hashes) > 1 else topic_hashes
    return _signed(xxh3_64(b"".join(map(_LONG.pack, map(topic_hashes.__getitem__, names)))))


def _string(text: str) -> bytes:
    encoded = text.encode("utf-16-le", "surrogatepass")
    return encoded + _INT.pack(len(encoded) // 2)


def _signed(value: int) -> int:
    return value - 2**64 if value >= 2**63 else value


@define(eq=False)
class KnownTopics:
    """The topics of the cluster, with what is worth keeping of each. All kinds of groups share it.

    Attributes:
        resolver: knows them.
        version: grows when topics are created.
    """

    NOT_STATE = ("_hashes", "_known")
    NOT_COUNTED = ("version",)

    resolver: TopicResolver
    version: int = 0
    _known: dict[str, Topic] = field(factory=dict)  # as they were when somebody last looked
    _hashes: dict[str, tuple[Topic, int]] = field(factory=dict)

    def topic_id(self, name: str) -> UUID | None:
        """Return a topic's id; None if there is no such topic."""
        return self.resolver.topic_id(name)

    def topic_name(self, topic_id: UUID) -> str | None:
        """Return the name of the topic with this id; None if there is no such topic."""
        return self.resolver.topic_name(topic_id)

    def existing(self, names: Iterable[str]) -> dict[str, Topic]:
        """Return those of these topics that exist and have an id, by name."""
        found = {}
        for name in names:
            topic_id = self.resolver.topic_id(name)
            if topic_id is None or not topic_id.int:
                continue
            partition_count = self.resolver.partition_count(name)
            if partition_count is not None:
                topic = self._known.get(name)
                if topic is None or topic.topic_id != topic_id or topic.partition_count != partition_count:
                    topic = self._known[name] = Topic(name, topic_id, partition_count)
                found[name] = topic
        return found

    def metadata_hash(self, names: Iterable[str]) -> int:
        """Return what stands for these topics as they are now."""
        hashes = {}
        for name, topic in self.existing(names).items():
            known = self._hashes.get(name)
            if known is None or known[0] is not topic:
                known = self._hashes[name] = (topic, topic_hash(topic))
            hashes[name] = known[1]
        return metadata_hash(hashes)
