"""What changed in groups from one snapshot to the next.

A poll sees states and not events. Of what happened between two polls it shows what came of it: a rebalance that ended
as it began can't be seen in a classic group, whose generation no answer tells; in a consumer group its epoch shows it.
"""

from __future__ import annotations

from collections.abc import Iterator

from attrs import define, evolve, field, frozen

from groupcoord.analysis.fold.history.causes import UNKNOWN, Explanation, explain_difference
from groupcoord.analysis.fold.history.rows import CLASSIC, CONSUMER, GroupView
from groupcoord.analysis.live.cluster import CommittedOffset
from groupcoord.analysis.live.snapshots import GroupSnapshot, Snapshot
from groupcoord.analysis.poll.rows import Row, epoch_rows, nothing_like, rebalance_row, view_of
from groupcoord.analysis.report.data.groups import CommitCount
from groupcoord.analysis.report.data.rebalances import RebalancesOfGroup

GONE_MAX = 1_000
"""Of so many groups that are gone the figures are kept."""

_SETTLED = frozenset({"Stable", "Empty"})
"""States in which no rebalance is under way."""

_NOTHING_BEFORE = "what was before it was not seen"


@define
class GroupFigures:
    """What was seen of a group so far.

    Attributes:
        type: of the group.
        rebalances: what they came to.
        commits: how often an offset was another than the poll before, and when last.
    """

    type: str
    rebalances: RebalancesOfGroup = field(factory=RebalancesOfGroup)
    commits: CommitCount = field(factory=CommitCount)


@frozen
class Changes:
    """What a poll shows to be new: rows of the tables ``rebalances`` and ``epochs``."""

    rebalances: tuple[Row, ...]
    epochs: tuple[Row, ...]


@define
class _Known:
    """A group as it was seen last.

    Attributes:
        settled: the last time that no rebalance was under way; None: never yet.
        settled_ms: before that was asked; None likewise.
        opened_ms: when a rebalance was seen first that is under way; None: there is none.
        latest: the last time at all.
        assignment_epoch: of the target assignment.
        offsets: by topic and partition.
        figures: see there.
    """

    figures: GroupFigures
    settled: GroupView | None = None
    settled_ms: int | None = None
    opened_ms: int | None = None
    latest: GroupView | None = None
    assignment_epoch: int | None = None
    offsets: dict[tuple[str, int], CommittedOffset] | None = None


class PolledGroups:
    """The groups of a cluster over some snapshots."""

    def __init__(self) -> None:
        self._known: dict[str, _Known] = {}
        self._gone: dict[str, GroupFigures] = {}
        self._whole_since_ms: int | None = None

    @property
    def ids(self) -> frozenset[str]:
        """Those that there are."""
        return frozenset(self._known)

    def take(self, snapshot: Snapshot) -> Changes:
        """Take the next snapshot, and return what it shows to be new."""
        rebalances: list[Row] = []
        epochs: list[Row] = []
        for group in snapshot.groups.values():
            is_new = group.group_id not in self._known
            known = self._of(group)
            self._take_offsets(known, group, snapshot.at_ms)
            if group.described is None:
                continue
            view = view_of(group.type, group.described, by_name=True)
            if is_new and self._whole_since_ms is not None:
                known.settled_ms = self._whole_since_ms
                known.settled = evolve(nothing_like(view), generation=view.generation if group.type == CLASSIC else 0)
            if group.type == CONSUMER:
                before = None if known.latest is None else (known.latest, known.assignment_epoch)
                epochs += epoch_rows(group.group_id, before, (view, group.described.assignment_epoch), snapshot.at_ms)
            known.latest, known.assignment_epoch = view, group.described.assignment_epoch
            rebalances += self._take_view(group.group_id, known, view, group.described.state in _SETTLED, snapshot)
        for group_id in sorted(self._known.keys() - snapshot.groups.keys() - snapshot.missing):
            rebalances += self._bury(group_id, snapshot)
        self._whole_since_ms = snapshot.asked_ms if snapshot.is_whole else None
        return Changes(tuple(rebalances), tuple(epochs))

    def rebalances_under_way(self, at_ms: int) -> list[Row]:
        """Return rows of the table ``rebalances`` that have no end yet.

        Args:
            at_ms: of the last poll.
        """
        return [
            rebalance_row(group_id, known.settled, known.latest, _explained_not_yet(), at_ms)
            | {"started_after_ms": known.settled_ms, "started_ms": known.opened_ms}
            for group_id, known in self._known.items()
            if known.opened_ms is not None and known.latest is not None
        ]

    def figures(self) -> dict[str, GroupFigures]:
        """Return what was seen of each group, and of those that are gone."""
        return self._gone | {group_id: known.figures for group_id, known in self._known.items()}

    def _of(self, group: GroupSnapshot) -> _Known:
        known = self._known.get(group.group_id)
        if known is None:
            seen_before = self._gone.pop(group.group_id, GroupFigures(group.type))
            known = _Known(seen_before)
            self._known[group.group_id] = known
        known.figures.type = group.type
        return known

    def _take_offsets(self, known: _Known, group: GroupSnapshot, at_ms: int) -> None:
        """Count offsets that are others than the last time."""
        if group.offsets is None:
            return
        found = {(one.topic, one.partition): one._replace(lag=None) for one in group.offsets}
        if known.offsets is not None:
            moved = sum(known.offsets.get(place) != one for place, one in found.items())
            if moved:
                known.figures.commits = CommitCount(known.figures.commits.commits + moved, at_ms)
        known.offsets = found

    def _take_view(
        self, group_id: str, known: _Known, view: GroupView, is_settled: bool, snapshot: Snapshot
    ) -> Iterator[Row]:
        """Yield the row of the rebalance that is over, if one is."""
        if not is_settled:
            known.opened_ms = snapshot.at_ms if known.opened_ms is None else known.opened_ms
            return
        before = known.settled
        if known.opened_ms is not None or (before is not None and _differs(before, view)):
            yield self._completed(group_id, known, view, snapshot.at_ms)
        known.settled, known.settled_ms, known.opened_ms = view, snapshot.asked_ms, None

    def _completed(self, group_id: str, known: _Known, view: GroupView, at_ms: int) -> Row:
        before = known.settled
        if before is None:
            explanation = Explanation(UNKNOWN, [UNKNOWN], 0.0, [], [], 0, [_NOTHING_BEFORE])
        else:
            explanation = explain_difference(before, view)
        row = rebalance_row(group_id, before, view, explanation, at_ms)
        row |= {"started_after_ms": known.settled_ms, "started_ms": known.opened_ms, "ended_ms": at_ms}
        known.figures.rebalances.add(row)
        return row

    def _bury(self, group_id: str, snapshot: Snapshot) -> Iterator[Row]:
        """A group is gone; yield the row of the rebalance that took its last members away, if it had some."""
        known = self._known[group_id]
        if known.latest is not None and (known.opened_ms is not None or (known.settled and known.settled.members)):
            yield self._completed(group_id, known, nothing_like(known.latest), snapshot.at_ms)
        del self._known[group_id]
        self._gone[group_id] = known.figures
        if len(self._gone) > GONE_MAX:
            del self._gone[next(iter(self._gone))]


def _differs(before: GroupView, after: GroupView) -> bool:
    """Tell whether a group has rebalanced for sure between two moments at which it was settled."""
    if before.group_type != after.group_type or before.generation != after.generation:
        return True
    if before.group_type == CONSUMER:
        return False
    return before.protocol != after.protocol or {
        member.member_id: (member.metadata, member.assigned) for member in before.members.values()
    } != {member.member_id: (member.metadata, member.assigned) for member in after.members.values()}


def _explained_not_yet() -> Explanation:
    return Explanation(UNKNOWN, [UNKNOWN], 0.0, [], [], 0, ["it was under way when the group was asked for last"])
