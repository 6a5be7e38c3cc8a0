"""Cursors in growing logs: the position in each log partition, and the ranges after it.

If compaction or deletion removed a cursor's file, reading continues at the next existing offset. Only the last file of
a log is walked to its last whole batch, since more may be half written.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, NamedTuple

from attrs import frozen
from fsspec import AbstractFileSystem
from fsspec.implementations.local import LocalFileSystem

from groupcoord.analysis.decode.files import (
    FileRange,
    FileSet,
    LogChangedError,
    SegmentFile,
    name_of,
    partition_of,
    reader_of,
)
from groupcoord.analysis.decode.rows import ByteRange
from groupcoord.records.batches import Batch, InvalidBatchError, TruncatedBatchError, iter_batches
from groupcoord.records.salvage import ReadAt, find_batch

CHUNK_BYTES = 4_194_304


@contextmanager
def deletions_as_log_changes() -> Iterator[None]:
    try:
        yield
    except FileNotFoundError as error:
        raise LogChangedError(f"{error.filename or error} was deleted while it was read; start again") from error


class Cursor(NamedTuple):
    """A position in one log.

    Attributes:
        file: the name of the file in the log's folder.
        position: the end of the last batch that was read, in bytes.
        next_offset: log offset below which everything was read.
        batch_position: the start of the last batch that was read; with another batch there, the file is another one.
    """

    file: str
    position: int
    next_offset: int
    batch_position: int

    def is_at(self, end: Cursor) -> bool:
        return self.next_offset >= end.next_offset


Cursors = dict[str, Cursor]


@frozen
class Log:
    """The segment files of one folder, in order of their offsets."""

    file_system: AbstractFileSystem
    segments: tuple[SegmentFile, ...]


def logs_of(found: Iterable[FileSet]) -> dict[str, Log]:
    folders: dict[str, tuple[AbstractFileSystem, dict[str, SegmentFile]]] = {}
    for files in found:
        for segment in files.segments:
            if segment.unread is None:
                folder = segment.name.rpartition("/")[0]
                folders.setdefault(folder, (files.file_system, {}))[1][segment.path] = segment
    return {
        folder: Log(file_system, tuple(sorted(segments.values(), key=_order)))
        for folder, (file_system, segments) in sorted(folders.items())
    }


def to_json(cursors: Mapping[str, Cursor]) -> dict[str, Any]:
    return {folder: cursor._asdict() for folder, cursor in sorted(cursors.items())}


def from_json(value: Mapping[str, Any]) -> Cursors:
    return {folder: Cursor(**cursor) for folder, cursor in value.items()}


def advance(log: Log, cursor: Cursor | None, bytes_max: int | None = None) -> Cursor:
    """Return the cursor at the end of a log, or about ``bytes_max`` bytes further on."""
    index, position = _locate(log, cursor)
    last = len(log.segments) - 1
    room = bytes_max
    if room is None:
        index, position = (index, position) if index == last else (last, 0)
    else:
        while index < last and log.segments[index].size_bytes - position <= room:
            room -= log.segments[index].size_bytes - position
            index, position = index + 1, 0
    segment = log.segments[index]
    walked = _walk(log, segment, position, room)
    if index < last and not walked.is_cut:
        # The rest of a file that is complete is damaged; the next one begins without it.
        index, segment, walked = index + 1, log.segments[index + 1], walked._replace(position=0, batch_position=0)
    next_offset = max(0 if cursor is None else cursor.next_offset, _base_offset(segment), walked.next_offset)
    batch_position = walked.batch_position
    if cursor is not None and walked.position == cursor.position and name_of(segment.path) == cursor.file:
        batch_position = cursor.batch_position
    return Cursor(name_of(segment.path), walked.position, next_offset, batch_position)


def ranges_between(log: Log, start: Cursor | None, end: Cursor) -> Iterator[FileRange]:
    """Yield the byte ranges between two cursors, as the log's files are now."""
    first, position = _locate(log, start)
    last, last_position = _locate(log, end)
    for index in range(first, last + 1):
        segment = log.segments[index]
        range_end = last_position if index == last else segment.size_bytes
        range_start = position if index == first else 0
        if range_start < range_end:
            yield FileRange(segment, ByteRange(range_start, range_end, range_end, is_boundary=True))


def ranges_to_read(
    logs: Mapping[str, Log], before: Mapping[str, Cursor], after: Mapping[str, Cursor]
) -> dict[AbstractFileSystem, list[FileRange]]:
    found: dict[AbstractFileSystem, list[FileRange]] = {}
    for folder, cursor in after.items():
        start = before.get(folder)
        if cursor == start:
            continue
        if folder in logs:
            ranges = found.setdefault(logs[folder].file_system, [])
            ranges += ranges_between(logs[folder], start, cursor)
        else:
            gone = SegmentFile(folder, folder, partition_of(folder), 0, "the log is gone")
            found.setdefault(LocalFileSystem(), []).append(FileRange(gone, ByteRange(0, 0, 0)))
    return found


def _base_offset(segment: SegmentFile) -> int:
    stem = name_of(segment.path).partition(".")[0]
    return int(stem) if stem.isdecimal() else 0


def _order(segment: SegmentFile) -> tuple[int, str]:
    return _base_offset(segment), segment.path


def _locate(log: Log, cursor: Cursor | None) -> tuple[int, int]:
    if cursor is None:
        return 0, 0
    for index, segment in enumerate(log.segments):
        if name_of(segment.path) == cursor.file and _is_there(log, segment, cursor):
            return index, cursor.position
    below = [index for index, segment in enumerate(log.segments) if _base_offset(segment) <= cursor.next_offset]
    if not below:
        return 0, 0
    return below[-1], _walk(log, log.segments[below[-1]], 0, None, below=cursor.next_offset).position


def _is_there(log: Log, segment: SegmentFile, cursor: Cursor) -> bool:
    if cursor.position == 0:
        return True
    start = cursor.batch_position
    last = reader_of(log.file_system, segment)(start, cursor.position - start)
    try:
        return [batch.next_offset for batch in iter_batches(last)] == [cursor.next_offset]
    except InvalidBatchError:
        return False


class _Walked(NamedTuple):
    """End of a walk through a file: position, offset (0 if unknown), last batch, and whether it was cut."""

    position: int
    next_offset: int
    batch_position: int
    is_cut: bool


def _walk(log: Log, segment: SegmentFile, position: int, room: int | None, *, below: int | None = None) -> _Walked:
    walked = _Walked(position, 0, 0, is_cut=False)
    limit = segment.size_bytes if room is None else position + max(room, 1)
    for batch in _batches(reader_of(log.file_system, segment), position, segment.size_bytes):
        if (below is not None and batch.next_offset > below) or walked.position >= limit:
            return walked._replace(is_cut=True)
        walked = _Walked(batch.position + batch.size_bytes, batch.next_offset, batch.position, is_cut=False)
    return walked


def _batches(read_at: ReadAt, position: int, size: int) -> Iterator[Batch]:
    wanted = CHUNK_BYTES
    while position < size:
        chunk = read_at(position, min(wanted, size - position))
        wanted = CHUNK_BYTES
        end, error = position, None
        try:
            for batch in iter_batches(chunk, base_position=position):
                yield batch
                end = batch.position + batch.size_bytes
        except InvalidBatchError as caught:
            error = caught
        if isinstance(error, TruncatedBatchError) and position + len(chunk) < size:
            if end == position and error.size_bytes <= size - position:
                wanted = error.size_bytes
                continue
            if end > position:
                error = None
        position = end if error is None else find_batch(read_at, end + 1, size)
        if not chunk:
            return
