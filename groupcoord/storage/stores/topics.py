"""Log store over the logs of a topic that holds the server's own state, such as ``__transaction_state``."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING

from attrs import define

from groupcoord.errors import RecordTooLargeError
from groupcoord.log_store import LogRecord, Ticket
from groupcoord.records.batches import Batch, TruncatedBatchError, iter_batches
from groupcoord.records.codec import RecordEncodingError
from groupcoord.storage.errors import TopicLogError
from groupcoord.storage.log.segment_files import decoded, encode_records
from groupcoord.storage.log.settings import TopicLogSettings

if TYPE_CHECKING:
    from groupcoord.storage.log.memory_log import PartitionLog


READ_BYTES = 1024 * 1024
"""Bytes per read."""

Decode = Callable[[bytes, bytes | None], object]
"""Decodes a record from its key and value."""


def batches_of(log: PartitionLog) -> Iterator[Batch]:
    """Yield the batches of a log up to its present end.

    InvalidBatchError means that a batch is malformed, TopicLogError that a file can't be read.
    """
    offset, end_offset = log.start_offset, log.end_offset
    while offset < end_offset:
        before, read = offset, b"".join(log.read(offset, end_offset, READ_BYTES, takes_first=True).parts)
        # Compaction has removed the last records.
        if not read:
            return
        try:
            for batch in iter_batches(read):
                yield batch
                # Compaction leaves gaps.
                offset = batch.next_offset
        # The last batch may be cut. If it is the first, the loop would never end.
        except TruncatedBatchError:
            if offset == before:
                raise


@define(eq=False)
class TopicLogStore:
    """Log store that writes to the logs of a topic, which may be truncated at the start but not compacted."""

    _log: Callable[[int], PartitionLog]
    _has_log: Callable[[int], bool]
    _settings: Callable[[], TopicLogSettings]
    _decode: Decode

    def append(self, partition: int, ticket: Ticket, records: Sequence[LogRecord]) -> int:
        """Write records as one batch.

        RecordTooLargeError and StorageError mean that nothing was written, AppendOutcomeUnknownError that it is
        unknown.
        """
        log = self._log(partition)
        try:
            batch = encode_records(log.end_offset, records, log.leader_epoch)
        except RecordEncodingError as error:
            raise RecordTooLargeError(str(error)) from error
        now_ms = max(record.timestamp_ms for record in records)
        base_offset = log.append_encoded(batch, len(records), now_ms, self._settings())
        for offset, record in enumerate(records, base_offset):
            record.offset = offset
        return base_offset

    def read(self, partition: int) -> Iterator[LogRecord]:
        if self._has_log(partition):
            log = self._log(partition)
            yield from decoded(partial(self._records, log.start_offset), batches_of(log), f"log partition {partition}")

    def _records(self, start_offset: int, batches: Iterator[Batch]) -> Iterator[LogRecord]:
        for batch in batches:
            for offset, timestamp_ms, key, value in batch.records():
                # DeleteRecords may have raised the start inside of a batch.
                if offset >= start_offset:
                    found = self._decode(bytes(key or b""), None if value is None else bytes(value))
                    yield LogRecord(found, timestamp_ms, offset)  # type: ignore[arg-type]

    def delete_before(self, partition: int, offset: int) -> None:
        """Delete the records before an offset; on an error they stay."""
        try:
            self._log(partition).delete_before(offset)
        except TopicLogError:
            return  # already logged, and the next write fails
