"""Table of share-partitions, from the log of ``__share_group_state``."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import pyarrow as pa

from groupcoord.analysis.decode.rows import RowSettings
from groupcoord.analysis.decode.schema import KIND_RECORD
from groupcoord.analysis.errors import InputError, LogCutError
from groupcoord.analysis.fold.history import Row
from groupcoord.analysis.fold.history.rows import SHARE
from groupcoord.analysis.fold.history.share_partitions import SharePartitions
from groupcoord.analysis.pipeline.sources import Source, attempted
from groupcoord.analysis.tables import FinishedTables, TableFiles
from groupcoord.core.log.records import OpaqueRecord
from groupcoord.records.share_state import decode_share_state

SHARE_STATE_SETTINGS = RowSettings(("kind", "log_offset", "log_timestamp_ms", "key", "value"), raw_bytes=True)
"""What rows are to hold: these records have nothing but their bytes in common with those of __consumer_offsets."""


class ShareStateFold:
    """Folds the rows of all log partitions of ``__share_group_state``, as they come."""

    def __init__(self) -> None:
        self._of: dict[int | None, SharePartitions] = {}
        self._next_offsets: dict[int | None, int] = {}

    def add(self, number: int | None, batches: Iterable[pa.RecordBatch]) -> None:
        """Take rows of a log partition in the order of the log; what was taken before is passed over."""
        states = self._of.setdefault(number, SharePartitions(number))
        for batch in batches:
            for kind, offset, at_ms, key, value in zip(*(column.to_pylist() for column in batch.columns), strict=True):
                if kind == KIND_RECORD and offset >= self._next_offsets.get(number, 0):
                    self._next_offsets[number] = offset + 1
                    record = decode_share_state(key or b"", value)
                    if not isinstance(record, OpaqueRecord):
                        states.add(offset, at_ms, record)

    def rows(self, names: Mapping[str, str]) -> list[Row]:
        """Return what is known of share-partitions.

        The columns are :data:`groupcoord.analysis.decode.group_tables.SHARE_PARTITIONS`.

        Args:
            names: of topics, by their ids.
        """
        return [row | {"topic": names.get(row["topic_id"])} for states in self._of.values() for row in states.rows()]


_TABLE = "share_partitions"


class ShareStates:
    """What the log of share groups' states tells, as far as it was read.

    Args:
        source: of the groups' log, beside which it is looked for.
    """

    def __init__(self, source: Source) -> None:
        self._source = source
        self._begin()

    def _begin(self) -> None:
        self._tail = self._source.share_state_tail()
        self._fold: ShareStateFold | None = None

    def write(self, tables: FinishedTables) -> None:
        """Read what is new, and write the table; nothing if there is no such log, or it may not be read.

        Args:
            tables: those that were written: members tell what topics are called.
        """
        try:
            attempted(self._read)
        except LogCutError:
            self._begin()  # the topic was made again: what it holds now is read the next time
        except InputError:
            pass
        if self._fold is not None:
            members = (row for row in tables.rows("members", ("type", "assignment")) if row["type"] == SHARE)
            assigned = (one for row in members for one in row["assignment"])
            names = {one["topic_id"]: one["topic"] for one in assigned if one["topic"] is not None}
            files = TableFiles(tables.results)
            excludes = self._source.selection.excludes
            files.write_rows(_TABLE, [row for row in self._fold.rows(names) if not excludes(row["group_id"])])
            tables.counts |= files.counts

    def _read(self) -> None:
        for task in self._tail.look():
            runs = [(number, list(batches)) for number, batches in task.runs(SHARE_STATE_SETTINGS)]
            self._tail.check(task)
            self._fold = self._fold or ShareStateFold()
            for number, batches in runs:
                self._fold.add(number, batches)
        self._tail.take()
