"""The folder of a partition's log: what it is called, and the small files in it."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple
from uuid import UUID

from groupcoord.storage.errors import FailedLogError, RefusedBatchError
from groupcoord.storage.log_directory import (
    forget_clean_shutdown,
    list_segments,
    read_leader_epochs,
    read_topic_id,
    topic_id_text,
    write_leader_epochs,
    write_partition_metadata,
)
from groupcoord.storage.producer_snapshots import (
    BadSnapshotError,
    list_snapshots,
    read_snapshot,
    snapshot_path,
    write_snapshot,
)
from groupcoord.storage.producer_states import ProducerStates
from groupcoord.storage.swapping import INDEX_SUFFIXES, finish_swaps

SNAPSHOTS_KEPT = 2
"""The newest is read; another one may be, if that should be broken."""


class LogFolder(NamedTuple):
    """A folder that need not exist yet.

    Attributes:
        path: the folder.
        topic_id: of its topic.
    """

    path: Path
    topic_id: UUID

    def open(self) -> list[int]:
        """Finish what a crash interrupted.

        Returns:
            The base offsets of its segments, in order; none if there is no folder.

        Raises:
            FailedLogError: it belongs to another topic.
            LogStoreError: what was interrupted can't be finished.
            OSError: it can't be read.
        """
        found = read_topic_id(self.path)
        if found is not None and found != self.topic_id:
            ids = f"topic id {topic_id_text(found)}, and not to {topic_id_text(self.topic_id)}"
            raise FailedLogError(f"{self.path} belongs to {ids}")
        finish_swaps(self.path)
        return list_segments(self.path)

    def create(self) -> None:
        """Make the folder and the file that tells whose it is, where they are missing.

        Raises:
            OSError: they can't be written.
        """
        forget_clean_shutdown(self.path.parent)
        self.path.mkdir(exist_ok=True)
        write_partition_metadata(self.path, self.topic_id)

    def leader_epochs(self) -> list[tuple[int, int]]:
        """Return the leaders' epochs, oldest first, and where each begins; none if there is no file that tells them.

        Raises:
            OSError: it can't be read.
        """
        try:
            return read_leader_epochs(self.path)
        except ValueError:  # Kafka doesn't write such a file; the batches tell the same
            return []

    def save_leader_epochs(self, entries: Sequence[tuple[int, int]]) -> None:
        """Write the leaders' epochs. What a power failure takes back the batches still tell.

        Raises:
            OSError: they can't be written.
        """
        write_leader_epochs(self.path, entries, is_durable=False)

    def forget_indexes(self, base_offset: int) -> None:
        """Delete the indexes of a segment, which may be behind it or ahead of it."""
        for suffix in INDEX_SUFFIXES:
            (self.path / f"{base_offset:020d}{suffix}").unlink(missing_ok=True)

    def blank_indexes(self, base_offset: int) -> None:
        """Empty the indexes of the segment that goes on being written to.

        A broker is content with less than all in them, and makes them anew after a kill; one that it doesn't find it
        misses at ERROR, where it has flushed what they are of (``LogLoader`` of Kafka 4.4).

        Raises:
            OSError: they can't be emptied.
        """
        for suffix in INDEX_SUFFIXES:
            with contextlib.suppress(FileNotFoundError):
                os.truncate(self.path / f"{base_offset:020d}{suffix}", 0)

    # ------------------------------------------------------------ producers

    def load_producers(self, producers: ProducerStates, end_offset: int) -> int:
        """Restore what a snapshot has, the newest sound one that is not behind an offset.

        Returns:
            Where it was taken; 0 if there is none, and nothing is known.

        Raises:
            OSError: the folder can't be read.
        """
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
        """Write a snapshot, and delete old ones.

        Raises:
            OSError: it can't be written.
        """
        write_snapshot(self.path, offset, producers.entries())
        for old in self._snapshots()[:-SNAPSHOTS_KEPT]:
            snapshot_path(self.path, old).unlink(missing_ok=True)

    def forget_snapshots_behind(self, offset: int) -> None:
        """Delete the snapshots that were taken behind an offset."""
        for snapshot in self._snapshots():
            if snapshot > offset:
                snapshot_path(self.path, snapshot).unlink(missing_ok=True)

    def _snapshots(self) -> list[int]:
        try:
            return list_snapshots(os.listdir(self.path))
        except FileNotFoundError:
            return []
