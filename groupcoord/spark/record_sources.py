"""What the Spark data sources of records have in common: options, and how Spark reads the tasks that they make."""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypedDict, Unpack

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, DataSourceStreamReader, InputPartition
from pyspark.sql.types import StructType

from groupcoord.analysis.decode.files import RecordTask, selected
from groupcoord.analysis.decode.parquet import with_times
from groupcoord.analysis.decode.rows import RowSettings
from groupcoord.analysis.errors import InputError
from groupcoord.analysis.selection import Selection
from groupcoord.spark.output import schema_with_times
from groupcoord.spark.schemas import RECORDS


def known_options(given: Mapping[str, str], names: tuple[str, ...]) -> dict[str, str]:
    """Return options by their names in small letters.

    Raises:
        InputError: one is not among the names.
    """
    unknown = sorted(name for name in given if name.lower() not in names)
    if unknown:
        raise InputError(f"unknown option {unknown[0]}; there are {', '.join(names)}")
    return {name.lower(): value for name, value in given.items()}


def words(text: str) -> list[str]:
    """Return what stands between commas."""
    return [word.strip() for word in text.split(",") if word.strip()]


def chosen_columns(text: str) -> tuple[str, ...]:
    """Return the columns asked for in the table's order, and ``kind``, without which no row says what it is."""
    wanted = set(words(text)) or set(RECORDS.names)
    unknown = sorted(wanted - set(RECORDS.names))
    if unknown:
        raise InputError(f"option columns: there is no column {unknown[0]}")
    return tuple(name for name in RECORDS.names if name in wanted | {"kind"})


def flag(name: str, text: str) -> bool:
    """Return what true, false or nothing means."""
    if text.lower() not in ("", "true", "false"):
        raise InputError(f"option {name}: {text} is neither true nor false")
    return text.lower() == "true"


def number(name: str, text: str, at_least: int) -> int:
    """Return a number that may not be smaller than another."""
    if not text.isdecimal() or int(text) < at_least:
        raise InputError(f"option {name}: {text} is no number of {at_least} or more")
    return int(text)


def json_value(name: str, text: str, kind: type) -> Any:
    """Return a JSON array (``list``) or object (``dict``)."""
    try:
        value = json.loads(text)
    except ValueError:
        value = None
    if not isinstance(value, kind):
        raise InputError(f"option {name}: {text} is no JSON {'array' if kind is list else 'object'}")
    return value


if TYPE_CHECKING:
    from pyspark.sql.streaming.datasource import SupportsTriggerAvailableNow
else:
    try:
        from pyspark.sql.streaming.datasource import SupportsTriggerAvailableNow
    except ImportError:  # before Spark 4.2, which can't read a stream up to its end of now after a crash

        class SupportsTriggerAvailableNow:
            """Stands for what this version of Spark does not have."""


SPLIT_BYTES_MIN = 65_536
ROW_OPTIONS = ("columns", "raw_bytes", "split_bytes", "partitions", "exclude_groups", "timestamps")


class RowArguments(TypedDict, total=False):
    """Keyword arguments of every function that reads records.

    Attributes:
        columns: which columns to make, ``kind`` among them in any case; all by default.
            :data:`groupcoord.spark.COMMIT_COLUMNS` are enough for tables of committed offsets.
        raw_bytes: keep key and value of decoded offsets too.
        split_bytes: how much one task reads, about; at least 65,536.
        partitions: only these log partitions; all by default.
        exclude_groups: regular expressions; groups whose whole name matches one are left out.
    """

    columns: Iterable[str] | None
    raw_bytes: bool
    split_bytes: int
    partitions: Iterable[int]
    exclude_groups: Iterable[str]


def row_options(**given: Unpack[RowArguments]) -> dict[str, str]:
    """Return arguments as options of a data source, which are text.

    Raises:
        InputError: an expression is invalid.
        TypeError: there is no such argument.
    """
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


class RecordOptions(ABC):
    """What a read of records is told, as Spark passes it: text, by names in small letters.

    Args:
        given: :data:`ROW_OPTIONS`, and ``bound``.
        split_bytes: how much one task reads if that isn't told.
        bound: the option for how much of each log partition a micro-batch of a stream reads.

    Attributes:
        settings: what rows are to hold.
        timestamps: whether to add a timestamp to each point in time.
        split_bytes: how much one task reads, about.
        selection: the log partitions that are read, and the groups that are left out.
        micro_batch_max: how much of each log partition a micro-batch reads, about; None: all there is.

    Raises:
        InputError: an option is wrong.
    """

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
        told = given.get(bound, "")
        self.micro_batch_max = number(bound, told, 1) if told else None

    def schema(self) -> StructType:
        """Return the columns that are wanted."""
        schema = StructType([RECORDS[name] for name in self.settings.columns])
        return schema_with_times(schema) if self.timestamps else schema

    def rows(self, task: RecordTask) -> Iterator[pa.RecordBatch]:
        """Yield the rows of one task."""
        rows = selected(task, self.selection).rows(self.settings)
        return map(with_times, rows) if self.timestamps else rows

    @abstractmethod
    def tasks(self) -> Sequence[RecordTask]:
        """Return what there is to read now, cut into tasks."""


class RecordReader(DataSourceReader):
    """Reads all that there is when it is planned."""

    def __init__(self, options: RecordOptions) -> None:
        self._options = options

    def partitions(self) -> Sequence[InputPartition]:
        """Cut what there is into tasks."""
        return [InputPartition(task) for task in self._options.tasks()]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return self._options.rows(partition.value)


class RecordStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Reads what grows."""

    _options: RecordOptions

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802
        """Return where a stream without a checkpoint starts: before everything."""
        return {}

    @abstractmethod
    def tasks_between(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[RecordTask]:
        """Return what lies between two offsets, cut into tasks."""

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        """Cut what lies between two offsets into tasks."""
        return [InputPartition(task) for task in self.tasks_between(start, end)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        if partition.value is not None:  # as it is in Spark's own, where there are none
            yield from self._options.rows(partition.value)
