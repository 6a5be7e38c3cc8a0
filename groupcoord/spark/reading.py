"""Table of records from segment files, a running cluster, or a DataFrame of keys and values; end offsets of topics."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from importlib.util import find_spec
from typing import Any, Unpack

import pyarrow as pa
import pyspark
from pyspark.sql import (
    DataFrame,
    SparkSession,
    functions as F,  # noqa: N812
)
from pyspark.sql.types import LongType, TimestampType

from groupcoord.analysis.decode.files import selected_rows
from groupcoord.analysis.decode.records import accounts_of_messages, rows_of_messages
from groupcoord.analysis.errors import InputError
from groupcoord.analysis.live.settings import BOOTSTRAP_SERVERS, ClusterAddress, cluster_address
from groupcoord.analysis.options import Selection
from groupcoord.analysis.pipeline.sources import absolute
from groupcoord.core.log.records import OFFSETS_TOPIC
from groupcoord.spark.schemas import MESSAGES, RECORDS
from groupcoord.spark.sessions import register
from groupcoord.spark.sources import (
    CLUSTER_FORMAT,
    COMMAND_CONFIG,
    END_OFFSETS_FORMAT,
    FORMAT,
    ClusterOptions,
    LogOptions,
    RowArguments,
    row_options,
)


def read_log(
    spark: SparkSession,
    *paths: str | os.PathLike[str],
    storage_options: Mapping[str, Any] | None = None,
    **rows: Unpack[RowArguments],
) -> DataFrame:
    """Return the table of records (:data:`groupcoord.spark.schemas.RECORDS`) of ``__consumer_offsets`` logs.

    Reading is lazy, and repeated by each action. Decoding costs more than reading Parquet, so write the table once if
    several others are made of it.

    Args:
        spark: any session; the format ``groupcoord`` is registered with it.
        paths: segment files, folders of a log partition, data directories of a broker or of
            :class:`groupcoord.storage.stores.segments.SegmentLogStore`, or patterns of these. Local paths, or URLs for
            fsspec. Workers must see the same files.
        storage_options: options of the file system of URLs.
        rows: columns and selection; see :class:`groupcoord.spark.RowArguments`.

    Raises:
        InputError: a path does not exist, cannot be read or has no records, or an option is wrong.
    """
    register(spark)
    options = log_options(paths, storage_options, **rows)
    # Workers list the files again; checking here raises errors without a Java stack.
    LogOptions(options).source.find(may_be_empty=False)
    return spark.read.format(FORMAT).options(**options).load()


def read_log_stream(
    spark: SparkSession,
    *paths: str | os.PathLike[str],
    storage_options: Mapping[str, Any] | None = None,
    max_bytes: int | None = None,
    **rows: Unpack[RowArguments],
) -> DataFrame:
    """Return the table of records as a stream: the logs, then their new records.

    Segments may be added, compacted and deleted meanwhile, and log partitions may appear. A log partition is read up to
    its last whole batch.

    Args:
        spark: any session; the format ``groupcoord`` is registered with it.
        paths: as for :func:`read_log`.
        storage_options: as there.
        max_bytes: approximate bytes of each log partition per micro-batch; unlimited by default, and with a trigger of
            all available data. Needs Spark 4.2.
        rows: as there.

    Raises:
        InputError: a path does not exist or cannot be read, an option is wrong, or Spark is too old for it.
    """
    register(spark)
    options = log_options(paths, storage_options, **rows)
    if max_bytes is not None:
        check_version("max_bytes")
        options |= {"max_bytes": str(max_bytes)}
    LogOptions(options).source.find(may_be_empty=True)
    return spark.readStream.format(FORMAT).options(**options).load()


def check_version(option: str) -> None:
    """Raise InputError before Spark 4.2, which brought bounded micro-batches of Python sources."""
    if find_spec("pyspark.sql.streaming.datasource") is None:
        raise InputError(f"{option} needs PySpark 4.2 or newer; this is {pyspark.__version__}")


def log_options(
    paths: Iterable[str | os.PathLike[str]],
    storage_options: Mapping[str, Any] | None = None,
    **rows: Unpack[RowArguments],
) -> dict[str, str]:
    return {
        "paths": json.dumps(absolute(paths)),
        **row_options(**rows),
        "storage_options": json.dumps(dict(storage_options or {})),
    }


def from_messages(messages: DataFrame, *, raw_bytes: bool = False, exclude_groups: Iterable[str] = ()) -> DataFrame:
    """Return the table of records of a DataFrame of keys and values, which may be a stream.

    The input is what Spark's Kafka connector reads from ``__consumer_offsets``, or a dump of it. Consumers do not
    receive transaction markers: read with ``kafka.isolation.level=read_committed``, or offsets of aborted transactions
    count.

    Args:
        messages: columns :data:`groupcoord.spark.schemas.MESSAGES`; others are dropped. ``timestamp`` may be a
            timestamp or milliseconds.
        raw_bytes: also keep key and value of decoded offsets.
        exclude_groups: regular expressions; groups with a fully matching name are excluded.

    Raises:
        InputError: a column is missing or of another type, or an expression is invalid.
    """
    selection = Selection(excluded_groups=exclude_groups)
    given = {field.name: field.dataType for field in messages.schema}
    wanted = []
    for field in MESSAGES:
        if field.name not in given:
            raise InputError(f"there is no column {field.name}; needed are {', '.join(MESSAGES.fieldNames())}")
        column = F.col(field.name)
        if field.name == "timestamp" and isinstance(given[field.name], TimestampType):
            column = F.unix_millis(column)
        elif given[field.name] != field.dataType and not (
            isinstance(field.dataType, LongType) and given[field.name].simpleString() in ("int", "smallint")
        ):
            raise InputError(
                f"column {field.name} is {given[field.name].simpleString()}, not {field.dataType.simpleString()}"
            )
        wanted.append(column.cast(field.dataType).alias(field.name))
    return messages.select(*wanted).mapInArrow(_decoder(raw_bytes, selection), RECORDS)


def _decoder(raw_bytes: bool, selection: Selection) -> Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    def decode(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            if batch.num_rows:
                rows = rows_of_messages(batch, raw_bytes=raw_bytes)
                yield from selected_rows([rows], selection)
                yield accounts_of_messages(rows)

    return decode


def read_cluster(
    spark: SparkSession,
    bootstrap_servers: str = "",
    *,
    command_config: str | os.PathLike[str] | None = None,
    topic: str = OFFSETS_TOPIC,
    **rows: Unpack[RowArguments],
) -> DataFrame:
    """Return the table of records (:data:`groupcoord.spark.schemas.RECORDS`) of a cluster's ``__consumer_offsets``.

    Reading is lazy, and repeated by each action, up to the present end. The user needs READ on the topic.

    Args:
        spark: any session; the format ``groupcoord-kafka`` is registered with it.
        bootstrap_servers: ``HOST:PORT`` with commas between; by default from the file or the environment.
        command_config: a properties file as for Kafka's commands (``client.properties``), on every machine of Spark.
            The environment adds settings: ``KAFKA_CLIENT_SASL_JAAS_CONFIG`` is ``sasl.jaas.config``.
        topic: name of a copy of ``__consumer_offsets``.
        rows: columns and selection; see :class:`groupcoord.spark.RowArguments`.

    Raises:
        InputError: the topic does not exist, is empty or cannot be read, or an option or a setting is wrong.
        ClusterError: the cluster cannot be reached.
    """
    register(spark)
    address = cluster_address(bootstrap_servers, command_config)
    options = cluster_options(address, topic, **rows)
    ClusterOptions(options).source.check()
    return spark.read.format(CLUSTER_FORMAT).options(**options).load()


def read_cluster_stream(
    spark: SparkSession,
    bootstrap_servers: str = "",
    *,
    command_config: str | os.PathLike[str] | None = None,
    topic: str = OFFSETS_TOPIC,
    max_offsets: int | None = None,
    **rows: Unpack[RowArguments],
) -> DataFrame:
    """Return the table of records of a cluster's ``__consumer_offsets`` as a stream, with new records.

    Args:
        spark: any session; the format ``groupcoord-kafka`` is registered with it.
        bootstrap_servers: as for :func:`read_cluster`.
        command_config: as there.
        topic: as there.
        max_offsets: offsets of each log partition per micro-batch; unlimited by default. Needs Spark 4.2.
        rows: as there.

    Raises:
        InputError: the topic does not exist or cannot be read, an option or a setting is wrong, or Spark is too old.
        ClusterError: the cluster cannot be reached.
    """
    if max_offsets is not None:
        check_version("max_offsets")
    register(spark)
    address = cluster_address(bootstrap_servers, command_config)
    options = cluster_options(address, topic, **rows)
    options |= {} if max_offsets is None else {"max_offsets": str(max_offsets)}
    ClusterOptions(options).source.check(may_be_empty=True)
    return spark.readStream.format(CLUSTER_FORMAT).options(**options).load()


def read_end_offsets(
    spark: SparkSession,
    topics: Iterable[str] | None = None,
    bootstrap_servers: str = "",
    *,
    command_config: str | os.PathLike[str] | None = None,
) -> DataFrame:
    """Return start and end offsets of topics (:data:`groupcoord.spark.schemas.LIVE_END_OFFSETS`), requested by each
    action.

    The user needs DESCRIBE on the topics; others are rows with an error.

    Args:
        spark: any session; the format ``groupcoord-end-offsets`` is registered with it.
        topics: their names; None for all that the user may describe.
        bootstrap_servers: as for :func:`groupcoord.spark.read_cluster`.
        command_config: as there.

    Raises:
        InputError: a setting is wrong.
    """
    register(spark)
    address = cluster_address(bootstrap_servers, command_config)
    address.settings()
    options = {
        BOOTSTRAP_SERVERS: address.bootstrap_servers,
        COMMAND_CONFIG: address.command_config or "",
        "topics": "" if topics is None else json.dumps(sorted(set(topics))),
    }
    return spark.read.format(END_OFFSETS_FORMAT).options(**options).load()


def cluster_options(
    address: ClusterAddress,
    topic: str = OFFSETS_TOPIC,
    **rows: Unpack[RowArguments],
) -> dict[str, str]:
    return {
        BOOTSTRAP_SERVERS: address.bootstrap_servers,
        COMMAND_CONFIG: address.command_config or "",
        "topic": topic,
        **row_options(**rows),
    }
