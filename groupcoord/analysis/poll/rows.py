"""Views of groups in snapshots, and the rows of the tables made from them. Values that snapshots lack are null."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping

from attrs import define, evolve, field, frozen

from groupcoord.analysis.fold.history.causes import UNKNOWN, Explanation, explain_difference
from groupcoord.analysis.fold.history.rows import (
    CLASSIC,
    CONSUMER,
    HOLDER,
    NO_PARTITIONS,
    SHARE,
    STREAMS,
    GroupView,
    MemberView,
    Row,
    TopicPartitions,
    decode_partitions,
    decode_subscription,
    fields_of,
    member_row,
    subscribed,
)
from groupcoord.analysis.live.cluster import CommittedOffset, DescribedGroup
from groupcoord.analysis.live.offsets import PartitionEnds
from groupcoord.analysis.live.snapshots import GroupSnapshot, Snapshot
from groupcoord.analysis.report.data.groups import CommitCount, RebalancesOfGroup
from groupcoord.analysis.rules.lag import Behind, distance
from groupcoord.analysis.rules.statuses import PartitionEnd, known_offset, records_behind
from groupcoord.core.consumer_protocol import CONSUMER_PROTOCOL_TYPE
from groupcoord.schema.engine import Values, uuid_text

NO_GENERATION = -1


def view_of(group_type: str, described: DescribedGroup, *, by_name: bool = False) -> GroupView:
    """Return the view of a described group, with topics by name or by id."""
    if group_type == CLASSIC:
        is_consumer = described.protocol_type == CONSUMER_PROTOCOL_TYPE
        members = [_classic_member(one, is_consumer) for one in described.members]
    elif group_type == STREAMS:
        topics = {} if not by_name else described.subtopologies
        members = [_streams_member(one, topics) for one in described.members]
    else:
        members = [_consumer_member(one, by_name) for one in described.members]
    return GroupView(
        group_type,
        NO_GENERATION if described.group_epoch is None else described.group_epoch,
        described.protocol_type or None,
        described.protocol,
        members={member.member_id: member for member in members},
    )


def nothing_like(view: GroupView) -> GroupView:
    """Return the view of a group before its first member, or after its deletion."""
    generation = NO_GENERATION if view.group_type == CLASSIC else view.generation
    return GroupView(view.group_type, generation)


def topic_names(described: DescribedGroup) -> dict[str, str]:
    """Return the names of the topics of members' assignments, by id."""
    return {uuid_text(one["topic_id"].bytes): one["topic_name"] for one in _topics_of_members(described)}


def topics_of(group: GroupSnapshot) -> frozenset[str]:
    if group.described is None:
        return frozenset()
    members = view_of(group.type, group.described, by_name=True).members.values()
    return frozenset(topic for member in members for topic, _ in member.assigned | member.held)


def owners_of(group: GroupSnapshot) -> dict[tuple[str, int], MemberView]:
    """Return the owner of each partition, the first of several; empty if members are unknown."""
    if group.described is None:
        return {}
    owners: dict[tuple[str, int], MemberView] = {}
    for member in view_of(group.type, group.described, by_name=True).members.values():
        for place in sorted(member.held):
            owners.setdefault(place, member)
    return owners


def _topics_of_members(described: DescribedGroup) -> Iterator[Values]:
    for member in described.members:
        for name in ("assignment", "target_assignment"):
            yield from member[name]["topic_partitions"] if name in member else ()


def _bare_member(values: Values, instance_id: str = "instance_id") -> MemberView:
    return MemberView(values["member_id"], values.get(instance_id), values["client_id"], values["client_host"])


def _classic_member(values: Values, is_consumer: bool) -> MemberView:
    metadata = values["member_metadata"]
    assigned = decode_partitions(values["member_assignment"]) if is_consumer else NO_PARTITIONS
    return evolve(
        _bare_member(values, "group_instance_id"),
        assigned=assigned,
        held=assigned,
        metadata=metadata,
        **(decode_subscription(metadata) if is_consumer and metadata else {}),
    )


def _consumer_member(values: Values, by_name: bool) -> MemberView:
    held = _partitions(values["assignment"], by_name)
    return evolve(
        _bare_member(values),
        topics=frozenset(values["subscribed_topic_names"]),
        topic_regex=values.get("subscribed_topic_regex") or None,
        rack_id=values["rack_id"],
        assigned=_partitions(values["target_assignment"], by_name) if "target_assignment" in values else held,
        held=held,
        epoch=values["member_epoch"],
    )


def _streams_member(values: Values, topics: Mapping[str, tuple[str, ...]]) -> MemberView:
    held = values["assignment"]
    return evolve(
        _bare_member(values),
        topics=frozenset(),
        rack_id=values["rack_id"],
        assigned=_tasks(values["target_assignment"]["active_tasks"], topics),
        held=_tasks(held["active_tasks"], topics),
        epoch=values["member_epoch"],
        standby=_tasks(held["standby_tasks"], topics),
        warmup=_tasks(held["warmup_tasks"], topics),
    )


def _tasks(tasks: Iterable[Values], topics: Mapping[str, tuple[str, ...]]) -> TopicPartitions:
    """Return tasks by subtopology, or by the names of its source topics."""
    return frozenset(
        (name, partition)
        for one in tasks
        for name in topics.get(one["subtopology_id"], (one["subtopology_id"],))
        for partition in one["partitions"]
    )


def _partitions(assignment: Values, by_name: bool) -> TopicPartitions:
    return frozenset(
        (one["topic_name"] if by_name else uuid_text(one["topic_id"].bytes), partition)
        for one in assignment["topic_partitions"]
        for partition in one["partitions"]
    )


Epochs = tuple[GroupView, int | None]
_NO_PLACE = {"log_partition": None, "log_offset": None}


def group_rows(snapshot: Snapshot) -> Iterator[Row]:
    for group in snapshot.groups.values():
        described, listed = group.described, group.listed
        view = None if described is None else view_of(group.type, described)
        protocol_type = listed.protocol_type if described is None else described.protocol_type
        yield {
            "group_id": group.group_id,
            "type": group.type,
            "state": group.state,
            "generation_or_epoch": None if described is None else described.group_epoch,
            "member_count": None if view is None else len(view.members),
            "protocol_type": protocol_type,
            "protocol": None if described is None else described.protocol,
            "assignment_epoch": None if described is None else described.assignment_epoch,
            "subscribed_topics": None if view is None else subscribed(view),
            "offset_count": None if group.offsets is None else len(group.offsets),
            "polled_ms": snapshot.at_ms,
        }


def member_rows(snapshot: Snapshot) -> Iterator[Row]:
    for group in snapshot.groups.values():
        if group.described is not None:
            view = view_of(group.type, group.described)
            names = topic_names(group.described) if group.type in (CONSUMER, SHARE) else {}
            for member in view.members.values():
                row = member_row(view, member, names)
                epoch = {"generation": group.described.group_epoch, "pending": None, "is_leader": None}
                yield {"group_id": group.group_id, **row, **epoch, **_NO_PLACE, "polled_ms": snapshot.at_ms}


def offset_rows(snapshot: Snapshot) -> Iterator[Row]:
    for group in snapshot.groups.values():
        yield from _offset_rows(group, snapshot.at_ms)


def _offset_rows(group: GroupSnapshot, at_ms: int) -> Iterator[Row]:
    for one in group.offsets or ():
        yield {
            "group_id": group.group_id,
            "topic": one.topic,
            "topic_partition": one.partition,
            "committed_offset": one.offset,
            "leader_epoch": one.leader_epoch,
            "metadata": one.metadata,
            "polled_ms": at_ms,
        }


def lag_rows(snapshot: Snapshot) -> Iterator[Row]:
    """Yield rows of ``lag``, without time lag and status, for committed offsets and for partitions with an owner but no
    commit.
    """
    ends = {(one.topic, one.topic_partition): one for one in snapshot.ends}
    topics = {topic for topic, partition in ends if partition is not None}
    for group_id, group in snapshot.groups.items():
        owners = owners_of(group)
        rows = {(row["topic"], row["topic_partition"]): row for row in _offset_rows(group, snapshot.at_ms)}
        lags = {(one.topic, one.partition): one.lag for one in group.offsets or () if one.lag is not None}
        # With unknown offsets, missing commits are unknown too.
        missing = [] if group.offsets is None else sorted(owners.keys() - rows.keys())
        # A task of a streams group has a partition of each source topic, of which some have fewer.
        missing = [place for place in missing if place in ends or place[0] not in topics]
        for topic, partition in (*rows, *missing):
            place = {"group_id": group_id, "topic": topic, "topic_partition": partition}
            row = rows.get((topic, partition), place | {"committed_offset": None, "polled_ms": snapshot.at_ms})
            owner = owners.get((topic, partition))
            held = dict.fromkeys(HOLDER) if owner is None else fields_of(owner, *HOLDER)
            end = ends.get((topic, partition))
            lag = _lag(row["committed_offset"], end, lags.get((topic, partition)))
            yield row | lag | held | {"members": None if group.described is None else len(group.described.members)}


def _lag(committed_offset: int | None, end: PartitionEnds | None, lag: int | None) -> Row:
    offset = known_offset(committed_offset)
    if end is None:
        return {"committed_offset": offset, "end_offset": None, "lag": None}
    start = end.log_start_offset
    if lag is None:
        lag = records_behind(offset, PartitionEnd(start, end.end_offset))
    return {"committed_offset": offset, "log_start_offset": start} | distance(offset, Behind(end._asdict(), lag))


def problem_rows(snapshot: Snapshot) -> Iterator[Row]:
    for one in snapshot.problems:
        yield {"polled_ms": snapshot.at_ms, "subject": one.subject, "problem": one.text}


def poll_row(snapshot: Snapshot) -> Row:
    return {
        "polled_ms": snapshot.at_ms,
        "asked_ms": snapshot.asked_ms,
        "groups": len(snapshot.groups),
        "problems": len(snapshot.problems),
        "is_whole": snapshot.is_whole,
    }


def rebalance_row(
    group_id: str, before: GroupView | None, after: GroupView | None, explanation: Explanation, at_ms: int
) -> Row:
    assert after is not None
    missing = 0
    if before is not None and before.group_type == after.group_type == CONSUMER:
        missing = max(after.generation - before.generation - 1, 0)
    return {
        "group_id": group_id,
        "type": after.group_type,
        "from_generation": _generation(before),
        "to_generation": _generation(after),
        "conversion": None if before is None else _conversion(before, after),
        **explanation.row(),
        "member_count": len(after.members),
        "missing_generations": missing,
        "polled_ms": at_ms,
    }


def _generation(view: GroupView | None) -> int | None:
    return None if view is None or view.group_type == CLASSIC else view.generation


def _conversion(before: GroupView, after: GroupView) -> str | None:
    if before.group_type == after.group_type:
        return None
    return "upgrade" if before.group_type == CLASSIC else "downgrade"


def epoch_rows(group_id: str, before: Epochs | None, after: Epochs, at_ms: int) -> Iterator[Row]:
    """Yield rows of ``epochs`` for changes; for everything the first time."""
    old_view, old_target = (None, None) if before is None else before
    view, target = after
    columns = {"group_id": group_id, "group_epoch": view.generation, "target_epoch": target, "polled_ms": at_ms}
    if old_view is None or old_view.generation != view.generation:
        yield columns | {"whose": "group"}
    if old_view is None or old_target != target:
        yield columns | {"whose": "target"}
    old = {} if old_view is None else _epochs_of(old_view)
    new = _epochs_of(view)
    for member_id in sorted(old.keys() | new.keys()):
        if old.get(member_id) != new.get(member_id):
            held: Collection[object] = view.members[member_id].held if member_id in new else ()
            epoch = new.get(member_id)
            yield columns | {"whose": "member", "member_id": member_id, "member_epoch": epoch, "partitions": len(held)}


def _epochs_of(view: GroupView) -> Mapping[str, int]:
    return {member.member_id: member.epoch for member in view.members.values()}


GONE_MAX = 1_000
"""Maximum number of deleted groups in totals."""

_SETTLED = frozenset({"Stable", "Empty"})
_NOTHING_BEFORE = "what was before it was not seen"
_UNDER_WAY = "it was under way when the group was asked for last"


@define
class GroupFigures:
    """Totals of a group; ``commits`` counts changed offsets."""

    type: str
    rebalances: RebalancesOfGroup = field(factory=RebalancesOfGroup)
    commits: CommitCount = field(factory=CommitCount)


@frozen
class Changes:
    """Changes that a poll shows: rows of ``rebalances`` and ``epochs``."""

    rebalances: tuple[Row, ...]
    epochs: tuple[Row, ...]


@define
class _Known:
    """The last known state of a group.

    Attributes:
        settled: the last view outside a rebalance; None before.
        settled_ms: start of its poll; None before.
        opened_ms: first sight of an unfinished rebalance, or None.
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
        return frozenset(self._known)

    def take(self, snapshot: Snapshot) -> Changes:
        """Return the changes since the last snapshot."""
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
        return [
            rebalance_row(group_id, known.settled, known.latest, _unexplained(_UNDER_WAY), at_ms)
            | {"started_after_ms": known.settled_ms, "started_ms": known.opened_ms}
            for group_id, known in self._known.items()
            if known.opened_ms is not None and known.latest is not None
        ]

    def figures(self) -> dict[str, GroupFigures]:
        """Return the totals of each group, including deleted ones."""
        return self._gone | {group_id: known.figures for group_id, known in self._known.items()}

    def _of(self, group: GroupSnapshot) -> _Known:
        known = self._known.get(group.group_id)
        if known is None:
            known = self._known[group.group_id] = _Known(self._gone.pop(group.group_id, GroupFigures(group.type)))
        known.figures.type = group.type
        return known

    def _take_offsets(self, known: _Known, group: GroupSnapshot, at_ms: int) -> None:
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
        if not is_settled:
            known.opened_ms = snapshot.at_ms if known.opened_ms is None else known.opened_ms
            return
        before = known.settled
        if known.opened_ms is not None or (before is not None and _differs(before, view)):
            yield self._completed(group_id, known, view, snapshot.at_ms)
        known.settled, known.settled_ms, known.opened_ms = view, snapshot.asked_ms, None

    def _completed(self, group_id: str, known: _Known, view: GroupView, at_ms: int) -> Row:
        before = known.settled
        explanation = _unexplained(_NOTHING_BEFORE) if before is None else explain_difference(before, view)
        row = rebalance_row(group_id, before, view, explanation, at_ms)
        row |= {"started_after_ms": known.settled_ms, "started_ms": known.opened_ms, "ended_ms": at_ms}
        known.figures.rebalances.add(row)
        return row

    def _bury(self, group_id: str, snapshot: Snapshot) -> Iterator[Row]:
        """Remove a deleted group; yield the rebalance that removed its last members."""
        known = self._known[group_id]
        if known.latest is not None and (known.opened_ms is not None or (known.settled and known.settled.members)):
            yield self._completed(group_id, known, nothing_like(known.latest), snapshot.at_ms)
        del self._known[group_id]
        self._gone[group_id] = known.figures
        if len(self._gone) > GONE_MAX:
            del self._gone[next(iter(self._gone))]


def _differs(before: GroupView, after: GroupView) -> bool:
    if before.group_type != after.group_type or before.generation != after.generation:
        return True
    if before.group_type == CONSUMER:
        return False
    return before.protocol != after.protocol or {
        member.member_id: (member.metadata, member.assigned) for member in before.members.values()
    } != {member.member_id: (member.metadata, member.assigned) for member in after.members.values()}


def _unexplained(evidence: str) -> Explanation:
    return Explanation(UNKNOWN, [UNKNOWN], 0.0, [], [], 0, [evidence])
