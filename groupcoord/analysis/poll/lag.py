"""Lag of groups from snapshots of a running cluster, for ``groupcoord lag`` and ``analyze --poll``.

Statuses about commits over time need several snapshots.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from operator import attrgetter
from typing import NamedTuple

from attrs import frozen

from groupcoord.analysis.fold.history.rows import Row, grouped
from groupcoord.analysis.live.snapshots import GroupSnapshot, Snapshot
from groupcoord.analysis.options import WINDOW_COMMITS
from groupcoord.analysis.poll.rows import (
    lag_rows,
    view_of,
)
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


@frozen
class PartitionLag:
    """Lag of a group in a partition; None stands for unknown, or for no owner or commit.

    Attributes:
        state: Kafka's state of the group.
        lag: None also with records but no offset.
        lag_ms: age of the next record in milliseconds.
        status: the label of a :class:`groupcoord.analysis.rules.statuses.LagStatus`.
    """

    group_id: str
    state: str | None
    topic: str
    topic_partition: int
    committed_offset: int | None
    end_offset: int | None
    lag: int | None
    lag_ms: int | None
    status: str
    member_id: str | None
    client_id: str | None
    client_host: str | None
    members: int | None = None


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


def group_lags(snapshot: Snapshot, lags: Iterable[PartitionLag], group_ids: Collection[str] = ()) -> list[GroupLag]:
    by_group = grouped(lags, attrgetter("group_id"))
    wanted = [group for group_id, group in snapshot.groups.items() if not group_ids or group_id in group_ids]
    return sorted((_group_lag(group, by_group.get(group.group_id, ())) for group in wanted), key=_group_order)


def _group_lag(group: GroupSnapshot, rows: Sequence[PartitionLag]) -> GroupLag:
    status = worst_status(one.status for one in rows) if group.offsets is not None else LagStatus.UNKNOWN
    known = [one.lag for one in rows if one.lag is not None]
    ages = [one.lag_ms for one in rows if one.lag_ms is not None]
    told = []
    if group.offsets is None:
        told.append("its offsets are not known")
    elif status.sentence:
        worst, *others = (one for one in rows if one.status == status.label)
        more = f" and {len(others):,} more {'partition' if len(others) == 1 else 'partitions'}" if others else ""
        told.append(status.sentence.format(f"{worst.topic}-{worst.topic_partition}{more}"))
    elif not rows:
        told.append("nothing is committed")
    members = None if group.described is None else len(group.described.members)
    idle = _idle_members(group)
    if idle:
        told.append(f"{idle:,} of {members:,} members have no partition")
    wrong = "; ".join(told)
    return GroupLag(
        group.group_id,
        (group.listed.state or None) if group.described is None else group.described.state,
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


class _Unmoved(NamedTuple):
    looks: int
    end_offset: int


class LagWatch:
    """Lag over repeated snapshots, with the commits that they show.

    Attributes:
        windows: the last changed offsets by group, topic and partition.
        rewinds: number and times of decreasing offsets, and the largest decrease.
    """

    def __init__(self, next_record_ms: Callable[[Row], int | None]) -> None:
        self._next_record_ms = next_record_ms
        self.windows: dict[Place, deque[WindowCommit]] = defaultdict(lambda: deque(maxlen=WINDOW_COMMITS))
        self.rewinds: dict[Place, Row] = {}
        self._at_end: set[Place] = set()
        self._unmoved: dict[Place, _Unmoved] = {}

    def take(self, snapshot: Snapshot, group_ids: Collection[str] = ()) -> list[PartitionLag]:
        """Return the lag of a snapshot, the worst first."""
        wanted = (row for row in lag_rows(snapshot) if not group_ids or row["group_id"] in group_ids)
        found = [self._of(row, snapshot) for row in wanted]
        self._forget({(one.group_id, one.topic, one.topic_partition) for one in found}, snapshot)
        return sorted(found, key=_order)

    def _forget(self, seen: Collection[Place], snapshot: Snapshot) -> None:
        for place in [place for place in self.windows if place not in seen]:
            group = snapshot.groups.get(place[0])
            if place[0] not in snapshot.missing if group is None else group.offsets is not None:
                del self.windows[place]
                self.rewinds.pop(place, None)
                self._at_end.discard(place)
                self._unmoved.pop(place, None)

    def _of(self, row: Row, snapshot: Snapshot) -> PartitionLag:
        group = snapshot.groups[row["group_id"]]
        lag = row.get("lag")
        lag_ms = lag
        if lag:
            written_ms = self._next_record_ms(row)
            lag_ms = None if written_ms is None else max(row["at_ms"] - written_ms, 0)
        has_owner = None if group.described is None else row["member_id"] is not None
        return PartitionLag(
            row["group_id"],
            (group.listed.state or None) if group.described is None else group.described.state,
            row["topic"],
            row["topic_partition"],
            row["committed_offset"],
            row.get("end_offset"),
            lag,
            lag_ms,
            self._status(row, lag_ms, snapshot.at_ms, has_owner).label,
            row["member_id"],
            row["client_id"],
            row["client_host"],
            row["members"],
        )

    def _status(self, row: Row, lag_ms: int | None, now_ms: int, has_owner: bool | None) -> LagStatus:
        lag, place = row.get("lag"), (row["group_id"], row["topic"], row["topic_partition"])
        offset, log = row["committed_offset"], PartitionEnd(row.get("log_start_offset"), row.get("end_offset"))
        if offset is None or lag is None or log.end is None:
            return lag_status(offset, log, lag, lag_ms, Evidence())
        window = self.windows[place]
        is_moved = not window or window[-1].committed_offset != offset
        if window and offset < window[-1].committed_offset:
            self._note_rewind(place, now_ms, window[-1].committed_offset - offset, offset)
        if is_moved:
            window.append(WindowCommit(now_ms, offset, lag))
        was_at_end = place in self._at_end
        (self._at_end.discard if lag else self._at_end.add)(place)
        is_stuck = self._is_stuck(place, log.end, is_moved=is_moved or not lag)
        return lag_status(offset, log, lag, lag_ms, Evidence(window, now_ms, was_at_end, has_owner, is_stuck))

    def _is_stuck(self, place: Place, end_offset: int, *, is_moved: bool) -> bool:
        """Count a snapshot; return whether a window of them shows no progress while the end increased."""
        before = None if is_moved else self._unmoved.get(place)
        now = _Unmoved(1, end_offset) if before is None else before._replace(looks=before.looks + 1)
        self._unmoved[place] = now
        return now.looks >= WINDOW_COMMITS and end_offset > now.end_offset

    def _note_rewind(self, place: Place, at_ms: int, by: int, to: int) -> None:
        row = self.rewinds.setdefault(place, {"count": 0, "first_ms": at_ms, "by": 0})
        row |= {"count": row["count"] + 1, "last_ms": at_ms}
        if by > row["by"]:
            row |= {"by": by, "to": to}


def _order(one: PartitionLag) -> tuple[int, int, int, str, str, int]:
    severity = WORST_FIRST.index(LagStatus.of(one.status))
    return severity, -(one.lag_ms or 0), -(one.lag or 0), one.group_id, one.topic, one.topic_partition


def problems_of(snapshot: Snapshot, group_ids: Collection[str]) -> Iterator[str]:
    """Yield the gaps of a snapshot about groups, or about all groups if none are given."""
    for one in snapshot.problems:
        kind, _, name = one.subject.partition(" ")
        if kind != "group" or not group_ids or name in group_ids:
            yield f"{one.subject}: {one.text}"


def unknown_groups(snapshot: Snapshot, group_ids: Collection[str]) -> list[str]:
    return sorted(set(group_ids) - set(snapshot.groups) - snapshot.missing)
