"""History of one group, folded from its records in log order: generations, members, rebalances, and its state.

:class:`GroupFold` yields rows of the tables as soon as they are final. It can be pickled at any point. Its memory is
that of the group's members and partitions, however long the log.
"""

from __future__ import annotations

from typing import Any

from attrs import define, evolve, field

from groupcoord.analysis.fold.history.causes import (
    STATIC_REPLACE,
    UNKNOWN,
    Explanation,
    LastCommits,
    Note,
    Surroundings,
    explain,
)
from groupcoord.analysis.fold.history.epochs import MODERN_TYPES, EpochGroup, types_of
from groupcoord.analysis.fold.history.rows import (
    CLASSIC,
    CONSUMER,
    DUPLICATE,
    GENERATION,
    GROUP,
    MEMBER,
    MOVE,
    REBALANCE,
    REVOCATION,
    STREAMS,
    GroupView,
    MemberView,
    Row,
    TopicPartition,
    TopicPartitions,
    classic_view,
    fields_of,
    member_row,
    named,
    subscribed,
)
from groupcoord.errors import GroupcoordError
from groupcoord.records.schemas import RecordType
from groupcoord.records.typed import TypedRecord
from groupcoord.schema.engine import Values

UPGRADE, DOWNGRADE = "upgrade", "downgrade"
_STABLE, _EMPTY = "Stable", "Empty"
_NOTHING_BEFORE = "nothing before it is in the log, by compaction"


class LogOrderError(GroupcoordError, ValueError):
    """Records of a group are not in log order."""


@define
class FoldOptions:
    """Facts that are not in the group's records.

    Attributes:
        session_timeout_ms: ``group.consumer.session.timeout.ms`` of the broker, for KIP-848 groups; None if unknown.
        complete_from: compaction has removed nothing from this offset of the log partition on.
    """

    session_timeout_ms: int | None = None
    complete_from: int = 0


@define
class OpenRebalance:
    """Rebalance of a KIP-848 group before its row is added.

    Attributes:
        before: the group before it; None if unknown.
        began: the group at the start of its epoch.
        commits: the last ones of removed members; later commits of their partitions are by others.
        ended_ms: when every member had its target assignment; None before.
    """

    before: GroupView | None
    began: GroupView
    notes: tuple[Note, ...]
    moved: bool
    commits: LastCommits
    ended_ms: int | None = None


@define
class GroupFold:
    """Fold of the records of one group."""

    group_id: str
    log_partition: int | None = None
    options: FoldOptions = field(factory=FoldOptions)
    last_offset: int = -1
    _rows: list[tuple[str, Row]] = field(factory=list)
    _commits: LastCommits = field(factory=dict)
    _exists: bool = False
    _view: GroupView | None = None
    _modern: EpochGroup | None = None
    _open: OpenRebalance | None = None
    _converted: GroupView | None = None
    _topics: dict[str, str] = field(factory=dict)
    _leader_epoch: int | None = None
    _moved: bool = False
    _is_first: bool = True
    # The last group with member epochs, perhaps deleted.
    _traced: EpochGroup | None = None
    # The last removal: the group type, its offset and its timestamp.
    _removed: tuple[str, int, int] | None = None
    _conversion: str | None = None

    # ------------------------------------------------------------ input

    def name_topic(self, topic_id: str, topic: str) -> None:
        """Learn the name of a topic: assignments of KIP-848 groups have only ids, in Kafka's text form."""
        self._topics[topic_id] = topic

    @property
    def topic_names(self) -> dict[str, str]:
        """Return the known topic names by id."""
        return self._topics

    def exists(self, log_offset: int) -> None:
        """Note that the group has committed since its last record; the last commit is enough."""
        self.last_offset = max(self.last_offset, log_offset)
        self._exists = True

    def committed(self, log_offset: int, timestamp_ms: int, topic: str, partition: int) -> None:
        """Apply a committed offset.

        Between two of the group's records the last commit of each partition is enough, in any order.
        """
        self.exists(log_offset)
        self._commits[topic, partition] = max(
            (log_offset, timestamp_ms), self._commits.get((topic, partition), (-1, -1))
        )

    def apply(
        self, log_offset: int, timestamp_ms: int, record: TypedRecord, partition_leader_epoch: int | None = None
    ) -> None:
        """Apply a record of the group or of a member, including tombstones."""
        self._advance(log_offset)
        if partition_leader_epoch is not None:
            self._moved = self._moved or self._leader_epoch not in (None, partition_leader_epoch)
            self._leader_epoch = partition_leader_epoch
        if record.type is RecordType.GROUP_METADATA:
            if record.value is None:
                self._bury_classic(timestamp_ms)
            else:
                self._classic(classic_view(record.value, log_offset, timestamp_ms))
        elif record.type in MODERN_TYPES:
            self._apply_modern(log_offset, timestamp_ms, record)

    def finish(self) -> None:
        """End the log: add unfinished rows, and the group as a load would find it."""
        self._complete_open(self.last_offset)
        if self._modern is not None:
            self._member_rows(self._modern.view())
        if self._converted is not None:
            self._unfinished_conversion(self._converted)
        self._end_trace()
        row = self.state()
        if row is not None:
            self._rows.append((GROUP, row))

    def take_rows(self) -> list[tuple[str, Row]]:
        """Return the rows that became certain since the last call, each with its kind."""
        rows = [(kind, named(row, self._topics) if kind in (MOVE, REVOCATION) else row) for kind, row in self._rows]
        self._rows.clear()
        return rows

    def state(self) -> Row | None:
        """Return the group as a coordinator describes it after loading the log; None if it does not exist."""
        if self._modern is not None:
            view = evolve(self._modern.view(), protocol=self._modern.assignor())
            state = self._modern.state()
        elif self._view is not None:
            view = self._view
            state = _STABLE if view.members else _EMPTY
        elif self._exists:
            view, state = None, _EMPTY
        else:
            return None
        return {
            "type": CLASSIC if view is None else view.group_type,
            "state": state,
            "generation_or_epoch": 0 if view is None else view.generation,
            "member_count": 0 if view is None else len(view.members),
            "protocol_type": ("" if view is None else view.protocol_type) or "",
            "protocol": None if view is None or state == _EMPTY else view.protocol,
            "assignment_epoch": None if self._modern is None else self._modern.assignment_epoch,
            "state_timestamp_ms": None if view is None else view.at_ms,
            "subscribed_topics": subscribed(view) if self._modern is None else self._modern.subscribed_topics(),
        }

    def _advance(self, log_offset: int) -> None:
        if log_offset <= self.last_offset:
            raise LogOrderError(
                f"group {self.group_id!r}: the record at offset {log_offset} comes after that at {self.last_offset}"
            )
        self.last_offset = log_offset

    # ------------------------------------------------------------ classic groups

    def _classic(self, view: GroupView) -> None:
        self._complete_open(view.log_offset)
        converted, self._converted, self._modern = self._converted, None, None
        self._exists = True
        self._note_conversion(CONSUMER, DOWNGRADE, view.log_offset, view.log_timestamp_ms)
        if converted is not None and self._traced is not None:
            self._traced.convert(view.members)
        self._generation_row(view)
        self._member_rows(view)
        for partition, member_ids in view.duplicate_owners().items():
            self._duplicate_row(view.generation, partition, member_ids, view.log_offset, view.log_timestamp_ms)
        before = None if self._view is None else self._named(self._view)
        if converted is not None and converted.generation == view.generation:
            # Only the type has changed so far: the remaining members rejoin after this.
            named = self._named(converted)
            self._view = evolve(named, group_type=CLASSIC, members=_renewed(named, view), log_offset=view.log_offset)
            self._converted = converted
            return
        self._view = view
        if before is None or view.generation < before.generation:
            self._first_view(view, before)
        elif view.generation == before.generation:
            self._replaced(before, view)
        else:
            explanation = explain(before, view, self._around(before, view))
            self._rebalance_row(before, view, explanation, started_ms=view.at_ms, ended_ms=_ended_ms(view))
        self._moved = False
        # Commits before a view are no evidence of how its members end.
        self._commits.clear()

    def _around(
        self,
        before: GroupView,
        after: GroupView,
        notes: tuple[Note, ...] = (),
        commits: LastCommits | None = None,
    ) -> Surroundings:
        is_complete = before.log_offset >= self.options.complete_from
        return Surroundings(
            after.at_ms,
            after.log_offset,
            self._commits if commits is None else commits,
            self.options.session_timeout_ms,
            is_complete,
            self._moved,
            is_complete or after.generation <= before.generation + 1,
            notes,
        )

    def _first_view(self, view: GroupView, before: GroupView | None) -> None:
        is_new = self._is_new(view) or (before is not None and view.generation <= 1)
        self._is_first = False
        if not view.members and view.generation == 0:
            return
        if is_new:
            empty = evolve(view, generation=0, members={}, protocol=None, leader=None)
            explanation = explain(empty, view, evolve(self._around(empty, view), is_complete=True))
            times = {"started_ms": view.at_ms, "ended_ms": _ended_ms(view)}
            self._rebalance_row(empty, view, explanation, started_after_ms=None, **times)
            return
        why = _NOTHING_BEFORE
        if before is not None:
            why = f"generation {before.generation} came before: the group was deleted since, or records are missing"
        explanation = Explanation(UNKNOWN, [UNKNOWN], 0.0, [], [], 0, [why])
        self._rebalance_row(None, view, explanation, ended_ms=_ended_ms(view))

    def _is_new(self, view: GroupView) -> bool:
        """Return whether the group was created right before this view: compaction hides no generation."""
        return not self._is_first or self.options.complete_from == 0 or view.generation <= 1

    def _replaced(self, before: GroupView, view: GroupView) -> None:
        """Apply a second record of a generation: a static member has a new id (KIP-345)."""
        for member in view.members.values():
            was = before.members.get(member.member_id)
            member.alive_ms = view.log_timestamp_ms if was is None else was.alive_ms
        if view.members.keys() == before.members.keys():
            return
        around = evolve(self._around(before, view), ended_ms=view.log_timestamp_ms, is_complete=True)
        times = dict.fromkeys(("started_ms", "ended_ms"), view.log_timestamp_ms)
        self._rebalance_row(before, view, explain(before, view, around), **times)

    def _bury_classic(self, timestamp_ms: int) -> None:
        """Apply a classic group's tombstone: a deletion or, with members, a conversion."""
        self._complete_open(self.last_offset)
        if self._view is not None and self._view.members and self._modern is None:
            self._converted = self._view
        self._view, self._modern, self._exists, self._is_first = None, None, False, False
        self._removed = CLASSIC, self.last_offset, timestamp_ms

    def _note_conversion(self, old_type: str, conversion: str, log_offset: int, timestamp_ms: int) -> None:
        """Note a conversion for the next row if a group of another type was removed in the same batch."""
        if self._removed == (old_type, log_offset - 1, timestamp_ms):
            self._conversion = conversion

    # ------------------------------------------------------------ KIP-848, KIP-932 and KIP-1071

    def _apply_modern(self, log_offset: int, timestamp_ms: int, record: TypedRecord) -> None:
        types = types_of(record.type)
        if self._modern is None or self._modern.types != types:
            if record.value is None:
                return
            if self._modern is not None:
                # A group of another type existed: compaction has removed its tombstones.
                self._close_epoch(self._modern, log_offset)
            self._end_trace()
            self._modern = self._traced = EpochGroup(types, self._rows)
            if types.group_type == CONSUMER:
                self._note_conversion(CLASSIC, UPGRADE, log_offset, timestamp_ms)
                if self._converted is not None:
                    self._modern.inherit(self._converted, timestamp_ms)
            self._exists, self._view = True, None
        modern = self._modern
        if record.type is types.group:
            self._epoch(modern, log_offset, timestamp_ms, record.value)
            return
        if record.type is RecordType.SHARE_GROUP_STATE_PARTITION_METADATA and record.value is not None:
            for info in record.value["initializedTopics"]:
                self.name_topic(info["topicId"], info["topicName"])
        modern.complete_from = self.options.complete_from
        old_id, new_id = modern.apply(log_offset, timestamp_ms, record)
        if old_id is not None and new_id is not None:
            self._modern_replaced(modern, old_id, new_id, log_offset, timestamp_ms)
        for (topic, number), member_ids in modern.duplicates:
            partition = self._topics.get(topic, topic), number
            self._duplicate_row(modern.epoch, partition, member_ids, log_offset, timestamp_ms)
        modern.duplicates.clear()
        if self._open is not None and self._open.ended_ms is None and modern.is_converged():
            self._open.ended_ms = timestamp_ms

    def _end_trace(self) -> None:
        if self._traced is not None:
            self._traced.end()
        self._traced = None

    def _epoch(self, modern: EpochGroup, log_offset: int, timestamp_ms: int, value: Values | None) -> None:
        if value is None:
            # Groups are deleted when empty. With members, this is a conversion: only classic ones are left.
            last = self._close_epoch(modern, log_offset)
            self._converted = last if last is not None and last.members else None
            self._modern, self._view, self._exists, self._is_first = None, None, False, False
            self._removed = modern.types.group_type, log_offset, timestamp_ms
            modern.close()
            return
        before, notes = modern.closing_view(), modern.changes(value, timestamp_ms)
        self._complete_open(log_offset)
        if before is not None:
            self._member_rows(before)
        view = modern.begin_epoch(log_offset, timestamp_ms, value)
        converted, self._converted = self._converted, None
        commits, self._commits = self._commits, {}
        if converted is not None and converted.generation == view.generation:
            return
        if before is None:
            before = converted
        if before is None:
            self._first_epoch(view)
        elif before.generation != view.generation:
            ended_ms = timestamp_ms if not view.members else None
            gone = [member for member in self._named(before).members.values() if member.member_id not in view.members]
            of_gone = {partition: commits[partition] for member in gone for partition in member.held & commits.keys()}
            self._open = OpenRebalance(before, view, notes, self._moved, of_gone, ended_ms)
            self._moved = False

    def _close_epoch(self, modern: EpochGroup, log_offset: int) -> GroupView | None:
        last = modern.closing_view()
        self._complete_open(log_offset)
        if last is not None:
            self._member_rows(last)
        return last

    def _first_epoch(self, view: GroupView) -> None:
        is_new, self._is_first = self._is_new(view), False
        if view.members or not is_new:
            before = evolve(view, generation=0, members={}, protocol=None) if is_new else None
            self._open = OpenRebalance(before, view, (), False, {}, None if view.members else view.log_timestamp_ms)

    def _modern_replaced(
        self, modern: EpochGroup, old_id: str, new_id: str, log_offset: int, timestamp_ms: int
    ) -> None:
        """Add a row for a static member with a new id, which needs no new epoch."""
        self._complete_open(log_offset)
        before = modern.last_view
        assert before is not None
        old, new = modern.settle_replacement(old_id, new_id)
        evidence = [f"{new.identity} came back under a new member id"]
        explanation = Explanation(STATIC_REPLACE, [STATIC_REPLACE], 1.0, [new], [old], 0, evidence)
        after = evolve(before, log_offset=log_offset, log_timestamp_ms=timestamp_ms)
        self._rebalance_row(before, after, explanation, started_ms=timestamp_ms, ended_ms=timestamp_ms)

    def _complete_open(self, log_offset: int) -> None:
        opened, self._open = self._open, None
        if opened is None:
            return
        assert self._modern is not None
        after = self._modern.closing_view()
        assert after is not None
        after = self._named(after)
        before = None if opened.before is None else self._named(opened.before)
        if before is None:
            newcomers = self._modern.newcomers
            stayed = {member_id: m for member_id, m in after.members.items() if member_id not in newcomers}
            before = evolve(after, generation=after.generation - 1, members=stayed)
        elif before.generation == 0:
            # The first epoch is 1 or 2, so no generation is missing.
            before = evolve(before, generation=after.generation - 1)
        around = self._around(before, opened.began, opened.notes, opened.commits)
        around = evolve(around, moved_coordinator=opened.moved)
        explanation = explain(before, after, around)
        if opened.before is None:
            explanation.evidence = [*(explanation.evidence if explanation.joined else ()), _NOTHING_BEFORE]
        if opened.ended_ms is None:
            explanation.evidence.append("not every member came to this epoch")
        times: Row = {"target_ms": self._modern.target_ms, "ended_ms": opened.ended_ms}
        if opened.before is None or opened.before.generation == 0:
            times |= {"from_generation": None if opened.before is None else 0, "started_after_ms": None}
        self._rebalance_row(before, after, explanation, started_ms=opened.began.log_timestamp_ms, **times)

    # ------------------------------------------------------------ rows

    def _unfinished_conversion(self, before: GroupView) -> None:
        """Add the rebalance of a group that became classic, which is not in the log yet."""
        before = self._named(before)
        left = {} if self._view is None else self._view.members
        after = evolve(before, members={name: one for name, one in before.members.items() if name in left})
        explanation = explain(before, after, self._around(before, evolve(after, log_offset=self.last_offset)))
        explanation.evidence.append("the rebalance that follows is not in the log yet")
        self._rebalance_row(before, after, explanation, type=CLASSIC)

    def _rebalance_row(self, before: GroupView | None, after: GroupView, explanation: Explanation, **more: Any) -> None:
        if self._traced is not None:
            self._traced.settle(explanation.departures, after.log_offset)
        conversion, self._conversion = self._conversion, None
        row = {
            "type": after.group_type,
            "from_generation": None if before is None else before.generation,
            "to_generation": after.generation,
            "conversion": conversion,
            "started_after_ms": None if before is None else before.log_timestamp_ms,
            "started_ms": None,
            "target_ms": None,
            "ended_ms": None,
            **explanation.row(),
            "member_count": len(after.members),
            "missing_generations": 0 if before is None else max(after.generation - before.generation - 1, 0),
            "log_offset": after.log_offset,
        }
        self._rows.append((REBALANCE, row | more))

    def _generation_row(self, view: GroupView) -> None:
        row = {
            "generation": view.generation,
            **fields_of(view, "protocol_type", "protocol", "leader"),
            "member_count": len(view.members),
            "state_timestamp_ms": view.at_ms,
            **fields_of(view, "log_offset", "log_timestamp_ms"),
        }
        self._rows.append((GENERATION, row))

    def _duplicate_row(
        self, generation: int, partition: TopicPartition, member_ids: list[str], log_offset: int, timestamp_ms: int
    ) -> None:
        row = {
            "generation": generation,
            "topic": partition[0],
            "topic_partition": partition[1],
            "member_ids": member_ids,
            "log_offset": log_offset,
            "log_timestamp_ms": timestamp_ms,
        }
        self._rows.append((DUPLICATE, row))

    def _named(self, view: GroupView) -> GroupView:
        if view.group_type in (CLASSIC, STREAMS) or not self._topics:
            return view
        members = {
            member_id: evolve(member, assigned=self._names(member.assigned), held=self._names(member.held))
            for member_id, member in view.members.items()
        }
        return evolve(view, members=members)

    def _names(self, partitions: TopicPartitions) -> TopicPartitions:
        return frozenset((self._topics.get(topic, topic), partition) for topic, partition in partitions)

    def _member_rows(self, view: GroupView) -> None:
        for member in view.members.values():
            self._rows.append((MEMBER, member_row(view, member, self._topics)))


def _ended_ms(view: GroupView) -> int:
    """Return when a classic rebalance had ended at the latest, by its record."""
    return view.log_timestamp_ms if view.log_timestamp_ms >= 0 else view.at_ms


def _renewed(before: GroupView, view: GroupView) -> dict[str, MemberView]:
    """Return the members of a group that was just converted, with assignments by topic name from the new record."""
    return {
        member_id: evolve(member, assigned=view.members[member_id].assigned or member.assigned)
        if member_id in view.members
        else member
        for member_id, member in before.members.items()
    }
