"""The tables kept up to date from a stream: :func:`follow` writes, :class:`FollowedTables` reads.

Each micro-batch of Spark is one update. Its work goes with what is new: records and commits are added to tables, and
only the groups that have new records are carried on, each from one blob in a bucket of them. See ``docs/spark.md`` for
what is where, and why nothing is lost or counted twice.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Iterable, Mapping
from importlib.util import find_spec
from typing import Any

import pyspark
from attrs import evolve
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.streaming.query import StreamingQuery

from groupcoord.analysis.columns.errors import InputError, PipelineError
from groupcoord.analysis.columns.files import SPLIT_BYTES
from groupcoord.analysis.folding.buckets import Buckets, first_count
from groupcoord.analysis.folding.replay import NO_PARTITION
from groupcoord.analysis.history.log import Completeness
from groupcoord.spark.folding import read_spans
from groupcoord.spark.group_schemas import HISTORY
from groupcoord.spark.groups import epochs, generations, groups, members, memberships, moves, rebalances, revocations
from groupcoord.spark.output import OutputDirectory
from groupcoord.spark.reading import log_options
from groupcoord.spark.schemas import COMMITS, RECORDS
from groupcoord.spark.sessions import register
from groupcoord.spark.source import FORMAT, LogOptions
from groupcoord.spark.state_buckets import spread
from groupcoord.spark.stream_fold import (
    CarrySettings,
    carry_on,
    ends_of,
    is_counting,
    offsets_of,
    open_commits,
    with_names,
)
from groupcoord.spark.stream_store import CHECKPOINT, Manifest, Part, StreamStore
from groupcoord.spark.tables import corrupt, read_counts, with_transactions

_SCHEMAS = {"records": RECORDS, "commits": COMMITS, "history": HISTORY, "open": RECORDS}
_INNER = frozenset({"open"})

logger = logging.getLogger(__name__)


def read_log_stream(
    spark: SparkSession,
    *paths: str | os.PathLike[str],
    columns: Iterable[str] | None = None,
    raw_bytes: bool = False,
    split_bytes: int = SPLIT_BYTES,
    partitions: Iterable[int] = (),
    storage_options: Mapping[str, Any] | None = None,
    max_bytes: int | None = None,
) -> DataFrame:
    """Return the table of records as a stream: all that the logs hold, and then what is added to them.

    Segments may be added, compacted and deleted meanwhile, and log partitions may appear. The end of a log partition is
    read up to its last whole batch.

    Args:
        spark: any session; the format ``groupcoord`` is registered with it.
        paths: as :func:`groupcoord.spark.read_log` takes them, as all arguments but the last.
        columns: see there.
        raw_bytes: see there.
        split_bytes: see there.
        partitions: see there.
        storage_options: see there.
        max_bytes: how much of each log partition a micro-batch reads, about; by default, and where a trigger asks for
            all there is, no bound. Needs Spark 4.2.

    Raises:
        InputError: a path does not exist or may not be read, an option is wrong, or Spark is too old for it.
    """
    if max_bytes is not None:
        check_version("max_bytes")
    options = log_options(paths, columns, raw_bytes, split_bytes, partitions, storage_options)
    options |= {} if max_bytes is None else {"max_bytes": str(max_bytes)}
    LogOptions(options).find_segments(may_be_empty=True)
    return stream_of(spark, options)


def stream_of(spark: SparkSession, options: Mapping[str, str]) -> DataFrame:
    """Return what :func:`read_log_stream` does, of logs that were found before.

    Args:
        spark: any session.
        options: those of the format.
    """
    return register(spark).readStream.format(FORMAT).options(**options).load()


def check_version(what: str) -> None:
    """Refuse what Spark's Python sources can do from 4.2 on.

    Args:
        what: its name, for the message.

    Raises:
        InputError: this is an older one.
    """
    if find_spec("pyspark.sql.streaming.datasource") is None:
        raise InputError(f"{what} needs PySpark 4.2 or newer; this is {pyspark.__version__}")


def follow(
    records: DataFrame,
    out: str | os.PathLike[str],
    *,
    interval_s: float = 10.0,
    until_end: bool = False,
    session_timeout_ms: int | None = None,
) -> StreamingQuery:
    """Keep tables up to date from a stream of records, and return the query that does so.

    Started again with the same directory it goes on where it was stopped or killed: every record is in the tables once.
    A directory of another version goes on too: what that kept of groups in another form is made of its records anew.

    Args:
        records: a streaming :data:`groupcoord.spark.schemas.RECORDS`, whole: what :func:`read_log_stream` or
            :func:`groupcoord.spark.from_messages` gives.
        out: a directory: empty, to be made, or that of an earlier run over the same logs. A URL is fine.
        interval_s: seconds between the starts of two updates.
        until_end: update until the stream's end of now is reached, and then stop.
        session_timeout_ms: see :func:`groupcoord.spark.history`.

    Raises:
        InputError: ``records`` is no stream or lacks columns, or the directory can't be used.
    """
    if not records.isStreaming:
        raise InputError("the records to follow are no stream: read_log_stream gives one")
    missing = sorted(set(RECORDS.fieldNames()) - set(records.columns))
    if missing:
        raise InputError(f"the records to follow have no column {missing[0]}")
    output = OutputDirectory(out, goes_on=CHECKPOINT)
    updates = _Updates(StreamStore(output, _SCHEMAS, _INNER), output.name, session_timeout_ms)
    updates.renew(records.sparkSession)
    writer = (
        records.select(*RECORDS.fieldNames())
        .writeStream.foreachBatch(updates.update)
        .option("checkpointLocation", output.path(f"{CHECKPOINT}/spark"))
        .queryName("groupcoord")
    )
    if until_end:
        return writer.trigger(availableNow=True).start()
    return writer.trigger(processingTime=f"{interval_s} seconds").start()


class _Updates:
    """Writes one update after the other."""

    def __init__(self, store: StreamStore, name: str, session_timeout_ms: int | None) -> None:
        self._store = store
        self._name = name
        self._session_timeout_ms = session_timeout_ms

    def update(self, rows: DataFrame, number: int) -> None:
        """Add a micro-batch to the tables. Repeated, it does the same again from what was there before."""
        spark, store = rows.sparkSession, self._store
        before = self._prepared(spark, store.before(number))
        part = Part(number, number)
        new = {"records": store.write("records", rows, part)}
        records = store.read(spark, "records", (new["records"],))
        still_open = store.read(spark, "open", before.tables.get("open", ()))
        ended = with_transactions(still_open.unionByName(records)).persist()
        try:
            new["commits"] = store.write("commits", ended.where(is_counting()), part)
            new["open"] = store.write("open", open_commits(ended), part)
            complete = _completeness(records, before)
            now = evolve(before, update=number, tables={**before.tables, "open": (new["open"],)}, complete=complete)
            buckets, new["history"] = self._carry(records, ended, now, part)
        finally:
            ended.unpersist()
        tables = {name: (*before.tables.get(name, ()), *([part] if part.rows else [])) for name, part in new.items()}
        tables["open"] = (new["open"],)
        store.commit(Manifest(number, tables, complete, buckets))

    def renew(self, spark: SparkSession) -> None:
        """Bring a directory up to date that another version wrote, though nothing new may come."""
        self._known(spark, self._store.latest())

    def _prepared(self, spark: SparkSession, manifest: Manifest) -> Manifest:
        """Return what there is in the form in which an update goes on from it."""
        store, manifest = self._store, self._known(spark, manifest)
        for name in ("records", "commits", "history"):
            manifest = store.merged(spark, manifest, name)
        buckets = _begun(spark, manifest.buckets)
        if buckets.wanted_count > buckets.count:
            buckets = spread(spark, store.bucket_folder, buckets, buckets.wanted_count, manifest.update)
            return store.replace(evolve(manifest, buckets=buckets))
        return evolve(manifest, buckets=buckets)

    def _known(self, spark: SparkSession, manifest: Manifest) -> Manifest:
        """Return what there is with what is kept of groups in the form of this version: folded anew, if need be."""
        if manifest.buckets is not None:
            return manifest
        store, parts = self._store, manifest.tables
        row_count = sum(part.rows for part in parts.get("records", ()))
        logger.warning(
            "%s: another version kept groups in another form; they are made anew of the %s rows of records there",
            self._name,
            f"{row_count:,}",
        )
        records = store.read(spark, "records", parts.get("records", ()))
        anew = {name: Part.in_place_of(parts.get(name, ()), manifest.update) for name in ("commits", "history")}
        ended = with_transactions(records).persist()
        try:
            anew["commits"] = store.write("commits", ended.where(is_counting()), anew["commits"])
            begun = evolve(manifest, buckets=_begun(spark, Buckets()))
            buckets, anew["history"] = self._carry(records, ended, begun, anew["history"])
        finally:
            ended.unpersist()
        tables = {name: parts.get(name, ()) for name in ("records", "open")}
        tables |= {name: (part,) if part.rows else () for name, part in anew.items()}
        return store.replace(evolve(manifest, tables=tables, buckets=buckets))

    def _carry(self, records: DataFrame, ended: DataFrame, manifest: Manifest, history: Part) -> tuple[Buckets, Part]:
        """Carry groups on by records; return the buckets then, and what was added to the history.

        Args:
            records: that are new to what is kept of groups.
            ended: their commits, with what became of their transactions.
            manifest: of the update, but for what this returns.
            history: what is added, without its rows.
        """
        assert manifest.buckets is not None
        spark, store = records.sparkSession, self._store
        settings = CarrySettings(
            self._session_timeout_ms,
            {partition: start for partition, (_, start) in manifest.complete.items()},
            _first_offsets(store.read(spark, "open", manifest.tables.get("open", ()))),
            store.bucket_folder,
            manifest.buckets,
            manifest.update,
            store.cleared_place("history", history),
        )
        buckets, rows = carry_on(records, ended, settings)
        return buckets, evolve(history, rows=rows)


def _begun(spark: SparkSession, buckets: Buckets | None) -> Buckets:
    """Return buckets as they are, or with how many to begin."""
    assert buckets is not None
    if buckets.count:
        return buckets
    return evolve(buckets, count=first_count(int(spark.conf.get("spark.sql.shuffle.partitions") or 1)))


def _first_offsets(table: DataFrame) -> dict[int, int]:
    found = table.groupBy("log_partition").agg(F.min("log_offset").alias("first")).collect()
    return {_known(row.log_partition): row.first for row in found}


def _completeness(records: DataFrame, before: Manifest) -> dict[int, tuple[int, int]]:
    """Return the next offset of each log partition, and from which on none is missing, as ``complete_from`` has it."""
    known = dict(before.complete)
    for span in read_spans(records).orderBy("log_partition", "first", "end").collect():
        so_far = Completeness(*known.get(_known(span.log_partition), (0, 0)))
        known[_known(span.log_partition)] = so_far.behind(span.first, span.end, span.complete_from)
    return known


def _known(log_partition: int | None) -> int:
    return NO_PARTITION if log_partition is None else log_partition


_PARTS_OF = {"records": ("records",), "commits": ("commits", "open")}
"""By name of a table, in which tables of the store its rows are."""


class FollowedTables:
    """The tables that :func:`follow` keeps, as of the last whole update, or of the moment of :meth:`refresh`.

    Args:
        spark: any session.
        out: the directory.

    Attributes:
        update: the number of the update, from 0; -1: there was none yet.

    Raises:
        InputError: there is nothing that was followed.
    """

    def __init__(self, spark: SparkSession, out: str | os.PathLike[str]) -> None:
        self._spark, self._name = spark, os.fspath(out)
        output = OutputDirectory(out, goes_on=CHECKPOINT, is_made=False)
        if not output.has(CHECKPOINT):
            raise InputError(f"{output.name}: nothing was followed into this directory")
        self._store = StreamStore(output, _SCHEMAS, _INNER)
        self.refresh()

    def refresh(self) -> int:
        """Look for newer updates, and return the number of the last one. Tables that were given stay as they are."""
        self._manifest = self._store.latest()
        self.update = self._manifest.update
        return self.update

    def table(self, name: str) -> DataFrame:
        """Return a table, with the schema that the function of this name gives.

        Args:
            name: ``records``, ``commits``, ``current_offsets``, ``generations``, ``members``, ``rebalances``,
                ``epochs``, ``memberships``, ``moves``, ``revocations``, ``groups``, ``history``, ``corrupt`` or
                ``read_counts``.

        Raises:
            InputError: there is no such table.
            PipelineError: it is made of what another version kept of groups, in a form that this one does not know.
        """
        makers: dict[str, Callable[[], DataFrame]] = {
            "records": lambda: self._read("records"),
            "commits": self._commits,
            "current_offsets": self._current_offsets,
            "generations": lambda: generations(self._history()),
            "members": lambda: with_names(members(self._history()), self._states()),
            "rebalances": lambda: rebalances(self._history()),
            "epochs": lambda: epochs(self._history()),
            "memberships": lambda: memberships(self._history()),
            "moves": lambda: with_names(moves(self._history()), self._states()),
            "revocations": lambda: with_names(revocations(self._history()), self._states()),
            "groups": lambda: groups(self._read("records"), history=self._ends(), offsets=self._current_offsets()),
            "history": self._history,
            "corrupt": lambda: corrupt(self._read("records")),
            "read_counts": lambda: read_counts(self._read("records")),
        }
        if name not in makers:
            raise InputError(f"there is no table {name}; there are {', '.join(makers)}")
        return makers[name]()

    def row_count(self, name: str) -> int:
        """Return how many rows ``records`` or ``commits`` has, without counting them."""
        return sum(part.rows for table in _PARTS_OF[name] for part in self._manifest.tables.get(table, ()))

    def folders(self, name: str) -> list[str]:
        """Return in which folders of the directory the rows of ``records`` or ``commits`` lie, as Parquet files."""
        tables = self._manifest.tables
        return [self._store.place(table, part) for table in _PARTS_OF[name] for part in tables.get(table, ())]

    def _commits(self) -> DataFrame:
        still_open = self._read("open").withColumn("transaction", F.lit("open"))
        return self._read("commits").unionByName(still_open.select(*COMMITS.fieldNames()))

    def _current_offsets(self) -> DataFrame:
        return offsets_of(self._states())

    def _history(self) -> DataFrame:
        return self._read("history").unionByName(self._ends())

    def _ends(self) -> DataFrame:
        return ends_of(self._states())

    def _states(self) -> DataFrame:
        buckets = self._manifest.buckets
        if buckets is None:
            raise PipelineError(
                f"{self._name}: another version of groupcoord kept groups in another form; follow into it again, and "
                "they are made anew of its records"
            )
        return self._store.read_states(self._spark, buckets)

    def _read(self, name: str) -> DataFrame:
        return self._store.read(self._spark, name, self._manifest.tables.get(name, ()))
