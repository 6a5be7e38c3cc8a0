"""Records of log partitions: written as tables while they are decoded, read back in order, and folded."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from attrs import define, field, frozen
from pyarrow.parquet import ParquetFile

from groupcoord.analysis.decode.files import RecordTask
from groupcoord.analysis.decode.parquet import WRITTEN_COLUMNS, WRITTEN_COMMITS, Written, folder_name, write_run
from groupcoord.analysis.decode.results import ResultDirectory
from groupcoord.analysis.decode.rows import RowSettings
from groupcoord.analysis.decode.schema import CORRUPT, KIND_CORRUPT, KIND_READ, KIND_RECORD, RECORDS, arrow_schema
from groupcoord.analysis.fold.arrow import every, flags, integers
from groupcoord.analysis.fold.commits import MARKER_COLUMNS, CommitFacts, CommitFold, Markers, commits, is_marker
from groupcoord.analysis.fold.histories import feed_history
from groupcoord.analysis.fold.history import KINDS, LogHistory
from groupcoord.analysis.fold.load import LoadFold

BATCH_ROWS = 131_072
"""How many rows are read back at a time."""


@define
class LogPartition:
    """What was written of one log partition.

    Attributes:
        number: which it is; None if that is not known.
        files: of the table of records, in the order of the log.
        is_sorted: the records in them are in the order of their offsets: it isn't a damaged log, nor two copies of one.
    """

    number: int | None
    files: list[str] = field(factory=list)
    is_sorted: bool = True
    _last_offset: int = -1
    _markers: list[pa.Table] = field(factory=list)

    def noted(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Yield rows that are written next, and learn of them."""
        for batch in batches:
            is_range = pc.is_in(batch.column("kind"), pa.array([KIND_CORRUPT, KIND_READ]))
            offsets = integers(batch.column("log_offset").filter(pc.invert(is_range)))
            if len(offsets):
                self.is_sorted &= bool(offsets[0] > self._last_offset and (offsets[1:] > offsets[:-1]).all())
                self._last_offset = int(offsets[-1])
            markers = pa.Table.from_batches([batch.select(MARKER_COLUMNS)])
            markers = markers.filter(is_marker(markers))
            if markers.num_rows:
                self._markers.append(markers)
            yield batch

    def markers(self) -> Markers:
        """Return its transactions' markers."""
        return Markers(pa.concat_tables(self._markers)) if self._markers else Markers()


class Accounts:
    """Keeps account of rows while logs are decoded.

    Attributes:
        load: counts of all rows.
    """

    def __init__(self) -> None:
        self.load = LoadFold()
        self._ranges: list[pa.Table] = []

    def noted(self, partition: int | None, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Yield rows of a log partition, and note them."""
        for batch in batches:
            rows = of_partition(batch, partition)
            self.load.add(rows)
            is_range = pc.is_in(batch.column("kind"), pa.array([KIND_CORRUPT, KIND_READ]))
            if flags(is_range).any():
                self._ranges.append(rows.filter(is_range).select(RANGES.names))
            yield batch

    def ranges(self) -> pa.Table:
        """Return rows about ranges of bytes: corrupt ones, and accounts of what was read."""
        return pa.concat_tables([RANGES.empty_table(), *self._ranges]).combine_chunks()


RANGES = pa.schema(
    [
        RECORDS.field(name)
        for name in ("kind", "log_partition", "file", "position", "size_bytes", "problem", "log_offset", "end_offset")
    ]
).append(RECORDS.field("complete_from"))
"""The columns of rows about ranges of bytes that mean something."""


def corrupt(ranges: pa.Table) -> pa.Table:
    """Return the bytes that are no sound batch and were passed over (``tables.CORRUPT``).

    Args:
        ranges: :data:`RANGES`.
    """
    found = ranges.filter(pc.equal(ranges["kind"], KIND_CORRUPT))
    found = found.select(["file", "position", "size_bytes", "problem", "log_partition", "log_offset", "end_offset"])
    return found.rename_columns({"problem": "reason", "log_offset": "first_offset"}).cast(arrow_schema(CORRUPT))


Span = tuple[int, int, int]
"""A range of offsets that was read: the first, the one behind the last, and from which on none is missing."""


def read_spans(records: pa.Table) -> list[Span]:
    """Return the ranges that were read, by rows of one log partition of the table of records, or :data:`RANGES`."""
    found = records.filter(every(pc.equal(records["kind"], KIND_READ), pc.is_valid(records["complete_from"])))
    return [tuple(row.values()) for row in found.select(["log_offset", "end_offset", "complete_from"]).to_pylist()]


@frozen
class Decoded:
    """What came of decoding.

    Attributes:
        partitions: by log partition, in the order in which they came.
        written: how much that is.
        accounts: what was noted of all rows.
    """

    partitions: Sequence[LogPartition]
    written: Written
    accounts: Accounts

    def spans(self, partition: LogPartition) -> list[Span]:
        """Return the ranges of a log partition that were read."""
        ranges = self.accounts.ranges()
        number = ranges["log_partition"]
        return read_spans(
            ranges.filter(pc.is_null(number) if partition.number is None else pc.equal(number, partition.number))
        )


def decode_records(tasks: Sequence[RecordTask], results: ResultDirectory, tell: Callable[[int, int], None]) -> Decoded:
    """Decode logs, and write their records, and commits outside of transactions.

    Args:
        tasks: what to read.
        results: where the tables go.
        tell: is called with how many tasks are done, and how many there are.
    """
    partitions: dict[int | None, LogPartition] = {}
    accounts, written = Accounts(), Written()
    for number, task in enumerate(tasks):
        tell(number, len(tasks))
        for part, (log_partition, rows) in enumerate(task.runs(RowSettings(WRITTEN_COLUMNS))):
            name = f"{folder_name(log_partition)}/part-{number:05d}-{part:04d}.snappy.parquet"
            places = f"tables/records/{name}", f"tables/commits/{name}"
            partition = partitions.setdefault(log_partition, LogPartition(log_partition))
            partition.files.append(places[0])
            noted = partition.noted(accounts.noted(log_partition, rows))
            written = written.plus(write_run(noted, results.new_table_file, *places))
    return Decoded(list(partitions.values()), written, accounts)


def of_partition(batch: pa.RecordBatch, partition: int | None) -> pa.Table:
    """Return rows of a log partition with its number."""
    column = pa.repeat(pa.scalar(partition, pa.int32()), batch.num_rows)
    return pa.Table.from_batches([batch]).append_column("log_partition", column)


def read_back(
    results: ResultDirectory, partition: LogPartition, columns: Collection[str], kinds: Collection[str]
) -> Iterator[pa.Table]:
    """Yield the rows of a log partition in the order of the log, with their log partition.

    Of a damaged log, and of two copies of one, all rows are held at a time.

    Args:
        results: where the tables are.
        partition: which.
        columns: of the table of records.
        kinds: of the rows that are wanted.
    """
    parts = (_wanted(batch, kinds) for name in partition.files for batch in _batches(results, name, columns))
    found = (of_partition(batch, partition.number) for batch in parts if batch.num_rows)
    if partition.is_sorted:
        yield from found
    elif tables := list(found):
        rows = sorted_by_offset(pa.concat_tables(tables))
        yield from (rows.slice(start, BATCH_ROWS) for start in range(0, rows.num_rows, BATCH_ROWS))


def sorted_by_offset(records: pa.Table) -> pa.Table:
    """Return records in the order of their offsets; two with the same offset keep their order."""
    offsets = integers(records["log_offset"])
    if (offsets[1:] >= offsets[:-1]).all():
        return records
    return records.take(pa.array(np.argsort(offsets, kind="stable")))


def _wanted(batch: pa.RecordBatch, kinds: Collection[str]) -> pa.RecordBatch:
    return batch.filter(pc.is_in(batch.column("kind"), pa.array(sorted(kinds))))


def _batches(results: ResultDirectory, name: str, columns: Collection[str]) -> Iterator[pa.RecordBatch]:
    file_system, place = results.place(name)
    with file_system.open(place, "rb") as file:
        yield from ParquetFile(file).iter_batches(
            BATCH_ROWS, columns=[one for one in columns if one != "log_partition"]
        )


Row = dict[str, Any]

_NEEDED = frozenset(
    ("kind", "record_type", "problem", "key", "value", "partition_leader_epoch", "is_transactional")
).union(WRITTEN_COMMITS.names)

FOLDED_COLUMNS = tuple(name for name in RECORDS.names if name in _NEEDED)
"""The columns of the table of records that :meth:`PartitionFold.add` needs, besides ``log_partition``."""

DECODED_COLUMNS = (*FOLDED_COLUMNS, "control_type", "end_offset", "complete_from")
"""The columns of the table of records that :func:`fold_batches` needs."""


class PartitionFold:
    """Folds the records of one log partition, in the order of their offsets.

    Args:
        number: of the log partition; None if it is not known.
        markers: the transaction markers of the whole log partition.
        spans: the ranges of offsets that were read; see :meth:`groupcoord.analysis.fold.history.LogHistory.add_span`.
    """

    def __init__(self, number: int | None, markers: Markers, spans: Iterable[Span]) -> None:
        self._markers = markers
        self._commits = CommitFold()
        self._history = LogHistory(number)
        for span in spans:
            self._history.add_span(*span)

    def add(self, records: pa.Table) -> pa.Table:
        """Fold records, and return the commits among them (:data:`groupcoord.analysis.decode.schema.COMMITS`)."""
        is_understood = pc.and_(pc.is_null(records["problem"]), pc.is_valid(records["group_id"]))
        feed_history(self._history, records.filter(is_understood))
        found = commits(records, self._markers)
        self._commits.add(found)
        return found

    def facts(self) -> CommitFacts:
        """Return the facts of the commits."""
        return self._commits.facts()

    def rows_by_kind(self) -> dict[str, list[Row]]:
        """Return the rows of the histories by kind, each with its group and log partition."""
        found: dict[str, list[Row]] = {kind: [] for kind in KINDS}
        for row in self._history.rows():
            found[row.kind].append({"group_id": row.group_id, "log_partition": row.log_partition} | row.values)
        return found


def fold_batches(number: int | None, batches: Iterable[pa.RecordBatch]) -> PartitionFold:
    """Return the fold of a log partition from its rows, which are held in memory, whatever their order.

    Args:
        number: of the log partition; None if it is not known.
        batches: rows of the table of records, with :data:`DECODED_COLUMNS`.
    """
    empty = RECORDS.empty_table().select(DECODED_COLUMNS)
    rows = pa.concat_tables([empty, *(pa.Table.from_batches([batch.select(DECODED_COLUMNS)]) for batch in batches)])
    fold = PartitionFold(number, Markers(rows.filter(is_marker(rows))), read_spans(rows))
    records = sorted_by_offset(rows.filter(pc.equal(rows["kind"], KIND_RECORD)))
    for batch in records.to_batches(BATCH_ROWS):
        fold.add(of_partition(batch, number))
    return fold
