"""A stretch of a log in a segment file, with sparse indexes over it: Kafka's files, byte for byte.

While a segment is written to, its indexes are in memory; when the next one begins they are written to files, and then
read there. Indexes that are missing are made anew from the headers of the batches. Sources: ``LogSegment``,
``OffsetIndex`` and ``TimeIndex`` of Apache Kafka 4.4.
"""

from __future__ import annotations

import contextlib
import os
from bisect import bisect_right
from collections.abc import Iterator
from operator import itemgetter
from pathlib import Path
from struct import Struct
from struct import error as StructError  # noqa: N812
from typing import NoReturn

from groupcoord.config.files import read_file
from groupcoord.core.log.records import NO_TIMESTAMP
from groupcoord.records.batches import BATCH_HEADER_BYTES, LOG_OVERHEAD_BYTES, MAGIC_V2, Batch, InvalidBatchError
from groupcoord.storage.cleaned_transactions import AbortedTransaction
from groupcoord.storage.errors import FailedLogError, LostSegmentError, UnwrittenBatchError
from groupcoord.storage.index_entries import (
    OFFSET_ENTRY,
    TIME_ENTRY,
    AbortedEntries,
    Entries,
    FileEntries,
    MemoryEntries,
    aborted_count,
)
from groupcoord.storage.log_directory import segment_path
from groupcoord.storage.log_memory import LogMemory
from groupcoord.storage.log_settings import TopicLogSettings
from groupcoord.storage.open_files import OpenFiles
from groupcoord.storage.segment import INDEX_INTERVAL_BYTES, Pieces, Place, Segment
from groupcoord.storage.segments import HEADERS_CHUNK_BYTES, OFFSETS_END, RELATIVE_OFFSETS_END, read_headers
from groupcoord.storage.swapping import INDEX_SUFFIXES
from groupcoord.storage.whole_files import replace_file

_OFFSET_SUFFIX, _TIME_SUFFIX, _ABORTED_SUFFIX = INDEX_SUFFIXES

AHEAD_BYTES_MAX = 1_048_576
"""So much is read together with the header of the batch that it begins with; of more the header alone."""

READ_PLACES_MAX = 16
"""So many consumers of a segment, each at a place of its own, go on reading without a look at its index."""

CHECK_INTERVAL_MS = 100
"""How often appends look whether the file is still there: a look costs as much as a ``write``."""

_BATCH_START_FROM = Struct(">qiibIhi").unpack_from
_PACK_OFFSET_ENTRY, _PACK_TIME_ENTRY = OFFSET_ENTRY.pack, TIME_ENTRY.pack
_NOT_KNOWN_MS = NO_TIMESTAMP - 1
"""The largest timestamp of a segment that was not looked at yet."""
_ENTRIES_BYTES = OFFSET_ENTRY.size + TIME_ENTRY.size


class FileSegment(Segment):
    """Batches in one file.

    Args:
        folder: of the log.
        base_offset: gives the file its name.
        files: opens it.
        memory: where the indexes are counted while they are in memory.

    Attributes:
        path: the file.
        first_timestamp_ms: the largest of the first batch; None before it is known.
    """

    __slots__ = (
        "_aborted",
        "_descriptor",
        "_files",
        "_index_due_bytes",
        "_indexed_ms",
        "_is_released",
        "_largest_ms",
        "_largest_offset",
        "_last_offset",
        "_last_position",
        "_memory",
        "_offsets",
        "_read_places",
        "_taken_bytes",
        "_times",
        "first_timestamp_ms",
        "path",
    )

    def __init__(self, folder: Path, base_offset: int, files: OpenFiles, memory: LogMemory) -> None:
        super().__init__(base_offset)
        self.path = str(segment_path(folder, base_offset))
        self.first_timestamp_ms: int | None = None
        self._files = files
        self._memory = memory
        self._offsets: Entries | None = MemoryEntries(OFFSET_ENTRY)
        self._times: Entries | None = MemoryEntries(TIME_ENTRY)
        self._taken_bytes = 0
        self._indexed_ms = NO_TIMESTAMP  # largest in the index by time
        self._index_due_bytes = INDEX_INTERVAL_BYTES  # a batch behind this position gets an entry
        self._is_released = False
        self._descriptor = -1, -1  # to write with, and how many files had been closed then
        self._largest_ms, self._largest_offset = NO_TIMESTAMP, 0  # the offset is relative
        self._last_offset, self._last_position = OFFSETS_END, 0  # of the last batch, once one is known
        self._read_places = {base_offset: 0}  # offsets and positions of what comes after batches that were looked up
        self._aborted = AbortedEntries(files, self._beside(_ABORTED_SUFFIX))

    @classmethod
    def found(
        cls, folder: Path, base_offset: int, next_offset: int, size_bytes: int, files: OpenFiles, memory: LogMemory
    ) -> FileSegment:
        """Return a segment that is not written to any more, as its file was found.

        Raises:
            OSError: its index of aborted transactions can't be looked at.
        """
        segment = cls(folder, base_offset, files, memory)
        segment.next_offset, segment.size_bytes = next_offset, size_bytes
        segment._offsets = segment._times = None
        segment._largest_ms = _NOT_KNOWN_MS
        path = segment._beside(_ABORTED_SUFFIX)
        if os.path.exists(path):
            segment._aborted = AbortedEntries(files, path, aborted_count(os.path.getsize(path)))
        return segment

    @classmethod
    def resumed(cls, folder: Path, base_offset: int, files: OpenFiles, memory: LogMemory) -> FileSegment:
        """Return a segment that goes on being written to, with the indexes that it had when it was sealed.

        Raises:
            OSError: a file is missing, or can't be read.
            ValueError: the indexes are not those of this file.
            TopicLogError: the file holds no batches where they should be.
        """
        size_bytes = os.path.getsize(segment_path(folder, base_offset))
        found = cls.found(folder, base_offset, OFFSETS_END, size_bytes, files, memory)
        indexes = found._open_index(_OFFSET_SUFFIX, OFFSET_ENTRY), found._open_index(_TIME_SUFFIX, TIME_ENTRY)
        if None in indexes:
            raise ValueError(f"{found.path} has no indexes")
        segment = cls(folder, base_offset, files, memory)
        offsets = MemoryEntries(OFFSET_ENTRY, read_file(segment._beside(_OFFSET_SUFFIX)))
        times = MemoryEntries(TIME_ENTRY, read_file(segment._beside(_TIME_SUFFIX)))
        memory.take(len(offsets.data) + len(times.data))
        segment._taken_bytes = len(offsets.data) + len(times.data)
        for batch in found.headers():
            segment.first_timestamp_ms = batch.max_timestamp_ms
            break
        if len(times):
            segment._largest_ms, segment._largest_offset = times[-1]
            segment._indexed_ms = segment._largest_ms
        segment._offsets, segment._times, segment._aborted = offsets, times, found._aborted
        position = segment.size_bytes = offsets[-1][1] if len(offsets) else 0
        segment._index_due_bytes = position + INDEX_INTERVAL_BYTES
        for batch in found.headers(position):
            segment.note(batch.base_offset, batch.size_bytes, batch.next_offset, batch.max_timestamp_ms)
        return segment

    def _beside(self, suffix: str) -> str:
        return self.path.removesuffix(".log") + suffix

    @property
    def max_timestamp_ms(self) -> int:
        """See :class:`~groupcoord.storage.segment.Segment`."""
        if self._largest_ms == _NOT_KNOWN_MS:
            _, times = self._indexes()
            self._largest_ms, self._largest_offset = times[-1] if len(times) else (NO_TIMESTAMP, 0)
        return self._largest_ms

    @property
    def aborted(self) -> AbortedEntries:
        """See :class:`~groupcoord.storage.segment.Segment`."""
        return self._aborted

    # ------------------------------------------------------------ writing

    def create(self) -> None:
        """Make the file.

        Raises:
            OSError: it can't be made.
        """
        self._files.writing(self.path, creates=True)

    def may_reach(self, next_offset: int) -> bool:
        """Tell whether an offset is near enough to the segment's own for its indexes."""
        return next_offset - self.base_offset <= RELATIVE_OFFSETS_END

    def append(
        self, pieces: Pieces, size_bytes: int, next_offset: int, max_timestamp_ms: int, *, is_marker: bool = False
    ) -> None:
        """See :class:`~groupcoord.storage.segment.Segment`."""
        try:
            descriptor, closed_count = self._descriptor
            if closed_count != self._files.closed_count:
                descriptor = self._files.writing(self.path)
                self._descriptor = descriptor, self._files.closed_count
            written = os.write(descriptor, pieces[0]) if len(pieces) == 1 else os.writev(descriptor, pieces)
        except FileNotFoundError as error:
            raise LostSegmentError(f"{self.path} was deleted or moved away") from error
        except OSError as error:
            self._take_back(error.strerror or str(error))
        if written != size_bytes:
            self._take_back(f"only {written} of {size_bytes} bytes were written")
        self.note(self.next_offset, size_bytes, next_offset, max_timestamp_ms)

    def append_one(self, data: bytes, size_bytes: int, next_offset: int, max_timestamp_ms: int) -> None:
        """Do as :meth:`append`, for a batch in one piece behind others; by hand."""
        descriptor, closed_count = self._descriptor
        if closed_count != self._files.closed_count:
            self.append((data,), size_bytes, next_offset, max_timestamp_ms)
            return
        try:
            written = os.write(descriptor, data)
        except OSError as error:
            self._take_back(error.strerror or str(error))
        if written != size_bytes:
            self._take_back(f"only {written} of {size_bytes} bytes were written")
        if max_timestamp_ms > self._largest_ms:
            self._largest_ms, self._largest_offset = max_timestamp_ms, next_offset - 1 - self.base_offset
        position = self.size_bytes
        if position > self._index_due_bytes:
            self._add_entries(next_offset - 1 - self.base_offset)
        self._last_offset, self._last_position = self.next_offset, position
        self.size_bytes = position + size_bytes
        self.next_offset = next_offset

    def _take_back(self, reason: str) -> NoReturn:
        """Cut the file back to the start of a batch that could not be written whole."""
        descriptor = self._files.find(self.path)
        try:
            # Where nothing can be written, nothing can be cut either; and nothing need be.
            if descriptor >= 0 and os.fstat(descriptor).st_size != self.size_bytes:
                os.ftruncate(descriptor, self.size_bytes)
        except OSError as error:
            raise FailedLogError(f"{self.path}: {reason}, and cutting it back failed: {error}") from error
        raise UnwrittenBatchError(f"{self.path}: {reason}")

    def note(self, base_offset: int, size_bytes: int, next_offset: int, max_timestamp_ms: int) -> None:
        """Note a batch that stands at the end of the file, in the indexes too where there is to be an entry."""
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
        """Add to both indexes, if there is memory for that: without it they are only coarser."""
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
        """See :class:`~groupcoord.storage.segment.Segment`."""
        try:
            self._aborted.append(transaction)
        except OSError as error:
            raise FailedLogError(f"an aborted transaction can't be noted: {error}") from error

    def forget_saved_indexes(self) -> None:
        """Delete the indexes by offset and by time that an earlier life left in files: they lack what came since.

        Raises:
            OSError: they can't be deleted.
        """
        for suffix in (_OFFSET_SUFFIX, _TIME_SUFFIX):
            Path(self._beside(suffix)).unlink(missing_ok=True)

    def seal(self) -> None:
        """Write the indexes to files: no more batches come.

        Raises:
            OSError: they can't be written; they stay in memory.
        """
        if isinstance(self._offsets, MemoryEntries) and isinstance(self._times, MemoryEntries):
            self._note_largest()
            for suffix, entries in ((_OFFSET_SUFFIX, self._offsets), (_TIME_SUFFIX, self._times)):
                path = self._beside(suffix)
                replace_file(Path(path), bytes(entries.data), is_durable=False)
                self._files.close(path)  # the file that it was is another one
            self._offsets = self._times = None
            self._give_memory_back()

    def is_as_written(self) -> bool:
        """Tell whether the file is open, and has a name and the size that it was left with: then nobody changed it."""
        descriptor, closed_count = self._descriptor
        if closed_count != self._files.closed_count:
            return False
        try:
            status = os.fstat(descriptor)
        except OSError:
            return False
        return status.st_nlink > 0 and status.st_size == self.size_bytes

    def flush(self) -> None:
        """Make what was written durable.

        Raises:
            OSError: the disk has failed.
        """
        os.fsync(self._files.writing(self.path))

    def let_go(self) -> None:
        """Close its files."""
        for path in (self.path, *map(self._beside, INDEX_SUFFIXES)):
            self._files.close(path)
        self._give_memory_back()

    def retire(self) -> None:
        """Another segment has its place, and its name: whoever still reads it must not read that."""
        self.let_go()
        self._is_released = True

    def _give_memory_back(self) -> None:
        self._memory.give_back(self._taken_bytes)
        self._taken_bytes = 0

    def release(self) -> None:
        """Delete its files.

        Raises:
            FailedLogError: they can't be deleted.
        """
        self.let_go()
        self._is_released = True
        try:
            for path in (*map(self._beside, INDEX_SUFFIXES), self.path):
                Path(path).unlink(missing_ok=True)
        except OSError as error:
            raise FailedLogError(f"{path} can't be deleted: {error}") from error

    # ------------------------------------------------------------ indexes

    def _indexes(self) -> tuple[Entries, Entries]:
        """Return the indexes by offset and by time, from files or made anew."""
        if not self.has_indexes:
            return self._made_anew()
        assert self._offsets is not None
        assert self._times is not None
        return self._offsets, self._times

    @property
    def has_indexes(self) -> bool:
        """Tell whether its indexes are there, in memory or in files that are of this segment."""
        if self._offsets is None or self._times is None:
            self._offsets = self._open_index(_OFFSET_SUFFIX, OFFSET_ENTRY)
            self._times = self._open_index(_TIME_SUFFIX, TIME_ENTRY)
        return self._offsets is not None and self._times is not None

    def was_cut(self, size_bytes: int) -> None:
        """Forget the indexes: the file is shorter than it was found."""
        self.size_bytes = size_bytes
        self._offsets = self._times = None
        self._largest_ms = _NOT_KNOWN_MS
        self._aborted = AbortedEntries(self._files, self._beside(_ABORTED_SUFFIX))

    def _open_index(self, suffix: str, layout: Struct) -> FileEntries | None:
        """Return an index in its file; None if there is none, or none of this segment."""
        path = self._beside(suffix)
        try:
            size = os.path.getsize(path)
            entries = FileEntries(self._files, path, layout, size // layout.size)
            if not size:
                return entries
            first, second = entries[-1]
        except (OSError, StructError):
            return None
        fits = second < self.size_bytes if layout is OFFSET_ENTRY else self.base_offset + second < self.next_offset
        is_blank = first == second == 0 and len(entries) > 1  # as Kafka makes them, larger than they need be
        return entries if fits and not is_blank and not size % layout.size else None

    def _made_anew(self) -> tuple[Entries, Entries]:
        anew = FileSegment(Path(self.path).parent, self.base_offset, self._files, self._memory)
        for _ in anew.scan(self.size_bytes):
            pass
        offsets, times = anew._offsets, anew._times
        assert offsets is not None
        assert times is not None
        self._offsets, self._times, self._taken_bytes = offsets, times, anew._taken_bytes
        self._largest_ms, self._largest_offset = anew._largest_ms, anew._largest_offset
        with contextlib.suppress(OSError):  # then they stay in memory
            self.seal()
            return self._indexes()
        return offsets, times

    def scan(self, size_bytes: int) -> Iterator[Batch]:
        """Note the batches that the file holds, and yield each.

        Args:
            size_bytes: how much of the file to read.

        Raises:
            FailedLogError: the file can't be read.
        """
        for batch in self.headers(0, size_bytes):
            self.note(batch.base_offset, batch.size_bytes, batch.next_offset, batch.max_timestamp_ms)
            yield batch

    # ------------------------------------------------------------ reading

    def headers(
        self, position: int = 0, end: int | None = None, chunk_bytes: int = HEADERS_CHUNK_BYTES
    ) -> Iterator[Batch]:
        """Pass over the batches from a position on, to the end or another position, without their records."""
        end = self.size_bytes if end is None else end
        try:
            yield from read_headers(self._read_at, self.base_offset, position, end, chunk_bytes)
        except InvalidBatchError as error:
            raise FailedLogError(f"{self.path}: {error}") from error

    def headers_as_found(self) -> Iterator[Batch]:
        """Pass over all batches of a file that is just being opened.

        Raises:
            InvalidBatchError: it is corrupt.
            FailedLogError: it can't be read.
        """
        return read_headers(self._read_at, self.base_offset, 0, self.size_bytes)

    def _read_at(self, position: int, size: int) -> bytes:
        if self._is_released:
            raise UnwrittenBatchError(f"{self.path} was deleted while it was read")
        try:
            descriptor = self._files.reading(self.path)
            data = os.pread(descriptor, size, position)
            while len(data) < size:
                more = os.pread(descriptor, size - len(data), position + len(data))
                if not more:
                    raise FailedLogError(f"{self.path} has only {position + len(data)} bytes: it was cut by somebody")
                data += more
        except OSError as error:
            raise FailedLogError(f"{self.path} can't be read: {error.strerror or error}") from error
        return data

    def _floor(self, offset: int) -> int:
        """Return the position of a batch, the nearest that is known, that doesn't end behind an offset."""
        if offset >= self._last_offset:
            return self._last_position
        position = self._read_places.get(offset)  # of somebody who reads batch by batch
        if position is not None:
            return position
        offsets, _ = self._indexes()
        number = bisect_right(offsets, offset - self.base_offset, key=itemgetter(0))
        return offsets[number - 1][1] if number else 0

    def first_batch_ms(self) -> int:
        """See :class:`~groupcoord.storage.segment.Segment`."""
        if self.first_timestamp_ms is None:
            self.first_timestamp_ms = next((batch.max_timestamp_ms for batch in self.headers()), None)
        return NO_TIMESTAMP if self.first_timestamp_ms is None else self.first_timestamp_ms

    def place_of(self, offset: int, ahead_bytes: int = 0) -> Place | None:
        """See :class:`~groupcoord.storage.segment.Segment`."""
        if offset >= self.next_offset:
            return None
        if offset == self._last_offset:  # of somebody who waits for what comes
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
        """Return where the batch at a position ends, for somebody who reads batch by batch; None: go by its header.

        By hand, since each Fetch of a consumer that reads on comes by here: with :meth:`headers` it costs a tenth more.
        """
        wanted = ahead_bytes if BATCH_HEADER_BYTES < ahead_bytes <= AHEAD_BYTES_MAX else BATCH_HEADER_BYTES
        data = self._read_at(position, min(wanted, self.size_bytes - position))
        if len(data) < BATCH_HEADER_BYTES:
            return None
        base_offset, length, _, magic, _, _, last_offset_delta = _BATCH_START_FROM(data)
        end = position + length + LOG_OVERHEAD_BYTES
        if magic != MAGIC_V2 or not position + BATCH_HEADER_BYTES <= end <= self.size_bytes:
            return None
        self._note_read(base_offset + last_offset_delta + 1, end)
        return Place(position, end, memoryview(data))

    def _note_read(self, next_offset: int, end_position: int) -> None:
        """Note where the batch ends that was looked up, for who reads on from there."""
        places = self._read_places
        if next_offset not in places:
            if len(places) == READ_PLACES_MAX:
                del places[next(iter(places))]
            places[next_offset] = end_position

    def end_before(self, offset: int) -> int:
        """See :class:`~groupcoord.storage.segment.Segment`."""
        if offset >= self.next_offset:
            return self.size_bytes
        if offset <= self.base_offset:
            return 0
        for batch in self.headers(self._floor(offset)):
            if batch.base_offset >= offset:
                return batch.position
        return self.size_bytes

    def first_offset_at(self, position: int) -> int:
        """See :class:`~groupcoord.storage.segment.Segment`."""
        offsets, _ = self._indexes()
        number = bisect_right(offsets, position, key=itemgetter(1))
        for batch in self.headers(offsets[number - 1][1] if number else 0):
            if batch.position >= position:
                return batch.base_offset
        return self.next_offset

    def view(self, position: int, end_position: int) -> memoryview:
        """See :class:`~groupcoord.storage.segment.Segment`."""
        return memoryview(self._read_at(position, end_position - position))

    def batches_since(self, timestamp_ms: int, offset: int) -> Iterator[memoryview]:
        """See :class:`~groupcoord.storage.segment.Segment`."""
        _, times = self._indexes()
        number = bisect_right(times, timestamp_ms, key=itemgetter(0))
        since = self.base_offset + times[number - 1][1] if number else self.base_offset
        for batch in self.headers(self._floor(max(since, offset))):
            if batch.max_timestamp_ms >= timestamp_ms and batch.next_offset > offset:
                yield self.view(batch.position, batch.position + batch.size_bytes)


class Room:
    """What may be appended before there is anything else to do than to look at the file: rolling, or a flush.

    Attributes:
        segment: where it goes.
        settings: what was asked when this was worked out.
        checked_ms: the file was looked at in the interval that began then.
        until_ms: it is to be looked at again for a batch of this time or later.
        end_ms: only earlier batches may.
        end_bytes: the segment's size at most. Each record has a byte at least, so that its offset is near enough, too.
    """

    __slots__ = ("checked_ms", "end_bytes", "end_ms", "segment", "settings", "until_ms")

    def __init__(self, segment: Segment, settings: TopicLogSettings, now_ms: int, end_ms: int) -> None:
        assert isinstance(segment, FileSegment)
        self.segment = segment
        self.settings = settings
        self.end_ms = end_ms
        self._was_checked(now_ms)
        reach = segment.base_offset + RELATIVE_OFFSETS_END - segment.next_offset
        self.end_bytes = min(settings.segment_bytes, segment.size_bytes + reach)

    def goes_on(self, now_ms: int) -> bool:
        """Tell, after a look at the file, whether it has room for a batch of this time."""
        if now_ms >= self.end_ms or not self.segment.is_as_written():
            return False
        self._was_checked(now_ms)
        return True

    def _was_checked(self, now_ms: int) -> None:
        self.checked_ms = now_ms - now_ms % CHECK_INTERVAL_MS
        self.until_ms = min(self.checked_ms + CHECK_INTERVAL_MS, self.end_ms)
