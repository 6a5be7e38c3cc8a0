"""The history of groups as Parquet files, a table for each kind of rows: written by the Python workers that fold it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack
from typing import Any

import pyarrow as pa
from fsspec import AbstractFileSystem
from pyspark import TaskContext
from pyspark.sql import DataFrame
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import LongType, StringType, StructField, StructType

from groupcoord.analysis.columns.parquet import TableFile
from groupcoord.analysis.history.rows import (
    DUPLICATE,
    EPOCH,
    GENERATION,
    GROUP,
    MEMBER,
    MEMBERSHIP,
    MOVE,
    REBALANCE,
    REVOCATION,
)
from groupcoord.spark.decoding import new_file
from groupcoord.spark.group_schemas import (
    EPOCHS,
    GENERATIONS,
    HISTORY,
    MEMBERS,
    MEMBERSHIPS,
    MOVES,
    REBALANCES,
    REVOCATIONS,
)
from groupcoord.spark.groups import batched, fold_inputs, history_rows, with_signs_of_life

_PLACE = [HISTORY["group_id"], HISTORY["log_partition"]]


def _flat(kind: str) -> StructType:
    rows = HISTORY[kind].dataType
    assert isinstance(rows, StructType)
    return StructType([*_PLACE, *rows])


UNPACKED: Mapping[str, StructType] = {
    GENERATION: GENERATIONS,
    MEMBER: MEMBERS,
    REBALANCE: REBALANCES,
    EPOCH: EPOCHS,
    MEMBERSHIP: MEMBERSHIPS,
    MOVE: MOVES,
    REVOCATION: REVOCATIONS,
    **{kind: _flat(kind) for kind in (GROUP, DUPLICATE)},
}
"""By kind of rows, the schema of their table."""

_ROWS = StructType([StructField("kind", StringType()), StructField("rows", LongType())])


def write_history(
    records: DataFrame, file_system: AbstractFileSystem, folders: Mapping[str, str], session_timeout_ms: int | None
) -> dict[str, int]:
    """Write what :func:`groupcoord.spark.history` makes of records, and return how many rows there are of each kind.

    Args:
        records: the table of records.
        file_system: where to write; workers have to reach it.
        folders: in that file system, by the kinds of :data:`UNPACKED`.
        session_timeout_ms: see :func:`groupcoord.spark.history`.
    """
    inputs = fold_inputs(records).persist()
    try:
        ordered = with_signs_of_life(inputs, records, session_timeout_ms)
        found = ordered.mapInArrow(_writer(file_system, folders, session_timeout_ms), _ROWS).collect()
    finally:
        inputs.unpersist()
    counts = dict.fromkeys(UNPACKED, 0)
    for row in found:
        counts[row.kind] += row.rows
    for kind, count in counts.items():
        if not count:
            with new_file(file_system, f"{folders[kind]}/part-empty.snappy.parquet", _arrow_schema(kind)):
                pass  # a table without rows is one, too
    return counts


def _arrow_schema(kind: str) -> pa.Schema:
    return to_arrow_schema(UNPACKED[kind])


def _writer(
    file_system: AbstractFileSystem, folders: Mapping[str, str], session_timeout_ms: int | None
) -> Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    def write(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        context = TaskContext.get()
        name = f"part-{0 if context is None else context.partitionId():05d}.snappy.parquet"
        files: dict[str, TableFile] = {}
        with ExitStack() as stack:
            for rows in batched(history_rows(batches, session_timeout_ms)):
                for kind, some in _by_kind(rows).items():
                    schema = _arrow_schema(kind)
                    if kind not in files:
                        files[kind] = stack.enter_context(new_file(file_system, f"{folders[kind]}/{name}", schema))
                    files[kind].write(pa.RecordBatch.from_pylist(some, schema))
        found = [{"kind": kind, "rows": file.rows} for kind, file in files.items()]
        yield pa.RecordBatch.from_pylist(found, to_arrow_schema(_ROWS))

    return write


def _by_kind(rows: Iterable[dict[str, Any]]) -> dict[str, list[dict[str, Any]]]:
    found: dict[str, list[dict[str, Any]]] = {}
    for row in rows:
        kind = row["kind"]
        place = {"group_id": row["group_id"], "log_partition": row["log_partition"]}
        found.setdefault(kind, []).append(place | row[kind])
    return found
