"""What an engine has to promise, and one in memory.

A slot log has numbered slots for each log partition, 0, 1, 2 … Each is filled once, by a ``put`` that names it, and
only if the one before it is the last that there is. That is compare-and-set on the end of a log: a table with a primary
key has it, a stream that checks the expected last sequence, an object store with conditional writes.
"""

from __future__ import annotations

import logging
from abc import ABC, abstractmethod
from collections.abc import Iterable
from types import TracebackType
from typing import NamedTuple, Protocol, Self

from groupcoord.errors import GroupcoordError

logger = logging.getLogger("groupcoord")

LAYOUT_PARTITION = -1
"""Not a log partition: its only slot says how many there are (:mod:`groupcoord.cluster.layout`)."""

DOCUMENTS_PARTITION = -2
"""Nor is this: its last slot has what all nodes must know besides (:mod:`groupcoord.cluster.documents`)."""


class SlotLogError(GroupcoordError):
    """The engine can't be asked, or did not answer: what was asked for was done or not."""


class Slot(NamedTuple):
    """One slot, and what is in it."""

    number: int
    payload: bytes


class Beat(NamedTuple):
    """What a node has said last.

    Attributes:
        node_id: the node.
        age_ms: how long ago, by the engine's clock, in milliseconds.
        content: what it has said.
    """

    node_id: str
    age_ms: int
    content: bytes


class SlotLog(Protocol):
    """An engine. Calls for one log partition may come from several processes at a time, and fail at any time.

    Every method may raise :class:`SlotLogError`; then it was done or not, or will be done later.
    """

    async def put(self, partition: int, slot: int, payload: bytes) -> int | None:
        """Fill a slot if the one before it is the last, for ever and on every replica that matters.

        Args:
            partition: the log partition; or :data:`LAYOUT_PARTITION` or :data:`DOCUMENTS_PARTITION`, which an engine
                treats as any other.
            slot: 0, 1, 2 …
            payload: what is to be in it.

        Returns:
            None: it is filled. Else nothing was written, and this is the last slot that was; -1 if none was.
        """

    async def read(self, partition: int, from_slot: int) -> list[Slot]:
        """Return slots in order, without gaps, from one on, or from the first that was not purged.

        As many as the engine finds handy. Replicas that lag behind may answer: none means that there is nothing yet.
        """

    async def purge(self, partition: int, before_slot: int) -> None:
        """Forget the slots before one. They stay filled: none can be put again."""

    async def beat(self, node_id: str, content: bytes) -> list[Beat]:
        """Say something, and hear what each node has said last, this one included. Ages are by one clock for all."""


class ConnectedSlotLog(ABC):
    """An engine that is reached by connections: ``async with`` opens and closes it.

    Attributes:
        is_open: whether it was opened, and not closed.
        warns: say in the log what keeps acknowledged records from being safe; one of several to an engine is enough.
    """

    warns = True
    is_open = False

    async def __aenter__(self) -> Self:
        await self.open()
        self.is_open = True
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.is_open = False
        await self.close()

    @abstractmethod
    async def open(self) -> None:
        """Connect, make what isn't there, and say in the log what keeps acknowledged records from being safe.

        Raises:
            SlotLogError: the engine can't be reached, or can't be worked with.
        """

    def warn_of(self, problems: Iterable[str]) -> None:
        """Say in the log what keeps acknowledged records from being safe, if that is wanted."""
        for problem in problems if self.warns else ():
            logger.warning("%s", problem)

    @abstractmethod
    async def close(self) -> None:
        """Close the connections."""


class MemorySlotLog:
    """An engine in memory, for tests: what is asked for is done at once.

    Args:
        read_max: how many slots one read returns.

    Attributes:
        now_ms: the engine's clock, in milliseconds.
    """

    def __init__(self, read_max: int = 100) -> None:
        self.now_ms = 0
        self._read_max = read_max
        self._slots: dict[int, dict[int, bytes]] = {}
        self._ends: dict[int, int] = {}
        self._beats: dict[str, tuple[int, bytes]] = {}

    async def put(self, partition: int, slot: int, payload: bytes) -> int | None:
        """See :class:`SlotLog`."""
        end = self._ends.get(partition, 0)
        if slot != end:
            return end - 1
        self._slots.setdefault(partition, {})[slot] = payload
        self._ends[partition] = end + 1
        return None

    async def read(self, partition: int, from_slot: int) -> list[Slot]:
        """See :class:`SlotLog`."""
        slots = self._slots.get(partition, {})
        first = max(from_slot, min(slots, default=0))
        return [Slot(slot, slots[slot]) for slot in range(first, first + self._read_max) if slot in slots]

    async def purge(self, partition: int, before_slot: int) -> None:
        """See :class:`SlotLog`."""
        slots = self._slots.get(partition, {})
        for slot in [slot for slot in slots if slot < before_slot]:
            del slots[slot]

    async def beat(self, node_id: str, content: bytes) -> list[Beat]:
        """See :class:`SlotLog`."""
        self._beats[node_id] = self.now_ms, content
        return [Beat(node, self.now_ms - at_ms, said) for node, (at_ms, said) in sorted(self._beats.items())]
