"""The pieces of work that reading logs is cut into, whoever does them: ranges of files, as rows."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import groupby
from typing import Protocol

import pyarrow as pa
from fsspec import AbstractFileSystem

from groupcoord.analysis.decode.chunks import Origin, RowSettings
from groupcoord.analysis.decode.files import SPLIT_BYTES, FileRange, FileSet, cut, reader_of
from groupcoord.analysis.decode.ranges import one_row, range_rows
from groupcoord.analysis.decode.schema import KIND_CORRUPT


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


def rows_of_files(
    file_system: AbstractFileSystem, ranges: Iterable[FileRange], settings: RowSettings
) -> Iterator[pa.RecordBatch]:
    """Yield the rows of ranges. A file that is gone is a row of kind ``corrupt``; other failures are raised.

    Args:
        file_system: that the files are in.
        ranges: what to read, in this order.
        settings: what rows are to hold.
    """
    for file_range in ranges:
        segment, byte_range = file_range
        if segment.unread is not None:
            yield _passed_over(file_range, segment.unread, settings)
            continue
        read_at = reader_of(file_system, segment)
        try:
            yield from range_rows(read_at, byte_range, Origin(segment.name, segment.partition), settings)
        except FileNotFoundError:
            yield _passed_over(file_range, "the file is gone", settings)


def _passed_over(file_range: FileRange, problem: str, settings: RowSettings) -> pa.RecordBatch:
    segment, byte_range = file_range
    values = {
        "kind": KIND_CORRUPT,
        "file": segment.name,
        "log_partition": segment.partition,
        "position": byte_range.start,
        "size_bytes": byte_range.end - byte_range.start,
        "problem": problem,
    }
    return one_row(values, settings)
