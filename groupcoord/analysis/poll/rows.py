"""Rows of the pipeline's tables, made of what polls tell. What they don't tell is null, as is all that is about a log.

``polled_ms`` marks them: when the poll was over that showed it.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping
from typing import Any

from groupcoord.analysis.fold.history.causes import Explanation
from groupcoord.analysis.fold.history.rows import HOLDER, member_row, subscribed
from groupcoord.analysis.fold.history.views import CLASSIC, CONSUMER, SHARE, GroupView
from groupcoord.analysis.live.end_offsets import PartitionEnds
from groupcoord.analysis.live.snapshots import Snapshot
from groupcoord.analysis.poll.views import owners_of, topic_names, view_of
from groupcoord.analysis.rules.lag_status import PartitionEnd, known_offset, records_behind

Row = dict[str, Any]

Epochs = tuple[GroupView, int | None]
"""A consumer group, and the epoch of its target assignment."""

_NOT_TOLD = {"log_partition": None, "log_offset": None}


def group_rows(snapshot: Snapshot) -> Iterator[Row]:
    """Yield rows of ``groups``."""
    for group in snapshot.groups.values():
        described, listed = group.described, group.listed
        view = None if described is None else view_of(group.type, described)
        protocol_type = listed.protocol_type if described is None else described.protocol_type
        yield {
            "group_id": group.group_id,
            "type": group.type,
            "state": (listed.state or None) if described is None else described.state,
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
    """Yield rows of ``members``: those that there are at this moment."""
    for group in snapshot.groups.values():
        if group.described is not None:
            view = view_of(group.type, group.described)
            names = topic_names(group.described) if group.type in (CONSUMER, SHARE) else {}
            for member in view.members.values():
                row = member_row(view, member, names)
                told = {"generation": group.described.group_epoch, "pending": None, "is_leader": None}
                yield {"group_id": group.group_id, **row, **told, **_NOT_TOLD, "polled_ms": snapshot.at_ms}


def offset_rows(snapshot: Snapshot) -> Iterator[Row]:
    """Yield rows of ``current_offsets``."""
    for group in snapshot.groups.values():
        for one in group.offsets or ():
            yield {
                "group_id": group.group_id,
                "topic": one.topic,
                "topic_partition": one.partition,
                "committed_offset": one.offset,
                "leader_epoch": one.leader_epoch,
                "metadata": one.metadata,
                "polled_ms": snapshot.at_ms,
            }


def _lags_of_share_groups(snapshot: Snapshot) -> dict[tuple[str, str, int], int]:
    """Return how far share groups are behind in partitions, where their coordinators know it."""
    groups = snapshot.groups.values()
    offsets = ((group.group_id, one) for group in groups for one in group.offsets or ())
    return {(group_id, one.topic, one.partition): one.lag for group_id, one in offsets if one.lag is not None}


def lag_rows(snapshot: Snapshot) -> Iterator[Row]:
    """Yield rows of ``lag``, without lag as time and status.

    There is a row for each committed offset, and for each partition that a member has and of which none is committed.
    """
    ends = {(one.topic, one.topic_partition): one for one in snapshot.ends}
    topics = {topic for topic, partition in ends if partition is not None}
    lags = _lags_of_share_groups(snapshot)
    committed: defaultdict[str, dict[tuple[str, int], Row]] = defaultdict(dict)
    for row in offset_rows(snapshot):
        committed[row["group_id"]][row["topic"], row["topic_partition"]] = row
    for group_id, group in snapshot.groups.items():
        owners, rows = owners_of(group), committed[group_id]
        # Of a group that doesn't tell its offsets it isn't known what it has not committed.
        missing = [] if group.offsets is None else sorted(owners.keys() - rows.keys())
        # A task of a streams group has a partition of each source topic, of which some have fewer.
        missing = [place for place in missing if place in ends or place[0] not in topics]
        for topic, partition in (*rows, *missing):
            place = {"group_id": group_id, "topic": topic, "topic_partition": partition}
            row = rows.get((topic, partition), place | {"committed_offset": None, "polled_ms": snapshot.at_ms})
            owner = owners.get((topic, partition))
            held = {name: None if owner is None else getattr(owner, name) for name in HOLDER}
            lag = _lag(row["committed_offset"], ends.get((topic, partition)))
            if "lag" in lag:
                lag["lag"] = lags.get((group_id, topic, partition), lag["lag"])
            yield row | lag | held


def _lag(committed_offset: int | None, end: PartitionEnds | None) -> Row:
    offset = known_offset(committed_offset)
    if end is None:
        return {"committed_offset": offset}
    start = end.log_start_offset
    return {
        "committed_offset": offset,
        "log_start_offset": start,
        "end_offset": end.end_offset,
        "lag": records_behind(offset, PartitionEnd(start, end.end_offset)),
        "at_ms": end.at_ms,
        "lag_stable": records_behind(offset, PartitionEnd(start, end.last_stable_offset)),
        "is_lost": None if start is None or offset is None else offset < start,
    }


def problem_rows(snapshot: Snapshot) -> Iterator[Row]:
    """Yield rows of ``problems``."""
    for one in snapshot.problems:
        yield {"polled_ms": snapshot.at_ms, "subject": one.subject, "problem": one.text}


def poll_row(snapshot: Snapshot) -> Row:
    """Return the row of ``polls``."""
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
    """Return a row of ``rebalances``, but for when it began and ended.

    Args:
        group_id: the group.
        before: the last view before it; None: there is none.
        after: its view after it, or as it is now.
        explanation: what is known of it.
        at_ms: of the poll that shows it.
    """
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
    """Yield rows of ``epochs``: what is other than the last time, all of it the first time.

    Args:
        group_id: a consumer group.
        before: as it was the last time.
        after: as it is now.
        at_ms: when that is.
    """
    old_view, old_target = (None, None) if before is None else before
    view, target = after
    told = {"group_id": group_id, "group_epoch": view.generation, "target_epoch": target, "polled_ms": at_ms}
    if old_view is None or old_view.generation != view.generation:
        yield told | {"whose": "group"}
    if old_view is None or old_target != target:
        yield told | {"whose": "target"}
    old = {} if old_view is None else _epochs_of(old_view)
    new = _epochs_of(view)
    for member_id in sorted(old.keys() | new.keys()):
        if old.get(member_id) != new.get(member_id):
            held: Collection[object] = view.members[member_id].held if member_id in new else ()
            epoch = new.get(member_id)
            yield told | {"whose": "member", "member_id": member_id, "member_epoch": epoch, "partitions": len(held)}


def _epochs_of(view: GroupView) -> Mapping[str, int]:
    return {member.member_id: member.epoch for member in view.members.values()}
