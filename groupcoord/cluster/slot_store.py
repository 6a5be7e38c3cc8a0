"""A log store for the log partitions that this process owns, of a log that several processes share. No I/O.

Whoever drives it takes log partitions over and gives them up, has done what :meth:`SlotStore.next_operations` names,
and tells the coordinator of answers (:meth:`SlotStore.take_answers`) and of what has changed
(:meth:`SlotStore.take_changes`): a log partition that is taken is to be loaded, one that is lost to be unloaded.

An append is one batch of records in Kafka's format; so is what a snapshot has, with the offsets that its records had.
"""

from __future__ import annotations

import secrets
import struct
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import chain
from struct import error as StructError  # noqa: N812
from typing import NamedTuple

from groupcoord.cluster.membership import LEASE_MS
from groupcoord.cluster.slot_log import Slot
from groupcoord.cluster.slot_messages import TAG_BYTES
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
from groupcoord.core.log.records import NO_PRODUCER_ID, Record
from groupcoord.log_store import (
    AppendOutcomeUnknownError,
    LoadedCommits,
    LogRecord,
    LogStoreError,
    NotLeaderError,
    RecordTooLargeError,
    Ticket,
)
from groupcoord.records.batches import Batch, encode_batch, iter_batches
from groupcoord.records.codec import RecordEncodingError
from groupcoord.storage.loading import last_records
from groupcoord.storage.segments import all_records

CHUNK_BYTES_MAX = 250_000
"""A chunk of a snapshot is made in one go, while everybody else waits: some tens of milliseconds."""

BATCH_RECORDS_MAX = 1_000
"""A batch of a snapshot is read in one go, too."""

BATCH_BYTES_MAX = 1_048_588
"""Kafka's ``message.max.bytes``, if nobody has set it. An engine has room for that in a slot, and for little more."""

SNAPSHOT_BYTES_MIN = 1_000_000
APPEND_COST_BYTES = 500
"""What an append costs whoever reads it, beside its bytes."""

_NEXT_OFFSET = struct.Struct(">q")


def random_tag() -> bytes:
    """Return a tag that nobody else has."""
    return secrets.token_bytes(TAG_BYTES)


class Taken(NamedTuple):
    """A log partition is this process's: load it, with this leader's epoch."""

    partition: int
    epoch: int


class Gone(NamedTuple):
    """A log partition is somebody else's, or was given up: unload it."""

    partition: int
    reason: str


class PartitionFigures(NamedTuple):
    """What there is to be known of a log partition that is owned.

    Attributes:
        epoch: of its leader.
        unread_bytes: what was appended since the last snapshot: who takes over reads it besides that.
        snapshot_bytes: how long the last snapshot is.
    """

    epoch: int
    unread_bytes: int
    snapshot_bytes: int


class _Owned:
    """A log partition that this process owns, or wants."""

    def __init__(self, writer: SlotWriter) -> None:
        self.writer = writer
        self.next_offset = 0
        self.loaded: Loaded | None = None
        self.appended_bytes = 0  # since the last snapshot
        self.snapshot_bytes = 0

    def load(self, loaded: Loaded) -> None:
        """Take what was there when it was taken over."""
        self.loaded, self.next_offset = loaded, _end_offset(loaded)
        self.appended_bytes = sum(len(body) + APPEND_COST_BYTES for body in loaded.appends)
        self.snapshot_bytes = sum(map(len, loaded.chunks))

    def append(self, ticket: Ticket, records: Sequence[LogRecord]) -> None:
        """Let records be written."""
        base_offset = self.next_offset
        body = _encoded(base_offset, records)
        if len(body) > BATCH_BYTES_MAX:
            raise RecordTooLargeError(f"a batch of {len(body)} bytes; at most {BATCH_BYTES_MAX} are allowed")
        self.next_offset += len(records)
        self.appended_bytes += len(body) + APPEND_COST_BYTES
        self.writer.append((ticket, base_offset), body)

    def snapshot(self, records: Iterable[LogRecord], bytes_max: int) -> None:
        """Let a snapshot be written."""
        self.appended_bytes = self.snapshot_bytes = 0
        self.writer.snapshot(self._measured([_NEXT_OFFSET.pack(self.next_offset)], _chunks(records, bytes_max)))

    def _measured(self, *parts: Iterable[bytes]) -> Iterator[bytes]:
        for part in parts:
            for chunk in part:
                self.snapshot_bytes += len(chunk)
                yield chunk


class SlotStore:
    """Keeps the records of the log partitions that are owned: a :class:`~groupcoord.log_store.LogStore`.

    Args:
        new_tag: returns 16 bytes that it never returned before, in any process; random ones if left out.
        body_bytes_max: no put has more than this, unless a single append has.
        lease_ms: see :class:`~groupcoord.log_store.OwnedStore`; None: nobody looks whose a log partition is.
        snapshot_bytes_min: a snapshot is due when that was appended since the last one, and more than that one has.

    Attributes:
        on_work: is called when something is to be done; it had better only make a note of that.
        take_overs: how many log partitions were taken over so far, counted each time.
        losses: how many were found to be somebody else's.
    """

    def __init__(
        self,
        new_tag: Callable[[], bytes] = random_tag,
        body_bytes_max: int = BODY_BYTES_MAX,
        lease_ms: int | None = LEASE_MS,
        snapshot_bytes_min: int = SNAPSHOT_BYTES_MIN,
    ) -> None:
        self.on_work: Callable[[], None] = _nobody_is_told
        self._new_tag = new_tag
        self._body_bytes_max = body_bytes_max
        self.take_overs = self.losses = 0
        self._lease_ms = lease_ms
        self._snapshot_bytes_min = snapshot_bytes_min
        self._is_look_wanted = False
        self._owned: dict[int, _Owned] = {}
        self._answers: list[tuple[Ticket, int | LogStoreError]] = []
        self._changes: list[Taken | Gone] = []

    # ------------------------------------------------------------ for the coordinator

    def append(self, partition: int, ticket: Ticket, records: Sequence[LogRecord]) -> None:
        """Let records be written; the answer comes later. See :meth:`groupcoord.log_store.LogStore.append`.

        Raises:
            NotLeaderError: the log partition isn't owned.
            RecordTooLargeError: the batch is larger than 1,048,588 bytes, or a string in it than 32,767.
        """
        owned = self._owned.get(partition)
        if owned is None or owned.writer.state is not State.OWNER:
            raise NotLeaderError(f"log partition {partition} is not owned here")
        owned.append(ticket, records)
        self.on_work()

    @property
    def lease_ms(self) -> int | None:
        """How long an owner may answer after a look; see :class:`~groupcoord.log_store.OwnedStore`."""
        return self._lease_ms

    def check_ownership(self) -> bool:
        """Let who drives this look what others own; the answer comes later."""
        self._is_look_wanted = True
        self.on_work()
        return False

    def read(self, partition: int) -> Iterator[LogRecord]:
        """Yield what a log partition had when it was taken over, once.

        Raises:
            NotLeaderError: it isn't owned, or was read before.
        """
        return all_records(self._take_batches(partition))

    def read_last(self, partition: int) -> Iterator[LogRecord | LoadedCommits]:
        """Do as :meth:`read`, for a load: see :meth:`groupcoord.log_store.CondensingStore.read_last`."""
        return last_records(self._take_batches(partition))

    def _take_batches(self, partition: int) -> Iterator[Batch]:
        owned = self._owned.get(partition)
        if owned is None or owned.loaded is None:
            is_driven = self.on_work is not _nobody_is_told
            hint = "" if is_driven else ": nothing drives this SlotStore; give its coordinator to a Replica"
            raise NotLeaderError(f"log partition {partition} was not taken over{hint}")
        loaded, owned.loaded = owned.loaded, None
        return chain.from_iterable(map(iter_batches, (*loaded.chunks[1:], *loaded.appends)))

    def snapshot(self, partition: int, records: Iterable[tuple[int, Record]], now_ms: int) -> None:
        """Write what rebuilds the state of a log partition, and forget the slots that it stands for.

        Nothing is done if the log partition isn't owned, or a snapshot is being written; nor while there are answers
        that nobody has taken, since what they are about would not be among the records.

        Args:
            partition: the log partition.
            records: with their offsets, in order, of all that was answered so far; a core's ``Partition.snapshot()``.
                They are walked as the snapshot is written, so they must not change any more.
            now_ms: the time that they get.
        """
        owned = self._owned.get(partition)
        if owned is None or owned.writer.state is not State.OWNER or owned.writer.is_writing_snapshot or self._answers:
            return
        made = (LogRecord(record, now_ms, offset) for offset, record in records)
        owned.snapshot(made, min(self._body_bytes_max, CHUNK_BYTES_MAX))
        self.on_work()

    def is_snapshot_due(self, partition: int) -> bool:
        """Tell whether a log partition has so many appends that a snapshot of it would spare whoever takes it over."""
        owned = self._owned.get(partition)
        if owned is None or owned.writer.state is not State.OWNER or owned.writer.is_writing_snapshot:
            return False
        return owned.appended_bytes > max(owned.snapshot_bytes, self._snapshot_bytes_min)

    # ------------------------------------------------------------ for who drives it

    def take_over(self, partition: int) -> None:
        """Begin to own a log partition, whoever owns it now; nothing happens if this process does, or has begun to."""
        owned = self._owned.get(partition)
        if owned is None:
            owned = self._owned[partition] = _Owned(SlotWriter(self._new_tag(), body_bytes_max=self._body_bytes_max))
            owned.writer.take_over()
            self.on_work()

    def give_up(self, partition: int, reason: str) -> None:
        """Own a log partition no more; what waits is not written, what is on its way may be."""
        owned = self._owned.pop(partition, None)
        if owned is not None:
            owned.writer.give_up(reason)
            self._take_events(partition, owned)

    @property
    def owned(self) -> dict[int, int]:
        """The log partitions that are owned, with their epochs."""
        found = sorted(self._owned.items())
        return {partition: one.writer.epoch for partition, one in found if one.writer.state is State.OWNER}

    def wants(self, partition: int) -> bool:
        """Tell whether a log partition is owned, or being taken over."""
        return partition in self._owned

    def last_slot(self, partition: int) -> int:
        """Return the last slot of a log partition that is known to be this process's; -1: none is."""
        owned = self._owned.get(partition)
        return -1 if owned is None else owned.writer.last_slot

    def figures(self) -> dict[int, PartitionFigures]:
        """Return what there is to be known of each log partition that is owned."""
        found = ((partition, epoch, self._owned[partition]) for partition, epoch in self.owned.items())
        return {
            partition: PartitionFigures(epoch, one.appended_bytes, one.snapshot_bytes)
            for partition, epoch, one in found
        }

    @property
    def is_look_wanted(self) -> bool:
        """True if somebody waits for a look: see :meth:`check_ownership`."""
        return self._is_look_wanted

    def take_look(self) -> bool:
        """Return whether a look is wanted, once: now it begins."""
        is_wanted, self._is_look_wanted = self._is_look_wanted, False
        return is_wanted

    def next_operations(self) -> list[tuple[int, Operation]]:
        """Return what is to be done now: of each log partition one thing at a time."""
        found = []
        for partition, owned in self._owned.items():
            operation = owned.writer.next_operation()
            if operation is not None:
                found.append((partition, operation))
        return found

    def done(self, partition: int, operation: Operation, result: int | list[Slot] | Unknown | None) -> None:
        """Take what came of an operation, see :meth:`~groupcoord.cluster.slot_writer.SlotWriter.done`."""
        owned = self._owned.get(partition)
        if owned is not None:
            owned.writer.done(operation, result)
            self._take_events(partition, owned)
            self.losses += owned.writer.state is State.LOST

    def take_answers(self) -> list[tuple[Ticket, int | LogStoreError]]:
        """Return what came of appends, once: offset of the first record, or why it isn't in the log."""
        answers, self._answers = self._answers, []
        return answers

    def take_changes(self) -> list[Taken | Gone]:
        """Return which log partitions were taken and lost, once, in order."""
        changes, self._changes = self._changes, []
        return changes

    def _take_events(self, partition: int, owned: _Owned) -> None:
        for event in owned.writer.take_events():
            if isinstance(event, Loaded):
                owned.load(event)
                self.take_overs += 1
                self._changes.append(Taken(partition, event.epoch))
            elif isinstance(event, Acknowledged):
                self._answers.append(_asked(event.token))
            elif isinstance(event, Failed):
                kind = AppendOutcomeUnknownError if event.is_unknown else NotLeaderError
                self._answers.append((_asked(event.token)[0], kind(f"log partition {partition} is not owned here")))
            else:
                self._owned.pop(partition, None)
                self._changes.append(Gone(partition, event.reason))


def _nobody_is_told() -> None:
    """Nobody drives the store but by asking it."""


def _asked(token: object) -> tuple[Ticket, int]:
    """Return the ticket of an append, and the offset that its first record has."""
    assert isinstance(token, tuple), "what was given with the append"
    ticket, base_offset = token
    return ticket, base_offset


# ---------------------------------------------------------------- bytes


def _encoded(base_offset: int, records: Sequence[LogRecord]) -> bytes:
    """Return records whose offsets follow each other as a batch.

    Raises:
        RecordTooLargeError: they have none.
    """
    first = records[0]
    try:
        return encode_batch(
            base_offset,
            [(*record.encoded(), record.timestamp_ms) for record in records],
            producer_id=first.producer_id,
            producer_epoch=first.producer_epoch,
            is_transactional=first.producer_id != NO_PRODUCER_ID,
            is_control=first.is_control,
        )
    except (RecordEncodingError, StructError) as error:
        raise RecordTooLargeError(f"a record has no bytes: {error}") from error


def _chunks(records: Iterable[LogRecord], bytes_max: int) -> Iterator[bytes]:
    """Yield batches of records with gaps between them, put together as far as they fit."""
    batches: list[bytes] = []
    size = 0
    for batch in chain.from_iterable(_batches(run, bytes_max) for run in _runs(records)):
        if batches and size + len(batch) > bytes_max:
            yield b"".join(batches)
            batches, size = [], 0
        batches.append(batch)
        size += len(batch)
    if batches:
        yield b"".join(batches)


def _batches(run: Sequence[LogRecord], bytes_max: int) -> Iterator[bytes]:
    """Yield records without gaps as batches that are no longer than that, unless a single record is."""
    batch = _encoded(run[0].offset, run)
    if len(batch) <= bytes_max or len(run) == 1:
        yield batch
        return
    middle = len(run) // 2
    yield from _batches(run[:middle], bytes_max)
    yield from _batches(run[middle:], bytes_max)


def _runs(records: Iterable[LogRecord]) -> Iterator[list[LogRecord]]:
    """Put records together that can be one batch: no gap is between them, and one producer wrote them."""
    run: list[LogRecord] = []
    for record in records:
        if run and (len(run) == BATCH_RECORDS_MAX or not _goes_on(run[-1], record)):
            yield run
            run = []
        run.append(record)
    if run:
        yield run


def _goes_on(last: LogRecord, record: LogRecord) -> bool:
    writers = [(one.producer_id, one.producer_epoch) for one in (last, record)]
    has_marker = last.is_control or record.is_control
    return record.offset == last.offset + 1 and writers[0] == writers[1] and not has_marker


def _end_offset(loaded: Loaded) -> int:
    """Return the offset of the next record."""
    if loaded.appends:
        return max(batch.next_offset for batch in iter_batches(loaded.appends[-1]))
    return int(_NEXT_OFFSET.unpack(loaded.chunks[0])[0]) if loaded.chunks else 0
