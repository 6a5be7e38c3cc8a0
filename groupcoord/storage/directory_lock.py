"""The lock of a directory: as long as it is held, no other store, and no JVM broker, uses the directory.

Two things are locked. The directory itself (``flock``) keeps other stores out, of this process too, whatever files
somebody deletes in it. Its ``.lock`` is what a JVM broker locks, with a POSIX lock that ``flock`` neither sees nor
hinders. Who deletes that file lets a broker in, as with two brokers; it is made anew as soon as that is seen.
"""

from __future__ import annotations

import fcntl
import os
from pathlib import Path

from groupcoord.storage.errors import DirectoryLockedError, LogDirectoryError

LOCK_FILE = ".lock"

_AT_ONCE = fcntl.LOCK_EX | fcntl.LOCK_NB


class DirectoryLock:
    """A directory that is locked, and created before if need be. Close it to give the directory free.

    Args:
        directory: what to lock.
        against_brokers: lock JVM brokers out too.

    Raises:
        DirectoryLockedError: somebody else holds the lock.
        LogDirectoryError: it is not a directory, or can't be created, written to or locked.
    """

    def __init__(self, directory: Path, *, against_brokers: bool = True) -> None:
        self._directory = directory
        self._against_brokers = against_brokers
        self._descriptors: list[int] = []  # of the directory, if it can be locked, and last of the file
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
        """Tell whether it was not closed yet."""
        return bool(self._descriptors)

    def still_holds(self) -> bool:
        """Tell whether others are kept out still; a lock file that was deleted is made anew.

        Returns:
            False: the directory is another one, or a broker has locked it after the file was deleted. Where directories
            can't be locked, as over NFS, also after the file was deleted.
        """
        try:
            if self._is_own_file():
                return True
            if not self._locks_directory or not _is_same(self._directory, self._descriptors[0]):
                return False
            descriptor = self._locked_file()
        except OSError:  # of which BlockingIOError is one
            return False
        os.close(self._descriptors.pop())
        self._descriptors.append(descriptor)
        return True

    def note(self, text: str) -> None:
        """Write into the lock file who holds the lock: for others to read who don't get it."""
        descriptor = self._descriptors[-1]
        os.ftruncate(descriptor, 0)
        os.write(descriptor, text.encode())

    def close(self) -> None:
        """Give the directory free."""
        while self._descriptors:
            os.close(self._descriptors.pop())

    def _lock_directory(self) -> bool:
        """Lock the directory itself; return False on a file system where that can't be done."""
        descriptor = os.open(self._directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        self._descriptors.append(descriptor)
        try:
            fcntl.flock(descriptor, _AT_ONCE)
        except BlockingIOError:
            raise
        except OSError:  # over NFS it takes a file that can be written to
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
