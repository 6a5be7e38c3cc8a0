"""The log of one partition in segment files of Kafka's layout, which a broker opens, and which may be a broker's.

An append is one batch and one ``write``: when it returns, the operating system has the bytes, and killing the process
loses nothing. What else is known follows from the batches: indexes and producers are noted in files from time to time
(Kafka's, too), so that not everything has to be read when a log is opened.
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
from groupcoord.storage.file_segment import CHECK_INTERVAL_MS, FileSegment, Room
from groupcoord.storage.leader_epochs import LeaderEpochs
from groupcoord.storage.log_directory import segment_path, sync_path
from groupcoord.storage.log_folder import LogFolder
from groupcoord.storage.log_memory import LogMemory
from groupcoord.storage.log_settings import LEADER_EPOCH, NO_LEADER_EPOCH, TopicLogSettings
from groupcoord.storage.lost_segments import NOTHING_ACKNOWLEDGED, Acknowledged, find_loss
from groupcoord.storage.open_files import OpenFiles
from groupcoord.storage.partition_log import ATTRIBUTES_POSITION, PartitionLog, Write, replay
from groupcoord.storage.segment import Segment
from groupcoord.storage.segments import OFFSETS_END, read_batches, recover_log

P = ParamSpec("P")
T = TypeVar("T")


def _watched(method: Callable[Concatenate[SegmentLog, P], T]) -> Callable[Concatenate[SegmentLog, P], T]:
    """Return a method that refuses a log that has failed, and lets it fail where the files can't be used."""

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
    """One partition's batches in files, and its producers. Nothing is read before it is opened.

    Args:
        folder: where the files are, or will be from the first append on.
        files: opens them.
        memory: what is kept of them in memory is counted there.
        start_offset: where it starts at the earliest.
        note_start: remembers where it starts; may raise OSError.
        acknowledged: what it must have.
        report: is told of trouble with the files: its kind, and a line.
        may_change: is called before any file is changed; may raise LogStoreError.

    Attributes:
        files: opens them.
        failure: why it can't be used any more, if so: open it again.
        reader_count: how many pass over all of its batches; no file is replaced meanwhile.
    """

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
        self._reading = folder.path  # what of it is read at the moment
        self._first_start = start_offset
        self._note_start = note_start
        self._required = acknowledged
        self._report = report
        self._may_change = may_change
        self._saved_epochs: tuple[tuple[int, int], ...] = ()
        self._room: Room | None = None
        self._has_written = False
        self._is_saved = True  # what the next start goes by is in files
        self._has_new_files = False  # whose names a power failure may take back
        self._checked_interval = -1
        self._durable_offset = 0  # what is from here on was not flushed yet
        self._unflushed_since_ms = 0

    @property
    def acknowledged(self) -> Acknowledged:
        """What it must have when it is opened again."""
        return Acknowledged(self.end_offset, frozenset(self._bases), self.leader_epoch)

    # ------------------------------------------------------------ opening

    def open(self, *, is_clean: bool) -> None:
        """Find out what is in the files, as far as appending and reading need it.

        Args:
            is_clean: whether the log was shut down properly; else the end of it is checked, and a torn tail cut.

        Raises:
            LogStoreError: a file is corrupt, or missing, or somebody else's.
            OSError: a file can't be read, or cut.
            ValueError: a file is not what its name says.
        """
        with self._opening() as (bases, epochs):
            if bases and not (is_clean and self._resume(bases, epochs)):
                self._recover(bases, epochs)

    def _batches_while_opening(self) -> Iterator[Batch]:
        """Do the same in one pass over all batches, checked, and yield each: whoever wants them all reads them once."""
        with self._opening() as (bases, epochs):
            self._is_saved = not bases
            sizes = [os.path.getsize(segment_path(self.folder.path, base)) for base in bases]
            # Those from the last one on that holds anything may have been written when the power failed.
            recovered = max((number for number, size in enumerate(sizes) if size), default=0)
            for number, (base, following) in enumerate(pairwise([*bases, OFFSETS_END])):
                if number < recovered:
                    found = FileSegment.found(self.folder.path, base, following, sizes[number], self.files, self.memory)
                    segment, knows_aborted = found, len(found.aborted) > 0
                if number >= recovered or not segment.has_indexes:
                    is_last = following == OFFSETS_END
                    self.folder.blank_indexes(base) if is_last else self.folder.forget_indexes(base)
                    segment, knows_aborted = FileSegment(self.folder.path, base, self.files, self.memory), False
                self._begin(segment)
                for batch in self._checked(segment, following, bases):
                    note_epoch(batch, epochs)
                    aborted = replay(batch, self.producers)
                    if aborted is not None and not knows_aborted:
                        segment.add_aborted(aborted)
                    yield batch
                if following != OFFSETS_END:
                    segment.next_offset = following
                    with contextlib.suppress(OSError):
                        segment.seal()

    @contextlib.contextmanager
    def _opening(self) -> Iterator[tuple[list[int], list[tuple[int, int]]]]:
        """Begin with the segments and the leaders' epochs that there are, and end with what follows from them."""
        try:
            path, bases, required = self.folder.path, self.folder.open(), self._required
            if not required.bases.issubset(bases):
                missing = segment_path(path, min(required.bases.difference(bases)))
                raise LostSegmentError(f"{missing} is missing; put it back, or restart to go on without it")
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

    def _begin_sealed(self, bases: Sequence[int]) -> None:
        path = self.folder.path
        for base, following in pairwise(bases):
            size_bytes = os.path.getsize(segment_path(path, base))
            self._begin(FileSegment.found(path, base, following, size_bytes, self.files, self.memory))

    def _go_on_behind(self, bases: Sequence[int]) -> None:
        """Append to the last segment, if there is one."""
        if bases:
            active = self._segments[-1]
            assert isinstance(active, FileSegment)
            self._rolled_bytes = active.size_bytes
            self._first_timestamp_ms = NO_TIMESTAMP if active.first_timestamp_ms is None else active.first_timestamp_ms
            self.end_offset = self._durable_offset = active.next_offset
            self.start_offset = min(max(self._first_start, bases[0]), self.end_offset)

    def _checked(self, segment: FileSegment, following: int, bases: Sequence[int]) -> Iterator[Batch]:
        """Yield the batches of a segment, noted where it has no indexes. A torn tail is cut.

        Raises:
            InvalidBatchError: a batch is broken, and that is no torn tail.
        """
        self._reading = path = Path(segment.path)
        is_new = not segment.size_bytes
        try:
            for batch in read_batches(path, base_offset=segment.base_offset, end_offset=following):
                if is_new:
                    segment.note(batch.base_offset, batch.size_bytes, batch.next_offset, batch.max_timestamp_ms)
                yield batch
        except InvalidBatchError as error:
            recover_log(self.folder.path, list(bases))
            size_bytes = path.stat().st_size
            if size_bytes > error.position:
                raise
            if not is_new:
                self.folder.forget_indexes(segment.base_offset)
                segment.was_cut(size_bytes)

    def _note_epochs(self, epochs: list[tuple[int, int]]) -> None:
        """Note the leaders' epochs that the batches name, for want of a file that tells them."""
        for segment in self._segments:
            for batch in self._headers(segment):
                note_epoch(batch, epochs)

    def _set_epochs(self, epochs: Sequence[tuple[int, int]]) -> None:
        self.epochs = LeaderEpochs(epochs or [(LEADER_EPOCH, self.end_offset)])
        self.leader_epoch = self.epochs.latest
        self.epochs.trim(self.start_offset, self.end_offset)
        if self._segments:
            # Without this file the next start has to read more, and that is all.
            with contextlib.suppress(OSError):
                self._save_epochs()

    def _save_epochs(self) -> None:
        """Write the leaders' epochs, where the file tells others.

        Raises:
            OSError: they can't be written.
        """
        if self.epochs.entries != self._saved_epochs:
            self.folder.save_leader_epochs(self.epochs.entries)
            self._saved_epochs = self.epochs.entries

    def _resume(self, bases: Sequence[int], epochs: list[tuple[int, int]]) -> bool:
        """Go on where the log was shut down; tell if that can be."""
        try:
            active = FileSegment.resumed(self.folder.path, bases[-1], self.files, self.memory)
        except (OSError, ValueError, TopicLogError):
            return False
        self._begin_sealed(bases)
        self._begin(active)
        if not self._saved_epochs:
            self._note_epochs(epochs)
        self._replay(self.folder.load_producers(self.producers, active.next_offset))
        return True

    def _recover(self, bases: Sequence[int], epochs: list[tuple[int, int]]) -> None:
        """Check the end of the log, and note what is in the last segment; newer leaders' epochs, too."""
        self._is_saved = False
        path, base = self.folder.path, bases[-1]
        size_bytes, _ = recover_log(path, list(bases))
        self._begin_sealed(bases)
        if not self._saved_epochs:
            self._note_epochs(epochs)
        self.folder.blank_indexes(base)
        self.folder.forget_snapshots_behind(base)
        self._replay(self.folder.load_producers(self.producers, base))
        active = FileSegment(path, base, self.files, self.memory)
        for batch in active.scan(size_bytes):
            note_epoch(batch, epochs)
            aborted = replay(batch, self.producers)
            if aborted is not None:
                active.add_aborted(aborted)
        self._begin(active)

    def _replay(self, offset: int) -> None:
        """Learn of the producers what the batches from an offset on say."""
        for segment in self._segments[max(bisect_right(self._bases, offset) - 1, 0) :]:
            if segment.next_offset > offset:
                for batch in self._headers(segment):
                    if batch.base_offset >= offset:
                        replay(batch, self.producers)

    def _headers(self, segment: Segment) -> Iterator[Batch]:
        """Pass over the batches of a segment while the log is opened.

        Raises:
            InvalidBatchError: there is none where one should be, or its offsets can't be there.
        """
        assert isinstance(segment, FileSegment)
        self._reading = Path(segment.path)
        return segment.headers_as_found()

    # ------------------------------------------------------------ writing

    def append_encoded(self, data: bytes, record_count: int, now_ms: int, settings: TopicLogSettings) -> int:
        """See :class:`~groupcoord.storage.partition_log.PartitionLog`.

        By hand where nothing but the batch is to be written, since each commit comes by here: it costs half.
        """
        room, size_bytes = self._room, len(data)
        if (
            room is None
            or (segment := room.segment).size_bytes + size_bytes > room.end_bytes
            or data[ATTRIBUTES_POSITION] & TRANSACTIONAL
            or settings is not room.settings
            or not (room.checked_ms <= now_ms < room.until_ms or room.goes_on(now_ms))
        ):
            return super().append_encoded(data, record_count, now_ms, settings)
        offset = self.end_offset
        try:
            segment.append_one(data, size_bytes, offset + record_count, now_ms)
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
            self._rolled_bytes, self._room = self._active_bytes, None
            super()._write(write, settings, now_ms)
            if self._checked_interval != now_ms // CHECK_INTERVAL_MS:
                self._checked_interval = now_ms // CHECK_INTERVAL_MS
                self._check_written()
            if end_offset == self._durable_offset:
                self._unflushed_since_ms = now_ms
            if self.end_offset - self._durable_offset >= settings.flush_messages:
                self._make_durable()
            if settings.flush_messages == INT64_MAX:
                self._room = Room(self._segments[-1], settings, now_ms, self._first_timestamp_ms + settings.roll_ms)
        except TopicLogError as error:
            self.end_offset = end_offset  # what isn't acknowledged need not be there when it is opened again
            self._trouble(error)
            raise

    def _start_writing(self) -> None:
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
        """See :class:`~groupcoord.storage.partition_log.PartitionLog`; that is noted on disk."""
        super().begin_epoch(leader_epoch)
        if self.failure is None and self.epochs.entries != self._saved_epochs:
            self._has_written, self._room = False, None  # if it can't be noted now, the next batch tries again
            with contextlib.suppress(OSError):
                self._make_folder()

    def _is_full(self, last: Segment, write: Write, settings: TopicLogSettings) -> bool:
        assert isinstance(last, FileSegment)
        return super()._is_full(last, write, settings) or not last.may_reach(write.next_offset)

    def _roll(self, settings: TopicLogSettings) -> None:
        if self._is_unflushed and min(settings.flush_messages, settings.flush_ms) != INT64_MAX:
            self._make_durable()  # the flushes to come are of the new segment
        sealed = self._segments[-1] if self._segments else None
        segment = FileSegment(self.folder.path, self.end_offset, self.files, self.memory)
        try:
            if isinstance(sealed, FileSegment):
                sealed.forget_saved_indexes()
            segment.create()
        except OSError as error:
            raise UnwrittenBatchError(f"{segment.path}: no new segment: {error.strerror or error}") from error
        self._has_new_files = True
        if isinstance(sealed, FileSegment):
            # Without these files the next start has to read more, and that is all.
            with contextlib.suppress(OSError):
                self.folder.save_producers(self.producers, self.end_offset)
                sealed.seal()
        self._begin(segment)
        self._is_saved = False

    def _check_written(self) -> None:
        """Make sure that what was written is in a file that can be found again, and that nobody else changed."""
        active = self._segments[-1]
        assert isinstance(active, FileSegment)
        if not active.is_as_written():
            loss = self._find_loss()
            if loss is not None:
                raise _lost(loss)

    def check(self) -> None:
        """See :class:`~groupcoord.storage.partition_log.PartitionLog`."""
        loss = self._find_loss()
        if loss is not None and self.failure is None:
            self._trouble(_lost(loss))

    def _find_loss(self) -> str | None:
        active = self._segments[-1] if self._segments else None
        descriptor = self.files.find(active.path) if isinstance(active, FileSegment) else -1
        return find_loss(self.folder.path, self._bases, self._active_bytes, descriptor)

    @property
    def _active_bytes(self) -> int:
        return self._segments[-1].size_bytes if self._segments else 0

    # ------------------------------------------------------------ flushing

    @property
    def _is_unflushed(self) -> bool:
        return self.end_offset > self._durable_offset

    def flush_due(self, settings: TopicLogSettings, now_ms: int) -> int | None:
        """See :class:`~groupcoord.storage.partition_log.PartitionLog`."""
        if not self._is_unflushed or settings.flush_ms == INT64_MAX:
            return None
        due_ms = self._unflushed_since_ms + settings.flush_ms
        if due_ms > now_ms:
            return due_ms
        self._flush()
        return None

    def flush(self) -> None:
        """Make durable what was written.

        Raises:
            FailedLogError: the disk has failed.
        """
        if self._is_unflushed:
            self._flush()

    @_watched
    def _flush(self) -> None:
        self._make_durable()

    def _make_durable(self) -> None:
        # After a failed fsync only reading the file anew tells what is there.
        active = self._segments[-1]
        assert isinstance(active, FileSegment)
        try:
            active.flush()
            if self._has_new_files:
                sync_path(self.folder.path)
                self._has_new_files = False
        except OSError as error:
            raise FailedLogError(f"{active.path}: fsync failed: {error}") from error
        self._durable_offset, self._room = self.end_offset, None

    # ------------------------------------------------------------ the start, and the end

    def _start_at(self, offset: int) -> None:
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
        """The topic is gone, and its folder is somebody else's affair."""
        self.let_go()
        self.is_closed = True
        self._tell()

    def shut(self) -> bool:
        """Write what the next start need not read then, and close the files.

        Returns:
            True if all could be written.
        """
        is_clean = self.failure is None
        active = self._segments[-1] if self._segments else None
        if is_clean and isinstance(active, FileSegment):
            try:
                if not self._is_saved:
                    if self._is_unflushed or not self._has_written:
                        self._make_durable()
                    self.folder.save_producers(self.producers, self.end_offset)
                    active.seal()
            except (OSError, FailedLogError):
                is_clean = False
        self.let_go()
        return is_clean

    def let_go(self) -> None:
        """Close the files, whatever is in them: nothing is flushed."""
        self._room = None
        self._interrupt()
        for segment in self._segments:
            assert isinstance(segment, FileSegment)
            segment.let_go()
        self.producers.clear()

    # ------------------------------------------------------------ failing

    def compaction_failed(self, error: OSError) -> None:
        """Files were replaced by halves: opening the log anew puts that in order."""
        self._trouble(FailedLogError(f"{self.folder.path}: {error}"))

    def _fail(self, error: FailedLogError) -> None:
        """Nobody knows what is in the files: they have to be read anew."""
        self.failure = error
        self.let_go()
        self._tell()

    def _trouble(self, error: TopicLogError) -> None:
        if error.error_code is ErrorCode.KAFKA_STORAGE_ERROR and error is not self.failure:
            self._report("a log can't be used", f"{self.folder.path.name}: {error}")
        if isinstance(error, FailedLogError) and self.failure is None:
            self._fail(error)

    # ------------------------------------------------------------ reading

    read = _watched(PartitionLog.read)
    readable_bytes = _watched(PartitionLog.readable_bytes)
    batch_since = _watched(PartitionLog.batch_since)

    def read_all(self, decode: Callable[[Iterable[Batch]], Iterator[T]]) -> Iterator[T]:
        """Return what a function makes of all batches of this moment. No file is replaced while they are passed over.

        Raises:
            CorruptLogError: a batch is broken; while iterating.
            StorageError: a file can't be read; while iterating.
        """
        return self._decoded(decode, self._batches_before(self.end_offset))

    def open_and_read_all(self, decode: Callable[[Iterable[Batch]], Iterator[T]]) -> Iterator[T]:
        """Do as :meth:`open`, in the same pass over all batches from which a function makes something.

        Raises:
            LogStoreError: a file is corrupt, or missing, or somebody else's, or can't be read; while iterating.
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
        self.reader_count += 1
        try:
            for segment in [segment for segment in self._segments if segment.base_offset < end_offset]:
                self._reading = path = segment_path(self.folder.path, segment.base_offset)
                ends = {"end_offset": segment.next_offset, "end": segment.size_bytes}
                for batch in read_batches(path, base_offset=segment.base_offset, **ends):
                    if batch.base_offset >= end_offset:
                        return  # it was appended since
                    yield batch
        finally:
            self.reader_count -= 1


def _lost(loss: str) -> LostSegmentError:
    return LostSegmentError(f"{loss}, and what was acknowledged may be gone with it")


def note_epoch(batch: Batch, epochs: list[tuple[int, int]]) -> None:
    """Note the leader's epoch that a batch names, if it is newer than those that are known."""
    if batch.leader_epoch > (epochs[-1][0] if epochs else NO_LEADER_EPOCH):
        epochs.append((batch.leader_epoch, batch.base_offset))
