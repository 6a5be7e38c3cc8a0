"""Which files a path stands for, wherever they are, and how they are cut into pieces of work.

Files are found and read through fsspec, so that a path may be a local one or a URL: ``s3://…``, ``gs://…``,
``abfs://…``, ``hdfs://…``, ``zip://…``.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from itertools import pairwise
from pathlib import PurePosixPath
from typing import Any, NamedTuple, TypeVar

from fsspec import AbstractFileSystem
from fsspec.core import url_to_fs

from groupcoord.columns.errors import InputError, first_line
from groupcoord.columns.ranges import ByteRange
from groupcoord.records.range_checksums import ReadAt
from groupcoord.storage.file_names import OFFSETS_FOLDER, OTHER_FILES, PARTITION_FOLDER, SEGMENT_SUFFIX, SWAP_SUFFIX

SPLIT_BYTES = 67_108_864
"""How much of a log one task reads, about."""

INTERRUPTED = "not read; compaction was interrupted when it wrote this"
"""Why the files are passed over that a crash of a broker leaves: what is in them is in the segments too."""

ASKED_MAX = 32
"""So many folders are listed at a time."""

_GLOB = frozenset("*?[")

Found = TypeVar("Found")


class SegmentFile(NamedTuple):
    """One file to read.

    Attributes:
        path: in its file system.
        name: for people: the path of a local file, else a URL.
        partition: the log partition that its folder's name tells, or None.
        size_bytes: when it was found.
        unread: why it is passed over, if it is.
        identity: what tells it from another that takes its name; None if the file system does not say.
    """

    path: str
    name: str
    partition: int | None
    size_bytes: int
    unread: str | None = None
    identity: int | str | None = None


class FileSet(NamedTuple):
    """The segment files of one path, and the file system that they are in."""

    file_system: AbstractFileSystem
    segments: list[SegmentFile]


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
    """Return the segment files that paths stand for: files, folders of segments, and whole data directories.

    A path may have ``*``, ``?`` and ``[…]`` in it. Log partitions come in order of their numbers, segments in order of
    their offsets.

    Args:
        paths: local paths or URLs.
        storage_options: for the file system that the URL names.
        partitions: only these log partitions; all if empty.
        may_be_empty: take it that folders and patterns hold nothing as yet.

    Raises:
        InputError: a path does not exist, may not be read, or there is no segment with anything in it.
    """
    given = [os.fspath(path) for path in paths]
    if not given:
        raise InputError("no path is given")
    found = [_find(path, storage_options or {}, may_be_empty) for path in given]
    if partitions:
        found = [
            files._replace(segments=[one for one in files.segments if one.partition in partitions]) for files in found
        ]
        if not may_be_empty and not any(files.segments for files in found):
            raise InputError(f"{', '.join(given)}: none of the log partitions asked for is there")
    if not may_be_empty and not any(segment.size_bytes for files in found for segment in files.segments):
        raise InputError(f"{', '.join(given)}: the segment files are empty")
    return found


def _find(path: str, storage_options: Mapping[str, Any], may_be_empty: bool) -> FileSet:
    with refusals_told(path):
        file_system, root = url_to_fs(path, **storage_options)
        file_system.invalidate_cache()
        return FileSet(file_system, _segments_of(file_system, root, path, may_be_empty))


@contextmanager
def refusals_told(path: str) -> Iterator[None]:
    """Turn what a file system raises into errors for people.

    Raises:
        InputError: the path can't be used.
    """
    try:
        yield
    except InputError:
        raise
    except FileNotFoundError:
        raise InputError(f"{path}: there is no such file or directory") from None
    except PermissionError:
        raise InputError(f"{path}: permission denied") from None
    except Exception as error:
        # The libraries behind URLs raise what they like: wrong credentials are no OSError everywhere.
        reason = error.strerror if isinstance(error, OSError) else None
        raise InputError(f"{path}: {reason or first_line(error)}") from error


def _segments_of(file_system: AbstractFileSystem, root: str, path: str, may_be_empty: bool) -> list[SegmentFile]:
    if _GLOB & set(root):
        roots = sorted(file_system.glob(root))
        if not roots and not may_be_empty:
            raise InputError(f"{path}: nothing matches")
        held = _each(file_system, partial(_held, file_system, may_be_empty), [one for one in roots if _may_hold(one)])
        found = [segment for segments in held for segment in segments]
        if not found and not may_be_empty:
            raise InputError(f"{path}: none of what matches is a segment file; those end in {SEGMENT_SUFFIX}")
        return found
    info = file_system.info(root)
    if info["type"] != "directory":
        if OTHER_FILES.fullmatch(PurePosixPath(root).name):
            raise InputError(f"{path} is no segment file; those end in {SEGMENT_SUFFIX}")
        return [_segment(file_system, info)]
    return _in_folder(file_system, root, path, may_be_empty)


def _held(file_system: AbstractFileSystem, may_be_empty: bool, path: str) -> list[SegmentFile]:
    return _segments_of(file_system, path, path, may_be_empty)


def _each(file_system: AbstractFileSystem, ask: Callable[[str], Found], paths: Sequence[str]) -> list[Found]:
    """Return what a file system answers about each path; several are asked at a time if it can bear that."""
    if not (file_system.async_impl or _is_local(file_system)) or len(paths) < 2:
        return [ask(path) for path in paths]
    with ThreadPoolExecutor(min(ASKED_MAX, len(paths))) as pool:
        return list(pool.map(ask, paths))


def _is_local(file_system: AbstractFileSystem) -> bool:
    return "file" in ((file_system.protocol,) if isinstance(file_system.protocol, str) else file_system.protocol)


def _may_hold(path: str) -> bool:
    """Tell whether to look at what a pattern matches: unlike a path that is named, it need not hold anything."""
    name = PurePosixPath(path).name
    return name.endswith(SEGMENT_SUFFIX) or OFFSETS_FOLDER.fullmatch(name) is not None


def _in_folder(file_system: AbstractFileSystem, folder: str, path: str, may_be_empty: bool) -> list[SegmentFile]:
    listed = file_system.ls(folder, detail=True)
    found = _listed_segments(file_system, listed)
    if found:
        return found
    partitions = [
        (int(match[1]), info["name"])
        for info in listed
        if info["type"] == "directory" and (match := OFFSETS_FOLDER.fullmatch(_name(info)))
    ]
    for inner in _each(file_system, partial(file_system.ls, detail=True), [name for _, name in sorted(partitions)]):
        found += _listed_segments(file_system, inner)
    if not found and not may_be_empty:
        what = "" if partitions or PARTITION_FOLDER.fullmatch(PurePosixPath(folder).name) else " and no log partitions"
        raise InputError(f"{path} holds no segment files (*{SEGMENT_SUFFIX}){what}")
    return found


def _name(info: Mapping[str, Any]) -> str:
    return PurePosixPath(info["name"].rstrip("/")).name


def _listed_segments(file_system: AbstractFileSystem, listed: Iterable[Mapping[str, Any]]) -> list[SegmentFile]:
    """Return the segments of a folder in order, with what compaction left beside them; nothing if there are none."""
    files = sorted((info for info in listed if info["type"] == "file"), key=_name)
    found = [_segment(file_system, info) for info in files if _name(info).endswith(SEGMENT_SUFFIX)]
    if found:
        left = [_segment(file_system, info) for info in files if _name(info).endswith(SWAP_SUFFIX)]
        found += [segment._replace(unread=INTERRUPTED) for segment in left]
    return found


def _segment(file_system: AbstractFileSystem, info: Mapping[str, Any]) -> SegmentFile:
    path: str = info["name"]
    is_local = _is_local(file_system)
    if is_local and not os.access(path, os.R_OK):
        raise PermissionError(path)
    name = path if is_local else file_system.unstrip_protocol(path)
    partition = partition_of(str(PurePosixPath(path).parent))
    return SegmentFile(path, name, partition, int(info["size"]), identity=info.get("ino", info.get("ETag")))


def partition_of(folder: str) -> int | None:
    """Return the log partition that a folder's name tells, or None."""
    match = PARTITION_FOLDER.fullmatch(PurePosixPath(folder).name)
    return int(match[1]) if match else None


def is_unchanged(file_system: AbstractFileSystem, segment: SegmentFile) -> bool:
    """Tell whether a file is still the one that was found, though it may have grown."""
    try:
        info = file_system.info(segment.path)
    except FileNotFoundError:
        return False
    return bool(info.get("ino", info.get("ETag")) == segment.identity)


def cut(segments: Sequence[SegmentFile], split_bytes: int = SPLIT_BYTES) -> list[list[FileRange]]:
    """Cut segments into tasks of about ``split_bytes``: large files into ranges, and small files together.

    Every byte of every file is in one range; the ranges of a task lie in order.
    """
    whole = [FileRange(segment, ByteRange(0, segment.size_bytes, segment.size_bytes)) for segment in segments]
    return cut_ranges(whole, split_bytes)


def cut_ranges(ranges: Iterable[FileRange], split_bytes: int = SPLIT_BYTES) -> list[list[FileRange]]:
    """Cut ranges of files into tasks of about ``split_bytes``, and put small ones together, in order."""
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
    """Return what reads bytes of a segment file."""

    def read_at(position: int, size: int) -> bytes:
        return bytes(file_system.cat_file(segment.path, start=position, end=position + size))

    return read_at
