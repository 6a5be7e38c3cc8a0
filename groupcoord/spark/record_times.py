"""How old the next record of each group is, asked of the cluster that has it."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from functools import partial

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.pandas.types import to_arrow_schema

from groupcoord.analysis.live.fetching import record_times
from groupcoord.analysis.live.settings import ClusterAddress, cluster_address
from groupcoord.spark.schemas import RECORD_TIMES

_PLACE = ("topic", "topic_partition", "committed_offset")


def read_record_times(
    spark: SparkSession,
    offsets: DataFrame,
    end_offsets: DataFrame,
    bootstrap_servers: str = "",
    *,
    command_config: str | os.PathLike[str] | None = None,
) -> DataFrame:
    """Return when the next record of each group that is behind was written, so far as the cluster tells.

    One batch is fetched for each of them, at each action on the result. The cluster has to let its user READ the
    topics; of those that it doesn't there are no rows. The schema is :data:`groupcoord.spark.schemas.RECORD_TIMES`.

    Args:
        spark: any session.
        offsets: what :func:`groupcoord.spark.current_offsets` gives.
        end_offsets: what :func:`groupcoord.spark.read_end_offsets` gives.
        bootstrap_servers: as for :func:`groupcoord.spark.read_cluster`.
        command_config: see there.

    Raises:
        InputError: a setting is wrong.
    """
    address = cluster_address(bootstrap_servers, command_config)
    address.settings()
    behind = (
        offsets.select(*_PLACE)
        .join(end_offsets.select("topic", "topic_partition", "log_start_offset", "end_offset"), [*_PLACE[:2]])
        .where("committed_offset < end_offset and committed_offset >= log_start_offset")
        .select(*_PLACE, "end_offset")
        .distinct()
        .repartition(spark.sparkContext.defaultParallelism, "topic", "topic_partition")
    )
    return behind.mapInArrow(partial(_asked, address), RECORD_TIMES)


def _asked(address: ClusterAddress, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    schema = to_arrow_schema(RECORD_TIMES)
    for batch in batches:
        if batch.num_rows:
            yield pa.RecordBatch.from_pylist(record_times(address, batch.to_pylist()), schema)
