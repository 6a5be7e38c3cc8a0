"""The history of groups, told by :class:`groupcoord.analysis.history.LogHistory`, and the tables that are its rows."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from operator import itemgetter
from typing import Any, NamedTuple
from uuid import UUID

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from groupcoord.analysis.columns.schema import KIND_READ, KIND_RECORD
from groupcoord.analysis.history import GROUP, KINDS, MEMBER, GroupRecord, LogHistory
from groupcoord.analysis.local.arrow import codes, every, flags, integers, is_offset_record, last_rows
from groupcoord.analysis.local.records import HeldRecords
from groupcoord.records.schemas import RecordType

Row = dict[str, Any]
Histories = Mapping[str, list[Row]]
"""By kind (:data:`groupcoord.analysis.history.KINDS`), rows with the group and its log partition."""

Place = tuple[str, str, int]
"""A group, a topic and its partition."""

HOLDER = ("member_id", "client_id", "client_host")
"""What :func:`partition_holders` tells of members."""

_NO_EPOCH = -1
_COMMIT = ("group_id", "topic", "topic_partition", "log_offset", "log_timestamp_ms")


def histories(held: HeldRecords) -> Histories:
    """Return what happened to all groups."""
    found: dict[str, list[Row]] = {kind: [] for kind in KINDS}
    is_group, is_commit = (
        is_group_record(held.records),
        every(is_offset_record(held.records), pc.invert(held.records["tombstone"])),
    )
    needed = held.records.append_column("is_group", is_group).filter(pc.or_(is_group, is_commit))
    spans = held.ranges.filter(
        every(pc.equal(held.ranges["kind"], KIND_READ), pc.is_valid(held.ranges["complete_from"]))
    )
    for partition in pc.unique(needed["log_partition"]).to_pylist():
        history = LogHistory(partition)
        for span in _of(spans, partition).select(["log_offset", "end_offset", "complete_from"]).to_pylist():
            history.add_span(span["log_offset"], span["end_offset"], span["complete_from"])
        _feed(history, _of(needed, partition))
        for row in history.rows():
            found[row.kind].append({"group_id": row.group_id, "log_partition": partition} | row.values)
    return found


def is_group_record(records: pa.Table) -> pa.ChunkedArray:
    """Return where records of groups and members are that were understood."""
    return every(
        pc.equal(records["kind"], KIND_RECORD),
        pc.greater(records["record_type"], int(RecordType.OFFSET_COMMIT)),
        pc.is_null(records["problem"]),
        pc.is_valid(records["group_id"]),
    )


def _of(table: pa.Table, partition: int | None) -> pa.Table:
    column = table["log_partition"]
    return table.filter(pc.is_null(column) if partition is None else every(pc.equal(column, partition)))


def _feed(history: LogHistory, rows: pa.Table) -> None:
    """Give a history the records of one log partition, and the commits that matter, in the order of the log."""
    is_group = flags(rows["is_group"])
    # Between two records of its group a commit belongs to the first: these stretches are numbered, over all groups.
    order = np.lexsort((integers(rows["log_offset"]), codes(rows["group_id"])))
    stretch = np.empty(len(order), np.int64)
    stretch[order] = np.cumsum(is_group[order])
    commits = rows.append_column("stretch", pa.array(stretch)).filter(pc.invert(rows["is_group"]))
    names = commits.filter(pc.is_valid(commits["topic_id"])).group_by(["group_id", "topic_id", "topic"]).aggregate([])
    for name in names.to_pylist():
        history.name_topic(name["group_id"], UUID(bytes=name["topic_id"]), name["topic"])
    entries: list[_Entry] = [*_group_records(rows.filter(rows["is_group"])), *_last_commits(commits)]
    for log_offset, group_id, entry in sorted(entries, key=itemgetter(0)):
        if isinstance(entry, GroupRecord):
            history.add_record(group_id, entry)
        else:
            history.add_commit(group_id, log_offset, entry.timestamp_ms, entry.place)


class _Commit(NamedTuple):
    """A committed offset: when, and of which topic and partition, unless a transaction has it."""

    timestamp_ms: int
    place: tuple[str, int] | None


_Entry = tuple[int, str, GroupRecord | _Commit]
"""Where something lies in the log, and the group that it is about."""


def _group_records(rows: pa.Table) -> Iterator[_Entry]:
    names = ("group_id", "log_offset", "log_timestamp_ms", "key", "value", "partition_leader_epoch")
    columns = (rows[name].to_pylist() for name in names)
    for group_id, log_offset, at_ms, key, value, epoch in zip(*columns, strict=True):
        known_epoch = None if epoch == _NO_EPOCH else epoch
        yield log_offset, group_id, GroupRecord(log_offset, at_ms, key, value, known_epoch)


def _last_commits(commits: pa.Table) -> Iterator[_Entry]:
    """Yield the last commit of each partition in each stretch; of those in transactions the last one at all."""
    plain = commits.filter(pc.invert(commits["is_transactional"]))
    last = last_rows(plain, ("group_id", "stretch", "topic", "topic_partition"))
    for group_id, topic, number, log_offset, at_ms in zip(*(last[name].to_pylist() for name in _COMMIT), strict=True):
        yield log_offset, group_id, _Commit(at_ms, (topic, number))
    last = last_rows(commits.filter(commits["is_transactional"]), ("group_id", "stretch"))
    for group_id, _, _, log_offset, at_ms in zip(*(last[name].to_pylist() for name in _COMMIT), strict=True):
        yield log_offset, group_id, _Commit(at_ms, None)


def groups(found: Histories, current_offsets: pa.Table) -> list[Row]:
    """Return every group as a coordinator that loads the log would describe it.

    The columns are :data:`groupcoord.analysis.columns.group_tables.GROUPS`.

    Args:
        found: what :func:`histories` gives.
        current_offsets: the table of this name.
    """
    by_group = current_offsets.group_by("group_id").aggregate([("commit_timestamp_ms", "max"), ([], "count_all")])
    counts = {row["group_id"]: row for row in by_group.to_pylist()}
    nothing = {"commit_timestamp_ms_max": None, "count_all": 0}
    rows = []
    for row in found[GROUP]:
        counted = counts.get(row["group_id"], nothing)
        rows.append(row | {"last_commit_ms": counted["commit_timestamp_ms_max"], "offset_count": counted["count_all"]})
    return rows


def partition_holders(found: Histories) -> dict[Place, Row]:
    """Return who has which partition as the log ends: one a partition, though several members may claim it."""
    now = {(row["group_id"], row["generation_or_epoch"], row["type"]) for row in found[GROUP]}
    holders: dict[Place, Row] = {}
    for member in found[MEMBER]:
        if (member["group_id"], member["generation"], member["type"]) not in now:
            continue
        holder = {name: member[name] for name in HOLDER}
        for assigned in member["assignment"] or ():
            for partition in assigned["partitions"]:
                place = (member["group_id"], assigned["topic"], partition)
                holders[place] = min(holder, holders.get(place, holder), key=_order)
    return holders


def _order(holder: Row) -> tuple[tuple[bool, Any], ...]:
    return tuple((holder[name] is not None, holder[name]) for name in HOLDER)
