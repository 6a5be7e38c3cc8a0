"""Which worker's directory a partition lies in, and how partitions move when there are more or fewer workers."""

from __future__ import annotations

from pathlib import Path

import pytest

from groupcoord.host.worker_folders import MisplacedPartitionError, WorkerFolders
from groupcoord.storage.data_directory import OWN_CLEAN_SHUTDOWN_FILE
from groupcoord.storage.directory_lock import DirectoryLock
from groupcoord.storage.errors import DirectoryLockedError
from groupcoord.storage.log_directory import START_OFFSET_FILE, read_offset_checkpoint, write_offset_checkpoint


def make(path: Path, *names: str) -> None:
    for name in names:
        (path / name).mkdir(parents=True)
        (path / name / "log").write_text(name)


def placed(root: Path) -> dict[str, str]:
    """Return where each partition lies, and that it holds what it held."""
    places = WorkerFolders(root).places()
    assert all(
        (place / f"{name}-{index}" / "log").read_text() == f"{name}-{index}" for (name, index), place in places.items()
    )
    return {f"{name}-{index}": str(place.relative_to(root)) for (name, index), place in places.items()}


def test_partitions_go_to_workers_by_number(tmp_path: Path) -> None:
    """Partition p belongs to worker p modulo their number, and to the data directory itself if there is but one."""
    make(tmp_path, "orders-0", "orders-1", "orders-2", "a-b-5")
    folders = WorkerFolders(tmp_path)
    folders.spread(2)
    assert placed(tmp_path) == {
        "orders-0": "workers/1",
        "orders-2": "workers/1",
        "orders-1": "workers/2",
        "a-b-5": "workers/2",
    }
    folders.spread(3)
    assert placed(tmp_path) == {
        "orders-0": "workers/1",
        "orders-1": "workers/2",
        "orders-2": "workers/3",
        "a-b-5": "workers/3",
    }
    folders.spread(1)
    assert set(placed(tmp_path).values()) == {"."}
    assert not folders.is_divided


def test_a_move_that_was_interrupted_goes_on(tmp_path: Path) -> None:
    """A crash leaves each folder in the old place or in the new one; the next start moves what is left."""
    make(tmp_path / "workers" / "1", "orders-0", "orders-1")
    make(tmp_path, "orders-2")
    WorkerFolders(tmp_path).spread(2)
    assert placed(tmp_path) == {"orders-0": "workers/1", "orders-2": "workers/1", "orders-1": "workers/2"}


def test_where_logs_start_goes_with_them(tmp_path: Path) -> None:
    """Records that were deleted stay deleted."""
    make(tmp_path, "orders-0", "orders-1")
    write_offset_checkpoint(tmp_path / START_OFFSET_FILE, {("orders", 0): 7, ("orders", 1): 9})
    WorkerFolders(tmp_path).spread(2)
    assert read_offset_checkpoint(tmp_path / "workers" / "2" / START_OFFSET_FILE)["orders", 1] == 9
    WorkerFolders(tmp_path).spread(1)
    assert read_offset_checkpoint(tmp_path / START_OFFSET_FILE) == {("orders", 0): 7, ("orders", 1): 9}


@pytest.mark.parametrize("was_clean", [True, False])
def test_logs_are_checked_unless_all_were_left_in_order(tmp_path: Path, was_clean: bool) -> None:
    """The note that says so is not there where one of those that came was not in order."""
    make(tmp_path / "workers" / "1", "orders-0")
    make(tmp_path / "workers" / "2", "orders-1")
    for number in ("1", "2") if was_clean else ("1",):
        (tmp_path / "workers" / number / OWN_CLEAN_SHUTDOWN_FILE).touch()
    WorkerFolders(tmp_path).spread(1)
    assert (tmp_path / OWN_CLEAN_SHUTDOWN_FILE).exists() == was_clean


def test_a_partition_in_two_places_is_refused(tmp_path: Path) -> None:
    """Nobody knows which of the two is meant."""
    make(tmp_path, "orders-1")
    make(tmp_path / "workers" / "2", "orders-1")
    with pytest.raises(MisplacedPartitionError, match="orders-1 is both in"):
        WorkerFolders(tmp_path).spread(2)


def test_a_brokers_directory_is_left_alone(tmp_path: Path) -> None:
    """A JVM broker would not find its partitions any more."""
    make(tmp_path, "orders-1")
    (tmp_path / "meta.properties").touch()
    with pytest.raises(MisplacedPartitionError, match="is a broker's"):
        WorkerFolders(tmp_path).spread(2)
    assert placed(tmp_path) == {"orders-1": "."}


def test_nothing_is_taken_from_who_uses_it(tmp_path: Path) -> None:
    """A process that has one of the directories open keeps it."""
    make(tmp_path / "workers" / "1", "orders-0", "orders-1")
    lock = DirectoryLock(tmp_path / "workers" / "1")
    with pytest.raises(DirectoryLockedError):
        WorkerFolders(tmp_path).spread(2)
    lock.close()
    assert placed(tmp_path) == {"orders-0": "workers/1", "orders-1": "workers/1"}
