"""What the topics of a host hold: the log of each partition, and the settings that apply to it.

With ``records.enable=false`` there are no logs, and every partition is empty: it starts and ends at offset 0. Yet
groups commit offsets such as 42, and their consumers go on reading there; Kafka would answer OFFSET_OUT_OF_RANGE, and
the consumers would jump back to 0. So then a Fetch at any offset from 0 on is answered as if the log ended exactly
there: nothing to read yet, high watermark = the offset asked for, lag 0. ListOffsets still answers 0 for start and end,
and producing is refused, though answered: librdkafka fetches from no broker that does not list Produce.
"""

from __future__ import annotations

from typing import TYPE_CHECKING
from uuid import UUID

from groupcoord.clock import Clock
from groupcoord.config import Config
from groupcoord.core.records import TransactionMarker
from groupcoord.errors import ErrorCode
from groupcoord.host.config_definitions import TOPIC_DEFINITIONS
from groupcoord.host.topics import Topic, TopicRegistry
from groupcoord.topic_logs.settings import LEADER_EPOCH, TopicLogSettings
from groupcoord.topic_logs.topic_logs import TopicLogs

if TYPE_CHECKING:
    from groupcoord.topic_logs.partition_log import PartitionLog

NO_LEADER_EPOCH = -1
READ_UNCOMMITTED, READ_COMMITTED = 0, 1


class TopicData:
    """The logs of a host's topics.

    Args:
        config: what holds for topics that have no settings of their own.
        clock: where the time comes from.
        topics: the topics that exist.

    Attributes:
        logs: what they hold; None if they hold nothing.
    """

    def __init__(self, config: Config, clock: Clock, topics: TopicRegistry) -> None:
        self.config = config
        self.clock = clock
        self.topics = topics
        self.logs = TopicLogs(config.records_memory_max_bytes) if config.records_enable else None
        self._settings: dict[UUID, tuple[Topic, TopicLogSettings]] = {}

    def find(self, name: str | None, topic_id: UUID) -> Topic | None:
        """Return the topic that a request names, by name or (None) by id."""
        return self.topics.get_by_id(topic_id) if name is None else self.topics.get(name)

    def log(self, topic: Topic, partition_index: int) -> PartitionLog | None:
        """Return the log of a partition that exists; None if topics hold nothing."""
        return None if self.logs is None else self.logs.log(topic.topic_id, partition_index)

    def settings_of(self, topic: Topic) -> TopicLogSettings:
        """Return what holds for the logs of a topic."""
        known = self._settings.get(topic.topic_id)
        if known is None or known[0] is not topic:
            known = self._settings[topic.topic_id] = topic, self._read_settings(topic)
        return known[1]

    def _read_settings(self, topic: Topic) -> TopicLogSettings:
        def value(name: str) -> int:
            return int(self._text(topic, name))

        return TopicLogSettings(
            max_message_bytes=value("max.message.bytes"),
            uses_append_time=self._text(topic, "message.timestamp.type") == "LogAppendTime",
            timestamp_before_max_ms=value("message.timestamp.before.max.ms"),
            timestamp_after_max_ms=value("message.timestamp.after.max.ms"),
        )

    def _text(self, topic: Topic, name: str) -> str:
        own = topic.configs.get(name)
        return TOPIC_DEFINITIONS[name].inherited(self.config)[0] if own is None else own

    def append_marker(self, name: str, partition_index: int, marker: TransactionMarker) -> ErrorCode:
        """Append the end of a transaction to the log of a partition; to one that is gone nothing, which is fine.

        Returns:
            What :meth:`PartitionLog.append_marker` returns.
        """
        topic = self.topics.get(name)
        if self.logs is None or topic is None or not 0 <= partition_index < topic.partition_count:
            return ErrorCode.NONE
        return self.logs.log(topic.topic_id, partition_index).append_marker(marker, self.clock.now_ms())

    def delete(self, topic: Topic) -> None:
        """Forget what a topic held."""
        self._settings.pop(topic.topic_id, None)
        if self.logs is not None:
            self.logs.delete(topic.topic_id)


def check_leader_epoch(epoch: int) -> ErrorCode:
    """Return UNKNOWN_LEADER_EPOCH or FENCED_LEADER_EPOCH for a leader's epoch that isn't the current one, or NONE."""
    if epoch > LEADER_EPOCH:
        return ErrorCode.UNKNOWN_LEADER_EPOCH
    if epoch < LEADER_EPOCH and epoch != NO_LEADER_EPOCH:
        return ErrorCode.FENCED_LEADER_EPOCH
    return ErrorCode.NONE
