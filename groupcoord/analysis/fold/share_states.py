"""The share-partitions of share groups, out of the rows of ``__share_group_state``."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import pyarrow as pa

from groupcoord.analysis.decode.chunks import RowSettings
from groupcoord.analysis.decode.schema import KIND_RECORD
from groupcoord.analysis.fold.history import Row
from groupcoord.analysis.fold.history.share_partitions import SharePartitions
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
