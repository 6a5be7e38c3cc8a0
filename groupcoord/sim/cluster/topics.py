"""Topics of a simulated cluster: metadata for clients, and the logs of topics that share groups read (KIP-932)."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any, Protocol
from uuid import NAMESPACE_URL, UUID, uuid5

from attrs import evolve

from groupcoord.broker.records.topic_data import NotLeaderError, TopicData
from groupcoord.broker.topics.registry import Topic, TopicRegistry
from groupcoord.config.group_settings import EARLIEST, ShareGroupSettings
from groupcoord.core.share_partition.in_flight import FINISHED
from groupcoord.core.share_state.records import (
    DeliveryState,
    SharePartitionKey,
    ShareSnapshot,
    ShareStates,
    ShareUpdate,
    StateBatch,
)
from groupcoord.log_store import LogRecord
from groupcoord.member import Cluster as TopicMetadata
from groupcoord.member import TopicPartition
from groupcoord.records.batches import encode_batch
from groupcoord.sim.cluster.log import ClusterLog, StoreFault
from groupcoord.sim.cluster.options import ClusterOptions
from groupcoord.sim.kernel import Scheduler, ignore, stable_number

if TYPE_CHECKING:
    from groupcoord.storage.log.memory_log import PartitionLog


class Topics:
    """Topics, which are created, grow and are deleted (a :class:`~groupcoord.TopicResolver`).

    A topic that is created again has another id.

    Regular expressions of consumer groups (KIP-848) are matched by Python's ``re``, where brokers use RE2: use
    expressions with the same meaning in both. Every client may describe every topic.
    """

    def __init__(self, partition_counts: Mapping[str, int]) -> None:
        self._partition_counts = dict(partition_counts)
        self._ids = {name: _id_of(name) for name in partition_counts}
        self._names = {topic_id: name for name, topic_id in self._ids.items()}
        self._remembered_names = dict(self._names)
        self._last_counts = dict(partition_counts)
        self._deletions: Counter[str] = Counter()
        self.metadata = TopicMetadata.of(self._partition_counts, self._ids)

    def names(self) -> list[str]:
        """Return the names, sorted."""
        return sorted(self._partition_counts)

    def partitions_of(self, topics: tuple[str, ...]) -> tuple[TopicPartition, ...]:
        """Return the partitions of existing topics."""
        counts = self._partition_counts
        return tuple(TopicPartition(name, index) for name in topics for index in range(counts.get(name, 0)))

    def remembered_names(self) -> list[str]:
        """Return the names of present and former topics, sorted."""
        return sorted(self._last_counts)

    def remembered_partitions_of(self, topics: tuple[str, ...]) -> tuple[TopicPartition, ...]:
        """Return all partitions of present and former topics, since clients may not know of a deletion yet."""
        counts = self._last_counts
        return tuple(TopicPartition(name, index) for name in topics for index in range(counts.get(name, 0)))

    def remembered_name(self, topic_id: UUID) -> str | None:
        """Return the name of the present or former topic with this id, or None."""
        return self._remembered_names.get(topic_id)

    def was_deleted(self, topic: str) -> bool:
        """Return whether a topic of this name was ever deleted."""
        return topic in self._deletions

    def set_partition_count(self, topic: str, partition_count: int) -> tuple[TopicPartition, ...]:
        """Add partitions to a topic or create it; return the new ones."""
        old_count = self._partition_counts.get(topic, 0)
        self._partition_counts[topic] = self._last_counts[topic] = partition_count
        self._ids[topic] = topic_id = _id_of(f"{topic}#{self._deletions[topic]}" if topic in self._deletions else topic)
        self._names[topic_id] = self._remembered_names[topic_id] = topic
        self.metadata = TopicMetadata.of(self._partition_counts, self._ids)
        return tuple(TopicPartition(topic, index) for index in range(old_count, partition_count))

    def delete(self, topic: str) -> UUID:
        """Delete a topic; return its former id."""
        del self._partition_counts[topic]
        self._deletions[topic] += 1
        topic_id = self._ids.pop(topic)
        del self._names[topic_id]
        self.metadata = TopicMetadata.of(self._partition_counts, self._ids)
        return topic_id

    # ------------------------------------------------------------ what a coordinator asks

    def partition_count(self, name: str) -> int | None:
        """Return the number of partitions, or None."""
        return self._partition_counts.get(name)

    def topic_id(self, name: str) -> UUID | None:
        """Return the id of a topic, or None."""
        return self._ids.get(name)

    def topic_name(self, topic_id: UUID) -> str | None:
        """Return the name of the topic with an id, or None."""
        return self._names.get(topic_id)

    def problem(self, regex: str) -> str | None:
        """Return the error of a regular expression, or None."""
        try:
            re.compile(regex)
        except re.error as error:
            return str(error)
        return None

    def matching_topics(self, regex: str, principal: Any = None) -> list[str]:
        """Return the names of matching topics."""
        return [name for name in self.names() if re.fullmatch(regex, name)]


def _id_of(topic: str) -> UUID:
    """Return an id that is the same in each run, because assignors sort by ids."""
    return uuid5(NAMESPACE_URL, topic)


class _PartitionsOfTopic(Protocol):
    @property
    def topic_id(self) -> UUID: ...

    @property
    def partitions(self) -> Iterable[int]: ...


def indices_of(topics: Iterable[_PartitionsOfTopic]) -> set[tuple[UUID, int]]:
    return {(topic.topic_id, index) for topic in topics for index in topic.partitions}


GIVEN_UP = (DeliveryState.ARCHIVING, DeliveryState.ARCHIVED)

STATES_PARTITION = 0
"""Log partition whose leader is also the share coordinator, with a single partition of states."""

EpochOf = Callable[[int], int | None]
"""Function that returns the epoch in which a node leads a log partition, or None if it does not, as far as it knows."""


class SharingNode(Protocol):
    """Share server of a node, as seen by other nodes."""

    def take(self, question: Any) -> None: ...

    def topic_deleted(self, topic: Topic) -> None: ...

    def start_offset(self, key: SharePartitionKey) -> int: ...


class SharedTopics:
    """Logs of topics, and the log of the states of share-partitions, for all nodes of a cluster.

    The leader of a partition is the leader of a certain log partition of the groups, so leaders move and crash with
    these. Logs of topics lose nothing; that of the states has the groups' faults except broken reads.

    Attributes:
        given_up: by share-partition, archived records that were not accepted.
        worked_off: by share-partition, the end offset when all records were accepted or archived.
        written_ms: by topic id and partition, the times of its records, by offset.
    """

    def __init__(
        self,
        scheduler: Scheduler,
        options: ClusterOptions,
        topics: Topics,
        log: ClusterLog,
        *,
        seed: int,
        faults: Iterable[StoreFault],
    ) -> None:
        self._scheduler = scheduler
        self._topics = topics
        self._log = log
        self.registry = TopicRegistry()
        self.data = TopicData(options.config, scheduler, self.registry)
        for name in topics.names():
            self.set_partition_count(name)
        faults = [evolve(fault, broken_read_percent=0) for fault in faults]
        self.state_log = ClusterLog(
            scheduler, 1, seed=seed, flush_ms=options.flush_ms, faults=faults, leaders=log.leaders, is_compacted=False
        )
        self.servers: dict[int, SharingNode] = {}
        self.settings = ShareGroupSettings.of(options.config, {"auto_offset_reset": EARLIEST})
        self.written_ms: dict[tuple[UUID, int], list[int]] = {}
        self.on_written: Callable[[SharePartitionKey, tuple[StateBatch, ...]], None] = ignore
        self.on_emptied: Callable[[SharePartitionKey], None] = ignore
        self.given_up: dict[SharePartitionKey, set[int]] = {}
        self.worked_off: dict[SharePartitionKey, int] = {}
        self._states = ShareStates()

    # ------------------------------------------------------------ topics

    def set_partition_count(self, name: str) -> None:
        count, topic_id = self._topics.partition_count(name), self._topics.topic_id(name)
        assert count is not None
        with self.registry.edit() as edit:
            if self.registry.get(name) is None:
                edit.create(name, count, topic_id)
            else:
                edit.extend(name, count)

    def delete_topic(self, name: str) -> None:
        topic = self.topic(name)
        with self.registry.edit() as edit:
            edit.delete(name)
        self.data.delete(topic)
        for server in self.servers.values():
            server.topic_deleted(topic)

    def topic(self, name: str) -> Topic:
        topic = self.registry.get(name)
        assert topic is not None
        return topic

    def log_partition_of(self, topic: Topic, index: int) -> int:
        return (stable_number(topic.name) + index) % len(self._log.leaders)

    def leader_of(self, topic: Topic, index: int) -> int:
        """Return the elected leader of a partition, notified or not, or -1."""
        return self._log.leaders[self.log_partition_of(topic, index)].node_id

    # ------------------------------------------------------------ records

    def log(self, topic: Topic, index: int) -> PartitionLog:
        log = self.data.log(topic, index)
        assert log is not None
        return log

    def produce(self, topic: Topic, index: int, count: int) -> None:
        log, now_ms = self.log(topic, index), self._scheduler.time_ms
        batch = encode_batch(
            log.end_offset, [(None, b"job", now_ms)] * count, leader_epoch=log.leader_epoch, base_sequence=-1
        )
        self.written_ms.setdefault((topic.topic_id, index), []).extend([now_ms] * count)
        log.append_encoded(batch, count, now_ms, self.data.settings_of(topic))

    # ------------------------------------------------------------ states

    def follow(self) -> ShareStates:
        """Apply the states written since the last call; return all states."""
        fresh: list[LogRecord] = self.state_log.fresh[0]
        for entry in fresh:
            record: Any = entry.record
            self._states.apply(record, entry.offset)
            if isinstance(record, ShareSnapshot) and _is_blank(record):
                # A request repeated after a lost response initializes the share-partition again, as in Kafka.
                self.worked_off.pop(record.key, None)
                self.on_emptied(record.key)
            if isinstance(record, ShareSnapshot | ShareUpdate):
                self.on_written(record.key, record.state_batches)
                for first, last, state, _ in record.state_batches:
                    if state in GIVEN_UP:
                        self.given_up.setdefault(record.key, set()).update(range(first, last + 1))
        fresh.clear()
        return self._states

    def end_offset(self, key: SharePartitionKey) -> int:
        topic = self.registry.get_by_id(key.topic_id)
        return 0 if topic is None else self.log(topic, key.partition).end_offset

    def unfinished(self, key: SharePartitionKey, end_offset: int) -> int | None:
        """Return the first offset before ``end_offset`` that was neither accepted nor archived, or None."""
        if self.registry.get_by_id(key.topic_id) is None:
            return None
        state = self.follow().states.get(key)
        offset = 0 if state is None else max(state.snapshot.start_offset, 0)
        for batch in () if state is None else state.snapshot.state_batches:
            if batch.first_offset > offset or batch.delivery_state not in FINISHED:
                break
            offset = max(offset, batch.last_offset + 1)
        return offset if offset < end_offset else None

    def start_offset(self, key: SharePartitionKey) -> int:
        topic = self.registry.get_by_id(key.topic_id)
        server = None if topic is None else self.servers.get(self.leader_of(topic, key.partition))
        return -1 if server is None else server.start_offset(key)

    def keys_of(self, group_id: str, names: Iterable[str]) -> list[SharePartitionKey]:
        topics = [topic for topic in map(self.registry.get, names) if topic is not None]
        return [
            SharePartitionKey(group_id, topic.topic_id, index)
            for topic in topics
            for index in range(topic.partition_count)
        ]


def _is_blank(snapshot: ShareSnapshot) -> bool:
    return not snapshot.state_batches and snapshot.start_offset <= 0 and snapshot.delivery_complete_count <= 0


class LedData(TopicData):
    """Topic data of one node: only the partitions that it leads and has been notified of."""

    def __init__(self, shared: SharedTopics, epoch_of: EpochOf) -> None:
        whole = shared.data
        super().__init__(whole.config, whole.clock, whole.topics, all_logs=whole.all_logs)
        self._shared = shared
        self._epoch_of = epoch_of

    def log(self, topic: Topic, partition_index: int) -> PartitionLog | None:
        if self._epoch_of(self._shared.log_partition_of(topic, partition_index)) is None:
            raise NotLeaderError
        return super().log(topic, partition_index)

    def log_with_epoch(self, topic: Topic, partition_index: int) -> tuple[PartitionLog | None, int]:
        return self.log(topic, partition_index), self.leader_epoch(topic, partition_index)

    def leader_epoch(self, topic: Topic, partition_index: int) -> int:
        return self._epoch_of(self._shared.log_partition_of(topic, partition_index)) or 0
