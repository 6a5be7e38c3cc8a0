"""The Spark data source ``groupcoord-end-offsets``: where topics of a cluster begin and end now, as a table."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Iterator, Mapping

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from groupcoord.clock import SystemClock
from groupcoord.columns.options import json_value, known_options
from groupcoord.live.connection import connection
from groupcoord.live.end_offsets import list_ends
from groupcoord.live.settings import BOOTSTRAP_SERVERS, ClusterAddress, cluster_address
from groupcoord.spark.cluster_source import COMMAND_CONFIG, refuse_secrets
from groupcoord.spark.schemas import LIVE_END_OFFSETS
from groupcoord.spark.sessions import register

END_OFFSETS_FORMAT = "groupcoord-end-offsets"
_OPTIONS = (BOOTSTRAP_SERVERS, COMMAND_CONFIG, "topics")
_LONG, _INT, _SHORT = pa.int64(), pa.int32(), pa.int16()
_ROWS = pa.schema(zip(LIVE_END_OFFSETS.fieldNames(), (pa.string(), _INT, *[_LONG] * 4, _INT, _SHORT), strict=True))


def read_end_offsets(
    spark: SparkSession,
    topics: Iterable[str],
    bootstrap_servers: str = "",
    *,
    command_config: str | os.PathLike[str] | None = None,
) -> DataFrame:
    """Return where topics begin and end (:data:`groupcoord.spark.schemas.LIVE_END_OFFSETS`), asked at each action.

    The cluster has to let its user DESCRIBE the topics; one that it doesn't is a row with an error.

    Args:
        spark: any session; the format ``groupcoord-end-offsets`` is registered with it.
        topics: their names.
        bootstrap_servers: as for :func:`groupcoord.spark.read_cluster`.
        command_config: see there.

    Raises:
        InputError: a setting is wrong.
    """
    register(spark)
    address = cluster_address(bootstrap_servers, command_config)
    address.settings()
    options = {
        BOOTSTRAP_SERVERS: address.bootstrap_servers,
        COMMAND_CONFIG: address.command_config or "",
        "topics": json.dumps(sorted(set(topics))),
    }
    return spark.read.format(END_OFFSETS_FORMAT).options(**options).load()


class EndOffsetsReader(DataSourceReader):
    """Asks for the ends, in one task."""

    def __init__(self, options: Mapping[str, str]) -> None:
        refuse_secrets(options)
        given = known_options(options, _OPTIONS)
        self._address = ClusterAddress(given.get(BOOTSTRAP_SERVERS, ""), given.get(COMMAND_CONFIG) or None)
        self._topics: list[str] = json_value("topics", given.get("topics", "[]"), list)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield the rows."""
        with connection(self._address) as (cluster, patience):
            found = list_ends(cluster, patience, self._topics, SystemClock().now_ms)
        yield pa.RecordBatch.from_pylist([row._asdict() for row in found], schema=_ROWS)


class EndOffsetsDataSource(DataSource):
    """``spark.read.format("groupcoord-end-offsets")``.

    Options: ``bootstrap.servers``, ``command.config`` (the path of a file of properties, on every machine), ``topics``
    (a JSON array of names).
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
