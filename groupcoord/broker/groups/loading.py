"""Loading of ``__consumer_offsets``: retries of failed log partitions, and log lines about appends that fail."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import NamedTuple

from groupcoord.broker.log_lines import RateLimitedLogger
from groupcoord.clock import Clock
from groupcoord.coordinator import GroupCoordinator, LoadError, PartitionStatus
from groupcoord.core.fast_construct import collector_paused
from groupcoord.log_store import FailingStore

logger = logging.getLogger("groupcoord.host")

PAUSE_MS = 10_000
"""Pause between two log lines about failed appends."""


class AppendFailureLog:
    """Log lines about failed appends: one at once, then one every ten seconds with reason and count, and one when
    appends work again.
    """

    def __init__(self, coordinator: GroupCoordinator, clock: Clock) -> None:
        self._coordinator = coordinator
        self._clock = clock
        self._failing: dict[int, int] = {}  # log partition → its log end offset at that time
        self._reason = ""
        self._unlogged_count = 0
        self._count = 0
        self._is_logged = False
        self._next_line_ms = 0

    def report(self) -> None:
        for partition, failures in self._coordinator.take_append_failures().items():
            self._failing[partition] = failures.next_log_offset
            self._reason = failures.reason
            self._unlogged_count += failures.count
            self._count += failures.count
        now_ms = self._clock.now_ms()
        if self._unlogged_count and now_ms >= self._next_line_ms:
            logger.error("the log can't be written: %s (appends refused: %d)", self._reason, self._unlogged_count)
            self._unlogged_count, self._next_line_ms, self._is_logged = 0, now_ms + PAUSE_MS, True
        # All failing partitions must be written again; success in one proves nothing for another.
        # `_take_written` may empty it, so it is tested twice.
        if self._failing and self._take_written() and not self._failing and self._is_logged:
            logger.warning("the log can be written again (appends refused in the meantime: %d)", self._count)
            self._unlogged_count, self._count, self._is_logged = 0, 0, False

    def _take_written(self) -> bool:
        """Remove log partitions that were written since, or have failed; return whether any was written."""
        has_written = False
        for index, next_log_offset in list(self._failing.items()):
            partition = self._coordinator.partition(index)
            # The partition failed as a whole; Reloading logs that.
            if partition is None:
                del self._failing[index]
            elif partition.writer.next_log_offset > next_log_offset:
                del self._failing[index]
                has_written = True
        return has_written


FIRST_PAUSE_MS, LONGEST_PAUSE_MS = 1_000, 60_000


class _Failure(NamedTuple):
    message: str
    pause_ms: int
    retry_ms: int


class Reloading:
    """Loader of log partitions that retries failed ones.

    The pause doubles with each failed attempt, up to a minute. A line is logged when a partition fails, when the reason
    changes, and when it is served again.
    """

    def __init__(self, coordinator: GroupCoordinator, clock: Clock) -> None:
        self._coordinator = coordinator
        self._clock = clock
        self._count = coordinator.config.offsets_topic_num_partitions
        self._failures: dict[int, _Failure] = {}
        self._append_failures = AppendFailureLog(coordinator, clock)
        self._log = RateLimitedLogger(logger)

    def load_all(self, leader_epochs: Mapping[int, int]) -> None:
        """Load log partitions with their leader epochs.

        Raises:
            LoadError: none of them could be loaded.
        """
        causes: dict[int, Exception] = {}
        # Loading creates millions of objects and no garbage; the collector would visit them again and again.
        with collector_paused():
            for partition, leader_epoch in leader_epochs.items():
                try:
                    self._coordinator.load(partition, leader_epoch)
                except LoadError as error:
                    causes.update(error.causes)
        for partition, cause in causes.items():
            self._failed(partition, cause)
        # With one readable partition the server is useful, so it starts.
        if causes and len(causes) == len(leader_epochs):
            raise LoadError(causes)

    def retry(self) -> None:
        """Load failed log partitions that are due, and log append failures."""
        self._append_failures.report()
        now_ms = self._clock.now_ms()
        # A file may disappear without an append that notices.
        self._fail_unreadable(now_ms)
        self._log.report(now_ms / 1000)
        for partition in range(self._count):
            if self._coordinator.status(partition) is not PartitionStatus.FAILED:
                continue
            # None for a partition that failed while it was served: loaded at once.
            failure = self._failures.get(partition)
            if failure is not None and now_ms < failure.retry_ms:
                continue
            try:
                with collector_paused():
                    # No epoch: after a failure any is accepted, and the newest is kept.
                    self._coordinator.load(partition)
            except LoadError as error:
                self._failed(partition, error.causes[partition])
            else:
                self._failures.pop(partition, None)
                again = "log partition %d had failed and is loaded again"
                self._log.warning("loaded again", now_ms / 1000, again, partition)

    def _fail_unreadable(self, now_ms: int) -> None:
        store = self._coordinator.log_store
        if isinstance(store, FailingStore):
            for partition, error in store.find_failed().items():
                self._log.error("failed", now_ms / 1000, "log partition %d has failed: %s", partition, error)
                self._coordinator.fail(partition, error)

    def _failed(self, partition: int, cause: Exception) -> None:
        message, before = str(cause), self._failures.get(partition)
        # Once per reason, since retries never end.
        if before is None or before.message != message:
            logger.error("log partition %d can't be loaded, its groups are not served: %s", partition, message)
        pause_ms = FIRST_PAUSE_MS if before is None else min(2 * before.pause_ms, LONGEST_PAUSE_MS)
        self._failures[partition] = _Failure(message, pause_ms, self._clock.now_ms() + pause_ms)
