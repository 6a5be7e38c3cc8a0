"""What tells a group that its topics have changed: one number for all that an assignor may look at.

It is in the group's record of its epoch. Another hash is another epoch. Source: KIP-1101, and ``computeTopicHash`` and
``computeGroupHash`` in ``Utils`` of Kafka's group coordinator.
"""

from __future__ import annotations

from collections.abc import Mapping
from struct import Struct

from groupcoord.core.groups.base.topics import Topic
from groupcoord.core.javacompat.hashing import string_sort_key
from groupcoord.core.javacompat.xxh3 import xxh3_64

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
            parts += (_INT.pack(_length(rack)), _string(rack))
    return _signed(xxh3_64(b"".join(parts)))


def metadata_hash(topic_hashes: Mapping[str, int]) -> int:
    """Return the hash of a group's topics, a signed number of 64 bits; 0 if there are none.

    Args:
        topic_hashes: by name, those of the topics that somebody in the group subscribes to and that exist.
    """
    if not topic_hashes:
        return NO_TOPICS_HASH
    names = sorted(topic_hashes, key=string_sort_key)
    return _signed(xxh3_64(b"".join(_LONG.pack(topic_hashes[name]) for name in names)))


def _length(text: str) -> int:
    return len(text.encode("utf-16-le", "surrogatepass")) // 2


def _string(text: str) -> bytes:
    return text.encode("utf-16-le", "surrogatepass") + _INT.pack(_length(text))


def _signed(value: int) -> int:
    return value - 2**64 if value >= 2**63 else value
