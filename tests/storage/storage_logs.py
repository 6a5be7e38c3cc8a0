"""Logs for the tests of the store: what they append and read back."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any
from uuid import UUID

from attrs import evolve

from groupcoord.core.log.records import OffsetCommitRecord, Record
from groupcoord.log_store import LogRecord, Ticket
from groupcoord.records.batches import iter_batches
from groupcoord.storage.stores.segments import SegmentLogStore

TOPIC_ID = UUID("9e8a4cbc-b6e6-4127-9645-17433affd7c2")


def commit(offset: int, partition: int = 0) -> OffsetCommitRecord:
    return OffsetCommitRecord("grp", "topic", partition, offset, 1, "é", 1000, topic_id=TOPIC_ID)


def append(store: SegmentLogStore, *records: Record, partition: int = 3, timestamp_ms: int = 1000) -> int:
    log_records = [LogRecord(record, timestamp_ms) for record in records]
    base_offset = store.append(partition, Ticket(partition, 1), log_records)
    assert [record.offset for record in log_records] == list(range(base_offset, base_offset + len(records)))
    return base_offset


def read(store: SegmentLogStore, partition: int = 3) -> list[tuple[int, Record]]:
    return [(record.offset, record.record) for record in store.read(partition)]


def log_file(directory: Path, base_offset: int = 0, partition: int = 3) -> Path:
    return directory / f"__consumer_offsets-{partition}" / f"{base_offset:020d}.log"


def three_batches(directory: Path) -> list[tuple[int, int]]:
    """Write three batches of two records; return start and end of each in the file."""
    with SegmentLogStore(directory) as store:
        for offset in (0, 2, 4):
            append(store, commit(offset), commit(offset + 1))
    return [(b.position, b.position + b.size_bytes) for b in iter_batches(log_file(directory).read_bytes())]


class RollingStore(SegmentLogStore):
    """Store whose segments are full after ``roll_bytes``, though compaction may make larger ones."""

    def __init__(self, directory: Path, *, roll_bytes: int, **arguments: Any) -> None:
        super().__init__(directory, **arguments)
        self._batch_bytes_max = arguments.get("batch_bytes_max", self._batch_bytes_max)
        self.roll_bytes = roll_bytes

    def append(self, partition: int, ticket: Ticket, records: Sequence[LogRecord]) -> int:
        settings = self._settings
        self._settings = evolve(settings, segment_bytes=self.roll_bytes)
        try:
            return super().append(partition, ticket, records)
        finally:
            self._settings = settings
