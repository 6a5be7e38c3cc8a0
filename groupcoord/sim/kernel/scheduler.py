"""Virtual clock and scheduler of a run, clocks of consumers, and the trace of events."""

from __future__ import annotations

from collections.abc import Callable
from hashlib import sha256
from heapq import heappop, heappush
from typing import Any

Action = Callable[[Any], None]
"""Scheduled function; called with its argument."""

WORLD_RANK = 0
"""Rank of faults, which come first."""


def rank_of_node(node_id: int) -> int:
    return node_id


def rank_of_arrival(client_number: int) -> int:
    """Return the rank of a client's requests that reach a node; responses have the next one."""
    return _FIRST_CLIENT + 4 * client_number


def rank_of_deadline(client_number: int) -> int:
    return _FIRST_CLIENT + 4 * client_number + 2


_FIRST_CLIENT = 1_000


def ignore(*_: object) -> None:
    """Do nothing; the default of callbacks."""


class Scheduler:
    """Heap of scheduled actions, and the clock of a run (see :class:`groupcoord.Clock`).

    Actions of the same millisecond run in the order of their ranks, and of equal ranks in the order in which they were
    scheduled. Every actor has its own ranks, so the order does not depend on how early others scheduled. Actions can't
    be cancelled; they check whether they still apply.

    Attributes:
        time_ms: current time, in milliseconds since the Unix epoch.
    """

    __slots__ = ("_heap", "_sequence", "executed", "time_ms")

    def __init__(self, start_ms: int) -> None:
        self.time_ms = start_ms
        self.executed = 0
        self._heap: list[tuple[int, int, int, Action, Any]] = []
        self._sequence = 0

    def now_ms(self) -> int:
        return self.time_ms

    def at(self, time_ms: int, rank: int, action: Action, argument: Any = None) -> None:
        """Schedule ``action(argument)`` at ``time_ms``, or now if that is in the past.

        Args:
            time_ms: the time, in milliseconds since the Unix epoch.
            rank: order among actions of the same time: :data:`WORLD_RANK` and other ranks of this module.
        """
        self._sequence = sequence = self._sequence + 1
        now_ms = self.time_ms
        heappush(self._heap, (time_ms if time_ms > now_ms else now_ms, rank, sequence, action, argument))

    def run_until(self, end_ms: int, after_each: Callable[[], None] | None = None) -> None:
        heap = self._heap
        executed = 0
        try:
            while heap and heap[0][0] <= end_ms:
                self.time_ms, _, _, action, argument = heappop(heap)
                executed += 1
                action(argument)
                if after_each is not None:
                    after_each()
        finally:
            self.executed += executed
        self.time_ms = max(self.time_ms, end_ms)


MILLION = 1_000_000


class LocalClock:
    """Clock of a consumer.

    Attributes:
        skipped_ms: time that does not pass on this clock (see :mod:`groupcoord.sim.actors.fast_forward`).
    """

    __slots__ = ("_drift_ppm", "_offset_ms", "_start_ms", "skipped_ms")

    def __init__(self, start_ms: int, offset_ms: int = 0, drift_ppm: int = 0) -> None:
        self._start_ms = start_ms
        self._offset_ms = offset_ms
        self._drift_ppm = drift_ppm
        self.skipped_ms = 0

    @property
    def keeps_time(self) -> bool:
        return not self._drift_ppm

    def at(self, world_ms: int) -> int:
        local_ms = world_ms + self._offset_ms - self.skipped_ms
        if self._drift_ppm:
            local_ms += (world_ms - self._start_ms) * self._drift_ppm // MILLION
        return local_ms

    def world_at(self, local_ms: int) -> int:
        """Return the first virtual time at which this clock shows at least ``local_ms``."""
        world_ms = local_ms - self._offset_ms + self.skipped_ms
        if self._drift_ppm:
            passed_ms = world_ms - self._start_ms
            world_ms = self._start_ms - (-passed_ms * MILLION // (MILLION + self._drift_ppm))
        return world_ms

    def jump(self, duration_ms: int) -> None:
        self._offset_ms += duration_ms


LineSink = Callable[[str], None]
"""Receiver of lines of the trace, without line ends."""


class Trace:
    """Trace of the events of a run.

    Attributes:
        start_ms: start of the run, from which times in lines count.
        tail: the last lines, for reports of failures.
    """

    def __init__(self, start_ms: int, sink: LineSink | None = None) -> None:
        self.start_ms = start_ms
        self.line_count = 0
        self.tail: list[str] = []
        self._sink = sink
        self._digest = sha256()

    def record(self, now_ms: int, who: str, what: str) -> None:
        """Add a line.

        Args:
            now_ms: the time, in milliseconds since the Unix epoch.
            who: a node, a consumer, a group, or ``world``.
        """
        line = f"{format_time(now_ms - self.start_ms)} {who:<10} {what}"
        self.line_count += 1
        self._digest.update(line.encode() + b"\n")
        tail = self.tail
        tail.append(line)
        if len(tail) > 200:
            del tail[:100]
        if self._sink is not None:
            self._sink(line)

    def conclude(self, durable_state: str) -> None:
        """Add the final durable state to the digest."""
        self._digest.update(durable_state.encode())

    def digest(self) -> str:
        """Return the digest, which is equal for runs with equal events."""
        return self._digest.hexdigest()


def format_time(duration_ms: int) -> str:
    seconds, milliseconds = divmod(duration_ms, 1_000)
    minutes, seconds = divmod(seconds, 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours:02}:{minutes:02}:{seconds:02}.{milliseconds:03}"
