"""Records of log partitions: written as tables while they are decoded, read back in order, and folded."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from operator import itemgetter

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from attrs import define, field, frozen
from pyarrow.parquet import ParquetFile

from groupcoord.analysis.decode.files import RecordTask
from groupcoord.analysis.decode.parquet import (
    OFFSET_TYPES,
    WRITTEN_COLUMNS,
    WRITTEN_COMMITS,
    ResultDirectory,
    Written,
    aggregated,
    every,
    flags,
    folder_name,
    integers,
    write_run,
)
from groupcoord.analysis.decode.rows import RowSettings
from groupcoord.analysis.decode.schema import (
    CORRUPT,
    KIND_CONTROL,
    KIND_CORRUPT,
    KIND_READ,
    KIND_RECORD,
    PARTITION_LOAD,
    READ_COUNTS,
    RECORDS,
    arrow_schema,
)
from groupcoord.analysis.fold.commits import GROUP, MARKER_COLUMNS, CommitFacts, CommitFold, Markers, commits, is_marker
from groupcoord.analysis.fold.histories import Span, feed_history, read_spans
from groupcoord.analysis.fold.history import KINDS, LogHistory, Row
from groupcoord.analysis.fold.history.rows import grouped

BATCH_ROWS = 131_072


@define
class LogPartition:
    """The written files of one log partition, in log order.

    Attributes:
        is_sorted: offsets increase; false for a damaged log, or two copies of one.
    """

    number: int | None
    files: list[str] = field(factory=list)
    is_sorted: bool = True
    _last_offset: int = -1
    _markers: list[pa.Table] = field(factory=list)

    def noted(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Yield rows as they are, and note their order and markers."""
        for batch in batches:
            is_range = pc.is_in(batch.column("kind"), pa.array([KIND_CORRUPT, KIND_READ]))
            offsets = integers(batch.column("log_offset").filter(pc.invert(is_range)))
            if len(offsets):
                self.is_sorted &= bool(offsets[0] > self._last_offset and (offsets[1:] > offsets[:-1]).all())
                self._last_offset = int(offsets[-1])
            markers = pa.Table.from_batches([batch.select(MARKER_COLUMNS)])
            markers = markers.filter(is_marker(markers))
            if markers.num_rows:
                self._markers.append(markers)
            yield batch

    def markers(self) -> Markers:
        return Markers(self._markers)


class Accounts:
    """Counts and byte ranges of rows, noted while logs are decoded."""

    def __init__(self) -> None:
        self.load = LoadFold()
        self._ranges: list[pa.Table] = []

    def noted(self, partition: int | None, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Yield rows as they are, and count them."""
        for batch in batches:
            self.add(of_partition(batch, partition))
            yield batch

    def add(self, rows: pa.Table) -> None:
        self.load.add(rows)
        is_range = pc.is_in(rows["kind"], pa.array([KIND_CORRUPT, KIND_READ]))
        if flags(is_range).any():
            self._ranges.append(rows.filter(is_range).select(RANGES.names))

    def ranges(self) -> pa.Table:
        return pa.concat_tables([RANGES.empty_table(), *self._ranges]).combine_chunks()


RANGES = pa.schema(
    [
        RECORDS.field(name)
        for name in ("kind", "log_partition", "file", "position", "size_bytes", "problem", "log_offset", "end_offset")
    ]
).append(RECORDS.field("complete_from"))


def corrupt(ranges: pa.Table) -> pa.Table:
    found = ranges.filter(pc.equal(ranges["kind"], KIND_CORRUPT))
    found = found.select(["file", "position", "size_bytes", "problem", "log_partition", "log_offset", "end_offset"])
    return found.rename_columns({"problem": "reason", "log_offset": "first_offset"}).cast(arrow_schema(CORRUPT))


@frozen
class Decoded:
    """Result of decoding; the log partitions are in order of appearance."""

    partitions: Sequence[LogPartition]
    written: Written
    accounts: Accounts

    def spans(self, partition: LogPartition) -> list[Span]:
        ranges = self.accounts.ranges()
        number = ranges["log_partition"]
        return read_spans(
            ranges.filter(pc.is_null(number) if partition.number is None else pc.equal(number, partition.number))
        )


def decode_records(tasks: Sequence[RecordTask], results: ResultDirectory, tell: Callable[[int, int], None]) -> Decoded:
    """Decode logs; write their records, and the commits outside of transactions."""
    partitions: dict[int | None, LogPartition] = {}
    accounts, written = Accounts(), Written()
    for number, task in enumerate(tasks):
        tell(number, len(tasks))
        for part, (log_partition, rows) in enumerate(task.runs(RowSettings(WRITTEN_COLUMNS))):
            name = f"{folder_name(log_partition)}/part-{number:05d}-{part:04d}.snappy.parquet"
            places = f"tables/records/{name}", f"tables/commits/{name}"
            partition = partitions.setdefault(log_partition, LogPartition(log_partition))
            partition.files.append(places[0])
            noted = partition.noted(accounts.noted(log_partition, rows))
            written = written.plus(write_run(noted, results.new_table_file, *places))
    return Decoded(list(partitions.values()), written, accounts)


def of_partition(batch: pa.RecordBatch, partition: int | None) -> pa.Table:
    column = pa.repeat(pa.scalar(partition, pa.int32()), batch.num_rows)
    return pa.Table.from_batches([batch]).append_column("log_partition", column)


def read_back(
    results: ResultDirectory, partition: LogPartition, columns: Collection[str], kinds: Collection[str]
) -> Iterator[pa.Table]:
    """Yield the rows of these kinds in order of offsets; those of an unsorted log are all held in memory."""
    parts = (_wanted(batch, kinds) for name in partition.files for batch in _batches(results, name, columns))
    found = (of_partition(batch, partition.number) for batch in parts if batch.num_rows)
    if partition.is_sorted:
        yield from found
    elif tables := list(found):
        rows = sorted_by_offset(pa.concat_tables(tables))
        yield from (rows.slice(start, BATCH_ROWS) for start in range(0, rows.num_rows, BATCH_ROWS))


def sorted_by_offset(records: pa.Table) -> pa.Table:
    offsets = integers(records["log_offset"])
    if (offsets[1:] >= offsets[:-1]).all():
        return records
    return records.take(pa.array(np.argsort(offsets, kind="stable")))


def _wanted(batch: pa.RecordBatch, kinds: Collection[str]) -> pa.RecordBatch:
    return batch.filter(pc.is_in(batch.column("kind"), pa.array(sorted(kinds))))


def _batches(results: ResultDirectory, name: str, columns: Collection[str]) -> Iterator[pa.RecordBatch]:
    file_system, place = results.place(name)
    with file_system.open(place, "rb") as file:
        yield from ParquetFile(file).iter_batches(
            BATCH_ROWS, columns=[one for one in columns if one != "log_partition"]
        )


_NEEDED = frozenset(
    ("kind", "record_type", "problem", "key", "value", "partition_leader_epoch", "is_transactional")
).union(WRITTEN_COMMITS.names)

FOLDED_COLUMNS = tuple(name for name in RECORDS.names if name in _NEEDED)
"""Columns for :meth:`PartitionFold.add`, without ``log_partition``."""

DECODED_COLUMNS = (*FOLDED_COLUMNS, "control_type", "end_offset", "complete_from")


class PartitionFold:
    """Fold of the records of one log partition, in the order of their offsets."""

    def __init__(self, number: int | None, markers: Markers, spans: Iterable[Span]) -> None:
        self._markers = markers
        self._commits = CommitFold()
        self._history = LogHistory(number)
        for span in spans:
            self._history.add_span(*span)

    def add(self, records: pa.Table) -> pa.Table:
        is_understood = pc.and_(pc.is_null(records["problem"]), pc.is_valid(records["group_id"]))
        feed_history(self._history, records.filter(is_understood))
        found = commits(records, self._markers)
        self._commits.add(found)
        return found

    def facts(self) -> CommitFacts:
        return self._commits.facts()

    def rows_by_kind(self) -> dict[str, list[Row]]:
        found: dict[str, list[Row]] = {kind: [] for kind in KINDS}
        for row in self._history.rows():
            found[row.kind].append({"group_id": row.group_id, "log_partition": row.log_partition} | row.values)
        return found


def fold_batches(number: int | None, batches: Iterable[pa.RecordBatch]) -> PartitionFold:
    """Return the fold of a log partition from rows in any order, which are held in memory."""
    empty = RECORDS.empty_table().select(DECODED_COLUMNS)
    rows = pa.concat_tables([empty, *(pa.Table.from_batches([batch.select(DECODED_COLUMNS)]) for batch in batches)])
    fold = PartitionFold(number, Markers([rows.filter(is_marker(rows))]), read_spans(rows))
    records = sorted_by_offset(rows.filter(pc.equal(rows["kind"], KIND_RECORD)))
    for batch in records.to_batches(BATCH_ROWS):
        fold.add(of_partition(batch, number))
    return fold


_COUNTED = ("log_partition", "kind", "record_type", "control_type", "problem")
_KEY = ("log_partition", "kind", "record_type", "group_id", "topic", "topic_partition", "key", "is_unknown")
_LOAD_COLUMNS = (*_KEY[:-1], "problem", "size_bytes", "tombstone", "log_offset", "log_timestamp_ms")
_SUMS = (
    *("records", "commits", "group_records", "tombstones", "control_records", "unknown_records"),
    *("bytes", "corrupt_bytes", "live_keys", "superseded_records", "superseded_bytes"),
)
_TIMES = {"first_timestamp_ms": min, "last_timestamp_ms": max}

COUNTED_COLUMNS = tuple(dict.fromkeys((*_COUNTED, *_LOAD_COLUMNS)))
KEYS = pa.schema(
    [
        *((name, pa.bool_() if name == "is_unknown" else RECORDS.field(name).type) for name in _KEY),
        *((name, pa.int64()) for name in ("count", "size_bytes", "tombstones", "first_ms", "last_ms")),
        *(("last_offset", pa.int64()), ("last_size_bytes", pa.int64()), ("last_is_tombstone", pa.bool_())),
    ]
)
_READ_COUNTS = arrow_schema(READ_COUNTS)
_ROWS_MIN = 262_144


class LoadFold:
    """Counts of rows of the table of records, in any order."""

    def __init__(self) -> None:
        self._waiting: list[pa.Table] = []
        self._waiting_rows = 0
        self._keys = KEYS.empty_table()
        self._counts = _READ_COUNTS.empty_table()

    def add(self, rows: pa.Table) -> None:
        self._waiting.append(rows.select(COUNTED_COLUMNS))
        self._waiting_rows += rows.num_rows
        if self._waiting_rows >= max(_ROWS_MIN, self._keys.num_rows):
            self._fold()

    def take(self, other: LoadFold) -> None:
        self._keys = summed_keys([self.keys(), other.keys()])
        self._counts = summed_counts([self._counts, other.read_counts()])

    def _fold(self) -> None:
        if self._waiting_rows:
            rows = pa.concat_tables(self._waiting)
            self._waiting, self._waiting_rows = [], 0
            self._keys = summed_keys([self._keys, _as_keys(rows)])
            self._counts = summed_counts([self._counts, rows.select([*_COUNTED, "size_bytes"])])

    def read_counts(self) -> pa.Table:
        self._fold()
        return self._counts

    def keys(self) -> pa.Table:
        self._fold()
        return self._keys


def partition_load(keys: pa.Table) -> list[Row]:
    by_partition = grouped(_by_group(keys).to_pylist(), itemgetter("log_partition"))
    names = arrow_schema(PARTITION_LOAD).names
    made = [_load(partition, groups) for partition, groups in by_partition.items()]
    return [{name: row[name] for name in names} for row in made]


def summed_counts(parts: Iterable[pa.Table]) -> pa.Table:
    ones = []
    for part in parts:
        if "count" not in part.column_names:
            part = part.append_column("count", pa.array(np.ones(part.num_rows, np.int64)))
        ones.append(part.select(_READ_COUNTS.names))
    figures = {name: (name, "sum") for name in ("count", "size_bytes")}
    return aggregated(pa.concat_tables(ones), _COUNTED, figures, use_threads=False)


def _as_keys(rows: pa.Table) -> pa.Table:
    is_timed = pc.not_equal(rows["log_timestamp_ms"], -1)
    time_ms = pc.if_else(is_timed, rows["log_timestamp_ms"], None)
    columns = {name: rows[name] for name in _KEY[:-1]} | {
        "is_unknown": pc.is_valid(rows["problem"]),
        "count": pa.array(np.ones(rows.num_rows, np.int64)),
        "size_bytes": rows["size_bytes"],
        "tombstones": pc.fill_null(rows["tombstone"], False).cast(pa.int64()),
        "first_ms": time_ms,
        "last_ms": time_ms,
        "last_offset": rows["log_offset"],
        "last_size_bytes": rows["size_bytes"],
        "last_is_tombstone": rows["tombstone"],
    }
    return summed_keys([pa.table(columns, KEYS)])


def summed_keys(parts: Iterable[pa.Table]) -> pa.Table:
    """Merge tables of :data:`KEYS`, with one row per key."""
    rows = pa.concat_tables(parts)
    offsets = integers(rows["last_offset"])
    if (offsets[1:] < offsets[:-1]).any():
        rows = rows.take(pa.array(np.argsort(offsets, kind="stable")))
    rows = rows.append_column("place", pa.array(np.arange(rows.num_rows)))
    sums = {name: (name, "sum") for name in ("count", "size_bytes", "tombstones")}
    times = {"first_ms": ("first_ms", "min"), "last_ms": ("last_ms", "max")}
    found = aggregated(rows, _KEY, sums | times | {"place": ("place", "max")})
    last = rows.take(found["place"].combine_chunks())
    for name in ("last_offset", "last_size_bytes", "last_is_tombstone"):
        found = found.append_column(name, last[name])
    return found.select(KEYS.names).combine_chunks()


def _by_group(keys: pa.Table) -> pa.Table:
    summed = keys.select(["log_partition", "group_id", "first_ms", "last_ms"])
    for name, (condition, values) in _of_key(keys).items():
        summed = summed.append_column(name, pc.if_else(condition, values, None))
    sums = {name: (name, "sum") for name in (*_SUMS, "file_bytes")}
    times = {"first_timestamp_ms": ("first_ms", "min"), "last_timestamp_ms": ("last_ms", "max")}
    return aggregated(summed, GROUP, sums | times)


def _of_key(keys: pa.Table) -> dict[str, tuple[pa.ChunkedArray, pa.ChunkedArray]]:
    kind, count, tombstones = keys["kind"], keys["count"], keys["tombstones"]
    size_bytes = keys["size_bytes"]
    is_record, is_control = pc.equal(kind, KIND_RECORD), pc.equal(kind, KIND_CONTROL)
    is_offset = pc.is_in(keys["record_type"], pa.array(OFFSET_TYPES, pa.int16()))
    is_known = every(is_record, pc.invert(keys["is_unknown"]))
    is_any = pc.or_(is_record, is_control)
    is_other = every(pc.is_valid(keys["record_type"]), pc.invert(is_offset))
    is_live = every(is_record, pc.invert(keys["last_is_tombstone"]))
    return {
        "records": (is_any, count),
        "commits": (every(is_known, is_offset), pc.subtract(count, tombstones)),
        "group_records": (every(is_known, is_other), count),
        "tombstones": (is_record, tombstones),
        "control_records": (is_control, count),
        "unknown_records": (every(is_any, keys["is_unknown"]), count),
        "bytes": (is_any, size_bytes),
        "file_bytes": (pc.equal(kind, KIND_READ), size_bytes),
        "corrupt_bytes": (pc.equal(kind, KIND_CORRUPT), size_bytes),
        "live_keys": (is_live, pc.if_else(is_live, 1, 0).cast(pa.int64())),
        "superseded_records": (is_record, pc.subtract(count, 1)),
        "superseded_bytes": (is_record, pc.subtract(size_bytes, keys["last_size_bytes"])),
    }


def _load(partition: int | None, groups: list[Row]) -> Row:
    found: Row = {"log_partition": partition}
    found |= {name: sum(row[name] or 0 for row in groups) for name in _SUMS}
    file_bytes = [row["file_bytes"] for row in groups if row["file_bytes"] is not None]
    found["file_bytes"] = sum(file_bytes) if file_bytes else None
    named = [(row["records"], row["group_id"]) for row in groups if row["group_id"] is not None]
    # Among groups with equally many records the name decides, for reproducible results.
    found["hottest_group_records"], found["hottest_group"] = max(named, default=(None, None))
    found["groups"] = len(named)
    share = found["hottest_group_records"] / found["records"] if named and found["records"] else None
    found["hottest_group_share"] = share
    for name, best in _TIMES.items():
        found[name] = best((row[name] for row in groups if row[name] is not None), default=None)
    return found
