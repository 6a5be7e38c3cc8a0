"""Environment of the rules of groups: settings, topics with their metadata hash (KIP-1101), assignors, refusals.

A group's epoch record holds the metadata hash of its topics; another hash begins another epoch. Sources:
``computeTopicHash`` and ``computeGroupHash`` in ``Utils`` of Kafka's group coordinator.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from struct import Struct
from typing import Generic, TypeVar
from uuid import UUID

from attrs import define, field

from groupcoord.config import Config
from groupcoord.config.group_settings import GroupSettings
from groupcoord.core.groups.base.assignor import PartitionAssignorError
from groupcoord.core.groups.base.topics import Topic
from groupcoord.core.javacompat import string_sort_key, xxh3_64
from groupcoord.core.topics import TopicResolver
from groupcoord.errors import ErrorCode

NO_TOPICS_HASH = 0

_INT = Struct("<i")
_LONG = Struct("<q")
_VERSION = b"\x00"


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

    def topic_id(self, name: str) -> UUID | None:
        return self.resolver.topic_id(name)

    def topic_name(self, topic_id: UUID) -> str | None:
        return self.resolver.topic_name(topic_id)

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
        """Return the current hash of these topics."""
        hashes = {}
        for name, topic in self.existing(names).items():
            known = self._hashes.get(name)
            # Hashing takes time for each partition, and topics rarely change.
            if known is None or known[0] is not topic:
                known = self._hashes[name] = (topic, topic_hash(topic))
            hashes[name] = known[1]
        return metadata_hash(hashes)


class RefusedError(Exception):
    """Refusal of a request, none of which has any effect."""

    def __init__(self, error_code: ErrorCode, message: str | None = None) -> None:
        super().__init__(message or error_code.name)
        self.error_code = error_code
        self.message = message


SettingsT = TypeVar("SettingsT", bound=GroupSettings)
AssignorT = TypeVar("AssignorT")


@define(eq=False)
class GroupEnvironment(Generic[SettingsT, AssignorT]):
    """Dependencies of all groups of one type of one coordinator; the first assignor is the default."""

    NOT_STATE = ("assignors", "default_assignor")

    config: Config
    topics: KnownTopics
    assignors: Mapping[str, AssignorT]
    settings_of: Callable[[str], SettingsT]
    default_assignor: str = field(init=False)

    def __attrs_post_init__(self) -> None:
        self.default_assignor = next(iter(self.assignors))

    def assignor(self, name: str) -> AssignorT:
        """Return an assignor by the name that members select.

        Raises:
            PartitionAssignorError: the assignor of a loaded group is no longer configured.
        """
        assignor = self.assignors.get(name)
        if assignor is None:
            raise PartitionAssignorError(f"there is no assignor {name!r}")
        return assignor
