"""The Spark data source ``groupcoord``: segment files in, rows of the table of records out, at once or as they grow."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from fsspec import AbstractFileSystem
from pyspark.sql.datasource import DataSource, DataSourceReader, DataSourceStreamReader, InputPartition
from pyspark.sql.types import StructType

from groupcoord.analysis.columns.chunks import RowSettings
from groupcoord.analysis.columns.files import (
    SPLIT_BYTES,
    FileRange,
    FileSet,
    cut,
    cut_ranges,
    find_segments,
)
from groupcoord.analysis.columns.folders import Folders
from groupcoord.analysis.columns.options import chosen_columns, flag, json_value, known_options, number, words
from groupcoord.analysis.columns.tailing import (
    Cursor,
    Cursors,
    Log,
    advance,
    changes_told,
    check_unchanged,
    from_json,
    logs_of,
    ranges_to_read,
    to_json,
)
from groupcoord.analysis.columns.tasks import LogTask
from groupcoord.spark.available_now import SupportsTriggerAvailableNow
from groupcoord.spark.schemas import RECORDS

if TYPE_CHECKING:
    from pyspark.sql.streaming.datasource import ReadLimit

FORMAT = "groupcoord"
SPLIT_BYTES_MIN = 65_536
MAX_BYTES_MIN = 1
_OPTIONS = ("path", "paths", "columns", "raw_bytes", "split_bytes", "partitions", "storage_options", "max_bytes")


class LogOptions:
    """What a read of logs is told, as Spark passes it: text, by names in any case.

    Attributes:
        paths: what to read.
        settings: what rows are to hold.
        split_bytes: how much one task reads, about.
        partitions: only these log partitions; all if empty.
        storage_options: for fsspec's file system.
        max_bytes: how much of each log partition a micro-batch of a stream reads, about; None: all there is.
    """

    def __init__(self, options: Mapping[str, str]) -> None:
        given = known_options(options, _OPTIONS)
        self.paths: list[str] = json_value("paths", given.get("paths", "[]"), list)
        if "path" in given:
            self.paths = [given["path"], *self.paths]
        self.settings = RowSettings(
            chosen_columns(given.get("columns", "")), flag("raw_bytes", given.get("raw_bytes", ""))
        )
        self.split_bytes = number("split_bytes", given.get("split_bytes", str(SPLIT_BYTES)), SPLIT_BYTES_MIN)
        names = words(given.get("partitions", ""))
        self.partitions = frozenset(number("partitions", name, 0) for name in names)
        self.storage_options: dict[str, Any] = json_value("storage_options", given.get("storage_options", "{}"), dict)
        bound = given.get("max_bytes", "")
        self.max_bytes = number("max_bytes", bound, MAX_BYTES_MIN) if bound else None

    def find_segments(self, *, may_be_empty: bool = False, folders: Folders | None = None) -> list[FileSet]:
        """Return the files that the paths stand for; see :func:`groupcoord.analysis.columns.files.find_segments`."""
        return find_segments(
            self.paths,
            storage_options=self.storage_options,
            partitions=self.partitions,
            may_be_empty=may_be_empty,
            folders=folders,
        )

    def schema(self) -> StructType:
        """Return the columns that are wanted."""
        return StructType([RECORDS[name] for name in self.settings.columns])


class LogPartition(LogTask, InputPartition):
    """The work of one task of Spark's."""

    def __init__(self, file_system: AbstractFileSystem, ranges: list[FileRange]) -> None:
        InputPartition.__init__(self, None)
        LogTask.__init__(self, file_system, ranges)


class LogReader(DataSourceReader):
    """Reads segment files."""

    def __init__(self, options: LogOptions) -> None:
        self._options = options

    def partitions(self) -> Sequence[InputPartition]:
        """Find the files and cut them into tasks."""
        found = self._options.find_segments()
        return [
            LogPartition(files.file_system, ranges)
            for files in found
            for ranges in cut(files.segments, self._options.split_bytes)
        ]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield the rows of one task."""
        assert isinstance(partition, LogPartition)
        return partition.rows(self._options.settings)


class LogStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Reads logs as they grow. Its offset has a ``tailing.Cursor`` for each log partition."""

    def __init__(self, options: LogOptions) -> None:
        self._options = options
        self._folders = Folders()
        # The logs as they were when the stream was told to stop at their end, until that end is known.
        self._of_then: dict[str, Log] | None = None
        self._last: Cursors | None = None

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802
        """Return where a stream without a checkpoint starts: before everything."""
        return {}

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        """Return how much a micro-batch may read."""
        from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxBytes

        bound = self._options.max_bytes
        return ReadAllAvailable() if bound is None else ReadMaxBytes(bound)

    def latestOffset(  # noqa: N802
        self, start: dict[str, Any] | None = None, limit: ReadLimit | None = None
    ) -> dict[str, Any]:
        """Return how far there are whole batches now. Spark before 4.2 tells neither argument."""
        bytes_max: int | None = getattr(limit, "max_bytes", None)
        cursors = from_json(start or {})
        with changes_told():
            logs = self._logs() if self._of_then is None else self._of_then
            if self._of_then is not None:
                self._last = {folder: advance(log, cursors.get(folder)) for folder, log in logs.items()}
                self._of_then = None
            for folder, log in logs.items():
                moved = self._moved(folder, log, cursors.get(folder), bytes_max)
                if moved is not None:
                    cursors[folder] = moved
        return to_json(cursors)

    def _moved(self, folder: str, log: Log, cursor: Cursor | None, bytes_max: int | None) -> Cursor | None:
        """Return up to where to read a log, or None: not at all, since what is behind came later."""
        if self._last is None:
            return advance(log, cursor, bytes_max)
        last = self._last.get(folder)
        if last is None or (cursor is not None and cursor.is_at(last)):
            return None
        if bytes_max is None:
            return last
        moved = advance(log, cursor, bytes_max)
        return last if moved.is_at(last) else moved

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        """Read from now on no further than to where the logs end now."""
        # Where that is, is found from where the stream is: so nothing is read twice.
        self._of_then = self._logs()

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        """Cut what lies between two offsets into tasks, as the files are now."""
        with changes_told():
            found = ranges_to_read(self._logs(), from_json(start), from_json(end))
        return [
            LogPartition(file_system, some)
            for file_system, ranges in found.items()
            for some in cut_ranges(ranges, self._options.split_bytes)
        ]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield the rows of one task.

        Raises:
            LogChangedError: a file is not the one any more that was found when the micro-batch was planned.
        """
        if not isinstance(partition, LogPartition):
            return  # Spark's own, where there are none
        yield from partition.rows(self._options.settings)
        check_unchanged(partition.file_system, partition.ranges)

    def _logs(self) -> dict[str, Log]:
        return logs_of(self._options.find_segments(may_be_empty=True, folders=self._folders))


class LogDataSource(DataSource):
    """``spark.read.format("groupcoord")``: every record of ``__consumer_offsets`` segment files.

    Options: ``path`` (what ``load()`` is given) or ``paths`` (a JSON array), ``columns`` (names with commas between
    them; Spark can't tell a Python source which it needs), ``raw_bytes``, ``split_bytes``, ``partitions`` (numbers with
    commas between them), ``storage_options`` (a JSON object for fsspec).
    """

    @classmethod
    def name(cls) -> str:
        """Return the name of the format."""
        return FORMAT

    def schema(self) -> StructType:
        """Return the columns of :data:`groupcoord.spark.schemas.RECORDS`, or those that are asked for."""
        return LogOptions(self.options).schema()

    def reader(self, schema: StructType) -> DataSourceReader:
        """Return what reads the files."""
        return LogReader(LogOptions(self.options))

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802
        """Return what reads the files as they grow."""
        return LogStreamReader(LogOptions(self.options))
