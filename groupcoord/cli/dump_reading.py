"""Where ``groupcoord dump`` takes batches from, and what it tells meanwhile: files, or a cluster that runs."""

from __future__ import annotations

import os
import sys
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path

from groupcoord.analysis.live.cluster import LiveCluster
from groupcoord.analysis.live.connection import connection
from groupcoord.analysis.live.errors import ClusterError
from groupcoord.analysis.live.fetching import DELETED, Lost, sound_batches
from groupcoord.analysis.live.offset_ranges import OffsetRange, check_readable, topic_ends
from groupcoord.analysis.live.retries import Patience
from groupcoord.analysis.live.settings import ClusterAddress
from groupcoord.cli.dump_files import PathError, Segment, find_segments, read_segment, unread_files
from groupcoord.cli.dump_selection import Selection
from groupcoord.cli.messages import complain
from groupcoord.records.salvage import Damage, SoundBatch

OUTPUT_BYTES = 262_144
"""So much is read between two steps of the bar, and written at a time."""

PROGRESS_BYTES_MIN = 16_777_216


def open_reading(paths: Sequence[Path], address: ClusterAddress | None, topic: str, selection: Selection) -> Reading:
    """Return what reads files or a cluster.

    Args:
        paths: of files.
        address: of a cluster; None: files are to be read.
        topic: whose records.
        selection: says which log partitions.

    Raises:
        PathError: neither or both are given, or there is nothing in them.
        PipelineError: the cluster can't be read.
    """
    if (address is not None) == bool(paths):
        raise PathError("give either paths or a cluster, by --bootstrap-server or --command-config")
    if address is not None:
        return ClusterReading(address, topic, selection)
    segments = [segment for segment in find_segments(paths, topic) if selection.has_partition(segment.partition)]
    if not segments:
        raise PathError("none of the paths holds the log partitions asked for")
    return FileReading(segments)


class Reading(ABC):
    """The batches of some logs. What can't be read is reported and remembered.

    Attributes:
        is_damaged: something couldn't be read.
        size_bytes: how much there is to read; 0: not known.
    """

    def __init__(self, size_bytes: int) -> None:
        self.size_bytes = size_bytes
        self.is_damaged = False
        self._advance: Callable[[int], None] = lambda size_bytes: None
        self._report: Callable[[str], None] = lambda message: None

    def run(self, show: Callable[[], None]) -> None:
        """Call ``show``, which takes what this yields, and tell meanwhile how far it is and what was left out.

        Raises:
            Exit: the user interrupted it.
        """
        try:
            with _progress(self.size_bytes) as (self._advance, self._report):
                for message in self._foreword():
                    self._report(message)
                show()
        except BrokenPipeError:
            # Whoever read this wants no more of it; the interpreter must not try to flush on its way out.
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())

    def batches(self) -> Iterator[tuple[int | None, SoundBatch]]:
        """Yield each sound batch with its log partition."""
        for partition, files in self.files():
            for file in files:
                for sound in file:
                    yield partition, sound

    @abstractmethod
    def files(self) -> Iterator[tuple[int | None, Iterator[Iterator[SoundBatch]]]]:
        """Yield each log partition with the batches of its files, one file after the other."""

    def _foreword(self) -> Iterator[str]:
        """Yield what is to be told before anything is read."""
        return iter(())

    def _tell(self, message: str) -> None:
        self.is_damaged = True
        self._report(message)


class FileReading(Reading):
    """Reads segment files."""

    def __init__(self, segments: list[Segment]) -> None:
        super().__init__(sum(segment.size_bytes for segment in segments))
        self._segments = segments

    def batches(self) -> Iterator[tuple[int | None, SoundBatch]]:
        """See :class:`Reading`: in the order of the paths."""
        for segment in self._segments:
            for sound in self._batches_of(segment):
                yield segment.partition, sound

    def files(self) -> Iterator[tuple[int | None, Iterator[Iterator[SoundBatch]]]]:
        """Yield each log partition with the batches of its files, one file after the other."""
        partitions: dict[int | None, list[Segment]] = {}
        for segment in self._segments:
            partitions.setdefault(segment.partition, []).append(segment)
        for partition, segments in partitions.items():
            yield partition, map(self._batches_of, segments)

    def _batches_of(self, segment: Segment) -> Iterator[SoundBatch]:
        try:
            yield from self._read(segment)
        except BrokenPipeError:
            raise
        except OSError as error:
            self._tell(f"{segment.path}: {error.strerror or error}")

    def _read(self, segment: Segment) -> Iterator[SoundBatch]:
        position, next_offset = 0, -1
        for found in read_segment(segment):
            if isinstance(found, Damage):
                self._tell(f"{segment.path}: {damage_text(found)}")
                continue
            batch = found.batch
            if batch.base_offset < next_offset:
                self._tell(
                    f"{segment.path}: offsets go back at position {batch.position}: "
                    f"{batch.base_offset} after {next_offset - 1}"
                )
            next_offset = batch.next_offset
            yield found
            end = batch.position + batch.size_bytes
            if end - position >= OUTPUT_BYTES:
                self._advance(end - position)
                position = end
        self._advance(segment.size_bytes - position)

    def _foreword(self) -> Iterator[str]:
        for path in unread_files(self._segments):
            yield f"{path}: not read; compaction was interrupted when it wrote this"


class ClusterReading(Reading):
    """Reads a topic of a cluster, up to where it ends when this is made."""

    def __init__(self, address: ClusterAddress, topic: str, selection: Selection) -> None:
        super().__init__(0)
        self._address = address
        with connection(address, begins_run=True) as (cluster, patience):
            ends = topic_ends(cluster, patience, topic, selection.partitions)
            check_readable(cluster, patience, ends)
        self._ranges = ends.whole()
        if not self._ranges:
            raise PathError(f"topic {topic} of the cluster holds no records")

    def files(self) -> Iterator[tuple[int | None, Iterator[Iterator[SoundBatch]]]]:
        """See :class:`Reading`. To a cluster's client each log partition is one."""
        with connection(self._address) as (cluster, patience):
            for one in self._ranges:
                yield one.partition, iter([self._batches_of(cluster, patience, one)])

    def _batches_of(self, cluster: LiveCluster, patience: Patience, one: OffsetRange) -> Iterator[SoundBatch]:
        name = f"{one.topic}-{one.partition}"
        try:
            for found in sound_batches(cluster, one, patience):
                if isinstance(found, SoundBatch):
                    yield found
                elif isinstance(found, Lost):
                    self._tell(f"{name}: offsets {found.start} to {found.end - 1} were {DELETED}")
                else:
                    self._tell(f"{name}: {damage_text(found)}")
        except ClusterError as error:
            self._tell(f"{name}: {error}")


def damage_text(damage: Damage) -> str:
    """Return one line about bytes that were skipped."""
    end = damage.position + damage.size_bytes
    text = f"{damage.reason}; skipped {damage.size_bytes} bytes, positions {damage.position} to {end - 1}"
    first, behind = damage.first_offset, damage.end_offset
    if first is not None and behind is not None and first < behind:
        return f"{text}, offsets {first} to {behind - 1}"
    if behind is None:
        return f"{text}, to the end" + ("" if first is None else f", offsets from {first} on")
    return f"{text}, offsets before {behind}" if first is None else text


@contextmanager
def _progress(size_bytes: int) -> Iterator[tuple[Callable[[int], None], Callable[[str], None]]]:
    """Give two functions: one takes how many bytes were read, one a line for stderr.

    The bar is for long work, on a terminal that the records don't go to.
    """
    if size_bytes < PROGRESS_BYTES_MIN or not sys.stderr.isatty() or sys.stdout.isatty():
        yield (lambda size: None), partial(complain, "dump")
        return
    from rich.progress import BarColumn, DownloadColumn, TextColumn, TimeRemainingColumn

    from groupcoord.cli.progress import progress_bar

    with progress_bar(TextColumn("dump"), BarColumn(), DownloadColumn(), TimeRemainingColumn()) as bar:
        task = bar.add_task("dump", total=size_bytes)
        yield (
            lambda size: bar.advance(task, size),
            lambda message: bar.console.print(f"groupcoord dump: {message}", soft_wrap=True),
        )
