"""Log of one partition in segment files of Kafka's layout, which a broker can open and may have written.

An append is one batch and one ``write``; killing the process afterwards loses nothing. Indexes and producer snapshots
are written when a segment is full and at shutdown, so that opening a log reads little.
"""

from __future__ import annotations

import contextlib
import os
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import wraps
from itertools import pairwise
from pathlib import Path
from typing import Concatenate, ParamSpec, TypeVar

from groupcoord.config.settings import INT64_MAX
from groupcoord.core.log.records import NO_TIMESTAMP
from groupcoord.errors import ErrorCode
from groupcoord.log_store import StorageError
from groupcoord.records.batches import TRANSACTIONAL, Batch, InvalidBatchError
from groupcoord.storage.errors import (
    CorruptLogError,
    FailedLogError,
    LostSegmentError,
    TopicLogError,
    UnwrittenBatchError,
)
from groupcoord.storage.files import OpenFiles, segment_path, sync_path, write_leader_epochs
from groupcoord.storage.log.file_segment import CHECK_INTERVAL_MS, FileSegment, Room
from groupcoord.storage.log.folder import NOTHING_ACKNOWLEDGED, Acknowledged, LogFolder, find_loss, recover_log
from groupcoord.storage.log.index import LeaderEpochs
from groupcoord.storage.log.memory_log import ATTRIBUTES_POSITION, PartitionLog, Write, replay
from groupcoord.storage.log.memory_segment import Segment
from groupcoord.storage.log.segment_files import CHUNK_BYTES, OFFSETS_END, read_batches
from groupcoord.storage.log.settings import LEADER_EPOCH, NO_LEADER_EPOCH, LogMemory, TopicLogSettings

P = ParamSpec("P")
T = TypeVar("T")


def _watched(method: Callable[Concatenate[SegmentLog, P], T]) -> Callable[Concatenate[SegmentLog, P], T]:
    """Wrap a method so that it fails for a failed log, and fails the log if its files can't be used."""

    @wraps(method)
    def watched(log: SegmentLog, /, *args: P.args, **kwargs: P.kwargs) -> T:
        if log.failure is not None:
            raise log.failure
        try:
            return method(log, *args, **kwargs)
        except TopicLogError as error:
            log._trouble(error)
            raise

    return watched


class SegmentLog(PartitionLog):
    """Batches of one partition in files, and its producers. Nothing is read before :meth:`open`.

    Args:
        folder: the folder, which is created with the first append.
        files: the open files.
        memory: the account of the memory that it uses.
        start_offset: the lowest possible start offset.
        note_start: stores the start offset; may raise OSError.
        acknowledged: what the log must hold.
        report: is called for errors of the files with their kind and a message.
        may_change: is called before a file is changed; may raise LogStoreError.

    Attributes:
        reader_count: the number of readers of all batches; no file is replaced meanwhile.
    """

    _segments: list[FileSegment]  # type: ignore[assignment]

    def __init__(
        self,
        folder: LogFolder,
        files: OpenFiles,
        memory: LogMemory,
        *,
        start_offset: int = 0,
        note_start: Callable[[int], None] = lambda offset: None,
        acknowledged: Acknowledged = NOTHING_ACKNOWLEDGED,
        report: Callable[[str, str], None] = lambda kind, line: None,
        may_change: Callable[[], None] = lambda: None,
    ) -> None:
        super().__init__(memory)
        self.folder = folder
        self.files = files
        self.reader_count = 0
        self._reading = folder.path
        self._first_start = start_offset
        self._note_start = note_start
        self._required = acknowledged
        self._report = report
        self._may_change = may_change
        self._saved_epochs: tuple[tuple[int, int], ...] = ()
        self._room: Room | None = None
        self._has_written = False
        self._is_saved = True
        self._has_new_files = False
        self._checked_interval = -1
        self._durable_offset = 0
        self._unflushed_since_ms = 0

    @property
    def acknowledged(self) -> Acknowledged:
        return Acknowledged(self.end_offset, frozenset(self._bases), self.leader_epoch)

    # ------------------------------------------------------------ opening

    def open(self, *, is_clean: bool) -> None:
        """Read what appends and reads need to know about the files.

        Without a clean shutdown the end of the log is checked, and a torn tail is truncated.

        Raises:
            LogStoreError: a file is corrupt, missing, or belongs to another topic.
            OSError: a file can't be read or truncated.
        """
        with self._opening() as (bases, epochs):
            # If the files of a clean shutdown do not fit together, the end of the log is read as after a crash.
            if bases and not (is_clean and self._resume(bases, epochs)):
                self._recover_end(bases, epochs)

    def _recover_end(self, bases: Sequence[int], epochs: list[tuple[int, int]]) -> None:
        """Truncate a torn tail, and read the segments that a crash may have damaged."""
        recover_log(self.folder.path, bases)
        self._is_saved = False  # nothing was resumed, so the shutdown has to write the state
        sizes = self._sizes(bases)
        first = _first_unsealed(sizes)
        self._begin_sealed(bases[: first + 1], sizes)
        self._replay_sealed(bases[first], epochs)
        for (base, following), size in zip(pairwise([*bases[first:], OFFSETS_END]), sizes[first:], strict=True):
            segment = self._unindexed(base, is_last=following == OFFSETS_END)
            self._begin(segment)
            # After recover_log() the headers alone are enough.
            for batch in segment.scan(size):
                note_epoch(batch, epochs)
                aborted = replay(batch, self.producers)
                if aborted is not None:
                    segment.add_aborted(aborted)
            _end_segment(segment, following)

    def _batches_while_opening(self) -> Iterator[Batch]:
        """Open the log in one pass over all batches, validated, and yield each. A torn tail is truncated."""
        with self._opening() as (bases, epochs):
            self._is_saved = not bases
            sizes = self._sizes(bases)
            first = _first_unsealed(sizes)
            for number, (base, following) in enumerate(pairwise([*bases, OFFSETS_END])):
                segment = self._found(base, following, sizes[number])
                # The file of a sealed segment's aborted transactions may hold them already.
                knows_aborted = len(segment.aborted) > 0
                if number >= first or not segment.has_indexes:
                    segment, knows_aborted = self._unindexed(base, is_last=following == OFFSETS_END), False
                self._begin(segment)
                for batch in self._checked(segment, following, bases):
                    note_epoch(batch, epochs)
                    aborted = replay(batch, self.producers)
                    if aborted is not None and not knows_aborted:
                        segment.add_aborted(aborted)
                    yield batch
                _end_segment(segment, following)

    def _sizes(self, bases: Sequence[int]) -> list[int]:
        return [os.path.getsize(segment_path(self.folder.path, base)) for base in bases]

    def _found(self, base: int, following: int, size_bytes: int) -> FileSegment:
        return FileSegment.found(self.folder.path, base, following, size_bytes, self.files, self.memory)

    def _unindexed(self, base: int, *, is_last: bool) -> FileSegment:
        """Return a segment to read, and remove outdated indexes, which a broker would trust."""
        # Indexes of the last segment are emptied instead: a broker logs missing ones as an error.
        self.folder.blank_indexes(base) if is_last else self.folder.forget_indexes(base)
        return FileSegment(base, self.folder.path, self.files, self.memory)

    def _replay_sealed(self, base: int, epochs: list[tuple[int, int]]) -> None:
        """Derive epochs and producers from the segments before ``base``."""
        # Without the file of epochs this takes a pass over all headers.
        if not self._saved_epochs:
            self._note_epochs(epochs)
        # Later snapshots may cover batches that recovery truncates.
        self.folder.forget_snapshots_behind(base)
        self._replay(self.folder.load_producers(self.producers, base))

    @contextlib.contextmanager
    def _opening(self) -> Iterator[tuple[list[int], list[tuple[int, int]]]]:
        """Yield the segments and leader epochs, and derive the rest of the state when the caller
        has read the batches.
        """
        try:
            path, bases, required = self.folder.path, self.folder.open(), self._required
            # Without this check of a log that had failed, a deleted segment would look like retention.
            if not required.bases.issubset(bases):
                missing = segment_path(path, min(required.bases.difference(bases)))
                raise LostSegmentError(f"{missing} is missing; put it back, or restart to go on without it")
            # Before a tail is truncated: without the lock of the directory a broker may be writing.
            self._may_change()
            epochs = self.folder.leader_epochs()
            self._saved_epochs = tuple(epochs)
            yield bases, epochs
            self._go_on_behind(bases)
            if self.end_offset < required.end_offset:
                raise LostSegmentError(
                    f"{path} ends at offset {self.end_offset}, but all below {required.end_offset} was acknowledged; "
                    "put it back, or restart to go on without it"
                )
            self._set_epochs(epochs)
            super().begin_epoch(required.leader_epoch)
        except InvalidBatchError as error:
            self.let_go()
            raise CorruptLogError(self._reading, error.position, error.reason) from error
        except BaseException:
            self.let_go()
            raise

    def _begin_sealed(self, bases: Sequence[int], sizes: Sequence[int]) -> None:
        """Begin the segments before the last of ``bases`` without reading them."""
        for (base, following), size_bytes in zip(pairwise(bases), sizes, strict=False):
            self._begin(self._found(base, following, size_bytes))

    def _go_on_behind(self, bases: Sequence[int]) -> None:
        if bases:
            active = self._segments[-1]
            # Each file is one of Kafka's segments.
            self._rolled_bytes = active.size_bytes
            self._first_timestamp_ms = NO_TIMESTAMP if active.first_timestamp_ms is None else active.first_timestamp_ms
            self.end_offset = self._durable_offset = active.next_offset
            # DeleteRecords may have raised the start inside a segment, and a crash truncated the log below it.
            self.start_offset = min(max(self._first_start, bases[0]), self.end_offset)

    def _checked(self, segment: FileSegment, following: int, bases: Sequence[int]) -> Iterator[Batch]:
        """Yield the batches of a segment and index them if it has no indexes. A torn tail is truncated."""
        self._reading = path = Path(segment.path)
        is_new = not segment.size_bytes
        try:
            for batch in read_batches(path, base_offset=segment.base_offset, end_offset=following):
                if is_new:
                    segment.note(batch.base_offset, batch.size_bytes, batch.next_offset, batch.max_timestamp_ms)
                yield batch
        except InvalidBatchError as error:
            # Raises if an intact batch follows, so that this is no torn tail.
            recover_log(self.folder.path, bases)
            size_bytes = path.stat().st_size
            # Not truncated, because later segments hold batches.
            if size_bytes > error.position:
                raise
            if not is_new:
                self.folder.forget_indexes(segment.base_offset)
                segment.was_cut(size_bytes)

    def _note_epochs(self, epochs: list[tuple[int, int]]) -> None:
        for segment in self._segments:
            for batch in self._headers(segment):
                note_epoch(batch, epochs)

    def _set_epochs(self, epochs: Sequence[tuple[int, int]]) -> None:
        self.epochs = LeaderEpochs(epochs or [(LEADER_EPOCH, self.end_offset)])
        self.leader_epoch = self.epochs.latest
        self.epochs.trim(self.start_offset, self.end_offset)
        if self._segments:
            with contextlib.suppress(OSError):
                self._save_epochs()

    def _save_epochs(self) -> None:
        if self.epochs.entries != self._saved_epochs:
            write_leader_epochs(self.folder.path, self.epochs.entries)
            self._saved_epochs = self.epochs.entries

    def _resume(self, bases: Sequence[int], epochs: list[tuple[int, int]]) -> bool:
        try:
            active = FileSegment.resumed(self.folder.path, bases[-1], self.files, self.memory)
        except (OSError, ValueError, TopicLogError):
            return False
        self._begin_sealed(bases, self._sizes(bases[:-1]))
        self._begin(active)
        if not self._saved_epochs:
            self._note_epochs(epochs)
        self._replay(self.folder.load_producers(self.producers, active.next_offset))
        return True

    def _replay(self, offset: int) -> None:
        for segment in self._segments[max(bisect_right(self._bases, offset) - 1, 0) :]:
            if segment.next_offset > offset:
                for batch in self._headers(segment):
                    if batch.base_offset >= offset:
                        replay(batch, self.producers)

    def _headers(self, segment: FileSegment) -> Iterator[Batch]:
        self._reading = Path(segment.path)
        return segment.headers_as_found()

    # ------------------------------------------------------------ writing

    def append_encoded(self, data: bytes, record_count: int, now_ms: int, settings: TopicLogSettings) -> int:
        room, size_bytes = self._room, len(data)
        if (
            # No room, a producer's state to change, other limits, or a check is due.
            room is None
            or (segment := room.segment).size_bytes + size_bytes > room.end_bytes
            or data[ATTRIBUTES_POSITION] & TRANSACTIONAL
            or settings is not room.settings
            or not (room.checked_ms <= now_ms < room.until_ms or room.goes_on(now_ms))
        ):
            return super().append_encoded(data, record_count, now_ms, settings)
        offset = self.end_offset
        try:
            segment.append((data,), size_bytes, offset + record_count, now_ms)
        except TopicLogError as error:
            self._trouble(error)
            raise
        self.end_offset = segment.next_offset
        if self.watchers:
            self._tell()
        return offset

    def _write(self, write: Write, settings: TopicLogSettings, now_ms: int) -> None:
        if self.failure is not None:
            raise self.failure
        end_offset = self.end_offset
        try:
            if not self._has_written:
                self._start_writing()
            # The segment knows where the log ends, also after a write that was taken back.
            self._rolled_bytes, self._room = self._active_bytes, None
            super()._write(write, settings, now_ms)
            if self._checked_interval != now_ms // CHECK_INTERVAL_MS:
                self._checked_interval = now_ms // CHECK_INTERVAL_MS
                self._check_written()
            if end_offset == self._durable_offset:
                self._unflushed_since_ms = now_ms
            if self.end_offset - self._durable_offset >= settings.flush_messages:
                self._make_durable()
            # With a flush policy each append has to count records, so the fast path is closed.
            if settings.flush_messages == INT64_MAX:
                self._room = Room(self._segments[-1], settings, now_ms, self._first_timestamp_ms + settings.roll_ms)
        except TopicLogError as error:
            self.end_offset = end_offset  # unacknowledged records need not be there on reopening
            self._trouble(error)
            raise

    def _start_writing(self) -> None:
        # Files may have changed since they were read.
        loss = find_loss(self.folder.path, self._bases, self._active_bytes, -1)
        if loss is not None:
            raise _lost(loss)
        try:
            self._make_folder()
        except OSError as error:
            raise UnwrittenBatchError(f"{self.folder.path} can't be written: {error}") from error
        self._has_written, self._is_saved = True, False

    def _make_folder(self) -> None:
        self.folder.create()
        self._save_epochs()

    def begin_epoch(self, leader_epoch: int) -> None:
        super().begin_epoch(leader_epoch)
        # An epoch of responses must outlive the process, also without a record.
        if self.failure is None and self.epochs.entries != self._saved_epochs:
            self._has_written, self._room = False, None  # the next batch tries again
            with contextlib.suppress(OSError):
                self._make_folder()

    def _is_full(self, last: Segment, write: Write, settings: TopicLogSettings) -> bool:
        # Index entries hold 32-bit relative offsets.
        return super()._is_full(last, write, settings) or not self._segments[-1].may_reach(write.next_offset)

    def _roll(self, settings: TopicLogSettings) -> None:
        if self._is_unflushed and min(settings.flush_messages, settings.flush_ms) != INT64_MAX:
            self._make_durable()  # later flushes concern the new segment
        sealed = self._segments[-1] if self._segments else None
        segment = FileSegment(self.end_offset, self.folder.path, self.files, self.memory)
        try:
            if sealed is not None:
                # If sealing fails below, indexes of an earlier process would be outdated, and a broker would trust
                # them.
                sealed.forget_saved_indexes()
            segment.create()
        except OSError as error:
            raise UnwrittenBatchError(f"{segment.path}: no new segment: {error.strerror or error}") from error
        # The name of a new file needs an fsync of the folder, done with the next flush.
        self._has_new_files = True
        if sealed is not None:
            with contextlib.suppress(OSError):
                self.folder.save_producers(self.producers, self.end_offset)
                sealed.seal()
        self._begin(segment)
        self._is_saved = False

    def _check_written(self) -> None:
        if not self._segments[-1].is_as_written():
            loss = self._find_loss()
            if loss is not None:
                raise _lost(loss)

    def check(self) -> None:
        loss = self._find_loss()
        if loss is not None and self.failure is None:
            self._trouble(_lost(loss))

    def _find_loss(self) -> str | None:
        descriptor = self.files.find(self._segments[-1].path) if self._segments else -1
        return find_loss(self.folder.path, self._bases, self._active_bytes, descriptor)

    @property
    def _active_bytes(self) -> int:
        return self._segments[-1].size_bytes if self._segments else 0

    # ------------------------------------------------------------ flushing

    @property
    def _is_unflushed(self) -> bool:
        return self.end_offset > self._durable_offset

    def flush_due(self, settings: TopicLogSettings, now_ms: int) -> int | None:
        if not self._is_unflushed or settings.flush_ms == INT64_MAX:
            return None
        due_ms = self._unflushed_since_ms + settings.flush_ms
        if due_ms > now_ms:
            return due_ms
        self._flush()
        return None

    def flush(self) -> None:
        """Make all writes durable; FailedLogError if the disk has failed."""
        if self._is_unflushed:
            self._flush()

    def _make_durable(self) -> None:
        # After a failed fsync only reading the file again shows what it holds.
        active = self._segments[-1]
        try:
            # After a power failure data and names of new files are needed.
            active.flush()
            if self._has_new_files:
                sync_path(self.folder.path)
                self._has_new_files = False
        except OSError as error:
            raise FailedLogError(f"{active.path}: fsync failed: {error}") from error
        self._durable_offset, self._room = self.end_offset, None

    _flush = _watched(_make_durable)

    # ------------------------------------------------------------ the start, and the end

    def _start_at(self, offset: int) -> None:
        # The checkpoint first: if it can't be written, nothing was deleted.
        before = self.start_offset
        self.start_offset = offset
        try:
            self._drop_before(offset)
        except OSError as error:
            self.start_offset = before
            raise UnwrittenBatchError(f"{self.folder.path}: {error}") from error

    @_watched
    def _drop_before(self, offset: int) -> None:
        self._note_start(offset)
        if self.epochs.trim(offset, self.end_offset):
            self._save_epochs()
        self._drop(bisect_right(self._bases[1:], offset))

    retain = _watched(PartitionLog.retain)

    def close(self) -> None:
        """Close the log of a deleted topic; its folder is deleted separately."""
        self.let_go()
        self.is_closed = True
        self._tell()

    def shut(self) -> bool:
        is_clean = self.failure is None
        if is_clean and self._segments and not self._is_saved:
            try:
                # Also a recovered log without a write: the process before may have died before its fsync.
                if self._is_unflushed or not self._has_written:
                    self._make_durable()
                self.folder.save_producers(self.producers, self.end_offset)
                self._segments[-1].seal()
            except (OSError, FailedLogError):
                is_clean = False
        self.let_go()
        return is_clean

    def let_go(self) -> None:
        """Close the files without a flush."""
        self._room = None
        self._interrupt()
        for segment in self._segments:
            segment.let_go()
        self.producers.clear()

    # ------------------------------------------------------------ failing

    def compaction_failed(self, error: OSError) -> None:
        self._trouble(FailedLogError(f"{self.folder.path}: {error}"))

    def _fail(self, error: FailedLogError) -> None:
        # Its files must be read again to know what they hold. Waiting fetches are woken to fail.
        self.failure = error
        self.let_go()
        self._tell()

    def _trouble(self, error: TopicLogError) -> None:
        # Reported once, although every later call raises it again.
        if error.error_code is ErrorCode.KAFKA_STORAGE_ERROR and error is not self.failure:
            self._report("a log can't be used", f"{self.folder.path.name}: {error}")
        if isinstance(error, FailedLogError) and self.failure is None:
            self._fail(error)

    # ------------------------------------------------------------ reading

    read = _watched(PartitionLog.read)
    readable_bytes = _watched(PartitionLog.readable_bytes)
    batch_since = _watched(PartitionLog.batch_since)

    def read_all(self, decode: Callable[[Iterable[Batch]], Iterator[T]]) -> Iterator[T]:
        """Return the result of a function over all present batches. No file is replaced during the iteration.

        The iteration raises CorruptLogError for a malformed batch and StorageError for a file that can't be read.
        """
        return self._decoded(decode, self._batches_before(self.end_offset))

    def open_and_read_all(self, decode: Callable[[Iterable[Batch]], Iterator[T]]) -> Iterator[T]:
        """Open the log and return the result of a function over all its batches, in one pass.

        The iteration raises LogStoreError for a file that is corrupt, missing, unreadable, or belongs to another topic.
        """
        return self._decoded(decode, self._batches_while_opening())

    def _decoded(self, decode: Callable[[Iterable[Batch]], Iterator[T]], batches: Iterator[Batch]) -> Iterator[T]:
        self._reading = self.folder.path
        try:
            yield from decode(batches)
        except InvalidBatchError as error:
            raise CorruptLogError(self._reading, error.position, error.reason) from error
        except (OSError, ValueError) as error:
            raise StorageError(f"{self._reading} can't be read: {error}") from error

    def _batches_before(self, end_offset: int) -> Iterator[Batch]:
        # Compaction waits with its swap: this reader opens files by their names.
        self.reader_count += 1
        try:
            # A copy, since appends may roll meanwhile.
            for segment in [segment for segment in self._segments if segment.base_offset < end_offset]:
                self._reading = Path(segment.path)
                for batch in segment.batches(CHUNK_BYTES):
                    if batch.base_offset >= end_offset:
                        return  # appended meanwhile
                    yield batch
        finally:
            self.reader_count -= 1


def _first_unsealed(sizes: Sequence[int]) -> int:
    """Return the number of the first segment that may have been written when the power failed.

    It is the last one with data. Those before it are sealed and never written again.
    """
    return max((number for number, size in enumerate(sizes) if size), default=0)


def _end_segment(segment: FileSegment, following: int) -> None:
    if following != OFFSETS_END:
        segment.next_offset = following
        with contextlib.suppress(OSError):
            segment.seal()


def _lost(loss: str) -> LostSegmentError:
    return LostSegmentError(f"{loss}, and what was acknowledged may be gone with it")


def note_epoch(batch: Batch, epochs: list[tuple[int, int]]) -> None:
    if batch.leader_epoch > (epochs[-1][0] if epochs else NO_LEADER_EPOCH):
        epochs.append((batch.leader_epoch, batch.base_offset))
