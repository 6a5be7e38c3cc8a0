"""How old the next record to read is, by the record itself."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import partial
from typing import Any

from groupcoord.analysis.live.cluster import LiveCluster, OffsetOutOfRangeError
from groupcoord.analysis.live.connection import connection
from groupcoord.analysis.live.errors import ClusterError
from groupcoord.analysis.live.fetching import Portion
from groupcoord.analysis.live.retries import Patience
from groupcoord.analysis.live.settings import ClusterAddress
from groupcoord.core.consumer_protocol import TopicPartition
from groupcoord.records.batches import BatchRecord
from groupcoord.records.salvage import SoundBatch, salvage_batches

WAIT_MS, BACKOFF_MS = 2_000, 100
"""How long to wait for a leader. What isn't told by then, looks at the ends tell."""

FETCHES_MAX = 8
"""So many batches are looked at that hold no record any more, or only markers of transactions."""

_BATCH = 1
"""With so few bytes allowed a broker gives one batch, whatever its size."""


def record_times(address: ClusterAddress, behind: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Return when the next records were written (:data:`groupcoord.analysis.decode.tables.RECORD_TIMES`), where that
    is told.

    Args:
        address: of the cluster that has them.
        behind: a row with ``topic``, ``topic_partition``, ``committed_offset`` and ``end_offset`` for each.
    """
    patience, found = Patience(WAIT_MS, BACKOFF_MS), []
    with connection(address) as (cluster, _):
        for row in behind:
            where = TopicPartition(row["topic"], row["topic_partition"])
            at_ms = next_record_ms(cluster, patience, where, row["committed_offset"], row["end_offset"])
            if at_ms is not None:
                place = {name: row[name] for name in ("topic", "topic_partition", "committed_offset")}
                found.append(place | {"record_timestamp_ms": at_ms})
    return found


def next_record_ms(
    cluster: LiveCluster, patience: Patience, partition: TopicPartition, offset: int, end_offset: int
) -> int | None:
    """Return the timestamp of the first record at an offset or behind it, in milliseconds since 1970.

    None if that can't be told: there is none, the user may not read the topic, the offset is deleted, the batch is
    damaged or has no timestamps, or no broker answers.

    Args:
        cluster: that has the log.
        patience: how long to wait for a leader.
        partition: of the log.
        offset: where to look.
        end_offset: how far.
    """
    for _ in range(FETCHES_MAX):
        if offset >= end_offset:
            return None
        try:
            found = patience.at(cluster, partition, partial(cluster.fetch_raw, partition, offset, _BATCH)).batches
        except (ClusterError, OffsetOutOfRangeError):
            return None
        one = next(salvage_batches(Portion(offset, found).read_at, len(found)), None)
        if not isinstance(one, SoundBatch) or one.batch.next_offset <= offset:
            return None
        record = None if one.batch.is_control else _first(one.records, offset)
        if record is not None:
            return record[1] if record[0] < end_offset and record[1] >= 0 else None
        offset = one.batch.next_offset
    return None


def _first(records: list[BatchRecord], offset: int) -> BatchRecord | None:
    return next((record for record in records if record[0] >= offset), None)
