"""What was read, and how loaded the log partitions are, by the rules of :mod:`groupcoord.spark.load`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from groupcoord.analysis.columns.commits import OFFSET_TYPES
from groupcoord.analysis.columns.schema import KIND_CONTROL, KIND_CORRUPT, KIND_READ, KIND_RECORD
from groupcoord.analysis.columns.tables import CORRUPT, PARTITION_LOAD, READ_COUNTS, arrow_schema
from groupcoord.analysis.local.arrow import Runs, every
from groupcoord.analysis.local.records import HeldRecords

_COUNTED = ("log_partition", "kind", "record_type", "control_type", "problem")
_KEY = ("log_partition", "kind", "record_type", "group_id", "topic", "topic_partition", "key", "is_unknown")
_NEEDED = (*_KEY[:-1], "problem", "size_bytes", "tombstone", "log_offset", "log_timestamp_ms")
_SUMS = (
    *("records", "commits", "group_records", "tombstones", "control_records", "unknown_records"),
    *("bytes", "corrupt_bytes", "live_keys", "superseded_records", "superseded_bytes"),
)
_TIMES = {"first_timestamp_ms": min, "last_timestamp_ms": max}

Row = dict[str, Any]


def read_counts(held: HeldRecords) -> pa.Table:
    """Return how much was read and passed over, and why (:data:`groupcoord.analysis.columns.tables.READ_COUNTS`)."""
    rows = held.everything((*_COUNTED, "size_bytes"))
    found = rows.group_by(list(_COUNTED)).aggregate([([], "count_all"), ("size_bytes", "sum")])
    found = found.rename_columns({"count_all": "count", "size_bytes_sum": "size_bytes"})
    return found.select(arrow_schema(READ_COUNTS).names)


def corrupt(held: HeldRecords) -> pa.Table:
    """Return the bytes that are no sound batch and were passed over (``tables.CORRUPT``)."""
    found = held.ranges.filter(pc.equal(held.ranges["kind"], KIND_CORRUPT))
    found = found.select(["file", "position", "size_bytes", "problem", "log_partition", "log_offset", "end_offset"])
    return found.rename_columns({"problem": "reason", "log_offset": "first_offset"}).cast(arrow_schema(CORRUPT))


def partition_load(held: HeldRecords) -> list[Row]:
    """Return one row a log partition (:data:`groupcoord.analysis.columns.tables.PARTITION_LOAD`)."""
    by_group = _by_group(_by_key(held.everything(_NEEDED)))
    by_partition: dict[int | None, list[Row]] = {}
    for row in by_group.to_pylist():
        by_partition.setdefault(row["log_partition"], []).append(row)
    names = arrow_schema(PARTITION_LOAD).names
    made = [_load(partition, groups) for partition, groups in by_partition.items()]
    return [{name: row[name] for name in names} for row in made]


def _by_key(rows: pa.Table) -> pa.Table:
    """Return one row for each key, with how many records it has and what the last one is."""
    rows = rows.append_column("is_unknown", pc.is_valid(rows["problem"]))
    rows = rows.take(pa.array(Runs(rows, ("log_partition",)).order))
    is_timed = pc.not_equal(rows["log_timestamp_ms"], -1)
    rows = rows.append_column("time_ms", pc.if_else(is_timed, rows["log_timestamp_ms"], None))
    rows = rows.append_column("is_tombstone", pc.fill_null(rows["tombstone"], False).cast(pa.int64()))
    rows = rows.append_column("place", pa.array(np.arange(rows.num_rows)))
    found = rows.group_by(list(_KEY)).aggregate(
        [
            ([], "count_all"),
            ("size_bytes", "sum"),
            ("is_tombstone", "sum"),
            ("time_ms", "min"),
            ("time_ms", "max"),
            ("place", "max"),
        ]
    )
    last = rows.take(found["place_max"])
    found = found.append_column("last_size_bytes", last["size_bytes"])
    return found.append_column("last_is_tombstone", last["tombstone"])


def _by_group(keys: pa.Table) -> pa.Table:
    """Return one row for each group of a log partition, and one for what has none."""
    for name, (condition, values) in _of_key(keys).items():
        keys = keys.append_column(name, pc.if_else(condition, values, None))
    names = (*_SUMS, "file_bytes")
    found = keys.group_by(["log_partition", "group_id"]).aggregate(
        [*((name, "sum") for name in names), ("time_ms_min", "min"), ("time_ms_max", "max")]
    )
    sums = {f"{name}_sum": name for name in names}
    return found.rename_columns(
        sums | {"time_ms_min_min": "first_timestamp_ms", "time_ms_max_max": "last_timestamp_ms"}
    )


def _of_key(keys: pa.Table) -> dict[str, tuple[pa.ChunkedArray, pa.ChunkedArray]]:
    """Return what to sum up over keys: which of them count, and how much of each."""
    kind, count, tombstones = keys["kind"], keys["count_all"], keys["is_tombstone_sum"]
    size_bytes = keys["size_bytes_sum"]
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
