"""Records and commits as Parquet files: what is written while a log is decoded."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager, ExitStack
from typing import NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from groupcoord.analysis.decode.parquet import WRITTEN_SCHEMA, TableFile
from groupcoord.analysis.decode.schema import KIND_RECORD
from groupcoord.analysis.decode.tables import COMMITS, arrow_schema
from groupcoord.records.schemas import RecordType

OFFSET_TYPES = (int(RecordType.LEGACY_OFFSET_COMMIT), int(RecordType.OFFSET_COMMIT))
"""Of records of committed offsets and their tombstones."""

COMMITTED, ABORTED, OPEN = "committed", "aborted", "open"
"""How a transaction ended, if it did."""

ABORT_TYPE, COMMIT_TYPE = 0, 1
"""Of control records that end transactions."""

WRITTEN_COMMITS = arrow_schema(one for one in COMMITS if one.name != "log_partition")
"""The columns of the files of commits: all but the log partition, which their folder tells."""

OpenFile = Callable[[str, pa.Schema], AbstractContextManager[TableFile]]
"""Gives a file to write: its path and its columns."""


class Written(NamedTuple):
    """What was written.

    Attributes:
        records: how many rows of the table of records.
        commits: how many commits and tombstones outside of transactions.
        transactional: how many records of transactions, their markers too.
        last_timestamp_ms: the last timestamp of a record; None: there is no record.
    """

    records: int = 0
    commits: int = 0
    transactional: int = 0
    last_timestamp_ms: int | None = None

    def plus(self, other: Written) -> Written:
        """Return both together."""
        times_ms = [one.last_timestamp_ms for one in (self, other) if one.last_timestamp_ms is not None]
        return Written(
            self.records + other.records,
            self.commits + other.commits,
            self.transactional + other.transactional,
            max(times_ms, default=None),
        )


def write_run(batches: Iterable[pa.RecordBatch], open_file: OpenFile, records: str, commits: str) -> Written:
    """Write the rows of some ranges of one log partition: all of them, and the commits among them once more.

    Args:
        batches: the rows, without the log partition.
        open_file: gives a file to write.
        records: the file for all rows.
        commits: the file for commits outside of transactions; there is none if there are none.
    """
    transactional, last_ms = 0, []
    with ExitStack() as stack:
        table = stack.enter_context(open_file(records, WRITTEN_SCHEMA))
        plain: TableFile | None = None
        for batch in batches:
            table.write(batch)
            transactional += pc.sum(batch.column("is_transactional")).as_py() or 0
            is_record = pc.equal(batch.column("kind"), KIND_RECORD)
            last_ms.append(pc.max(batch.column("log_timestamp_ms").filter(is_record)).as_py())
            found = _plain_commits(batch, is_record)
            if found.num_rows:
                plain = plain or stack.enter_context(open_file(commits, WRITTEN_COMMITS))
                plain.write(found)
    known_ms = [one for one in last_ms if one is not None]
    return Written(table.rows, 0 if plain is None else plain.rows, transactional, max(known_ms, default=None))


def _plain_commits(rows: pa.RecordBatch, is_record: pa.BooleanArray) -> pa.RecordBatch:
    """Return the commits and tombstones outside of transactions, as the table of commits has them."""
    is_offset = pc.and_(is_record, pc.is_in(rows.column("record_type"), pa.array(OFFSET_TYPES, pa.int16())))
    is_plain = pc.and_not(is_offset, pc.or_(rows.column("is_transactional"), pc.is_valid(rows.column("problem"))))
    found = rows.filter(is_plain)
    return pa.RecordBatch.from_arrays(
        [
            pa.nulls(found.num_rows, column.type) if column.name == "transaction" else found.column(column.name)
            for column in WRITTEN_COMMITS
        ],
        schema=WRITTEN_COMMITS,
    )
