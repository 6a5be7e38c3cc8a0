"""Folder of a partition's log: its small files, recovery of torn tails, interrupted swaps, and lost segments.

Compaction replaces segments with Kafka's steps and file names. ``N.log.cleaned`` is being written, and a load ignores
it. ``N.log.swap`` is complete and durable, and replaces all segments whose base offset lies in it: these are deleted,
and it becomes ``N.log``. Source: Kafka's ``LocalLog.replaceSegments`` and ``LogLoader``.
"""

from __future__ import annotations

import contextlib
import logging
import os
import re
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple
from uuid import UUID

from groupcoord.config.files import open_file
from groupcoord.records.batches import MAGIC_POSITION, MAGIC_V2, InvalidBatchError
from groupcoord.records.salvage import find_batch
from groupcoord.storage.errors import CorruptLogError, FailedLogError, RefusedBatchError
from groupcoord.storage.files import (
    forget_clean_shutdown,
    list_segments,
    read_leader_epochs,
    read_topic_id,
    segment_path,
    sync_path,
    topic_id_text,
    write_partition_metadata,
)
from groupcoord.storage.log.producers import (
    BadSnapshotError,
    ProducerStates,
    list_snapshots,
    read_snapshot,
    snapshot_path,
    write_snapshot,
)
from groupcoord.storage.log.segment_files import OFFSETS_END, offsets_end, read_at_most, read_batches
from groupcoord.storage.log.settings import LEADER_EPOCH

logger = logging.getLogger(__name__)

DISK_SECTOR_BYTES = 512
"""Smallest unit that a power failure keeps or loses."""


def _recover_segment(path: Path, base_offset: int, end_offset: int) -> int:
    """Truncate the torn tail of a segment, left by a write that a crash interrupted; return the size of the file.

    Raises:
        CorruptLogError: a batch is malformed and an intact one follows it, or the file is not a segment.
    """
    size = 0
    try:
        for batch in read_batches(path, base_offset=base_offset, end_offset=end_offset):
            size = batch.position + batch.size_bytes
    except InvalidBatchError as error:
        # Damage in the middle of the file: truncating would lose acknowledged records behind it.
        if _holds_batch(path, size):
            raise CorruptLogError(path, error.position, error.reason) from error
        # A file that never held a batch of this segment belongs to another program.
        if not size and not _may_be_torn(path, base_offset):
            raise CorruptLogError(path, 0, f"it does not begin as a segment does ({error.reason})") from error
        file_size = path.stat().st_size
        logger.warning(
            "%s: cut %d bytes at position %d, the torn tail of an interrupted write (%s)",
            path,
            file_size - size,
            size,
            error.reason,
        )
        os.truncate(path, size)
    return size


def recover_log(folder: Path, segments: Sequence[int]) -> int:
    """Truncate the torn tails of a log after a crash; return the size of its last segment in bytes.

    Raises:
        CorruptLogError: a batch is malformed and an intact one follows it, or a file is not a segment.
    """
    sizes = []
    # Only the last segment with a batch can have been written when the power failed. A roll may have created empty
    # files behind it.
    for following, base_offset in pairwise([OFFSETS_END, *reversed(segments)]):
        sizes.append(_recover_segment(segment_path(folder, base_offset), base_offset, following))
        if sizes[-1]:
            break
    return sizes[0]


def _holds_batch(path: Path, position: int) -> bool:
    """Return whether an intact batch starts at or after ``position``, so that there is no torn tail."""
    # A batch with decreasing offsets counts as intact, because no interrupted write leaves one.
    with open(path, "rb", buffering=0, opener=open_file) as file:
        descriptor = file.fileno()
        size_bytes = os.fstat(descriptor).st_size
        return find_batch(lambda start, size: read_at_most(descriptor, size, start), position, size_bytes) < size_bytes


def _may_be_torn(path: Path, base_offset: int) -> bool:
    """Return whether a file without an intact batch may be a partial first write, and not another program's."""
    with open(path, "rb", opener=open_file) as file:
        head = file.read(DISK_SECTOR_BYTES)
    # A killed process leaves the beginning of the batch, a power failure maybe zeros.
    if not any(head):
        return True
    # A torn write may end within the base offset; the available bytes bound its value.
    lowest = int.from_bytes(head[:8].ljust(8, b"\x00"), "big")
    highest = int.from_bytes(head[:8].ljust(8, b"\xff"), "big")
    is_offset = lowest < offsets_end(base_offset) and base_offset <= highest
    return is_offset and (len(head) <= MAGIC_POSITION or head[MAGIC_POSITION] <= MAGIC_V2)


CLEANED_SUFFIX = ".cleaned"
SWAP_SUFFIX = ".swap"
INDEX_SUFFIXES = (".index", ".timeindex", ".txnindex")
"""Index files of a segment. A broker rebuilds missing ones and trusts existing ones."""

_UNFINISHED_FILE = re.compile(r"([0-9]{20})\.(log|index|timeindex|txnindex)\.(cleaned|swap)")


def swap_path(folder: Path, base_offset: int) -> Path:
    return segment_path(folder, base_offset).with_suffix(f".log{SWAP_SUFFIX}")


def finish_swaps(folder: Path) -> None:
    """Finish or undo the swaps that a crash interrupted, also a broker's."""
    try:
        names = sorted(os.listdir(folder))
    except FileNotFoundError:
        return
    matches = [match for match in map(_UNFINISHED_FILE.fullmatch, names) if match]
    # As in Kafka's loader: .swap files from the first .cleaned file on belong to an unfinished rewrite.
    first_cleaned = min((int(match[1]) for match in matches if match.groups()[1:] == ("log", "cleaned")), default=None)
    swaps = []
    for match in matches:
        kind, state = match[2], match[3]
        is_undone = state == "cleaned" or (first_cleaned is not None and int(match[1]) >= first_cleaned)
        # Index files are not swapped: the indexes are rebuilt from the segment.
        if kind == "log" and not is_undone:
            swaps.append(int(match[1]))
        else:
            (folder / match[0]).unlink()
    for base_offset in swaps:
        swap = swap_path(folder, base_offset)
        # Read completely, since the replaced segments are deleted then.
        end_offset = base_offset
        try:
            for batch in read_batches(swap, base_offset=base_offset):
                end_offset = batch.next_offset
        except InvalidBatchError as error:
            raise CorruptLogError(swap, error.position, error.reason) from error
        # Determined by the swap file's offsets: a crash may have deleted some of them.
        replaced = [base for base in list_segments(folder) if base_offset < base < end_offset]
        finish_swap(folder, [base_offset, *replaced])
        sync_path(folder)
        logger.warning("%s: finished the compaction that was interrupted there", swap)


def finish_swap(folder: Path, replaced: Sequence[int]) -> None:
    """Delete segments and rename the swap file, which holds their records and is named after the first.

    After an OSError opening the partition again finishes the swap.
    """
    for base_offset in replaced:
        path = segment_path(folder, base_offset)
        if base_offset != replaced[0]:
            path.unlink(missing_ok=True)
        # The first segment's indexes belong to its old contents, too.
        for suffix in INDEX_SUFFIXES:
            path.with_suffix(suffix).unlink(missing_ok=True)
    # Last, so that after a crash the swap starts over.
    swap_path(folder, replaced[0]).replace(segment_path(folder, replaced[0]))


class Acknowledged(NamedTuple):
    """State that a failed log must hold when it is opened again, so that no acknowledged record is lost."""

    end_offset: int
    bases: frozenset[int]
    leader_epoch: int


NOTHING_ACKNOWLEDGED = Acknowledged(0, frozenset(), LEADER_EPOCH)


def find_loss(folder: Path, segments: Sequence[int], size_bytes: int, descriptor: int) -> str | None:
    """Return what has changed in the files of a log, or None.

    ``size_bytes`` and ``descriptor`` (-1 if it is not open) are those of the last segment.
    """
    if not segments:
        return None
    path = folder
    try:
        for base_offset in segments:
            path = segment_path(folder, base_offset)
            # By name, because a descriptor stays valid when its file is deleted.
            found = path.stat()
        # The name must lead to the open file: a copy does not get the next writes.
        written = found if descriptor < 0 else os.fstat(descriptor)
    except (FileNotFoundError, NotADirectoryError):
        return f"{path} was deleted or moved away"
    except OSError:
        return None
    if not os.path.samestat(found, written):
        return f"{path} was replaced by another file"
    if found.st_size != size_bytes:
        return f"{path} has {found.st_size} bytes, but {size_bytes} were there"
    return None


SNAPSHOTS_KEPT = 2
"""The newest snapshot is read, and the one before if the newest is broken."""


class LogFolder(NamedTuple):
    """Folder of a log, which need not exist yet."""

    path: Path
    topic_id: UUID

    def open(self) -> list[int]:
        """Finish interrupted swaps; return the base offsets of the segments, in order.

        Raises:
            FailedLogError: the folder belongs to another topic.
            LogStoreError: a swap can't be finished.
        """
        # A topic that a broker has deleted and created again has the same folder and another id.
        found = read_topic_id(self.path)
        if found is not None and found != self.topic_id:
            ids = f"topic id {topic_id_text(found)}, and not to {topic_id_text(self.topic_id)}"
            raise FailedLogError(f"{self.path} belongs to {ids}")
        finish_swaps(self.path)
        return list_segments(self.path)

    def create(self) -> None:
        # Before the first write: after a kill a broker has to check these logs.
        forget_clean_shutdown(self.path.parent)
        self.path.mkdir(exist_ok=True)
        write_partition_metadata(self.path, self.topic_id)

    def leader_epochs(self) -> list[tuple[int, int]]:
        """Return the leader epochs with their start offsets, oldest first; none without a well-formed file."""
        try:
            return read_leader_epochs(self.path)
        except ValueError:  # The batches hold the epochs, too.
            return []

    def forget_indexes(self, base_offset: int) -> None:
        """Delete the indexes of a segment."""
        for suffix in INDEX_SUFFIXES:
            (self.path / f"{base_offset:020d}{suffix}").unlink(missing_ok=True)

    def blank_indexes(self, base_offset: int) -> None:
        """Empty the indexes of the segment that is being written."""
        for suffix in INDEX_SUFFIXES:
            # A broker rebuilds incomplete indexes after a kill, and logs a missing one as an error (LogLoader of Kafka
            # 4.4).
            with contextlib.suppress(FileNotFoundError):
                os.truncate(self.path / f"{base_offset:020d}{suffix}", 0)

    # ------------------------------------------------------------ producers

    def load_producers(self, producers: ProducerStates, end_offset: int) -> int:
        """Restore the newest intact producer snapshot up to an offset; return the offset of the snapshot, or 0."""
        # Later ones may cover batches that recovery has truncated.
        offsets = [offset for offset in self._snapshots() if offset <= end_offset]
        for offset in reversed(offsets):
            try:
                producers.restore(read_snapshot(self.path, offset))
                return offset
            except (BadSnapshotError, OSError):
                continue
            except RefusedBatchError as error:
                raise FailedLogError(f"{self.path}: no memory for its producers: {error}") from error
        return 0

    def save_producers(self, producers: ProducerStates, offset: int) -> None:
        """Write a producer snapshot and delete old ones."""
        write_snapshot(self.path, offset, producers.entries())
        for old in self._snapshots()[:-SNAPSHOTS_KEPT]:
            snapshot_path(self.path, old).unlink(missing_ok=True)

    def forget_snapshots_behind(self, offset: int) -> None:
        for snapshot in self._snapshots():
            if snapshot > offset:
                snapshot_path(self.path, snapshot).unlink(missing_ok=True)

    def _snapshots(self) -> list[int]:
        try:
            return list_snapshots(os.listdir(self.path))
        except FileNotFoundError:
            return []
