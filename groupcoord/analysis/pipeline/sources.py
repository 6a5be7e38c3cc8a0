"""Sources of an analysis, on every engine: files or a running cluster, read once or as they grow."""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from functools import partial
from typing import Any

import pyarrow as pa
import pyarrow.csv
from attrs import field, frozen
from fsspec.core import url_to_fs

from groupcoord.analysis.decode.files import (
    FileSet,
    Folders,
    LogTask,
    RecordTask,
    SelectedTask,
    cut_ranges,
    find_segments,
    log_tasks,
    refusals_told,
    selected,
)
from groupcoord.analysis.decode.schema import END_OFFSETS, LIVE_END_OFFSETS, arrow_schema
from groupcoord.analysis.decode.tailing import (
    Cursors,
    LogChangedError,
    advance,
    changes_told,
    check_unchanged,
    logs_of,
    ranges_to_read,
)
from groupcoord.analysis.errors import InputError, first_line
from groupcoord.analysis.live.client import connection
from groupcoord.analysis.live.fetching import (
    check_same,
    check_topic,
    cluster_tasks,
    ends_now,
    record_times,
    tasks_between,
)
from groupcoord.analysis.live.offsets import SPLIT_BYTES as OFFSETS_SPLIT_BYTES
from groupcoord.analysis.live.offsets import TopicEnds, list_ends, offsets_retention_minutes
from groupcoord.analysis.live.settings import ClusterAddress
from groupcoord.analysis.options import EVERYTHING, Selection
from groupcoord.clock import SystemClock
from groupcoord.core.topics import SHARE_STATE_TOPIC

SPLIT_BYTES = 16_777_216
"""How much of a file is read at a time, about: the rows of it are held until it is known that it is the same one."""

ATTEMPTS_MAX = 4
"""So often reading is begun if files change meanwhile."""


def attempted(read: Callable[[], None]) -> None:
    """Do what reads files, and again if they change meanwhile.

    Raises:
        LogChangedError: they changed each time.
    """
    for attempts_left in reversed(range(ATTEMPTS_MAX)):
        try:
            read()
        except LogChangedError:
            if not attempts_left:
                raise
        else:
            return


class Tail(ABC):
    """Reads logs as they grow. What a look gave comes again at the next one, unless it was taken.

    Attributes:
        leaderless: log partitions that the last look left out, since they have no leader.
    """

    leaderless: Sequence[str] = ()

    @abstractmethod
    def look(self) -> Sequence[RecordTask]:
        """Return what there is behind what was taken, cut into tasks."""

    @abstractmethod
    def check(self, task: RecordTask) -> None:
        """Make sure that what a task has read is what the look had found.

        Raises:
            LogChangedError: it isn't.
        """

    @abstractmethod
    def take(self) -> None:
        """All that the last look gave was read."""


class LogTail(Tail):
    """Reads files, up to the last whole batch of each log partition.

    Args:
        find: looks for the files.
    """

    def __init__(self, find: Callable[[], Sequence[FileSet]]) -> None:
        self._find = find
        self._taken: Cursors = {}
        self._seen: Cursors = {}

    def look(self) -> Sequence[RecordTask]:
        """See :class:`Tail`.

        Raises:
            LogChangedError: a file went meanwhile.
        """
        with changes_told():
            logs = logs_of(self._find())
            self._seen = self._taken | {folder: advance(log, self._taken.get(folder)) for folder, log in logs.items()}
            found = ranges_to_read(logs, self._taken, self._seen)
        return [
            LogTask(file_system, some)
            for file_system, ranges in found.items()
            for some in cut_ranges(ranges, SPLIT_BYTES)
        ]

    def check(self, task: RecordTask) -> None:
        """See :class:`Tail`."""
        assert isinstance(task, LogTask)
        check_unchanged(task.file_system, task.ranges)

    def take(self) -> None:
        """See :class:`Tail`."""
        self._taken = self._seen


class ClusterTail(Tail):
    """Reads a topic of a cluster, up to the high watermark of each partition.

    Args:
        address: where the cluster is.
        ends: asks it where the logs begin and end now.
    """

    def __init__(self, address: ClusterAddress, ends: Callable[[], TopicEnds]) -> None:
        self._address = address
        self._ends = ends
        self._topic_id: str | None = None
        self._taken: Mapping[int, int] = {}
        self._seen: Mapping[int, int] = {}

    def look(self) -> Sequence[RecordTask]:
        """See :class:`Tail`.

        Raises:
            LogCutError: what was read is no part of the topic any more.
            ClusterError: the cluster can't be reached.
        """
        ends = self._ends()
        self._topic_id = self._topic_id or str(ends.topic.topic_id)
        check_same(ends, self._topic_id, self._taken)
        topic = ends.topic.name
        self.leaderless = [f"{topic}-{partition}" for partition in ends.leaderless]
        self._seen = {**self._taken, **ends.ends}
        grown = {
            partition: end
            for partition, end in ends.ends.items()
            if end > self._taken.get(partition, ends.starts[partition])
        }
        if not grown:
            return []
        return tasks_between(self._address, topic, self._taken, grown, self._topic_id, OFFSETS_SPLIT_BYTES)

    def check(self, task: RecordTask) -> None:
        """See :class:`Tail`: what lies at an offset stays the same."""

    def take(self) -> None:
        """See :class:`Tail`."""
        self._taken = self._seen


class SelectedTail(Tail):
    """Reads logs as they grow, without the groups that a selection leaves out.

    Args:
        tail: reads all of them.
        selection: leaves groups out.
    """

    def __init__(self, tail: Tail, selection: Selection) -> None:
        self._tail = tail
        self._selection = selection

    def look(self) -> Sequence[SelectedTask]:
        tasks = [SelectedTask(task, self._selection) for task in self._tail.look()]
        self.leaderless = self._tail.leaderless
        return tasks

    def check(self, task: RecordTask) -> None:
        assert isinstance(task, SelectedTask)
        self._tail.check(task.task)

    def take(self) -> None:
        self._tail.take()


RECORD_BYTES = 106
"""What a committed offset takes in a log, about, in batches of a dozen."""


def absolute(paths: Iterable[str | os.PathLike[str]]) -> list[str]:
    """Return paths as they are the same in any directory; URLs stay as they are."""
    return [text if "://" in text else os.path.abspath(text) for text in _texts(paths)]


def _texts(paths: Iterable[str | os.PathLike[str]]) -> tuple[str, ...]:
    return tuple(os.fspath(path) for path in paths)


@frozen
class Source(ABC):
    """Records of ``__consumer_offsets``, and where the topics' partitions end.

    Attributes:
        selection: the log partitions that are read, and the groups that are left out.
        end_offsets: a CSV file with a header and the columns of :data:`groupcoord.analysis.decode.schema.END_OFFSETS`,
            or None.
    """

    selection: Selection = field(default=EVERYTHING, kw_only=True)
    end_offsets: str | None = field(default=None, kw_only=True)

    def check(self, *, may_be_empty: bool = False) -> int:
        """Make sure that all of it is there, and return how many bytes there are to read now, about.

        Args:
            may_be_empty: records may come later.

        Raises:
            InputError: something is not, or may not be read.
        """
        size_bytes = self._check_records(may_be_empty=may_be_empty)
        path = self.end_offsets
        if path is not None and "://" not in path and not os.access(path, os.R_OK):
            raise InputError(f"{path}: there is no such file, or it may not be read")
        return size_bytes

    @property
    def has_ends(self) -> bool:
        """Whether it can be told where the topics' partitions end."""
        return self.end_offsets is not None

    @property
    def asks_for_ends(self) -> bool:
        """Whether a cluster tells where they end, another time something else."""
        return False

    def judged_at_ms(self, last_ms: int | None, read_ms: int) -> int | None:
        """Return the moment to judge from, in milliseconds since 1970, where logs are followed; None: it isn't known.

        Args:
            last_ms: the last timestamp of the records, if there are any.
            read_ms: when the logs were looked at.
        """
        if last_ms is None or not self.asks_for_ends:
            return last_ms
        return max(last_ms, read_ms)  # a cluster goes on though nothing comes to its log

    def read_ends(self, topics: Collection[str]) -> pa.Table | None:
        """Return where topics end, or None if that can't be told.

        The columns are :data:`groupcoord.analysis.decode.schema.END_OFFSETS`, or, where a cluster is asked,
        :data:`groupcoord.analysis.decode.schema.LIVE_END_OFFSETS`.

        Args:
            topics: those of which something is committed.

        Raises:
            InputError: the file is no such table.
        """
        return None if self.end_offsets is None else read_end_offsets_file(self.end_offsets)

    def read_times(self, behind: Collection[Mapping[str, Any]]) -> Sequence[Mapping[str, Any]]:
        """Return :data:`groupcoord.analysis.decode.schema.RECORD_TIMES`: nothing, unless the lag is to go by records.

        Args:
            behind: as :func:`groupcoord.analysis.live.fetching.record_times` takes it.
        """
        return ()

    def offsets_retention_minutes(self) -> int | None:
        """Return what brokers say how long offsets are kept that nobody uses; None: it isn't told."""
        return None

    @property
    @abstractmethod
    def names(self) -> Sequence[str]:
        """What is read, for people."""

    def tasks(self) -> Sequence[RecordTask]:
        """Return what there is to read now, cut into tasks."""
        return [selected(task, self.selection) for task in self._all_tasks()]

    def tail(self) -> Tail:
        """Return what reads it as it grows, from the start."""
        tail = self._whole_tail()
        return SelectedTail(tail, self.selection) if self.selection.excluded_groups else tail

    @property
    def cluster_name(self) -> str:
        """The id of the cluster that is read; empty for files."""
        return ""

    @abstractmethod
    def share_state_tail(self) -> Tail:
        """Return what reads the states of share groups as they grow, from the start.

        Its ``look`` raises :class:`groupcoord.analysis.errors.InputError` where there is no topic of them, or
        it may not be read.
        """

    @abstractmethod
    def _all_tasks(self) -> Sequence[RecordTask]: ...

    @abstractmethod
    def _whole_tail(self) -> Tail: ...

    @abstractmethod
    def _check_records(self, *, may_be_empty: bool) -> int: ...


@frozen
class LogSource(Source):
    """Logs in files.

    Attributes:
        paths: segment files, folders of a log partition, data directories, or patterns of these; local, or URLs.
    """

    paths: tuple[str, ...] = field(converter=_texts)
    _folders: Folders = field(factory=Folders, init=False, eq=False, repr=False)

    @property
    def names(self) -> Sequence[str]:
        """See :class:`Source`."""
        return self.paths

    def _all_tasks(self) -> Sequence[RecordTask]:
        return log_tasks(self.find(may_be_empty=False))

    def _whole_tail(self) -> Tail:
        return LogTail(partial(self.find, may_be_empty=True))

    def share_state_tail(self) -> Tail:
        """See :class:`Source`: folders of that topic lie in data directories beside the others."""
        return LogTail(self._find_share_states)

    def _find_share_states(self) -> list[FileSet]:
        folders = []
        for path in self.paths:
            with refusals_told(path):
                file_system, root = url_to_fs(path)
                found = file_system.glob(f"{root.rstrip('/')}/{SHARE_STATE_TOPIC}-*")
            numbered = (one for one in found if one.rpartition("-")[2].isdecimal())
            folders += [file_system.unstrip_protocol(one) for one in numbered]
        return find_segments(sorted(folders), may_be_empty=True) if folders else []

    def find(self, *, may_be_empty: bool) -> list[FileSet]:
        """Return the files."""
        return find_segments(
            self.paths, partitions=self.selection.partitions, may_be_empty=may_be_empty, folders=self._folders
        )

    def _check_records(self, *, may_be_empty: bool) -> int:
        return sum(one.size_bytes for files in self.find(may_be_empty=may_be_empty) for one in files.segments)


@frozen
class ClusterSource(Source):
    """A cluster that runs.

    Attributes:
        address: where it is.
        topic: what is read.
        lag_from_records: ask for the next record of each group that is behind, how old it is.
    """

    address: ClusterAddress
    topic: str
    lag_from_records: bool = False

    @property
    def has_ends(self) -> bool:
        """See :class:`Source`: the cluster is asked."""
        return True

    @property
    def asks_for_ends(self) -> bool:
        """See :class:`Source`: unless a file tells."""
        return self.end_offsets is None

    def read_ends(self, topics: Collection[str]) -> pa.Table | None:
        """See :class:`Source`: what a file tells goes before what the cluster does."""
        if self.end_offsets is not None:
            return super().read_ends(topics)
        with connection(self.address) as (cluster, patience):
            found = list_ends(cluster, patience, topics, SystemClock().now_ms)
        return pa.Table.from_pylist([row._asdict() for row in found], arrow_schema(LIVE_END_OFFSETS))

    def read_times(self, behind: Collection[Mapping[str, Any]]) -> Sequence[Mapping[str, Any]]:
        """See :class:`Source`."""
        if not self.lag_from_records or not self.asks_for_ends or not behind:
            return ()
        return record_times(self.address, behind)

    def offsets_retention_minutes(self) -> int | None:
        """See :class:`Source`."""
        with connection(self.address) as (cluster, patience):
            return offsets_retention_minutes(cluster, patience)

    @property
    def names(self) -> Sequence[str]:
        """See :class:`Source`."""
        return (f"kafka://{self.address.settings().bootstrap_servers}/{self.topic}",)

    def _all_tasks(self) -> Sequence[RecordTask]:
        return cluster_tasks(self.address, self.topic, self.selection.partitions, OFFSETS_SPLIT_BYTES)

    @property
    def cluster_name(self) -> str:
        """See :class:`Source`."""
        return self.ends().cluster_id

    def share_state_tail(self) -> Tail:
        """See :class:`Source`."""
        return ClusterTail(self.address, lambda: ends_now(self.address, SHARE_STATE_TOPIC, (), may_lack=True))

    def _whole_tail(self) -> Tail:
        return ClusterTail(self.address, self.ends)

    def ends(self) -> TopicEnds:
        """Return the present start and end offsets of the logs, without those that have no leader."""
        return ends_now(self.address, self.topic, self.selection.partitions, may_lack=True)

    def _check_records(self, *, may_be_empty: bool) -> int:
        # A cluster tells how many offsets there are, and not how many bytes.
        ends = check_topic(self.address, self.topic, self.selection.partitions, may_be_empty=may_be_empty)
        return sum(one.end - one.start for one in ends.whole()) * RECORD_BYTES


def read_end_offsets_file(path: str) -> pa.Table:
    """Return what a CSV file tells of where topics end (:data:`groupcoord.analysis.decode.schema.END_OFFSETS`).

    Raises:
        InputError: it can't be read, lacks a column, or something in it is no number.
    """
    schema = arrow_schema(END_OFFSETS)
    options = pyarrow.csv.ConvertOptions(column_types=schema, include_columns=schema.names)
    with refusals_told(path):
        file_system, place = url_to_fs(path)
        with file_system.open(place, "rb") as file:
            try:
                return pyarrow.csv.read_csv(file, convert_options=options)
            except (pa.ArrowInvalid, pa.ArrowKeyError) as error:
                raise InputError(f"{path}: {first_line(error)}") from error
