"""Tables of committed offsets, by the rules of :mod:`groupcoord.spark.tables`: Arrow columns in and out."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc

from groupcoord.analysis.columns.commits import ABORT_TYPE, ABORTED, COMMIT_TYPE, COMMITTED, OPEN
from groupcoord.analysis.columns.schema import KIND_CONTROL, KIND_RECORD
from groupcoord.analysis.columns.tables import COMMITS, CURRENT_OFFSETS, arrow_schema
from groupcoord.analysis.local.arrow import every, is_offset_record, last_rows

_COMMITS = arrow_schema(COMMITS)
_KEY = ("log_partition", "group_id", "topic", "topic_partition")


def commits(records: pa.Table) -> pa.Table:
    """Return every commit and tombstone of an offset (:data:`groupcoord.analysis.columns.tables.COMMITS`).

    Commits of aborted transactions are left out; those of transactions that have no marker yet are ``open``.
    """
    is_plain = every(is_offset_record(records), pc.invert(records["is_transactional"]))
    plain = records.filter(is_plain)
    without = plain.append_column("transaction", pa.nulls(plain.num_rows, pa.string())).select(_COMMITS.names)
    return pa.concat_tables([without, transactional_commits(records)]).combine_chunks()


def transactional_commits(records: pa.Table) -> pa.Table:
    """Return those of :func:`commits` that were made in transactions.

    A transaction of a producer ends with its next marker in the same log partition (KIP-98); without one it is open.
    """
    is_marker = every(
        pc.equal(records["kind"], KIND_CONTROL),
        pc.is_in(records["control_type"], pa.array([ABORT_TYPE, COMMIT_TYPE], pa.int16())),
    )
    wanted = records.filter(pc.or_(is_marker, every(is_offset_record(records), records["is_transactional"])))
    wanted = wanted.take(pc.sort_indices(wanted, [("log_offset", "descending")]))
    ended: dict[tuple[int | None, int], str] = {}
    told = []
    places = ("log_partition", "producer_id", "kind", "control_type")
    for partition, producer, kind, control_type in zip(*(wanted[name].to_pylist() for name in places), strict=True):
        if kind == KIND_CONTROL:
            ended[partition, producer] = COMMITTED if control_type == COMMIT_TYPE else ABORTED
        told.append(ended.get((partition, producer), OPEN))
    found = wanted.append_column("transaction", pa.array(told, pa.string()))
    is_commit = every(pc.equal(found["kind"], KIND_RECORD), pc.not_equal(found["transaction"], ABORTED))
    found = found.filter(is_commit).select(_COMMITS.names)
    return found.take(pc.sort_indices(found, [("log_offset", "ascending")]))


def counted(table: pa.Table) -> pa.Table:
    """Return the commits that count: all but those of open transactions."""
    is_open = pc.fill_null(pc.equal(table["transaction"], OPEN), False)
    return table.filter(pc.invert(is_open))


def current_offsets(table: pa.Table) -> pa.Table:
    """Return what a coordinator would answer after loading the log.

    Of each group, topic and partition the commit that lies last in the log counts, whenever its transaction was
    committed, unless a tombstone follows. The columns are :data:`groupcoord.analysis.columns.tables.CURRENT_OFFSETS`.

    Args:
        table: what :func:`commits` gives.
    """
    last = last_rows(counted(table), _KEY)
    return last.filter(pc.invert(last["tombstone"])).select(arrow_schema(CURRENT_OFFSETS).names)
