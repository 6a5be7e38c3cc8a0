"""Where the workers of a server have their partitions: ``workers/K/`` below the data directory, a log directory each.

Nothing of a log is shared. With another number of workers most partitions have another worker, and their folders are
moved before any worker starts: each is renamed, which a crash does or leaves, and the next start moves what is left.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterable
from contextlib import ExitStack
from pathlib import Path

from groupcoord.errors import GroupcoordError
from groupcoord.storage.data_directory import OWN_CLEAN_SHUTDOWN_FILE, partition_folders
from groupcoord.storage.directory_lock import DirectoryLock
from groupcoord.storage.log_directory import (
    BROKER_FILE,
    CLEANER_OFFSET_FILE,
    START_OFFSET_FILE,
    read_offset_checkpoint,
    sync_path,
    write_offset_checkpoint,
)

WORKERS = "workers"
CHECKPOINTS = (START_OFFSET_FILE, CLEANER_OFFSET_FILE)
"""Files with a line for each partition, which goes with its folder."""

Partition = tuple[str, int]


class MisplacedPartitionError(GroupcoordError):
    """Partitions can't be given to workers as asked. The message says why."""


class WorkerFolders:
    """The log directories below one data directory, which the caller has locked.

    Args:
        root: the data directory.
    """

    def __init__(self, root: Path) -> None:
        self._root = root

    def of(self, number: int, count: int) -> Path:
        """Return the directory of a worker, of so many: counted from 0. The only one has the data directory itself."""
        return self._root if count == 1 else self._root / WORKERS / str(number + 1)

    @property
    def is_divided(self) -> bool:
        """True if workers have been here."""
        return (self._root / WORKERS).is_dir()

    def places(self) -> dict[Partition, Path]:
        """Return where the folder of each partition is.

        Raises:
            MisplacedPartitionError: one is in two places.
        """
        places: dict[Partition, Path] = {}
        for directory in self._directories():
            for partition in partition_folders(directory):
                if partition in places:
                    name = f"{partition[0]}-{partition[1]}"
                    raise MisplacedPartitionError(f"{name} is both in {places[partition]} and in {directory}")
                places[partition] = directory
        return places

    def _directories(self) -> list[Path]:
        below = self._root / WORKERS
        found = sorted(below.iterdir()) if below.is_dir() else []
        return [self._root, *(path for path in found if path.is_dir())]

    def spread(self, count: int) -> None:
        """Have each partition where its worker looks for it.

        Raises:
            MisplacedPartitionError: one is in two places, or belongs to a broker.
            LogDirectoryError: somebody uses one of the directories.
            OSError: they can't be moved; the next try goes on.
        """
        moves = [
            (partition, place, self.of(partition[1] % count, count))
            for partition, place in self.places().items()
            if place != self.of(partition[1] % count, count)
        ]
        if moves and (self._root / BROKER_FILE).exists():
            raise MisplacedPartitionError(f"{self._root} is a broker's, which would not find what workers take from it")
        targets = [self.of(number, count) for number in range(count)]
        with ExitStack() as stack:
            for directory in {*self._directories(), *targets} - {self._root}:
                stack.callback(DirectoryLock(directory).close)
            if moves:
                self._move(moves, targets)
        if self.is_divided:
            for directory in set(self._directories()) - {self._root, *targets}:
                shutil.rmtree(directory)
            if count == 1:
                shutil.rmtree(self._root / WORKERS)

    def _move(self, moves: list[tuple[Partition, Path, Path]], targets: Iterable[Path]) -> None:
        notes = {place: place / OWN_CLEAN_SHUTDOWN_FILE for place in {place for _, place, _ in moves}}
        are_clean = all(note.exists() for note in notes.values()) and all(
            (target / OWN_CLEAN_SHUTDOWN_FILE).exists() for target in targets if any(partition_folders(target))
        )
        for directory in {*notes, *targets}:
            (directory / OWN_CLEAN_SHUTDOWN_FILE).unlink(missing_ok=True)
        for name in CHECKPOINTS:  # before the folders: a line of a partition that isn't there does no harm
            known = {place: read_offset_checkpoint(place / name) for place in notes}
            for target in targets:
                gained = {p: known[place][p] for p, place, to in moves if to == target and p in known[place]}
                if gained:
                    write_offset_checkpoint(target / name, {**read_offset_checkpoint(target / name), **gained})
        for (topic, index), place, target in moves:
            (place / f"{topic}-{index}").rename(target / f"{topic}-{index}")
        for directory in {*notes, *targets}:
            sync_path(directory)
            if are_clean:
                (directory / OWN_CLEAN_SHUTDOWN_FILE).touch()
