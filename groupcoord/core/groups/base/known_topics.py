"""Topics of the cluster as groups see them, and the metadata hash by which a group notices that its topics changed.

The hash is in the group's epoch record; another hash begins another epoch. Sources: KIP-1101, ``computeTopicHash`` and
``computeGroupHash`` in ``Utils`` of Kafka's group coordinator.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from struct import Struct
from uuid import UUID

from attrs import define, field

from groupcoord.core.groups.base.topics import Topic
from groupcoord.core.javacompat.hashing import string_sort_key
from groupcoord.core.javacompat.xxh3 import xxh3_64
from groupcoord.core.topics import TopicResolver

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
