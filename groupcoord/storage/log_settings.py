"""What holds for logs: of all topics, and of one."""

from __future__ import annotations

from attrs import field, frozen

from groupcoord.config.settings import INT64_MAX

LEADER_EPOCH = 0
"""Of the first leader of a log."""

NO_LEADER_EPOCH = -1
"""Somebody doesn't know, or doesn't say, an epoch."""


@frozen
class TopicLogSettings:
    """The settings of a topic that decide what its logs take, under Kafka's names.

    Attributes:
        max_message_bytes: how large a batch may be, all of it counted.
        uses_append_time: batches get the time at which they are appended (``message.timestamp.type=LogAppendTime``).
        is_compacted: of the records of a key only the last one is kept for good, so each must have a key
            (``cleanup.policy`` has ``compact``).
        timestamp_before_max_ms: how far before now a batch's first timestamp may lie.
        timestamp_after_max_ms: how far behind now a batch's largest timestamp may lie.
        segment_bytes: a segment that would grow beyond this is followed by a new one.
        segment_ms: so is one whose first batch is so much older.
        retention_ms: older records are deleted; below 0: none.
        retention_bytes: so much of a log is kept at least; below 0: all.
        is_deleted: whether records are deleted for their age or their size (``cleanup.policy`` has ``delete``).
        flush_messages: so many records are made durable at once.
        flush_ms: records are made durable after this time.
        min_cleanable_ratio: a log is compacted when more than this part of it is dirty.
        delete_retention_ms: how long tombstones and markers stay after they were first compacted.
        min_compaction_lag_ms: younger records are not compacted.
        max_compaction_lag_ms: older records are, however small a part of the log they are.
        dedupe_buffer_bytes: memory for the keys that one pass of compaction looks for.
        roll_ms: how much older the first batch of a segment may be than the last: what isn't rolled isn't compacted.
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
        return min(self.segment_ms, self.max_compaction_lag_ms) if self.is_compacted else self.segment_ms


DEFAULT_SETTINGS = TopicLogSettings()
