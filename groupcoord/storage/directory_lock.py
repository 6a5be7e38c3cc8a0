"""Lock of a directory against other stores and against JVM brokers.

Two locks are held. ``flock`` on the directory itself excludes other stores, also of this process, whichever files are
deleted in it. A POSIX lock on the file ``.lock`` excludes a JVM broker, which neither sees nor respects ``flock``.
Deleting that file lets a broker in, as with two brokers; it is created again as soon as that is noticed.
"""

from __future__ import annotations

import fcntl
import os
from pathlib import Path

from groupcoord.storage.errors import DirectoryLockedError, LogDirectoryError

LOCK_FILE = ".lock"

_AT_ONCE = fcntl.LOCK_EX | fcntl.LOCK_NB


class DirectoryLock:
    """Locked directory, which is created if it does not exist. Closing it releases the lock.

    Args:
        directory: the directory.
        against_brokers: whether to exclude JVM brokers, too.

    Raises:
        DirectoryLockedError: another process or store holds the lock.
        LogDirectoryError: it is not a directory, or can't be created, written or locked.
    """

    def __init__(self, directory: Path, *, against_brokers: bool = True) -> None:
        self._directory = directory
        self._against_brokers = against_brokers
        self._descriptors: list[int] = []  # of the directory, if it can be locked, and then of the file
        try:
            directory.mkdir(parents=True, exist_ok=True)
            self._locks_directory = self._lock_directory()
            self._descriptors.append(self._locked_file())
        except FileExistsError:
            raise LogDirectoryError(directory, "it is not a directory") from None
        except BlockingIOError:
            self.close()
            raise DirectoryLockedError(directory) from None
        except OSError as error:
            self.close()
            raise LogDirectoryError(directory, error.strerror or str(error)) from error

    @property
    def is_open(self) -> bool:
        """Return whether it was not closed yet."""
        return bool(self._descriptors)

    def still_holds(self) -> bool:
        """Return whether others are still excluded; create a deleted lock file again.

        Returns:
            False if the directory was replaced, or a broker has locked it after the file was deleted. Where directories
            can't be locked, as over NFS, also if the file was deleted.
        """
        try:
            if self._is_own_file():
                return True
            if not self._locks_directory or not _is_same(self._directory, self._descriptors[0]):
                return False
            descriptor = self._locked_file()
        except OSError:  # includes BlockingIOError
            return False
        os.close(self._descriptors.pop())
        self._descriptors.append(descriptor)
        return True

    def note(self, text: str) -> None:
        """Write the holder into the lock file, for processes that fail to lock it."""
        descriptor = self._descriptors[-1]
        os.ftruncate(descriptor, 0)
        os.write(descriptor, text.encode())

    def close(self) -> None:
        """Release the lock."""
        while self._descriptors:
            os.close(self._descriptors.pop())

    def _lock_directory(self) -> bool:
        """Lock the directory itself; return False on a file system that can't."""
        descriptor = os.open(self._directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        self._descriptors.append(descriptor)
        try:
            fcntl.flock(descriptor, _AT_ONCE)
        except BlockingIOError:
            raise
        except OSError:  # NFS locks only files that can be written
            os.close(self._descriptors.pop())
            return False
        return True

    def _locked_file(self) -> int:
        descriptor = os.open(self._directory / LOCK_FILE, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            if not self._locks_directory:
                fcntl.flock(descriptor, _AT_ONCE)
            if self._against_brokers:
                fcntl.lockf(descriptor, _AT_ONCE)
        except OSError:
            os.close(descriptor)
            raise
        return descriptor

    def _is_own_file(self) -> bool:
        try:
            return _is_same(self._directory / LOCK_FILE, self._descriptors[-1])
        except FileNotFoundError:
            return False


def _is_same(path: Path, descriptor: int) -> bool:
    return os.path.samestat(path.stat(), os.fstat(descriptor))
