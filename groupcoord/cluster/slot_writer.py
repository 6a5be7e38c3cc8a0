"""The owner of a log partition, or who wants to be: takes over, appends, and notices when another one has.

Without I/O: there is one operation to be done at a time (:meth:`SlotWriter.next_operation`), whose result is given back
(:meth:`SlotWriter.done`); what comes of it are events.

Slot n + 1 is filled once, by a put that expected n; an owner puts into n + 1 only when it knows that slot n is its own.
By induction every slot between its fence and the next one is the owner's. So an append that was acknowledged lies below
the next fence, and who takes over reads up to its own: nothing acknowledged can be missed. An older owner's put expects
a slot that is taken for ever. Nothing hangs on clocks, or on who believes whom to be alive.

That holds as long as one put is in flight at a time. With several, the fence takes the first one's slot, which is
refused, and the next expects the fence's slot and is taken. So all that waits goes into the next put together.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Hashable, Iterable, Iterator
from enum import Enum, auto
from typing import NamedTuple

from groupcoord.cluster.slot_log import Slot
from groupcoord.cluster.slot_messages import (
    JOINED_BYTES,
    Chunk,
    Kind,
    MalformedSlotError,
    Manifest,
    Message,
    contents,
    join,
)

BODY_BYTES_MAX = 1_000_000


class State(Enum):
    """Where an owner stands."""

    IDLE = auto()
    FENCING = auto()
    READING = auto()
    OWNER = auto()
    LOST = auto()


class Put(NamedTuple):
    """Fill a slot; the result is None, the last slot if that was refused, or :data:`UNKNOWN`."""

    slot: int
    payload: bytes


class Read(NamedTuple):
    """Read slots from one on; the result is a list, or :data:`UNKNOWN`."""

    from_slot: int


class Purge(NamedTuple):
    """Forget slots; the result is None, or :data:`UNKNOWN`."""

    before_slot: int


Operation = Put | Read | Purge


class Unknown(Enum):
    """Nobody knows what came of an operation."""

    UNKNOWN = auto()


UNKNOWN = Unknown.UNKNOWN


class Loaded(NamedTuple):
    """The log partition is taken over.

    Attributes:
        epoch: of the leader: the slot of the fence.
        chunks: of the last snapshot.
        appends: what was appended since, in order.
    """

    epoch: int
    chunks: list[bytes]
    appends: list[bytes]


class Acknowledged(NamedTuple):
    """An append is in the log."""

    token: Hashable


class Failed(NamedTuple):
    """An append isn't in the log and never will be; or, ``is_unknown``, may be."""

    token: Hashable
    is_unknown: bool


class Lost(NamedTuple):
    """Somebody else owns the log partition. ``reason`` says how that was seen."""

    reason: str


Event = Loaded | Acknowledged | Failed | Lost


class _Waiting(NamedTuple):
    token: Hashable
    body: bytes


class SlotWriter:
    """One life of an owner, in one log partition.

    Args:
        tag: 16 bytes that no other life of any owner has.
        first_guess: the slot that may come next, if something is known of the log.
        body_bytes_max: no put has more than this, unless a single append has.

    Attributes:
        state: where it stands.
        epoch: the slot of its fence; -1 before that stands.
        last_slot: the last slot that it knows to be its own; -1: none.
    """

    def __init__(self, tag: bytes, first_guess: int = 0, body_bytes_max: int = BODY_BYTES_MAX) -> None:
        self._body_bytes_max = body_bytes_max
        self.state = State.IDLE
        self.epoch = -1
        self.last_slot = -1
        self._tag = tag
        self._guess = first_guess
        self._count = 0
        self._current: Operation | None = None  # given out, or to be given out again
        self._is_out = False
        self._putting: tuple[Message, list[Hashable]] | None = None
        self._refused_by = -1
        self._read: list[Slot] = []
        self._waiting: deque[_Waiting] = deque()
        self._snapshot: Iterator[tuple[Kind, bytes]] | None = None  # chunks and a manifest that are to be put
        self._is_snapshot_next = False
        self._covered = -1
        self._purge_before = -1
        self._events: list[Event] = []

    # ------------------------------------------------------------ what is wanted

    def take_over(self) -> None:
        """Become the owner: put a fence, then read up to it."""
        assert self.state is State.IDLE, "a life takes over once"
        self.state = State.FENCING

    def append(self, token: Hashable, body: bytes) -> None:
        """Append something; an event says what came of it, in the order of appends."""
        if self.state is State.LOST:
            self._events.append(Failed(token, is_unknown=False))
        else:
            self._waiting.append(_Waiting(token, body))

    def give_up(self, reason: str) -> None:
        """Be the owner no more. What is on its way may be written, all else that waits is not."""
        if self.state is not State.LOST:
            self._lose(reason, is_unknown=self._is_out or self._putting is not None)

    def snapshot(self, chunks: Iterable[bytes]) -> None:
        """Write what all that is acknowledged comes to, and forget the slots that it stands for. One at a time.

        Args:
            chunks: what a load needs instead, each asked for when it is to be put. All events must have been taken, so
                that nothing acknowledged is missing.
        """
        assert self.state is State.OWNER, "only an owner knows what there is"
        assert not self._events, "an acknowledged append may not be among what is kept"
        assert not self.is_writing_snapshot, "one is being written"
        self._covered = self.last_slot
        self._snapshot = _messages(self._count, self._covered, chunks)

    @property
    def is_writing_snapshot(self) -> bool:
        """True from :meth:`snapshot` until its slots are purged."""
        return self._snapshot is not None or self._purge_before >= 0 or self._is_putting(Kind.MANIFEST)

    def _is_putting(self, kind: Kind) -> bool:
        return self._putting is not None and self._putting[0].kind is kind

    def take_events(self) -> list[Event]:
        """Return what has come of operations, once."""
        events, self._events = self._events, []
        return events

    # ------------------------------------------------------------ operations

    def next_operation(self) -> Operation | None:
        """Return what is to be done now; None: nothing, or something is being done."""
        if self._is_out:
            return None
        if self._current is None:
            self._current = self._choose()
        self._is_out = self._current is not None
        return self._current

    def _choose(self) -> Operation | None:
        if self.state is State.FENCING:
            return self._put(Kind.FENCE, b"", [], self._guess)
        if self.state is State.READING:
            return Read(self._read[-1].number + 1 if self._read else 0)
        if self.state is not State.OWNER:
            return None
        if self._purge_before >= 0:
            return Purge(self._purge_before)
        if self._snapshot is not None and (self._is_snapshot_next or not self._waiting):
            self._is_snapshot_next = False
            kind, body = next(self._snapshot)
            if kind is Kind.MANIFEST:
                self._snapshot = None
            return self._put(kind, body, [], self.last_slot + 1)
        if not self._waiting:
            return None
        self._is_snapshot_next = True
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
        message = Message(kind, self._tag, self._count, body)
        self._count += 1
        self._putting = message, tokens
        return Put(slot, message.encoded())

    def done(self, operation: Operation, result: int | list[Slot] | Unknown | None) -> None:
        """Take what came of an operation; of one that isn't the last given out nothing is wanted any more."""
        if not self._is_out or operation is not self._current:
            return
        self._is_out = False
        if result is UNKNOWN:
            return  # again: two copies of a put can't both be taken, and reading changes nothing
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
            self._has_read(operation, result)

    def _put_refused(self, put: Put, last_slot: int) -> None:
        """A put was refused: perhaps an earlier copy of it was taken, so the slot is read back."""
        if last_slot >= put.slot:
            self._refused_by = last_slot
            self._current = Read(put.slot)
        elif self.state is State.FENCING:
            self._guess = last_slot + 1
        else:
            self._lose("slots that were written are gone", is_unknown=True)

    def _has_read(self, read: Read, slots: list[Slot]) -> None:
        if self._putting is not None:
            self._has_read_back(read, slots)
        elif slots:
            self._has_read_on(read, slots)

    def _has_read_back(self, read: Read, slots: list[Slot]) -> None:
        if not slots:
            self._current = read  # a replica that lags behind: the slot is filled
            return
        assert self._putting is not None, "a slot is read back"
        first = slots[0]
        if first.number == read.from_slot and first.payload == self._putting[0].encoded():
            self._written(read.from_slot)
        elif self.state is State.FENCING:
            self._putting, self._guess = None, max(self._refused_by + 1, slots[-1].number + 1)
        else:
            # What was purged was another owner's to purge: who wrote this slot can't be told any more.
            self._lose(f"slot {read.from_slot} is another owner's", is_unknown=first.number != read.from_slot)

    def _written(self, slot: int) -> None:
        assert self._putting is not None, "something was put"
        (message, tokens), self._putting = self._putting, None
        self.last_slot = slot
        if self.state is State.FENCING:
            self.epoch, self.state = slot, State.READING
        elif message.kind is Kind.BATCHES:
            self._events += map(Acknowledged, tokens)
        elif message.kind is Kind.MANIFEST:
            self._purge_before = self._covered + 1

    def _has_read_on(self, read: Read, slots: list[Slot]) -> None:
        """Keep what was read, until the own fence is seen."""
        if self._read and slots[0].number != read.from_slot:
            self._read = []  # the older owner has purged what was to come: what is left begins with its snapshot
            return
        self._read += [slot for slot in slots if slot.number <= self.epoch]
        if slots[-1].number < self.epoch:
            return
        if slots[-1].number > self.epoch:
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
        """End this life: nothing that waits is written, and what was being put is not, unless nobody knows."""
        self.state = State.LOST
        tokens = [] if self._putting is None else self._putting[1]
        self._events += (Failed(token, is_unknown) for token in tokens)
        self._events += (Failed(waiting.token, is_unknown=False) for waiting in self._waiting)
        self._events.append(Lost(reason))
        self._putting = self._current = self._snapshot = None
        self._waiting.clear()


def _messages(snapshot: int, covered: int, chunks: Iterable[bytes]) -> Iterator[tuple[Kind, bytes]]:
    """Yield the messages of a snapshot; the last one makes it count."""
    count = 0
    for count, content in enumerate(chunks, 1):
        yield Kind.CHUNK, Chunk(snapshot, count - 1, content).encoded()
    yield Kind.MANIFEST, Manifest(snapshot, covered, count).encoded()
