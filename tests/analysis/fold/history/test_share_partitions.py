"""Share-partitions out of the log of their states: what is delivered again, and what is given up."""

from __future__ import annotations

from typing import Any
from uuid import UUID

from groupcoord.analysis.fold.history.share_partitions import SharePartitions
from groupcoord.core.share_state.records import (
    DeliveryState,
    SharePartitionKey,
    ShareSnapshot,
    ShareStateRecord,
    ShareTombstone,
    ShareUpdate,
    StateBatch,
)

KEY = SharePartitionKey("workers", UUID(int=7), 3)
AVAILABLE, DONE, ARCHIVED = DeliveryState.AVAILABLE, DeliveryState.ACKNOWLEDGED, DeliveryState.ARCHIVED


def snapshot(start_offset: int, *batches: tuple[int, int, int, int]) -> ShareSnapshot:
    return ShareSnapshot(KEY, 0, 1, 2, start_offset, 10, 11, -1, tuple(StateBatch(*batch) for batch in batches))


def update(start_offset: int, *batches: tuple[int, int, int, int]) -> ShareUpdate:
    return ShareUpdate(KEY, 0, 2, start_offset, -1, tuple(StateBatch(*batch) for batch in batches))


def told(*records: ShareStateRecord) -> dict[str, Any]:
    """Fold records of one share-partition, a second apart, and return its row."""
    found = SharePartitions(4)
    for offset, record in enumerate(records):
        found.add(offset, 1_000 * offset, record)
    (row,) = found.rows()
    return row


def test_what_is_delivered_again_and_given_up() -> None:
    """Each delivery but the first counts, and each record that is given up, also where the start moves behind it."""
    row = told(
        snapshot(0),
        update(0, (0, 9, AVAILABLE, 1)),
        update(0, (0, 4, DONE, 2), (5, 9, AVAILABLE, 2)),
        update(5, (5, 6, ARCHIVED, 5), (7, 9, AVAILABLE, 3)),
        update(8, (7, 7, DONE, 4)),
    )
    names = ("start_offset", "acknowledged", "archived", "released", "delivery_count_max")

    assert row["redeliveries"] == 10 + (2 * 3 + 3) + 1
    assert row["archived_records"] == 2
    assert [row[name] for name in names] == [8, 0, 0, 2, 3]
    assert (row["snapshots"], row["updates"], row["first_ms"], row["last_ms"]) == (1, 4, 0, 4_000)
    assert (row["group_id"], row["topic_id"], row["topic_partition"], row["log_partition"]) == (
        *("workers", "AAAAAAAAAAAAAAAAAAAABw"),
        *(3, 4),
    )


def test_a_snapshot_repeats_what_is_known() -> None:
    """It repeats nothing; without records before it, its content is the known state."""
    batches = ((3, 4, AVAILABLE, 3), (5, 5, ARCHIVED, 5), (7, 8, DONE, 1))
    alone = told(snapshot(3, *batches))
    repeated = told(update(3, *batches), snapshot(3, *batches))
    for row in (alone, repeated):
        assert (row["redeliveries"], row["archived_records"]) == (2 * 2 + 4, 1)
        assert [row[name] for name in ("acknowledged", "archived", "released")] == [2, 1, 2]


def test_a_share_partition_that_is_deleted() -> None:
    """Its last state is reported; a new one under its key starts from scratch."""
    deleted = told(snapshot(3, (3, 3, AVAILABLE, 2)), ShareTombstone(KEY))
    again = told(snapshot(3, (3, 3, AVAILABLE, 2)), ShareTombstone(KEY), snapshot(-1))
    assert (deleted["is_deleted"], deleted["start_offset"], deleted["redeliveries"]) == (True, 3, 1)
    assert (again["is_deleted"], again["start_offset"], again["redeliveries"]) == (False, None, 1)
