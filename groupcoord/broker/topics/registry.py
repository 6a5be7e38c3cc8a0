"""Topic registry: names, ids, partition counts and configs in one file of the data directory; and internal topics.

Rules and messages are those of Apache Kafka 4.4 (``Topic``, ``ReplicationControlManager``).
"""

from __future__ import annotations

import base64
import contextlib
from collections import Counter, deque
from collections.abc import Callable, Collection, Iterator, Mapping
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple
from uuid import UUID, uuid4

from groupcoord.broker.configs.definitions import NO_CONFIGS, Configs
from groupcoord.broker.json_file import DataFileError, Document, JsonFile, Place
from groupcoord.config import Config
from groupcoord.core.log.records import INTERNAL_TOPICS, OFFSETS_TOPIC, SHARE_STATE_TOPIC, TRANSACTIONS_TOPIC
from groupcoord.core.topics import illegal_name_reason
from groupcoord.errors import ErrorCode, GroupcoordError

METADATA_TOPIC = "__cluster_metadata"
"""Log of Kafka's controllers, which does not exist here; a broker's own has a folder like those of topics."""

MAX_PARTITIONS_PER_REQUEST = 10_000
TOO_MANY_PARTITIONS = "Excessively large number of partitions per request."
TOO_MANY_ADDITIONAL_PARTITIONS = "Excessively large number of additional partitions per request."

FILE_NAME = "topics.json"

DELETED_MAX = 1_000

Replicas = Mapping[int, tuple[int, ...]]
"""Manual replica assignments: node ids by partition, the preferred leader first."""

NO_REPLICAS: Replicas = MappingProxyType({})


class Topic(NamedTuple):
    """Topic with its config overrides and manual replica assignments."""

    name: str
    topic_id: UUID
    partition_count: int
    configs: Configs = NO_CONFIGS
    replicas: Replicas = NO_REPLICAS

    @property
    def is_internal(self) -> bool:
        return self.name in INTERNAL_TOPICS

    def has_partition(self, index: int) -> bool:
        return 0 <= index < self.partition_count


class TopicError(GroupcoordError):
    """Error code and message of a refused change of a topic."""

    def __init__(self, error_code: ErrorCode, message: str | None) -> None:
        super().__init__(message or error_code.name)
        self.error_code = error_code
        self.message = message


class TopicFileError(DataFileError):
    """Unreadable or invalid file of topics."""


def check_topic_name(name: str) -> None:
    """Raise TopicError INVALID_TOPIC_EXCEPTION for a name that Kafka does not allow."""
    reason = illegal_name_reason(name)
    if reason is not None:
        raise TopicError(ErrorCode.INVALID_TOPIC_EXCEPTION, f"Topic name is invalid: {reason}")


def check_replicas(broker_ids: tuple[int, ...], node_ids: Collection[int]) -> None:
    """Raise TopicError INVALID_REPLICA_ASSIGNMENT unless replicas are distinct, existing nodes."""
    reason = None
    times = Counter(broker_ids)
    strangers = sorted(broker_id for broker_id in times if broker_id not in node_ids)
    repeated = [broker_id for broker_id, count in times.items() if count > 1]
    # Kafka's order: empty, unknown, repeated.
    if not broker_ids:
        reason = "an empty replica list."
    elif strangers:
        reason = f"broker {strangers[0]}, but no such broker is registered."
    elif repeated:
        reason = f"the broker {repeated[0]} more than once."
    if reason is not None:
        message = f"The manual partition assignment includes {reason}"
        raise TopicError(ErrorCode.INVALID_REPLICA_ASSIGNMENT, message)


def _collision_key(name: str) -> str:
    # Their metrics would have one name.
    return name.replace(".", "_")


class TopicEdit:
    """Changes of a :class:`TopicRegistry` that take effect together; see :meth:`TopicRegistry.edit`.

    A method that raises :class:`TopicError` changes nothing.
    """

    def __init__(self, topics: dict[str, Topic], new_id: Callable[[], UUID]) -> None:
        self.topics = dict(topics)
        # Kafka checks only topics from before the request.
        self._names_by_collision_key = {_collision_key(name): name for name in topics}
        self._new_id = new_id
        self._partitions_added = 0

    def check_new(self, name: str) -> None:
        check_topic_name(name)
        if name in self.topics:
            raise TopicError(ErrorCode.TOPIC_ALREADY_EXISTS, f"Topic '{name}' already exists.")
        other = self._names_by_collision_key.get(_collision_key(name))
        if other is not None:
            message = f"Topic '{name}' collides with existing topic: {other}"
            raise TopicError(ErrorCode.INVALID_TOPIC_EXCEPTION, message)

    def create(
        self,
        name: str,
        partition_count: int,
        topic_id: UUID | None = None,
        configs: Configs = NO_CONFIGS,
        replicas: Replicas = NO_REPLICAS,
    ) -> Topic:
        self.check_new(name)
        # Kafka checks the count after the name.
        if partition_count <= 0:
            message = "Number of partitions was set to an invalid non-positive value."
            raise TopicError(ErrorCode.INVALID_PARTITIONS, message)
        # KRaft bounds the records of one request.
        self._count_added(partition_count, TOO_MANY_PARTITIONS)
        topic = Topic(name, topic_id or self._new_id(), partition_count, configs, replicas)
        self.topics[name] = topic
        return topic

    def check_extension(self, name: str, partition_count: int) -> Topic:
        """Return a topic that can get this many partitions."""
        topic = self._existing(name, None)
        if partition_count == topic.partition_count:
            raise TopicError(ErrorCode.INVALID_PARTITIONS, f"Topic already has {partition_count} partition(s).")
        if partition_count < topic.partition_count:
            message = (
                f"The topic {name} currently has {topic.partition_count} partition(s); "
                f"{partition_count} would not be an increase."
            )
            raise TopicError(ErrorCode.INVALID_PARTITIONS, message)
        return topic

    def extend(self, name: str, partition_count: int, replicas: Replicas = NO_REPLICAS) -> Topic:
        """Give a topic ``partition_count`` partitions in all, with checked replicas."""
        topic = self.check_extension(name, partition_count)
        added = partition_count - topic.partition_count
        self._count_added(added, TOO_MANY_ADDITIONAL_PARTITIONS)
        topic = topic._replace(partition_count=partition_count, replicas={**topic.replicas, **replicas})
        self.topics[name] = topic
        return topic

    def reassign(self, name: str, replicas: Replicas) -> None:
        topic = self._existing(name, f"Unable to find a topic named {name}.")
        self.topics[name] = topic._replace(replicas={**topic.replicas, **replicas})

    def configure(self, name: str, configs: Configs) -> None:
        topic = self._existing(name, f"The topic '{name}' does not exist.")
        self.topics[name] = topic._replace(configs=configs)

    def delete(self, name: str) -> Topic:
        topic = self._existing(name, "This server does not host this topic-partition.")
        del self.topics[name]
        return topic

    def _existing(self, name: str, message: str | None) -> Topic:
        topic = self.topics.get(name)
        if topic is None:
            raise TopicError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, message)
        return topic

    def _count_added(self, partition_count: int, message: str) -> None:
        if self._partitions_added + partition_count > MAX_PARTITIONS_PER_REQUEST:
            raise TopicError(ErrorCode.POLICY_VIOLATION, message)
        self._partitions_added += partition_count


class TopicRegistry(Document):
    """Topics of a server, and its cluster id. It is the coordinator's ``TopicResolver``.

    Args:
        place: the location of ``topics.json``; None for memory.
        new_id: returns the ids of topics and of the cluster; random by default.

    Raises:
        TopicFileError: the file has invalid content.

    Attributes:
        directory: the directory of the file, or None.
        deleted: names of recently deleted topics.
    """

    def __init__(self, place: Place | None = None, *, new_id: Callable[[], UUID] = uuid4) -> None:
        self._new_id = new_id
        self.directory = place if isinstance(place, Path) else None
        self._topics: dict[str, Topic] = {}
        self.deleted: deque[str] = deque(maxlen=DELETED_MAX)
        self._by_id: dict[UUID, Topic] = {}
        self._cluster_id: UUID | None = None
        super().__init__(JsonFile(place, FILE_NAME, "a list of topics", TopicFileError))

    @property
    def cluster_id(self) -> str:
        """Cluster id in Kafka's form: 22 characters of URL-safe base64."""
        if self._cluster_id is None:
            self._cluster_id = self._new_id()
        return base64.urlsafe_b64encode(self._cluster_id.bytes).decode().rstrip("=")

    def __len__(self) -> int:
        return len(self._topics)

    def __iter__(self) -> Iterator[Topic]:
        return iter(self._topics.values())

    def get(self, name: str) -> Topic | None:
        """Return a topic by name, or None."""
        return self._topics.get(name)

    def get_by_id(self, topic_id: UUID) -> Topic | None:
        """Return a topic by id, or None."""
        return self._by_id.get(topic_id)

    def partition_count(self, name: str) -> int | None:
        """Return the number of partitions of a topic; None if it does not exist."""
        topic = self._topics.get(name)
        return None if topic is None else topic.partition_count

    def topic_id(self, name: str) -> UUID | None:
        """Return the id of a topic; None if it does not exist."""
        topic = self._topics.get(name)
        return None if topic is None else topic.topic_id

    def topic_name(self, topic_id: UUID) -> str | None:
        """Return the name of a topic; None if it does not exist."""
        topic = self._by_id.get(topic_id)
        return None if topic is None else topic.name

    @contextlib.contextmanager
    def edit(self, *, dry_run: bool = False) -> Iterator[TopicEdit]:
        """Change topics: all changes of the ``with`` block are written at its end, or none if it raises.

        Args:
            dry_run: check the changes only.

        >>> registry = TopicRegistry()
        >>> with registry.edit() as edit:
        ...     _ = edit.create("orders", 12)
        >>> registry.partition_count("orders")
        12

        Raises:
            OSError: the file can't be written; nothing has changed.
        """
        edit = TopicEdit(self._topics, self._new_id)
        yield edit
        if not dry_run and edit.topics != self._topics:
            self.file.write(partial(self._content, edit.topics))
            self.deleted.extend(name for name in self._topics if name not in edit.topics)
            self._set(edit.topics)

    def ensure(self, name: str, partition_count: int) -> None:
        """Create a topic, or extend it to this many partitions.

        Raises:
            TopicError: it has more partitions (INVALID_PARTITIONS), or can't be created.
            OSError: the file can't be written.
        """
        with self.edit() as edit:
            topic = self.get(name)
            if topic is None:
                edit.create(name, partition_count)
            elif topic.partition_count != partition_count:
                edit.extend(name, partition_count)

    def _load(self, content: dict[str, Any]) -> None:
        self._cluster_id, topics = _parsed(content)
        self._set(topics)

    def _set(self, topics: dict[str, Topic]) -> None:
        self._topics = topics
        self._by_id = {topic.topic_id: topic for topic in topics.values()}

    def _content(self, topics: dict[str, Topic]) -> dict[str, object]:
        return {
            "cluster_id": self.cluster_id,
            "topics": {topic.name: _entry(topic) for topic in topics.values()},
        }


def _entry(topic: Topic) -> dict[str, object]:
    entry: dict[str, object] = {"id": str(topic.topic_id), "partitions": topic.partition_count}
    if topic.configs:
        entry["configs"] = dict(topic.configs)
    if topic.replicas:
        entry["replicas"] = {str(index): list(node_ids) for index, node_ids in topic.replicas.items()}
    return entry


def _parsed(content: dict[str, Any]) -> tuple[UUID, dict[str, Topic]]:
    cluster_id = UUID(bytes=base64.urlsafe_b64decode(content["cluster_id"] + "=="))
    try:
        topics = {name: _topic(name, entry) for name, entry in content["topics"].items()}
    except TopicError as error:
        raise TopicFileError(str(error)) from error
    # Logs are found by id.
    if len({topic.topic_id for topic in topics.values()}) != len(topics):
        raise TopicFileError("two topics have the same id")
    return cluster_id, topics


def _topic(name: str, entry: dict[str, Any]) -> Topic:
    check_topic_name(name)
    configs = {str(key): str(value) for key, value in entry.get("configs", {}).items()}
    partition_count = entry["partitions"]
    # True is an int in Python.
    if not isinstance(partition_count, int) or isinstance(partition_count, bool) or partition_count < 1:
        raise ValueError(f"topic {name} has {partition_count!r} partitions")
    replicas = {int(index): tuple(map(int, node_ids)) for index, node_ids in entry.get("replicas", {}).items()}
    if not all(replicas.values()):
        raise ValueError(f"topic {name} has a partition without replicas")
    return Topic(name, UUID(str(entry["id"])), partition_count, configs, replicas)


# The hash of a key decides on its partition, so their number must not change.
KEPT_TOPICS = {
    OFFSETS_TOPIC: "the offsets",
    TRANSACTIONS_TOPIC: "the transactions",
    SHARE_STATE_TOPIC: "the states of share groups",
}

CREATION_MS = 50
"""Time until a deleted internal topic of a streams group is created again; a real broker takes 20 to 60 ms."""


def ensure_internal_topic(edit: TopicEdit, name: str, config: Config, topic_id: UUID | None = None) -> Topic:
    """Return an internal topic, created if missing."""
    topic = edit.topics.get(name)
    if topic is None:
        counts = {
            OFFSETS_TOPIC: config.offsets_topic_num_partitions,
            TRANSACTIONS_TOPIC: config.transaction_state_log_num_partitions,
            SHARE_STATE_TOPIC: config.share_coordinator_state_topic_num_partitions,
        }
        topic = edit.create(name, counts[name], topic_id, usual_configs(name, config))
    return topic


def usual_configs(name: str, config: Config) -> Configs:
    usual: dict[str, Configs] = {
        OFFSETS_TOPIC: {
            "cleanup.policy": "compact",
            "compression.type": "producer",
            "segment.bytes": str(config.offsets_topic_segment_bytes),
        },
        TRANSACTIONS_TOPIC: {
            "cleanup.policy": "compact",
            "compression.type": "uncompressed",
            "min.insync.replicas": "1",
            "segment.bytes": str(config.transaction_state_log_segment_bytes),
            "unclean.leader.election.enable": "false",
        },
        SHARE_STATE_TOPIC: {
            "cleanup.policy": "delete",
            "compression.type": "producer",
            "retention.ms": "-1",
            "segment.bytes": str(config.share_coordinator_state_topic_segment_bytes),
        },
    }
    return usual.get(name, NO_CONFIGS)
