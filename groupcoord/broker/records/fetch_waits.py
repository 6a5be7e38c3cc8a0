"""Fetches that wait: each counts what comes to its partitions, and ends when that is enough or its time is up.

Source: ``DelayedFetch`` of Apache Kafka 4.4.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable
from typing import TYPE_CHECKING

from groupcoord.broker.connection import Connection
from groupcoord.broker.records.fetch_sessions import FetchContext, Fetched
from groupcoord.broker.records.fetching import FetchPlan
from groupcoord.broker.work import Waker, Work, portions
from groupcoord.storage.errors import TopicLogError

if TYPE_CHECKING:
    from groupcoord.storage.log.memory_log import PartitionLog

STALE_WAITS_LIMIT = 64


class FetchWait:
    """One Fetch that waits.

    Args:
        connection: who gets the answer.
        context: how it is put.
        plan: what to read.
        fetched: what was read, which is the answer if nothing happens; None to read again anyway.
        deadline_ms: when it ends at the latest.
        on_ready: called once, when there is enough to read.

    Attributes:
        has_changed: something has come to its partitions, or had before it waited, so that they are to be read again.
        has_moved: the leader of one of its partitions has changed.
        is_over: it doesn't wait any more.
    """

    __slots__ = (
        "_counts",
        "_on_ready",
        "_total_bytes",
        "connection",
        "context",
        "deadline_ms",
        "fetched",
        "has_changed",
        "has_moved",
        "is_over",
        "plan",
    )

    def __init__(
        self,
        connection: Connection,
        context: FetchContext,
        plan: FetchPlan,
        fetched: Fetched | None,
        deadline_ms: int,
        on_ready: Callable[[FetchWait], None],
    ) -> None:
        self.connection = connection
        self.context = context
        self.plan = plan
        self.fetched = fetched
        self.deadline_ms = deadline_ms
        self.has_changed = fetched is None
        self.has_moved = False
        self.is_over = False
        self._on_ready = on_ready
        # Where it reads, how much at most, what there is, and the leader's epoch.
        self._counts: dict[PartitionLog, tuple[int, int, int, int]] = {}
        self._total_bytes = 0

    def watch(self) -> Work[bool]:
        """Count what there is, and be told of what comes.

        Returns:
            False if there is enough already, and nobody was told so.
        """
        for portion in portions(self.plan.readable):
            for _, partition, log, _ in portion:
                if self.is_over:
                    return True
                if log is not None:
                    self._counts[log] = partition.fetch_offset, partition.partition_max_bytes, 0, log.leader_epoch
                    log.watchers[self._changed] = None
                    self._count(log)
            if portion is not self.plan.readable:
                yield None
        return self.is_over or self._total_bytes < self.plan.min_bytes

    def unwatch(self) -> None:
        """Be told no longer."""
        self.is_over = True
        for log in self._counts:
            log.watchers.pop(self._changed, None)

    def _changed(self, log: PartitionLog) -> None:
        self.has_changed = True
        self._count(log)
        self.has_moved = self.has_moved or log.leader_epoch != self._counts[log][3]
        if log.is_closed or self.has_moved or self._total_bytes >= self.plan.min_bytes:
            self._on_ready(self)

    def _count(self, log: PartitionLog) -> None:
        offset, bytes_max, counted, leader_epoch = self._counts[log]
        try:
            readable_bytes = min(log.readable_bytes(offset, self.plan.end_of(log)), bytes_max)
        except TopicLogError:
            readable_bytes = self.plan.min_bytes  # that is worth an answer at once
        self._counts[log] = offset, bytes_max, readable_bytes, leader_epoch
        self._total_bytes += readable_bytes - counted


class FetchWaits(Waker):
    """All of a host's: at most one for each connection."""

    def __init__(self) -> None:
        self._waiting: dict[Connection, FetchWait] = {}
        self._queue: list[tuple[int, int, FetchWait]] = []
        super().__init__()
        self._count = 0

    def add(self, wait: FetchWait) -> None:
        """Let a Fetch wait."""
        self._waiting[wait.connection] = wait
        self._count += 1
        heapq.heappush(self._queue, (wait.deadline_ms, self._count, wait))
        self.wake_earlier()

    def remove(self, connection: Connection) -> FetchWait | None:
        """Take out the Fetch of a connection, if it has one waiting."""
        wait = self._waiting.pop(connection, None)
        if wait is not None:
            wait.unwatch()
        if len(self._queue) > 2 * len(self._waiting) + STALE_WAITS_LIMIT:
            self._queue = [entry for entry in self._queue if not self._is_stale(entry[2])]
            heapq.heapify(self._queue)
        return wait

    def next_deadline_ms(self) -> int | None:
        """Return when the first of them ends; None if there is none."""
        queue = self._queue
        while queue and self._is_stale(queue[0][2]):
            heapq.heappop(queue)
        return queue[0][0] if queue else None

    def take_due(self, now_ms: int) -> FetchWait | None:
        """Take out one whose time is up; None if there is none."""
        deadline_ms = self.next_deadline_ms()
        if deadline_ms is None or deadline_ms > now_ms:
            return None
        return self.remove(self._queue[0][2].connection)

    def _is_stale(self, wait: FetchWait) -> bool:
        return self._waiting.get(wait.connection) is not wait
