"""Locks of a directory: one store, whatever files are deleted, and a JVM broker with its own lock."""

from __future__ import annotations

import errno
import fcntl
import os
import stat
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from groupcoord.log_store import StorageError
from groupcoord.storage.errors import DirectoryLockedError, LogDirectoryError
from groupcoord.storage.stores.segments import SegmentLogStore
from tests.storage.storage_logs import append, commit

LOCK_AS_A_BROKER = """
import fcntl, sys
file = open(sys.argv[1] + "/.lock", "w")
try:
    fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
except BlockingIOError:
    print("refused", flush=True)
else:
    print("locked", flush=True)
    sys.stdin.read()
"""


@contextmanager
def broker(directory: Path) -> Iterator[str]:
    """Lock a directory as a JVM broker does, in another process; yields whether that worked."""
    command = [sys.executable, "-I", "-S", "-c", LOCK_AS_A_BROKER, str(directory)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            yield process.stdout.readline().strip()
        finally:
            process.communicate()


def refuse_directories(monkeypatch: pytest.MonkeyPatch) -> None:
    """Simulate a file system without locks on directories, as NFS."""
    flock = fcntl.flock

    def flock_files(descriptor: int, operation: int) -> None:
        if stat.S_ISDIR(os.fstat(descriptor).st_mode):
            raise OSError(errno.EBADF, "Bad file descriptor")
        flock(descriptor, operation)

    monkeypatch.setattr(fcntl, "flock", flock_files)


def test_a_broker_and_a_store_keep_each_other_out(tmp_path: Path) -> None:
    """The second one is refused, also after another store was; afterwards the directory is free."""
    with SegmentLogStore(tmp_path):
        with pytest.raises(DirectoryLockedError, match=f"log directory {tmp_path}: another process is using it"):
            SegmentLogStore(tmp_path)
        with broker(tmp_path) as outcome:
            assert outcome == "refused"
    with broker(tmp_path) as outcome:
        assert outcome == "locked"
        with pytest.raises(DirectoryLockedError):
            SegmentLogStore(tmp_path)
    SegmentLogStore(tmp_path).close()


def test_deleting_the_lock_file_lets_no_other_store_in(tmp_path: Path) -> None:
    """The directory itself is locked; and the file comes back, so that brokers are kept out again, too."""
    with SegmentLogStore(tmp_path) as store:
        append(store, commit(0))
        (tmp_path / ".lock").unlink()
        with pytest.raises(DirectoryLockedError):
            SegmentLogStore(tmp_path)
        assert store.find_failed() == {}
        with broker(tmp_path) as outcome:
            assert outcome == "refused"
        (tmp_path / ".lock").unlink()
        append(store, commit(0), partition=4)  # is opened for it
        with broker(tmp_path) as outcome:
            assert outcome == "refused"
    SegmentLogStore(tmp_path).close()


def test_a_broker_that_was_let_in_is_noticed(tmp_path: Path) -> None:
    """It locks the file that it creates before the store does, which then opens nothing more."""
    with SegmentLogStore(tmp_path) as store:
        (tmp_path / ".lock").unlink()
        with broker(tmp_path) as outcome:
            assert outcome == "locked"
            with pytest.raises(StorageError, match="no longer locked"):
                append(store, commit(0))
        assert append(store, commit(0)) == 0


def test_where_directories_can_not_be_locked_the_file_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Other stores are kept out by it; when it is deleted nothing more is opened: another may be there."""
    refuse_directories(monkeypatch)
    with SegmentLogStore(tmp_path) as store:
        with pytest.raises(DirectoryLockedError):
            SegmentLogStore(tmp_path)
        (tmp_path / ".lock").unlink()
        with SegmentLogStore(tmp_path), pytest.raises(StorageError, match="no longer locked"):
            append(store, commit(0))


def test_where_nothing_can_be_locked_no_store_is_opened(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The error has the reason, and no descriptor is left."""

    def refuse(*_: object) -> None:
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr(fcntl, "flock", refuse)
    descriptors = len(os.listdir("/proc/self/fd"))
    with pytest.raises(LogDirectoryError, match="No locks available"):
        SegmentLogStore(tmp_path)
    assert len(os.listdir("/proc/self/fd")) == descriptors
