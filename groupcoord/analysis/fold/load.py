"""What was read, and how loaded the log partitions are: counted as rows go by, one row kept for each key."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from groupcoord.analysis.decode.parquet import OFFSET_TYPES
from groupcoord.analysis.decode.schema import (
    KIND_CONTROL,
    KIND_CORRUPT,
    KIND_READ,
    KIND_RECORD,
    PARTITION_LOAD,
    READ_COUNTS,
    RECORDS,
    arrow_schema,
)
from groupcoord.analysis.fold.arrow import every, integers

_COUNTED = ("log_partition", "kind", "record_type", "control_type", "problem")
_KEY = ("log_partition", "kind", "record_type", "group_id", "topic", "topic_partition", "key", "is_unknown")
_NEEDED = (*_KEY[:-1], "problem", "size_bytes", "tombstone", "log_offset", "log_timestamp_ms")
_SUMS = (
    *("records", "commits", "group_records", "tombstones", "control_records", "unknown_records"),
    *("bytes", "corrupt_bytes", "live_keys", "superseded_records", "superseded_bytes"),
)
_TIMES = {"first_timestamp_ms": min, "last_timestamp_ms": max}

COUNTED_COLUMNS = tuple(dict.fromkeys((*_COUNTED, *_NEEDED)))
"""The columns of the table of records that are needed."""

KEYS = pa.schema(
    [
        *((name, pa.bool_() if name == "is_unknown" else RECORDS.field(name).type) for name in _KEY),
        *((name, pa.int64()) for name in ("count", "size_bytes", "tombstones", "first_ms", "last_ms")),
        *(("last_offset", pa.int64()), ("last_size_bytes", pa.int64()), ("last_is_tombstone", pa.bool_())),
    ]
)
"""What is kept: for each key how many records it has, and what the last one is."""

_READ_COUNTS = arrow_schema(READ_COUNTS)
_ROWS_MIN = 262_144

Row = dict[str, Any]


class LoadFold:
    """Counts rows of the table of records, whatever their order."""

    def __init__(self) -> None:
        self._waiting: list[pa.Table] = []
        self._waiting_rows = 0
        self._keys = KEYS.empty_table()
        self._counts = _READ_COUNTS.empty_table()

    def add(self, rows: pa.Table) -> None:
        """Take rows with :data:`COUNTED_COLUMNS`."""
        self._waiting.append(rows.select(COUNTED_COLUMNS))
        self._waiting_rows += rows.num_rows
        if self._waiting_rows >= max(_ROWS_MIN, self._keys.num_rows):
            self._fold()

    def take(self, other: LoadFold) -> None:
        """Take what another one has counted."""
        self._keys = summed_keys([self.keys(), other.keys()])
        self._counts = summed_counts([self._counts, other.read_counts()])

    def _fold(self) -> None:
        if self._waiting_rows:
            rows = pa.concat_tables(self._waiting)
            self._waiting, self._waiting_rows = [], 0
            self._keys = summed_keys([self._keys, _as_keys(rows)])
            self._counts = summed_counts([self._counts, rows.select([*_COUNTED, "size_bytes"])])

    def read_counts(self) -> pa.Table:
        """Return how much was read and passed over, and why: :data:`groupcoord.analysis.decode.schema.READ_COUNTS`."""
        self._fold()
        return self._counts

    def keys(self) -> pa.Table:
        """Return :data:`KEYS`."""
        self._fold()
        return self._keys


def partition_load(keys: pa.Table) -> list[Row]:
    """Return one row a log partition (:data:`groupcoord.analysis.decode.schema.PARTITION_LOAD`).

    Args:
        keys: :data:`KEYS`.
    """
    by_partition: dict[int | None, list[Row]] = {}
    for row in _by_group(keys).to_pylist():
        by_partition.setdefault(row["log_partition"], []).append(row)
    names = arrow_schema(PARTITION_LOAD).names
    made = [_load(partition, groups) for partition, groups in by_partition.items()]
    return [{name: row[name] for name in names} for row in made]


def summed_counts(parts: Iterable[pa.Table]) -> pa.Table:
    """Return counts of rows, of which some are counted already (``tables.READ_COUNTS``)."""
    ones = []
    for part in parts:
        if "count" not in part.column_names:
            part = part.append_column("count", pa.array(np.ones(part.num_rows, np.int64)))
        ones.append(part.select(_READ_COUNTS.names))
    found = pa.concat_tables(ones).group_by(list(_COUNTED)).aggregate([("count", "sum"), ("size_bytes", "sum")])
    return found.rename_columns({"count_sum": "count", "size_bytes_sum": "size_bytes"}).select(_READ_COUNTS.names)


def _as_keys(rows: pa.Table) -> pa.Table:
    """Return rows as keys that have one record each."""
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
    """Return keys that were counted in several pieces as one row each: :data:`KEYS`."""
    rows = pa.concat_tables(parts)
    offsets = integers(rows["last_offset"])
    if (offsets[1:] < offsets[:-1]).any():
        rows = rows.take(pa.array(np.argsort(offsets, kind="stable")))
    rows = rows.append_column("place", pa.array(np.arange(rows.num_rows)))
    sums = ("count", "size_bytes", "tombstones")
    found = rows.group_by(list(_KEY)).aggregate(
        [*((name, "sum") for name in sums), ("first_ms", "min"), ("last_ms", "max"), ("place", "max")]
    )
    last = rows.take(found["place_max"].combine_chunks())
    names = {f"{name}_sum": name for name in sums} | {"first_ms_min": "first_ms", "last_ms_max": "last_ms"}
    found = found.rename_columns(names | {"place_max": "place"})
    for name in ("last_offset", "last_size_bytes", "last_is_tombstone"):
        found = found.append_column(name, last[name])
    return found.select(KEYS.names).combine_chunks()


def _by_group(keys: pa.Table) -> pa.Table:
    """Return one row for each group of a log partition, and one for what has none."""
    summed = keys.select(["log_partition", "group_id", "first_ms", "last_ms"])
    for name, (condition, values) in _of_key(keys).items():
        summed = summed.append_column(name, pc.if_else(condition, values, None))
    names = (*_SUMS, "file_bytes")
    found = summed.group_by(["log_partition", "group_id"]).aggregate(
        [*((name, "sum") for name in names), ("first_ms", "min"), ("last_ms", "max")]
    )
    sums = {f"{name}_sum": name for name in names}
    return found.rename_columns(sums | {"first_ms_min": "first_timestamp_ms", "last_ms_max": "last_timestamp_ms"})


def _of_key(keys: pa.Table) -> dict[str, tuple[pa.ChunkedArray, pa.ChunkedArray]]:
    """Return what to sum up over keys: which of them count, and how much of each."""
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
    """Return the row of a log partition from those of its groups."""
    found: Row = {"log_partition": partition}
    found |= {name: sum(row[name] or 0 for row in groups) for name in _SUMS}
    file_bytes = [row["file_bytes"] for row in groups if row["file_bytes"] is not None]
    found["file_bytes"] = sum(file_bytes) if file_bytes else None
    named = [(row["records"], row["group_id"]) for row in groups if row["group_id"] is not None]
    # The name decides between groups of as many records, so that the answer is always the same.
    found["hottest_group_records"], found["hottest_group"] = max(named, default=(None, None))
    found["groups"] = len(named)
    found["hottest_group_share"] = _share(found)
    for name, best in _TIMES.items():
        found[name] = best((row[name] for row in groups if row[name] is not None), default=None)
    return found


def _share(found: Mapping[str, Any]) -> float | None:
    hottest, records = found["hottest_group_records"], found["records"]
    return None if hottest is None or not records else hottest / records
