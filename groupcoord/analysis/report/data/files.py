"""Files of a run: finished tables read row by row or batch by batch, and the page and summary written."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator

import pyarrow as pa
import pyarrow.dataset as ds
from pyarrow.fs import FSSpecHandler, PyFileSystem

from groupcoord.analysis.decode.results import ResultDirectory
from groupcoord.analysis.decode.schema import arrow_schema
from groupcoord.analysis.report.data.model import Report, summary
from groupcoord.analysis.report.data.rows import Row
from groupcoord.analysis.report.html.page import report_page
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


PAGE = "report.html"
SUMMARY = "summary.json"

READ, HISTORY = "reading the log", "offsets and histories of groups"
ANOMALIES, LAG, VERIFY, REPORT = "anomalies and forecasts", "lag", "verifying", "report"


def steps(*, has_ends: bool, verifies: bool) -> list[str]:
    """Return the names of what an analysis does, in order.

    Args:
        has_ends: it is known where topics end.
        verifies: coordinators load the log, too.
    """
    return [READ, HISTORY, ANOMALIES, *[LAG] * has_ends, *[VERIFY] * verifies, REPORT]


def write_report(results: ResultDirectory, report: Report) -> None:
    """Write the page and its figures."""
    results.replace_text(SUMMARY, json.dumps(summary(report), indent=1, ensure_ascii=False) + "\n")
    results.replace_text(PAGE, report_page(report))
