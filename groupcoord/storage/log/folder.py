"""Folder of a partition's log: its name, and the small files in it."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path
from typing import NamedTuple
from uuid import UUID

from groupcoord.storage.errors import FailedLogError, RefusedBatchError
from groupcoord.storage.files import (
    forget_clean_shutdown,
    list_segments,
    read_leader_epochs,
    read_topic_id,
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
from groupcoord.storage.log.recovery import INDEX_SUFFIXES, finish_swaps

SNAPSHOTS_KEPT = 2
"""The newest snapshot is read, and the one before if the newest is broken."""


class LogFolder(NamedTuple):
    """Folder of a log, which need not exist yet."""

    path: Path
    topic_id: UUID

    def open(self) -> list[int]:
        """Finish segment swaps that a crash interrupted; return the base offsets of its segments, in order.

        Raises:
            FailedLogError: the folder belongs to another topic.
            LogStoreError: a swap can't be finished.
        """
        # A topic that was deleted and created again by a broker has the same folder and another id.
        found = read_topic_id(self.path)
        if found is not None and found != self.topic_id:
            ids = f"topic id {topic_id_text(found)}, and not to {topic_id_text(self.topic_id)}"
            raise FailedLogError(f"{self.path} belongs to {ids}")
        finish_swaps(self.path)
        return list_segments(self.path)

    def create(self) -> None:
        # Before the first write: a broker that is started after a kill has to check these logs.
        forget_clean_shutdown(self.path.parent)
        self.path.mkdir(exist_ok=True)
        write_partition_metadata(self.path, self.topic_id)

    def leader_epochs(self) -> list[tuple[int, int]]:
        """Return the leader epochs with their start offsets, oldest first; none without a well-formed file."""
        try:
            return read_leader_epochs(self.path)
        except ValueError:  # Kafka writes no such file; the batches hold the epochs, too
            return []

    def forget_indexes(self, base_offset: int) -> None:
        """Delete the indexes of a segment, which may be outdated."""
        for suffix in INDEX_SUFFIXES:
            (self.path / f"{base_offset:020d}{suffix}").unlink(missing_ok=True)

    def blank_indexes(self, base_offset: int) -> None:
        """Empty the indexes of the segment that is being written."""
        for suffix in INDEX_SUFFIXES:
            # A broker rebuilds an incomplete index after a kill. It logs a missing one of a flushed segment as an error
            # (LogLoader of Kafka 4.4).
            with contextlib.suppress(FileNotFoundError):
                os.truncate(self.path / f"{base_offset:020d}{suffix}", 0)

    # ------------------------------------------------------------ producers

    def load_producers(self, producers: ProducerStates, end_offset: int) -> int:
        """Restore the newest intact producer snapshot up to an offset; return the offset of the snapshot, or 0 without
        one.
        """
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
