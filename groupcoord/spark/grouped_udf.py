"""Grouped functions over several tables in one shuffle.

Each table is cut into buckets of groups or partitions in its own tasks, and the rows of a bucket become one Arrow blob.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import reduce
from itertools import groupby, islice
from operator import itemgetter
from zlib import crc32

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from attrs import frozen
from pyspark.sql import (
    DataFrame,
    functions as F,  # noqa: N812
)
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import BinaryType, IntegerType, LongType, StringType, StructField, StructType

from groupcoord.analysis.decode.parquet import Int64s, integers
from groupcoord.analysis.fold.history.rows import Row

BY_GROUP, BY_PARTITION = ("group_id",), ("topic", "topic_partition")
"""Keys of buckets."""

BLOBS = StructType([StructField("name", StringType()), StructField("blob", BinaryType())])
"""Rows of several tables, some of one table in each blob."""

_PACKED = StructType([StructField("bucket", IntegerType()), *BLOBS])
_NOW = StructField("now_ms", LongType())

ROWS_MAX = 4_096
_GATHERED_ROWS = 131_072
_BUCKETS_PER_TASK = 4


@frozen
class Bucket:
    """The rows of a bucket of groups or partitions."""

    tables: Mapping[str, pa.Table]
    now_ms: int | None

    def table(self, name: str, schema: pa.Schema) -> pa.Table:
        found = self.tables.get(name)
        return schema.empty_table() if found is None else found.select(schema.names).cast(schema)

    def rows(self, name: str) -> list[Row]:
        found = self.tables.get(name)
        return [] if found is None else found.to_pylist()


def blob_of(table: pa.Table | pa.RecordBatch) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write(table)
    found: bytes = sink.getvalue().to_pybytes()
    return found


def blob_rows(name: str, table: pa.Table) -> Iterator[pa.RecordBatch]:
    for start in range(0, table.num_rows, _GATHERED_ROWS):
        blob = blob_of(table.slice(start, _GATHERED_ROWS).combine_chunks())
        yield pa.RecordBatch.from_pylist([{"name": name, "blob": blob}], to_arrow_schema(BLOBS))


def table_of(blobs: Iterable[bytes]) -> pa.Table:
    return pa.concat_tables([pa.ipc.open_stream(blob).read_all() for blob in blobs])


def batched(rows: Iterable[Row]) -> Iterator[list[Row]]:
    left = iter(rows)
    while some := list(islice(left, ROWS_MAX)):
        yield some


def row_batches(rows: Iterable[Row], schema: StructType) -> Iterator[pa.RecordBatch]:
    columns = to_arrow_schema(schema)
    return (pa.RecordBatch.from_pylist(some, columns) for some in batched(rows))


def packed(name: str, table: DataFrame, by: tuple[str, ...]) -> DataFrame:
    """Return the rows of a table in blobs by bucket."""
    return table.mapInArrow(_packer(lambda batches: ((name, batch) for batch in batches), by, _count(table)), _PACKED)


def packed_blobs(blobs: DataFrame, names: Iterable[str], by: tuple[str, ...]) -> DataFrame:
    """Return rows of some tables, which are in blobs already, by bucket."""
    wanted = blobs.where(F.col("name").isin(*names))
    return wanted.mapInArrow(_packer(_named_batches, by, _count(blobs)), _PACKED)


def judged(
    tables: Iterable[DataFrame],
    now: DataFrame | int | None,
    rows_of: Callable[[Bucket], Iterable[Row]],
    schema: StructType,
) -> DataFrame:
    """Return the rows of a function of each bucket."""
    together = reduce(DataFrame.unionByName, tables)
    if isinstance(now, DataFrame):
        together = together.crossJoin(F.broadcast(now.toDF(_NOW.name)))
    else:
        together = together.withColumn(_NOW.name, F.lit(now).cast(_NOW.dataType))
    ordered = together.repartition("bucket").sortWithinPartitions("bucket")

    def judge(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for bucket in _buckets(batches):
            yield from row_batches(rows_of(bucket), schema)

    return ordered.mapInArrow(judge, schema)


def _count(table: DataFrame) -> int:
    return _BUCKETS_PER_TASK * int(table.sparkSession.conf.get("spark.sql.shuffle.partitions") or 1)


def _buckets(batches: Iterable[pa.RecordBatch]) -> Iterator[Bucket]:
    rows = (row for batch in batches for row in zip(*(column.to_pylist() for column in batch.columns), strict=True))
    for _, some in groupby(rows, itemgetter(0)):
        blobs: dict[str, list[bytes]] = {}
        now_ms = None
        for _, name, blob, moment_ms in some:
            blobs.setdefault(name, []).append(blob)
            now_ms = moment_ms
        yield Bucket({name: table_of(found) for name, found in blobs.items()}, now_ms)


def _named_batches(batches: Iterable[pa.RecordBatch]) -> Iterator[tuple[str, pa.RecordBatch]]:
    for batch in batches:
        for row in batch.to_pylist():
            for found in table_of([row["blob"]]).to_batches():
                yield row["name"], found


def _packer(
    named: Callable[[Iterable[pa.RecordBatch]], Iterator[tuple[str, pa.RecordBatch]]], by: tuple[str, ...], count: int
) -> Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    def pack(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for name, some in groupby(named(batches), itemgetter(0)):
            for table in _gathered(batch for _, batch in some):
                buckets = _buckets_of(table, by, count)
                order = np.argsort(buckets, kind="stable")
                rows, in_order = table.take(pa.array(order)).combine_chunks(), buckets[order]
                starts = np.flatnonzero(np.append(True, in_order[1:] != in_order[:-1]))
                ends = np.append(starts, len(in_order))[1:]
                for start, end in zip(starts.tolist(), ends.tolist(), strict=True):
                    blob = blob_of(rows.slice(start, end - start).combine_chunks())
                    row = {"bucket": int(in_order[start]), "name": name, "blob": blob}
                    yield pa.RecordBatch.from_pylist([row], to_arrow_schema(_PACKED))

    return pack


def _gathered(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.Table]:
    waiting: list[pa.RecordBatch] = []
    for batch in batches:
        waiting.append(batch)
        if sum(one.num_rows for one in waiting) >= _GATHERED_ROWS:
            yield pa.Table.from_batches(waiting)
            waiting = []
    if any(one.num_rows for one in waiting):
        yield pa.Table.from_batches(waiting)


def _buckets_of(table: pa.Table, by: tuple[str, ...], count: int) -> Int64s:
    text = table[by[0]].combine_chunks()
    encoded = (text if isinstance(text, pa.Array) else pa.concat_arrays(text.chunks)).dictionary_encode()
    hashes = np.array([crc32((value or "").encode()) for value in encoded.dictionary.to_pylist()] or [0], np.int64)
    found = hashes[np.asarray(pc.fill_null(encoded.indices, 0), np.int64)]
    for name in by[1:]:
        found = found + integers(table[name])
    return np.asarray(found % count, np.int64)
