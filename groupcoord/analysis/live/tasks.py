"""What there is to read of a topic, cut into pieces of work that reach the cluster themselves, and read as rows.

What one fetch brings is a file of its own to the table, with an account of its own, so that a gap that compaction has
left says nothing of what lies behind it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from itertools import groupby

import pyarrow as pa

from groupcoord.analysis.decode.rows import ByteRange, Origin, RangeReader, RowSettings, one_row
from groupcoord.analysis.decode.schema import KIND_CORRUPT
from groupcoord.analysis.errors import InputError, LogCutError
from groupcoord.analysis.live.cluster import LiveCluster, Patience
from groupcoord.analysis.live.connection import connection
from groupcoord.analysis.live.fetching import DELETED, Lost, RangeFetcher
from groupcoord.analysis.live.offsets import OffsetRange, TopicEnds, check_readable, plan, topic_ends
from groupcoord.analysis.live.settings import ClusterAddress


class ClusterTask:
    """Ranges of offsets. It says where the cluster is, and nothing that is secret."""

    def __init__(self, address: ClusterAddress, ranges: list[OffsetRange]) -> None:
        self.address = address
        self.ranges = ranges

    def rows(self, settings: RowSettings) -> Iterator[pa.RecordBatch]:
        """Yield the rows of all ranges."""
        for _, rows in self.runs(settings):
            yield from rows

    def runs(self, settings: RowSettings) -> Iterator[tuple[int | None, Iterator[pa.RecordBatch]]]:
        """Yield the rows of each run of ranges of one log partition, with its number."""
        with connection(self.address) as (cluster, patience):
            for partition, ranges in groupby(self.ranges, lambda one: one.partition):
                yield partition, _rows(cluster, patience, ranges, settings)


def _rows(
    cluster: LiveCluster, patience: Patience, ranges: Iterable[OffsetRange], settings: RowSettings
) -> Iterator[pa.RecordBatch]:
    for one in ranges:
        yield from rows_of_offsets(cluster, one, patience, settings)


def ends_now(address: ClusterAddress, topic: str, partitions: Collection[int], *, may_lack: bool = False) -> TopicEnds:
    """Return the present start and end offsets of a topic's logs.

    Args:
        address: of the cluster.
        topic: its name.
        partitions: only these; all if empty.
        may_lack: as for :func:`groupcoord.analysis.live.offsets.topic_ends`.

    Raises:
        InputError: there is no such topic or partition.
        ClusterError: the cluster can't be reached.
    """
    with connection(address) as (cluster, patience):
        return topic_ends(cluster, patience, topic, partitions, may_lack=may_lack)


def check_topic(
    address: ClusterAddress, topic: str, partitions: Collection[int], *, may_be_empty: bool = False
) -> TopicEnds:
    """Make sure that all of a topic can be read, and return where its logs begin and end now.

    Args:
        address: as for :func:`ends_now`, as the next two.
        topic: see there.
        partitions: see there.
        may_be_empty: records may come later, and partitions that have no leader may get one.

    Raises:
        InputError: the topic isn't there, holds nothing, or may not be read.
        ClusterError: the cluster can't be reached.
    """
    with connection(address, begins_run=True) as (cluster, patience):
        ends = topic_ends(cluster, patience, topic, partitions, may_lack=may_be_empty)
        if not ends.whole() and not may_be_empty:
            raise InputError(f"topic {topic} of the cluster holds no records")
        check_readable(cluster, patience, ends)
        return ends


def cluster_tasks(
    address: ClusterAddress, topic: str, partitions: Collection[int], split_bytes: int
) -> list[ClusterTask]:
    """Return what there is to read of a topic now, cut into tasks of about ``split_bytes``.

    Args:
        address: as for :func:`ends_now`, as the next two.
        topic: see there.
        partitions: see there.
        split_bytes: see above.
    """
    with connection(address) as (cluster, patience):
        ends = topic_ends(cluster, patience, topic, partitions)
        return [ClusterTask(address, some) for some in plan(cluster, patience, ends.whole(), split_bytes)]


def tasks_between(
    address: ClusterAddress,
    topic: str,
    start: Mapping[int, int],
    end: Mapping[int, int],
    topic_id: str,
    split_bytes: int,
) -> list[ClusterTask]:
    """Return what lies between two offsets of each log partition, cut into tasks.

    Args:
        address: as for :func:`ends_now`, as the next one.
        topic: see there.
        start: the first offset to read of each log partition; what isn't named is read from where its log begins.
        end: the first one behind.
        topic_id: of the topic that was read up to there.
        split_bytes: how much one task reads, about.

    Raises:
        LogCutError: what was read is no part of the topic any more.
    """
    with connection(address) as (cluster, patience):
        ends = topic_ends(cluster, patience, topic, tuple(end))
        check_same(ends, topic_id, start)
        found = [
            ends.range(partition, start.get(partition, ends.starts[partition]), last)
            for partition, last in sorted(end.items())
        ]
        planned = plan(cluster, patience, [one for one in found if one.start < one.end], split_bytes)
        return [ClusterTask(address, some) for some in planned]


def check_same(ends: TopicEnds, topic_id: str, read_to: Mapping[int, int]) -> None:
    """Make sure that what was read is a part of the logs still.

    Raises:
        LogCutError: the topic is another one, or a log ends before.
    """
    name = ends.topic.name
    if str(ends.topic.topic_id) != topic_id:
        raise LogCutError(f"topic {name} was deleted, and made again: begin anew, in another directory")
    for partition, offset in read_to.items():
        if ends.ends.get(partition, offset) < offset:
            raise LogCutError(
                f"{name}-{partition} ends at offset {ends.ends[partition]}, and was read up to {offset}: it was cut"
            )


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
