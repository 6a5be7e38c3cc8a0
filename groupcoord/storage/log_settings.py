"""Settings of logs: constants, and those of one topic."""

from __future__ import annotations

from attrs import field, frozen

from groupcoord.config.settings import INT64_MAX

LEADER_EPOCH = 0
"""Epoch of the first leader of a log."""

NO_LEADER_EPOCH = -1
"""An epoch is unknown or not given."""


@frozen
class TopicLogSettings:
    """Settings of a topic that concern its logs, under Kafka's names.

    Attributes:
        max_message_bytes: the largest batch, header included.
        uses_append_time: whether batches get their append time (``message.timestamp.type=LogAppendTime``).
        is_compacted: whether only the last record of a key is kept, so that each record needs a key (``cleanup.policy``
            contains ``compact``).
        timestamp_before_max_ms: how far the first timestamp of a batch may lie in the past.
        timestamp_after_max_ms: how far the largest timestamp of a batch may lie in the future.
        segment_bytes: the largest segment.
        segment_ms: the age of its first batch at which a segment is closed.
        retention_ms: older records are deleted; negative: none.
        retention_bytes: the part of a log that is kept at least; negative: all.
        is_deleted: whether records are deleted by age or size (``cleanup.policy`` contains ``delete``).
        flush_messages: the number of unflushed records at which a log is flushed.
        flush_ms: the age of unflushed records at which a log is flushed.
        min_cleanable_ratio: the dirty part of a log above which it is compacted.
        delete_retention_ms: how long tombstones and markers stay after they were first compacted.
        min_compaction_lag_ms: younger records are not compacted.
        max_compaction_lag_ms: older records are compacted whatever the dirty part is.
        dedupe_buffer_bytes: memory for the keys of one compaction pass.
        roll_ms: the age of its first batch at which a segment is closed so that it can be compacted.
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
