"""Spark data source ``groupcoord``: rows of the table of records, or of a table of groups, from segment files."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceReader, DataSourceStreamReader, InputPartition
from pyspark.sql.types import StructType

from groupcoord.analysis.decode.files import (
    SPLIT_BYTES,
    FileSet,
    Folders,
    LogTask,
    cut_ranges,
    find_segments,
    log_tasks,
    selected,
)
from groupcoord.analysis.decode.parquet import with_times
from groupcoord.analysis.decode.rows import RowSettings
from groupcoord.analysis.decode.schema import arrow_schema
from groupcoord.analysis.decode.tailing import (
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
from groupcoord.analysis.errors import InputError
from groupcoord.analysis.fold.records import DECODED_COLUMNS, PartitionFold, fold_batches
from groupcoord.analysis.rules.groups import groups, offset_expiry
from groupcoord.analysis.tables import TABLES, TABLES_OF_KINDS
from groupcoord.spark.output import schema_with_times
from groupcoord.spark.record_sources import (
    ROW_OPTIONS,
    RecordOptions,
    RecordReader,
    RecordStreamReader,
    json_value,
    known_options,
)
from groupcoord.spark.schemas import declared

if TYPE_CHECKING:
    from pyspark.sql.streaming.datasource import ReadLimit

FORMAT = "groupcoord"
_OPTIONS = ("path", "paths", "table", *ROW_OPTIONS, "storage_options", "max_bytes")

RECORDS_TABLE = "records"
FOLDED_TABLES = (*TABLES_OF_KINDS.values(), "current_offsets", "groups", "offset_expiry")
"""The tables that the format makes of each log partition as a whole."""

_OF_RECORDS = ("columns", "raw_bytes", "split_bytes")
_ROWS_MAX = 4_096


class LogOptions(RecordOptions):
    """What a read of logs is told, as Spark passes it: text, by names in any case.

    Attributes:
        paths: what to read.
        storage_options: for fsspec's file system.
        table: :data:`RECORDS_TABLE` or one of :data:`FOLDED_TABLES`.
    """

    def __init__(self, options: Mapping[str, str]) -> None:
        given = known_options(options, _OPTIONS)
        super().__init__(given, SPLIT_BYTES, "max_bytes")
        self.paths: list[str] = json_value("paths", given.get("paths", "[]"), list)
        if "path" in given:
            self.paths = [given["path"], *self.paths]
        self.storage_options: dict[str, Any] = json_value("storage_options", given.get("storage_options", "{}"), dict)
        self.table = given.get("table", RECORDS_TABLE)
        if self.table not in (RECORDS_TABLE, *FOLDED_TABLES):
            raise InputError(
                f"option table: there is no table {self.table}; there are {RECORDS_TABLE}, {', '.join(FOLDED_TABLES)}"
            )
        unused = [name for name in _OF_RECORDS if given.get(name)]
        if self.table != RECORDS_TABLE and unused:
            raise InputError(f"option {unused[0]} is for the table records, not for {self.table}")

    def schema(self) -> StructType:
        """Return the columns of the table."""
        if self.table == RECORDS_TABLE:
            return super().schema()
        schema = declared(TABLES[self.table])
        return schema_with_times(schema) if self.timestamps else schema

    def find_segments(self, *, may_be_empty: bool = False, folders: Folders | None = None) -> list[FileSet]:
        """Return the files that the paths stand for; see :func:`groupcoord.analysis.decode.files.find_segments`."""
        return find_segments(
            self.paths,
            storage_options=self.storage_options,
            partitions=self.selection.partitions,
            may_be_empty=may_be_empty,
            folders=folders,
        )

    def tasks(self) -> Sequence[LogTask]:
        """Find the files and cut them into tasks."""
        return log_tasks(self.find_segments(), self.split_bytes)


class FoldedPartition(NamedTuple):
    """The segment files of one log partition: the work of one task."""

    number: int | None
    tasks: list[LogTask]


class TableReader(DataSourceReader):
    """Reader of a table of :data:`FOLDED_TABLES`: each task folds one log partition, which holds all of its groups."""

    def __init__(self, options: LogOptions) -> None:
        self._options = options

    def partitions(self) -> Sequence[InputPartition]:
        found: dict[int | None, list[LogTask]] = {}
        for files in self._options.find_segments():
            for segment in files.segments:
                tasks = log_tasks([FileSet(files.file_system, [segment])], max(1, segment.size_bytes))
                found.setdefault(segment.partition, []).extend(tasks)
        return [InputPartition(FoldedPartition(number, tasks)) for number, tasks in found.items()]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        work: FoldedPartition = partition.value
        settings = RowSettings(DECODED_COLUMNS)
        tasks = [selected(task, self._options.selection) for task in work.tasks]
        fold = fold_batches(work.number, (rows for task in tasks for rows in task.rows(settings)))
        rows, schema = _table_rows(self._options.table, fold), arrow_schema(TABLES[self._options.table])
        for start in range(0, len(rows), _ROWS_MAX):
            batch = pa.RecordBatch.from_pylist(rows[start : start + _ROWS_MAX], schema)
            yield with_times(batch) if self._options.timestamps else batch


def _table_rows(name: str, fold: PartitionFold) -> list[dict[str, Any]]:
    """Return the rows of a table of :data:`FOLDED_TABLES`."""
    by_kind = fold.rows_by_kind()
    for kind, table in TABLES_OF_KINDS.items():
        if table == name:
            return by_kind[kind]
    facts = fold.facts()
    current = facts.current_offsets()
    if name == "current_offsets":
        found: list[dict[str, Any]] = current.to_pylist()
        return found
    described = groups(by_kind, current)
    return described if name == "groups" else offset_expiry(described, current, facts)


class LogStreamReader(RecordStreamReader):
    """Reads logs as they grow. Its offset has a ``tailing.Cursor`` for each log partition."""

    def __init__(self, options: LogOptions) -> None:
        self._options: LogOptions = options
        self._folders = Folders()
        # The logs as they were when the stream was told to stop at their end, until that end is known.
        self._of_then: dict[str, Log] | None = None
        self._last: Cursors | None = None

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        """Return how much a micro-batch may read."""
        from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxBytes

        bound = self._options.micro_batch_max
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

    def tasks_between(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[LogTask]:
        """Return what lies between two offsets, cut into tasks, as the files are now."""
        with changes_told():
            found = ranges_to_read(self._logs(), from_json(start), from_json(end))
        return [
            LogTask(file_system, some)
            for file_system, ranges in found.items()
            for some in cut_ranges(ranges, self._options.split_bytes)
        ]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield the rows of one task.

        Raises:
            LogChangedError: a file is not the one any more that was found when the micro-batch was planned.
        """
        yield from super().read(partition)
        if partition.value is not None:
            check_unchanged(partition.value.file_system, partition.value.ranges)

    def _logs(self) -> dict[str, Log]:
        return logs_of(self._options.find_segments(may_be_empty=True, folders=self._folders))


class LogDataSource(DataSource):
    """``spark.read.format("groupcoord")``: a table of ``__consumer_offsets`` segment files.

    Options: ``path`` (the argument of ``load()``) or ``paths`` (a JSON array), ``partitions`` (numbers with commas
    between them), ``storage_options`` (a JSON object for fsspec), ``timestamps`` (true adds a timestamp to each point
    in time), ``table`` (``records``, the default, or one of :data:`FOLDED_TABLES`). For the table of records alone:
    ``columns`` (names with commas between them; Spark can't tell a Python source which it needs), ``raw_bytes``,
    ``split_bytes``, and for streams ``max_bytes``.
    """

    @classmethod
    def name(cls) -> str:
        """Return the name of the format."""
        return FORMAT

    def schema(self) -> StructType:
        """Return the columns of the table, or those that are asked for."""
        return LogOptions(self.options).schema()

    def reader(self, schema: StructType) -> DataSourceReader:
        options = LogOptions(self.options)
        return RecordReader(options) if options.table == RECORDS_TABLE else TableReader(options)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802
        options = LogOptions(self.options)
        if options.table != RECORDS_TABLE:
            raise InputError(f"option table: {options.table} can't be read as a stream, which has the table records")
        return LogStreamReader(options)
