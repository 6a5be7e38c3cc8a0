"""Output of Spark: directories of this machine or URLs for Spark and fsspec, and timestamps beside points in time."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager

from py4j.protocol import Py4JJavaError
from pyspark import TaskContext
from pyspark.sql import Column, DataFrame, Observation, SparkSession
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.types import LongType, StructField, StructType, TimestampType

from groupcoord.analysis.decode.parquet import LATEST_MS, MOMENTS, time_name
from groupcoord.analysis.decode.results import ResultDirectory
from groupcoord.analysis.errors import InputError, first_line


def schema_with_times(schema: StructType) -> StructType:
    """Return a schema with a timestamp behind each point in time."""
    fields: list[StructField] = []
    for field in schema:
        fields.append(field)
        if field.name in MOMENTS:
            fields.append(StructField(time_name(field.name), TimestampType()))
    return StructType(fields)


def with_times(table: DataFrame) -> DataFrame:
    """Return a table with a timestamp behind each point in time: ``started_utc`` behind ``started_ms``.

    Tables that ``groupcoord analyze`` writes have them already; this is for those that functions return. What is no
    point in time has none, and so has what has one.

    Args:
        table: any of this package's tables.
    """
    columns: list[Column] = []
    for field in table.schema:
        columns.append(F.col(f"`{field.name}`"))
        name = time_name(field.name)
        if field.name in MOMENTS and isinstance(field.dataType, LongType) and name not in table.columns:
            moment = F.col(field.name)
            columns.append(F.timestamp_millis(F.when((moment >= 0) & (moment <= LATEST_MS), moment)).alias(name))
    return table.select(*columns)


_TIMESTAMP_TYPE = "spark.sql.parquet.outputTimestampType"
_GLOB = re.compile(r"([\[\]{}*?\\])")


def write_counted(table: DataFrame, path: str, *by: str, mode: str = "error") -> int:
    """Write a table as Parquet, and return how many rows that were: they are counted as they go by.

    Points in time get a timestamp beside them; see :mod:`groupcoord.analysis.decode.parquet`.

    Args:
        table: what to write.
        path: where Spark finds the folder.
        by: columns that have a folder for each of their values.
        mode: what to do if there is something already, as ``DataFrameWriter.mode`` takes it.
    """
    counted = Observation()
    rows = with_times(table).observe(counted, F.count(F.lit(1)).alias("rows"))
    with _times_in_micros(table.sparkSession):
        rows.write.mode(mode).partitionBy(*by).parquet(path)
    return int(counted.get["rows"])


def task_attempt() -> int:
    """Return the number of the attempt at a task that runs here; 0 outside of tasks."""
    context = TaskContext.get()
    return 0 if context is None else int(context.taskAttemptId())


def task_file() -> str:
    """Return the name of the file that the task writes which runs here."""
    context = TaskContext.get()
    return f"part-{0 if context is None else context.partitionId():05d}.snappy.parquet"


@contextmanager
def _times_in_micros(spark: SparkSession) -> Iterator[None]:
    """Let timestamps be written as Parquet has them: by itself Spark writes INT96, which tells others no time zone."""
    before = spark.conf.get(_TIMESTAMP_TYPE) or "INT96"
    spark.conf.set(_TIMESTAMP_TYPE, "TIMESTAMP_MICROS")
    try:
        yield
    finally:
        spark.conf.set(_TIMESTAMP_TYPE, before)


class OutputDirectory(ResultDirectory):
    """An empty directory for tables and reports, where Spark writes too.

    The arguments are those of :class:`groupcoord.analysis.decode.results.ResultDirectory`.
    """

    def check_reach(self, spark: SparkSession) -> None:
        """Make sure that Spark can write there, and not only fsspec.

        Raises:
            InputError: it knows no such file system, or lacks a package or a setting for it.
        """
        java = getattr(spark, "_jvm", None)  # which a session of Spark Connect does not have
        if self.is_local or java is None:
            return
        try:
            java.org.apache.hadoop.fs.Path(self.name).getFileSystem(spark._jsc.hadoopConfiguration())
        except Py4JJavaError as error:
            raise InputError(f"Spark can't write to {self.name}: {first_line(error)}") from error

    def path(self, name: str) -> str:
        """Return where Spark finds something in it."""
        # Spark would take a bare path as one of its default file system, which need not be this machine's.
        return f"file://{self.place(name)[1]}" if self.is_local else f"{self.name.rstrip('/')}/{name}"

    def reading_path(self, name: str) -> str:
        """Return where Spark reads something in it; it takes some characters as patterns."""
        return _GLOB.sub(r"\\\1", self.path(name))
