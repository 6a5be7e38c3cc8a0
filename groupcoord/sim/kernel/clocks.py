"""A consumer's own clock: it may be off, run fast or slow, jump, and skip time in which nothing happens."""

from __future__ import annotations

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
