"""What an analysis on Spark is told to read, made once or kept up to date: files, or a cluster that runs."""

from __future__ import annotations

import os
from collections.abc import Hashable

from attrs import frozen
from pyspark.sql import DataFrame, SparkSession

from groupcoord.analysis.running.sources import ClusterSource, LogSource
from groupcoord.spark.cluster_reading import cluster_options, read_cluster_stream, read_end_offsets
from groupcoord.spark.reading import log_options
from groupcoord.spark.record_times import read_record_times
from groupcoord.spark.schemas import END_OFFSETS
from groupcoord.spark.streaming import stream_of


@frozen
class LogInput(LogSource):
    """Logs in files."""

    def read_end_offsets(self, spark: SparkSession, offsets: DataFrame) -> DataFrame | None:
        """Return :data:`groupcoord.spark.schemas.END_OFFSETS`, or None if they can't be told.

        Args:
            spark: any session.
            offsets: the committed ones, whose topics count.
        """
        return None if self.end_offsets is None else _read_file(spark, self.end_offsets)

    def read_record_times(self, spark: SparkSession, offsets: DataFrame, ends: DataFrame) -> DataFrame | None:
        """Return :data:`groupcoord.spark.schemas.RECORD_TIMES`, or None if the lag isn't to go by them.

        Args:
            spark: any session.
            offsets: the committed ones.
            ends: where their partitions end.
        """
        return None

    def identity(self) -> dict[str, str]:
        """Return what tells this input from others, whose tables don't go into the same directory."""
        options = log_options(self.paths, partitions=sorted(self.partitions))
        return {name: options[name] for name in ("paths", "partitions")}

    def state(self) -> Hashable:
        """Return what shows that there is more to read than at another time: that a log has grown or changed."""
        found = self.find(may_be_empty=True)
        return tuple((one.name, one.size_bytes, one.identity) for files in found for one in files.segments)

    def stream(self, spark: SparkSession) -> DataFrame:
        """Return the table of records as a stream."""
        return stream_of(spark, log_options(self.paths, partitions=self.partitions))


@frozen
class ClusterInput(ClusterSource):
    """A cluster that runs."""

    def read_end_offsets(self, spark: SparkSession, offsets: DataFrame) -> DataFrame | None:
        """See :class:`LogInput`: what a file tells goes before what the cluster does."""
        if self.end_offsets is not None:
            return _read_file(spark, self.end_offsets)
        topics = [row.topic for row in offsets.select("topic").distinct().collect()]
        address = self.address
        ends = read_end_offsets(spark, topics, address.bootstrap_servers, command_config=address.command_config)
        return ends.persist()

    def read_record_times(self, spark: SparkSession, offsets: DataFrame, ends: DataFrame) -> DataFrame | None:
        """See :class:`LogInput`."""
        if not self.lag_from_records or not self.asks_for_ends:
            return None
        address = self.address
        return read_record_times(spark, offsets, ends, address.bootstrap_servers, command_config=address.command_config)

    def identity(self) -> dict[str, str]:
        """See :class:`LogInput`. A cluster may be reached by other addresses another time; its id stays."""
        paths = f'["kafka://{self.ends().cluster_id}/{self.topic}"]'
        options = cluster_options(self.address, self.topic, partitions=sorted(self.partitions))
        return {"paths": paths, "partitions": options["partitions"]}

    def state(self) -> Hashable:
        """See :class:`LogInput`: where the logs end."""
        return tuple(sorted(self.ends().ends.items()))

    def stream(self, spark: SparkSession) -> DataFrame:
        """See :class:`LogInput`."""
        return read_cluster_stream(
            spark,
            self.address.bootstrap_servers,
            command_config=self.address.command_config,
            topic=self.topic,
            partitions=self.partitions,
        )


Input = LogInput | ClusterInput
"""Either."""


def _read_file(spark: SparkSession, path: str) -> DataFrame:
    where = path if "://" in path else f"file://{os.path.abspath(path)}"
    return spark.read.schema(END_OFFSETS).option("mode", "FAILFAST").csv(where, header=True).persist()
