"""What folders hold: segment files, and folders of log partitions.

Whoever follows logs asks this again and again, of folders where hardly anything has changed. On this machine the time
at which a folder was changed tells whether files have come, gone or taken another's place; if they haven't, only the
last segment can have grown. So a look at a log partition of a thousand segments asks the system about two files. A
store that is reached over a network tells everything about the files of a folder in one answer, and is asked for
several folders at a time.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from typing import Any, NamedTuple, TypeVar

from fsspec import AbstractFileSystem

from groupcoord.storage.file_names import OFFSETS_FOLDER, PARTITION_FOLDER, SEGMENT_SUFFIX, SWAP_SUFFIX

INTERRUPTED = "not read; compaction was interrupted when it wrote this"
"""Why the files are passed over that a crash of a broker leaves: what is in them is in the segments too."""

ASKED_MAX = 32
"""So many folders are asked for at a time."""

SETTLED_NS = 2_000_000_000
"""A folder changed less than this ago may change again without another time: some systems know even seconds only."""

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


class Folder(NamedTuple):
    """What a folder holds.

    Attributes:
        segments: in order of their names, with what compaction left behind them; none if there are no others.
        partitions: the paths of folders of log partitions, in order of their numbers.
    """

    segments: tuple[SegmentFile, ...]
    partitions: tuple[str, ...]


class _Seen(NamedTuple):
    """A folder as it was found, when it had been changed last, and the number of the segment that may grow, if any."""

    folder: Folder
    changed_ns: int
    growing: int | None


class Folders:
    """Looks into folders, and remembers what was in those of this machine.

    Args:
        now_ns: the time, in nanoseconds since 1970, by the clock of the file system.
    """

    def __init__(self, now_ns: Callable[[], int] = time.time_ns) -> None:
        self._now_ns = now_ns
        self._seen: dict[str, _Seen] = {}

    def __reduce__(self) -> tuple[type[Folders], tuple[()]]:
        """Leave behind what was found here: another process looks for itself."""
        return Folders, ()

    def look(self, file_system: AbstractFileSystem, paths: Sequence[str]) -> list[Folder]:
        """Return what is in each of some folders now.

        Args:
            file_system: where they are.
            paths: the folders.

        Raises:
            OSError: one can't be read, or a segment in it.
        """
        if is_local(file_system):
            # Not in threads: these would wait for each other more than for the disk.
            return [self._look_here(path) for path in paths]
        return each(file_system, partial(_listed_there, file_system), paths)

    def _look_here(self, path: str) -> Folder:
        now_ns, changed_ns = self._now_ns(), os.stat(path).st_mtime_ns
        seen = self._seen.pop(path, None)
        folder = None if seen is None or seen.changed_ns != changed_ns else _grown(seen)
        if folder is None:
            folder = _listed_here(path)
        growing = [number for number, one in enumerate(folder.segments) if one.unread is None]
        # Only where all names are as long as Kafka makes them, the last by name is the last by offset.
        is_in_order = len({len(folder.segments[number].path) for number in growing}) < 2
        if is_in_order and now_ns - changed_ns > SETTLED_NS:
            self._seen[path] = _Seen(folder, changed_ns, growing[-1] if growing else None)
        return folder


def _grown(seen: _Seen) -> Folder | None:
    """Return a folder in which nothing has come or gone, or None if something has by now."""
    folder, _, growing = seen
    if growing is None:
        return folder
    before = folder.segments[growing]
    try:
        now = _segment_here(before.path, before.partition)
    except FileNotFoundError:
        return None
    return folder._replace(segments=(*folder.segments[:growing], now, *folder.segments[growing + 1 :]))


def _listed_here(path: str) -> Folder:
    partition = partition_of(path)
    with os.scandir(path) as entries:
        # Without its indexes, which are most of what a folder holds.
        of_interest = [(f"{path.rstrip('/')}/{entry.name}", entry.is_dir()) for entry in entries if _counts(entry.name)]
    segments = []
    for inner, is_folder in of_interest:
        with suppress(FileNotFoundError):
            if not is_folder:
                segments.append(_segment_here(inner, partition))
    return _folder(segments, (inner for inner, is_folder in of_interest if is_folder))


def _counts(name: str) -> bool:
    return name.endswith((SEGMENT_SUFFIX, SWAP_SUFFIX)) or OFFSETS_FOLDER.fullmatch(name) is not None


def _segment_here(path: str, partition: int | None) -> SegmentFile:
    status = os.stat(path)
    if not os.access(path, os.R_OK):
        raise PermissionError(path)
    return SegmentFile(path, path, partition, status.st_size, identity=status.st_ino)


def _listed_there(file_system: AbstractFileSystem, path: str) -> Folder:
    listed = file_system.ls(path, detail=True)
    files = [info for info in listed if info["type"] == "file" and _counts(name_of(info["name"]))]
    folders = [info["name"] for info in listed if info["type"] == "directory"]
    return _folder([segment_of(file_system, info) for info in files], folders)


def _folder(files: Iterable[SegmentFile], folders: Iterable[str]) -> Folder:
    in_order = sorted(files, key=lambda one: name_of(one.path))
    segments = [one for one in in_order if one.path.endswith(SEGMENT_SUFFIX)]
    left = [one._replace(unread=INTERRUPTED) for one in in_order if one.path.endswith(SWAP_SUFFIX)]
    numbered = [(int(match[1]), path) for path in folders if (match := OFFSETS_FOLDER.fullmatch(name_of(path)))]
    return Folder((*segments, *left) if segments else (), tuple(path for _, path in sorted(numbered)))


def segment_of(file_system: AbstractFileSystem, info: Mapping[str, Any]) -> SegmentFile:
    """Return a file of which a file system tells.

    Raises:
        PermissionError: it is on this machine, and may not be read.
    """
    path: str = info["name"]
    partition = partition_of(path.rpartition("/")[0])
    if is_local(file_system):
        return _segment_here(path, partition)
    identity = info.get("ino", info.get("ETag"))
    return SegmentFile(path, file_system.unstrip_protocol(path), partition, int(info["size"]), identity=identity)


def each(file_system: AbstractFileSystem, ask: Callable[[str], Found], paths: Sequence[str]) -> list[Found]:
    """Return what a file system answers about each path; several are asked for at a time if it can bear that.

    Args:
        file_system: one that is reached over a network, if several are to be asked for at a time.
        ask: asks it.
        paths: about what.
    """
    if not file_system.async_impl or len(paths) < 2:
        return [ask(path) for path in paths]
    with ThreadPoolExecutor(min(ASKED_MAX, len(paths))) as pool:
        return list(pool.map(ask, paths))


def is_local(file_system: AbstractFileSystem) -> bool:
    """Tell whether a file system is that of this machine."""
    return "file" in ((file_system.protocol,) if isinstance(file_system.protocol, str) else file_system.protocol)


def name_of(path: str) -> str:
    """Return the last part of a path."""
    return path.rstrip("/").rpartition("/")[2]


def partition_of(folder: str) -> int | None:
    """Return the log partition that a folder's name tells, or None."""
    match = PARTITION_FOLDER.fullmatch(name_of(folder))
    return int(match[1]) if match else None
