"""The tables kept up to date from a stream: :func:`follow` writes, :class:`FollowedTables` reads.

Each micro-batch of Spark is one update. Its work goes with what is new: records and commits are added to tables, and
only the groups that have new records are carried on, each from one blob. See ``docs/spark.md`` for what is where, and
why nothing is lost or counted twice.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping
from importlib.util import find_spec
from typing import Any

import pyspark
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.streaming.query import StreamingQuery

from groupcoord.columns.errors import InputError
from groupcoord.columns.files import SPLIT_BYTES
from groupcoord.spark.group_schemas import HISTORY
from groupcoord.spark.groups import (
    epochs,
    generations,
    groups,
    known_partition,
    members,
    memberships,
    moves,
    read_spans,
    rebalances,
    revocations,
)
from groupcoord.spark.output import OutputDirectory
from groupcoord.spark.reading import log_options
from groupcoord.spark.schemas import COMMITS, RECORDS
from groupcoord.spark.sessions import register
from groupcoord.spark.source import FORMAT, LogOptions
from groupcoord.spark.stream_fold import (
    STATE,
    STATES,
    CarrySettings,
    carry_on,
    ends_of,
    is_counting,
    last_states,
    offsets_of,
    open_commits,
    with_names,
)
from groupcoord.spark.stream_store import CHECKPOINT, Manifest, Part, StreamStore
from groupcoord.spark.tables import corrupt, read_counts, with_transactions

_SCHEMAS = {"records": RECORDS, "commits": COMMITS, "history": HISTORY, "states": STATES, "open": RECORDS}
_INNER = frozenset({"states", "open"})


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
    register(spark)
    options = log_options(paths, columns, raw_bytes, split_bytes, partitions, storage_options)
    options |= {} if max_bytes is None else {"max_bytes": str(max_bytes)}
    LogOptions(options).find_segments(may_be_empty=True)
    return spark.readStream.format(FORMAT).options(**options).load()


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
    updates = _Updates(StreamStore(output, _SCHEMAS, _INNER), session_timeout_ms)
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

    def __init__(self, store: StreamStore, session_timeout_ms: int | None) -> None:
        self._store = store
        self._session_timeout_ms = session_timeout_ms

    def update(self, rows: DataFrame, number: int) -> None:
        """Add a micro-batch to the tables. Repeated, it does the same again from what was there before."""
        spark, store = rows.sparkSession, self._store
        before = self._merged(spark, store.before(number))

        def table(name: str) -> DataFrame:
            return store.read(spark, name, before.tables.get(name, ()))

        new = {"records": store.write("records", rows, number)}
        records = store.read(spark, "records", (new["records"],))
        ended = with_transactions(table("open").unionByName(records)).persist()
        try:
            new["commits"] = store.write("commits", ended.where(is_counting()), number)
            new["open"] = store.write("open", open_commits(ended), number)
            complete = _completeness(records, before)
            settings = CarrySettings(
                self._session_timeout_ms,
                {partition: start for partition, (_, start) in complete.items()},
                _first_offsets(store.read(spark, "open", (new["open"],))),
            )
            carried = carry_on(records, ended, table("states"), settings)
            new |= self._write_carried(carried.persist(), number)
        finally:
            ended.unpersist()
        tables = {name: (*before.tables.get(name, ()), *([part] if part.rows else [])) for name, part in new.items()}
        tables["open"] = (new["open"],)
        store.commit(Manifest(number, tables, complete))

    def _write_carried(self, carried: DataFrame, number: int) -> dict[str, Part]:
        is_state = F.col("kind") == STATE
        try:
            states = carried.where(is_state).withColumn("update", F.lit(number))
            return {
                "states": self._store.write("states", states, number),
                "history": self._store.write("history", carried.where(~is_state), number),
            }
        finally:
            carried.unpersist()

    def _merged(self, spark: SparkSession, manifest: Manifest) -> Manifest:
        for name in ("records", "commits", "history", "states"):
            merge = last_states if name == "states" else _as_they_are
            manifest = self._store.merged(spark, manifest, name, merge)
        return manifest


def _as_they_are(rows: DataFrame) -> DataFrame:
    return rows


def _first_offsets(table: DataFrame) -> dict[int, int]:
    found = table.groupBy(known_partition()).agg(F.min("log_offset").alias("first")).collect()
    return {row.log_partition: row.first for row in found}


def _completeness(records: DataFrame, before: Manifest) -> dict[int, tuple[int, int]]:
    """Return the next offset of each log partition, and from which on none is missing, as ``complete_from`` has it."""
    known = dict(before.complete)
    for span in read_spans(records).orderBy("log_partition", "first", "end").collect():
        end, start = known.get(span.log_partition, (0, 0))
        if span.complete_from != span.first:
            start = span.complete_from
        elif span.first != end:
            start = span.first
        known[span.log_partition] = (span.end, start)
    return known


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
        self._spark = spark
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
        """
        makers: dict[str, Callable[[], DataFrame]] = {
            "records": lambda: self._read("records"),
            "commits": self._commits,
            "current_offsets": self._current_offsets,
            "generations": lambda: generations(self._history()),
            "members": lambda: with_names(members(self._history()), self._read("states")),
            "rebalances": lambda: rebalances(self._history()),
            "epochs": lambda: epochs(self._history()),
            "memberships": lambda: memberships(self._history()),
            "moves": lambda: with_names(moves(self._history()), self._read("states")),
            "revocations": lambda: with_names(revocations(self._history()), self._read("states")),
            "groups": lambda: groups(self._read("records"), history=self._ends(), offsets=self._current_offsets()),
            "history": self._history,
            "corrupt": lambda: corrupt(self._read("records")),
            "read_counts": lambda: read_counts(self._read("records")),
        }
        if name not in makers:
            raise InputError(f"there is no table {name}; there are {', '.join(makers)}")
        return makers[name]()

    def row_count(self, name: str) -> int:
        """Return how many rows ``records``, ``commits`` or ``history`` has, without counting them."""
        return sum(part.rows for part in self._manifest.tables.get(name, ()))

    def _commits(self) -> DataFrame:
        still_open = self._read("open").withColumn("transaction", F.lit("open"))
        return self._read("commits").unionByName(still_open.select(*COMMITS.fieldNames()))

    def _current_offsets(self) -> DataFrame:
        return offsets_of(self._read("states"))

    def _history(self) -> DataFrame:
        return self._read("history").unionByName(self._ends())

    def _ends(self) -> DataFrame:
        return ends_of(self._read("states"))

    def _read(self, name: str) -> DataFrame:
        return self._store.read(self._spark, name, self._manifest.tables.get(name, ()))
