"""The trace of a run: one line per event, and a digest of all of it."""

from __future__ import annotations

from collections.abc import Callable
from hashlib import sha256

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
