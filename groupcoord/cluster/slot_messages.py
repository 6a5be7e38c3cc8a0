"""What is in slots, and what the slots of a log partition come to.

A *fence* begins the time of an owner; its slot is the leader's epoch. *Batches* are what the owner appends. A snapshot
is *chunks*, which say the state as it was at some slot, and a *manifest* that makes them count: what the chunks stand
for can be purged when the manifest is there, and not before. Chunks without a manifest are of a snapshot that was never
finished, and mean nothing. An append that was on its way when the snapshot was made comes before the first chunk, and
isn't covered: only what the snapshot covers may be purged.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Sequence
from enum import IntEnum
from typing import NamedTuple

from groupcoord.cluster.slot_log import Slot
from groupcoord.errors import GroupcoordError

TAG_BYTES = 16

_HEAD = struct.Struct(f">B{TAG_BYTES}sQ")
_SIZE = struct.Struct(">I")
JOINED_BYTES = _SIZE.size
"""What each append costs in the body of a message, beside its own bytes."""

_CHUNK = struct.Struct(">QI")
_MANIFEST = struct.Struct(">QQI")


class MalformedSlotError(GroupcoordError, ValueError):
    """A slot does not hold what an owner of this program writes."""


class Kind(IntEnum):
    """What a message is."""

    FENCE = 0
    BATCHES = 1
    CHUNK = 2
    MANIFEST = 3


class Message(NamedTuple):
    """What is in a slot.

    Attributes:
        kind: what it is.
        tag: of the life of the owner that wrote it: another life has another.
        number: which of its messages this is, so that no two are alike.
        body: what it says.
    """

    kind: Kind
    tag: bytes
    number: int
    body: bytes = b""

    def encoded(self) -> bytes:
        """Return the message as it is in a slot."""
        return _HEAD.pack(self.kind, self.tag, self.number) + self.body

    @classmethod
    def decoded(cls, payload: bytes) -> Message:
        """Return the message in a slot.

        Raises:
            MalformedSlotError: it is none.
        """
        try:
            kind, tag, number = _HEAD.unpack_from(payload)
            return cls(Kind(kind), tag, number, payload[_HEAD.size :])
        except (struct.error, ValueError) as error:
            raise MalformedSlotError(f"a slot holds no message: {error}") from None


def join(bodies: Sequence[bytes]) -> bytes:
    """Return what several appends are as the body of one message."""
    return b"".join(_SIZE.pack(len(body)) + body for body in bodies)


def split(joined: bytes) -> list[bytes]:
    """Return the appends in the body of a message.

    Raises:
        MalformedSlotError: there are none.
    """
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
    """A part of a snapshot: of which, the how-manieth, and what it says."""

    snapshot: int
    place: int
    content: bytes

    def encoded(self) -> bytes:
        """Return the body of its message."""
        return _CHUNK.pack(self.snapshot, self.place) + self.content


class Manifest(NamedTuple):
    """The end of a snapshot.

    Attributes:
        snapshot: which.
        covered: the slot up to which the snapshot has everything.
        chunk_count: how many chunks it has.
    """

    snapshot: int
    covered: int
    chunk_count: int

    def encoded(self) -> bytes:
        """Return the body of its message."""
        return _MANIFEST.pack(*self)


def contents(slots: Iterable[Slot]) -> tuple[list[bytes], list[bytes]]:
    """Return what a log comes to.

    Args:
        slots: all that there are, in order.

    Returns:
        The chunks of the last whole snapshot, and the appends that it doesn't cover, in order.

    Raises:
        MalformedSlotError: a slot holds something else.
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
                chunks.setdefault((message.tag, snapshot), {})[place] = message.body[_CHUNK.size :]
            elif message.kind is Kind.MANIFEST:
                manifest = Manifest(*_MANIFEST.unpack(message.body))
                found = chunks.get((message.tag, manifest.snapshot), {})
                if len(found) == manifest.chunk_count:
                    base = [found[place] for place in sorted(found)]
                    appends = [(number, body) for number, body in appends if number > manifest.covered]
        except struct.error as error:
            raise MalformedSlotError(f"slot {slot} ends in the middle: {error}") from None
    return base, [body for _, body in appends]
