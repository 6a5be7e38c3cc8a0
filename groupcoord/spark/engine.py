"""Engine of the pipeline on Spark: what ``analyze --engine spark`` runs."""

from __future__ import annotations

import os
from collections.abc import Sequence

from attrs import frozen
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructType

from groupcoord.analysis.decode.files import RecordTask
from groupcoord.analysis.decode.parquet import Written
from groupcoord.analysis.fold.records import corrupt
from groupcoord.analysis.pipeline.batch import ANOMALIES, LAG, Moment
from groupcoord.analysis.pipeline.sources import ClusterSource
from groupcoord.analysis.rules.thresholds import OFFSETS_RETENTION_MINUTES
from groupcoord.analysis.tables import TABLES_OF_KINDS, TableFiles
from groupcoord.spark.anomalies import anomalies, offset_expiry, stale_groups
from groupcoord.spark.decoding import Folders, write_records
from groupcoord.spark.folding import FACTS, OFFSETS, UNPACKED, WRITTEN, write_fold
from groupcoord.spark.grouped_udf import BLOBS
from groupcoord.spark.groups import History, groups, verify
from groupcoord.spark.lag import held_topics, lag, read_record_times
from groupcoord.spark.output import OutputDirectory, write_counted
from groupcoord.spark.schemas import CURRENT_OFFSETS, RECORDS
from groupcoord.spark.sessions import count_tasks
from groupcoord.spark.tables import KEY_COLUMNS, load_of, transactional_commits

_WORKING = "working"
"""The folder for intermediate files."""


@frozen
class SparkDecoded:
    """The table of records, and the counts of what was written."""

    records: DataFrame
    written: Written


@frozen
class SparkFolded:
    """The tables that others are made of, read back from where they were written.

    Attributes:
        records: the table of records.
        history: the histories of its groups.
        facts: the facts of their commits.
        current: the table of current offsets.
    """

    records: DataFrame
    history: History
    facts: DataFrame
    current: DataFrame

    def topics(self) -> set[str]:
        return {row.topic for row in self.current.select("topic").union(held_topics(self.history)).distinct().collect()}


class SparkEngine:
    """Does the work of a :class:`groupcoord.analysis.pipeline.batch.Pipeline` on Spark.

    Each table is written once and read back, so that nothing is decoded twice.

    Args:
        spark: any session. It may be set later, before the pipeline runs: input and output are checked without Spark.
    """

    def __init__(self, spark: SparkSession | None = None) -> None:
        self.spark = spark

    @property
    def tasks(self) -> tuple[int, int]:
        return (0, 0) if self.spark is None else count_tasks(self.spark)

    def open(self, out: str | os.PathLike[str]) -> OutputDirectory:
        self._output = OutputDirectory(out)
        return self._output

    def close(self) -> None:
        self._output.remove(_WORKING)

    def decode(self, tasks: Sequence[RecordTask], files: TableFiles) -> SparkDecoded:
        self._output.check_reach(self._session)
        file_system, _ = self._output.place("tables")
        keys = f"{_WORKING}/keys"
        places = (self._output.place(name)[1] for name in ("tables/records", "tables/commits", keys))
        found = write_records(self._session, tasks, Folders(file_system, *places))
        files.counts["records"] = found.written.records
        files.write("read_counts", found.read_counts)
        files.write("corrupt", corrupt(found.ranges))
        self._write("partition_load", load_of(self._read(keys, KEY_COLUMNS)), files)
        return SparkDecoded(self._read("tables/records", RECORDS), found.written)

    def fold(self, decoded: SparkDecoded, files: TableFiles, *, verifies: bool) -> SparkFolded:
        records, written = decoded.records, decoded.written
        files.counts["commits"] = written.commits
        if written.transactional or not written.commits:
            path = self._output.path("tables/commits")
            added = write_counted(transactional_commits(records), path, "log_partition", mode="append")
            files.counts["commits"] += added
        shown = {**TABLES_OF_KINDS, OFFSETS: "current_offsets"}
        names = {name: f"tables/{shown[name]}" if name in shown else f"{_WORKING}/{name}" for name in WRITTEN}
        file_system, _ = self._output.place("tables")
        folders = {name: self._output.place(folder)[1] for name, folder in names.items()}
        counts = write_fold(records, file_system, folders)
        files.counts |= {shown[name]: count for name, count in counts.items() if name in shown}
        history = History(unpacked={kind: self._read(names[kind], schema) for kind, schema in UNPACKED.items()})
        return SparkFolded(
            records, history, self._read(names[FACTS], BLOBS), self._read(names[OFFSETS], CURRENT_OFFSETS)
        )

    def judge(self, step: str, folded: SparkFolded, moment: Moment, files: TableFiles) -> None:
        records, history, current = folded.records, folded.history, folded.current
        ends = None if moment.end_offsets is None else self._session.createDataFrame(moment.end_offsets)
        if step == ANOMALIES:
            kept_minutes = moment.retention_minutes or OFFSETS_RETENTION_MINUTES
            tables = {
                "groups": groups(records, history=history, offsets=current),
                "anomalies": anomalies(
                    records, history=history, commits=folded.facts, end_offsets=ends, now_ms=moment.now_ms
                ),
                "offset_expiry": offset_expiry(
                    records,
                    history=history,
                    commits=folded.facts,
                    offsets=current,
                    offsets_retention_minutes=kept_minutes,
                ),
                "stale_groups": stale_groups(
                    records,
                    history=history,
                    commits=folded.facts,
                    offsets=current,
                    now_ms=moment.now_ms,
                    offsets_retention_minutes=kept_minutes,
                ),
            }
        elif step == LAG:
            assert ends is not None
            tables = {"lag": self._lag(folded, ends, moment)}
        else:
            tables = {"differences": verify(records, history=history, offsets=current)}
        for name, table in tables.items():
            self._write(name, table, files)

    def _lag(self, folded: SparkFolded, ends: DataFrame, moment: Moment) -> DataFrame:
        times, source = None, moment.source
        if isinstance(source, ClusterSource) and source.lag_from_records and source.asks_for_ends:
            servers, config = source.address.bootstrap_servers, source.address.command_config
            times = read_record_times(self._session, folded.current, ends, servers, command_config=config)
        return lag(
            folded.current,
            ends,
            commits=folded.facts,
            history=folded.history,
            now_ms=moment.now_ms,
            record_times=times,
            read_ms=moment.read_ms,
        )

    @property
    def _session(self) -> SparkSession:
        assert self.spark is not None, "SparkEngine.spark is set before the pipeline runs"
        return self.spark

    def _write(self, name: str, table: DataFrame, files: TableFiles) -> None:
        files.counts[name] = write_counted(table, self._output.path(f"tables/{name}"))

    def _read(self, place: str, schema: StructType) -> DataFrame:
        path = self._output.reading_path(place)
        return self._session.read.schema(schema).parquet(path).select(*schema.fieldNames())
