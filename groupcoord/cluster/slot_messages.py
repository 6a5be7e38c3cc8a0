"""Messages in the slots of a log partition, and the state that they add up to.

A *fence* begins the ownership of a node; its slot number is the leader epoch. *Batches* are the appends of the owner. A
snapshot consists of *chunks*, which hold the state as of some slot, and a *manifest* that makes them valid. The slots
that the chunks replace may be purged after the manifest is written, not before. Chunks without a manifest belong to an
unfinished snapshot and are ignored. An append that was in flight when the snapshot began lies before the first chunk
and is not covered: only covered slots may be purged.
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
"""Overhead of each append in the body of a message, in bytes."""

_CHUNK = struct.Struct(">QI")
_MANIFEST = struct.Struct(">QQI")


class MalformedSlotError(GroupcoordError, ValueError):
    """A slot does not hold a message of this program."""


class Kind(IntEnum):
    """Type of a message."""

    FENCE = 0
    BATCHES = 1
    CHUNK = 2
    MANIFEST = 3


class Message(NamedTuple):
    """Content of a slot.

    Attributes:
        kind: the type.
        tag: identifies the ownership that wrote it; each ownership has another.
        number: the sequence number within the ownership, so that no two messages are equal.
        body: the content.
    """

    kind: Kind
    tag: bytes
    number: int
    body: bytes = b""

    def encoded(self) -> bytes:
        """Return the bytes of the message in a slot."""
        return _HEAD.pack(self.kind, self.tag, self.number) + self.body

    @classmethod
    def decoded(cls, payload: bytes) -> Message:
        """Parse the message in a slot.

        Raises:
            MalformedSlotError: the payload is not a message.
        """
        try:
            kind, tag, number = _HEAD.unpack_from(payload)
            return cls(Kind(kind), tag, number, payload[_HEAD.size :])
        except (struct.error, ValueError) as error:
            raise MalformedSlotError(f"a slot holds no message: {error}") from None


def join(bodies: Sequence[bytes]) -> bytes:
    """Return the body of one message that holds several appends."""
    return b"".join(_SIZE.pack(len(body)) + body for body in bodies)


def split(joined: bytes) -> list[bytes]:
    """Return the appends in the body of a message.

    Raises:
        MalformedSlotError: the body is malformed.
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
    """Part of a snapshot: the snapshot's number, the index of the part, and its content."""

    snapshot: int
    place: int
    content: bytes

    def encoded(self) -> bytes:
        """Return the body of the message."""
        return _CHUNK.pack(self.snapshot, self.place) + self.content


class Manifest(NamedTuple):
    """End of a snapshot.

    Attributes:
        snapshot: the number of the snapshot.
        covered: the last slot that the snapshot replaces.
        chunk_count: the number of its chunks.
    """

    snapshot: int
    covered: int
    chunk_count: int

    def encoded(self) -> bytes:
        """Return the body of the message."""
        return _MANIFEST.pack(*self)


def contents(slots: Iterable[Slot]) -> tuple[list[bytes], list[bytes]]:
    """Return the state that the slots of a log partition add up to.

    Args:
        slots: all slots, in order.

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
