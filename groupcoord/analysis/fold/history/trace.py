"""What one group with epochs went through between its records: these, its members' lives, its partitions' moves."""

from __future__ import annotations

from collections.abc import Container, Mapping

from attrs import define, field

from groupcoord.analysis.fold.history.causes import CONVERSION, EXPIRY_OR_LEAVE, STATIC_REPLACE, Departure
from groupcoord.analysis.fold.history.epochs import EpochGroup, Kip848Types, partitions_of
from groupcoord.analysis.fold.history.ownership import Ownership
from groupcoord.analysis.fold.history.rows import (
    EPOCH,
    LEFT_MEMBER_EPOCH,
    MEMBERSHIP,
    MOVE,
    NO_PARTITIONS,
    REVOCATION,
    SHARE,
    STREAMS,
    MemberView,
    Row,
)
from groupcoord.records.typed import TypedRecord

GROUP_EPOCH, TARGET_EPOCH, MEMBER_EPOCH = "group", "target", "member"
"""Whose epoch a row is about."""

JOINED, REPLACEMENT, UPGRADED = "join", "static replace", "upgrade"
"""How members began: the last with their group, which was a classic one."""

_CLASSIC_PROTOCOL = "classic"


@define
class Membership:
    """The life of one member.

    Attributes:
        view: as it was last.
        began: how it began; None: before the log tells.
        began_ms: when.
        replaced: the member id that it stands for since then.
        first_epoch: the first that it had; None: none yet.
        last_epoch: and the last one.
        away_ms: since when it has left for a while; None: it has not.
        ended_ms: when it was gone; None: it is a member.
        log_offset: of the record with which it began; of the one with which it ended once it has.
    """

    view: MemberView
    began: str | None
    began_ms: int | None
    replaced: str | None
    log_offset: int
    first_epoch: int | None = None
    last_epoch: int | None = None
    away_ms: int | None = None
    ended_ms: int | None = None


@define
class GroupTrace:
    """Follows one group, record by record, beside the :class:`EpochGroup` that says what it looks like.

    Attributes:
        types: its kind.
        inherited: ids of members that it had as a classic group, of which nothing was written yet since.
        inherited_epoch: its last generation as that; -1 if it was none.
        complete_from: from this offset of the log partition on compaction has removed nothing.
        target_ms: when the target assignment of the group's epoch was written; None: there is none yet.
    """

    types: Kip848Types
    inherited: frozenset[str] = frozenset()
    inherited_epoch: int = -1
    complete_from: int = 0
    target_ms: int | None = None
    _ownership: Ownership = field(factory=Ownership)
    _members: dict[str, Membership] = field(factory=dict)
    _gone: dict[str, Membership] = field(factory=dict)
    _rows: list[tuple[str, Row]] = field(factory=list)

    # ------------------------------------------------------------ input

    def apply(self, log_offset: int, timestamp_ms: int, record: TypedRecord, group: EpochGroup) -> None:
        """Take any record but the group's own, after the group has."""
        member_id, value = record.key.get("memberId", ""), record.value
        if record.type is self.types.member:
            self._member(member_id, value is None, log_offset, timestamp_ms, group)
        elif record.type is self.types.current:
            self._current(member_id, record, log_offset, timestamp_ms, group)
        elif record.type is self.types.target and self._has_owners:
            found = NO_PARTITIONS if value is None else partitions_of(value, "topicPartitions", "activeTasks")
            self._ownership.plan(member_id, found)
        elif record.type is self.types.target_epoch and value is not None:
            self._target(log_offset, timestamp_ms, group)

    @property
    def _has_owners(self) -> bool:
        """A partition is one member's at a time."""
        return self.types.group_type != SHARE

    def begin_epoch(self, log_offset: int, timestamp_ms: int, group: EpochGroup) -> None:
        """Take the group's own record, after the group has."""
        self.target_ms = None
        self._ownership.begin_epoch(is_empty=not group.view().members)
        self._tell(EPOCH, _epoch_row(GROUP_EPOCH, group, log_offset, timestamp_ms))

    def replace(self, old_id: str, new_id: str) -> None:
        """Let a static member's new id stand for its old one."""
        self._ownership.replace(old_id, new_id)
        new = self._members[new_id]
        new.began, new.replaced = REPLACEMENT, old_id
        old = self._gone.pop(old_id, None)
        if old is not None:
            told = f"{old.view.identity} came back as {new_id}"
            self._end(old, Departure(STATIC_REPLACE, 1.0, told))

    def settle(self, departures: Mapping[str, Departure], below: int) -> None:
        """Learn how members ended.

        Args:
            departures: what is known, by member id.
            below: of other members that were gone before this offset nothing more will be learned.
        """
        for member_id, life in list(self._gone.items()):
            if member_id in departures:
                self._end(self._gone.pop(member_id), departures[member_id])
            elif life.log_offset < below:
                self._end(self._gone.pop(member_id), None)

    def convert(self, members: Container[str]) -> None:
        """Learn which of the members that are gone go on in the classic group that this one became."""
        going_on = [member_id for member_id in self._gone if member_id in members]
        told = "the group became a classic one, in which it goes on"
        self.settle(dict.fromkeys(going_on, Departure(CONVERSION, 1.0, told)), below=0)

    def close(self) -> None:
        """Take the end of the group: how its members ended may be learned later."""
        self._ownership.end()

    def end(self) -> None:
        """Take the end of the log: give the rows that were still open."""
        self._ownership.end()
        for life in (*self._gone.values(), *self._members.values()):
            self._end(life, None)
        self._gone.clear()
        self._members.clear()

    def take_rows(self) -> list[tuple[str, Row]]:
        """Return the rows that became certain since the last call, each with its kind."""
        rows, self._rows = self._rows, []
        rows += [(MOVE, row) for row in self._ownership.moves]
        rows += [(REVOCATION, row) for row in self._ownership.revocations]
        self._ownership.moves, self._ownership.revocations = [], []
        return rows

    # ------------------------------------------------------------ records

    def _member(self, member_id: str, is_gone: bool, log_offset: int, timestamp_ms: int, group: EpochGroup) -> None:
        if not is_gone:
            life = self._life(member_id, log_offset, timestamp_ms, group)
            life.view = group.member(member_id)
            return
        gone = self._members.pop(member_id, None)
        if gone is not None:
            gone.ended_ms, gone.log_offset = timestamp_ms, log_offset
            self._gone[member_id] = gone

    def _life(self, member_id: str, log_offset: int, timestamp_ms: int, group: EpochGroup) -> Membership:
        life = self._members.get(member_id)
        if life is None:
            began = UPGRADED if member_id in self.inherited else JOINED
            self.inherited -= {member_id}
            is_told = log_offset >= self.complete_from
            life = Membership(
                group.member(member_id), began if is_told else None, timestamp_ms if is_told else None, None, log_offset
            )
            self._members[member_id] = life
        return life

    def _current(
        self, member_id: str, record: TypedRecord, log_offset: int, timestamp_ms: int, group: EpochGroup
    ) -> None:
        if record.value is None:
            self._ownership.loses_all(member_id, timestamp_ms)
            row = _epoch_row(MEMBER_EPOCH, group, log_offset, timestamp_ms)
            self._tell(EPOCH, row | {"member_id": member_id})
            return
        member = group.member(member_id)
        life = self._life(member_id, log_offset, timestamp_ms, group)
        life.view = member
        if member.epoch == LEFT_MEMBER_EPOCH:
            life.away_ms = timestamp_ms
        else:
            life.away_ms, life.last_epoch = None, member.epoch
            life.first_epoch = member.epoch if not life.first_epoch else life.first_epoch
        if self._has_owners:
            self._ownership.has(member, log_offset, timestamp_ms)
        told = {
            "member_id": member_id,
            "member_epoch": member.epoch,
            "previous_member_epoch": record.value["previousMemberEpoch"],
            "state": dict(self.types.states).get(record.value["state"], "Unknown"),
            "partitions": len(member.held),
            "pending_partitions": len(member.pending),
        }
        self._tell(EPOCH, _epoch_row(MEMBER_EPOCH, group, log_offset, timestamp_ms) | told)

    def _target(self, log_offset: int, timestamp_ms: int, group: EpochGroup) -> None:
        members = group.view().members
        if not self._has_owners or log_offset < self.complete_from or group.assignment_epoch == self.inherited_epoch:
            self._ownership.adopt(members)
        else:
            epoch, is_of_tasks = group.assignment_epoch, self.types.group_type == STREAMS
            self._ownership.decide(epoch, group.assignor(), members, timestamp_ms, log_offset, is_of_tasks=is_of_tasks)
        if group.assignment_epoch == group.epoch:
            self.target_ms = timestamp_ms
        self._tell(EPOCH, _epoch_row(TARGET_EPOCH, group, log_offset, timestamp_ms))

    # ------------------------------------------------------------ rows

    def _tell(self, kind: str, row: Row) -> None:
        self._rows.append((kind, row))

    def _end(self, life: Membership, departure: Departure | None) -> None:
        """Give a member's row; without a departure it is still one, or nothing shows how it ended."""
        view, end = life.view, None if departure is None else departure.end
        if departure is None and life.ended_ms is not None:
            end = EXPIRY_OR_LEAVE
        row = {
            "member_id": view.member_id,
            "instance_id": view.instance_id,
            "client_id": view.client_id,
            "client_host": view.client_host,
            "protocol": self.types.group_type.lower() if view.session_timeout_ms is None else _CLASSIC_PROTOCOL,
            "began": life.began,
            "began_ms": life.began_ms,
            "replaced_member": life.replaced,
            "first_epoch": life.first_epoch,
            "last_epoch": life.last_epoch,
            "away_ms": life.away_ms,
            "end": end,
            "ended_ms": life.ended_ms,
            "confidence": None if departure is None else departure.confidence,
            "evidence": None if departure is None else departure.evidence,
            "log_offset": life.log_offset,
        }
        self._tell(MEMBERSHIP, row)


def _epoch_row(whose: str, group: EpochGroup, log_offset: int, timestamp_ms: int) -> Row:
    return {
        "whose": whose,
        "group_epoch": group.epoch,
        "target_epoch": group.assignment_epoch,
        "member_id": None,
        "member_epoch": None,
        "previous_member_epoch": None,
        "state": None,
        "partitions": None,
        "pending_partitions": None,
        "log_offset": log_offset,
        "log_timestamp_ms": timestamp_ms,
    }
