"""Compactable records of a log: which ones a custom log store may delete, and when.

Of the records with one key the last one counts. Transactional records count from their marker on, and those of an
aborted transaction never. The rules are those of Kafka's log cleaner, except that tombstones and markers may be deleted
at once: a load reads the whole log (KIP-534).
"""

from __future__ import annotations

from collections.abc import Iterable

from groupcoord.core.log.records import NO_PRODUCER_ID, TransactionMarker
from groupcoord.log_store import LogRecord


class ReplacedRecords:
    """Collects the records of a log partition in order and returns those that may be deleted."""

    def __init__(self) -> None:
        self._last: dict[bytes, tuple[int, bool]] = {}  # key → offset, whether it is a tombstone
        self._replaced: list[tuple[int, int]] = []  # offset, and the offset of the record that replaces it
        self._open: dict[int, list[tuple[int, bytes, bool]]] = {}
        self._ended: list[tuple[int, list[int]]] = []  # marker, and the offsets of its transaction
        self._last_offset = -1

    def note(self, record: LogRecord) -> None:
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
        """Return the offsets that may be deleted, in ascending order.

        If you can't delete all in one transaction, delete in this order: then the rest is always consistent. The last
        record of the log is never among them, because it marks the end. Records after the start of an open transaction
        are not among them, and neither are records that only those replace.
        """
        end = min((entries[0][0] for entries in self._open.values()), default=self._last_offset + 1)
        found = {offset for offset, cause in self._replaced if cause < end}
        found.update(offset for offset, is_tombstone in self._last.values() if is_tombstone and offset < end)
        for marker, written in self._ended:
            # A marker may be deleted once no record of its transaction needs it.
            if marker < end and found.issuperset(written):
                found.add(marker)
        found.discard(self._last_offset)
        return sorted(found)

    def _count(self, offset: int, key: bytes, is_tombstone: bool) -> None:
        # A transactional record counts from its marker on, so a higher offset may have been counted before.
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
    """Return the offsets of the records of a log partition that may be deleted.

    A coordinator loads the same state without them. Nothing else may delete from the log partition meanwhile; appends
    may happen. The keys of all records are held in memory.

    Args:
        records: all records of a log partition in order, as the ``read()`` of a store returns them.

    Returns:
        Offsets in ascending order; see :meth:`ReplacedRecords.offsets`.
    """
    replaced = ReplacedRecords()
    for record in records:
        replaced.note(record)
    return replaced.offsets()
