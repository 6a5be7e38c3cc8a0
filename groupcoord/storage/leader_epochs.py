"""Under which leaders' epochs the records of a log were written.

Source: ``LeaderEpochFileCache`` of Apache Kafka 4.4.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable
from operator import itemgetter
from typing import NamedTuple

from groupcoord.storage.log_settings import LEADER_EPOCH, NO_LEADER_EPOCH


class EpochEnd(NamedTuple):
    """An epoch, and the offset behind its last record."""

    epoch: int
    end_offset: int


class LeaderEpochs:
    """The epochs of a log, in order, and where each begins.

    Args:
        entries: epochs with the offsets of their first records, in order.
    """

    def __init__(self, entries: Iterable[tuple[int, int]] = ()) -> None:
        self._entries = list(entries) or [(LEADER_EPOCH, 0)]

    @property
    def latest(self) -> int:
        """The epoch under which records are appended."""
        return self._entries[-1][0]

    @property
    def entries(self) -> tuple[tuple[int, int], ...]:
        """All of them, oldest first, and where each begins."""
        return tuple(self._entries)

    def begin(self, epoch: int, offset: int) -> None:
        """Let a newer epoch begin at an offset. One in which nothing was written gives way."""
        self._entries = [entry for entry in self._entries if entry[1] < offset]
        self._entries.append((epoch, offset))

    def trim(self, start_offset: int, end_offset: int) -> bool:
        """Keep what tells of the records between two offsets, and the latest epoch.

        Returns:
            Whether anything has changed.
        """
        before, latest = self._entries, self.latest
        first = max(bisect_right(before, start_offset, key=itemgetter(1)) - 1, 0)
        kept = [(epoch, max(offset, start_offset)) for epoch, offset in before[first:] if offset < end_offset]
        if not kept or kept[-1][0] != latest:
            kept.append((latest, end_offset))
        self._entries = kept
        return kept != before

    def end_of(self, epoch: int, end_offset: int) -> EpochEnd | None:
        """Return the last epoch up to one, and where its records end; None if no such epoch is known yet.

        An epoch before the first ends, as in Kafka, where the first begins.

        Args:
            epoch: the epoch.
            end_offset: where the log ends.
        """
        if epoch == self.latest:
            return EpochEnd(epoch, end_offset)
        following = bisect_right(self._entries, epoch, key=itemgetter(0))
        if epoch == NO_LEADER_EPOCH or following == len(self._entries):
            return None
        return EpochEnd(self._entries[following - 1][0] if following else epoch, self._entries[following][1])

    def at(self, offset: int) -> int:
        """Return the epoch of the record at an offset; -1 if it isn't known."""
        number = bisect_right(self._entries, offset, key=itemgetter(1))
        return self._entries[number - 1][0] if number else NO_LEADER_EPOCH
