"""The Spark data source ``groupcoord``: segment files in, rows of the table of records out."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import pyarrow as pa
from fsspec import AbstractFileSystem
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from groupcoord.spark.chunks import Origin, RowSettings
from groupcoord.spark.errors import InputError
from groupcoord.spark.files import SPLIT_BYTES, FileRange, cut, find_segments, reader_of
from groupcoord.spark.ranges import one_row, range_rows
from groupcoord.spark.schemas import KIND_CORRUPT, RECORDS

FORMAT = "groupcoord"
SPLIT_BYTES_MIN = 65_536
_OPTIONS = ("path", "paths", "columns", "raw_bytes", "split_bytes", "partitions", "storage_options")


class LogOptions:
    """What a read of logs is told, as Spark passes it: text, by names in any case.

    Attributes:
        paths: what to read.
        settings: what rows are to hold.
        split_bytes: how much one task reads, about.
        partitions: only these log partitions; all if empty.
        storage_options: for fsspec's file system.
    """

    def __init__(self, options: Mapping[str, str]) -> None:
        unknown = sorted(name for name in options if name.lower() not in _OPTIONS)
        if unknown:
            raise InputError(f"unknown option {unknown[0]}; there are {', '.join(_OPTIONS)}")
        given = {name.lower(): value for name, value in options.items()}
        self.paths: list[str] = _json("paths", given.get("paths", "[]"), list)
        if "path" in given:
            self.paths = [given["path"], *self.paths]
        self.settings = RowSettings(_columns(given.get("columns", "")), _flag("raw_bytes", given.get("raw_bytes", "")))
        self.split_bytes = _number("split_bytes", given.get("split_bytes", str(SPLIT_BYTES)), SPLIT_BYTES_MIN)
        names = _words(given.get("partitions", ""))
        self.partitions = frozenset(_number("partitions", name, 0) for name in names)
        self.storage_options: dict[str, Any] = _json("storage_options", given.get("storage_options", "{}"), dict)

    def schema(self) -> StructType:
        """Return the columns that are wanted."""
        return StructType([RECORDS[name] for name in self.settings.columns])


def _words(text: str) -> list[str]:
    return [word.strip() for word in text.split(",") if word.strip()]


def _columns(text: str) -> tuple[str, ...]:
    """Return the columns asked for in the table's order, and ``kind``, without which no row says what it is."""
    wanted = set(_words(text)) or set(RECORDS.fieldNames())
    unknown = sorted(wanted - set(RECORDS.fieldNames()))
    if unknown:
        raise InputError(f"option columns: there is no column {unknown[0]}")
    return tuple(name for name in RECORDS.fieldNames() if name in wanted | {"kind"})


def _flag(name: str, text: str) -> bool:
    if text.lower() not in ("", "true", "false"):
        raise InputError(f"option {name}: {text} is neither true nor false")
    return text.lower() == "true"


def _number(name: str, text: str, at_least: int) -> int:
    if not text.isdecimal() or int(text) < at_least:
        raise InputError(f"option {name}: {text} is no number of {at_least} or more")
    return int(text)


def _json(name: str, text: str, kind: type) -> Any:
    try:
        value = json.loads(text)
    except ValueError:
        value = None
    if not isinstance(value, kind):
        raise InputError(f"option {name}: {text} is no JSON {'array' if kind is list else 'object'}")
    return value


class LogPartition(InputPartition):
    """The work of one task: byte ranges of files in one file system."""

    def __init__(self, file_system: AbstractFileSystem, ranges: list[FileRange]) -> None:
        super().__init__(None)
        self.file_system = file_system
        self.ranges = ranges


class LogReader(DataSourceReader):
    """Reads segment files."""

    def __init__(self, options: LogOptions) -> None:
        self._options = options

    def partitions(self) -> Sequence[InputPartition]:
        """Find the files and cut them into tasks."""
        options = self._options
        found = find_segments(options.paths, storage_options=options.storage_options, partitions=options.partitions)
        return [
            LogPartition(files.file_system, ranges)
            for files in found
            for ranges in cut(files.segments, options.split_bytes)
        ]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield the rows of one task."""
        assert isinstance(partition, LogPartition)
        return log_rows(partition, self._options.settings)


def log_rows(partition: LogPartition, settings: RowSettings) -> Iterator[pa.RecordBatch]:
    """Yield the rows of one task. A file that is gone is a row of kind ``corrupt``; other failures are the task's."""
    for file_range in partition.ranges:
        segment, byte_range = file_range
        if segment.unread is not None:
            yield _passed_over(file_range, segment.unread, settings)
            continue
        read_at = reader_of(partition.file_system, segment)
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
