"""Tables that were written, read row by row or batch by batch: memory is that of a batch, whoever has written them."""

from __future__ import annotations

from collections.abc import Collection, Iterator

import pyarrow as pa
import pyarrow.dataset as ds
from pyarrow.fs import FSSpecHandler, PyFileSystem

from groupcoord.analysis.decode.results import ResultDirectory
from groupcoord.analysis.decode.tables import arrow_schema
from groupcoord.analysis.report.data.values import Row
from groupcoord.analysis.tables import TABLES


class FinishedTables:
    """The tables of an analysis in its directory.

    Args:
        results: the directory.
        counts: how many rows each table has; one that isn't named does not exist.

    Attributes:
        results: as given.
        counts: likewise.
    """

    def __init__(self, results: ResultDirectory, counts: dict[str, int]) -> None:
        self.results = results
        self.counts = counts

    def has(self, name: str) -> bool:
        """Tell whether there is a table of this name, be it without rows."""
        return name in self.counts

    def batches(
        self, name: str, columns: Collection[str] = (), groups: Collection[str] | None = None
    ) -> Iterator[pa.RecordBatch]:
        """Yield the rows of a table; none if there is no such table.

        Args:
            name: of the table.
            columns: which of its columns; all if empty.
            groups: the rows of these groups alone.
        """
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
        # File by file: a scanner of all of them reads ahead of a slow taker, whatever it is asked. Of a file it would
        # read 64 batches ahead by itself, which are half of all memory, and no quicker.
        for file in found.get_fragments():
            yield from file.to_batches(schema, columns=list(columns) or None, filter=is_wanted, batch_readahead=1)

    def rows(self, name: str, columns: Collection[str] = (), groups: Collection[str] | None = None) -> Iterator[Row]:
        """Yield the rows of a table as :meth:`batches` does, each as a mapping of names to values."""
        for batch in self.batches(name, columns, groups):
            yield from batch.to_pylist()
