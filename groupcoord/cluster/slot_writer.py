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
from collections.abc import Hashable, Iterable, Iterator
from enum import Enum, auto
from typing import NamedTuple

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

BODY_BYTES_MAX = 1_000_000


class State(Enum):
    """State of an ownership."""

    IDLE = auto()
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

    token: Hashable


class Failed(NamedTuple):
    """An append never enters the log; it may if ``is_unknown``."""

    token: Hashable
    is_unknown: bool


class Lost(NamedTuple):
    """Another owner has the log partition. ``reason`` is the evidence."""

    reason: str


Event = Loaded | Acknowledged | Failed | Lost


class _Waiting(NamedTuple):
    token: Hashable
    body: bytes


class SlotWriter:
    """One ownership of a log partition.

    Args:
        tag: 16 bytes that no other ownership has.
        body_bytes_max: the largest put, unless a single append is larger.

    Attributes:
        epoch: the slot of its fence, or -1 before the fence is written.
        last_slot: the last slot that is known to be its own, or -1.
    """

    def __init__(self, tag: bytes, body_bytes_max: int = BODY_BYTES_MAX) -> None:
        self._body_bytes_max = body_bytes_max
        self.state = State.IDLE
        self.epoch = -1
        self.last_slot = -1
        self._tag = tag
        self._guess = 0  # the slot of the next fence
        self._count = 0
        self._current: Operation | None = None  # issued, or to be issued again
        self._is_out = False
        self._putting: tuple[Message, list[Hashable]] | None = None
        self._refused_by = -1
        self._read: list[Slot] = []
        self._waiting: deque[_Waiting] = deque()
        self._snapshot: Iterator[tuple[Kind, bytes]] | None = None  # the rest of a snapshot, then its manifest
        self._is_snapshot_next = False
        self._covered = -1
        self._purge_before = -1
        self._events: list[Event] = []

    # ------------------------------------------------------------ requests

    def take_over(self) -> None:
        """Start to take over: put a fence, then read up to it."""
        assert self.state is State.IDLE, "a life takes over once"
        self.state = State.FENCING

    def append(self, token: Hashable, body: bytes) -> None:
        """Queue an append. An event reports the result; events keep the order of appends."""
        if self.state is State.LOST:
            self._events.append(Failed(token, is_unknown=False))
        else:
            self._waiting.append(_Waiting(token, body))

    def give_up(self, reason: str) -> None:
        """End the ownership. The put in flight may be written; queued appends are not."""
        if self.state is not State.LOST:
            self._lose(reason, is_unknown=self._is_out or self._putting is not None)

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
        # Appends acknowledged later are not purged.
        self._covered = self.last_slot
        self._snapshot = _messages(self._count, self._covered, chunks)

    @property
    def is_writing_snapshot(self) -> bool:
        """True from :meth:`snapshot` until its slots are purged."""
        return self._snapshot is not None or self._purge_before >= 0 or self._is_putting(Kind.MANIFEST)

    def _is_putting(self, kind: Kind) -> bool:
        return self._putting is not None and self._putting[0].kind is kind

    def take_events(self) -> list[Event]:
        events, self._events = self._events, []
        return events

    # ------------------------------------------------------------ operations

    def next_operation(self) -> Operation | None:
        if self._is_out:
            return None
        if self._current is None:
            self._current = self._choose()
        self._is_out = self._current is not None
        return self._current

    def _choose(self) -> Operation | None:
        if self.state is State.FENCING:
            # A guess, since nothing is read before. A wrong one is refused with the last slot.
            return self._put(Kind.FENCE, b"", [], self._guess)
        if self.state is State.READING:
            return Read(self._read[-1].number + 1 if self._read else 0)
        if self.state is not State.OWNER:
            return None
        # A partition never has two snapshots in progress.
        if self._purge_before >= 0:
            return Purge(self._purge_before)
        if self._snapshot is not None and (self._is_snapshot_next or not self._waiting):
            self._is_snapshot_next = False
            # Made now, so that a large snapshot is never in memory as a whole.
            kind, body = next(self._snapshot)
            if kind is Kind.MANIFEST:
                self._snapshot = None
            return self._put(kind, body, [], self.last_slot + 1)
        if not self._waiting:
            return None
        # Appends and chunks alternate, so that neither waits for more than one put.
        self._is_snapshot_next = True
        # While a put is in flight the next ones gather, so a slow engine gets larger puts.
        bodies: list[bytes] = []
        tokens: list[Hashable] = []
        size = 0
        while self._waiting and (not bodies or size + len(self._waiting[0].body) <= self._body_bytes_max):
            token, body = self._waiting.popleft()
            tokens.append(token)
            bodies.append(body)
            size += len(body) + JOINED_BYTES
        return self._put(Kind.BATCHES, join(bodies), tokens, self.last_slot + 1)

    def _put(self, kind: Kind, body: bytes, tokens: list[Hashable], slot: int) -> Put:
        # A slot read back shows whether it holds this very put.
        message = Message(kind, self._tag, self._count, body)
        self._count += 1
        self._putting = message, tokens
        return Put(slot, message.encoded())

    def done(self, operation: Operation, result: int | list[Slot] | Unknown | None) -> None:
        """Apply the result of the operation in progress; results of others are ignored."""
        # A late result.
        if not self._is_out or operation is not self._current:
            return
        self._is_out = False
        if result is UNKNOWN:
            return  # repeat it: only one of two copies of a put can succeed
        self._current = None
        if isinstance(operation, Put):
            if result is None:
                self._written(operation.slot)
            else:
                assert isinstance(result, int), "a put is refused with the last slot"
                self._put_refused(operation, result)
        elif isinstance(operation, Purge):
            self._purge_before = -1
        else:
            assert isinstance(result, list), "slots are read"
            if self._putting is not None:
                self._has_read_back(operation, result)
            elif result:
                self._has_read_on(operation, result)

    def _put_refused(self, put: Put, last_slot: int) -> None:
        # Maybe refused by its own earlier copy, after a lost response.
        if last_slot >= put.slot:
            self._refused_by = last_slot
            self._current = Read(put.slot)
        elif self.state is State.FENCING:
            self._guess = last_slot + 1
        else:
            # The engine has lost data, and nothing can be concluded.
            self._lose("slots that were written are gone", is_unknown=True)

    def _has_read_back(self, read: Read, slots: list[Slot]) -> None:
        if not slots:
            self._current = read  # a lagging replica has answered
            return
        assert self._putting is not None, "a slot is read back"
        first = slots[0]
        if first.number == read.from_slot and first.payload == self._putting[0].encoded():
            self._written(read.from_slot)
        elif self.state is State.FENCING:
            # Another fence or append was faster: the next fence is a new message after it.
            self._putting, self._guess = None, max(self._refused_by + 1, slots[-1].number + 1)
        else:
            # A purged slot may have been either owner's.
            self._lose(f"slot {read.from_slot} is another owner's", is_unknown=first.number != read.from_slot)

    def _written(self, slot: int) -> None:
        assert self._putting is not None, "something was put"
        (message, tokens), self._putting = self._putting, None
        self.last_slot = slot
        if self.state is State.FENCING:
            # From here on no earlier owner can fill a slot: its next put expects this one to be empty.
            self.epoch, self.state = slot, State.READING
        elif message.kind is Kind.BATCHES:
            self._events += map(Acknowledged, tokens)
        # Purging before the manifest would lose the state if this owner dies.
        elif message.kind is Kind.MANIFEST:
            self._purge_before = self._covered + 1

    def _has_read_on(self, read: Read, slots: list[Slot]) -> None:
        if self._read and slots[0].number != read.from_slot:
            self._read = []  # purged by the previous owner: the rest begins with its snapshot
            return
        # Slots after the fence belong to a later owner and must not be loaded.
        self._read += [slot for slot in slots if slot.number <= self.epoch]
        # A lagging replica may end earlier: serving now would miss acknowledged appends.
        if slots[-1].number < self.epoch:
            return
        if slots[-1].number > self.epoch:
            # This process has appended nothing yet.
            self._lose(f"slot {self.epoch + 1} is another owner's", is_unknown=False)
            return
        read_slots, self._read = self._read, []
        try:
            chunks, appends = contents(read_slots)
        except MalformedSlotError as error:
            self._lose(str(error), is_unknown=False)
            return
        self.state = State.OWNER
        self._events.append(Loaded(self.epoch, chunks, appends))

    def _lose(self, reason: str, *, is_unknown: bool) -> None:
        self.state = State.LOST
        tokens = [] if self._putting is None else self._putting[1]
        self._events += (Failed(token, is_unknown) for token in tokens)
        # These were in no put.
        self._events += (Failed(waiting.token, is_unknown=False) for waiting in self._waiting)
        self._events.append(Lost(reason))
        self._putting = self._current = self._snapshot = None
        self._waiting.clear()


def _messages(snapshot: int, covered: int, chunks: Iterable[bytes]) -> Iterator[tuple[Kind, bytes]]:
    count = 0
    for count, content in enumerate(chunks, 1):
        yield Kind.CHUNK, Chunk(snapshot, count - 1, content).encoded()
    yield Kind.MANIFEST, Manifest(snapshot, covered, count).encoded()
