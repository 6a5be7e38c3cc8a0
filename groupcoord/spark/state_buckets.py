"""Buckets of groups on Spark: who is in which, and how there come to be more of them.

Python workers read and write buckets (:mod:`groupcoord.analysis.folding.buckets`); Spark sees them where tables are
made of all groups.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack

import pyarrow as pa
from attrs import evolve
from pyspark.sql import Column, SparkSession
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import IntegerType, LongType, StructField, StructType

from groupcoord.analysis.folding import buckets as kept_buckets
from groupcoord.analysis.folding.buckets import BucketFile, BucketFolder, Buckets, BucketWriter, bucket_name, bucket_of
from groupcoord.spark.output import task_attempt
from groupcoord.spark.schemas import declared

STATES = declared(kept_buckets.STATES)
"""What is kept of each group."""


def bucket_column(count: int) -> Column:
    """Return the same as :func:`bucket_of` for the column ``group_id``."""
    return (F.crc32("group_id") % count).cast("int")


_SPREAD = StructType([StructField("bucket", IntegerType()), StructField("groups", LongType())])


def spread(spark: SparkSession, folder: BucketFolder, buckets: Buckets, count: int, update: int) -> Buckets:
    """Write the groups into more buckets, and return these.

    Args:
        spark: any session.
        folder: where buckets are read and written.
        buckets: as they are.
        count: how many there are to be, a multiple of how many there are.
        update: the number of the update that wrote last.
    """
    names = list(buckets.names().values())
    if not names:
        return evolve(buckets, count=count)
    tasks = min(len(names), spark.sparkContext.defaultParallelism)
    numbers = spark.range(0, len(names), numPartitions=tasks)
    found = numbers.mapInArrow(_spreader(folder, names, count, update), _SPREAD).collect()
    return evolve(buckets, count=count, files={row.bucket: BucketFile(update, row.groups) for row in found})


def _spreader(
    folder: BucketFolder, names: Sequence[str], count: int, update: int
) -> Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    def write(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for number in batch.column(0).to_pylist():
                writers: dict[int, BucketWriter] = {}
                with ExitStack() as stack:
                    for kept in folder.read(names[number]):
                        bucket = bucket_of(kept.group_id, count)
                        if bucket not in writers:
                            name = bucket_name(bucket, count, update)
                            writers[bucket] = stack.enter_context(folder.writing(name, task_attempt()))
                        writers[bucket].add(kept)
                found = [{"bucket": bucket, "groups": writer.groups} for bucket, writer in writers.items()]
                yield pa.RecordBatch.from_pylist(found, to_arrow_schema(_SPREAD))

    return write
