"""What a share group's member gets of a partition: batches of the log, and which of their records are its own."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

from groupcoord.broker.share.leading import LedPartition
from groupcoord.config.group_settings import ShareGroupSettings
from groupcoord.core.share_partition.in_flight import Acquired, LogBatch, Wanted
from groupcoord.wire.share_messages import AcquiredRecords

if TYPE_CHECKING:
    from groupcoord.records.batches import Batch
    from groupcoord.storage.log.index import AbortedTransaction

READ_COMMITTED = "read_committed"


class ReadRecords(NamedTuple):
    """What was read, and what of it is the reader's.

    Attributes:
        records: batches of the log.
        acquired: the records that are the reader's.
        size_bytes: how much was read.
        record_count: how many records were acquired, also such that are not to be seen.
    """

    records: bytes = b""
    acquired: tuple[AcquiredRecords, ...] = ()
    size_bytes: int = 0
    record_count: int = 0


NOTHING_READ = ReadRecords()


def end_of(led: LedPartition, settings: ShareGroupSettings) -> int:
    """Return up to where a group may read."""
    return led.log.last_stable_offset if settings.isolation_level == READ_COMMITTED else led.log.end_offset


def acquirable_bytes(led: LedPartition, settings: ShareGroupSettings) -> int | None:
    """Return how many bytes there are from the first record on that somebody could have; None: nobody could.

    Raises:
        TopicLogError: the log can't be read.
    """
    records = led.records
    if records is None:
        return None
    records.log_starts_at(led.log.start_offset)
    if not records.can_acquire(settings):
        return None
    offset, end_offset = records.next_fetch_offset(), end_of(led, settings)
    return led.log.readable_bytes(offset, end_offset) if offset < end_offset else None


def read_and_acquire(
    led: LedPartition, wanted: Wanted, settings: ShareGroupSettings, max_bytes: int, now_ms: int, *, takes_first: bool
) -> ReadRecords:
    """Read from a share-partition that has something, and give it to a member.

    Args:
        led: the share-partition.
        wanted: who asks for what.
        settings: what holds for the group.
        max_bytes: how much to read.
        now_ms: the time.
        takes_first: read the first batch also if it is larger than that.

    Raises:
        TopicLogError: the log can't be read.
    """
    from groupcoord.records.batches import TruncatedBatchError, iter_batches

    records = led.records
    assert records is not None, "only what is known is read"
    is_committed = settings.isolation_level == READ_COMMITTED
    end_offset = end_of(led, settings)
    for stop in (min(records.last_wanted(wanted.max_records) + 1, end_offset), end_offset):
        found = led.log.read(
            records.next_fetch_offset(), stop, max_bytes, takes_first=takes_first, lists_aborted=is_committed
        )
        if found.parts:
            break  # or there is a hole in the log, behind which the next batch begins
    data = b"".join(found.parts)
    batches = []
    try:
        for batch in iter_batches(data, check_crc=False):
            batches.append(batch)
    except TruncatedBatchError:
        pass  # the last one is cut where the limit is
    if not batches:
        return NOTHING_READ
    in_log = [LogBatch(batch.base_offset, batch.next_offset - 1) for batch in batches]
    acquired = records.acquire(wanted, in_log, settings, now_ms)
    if not acquired:
        return NOTHING_READ
    count = sum(entry.last - entry.first + 1 for entry in acquired)
    first, last = acquired[0].first, acquired[-1].last
    sent = [batch for batch in batches if batch.next_offset > first and batch.base_offset <= last]
    if is_committed and found.aborted:
        aborted = _aborted_ranges(batches, found.aborted)
        records.archive_unseen(_overlaps(acquired, aborted))
        acquired = _without(acquired, aborted)
    whole = data[sent[0].position : sent[-1].position + sent[-1].size_bytes] if sent else b""
    told = tuple(AcquiredRecords(*entry) for entry in acquired)
    return ReadRecords(whole, told, len(whole), count)


def _aborted_ranges(batches: Sequence[Batch], transactions: Sequence[AbortedTransaction]) -> list[tuple[int, int]]:
    """Return the offsets of batches that belong to aborted transactions."""
    ranges = []
    for batch in batches:
        if batch.is_control or not batch.is_transactional:
            continue
        for transaction in transactions:
            if (
                transaction.producer_id == batch.producer_id
                and transaction.first_offset <= batch.base_offset <= transaction.last_offset
            ):
                ranges.append((batch.base_offset, batch.next_offset - 1))
                break
    return ranges


def _overlaps(acquired: Sequence[Acquired], ranges: Sequence[tuple[int, int]]) -> list[tuple[int, int]]:
    return [
        (max(first, entry.first), min(last, entry.last))
        for entry in acquired
        for first, last in ranges
        if first <= entry.last and last >= entry.first
    ]


def _without(acquired: Sequence[Acquired], ranges: Sequence[tuple[int, int]]) -> list[Acquired]:
    """Return what is left of acquired records without some ranges, which follow each other."""
    left = []
    for entry in acquired:
        begin = entry.first
        for first, last in ranges:
            if last < begin or first > entry.last:
                continue
            if first > begin:
                left.append(Acquired(begin, first - 1, entry.delivery_count))
            begin = last + 1
        if begin <= entry.last:
            left.append(Acquired(begin, entry.last, entry.delivery_count))
    return left
