"""The tables of an analysis by name, on Spark or without it, and how they are written without it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from groupcoord.analysis.columns import group_tables, tables
from groupcoord.analysis.columns.commits import WRITTEN_COMMITS
from groupcoord.analysis.columns.parquet import folder_name
from groupcoord.analysis.columns.results import ResultDirectory
from groupcoord.analysis.columns.schema import COLUMNS
from groupcoord.analysis.columns.tables import Columns, arrow_schema
from groupcoord.analysis.history import EPOCH, GENERATION, MEMBER, MEMBERSHIP, MOVE, REBALANCE, REVOCATION

Row = dict[str, Any]

END_OFFSETS_TABLE = "end_offsets"
"""The table of what clusters answered where their topics end."""

TABLES_OF_KINDS = {
    GENERATION: "generations",
    MEMBER: "members",
    REBALANCE: "rebalances",
    EPOCH: "epochs",
    MEMBERSHIP: "memberships",
    MOVE: "moves",
    REVOCATION: "revocations",
}
"""By kind of a history's rows, the table that they are."""

TABLES: Mapping[str, Columns] = {
    "records": COLUMNS,
    "commits": tables.COMMITS,
    "current_offsets": tables.CURRENT_OFFSETS,
    "corrupt": tables.CORRUPT,
    "read_counts": tables.READ_COUNTS,
    "partition_load": tables.PARTITION_LOAD,
    END_OFFSETS_TABLE: tables.LIVE_END_OFFSETS,
    "lag": tables.LAG,
    "generations": group_tables.GENERATIONS,
    "members": group_tables.MEMBERS,
    "rebalances": group_tables.REBALANCES,
    "epochs": group_tables.EPOCHS,
    "memberships": group_tables.MEMBERSHIPS,
    "moves": group_tables.MOVES,
    "revocations": group_tables.REVOCATIONS,
    "groups": group_tables.GROUPS,
    "anomalies": group_tables.ANOMALIES,
    "stale_groups": group_tables.STALE_GROUPS,
    "differences": group_tables.DIFFERENCES,
}
"""By name of a table its columns; ``records`` and ``commits`` lie in a folder for each log partition."""

_PART = "part-00000.snappy.parquet"
_ROWS_MAX = 4_096


class TableFiles:
    """Writes tables.

    Args:
        results: where.

    Attributes:
        counts: by name of a table, how many rows it has.
    """

    def __init__(self, results: ResultDirectory) -> None:
        self._results = results
        self.counts: dict[str, int] = {}

    def write(self, name: str, table: pa.Table) -> None:
        """Write a table as one file."""
        self._write(f"tables/{name}/{_PART}", table.cast(arrow_schema(TABLES[name])))
        self.counts[name] = table.num_rows

    def write_rows(self, name: str, rows: Sequence[Row]) -> None:
        """Write rows as one file; what a row does not have is null."""
        schema = arrow_schema(TABLES[name])
        with self._results.new_table_file(f"tables/{name}/{_PART}", schema) as file:
            for start in range(0, len(rows), _ROWS_MAX):
                file.write(pa.RecordBatch.from_pylist(rows[start : start + _ROWS_MAX], schema))
        self.counts[name] = len(rows)

    def add_commits(self, transactional: pa.Table, plain_count: int) -> None:
        """Write the commits of transactions beside the others that are there already.

        Args:
            transactional: those that were made in transactions.
            plain_count: how many others there are.
        """
        for partition in pc.unique(transactional["log_partition"]).to_pylist():
            column = transactional["log_partition"]
            is_here = pc.is_null(column) if partition is None else pc.equal(column, partition)
            some = transactional.filter(is_here).select(WRITTEN_COMMITS.names)
            self._write(f"tables/commits/{folder_name(partition)}/part-transactional.snappy.parquet", some)
        self.counts["commits"] = plain_count + transactional.num_rows
        if not self.counts["commits"]:
            # A table without rows is one, too.
            nothing = WRITTEN_COMMITS.empty_table()
            self._write(f"tables/commits/{folder_name(None)}/part-empty.snappy.parquet", nothing)

    def _write(self, path: str, table: pa.Table) -> None:
        with self._results.new_table_file(path, table.schema) as file:
            for batch in table.to_batches():
                file.write(batch)
