"""How far groups are behind at this moment, the worst first: what ``groupcoord lag`` shows, from snapshots alone.

One look tells how far and for how long; statuses that are about commits over time (Burrow's) need several.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Callable, Collection, Iterator, Mapping

from attrs import frozen

from groupcoord.analysis.history.lag import WINDOW_COMMITS, LagStatus, WindowCommit, partition_status
from groupcoord.analysis.history.views import MemberView
from groupcoord.analysis.live.snapshots import GroupSnapshot, Snapshot
from groupcoord.analysis.polling.rows import Row, lag_rows
from groupcoord.analysis.polling.views import view_of

LOST = "LOST"
NO_OWNER = "NO OWNER"
BEHIND = "BEHIND"
UNKNOWN = "UNKNOWN"

_WORST_FIRST = (
    LOST,
    LagStatus.STOP.name,
    LagStatus.STALL.name,
    NO_OWNER,
    LagStatus.REWIND.name,
    LagStatus.WARN.name,
    BEHIND,
    UNKNOWN,
    LagStatus.OK.name,
)

Place = tuple[str, str, int]


@frozen
class PartitionLag:
    """How far a group is behind in a partition.

    Attributes:
        group_id: the group.
        state: of the group, as Kafka calls it; None if that isn't told.
        topic: the topic.
        topic_partition: the topic's partition.
        committed_offset: the next offset to read.
        end_offset: where the log ends; None if that isn't told.
        lag: records behind; None likewise.
        lag_ms: how old the next record to read is; None if that can't be told.
        status: ``LOST``: the log begins behind the committed offset. ``NO OWNER``: there is something to read, and no
            member has the partition. After several looks one of Burrow's, ``STOP``, ``STALL``, ``REWIND`` or ``WARN``;
            before, ``BEHIND``. ``OK``. ``UNKNOWN``: the end isn't told.
        member_id: the member that has the partition; None if nobody has.
        client_id: what its client calls itself.
        client_host: where it connects from.
    """

    group_id: str
    state: str | None
    topic: str
    topic_partition: int
    committed_offset: int
    end_offset: int | None
    lag: int | None
    lag_ms: int | None
    status: str
    member_id: str | None
    client_id: str | None
    client_host: str | None


@frozen
class Rewinds:
    """How often an offset was lower than the look before, when, and the furthest: by how much, and to where."""

    count: int
    first_ms: int
    last_ms: int
    by: int
    to: int


class LagWatch:
    """Looks at groups again and again, and remembers which commits the snapshots have shown.

    Args:
        next_record_ms: returns when the next record of a partition was written that a row of ``lag`` is about, in
            milliseconds since 1970; None if that can't be told.

    Attributes:
        windows: by group, topic and partition, the last offsets that were others than the look before.
        rewinds: those that went back.
    """

    def __init__(self, next_record_ms: Callable[[Row], int | None]) -> None:
        self._next_record_ms = next_record_ms
        self.windows: dict[Place, deque[WindowCommit]] = defaultdict(lambda: deque(maxlen=WINDOW_COMMITS))
        self.rewinds: dict[Place, Rewinds] = {}
        self._at_end: set[Place] = set()

    def take(self, snapshot: Snapshot, group_ids: Collection[str] = ()) -> list[PartitionLag]:
        """Return how far groups are behind, the worst first.

        Args:
            snapshot: what a look has shown.
            group_ids: of these groups alone; none given: of all.
        """
        owners = {group_id: _owners(group) for group_id, group in snapshot.groups.items()}
        found = [
            self._of(row, snapshot, owners[row["group_id"]])
            for row in lag_rows(snapshot)
            if not group_ids or row["group_id"] in group_ids
        ]
        self._forget({(one.group_id, one.topic, one.topic_partition) for one in found}, snapshot)
        return sorted(found, key=_order)

    def _forget(self, seen: Collection[Place], snapshot: Snapshot) -> None:
        """Forget the offsets that are gone; a group that did not tell them may have them still."""
        for place in [place for place in self.windows if place not in seen]:
            group = snapshot.groups.get(place[0])
            if place[0] not in snapshot.missing if group is None else group.offsets is not None:
                del self.windows[place]
                self.rewinds.pop(place, None)
                self._at_end.discard(place)

    def _of(self, row: Row, snapshot: Snapshot, owners: Mapping[tuple[str, int], MemberView]) -> PartitionLag:
        group = snapshot.groups[row["group_id"]]
        owner = owners.get((row["topic"], row["topic_partition"]))
        lag = row.get("lag")
        return PartitionLag(
            row["group_id"],
            (group.listed.state or None) if group.described is None else group.described.state,
            row["topic"],
            row["topic_partition"],
            row["committed_offset"],
            row.get("end_offset"),
            lag,
            self._lag_ms(row) if lag else None if lag is None else 0,
            self._status(row, snapshot.at_ms, has_owner=owner is not None or group.described is None),
            None if owner is None else owner.member_id,
            None if owner is None else owner.client_id,
            None if owner is None else owner.client_host,
        )

    def _lag_ms(self, row: Row) -> int | None:
        written_ms = self._next_record_ms(row)
        return None if written_ms is None else max(row["at_ms"] - written_ms, 0)

    def _status(self, row: Row, now_ms: int, *, has_owner: bool) -> str:
        lag, place = row.get("lag"), (row["group_id"], row["topic"], row["topic_partition"])
        if lag is None:
            return UNKNOWN
        window, offset = self.windows[place], row["committed_offset"]
        if window and offset < window[-1].committed_offset:
            self._note_rewind(place, now_ms, window[-1].committed_offset - offset, offset)
        if not window or window[-1].committed_offset != offset:
            window.append(WindowCommit(now_ms, offset, lag))
        was_at_end = place in self._at_end
        (self._at_end.discard if lag else self._at_end.add)(place)
        if row["is_lost"]:
            return LOST
        status = partition_status(window, lag, now_ms, was_at_end=was_at_end)
        if status is not LagStatus.OK and (has_owner or status is LagStatus.STOP):
            return status.name
        if lag and not has_owner:
            return NO_OWNER
        return BEHIND if lag and len(window) < 2 else LagStatus.OK.name

    def _note_rewind(self, place: Place, at_ms: int, by: int, to: int) -> None:
        before = self.rewinds.get(place, Rewinds(0, at_ms, at_ms, 0, to))
        furthest = (by, to) if by > before.by else (before.by, before.to)
        self.rewinds[place] = Rewinds(before.count + 1, before.first_ms, at_ms, *furthest)


def _owners(group: GroupSnapshot) -> dict[tuple[str, int], MemberView]:
    """Return which member has which partition."""
    if group.described is None:
        return {}
    members = view_of(group.type, group.described, by_name=True).members.values()
    return {place: member for member in members for place in member.held}


def _order(one: PartitionLag) -> tuple[int, int, int, str, str, int]:
    """Return by what the worst come first."""
    severity = _WORST_FIRST.index(one.status)
    return severity, -(one.lag_ms or 0), -(one.lag or 0), one.group_id, one.topic, one.topic_partition


def problems_of(snapshot: Snapshot, group_ids: Collection[str]) -> Iterator[str]:
    """Yield what a look doesn't tell of groups, in lines; of all groups if none are given."""
    for one in snapshot.problems:
        kind, _, name = one.subject.partition(" ")
        if kind != "group" or not group_ids or name in group_ids:
            yield f"{one.subject}: {one.text}"
    for group_id in sorted(set(group_ids) - set(snapshot.groups)):
        yield f"group {group_id}: there is no such group"
