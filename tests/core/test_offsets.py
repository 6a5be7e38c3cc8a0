"""The offset cache: plain commits, transactions and tombstones in every order."""

from __future__ import annotations

import pytest

from groupcoord import ErrorCode, InvariantError
from groupcoord.core.log.records import (
    CommitRecords,
    OffsetCommitRecord,
    OffsetTombstone,
    TransactionMarker,
    topic_of_record,
)
from groupcoord.core.offsets.cache import OffsetCache, Producers
from tests.tables import as_one_test

PLAIN, COMMIT, ABORT, TOMBSTONE = "plain", "commit", "abort", "tombstone"


def commit(*places: tuple[str, str, int, int], producer_id: int = -1) -> CommitRecords:
    """Return the commit of these groups, topics, partitions and offsets."""
    return CommitRecords([topic_of_record(OffsetCommitRecord(*place, producer_id=producer_id)) for place in places])


def apply(cache: OffsetCache, *steps: tuple[str, int] | str) -> None:
    """Apply a history to partition 0 of ``orders``, from log offset 10 on.

    ``plain`` and ``txn`` commit the log offset as the offset; ``txn`` and the markers name the producer.
    """
    for log_offset, step in enumerate(steps, start=10):
        kind, producer_id = step if isinstance(step, tuple) else (step, -1)
        if kind in (PLAIN, "txn"):
            cache.apply(commit(("group", "orders", 0, log_offset), producer_id=producer_id), log_offset)
        elif kind == TOMBSTONE:
            cache.apply_tombstones((OffsetTombstone("group", "orders", 0),))
        else:
            cache.apply_marker(TransactionMarker(producer_id, 0, kind == COMMIT))
        cache.check()


def committed(cache: OffsetCache) -> int | None:
    """Return what partition 0 of ``orders`` has."""
    found = cache.of_group("group").get("orders", {}).get(0)
    return None if found is None else found.logged(0)[1].offset


@as_one_test
@pytest.mark.parametrize(
    ("steps", "offset", "is_unstable"),
    [
        ([PLAIN, PLAIN], 11, False),
        ([PLAIN, TOMBSTONE], None, False),
        ([("txn", 1)], None, True),
        ([PLAIN, ("txn", 1)], 10, True),
        ([("txn", 1), PLAIN, (COMMIT, 1)], 11, False),
        ([PLAIN, ("txn", 1), (COMMIT, 1)], 11, False),
        ([("txn", 1), ("txn", 1), (COMMIT, 1)], 11, False),
        ([("txn", 1), ("txn", 2), (COMMIT, 2), (COMMIT, 1)], 11, False),
        ([("txn", 1), ("txn", 2), (COMMIT, 1)], 10, True),
        ([("txn", 1), ("txn", 2), (COMMIT, 1), (COMMIT, 2)], 11, False),
        ([("txn", 1), TOMBSTONE, (COMMIT, 1)], None, False),
        ([("txn", 1), ("txn", 2), TOMBSTONE, (COMMIT, 1), (COMMIT, 2)], None, False),
        ([PLAIN, ("txn", 1), (ABORT, 1)], 10, False),
        ([("txn", 1), (ABORT, 1)], None, False),
        ([(COMMIT, 1)], None, False),
        ([PLAIN, (ABORT, 1), (COMMIT, 2)], 10, False),
        ([("txn", 1), (COMMIT, 1), ("txn", 1), (ABORT, 1)], 10, False),
        ([TOMBSTONE], None, False),
        ([PLAIN, TOMBSTONE, TOMBSTONE, PLAIN], 13, False),
    ],
    ids=str,
)
def test_histories(steps: list, offset: int | None, is_unstable: bool) -> None:
    """The later place in the log wins, a marker shows or drops what was open, a tombstone takes all of it."""
    cache = OffsetCache()
    apply(cache, *steps)
    assert committed(cache) == offset
    assert cache.is_unstable("group", "orders", 0) == is_unstable
    assert cache.has_open_transaction("group") == is_unstable


def test_check() -> None:
    """``check`` finds an index that does not mirror the transactions, and empty containers."""
    cache = OffsetCache()
    cache.apply(commit(("group", "orders", 0, 1), producer_id=1), 0)
    cache.transactions.clear()
    with pytest.raises(InvariantError, match="open transactions"):
        cache.check()
    cache = OffsetCache()
    cache.committed["group"] = {"orders": {}}
    with pytest.raises(InvariantError, match="empty containers"):
        cache.check()


# ---------------------------------------------------------------- producers


OLD, FENCED, NONE = (
    ErrorCode.INVALID_PRODUCER_EPOCH,
    ErrorCode.TRANSACTION_COORDINATOR_FENCED,
    ErrorCode.NONE,
)


def test_after_records() -> None:
    """Records change only the producer's epoch, not the coordinator's."""
    known = Producers()
    known.wrote(7, 5)
    assert known.marker_error(7, 4, 0) is OLD
    assert known.marker_error(7, 5, -1) is NONE
    known.wrote(7, 5, 3)
    known.wrote(7, 6)
    assert [known.marker_error(7, *epochs) for epochs in ((5, 3), (6, 2), (6, 3))] == [OLD, FENCED, NONE]
