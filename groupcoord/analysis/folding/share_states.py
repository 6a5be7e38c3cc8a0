"""The share-partitions of share groups, out of the rows of ``__share_group_state``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from groupcoord.analysis.columns.chunks import RowSettings
from groupcoord.analysis.columns.schema import KIND_RECORD
from groupcoord.analysis.columns.tasks import RecordTask
from groupcoord.analysis.history import Row
from groupcoord.analysis.history.share_partitions import SharePartitions
from groupcoord.core.records import OpaqueRecord
from groupcoord.records.share_state import decode_share_state

# These records have nothing but their bytes in common with those of __consumer_offsets.
_SETTINGS = RowSettings(("kind", "log_offset", "log_timestamp_ms", "key", "value"), raw_bytes=True)


def share_partitions(tasks: Sequence[RecordTask], names: Mapping[str, str]) -> list[Row]:
    """Return what is known of share-partitions (:data:`groupcoord.analysis.columns.group_tables.SHARE_PARTITIONS`).

    Args:
        tasks: of ``__share_group_state``, each log partition's in order.
        names: of topics, by their ids.
    """
    found: dict[int | None, SharePartitions] = {}
    for number, batches in (run for task in tasks for run in task.runs(_SETTINGS)):
        states = found.setdefault(number, SharePartitions(number))
        for batch in batches:
            for kind, offset, at_ms, key, value in zip(*(column.to_pylist() for column in batch.columns), strict=True):
                record = decode_share_state(key or b"", value) if kind == KIND_RECORD else OpaqueRecord(b"", None)
                if not isinstance(record, OpaqueRecord):
                    states.add(offset, at_ms, record)
    return [row | {"topic": names.get(row["topic_id"])} for states in found.values() for row in states.rows()]
