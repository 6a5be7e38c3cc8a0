"""Tables from a cluster that runs: its records, at once or as a stream, and where its topics end."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable
from typing import Unpack

from pyspark.sql import DataFrame, SparkSession

from groupcoord.analysis.live.settings import BOOTSTRAP_SERVERS, ClusterAddress, cluster_address
from groupcoord.core.log.records import OFFSETS_TOPIC
from groupcoord.spark.cluster_source import CLUSTER_FORMAT, COMMAND_CONFIG, ClusterOptions
from groupcoord.spark.end_offsets import END_OFFSETS_FORMAT
from groupcoord.spark.reading import check_version
from groupcoord.spark.record_sources import RowArguments, row_options
from groupcoord.spark.sessions import register


def read_cluster(
    spark: SparkSession,
    bootstrap_servers: str = "",
    *,
    command_config: str | os.PathLike[str] | None = None,
    topic: str = OFFSETS_TOPIC,
    **rows: Unpack[RowArguments],
) -> DataFrame:
    """Return the table of records (:data:`groupcoord.spark.schemas.RECORDS`) of a cluster's ``__consumer_offsets``.

    Nothing is read yet, and it is read again for each action on the result, up to where the logs end then. The cluster
    has to let its user READ the topic.

    Args:
        spark: any session; the format ``groupcoord-kafka`` is registered with it.
        bootstrap_servers: ``HOST:PORT`` with commas between; by default as the file or the environment says.
        command_config: a file of properties, as Kafka's commands take it (``client.properties``), on every machine
            where Spark works. What it does not set may be in the environment: ``KAFKA_CLIENT_SASL_JAAS_CONFIG`` is
            ``sasl.jaas.config``.
        topic: a copy of ``__consumer_offsets`` by another name.
        rows: what rows are to hold, and which; see :class:`groupcoord.spark.RowArguments`.

    Raises:
        InputError: the topic isn't there, holds nothing or may not be read, or an option or a setting is wrong.
        ClusterError: the cluster can't be reached.
    """
    register(spark)
    address = cluster_address(bootstrap_servers, command_config)
    options = cluster_options(address, topic, **rows)
    ClusterOptions(options).check()
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
    """Return the table of records as a stream: all that the cluster's ``__consumer_offsets`` holds, and what comes.

    Args:
        spark: any session; the format ``groupcoord-kafka`` is registered with it.
        bootstrap_servers: as for :func:`read_cluster`, as all arguments but ``max_offsets``.
        command_config: see there.
        topic: see there.
        max_offsets: how many offsets of each log partition a micro-batch covers; by default all there are. Needs
            Spark 4.2.
        rows: see there.

    Raises:
        InputError: the topic isn't there or may not be read, an option or a setting is wrong, or Spark is too old.
        ClusterError: the cluster can't be reached.
    """
    if max_offsets is not None:
        check_version("max_offsets")
    register(spark)
    address = cluster_address(bootstrap_servers, command_config)
    options = cluster_options(address, topic, **rows)
    options |= {} if max_offsets is None else {"max_offsets": str(max_offsets)}
    ClusterOptions(options).check(may_be_empty=True)
    return spark.readStream.format(CLUSTER_FORMAT).options(**options).load()


def read_end_offsets(
    spark: SparkSession,
    topics: Iterable[str] | None = None,
    bootstrap_servers: str = "",
    *,
    command_config: str | os.PathLike[str] | None = None,
) -> DataFrame:
    """Return where topics begin and end (:data:`groupcoord.spark.schemas.LIVE_END_OFFSETS`), asked at each action.

    The cluster has to let its user DESCRIBE the topics; one that it doesn't is a row with an error.

    Args:
        spark: any session; the format ``groupcoord-end-offsets`` is registered with it.
        topics: their names; None: all that the user may describe.
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
        "topics": "" if topics is None else json.dumps(sorted(set(topics))),
    }
    return spark.read.format(END_OFFSETS_FORMAT).options(**options).load()


def cluster_options(
    address: ClusterAddress,
    topic: str = OFFSETS_TOPIC,
    **rows: Unpack[RowArguments],
) -> dict[str, str]:
    """Return the arguments of :func:`read_cluster` as the format's options."""
    return {
        BOOTSTRAP_SERVERS: address.bootstrap_servers,
        COMMAND_CONFIG: address.command_config or "",
        "topic": topic,
        **row_options(**rows),
    }
