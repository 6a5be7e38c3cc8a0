"""The histories of groups out of columns: what is fed to :class:`groupcoord.analysis.history.LogHistory`."""

from __future__ import annotations

from collections.abc import Iterator
from operator import itemgetter
from typing import NamedTuple
from uuid import UUID

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from groupcoord.analysis.columns.schema import KIND_RECORD
from groupcoord.analysis.folding.arrow import codes, every, flags, is_offset_record, last_rows
from groupcoord.analysis.history import GroupRecord, LogHistory
from groupcoord.records.schemas import RecordType

_NO_EPOCH = -1
_COMMIT = ("group_id", "topic", "topic_partition", "log_offset", "log_timestamp_ms")


def is_group_record(records: pa.Table) -> pa.ChunkedArray:
    """Return where records of groups and members are that were understood."""
    return every(
        pc.equal(records["kind"], KIND_RECORD),
        pc.greater(records["record_type"], int(RecordType.OFFSET_COMMIT)),
        pc.is_null(records["problem"]),
        pc.is_valid(records["group_id"]),
    )


def feed_history(history: LogHistory, records: pa.Table) -> None:
    """Give a history records of its log partition, and of the commits among them those that matter.

    Args:
        history: of a log partition.
        records: some of its rows in the order of the log; others come before or later.
    """
    is_group = is_group_record(records)
    is_commit = every(is_offset_record(records), pc.invert(records["tombstone"]))
    rows = records.append_column("is_group", is_group).filter(pc.or_(is_group, is_commit))
    is_group = flags(rows["is_group"])
    # Between two records of its group a commit belongs to the first: these stretches are numbered, over all groups.
    order = np.argsort(codes(rows["group_id"]), kind="stable")
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
