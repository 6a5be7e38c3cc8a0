"""Leader epochs of a log and the offsets at which they begin.

Source: ``LeaderEpochFileCache`` of Apache Kafka 4.4.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable
from operator import itemgetter
from typing import NamedTuple

from groupcoord.storage.log_settings import LEADER_EPOCH, NO_LEADER_EPOCH


class EpochEnd(NamedTuple):
    """A leader epoch and the offset after its last record."""

    epoch: int
    end_offset: int


class LeaderEpochs:
    """Leader epochs of a log in order, with their start offsets.

    Args:
        entries: epochs and the offsets of their first records, in order.
    """

    def __init__(self, entries: Iterable[tuple[int, int]] = ()) -> None:
        self._entries = list(entries) or [(LEADER_EPOCH, 0)]

    @property
    def latest(self) -> int:
        """The epoch of appended records."""
        return self._entries[-1][0]

    @property
    def entries(self) -> tuple[tuple[int, int], ...]:
        """All epochs with their start offsets, oldest first."""
        return tuple(self._entries)

    def begin(self, epoch: int, offset: int) -> None:
        """Begin a newer epoch at an offset. It replaces an epoch without records."""
        self._entries = [entry for entry in self._entries if entry[1] < offset]
        self._entries.append((epoch, offset))

    def trim(self, start_offset: int, end_offset: int) -> bool:
        """Remove epochs without records between two offsets, except the latest epoch.

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
        """Return the last epoch up to the given one and the end of its records, or None if no such epoch is known.

        An epoch before the first one ends where the first begins, as in Kafka.

        Args:
            epoch: the epoch.
            end_offset: the end of the log.
        """
        if epoch == self.latest:
            return EpochEnd(epoch, end_offset)
        following = bisect_right(self._entries, epoch, key=itemgetter(0))
        if epoch == NO_LEADER_EPOCH or following == len(self._entries):
            return None
        return EpochEnd(self._entries[following - 1][0] if following else epoch, self._entries[following][1])

    def at(self, offset: int) -> int:
        """Return the epoch of the record at an offset, or -1 if it is unknown."""
        number = bisect_right(self._entries, offset, key=itemgetter(1))
        return self._entries[number - 1][0] if number else NO_LEADER_EPOCH
