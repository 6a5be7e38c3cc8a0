"""Moves, revocations and memberships of KIP-848, KIP-932 and KIP-1071 groups, traced record by record.

Moves are planned by target assignments, and carried out by the members' current assignments. Topics are ids here, since
their names may follow later.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Container, Mapping

from attrs import define, field

from groupcoord.analysis.fold.history.causes import (
    CONVERSION,
    EXPIRY_OR_LEAVE,
    REBALANCE_TIMEOUT,
    STATIC_REPLACE,
    Departure,
    is_rebalance_timeout,
)
from groupcoord.analysis.fold.history.epochs import EpochGroup, Kip848Types, partitions_of
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
    TopicPartition,
    TopicPartitions,
    by_topic,
)
from groupcoord.records.typed import TypedRecord

UNASSIGNED, OWNER_GONE, SUBSCRIPTION = "unassigned", "owner gone", "subscription"
TOPIC_GONE, BALANCE, SWAP = "topic gone", "balance", "swap"
REASONS = (UNASSIGNED, OWNER_GONE, SUBSCRIPTION, TOPIC_GONE, BALANCE, SWAP)
"""Reasons of moves: no previous target owner; the owner was removed; the subscription of either member changed; the
topic is gone; the owner had more than its share; or, unnecessarily, the owner gained another partition that the new
owner could have had.
"""

GIVEN_UP, GONE = "given up", "gone"
Subscriptions = Mapping[str, MemberView]
Rows = list[tuple[str, Row]]


@define
class Revocation:
    """Partitions that a member has to revoke; ``ended_ms`` is its removal, None before."""

    member: MemberView
    epoch: int
    asked_ms: int
    log_offset: int
    ended_ms: int | None = None


@define
class Ownership:
    """Target and current owners of the partitions, or tasks, of one group."""

    _rows: Rows
    _is_of_tasks: bool
    _targets: dict[str, TopicPartitions] = field(factory=dict)
    _planned: dict[TopicPartition, str] = field(factory=dict)
    # Previous target owners of partitions with a changed target since the last target assignment.
    _before: dict[TopicPartition, str | None] = field(factory=dict)
    # Subscriptions at the last target assignment.
    _subscriptions: dict[str, tuple[frozenset[str] | None, str | None]] = field(factory=dict)
    _held: dict[str, TopicPartitions] = field(factory=dict)
    _free_since_ms: dict[TopicPartition, int] = field(factory=dict)
    # Rows of moves that are not complete.
    _under_way: dict[TopicPartition, Row] = field(factory=dict)
    _asked: dict[str, Revocation] = field(factory=dict)

    # ------------------------------------------------------------ plans

    def plan(self, member_id: str, partitions: TopicPartitions) -> None:
        had = self._targets.pop(member_id, NO_PARTITIONS)
        if partitions:
            self._targets[member_id] = partitions
        for partition in had - partitions:
            if self._planned.get(partition) == member_id:
                self._before.setdefault(partition, member_id)
                del self._planned[partition]
        for partition in partitions - had:
            self._before.setdefault(partition, self._planned.get(partition))
            self._planned[partition] = member_id

    def adopt(self, members: Subscriptions) -> None:
        """Adopt the targets without moves: the previous ones are not in the log, or nothing moved."""
        self._before.clear()
        self._note_subscriptions(members)

    def decide(
        self,
        epoch: int,
        assignor: str | None,
        members: Subscriptions,
        at_ms: int,
        log_offset: int,
    ) -> None:
        changed = sorted(partition for partition, was in self._before.items() if self._planned.get(partition) != was)
        received = Counter(self._planned[partition] for partition in changed if partition in self._planned)
        for partition in changed:
            was, will = self._before[partition], self._planned.get(partition)
            if partition in self._under_way:
                self._complete(partition, None)
            reason = self._reason(was, will, members, received)
            self._under_way[partition] = {
                "epoch": epoch,
                "assignor": assignor,
                **self._topic(partition[0]),
                "topic_partition": partition[1],
                "from_member": was,
                "to_member": will,
                "reason": reason,
                "is_necessary": reason != SWAP,
                "decided_ms": at_ms,
                "released_ms": self._free_since_ms.get(partition),
                "assigned_ms": None,
                "unowned_ms": None,
                "had_copy": _has_copy(members.get(will or ""), partition) if self._is_of_tasks else None,
                "log_offset": log_offset,
            }
            if will is not None and partition in self._held.get(will, NO_PARTITIONS):
                self._complete(partition, at_ms)
            elif will is None and not (was and partition in self._held.get(was, NO_PARTITIONS)):
                self._complete(partition, None)
        self._before.clear()
        self._note_subscriptions(members)

    def _reason(self, was: str | None, will: str | None, members: Subscriptions, received: Counter[str]) -> str:
        if was is None:
            return UNASSIGNED
        owner = members.get(was)
        if owner is None:
            return OWNER_GONE
        if self._subscriptions.get(was) != _subscription(owner):
            return SUBSCRIPTION
        if will is None:
            return TOPIC_GONE
        taker = members.get(will)
        if taker is not None and received[was] and _subscription(taker) == _subscription(owner):
            received[was] -= 1
            return SWAP
        is_new = will not in self._subscriptions
        if taker is not None and not is_new and self._subscriptions[will] != _subscription(taker):
            return SUBSCRIPTION
        return BALANCE

    def _note_subscriptions(self, members: Subscriptions) -> None:
        self._subscriptions = {member_id: _subscription(member) for member_id, member in members.items()}

    # ------------------------------------------------------------ what members have

    def has(self, member: MemberView, log_offset: int, at_ms: int) -> None:
        member_id = member.member_id
        self._set_held(member_id, member.held | member.pending, at_ms)
        for partition in sorted(member.held):
            move = self._under_way.get(partition)
            if move is not None and move["to_member"] == member_id:
                self._complete(partition, at_ms)
            self._free_since_ms.pop(partition, None)
        asked = self._asked.get(member_id)
        if asked is not None and asked.member.pending != member.pending:
            self._revoked(member_id, GIVEN_UP, at_ms)
        elif asked is not None:
            asked.member = member
        if member.pending and member_id not in self._asked:
            self._asked[member_id] = Revocation(member, member.epoch, at_ms, log_offset)

    def loses_all(self, member_id: str, at_ms: int) -> None:
        self._set_held(member_id, NO_PARTITIONS, at_ms)
        if member_id in self._asked:
            self._asked[member_id].ended_ms = at_ms

    def replace(self, old_id: str, new_id: str) -> None:
        """Replace a static member's id: its targets and revocations move to the new one."""
        for partition, member_id in self._before.items():
            if member_id == old_id:
                self._before[partition] = new_id
        for move in self._under_way.values():
            for name in ("from_member", "to_member"):
                move[name] = new_id if move[name] == old_id else move[name]
        if old_id in self._subscriptions:
            self._subscriptions[new_id] = self._subscriptions.pop(old_id)
        asked = self._asked.pop(old_id, None)
        if asked is not None:
            asked.ended_ms = None
            self._asked[new_id] = asked

    def begin_epoch(self, is_empty: bool) -> None:
        """Start an epoch: removed members will not return under another id."""
        for member_id, asked in list(self._asked.items()):
            if asked.ended_ms is not None:
                is_fenced = is_rebalance_timeout(asked.member, asked.ended_ms)
                self._revoked(member_id, REBALANCE_TIMEOUT if is_fenced else GONE, asked.ended_ms)
        if is_empty:
            self.end()

    def end(self) -> None:
        for partition in sorted(self._under_way):
            self._complete(partition, None)
        for member_id in list(self._asked):
            self._revoked(member_id, None, None)
        self._before.clear()
        self._free_since_ms.clear()

    def _set_held(self, member_id: str, has: TopicPartitions, at_ms: int) -> None:
        had = self._held.pop(member_id, NO_PARTITIONS)
        if has:
            self._held[member_id] = has
        for partition in sorted(had - has):
            self._free_since_ms[partition] = at_ms
            move = self._under_way.get(partition)
            if move is not None:
                move["released_ms"] = at_ms
                if move["to_member"] is None:
                    self._complete(partition, None)

    # ------------------------------------------------------------ rows

    def _complete(self, partition: TopicPartition, assigned_ms: int | None) -> None:
        move = self._under_way.pop(partition)
        free_since_ms = self._free_since_ms.get(partition)
        move["assigned_ms"] = assigned_ms
        move["unowned_ms"] = None if assigned_ms is None or free_since_ms is None else assigned_ms - free_since_ms
        self._rows.append((MOVE, move))

    def _revoked(self, member_id: str, end: str | None, ended_ms: int | None) -> None:
        asked = self._asked.pop(member_id)
        row = {
            "member_id": member_id,
            "instance_id": asked.member.instance_id,
            "client_id": asked.member.client_id,
            "member_epoch": asked.epoch,
            "partitions": [
                {**self._topic(topic), "partitions": found} for topic, found in by_topic(asked.member.pending)
            ],
            "partition_count": len(asked.member.pending),
            "rebalance_timeout_ms": asked.member.rebalance_timeout_ms,
            "asked_ms": asked.asked_ms,
            "ended_ms": ended_ms,
            "took_ms": None if ended_ms is None else ended_ms - asked.asked_ms,
            "end": end,
            "log_offset": asked.log_offset,
        }
        self._rows.append((REVOCATION, row))

    def _topic(self, topic: str) -> Row:
        return {"topic": topic, "topic_id": None} if self._is_of_tasks else {"topic": None, "topic_id": topic}


def _has_copy(member: MemberView | None, task: TopicPartition) -> bool:
    return member is not None and (task in member.standby or task in member.warmup)


def _subscription(member: MemberView) -> tuple[frozenset[str] | None, str | None]:
    return member.topics, member.topic_regex


GROUP_EPOCH, TARGET_EPOCH, MEMBER_EPOCH = "group", "target", "member"
JOINED, REPLACEMENT, UPGRADED = "join", "static replace", "upgrade"
"""Starts of memberships; the last is the upgrade of a classic group."""

_CLASSIC_PROTOCOL = "classic"


@define
class Membership:
    """A membership."""

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
    """Trace of one group, record by record, next to its :class:`EpochGroup`.

    Attributes:
        inherited: member ids of the classic group before its upgrade, without a record since.
        inherited_epoch: its last classic generation; -1 without one.
        complete_from: compaction has removed nothing from this offset of the log partition on.
        target_ms: timestamp of the target assignment of the group's epoch; None before.
    """

    types: Kip848Types
    _rows: Rows
    inherited: frozenset[str] = frozenset()
    inherited_epoch: int = -1
    complete_from: int = 0
    target_ms: int | None = None
    _ownership: Ownership = field(init=False)
    _members: dict[str, Membership] = field(factory=dict)
    _gone: dict[str, Membership] = field(factory=dict)

    def __attrs_post_init__(self) -> None:
        self._ownership = Ownership(self._rows, is_of_tasks=self.types.group_type == STREAMS)

    # ------------------------------------------------------------ input

    def apply(self, log_offset: int, timestamp_ms: int, record: TypedRecord, group: EpochGroup) -> None:
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
        return self.types.group_type != SHARE

    def begin_epoch(self, log_offset: int, timestamp_ms: int, group: EpochGroup) -> None:
        self.target_ms = None
        self._rows.append((EPOCH, _epoch_row(GROUP_EPOCH, group, log_offset, timestamp_ms)))
        self._ownership.begin_epoch(is_empty=not group.view().members)

    def replace(self, old_id: str, new_id: str) -> None:
        self._ownership.replace(old_id, new_id)
        new = self._members[new_id]
        new.began, new.replaced = REPLACEMENT, old_id
        old = self._gone.pop(old_id, None)
        if old is not None:
            told = f"{old.view.identity} came back as {new_id}"
            self._end(old, Departure(STATIC_REPLACE, 1.0, told))

    def settle(self, departures: Mapping[str, Departure], below: int) -> None:
        """Write the memberships that ended, with their ends; those removed before offset ``below`` without."""
        for member_id, life in list(self._gone.items()):
            if member_id in departures:
                self._end(self._gone.pop(member_id), departures[member_id])
            elif life.log_offset < below:
                self._end(self._gone.pop(member_id), None)

    def convert(self, members: Container[str]) -> None:
        """End the memberships of members that stay in the group after its conversion to a classic one."""
        going_on = [member_id for member_id in self._gone if member_id in members]
        told = "the group became a classic one, in which it goes on"
        self.settle(dict.fromkeys(going_on, Departure(CONVERSION, 1.0, told)), below=0)

    def close(self) -> None:
        self._ownership.end()

    def end(self) -> None:
        for life in (*self._gone.values(), *self._members.values()):
            self._end(life, None)
        self._ownership.end()
        self._gone.clear()
        self._members.clear()

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
            row = _epoch_row(MEMBER_EPOCH, group, log_offset, timestamp_ms)
            self._rows.append((EPOCH, row | {"member_id": member_id}))
            self._ownership.loses_all(member_id, timestamp_ms)
            return
        member = group.member(member_id)
        life = self._life(member_id, log_offset, timestamp_ms, group)
        life.view = member
        if member.epoch == LEFT_MEMBER_EPOCH:
            life.away_ms = timestamp_ms
        else:
            life.away_ms, life.last_epoch = None, member.epoch
            life.first_epoch = member.epoch if not life.first_epoch else life.first_epoch
        told = {
            "member_id": member_id,
            "member_epoch": member.epoch,
            "previous_member_epoch": record.value["previousMemberEpoch"],
            "state": dict(self.types.states).get(record.value["state"], "Unknown"),
            "partitions": len(member.held),
            "pending_partitions": len(member.pending),
        }
        self._rows.append((EPOCH, _epoch_row(MEMBER_EPOCH, group, log_offset, timestamp_ms) | told))
        if self._has_owners:
            self._ownership.has(member, log_offset, timestamp_ms)

    def _target(self, log_offset: int, timestamp_ms: int, group: EpochGroup) -> None:
        members = group.view().members
        self._rows.append((EPOCH, _epoch_row(TARGET_EPOCH, group, log_offset, timestamp_ms)))
        if not self._has_owners or log_offset < self.complete_from or group.assignment_epoch == self.inherited_epoch:
            self._ownership.adopt(members)
        else:
            self._ownership.decide(group.assignment_epoch, group.assignor(), members, timestamp_ms, log_offset)
        if group.assignment_epoch == group.epoch:
            self.target_ms = timestamp_ms

    # ------------------------------------------------------------ rows

    def _end(self, life: Membership, departure: Departure | None) -> None:
        """Add the row of a membership; without a departure it is active, or its end is unknown."""
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
        self._rows.append((MEMBERSHIP, row))


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
