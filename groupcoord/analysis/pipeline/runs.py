"""Base of the runs that read logs and write tables and a page: input, directory of the results, and the page."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from functools import cached_property
from typing import ClassVar, TypedDict

from groupcoord.analysis.decode.errors import InputError
from groupcoord.analysis.decode.results import ResultDirectory
from groupcoord.analysis.decode.schema import KIND_RECORD
from groupcoord.analysis.pipeline.share_states import ShareStates
from groupcoord.analysis.pipeline.sources import LogSource, Source
from groupcoord.analysis.report.data.finished import FinishedTables
from groupcoord.analysis.report.data.gathering import gather_report
from groupcoord.analysis.report.data.model import Report
from groupcoord.analysis.report.writer import write_report
from groupcoord.clock import Clock, SystemClock

Paths = Sequence[str | os.PathLike[str]] | Source
"""What is read."""


class RunOptions(TypedDict, total=False):
    """What every run may be told besides what it reads and where results go, as :class:`Run` explains it."""

    partitions: Iterable[int]
    end_offsets: str | None
    clock: Clock | None


class Run:
    """A run over some logs into one directory.

    Args:
        paths: segment files, folders of a log partition, data directories, or patterns of these; local, or URLs; or a
            :class:`groupcoord.analysis.pipeline.sources.Source`, such as a cluster that runs.
        out: an empty directory, or one that does not exist yet; a URL is fine.
        partitions: only these log partitions; all if empty.
        end_offsets: a CSV file with a header and the columns of :data:`groupcoord.analysis.decode.tables.END_OFFSETS`;
            read anew each time that tables are made.
        clock: says when the report is made, and how long that took.

    Attributes:
        size_bytes: the size of the logs at the start, about.

    Raises:
        InputError: an input can't be read or holds nothing, or the directory can't be used.
    """

    _goes_on: ClassVar[str | None] = None
    """The name of what shows that a directory is that of an earlier run, where this one may go on."""

    def __init__(
        self,
        paths: Paths,
        out: str | os.PathLike[str],
        *,
        partitions: Iterable[int] = (),
        end_offsets: str | None = None,
        clock: Clock | None = None,
    ) -> None:
        self._source = paths if isinstance(paths, Source) else LogSource(frozenset(partitions), end_offsets, paths)
        self._clock = clock or SystemClock()
        self.size_bytes = self._source.check(may_be_empty=self._goes_on is not None)
        self._results = self._open(out)
        self._share_states = ShareStates(self._source)

    def _open(self, out: str | os.PathLike[str]) -> ResultDirectory:
        return ResultDirectory(out, goes_on=self._goes_on)

    @cached_property
    def _retention_minutes(self) -> int | None:
        """What brokers say how long offsets are kept that nobody uses; None: it isn't told."""
        return self._source.offsets_retention_minutes()

    def _write_page(self, tables: FinishedTables) -> Report:
        """Write the table of share-partitions, the page and its figures, and return these.

        Raises:
            InputError: no record is one of ``__consumer_offsets``.
        """
        _check_has_groups(tables, self._source.names)
        self._share_states.write(tables)
        report = gather_report(tables, self._source.names, self._clock, self._retention_minutes)
        write_report(self._results, report)
        return report


def _check_has_groups(tables: FinishedTables, names: Sequence[str]) -> None:
    """Raise an error if there are records, and none of them is about groups: they are of another topic."""
    records = [row for row in tables.rows("read_counts", ("kind", "problem", "count")) if row["kind"] == KIND_RECORD]
    if records and all(row["problem"] is not None for row in records):
        count = sum(row["count"] for row in records)
        told = "its only record is not" if count == 1 else f"none of its {count:,} records is"
        raise InputError(f"{', '.join(names)}: {told} about groups; is it a log of __consumer_offsets?")
