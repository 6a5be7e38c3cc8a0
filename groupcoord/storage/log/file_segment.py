"""Segment of a log in a file with sparse indexes, byte for byte as Kafka writes them.

The indexes of the segment that is being written are in memory, those of others in files. Missing ones are rebuilt from
the headers of the batches. Sources: ``LogSegment``, ``OffsetIndex`` and ``TimeIndex`` of Apache Kafka 4.4.
"""

from __future__ import annotations

import contextlib
import os
from bisect import bisect_right
from collections.abc import Iterator
from operator import itemgetter
from pathlib import Path
from struct import (
    Struct,
    error as StructError,  # noqa: N812
)
from typing import NoReturn

from attrs import Factory, define, field

from groupcoord.config.files import read_file
from groupcoord.core.log.records import NO_TIMESTAMP
from groupcoord.records.batches import BATCH_HEADER_BYTES, LOG_OVERHEAD_BYTES, MAGIC_V2, Batch, InvalidBatchError
from groupcoord.storage.errors import FailedLogError, LostSegmentError, UnwrittenBatchError
from groupcoord.storage.files import OpenFiles, replace_file, segment_path
from groupcoord.storage.log.folder import INDEX_SUFFIXES
from groupcoord.storage.log.index import (
    OFFSET_ENTRY,
    TIME_ENTRY,
    AbortedEntries,
    AbortedTransaction,
    Entries,
    FileEntries,
    MemoryEntries,
)
from groupcoord.storage.log.memory_segment import INDEX_INTERVAL_BYTES, Pieces, Place, Segment
from groupcoord.storage.log.segment_files import (
    COMPACTION_CHUNK_BYTES,
    OFFSETS_END,
    RELATIVE_OFFSETS_END,
    read_batches,
    read_headers,
)
from groupcoord.storage.log.settings import LogMemory, TopicLogSettings

_OFFSET_SUFFIX, _TIME_SUFFIX, _ABORTED_SUFFIX = INDEX_SUFFIXES

AHEAD_BYTES_MAX = 1_048_576
"""Most bytes that are read together with the header of the first batch; for more the header is read alone."""

READ_PLACES_MAX = 16
"""Most positions that are cached for consumers that continue."""

CHECK_INTERVAL_MS = 100
"""Interval in which appends check that the file still exists, which costs as much as a ``write``."""

_BATCH_START_FROM = Struct(">qiibIhi").unpack_from
_PACK_OFFSET_ENTRY, _PACK_TIME_ENTRY = OFFSET_ENTRY.pack, TIME_ENTRY.pack
_NOT_KNOWN_MS = NO_TIMESTAMP - 1
"""Largest timestamp of a segment that was not read."""
_ENTRIES_BYTES = OFFSET_ENTRY.size + TIME_ENTRY.size


@define(eq=False, repr=False, weakref_slot=False)
class FileSegment(Segment):
    """Batches in one file.

    Attributes:
        first_timestamp_ms: the largest timestamp of the first batch, or None before it is known.
    """

    _folder: Path
    _files: OpenFiles
    _memory: LogMemory
    path: str = field(
        init=False, default=Factory(lambda self: str(segment_path(self._folder, self.base_offset)), takes_self=True)
    )
    first_timestamp_ms: int | None = field(init=False, default=None)
    _offsets: Entries | None = field(init=False, factory=lambda: MemoryEntries(OFFSET_ENTRY))
    _times: Entries | None = field(init=False, factory=lambda: MemoryEntries(TIME_ENTRY))
    _taken_bytes: int = field(init=False, default=0)
    _indexed_ms: int = field(init=False, default=NO_TIMESTAMP)  # largest timestamp in the time index
    _index_due_bytes: int = field(init=False, default=INDEX_INTERVAL_BYTES)  # then a batch gets an index entry
    _is_released: bool = field(init=False, default=False)
    # For writing, and the number of closed files when it was opened.
    _descriptor: tuple[int, int] = field(init=False, default=(-1, -1))
    _largest_ms: int = field(init=False, default=NO_TIMESTAMP)
    _largest_offset: int = field(init=False, default=0)  # relative
    _last_offset: int = field(init=False, default=OFFSETS_END)  # of the last batch, if known
    _last_position: int = field(init=False, default=0)
    # Positions of the batches after those that were read, by offset.
    _read_places: dict[int, int] = field(
        init=False, default=Factory(lambda self: {self.base_offset: 0}, takes_self=True)
    )
    aborted: AbortedEntries = field(
        init=False,
        default=Factory(lambda self: AbortedEntries(self._files, self._beside(_ABORTED_SUFFIX)), takes_self=True),
    )

    @classmethod
    def found(
        cls, folder: Path, base_offset: int, next_offset: int, size_bytes: int, files: OpenFiles, memory: LogMemory
    ) -> FileSegment:
        """Return a closed segment for a file that was found."""
        segment = cls(base_offset, folder, files, memory)
        segment.next_offset, segment.size_bytes = next_offset, size_bytes
        segment._offsets = segment._times = None
        segment._largest_ms = _NOT_KNOWN_MS
        path = segment._beside(_ABORTED_SUFFIX)
        if os.path.exists(path):
            segment.aborted = AbortedEntries(files, path, os.path.getsize(path))
        return segment

    @classmethod
    def resumed(cls, folder: Path, base_offset: int, files: OpenFiles, memory: LogMemory) -> FileSegment:
        """Return a segment to continue, with the indexes of its shutdown.

        OSError, ValueError and TopicLogError mean that its files are missing or do not fit together.
        """
        size_bytes = os.path.getsize(segment_path(folder, base_offset))
        found = cls.found(folder, base_offset, OFFSETS_END, size_bytes, files, memory)
        # Both must fit the file before they are copied into memory.
        indexes = found._open_index(_OFFSET_SUFFIX, OFFSET_ENTRY), found._open_index(_TIME_SUFFIX, TIME_ENTRY)
        if None in indexes:
            raise ValueError(f"{found.path} has no indexes")
        segment = cls(base_offset, folder, files, memory)
        offsets = MemoryEntries(OFFSET_ENTRY, read_file(segment._beside(_OFFSET_SUFFIX)))
        times = MemoryEntries(TIME_ENTRY, read_file(segment._beside(_TIME_SUFFIX)))
        memory.take(len(offsets.data) + len(times.data))
        segment._taken_bytes = len(offsets.data) + len(times.data)
        segment.first_timestamp_ms = next((batch.max_timestamp_ms for batch in found.headers()), None)
        if len(times):
            segment._largest_ms, segment._largest_offset = times[-1]
            segment._indexed_ms = segment._largest_ms
        segment._offsets, segment._times, segment.aborted = offsets, times, found.aborted
        # Only batches from the last index entry on are scanned.
        position = segment.size_bytes = offsets[-1][1] if len(offsets) else 0
        segment._index_due_bytes = position + INDEX_INTERVAL_BYTES
        for batch in found.headers(position):
            segment.note(batch.base_offset, batch.size_bytes, batch.next_offset, batch.max_timestamp_ms)
        return segment

    def _beside(self, suffix: str) -> str:
        return self.path.removesuffix(".log") + suffix

    @property
    def max_timestamp_ms(self) -> int:
        # The last entry of the time index holds it, so sealed segments need not be read.
        if self._largest_ms == _NOT_KNOWN_MS:
            _, times = self._indexes()
            self._largest_ms, self._largest_offset = times[-1] if len(times) else (NO_TIMESTAMP, 0)
        return self._largest_ms

    # ------------------------------------------------------------ writing

    def create(self) -> None:
        self._files.writing(self.path, creates=True)

    def may_reach(self, next_offset: int) -> bool:
        # As Kafka's LogSegment.canConvertToRelativeOffset.
        return next_offset - self.base_offset <= RELATIVE_OFFSETS_END

    def append(
        self, pieces: Pieces, size_bytes: int, next_offset: int, max_timestamp_ms: int, *, is_marker: bool = False
    ) -> None:
        try:
            descriptor, closed_count = self._descriptor
            if closed_count != self._files.closed_count:
                descriptor = self._files.writing(self.path)
                self._descriptor = descriptor, self._files.closed_count
            # One system call per batch: a killed process leaves at most one partial batch, at the end of the file.
            written = os.write(descriptor, pieces[0]) if len(pieces) == 1 else os.writev(descriptor, pieces)
        # Opened without O_CREAT: a new file would hide that acknowledged records are gone.
        except FileNotFoundError as error:
            raise LostSegmentError(f"{self.path} was deleted or moved away") from error
        except OSError as error:
            self._take_back(error.strerror or str(error))
        if written != size_bytes:
            self._take_back(f"only {written} of {size_bytes} bytes were written")
        self.note(self.next_offset, size_bytes, next_offset, max_timestamp_ms)

    def _take_back(self, reason: str) -> NoReturn:
        """Truncate the file to the start of a batch that could not be written completely, and raise."""
        descriptor = self._files.find(self.path)
        try:
            # Without written bytes truncation is needless and may fail, too.
            if descriptor >= 0 and os.fstat(descriptor).st_size != self.size_bytes:
                os.ftruncate(descriptor, self.size_bytes)
        except OSError as error:
            raise FailedLogError(f"{self.path}: {reason}, and cutting it back failed: {error}") from error
        raise UnwrittenBatchError(f"{self.path}: {reason}")

    def note(self, base_offset: int, size_bytes: int, next_offset: int, max_timestamp_ms: int) -> None:
        """Add a batch at the end of the file to the state, and to the indexes if an entry is due."""
        relative = next_offset - 1 - self.base_offset
        if self.first_timestamp_ms is None:
            self.first_timestamp_ms = max_timestamp_ms
        if max_timestamp_ms > self._largest_ms:
            self._largest_ms, self._largest_offset = max_timestamp_ms, relative
        if self.size_bytes > self._index_due_bytes:
            self._add_entries(relative)
        self._last_offset, self._last_position = base_offset, self.size_bytes
        self.size_bytes += size_bytes
        self.next_offset = next_offset

    def _add_entries(self, relative: int) -> None:
        # Without an entry reads scan more headers, which is better than a failed append.
        if self._memory.take_if_left(_ENTRIES_BYTES):
            self._taken_bytes += _ENTRIES_BYTES
            assert isinstance(self._offsets, MemoryEntries)
            self._offsets.data += _PACK_OFFSET_ENTRY(relative, self.size_bytes)
            self._note_largest()
            self._index_due_bytes = self.size_bytes + INDEX_INTERVAL_BYTES

    def _note_largest(self) -> None:
        if self._largest_ms > self._indexed_ms:
            assert isinstance(self._times, MemoryEntries)
            self._times.data += _PACK_TIME_ENTRY(self._largest_ms, self._largest_offset)
            self._indexed_ms = self._largest_ms

    def add_aborted(self, transaction: AbortedTransaction) -> None:
        try:
            self.aborted.append(transaction)
        except OSError as error:
            raise FailedLogError(f"an aborted transaction can't be noted: {error}") from error

    def forget_saved_indexes(self) -> None:
        for suffix in (_OFFSET_SUFFIX, _TIME_SUFFIX):
            Path(self._beside(suffix)).unlink(missing_ok=True)

    def seal(self) -> None:
        """Write the indexes to files, because no more batches come. After an OSError they stay in memory."""
        if isinstance(self._offsets, MemoryEntries) and isinstance(self._times, MemoryEntries):
            self._note_largest()
            for suffix, entries in ((_OFFSET_SUFFIX, self._offsets), (_TIME_SUFFIX, self._times)):
                path = self._beside(suffix)
                # Not synced: a missing or malformed index is rebuilt.
                replace_file(Path(path), bytes(entries.data), is_durable=False)
                self._files.close(path)  # the path now names another file
            self._offsets = self._times = None
            self._give_memory_back()

    def is_as_written(self) -> bool:
        """Return whether the open file is still linked and has its size, so that no other program has changed it."""
        descriptor, closed_count = self._descriptor
        if closed_count != self._files.closed_count:
            return False
        try:
            status = os.fstat(descriptor)
        except OSError:
            return False
        # fstat of the descriptor needs no path lookup. A replaced file has no link left.
        return status.st_nlink > 0 and status.st_size == self.size_bytes

    def flush(self) -> None:
        os.fsync(self._files.writing(self.path))

    def let_go(self) -> None:
        for path in (self.path, *map(self._beside, INDEX_SUFFIXES)):
            self._files.close(path)
        self._give_memory_back()

    def retire(self) -> None:
        """Mark the segment as replaced: another file has its name now."""
        self.let_go()
        self._is_released = True

    def _give_memory_back(self) -> None:
        self._memory.give_back(self._taken_bytes)
        self._taken_bytes = 0

    def release(self) -> None:
        self.let_go()
        self._is_released = True
        try:
            # Indexes first: a segment without indexes is complete.
            for path in (*map(self._beside, INDEX_SUFFIXES), self.path):
                Path(path).unlink(missing_ok=True)
        except OSError as error:
            raise FailedLogError(f"{path} can't be deleted: {error}") from error

    # ------------------------------------------------------------ indexes

    def _indexes(self) -> tuple[Entries, Entries]:
        if not self.has_indexes:
            return self._rebuild_indexes()
        assert self._offsets is not None
        assert self._times is not None
        return self._offsets, self._times

    @property
    def has_indexes(self) -> bool:
        """True if its indexes exist, in memory or in files that belong to this segment."""
        if self._offsets is None or self._times is None:
            self._offsets = self._open_index(_OFFSET_SUFFIX, OFFSET_ENTRY)
            self._times = self._open_index(_TIME_SUFFIX, TIME_ENTRY)
        return self._offsets is not None and self._times is not None

    def was_cut(self, size_bytes: int) -> None:
        self.size_bytes = size_bytes
        self._offsets = self._times = None
        self._largest_ms = _NOT_KNOWN_MS
        self.aborted = AbortedEntries(self._files, self._beside(_ABORTED_SUFFIX))

    def _open_index(self, suffix: str, layout: Struct) -> FileEntries | None:
        path = self._beside(suffix)
        try:
            size = os.path.getsize(path)
            entries = FileEntries(self._files, path, layout, size)
            # A truncated file may hold no entry.
            if size % layout.size:
                return None
            if not size:
                return entries
            first, second = entries[-1]
        except (OSError, StructError):
            return None
        # Entries beyond the segment belong to a file that was replaced or truncated.
        fits = second < self.size_bytes if layout is OFFSET_ENTRY else self.base_offset + second < self.next_offset
        is_blank = first == second == 0 and len(entries) > 1  # preallocated by Kafka
        return entries if fits and not is_blank else None

    def _rebuild_indexes(self) -> tuple[Entries, Entries]:
        rebuilt = FileSegment(self.base_offset, Path(self.path).parent, self._files, self._memory)
        for _ in rebuilt.scan(self.size_bytes):
            pass
        offsets, times = rebuilt._offsets, rebuilt._times
        assert offsets is not None
        assert times is not None
        self._offsets, self._times, self._taken_bytes = offsets, times, rebuilt._taken_bytes
        self._largest_ms, self._largest_offset = rebuilt._largest_ms, rebuilt._largest_offset
        with contextlib.suppress(OSError):  # then they stay in memory
            self.seal()
            return self._indexes()
        return offsets, times

    def scan(self, size_bytes: int) -> Iterator[Batch]:
        for batch in self.headers(0, size_bytes):
            self.note(batch.base_offset, batch.size_bytes, batch.next_offset, batch.max_timestamp_ms)
            yield batch

    # ------------------------------------------------------------ reading

    def batches(self, chunk_bytes: int = COMPACTION_CHUNK_BYTES) -> Iterator[Batch]:
        path, end = Path(self.path), self.size_bytes
        return read_batches(
            path, base_offset=self.base_offset, end_offset=self.next_offset, end=end, chunk_bytes=chunk_bytes
        )

    def headers(self, position: int = 0, end: int | None = None) -> Iterator[Batch]:
        """Yield the batches between two positions, without their records. A corrupt one raises FailedLogError."""
        end = self.size_bytes if end is None else end
        try:
            yield from read_headers(self._read_at, self.base_offset, position, end)
        except InvalidBatchError as error:
            raise FailedLogError(f"{self.path}: {error}") from error

    def headers_as_found(self) -> Iterator[Batch]:
        """Yield all batches of a file that is being opened. A corrupt one raises InvalidBatchError."""
        return read_headers(self._read_at, self.base_offset, 0, self.size_bytes)

    def _read_at(self, position: int, size: int) -> bytes:
        # After compaction another file has this name, with other positions.
        if self._is_released:
            raise UnwrittenBatchError(f"{self.path} was deleted while it was read")
        try:
            descriptor = self._files.reading(self.path)
            data = os.pread(descriptor, size, position)
            # pread may return less than requested; a short file must not repeat it forever.
            while len(data) < size:
                more = os.pread(descriptor, size - len(data), position + len(data))
                if not more:
                    raise FailedLogError(f"{self.path} has only {position + len(data)} bytes: it was truncated")
                data += more
        except OSError as error:
            raise FailedLogError(f"{self.path} can't be read: {error.strerror or error}") from error
        return data

    def _floor(self, offset: int) -> int:
        # A fetch at the end of the log.
        if offset >= self._last_offset:
            return self._last_position
        # A consumer that continues, without the index and a scan of up to 4 KiB of batches.
        position = self._read_places.get(offset)
        if position is not None:
            return position
        offsets, _ = self._indexes()
        number = bisect_right(offsets, offset - self.base_offset, key=itemgetter(0))
        return offsets[number - 1][1] if number else 0

    def first_batch_ms(self) -> int:
        if self.first_timestamp_ms is None:
            self.first_timestamp_ms = next((batch.max_timestamp_ms for batch in self.headers()), None)
        return NO_TIMESTAMP if self.first_timestamp_ms is None else self.first_timestamp_ms

    def place_of(self, offset: int, ahead_bytes: int = 0) -> Place | None:
        if offset >= self.next_offset:
            return None
        if offset == self._last_offset:
            return Place(self._last_position, self.size_bytes)
        position = self._read_places.get(offset)
        if position is not None:
            place = self._next_place(position, ahead_bytes)
            if place is not None:
                return place
        for batch in self.headers(self._floor(offset)):
            if batch.next_offset > offset:
                place = Place(batch.position, batch.position + batch.size_bytes, batch.buffered)
                self._note_read(batch.next_offset, place.end_position)
                return place
        return None

    def _next_place(self, position: int, ahead_bytes: int) -> Place | None:
        """Return the place of the batch at a position from its header alone, or None if that is not possible.

        Inlined for each Fetch that continues: :meth:`headers` would cost a tenth more.
        """
        # With the records if the fetch wants them anyway.
        wanted = ahead_bytes if BATCH_HEADER_BYTES < ahead_bytes <= AHEAD_BYTES_MAX else BATCH_HEADER_BYTES
        data = self._read_at(position, min(wanted, self.size_bytes - position))
        if len(data) < BATCH_HEADER_BYTES:
            return None
        base_offset, length, _, magic, _, _, last_offset_delta = _BATCH_START_FROM(data)
        end = position + length + LOG_OVERHEAD_BYTES
        # Formats v0 and v1 have other headers.
        if magic != MAGIC_V2 or not position + BATCH_HEADER_BYTES <= end <= self.size_bytes:
            return None
        self._note_read(base_offset + last_offset_delta + 1, end)
        return Place(position, end, memoryview(data))

    def _note_read(self, next_offset: int, end_position: int) -> None:
        places = self._read_places
        if next_offset not in places:
            # The oldest entry is dropped, since consumers that continue add newer ones.
            if len(places) == READ_PLACES_MAX:
                del places[next(iter(places))]
            places[next_offset] = end_position

    def end_before(self, offset: int) -> int:
        if offset >= self.next_offset:
            return self.size_bytes
        if offset <= self.base_offset:
            return 0
        for batch in self.headers(self._floor(offset)):
            if batch.base_offset >= offset:
                return batch.position
        return self.size_bytes

    def first_offset_at(self, position: int) -> int:
        offsets, _ = self._indexes()
        # The scan starts at the last indexed batch up to the position.
        number = bisect_right(offsets, position, key=itemgetter(1))
        for batch in self.headers(offsets[number - 1][1] if number else 0):
            if batch.position >= position:
                return batch.base_offset
        return self.next_offset

    def view(self, position: int, end_position: int) -> memoryview:
        return memoryview(self._read_at(position, end_position - position))

    def batches_since(self, timestamp_ms: int, offset: int) -> Iterator[memoryview]:
        _, times = self._indexes()
        number = bisect_right(times, timestamp_ms, key=itemgetter(0))
        # The time index holds the largest timestamp so far, so no earlier batch reaches the timestamp.
        since = self.base_offset + times[number - 1][1] if number else self.base_offset
        for batch in self.headers(self._floor(max(since, offset))):
            if batch.max_timestamp_ms >= timestamp_ms and batch.next_offset > offset:
                yield self.view(batch.position, batch.position + batch.size_bytes)


class Room:
    """Room for appends without a check, a roll or a flush, as long as the settings are the same object.

    Attributes:
        checked_ms: the beginning of the interval in which the file was checked.
        until_ms: the time of the next check of the file.
        end_ms: batches from this time on roll the segment.
        end_bytes: the largest size of the segment. A record has at least one byte, so its offset fits, too.
    """

    __slots__ = ("checked_ms", "end_bytes", "end_ms", "segment", "settings", "until_ms")

    def __init__(self, segment: Segment, settings: TopicLogSettings, now_ms: int, end_ms: int) -> None:
        assert isinstance(segment, FileSegment)
        self.segment = segment
        self.settings = settings
        self.end_ms = end_ms
        self._was_checked(now_ms)
        # Computed once per check, so that a commit compares one size.
        reach = segment.base_offset + RELATIVE_OFFSETS_END - segment.next_offset
        self.end_bytes = min(settings.segment_bytes, segment.size_bytes + reach)

    def goes_on(self, now_ms: int) -> bool:
        if now_ms >= self.end_ms or not self.segment.is_as_written():
            return False
        self._was_checked(now_ms)
        return True

    def _was_checked(self, now_ms: int) -> None:
        self.checked_ms = now_ms - now_ms % CHECK_INTERVAL_MS
        self.until_ms = min(self.checked_ms + CHECK_INTERVAL_MS, self.end_ms)
