"""The log of one partition in segment files of Kafka's layout, which a broker opens, and which may be a broker's.

An append is one batch and one ``write``: when it returns, the operating system has the bytes, and killing the process
loses nothing. What else is known follows from the batches: indexes and producers are noted in files from time to time
(Kafka's, too), so that not everything has to be read when a log is opened.
"""

from __future__ import annotations

import contextlib
import os
from bisect import bisect_right
from collections.abc import Callable, Sequence
from functools import wraps
from itertools import pairwise
from typing import Concatenate, NamedTuple, ParamSpec, TypeVar

from groupcoord.core.records import NO_PRODUCER_ID, NO_TIMESTAMP, TransactionMarker
from groupcoord.errors import ErrorCode
from groupcoord.log_store import LogStoreError
from groupcoord.records.batches import Batch
from groupcoord.records.codec import decode_control
from groupcoord.storage.cleaned_transactions import AbortedTransaction
from groupcoord.storage.log_directory import segment_path
from groupcoord.storage.lost_segments import find_loss, find_loss_behind
from groupcoord.storage.segments import recover_log
from groupcoord.topic_logs.errors import FailedLogError, RefusedBatchError, TopicLogError
from groupcoord.topic_logs.file_segment import FileSegment
from groupcoord.topic_logs.leader_epochs import LeaderEpochs
from groupcoord.topic_logs.log_folder import LogFolder
from groupcoord.topic_logs.log_memory import LogMemory
from groupcoord.topic_logs.open_files import OpenFiles
from groupcoord.topic_logs.partition_log import PartitionLog, Write
from groupcoord.topic_logs.producer_states import ProducerStates
from groupcoord.topic_logs.segments import Segment
from groupcoord.topic_logs.settings import LEADER_EPOCH, NO_LEADER_EPOCH, TopicLogSettings

CHECK_INTERVAL_MS = 100
"""How often appends look whether the file is still there: a look costs as much as a ``write``."""


class Acknowledged(NamedTuple):
    """What a log that has failed must have when it is opened again, or something acknowledged is lost."""

    end_offset: int
    bases: frozenset[int]
    leader_epoch: int


NOTHING_ACKNOWLEDGED = Acknowledged(0, frozenset(), LEADER_EPOCH)


P = ParamSpec("P")
T = TypeVar("T")


def _watched(method: Callable[Concatenate[DiskLog, P], T]) -> Callable[Concatenate[DiskLog, P], T]:
    """Return a method that refuses a log that has failed, and lets it fail where the files can't be used."""

    @wraps(method)
    def watched(log: DiskLog, /, *args: P.args, **kwargs: P.kwargs) -> T:
        if log.failure is not None:
            raise log.failure
        try:
            return method(log, *args, **kwargs)
        except TopicLogError as error:
            log._trouble(error)
            raise

    return watched


class DiskLog(PartitionLog):
    """One partition's batches in files, and its producers.

    Args:
        folder: where the files are, or will be from the first append on.
        files: opens them.
        memory: what is kept of them in memory is counted there.
        is_clean: whether the log was shut down properly; else the end of it is checked, and a torn tail cut.
        start_offset: where it starts at the earliest.
        note_start: remembers where it starts; may raise OSError.
        acknowledged: what it must have.
        report: is told of trouble with the files: its kind, and a line.

    Attributes:
        files: opens them.
        failure: why it can't be used any more, if so: open it again.

    Raises:
        FailedLogError: its files can't be used.
    """

    def __init__(
        self,
        folder: LogFolder,
        files: OpenFiles,
        memory: LogMemory,
        *,
        is_clean: bool,
        start_offset: int = 0,
        note_start: Callable[[int], None] = lambda offset: None,
        acknowledged: Acknowledged = NOTHING_ACKNOWLEDGED,
        report: Callable[[str, str], None] = lambda kind, line: None,
    ) -> None:
        super().__init__(memory)
        self.folder = folder
        self._note_start = note_start
        self._report = report
        self.files = files
        self._has_written = False
        self._is_saved = True  # what the next start goes by is in files
        self._checked_interval = -1
        self._unflushed_records = 0
        self._unflushed_since_ms = 0
        try:
            self._load(is_clean, start_offset, acknowledged)
        except (OSError, ValueError, LogStoreError, TopicLogError) as error:
            self._let_go()
            raise FailedLogError(f"{folder.path.name} can't be opened: {error}") from error

    @property
    def acknowledged(self) -> Acknowledged:
        """What it must have when it is opened again."""
        return Acknowledged(self.end_offset, frozenset(self._bases), self.leader_epoch)

    # ------------------------------------------------------------ opening

    def _load(self, is_clean: bool, start_offset: int, acknowledged: Acknowledged) -> None:
        path, bases = self.folder.path, self.folder.open()
        if not acknowledged.bases.issubset(bases):
            missing = segment_path(path, min(acknowledged.bases.difference(bases)))
            raise FailedLogError(f"{missing} is missing; put it back, or restart to go on without it")
        epochs = self.folder.leader_epochs()
        self._saved_epochs = tuple(epochs)
        if bases:
            for base, following in pairwise(bases):
                size_bytes = os.path.getsize(segment_path(path, base))
                self._begin(FileSegment.found(path, base, following, size_bytes, self.files, self.memory))
            if not self._saved_epochs:
                self._note_epochs(epochs)
            if not (is_clean and self._resume(bases[-1])):
                self._recover(bases, epochs)
            elif not self._saved_epochs:
                self._note_epochs(epochs)
            active = self._segments[-1]
            assert isinstance(active, FileSegment)
            self._rolled_bytes = active.size_bytes
            self._first_timestamp_ms = NO_TIMESTAMP if active.first_timestamp_ms is None else active.first_timestamp_ms
            self.end_offset = active.next_offset
            self.start_offset = min(max(start_offset, bases[0]), self.end_offset)
        if self.end_offset < acknowledged.end_offset:
            raise FailedLogError(
                f"it ends at offset {self.end_offset}, but all below {acknowledged.end_offset} was acknowledged; put "
                "it back, or restart to go on without it"
            )
        self._set_epochs(epochs)
        self.begin_epoch(acknowledged.leader_epoch)

    def _note_epochs(self, epochs: list[tuple[int, int]]) -> None:
        """Note the leaders' epochs that the batches name, for want of a file that tells them."""
        for segment in self._segments:
            assert isinstance(segment, FileSegment)
            for batch in segment.headers():
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

    def _resume(self, base: int) -> bool:
        """Go on where the log was shut down; tell if that can be."""
        try:
            active = FileSegment.resumed(self.folder.path, base, self.files, self.memory)
        except (OSError, ValueError, TopicLogError):
            return False
        self._begin(active)
        self._replay(self.folder.load_producers(self.producers, active.next_offset))
        return True

    def _recover(self, bases: Sequence[int], epochs: list[tuple[int, int]]) -> None:
        """Check the end of the log, and note what is in the last segment; newer leaders' epochs, too."""
        self._is_saved = False
        path, base = self.folder.path, bases[-1]
        size_bytes, _ = recover_log(path, list(bases))
        self.folder.forget_indexes(base)
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
            assert isinstance(segment, FileSegment)
            if segment.next_offset > offset:
                for batch in segment.headers():
                    if batch.base_offset >= offset:
                        replay(batch, self.producers)

    # ------------------------------------------------------------ writing

    @_watched
    def _write(self, write: Write, settings: TopicLogSettings, now_ms: int) -> None:
        if not self._has_written:
            self._start_writing()
        super()._write(write, settings, now_ms)
        if self._checked_interval != now_ms // CHECK_INTERVAL_MS:
            self._checked_interval = now_ms // CHECK_INTERVAL_MS
            self._check_written()
        self._flush_if_due(write.record_count, settings, now_ms)

    def _start_writing(self) -> None:
        loss = find_loss(self.folder.path, self._bases, self._active_bytes, -1)
        if loss is not None:
            raise FailedLogError(f"{loss}, and what was acknowledged may be gone with it")
        try:
            self._make_folder()
        except OSError as error:
            reason = f"{self.folder.path} can't be written: {error}"
            raise RefusedBatchError(ErrorCode.KAFKA_STORAGE_ERROR, reason) from error
        self._has_written, self._is_saved = True, False

    def _make_folder(self) -> None:
        self.folder.create()
        self._save_epochs()

    def begin_epoch(self, leader_epoch: int) -> None:
        """See :class:`~groupcoord.topic_logs.partition_log.PartitionLog`; that is noted on disk."""
        super().begin_epoch(leader_epoch)
        if self.failure is None and self.epochs.entries != self._saved_epochs:
            self._has_written = False  # if it can't be noted now, the next batch tries again
            with contextlib.suppress(OSError):
                self._make_folder()

    def _is_full(self, last: Segment, write: Write, settings: TopicLogSettings) -> bool:
        assert isinstance(last, FileSegment)
        return super()._is_full(last, write, settings) or not last.may_reach(write.next_offset)

    def _roll(self) -> None:
        sealed = self._segments[-1] if self._segments else None
        segment = FileSegment(self.folder.path, self.end_offset, self.files, self.memory)
        try:
            segment.create()
        except OSError as error:
            reason = f"{segment.path}: no new segment: {error.strerror or error}"
            raise RefusedBatchError(ErrorCode.KAFKA_STORAGE_ERROR, reason) from error
        if isinstance(sealed, FileSegment):
            # Without these files the next start has to read more, and that is all.
            with contextlib.suppress(OSError):
                self.folder.save_producers(self.producers, self.end_offset)
                sealed.seal()
        self._begin(segment)
        self._is_saved = False

    def _check_written(self) -> None:
        """Make sure that what was written is in a file that can be found again, and that nobody else changed."""
        loss = find_loss_behind(self.folder.path, self._bases, self._active_bytes, self._descriptor)
        if loss is not None:
            raise FailedLogError(f"{loss}, and what was acknowledged may be gone with it")

    def check(self) -> None:
        """See :class:`~groupcoord.topic_logs.partition_log.PartitionLog`."""
        loss = find_loss(self.folder.path, self._bases, self._active_bytes, self._descriptor)
        if loss is not None and self.failure is None:
            self._trouble(FailedLogError(f"{loss}, and what was acknowledged may be gone with it"))

    @property
    def _active_bytes(self) -> int:
        return self._segments[-1].size_bytes if self._segments else 0

    @property
    def _descriptor(self) -> int:
        active = self._segments[-1] if self._segments else None
        return self.files.find(active.path) if isinstance(active, FileSegment) else -1

    # ------------------------------------------------------------ flushing

    def _flush_if_due(self, record_count: int, settings: TopicLogSettings, now_ms: int) -> None:
        if not self._unflushed_records:
            self._unflushed_since_ms = now_ms
        self._unflushed_records += record_count
        if self._unflushed_records >= settings.flush_messages:
            self._flush()

    def flush_due(self, settings: TopicLogSettings, now_ms: int) -> None:
        """See :class:`~groupcoord.topic_logs.partition_log.PartitionLog`."""
        if self._unflushed_records and now_ms - self._unflushed_since_ms >= settings.flush_ms:
            self._flush()

    @_watched
    def _flush(self) -> None:
        # After a failed fsync only reading the file anew tells what is there.
        active = self._segments[-1]
        assert isinstance(active, FileSegment)
        try:
            active.flush()
        except OSError as error:
            raise FailedLogError(f"{active.path}: fsync failed: {error}") from error
        self._unflushed_records = 0

    # ------------------------------------------------------------ the start, and the end

    def _start_at(self, offset: int) -> None:
        before = self.start_offset
        self.start_offset = offset
        try:
            self._drop_before(offset)
        except OSError as error:
            self.start_offset = before
            raise RefusedBatchError(ErrorCode.KAFKA_STORAGE_ERROR, f"{self.folder.path}: {error}") from error

    @_watched
    def _drop_before(self, offset: int) -> None:
        self._note_start(offset)
        if self.epochs.trim(offset, self.end_offset):
            self._save_epochs()
        self._drop(bisect_right(self._bases[1:], offset))

    retain = _watched(PartitionLog.retain)

    def close(self) -> None:
        """The topic is gone, and its folder is somebody else's affair."""
        self._let_go()
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
                    active.flush()
                    self.folder.save_producers(self.producers, self.end_offset)
                    active.seal()
            except OSError:
                is_clean = False
        self._let_go()
        return is_clean

    def _let_go(self) -> None:
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
        self._let_go()
        self._tell()

    def _trouble(self, error: TopicLogError) -> None:
        if error.error_code is ErrorCode.KAFKA_STORAGE_ERROR and error is not self.failure:
            self._report("a log can't be used", f"{self.folder.path.name}: {error}")
        if isinstance(error, FailedLogError) and self.failure is None:
            self._fail(error)

    # ------------------------------------------------------------ reading

    read = _watched(PartitionLog.read)
    readable_bytes = _watched(PartitionLog.readable_bytes)
    find_time = _watched(PartitionLog.find_time)
    find_max_time = _watched(PartitionLog.find_max_time)


def note_epoch(batch: Batch, epochs: list[tuple[int, int]]) -> None:
    """Note the leader's epoch that a batch names, if it is newer than those that are known."""
    if batch.leader_epoch > (epochs[-1][0] if epochs else NO_LEADER_EPOCH):
        epochs.append((batch.leader_epoch, batch.base_offset))


def replay(batch: Batch, producers: ProducerStates) -> AbortedTransaction | None:
    """Learn what a batch of the log says of its producer.

    Returns:
        The transaction that it aborts, if it does.

    Raises:
        RefusedBatchError: POLICY_VIOLATION, there is no memory for the producer.
        CorruptBatchError: it is a control batch whose records don't fit.
    """
    producer_id = batch.producer_id
    if producer_id <= NO_PRODUCER_ID:
        return None
    producers.reserve(producer_id)
    if not batch.is_control:
        producers.appended(batch, batch.base_offset, batch.max_timestamp_ms)
        return None
    for offset, timestamp_ms, key, value in batch.records():
        marker = decode_control(key or b"", value, producer_id, batch.producer_epoch)
        if isinstance(marker, TransactionMarker):
            return producers.ended(marker, offset, timestamp_ms)
    return None
