"""Log store for the owned log partitions of a log that several processes share. No I/O.

A driver takes log partitions over and releases them, executes :meth:`SlotStore.next_operations`, and passes results to
the coordinator: answers of appends (:meth:`SlotStore.take_answers`) and changes of ownership
(:meth:`SlotStore.take_changes`). The driver loads a log partition that was taken over and unloads one that was lost.

An append is one record batch in Kafka's format. A snapshot holds the next offset, and batches with their
original offsets.
"""

from __future__ import annotations

import secrets
import struct
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from itertools import chain
from struct import error as StructError  # noqa: N812
from typing import NamedTuple, TypeVar

from attrs import define, field

from groupcoord.cluster.membership import LEASE_MS
from groupcoord.cluster.slot_log import TAG_BYTES, Slot
from groupcoord.cluster.slot_writer import (
    BODY_BYTES_MAX,
    Acknowledged,
    Failed,
    Loaded,
    Operation,
    SlotWriter,
    State,
    Unknown,
)
from groupcoord.core.log.records import Record
from groupcoord.log_store import (
    AppendOutcomeUnknownError,
    LoadedCommits,
    LogRecord,
    LogStoreError,
    NotLeaderError,
    RecordTooLargeError,
    Ticket,
)
from groupcoord.records.batches import Batch, iter_batches
from groupcoord.records.codec import RecordEncodingError
from groupcoord.storage.log.segment_files import all_records, batchable_runs, decoded, encode_records, last_records

CHUNK_BYTES_MAX = 250_000
"""Size of a snapshot chunk. A chunk is made without yielding, which takes some tens of milliseconds."""

BATCH_RECORDS_MAX = 1_000
"""Records in a batch of a snapshot, which is read without yielding."""

BATCH_BYTES_MAX = 1_048_588
"""Kafka's default of ``message.max.bytes``. A slot has room for that and little more."""

SNAPSHOT_BYTES_MIN = 1_000_000
APPEND_COST_BYTES = 500
"""Cost of reading an append in addition to its bytes, as a number of bytes."""

T = TypeVar("T")
_NEXT_OFFSET = struct.Struct(">q")


def random_tag() -> bytes:
    return secrets.token_bytes(TAG_BYTES)


def _no_driver() -> None:
    """Default of ``on_work``."""


class Taken(NamedTuple):
    """A log partition was taken over: once it is announced, load it with this leader epoch."""

    partition: int
    epoch: int


class Gone(NamedTuple):
    """A log partition was lost or released: unload it."""

    partition: int
    reason: str


class PartitionFigures(NamedTuple):
    """Figures of an owned log partition.

    Attributes:
        unread_bytes: cost of reading the appends since the last snapshot, with :data:`APPEND_COST_BYTES` for each.
    """

    epoch: int
    unread_bytes: int
    snapshot_bytes: int


class _Owned:
    def __init__(self, writer: SlotWriter) -> None:
        self.writer = writer
        self.next_offset = 0
        self.loaded: Loaded | None = None
        self.appended_bytes = 0  # cost since the last snapshot
        self.snapshot_bytes = 0

    def load(self, loaded: Loaded) -> None:
        self.loaded = loaded
        with suppress(ValueError, StructError):  # malformed, so that the coordinator's load fails
            self.next_offset = _end_offset(loaded)
        self.appended_bytes = sum(len(body) + APPEND_COST_BYTES for body in loaded.appends)
        self.snapshot_bytes = sum(map(len, loaded.chunks))

    def append(self, ticket: Ticket, records: Sequence[LogRecord]) -> None:
        base_offset = self.next_offset
        body = _encoded(base_offset, records)
        # A refused append must leave no gap.
        if len(body) > BATCH_BYTES_MAX:
            raise RecordTooLargeError(f"a batch of {len(body)} bytes; at most {BATCH_BYTES_MAX} are allowed")
        # Puts keep the order of appends.
        self.next_offset += len(records)
        self.appended_bytes += len(body) + APPEND_COST_BYTES
        self.writer.append((ticket, base_offset), body)

    def snapshot(self, records: Iterable[LogRecord], bytes_max: int) -> None:
        self.appended_bytes = self.snapshot_bytes = 0
        # The last records may be compacted away, and their offsets must not be used again.
        self.writer.snapshot(self._measured(chain([_NEXT_OFFSET.pack(self.next_offset)], _chunks(records, bytes_max))))

    def _measured(self, chunks: Iterable[bytes]) -> Iterator[bytes]:
        for chunk in chunks:
            self.snapshot_bytes += len(chunk)
            yield chunk


@define(eq=False, repr=False, slots=False)
class SlotStore:
    """Log store of the owned log partitions; implements :class:`~groupcoord.log_store.LogStore`.

    Args:
        new_tag: returns 16 bytes that no process has used before; random by default.
        body_bytes_max: the largest put, unless a single append is larger.
        lease_ms: the lease of :class:`~groupcoord.log_store.OwnedStore`, or None to answer without one.
        snapshot_bytes_min: a snapshot is due after this many bytes, and after more than the last snapshot has.

    Attributes:
        on_work: is called when there is an operation to execute. It must not call back into the store.
        take_overs: how many times a log partition was taken over.
        losses: how many times an owned log partition turned out to belong to another owner.
        is_look_wanted: True while an ownership check is requested.
    """

    _new_tag: Callable[[], bytes] = random_tag
    _body_bytes_max: int = BODY_BYTES_MAX
    lease_ms: int | None = LEASE_MS
    _snapshot_bytes_min: int = SNAPSHOT_BYTES_MIN
    on_work: Callable[[], None] = field(default=_no_driver, init=False)
    take_overs: int = field(default=0, init=False)
    losses: int = field(default=0, init=False)
    is_look_wanted: bool = field(default=False, init=False)
    _owned: dict[int, _Owned] = field(factory=dict, init=False)
    _answers: list[tuple[Ticket, int | LogStoreError]] = field(factory=list, init=False)
    _changes: list[Taken | Gone] = field(factory=list, init=False)

    # ------------------------------------------------------------ for the coordinator

    def append(self, partition: int, ticket: Ticket, records: Sequence[LogRecord]) -> None:
        """Queue records for writing; the answer comes later.

        Raises:
            NotLeaderError: the log partition is not owned.
            RecordTooLargeError: the batch exceeds 1,048,588 bytes, or a string in it 32,767.
        """
        owned = self._owned.get(partition)
        # During a take-over the end of the log is unknown.
        if owned is None or owned.writer.state is not State.OWNER:
            raise NotLeaderError(f"log partition {partition} is not owned here")
        owned.append(ticket, records)
        self.on_work()

    def check_ownership(self) -> bool:
        """Request an ownership check and return False: the answer comes later."""
        self.is_look_wanted = True
        self.on_work()
        return False

    def read(self, partition: int) -> Iterator[LogRecord]:
        """Yield the records that the take-over found, once.

        Raises:
            NotLeaderError: the log partition is not owned, or was read before.
            StorageError: a slot is malformed; raised while iterating.
        """
        return self._decoded(partition, all_records)

    def read_last(self, partition: int) -> Iterator[LogRecord | LoadedCommits]:
        """Yield the records as :meth:`read` does, condensed for a load."""
        return self._decoded(partition, last_records)

    def _decoded(self, partition: int, decode: Callable[[Iterable[Batch]], Iterator[T]]) -> Iterator[T]:
        owned = self._owned.get(partition)
        if owned is None or owned.loaded is None:
            is_driven = self.on_work is not _no_driver
            hint = "" if is_driven else ": nothing drives this SlotStore; give its coordinator to a Replica"
            raise NotLeaderError(f"log partition {partition} was not taken over{hint}")
        # Once only: later appends are not part of what was read, so a second load would go back in time. The memory is
        # freed as well. The first chunk holds the next offset.
        loaded, owned.loaded = owned.loaded, None
        return decoded(decode, _batches_of(loaded), f"log partition {partition}")

    def snapshot(self, partition: int, records: Iterable[tuple[int, Record]], now_ms: int) -> None:
        """Write a snapshot of a log partition and purge the slots that it replaces.

        Does nothing if the log partition is not owned, a snapshot is being written, or there are untaken answers: the
        records of these appends would be missing.

        Args:
            partition: the log partition.
            records: all acknowledged records with their offsets, in order, as ``Partition.snapshot()`` of the core
                returns them. They are read while the snapshot is written and must not change.
            now_ms: the timestamp of the records.
        """
        owned = self._owned.get(partition)
        if owned is None or owned.writer.state is not State.OWNER or owned.writer.is_writing_snapshot or self._answers:
            return
        # A generator, so that a large snapshot is encoded chunk by chunk between puts.
        made = (LogRecord(record, now_ms, offset) for offset, record in records)
        owned.snapshot(made, min(self._body_bytes_max, CHUNK_BYTES_MAX))
        self.on_work()

    def is_snapshot_due(self, partition: int) -> bool:
        """Return whether a log partition has enough appends that a snapshot would make the next take-over cheaper."""
        owned = self._owned.get(partition)
        if owned is None or owned.writer.state is not State.OWNER or owned.writer.is_writing_snapshot:
            return False
        # More than the last snapshot has: then snapshots at most double what is written, and a take-over reads at most
        # about twice the state.
        return owned.appended_bytes > max(owned.snapshot_bytes, self._snapshot_bytes_min)

    # ------------------------------------------------------------ for the driver

    def take_over(self, partition: int) -> None:
        """Start to take a log partition over. Does nothing if it is owned or being taken over."""
        owned = self._owned.get(partition)
        if owned is None:
            # Each take-over is another ownership with another tag, since messages of two must differ.
            self._owned[partition] = _Owned(SlotWriter(self._new_tag(), body_bytes_max=self._body_bytes_max))
            self.on_work()

    def give_up(self, partition: int, reason: str) -> None:
        """Release a log partition. Queued appends are not written; the one in flight may be."""
        owned = self._owned.pop(partition, None)
        if owned is not None:
            owned.writer.give_up(reason)
            self._take_events(partition, owned)

    @property
    def owned(self) -> dict[int, int]:
        """The owned log partitions, with their epochs."""
        return {partition: figures.epoch for partition, figures in self.figures().items()}

    def wants(self, partition: int) -> bool:
        """Return whether a log partition is owned or being taken over."""
        return partition in self._owned

    def last_slot(self, partition: int) -> int:
        """Return the last slot of a log partition that this process is known to have written, or -1."""
        owned = self._owned.get(partition)
        return -1 if owned is None else owned.writer.last_slot

    def figures(self) -> dict[int, PartitionFigures]:
        """Return the figures of each owned log partition."""
        return {
            partition: PartitionFigures(one.writer.epoch, one.appended_bytes, one.snapshot_bytes)
            for partition, one in sorted(self._owned.items())
            if one.writer.state is State.OWNER
        }

    def next_operations(self) -> list[tuple[int, Operation]]:
        """Return the operations to execute now, at most one for each log partition."""
        return [
            (partition, operation)
            for partition, owned in self._owned.items()
            if (operation := owned.writer.next_operation()) is not None
        ]

    def done(self, partition: int, operation: Operation, result: int | list[Slot] | Unknown | None) -> None:
        """Apply the result of an operation; see :meth:`~groupcoord.cluster.slot_writer.SlotWriter.done`."""
        owned = self._owned.get(partition)
        # Perhaps given up while the operation was in flight.
        if owned is not None:
            owned.writer.done(operation, result)
            self._take_events(partition, owned)
            self.losses += owned.writer.state is State.LOST

    def take_answers(self) -> list[tuple[Ticket, int | LogStoreError]]:
        """Return and clear the answers of appends: the offset of the first record, or the error."""
        answers, self._answers = self._answers, []
        return answers

    def take_changes(self) -> list[Taken | Gone]:
        """Return and clear the changes of ownership, in order."""
        changes, self._changes = self._changes, []
        return changes

    def _take_events(self, partition: int, owned: _Owned) -> None:
        for event in owned.writer.take_events():
            if isinstance(event, Loaded):
                owned.load(event)
                self.take_overs += 1
                self._changes.append(Taken(partition, event.epoch))
            elif isinstance(event, Acknowledged):
                self._answers.append(event.token)
            elif isinstance(event, Failed):
                # Unknown outcomes make the coordinator unload the log partition, since its memory may differ from the
                # log.
                kind = AppendOutcomeUnknownError if event.is_unknown else NotLeaderError
                self._answers.append((event.token[0], kind(f"log partition {partition} is not owned here")))
            else:
                # give_up has removed it before, a loss has not.
                self._owned.pop(partition, None)
                self._changes.append(Gone(partition, event.reason))


# ---------------------------------------------------------------- bytes


def _encoded(base_offset: int, records: Sequence[LogRecord]) -> bytes:
    """Return records with consecutive offsets as a batch; RecordTooLargeError if they can't be encoded."""
    try:
        return encode_records(base_offset, records)
    except (RecordEncodingError, StructError) as error:
        raise RecordTooLargeError(f"a record has no bytes: {error}") from error


def _chunks(records: Iterable[LogRecord], bytes_max: int) -> Iterator[bytes]:
    batches: list[bytes] = []
    size = 0
    for batch in chain.from_iterable(_batches(run, bytes_max) for run in batchable_runs(records, BATCH_RECORDS_MAX)):
        if batches and size + len(batch) > bytes_max:
            yield b"".join(batches)
            batches, size = [], 0
        batches.append(batch)
        size += len(batch)
    if batches:
        yield b"".join(batches)


def _batches(run: Sequence[LogRecord], bytes_max: int) -> Iterator[bytes]:
    batch = _encoded(run[0].offset, run)
    if len(batch) <= bytes_max or len(run) == 1:
        yield batch
        return
    # Sizes are known only after encoding. Halving needs few attempts, and most runs fit at once.
    middle = len(run) // 2
    yield from _batches(run[:middle], bytes_max)
    yield from _batches(run[middle:], bytes_max)


def _batches_of(loaded: Loaded) -> Iterator[Batch]:
    _end_offset(loaded)  # without it no record may be appended
    yield from chain.from_iterable(map(iter_batches, (*loaded.chunks[1:], *loaded.appends)))


def _end_offset(loaded: Loaded) -> int:
    if loaded.appends:
        # Appends hold their offsets in order, so the last one ends the log.
        return max(batch.next_offset for batch in iter_batches(loaded.appends[-1]))
    return int(_NEXT_OFFSET.unpack(loaded.chunks[0])[0]) if loaded.chunks else 0
