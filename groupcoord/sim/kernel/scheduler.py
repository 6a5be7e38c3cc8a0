"""Virtual clock and scheduler of a run, clocks of consumers, and the trace of events."""

from __future__ import annotations

from collections.abc import Callable
from hashlib import sha256
from heapq import heappop, heappush
from typing import Any

Action = Callable[[Any], None]
"""What happens; called with the argument that was scheduled beside it."""

WORLD_RANK = 0
"""Faults come first."""


def rank_of_node(node_id: int) -> int:
    """Return the rank of what a node does by itself."""
    return node_id


def rank_of_arrival(client_number: int) -> int:
    """Return the rank of a consumer's request that reaches a node; the next rank is that of answers."""
    return _FIRST_CLIENT + 4 * client_number


def rank_of_deadline(client_number: int) -> int:
    """Return the rank of what a consumer does by itself."""
    return _FIRST_CLIENT + 4 * client_number + 2


_FIRST_CLIENT = 1_000


class Scheduler:
    """A heap of what is to happen; a clock for everybody in the world (see :class:`groupcoord.Clock`).

    What is due at the same millisecond happens in the order of ranks, and among equals in the order in which it was
    scheduled. Whoever acts has ranks of its own, so that the order does not depend on how early others made up their
    minds. Nothing is ever taken out: who no longer wants to be called looks when it is.

    Attributes:
        time_ms: now, in milliseconds since the Unix epoch.
        executed: how much has happened so far.
    """

    __slots__ = ("_heap", "_sequence", "executed", "time_ms")

    def __init__(self, start_ms: int) -> None:
        self.time_ms = start_ms
        self.executed = 0
        self._heap: list[tuple[int, int, int, Action, Any]] = []
        self._sequence = 0

    def now_ms(self) -> int:
        """Return the virtual time in milliseconds since the Unix epoch."""
        return self.time_ms

    def at(self, time_ms: int, rank: int, action: Action, argument: Any = None) -> None:
        """Let ``action(argument)`` happen at ``time_ms``, or now if that is in the past.

        Args:
            time_ms: when, in milliseconds since the Unix epoch.
            rank: whose turn comes first at the same time: :data:`WORLD_RANK` and others here.
            action: what to do.
            argument: what it is called with.
        """
        self._sequence = sequence = self._sequence + 1
        now_ms = self.time_ms
        heappush(self._heap, (time_ms if time_ms > now_ms else now_ms, rank, sequence, action, argument))

    def run_until(self, end_ms: int, after_each: Callable[[], None] | None = None) -> None:
        """Let everything up to and including ``end_ms`` happen, ``after_each`` after each of it."""
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
    """What a consumer takes for the time.

    Args:
        start_ms: when the world began.
        offset_ms: how far the clock is ahead at that moment; below 0: behind.
        drift_ppm: how much faster than the world it runs, in millionths; below 0: slower.

    Attributes:
        skipped_ms: time that passed in the world but not on this clock (see :mod:`groupcoord.sim.actors.fast_forward`).
    """

    __slots__ = ("_drift_ppm", "_offset_ms", "_start_ms", "skipped_ms")

    def __init__(self, start_ms: int, offset_ms: int = 0, drift_ppm: int = 0) -> None:
        self._start_ms = start_ms
        self._offset_ms = offset_ms
        self._drift_ppm = drift_ppm
        self.skipped_ms = 0

    @property
    def keeps_time(self) -> bool:
        """True if it runs as fast as the world."""
        return not self._drift_ppm

    def at(self, world_ms: int) -> int:
        """Return what this clock says at a moment of the world."""
        local_ms = world_ms + self._offset_ms - self.skipped_ms
        if self._drift_ppm:
            local_ms += (world_ms - self._start_ms) * self._drift_ppm // MILLION
        return local_ms

    def world_at(self, local_ms: int) -> int:
        """Return the first moment of the world at which this clock says at least ``local_ms``."""
        world_ms = local_ms - self._offset_ms + self.skipped_ms
        if self._drift_ppm:
            passed_ms = world_ms - self._start_ms
            world_ms = self._start_ms - (-passed_ms * MILLION // (MILLION + self._drift_ppm))
        return world_ms

    def jump(self, duration_ms: int) -> None:
        """Let the clock jump forward."""
        self._offset_ms += duration_ms


LineSink = Callable[[str], None]
"""Takes one line of the trace, without its end."""


class Trace:
    """Writes down what happens in a run.

    Attributes:
        start_ms: when the run began; times in lines count from here.
        line_count: how many lines there are.
        tail: the last lines, which show how a run came to its end.
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
            now_ms: when, in milliseconds since the Unix epoch.
            who: a node, a consumer, a group, ``world``.
            what: what happened; no line breaks.
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
        """Let what is durable in the end count in the digest."""
        self._digest.update(durable_state.encode())

    def digest(self) -> str:
        """Return the digest: it is the same for two runs in which the same happened."""
        return self._digest.hexdigest()


def format_time(duration_ms: int) -> str:
    """Return a time since the start as hours, minutes, seconds and milliseconds."""
    seconds, milliseconds = divmod(duration_ms, 1_000)
    minutes, seconds = divmod(seconds, 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours:02}:{minutes:02}:{seconds:02}.{milliseconds:03}"
