"""Logs of topics: of a server, of one of its nodes, and the current leaders in responses about them.

With ``records.enable=false`` topics have no logs, and every partition is empty: it starts and ends at offset 0. Groups
may nevertheless commit offsets such as 42, where Kafka would answer OFFSET_OUT_OF_RANGE and consumers would reset to 0.
So a Fetch at any offset from 0 on is answered as if the log ended there: no records, high watermark = fetch offset,
lag 0. ListOffsets returns 0 for start and end. Produce is refused but announced: librdkafka does not fetch from brokers
without it. Internal topics can be read all the same.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any
from uuid import UUID

from attrs import evolve

from groupcoord.broker.cluster.leadership import Leadership
from groupcoord.broker.configs.brokers import BROKER_DEFINITIONS, DEDUPE_BUFFER
from groupcoord.broker.configs.definitions import TOPIC_DEFINITIONS, Layer
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
"""So many logs are looked at, for what need not be kept, without a pause."""

READ_UNCOMMITTED, READ_COMMITTED = 0, 1


class TopicData:
    """The logs of a host's topics.

    Args:
        config: what holds for topics that have no settings of their own.
        clock: where the time comes from.
        topics: the topics that exist.
        directory: where their logs are; None keeps them in memory.
        all_logs: the logs themselves, where somebody else has opened them.

    Attributes:
        logs: what they hold; None if they hold nothing.
        all_logs: this, and what the server keeps in topics of its own.
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
        """Tell whether the logs of a topic are among these; those of others are the log store's, or there are none."""
        return topic.name != OFFSETS_TOPIC if topic.is_internal else self.config.records_enable

    def find(self, name: str | None, topic_id: UUID) -> Topic | None:
        """Return the topic that a request names, by name or (None) by id."""
        return self.topics.get_by_id(topic_id) if name is None else self.topics.get(name)

    def log(self, topic: Topic, partition_index: int) -> PartitionLog | None:
        """Return the log of a partition that exists, for clients; None if topics hold nothing.

        Raises:
            FailedLogError: its files can't be used.
        """
        offsets = self.whole._offsets
        if offsets is not None and topic.name == OFFSETS_TOPIC:
            return offsets.log(partition_index)
        return self.all_logs.log(topic, partition_index) if self._is_logged(topic) else None

    def log_with_epoch(self, topic: Topic, partition_index: int) -> tuple[PartitionLog | None, int]:
        """Return what :meth:`log` returns, and the epoch of the partition's leader.

        Raises:
            FailedLogError: its files can't be used.
        """
        log = self.log(topic, partition_index)
        return log, LEADER_EPOCH if log is None else log.leader_epoch

    def existing_logs(self, topic: Topic) -> list[int]:
        """Return the partitions of a topic that have a log, or files of one.

        Raises:
            OSError: the directory can't be read.
        """
        return [index for _, index in self.all_logs.existing([topic])]

    def serve_offsets(self, store: LogStore) -> Callable[[int], None] | None:
        """Let clients read ``__consumer_offsets`` from the store that writes it, also where topics hold nothing.

        Returns:
            What wants to be told to which log partition the store has appended, if it doesn't serve its logs itself.
        """
        whole = self.whole
        if whole._offsets is None:
            if isinstance(store, ServingStore):
                whole._offsets = store
            elif isinstance(store, SharedStore):
                whole._offsets = UnservedLogs()
            else:
                whole._offsets = CopiedLogs(store, self.config.records_memory_max_bytes)
        return whole._offsets.appended if isinstance(whole._offsets, CopiedLogs) else None

    def offsets_topic_id(self, topic: Topic | None, store: LogStore) -> UUID | None:
        """See to it that one place gives the id of ``__consumer_offsets``: the registry, once the topic is there.

        Returns:
            The id that a topic that is made now gets; None: a new one.
        """
        if topic is None:
            return store.topic_id if isinstance(store, IdentifiedStore) else None
        if isinstance(store, ServingStore):
            store.adopt_topic_id(topic.topic_id)
        return topic.topic_id

    @property
    def whole(self) -> TopicData:
        """What topics hold, whichever node leads their partitions."""
        return self

    def leader_epoch(self, topic: Topic, partition_index: int) -> int:
        """Return the epoch of the leader of a partition that exists."""
        return self.latest_epoch(topic, partition_index) or LEADER_EPOCH

    def latest_epoch(self, topic: Topic, partition_index: int) -> int | None:
        """Return the epoch of the newest leader that a partition's log knows; None if its files can't be used."""
        offsets = self.whole._offsets
        if offsets is not None and topic.name == OFFSETS_TOPIC:
            return offsets.leader_epoch(partition_index)
        return self.all_logs.leader_epoch(topic, partition_index) if self._is_logged(topic) else LEADER_EPOCH

    def settings_of(self, topic: Topic) -> TopicLogSettings:
        """Return what holds for the logs of a topic."""
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
        """Let settings of the broker hold that were changed since it was started."""
        self._layers = layers
        self._settings.clear()

    def append_marker(self, name: str, partition_index: int, marker: TransactionMarker) -> ErrorCode:
        """Append the end of a transaction to the log of a partition; to one that is gone nothing, which is fine.

        Returns:
            What :meth:`PartitionLog.append_marker` returns; KAFKA_STORAGE_ERROR if the log's files can't be used.
        """
        topic = self.topics.get(name)
        if topic is None or not self._is_logged(topic) or not topic.has_partition(partition_index):
            return ErrorCode.NONE
        try:
            log = self.all_logs.log(topic, partition_index)
        except FailedLogError as error:
            return error.error_code
        return log.append_marker(marker, self.clock.now_ms(), self.settings_of(topic))

    def delete(self, topic: Topic) -> None:
        """Forget what a topic held."""
        self._settings.pop(topic.topic_id, None)
        if self._is_logged(topic):
            self.all_logs.delete(topic)

    # ------------------------------------------------------------ time

    def next_deadline_ms(self) -> int | None:
        """Return when :meth:`tick` is wanted; None if topics hold nothing. Only that call brings it nearer."""
        if self.logs is None:
            return None
        return self._retention_due_ms if not self._to_retain else self.clock.now_ms()

    def tick(self, now_ms: int) -> None:
        """Delete what need not be kept any more, of some logs now and of the others at once again."""
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
        due, self._to_retain = self._to_retain[:RETAINED_AT_ONCE], self._to_retain[RETAINED_AT_ONCE:]
        for topic_id, index in due:
            topic = self.topics.get_by_id(topic_id)
            if topic is not None and not topic.is_internal:
                with suppress(TopicLogError):  # that was said, and is tried again
                    self.logs.log(topic, index).retain(self.settings_of(topic), now_ms)

    def compact_some(self, now_ms: int, budget: int = COMPACTION_BUDGET) -> bool:
        """Compact what topics hold a little further: this takes a millisecond or two.

        Returns:
            True if it should soon be called again; False if all is clean enough for now.
        """
        return self.all_logs.compact_some(self._compacted_topics, now_ms, budget)

    def _compacted_topics(self) -> list[tuple[Topic, TopicLogSettings]]:
        found = [(topic, self.settings_of(topic)) for topic in self.topics if self._is_logged(topic)]
        return [(topic, settings) for topic, settings in found if settings.is_compacted]

    def look_after(self) -> None:
        """See to it that files are as they should be, and durable when they should. Worth calling every second."""
        self.all_logs.check_some()
        for topic in self.topics:
            settings = self.settings_of(topic)
            if settings.flush_ms != INT64_MAX:
                self.all_logs.flush_due(topic, settings)
        self._lines.report(self.clock.now_ms() / 1000)

    def close(self) -> None:
        """Close what is open."""
        self.all_logs.close(is_whole=self.config.records_enable)
        self._lines.report(self.clock.now_ms() / 1000, ends=True)


def check_leader_epoch(epoch: int, current: int) -> ErrorCode:
    """Return UNKNOWN_LEADER_EPOCH or FENCED_LEADER_EPOCH for a leader's epoch that isn't the current one, or NONE."""
    if epoch > current:
        return ErrorCode.UNKNOWN_LEADER_EPOCH
    if epoch < current and epoch != NO_LEADER_EPOCH:
        return ErrorCode.FENCED_LEADER_EPOCH
    return ErrorCode.NONE


class NotLeaderError(FailedLogError):
    """A node does not lead a partition: NOT_LEADER_OR_FOLLOWER.

    Args:
        leader_epoch: the leader's epoch, if the node is a replica; else None.
    """

    def __init__(self, leader_epoch: int | None = None) -> None:
        super().__init__("this node does not lead the partition")
        self.error_code = ErrorCode.NOT_LEADER_OR_FOLLOWER
        self.leader_epoch = leader_epoch


def log_error(error: FailedLogError, current_leader_epoch: int) -> ErrorCode:
    """Return the error of a partition whose log can't be used here; a replica checks the client's epoch first."""
    if isinstance(error, NotLeaderError) and error.leader_epoch is not None:
        return check_leader_epoch(max(current_leader_epoch, NO_LEADER_EPOCH), error.leader_epoch) or error.error_code
    return error.error_code


class NodeData(TopicData):
    """What topics hold, for the clients of a node: only what it leads.

    Args:
        whole: what topics hold, of all nodes.
        leadership: who leads what.
        node_id: the node.
    """

    def __init__(self, whole: TopicData, leadership: Leadership, node_id: int) -> None:
        super().__init__(whole.config, whole.clock, whole.topics, all_logs=whole.all_logs)
        self._whole = whole
        self._leadership = leadership
        self._node_id = node_id

    @property
    def whole(self) -> TopicData:
        """See :class:`~groupcoord.broker.records.topic_data.TopicData`."""
        return self._whole

    def log(self, topic: Topic, partition_index: int) -> PartitionLog | None:
        """See :class:`~groupcoord.broker.records.topic_data.TopicData`.

        Raises:
            FailedLogError: its files can't be used; NotLeaderError, which is one: another node leads it.
        """
        leader = self._leadership.leader(topic, partition_index)
        if leader.node_id != self._node_id:
            is_replica = self._node_id in self._leadership.replicas(topic, partition_index)
            raise NotLeaderError(leader.epoch if is_replica else None)
        log = super().log(topic, partition_index)
        if log is not None and log.leader_epoch != leader.epoch:  # its files could not be used for a while
            log.begin_epoch(leader.epoch)
            self._leadership.raise_epoch(topic, partition_index, log.leader_epoch)
        return log

    def leader_epoch(self, topic: Topic, partition_index: int) -> int:
        """See :class:`~groupcoord.broker.records.topic_data.TopicData`."""
        return self._leadership.leader(topic, partition_index).epoch

    def append_marker(self, name: str, partition_index: int, marker: TransactionMarker) -> ErrorCode:
        """See :class:`~groupcoord.broker.records.topic_data.TopicData`."""
        topic = self.topics.get(name)
        if topic is not None and not self._leadership.leads(self._node_id, topic, partition_index):
            return ErrorCode.NOT_LEADER_OR_FOLLOWER
        return super().append_marker(name, partition_index, marker)


MISDIRECTED = (ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.FENCED_LEADER_EPOCH)


class CurrentLeaders:
    """Adds the current leader to each partition that failed because another node leads it, or with another epoch.

    Args:
        leadership: the leaders.
        data: the topics.
    """

    def __init__(self, leadership: Leadership, data: TopicData) -> None:
        self._leadership = leadership
        self._data = data

    def add_to_fetch(self, response: FetchResponse, told: Mapping[int, Node] | None) -> FetchResponse:
        """Return an answer to Fetch with current leaders.

        Args:
            response: the answer.
            told: the nodes' addresses for this client; None if they are the same for all.
        """
        topics, endpoints = self._with_leaders(response.topics, told)
        return response if topics is None else evolve(response, topics=topics, node_endpoints=endpoints)

    def add_to_produce(self, response: ProduceResponse, told: Mapping[int, Node] | None) -> ProduceResponse:
        """Return an answer to Produce with current leaders."""
        topics, endpoints = self._with_leaders(response.topics, told)
        return response if topics is None else evolve(response, topics=topics, node_endpoints=endpoints)

    def add_to_share_fetch(self, response: ShareFetchResponse, told: Mapping[int, Node] | None) -> ShareFetchResponse:
        """Return an answer to ShareFetch with current leaders."""
        topics, endpoints = self._with_leaders(response.responses, told)
        return response if topics is None else evolve(response, responses=topics, node_endpoints=endpoints)

    def add_to_share_acknowledge(
        self, response: ShareAcknowledgeResponse, told: Mapping[int, Node] | None
    ) -> ShareAcknowledgeResponse:
        """Return an answer to ShareAcknowledge with current leaders."""
        topics, endpoints = self._with_leaders(response.responses, told)
        return response if topics is None else evolve(response, responses=topics, node_endpoints=endpoints)

    def _with_leaders(
        self, topics: Iterable[Any], told: Mapping[int, Node] | None
    ) -> tuple[tuple[Any, ...] | None, tuple[MetadataBroker, ...]]:
        """Return topics with current leaders, and the addresses of these; None if no partition needs one."""
        leader_ids: set[int] = set()
        changed = []
        for topic in topics:
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
        brokers = (MetadataBroker(*node) for node in self._leadership.brokers(told) if node.node_id in leader_ids)
        return tuple(changed), tuple(brokers)

    def _leader(self, topic: Any, index: int, leader_ids: set[int]) -> CurrentLeader:
        known = self._data.find(getattr(topic, "name", None), topic.topic_id)
        if known is None:
            return CurrentLeader()
        leader = self._leadership.leader(known, index)
        leader_ids.add(leader.node_id)
        return CurrentLeader(*leader)
