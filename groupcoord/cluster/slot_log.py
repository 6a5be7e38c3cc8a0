"""Interface of the engine that stores a shared log, and an engine in memory.

A slot log has numbered slots for each log partition: 0, 1, 2 … Each slot is filled once, by a ``put`` that names it,
and only if the slot before it is the last one. That is compare-and-set on the end of a log. A table with a primary key
provides it, and so do a stream that checks the expected last sequence and an object store with conditional writes.
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
"""Pseudo-partition whose only slot holds the number of log partitions (:mod:`groupcoord.cluster.layout`)."""

DOCUMENTS_PARTITION = -2
"""Pseudo-partition whose last slot holds topics, settings and ACLs (:mod:`groupcoord.cluster.documents`)."""


class SlotLogError(GroupcoordError):
    """The engine failed or did not answer: the operation may have been done or not."""


class Slot(NamedTuple):
    """A filled slot."""

    number: int
    payload: bytes


class Beat(NamedTuple):
    """Last announcement of a node.

    Attributes:
        node_id: the node.
        age_ms: age of the announcement by the clock of the engine, in milliseconds.
        content: the announcement.
    """

    node_id: str
    age_ms: int
    content: bytes


class SlotLog(Protocol):
    """Engine of a shared log. Several processes may call it for one log partition at a time.

    Every method may raise :class:`SlotLogError`: then the operation was done, was not, or will be done later.
    """

    async def put(self, partition: int, slot: int, payload: bytes) -> int | None:
        """Fill a slot if the slot before it is the last one, durably and on every replica that counts.

        Args:
            partition: the log partition, or :data:`LAYOUT_PARTITION` or :data:`DOCUMENTS_PARTITION`, which an engine
                treats like any other.
            slot: 0, 1, 2 …
            payload: the content.

        Returns:
            None if the slot was filled. Otherwise nothing was written and the result is the last filled slot, or -1.
        """

    async def read(self, partition: int, from_slot: int) -> list[Slot]:
        """Return slots in order and without gaps, from ``from_slot`` or from the first that was not purged.

        The engine decides how many. A lagging replica may answer: an empty list means that it has nothing yet.
        """

    async def purge(self, partition: int, before_slot: int) -> None:
        """Delete the slots before one. They stay filled: they can't be put again."""

    async def beat(self, node_id: str, content: bytes) -> list[Beat]:
        """Store the announcement of a node and return the last one of each node, this one included.

        All ages are measured by one clock.
        """


class ConnectedSlotLog(ABC):
    """Engine that is reached over connections: ``async with`` opens and closes it.

    Attributes:
        is_open: True between opening and closing.
        warns: whether to log a warning for each setting that endangers acknowledged records. One of several connections
            to the same engine is enough.
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
        """Connect, create what is missing, and log a warning for each setting that endangers acknowledged records.

        Raises:
            SlotLogError: the engine can't be reached or is not supported.
        """

    def warn_of(self, problems: Iterable[str]) -> None:
        """Log the problems that endanger acknowledged records, if ``warns`` is set."""
        for problem in problems if self.warns else ():
            logger.warning("%s", problem)

    @abstractmethod
    async def close(self) -> None:
        """Close the connections."""


class MemorySlotLog:
    """Engine in memory, for tests: every operation is done at once.

    Args:
        read_max: the most slots that one read returns.

    Attributes:
        now_ms: the clock of the engine, in milliseconds.
    """

    def __init__(self, read_max: int = 100) -> None:
        self.now_ms = 0
        self._read_max = read_max
        self._slots: dict[int, dict[int, bytes]] = {}
        self._ends: dict[int, int] = {}
        self._beats: dict[str, tuple[int, bytes]] = {}

    async def put(self, partition: int, slot: int, payload: bytes) -> int | None:
        """Fill a slot if it is the next one."""
        end = self._ends.get(partition, 0)
        if slot != end:
            return end - 1
        self._slots.setdefault(partition, {})[slot] = payload
        self._ends[partition] = end + 1
        return None

    async def read(self, partition: int, from_slot: int) -> list[Slot]:
        """Return at most ``read_max`` slots."""
        slots = self._slots.get(partition, {})
        first = max(from_slot, min(slots, default=0))
        return [Slot(slot, slots[slot]) for slot in range(first, first + self._read_max) if slot in slots]

    async def purge(self, partition: int, before_slot: int) -> None:
        """Delete slots."""
        slots = self._slots.get(partition, {})
        for slot in [slot for slot in slots if slot < before_slot]:
            del slots[slot]

    async def beat(self, node_id: str, content: bytes) -> list[Beat]:
        """Store an announcement and return all."""
        self._beats[node_id] = self.now_ms, content
        return [Beat(node, self.now_ms - at_ms, said) for node, (at_ms, said) in sorted(self._beats.items())]
