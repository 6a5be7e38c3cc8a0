"""Who gets which records: what is in flight and available again first, then what nobody has had.

Rules are those of ``SharePartition.acquire`` of Apache Kafka 4.4, with KIP-1206 (modes) and KIP-1240 (records that were
given out in vain come in smaller and smaller portions, so that one bad record doesn't take others along), as recorded.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from attrs import frozen


class LogBatch(NamedTuple):
    """A batch of the log: the offsets of its first and its last record."""

    first: int
    last: int


class Acquired(NamedTuple):
    """Records that are somebody's now, for the how-manieth time."""

    first: int
    last: int
    delivery_count: int


@frozen
class Wanted:
    """What somebody asks for.

    Attributes:
        member_id: who.
        max_records: at most so many; where ``is_limit`` is False, up to the end of the log's batch.
        batch_size: more than so many records are divided, at borders of the log's batches.
        is_limit: never more than ``max_records`` (KIP-1206).
    """

    member_id: str
    max_records: int
    batch_size: int = 500
    is_limit: bool = False


class DeliveryLimits(NamedTuple):
    """How often records are given out.

    Attributes:
        count_limit: at most so often.
    """

    count_limit: int

    @property
    def throttled_from(self) -> int:
        """Records that were given out so often come in smaller portions."""
        return max(2, -(-self.count_limit // 2))

    def portion(self, size: int, count: int) -> int:
        """Return how many records of a batch of so many are given out, the first of which was so often."""
        return max(1, size >> (count - self.throttled_from + 1))

    def is_last(self, count: int) -> bool:
        """Tell whether a record that was given out so often is at its last attempt, and comes alone."""
        return self.count_limit > 2 and count >= self.count_limit - 1


def divide(first: int, last: int, batches: Sequence[LogBatch], batch_size: int) -> list[tuple[int, int]]:
    """Return the ranges in which new records are given out.

    A range ends before the first batch of the log that begins ``batch_size`` or more behind the range's beginning.
    """
    ranges = []
    begin = first
    if last - first + 1 > batch_size:
        for batch in batches:
            if begin < batch.first <= last and batch.first - begin >= batch_size:
                ranges.append((begin, batch.first - 1))
                begin = batch.first
    return [*ranges, (begin, last)]


def end_of_portion(first: int, last: int, batches: Sequence[LogBatch], count: int, *, is_limit: bool) -> int:
    """Return the last of the new records that are given out, of which at most so many are wanted."""
    if count > last - first:
        return last
    end = first + count - 1
    if is_limit:
        return end
    return min(last, next((batch.last for batch in batches if batch.last >= end), last))
