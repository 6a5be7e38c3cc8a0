"""Writer of a log partition in a slot log: takes over, appends, and detects that another owner has taken over.

:meth:`SlotWriter.next_operation` returns one operation at a time, and :meth:`SlotWriter.done` takes its result.
:meth:`SlotWriter.take_events` returns the consequences.

Slot n + 1 is filled once, by a put that expected n. An owner puts into it only when it knows that slot n is its
own. By induction every slot between its fence and the next fence is the owner's. So an acknowledged append lies below
the next fence, and a new owner, which reads up to its own fence, misses none. A put of an older owner expects a slot
that is filled. Correctness depends neither on clocks nor on failure detection.

This holds while one put is in flight at a time. With two, a fence may take the slot of the first, which fails, and the
second expects the fence's slot and succeeds. So all waiting appends go into the next put.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Generator, Iterable, Iterator
from enum import Enum, auto
from typing import Any, NamedTuple, TypeVar

from groupcoord.cluster.slot_log import (
    JOINED_BYTES,
    Chunk,
    Kind,
    MalformedSlotError,
    Manifest,
    Message,
    Slot,
    contents,
    join,
)

T = TypeVar("T")

BODY_BYTES_MAX = 1_000_000


class State(Enum):
    """State of an ownership."""

    FENCING = auto()
    READING = auto()
    OWNER = auto()
    LOST = auto()


class Put(NamedTuple):
    """Fill a slot. The result is None, the last slot if the put was refused, or :data:`UNKNOWN`."""

    slot: int
    payload: bytes


class Read(NamedTuple):
    """Read slots from one on. The result is a list, or :data:`UNKNOWN`."""

    from_slot: int


class Purge(NamedTuple):
    """Delete slots. The result is None, or :data:`UNKNOWN`."""

    before_slot: int


Operation = Put | Read | Purge


class Unknown(Enum):
    """The result of an operation is unknown."""

    UNKNOWN = auto()


UNKNOWN = Unknown.UNKNOWN


class Loaded(NamedTuple):
    """The log partition is taken over.

    Attributes:
        epoch: the leader epoch, which is the slot of the fence.
        chunks: the chunks of the last snapshot.
        appends: the appends since then, in order.
    """

    epoch: int
    chunks: list[bytes]
    appends: list[bytes]


class Acknowledged(NamedTuple):
    """An append is in the log."""

    token: Any


class Failed(NamedTuple):
    """An append never enters the log; it may if ``is_unknown``."""

    token: Any
    is_unknown: bool


class Lost(NamedTuple):
    """Another owner has the log partition. ``reason`` is the evidence."""

    reason: str


Event = Loaded | Acknowledged | Failed | Lost


_Steps = Generator[Operation | None, Any, T]
"""Operations to execute; None if there is nothing to do now. The result of each is sent back."""


class _OwnershipEndedError(Exception):
    """The ownership has ended; ``is_unknown`` if the put in flight may be written."""

    def __init__(self, reason: str, *, is_unknown: bool) -> None:
        super().__init__(reason)
        self.is_unknown = is_unknown


class SlotWriter:
    """One ownership of a log partition, which begins with a take-over.

    Args:
        tag: 16 bytes that no other ownership has.
        body_bytes_max: the largest put, unless a single append is larger.

    Attributes:
        epoch: the slot of its fence, or -1 before the fence is written.
        last_slot: the last slot that is known to be its own, or -1.
        is_writing_snapshot: True from :meth:`snapshot` until the slots that it replaces are purged.
    """

    def __init__(self, tag: bytes, body_bytes_max: int = BODY_BYTES_MAX) -> None:
        self._body_bytes_max = body_bytes_max
        self.state = State.FENCING
        self.epoch = -1
        self.last_slot = -1
        self.is_writing_snapshot = False
        self._tag = tag
        self._count = 0
        self._steps = self._own()
        self._current: Operation | None = None  # issued, or to be issued again
        self._is_out = False
        self._waiting: deque[tuple[object, bytes]] = deque()
        self._putting: list[object] = []  # tokens of the appends in the current put
        self._snapshot: Iterator[_Steps[object]] = iter(())
        self._is_snapshot_next = False
        self._events: list[Event] = []

    # ------------------------------------------------------------ requests

    def append(self, token: object, body: bytes) -> None:
        """Queue an append. An event reports the result; events keep the order of appends."""
        if self.state is State.LOST:
            self._events.append(Failed(token, is_unknown=False))
        else:
            self._waiting.append((token, body))

    def give_up(self, reason: str) -> None:
        """End the ownership. The put in flight may be written; queued appends are not."""
        if self.state is not State.LOST:
            self._lose(reason, is_unknown=True)

    def snapshot(self, chunks: Iterable[bytes]) -> None:
        """Begin a snapshot of everything acknowledged; afterwards the slots that it replaces are purged.

        Only one snapshot may be in progress, and all events must have been taken.

        Args:
            chunks: the content, from which each chunk is taken when it is put.
        """
        assert self.state is State.OWNER, "only an owner knows what there is"
        # Otherwise the snapshot would cover acknowledged appends that the caller's state lacks.
        assert not self._events, "an acknowledged append may not be among what is kept"
        assert not self.is_writing_snapshot, "one is being written"
        self.is_writing_snapshot = True
        # Appends acknowledged later are not purged.
        self._snapshot = self._parts(self._count, self.last_slot, chunks)

    def take_events(self) -> list[Event]:
        events, self._events = self._events, []
        return events

    # ------------------------------------------------------------ operations

    def next_operation(self) -> Operation | None:
        if self._is_out or self.state is State.LOST:
            return None
        if self._current is None:
            self._resume(None)
        self._is_out = self._current is not None
        return self._current

    def done(self, operation: Operation, result: int | list[Slot] | Unknown | None) -> None:
        """Apply the result of the operation in progress; results of others are ignored."""
        # A late result.
        if not self._is_out or operation is not self._current:
            return
        self._is_out = False
        # Otherwise repeat it: only one of two copies of a put can succeed.
        if result is not UNKNOWN:
            self._resume(result)

    def _resume(self, result: int | list[Slot] | Unknown | None) -> None:
        try:
            self._current = self._steps.send(result)
        except (_OwnershipEndedError, MalformedSlotError) as error:
            self._lose(str(error), is_unknown=isinstance(error, _OwnershipEndedError) and error.is_unknown)

    def _lose(self, reason: str, *, is_unknown: bool) -> None:
        self.state = State.LOST
        self._events += (Failed(token, is_unknown) for token in self._putting)
        # These were in no put.
        self._events += (Failed(token, is_unknown=False) for token, _ in self._waiting)
        self._events.append(Lost(reason))
        self._current, self._snapshot = None, iter(())
        self._waiting.clear()

    # ------------------------------------------------------------ steps

    def _own(self) -> _Steps[None]:
        # A guess, since nothing is read before. A wrong one is refused with the last slot.
        slot = 0
        while (last_slot := (yield from self._put(slot, Kind.FENCE))) is not None:
            # Another fence or append was faster: the next fence is a new message after it.
            slot = last_slot + 1
        # From here on no earlier owner can fill a slot: its next put expects this one to be empty.
        self.epoch, self.state = slot, State.READING
        chunks, appends = contents((yield from self._read_up_to_fence()))
        self.state = State.OWNER
        self._events.append(Loaded(self.epoch, chunks, appends))
        while True:
            # The caller takes the events first: a put then carries the appends that follow from them.
            yield None
            part = next(self._snapshot, None) if self._is_snapshot_next or not self._waiting else None
            # Appends and chunks alternate, so that neither waits for more than one put.
            if part is not None:
                self._is_snapshot_next = False
                yield from part
            elif self._waiting:
                self._is_snapshot_next = True
                yield from self._put_waiting()

    def _read_up_to_fence(self) -> _Steps[list[Slot]]:
        slots: list[Slot] = []
        # A lagging replica may end earlier: serving then would miss acknowledged appends.
        while not slots or slots[-1].number < self.epoch:
            found = yield Read(slots[-1].number + 1 if slots else 0)
            if slots and found and found[0].number != slots[-1].number + 1:
                slots = []  # purged by the previous owner: the rest begins with its snapshot
            else:
                slots += found
        if slots[-1].number > self.epoch:
            # This process has appended nothing yet.
            raise _OwnershipEndedError(f"slot {self.epoch + 1} is another owner's", is_unknown=False)
        return slots

    def _put_waiting(self) -> _Steps[None]:
        # While a put is in flight the next ones gather, so a slow engine gets larger puts.
        bodies: list[bytes] = []
        size = 0
        while self._waiting and (not bodies or size + len(self._waiting[0][1]) <= self._body_bytes_max):
            token, body = self._waiting.popleft()
            self._putting.append(token)
            bodies.append(body)
            size += len(body) + JOINED_BYTES
        yield from self._put(self.last_slot + 1, Kind.BATCHES, join(bodies))
        self._events += map(Acknowledged, self._putting)
        self._putting.clear()

    def _parts(self, snapshot: int, covered: int, chunks: Iterable[bytes]) -> Iterator[_Steps[object]]:
        # A generator, so that a large snapshot is never in memory as a whole.
        count = 0
        for count, content in enumerate(chunks, 1):
            yield self._put(self.last_slot + 1, Kind.CHUNK, Chunk(snapshot, count - 1, content).encoded())
        yield self._end_snapshot(Manifest(snapshot, covered, count))

    def _end_snapshot(self, manifest: Manifest) -> _Steps[None]:
        yield from self._put(self.last_slot + 1, Kind.MANIFEST, manifest.encoded())
        # Purging before the manifest would lose the state if this owner dies.
        yield Purge(manifest.covered + 1)
        self.is_writing_snapshot = False

    def _put(self, slot: int, kind: Kind, body: bytes = b"") -> _Steps[int | None]:
        """Put a message, and return None once it is in its slot; while fencing the last slot if another one is."""
        # A slot read back shows whether it holds this very put.
        payload = Message(kind, self._tag, self._count, body).encoded()
        self._count += 1
        last_slot: int | None = yield Put(slot, payload)
        found: list[Slot] = []
        # Maybe refused by its own earlier copy, after a lost response.
        while last_slot is not None and last_slot >= slot and not found:
            found = yield Read(slot)  # again if a lagging replica has answered
        if last_slot is None or found[:1] == [Slot(slot, payload)]:
            self.last_slot = slot
            return None
        if self.state is State.FENCING:
            return max(last_slot, found[-1].number if found else -1)
        if not found:
            # The engine has lost data, and nothing can be concluded.
            raise _OwnershipEndedError("slots that were written are gone", is_unknown=True)
        # A purged slot may have been either owner's.
        raise _OwnershipEndedError(f"slot {slot} is another owner's", is_unknown=found[0].number != slot)
