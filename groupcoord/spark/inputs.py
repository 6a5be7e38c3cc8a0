"""What an analysis is told to read, whether it is made once or kept up to date: files, or a cluster that runs."""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from collections.abc import Hashable, Iterable, Sequence

from attrs import field, frozen
from pyspark.sql import DataFrame, SparkSession

from groupcoord.columns.errors import InputError
from groupcoord.columns.files import FileSet, find_segments
from groupcoord.live.broker_settings import offsets_retention_minutes
from groupcoord.live.connection import connection
from groupcoord.live.settings import ClusterAddress
from groupcoord.spark.cluster_reading import cluster_options, read_cluster_stream, read_end_offsets
from groupcoord.spark.cluster_source import ClusterOptions
from groupcoord.spark.reading import log_options
from groupcoord.spark.record_times import read_record_times
from groupcoord.spark.schemas import END_OFFSETS
from groupcoord.spark.source import RecordTask, log_tasks
from groupcoord.spark.streaming import read_log_stream

RECORD_BYTES = 106
"""What a committed offset takes in a log, about, in batches of a dozen."""


def _texts(paths: Iterable[str | os.PathLike[str]]) -> tuple[str, ...]:
    return tuple(os.fspath(path) for path in paths)


@frozen
class Input(ABC):
    """Records of ``__consumer_offsets``, and where the topics' partitions end.

    Attributes:
        partitions: only these log partitions; all if empty.
        end_offsets: a CSV file with a header and the columns of :data:`groupcoord.spark.schemas.END_OFFSETS`, or None.
    """

    partitions: frozenset[int]
    end_offsets: str | None

    def check(self, *, may_be_empty: bool = False) -> None:
        """Make sure that all of it is there.

        Args:
            may_be_empty: records may come later.

        Raises:
            InputError: something is not, or may not be read.
        """
        self._check_records(may_be_empty=may_be_empty)
        path = self.end_offsets
        if path is not None and "://" not in path and not os.access(path, os.R_OK):
            raise InputError(f"{path}: there is no such file, or it may not be read")

    @property
    def has_ends(self) -> bool:
        """Whether it can be told where the topics' partitions end."""
        return self.end_offsets is not None

    @property
    def asks_for_ends(self) -> bool:
        """Whether a cluster tells where they end, another time something else."""
        return False

    @property
    def cluster_name(self) -> str:
        """The id of the cluster that is read; empty for files."""
        return ""

    def read_end_offsets(self, spark: SparkSession, offsets: DataFrame) -> DataFrame | None:
        """Return :data:`groupcoord.spark.schemas.END_OFFSETS`, or None if they can't be told.

        Args:
            spark: any session.
            offsets: the committed ones, whose topics count.
        """
        if (path := self.end_offsets) is None:
            return None
        where = path if "://" in path else f"file://{os.path.abspath(path)}"
        return spark.read.schema(END_OFFSETS).option("mode", "FAILFAST").csv(where, header=True).persist()

    def read_record_times(self, spark: SparkSession, offsets: DataFrame, ends: DataFrame) -> DataFrame | None:
        """Return :data:`groupcoord.spark.schemas.RECORD_TIMES`, or None if the lag isn't to go by them.

        Args:
            spark: any session.
            offsets: the committed ones.
            ends: where their partitions end.
        """
        return None

    def offsets_retention_minutes(self) -> int | None:
        """Return what brokers say how long offsets are kept that nobody uses; None: it isn't told."""
        return None

    @property
    @abstractmethod
    def names(self) -> Sequence[str]:
        """What is read, for people."""

    @abstractmethod
    def size_bytes(self) -> int:
        """Return how much there is to read now, about."""

    @abstractmethod
    def identity(self) -> dict[str, str]:
        """Return what tells this input from others, whose tables don't go into the same directory."""

    @abstractmethod
    def state(self) -> Hashable:
        """Return what shows that there is more to read than at another time."""

    @abstractmethod
    def tasks(self) -> Sequence[RecordTask]:
        """Return what there is to read now, cut into tasks."""

    @abstractmethod
    def stream(self, spark: SparkSession) -> DataFrame:
        """Return the table of records as a stream."""

    @abstractmethod
    def _check_records(self, *, may_be_empty: bool) -> None: ...


@frozen
class LogInput(Input):
    """Logs in files.

    Attributes:
        paths: as :func:`groupcoord.spark.read_log` takes them.
    """

    paths: tuple[str, ...] = field(converter=_texts)

    @property
    def names(self) -> Sequence[str]:
        """See :class:`Input`."""
        return self.paths

    def size_bytes(self) -> int:
        """See :class:`Input`: how large the files are together."""
        return sum(segment.size_bytes for files in self._find(may_be_empty=True) for segment in files.segments)

    def identity(self) -> dict[str, str]:
        """See :class:`Input`."""
        options = log_options(self.paths, partitions=sorted(self.partitions))
        return {name: options[name] for name in ("paths", "partitions")}

    def state(self) -> Hashable:
        """See :class:`Input`: what shows that a log has grown or changed."""
        found = self._find(may_be_empty=True)
        return tuple((one.name, one.size_bytes, one.identity) for files in found for one in files.segments)

    def tasks(self) -> Sequence[RecordTask]:
        """See :class:`Input`."""
        return log_tasks(self._find(may_be_empty=False))

    def stream(self, spark: SparkSession) -> DataFrame:
        """See :class:`Input`."""
        return read_log_stream(spark, *self.paths, partitions=self.partitions)

    def _check_records(self, *, may_be_empty: bool) -> None:
        self._find(may_be_empty=may_be_empty)

    def _find(self, *, may_be_empty: bool) -> list[FileSet]:
        return find_segments(self.paths, partitions=self.partitions, may_be_empty=may_be_empty)


@frozen
class ClusterInput(Input):
    """A cluster that runs.

    Attributes:
        address: where it is.
        topic: what is read.
        lag_from_records: ask for the next record of each group that is behind, how old it is.
    """

    address: ClusterAddress
    topic: str
    lag_from_records: bool = False

    @property
    def has_ends(self) -> bool:
        """See :class:`Input`: the cluster is asked."""
        return True

    @property
    def asks_for_ends(self) -> bool:
        """See :class:`Input`: unless a file tells."""
        return self.end_offsets is None

    @property
    def cluster_name(self) -> str:
        """See :class:`Input`."""
        return self._options().ends().cluster_id

    def read_end_offsets(self, spark: SparkSession, offsets: DataFrame) -> DataFrame | None:
        """See :class:`Input`: what a file tells goes before what the cluster does."""
        if self.end_offsets is not None:
            return super().read_end_offsets(spark, offsets)
        topics = [row.topic for row in offsets.select("topic").distinct().collect()]
        address = self.address
        ends = read_end_offsets(spark, topics, address.bootstrap_servers, command_config=address.command_config)
        return ends.persist()

    def read_record_times(self, spark: SparkSession, offsets: DataFrame, ends: DataFrame) -> DataFrame | None:
        """See :class:`Input`."""
        if not self.lag_from_records or not self.asks_for_ends:
            return None
        address = self.address
        return read_record_times(spark, offsets, ends, address.bootstrap_servers, command_config=address.command_config)

    def offsets_retention_minutes(self) -> int | None:
        """See :class:`Input`."""
        with connection(self.address) as (cluster, patience):
            return offsets_retention_minutes(cluster, patience)

    @property
    def names(self) -> Sequence[str]:
        """See :class:`Input`."""
        return (f"kafka://{self.address.settings().bootstrap_servers}/{self.topic}",)

    def size_bytes(self) -> int:
        """See :class:`Input`. A cluster tells how many offsets there are, and not how many bytes."""
        return sum(one.end - one.start for one in self._options().ends().whole()) * RECORD_BYTES

    def identity(self) -> dict[str, str]:
        """See :class:`Input`. A cluster may be reached by other addresses another time; its id stays."""
        ends = self._options().ends()
        paths = f'["kafka://{ends.cluster_id}/{self.topic}"]'
        return {"paths": paths, "partitions": self._options_text()["partitions"]}

    def state(self) -> Hashable:
        """See :class:`Input`: where the logs end."""
        return tuple(sorted(self._options().ends().ends.items()))

    def tasks(self) -> Sequence[RecordTask]:
        """See :class:`Input`."""
        return self._options().tasks()

    def stream(self, spark: SparkSession) -> DataFrame:
        """See :class:`Input`."""
        return read_cluster_stream(
            spark,
            self.address.bootstrap_servers,
            command_config=self.address.command_config,
            topic=self.topic,
            partitions=self.partitions,
        )

    def _check_records(self, *, may_be_empty: bool) -> None:
        self._options().check(may_be_empty=may_be_empty)

    def _options(self) -> ClusterOptions:
        return ClusterOptions(self._options_text())

    def _options_text(self) -> dict[str, str]:
        return cluster_options(self.address, self.topic, partitions=sorted(self.partitions))
