"""What ``groupcoord dump`` reads: which files a path stands for, and what is left of them."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from groupcoord.config.files import open_file
from groupcoord.core.records import OFFSETS_TOPIC
from groupcoord.records.range_checksums import ReadAt
from groupcoord.records.salvage import Damage, SoundBatch, salvage_batches
from groupcoord.storage.file_names import OTHER_FILES, PARTITION_FOLDER, SEGMENT_SUFFIX, SWAP_SUFFIX
from groupcoord.storage.log_directory import found_in_some


class PathError(ValueError):
    """A path stands for nothing that can be dumped. The message is one line for the user."""


class _NoFolderError(PathError):
    """A directory has no folders of the topic: of several, such as those of brokers, another one may have all."""


class Segment(NamedTuple):
    """One file to read.

    Attributes:
        path: the file.
        partition: the log partition that its folder's name tells, or None.
        size_bytes: when it was found.
    """

    path: Path
    partition: int | None
    size_bytes: int


def find_segments(paths: Iterable[Path], topic: str = OFFSETS_TOPIC) -> list[Segment]:
    """Return the segment files that the paths stand for: files, folders of segments and whole data directories.

    Of these the folders of one topic count; where several paths are given, some may have none.

    Log partitions come in order of their numbers, segments in order of their offsets, paths in the order given.

    Raises:
        PathError: a path does not exist, or there is no segment in it.
    """
    found = found_in_some(lambda path: _segments_of(path, topic), paths, _NoFolderError)
    return [segment for segments in found for segment in segments]


def unread_files(segments: Iterable[Segment]) -> list[Path]:
    """Return the files beside the segments that may hold records and are not read: compaction was interrupted there."""
    folders = dict.fromkeys(segment.path.parent for segment in segments)
    given = {segment.path for segment in segments}
    return [path for folder in folders for path in sorted(folder.glob(f"*{SWAP_SUFFIX}")) if path not in given]


def _segments_of(path: Path, topic: str) -> list[Segment]:
    try:
        if path.is_dir():
            return _in_folder(path, topic)
        if OTHER_FILES.fullmatch(path.name):
            raise PathError(f"{path} is no segment file; those end in {SEGMENT_SUFFIX}")
        return [_segment(path)]
    except OSError as error:
        raise PathError(f"{path}: {error.strerror or error}") from None


def _in_folder(folder: Path, topic: str) -> list[Segment]:
    segments = sorted(folder.glob(f"*{SEGMENT_SUFFIX}"))
    if segments:
        return [_segment(path) for path in segments]
    of_topic = re.compile(re.escape(topic) + r"-(\d{1,10})")
    partitions = [(int(match[1]), path) for path in folder.iterdir() if (match := of_topic.fullmatch(path.name))]
    found = [_segment(path) for _, inner in sorted(partitions) for path in sorted(inner.glob(f"*{SEGMENT_SUFFIX}"))]
    if found:
        return found
    if partitions or PARTITION_FOLDER.fullmatch(folder.name):
        raise PathError(f"{folder} holds no segment files (*{SEGMENT_SUFFIX})")
    raise _NoFolderError(f"{folder} holds neither segment files (*{SEGMENT_SUFFIX}) nor folders {topic}-N")


def _segment(path: Path) -> Segment:
    match = PARTITION_FOLDER.fullmatch(path.absolute().parent.name)
    return Segment(path, int(match[1]) if match else None, path.stat().st_size)


def read_segment(segment: Segment) -> Iterator[SoundBatch | Damage]:
    """Yield the sound batches of a segment as it was when it was found, and the damage between them.

    Raises:
        OSError: the file can't be read.
    """
    with _reader(segment.path) as read_at:
        yield from salvage_batches(read_at, segment.size_bytes)


@contextmanager
def _reader(path: Path) -> Iterator[ReadAt]:
    descriptor = open_file(path, os.O_RDONLY)

    def read_at(position: int, size: int) -> bytes:
        parts: list[bytes] = []
        while size and (part := os.pread(descriptor, size, position)):
            parts.append(part)
            position += len(part)
            size -= len(part)
        return b"".join(parts)

    try:
        yield read_at
    finally:
        os.close(descriptor)
