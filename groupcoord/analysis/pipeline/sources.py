"""Sources of an analysis, on every engine: files or a running cluster, read once or as they grow."""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import chain, groupby
from typing import Any

import pyarrow as pa
import pyarrow.csv
from attrs import field, frozen
from fsspec.core import url_to_fs

from groupcoord.analysis.decode.files import (
    SPLIT_BYTES as LOG_SPLIT_BYTES,
    FileSet,
    LogChangedError,
    RecordTask,
    Runs,
    errors_as_input_errors,
    find_segments,
    log_tasks,
    range_tasks,
)
from groupcoord.analysis.decode.rows import ByteRange, Origin, RangeReader, RowSettings, corrupt_row
from groupcoord.analysis.decode.schema import END_OFFSETS, LIVE_END_OFFSETS, arrow_schema
from groupcoord.analysis.decode.tailing import (
    Log,
    advance,
    deletions_as_log_changes,
    from_json,
    logs_of,
    ranges_to_read,
    to_json,
)
from groupcoord.analysis.errors import InputError, LogCutError, first_line
from groupcoord.analysis.live.cluster import KafkaCluster, Patience, connection
from groupcoord.analysis.live.offsets import (
    DELETED,
    SPLIT_BYTES as OFFSETS_SPLIT_BYTES,
    Lost,
    OffsetRange,
    RangeFetcher,
    TopicEnds,
    check_readable,
    list_ends,
    offsets_retention_minutes,
    plan,
    record_times,
    topic_ends,
)
from groupcoord.analysis.live.settings import ClusterAddress
from groupcoord.analysis.options import EVERYTHING, Selection
from groupcoord.clock import SystemClock
from groupcoord.core.log.records import SHARE_STATE_TOPIC

SPLIT_BYTES = 16_777_216
"""Approximate bytes of a file read at a time; its rows are held until the file is known to be unchanged."""

ATTEMPTS_MAX = 4
"""Number of attempts to read files that change meanwhile."""


def attempted(read: Callable[[], None]) -> None:
    """Read files, and again if they change meanwhile; raise LogChangedError after the last attempt."""
    for attempts_left in reversed(range(ATTEMPTS_MAX)):
        try:
            read()
        except LogChangedError:
            if not attempts_left:
                raise
        else:
            return


Position = dict[str, Any]
"""Position in the logs of a source, as JSON; empty at their start."""


class Extent(ABC):
    """Logs of a source as they were listed."""

    @property
    def leaderless(self) -> Sequence[str]:
        """Log partitions without a leader, which the listing omitted."""
        return ()

    @abstractmethod
    def position(self, before: Position, bound: int | None = None, last: Position | None = None) -> Position:
        """Return the position at the end of all logs.

        ``bound`` limits the bytes or offsets of each log after ``before``; ``last`` is a position not to exceed.
        """

    @abstractmethod
    def tasks_between(self, start: Position, end: Position, split_bytes: int | None = None) -> Sequence[RecordTask]:
        """Return the content between positions as tasks."""


@frozen
class LogExtent(Extent):
    """Listed files, each log up to its last whole batch; a position has a cursor for each folder."""

    logs: Mapping[str, Log]
    selection: Selection

    @deletions_as_log_changes()
    def position(self, before: Position, bound: int | None = None, last: Position | None = None) -> Position:
        cursors, ends = from_json(before), None if last is None else from_json(last)
        for folder, log in self.logs.items():
            cursor = cursors.get(folder)
            if ends is None:
                cursors[folder] = advance(log, cursor, bound)
            elif (end := ends.get(folder)) is not None and not (cursor and cursor.is_at(end)):
                reached = end if bound is None else advance(log, cursor, bound)
                cursors[folder] = end if reached.is_at(end) else reached
        return to_json(cursors)

    @deletions_as_log_changes()
    def tasks_between(self, start: Position, end: Position, split_bytes: int | None = None) -> Sequence[RecordTask]:
        found = ranges_to_read(self.logs, from_json(start), from_json(end))
        return range_tasks(found.items(), split_bytes or SPLIT_BYTES, self.selection)


@frozen
class TopicExtent(Extent):
    """Listed offsets of a topic; a position has the next offset of each log partition."""

    source: ClusterSource
    ends: TopicEnds

    @property
    def leaderless(self) -> Sequence[str]:
        return [f"{self.ends.topic.name}-{partition}" for partition in self.ends.leaderless]

    def position(self, before: Position, bound: int | None = None, last: Position | None = None) -> Position:
        ends, offsets = self.ends, _offsets(before)
        if before:
            check_same(ends, before["topic_id"], offsets)
        for partition, end in ends.ends.items():
            first = offsets.get(partition, ends.starts[partition])
            if last is not None:
                end = max(first, min(end, _offsets(last).get(partition, first)))
            offsets[partition] = end if bound is None else min(end, first + bound)
        return {
            "cluster_id": ends.cluster_id,
            "topic_id": str(ends.topic.topic_id),
            "offsets": {str(partition): offset for partition, offset in sorted(offsets.items())},
        }

    def tasks_between(self, start: Position, end: Position, split_bytes: int | None = None) -> Sequence[RecordTask]:
        before = _offsets(start)
        check_same(self.ends, end["topic_id"], before)
        found = [
            self.ends.range(partition, before.get(partition, self.ends.starts[partition]), last)
            for partition, last in sorted(_offsets(end).items())
            if partition in self.ends.starts
        ]
        return self.source.planned([one for one in found if one.start < one.end], split_bytes)


def _offsets(position: Position) -> dict[int, int]:
    return {int(partition): offset for partition, offset in position.get("offsets", {}).items()}


class Tail:
    """Reader of growing logs, from their start. :meth:`look` returns ranges again until :meth:`take`.

    Attributes:
        leaderless: log partitions without a leader, which the last look omitted.
    """

    def __init__(self, source: Source) -> None:
        self._source = source
        self._taken: Position = {}
        self.leaderless: Sequence[str] = ()

    def look(self) -> Sequence[RecordTask]:
        """Return the new ranges as tasks."""
        extent = self._source.extent(may_lack=True)
        self.leaderless = extent.leaderless
        self._seen = extent.position(self._taken)
        return extent.tasks_between(self._taken, self._seen)

    def read(self, settings: RowSettings) -> Iterator[tuple[int | None, list[pa.RecordBatch]]]:
        """Yield the new rows of each run of a log partition. Files that changed meanwhile raise LogChangedError."""
        for task in self.look():
            runs = [(partition, list(rows)) for partition, rows in task.runs(settings)]
            task.check_unchanged()
            yield from runs
        self.take()

    def take(self) -> None:
        """Note that all tasks of the last look were read."""
        self._taken = self._seen


RECORD_BYTES = 106


def absolute(paths: Iterable[str | os.PathLike[str]]) -> list[str]:
    return [text if "://" in text else os.path.abspath(text) for text in _texts(paths)]


def _texts(paths: Iterable[str | os.PathLike[str]]) -> tuple[str, ...]:
    return tuple(os.fspath(path) for path in paths)


@frozen
class Source(ABC):
    """Source of ``__consumer_offsets`` records and of end offsets.

    Attributes:
        end_offsets: a CSV file with a header and the columns of :data:`groupcoord.analysis.decode.schema.END_OFFSETS`,
            or None.
    """

    selection: Selection = field(default=EVERYTHING, kw_only=True)
    end_offsets: str | None = field(default=None, kw_only=True)

    def check(self, *, may_be_empty: bool = False) -> int:
        """Check that the input can be read, and return its approximate size in bytes.

        With ``may_be_empty`` records may follow later.
        """
        size_bytes = self._check_records(may_be_empty=may_be_empty)
        path = self.end_offsets
        if path is not None and "://" not in path and not os.access(path, os.R_OK):
            raise InputError(f"{path}: there is no such file, or it may not be read")
        if path is not None:
            read_end_offsets_file(path)
        return size_bytes

    @property
    def has_ends(self) -> bool:
        return self.end_offsets is not None

    @property
    def asks_for_ends(self) -> bool:
        """True if a running cluster returns end offsets."""
        return False

    def judged_at_ms(self, last_ms: int | None, read_ms: int) -> int | None:
        """Return the time for anomalies when following, in milliseconds since 1970; None if unknown."""
        if last_ms is None or not self.asks_for_ends:
            return last_ms
        return max(last_ms, read_ms)  # a silent group writes nothing to its log

    def read_ends(self, topics: Collection[str]) -> pa.Table | None:
        """Return the end offsets of topics, or None if unknown: ``END_OFFSETS`` from a file, ``LIVE_END_OFFSETS`` from
        a cluster.
        """
        return None if self.end_offsets is None else read_end_offsets_file(self.end_offsets)

    def read_times(self, behind: Collection[Mapping[str, Any]]) -> Sequence[Mapping[str, Any]]:
        """Return ``RECORD_TIMES``; empty unless lag is computed from records."""
        return ()

    def offsets_retention_minutes(self) -> int | None:
        return None

    @property
    @abstractmethod
    def names(self) -> Sequence[str]:
        """Names of the input."""

    @abstractmethod
    def tasks(self, split_bytes: int | None = None) -> Sequence[RecordTask]:
        """Return the present content as tasks of about this size."""

    @abstractmethod
    def extent(self, *, may_lack: bool = False) -> Extent:
        """List the logs; with ``may_lack`` without those that have no leader."""

    @property
    def cluster_name(self) -> str:
        """Id of the cluster that is read; empty for files."""
        return ""

    @abstractmethod
    def share_states(self) -> Source:
        """Return the source of ``__share_group_state``.

        On a cluster its reading raises :class:`groupcoord.analysis.errors.InputError` without that topic or permission.
        """

    @abstractmethod
    def _check_records(self, *, may_be_empty: bool) -> int: ...


@frozen
class LogSource(Source):
    """Logs in files: segment files, folders of a log partition, data directories, or patterns of
    these; local, or URLs.
    """

    paths: tuple[str, ...] = field(converter=_texts)
    storage_options: Mapping[str, Any] = field(factory=dict, kw_only=True, eq=False)

    @property
    def names(self) -> Sequence[str]:
        return self.paths

    def tasks(self, split_bytes: int | None = None) -> Sequence[RecordTask]:
        return log_tasks(self.find(may_be_empty=False), split_bytes or LOG_SPLIT_BYTES, self.selection)

    @deletions_as_log_changes()
    def extent(self, *, may_lack: bool = False) -> Extent:
        return LogExtent(logs_of(self.find(may_be_empty=True)), self.selection)

    def share_states(self) -> Source:
        return ShareStateLogs(self.paths)

    def find(self, *, may_be_empty: bool) -> list[FileSet]:
        return find_segments(
            self.paths,
            storage_options=self.storage_options,
            partitions=self.selection.partitions,
            may_be_empty=may_be_empty,
        )

    def _check_records(self, *, may_be_empty: bool) -> int:
        return sum(one.size_bytes for files in self.find(may_be_empty=may_be_empty) for one in files.segments)


@frozen
class ShareStateLogs(LogSource):
    """Logs of ``__share_group_state`` in data directories."""

    def find(self, *, may_be_empty: bool) -> list[FileSet]:
        folders = []
        for path in self.paths:
            with errors_as_input_errors(path):
                file_system, root = url_to_fs(path)
                found = file_system.glob(f"{root.rstrip('/')}/{SHARE_STATE_TOPIC}-*")
            numbered = (one for one in found if one.rpartition("-")[2].isdecimal())
            folders += [file_system.unstrip_protocol(one) for one in numbered]
        return find_segments(sorted(folders), may_be_empty=True) if folders else []


@frozen
class ClusterSource(Source):
    """A running cluster.

    Attributes:
        lag_from_records: compute time lag from the next record of each lagging group.
    """

    address: ClusterAddress
    topic: str
    lag_from_records: bool = False

    @property
    def has_ends(self) -> bool:
        return True

    @property
    def asks_for_ends(self) -> bool:
        return self.end_offsets is None

    def read_ends(self, topics: Collection[str]) -> pa.Table | None:
        if self.end_offsets is not None:
            return super().read_ends(topics)
        with connection(self.address) as (cluster, patience):
            found = list_ends(cluster, patience, topics, SystemClock().now_ms)
        return pa.Table.from_pylist([row._asdict() for row in found], arrow_schema(LIVE_END_OFFSETS))

    def read_times(self, behind: Collection[Mapping[str, Any]]) -> Sequence[Mapping[str, Any]]:
        if not self.lag_from_records or not self.asks_for_ends or not behind:
            return ()
        return record_times(self.address, behind)

    def offsets_retention_minutes(self) -> int | None:
        with connection(self.address) as (cluster, patience):
            return offsets_retention_minutes(cluster, patience)

    @property
    def names(self) -> Sequence[str]:
        return (f"kafka://{self.address.settings().bootstrap_servers}/{self.topic}",)

    def tasks(self, split_bytes: int | None = None) -> Sequence[RecordTask]:
        return self.planned(self.extent().ends.whole(), split_bytes)

    def planned(self, ranges: Sequence[OffsetRange], split_bytes: int | None) -> list[ClusterTask]:
        if not ranges:
            return []
        with connection(self.address) as (cluster, patience):
            found = plan(cluster, patience, ranges, split_bytes or OFFSETS_SPLIT_BYTES)
        return [ClusterTask(self.address, some, self.selection) for some in found]

    @property
    def cluster_name(self) -> str:
        return self.extent(may_lack=True).ends.cluster_id

    def share_states(self) -> Source:
        return ClusterSource(self.address, SHARE_STATE_TOPIC)

    def extent(self, *, may_lack: bool = False) -> TopicExtent:
        with self._topic_ends(may_lack=may_lack) as (_, _, ends):
            return TopicExtent(self, ends)

    @contextmanager
    def _topic_ends(
        self, *, may_lack: bool = False, begins_run: bool = False
    ) -> Iterator[tuple[KafkaCluster, Patience, TopicEnds]]:
        with connection(self.address, begins_run=begins_run) as (cluster, patience):
            partitions = self.selection.partitions
            yield cluster, patience, topic_ends(cluster, patience, self.topic, partitions, may_lack=may_lack)

    def _check_records(self, *, may_be_empty: bool) -> int:
        # A cluster returns offsets, not sizes.
        with self._topic_ends(may_lack=may_be_empty, begins_run=True) as (cluster, patience, ends):
            if not ends.whole() and not may_be_empty:
                raise InputError(f"topic {self.topic} of the cluster holds no records")
            check_readable(cluster, patience, ends)
            return sum(one.end - one.start for one in ends.whole()) * RECORD_BYTES


def read_end_offsets_file(path: str) -> pa.Table:
    schema = arrow_schema(END_OFFSETS)
    options = pyarrow.csv.ConvertOptions(column_types=schema, include_columns=schema.names)
    with errors_as_input_errors(path):
        file_system, place = url_to_fs(path)
        with file_system.open(place, "rb") as file:
            try:
                return pyarrow.csv.read_csv(file, convert_options=options)
            except (pa.ArrowInvalid, pa.ArrowKeyError) as error:
                raise InputError(f"{path}: {first_line(error)}") from error


@frozen
class ClusterTask(RecordTask):
    """Task for offset ranges of a cluster."""

    address: ClusterAddress
    ranges: list[OffsetRange]
    selection: Selection = EVERYTHING

    def _all_runs(self, settings: RowSettings) -> Runs:
        with connection(self.address) as (cluster, patience):
            for partition, ranges in groupby(self.ranges, lambda one: one.partition):
                rows = (rows_of_offsets(cluster, one, patience, settings) for one in ranges)
                yield partition, chain.from_iterable(rows)

    def check_unchanged(self) -> None:
        """Do nothing: the records at an offset never change."""


def check_same(ends: TopicEnds, topic_id: str, read_to: Mapping[int, int]) -> None:
    """Raise LogCutError if the logs end before what was read, or if the topic was created again."""
    name = ends.topic.name
    if str(ends.topic.topic_id) != topic_id:
        raise LogCutError(f"topic {name} was deleted and created again: start again in another directory")
    for partition, offset in read_to.items():
        if ends.ends.get(partition, offset) < offset:
            raise LogCutError(
                f"{name}-{partition} ends at offset {ends.ends[partition]}, and was read up to {offset}: it was cut"
            )


def rows_of_offsets(
    cluster: KafkaCluster, offset_range: OffsetRange, patience: Patience, settings: RowSettings
) -> Iterator[pa.RecordBatch]:
    """Yield the rows of a range. Offsets deleted before they were read are a row of kind ``corrupt``."""
    fetcher = RangeFetcher(cluster, offset_range, patience)
    offset = offset_range.start
    while (portion := fetcher.next(offset)) is not None:
        if isinstance(portion, Lost):
            origin = Origin(offset_range.name_at(portion.start), offset_range.partition)
            yield corrupt_row(origin, settings, 0, 0, DELETED, portion.start, portion.end)
            offset = portion.end
            continue
        size = len(portion.batches)
        byte_range = ByteRange(0, size, size, is_boundary=True, end_offset=offset_range.end)
        origin = Origin(offset_range.name_at(portion.offset), offset_range.partition)
        reader = RangeReader(portion.read_at, byte_range, origin, settings, chunk_bytes=size)
        yield from reader.rows()
        offset = fetcher.behind(portion, reader.next_offset)
