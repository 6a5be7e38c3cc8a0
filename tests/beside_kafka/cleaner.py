"""Compaction of a log of group records as Kafka's log cleaner does it, run by the oracle before it loads again."""

from __future__ import annotations

from collections.abc import Sequence

from groupcoord.core.log.records import TransactionMarker
from groupcoord.log_store import NO_PRODUCER_ID, LogRecord


def cleaned(batches: Sequence[Sequence[LogRecord]], first: int, end: int, *, drops_tombstones: bool) -> list[LogRecord]:
    """Return what is left of a log: its newest batch and what lies behind an open transaction are never touched."""
    written = [batch for batch in batches if batch]
    if not written:
        return []
    aborted, open_transactions = _ended(written)
    limit = min([end, written[-1][0].offset, *open_transactions])
    newest = {
        record.encoded()[0]: record.offset
        for batch in written
        for record in batch
        if first <= record.offset < limit and record.offset not in aborted and not _is_marker(record)
    }

    def stays(record: LogRecord) -> bool:
        if _is_marker(record):
            return True
        key, value = record.encoded()
        is_dropped = record.offset in aborted or (value is None and drops_tombstones)
        return not is_dropped and newest.get(key, -1) <= record.offset

    return [record for batch in written for record in batch if batch[-1].offset >= limit or stays(record)]


def _ended(batches: Sequence[Sequence[LogRecord]]) -> tuple[set[int], list[int]]:
    """Return the offsets of what was aborted, and where the transactions begin that are open."""
    aborted: set[int] = set()
    in_transaction: dict[int, list[int]] = {}
    for batch in batches:
        for record in batch:
            if isinstance(record.record, TransactionMarker):
                offsets = in_transaction.pop(record.producer_id, [])
                aborted.update([] if record.record.committed else offsets)
            elif record.producer_id != NO_PRODUCER_ID:
                in_transaction.setdefault(record.producer_id, []).append(record.offset)
    return aborted, [offsets[0] for offsets in in_transaction.values()]


def _is_marker(record: LogRecord) -> bool:
    return isinstance(record.record, TransactionMarker)
