"""Retries of requests to a cluster, with a backoff and a timeout."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import suppress
from typing import TypeVar

from groupcoord.analysis.live.cluster import LiveCluster
from groupcoord.analysis.live.errors import TransientClusterError
from groupcoord.core.consumer_protocol import TopicPartition

BACKOFF_MAX_MS = 1_000
"""``retry.backoff.max.ms`` of Kafka's clients: waits double up to this."""

SETTLE_MS = 2_000
"""How long to retry for a part of an answer, such as one partition's leader, while the rest is there."""

T = TypeVar("T")


class Patience:
    """Tries again until it works, or nothing has worked for so long.

    Args:
        timeout_ms: how long, from the last time that something worked.
        backoff_ms: how long to wait after the first failure.
        now_s: a clock that only goes forward, in seconds.
        wait: waits so many seconds.
    """

    def __init__(
        self,
        timeout_ms: int,
        backoff_ms: int,
        *,
        now_s: Callable[[], float] = time.monotonic,
        wait: Callable[[float], None] = time.sleep,
    ) -> None:
        self._timeout_ms = timeout_ms
        self._backoff_ms = backoff_ms
        self._now_s = now_s
        self._wait = wait

    def try_for(self, work: Callable[[], T], mend: Callable[[], object] = lambda: None) -> T:
        """Return what ``work`` returns when it works.

        Args:
            work: raises :class:`TransientClusterError` where it is worth another try.
            mend: is called before each of them; it may fail in the same way.

        Raises:
            TransientClusterError: the last one, when time is up.
        """
        deadline_s = self._now_s() + self._timeout_ms / 1000
        backoff_ms = self._backoff_ms
        while True:
            try:
                return work()
            except TransientClusterError:
                if self._now_s() + backoff_ms / 1000 >= deadline_s:
                    raise
            self._wait(backoff_ms / 1000)
            backoff_ms = min(2 * backoff_ms, BACKOFF_MAX_MS)
            with suppress(TransientClusterError):
                mend()

    def collect(self, work: Callable[[], T], is_whole: Callable[[T], bool]) -> T:
        """Return what ``work`` returns, as soon as that is whole, or else the last of it after :data:`SETTLE_MS`.

        Args:
            work: returns what it has got, which may lack a part; raises :class:`TransientClusterError` if it has got
                nothing, which is tried again for the whole timeout.
            is_whole: whether nothing is missing that another try may bring.

        Raises:
            TransientClusterError: nothing has worked until the timeout.
        """
        found: list[T] = []

        def attempt() -> T:
            found[:] = [self.try_for(work)]
            if is_whole(found[0]):
                return found[0]
            raise TransientClusterError("a part is missing")

        settling = Patience(min(SETTLE_MS, self._timeout_ms), self._backoff_ms, now_s=self._now_s, wait=self._wait)
        try:
            return settling.try_for(attempt)
        except TransientClusterError:
            if not found:
                raise
            return found[0]

    def at(self, cluster: LiveCluster, partition: TopicPartition, work: Callable[[], T]) -> T:
        """Like :meth:`try_for`, for work at the leader of a partition: who that is is asked anew after a failure."""
        return self.try_for(work, lambda: cluster.metadata([partition.topic]))
