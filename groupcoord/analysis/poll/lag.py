"""Lag of groups from snapshots of a running cluster, for ``groupcoord lag`` and ``analyze --poll``.

Statuses about commits over time need several snapshots.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from operator import itemgetter

from attrs import define, field, frozen

from groupcoord.analysis.fold.history.rows import Row, grouped
from groupcoord.analysis.live.snapshots import GroupSnapshot, Snapshot
from groupcoord.analysis.options import WINDOW_COMMITS
from groupcoord.analysis.poll.rows import lag_rows, view_of
from groupcoord.analysis.rules.groups import Place
from groupcoord.analysis.rules.statuses import (
    WORST_FIRST,
    Evidence,
    LagStatus,
    PartitionEnd,
    WindowCommit,
    lag_status,
    worst_status,
)

LAG_COLUMNS = (
    *("group_id", "state", "topic", "topic_partition", "committed_offset", "end_offset", "lag", "lag_ms", "status"),
    *("member_id", "client_id", "client_host", "members"),
)
"""Lag of a group in a partition, in a row of :meth:`LagWatch.take`; None if unknown, or without owner or commit."""


@frozen
class GroupLag:
    """Lag of a group in all its partitions; None stands for unknown.

    Attributes:
        lag: sum of the known lag in records.
        lag_ms: age of the oldest next record in milliseconds.
        wrong: the problem as a sentence; empty if all is well.
    """

    group_id: str
    state: str | None
    members: int | None
    partitions: int
    lag: int | None
    lag_ms: int | None
    status: str
    wrong: str


def group_lags(snapshot: Snapshot, lags: Iterable[Row], group_ids: Collection[str] = ()) -> list[GroupLag]:
    by_group = grouped(lags, itemgetter("group_id"))
    wanted = [group for group_id, group in snapshot.groups.items() if not group_ids or group_id in group_ids]
    return sorted((_group_lag(group, by_group.get(group.group_id, ())) for group in wanted), key=_group_order)


def _group_lag(group: GroupSnapshot, rows: Sequence[Row]) -> GroupLag:
    status = worst_status(row["status"] for row in rows) if group.offsets is not None else LagStatus.UNKNOWN
    known = [row["lag"] for row in rows if row["lag"] is not None]
    ages = [row["lag_ms"] for row in rows if row["lag_ms"] is not None]
    sentences = []
    if group.offsets is None:
        sentences.append("its offsets are not known")
    elif status.sentence:
        worst, *others = (row for row in worst_first(rows) if row["status"] == status.label)
        more = f" and {len(others):,} more {'partition' if len(others) == 1 else 'partitions'}" if others else ""
        sentences.append(status.sentence.format(f"{worst['topic']}-{worst['topic_partition']}{more}"))
    elif not rows:
        sentences.append("nothing is committed")
    members = None if group.described is None else len(group.described.members)
    idle = _idle_members(group)
    if idle:
        sentences.append(f"{idle:,} of {members:,} members have no partition")
    wrong = "; ".join(sentences)
    return GroupLag(
        group.group_id,
        group.state,
        members,
        len(rows),
        sum(known) if known else None,
        max(ages, default=None),
        status.label,
        f"{wrong[:1].upper()}{wrong[1:]}",
    )


def _idle_members(group: GroupSnapshot) -> int:
    """Return the number of members of a stable group without partitions, while others have some."""
    if group.described is None or group.described.state != "Stable":
        return 0
    members = view_of(group.type, group.described).members.values()
    idle = sum(not member.held for member in members)
    return idle if idle < len(members) else 0


def _group_order(one: GroupLag) -> tuple[int, int, int, str]:
    return WORST_FIRST.index(LagStatus.of(one.status)), -(one.lag_ms or 0), -(one.lag or 0), one.group_id


@define
class WatchedOffset:
    """A committed offset over repeated snapshots.

    Attributes:
        window: the last changes.
        rewind: number and times of decreases, and the largest one; None without any.
        was_at_end: it had no lag in the last snapshot.
        still_looks: number of snapshots without progress; ``still_from`` is the end in the first of them.
    """

    window: deque[WindowCommit] = field(factory=lambda: deque(maxlen=WINDOW_COMMITS))
    rewind: Row | None = None
    was_at_end: bool = False
    still_looks: int = 0
    still_from: int = 0

    def take(self, at_ms: int, offset: int, lag: int, end_offset: int) -> bool:
        """Add a snapshot; return whether a window of them shows no progress while the end increased."""
        before = self.window[-1].committed_offset if self.window else None
        if before is not None and offset < before:
            self._note_rewind(at_ms, before - offset, offset)
        if before != offset:
            self.window.append(WindowCommit(at_ms, offset, lag))
        self.was_at_end = not lag
        if before != offset or not lag or not self.still_looks:
            self.still_looks, self.still_from = 0, end_offset
        self.still_looks += 1
        return self.still_looks >= WINDOW_COMMITS and end_offset > self.still_from

    def _note_rewind(self, at_ms: int, by: int, to: int) -> None:
        row = self.rewind = self.rewind or {"count": 0, "first_ms": at_ms, "by": 0}
        row |= {"count": row["count"] + 1, "last_ms": at_ms}
        if by > row["by"]:
            row |= {"by": by, "to": to}


class LagWatch:
    """Lag over repeated snapshots, with the changes of committed offsets that they show."""

    def __init__(self, next_record_ms: Callable[[Row], int | None]) -> None:
        self._next_record_ms = next_record_ms
        self.offsets: dict[Place, WatchedOffset] = defaultdict(WatchedOffset)

    def take(self, snapshot: Snapshot, group_ids: Collection[str] = ()) -> list[Row]:
        """Return the lag of a snapshot: rows of :func:`lag_rows` with state, time lag and status."""
        found = [
            row | self._judged(row, snapshot)
            for row in lag_rows(snapshot)
            if not group_ids or row["group_id"] in group_ids
        ]
        self._forget({_place(row) for row in found}, snapshot)
        return found

    def _forget(self, seen: Collection[Place], snapshot: Snapshot) -> None:
        for place in [place for place in self.offsets if place not in seen]:
            group = snapshot.groups.get(place[0])
            if place[0] not in snapshot.missing if group is None else group.offsets is not None:
                del self.offsets[place]

    def _judged(self, row: Row, snapshot: Snapshot) -> Row:
        group = snapshot.groups[row["group_id"]]
        lag_ms = row["lag"]
        if lag_ms:
            written_ms = self._next_record_ms(row)
            lag_ms = None if written_ms is None else max(row["at_ms"] - written_ms, 0)
        has_owner = None if group.described is None else row["member_id"] is not None
        status = self._status(row, lag_ms, snapshot.at_ms, has_owner)
        return {"state": group.state, "lag_ms": lag_ms, "status": status.label}

    def _status(self, row: Row, lag_ms: int | None, now_ms: int, has_owner: bool | None) -> LagStatus:
        offset, lag = row["committed_offset"], row["lag"]
        log, seen = PartitionEnd(row.get("log_start_offset"), row["end_offset"]), Evidence()
        if offset is not None and lag is not None and log.end is not None:
            watched = self.offsets[_place(row)]
            was_at_end = watched.was_at_end
            is_stuck = watched.take(now_ms, offset, lag, log.end)
            seen = Evidence(watched.window, now_ms, was_at_end, has_owner, is_stuck)
        return lag_status(offset, log, lag, lag_ms, seen)


def _place(row: Row) -> Place:
    return row["group_id"], row["topic"], row["topic_partition"]


def worst_first(lags: Iterable[Row]) -> list[Row]:
    return sorted(lags, key=_order)


def _order(row: Row) -> tuple[int, int, int, Place]:
    severity = WORST_FIRST.index(LagStatus.of(row["status"]))
    return severity, -(row["lag_ms"] or 0), -(row["lag"] or 0), _place(row)


def problems_of(snapshot: Snapshot, group_ids: Collection[str]) -> Iterator[str]:
    """Yield the gaps of a snapshot about groups, or about all groups if none are given."""
    for one in snapshot.problems:
        kind, _, name = one.subject.partition(" ")
        if kind != "group" or not group_ids or name in group_ids:
            yield f"{one.subject}: {one.text}"


def unknown_groups(snapshot: Snapshot, group_ids: Collection[str]) -> list[str]:
    return sorted(set(group_ids) - set(snapshot.groups) - snapshot.missing)
