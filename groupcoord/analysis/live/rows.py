"""A range of offsets as rows of the table of records: the same kernel as for files, on what fetches bring.

What one fetch brings is a file of its own to the table, with an account of its own, so that a gap that compaction has
left says nothing of what lies behind it.
"""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa

from groupcoord.analysis.columns.chunks import Origin, RowSettings
from groupcoord.analysis.columns.ranges import ByteRange, RangeReader, one_row
from groupcoord.analysis.columns.schema import KIND_CORRUPT
from groupcoord.analysis.live.cluster import LiveCluster
from groupcoord.analysis.live.fetching import DELETED, Lost, RangeFetcher
from groupcoord.analysis.live.offset_ranges import OffsetRange
from groupcoord.analysis.live.retries import Patience


def rows_of_offsets(
    cluster: LiveCluster, offset_range: OffsetRange, patience: Patience, settings: RowSettings
) -> Iterator[pa.RecordBatch]:
    """Yield the rows of a range. What was deleted before it could be read is a row of kind ``corrupt``.

    Args:
        cluster: that has the log.
        offset_range: what to read.
        patience: how long to try where nothing comes.
        settings: what rows are to hold.

    Raises:
        ClusterError: the cluster does not give it.
    """
    fetcher = RangeFetcher(cluster, offset_range, patience)
    offset = offset_range.start
    while (portion := fetcher.next(offset)) is not None:
        if isinstance(portion, Lost):
            yield _lost_row(portion, offset_range, settings)
            offset = portion.end
            continue
        size = len(portion.batches)
        byte_range = ByteRange(0, size, size, is_boundary=True, end_offset=offset_range.end)
        origin = Origin(offset_range.name_at(portion.offset), offset_range.partition)
        reader = RangeReader(portion.read_at, byte_range, origin, settings, chunk_bytes=size)
        yield from reader.rows()
        offset = fetcher.behind(portion, reader.next_offset)


def _lost_row(lost: Lost, offset_range: OffsetRange, settings: RowSettings) -> pa.RecordBatch:
    values: dict[str, str | int | None] = {
        "kind": KIND_CORRUPT,
        "file": offset_range.name_at(lost.start),
        "log_partition": offset_range.partition,
        "log_offset": lost.start,
        "position": 0,
        "size_bytes": 0,
        "problem": DELETED,
        "end_offset": lost.end,
    }
    return one_row(values, settings)
