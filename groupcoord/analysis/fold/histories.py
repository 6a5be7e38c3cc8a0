"""The histories of groups out of columns: the records of groups, and of the commits between them those that matter."""

from __future__ import annotations

from collections.abc import Iterator
from operator import itemgetter
from uuid import UUID

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from groupcoord.analysis.decode.commits import OFFSET_TYPES
from groupcoord.analysis.fold.arrow import every, flags, key_codes, last_rows
from groupcoord.analysis.fold.commits import GROUP
from groupcoord.analysis.fold.history import GroupRecord, LastCommit, LogHistory
from groupcoord.records.schemas import RecordType

GroupKey = tuple[int | None, str]
"""A log partition, if it is known, and a group."""

Entry = tuple[GroupKey, GroupRecord | LastCommit]

ENTRY_COLUMNS = (
    *("log_partition", "group_id", "log_offset", "log_timestamp_ms", "record_type", "tombstone", "key", "value"),
    *("partition_leader_epoch", "topic", "topic_partition", "topic_id", "is_transactional"),
)
"""The columns of the table of records that are needed."""

_NO_EPOCH = -1
_RECORD = ("row", *GROUP, "log_offset", "log_timestamp_ms", "key", "value", "partition_leader_epoch")
_COMMIT = ("row", *GROUP, "log_offset", "log_timestamp_ms", "topic", "topic_partition")


def entries_of(records: pa.Table) -> list[Entry]:
    """Return what a group's history is made of, in order.

    Args:
        records: those of groups and members and of committed offsets that were understood, each group's in the order of
            the log; others of the same groups come before or later.
    """
    is_group = pc.greater(records["record_type"], int(RecordType.OFFSET_COMMIT))
    is_offset = pc.is_in(records["record_type"], pa.array(OFFSET_TYPES, pa.int16()))
    is_commit = every(is_offset, pc.invert(records["tombstone"]))
    rows = records.append_column("row", pa.array(np.arange(records.num_rows))).append_column("is_group", is_group)
    rows = rows.filter(pc.or_(pc.fill_null(is_group, False), is_commit))
    is_group = flags(rows["is_group"])
    # Between two records of its group a commit belongs to the first: these stretches are numbered, over all groups.
    order = np.argsort(key_codes(rows, GROUP), kind="stable")
    stretch = np.empty(len(order), np.int64)
    stretch[order] = np.cumsum(is_group[order])
    commits = rows.append_column("stretch", pa.array(stretch)).filter(pa.array(~is_group))
    found = [*_group_records(rows.filter(pa.array(is_group))), *_last_commits(commits)]
    return [entry for _, entry in sorted(found, key=itemgetter(0))]


def feed_history(history: LogHistory, records: pa.Table) -> None:
    """Give a history records of its log partition, and of the commits among them those that matter.

    Args:
        history: of a log partition.
        records: as for :func:`entries_of`, of all groups in the order of the log.
    """
    named = records.filter(pc.and_(pc.is_valid(records["topic_id"]), pc.is_valid(records["topic"])))
    for name in named.group_by(["group_id", "topic_id", "topic"]).aggregate([]).to_pylist():
        history.name_topic(name["group_id"], UUID(bytes=name["topic_id"]), name["topic"])
    for (_, group_id), entry in entries_of(records):
        if isinstance(entry, GroupRecord):
            history.add_record(group_id, entry)
        else:
            history.add_commit(group_id, entry)


def _group_records(rows: pa.Table) -> Iterator[tuple[int, Entry]]:
    columns = (rows[name].to_pylist() for name in _RECORD)
    for row, partition, group_id, log_offset, at_ms, key, value, epoch in zip(*columns, strict=True):
        known_epoch = None if epoch == _NO_EPOCH else epoch
        yield row, ((partition, group_id), GroupRecord(log_offset, at_ms, key, value, known_epoch))


def _last_commits(commits: pa.Table) -> Iterator[tuple[int, Entry]]:
    """Yield the last commit of each partition in each stretch; of those in transactions the last one at all."""
    is_transactional = flags(commits["is_transactional"])
    plain = last_rows(commits.filter(pa.array(~is_transactional)), (*GROUP, "stretch", "topic", "topic_partition"))
    for row, partition, group_id, log_offset, at_ms, *place in zip(*_columns(plain), strict=True):
        yield row, ((partition, group_id), LastCommit(log_offset, at_ms, (place[0], place[1])))
    made = last_rows(commits.filter(pa.array(is_transactional)), (*GROUP, "stretch"))
    for row, partition, group_id, log_offset, at_ms, *_ in zip(*_columns(made), strict=True):
        yield row, ((partition, group_id), LastCommit(log_offset, at_ms, None))


def _columns(rows: pa.Table) -> list[list[object]]:
    return [rows[name].to_pylist() for name in _COMMIT]
