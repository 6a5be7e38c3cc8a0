"""The Spark data source ``groupcoord-end-offsets``: where topics of a cluster begin and end now, as a table."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from groupcoord.analysis.live.connection import connection
from groupcoord.analysis.live.offsets import list_ends
from groupcoord.clock import SystemClock
from groupcoord.spark.cluster_source import cluster_and_options
from groupcoord.spark.record_sources import json_value
from groupcoord.spark.schemas import LIVE_END_OFFSETS

END_OFFSETS_FORMAT = "groupcoord-end-offsets"
_LONG, _INT, _SHORT = pa.int64(), pa.int32(), pa.int16()
_ROWS = pa.schema(zip(LIVE_END_OFFSETS.fieldNames(), (pa.string(), _INT, *[_LONG] * 4, _INT, _SHORT), strict=True))


class EndOffsetsReader(DataSourceReader):
    """Asks for the ends, in one task."""

    def __init__(self, options: Mapping[str, str]) -> None:
        self._address, given = cluster_and_options(options, ("topics",))
        told = given.get("topics")
        self._topics: list[str] | None = json_value("topics", told, list) if told else None

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield the rows."""
        with connection(self._address) as (cluster, patience):
            found = list_ends(cluster, patience, self._topics, SystemClock().now_ms)
        yield pa.RecordBatch.from_pylist([row._asdict() for row in found], schema=_ROWS)


class EndOffsetsDataSource(DataSource):
    """``spark.read.format("groupcoord-end-offsets")``.

    Options: ``bootstrap.servers``, ``command.config`` (the path of a file of properties, on every machine), settings of
    a client with ``kafka.`` before their names, ``topics`` (a JSON array of names; without it, all).
    """

    @classmethod
    def name(cls) -> str:
        """Return the name of the format."""
        return END_OFFSETS_FORMAT

    def schema(self) -> StructType:
        """Return :data:`groupcoord.spark.schemas.LIVE_END_OFFSETS`."""
        return LIVE_END_OFFSETS

    def reader(self, schema: StructType) -> DataSourceReader:
        """Return what asks for the ends."""
        return EndOffsetsReader(self.options)
