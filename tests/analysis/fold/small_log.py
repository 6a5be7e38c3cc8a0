"""Small logs that are written batch by batch, to be worked out by hand."""

from __future__ import annotations

from pathlib import Path

from groupcoord.core.log.records import OffsetCommitRecord, Record, TransactionMarker
from groupcoord.records.batches import encode_batch
from groupcoord.records.codec import encode_record

GROUP, TOPIC = "g", "t"


def commit(partition: int, offset: int, producer_id: int = -1) -> OffsetCommitRecord:
    return OffsetCommitRecord(GROUP, TOPIC, partition, offset, commit_timestamp_ms=5, producer_id=producer_id)


class Log:
    """A log partition that is written batch by batch."""

    def __init__(self, folder: Path, partition: int = 0) -> None:
        self._folder = folder / f"__consumer_offsets-{partition}"
        self._folder.mkdir(parents=True)
        self._data = b""
        self._offset = 0

    def add(self, *records: Record, producer_id: int = -1) -> Log:
        """Write one batch."""
        encoded = [(*encode_record(record), 1_000 + self._offset) for record in records]
        self._data += encode_batch(
            self._offset,
            encoded,
            producer_id=producer_id,
            producer_epoch=min(producer_id, 0),
            is_transactional=producer_id >= 0,
            is_control=isinstance(records[0], TransactionMarker),
        )
        self._offset += len(records)
        (self._folder / f"{0:020d}.log").write_bytes(self._data)
        return self

    def end(self, producer_id: int, *, committed: bool) -> Log:
        """Write a marker."""
        return self.add(TransactionMarker(producer_id, 0, committed), producer_id=producer_id)
