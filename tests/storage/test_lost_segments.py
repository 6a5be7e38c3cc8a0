"""Segment files that are deleted, moved or changed under a running store: it notices, and does not go on without."""

from __future__ import annotations

import errno
import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from groupcoord.log_store import AppendOutcomeUnknownError, StorageError
from groupcoord.storage.errors import LostSegmentError
from groupcoord.storage.log.file_log import CHECK_INTERVAL_MS
from groupcoord.storage.stores import segments
from groupcoord.storage.stores.segments import CHECKED_AT_ONCE, SegmentLogStore
from tests.storage.storage_logs import append, commit, log_file, read
from tests.tables import as_one_test


def fail(*_: object) -> None:
    raise OSError(errno.EIO, "Input/output error")


def replace(path: Path) -> None:
    """Put a copy in the place of a file, as a careless restore does."""
    shutil.copy(path, path.with_suffix(".copy"))
    path.with_suffix(".copy").replace(path)


def truncate(path: Path) -> None:
    os.truncate(path, 10)


def extend(path: Path) -> None:
    with open(path, "ab") as file:
        file.write(b"x")


def delete_folder(path: Path) -> None:
    shutil.rmtree(path.parent)


Harm = Callable[[Path], None]

at_once = pytest.mark.parametrize("harm", [Path.unlink, delete_folder, replace, truncate, extend])


@at_once
def test_an_append_into_a_lost_file_is_not_acknowledged(tmp_path: Path, harm: Harm) -> None:
    """The first append of the next interval finds that its file is gone or was changed, and names it."""
    with SegmentLogStore(tmp_path) as store:
        append(store, commit(0), timestamp_ms=1_000)
        harm(log_file(tmp_path))
        with pytest.raises(LostSegmentError, match=log_file(tmp_path).name) as raised:
            append(store, commit(1), timestamp_ms=1_000 + CHECK_INTERVAL_MS)
        assert raised.value.outcome_unknown


def test_a_file_that_was_closed_for_others_is_not_lost(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With more log partitions than open files, each append finds its file, opened again."""
    monkeypatch.setattr(segments, "DESCRIPTORS_MAX", 2)
    with SegmentLogStore(tmp_path) as store:
        for round_number in range(3):
            for partition in range(3):
                append(store, commit(0), partition=partition, timestamp_ms=round_number * CHECK_INTERVAL_MS)

        assert [store.end_offset(partition) for partition in range(3)] == [3, 3, 3]
        log_file(tmp_path, partition=0).unlink()
        with pytest.raises(LostSegmentError):
            append(store, commit(1), partition=0, timestamp_ms=2 * CHECK_INTERVAL_MS + 1)
        assert not log_file(tmp_path, partition=0).exists()


@pytest.mark.parametrize("harm", [Path.unlink, delete_folder, truncate, extend])
def test_a_file_lost_before_the_first_append_is_not_written(tmp_path: Path, harm: Harm) -> None:
    """A log that was read, but not written yet, gets no new file in the place of a lost one."""
    with SegmentLogStore(tmp_path) as store:
        append(store, commit(0))
    with SegmentLogStore(tmp_path) as store:
        assert store.end_offset(3) == 1
        harm(log_file(tmp_path))
        left = sorted(tmp_path.rglob("*.log"))
        with pytest.raises(LostSegmentError):
            append(store, commit(1))
        assert sorted(tmp_path.rglob("*.log")) == left


def move_folder(path: Path) -> None:
    path.parent.rename(path.parent.with_name("elsewhere"))


@as_one_test
@pytest.mark.parametrize("harm", [Path.unlink, delete_folder, move_folder, replace, truncate, extend])
def test_a_log_that_nobody_writes_is_looked_after(tmp_path: Path, harm: Harm) -> None:
    """Looking for failed partitions finds the loss as well, once."""
    with SegmentLogStore(tmp_path) as store:
        append(store, commit(0))
        append(store, commit(0), partition=4)
        assert store.find_failed() == {}
        harm(log_file(tmp_path))
        ((partition, error),) = store.find_failed().items()
        assert partition == 3
        assert log_file(tmp_path).name in str(error)
        assert store.find_failed() == {}
        assert append(store, commit(1), partition=4) == 1


def test_an_older_segment_is_missed(tmp_path: Path) -> None:
    """A lost segment that nothing is written to any more is noticed too, and the rest is not served without it."""
    with SegmentLogStore(tmp_path, segment_bytes=200) as store:
        for offset in range(3):
            append(store, commit(offset))
        content = log_file(tmp_path, 1).read_bytes()
        log_file(tmp_path, 1).unlink()
        assert store.find_failed().keys() == {3}
        for _ in range(2):
            with pytest.raises(LostSegmentError, match=f"{log_file(tmp_path, 1)} is missing"):
                read(store)
        log_file(tmp_path, 1).write_bytes(content)
        assert [offset for offset, _ in read(store)] == [0, 1, 2]


def test_what_was_acknowledged_must_come_back(tmp_path: Path) -> None:
    """A lost log is not taken for an empty one: it stays refused until its records are there again."""
    with SegmentLogStore(tmp_path) as store:
        for offset in range(3):
            append(store, commit(offset))
        content = log_file(tmp_path).read_bytes()
        log_file(tmp_path).unlink()
        assert store.find_failed().keys() == {3}
        log_file(tmp_path).write_bytes(content[: len(content) // 3])
        for use in (read, append, lambda store: list(store.read_last(3)), lambda store: store.end_offset(3)):
            with pytest.raises(LostSegmentError, match="ends at offset 1, but all below 3 was acknowledged"):
                use(store, commit(9)) if use is append else use(store)
        log_file(tmp_path).write_bytes(content)
        assert append(store, commit(3)) == 3


def test_a_log_of_somebody_else_is_not_opened(tmp_path: Path) -> None:
    """A directory that another process has deleted and created again belongs to that process, whatever is in it."""
    with SegmentLogStore(tmp_path / "data") as store:
        append(store, commit(0))
        shutil.rmtree(tmp_path / "data")
        assert store.find_failed().keys() == {3}
        with SegmentLogStore(tmp_path / "data") as other:
            for offset in range(5):
                append(other, commit(offset))
            with pytest.raises(StorageError, match="no longer locked"):
                read(store)
            assert append(other, commit(5)) == 5


def test_a_batch_that_was_not_acknowledged_may_stay_away(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The part that an append of unknown outcome did not write is not missed when the log is read again."""
    with SegmentLogStore(tmp_path, flush_interval_messages=1) as store:
        append(store, commit(0))
        size = log_file(tmp_path).stat().st_size
        monkeypatch.setattr(os, "fsync", fail)
        with pytest.raises(AppendOutcomeUnknownError):
            append(store, commit(1))
        monkeypatch.undo()
        os.truncate(log_file(tmp_path), size)
        assert append(store, commit(2)) == 1


def test_a_failed_flush_by_time_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An fsync that fails between appends makes its partition one to load again."""
    with SegmentLogStore(tmp_path, flush_interval_ms=10) as store:
        append(store, commit(0), timestamp_ms=1_000)
        monkeypatch.setattr(os, "fsync", fail)
        with pytest.raises(StorageError):
            store.flush_due(1_010)
        monkeypatch.undo()
        ((partition, error),) = store.find_failed().items()
        assert partition == 3
        assert "fsync failed" in str(error)


def test_each_call_looks_at_a_few_partitions(tmp_path: Path) -> None:
    count = 3 * CHECKED_AT_ONCE + 1
    with SegmentLogStore(tmp_path) as store:
        for partition in range(count):
            append(store, commit(0), partition=partition)
            log_file(tmp_path, partition=partition).unlink()
        found = [len(store.find_failed()) for _ in range(4)]
        assert found == [CHECKED_AT_ONCE] * 3 + [1]


def test_a_disk_where_nothing_can_be_written_is_left_as_it_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """On a file system that became read-only no truncation is needed: the outcome is known, and reading continues."""

    def refuse(*_: object) -> int:
        raise OSError(errno.EROFS, "Read-only file system")

    with SegmentLogStore(tmp_path) as store:
        append(store, commit(0))
        monkeypatch.setattr(os, "write", refuse)
        monkeypatch.setattr(os, "ftruncate", refuse)
        with pytest.raises(StorageError, match="Read-only file system") as raised:
            append(store, commit(1))
        assert not raised.value.outcome_unknown
        assert [offset for offset, _ in read(store)] == [0]
        monkeypatch.undo()
        assert append(store, commit(1)) == 1
