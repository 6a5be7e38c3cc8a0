"""Spark data sources of segment files, of a running cluster, and of the end offsets of its topics."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, TypedDict, Unpack

import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceReader, DataSourceStreamReader, InputPartition
from pyspark.sql.types import StructType

from groupcoord.analysis.decode.files import (
    SPLIT_BYTES as LOG_SPLIT_BYTES,
    FileSet,
    LogTask,
    RecordTask,
    log_tasks,
)
from groupcoord.analysis.decode.parquet import with_times
from groupcoord.analysis.decode.rows import RowSettings
from groupcoord.analysis.decode.schema import arrow_schema
from groupcoord.analysis.errors import InputError
from groupcoord.analysis.fold.records import DECODED_COLUMNS, PartitionFold, fold_batches
from groupcoord.analysis.live.cluster import connection
from groupcoord.analysis.live.offsets import SPLIT_BYTES as CLUSTER_SPLIT_BYTES, list_ends
from groupcoord.analysis.live.settings import BOOTSTRAP_SERVERS, ClusterAddress
from groupcoord.analysis.options import Selection
from groupcoord.analysis.pipeline.sources import ClusterSource, Extent, LogSource, Position, Source
from groupcoord.analysis.rules.groups import groups, offset_expiry
from groupcoord.analysis.tables import END_OFFSETS_TABLE, TABLES, TABLES_OF_KINDS
from groupcoord.clock import SystemClock
from groupcoord.config.client_properties import SECRET_KEYS
from groupcoord.core.log.records import OFFSETS_TOPIC
from groupcoord.spark.schemas import LIVE_END_OFFSETS, RECORDS, declared, schema_with_times

if TYPE_CHECKING:
    from pyspark.sql.streaming.datasource import ReadLimit, SupportsTriggerAvailableNow
else:
    try:
        from pyspark.sql.streaming.datasource import SupportsTriggerAvailableNow
    except ImportError:  # before Spark 4.2, which can't read a stream up to its end of now after a crash

        class SupportsTriggerAvailableNow:
            """Placeholder before Spark 4.2."""


def known_options(given: Mapping[str, str], names: tuple[str, ...]) -> dict[str, str]:
    unknown = sorted(name for name in given if name.lower() not in names)
    if unknown:
        raise InputError(f"unknown option {unknown[0]}; there are {', '.join(names)}")
    return {name.lower(): value for name, value in given.items()}


def words(text: str) -> list[str]:
    """Parse values separated by commas."""
    return [word.strip() for word in text.split(",") if word.strip()]


def chosen_columns(text: str) -> tuple[str, ...]:
    """Return the columns in the table's order, always with ``kind``."""
    wanted = set(words(text)) or set(RECORDS.names)
    unknown = sorted(wanted - set(RECORDS.names))
    if unknown:
        raise InputError(f"option columns: there is no column {unknown[0]}")
    return tuple(name for name in RECORDS.names if name in wanted | {"kind"})


def flag(name: str, text: str) -> bool:
    if text.lower() not in ("", "true", "false"):
        raise InputError(f"option {name}: {text} is neither true nor false")
    return text.lower() == "true"


def number(name: str, text: str, at_least: int) -> int:
    """Parse a number with a lower limit."""
    if not text.isdecimal() or int(text) < at_least:
        raise InputError(f"option {name}: {text} is no number of {at_least} or more")
    return int(text)


def json_value(name: str, text: str, kind: type) -> Any:
    """Parse a JSON array (``list``) or object (``dict``)."""
    try:
        value = json.loads(text)
    except ValueError:
        value = None
    if not isinstance(value, kind):
        raise InputError(f"option {name}: {text} is no JSON {'array' if kind is list else 'object'}")
    return value


SPLIT_BYTES_MIN = 65_536
ROW_OPTIONS = ("columns", "raw_bytes", "split_bytes", "partitions", "exclude_groups", "timestamps")


class RowArguments(TypedDict, total=False):
    """Keyword arguments of every function that reads records.

    Attributes:
        columns: columns to read, in addition to ``kind``; all by default. :data:`groupcoord.spark.COMMIT_COLUMNS` are
            enough for tables of committed offsets.
        raw_bytes: also keep key and value of decoded offsets.
        split_bytes: approximate bytes per task, at least 65,536.
        partitions: log partitions to read; all by default.
        exclude_groups: regular expressions; groups with a fully matching name are excluded.
    """

    columns: Iterable[str] | None
    raw_bytes: bool
    split_bytes: int
    partitions: Iterable[int]
    exclude_groups: Iterable[str]


def row_options(**given: Unpack[RowArguments]) -> dict[str, str]:
    """Return arguments as options of a data source, which are text."""
    unknown = sorted(given.keys() - RowArguments.__annotations__.keys())
    if unknown:
        raise TypeError(f"unexpected keyword argument {unknown[0]!r}")
    options = {
        "columns": ",".join(given.get("columns") or ()),
        "raw_bytes": str(given.get("raw_bytes", False)).lower(),
        "partitions": ",".join(map(str, given.get("partitions", ()))),
    }
    if "split_bytes" in given:
        options["split_bytes"] = str(given["split_bytes"])
    if excluded := Selection(excluded_groups=given.get("exclude_groups", ())).expressions:
        options["exclude_groups"] = json.dumps(excluded)
    return options


class RecordOptions:
    """Options of a read, as text by lowercase names.

    Attributes:
        split_bytes: approximate bytes per task.
        micro_batch_max: approximate size of a log partition's part of a micro-batch; None for all.
    """

    source: Source

    def __init__(self, given: Mapping[str, str], split_bytes: int, bound: str) -> None:
        self.settings = RowSettings(
            chosen_columns(given.get("columns", "")), flag("raw_bytes", given.get("raw_bytes", ""))
        )
        self.timestamps = flag("timestamps", given.get("timestamps", ""))
        self.split_bytes = number("split_bytes", given.get("split_bytes", str(split_bytes)), SPLIT_BYTES_MIN)
        self.selection = Selection(
            [number("partitions", name, 0) for name in words(given.get("partitions", ""))],
            json_value("exclude_groups", given.get("exclude_groups", "[]"), list),
        )
        text = given.get(bound, "")
        self.micro_batch_max = number(bound, text, 1) if text else None

    def schema(self) -> StructType:
        schema = StructType([RECORDS[name] for name in self.settings.columns])
        return schema_with_times(schema) if self.timestamps else schema

    def rows(self, task: RecordTask) -> Iterator[pa.RecordBatch]:
        rows = task.rows(self.settings)
        return map(with_times, rows) if self.timestamps else rows

    def tasks(self) -> Sequence[RecordTask]:
        return self.source.tasks(self.split_bytes)


class RecordReader(DataSourceReader):
    # No pushFilters: Spark 4 plans a Python source once per DataFrame, so a second query would miss filtered rows.

    """Reader of the content at planning time."""

    def __init__(self, options: RecordOptions) -> None:
        self._options = options

    def partitions(self) -> Sequence[InputPartition]:
        return [InputPartition(task) for task in self._options.tasks()]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return self._options.rows(partition.value)


class RecordStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Reader of growing logs; its offset is a position of the source."""

    def __init__(self, options: RecordOptions) -> None:
        self._options = options
        # The logs when Trigger.AvailableNow was prepared. Ends are computed from the stream's position, so that
        # nothing is read twice.
        self._then: Extent | None = None
        self._last: Position | None = None

    def initialOffset(self) -> Position:  # noqa: N802
        """Return where a stream without a checkpoint starts."""
        return {}

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxBytes, ReadMaxRows

        bound = self._options.micro_batch_max
        if bound is None:
            return ReadAllAvailable()
        return ReadMaxRows(bound) if isinstance(self._options.source, ClusterSource) else ReadMaxBytes(bound)

    def latestOffset(self, start: Position | None = None, limit: ReadLimit | None = None) -> Position:  # noqa: N802
        # Spark before 4.2 passes no arguments.
        before, bound = start or {}, getattr(limit, "max_bytes", getattr(limit, "max_rows", None))
        if self._then is not None:
            self._last = self._then.position(before)
        extent, self._then = self._then or self._options.source.extent(), None
        return extent.position(before, bound, self._last)

    def reportLatestOffset(self) -> Position | None:  # noqa: N802
        source = self._options.source
        return source.extent().position({}) if isinstance(source, ClusterSource) else None

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        self._then = self._options.source.extent()

    def partitions(self, start: Position, end: Position) -> Sequence[InputPartition]:
        tasks = self._options.source.extent().tasks_between(start, end, self._options.split_bytes)
        return [InputPartition(task) for task in tasks]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        task: RecordTask | None = partition.value
        if task is not None:  # Spark passes None without partitions
            yield from self._options.rows(task)
            task.check_unchanged()


FORMAT = "groupcoord"
_LOG_OPTIONS = ("path", "paths", "table", *ROW_OPTIONS, "storage_options", "max_bytes")

RECORDS_TABLE = "records"
FOLDED_TABLES = (*TABLES_OF_KINDS.values(), "current_offsets", "groups", "offset_expiry")
"""The tables that the format makes of each log partition as a whole."""

_OF_RECORDS = ("columns", "raw_bytes", "split_bytes")
_ROWS_MAX = 4_096


class LogOptions(RecordOptions):
    """Options of a read of logs, as text by names in any case."""

    def __init__(self, options: Mapping[str, str]) -> None:
        given = known_options(options, _LOG_OPTIONS)
        super().__init__(given, LOG_SPLIT_BYTES, "max_bytes")
        paths: list[str] = json_value("paths", given.get("paths", "[]"), list)
        if "path" in given:
            paths = [given["path"], *paths]
        storage_options = json_value("storage_options", given.get("storage_options", "{}"), dict)
        self.source: LogSource = LogSource(paths, selection=self.selection, storage_options=storage_options)
        self.table = given.get("table", RECORDS_TABLE)
        if self.table not in (RECORDS_TABLE, *FOLDED_TABLES):
            raise InputError(
                f"option table: there is no table {self.table}; there are {RECORDS_TABLE}, {', '.join(FOLDED_TABLES)}"
            )
        unused = [name for name in _OF_RECORDS if given.get(name)]
        if self.table != RECORDS_TABLE and unused:
            raise InputError(f"option {unused[0]} is for the table records, not for {self.table}")

    def schema(self) -> StructType:
        if self.table == RECORDS_TABLE:
            return super().schema()
        schema = declared(TABLES[self.table])
        return schema_with_times(schema) if self.timestamps else schema


class FoldedPartition(NamedTuple):
    """The segment files of one log partition: the work of one task."""

    number: int | None
    tasks: list[LogTask]


class TableReader(DataSourceReader):
    """Reader of a table of :data:`FOLDED_TABLES`: each task folds one log partition."""

    def __init__(self, options: LogOptions) -> None:
        self._options = options

    def partitions(self) -> Sequence[InputPartition]:
        found: dict[int | None, list[LogTask]] = {}
        for files in self._options.source.find(may_be_empty=False):
            for segment in files.segments:
                one = FileSet(files.file_system, [segment])
                tasks = log_tasks([one], max(1, segment.size_bytes), self._options.selection)
                found.setdefault(segment.partition, []).extend(tasks)
        return [InputPartition(FoldedPartition(number, tasks)) for number, tasks in found.items()]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        work: FoldedPartition = partition.value
        settings = RowSettings(DECODED_COLUMNS)
        fold = fold_batches(work.number, (rows for task in work.tasks for rows in task.rows(settings)))
        rows, schema = _table_rows(self._options.table, fold), arrow_schema(TABLES[self._options.table])
        for start in range(0, len(rows), _ROWS_MAX):
            batch = pa.RecordBatch.from_pylist(rows[start : start + _ROWS_MAX], schema)
            yield with_times(batch) if self._options.timestamps else batch


def _table_rows(name: str, fold: PartitionFold) -> list[dict[str, Any]]:
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


class LogDataSource(DataSource):
    """``spark.read.format("groupcoord")``: a table of ``__consumer_offsets`` segment files.

    Options of every table:

    - ``path`` (the argument of ``load()``) or ``paths`` (a JSON array)
    - ``storage_options``: a JSON object for fsspec
    - ``table``: ``records``, the default, or one of :data:`FOLDED_TABLES`
    - ``partitions`` (numbers separated by commas) and ``exclude_groups`` (a JSON array)
    - ``timestamps``: true adds a timestamp to each point in time

    For records only: ``columns`` (separated by commas, since Spark does not pass the columns it needs to a Python
    source), ``raw_bytes``, ``split_bytes``, and for streams ``max_bytes``.
    """

    @classmethod
    def name(cls) -> str:
        return FORMAT

    def schema(self) -> StructType:
        return LogOptions(self.options).schema()

    def reader(self, schema: StructType) -> DataSourceReader:
        options = LogOptions(self.options)
        return RecordReader(options) if options.table == RECORDS_TABLE else TableReader(options)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802
        options = LogOptions(self.options)
        if options.table != RECORDS_TABLE:
            raise InputError(f"option table: {options.table} can't be read as a stream, which has the table records")
        return RecordStreamReader(options)


CLUSTER_FORMAT = "groupcoord-kafka"
COMMAND_CONFIG = "command.config"
KAFKA = "kafka."
_CLUSTER_OPTIONS = ("topic", *ROW_OPTIONS, "max_offsets")


def refuse_secrets(options: Mapping[str, str]) -> None:
    """Raise InputError for options with secrets, which Spark would show."""
    secret = [name for name in options if name.lower().removeprefix(KAFKA) in SECRET_KEYS]
    if secret:
        raise InputError(f"option {secret[0]} would be seen in plans and logs: put it into the command.config file")


def cluster_and_options(options: Mapping[str, str], names: tuple[str, ...]) -> tuple[ClusterAddress, dict[str, str]]:
    """Return the address of the cluster, and the other options by lowercase names; ``kafka.``
    begins client settings.
    """
    refuse_secrets(options)
    lowered = {name.lower(): value for name, value in options.items()}
    settings = {name.removeprefix(KAFKA): lowered.pop(name) for name in list(lowered) if name.startswith(KAFKA)}
    given = known_options(lowered, (BOOTSTRAP_SERVERS, COMMAND_CONFIG, *names))
    servers = settings.pop(BOOTSTRAP_SERVERS, "")
    return ClusterAddress(given.get(BOOTSTRAP_SERVERS) or servers, given.get(COMMAND_CONFIG) or None, settings), given


class ClusterOptions(RecordOptions):
    """Options of a read of a cluster, as text by names in any case."""

    def __init__(self, options: Mapping[str, str]) -> None:
        address, given = cluster_and_options(options, _CLUSTER_OPTIONS)
        super().__init__(given, CLUSTER_SPLIT_BYTES, "max_offsets")
        topic = given.get("topic") or OFFSETS_TOPIC
        self.source: ClusterSource = ClusterSource(address, topic, selection=self.selection)


class ClusterDataSource(DataSource):
    """``spark.read.format("groupcoord-kafka")``: every record of a cluster's ``__consumer_offsets``.

    Options:

    - ``bootstrap.servers``, and client settings with the prefix ``kafka.``
    - ``command.config``: a properties file on every machine
    - ``topic``: a copy of ``__consumer_offsets`` to read instead
    - those of :class:`LogDataSource` for records, without paths, and for streams ``max_offsets``
    """

    @classmethod
    def name(cls) -> str:
        return CLUSTER_FORMAT

    def schema(self) -> StructType:
        return ClusterOptions(self.options).schema()

    def reader(self, schema: StructType) -> DataSourceReader:
        return RecordReader(ClusterOptions(self.options))

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802
        return RecordStreamReader(ClusterOptions(self.options))


END_OFFSETS_FORMAT = "groupcoord-end-offsets"


class EndOffsetsReader(DataSourceReader):
    """Reader of end offsets, in one task."""

    def __init__(self, options: Mapping[str, str]) -> None:
        self._address, given = cluster_and_options(options, ("topics",))
        text = given.get("topics")
        self._topics: list[str] | None = json_value("topics", text, list) if text else None

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        with connection(self._address) as (cluster, patience):
            found = list_ends(cluster, patience, self._topics, SystemClock().now_ms)
        yield pa.RecordBatch.from_pylist([row._asdict() for row in found], arrow_schema(TABLES[END_OFFSETS_TABLE]))


class EndOffsetsDataSource(DataSource):
    """``spark.read.format("groupcoord-end-offsets")``.

    Options: ``bootstrap.servers``, ``command.config`` (a properties file on every machine), client settings with the
    prefix ``kafka.``, and ``topics`` (a JSON array of names; all by default).
    """

    @classmethod
    def name(cls) -> str:
        return END_OFFSETS_FORMAT

    def schema(self) -> StructType:
        return LIVE_END_OFFSETS

    def reader(self, schema: StructType) -> DataSourceReader:
        return EndOffsetsReader(self.options)
