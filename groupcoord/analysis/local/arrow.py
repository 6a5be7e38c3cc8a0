"""What several tables need of Arrow's columns: masks, and rows that belong together as runs."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from groupcoord.analysis.columns.commits import OFFSET_TYPES
from groupcoord.analysis.columns.schema import KIND_RECORD

Int64s = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]

_NOTHING = -1


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


class Runs:
    """The rows of a table that have the same key, one behind the other in the order of the log.

    Args:
        table: the rows, with ``log_offset``.
        keys: columns: text or numbers.

    Attributes:
        order: numbers of the rows, run by run.
        starts: where each run starts in ``order``.
        ends: and where it ends.
    """

    def __init__(self, table: pa.Table, keys: Sequence[str]) -> None:
        wanted = [
            codes(table[key]) if pa.types.is_string(table.schema.field(key).type) else integers(table[key])
            for key in keys
        ]
        self.order: Int64s = np.lexsort((integers(table["log_offset"]), *reversed(wanted)))
        is_first = np.zeros(table.num_rows, np.bool_)
        is_first[:1] = True
        for values in wanted:
            in_order = values[self.order]
            is_first[1:] |= in_order[1:] != in_order[:-1]
        self.is_first: Bools = is_first
        self.starts: Int64s = np.flatnonzero(is_first)
        self.ends: Int64s = np.append(self.starts, table.num_rows)[1:]

    def last_rows(self) -> Int64s:
        """Return the number of the last row of each run."""
        return self.order[self.ends - 1]

    def from_end(self) -> Int64s:
        """Return for each place in ``order`` how far it is from the end of its run: 1 for the last one."""
        return np.repeat(self.ends, self.ends - self.starts) - np.arange(len(self.order))


def last_rows(table: pa.Table, keys: Sequence[str]) -> pa.Table:
    """Return of the rows with the same key the one that lies last in the log."""
    return table.take(pa.array(Runs(table, keys).last_rows()))
