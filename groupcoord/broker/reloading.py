"""Log partitions that can't be loaded: said once, tried again at growing intervals, and all others are served."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import NamedTuple

from groupcoord.broker.append_failures import AppendFailureLog
from groupcoord.broker.rate_limited_logger import RateLimitedLogger
from groupcoord.clock import Clock
from groupcoord.coordinator import GroupCoordinator, LoadError, PartitionStatus
from groupcoord.core.fast_construct import collector_paused
from groupcoord.log_store import FailingStore

logger = logging.getLogger("groupcoord.host")

FIRST_PAUSE_MS, LONGEST_PAUSE_MS = 1_000, 60_000


class _Failure(NamedTuple):
    """What the last try came to, and when the next is due."""

    message: str
    pause_ms: int
    retry_ms: int


class Reloading:
    """Loads log partitions and, if they fail then or later, loads them again.

    A partition that fails at work (an append of unknown outcome, a file that is gone) is tried again at the next
    :meth:`retry`. After each try that fails the pause doubles, up to a minute. A line is logged when a partition fails,
    when the reason changes, and when it is served again. Python's cyclic garbage collector is paused while records
    are read.
    """

    def __init__(self, coordinator: GroupCoordinator, clock: Clock) -> None:
        self._coordinator = coordinator
        self._clock = clock
        self._count = coordinator.config.offsets_topic_num_partitions
        self._failures: dict[int, _Failure] = {}
        self._append_watch = AppendFailureLog(coordinator, clock)
        self._log = RateLimitedLogger(logger)

    def load_all(self, leader_epochs: Mapping[int, int]) -> None:
        """Load log partitions, with the leader epochs that they have.

        Raises:
            LoadError: there are some, and not one could be loaded.
        """
        causes: dict[int, Exception] = {}
        with collector_paused():
            for partition, leader_epoch in leader_epochs.items():
                try:
                    self._coordinator.load(partition, leader_epoch)
                except LoadError as error:
                    causes.update(error.causes)
        for partition, cause in causes.items():
            self._failed(partition, cause)
        if causes and len(causes) == len(leader_epochs):
            raise LoadError(causes)

    def retry(self) -> None:
        """Load the log partitions again that have failed and are due, and say how appends fare."""
        self._append_watch.tell()
        now_ms = self._clock.now_ms()
        self._give_up_failed(now_ms)
        self._log.report(now_ms / 1000)
        for partition in range(self._count):
            if self._coordinator.status(partition) is not PartitionStatus.FAILED:
                continue
            failure = self._failures.get(partition)
            if failure is not None and now_ms < failure.retry_ms:
                continue
            try:
                with collector_paused():
                    self._coordinator.load(partition)
            except LoadError as error:
                self._failed(partition, error.causes[partition])
            else:
                self._failures.pop(partition, None)
                again = "log partition %d had failed and is loaded again"
                self._log.warning("loaded again", now_ms / 1000, again, partition)

    def _give_up_failed(self, now_ms: int) -> None:
        store = self._coordinator.log_store
        if isinstance(store, FailingStore):
            for partition, error in store.find_failed().items():
                self._log.error("failed", now_ms / 1000, "log partition %d has failed: %s", partition, error)
                self._coordinator.fail(partition, error)

    def _failed(self, partition: int, cause: Exception) -> None:
        message, before = str(cause), self._failures.get(partition)
        if before is None or before.message != message:
            logger.error("log partition %d can't be loaded, its groups are not served: %s", partition, message)
        pause_ms = FIRST_PAUSE_MS if before is None else min(2 * before.pause_ms, LONGEST_PAUSE_MS)
        self._failures[partition] = _Failure(message, pause_ms, self._clock.now_ms() + pause_ms)
