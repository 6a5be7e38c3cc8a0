"""What several tables need of Arrow's columns: masks, and rows that belong together as runs."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from groupcoord.analysis.decode.parquet import OFFSET_TYPES
from groupcoord.analysis.decode.schema import KIND_RECORD

Int64s = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]

_NOTHING = -1
_CODES_MAX = 2**62


def every(*masks: pa.ChunkedArray) -> pa.ChunkedArray:
    """Return where all masks hold; null counts as false."""
    found = pc.fill_null(masks[0], False)
    for mask in masks[1:]:
        found = pc.and_(found, pc.fill_null(mask, False))
    return found


def is_offset_record(rows: pa.Table) -> pa.ChunkedArray:
    """Return where committed offsets and their tombstones are that were understood."""
    is_offset = pc.is_in(rows["record_type"], pa.array(OFFSET_TYPES, pa.int16()))
    return every(pc.equal(rows["kind"], KIND_RECORD), is_offset, pc.is_null(rows["problem"]))


def integers(column: pa.ChunkedArray) -> Int64s:
    """Return a column of numbers; -1 where it is null."""
    return np.asarray(pc.fill_null(column.cast(pa.int64()), _NOTHING), np.int64)


def flags(column: pa.ChunkedArray) -> Bools:
    """Return a column of truths; false where it is null."""
    return np.asarray(pc.fill_null(column, False), np.bool_)


def codes(column: pa.ChunkedArray) -> Int64s:
    """Return a number for each value of a column, -1 where it is null: the same one for equal values."""
    whole = column.combine_chunks()
    encoded = whole if isinstance(whole, pa.Array) else pa.concat_arrays(whole.chunks)
    return np.asarray(pc.fill_null(encoded.dictionary_encode().indices, _NOTHING), np.int64)


def key_codes(table: pa.Table, keys: Sequence[str]) -> Int64s:
    """Return a number for each row: the same one where all keys are equal."""
    found, count = np.zeros(table.num_rows, np.int64), 1
    for key in keys:
        of_key = codes(table[key]) + 1
        count_of_key = int(of_key.max(initial=0)) + 1
        if count * count_of_key > _CODES_MAX:
            found = np.unique(found, return_inverse=True)[1].astype(np.int64)
            count = int(found.max(initial=0)) + 1
        found, count = found * count_of_key + of_key, count * count_of_key
    return found


class Runs:
    """The rows of a table that have the same key, one behind the other in the order of the log.

    Args:
        table: the rows, with ``log_offset``.
        keys: columns: text or numbers.
        is_sorted: rows of the same key come in the order of the log already.

    Attributes:
        order: numbers of the rows, run by run.
        is_first: for each place in ``order``, whether a run starts there.
        starts: where each run starts in ``order``.
        ends: and where it ends.
    """

    def __init__(self, table: pa.Table, keys: Sequence[str], *, is_sorted: bool = False) -> None:
        found = key_codes(table, keys)
        if is_sorted:
            self.order: Int64s = np.argsort(found, kind="stable")
        else:
            self.order = np.lexsort((integers(table["log_offset"]), found))
        in_order = found[self.order]
        self.is_first: Bools = np.ones(table.num_rows, np.bool_)
        self.is_first[1:] = in_order[1:] != in_order[:-1]
        self.starts: Int64s = np.flatnonzero(self.is_first)
        self.ends: Int64s = np.append(self.starts, table.num_rows)[1:]

    def last_rows(self) -> Int64s:
        """Return the number of the last row of each run."""
        return self.order[self.ends - 1]

    def from_end(self, counts: Bools | None = None) -> Int64s:
        """Return for each place in ``order`` how far it is from the end of its run: 1 for the last one.

        Args:
            counts: for each place, whether it counts; the answer means nothing where it doesn't. None: all do.
        """
        so_far = np.arange(1, len(self.order) + 1) if counts is None else np.cumsum(counts, dtype=np.int64)
        return np.repeat(so_far[self.ends - 1], self.ends - self.starts) - so_far + 1


def last_rows(table: pa.Table, keys: Sequence[str]) -> pa.Table:
    """Return of the rows with the same key, which come in the order of the log, the last one."""
    return table.take(pa.array(Runs(table, keys, is_sorted=True).last_rows()))
