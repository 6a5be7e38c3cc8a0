"""What one task reads: ranges of files, one after the other, as rows."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import pyarrow as pa
from fsspec import AbstractFileSystem

from groupcoord.analysis.columns.chunks import Origin, RowSettings
from groupcoord.analysis.columns.files import FileRange, reader_of
from groupcoord.analysis.columns.ranges import one_row, range_rows
from groupcoord.analysis.columns.schema import KIND_CORRUPT


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
