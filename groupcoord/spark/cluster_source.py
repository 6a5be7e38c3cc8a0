"""Spark data sources of a running cluster: records of a topic, and end offsets of topics."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceReader, DataSourceStreamReader, InputPartition
from pyspark.sql.types import StructType

from groupcoord.analysis.errors import InputError
from groupcoord.analysis.live.connection import connection
from groupcoord.analysis.live.offsets import SPLIT_BYTES, TopicEnds, list_ends
from groupcoord.analysis.live.settings import BOOTSTRAP_SERVERS, ClusterAddress
from groupcoord.analysis.live.tasks import ClusterTask, check_same, check_topic, cluster_tasks, ends_now, tasks_between
from groupcoord.clock import SystemClock
from groupcoord.config.client_properties import SECRET_KEYS
from groupcoord.core.log.records import OFFSETS_TOPIC
from groupcoord.spark.record_sources import (
    ROW_OPTIONS,
    RecordOptions,
    RecordReader,
    RecordStreamReader,
    json_value,
    known_options,
)
from groupcoord.spark.schemas import LIVE_END_OFFSETS

if TYPE_CHECKING:
    from pyspark.sql.streaming.datasource import ReadLimit

CLUSTER_FORMAT = "groupcoord-kafka"
COMMAND_CONFIG = "command.config"
KAFKA = "kafka."
_OPTIONS = ("topic", *ROW_OPTIONS, "max_offsets")


def refuse_secrets(options: Mapping[str, str]) -> None:
    """Refuse options that nobody may see, which Spark would show.

    Raises:
        InputError: there is one.
    """
    secret = [name for name in options if name.lower().removeprefix(KAFKA) in SECRET_KEYS]
    if secret:
        raise InputError(f"option {secret[0]} would be seen in plans and logs: put it into the command.config file")


def cluster_and_options(options: Mapping[str, str], names: tuple[str, ...]) -> tuple[ClusterAddress, dict[str, str]]:
    """Return which cluster is meant, and the other options by their names in small letters.

    Options that begin with ``kafka.`` are settings of a client, as Spark's connector to Kafka takes them.

    Args:
        options: as Spark passes them.
        names: which there are besides.

    Raises:
        InputError: one is unknown, or a secret.
    """
    refuse_secrets(options)
    lowered = {name.lower(): value for name, value in options.items()}
    settings = {name.removeprefix(KAFKA): lowered.pop(name) for name in list(lowered) if name.startswith(KAFKA)}
    given = known_options(lowered, (BOOTSTRAP_SERVERS, COMMAND_CONFIG, *names))
    servers = settings.pop(BOOTSTRAP_SERVERS, "")
    return ClusterAddress(given.get(BOOTSTRAP_SERVERS) or servers, given.get(COMMAND_CONFIG) or None, settings), given


class ClusterOptions(RecordOptions):
    """What a read of a cluster is told, as Spark passes it: text, by names in any case.

    Attributes:
        address: of the cluster.
        topic: what to read.
    """

    def __init__(self, options: Mapping[str, str]) -> None:
        self.address, given = cluster_and_options(options, _OPTIONS)
        super().__init__(given, SPLIT_BYTES, "max_offsets")
        self.topic = given.get("topic") or OFFSETS_TOPIC

    def ends(self) -> TopicEnds:
        """Return where the logs begin and end now."""
        return ends_now(self.address, self.topic, self.selection.partitions)

    def check(self, *, may_be_empty: bool = False) -> TopicEnds:
        """Make sure that all of it can be read; see :func:`groupcoord.analysis.live.tasks.check_topic`.

        Args:
            may_be_empty: records may come later.
        """
        return check_topic(self.address, self.topic, self.selection.partitions, may_be_empty=may_be_empty)

    def tasks(self) -> Sequence[ClusterTask]:
        """Return what there is to read up to where the topic ends now, cut into tasks."""
        return cluster_tasks(self.address, self.topic, self.selection.partitions, self.split_bytes)


class ClusterStreamReader(RecordStreamReader):
    """Reads a topic as it grows. Its offset has the topic's id, and the next offset of each log partition."""

    def __init__(self, options: ClusterOptions) -> None:
        self._options: ClusterOptions = options
        self._last: dict[int, int] | None = None

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        """Return how much a micro-batch may read."""
        from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxRows

        bound = self._options.micro_batch_max
        return ReadAllAvailable() if bound is None else ReadMaxRows(bound)

    def latestOffset(  # noqa: N802
        self, start: dict[str, Any] | None = None, limit: ReadLimit | None = None
    ) -> dict[str, Any]:
        """Return up to where to read now. Spark before 4.2 tells neither argument."""
        ends = self._options.ends()
        before = _offsets(start or {})
        if start:
            check_same(ends, start["topic_id"], before)
        offsets_max: int | None = getattr(limit, "max_rows", None)
        reached = {}
        for partition, end in ends.ends.items():
            first = before.get(partition, ends.starts[partition])
            if self._last is not None:
                end = max(first, min(end, self._last.get(partition, first)))  # what is behind came later
            reached[partition] = end if offsets_max is None else min(end, first + offsets_max)
        return _offset_of(ends, reached)

    def reportLatestOffset(self) -> dict[str, Any]:  # noqa: N802
        """Return where the logs end, for Spark's measure of how far behind a stream is."""
        ends = self._options.ends()
        return _offset_of(ends, ends.ends)

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        """Read from now on no further than to where the logs end now."""
        self._last = self._options.ends().ends

    def tasks_between(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[ClusterTask]:
        """Return what lies between two offsets of each log partition, cut into tasks.

        Raises:
            LogCutError: what the stream has read is no part of the topic any more.
        """
        told, offsets = self._options, (_offsets(start), _offsets(end))
        return tasks_between(told.address, told.topic, *offsets, end["topic_id"], told.split_bytes)


def _offset_of(ends: TopicEnds, offsets: Mapping[int, int]) -> dict[str, Any]:
    """Return how far logs were read, as Spark keeps it in its checkpoint."""
    return {
        "cluster_id": ends.cluster_id,
        "topic_id": str(ends.topic.topic_id),
        "offsets": {str(partition): offset for partition, offset in sorted(offsets.items())},
    }


def _offsets(told: Mapping[str, Any]) -> dict[int, int]:
    return {int(partition): offset for partition, offset in told.get("offsets", {}).items()}


class ClusterDataSource(DataSource):
    """``spark.read.format("groupcoord-kafka")``: every record of a cluster's ``__consumer_offsets``.

    Options: ``bootstrap.servers``, ``command.config`` (the path of a file of properties, on every machine), settings of
    a client with ``kafka.`` before their names, ``topic`` (a copy of ``__consumer_offsets`` by another name),
    ``partitions`` (numbers with commas between them), ``columns`` (names with commas between them), ``raw_bytes``,
    ``split_bytes``, ``timestamps`` (true adds a timestamp to each point in time), and for streams ``max_offsets``.
    """

    @classmethod
    def name(cls) -> str:
        """Return the name of the format."""
        return CLUSTER_FORMAT

    def schema(self) -> StructType:
        """Return the columns of :data:`groupcoord.spark.schemas.RECORDS`, or those that are asked for."""
        return ClusterOptions(self.options).schema()

    def reader(self, schema: StructType) -> DataSourceReader:
        """Return what reads the topic."""
        return RecordReader(ClusterOptions(self.options))

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802
        """Return what reads the topic as it grows."""
        return ClusterStreamReader(ClusterOptions(self.options))


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
