"""Which records of a log nobody needs any more: what a log store of one's own may delete, and when.

Of the records with the same key the last one counts, but for transactions: their records count from their marker on,
and those of an aborted one never. The rules are those of Kafka's log cleaner, but that tombstones and markers may go
at once: a load reads the whole log, and there are no followers that might miss them (KIP-534).
"""

from __future__ import annotations

from collections.abc import Iterable

from groupcoord.core.log.records import NO_PRODUCER_ID, TransactionMarker
from groupcoord.log_store import LogRecord


class ReplacedRecords:
    """Is told of the records of a log partition in order, and then says which of them may be deleted."""

    def __init__(self) -> None:
        self._last: dict[bytes, tuple[int, bool]] = {}  # key → offset, whether it is a tombstone
        self._replaced: list[tuple[int, int]] = []  # offset, and that of what replaces it
        self._open: dict[int, list[tuple[int, bytes, bool]]] = {}
        self._ended: list[tuple[int, list[int]]] = []  # marker, and what its transaction wrote
        self._last_offset = -1

    def note(self, record: LogRecord) -> None:
        """Note the next record of the log partition.

        Args:
            record: with the offset where it lies.
        """
        self._last_offset = record.offset
        marker = record.record
        if isinstance(marker, TransactionMarker):
            self._end(marker, record.offset)
            return
        if record.is_control:
            return
        entry = (record.offset, record.key, record.value is None)
        if record.producer_id == NO_PRODUCER_ID:
            self._count(*entry)
        else:
            self._open.setdefault(record.producer_id, []).append(entry)

    def offsets(self) -> list[int]:
        """Return what may be deleted of all that was noted, in ascending order.

        Delete in this order if you can't delete all together: then what is left is sound after each deletion. The last
        record of the log is never among them, as its offset says where the log goes on; nor is what lies behind the
        beginning of an open transaction, or is replaced there only.
        """
        end = min((entries[0][0] for entries in self._open.values()), default=self._last_offset + 1)
        found = {offset for offset, cause in self._replaced if cause < end}
        found.update(offset for offset, is_tombstone in self._last.values() if is_tombstone and offset < end)
        for marker, written in self._ended:
            if marker < end and found.issuperset(written):
                found.add(marker)
        found.discard(self._last_offset)
        return sorted(found)

    def _count(self, offset: int, key: bytes, is_tombstone: bool) -> None:
        """Let a record count: of it and what counted before, the one that lies further ahead is replaced."""
        last = self._last.get(key)
        if last is None or last[0] < offset:
            self._last[key] = (offset, is_tombstone)
            if last is not None:
                self._replaced.append((last[0], offset))
        else:
            self._replaced.append((offset, last[0]))

    def _end(self, marker: TransactionMarker, offset: int) -> None:
        written = self._open.pop(marker.producer_id, [])
        self._ended.append((offset, [entry[0] for entry in written]))
        for entry in written:
            if marker.committed:
                self._count(*entry)
            else:
                self._replaced.append((entry[0], offset))


def replaced_offsets(records: Iterable[LogRecord]) -> list[int]:
    """Return the offsets of those records of a log partition that may be deleted.

    What a coordinator loads is the same without them. Call it while nothing else deletes from this log partition; what
    is appended meanwhile does no harm. It holds the keys of all records in memory.

    Args:
        records: all of a log partition in order, as a store's ``read()`` returns them.

    Returns:
        Offsets in ascending order: see :meth:`ReplacedRecords.offsets`.
    """
    replaced = ReplacedRecords()
    for record in records:
        replaced.note(record)
    return replaced.offsets()
