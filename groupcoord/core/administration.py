"""ListGroups, DeleteGroups, and expiry of unused offsets and empty groups (KIP-211) in one log partition."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from uuid import UUID

from groupcoord.core.events import Cause
from groupcoord.core.groups.group import Deletion, Group
from groupcoord.core.handler_context import HandlerContext
from groupcoord.core.log.records import NO_TIMESTAMP, ZERO_UUID, CommitKind, OffsetTombstone, Record, topic_of_record
from groupcoord.core.messages import DeletedGroup, DeleteGroupsResponse, ListedGroup, Reply, Token
from groupcoord.core.offsets.commits import WhenDeleted, count_offsets
from groupcoord.core.refusals import refused
from groupcoord.core.timers import Timer, TimerKey, TimerKind
from groupcoord.errors import ErrorCode

FILTERED_AS = {"NotReady": "not_ready"}
"""Values of a states filter for states without an exact lower-case name (Kafka's ``StreamsGroupState``)."""

TOMBSTONE_BYTES_MIN = 16
"""Minimum size of an offset's tombstone in a batch of the log, without the names of group and topic."""

MS_PER_MINUTE = 60_000


MAX_RECORDS_PER_APPEND = 5_000
"""A sweep may find any number of offsets, but a batch of the log is limited (``message.max.bytes``)."""


Expired = tuple[list[Record], tuple[Group, ...]]
"""Tombstones, and the groups that end with the last of them."""


def _bounded(expired: Iterable[Expired]) -> Iterator[Expired]:
    """Yield the tombstones of all groups in appends of bounded size."""
    together: list[Record] = []
    ended: tuple[Group, ...] = ()
    for records, emptied in expired:
        # A group's tombstones stay together where they fit.
        if together and len(together) + len(records) > MAX_RECORDS_PER_APPEND:
            yield together, ended
            together, ended = [], ()
        while len(records) > MAX_RECORDS_PER_APPEND:
            yield records[:MAX_RECORDS_PER_APPEND], ()
            records = records[MAX_RECORDS_PER_APPEND:]
        together, ended = together + records, ended + emptied
    if together:
        yield together, ended


class Administration:
    """Handles administrative requests of one log partition, and sweeps it for what has expired, while it has groups.

    A sweep comes every ``offsets.retention.check.interval.ms``.
    """

    NOT_COUNTED = ("_swept_ms", "timer")

    __slots__ = ("_context", "_swept_ms", "timer")

    def __init__(self, context: HandlerContext) -> None:
        self._context = context
        context.wake_retention = self.wake
        self.timer = Timer(TimerKey(TimerKind.EXPIRY, context.partition))
        self._swept_ms = 0

    def list_groups(self, states: frozenset[str], types: frozenset[str]) -> list[ListedGroup]:
        """Return the groups that pass the lower-case filters of state and type; an empty filter passes all."""
        return [
            listed
            for listed in (group.listed() for group in self._context.visible_groups())
            if (not states or FILTERED_AS.get(listed.group_state, listed.group_state.lower()) in states)
            and (not types or listed.group_type.lower() in types)
        ]

    def delete_groups(self, group_ids: list[str], token: Token, now_ms: int) -> None:
        deletion = Deletion([*group_ids], token, self._delete_rest)
        for group_id in group_ids:
            group = self._context.groups.get(group_id)
            if group is not None and self._deletion_error(group) is ErrorCode.NONE:
                kind = self._context.kinds[type(group)]
                # States of a share group are deleted at the share coordinator first.
                # True counts as one more answer to wait for.
                deletion.awaited += kind.delete_external_state(group, deletion, now_ms)
        if not deletion.awaited:
            self._delete_rest(deletion)

    def _delete_rest(self, deletion: Deletion) -> None:
        results, groups = deletion.results, []
        for group_id in deletion.group_ids:
            group = self._context.groups.get(group_id)
            # Checked again: members may have joined while external state was deleted.
            error_code = self._deletion_error(group)
            if group is not None and error_code is ErrorCode.NONE:
                groups.append(group)
            results.append(DeletedGroup(group_id, error_code))
        held = Reply(deletion.token, DeleteGroupsResponse(tuple(results)))
        if not groups:
            self._context.effects.replies.append(held)
        elif sum(map(self._tombstone_bytes_min, groups)) > self._context.config.message_max_bytes:
            # No log accepts so large a batch, so the request fails at once.
            self._context.effects.replies.append(refused(held, ErrorCode.MESSAGE_TOO_LARGE))
        else:
            records = [record for group in groups for record in self.begin_deletion(group)]
            written = WhenDeleted(tuple(groups), Cause.DELETION, count_offsets(records))
            self._context.writer.begin(records, written, (held,))

    def _tombstone_bytes_min(self, group: Group) -> int:
        group_id = group.group_id
        return sum(
            len(partitions) * (TOMBSTONE_BYTES_MIN + len(group_id) + len(topic))
            for topic, partitions in self._context.writer.hard.offsets.of_group(group_id).items()
        )

    def _deletion_error(self, group: Group | None) -> ErrorCode:
        if group is None:
            return ErrorCode.GROUP_ID_NOT_FOUND
        return ErrorCode.NONE if self.may_delete(group) else ErrorCode.NON_EMPTY_GROUP

    def may_delete(self, group: Group) -> bool:
        """Return whether a group has no members, and no write in flight decides about it."""
        # A conversion in flight would add a member.
        return group.is_empty and group.group_id not in self._context.writings

    def begin_deletion(self, group: Group) -> list[Record]:
        """Suspend requests for a group; return the tombstones of its offsets and of the group."""
        context = self._context
        # Readers see it in the writings until the tombstones are durable.
        del context.groups[group.group_id]
        context.writings[group.group_id] = group
        # Offsets in flight and in open transactions are covered, too.
        keys = context.writer.hard.offsets.known_keys(group.group_id)
        tombstones: list[Record] = [OffsetTombstone(group.group_id, topic, index) for topic, index in keys]
        # Kafka's order: offsets before the group.
        return tombstones + group.tombstones()

    # ------------------------------------------------------------ retention

    def start(self, now_ms: int) -> None:
        self._swept_ms = now_ms
        self.wake(now_ms)

    def wake(self, now_ms: int) -> None:
        if self._context.groups and self.timer.deadline_ms is None:
            interval_ms = self._context.config.offsets_retention_check_interval_ms
            # After a time without groups, sweeps continue in the original rhythm.
            passed_ms = (now_ms - self._swept_ms) % interval_ms
            self._context.timers.arm(self.timer, now_ms + interval_ms - passed_ms)

    def on_expiry_timer(self, key: TimerKey, now_ms: int) -> None:
        for records, emptied in _bounded(self._expired(now_ms)):
            self._context.writer.begin(records, WhenDeleted(emptied, Cause.EXPIRY, count_offsets(records)))
        self.start(now_ms)

    def _expired(self, now_ms: int) -> Iterator[Expired]:
        # A copy, since deletions remove groups.
        for group in list(self._context.groups.values()):
            if group.group_id in self._context.writings:
                # During a conversion the subscriptions are unknown.
                continue
            keys, nothing_left = self._due(group, now_ms)
            # Offsets and group go in one append, so no group without offsets is left behind.
            # Share groups never expire (KIP-932).
            if nothing_left and group.may_expire and self.may_delete(group):
                yield self.begin_deletion(group), (group,)
            else:
                yield [OffsetTombstone(group.group_id, topic, index) for topic, index in keys], ()

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
