"""Says in the log that records can't be written, and when they can be written again."""

from __future__ import annotations

import logging

from groupcoord.clock import Clock
from groupcoord.coordinator import GroupCoordinator

logger = logging.getLogger("groupcoord.host")

PAUSE_MS = 10_000
"""Between two lines about appends that fail."""


class AppendFailureLog:
    """Watches the appends of a coordinator.

    While they fail there is a line at once, then one every ten seconds: why the latest failed, and how many did. When
    no log partition is left of which the latest append failed, there is a last line. What is said when a partition
    fails as a whole is :class:`~groupcoord.broker.reloading.Reloading`'s affair.
    """

    def __init__(self, coordinator: GroupCoordinator, clock: Clock) -> None:
        self._coordinator = coordinator
        self._clock = clock
        self._failing: dict[int, int] = {}  # log partition → the offset that its log had got to
        self._reason = ""
        self._untold_count = 0
        self._count = 0
        self._is_told = False
        self._next_line_ms = 0

    def tell(self) -> None:
        """Write the line that is due, if any. Call it every second or so."""
        for partition, failures in self._coordinator.take_append_failures().items():
            self._failing[partition] = failures.next_log_offset
            self._reason = failures.reason
            self._untold_count += failures.count
            self._count += failures.count
        now_ms = self._clock.now_ms()
        if self._untold_count and now_ms >= self._next_line_ms:
            logger.error("the log can't be written: %s (appends refused: %d)", self._reason, self._untold_count)
            self._untold_count, self._next_line_ms, self._is_told = 0, now_ms + PAUSE_MS, True
        if self._failing and self._take_written() and not self._failing and self._is_told:
            logger.warning("the log can be written again (appends refused in the meantime: %d)", self._count)
            self._untold_count, self._count, self._is_told = 0, 0, False

    def _take_written(self) -> bool:
        """Take out the log partitions that have been written since, or have failed; tell if there are any of those."""
        has_written = False
        for index, next_log_offset in list(self._failing.items()):
            partition = self._coordinator.partition(index)
            if partition is None:
                del self._failing[index]
            elif partition.writer.next_log_offset > next_log_offset:
                del self._failing[index]
                has_written = True
        return has_written
