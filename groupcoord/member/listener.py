"""The application's listener for partitions that come and go, and the wait for it."""

from __future__ import annotations

from groupcoord.member.outputs import Output


class ListenerGate:
    """Holds the member back while the application's listener is busy with an event.

    Attributes:
        is_shut: the listener is busy.
    """

    __slots__ = ("_outputs", "_waits", "is_shut")

    def __init__(self, outputs: list[Output], *, waits: bool) -> None:
        self._outputs = outputs
        self._waits = waits
        self.is_shut = False

    def tell(self, event: Output) -> None:
        """Tell the listener."""
        self._outputs.append(event)
        self.is_shut = self._waits
