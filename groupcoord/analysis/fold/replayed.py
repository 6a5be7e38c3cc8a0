"""What coordinators load of a log partition: gathered group by group from rows in the order of the log.

Outside of transactions the last commit and the last tombstone of each partition are loaded: what else was there changes
no answer, and a group that commits all day has no more to load than one that seldom does. Transaction markers have no
group; each is given to the groups that its producer wrote to.
"""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa
import pyarrow.compute as pc

from groupcoord.analysis.decode.schema import KIND_RECORD, RECORDS
from groupcoord.analysis.fold.arrow import Runs, every, is_offset_record
from groupcoord.analysis.fold.replay import NO_PARTITION, REPLAYED
from groupcoord.analysis.fold.transactions import is_marker

_NAMES = ("log_partition", "group_id", *REPLAYED)
_SCHEMA = pa.schema([RECORDS.field(name) for name in _NAMES])
_OFFSET_KEY = ("group_id", "topic", "topic_partition", "tombstone")
_ROWS_MIN, _ROWS_MAX = 262_144, 8_192


class Replayed:
    """Gathers what coordinators load of one log partition."""

    def __init__(self) -> None:
        self._others: list[pa.Table] = []
        self._markers: list[pa.Table] = []
        self._writers: list[pa.Table] = []
        self._last = _SCHEMA.empty_table()
        self._waiting: list[pa.Table] = []
        self._waiting_rows = 0

    def add(self, records: pa.Table) -> None:
        """Take records in the order of the log."""
        partition = pc.fill_null(records["log_partition"], NO_PARTITION)
        records = records.set_column(records.schema.get_field_index("log_partition"), "log_partition", partition)
        is_known = every(pc.equal(records["kind"], KIND_RECORD), pc.is_null(records["problem"]))
        is_offset = is_offset_record(records)
        is_transactional = every(is_offset, records["is_transactional"])
        is_plain = every(is_offset, pc.invert(records["is_transactional"]))
        is_other = every(is_known, pc.is_valid(records["group_id"]), pc.invert(is_plain))
        self._others.append(records.filter(is_other).select(_NAMES))
        self._markers.append(records.filter(is_marker(records)).select(_NAMES))
        self._writers.append(records.filter(is_transactional).group_by(["producer_id", "group_id"]).aggregate([]))
        plain = records.filter(is_plain).select(_NAMES)
        self._waiting.append(plain)
        self._waiting_rows += plain.num_rows
        if self._waiting_rows >= max(_ROWS_MIN, self._last.num_rows):
            self._keep_last()

    def _keep_last(self) -> None:
        rows = pa.concat_tables([self._last, *self._waiting]).combine_chunks()
        self._waiting, self._waiting_rows = [], 0
        self._last = rows.take(pa.array(Runs(rows, _OFFSET_KEY, is_sorted=True).last_rows())).combine_chunks()

    def batches(self) -> Iterator[pa.RecordBatch]:
        """Yield it all, group by group in the order of the log."""
        self._keep_last()
        together = pa.concat_tables([self._last, *self._others, *self._given_markers()])
        order = pc.sort_indices(together, [(name, "ascending") for name in ("log_partition", "group_id", "log_offset")])
        yield from together.take(order).combine_chunks().to_batches(_ROWS_MAX)

    def _given_markers(self) -> Iterator[pa.Table]:
        """Yield markers with the groups that they are given to."""
        if not self._markers:
            return
        markers = pa.concat_tables(self._markers)
        writers = pa.concat_tables(self._writers).group_by(["producer_id", "group_id"]).aggregate([])
        places = pa.table(
            {"producer_id": markers["producer_id"], "place": pa.array(range(markers.num_rows), pa.int64())}
        )
        given = places.join(writers, ["producer_id"], join_type="inner")
        found = markers.take(given["place"].combine_chunks())
        yield found.set_column(found.schema.get_field_index("group_id"), "group_id", given["group_id"])
