"""Slot logs: the interface of the engine that stores a shared log, an engine in memory, and the messages in slots.

A slot log has numbered slots for each log partition: 0, 1, 2 … Each is filled once, by a ``put`` that names it, and
only if the slot before it is the last one. That is compare-and-set on the end of a log. A table with a primary key
provides it, and so do a stream that checks the expected last sequence and an object store with conditional writes.

A *fence* begins the ownership of a node; its slot number is the leader epoch. *Batches* are the appends of the owner. A
snapshot consists of *chunks*, which hold the state as of some slot, and a *manifest* that makes them valid and names
that slot. The slots up to it may be purged only after the manifest is written. Chunks without a manifest are ignored.
An append in flight when the snapshot began lies after that slot, although before the first chunk.
"""

from __future__ import annotations

import logging
import struct
from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from enum import IntEnum
from types import TracebackType
from typing import NamedTuple, Protocol, Self

from groupcoord.errors import GroupcoordError

logger = logging.getLogger("groupcoord")

LAYOUT_PARTITION = -1
"""Pseudo-partition with a single slot: the number of log partitions (:mod:`groupcoord.cluster.shared_log`)."""

DOCUMENTS_PARTITION = -2
"""Pseudo-partition with all documents in its last slot (:mod:`groupcoord.cluster.documents`)."""


class SlotLogError(GroupcoordError):
    """The engine failed or did not answer: the operation may have been done or not."""


class Slot(NamedTuple):
    """A filled slot."""

    number: int
    payload: bytes


class Beat(NamedTuple):
    """Last announcement of a node.

    Attributes:
        age_ms: its age by the clock of the engine, in milliseconds.
        content: bytes that the engine does not interpret.
    """

    node_id: str
    age_ms: int
    content: bytes


class SlotLog(Protocol):
    """Engine of a shared log. Several processes may call it for one log partition at a time.

    Every method may raise :class:`SlotLogError`: then the operation was done, was not, or will be done later.
    """

    async def put(self, partition: int, slot: int, payload: bytes) -> int | None:
        """Fill a slot durably if the slot before it is the last one: a failover of the engine keeps it.

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

        The engine decides how many. An empty list means that a lagging replica has nothing yet.
        """

    async def purge(self, partition: int, before_slot: int) -> None:
        """Delete the slots before one; they can't be put again."""

    async def beat(self, node_id: str, content: bytes) -> list[Beat]:
        """Store the announcement of a node and return the last one of each node, this one included.

        All ages are measured by one clock.
        """


class ConnectedSlotLog(ABC):
    """Engine that is reached over connections: ``async with`` opens and closes it.

    Attributes:
        is_open: True between opening and closing.
        warns: whether to log a warning for each setting that endangers acknowledged records; False for further
            connections to the same engine.
    """

    warns = True
    is_open = False

    async def __aenter__(self) -> Self:
        await self.open()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self.close()

    async def open(self) -> None:
        """Connect, create what is missing, and log a warning for each setting that endangers acknowledged records.

        Raises:
            SlotLogError: the engine can't be reached or is not supported, or the user may not create what is missing.
        """
        problems = await self._connect()
        for problem in problems if self.warns else ():
            logger.warning("%s", problem)
        self.is_open = True

    async def close(self) -> None:
        """Close the connections."""
        self.is_open = False
        await self._disconnect()

    @abstractmethod
    async def _connect(self) -> Iterable[str]:
        """Connect and return a line for each setting that endangers acknowledged records."""

    @abstractmethod
    async def _disconnect(self) -> None: ...


class MemorySlotLog:
    """Engine in memory, for tests: every operation completes at once.

    Args:
        read_max: the most slots that one read returns.

    Attributes:
        now_ms: the clock of the engine, in milliseconds.
    """

    def __init__(self, read_max: int = 100) -> None:
        self.now_ms = 0
        self._read_max = read_max
        self._slots: dict[int, dict[int, bytes]] = {}
        # Purged slots stay filled.
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


TAG_BYTES = 16

_HEAD = struct.Struct(f">B{TAG_BYTES}sQ")
_SIZE = struct.Struct(">I")
JOINED_BYTES = _SIZE.size
"""Overhead of each append in the body of a message, in bytes."""

_CHUNK = struct.Struct(">QI")
_MANIFEST = struct.Struct(">QQI")


class MalformedSlotError(GroupcoordError, ValueError):
    """A slot does not hold a message of this program."""


class Kind(IntEnum):
    """Type of a message."""

    # The numbers are stored in slots and must not change.
    FENCE = 0
    BATCHES = 1
    CHUNK = 2
    MANIFEST = 3


class Message(NamedTuple):
    """Content of a slot.

    Attributes:
        tag: unique to the ownership that wrote it.
        number: the sequence number within the ownership, so that no two messages are equal.
    """

    kind: Kind
    tag: bytes
    number: int
    body: bytes = b""

    def encoded(self) -> bytes:
        return _HEAD.pack(self.kind, self.tag, self.number) + self.body

    @classmethod
    def decoded(cls, payload: bytes) -> Message:
        """Parse the message in a slot; MalformedSlotError if the payload is not one."""
        try:
            kind, tag, number = _HEAD.unpack_from(payload)
            return cls(Kind(kind), tag, number, payload[_HEAD.size :])
        except (struct.error, ValueError) as error:
            raise MalformedSlotError(f"a slot holds no message: {error}") from None


def join(bodies: Sequence[bytes]) -> bytes:
    """Return the body of one message that holds several appends."""
    return b"".join(_SIZE.pack(len(body)) + body for body in bodies)


def split(joined: bytes) -> list[bytes]:
    """Return the appends in the body of a message; MalformedSlotError if it is malformed."""
    bodies, position = [], 0
    while position < len(joined):
        try:
            (size,) = _SIZE.unpack_from(joined, position)
        except struct.error as error:
            raise MalformedSlotError(f"a slot ends in the middle: {error}") from None
        position += _SIZE.size
        if position + size > len(joined):
            raise MalformedSlotError(f"a slot ends in the middle of an append of {size} bytes")
        bodies.append(joined[position : position + size])
        position += size
    return bodies


class Chunk(NamedTuple):
    """Part of a snapshot: the snapshot's number, the index of the part, and its content."""

    snapshot: int
    place: int
    content: bytes

    def encoded(self) -> bytes:
        return _CHUNK.pack(self.snapshot, self.place) + self.content


class Manifest(NamedTuple):
    """End of a snapshot.

    Attributes:
        covered: the last slot that the snapshot replaces.
    """

    snapshot: int
    covered: int
    chunk_count: int

    def encoded(self) -> bytes:
        return _MANIFEST.pack(*self)


def contents(slots: Iterable[Slot]) -> tuple[list[bytes], list[bytes]]:
    """Return the state that results from all slots of a log partition.

    Returns:
        The chunks of the last complete snapshot, and the appends that it does not cover, in order.

    Raises:
        MalformedSlotError: a slot does not hold a message.
    """
    chunks: dict[tuple[bytes, int], dict[int, bytes]] = {}
    base: list[bytes] = []
    appends: list[tuple[int, bytes]] = []
    for slot, payload in slots:
        message = Message.decoded(payload)
        try:
            if message.kind is Kind.BATCHES:
                appends += ((slot, body) for body in split(message.body))
            elif message.kind is Kind.CHUNK:
                snapshot, place = _CHUNK.unpack_from(message.body)
                # Two owners may have used the same number.
                chunks.setdefault((message.tag, snapshot), {})[place] = message.body[_CHUNK.size :]
            elif message.kind is Kind.MANIFEST:
                manifest = Manifest(*_MANIFEST.unpack(message.body))
                found = chunks.get((message.tag, manifest.snapshot), {})
                # Otherwise purging has begun, and a later manifest follows.
                if len(found) == manifest.chunk_count:
                    base = [found[place] for place in sorted(found)]
                    appends = [(number, body) for number, body in appends if number > manifest.covered]
        except struct.error as error:
            raise MalformedSlotError(f"slot {slot} ends in the middle: {error}") from None
    return base, [body for _, body in appends]
