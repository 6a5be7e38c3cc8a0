"""Outcomes of the transactions that committed offsets are part of: one rule, for Arrow and in Spark's SQL.

A transaction of a producer ends with its next marker in the same log partition (KIP-98); without one it is open.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from groupcoord.analysis.decode.commits import ABORT_TYPE, ABORTED, COMMIT_TYPE, COMMITTED, OPEN
from groupcoord.analysis.decode.schema import KIND_CONTROL
from groupcoord.analysis.decode.tables import COMMITS, arrow_schema
from groupcoord.analysis.fold.arrow import Int64s, every, flags, integers, is_offset_record

OUTCOME_SQL = f"""
coalesce(
    last(case when kind = '{KIND_CONTROL}' then if(control_type = {COMMIT_TYPE}, '{COMMITTED}', '{ABORTED}') end, true)
        over (partition by log_partition, producer_id order by log_offset desc rows unbounded preceding),
    '{OPEN}')
"""
"""The rule for Spark, over rows of markers and of transactional commits: the same as :meth:`Markers.outcomes`.

The frame runs backwards, so that the next marker is found in linear time. Arrow batches in Python took Spark 1.3 to 1.6
times the CPU where half of all commits were transactional.
"""

_COMMITS = arrow_schema(COMMITS)
_OUTCOMES = pa.array([ABORTED, COMMITTED, OPEN])
_STILL_OPEN = 2

MARKER_COLUMNS = ("kind", "control_type", "producer_id", "log_offset")
"""What is to be known of markers."""


class Markers:
    """The markers of one log partition, by which the outcome of each transaction is found.

    Args:
        rows: all of them, with ``producer_id``, ``log_offset`` and ``control_type``; None: there are none.
    """

    def __init__(self, rows: pa.Table | None = None) -> None:
        if rows is None:
            rows = pa.table({name: pa.array([], pa.int64()) for name in ("producer_id", "log_offset", "control_type")})
        producers, offsets = integers(rows["producer_id"]), integers(rows["log_offset"])
        order = np.lexsort((offsets, producers))
        producers, offsets = producers[order], offsets[order]
        is_commit = (integers(rows["control_type"])[order] == COMMIT_TYPE).astype(np.int64)
        starts = np.flatnonzero(np.append(True, producers[1:] != producers[:-1])) if len(order) else order
        ends = np.append(starts, len(order))[1:]
        self._of: dict[int, tuple[Int64s, Int64s]] = {
            int(producers[start]): (offsets[start:end], is_commit[start:end])
            for start, end in zip(starts.tolist(), ends.tolist(), strict=True)
        }

    def outcomes(self, rows: pa.Table) -> pa.Array:
        """Return the outcomes of the transactions of commits: ``committed``, ``aborted`` or ``open``."""
        producers, offsets = integers(rows["producer_id"]), integers(rows["log_offset"])
        found = np.full(len(producers), _STILL_OPEN)
        for producer in np.unique(producers).tolist():
            if producer in self._of:
                ends, types = self._of[producer]
                of_producer = np.flatnonzero(producers == producer)
                places = np.searchsorted(ends, offsets[of_producer], side="right")
                found[of_producer] = np.append(types, _STILL_OPEN)[places]
        return _OUTCOMES.take(pa.array(found))


def is_marker(records: pa.Table) -> pa.ChunkedArray:
    """Return which rows are markers that end transactions."""
    ends = pa.array([ABORT_TYPE, COMMIT_TYPE], pa.int16())
    return every(pc.equal(records["kind"], KIND_CONTROL), pc.is_in(records["control_type"], ends))


def commits(records: pa.Table, markers: Markers) -> pa.Table:
    """Return every commit and tombstone of an offset (:data:`groupcoord.analysis.decode.tables.COMMITS`), in order.

    Commits of aborted transactions are left out; those of transactions that have no marker yet are ``open``.

    Args:
        records: of one log partition; some of its rows are enough.
        markers: all of that log partition.
    """
    found = records.filter(is_offset_record(records))
    is_transactional = flags(found["is_transactional"])
    outcome: pa.Array = pa.nulls(found.num_rows, pa.string())
    if is_transactional.any():
        mask = pa.array(is_transactional)
        outcome = pc.replace_with_mask(outcome, mask, markers.outcomes(found.filter(mask)))
    found = found.append_column("transaction", outcome).select(_COMMITS.names)
    is_aborted = pc.fill_null(pc.equal(found["transaction"], ABORTED), False)
    return found.filter(pc.invert(is_aborted)) if is_transactional.any() else found
