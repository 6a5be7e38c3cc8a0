"""Moves and revocations of KIP-848 and KIP-1071 groups, traced record by record.

Moves are planned by target assignments, and carried out by the members' current assignments. Topics are ids here, since
their names may follow later.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping

from attrs import define, field

from groupcoord.analysis.fold.history.causes import (
    REBALANCE_TIMEOUT,
    is_rebalance_timeout,
)
from groupcoord.analysis.fold.history.rows import (
    MOVE,
    NO_PARTITIONS,
    REVOCATION,
    MemberView,
    Row,
    TopicPartition,
    TopicPartitions,
    by_topic,
    fields_of,
)

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
    # Partitions that members have, kept by the group.
    _held: Mapping[str, TopicPartitions]
    _planned: dict[TopicPartition, str] = field(factory=dict)
    # Previous target owners of partitions with a changed target since the last target assignment.
    _before: dict[TopicPartition, str | None] = field(factory=dict)
    # Subscriptions at the last target assignment.
    _subscriptions: dict[str, tuple[frozenset[str] | None, str | None]] = field(factory=dict)
    _free_since_ms: dict[TopicPartition, int] = field(factory=dict)
    # Rows of moves that are not complete.
    _under_way: dict[TopicPartition, Row] = field(factory=dict)
    _asked: dict[str, Revocation] = field(factory=dict)

    # ------------------------------------------------------------ plans

    def plan(self, member_id: str, had: TopicPartitions, has: TopicPartitions) -> None:
        for partition in had - has:
            if self._planned.get(partition) == member_id:
                self._before.setdefault(partition, member_id)
                del self._planned[partition]
        for partition in has - had:
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

    def release(self, partitions: Iterable[TopicPartition], at_ms: int) -> None:
        for partition in partitions:
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
            **fields_of(asked.member, "instance_id", "client_id"),
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
