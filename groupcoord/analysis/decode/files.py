"""Which files a path stands for, wherever they are, and how they are cut into pieces of work.

Files are found and read through fsspec, so that a path may be a local one or a URL: ``s3://…``, ``gs://…``,
``abfs://…``, ``hdfs://…``, ``zip://…``.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import pairwise
from typing import Any, NamedTuple

from fsspec import AbstractFileSystem
from fsspec.core import url_to_fs

from groupcoord.analysis.decode.errors import InputError, first_line
from groupcoord.analysis.decode.folders import Folders, SegmentFile, each, name_of, segment_of
from groupcoord.analysis.decode.ranges import ByteRange
from groupcoord.records.range_checksums import ReadAt
from groupcoord.storage.file_names import OFFSETS_FOLDER, OTHER_FILES, PARTITION_FOLDER, SEGMENT_SUFFIX
from groupcoord.storage.log_directory import found_in_some

SPLIT_BYTES = 67_108_864
"""How much of a log one task reads, about."""

_GLOB = frozenset("*?[")


class _NoFolderError(InputError):
    """A directory has no log partitions: of several, such as those of brokers, another one may have all."""


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
    folders: Folders | None = None,
) -> list[FileSet]:
    """Return the segment files that paths stand for: files, folders of segments, and whole data directories.

    A path may have ``*``, ``?`` and ``[…]`` in it. Log partitions come in order of their numbers, segments in order of
    their offsets. Where several paths are given, some may be directories without log partitions.

    Args:
        paths: local paths or URLs.
        storage_options: for the file system that the URL names.
        partitions: only these log partitions; all if empty.
        may_be_empty: take it that folders and patterns hold nothing as yet.
        folders: what was found before, if this is asked again and again.

    Raises:
        InputError: a path does not exist, may not be read, or there is no segment with anything in it.
    """
    given = [os.fspath(path) for path in paths]
    if not given:
        raise InputError("no path is given")
    looking = _Looking(Folders() if folders is None else folders, may_be_empty)
    found = found_in_some(lambda path: looking.find(path, storage_options or {}), given, _NoFolderError)
    if partitions:
        found = [
            files._replace(segments=[one for one in files.segments if one.partition in partitions]) for files in found
        ]
        if not may_be_empty and not any(files.segments for files in found):
            raise InputError(f"{', '.join(given)}: none of the log partitions asked for is there")
    if not may_be_empty and not any(segment.size_bytes for files in found for segment in files.segments):
        raise InputError(f"{', '.join(given)}: the segment files are empty")
    return found


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


class _Looking(NamedTuple):
    """How files are looked for: with what is known of folders, and whether they may be empty."""

    folders: Folders
    may_be_empty: bool

    def find(self, path: str, storage_options: Mapping[str, Any]) -> FileSet:
        with refusals_told(path):
            file_system, root = url_to_fs(path, **storage_options)
            file_system.invalidate_cache()
            return FileSet(file_system, self._segments_of(file_system, root, path))

    def _segments_of(self, file_system: AbstractFileSystem, root: str, path: str) -> list[SegmentFile]:
        if _GLOB & set(root):
            return self._matching(file_system, root, path)
        info = file_system.info(root)
        if info["type"] != "directory":
            if OTHER_FILES.fullmatch(name_of(root)):
                raise InputError(f"{path} is no segment file; those end in {SEGMENT_SUFFIX}")
            return [segment_of(file_system, info)]
        return self._in_folder(file_system, root, path)

    def _matching(self, file_system: AbstractFileSystem, pattern: str, path: str) -> list[SegmentFile]:
        matching = sorted(file_system.glob(pattern))
        if not matching and not self.may_be_empty:
            raise InputError(f"{path}: nothing matches")
        held = each(
            file_system,
            lambda one: self._segments_of(file_system, one, one),
            [one for one in matching if _may_hold(one)],
        )
        found = [segment for segments in held for segment in segments]
        if not found and not self.may_be_empty:
            raise InputError(f"{path}: none of what matches is a segment file; those end in {SEGMENT_SUFFIX}")
        return found

    def _in_folder(self, file_system: AbstractFileSystem, root: str, path: str) -> list[SegmentFile]:
        (folder,) = self.folders.look(file_system, [root])
        if folder.segments:
            return list(folder.segments)
        found = [one for inner in self.folders.look(file_system, folder.partitions) for one in inner.segments]
        if not found and not self.may_be_empty:
            told = f"{path} holds no segment files (*{SEGMENT_SUFFIX})"
            if folder.partitions or PARTITION_FOLDER.fullmatch(name_of(root)):
                raise InputError(told)
            raise _NoFolderError(f"{told} and no log partitions")
        return found


def _may_hold(path: str) -> bool:
    """Tell whether to look at what a pattern matches: unlike a path that is named, it need not hold anything."""
    name = name_of(path)
    return name.endswith(SEGMENT_SUFFIX) or OFFSETS_FOLDER.fullmatch(name) is not None


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
