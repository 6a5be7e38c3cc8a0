"""What holds for logs: of all topics, and of one."""

from __future__ import annotations

from attrs import frozen

from groupcoord.settings import INT64_MAX

LEADER_EPOCH = 0
"""A node that is alone leads from the beginning, for ever."""


@frozen
class TopicLogSettings:
    """The settings of a topic that decide what its logs take, under Kafka's names.

    Attributes:
        max_message_bytes: how large a batch may be, all of it counted.
        uses_append_time: batches get the time at which they are appended (``message.timestamp.type=LogAppendTime``).
        wants_keys: each record must have a key, since the topic is compacted (``cleanup.policy``).
        timestamp_before_max_ms: how far before now a batch's first timestamp may lie.
        timestamp_after_max_ms: how far behind now a batch's largest timestamp may lie.
        segment_bytes: a segment that would grow beyond this is followed by a new one.
        segment_ms: so is one whose first batch is so much older.
        retention_ms: older records are deleted; below 0: none.
        retention_bytes: so much of a log is kept at least; below 0: all.
        is_deleted: whether records are deleted for their age or their size (``cleanup.policy`` has ``delete``).
        flush_messages: so many records are made durable at once.
        flush_ms: records are made durable after this time.
    """

    max_message_bytes: int = 1_048_588
    uses_append_time: bool = False
    wants_keys: bool = False
    timestamp_before_max_ms: int = INT64_MAX
    timestamp_after_max_ms: int = 3_600_000
    segment_bytes: int = 1_073_741_824
    segment_ms: int = 604_800_000
    retention_ms: int = 604_800_000
    retention_bytes: int = -1
    is_deleted: bool = True
    flush_messages: int = INT64_MAX
    flush_ms: int = INT64_MAX


DEFAULT_SETTINGS = TopicLogSettings()
