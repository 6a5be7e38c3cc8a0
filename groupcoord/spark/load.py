"""How loaded the log partitions are, by whom, and what compaction would save."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql.pandas.types import to_arrow_schema

from groupcoord.analysis.fold import load
from groupcoord.analysis.fold.load import COUNTED_COLUMNS, KEYS, LoadFold, summed_keys
from groupcoord.spark.schemas import PARTITION_LOAD, of_arrow

KEY_COLUMNS = of_arrow(KEYS)
"""Counts of records by key: :data:`groupcoord.analysis.fold.load.KEYS`."""


def partition_load(records: DataFrame) -> DataFrame:
    """Return one row a log partition: its load (:data:`groupcoord.spark.schemas.PARTITION_LOAD`).

    A record is superseded if a newer one has its key, as the log cleaner sees it; tombstones and what aborted
    transactions wrote are cleaned away too in the end, but not counted here. Needs ``records`` with the column ``key``.

    A task holds one row of each key.
    """
    return load_of(records.select(*COUNTED_COLUMNS).mapInArrow(_keys, KEY_COLUMNS))


def load_of(keys: DataFrame) -> DataFrame:
    """Return the same, where records are counted by key already.

    Args:
        keys: :data:`KEY_COLUMNS`.
    """
    return keys.repartition("log_partition").mapInArrow(_load, PARTITION_LOAD)


def _keys(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    fold = LoadFold()
    for batch in batches:
        fold.add(pa.Table.from_batches([batch]))
    yield from fold.keys().to_batches()


def _load(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    keys = summed_keys([KEYS.empty_table(), *(pa.Table.from_batches([batch]).cast(KEYS) for batch in batches)])
    yield pa.RecordBatch.from_pylist(load.partition_load(keys), to_arrow_schema(PARTITION_LOAD))
