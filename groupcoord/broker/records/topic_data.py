"""Logs of topics, those that a node leads, and current leaders in responses.

With ``records.enable=false`` topics have no logs. Groups may still commit offsets such as 42, where Kafka would answer
OFFSET_OUT_OF_RANGE and consumers would reset to 0. So a Fetch at any offset from 0 on finds the end of the log there.
Produce is refused but announced, since librdkafka does not fetch from brokers without it. Internal topics can be read.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any, TypeVar
from uuid import UUID

from attrs import evolve

from groupcoord.broker.cluster.leadership import Leadership
from groupcoord.broker.configs.definitions import BROKER_DEFINITIONS, DEDUPE_BUFFER, TOPIC_DEFINITIONS, Layer
from groupcoord.broker.log_lines import RateLimitedLogger
from groupcoord.broker.topics.registry import Topic, TopicRegistry
from groupcoord.clock import Clock
from groupcoord.config import Config
from groupcoord.config.settings import INT64_MAX
from groupcoord.core.log.records import OFFSETS_TOPIC, TransactionMarker
from groupcoord.core.messages import Node
from groupcoord.errors import ErrorCode
from groupcoord.log_store import IdentifiedStore, LogStore, SharedStore
from groupcoord.storage.errors import FailedLogError, TopicLogError
from groupcoord.storage.log.settings import LEADER_EPOCH, NO_LEADER_EPOCH, TopicLogSettings
from groupcoord.storage.topic_logs import COMPACTION_BUDGET, CopiedLogs, ServingStore, TopicLogs, UnservedLogs
from groupcoord.wire.broker_messages import CurrentLeader, FetchResponse, MetadataBroker, ProduceResponse
from groupcoord.wire.share_messages import ShareAcknowledgeResponse, ShareFetchResponse

if TYPE_CHECKING:
    from groupcoord.storage.data_directory import DataDirectory
    from groupcoord.storage.log.memory_log import PartitionLog


logger = logging.getLogger("groupcoord.host")

RETAINED_AT_ONCE = 100
READ_UNCOMMITTED, READ_COMMITTED = 0, 1


class TopicData:
    """Logs of a server's topics.

    Attributes:
        logs: the logs of clients' topics; None if these have none.
        all_logs: these and the logs of internal topics.
    """

    def __init__(
        self,
        config: Config,
        clock: Clock,
        topics: TopicRegistry,
        directory: DataDirectory | None = None,
        *,
        all_logs: TopicLogs | None = None,
    ) -> None:
        self.config = config
        self.clock = clock
        self.topics = topics
        self._lines = RateLimitedLogger(logger)
        if all_logs is None:
            all_logs = TopicLogs(config.records_memory_max_bytes, directory, now_ms=clock.now_ms, report=self._report)
            # Recovery after an unclean stop; otherwise opened on first use.
            all_logs.open_found(topic for topic in topics if self._is_logged(topic))
        self.all_logs = all_logs
        self.logs = all_logs if config.records_enable else None
        self._offsets: ServingStore | None = None
        self._retention_due_ms = clock.now_ms() + config.log_retention_check_interval_ms
        self._to_retain: list[tuple[UUID, int]] = []
        self._settings: dict[UUID, tuple[Topic, TopicLogSettings]] = {}
        self._layers: Sequence[Layer] = ()

    def _report(self, kind: str, line: str) -> None:
        self._lines.error(kind, self.clock.now_ms() / 1000, "%s", line)

    def _is_logged(self, topic: Topic) -> bool:
        return topic.name != OFFSETS_TOPIC if topic.is_internal else self.config.records_enable

    def find(self, name: str | None, topic_id: UUID) -> Topic | None:
        return self.topics.get_by_id(topic_id) if name is None else self.topics.get(name)

    def log(self, topic: Topic, partition_index: int) -> PartitionLog | None:
        """Return the log of an existing partition for clients; None if topics have no logs.

        Raises:
            FailedLogError: its files can't be used.
        """
        offsets = self.whole._offsets
        # A second log must not open the store's files.
        if offsets is not None and topic.name == OFFSETS_TOPIC:
            return offsets.log(partition_index)
        return self.all_logs.log(topic, partition_index) if self._is_logged(topic) else None

    def log_with_epoch(self, topic: Topic, partition_index: int) -> tuple[PartitionLog | None, int]:
        log = self.log(topic, partition_index)
        return log, LEADER_EPOCH if log is None else log.leader_epoch

    def existing_logs(self, topic: Topic) -> list[int]:
        """Return the partitions of a topic that have a log or its files."""
        return [index for _, index in self.all_logs.existing([topic])]

    def serve_offsets(self, store: LogStore) -> Callable[[int], None] | None:
        """Serve ``__consumer_offsets`` to clients; return a callback for appends if its records are copied."""
        whole = self.whole
        if whole._offsets is None:
            if isinstance(store, ServingStore):
                whole._offsets = store
            # Reading would compete with a take-over of the partition.
            elif isinstance(store, SharedStore):
                whole._offsets = UnservedLogs()
            else:
                whole._offsets = CopiedLogs(store, self.config.records_memory_max_bytes)
        return whole._offsets.appended if isinstance(whole._offsets, CopiedLogs) else None

    def offsets_topic_id(self, topic: Topic | None, store: LogStore) -> UUID | None:
        """Return the id for ``__consumer_offsets``; None for a new one. The log store adopts the registry's."""
        if topic is None:
            return store.topic_id if isinstance(store, IdentifiedStore) else None
        # Clients may have cached the registry's id.
        if isinstance(store, ServingStore):
            store.adopt_topic_id(topic.topic_id)
        return topic.topic_id

    @property
    def whole(self) -> TopicData:
        """Data of all nodes."""
        return self

    def leader_epoch(self, topic: Topic, partition_index: int) -> int:
        return self.latest_epoch(topic, partition_index) or LEADER_EPOCH

    def latest_epoch(self, topic: Topic, partition_index: int) -> int | None:
        """Return the newest leader epoch in a partition's log; None if its files can't be used."""
        offsets = self.whole._offsets
        if offsets is not None and topic.name == OFFSETS_TOPIC:
            return offsets.leader_epoch(partition_index)
        return self.all_logs.leader_epoch(topic, partition_index) if self._is_logged(topic) else LEADER_EPOCH

    def settings_of(self, topic: Topic) -> TopicLogSettings:
        known = self._settings.get(topic.topic_id)
        if known is None or known[0] is not topic:
            known = self._settings[topic.topic_id] = topic, self._read_settings(topic)
        return known[1]

    def _read_settings(self, topic: Topic) -> TopicLogSettings:
        def value(name: str) -> Any:
            return TOPIC_DEFINITIONS[name].kind.parse(name, self._text(topic, name))

        policies = value("cleanup.policy")
        return TopicLogSettings(
            max_message_bytes=value("max.message.bytes"),
            uses_append_time=value("message.timestamp.type") == "LogAppendTime",
            is_compacted="compact" in policies,
            timestamp_before_max_ms=value("message.timestamp.before.max.ms"),
            timestamp_after_max_ms=value("message.timestamp.after.max.ms"),
            segment_bytes=value("segment.bytes"),
            segment_ms=value("segment.ms"),
            retention_ms=value("retention.ms"),
            retention_bytes=value("retention.bytes"),
            is_deleted="delete" in policies,
            flush_messages=value("flush.messages"),
            flush_ms=value("flush.ms"),
            min_cleanable_ratio=value("min.cleanable.dirty.ratio"),
            delete_retention_ms=value("delete.retention.ms"),
            min_compaction_lag_ms=value("min.compaction.lag.ms"),
            max_compaction_lag_ms=value("max.compaction.lag.ms"),
            dedupe_buffer_bytes=int(BROKER_DEFINITIONS[DEDUPE_BUFFER].inherited(self.config, self._layers)[0]),
        )

    def _text(self, topic: Topic, name: str) -> str:
        own = topic.configs.get(name)
        return TOPIC_DEFINITIONS[name].inherited(self.config, self._layers)[0] if own is None else own

    def use_broker_configs(self, layers: Sequence[Layer]) -> None:
        # The settings of all topics may inherit from them.
        self._layers = layers
        self._settings.clear()

    def append_marker(self, name: str, partition_index: int, marker: TransactionMarker) -> ErrorCode:
        topic = self.topics.get(name)
        # A deleted topic must not hold up the end of a transaction.
        if topic is None or not self._is_logged(topic) or not topic.has_partition(partition_index):
            return ErrorCode.NONE
        try:
            log = self.all_logs.log(topic, partition_index)
        except FailedLogError as error:
            return error.error_code
        return log.append_marker(marker, self.clock.now_ms(), self.settings_of(topic))

    def delete(self, topic: Topic) -> None:
        self._settings.pop(topic.topic_id, None)
        if self._is_logged(topic):
            self.all_logs.delete(topic)

    # ------------------------------------------------------------ time

    def next_deadline_ms(self) -> int | None:
        """Return the time of the next retention check, or None without logs. Only :meth:`tick` brings it nearer."""
        if self.logs is None:
            return None
        # The other logs follow in further ticks.
        return self._retention_due_ms if not self._to_retain else self.clock.now_ms()

    def tick(self, now_ms: int) -> None:
        if self.logs is None or (not self._to_retain and now_ms < self._retention_due_ms):
            return
        if not self._to_retain:
            self._retention_due_ms = now_ms + self.config.log_retention_check_interval_ms
            try:
                self._to_retain = [
                    (topic.topic_id, index)
                    for topic, index in self.logs.existing(topic for topic in self.topics if not topic.is_internal)
                ]
            except OSError as error:
                self._report("the data directory can't be read", str(error))
        # Requests are served in between.
        due, self._to_retain = self._to_retain[:RETAINED_AT_ONCE], self._to_retain[RETAINED_AT_ONCE:]
        for topic_id, index in due:
            topic = self.topics.get_by_id(topic_id)
            if topic is not None and not topic.is_internal:
                with suppress(TopicLogError):  # retried
                    self.logs.log(topic, index).retain(self.settings_of(topic), now_ms)

    def compact_some(self, now_ms: int, budget: int = COMPACTION_BUDGET) -> bool:
        """Compact a portion, for a millisecond or two; return whether more is left."""
        return self.all_logs.compact_some(self._compacted_topics, now_ms, budget)

    def _compacted_topics(self) -> list[tuple[Topic, TopicLogSettings]]:
        found = [(topic, self.settings_of(topic)) for topic in self.topics if self._is_logged(topic)]
        return [(topic, settings) for topic, settings in found if settings.is_compacted]

    def maintain(self) -> None:
        self.all_logs.check_some()
        for topic in self.topics:
            settings = self.settings_of(topic)
            if settings.flush_ms != INT64_MAX:
                self.all_logs.flush_due(topic, settings)
        self._lines.report(self.clock.now_ms() / 1000)

    def close(self) -> None:
        # Without records.enable, topics' files were not opened, so recovery may be due.
        self.all_logs.close(is_whole=self.config.records_enable)
        self._lines.report(self.clock.now_ms() / 1000, ends=True)


def check_leader_epoch(epoch: int, current: int) -> ErrorCode:
    """Compare a leader epoch with the current one: UNKNOWN_LEADER_EPOCH, FENCED_LEADER_EPOCH or NONE."""
    # KIP-320: this node has not heard of its successor yet.
    if epoch > current:
        return ErrorCode.UNKNOWN_LEADER_EPOCH
    # KIP-320: the client's metadata is outdated.
    if epoch < current and epoch != NO_LEADER_EPOCH:
        return ErrorCode.FENCED_LEADER_EPOCH
    return ErrorCode.NONE


class NotLeaderError(FailedLogError):
    """Another node leads the partition. ``leader_epoch`` is None if this node is no replica."""

    def __init__(self, leader_epoch: int | None = None) -> None:
        super().__init__("this node does not lead the partition")
        self.error_code = ErrorCode.NOT_LEADER_OR_FOLLOWER
        self.leader_epoch = leader_epoch


def log_error(error: FailedLogError, current_leader_epoch: int) -> ErrorCode:
    """Return the error of an unusable log; a replica checks the client's leader epoch first."""
    if isinstance(error, NotLeaderError) and error.leader_epoch is not None:
        return check_leader_epoch(max(current_leader_epoch, NO_LEADER_EPOCH), error.leader_epoch) or error.error_code
    return error.error_code


class NodeData(TopicData):
    """Logs of the partitions that a node leads."""

    def __init__(self, whole: TopicData, leadership: Leadership, node_id: int) -> None:
        super().__init__(whole.config, whole.clock, whole.topics, all_logs=whole.all_logs)
        self._whole = whole
        self._leadership = leadership
        self._node_id = node_id

    @property
    def whole(self) -> TopicData:
        return self._whole

    def log(self, topic: Topic, partition_index: int) -> PartitionLog | None:
        leader = self._leadership.leader(topic, partition_index)
        if leader.node_id != self._node_id:
            is_replica = self._node_id in self._leadership.replicas(topic, partition_index)
            # Only replicas know the epoch, and compare it first.
            raise NotLeaderError(leader.epoch if is_replica else None)
        log = super().log(topic, partition_index)
        if log is not None and log.leader_epoch != leader.epoch:  # its files were unusable for a while
            log.begin_epoch(leader.epoch)
            self._leadership.raise_epoch(topic, partition_index, log.leader_epoch)
        return log

    def leader_epoch(self, topic: Topic, partition_index: int) -> int:
        return self._leadership.leader(topic, partition_index).epoch

    def append_marker(self, name: str, partition_index: int, marker: TransactionMarker) -> ErrorCode:
        topic = self.topics.get(name)
        # Kafka's ReplicaManager appends to local leaders only.
        if topic is not None and not self._leadership.leads(self._node_id, topic, partition_index):
            return ErrorCode.NOT_LEADER_OR_FOLLOWER
        return super().append_marker(name, partition_index, marker)


MISDIRECTED = (ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.FENCED_LEADER_EPOCH)


LedResponse = TypeVar("LedResponse", FetchResponse, ProduceResponse, ShareFetchResponse, ShareAcknowledgeResponse)


class CurrentLeaders:
    """Adds the current leader to each partition that fails with NOT_LEADER_OR_FOLLOWER or FENCED_LEADER_EPOCH.

    KIP-951 and KIP-932; source: ``KafkaApis`` of Apache Kafka 4.4.
    """

    def __init__(self, leadership: Leadership, data: TopicData) -> None:
        self._leadership = leadership
        self._data = data

    def add(self, response: LedResponse, addresses: Mapping[int, Node] | None) -> LedResponse:
        """Return a response with current leaders, and with their addresses for the client's listener if given."""
        field = "topics" if isinstance(response, FetchResponse | ProduceResponse) else "responses"
        topics, endpoints = self._with_leaders(getattr(response, field), addresses)
        changes: dict[str, Any] = {field: topics, "node_endpoints": endpoints}
        return response if topics is None else evolve(response, **changes)

    def _with_leaders(
        self, topics: Iterable[Any], addresses: Mapping[int, Node] | None
    ) -> tuple[tuple[Any, ...] | None, tuple[MetadataBroker, ...]]:
        leader_ids: set[int] = set()
        changed = []
        for topic in topics:
            # Topics without such errors are not copied.
            if any(partition.error_code in MISDIRECTED for partition in topic.partitions):
                partitions = tuple(
                    partition._replace(current_leader=self._leader(topic, partition.partition_index, leader_ids))
                    if partition.error_code in MISDIRECTED
                    else partition
                    for partition in topic.partitions
                )
                changed.append(topic._replace(partitions=partitions))
            else:
                changed.append(topic)
        if not leader_ids:
            return None, ()
        brokers = (MetadataBroker(*node) for node in self._leadership.brokers(addresses) if node.node_id in leader_ids)
        return tuple(changed), tuple(brokers)

    def _leader(self, topic: Any, index: int, leader_ids: set[int]) -> CurrentLeader:
        known = self._data.find(getattr(topic, "name", None), topic.topic_id)
        if known is None:
            return CurrentLeader()
        leader = self._leadership.leader(known, index)
        leader_ids.add(leader.node_id)
        return CurrentLeader(*leader)
