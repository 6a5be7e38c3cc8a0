"""Arrow tables, their Parquet files and the directory of results; sorted runs of equal keys, and timestamps in UTC.

A point in time ``NAME_ms``, in milliseconds since 1970, is followed by the timestamp ``NAME_utc``, which is null if the
number is null, -1 or outside the calendar. Durations have no such column.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from socket import gethostname
from typing import BinaryIO, NamedTuple, TypeVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from fsspec import AbstractFileSystem
from fsspec.core import url_to_fs
from fsspec.implementations.local import LocalFileSystem
from pyarrow.parquet import ParquetWriter

from groupcoord.analysis.decode.files import errors_as_input_errors, protocols_of
from groupcoord.analysis.decode.schema import COMMITS, KIND_RECORD, RECORDS, arrow_schema
from groupcoord.analysis.errors import InputError
from groupcoord.records.schemas import RecordType
from groupcoord.storage.data_directory import LOCK_FILE, DirectoryLock
from groupcoord.storage.errors import DirectoryLockedError, LogDirectoryError

DURATIONS = frozenset(
    ("session_timeout_ms", "rebalance_timeout_ms", "unowned_ms", "took_ms", "idle_ms", "lag_ms"),
)
"""Columns of milliseconds that are no points in time."""

TIMESTAMP = pa.timestamp("us", "UTC")
LATEST_MS = (datetime.max.replace(tzinfo=UTC) - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(milliseconds=1)
"""The last moment that a timestamp holds, as in Python and SQL."""

_MS, _UTC = "_ms", "_utc"
_US_PER_MS = 1_000

Rows = TypeVar("Rows", pa.RecordBatch, pa.Table)


def is_moment(name: str) -> bool:
    return name.endswith(_MS) and name not in DURATIONS


def time_name(moment: str) -> str:
    return moment.removesuffix(_MS) + _UTC


def schema_with_times(schema: pa.Schema) -> pa.Schema:
    for moment in _without_time(schema):
        schema = schema.insert(schema.get_field_index(moment) + 1, pa.field(time_name(moment), TIMESTAMP))
    return schema


def with_times(rows: Rows) -> Rows:
    """Return rows with the missing timestamp columns."""
    for moment in _without_time(rows.schema):
        place = rows.schema.get_field_index(moment)
        rows = rows.add_column(place + 1, pa.field(time_name(moment), TIMESTAMP), timestamps(rows.column(place)))
    return rows


def timestamps(moments: pa.Array) -> pa.Array:
    is_moment = pc.and_(pc.greater_equal(moments, 0), pc.less_equal(moments, LATEST_MS))
    return pc.multiply(pc.if_else(is_moment, moments, None), _US_PER_MS).cast(TIMESTAMP)


def _without_time(schema: pa.Schema) -> list[str]:
    return [name for name in schema.names if is_moment(name) and time_name(name) not in schema.names]


ROW_GROUP_ROWS = 262_144
_PARTITIONED_BY = "log_partition"
_NO_PARTITION = "__HIVE_DEFAULT_PARTITION__"
WRITTEN_SCHEMA = RECORDS.remove(RECORDS.get_field_index(_PARTITIONED_BY))
WRITTEN_COLUMNS = tuple(WRITTEN_SCHEMA.names)
_RISING_MOMENTS = ("log_timestamp_ms", "commit_timestamp_ms")
# Rising numbers are small as differences; all others but bytes and flags repeat themselves.
_RISING = (
    *("log_offset", "committed_offset", "position", "end_offset"),
    *_RISING_MOMENTS,
    *map(time_name, _RISING_MOMENTS),
)


def folder_name(log_partition: int | None) -> str:
    """Return the folder's name for the rows of a log partition, as Hive and Spark read it."""
    return f"{_PARTITIONED_BY}={_NO_PARTITION if log_partition is None else log_partition}"


class TableFile:
    """Parquet file writer that adds timestamps to points in time. Rows are buffered up to a row group."""

    def __init__(self, file: BinaryIO, schema: pa.Schema) -> None:
        schema = schema_with_times(schema)
        is_nested = any(pa.types.is_nested(column.type) for column in schema)
        rising = [name for name in schema.names if name in _RISING]
        varied = [one.name for one in schema if pa.types.is_binary(one.type) or pa.types.is_boolean(one.type)]
        repeating = [name for name in schema.names if name not in (*_RISING, *varied)]
        self._writer = ParquetWriter(
            file,
            schema,
            # Columns inside of others have names of their own here; such tables are small.
            use_dictionary=True if is_nested else repeating,
            column_encoding=None if is_nested else dict.fromkeys(rising, "DELTA_BINARY_PACKED"),
        )
        self._waiting: list[pa.RecordBatch] = []
        self._waiting_rows = 0
        self.rows = 0

    def write(self, batch: pa.RecordBatch) -> None:
        self._waiting.append(with_times(batch))
        self._waiting_rows += batch.num_rows
        self.rows += batch.num_rows
        if self._waiting_rows >= ROW_GROUP_ROWS:
            self._flush()

    def close(self) -> None:
        self._flush()
        self._writer.close()

    def _flush(self) -> None:
        if self._waiting:
            self._writer.write_table(pa.Table.from_batches(self._waiting), row_group_size=ROW_GROUP_ROWS)
        self._waiting, self._waiting_rows = [], 0


OFFSET_TYPES = (int(RecordType.LEGACY_OFFSET_COMMIT), int(RecordType.OFFSET_COMMIT))
COMMITTED, ABORTED, OPEN = "committed", "aborted", "open"
ABORT_TYPE, COMMIT_TYPE = 0, 1
"""Types of control records that end transactions."""

WRITTEN_COMMITS = arrow_schema(one for one in COMMITS if one.name != "log_partition")
OpenFile = Callable[[str, pa.Schema], AbstractContextManager[TableFile]]


class Written(NamedTuple):
    """Counts of written rows; ``commits`` are those outside transactions, ``transactional`` includes markers."""

    records: int = 0
    commits: int = 0
    transactional: int = 0
    last_timestamp_ms: int | None = None

    def plus(self, other: Written) -> Written:
        times_ms = [one.last_timestamp_ms for one in (self, other) if one.last_timestamp_ms is not None]
        return Written(
            self.records + other.records,
            self.commits + other.commits,
            self.transactional + other.transactional,
            max(times_ms, default=None),
        )


def write_run(batches: Iterable[pa.RecordBatch], open_file: OpenFile, records: str, commits: str) -> Written:
    """Write rows of one log partition to ``records``, and its commits outside of transactions also to ``commits``."""
    transactional, last_ms = 0, []
    with ExitStack() as stack:
        table = stack.enter_context(open_file(records, WRITTEN_SCHEMA))
        plain: TableFile | None = None
        for batch in batches:
            table.write(batch)
            transactional += pc.sum(batch.column("is_transactional")).as_py() or 0
            is_record = pc.equal(batch.column("kind"), KIND_RECORD)
            last_ms.append(pc.max(batch.column("log_timestamp_ms").filter(is_record)).as_py())
            found = _plain_commits(batch)
            if found.num_rows:
                plain = plain or stack.enter_context(open_file(commits, WRITTEN_COMMITS))
                plain.write(found)
    known_ms = [one for one in last_ms if one is not None]
    return Written(table.rows, 0 if plain is None else plain.rows, transactional, max(known_ms, default=None))


def _plain_commits(rows: pa.RecordBatch) -> pa.RecordBatch:
    found = rows.filter(every(is_offset_record(rows), pc.invert(rows["is_transactional"])))
    return pa.RecordBatch.from_arrays(
        [
            pa.nulls(found.num_rows, column.type) if column.name == "transaction" else found.column(column.name)
            for column in WRITTEN_COMMITS
        ],
        schema=WRITTEN_COMMITS,
    )


Int64s = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]

_NOTHING = -1
_CODES_MAX = 2**62


def every(*masks: pa.ChunkedArray) -> pa.ChunkedArray:
    """Return a mask of where all masks hold; null counts as false."""
    found = pc.fill_null(masks[0], False)
    for mask in masks[1:]:
        found = pc.and_(found, pc.fill_null(mask, False))
    return found


def is_offset_record(rows: pa.Table) -> pa.ChunkedArray:
    """Return a mask of readable committed offsets and their tombstones."""
    is_offset = pc.is_in(rows["record_type"], pa.array(OFFSET_TYPES, pa.int16()))
    return every(pc.equal(rows["kind"], KIND_RECORD), is_offset, pc.is_null(rows["problem"]))


def integers(column: pa.ChunkedArray) -> Int64s:
    """Return a column of numbers; -1 for null."""
    return np.asarray(pc.fill_null(column.cast(pa.int64()), _NOTHING), np.int64)


def flags(column: pa.ChunkedArray) -> Bools:
    """Return a column of booleans; false for null."""
    return np.asarray(pc.fill_null(column, False), np.bool_)


def codes(column: pa.ChunkedArray) -> Int64s:
    """Return equal numbers for equal values of a column; -1 for null."""
    whole = column.combine_chunks()
    encoded = whole if isinstance(whole, pa.Array) else pa.concat_arrays(whole.chunks)
    return np.asarray(pc.fill_null(encoded.dictionary_encode().indices, _NOTHING), np.int64)


def key_codes(table: pa.Table, keys: Sequence[str]) -> Int64s:
    """Return equal numbers for rows with equal keys."""
    found, count = np.zeros(table.num_rows, np.int64), 1
    for key in keys:
        of_key = codes(table[key]) + 1
        count_of_key = int(of_key.max(initial=0)) + 1
        if count * count_of_key > _CODES_MAX:
            found = np.unique(found, return_inverse=True)[1].astype(np.int64)
            count = int(found.max(initial=0)) + 1
        found, count = found * count_of_key + of_key, count * count_of_key
    return found


class Runs:
    """Runs of rows with equal keys, in log order.

    Attributes:
        order: row numbers, run by run.
        is_first: for each place in ``order``, whether a run starts there.
        starts: the start of each run in ``order``.
    """

    def __init__(self, table: pa.Table, keys: Sequence[str], *, is_sorted: bool = False) -> None:
        found = key_codes(table, keys)
        if is_sorted:
            self.order: Int64s = np.argsort(found, kind="stable")
        else:
            self.order = np.lexsort((integers(table["log_offset"]), found))
        in_order = found[self.order]
        self.is_first: Bools = np.ones(table.num_rows, np.bool_)
        self.is_first[1:] = in_order[1:] != in_order[:-1]
        self.starts: Int64s = np.flatnonzero(self.is_first)
        self.ends: Int64s = np.append(self.starts, table.num_rows)[1:]

    def last_rows(self) -> Int64s:
        return self.order[self.ends - 1]

    def from_end(self, counts: Bools | None = None) -> Int64s:
        """Return the distance of each place in ``order`` from the end of its run, 1 for the last, of those in
        ``counts``.
        """
        so_far = np.arange(1, len(self.order) + 1) if counts is None else np.cumsum(counts, dtype=np.int64)
        return np.repeat(so_far[self.ends - 1], self.ends - self.starts) - so_far + 1


Figure = tuple[str | Sequence[str], str]
"""A column and a function of Arrow; no columns for ``count_all``."""


def aggregated(
    rows: pa.Table, keys: Sequence[str], figures: Mapping[str, Figure], *, use_threads: bool = True
) -> pa.Table:
    """Return one row per key, with the figures by name."""
    found = rows.group_by(list(keys), use_threads=use_threads).aggregate(list(figures.values()))
    made = {f"{column}_{function}" if column else function: name for name, (column, function) in figures.items()}
    return found.rename_columns(made).select([*keys, *figures])


def last_rows(table: pa.Table, keys: Sequence[str]) -> pa.Table:
    """Return the last row of each key; rows with equal keys must be in log order."""
    return table.take(pa.array(Runs(table, keys, is_sorted=True).last_rows()))


HOLDER_MAX = 500

_SHOWS_WHOLE_FILES = frozenset({"s3", "s3a"})
"""Protocols of stores where fsspec shows only complete files and can discard incomplete ones."""


@contextmanager
def whole_file(file_system: AbstractFileSystem, path: str, attempt: int = 0) -> Iterator[BinaryIO]:
    """Yield a file to write, which gets its name when it is complete; a failed attempt leaves nothing.

    In S3, where a rename is a copy, the upload is committed or discarded instead.
    """
    if not _SHOWS_WHOLE_FILES.isdisjoint(protocols_of(file_system)):
        yield from _completed_file(file_system, path)
        return
    folder, _, name = path.rpartition("/")
    file_system.makedirs(folder, exist_ok=True)
    hidden = f"{folder}/.{name}.{attempt}"
    try:
        with file_system.open(hidden, "wb") as file:
            yield file
    except BaseException:
        with suppress(FileNotFoundError):
            file_system.rm_file(hidden)
        raise
    file_system.mv(hidden, path)


def _completed_file(file_system: AbstractFileSystem, path: str) -> Iterator[BinaryIO]:
    file = file_system.open(path, "wb", autocommit=False)
    try:
        yield file
        file.close()
    except BaseException:
        with suppress(Exception):
            file.close()  # otherwise the garbage collector would close it, which writes
        file.discard()
        raise
    file.commit()


@contextmanager
def new_table_file(
    file_system: AbstractFileSystem, path: str, schema: pa.Schema, attempt: int = 0
) -> Iterator[TableFile]:
    """Yield a Parquet file to write, named when it is complete; Spark ignores names that begin with a dot."""
    with whole_file(file_system, path, attempt) as file:
        table = TableFile(file, schema)
        try:
            yield table
        finally:
            table.close()


class ResultDirectory:
    """Directory for tables and reports, local or a URL: empty, or with the folder ``goes_on`` of an earlier run."""

    def __init__(self, where: str | os.PathLike[str], *, goes_on: str | None = None) -> None:
        self.name = os.fspath(where)
        with errors_as_input_errors(self.name):
            self._file_system, self._root = url_to_fs(self.name)
            self.is_local = isinstance(self._file_system, LocalFileSystem)
            if self._file_system.exists(self._root):
                if not self._file_system.isdir(self._root):
                    raise InputError(f"{self.name} is a file; --out names a directory")
                if self._file_system.ls(self._root, detail=False) and not (goes_on and self.has(goes_on)):
                    raise InputError(f"{self.name} is not empty")
                if self.is_local and not os.access(self._root, os.W_OK | os.X_OK):
                    raise PermissionError
            try:
                self._file_system.makedirs(self._root, exist_ok=True)
            except (FileExistsError, NotADirectoryError):
                raise InputError(f"{self.name} can't be made: a part of the path is a file") from None

    def place(self, name: str) -> tuple[AbstractFileSystem, str]:
        return self._file_system, self._at(name)

    def new_table_file(self, name: str, schema: pa.Schema) -> AbstractContextManager[TableFile]:
        return new_table_file(self._file_system, self._at(name), schema)

    def replace_text(self, name: str, text: str) -> None:
        """Replace a file with UTF-8 text by a rename; unencodable characters are replaced."""
        place = self._at(name)
        self._file_system.makedirs(place.rpartition("/")[0], exist_ok=True)
        self._file_system.pipe_file(f"{place}.new", text.encode("utf-8", "replace"))
        self._file_system.mv(f"{place}.new", place)

    def has(self, name: str) -> bool:
        return bool(self._file_system.exists(self._at(name)))

    def remove(self, name: str) -> None:
        self._file_system.rm(self._at(name), recursive=True)

    @contextmanager
    def locked(self, folder: str, deed: str) -> Iterator[None]:
        """Lock a folder within the context; a URL is not locked."""
        if not self.is_local:
            yield
            return
        place = Path(self._at(folder))
        try:
            lock = DirectoryLock(place, against_brokers=False)
        except DirectoryLockedError:
            with open(place / LOCK_FILE, encoding="utf-8", errors="replace") as file:
                raise InputError(f"{self.name} is in use: {file.read(HOLDER_MAX)}") from None
        except LogDirectoryError as error:
            raise InputError(f"{place}: {error.reason}") from error
        try:
            lock.note(f"process {os.getpid()} on {gethostname()} {deed}")
            yield
        finally:
            lock.close()

    def _at(self, name: str) -> str:
        return f"{self._root.rstrip('/')}/{name}"
