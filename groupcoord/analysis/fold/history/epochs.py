"""Groups and memberships with epochs in records: consumer (KIP-848), share (KIP-932) and streams groups (KIP-1071)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Container, Mapping
from typing import Any, NamedTuple

from attrs import define, evolve, field

from groupcoord.analysis.fold.history.causes import (
    CONVERSION,
    EXPIRY_OR_LEAVE,
    METADATA_CHANGE,
    REGEX_CHANGE,
    STATIC_REPLACE,
    TOPIC_CHANGE,
    Departure,
    Note,
)
from groupcoord.analysis.fold.history.ownership import Ownership, Rows
from groupcoord.analysis.fold.history.rows import (
    CONSUMER,
    EPOCH,
    IDENTITY,
    LEFT_MEMBER_EPOCH,
    MEMBERSHIP,
    NO_PARTITIONS,
    SHARE,
    STREAMS,
    GroupView,
    MemberView,
    TopicPartition,
    TopicPartitions,
    fields_of,
)
from groupcoord.core.groups.consumer.group import preferred_assignor
from groupcoord.records.schemas import RecordType
from groupcoord.records.typed import TypedRecord
from groupcoord.schema.engine import Values

_OF_MEMBER = ("member_id", "member_epoch", "previous_member_epoch", "state", "partitions", "pending_partitions")
_CURRENT = ("held", "held_since", "alive_ms", "epoch", "pending", "standby", "warmup", "revoking_ms")
EMPTY, NOT_READY, ASSIGNING, RECONCILING, STABLE = "Empty", "NotReady", "Assigning", "Reconciling", "Stable"
NO_TIMEOUT = -1


class Kip848Types(NamedTuple):
    """The record types of one group type.

    Attributes:
        others: the group's other records.
        first_epoch: of a group and its target assignment without records (Kafka 4.3).
        stable, unrevoked: numbers of the member states Stable, and with pending revocations.
        states: numbers and names of all member states.
    """

    group_type: str
    group: RecordType
    member: RecordType
    target_epoch: RecordType
    target: RecordType
    current: RecordType
    others: tuple[RecordType, ...]
    first_epoch: int = 0
    stable: int = 0
    unrevoked: int = 1
    states: tuple[tuple[int, str], ...] = ((0, "Stable"),)


_RECORDS = (
    *("METADATA", "MEMBER_METADATA", "TARGET_ASSIGNMENT_METADATA", "TARGET_ASSIGNMENT_MEMBER"),
    "CURRENT_MEMBER_ASSIGNMENT",
)


def _types_of(group_type: str, *others: RecordType, **differing: Any) -> Kip848Types:
    group, member, target_epoch, target, current = (
        RecordType[f"{group_type.upper()}_GROUP_{name}"] for name in _RECORDS
    )
    return Kip848Types(group_type, group, member, target_epoch, target, current, others, **differing)


_KINDS = (
    _types_of(
        CONSUMER,
        RecordType.CONSUMER_GROUP_PARTITION_METADATA,
        RecordType.CONSUMER_GROUP_REGULAR_EXPRESSION,
        first_epoch=1,
        states=((0, "Stable"), (1, "UnrevokedPartitions"), (2, "UnreleasedPartitions")),
    ),
    _types_of(SHARE, RecordType.SHARE_GROUP_STATE_PARTITION_METADATA),
    _types_of(
        STREAMS,
        RecordType.STREAMS_GROUP_TOPOLOGY,
        first_epoch=1,
        stable=1,
        unrevoked=2,
        states=((1, "Stable"), (2, "UnrevokedTasks"), (3, "UnreleasedTasks")),
    ),
)
_KIND_OF = {number: types for types in _KINDS for number in (*types[1:6], *types.others)}
MODERN_TYPES = frozenset(_KIND_OF)
_WHY: dict[RecordType, Note] = {
    RecordType.CONSUMER_GROUP_PARTITION_METADATA: (TOPIC_CHANGE, "partitions of its topics changed"),
    RecordType.CONSUMER_GROUP_REGULAR_EXPRESSION: (REGEX_CHANGE, "other topics match a regular expression"),
    RecordType.STREAMS_GROUP_TOPOLOGY: (METADATA_CHANGE, "the topology changed"),
}
_OTHER_TOPICS = (TOPIC_CHANGE, "the topics that it subscribes to changed, or how many partitions they have")


def types_of(record_type: RecordType) -> Kip848Types:
    return _KIND_OF[record_type]


GROUP_EPOCH, TARGET_EPOCH, MEMBER_EPOCH = "group", "target", "member"
JOINED, REPLACEMENT, UPGRADED = "join", "static replace", "upgrade"
"""Starts of memberships; the last is the upgrade of a classic group."""

_CLASSIC_PROTOCOL = "classic"


@define
class Membership:
    """A membership."""

    view: MemberView
    log_offset: int
    began: str | None = None
    began_ms: int | None = None
    replaced_member: str | None = None
    first_epoch: int | None = None
    last_epoch: int | None = None
    away_ms: int | None = None
    ended_ms: int | None = None


@define
class EpochGroup:
    """State of a group, and its view at the start of its epoch, with topics by id: their names may follow later in the
    log.

    Attributes:
        rows: rows of epochs, memberships, moves and revocations, which the reader clears.
        complete_from: compaction has removed nothing from this offset of the log partition on.
        last_view: the group at the start of its epoch; None before the first one.
        target_ms: timestamp of the target assignment of the group's epoch; None before.
        newcomers: members that joined in this epoch.
        duplicates: partitions assigned to two members at a time; the reader clears it.
    """

    types: Kip848Types
    rows: Rows
    epoch: int = field(init=False)
    assignment_epoch: int = field(init=False)
    complete_from: int = 0
    target_ms: int | None = None
    last_view: GroupView | None = None
    newcomers: dict[str, None] = field(factory=dict)
    duplicates: list[tuple[TopicPartition, list[str]]] = field(factory=list)
    _members: dict[str, MemberView] = field(factory=dict)
    _target: dict[str, TopicPartitions] = field(factory=dict)
    _held: dict[str, TopicPartitions] = field(factory=dict)
    _owners: dict[TopicPartition, str] = field(factory=dict)
    _unconverged: dict[str, None] = field(factory=dict)
    _states: dict[str, int] = field(factory=dict)
    _gone: dict[str, MemberView] = field(factory=dict)
    _hash: int = 0
    _others: dict[str, Values] = field(factory=dict)
    # With their timestamps: a new epoch is written together with its reasons.
    _notes: list[tuple[Note, int]] = field(factory=list)
    _topology_epochs: tuple[int | None, int] = (None, -1)
    _inherited: dict[str, MemberView] = field(factory=dict)
    _inherited_ms: int = -1
    _inherited_epoch: int = -1
    _lives: dict[str, Membership] = field(factory=dict)
    _ended: dict[str, Membership] = field(factory=dict)
    _ownership: Ownership = field(init=False)

    def __attrs_post_init__(self) -> None:
        self.epoch = self.assignment_epoch = self.types.first_epoch
        self._ownership = Ownership(self.rows, self.types.group_type == STREAMS, self._held)

    @property
    def _has_owners(self) -> bool:
        return self.types.group_type != SHARE

    # ------------------------------------------------------------ input

    def inherit(self, view: GroupView, timestamp_ms: int) -> None:
        """Take over a classic group's members: records written at this moment are no sign of life."""
        self._inherited, self._inherited_ms, self._inherited_epoch = view.members, timestamp_ms, view.generation

    def apply(self, log_offset: int, timestamp_ms: int, record: TypedRecord) -> tuple[str | None, str | None]:
        """Apply any record but the group's own; return the old and new id of a replaced static member."""
        member_id, values = record.key.get("memberId", ""), record.value
        if record.type is self.types.member:
            return self._member(member_id, values, log_offset, timestamp_ms)
        if record.type is self.types.current:
            self._set_current(member_id, values, log_offset, timestamp_ms)
        elif record.type is self.types.target:
            self._set_target(member_id, values)
        elif record.type is self.types.target_epoch:
            self.assignment_epoch = -1 if values is None else values["assignmentEpoch"]
            self._find_unconverged()
            if values is not None:
                self._decide(log_offset, timestamp_ms)
        else:
            self._other(record, timestamp_ms)
        return None, None

    def settle(self, departures: Mapping[str, Departure], below: int) -> None:
        """Add the rows of memberships with a known end, and of those that ended before offset ``below``."""
        for member_id, life in list(self._ended.items()):
            if member_id in departures or life.log_offset < below:
                del self._ended[member_id]
                self._end(life, departures.get(member_id))

    def convert(self, members: Container[str]) -> None:
        """End the memberships of members that stay in the group after its conversion to a classic one."""
        sentence = "the group became a classic one, in which it goes on"
        going_on = [member_id for member_id in self._ended if member_id in members]
        self.settle(dict.fromkeys(going_on, Departure(CONVERSION, 1.0, sentence)), below=0)

    def close(self) -> None:
        """End the moves and revocations of a deleted group."""
        self._ownership.end()

    def end(self) -> None:
        """End the log."""
        for life in (*self._ended.values(), *self._lives.values()):
            self._end(life, None)
        self._ownership.end()

    def changes(self, value: Values, timestamp_ms: int) -> tuple[Note, ...]:
        """Return reasons for the epoch that the group's new record begins, beyond members and subscriptions."""
        new_hash = value.get("metadataHash", 0)
        notes = list(dict.fromkeys(note for note, noted_ms in self._notes if noted_ms == timestamp_ms))
        if self._hash and new_hash and self._hash != new_hash:
            notes.append(_OTHER_TOPICS)
        self._hash = new_hash
        self._notes.clear()
        return tuple(notes)

    def begin_epoch(self, log_offset: int, timestamp_ms: int, value: Values) -> GroupView:
        self.epoch = value["epoch"]
        if self.types.group_type == STREAMS:
            self._topology_epochs = (self._topology_epochs[0], value.get("validatedTopologyEpoch", -1))
        self._gone.clear()
        self.newcomers.clear()
        members = {member_id: evolve(member) for member_id, member in self._members.items()}
        self.last_view = evolve(
            self._bare_view(members), at_ms=timestamp_ms, log_offset=log_offset, log_timestamp_ms=timestamp_ms
        )
        self.target_ms = None
        self._epoch_row(GROUP_EPOCH, log_offset, timestamp_ms)
        self._ownership.begin_epoch(is_empty=not self._members)
        return self.last_view

    def _bare_view(self, members: dict[str, MemberView]) -> GroupView:
        kind = self.types.group_type
        return GroupView(kind, self.epoch, kind.lower(), members=members)

    def _member(
        self, member_id: str, values: Values | None, log_offset: int, timestamp_ms: int
    ) -> tuple[str | None, str | None]:
        if values is None:
            self._keep(member_id)
            self._own(member_id, NO_PARTITIONS, NO_PARTITIONS, timestamp_ms)
            self._members.pop(member_id, None)
            self._unconverged.pop(member_id, None)
            self._states.pop(member_id, None)
            gone = self._lives.pop(member_id, None)
            if gone is not None:
                gone.ended_ms, gone.log_offset = timestamp_ms, log_offset
                self._ended[member_id] = gone
            return None, None
        known = self._members.get(member_id)
        classic = values.get("classicMemberMetadata") or {}
        names = values.get("subscribedTopicNames")
        member = evolve(
            MemberView(member_id) if known is None else known,
            instance_id=values.get("instanceId"),
            client_id=values["clientId"],
            client_host=values["clientHost"],
            rebalance_timeout_ms=values.get("rebalanceTimeoutMs", NO_TIMEOUT),
            session_timeout_ms=classic.get("sessionTimeoutMs"),
            topics=None if names is None else frozenset(names),
            topic_regex=values.get("subscribedTopicRegex") or None,
            rack_id=values.get("rackId"),
            alive_ms=self._alive_ms(member_id, timestamp_ms),
            assignor=values.get("serverAssignor"),
        )
        self._members[member_id] = member
        self._find_unconverged_member(member_id)
        self._life(member, log_offset, timestamp_ms)
        replaced = self._replaced_by(member) if known is None else None
        if replaced is None:
            return None, None
        self._replace(replaced, member_id)
        return replaced, member_id

    def _life(self, member: MemberView, log_offset: int, timestamp_ms: int) -> Membership:
        life = self._lives.get(member.member_id)
        if life is None:
            life = self._lives[member.member_id] = Membership(member, log_offset)
            if log_offset >= self.complete_from:
                is_upgraded = self._is_inherited(member.member_id, timestamp_ms)
                life.began, life.began_ms = UPGRADED if is_upgraded else JOINED, timestamp_ms
        life.view = member
        return life

    def _replace(self, old_id: str, new_id: str) -> None:
        self._ownership.replace(old_id, new_id)
        new = self._lives[new_id]
        new.began, new.replaced_member = REPLACEMENT, old_id
        old = self._ended.pop(old_id, None)
        if old is not None:
            self._end(old, Departure(STATIC_REPLACE, 1.0, f"{old.view.identity} came back as {new_id}"))

    def _alive_ms(self, member_id: str, timestamp_ms: int) -> int:
        return self._inherited[member_id].alive_ms if self._is_inherited(member_id, timestamp_ms) else timestamp_ms

    def _is_inherited(self, member_id: str, timestamp_ms: int) -> bool:
        return timestamp_ms == self._inherited_ms and member_id in self._inherited

    def _replaced_by(self, member: MemberView) -> str | None:
        """Return the id that a static member had in this epoch until now."""
        if member.instance_id is None or self.last_view is None:
            return None
        for member_id, was in self.last_view.members.items():
            if was.instance_id == member.instance_id and member_id not in self._members:
                return member_id
        return None

    def _set_current(self, member_id: str, values: Values | None, log_offset: int, timestamp_ms: int) -> None:
        if values is None:
            self._keep(member_id)
            self._epoch_row(MEMBER_EPOCH, log_offset, timestamp_ms, member_id=member_id)
            self._own(member_id, NO_PARTITIONS, NO_PARTITIONS, timestamp_ms)
            self._ownership.loses_all(member_id, timestamp_ms)
            return
        member = self._members.get(member_id)
        if member is None:  # compaction may remove a member's own record first
            member = self._members[member_id] = MemberView(member_id)
        member.epoch = values["memberEpoch"]
        if values["previousMemberEpoch"] == 0 and member.epoch == self.epoch:
            self.newcomers[member_id] = None
        member.alive_ms = self._alive_ms(member_id, timestamp_ms)
        assigned = partitions_of(values, "assignedPartitions", "activeTasks")
        # A client owns partitions pending revocation until it acknowledges this.
        pending = partitions_of(values, "partitionsPendingRevocation", "activeTasksPendingRevocation")
        member.held, member.held_since, member.pending = assigned, log_offset, pending
        member.standby, member.warmup = (partitions_of(values, "", name) for name in ("standbyTasks", "warmupTasks"))
        member.revoking_ms = timestamp_ms if values["state"] == self.types.unrevoked else None
        self._states[member_id] = values["state"]
        life = self._life(member, log_offset, timestamp_ms)
        if member.epoch == LEFT_MEMBER_EPOCH:
            life.away_ms = timestamp_ms
        else:
            life.away_ms, life.last_epoch, life.first_epoch = None, member.epoch, life.first_epoch or member.epoch
        self._epoch_row(
            MEMBER_EPOCH,
            log_offset,
            timestamp_ms,
            member_id=member_id,
            member_epoch=member.epoch,
            previous_member_epoch=values["previousMemberEpoch"],
            state=dict(self.types.states).get(values["state"], "Unknown"),
            partitions=len(assigned),
            pending_partitions=len(pending),
        )
        self._own(member_id, assigned, pending, timestamp_ms)
        if self._has_owners:
            self._ownership.has(evolve(member), log_offset, timestamp_ms)
        self._find_unconverged_member(member_id)

    def _set_target(self, member_id: str, values: Values | None) -> None:
        had, has = self._target.get(member_id, NO_PARTITIONS), NO_PARTITIONS
        if values is not None:
            has = self._target[member_id] = partitions_of(values, "topicPartitions", "activeTasks")
        elif member_id in self._target:
            self._keep(member_id)
            del self._target[member_id]
        if self._has_owners:
            self._ownership.plan(member_id, had, has)

    def _decide(self, log_offset: int, timestamp_ms: int) -> None:
        """Trace what a target assignment moves."""
        epoch, members = self.assignment_epoch, self.view().members
        self._epoch_row(TARGET_EPOCH, log_offset, timestamp_ms)
        if not self._has_owners or log_offset < self.complete_from or epoch == self._inherited_epoch:
            self._ownership.adopt(members)
        else:
            self._ownership.decide(epoch, self.assignor(), members, timestamp_ms, log_offset)
        if epoch == self.epoch:
            self.target_ms = timestamp_ms

    def _own(self, member_id: str, assigned: TopicPartitions, pending: TopicPartitions, timestamp_ms: int) -> None:
        """Update the owners of partitions, and note those with two (except in share groups)."""
        had, has = self._held.pop(member_id, NO_PARTITIONS), assigned | pending
        for partition in had - has:
            if self._owners.get(partition) == member_id:
                del self._owners[partition]
        if has:
            self._held[member_id] = has
            for partition in sorted(has - had):
                owner = self._owners.setdefault(partition, member_id)
                if owner != member_id and self._has_owners:
                    self.duplicates.append((partition, [owner, member_id]))
        self._ownership.release(sorted(had - has), timestamp_ms)

    def _keep(self, member_id: str) -> None:
        """Keep the assignment and the last sign of life of a removed member until the next epoch."""
        member = self._members.get(member_id)
        if member is not None and member_id not in self._gone:
            self._gone[member_id] = evolve(member, assigned=self._target.get(member_id, member.held))

    def _other(self, record: TypedRecord, timestamp_ms: int) -> None:
        if record.type is RecordType.STREAMS_GROUP_TOPOLOGY:
            epoch = None if record.value is None else record.value["epoch"]
            self._topology_epochs = (epoch, self._topology_epochs[1])
        why = _WHY.get(record.type)
        if why is None:
            return
        key = f"{record.type:d} {record.key.get('regularExpression', '')}"
        if record.value is None:
            self._others.pop(key, None)
            return
        values = {name: value for name, value in record.value.items() if name not in ("version", "timestamp")}
        is_news = record.type is RecordType.CONSUMER_GROUP_REGULAR_EXPRESSION or key in self._others
        if is_news and self._others.get(key) != values:
            self._notes.append((why, timestamp_ms))
        self._others[key] = values

    # ------------------------------------------------------------ views

    def view(self) -> GroupView:
        members = {
            member_id: evolve(member, assigned=self._target.get(member_id, NO_PARTITIONS))
            for member_id, member in self._members.items()
        }
        return self._bare_view(members) if self.last_view is None else evolve(self.last_view, members=members)

    def closing_view(self) -> GroupView | None:
        """Return the group at the end of its epoch: its first members, with targets and signs of life."""
        if self.last_view is None:
            return None
        members = {}
        for member_id, member in self.last_view.members.items():
            now = self._members.get(member_id) or self._gone.get(member_id) or member
            had = self._gone[member_id].assigned if member_id in self._gone else self._target.get(member_id)
            members[member_id] = evolve(member, assigned=had or NO_PARTITIONS, **fields_of(now, *_CURRENT))
        return evolve(self.last_view, members=members)

    def subscribed_topics(self) -> list[str] | None:
        topics: set[str] = set()
        for member in self._members.values():
            if member.topics is None:
                return None
            topics |= member.topics
            if member.topic_regex is not None:
                resolved = self._others.get(f"{RecordType.CONSUMER_GROUP_REGULAR_EXPRESSION:d} {member.topic_regex}")
                if resolved is None:
                    return None
                topics |= set(resolved["topics"])
        return sorted(topics)

    def assignor(self) -> str | None:
        """Return the assignor that most members selected; None for the brokers' default."""
        votes = Counter(member.assignor for member in self._members.values())
        return preferred_assignor({name: count for name, count in votes.items() if name is not None})

    def settle_replacement(self, old_id: str, new_id: str) -> tuple[MemberView, MemberView]:
        """Replace a static member's old id in the epoch's view; return both members."""
        assert self.last_view is not None
        old, new = self.last_view.members[old_id], evolve(self._members[new_id])
        self.last_view.members = {
            (new_id if member_id == old_id else member_id): (new if member_id == old_id else member)
            for member_id, member in self.last_view.members.items()
        }
        return old, new

    def is_converged(self) -> bool:
        return self.epoch <= self.assignment_epoch and not self._unconverged

    def state(self) -> str:
        if not self._members:
            return EMPTY
        if self.types.group_type == SHARE:
            return STABLE
        if self.types.group_type == STREAMS and self._topology_epochs[0] != self._topology_epochs[1]:
            return NOT_READY
        if self.epoch > self.assignment_epoch:
            return ASSIGNING
        return RECONCILING if self._unconverged else STABLE

    def _find_unconverged(self) -> None:
        self._unconverged.clear()
        for member_id in self._members:
            self._find_unconverged_member(member_id)

    def _find_unconverged_member(self, member_id: str) -> None:
        member = self._members[member_id]
        state = self._states.get(member_id, self.types.stable)
        if member.epoch == self.assignment_epoch and state == self.types.stable:
            self._unconverged.pop(member_id, None)
        else:
            self._unconverged[member_id] = None

    # ------------------------------------------------------------ rows

    def _epoch_row(self, whose: str, log_offset: int, timestamp_ms: int, **of_member: Any) -> None:
        epochs = {"whose": whose, "group_epoch": self.epoch, "target_epoch": self.assignment_epoch}
        place = {"log_offset": log_offset, "log_timestamp_ms": timestamp_ms}
        self.rows.append((EPOCH, epochs | dict.fromkeys(_OF_MEMBER) | of_member | place))

    def _end(self, life: Membership, departure: Departure | None) -> None:
        """Add the row of a membership; without a departure it is active, or its end is unknown."""
        view, end = life.view, None if departure is None else departure.end
        if departure is None and life.ended_ms is not None:
            end = EXPIRY_OR_LEAVE
        row = {
            **fields_of(view, *IDENTITY),
            "protocol": self.types.group_type.lower() if view.session_timeout_ms is None else _CLASSIC_PROTOCOL,
            **fields_of(life, "began", "began_ms", "replaced_member", "first_epoch", "last_epoch", "away_ms"),
            "end": end,
            "ended_ms": life.ended_ms,
            "confidence": None if departure is None else departure.confidence,
            "evidence": None if departure is None else departure.evidence,
            "log_offset": life.log_offset,
        }
        self.rows.append((MEMBERSHIP, row))


def partitions_of(values: Values, name: str, tasks_name: str) -> TopicPartitions:
    """Return partitions by topic id, or tasks by subtopology."""
    if tasks_name in values:
        return frozenset(
            (entry["subtopologyId"], partition) for entry in values[tasks_name] for partition in entry["partitions"]
        )
    return frozenset(
        (entry["topicId"], partition) for entry in values.get(name, ()) for partition in entry["partitions"]
    )
