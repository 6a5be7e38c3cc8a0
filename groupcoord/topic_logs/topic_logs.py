"""The logs of all topics, by topic id: a topic that is made again under its old name starts empty."""

from __future__ import annotations

from typing import TYPE_CHECKING
from uuid import UUID

from groupcoord.topic_logs.errors import RefusedBatchError
from groupcoord.topic_logs.log_memory import LOG_BYTES, LogMemory

if TYPE_CHECKING:
    from groupcoord.topic_logs.partition_log import PartitionLog


class TopicLogs:
    """Every log there is; one that nobody has asked for yet is made when it is asked for.

    Args:
        memory_bytes_max: how much all of them may take together.
    """

    def __init__(self, memory_bytes_max: int) -> None:
        self.memory = LogMemory(memory_bytes_max)
        self._logs: dict[UUID, dict[int, PartitionLog]] = {}

    def log(self, topic_id: UUID, partition_index: int) -> PartitionLog:
        """Return the log of a partition that exists; one that takes nothing if there is no memory for a new one."""
        log = self._logs.get(topic_id, {}).get(partition_index)
        return self._new_log(topic_id, partition_index) if log is None else log

    def _new_log(self, topic_id: UUID, partition_index: int) -> PartitionLog:
        from groupcoord.topic_logs.partition_log import PartitionLog

        try:
            self.memory.take(LOG_BYTES)
        except RefusedBatchError:
            return PartitionLog(LogMemory(0))
        log = self._logs.setdefault(topic_id, {})[partition_index] = PartitionLog(self.memory)
        return log

    def delete(self, topic_id: UUID) -> None:
        """Delete the logs of a topic."""
        for log in self._logs.pop(topic_id, {}).values():
            log.close()
            self.memory.give_back(LOG_BYTES)
