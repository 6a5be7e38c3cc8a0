"""Segment files of paths and URLs, read through fsspec, and the tasks that they are cut into.

A remote store lists a folder in one request, and several folders are listed at a time.
"""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from itertools import chain, groupby, pairwise
from typing import Any, NamedTuple, TypeVar

import pyarrow as pa
import pyarrow.compute as pc
from attrs import evolve, frozen
from fsspec import AbstractFileSystem
from fsspec.core import url_to_fs

from groupcoord.analysis.decode.rows import ByteRange, Origin, RangeReader, RowSettings, corrupt_row
from groupcoord.analysis.errors import InputError, PipelineError, first_line
from groupcoord.analysis.options import EVERYTHING, Selection
from groupcoord.records.salvage import ReadAt
from groupcoord.storage.files import (
    OFFSETS_FOLDER,
    OTHER_FILES,
    PARTITION_FOLDER,
    SEGMENT_SUFFIX,
    SWAP_SUFFIX,
    found_in_some,
)

INTERRUPTED = "not read; compaction was interrupted when it wrote this"
"""Problem of files that a crashed compaction left; the segments hold their records, too."""

ASKED_MAX = 32
Found = TypeVar("Found")


class SegmentFile(NamedTuple):
    """One file to read.

    Attributes:
        name: the path of a local file, otherwise a URL.
        unread: the reason why it is not read, or None.
        identity: differs from that of a later file of this name; None if the file system has none.
    """

    path: str
    name: str
    partition: int | None
    size_bytes: int
    unread: str | None = None
    identity: int | str | None = None


def _listed(file_system: AbstractFileSystem, path: str) -> tuple[list[SegmentFile], list[str]]:
    """Return the segments in a folder by name, then files left by compaction, and the log partitions by number.

    There are no segments if only files left by compaction exist.
    """
    # Without indexes, which are most of the files in a folder.
    infos = [info for info in file_system.ls(path, detail=True) if _counts(name_of(info["name"]))]
    infos = [file_system.info(info["name"]) if info.get("islink") else info for info in infos]
    infos.sort(key=lambda info: name_of(info["name"]))
    files = [segment_of(file_system, info) for info in infos if info["type"] == "file"]
    segments = [one for one in files if one.path.endswith(SEGMENT_SUFFIX)]
    left = [one._replace(unread=INTERRUPTED) for one in files if one.path.endswith(SWAP_SUFFIX)]
    folders = [info["name"] for info in infos if info["type"] == "directory"]
    numbered = [(int(match[1]), path) for path in folders if (match := OFFSETS_FOLDER.fullmatch(name_of(path)))]
    return [*segments, *left] if segments else [], [path for _, path in sorted(numbered)]


def _counts(name: str) -> bool:
    return name.endswith((SEGMENT_SUFFIX, SWAP_SUFFIX)) or OFFSETS_FOLDER.fullmatch(name) is not None


def segment_of(file_system: AbstractFileSystem, info: Mapping[str, Any]) -> SegmentFile:
    path: str = info["name"]
    name = path
    if not is_local(file_system):
        name = file_system.unstrip_protocol(path)
    elif not os.access(path, os.R_OK):
        raise PermissionError(path)
    partition = partition_of(path.rpartition("/")[0])
    return SegmentFile(path, name, partition, int(info["size"]), identity=_identity(info))


def _identity(info: Mapping[str, Any]) -> int | str | None:
    identity: int | str | None = info.get("ino", info.get("ETag"))
    return identity


def each(file_system: AbstractFileSystem, ask: Callable[[str], Found], paths: Sequence[str]) -> list[Found]:
    """Return the result of ``ask`` for each path, several at a time if the file system supports that."""
    if not file_system.async_impl or len(paths) < 2:
        return [ask(path) for path in paths]
    with ThreadPoolExecutor(min(ASKED_MAX, len(paths))) as pool:
        return list(pool.map(ask, paths))


def protocols_of(file_system: AbstractFileSystem) -> tuple[str, ...]:
    return (file_system.protocol,) if isinstance(file_system.protocol, str) else tuple(file_system.protocol)


def is_local(file_system: AbstractFileSystem) -> bool:
    return "file" in protocols_of(file_system)


def name_of(path: str) -> str:
    return path.rstrip("/").rpartition("/")[2]


def partition_of(folder: str) -> int | None:
    """Return the log partition in the name of a folder, or None."""
    match = PARTITION_FOLDER.fullmatch(name_of(folder))
    return int(match[1]) if match else None


SPLIT_BYTES = 67_108_864
"""Approximate size of a task."""

_GLOB = frozenset("*?[")


class _NoFolderError(InputError):
    """A directory has no log partitions; with several directories another one may have all."""


class FileSet(NamedTuple):
    """Segment files of one path, and their file system."""

    file_system: AbstractFileSystem
    segments: list[SegmentFile]

    def ranges(self) -> Iterator[FileRange]:
        return (FileRange(one, ByteRange(0, one.size_bytes, one.size_bytes)) for one in self.segments)


class FileRange(NamedTuple):
    """A byte range of a segment file."""

    segment: SegmentFile
    byte_range: ByteRange


def find_segments(
    paths: Iterable[str | os.PathLike[str]],
    *,
    storage_options: Mapping[str, Any] | None = None,
    partitions: frozenset[int] = frozenset(),
    may_be_empty: bool = False,
) -> list[FileSet]:
    """Return the segment files for paths: files, folders of segments, and whole data directories.

    A path may contain ``*``, ``?`` and ``[…]``. Log partitions come by number, segments by offset. With several paths,
    some may be directories without log partitions.
    """
    given = [os.fspath(path) for path in paths]
    if not given:
        raise InputError("no path is given")
    found = found_in_some(
        lambda path: _find(path, storage_options or {}, may_be_empty=may_be_empty), given, _NoFolderError
    )
    if partitions:
        found = [
            files._replace(segments=[one for one in files.segments if one.partition in partitions]) for files in found
        ]
        if not may_be_empty and not any(files.segments for files in found):
            raise InputError(f"{', '.join(given)}: there are no such log partitions")
    if not may_be_empty and not any(segment.size_bytes for files in found for segment in files.segments):
        raise InputError(f"{', '.join(given)}: the segment files are empty")
    return found


@contextmanager
def errors_as_input_errors(path: str) -> Iterator[None]:
    """Convert errors of a file system to InputError."""
    try:
        yield
    except InputError:
        raise
    except FileNotFoundError:
        raise InputError(f"{path}: there is no such file or directory") from None
    except PermissionError:
        raise InputError(f"{path}: permission denied") from None
    except Exception as error:
        # The libraries behind URLs may raise anything: wrong credentials are not always an OSError.
        reason = error.strerror if isinstance(error, OSError) else None
        raise InputError(f"{path}: {reason or first_line(error)}") from error


def _find(path: str, storage_options: Mapping[str, Any], *, may_be_empty: bool) -> FileSet:
    with errors_as_input_errors(path):
        file_system, root = url_to_fs(path, **storage_options)
        file_system.invalidate_cache()
        return FileSet(file_system, _segments_of(file_system, root, path, may_be_empty=may_be_empty))


def _segments_of(file_system: AbstractFileSystem, root: str, path: str, *, may_be_empty: bool) -> list[SegmentFile]:
    if _GLOB & set(root):
        return _matching(file_system, root, path, may_be_empty=may_be_empty)
    info = file_system.info(root)
    if info["type"] != "directory":
        if OTHER_FILES.fullmatch(name_of(root)):
            raise InputError(f"{path} is no segment file; those end in {SEGMENT_SUFFIX}")
        return [segment_of(file_system, info)]
    return _in_folder(file_system, root, path, may_be_empty=may_be_empty)


def _matching(file_system: AbstractFileSystem, pattern: str, path: str, *, may_be_empty: bool) -> list[SegmentFile]:
    matching = sorted(file_system.glob(pattern))
    if not matching and not may_be_empty:
        raise InputError(f"{path}: nothing matches")
    held = each(
        file_system,
        lambda one: _segments_of(file_system, one, one, may_be_empty=may_be_empty),
        [one for one in matching if _may_hold(one)],
    )
    found = [segment for segments in held for segment in segments]
    if not found and not may_be_empty:
        raise InputError(f"{path}: none of what matches is a segment file; those end in {SEGMENT_SUFFIX}")
    return found


def _in_folder(file_system: AbstractFileSystem, root: str, path: str, *, may_be_empty: bool) -> list[SegmentFile]:
    segments, partitions = _listed(file_system, root)
    if segments:
        return segments
    listed = each(file_system, partial(_listed, file_system), partitions)
    found = [one for segments, _ in listed for one in segments]
    if not found and not may_be_empty:
        reason = f"{path} holds no segment files (*{SEGMENT_SUFFIX})"
        if partitions or PARTITION_FOLDER.fullmatch(name_of(root)):
            raise InputError(reason)
        raise _NoFolderError(f"{reason} and no log partitions")
    return found


def _may_hold(path: str) -> bool:
    """Return whether to read a match of a pattern, which may have no segments."""
    name = name_of(path)
    return name.endswith(SEGMENT_SUFFIX) or OFFSETS_FOLDER.fullmatch(name) is not None


class LogChangedError(PipelineError):
    """A file was replaced or deleted while it was read; listing the logs again helps."""


def is_unchanged(file_system: AbstractFileSystem, segment: SegmentFile) -> bool:
    try:
        info = file_system.info(segment.path)
    except FileNotFoundError:
        return False
    return _identity(info) == segment.identity


def cut_ranges(ranges: Iterable[FileRange], split_bytes: int = SPLIT_BYTES) -> list[list[FileRange]]:
    """Cut ranges of files into tasks of about ``split_bytes``, in order and without gaps; small ones share a task."""
    tasks: list[list[FileRange]] = []
    room = 0
    for segment, whole in ranges:
        size_bytes = whole.end - whole.start
        pieces = max(1, round(size_bytes / split_bytes))
        bounds = [whole.start + size_bytes * number // pieces for number in range(pieces + 1)]
        for start, end in pairwise(bounds):
            if not tasks or end - start > room:
                tasks.append([])
                room = split_bytes
            is_boundary = whole.is_boundary and start == whole.start
            tasks[-1].append(FileRange(segment, ByteRange(start, end, whole.file_bytes, is_boundary)))
            room -= end - start
    return tasks


def reader_of(file_system: AbstractFileSystem, segment: SegmentFile) -> ReadAt:
    def read_at(position: int, size: int) -> bytes:
        return bytes(file_system.cat_file(segment.path, start=position, end=position + size))

    return read_at


Runs = Iterator[tuple[int | None, Iterator[pa.RecordBatch]]]


class RecordTask(ABC):
    """Part of a log to read, from any source."""

    selection: Selection

    def rows(self, settings: RowSettings) -> Iterator[pa.RecordBatch]:
        return chain.from_iterable(rows for _, rows in self.runs(settings))

    def runs(self, settings: RowSettings) -> Runs:
        """Yield the rows of each run of one log partition, with its number."""
        if not self.selection.excluded_groups:
            yield from self._all_runs(settings)
            return
        columns = settings.columns if "group_id" in settings.columns else (*settings.columns, "group_id")
        for partition, rows in self._all_runs(evolve(settings, columns=columns)):
            kept = selected_rows(rows, self.selection)
            yield partition, (batch.select(list(settings.columns)) for batch in kept)

    @abstractmethod
    def check_unchanged(self) -> None:
        """Raise LogChangedError if the task has read another file than was listed."""

    @abstractmethod
    def _all_runs(self, settings: RowSettings) -> Runs: ...


@frozen
class LogTask(RecordTask):
    """Byte ranges of files in one file system."""

    file_system: AbstractFileSystem
    ranges: list[FileRange]
    selection: Selection = EVERYTHING

    def _all_runs(self, settings: RowSettings) -> Runs:
        for partition, ranges in groupby(self.ranges, lambda found: found.segment.partition):
            yield partition, rows_of_files(self.file_system, ranges, settings)

    def check_unchanged(self) -> None:
        for segment, _ in self.ranges:
            if segment.unread is None and not is_unchanged(self.file_system, segment):
                raise LogChangedError(f"{segment.name} was replaced or deleted while it was read; start again")


def selected_rows(batches: Iterable[pa.RecordBatch], selection: Selection) -> Iterator[pa.RecordBatch]:
    """Yield rows with a column ``group_id``, without those of excluded groups."""
    excluded: dict[str | None, bool] = {None: False}
    for batch in batches:
        groups = batch.column("group_id").dictionary_encode()
        names = groups.dictionary.to_pylist()
        for name in names:
            if name not in excluded:
                excluded[name] = selection.excludes(name)
        if any(excluded[name] for name in names):
            index = pc.fill_null(groups.indices, len(names))
            batch = batch.filter(pa.array([not excluded[name] for name in (*names, None)]).take(index))
        yield batch


def range_tasks(
    found: Iterable[tuple[AbstractFileSystem, Iterable[FileRange]]],
    split_bytes: int = SPLIT_BYTES,
    selection: Selection = EVERYTHING,
) -> list[LogTask]:
    return [LogTask(system, some, selection) for system, ranges in found for some in cut_ranges(ranges, split_bytes)]


def log_tasks(
    found: Iterable[FileSet], split_bytes: int = SPLIT_BYTES, selection: Selection = EVERYTHING
) -> list[LogTask]:
    return range_tasks(((files.file_system, files.ranges()) for files in found), split_bytes, selection)


def rows_of_files(
    file_system: AbstractFileSystem, ranges: Iterable[FileRange], settings: RowSettings
) -> Iterator[pa.RecordBatch]:
    """Yield the rows of ranges. A missing file becomes a row of kind ``corrupt``; other errors are raised."""
    for segment, byte_range in ranges:
        origin, problem = Origin(segment.name, segment.partition), segment.unread
        if problem is None:
            try:
                yield from RangeReader(reader_of(file_system, segment), byte_range, origin, settings).rows()
            except FileNotFoundError:
                problem = "the file is gone"
        if problem is not None:
            yield corrupt_row(origin, settings, byte_range.start, byte_range.end - byte_range.start, problem)
