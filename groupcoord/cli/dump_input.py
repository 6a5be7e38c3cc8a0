"""Input of ``groupcoord dump``: batches of segment files or of a topic of a running cluster, damage, and progress."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import NamedTuple

from groupcoord.analysis.errors import ClusterError
from groupcoord.analysis.live.cluster import KafkaCluster, Patience, connection
from groupcoord.analysis.live.fetching import DELETED, Lost, sound_batches
from groupcoord.analysis.live.offsets import OffsetRange, check_readable, topic_ends
from groupcoord.analysis.live.settings import ClusterAddress
from groupcoord.cli.messages import complain
from groupcoord.config.files import open_file
from groupcoord.core.log.records import OFFSETS_TOPIC
from groupcoord.records.salvage import Damage, SoundBatch, salvage_batches
from groupcoord.storage.files import OTHER_FILES, PARTITION_FOLDER, SEGMENT_SUFFIX, SWAP_SUFFIX, found_in_some

ADVANCE_BYTES = 262_144
PROGRESS_BYTES_MIN = 16_777_216

Parts = Iterator[tuple[int | None, Iterator[SoundBatch]]]
"""The batches of each segment file, or of each range of a cluster's topic, with the number of the log partition."""


class DumpError(ValueError):
    """A path or a filter of the command line is wrong. The message is one line for the user."""


class _NoPartitionsError(DumpError):
    """A directory has no folders of the topic, which is allowed for some of several directories."""


class Segment(NamedTuple):
    """A segment file, with the log partition that its folder is named after, and its size when it was found."""

    path: Path
    partition: int | None
    size_bytes: int


class Progress:
    """Counts bytes, and reports damage on stderr."""

    def __init__(self, advance: Callable[[int], None], show: Callable[[str], None]) -> None:
        self.advance = advance
        self.show = show
        self.is_damaged = False

    def report(self, message: str) -> None:
        self.is_damaged = True
        self.show(message)


class DumpInput(NamedTuple):
    """Batches to read; ``size_bytes`` is 0 if unknown."""

    size_bytes: int
    notes: list[str]
    read: Callable[[Progress], Parts]


def open_cluster(address: ClusterAddress, topic: str, partitions: Collection[int]) -> DumpInput:
    with connection(address, begins_run=True) as (cluster, patience):
        ends = topic_ends(cluster, patience, topic, partitions)
        check_readable(cluster, patience, ends)
    ranges = ends.whole()
    if not ranges:
        raise DumpError(f"topic {topic} of the cluster holds no records")
    return DumpInput(0, [], partial(_read_cluster, address, ranges))


def open_files(
    paths: Iterable[Path], topic: str, partitions: Collection[int], *, by_partition: bool = False
) -> DumpInput:
    segments = [one for one in find_segments(paths, topic) if not partitions or one.partition in partitions]
    if not segments:
        raise DumpError("none of the paths has these log partitions")
    given = {segment.path for segment in segments}
    folders = dict.fromkeys(segment.path.parent for segment in segments)
    swaps = [path for folder in folders for path in sorted(folder.glob(f"*{SWAP_SUFFIX}")) if path not in given]
    notes = [f"{path}: not read; compaction was interrupted when it wrote this" for path in swaps]
    if by_partition:
        order = list(dict.fromkeys(segment.partition for segment in segments))
        segments.sort(key=lambda segment: order.index(segment.partition))
    return DumpInput(sum(segment.size_bytes for segment in segments), notes, partial(_read_files, segments))


def find_segments(paths: Iterable[Path], topic: str = OFFSETS_TOPIC) -> list[Segment]:
    """Return the segment files that the paths stand for: files, folders of segments, and whole data directories.

    Log partitions are in order of their numbers, segments in order of their offsets, paths in the order given.
    """
    found = found_in_some(lambda path: _segments_of(path, topic), paths, _NoPartitionsError)
    return [segment for segments in found for segment in segments]


def _segments_of(path: Path, topic: str) -> list[Segment]:
    try:
        if path.is_dir():
            return _in_folder(path, topic)
        if OTHER_FILES.fullmatch(path.name):
            raise DumpError(f"{path} is no segment file; those end in {SEGMENT_SUFFIX}")
        return [_segment(path)]
    except OSError as error:
        raise DumpError(f"{path}: {error.strerror or error}") from None


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
        raise DumpError(f"{folder} holds no segment files (*{SEGMENT_SUFFIX})")
    raise _NoPartitionsError(f"{folder} holds neither segment files (*{SEGMENT_SUFFIX}) nor folders {topic}-N")


def _segment(path: Path) -> Segment:
    match = PARTITION_FOLDER.fullmatch(path.absolute().parent.name)
    return Segment(path, int(match[1]) if match else None, path.stat().st_size)


def read_segment(segment: Segment) -> Iterator[SoundBatch | Damage]:
    with open(segment.path, "rb", opener=open_file) as file:

        def read_at(position: int, size: int) -> bytes:
            file.seek(position)
            return file.read(size)

        yield from salvage_batches(read_at, segment.size_bytes)


def _read_files(segments: list[Segment], progress: Progress) -> Parts:
    return ((segment.partition, _read_file(segment, progress)) for segment in segments)


def _read_file(segment: Segment, progress: Progress) -> Iterator[SoundBatch]:
    position, next_offset = 0, -1
    try:
        for found in read_segment(segment):
            if isinstance(found, Damage):
                progress.report(f"{segment.path}: {_damage_text(found)}")
                continue
            batch = found.batch
            if batch.base_offset < next_offset:
                offsets = f"{batch.base_offset} after {next_offset - 1}"
                progress.report(f"{segment.path}: offsets go back at position {batch.position}: {offsets}")
            next_offset = batch.next_offset
            yield found
            end = batch.position + batch.size_bytes
            if end - position >= ADVANCE_BYTES:
                progress.advance(end - position)
                position = end
        progress.advance(segment.size_bytes - position)
    except OSError as error:
        progress.report(f"{segment.path}: {error.strerror or error}")


def _read_cluster(address: ClusterAddress, ranges: list[OffsetRange], progress: Progress) -> Parts:
    with connection(address) as (cluster, patience):
        for one in ranges:
            yield one.partition, _read_range(cluster, patience, one, progress)


def _read_range(
    cluster: KafkaCluster, patience: Patience, one: OffsetRange, progress: Progress
) -> Iterator[SoundBatch]:
    name = f"{one.topic}-{one.partition}"
    try:
        for found in sound_batches(cluster, one, patience):
            if isinstance(found, SoundBatch):
                yield found
            elif isinstance(found, Lost):
                progress.report(f"{name}: offsets {found.start} to {found.end - 1} were {DELETED}")
            else:
                progress.report(f"{name}: {_damage_text(found)}")
    except ClusterError as error:
        progress.report(f"{name}: {error}")


def _damage_text(damage: Damage) -> str:
    end = damage.position + damage.size_bytes
    text = f"{damage.reason}; skipped {damage.size_bytes} bytes, positions {damage.position} to {end - 1}"
    first, behind = damage.first_offset, damage.end_offset
    if first is not None and behind is not None and first < behind:
        return f"{text}, offsets {first} to {behind - 1}"
    if behind is None:
        return f"{text}, to the end" + ("" if first is None else f", offsets from {first} on")
    return f"{text}, offsets before {behind}" if first is None else text


@contextmanager
def progress_of(size_bytes: int) -> Iterator[Progress]:
    """Show a progress bar for a large input, if stderr is a terminal and the records don't go there."""
    if size_bytes < PROGRESS_BYTES_MIN or not sys.stderr.isatty() or sys.stdout.isatty():
        yield Progress(lambda size: None, partial(complain, "dump"))
        return
    from rich.progress import BarColumn, DownloadColumn, TextColumn, TimeRemainingColumn

    from groupcoord.cli.console import progress_bar

    with progress_bar(TextColumn("dump"), BarColumn(), DownloadColumn(), TimeRemainingColumn()) as bar:
        task = bar.add_task("dump", total=size_bytes)
        yield Progress(
            lambda size: bar.advance(task, size),
            lambda message: bar.console.print(f"groupcoord dump: {message}", soft_wrap=True),
        )
