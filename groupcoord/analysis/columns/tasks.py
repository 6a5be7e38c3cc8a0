"""The pieces of work that reading logs is cut into, whoever does them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import groupby
from typing import Protocol

import pyarrow as pa
from fsspec import AbstractFileSystem

from groupcoord.analysis.columns.chunks import RowSettings
from groupcoord.analysis.columns.files import SPLIT_BYTES, FileRange, FileSet, cut
from groupcoord.analysis.columns.reading import rows_of_files


class RecordTask(Protocol):
    """The work of one task, wherever the records come from."""

    def rows(self, settings: RowSettings) -> Iterator[pa.RecordBatch]:
        """Yield the rows of all that is to be read."""

    def runs(self, settings: RowSettings) -> Iterator[tuple[int | None, Iterator[pa.RecordBatch]]]:
        """Yield the rows of each run of one log partition, with its number."""


class LogTask:
    """Byte ranges of files in one file system."""

    def __init__(self, file_system: AbstractFileSystem, ranges: list[FileRange]) -> None:
        self.file_system = file_system
        self.ranges = ranges

    def rows(self, settings: RowSettings) -> Iterator[pa.RecordBatch]:
        """Yield the rows of all ranges."""
        return rows_of_files(self.file_system, self.ranges, settings)

    def runs(self, settings: RowSettings) -> Iterator[tuple[int | None, Iterator[pa.RecordBatch]]]:
        """Yield the rows of each run of ranges of one log partition, with its number."""
        for partition, ranges in groupby(self.ranges, lambda found: found.segment.partition):
            yield partition, rows_of_files(self.file_system, ranges, settings)


def log_tasks(found: Iterable[FileSet], split_bytes: int = SPLIT_BYTES) -> list[LogTask]:
    """Cut the files that ``files.find_segments`` found into tasks of about ``split_bytes``."""
    return [LogTask(files.file_system, ranges) for files in found for ranges in cut(files.segments, split_bytes)]
