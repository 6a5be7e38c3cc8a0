"""Tables of an analysis by name: written without Spark, and read back whichever engine wrote them."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager

import pyarrow as pa
import pyarrow.dataset as ds
from pyarrow.fs import FSSpecHandler, PyFileSystem

from groupcoord.analysis.decode import schema as declared
from groupcoord.analysis.decode.parquet import WRITTEN_COMMITS, ResultDirectory, TableFile, folder_name
from groupcoord.analysis.decode.schema import COLUMNS, Columns, arrow_schema
from groupcoord.analysis.fold.history import EPOCH, GENERATION, MEMBER, MEMBERSHIP, MOVE, REBALANCE, REVOCATION, Row

END_OFFSETS_TABLE = "end_offsets"
TABLES_OF_KINDS = {
    GENERATION: "generations",
    MEMBER: "members",
    REBALANCE: "rebalances",
    EPOCH: "epochs",
    MEMBERSHIP: "memberships",
    MOVE: "moves",
    REVOCATION: "revocations",
}
TABLES: Mapping[str, Columns] = {
    "records": COLUMNS,
    "commits": declared.COMMITS,
    "current_offsets": declared.CURRENT_OFFSETS,
    "corrupt": declared.CORRUPT,
    "read_counts": declared.READ_COUNTS,
    "partition_load": declared.PARTITION_LOAD,
    END_OFFSETS_TABLE: declared.LIVE_END_OFFSETS,
    "lag": declared.LAG,
    "generations": declared.GENERATIONS,
    "members": declared.MEMBERS,
    "rebalances": declared.REBALANCES,
    "epochs": declared.EPOCHS,
    "memberships": declared.MEMBERSHIPS,
    "moves": declared.MOVES,
    "revocations": declared.REVOCATIONS,
    "groups": declared.GROUPS,
    "anomalies": declared.ANOMALIES,
    "offset_expiry": declared.OFFSET_EXPIRY,
    "stale_groups": declared.STALE_GROUPS,
    "share_partitions": declared.SHARE_PARTITIONS,
    "differences": declared.DIFFERENCES,
}
"""Columns by table. ``records`` and ``commits`` have a folder for each log partition."""

_PART = "part-00000.snappy.parquet"
_ROWS_MAX = 4_096


class TableFiles:
    """Writer of tables; ``counts`` has the number of rows by table."""

    def __init__(self, results: ResultDirectory) -> None:
        self._results = results
        self.counts: dict[str, int] = {}

    def write(self, name: str, table: pa.Table) -> None:
        with self._file(name) as file:
            for batch in table.cast(arrow_schema(TABLES[name])).to_batches():
                file.write(batch)
        self.counts[name] = table.num_rows

    def write_rows(self, name: str, rows: Sequence[Row]) -> None:
        """Write rows as one file; missing values are null."""
        with self.growing([name]) as add:
            add(name, rows)

    @contextmanager
    def growing(self, names: Iterable[str]) -> Iterator[Callable[[str, Sequence[Row]], None]]:
        """Yield a function that appends rows to tables; their files are complete at the end of the context."""
        with ExitStack() as stack:
            files = {name: stack.enter_context(self._file(name)) for name in names}

            def add(name: str, rows: Sequence[Row]) -> None:
                schema = arrow_schema(TABLES[name])
                for start in range(0, len(rows), _ROWS_MAX):
                    files[name].write(pa.RecordBatch.from_pylist(rows[start : start + _ROWS_MAX], schema))

            yield add
        self.counts |= {name: file.rows for name, file in files.items()}

    def commits_file(self, partition: int | None) -> AbstractContextManager[TableFile]:
        """Return a file for the transactional commits of a log partition; decoding has written the others."""
        path = f"tables/commits/{folder_name(partition)}/part-transactional.snappy.parquet"
        return self._results.new_table_file(path, WRITTEN_COMMITS)

    def _file(self, name: str) -> AbstractContextManager[TableFile]:
        return self._results.new_table_file(f"tables/{name}/{_PART}", arrow_schema(TABLES[name]))


class FinishedTables:
    """The tables of an analysis in its directory."""

    def __init__(self, results: ResultDirectory, counts: dict[str, int]) -> None:
        self.results = results
        self.counts = counts

    def has(self, name: str) -> bool:
        return name in self.counts

    def batches(
        self, name: str, columns: Collection[str] = (), groups: Collection[str] | None = None
    ) -> Iterator[pa.RecordBatch]:
        """Yield the rows of a table, of all groups or some; none if the table does not exist."""
        if not self.counts.get(name):
            return
        file_system, _ = self.results.place("tables")
        schema = arrow_schema(TABLES[name])
        files = [
            path
            for path in file_system.find(self.results.place(f"tables/{name}")[1])
            if path.endswith(".parquet") and not path.rpartition("/")[2].startswith((".", "_"))
        ]
        found = ds.dataset(files, schema=schema, format="parquet", filesystem=PyFileSystem(FSSpecHandler(file_system)))
        is_wanted = None if groups is None else ds.field("group_id").isin(pa.array(sorted(groups), pa.string()))
        # One file at a time: a scanner of several reads ahead of a slow consumer. Within a file it would read 64
        # batches ahead, half of all memory, and not faster.
        for file in found.get_fragments():
            yield from file.to_batches(schema, columns=list(columns) or None, filter=is_wanted, batch_readahead=1)

    def rows(self, name: str, columns: Collection[str] = (), groups: Collection[str] | None = None) -> Iterator[Row]:
        for batch in self.batches(name, columns, groups):
            yield from batch.to_pylist()
