"""Settings of logs, and the bound on the memory that all logs use together."""

from __future__ import annotations

from attrs import field, frozen

from groupcoord.config.settings import INT64_MAX
from groupcoord.errors import ErrorCode
from groupcoord.storage.errors import RefusedBatchError

LEADER_EPOCH = 0
"""Epoch of the first leader of a log."""

NO_LEADER_EPOCH = -1
"""Unknown epoch."""


@frozen
class TopicLogSettings:
    """Settings of a topic that concern its logs, as Kafka's of similar names.

    Attributes:
        uses_append_time: whether batches get their append time (``message.timestamp.type=LogAppendTime``).
        is_compacted: whether only the last record of a key is kept, so that each record needs a key.
        retention_ms, retention_bytes: negative: no limit.
        is_deleted: whether records are deleted by age or size.
        roll_ms: the age of its first batch at which a segment is closed, for retention or for compaction.
    """

    max_message_bytes: int = 1_048_588
    uses_append_time: bool = False
    is_compacted: bool = False
    timestamp_before_max_ms: int = INT64_MAX
    timestamp_after_max_ms: int = 3_600_000
    segment_bytes: int = 1_073_741_824
    segment_ms: int = 604_800_000
    retention_ms: int = 604_800_000
    retention_bytes: int = -1
    is_deleted: bool = True
    flush_messages: int = INT64_MAX
    flush_ms: int = INT64_MAX
    min_cleanable_ratio: float = 0.5
    delete_retention_ms: int = 86_400_000
    min_compaction_lag_ms: int = 0
    max_compaction_lag_ms: int = INT64_MAX
    dedupe_buffer_bytes: int = 134_217_728

    roll_ms: int = field(init=False)

    @roll_ms.default
    def _roll_ms(self) -> int:
        # Only closed segments are compacted, as Kafka's LogConfig.maxSegmentMs.
        return min(self.segment_ms, self.max_compaction_lag_ms) if self.is_compacted else self.segment_ms


DEFAULT_SETTINGS = TopicLogSettings()


BATCH_OVERHEAD_BYTES = 160
"""Memory of a batch in addition to its bytes."""

PRODUCER_BYTES = 1_024
"""Upper bound of the memory for one producer in one log."""

LOG_BYTES = 2_048
"""Upper bound of the memory for an empty log."""

MARKERS_RESERVE = 1 / 16
"""Part of the limit that markers may exceed it by, because a transaction that can't end blocks its consumers."""


class LogMemory:
    """Account of the memory of batches and producers, with a limit."""

    def __init__(self, bytes_max: int) -> None:
        self.bytes_max = bytes_max
        self.used_bytes = 0

    def take(self, size_bytes: int, *, is_marker: bool = False) -> None:
        """Reserve memory for a log.

        Raises:
            RefusedBatchError: POLICY_VIOLATION, the limit is reached.
        """
        limit = self.bytes_max * (1 + MARKERS_RESERVE) if is_marker else self.bytes_max
        if self.used_bytes + size_bytes > limit:
            reason = f"topics hold {self.used_bytes} bytes of at most {self.bytes_max} (records.memory.max.bytes)"
            # Clients give up at once on this error. After KAFKA_STORAGE_ERROR they would retry until their delivery
            # timeout.
            raise RefusedBatchError(ErrorCode.POLICY_VIOLATION, reason)
        self.used_bytes += size_bytes

    def take_if_left(self, size_bytes: int) -> bool:
        if self.used_bytes + size_bytes > self.bytes_max:
            return False
        self.used_bytes += size_bytes
        return True

    def give_back(self, size_bytes: int) -> None:
        self.used_bytes -= size_bytes
