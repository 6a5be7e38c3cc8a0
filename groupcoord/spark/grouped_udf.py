"""Grouped functions over several tables in one shuffle, which brings the rows of each group together."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial, reduce
from itertools import groupby, islice
from operator import itemgetter

import numpy as np
import pyarrow as pa
from attrs import frozen
from pyspark.sql import (
    DataFrame,
    functions as F,  # noqa: N812
)
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

from groupcoord.analysis.fold.history.rows import Row

ROWS_MAX = 4_096
_BUCKET, _NOW, _IN_ORDER = "bucket", "now_ms", "log_offset"
_BUCKETS_PER_TASK = 4


@frozen
class Bucket:
    """The rows of some groups by table, in log order."""

    tables: Mapping[str, pa.Table]
    now_ms: int | None

    def table(self, name: str, schema: pa.Schema) -> pa.Table:
        found = self.tables.get(name)
        return schema.empty_table() if found is None else found.select(schema.names).cast(schema)

    def rows(self, name: str) -> list[Row]:
        found = self.tables.get(name)
        return [] if found is None else found.to_pylist()


def batched(rows: Iterable[Row]) -> Iterator[list[Row]]:
    left = iter(rows)
    while some := list(islice(left, ROWS_MAX)):
        yield some


def row_batches(rows: Iterable[Row], schema: StructType) -> Iterator[pa.RecordBatch]:
    columns = to_arrow_schema(schema)
    return (pa.RecordBatch.from_pylist(some, columns) for some in batched(rows))


def tagged(name: str, table: DataFrame) -> DataFrame:
    """Return a table's groups, and its rows as structs in a column of this name."""
    return table.select("group_id", F.struct(*table.columns).alias(name))


def judged(
    tables: Iterable[DataFrame],
    now: DataFrame | int | None,
    rows_of: Callable[[Bucket], Iterable[Row]],
    schema: StructType,
) -> DataFrame:
    """Return the rows of a function of each bucket of groups.

    Args:
        tables: tables by :func:`tagged`, or with several columns of structs.
        now: the time, or a table of it.
        rows_of: the function.
        schema: the columns of its rows.
    """
    together = reduce(partial(DataFrame.unionByName, allowMissingColumns=True), tables)
    if isinstance(now, DataFrame):
        together = together.crossJoin(F.broadcast(now.toDF(_NOW)))
    else:
        together = together.withColumn(_NOW, F.lit(now).cast("long"))
    count = _BUCKETS_PER_TASK * int(together.sparkSession.conf.get("spark.sql.shuffle.partitions") or 1)
    together = together.withColumn(_BUCKET, F.pmod(F.hash("group_id"), F.lit(count)))
    ordered = together.repartition(_BUCKET).sortWithinPartitions(_BUCKET)

    def judge(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for bucket in _buckets(batches):
            yield from row_batches(rows_of(bucket), schema)

    return ordered.mapInArrow(judge, schema)


def _buckets(batches: Iterable[pa.RecordBatch]) -> Iterator[Bucket]:
    pieces = (piece for batch in batches for piece in _pieces(batch))
    for _, some in groupby(pieces, itemgetter(0)):
        rows = pa.Table.from_batches([piece for _, piece in some])
        names = [one.name for one in rows.schema if pa.types.is_struct(one.type)]
        yield Bucket({name: _in_order(rows[name]) for name in names}, rows[_NOW][0].as_py())


def _pieces(batch: pa.RecordBatch) -> Iterator[tuple[int, pa.RecordBatch]]:
    numbers, starts = np.unique(np.asarray(batch[_BUCKET]), return_index=True)
    ends = np.append(starts[1:], batch.num_rows)
    for number, start, end in zip(numbers.tolist(), starts.tolist(), ends.tolist(), strict=True):
        yield number, batch.slice(start, end - start)


def _in_order(rows: pa.ChunkedArray) -> pa.Table:
    found = pa.Table.from_struct_array(rows.drop_null())
    return found.sort_by(_IN_ORDER) if _IN_ORDER in found.column_names else found
