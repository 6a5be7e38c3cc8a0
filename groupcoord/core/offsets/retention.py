"""Expiry of unused offsets, and of groups without any (KIP-211)."""

from __future__ import annotations

from uuid import UUID

from groupcoord.core.administration import Administration
from groupcoord.core.events import Cause
from groupcoord.core.groups.group import Group
from groupcoord.core.handler_context import HandlerContext
from groupcoord.core.log.append_queue import PartitionWriter
from groupcoord.core.log.records import NO_TIMESTAMP, ZERO_UUID, CommitKind, OffsetTombstone, Record, topic_of_record
from groupcoord.core.offsets.commits import WhenDeleted, count_offsets
from groupcoord.core.timers import Timer, TimerKey, TimerKind

MS_PER_MINUTE = 60_000


MAX_RECORDS_PER_APPEND = 5_000
"""A sweep may find any number of offsets, but a batch of the log is limited (``message.max.bytes``)."""


class _Expired:
    """Tombstones on their way to the writer, in appends of bounded size."""

    __slots__ = ("_emptied", "_records", "_writer")

    def __init__(self, writer: PartitionWriter) -> None:
        self._writer = writer
        self._records: list[Record] = []
        self._emptied: tuple[Group, ...] = ()

    def add(self, records: list[Record], emptied: tuple[Group, ...] = ()) -> None:
        """Add the tombstones of a group; an ``emptied`` group ends with the last of them."""
        # A group's tombstones stay together where they fit.
        if len(self._records) + len(records) > MAX_RECORDS_PER_APPEND:
            self.write()
        while len(records) > MAX_RECORDS_PER_APPEND:
            self._records, records = records[:MAX_RECORDS_PER_APPEND], records[MAX_RECORDS_PER_APPEND:]
            self.write()
        self._records = self._records + records
        self._emptied += emptied

    def write(self) -> None:
        if self._records:
            written = WhenDeleted(self._emptied, Cause.EXPIRY, count_offsets(self._records))
            self._writer.begin(self._records, written)
        self._records, self._emptied = [], ()


class Retention:
    """Sweeps one log partition every ``offsets.retention.check.interval.ms``, while it has groups."""

    NOT_COUNTED = ("_swept_ms", "timer")

    __slots__ = ("_administration", "_context", "_swept_ms", "timer")

    def __init__(self, context: HandlerContext, administration: Administration) -> None:
        self._context = context
        context.wake_retention = self.wake
        self._administration = administration
        self.timer = Timer(TimerKey(TimerKind.EXPIRY, context.partition))
        self._swept_ms = 0

    def start(self, now_ms: int) -> None:
        self._swept_ms = now_ms
        self.wake(now_ms)

    def wake(self, now_ms: int) -> None:
        if self._context.groups and self.timer.deadline_ms is None:
            interval_ms = self._context.config.offsets_retention_check_interval_ms
            # After a time without groups, sweeps continue in the original rhythm.
            passed_ms = (now_ms - self._swept_ms) % interval_ms
            self._context.timers.arm(self.timer, now_ms + interval_ms - passed_ms)

    def on_timer(self, key: TimerKey, now_ms: int) -> None:
        expired = _Expired(self._context.writer)
        # A copy, since deletions remove groups.
        for group in list(self._context.groups.values()):
            if group.group_id in self._context.writings:
                # During a conversion the subscriptions are unknown.
                continue
            keys, nothing_left = self._due(group, now_ms)
            # Offsets and group go in one append, so no group without offsets is left behind.
            # Share groups never expire (KIP-932).
            if nothing_left and group.may_expire and self._administration.may_delete(group):
                expired.add(self._administration.begin_deletion(group), (group,))
            else:
                expired.add([OffsetTombstone(group.group_id, topic, index) for topic, index in keys])
        expired.write()
        self.start(now_ms)

    def forget_topic(self, topic: str, topic_id: UUID) -> None:
        """Delete the offsets of a deleted topic, but not those of a newer topic of the same name."""
        offsets = self._context.writer.hard.offsets
        # Committed offsets, then those in flight and in open transactions.
        found = [
            (commit.kind, index)
            for group_id in self._context.groups
            for index, commit in offsets.of_group(group_id).get(topic, {}).items()
        ]
        pending = [of_topic for commit in offsets.pending.values() for of_topic in commit.topics]
        pending += [topic_of_record(record) for keys in offsets.transactions.values() for _, record in keys.values()]
        found += [(kind, index) for kind, columns in pending if kind.topic == topic for index in columns[0]]
        # The topic may exist again under another id, with commits that have to stay.
        newer = {(kind.group_id, index) for kind, index in found if kind.topic_id not in (ZERO_UUID, topic_id)}
        # Kafka writes a tombstone for each transaction with an offset, and one for a committed offset
        # (OffsetMetadataManager.onTopicsDeleted).
        keys = dict.fromkeys((kind.producer_id, (kind.group_id, index)) for kind, index in found)
        places = [place for _, place in keys if place not in newer]
        if places:
            records = [OffsetTombstone(group_id, topic, index) for group_id, index in places]
            # Groups without any offset left stay until the next sweep, as in Kafka.
            self._context.writer.begin(records, WhenDeleted((), Cause.DELETION, len(set(places))))

    def _due(self, group: Group, now_ms: int) -> tuple[list[tuple[str, int]], bool]:
        """Return the expired offsets of a group, and whether nothing else keeps it."""
        offsets = self._context.writer.hard.offsets
        group_id = group.group_id
        pending = set(offsets.pending_keys(group_id))
        due, kept = [], False
        for topic, partitions in offsets.of_group(group_id).items():
            for index, commit in partitions.items():
                key = (topic, index)
                if (
                    # A pending or uncommitted offset keeps the older one, which counts after a failure or an abort.
                    key not in pending
                    and not offsets.is_unstable(group_id, *key)
                    and self._is_due(group, commit.kind, now_ms)
                ):
                    due.append(key)
                else:
                    kept = True
        # An open transaction alone keeps the group (KAFKA-19163).
        return due, not kept and not pending and not offsets.has_open_transaction(group_id)

    def _is_due(self, group: Group, kind: CommitKind, now_ms: int) -> bool:
        # None while members use the topic, or may use it (KIP-211).
        base_ms = group.offset_age_base_ms(kind)
        # Before the offset's own expiry, which does not count while its topic is used.
        if base_ms is None:
            return False
        # Request versions 2 to 4 have a retention of their own; -1 means none (KAFKA-8069).
        if kind.expire_timestamp_ms != NO_TIMESTAMP:
            return now_ms >= kind.expire_timestamp_ms
        return now_ms - base_ms >= self._context.config.offsets_retention_minutes * MS_PER_MINUTE
