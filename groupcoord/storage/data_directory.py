"""Data directory in Kafka's layout: a folder for each partition, and the lock against other stores and JVM brokers.

Two locks are held. ``flock`` on the directory itself excludes other stores, also of this process, whichever files are
deleted in it. A POSIX lock on the file ``.lock`` excludes a JVM broker, which does not respect ``flock``. Deleting that
file lets a broker in; it is created again as soon as that is noticed.
"""

from __future__ import annotations

import fcntl
import logging
import os
import re
import shutil
from collections.abc import Container
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple
from uuid import UUID, uuid4

from groupcoord.storage.errors import DirectoryLockedError, LogDirectoryError
from groupcoord.storage.files import (
    BROKER_FILE,
    CLEAN_SHUTDOWN_FILE,
    START_OFFSET_FILE,
    OpenFiles,
    forget_clean_shutdown,
    new_topic_id,
    read_offset_checkpoint,
    read_topic_id,
    write_offset_checkpoint,
)

if TYPE_CHECKING:
    from groupcoord.storage.log.folder import LogFolder


LOCK_FILE = ".lock"

_AT_ONCE = fcntl.LOCK_EX | fcntl.LOCK_NB


class DirectoryLock:
    """Locked directory, which is created if it does not exist. Closing it releases the lock.

    Raises:
        DirectoryLockedError: another process or store holds the lock.
        LogDirectoryError: it is not a directory, or can't be created, written or locked.
    """

    def __init__(self, directory: Path, *, against_brokers: bool = True) -> None:
        self._directory = directory
        self._against_brokers = against_brokers
        self._descriptors: list[int] = []  # of the directory, if it can be locked, and of the file
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
            # Another store may have locked a new file already.
            if not self._locks_directory or not _is_same(self._directory, self._descriptors[0]):
                return False
            descriptor = self._locked_file()
        except OSError:  # includes BlockingIOError
            return False
        os.close(self._descriptors.pop())
        self._descriptors.append(descriptor)
        return True

    def note(self, text: str) -> None:
        descriptor = self._descriptors[-1]
        os.ftruncate(descriptor, 0)
        os.write(descriptor, text.encode())

    def close(self) -> None:
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
        # The file stays when the lock is released: another process may have locked it.
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


OWN_CLEAN_SHUTDOWN_FILE = ".groupcoord_cleanshutdown"
"""Marks a clean shutdown. Kafka's own file promises a broker more files than are written here."""

NAME_LENGTH_MAX = 255
"""Longest name of a file, in bytes."""

_FOLDER = re.compile(r"(.+)-(0|[1-9][0-9]{0,8})")
_DELETED_FOLDER = re.compile(r".+\.[0-9a-f]{32}-delete")

logger = logging.getLogger(__name__)


class FoundTopic(NamedTuple):
    """A topic that has folders."""

    name: str
    topic_id: UUID
    partition_count: int


class DataDirectory:
    """Directory that this process has locked.

    Attributes:
        was_clean: True after a clean shutdown, so that logs need no check when they are opened.

    Raises:
        OSError: it can't be read, or a half-deleted folder can't be deleted.
    """

    def __init__(self, path: Path, *, descriptors_max: int) -> None:
        self.path = path
        self.files = OpenFiles(descriptors_max)
        # A broker that used the directory since does not know our file.
        note = CLEAN_SHUTDOWN_FILE if (path / BROKER_FILE).exists() else OWN_CLEAN_SHUTDOWN_FILE
        self.was_clean = (path / note).exists()
        # A crash from here on must not look like a clean shutdown.
        forget_clean_shutdown(path)
        (path / OWN_CLEAN_SHUTDOWN_FILE).unlink(missing_ok=True)
        self._start_offsets = read_offset_checkpoint(path / START_OFFSET_FILE)
        for name in os.listdir(path):
            if _DELETED_FOLDER.fullmatch(name):
                shutil.rmtree(path / name)

    def folder(self, topic: str, topic_id: UUID, partition_index: int) -> LogFolder:
        from groupcoord.storage.log.folder import LogFolder

        return LogFolder(self.path / f"{topic}-{partition_index}", topic_id)

    def partitions(self) -> dict[str, list[int]]:
        found: dict[str, list[int]] = {}
        for match in map(_FOLDER.fullmatch, sorted(os.listdir(self.path))):
            if match:
                found.setdefault(match[1], []).append(int(match[2]))
        return found

    def find_topics(self, known: Container[str]) -> list[FoundTopic]:
        """Return the topics that have folders and are not known here, because a broker made them."""
        found = []
        for name, indexes in self.partitions().items():
            if name not in known:
                topic_id = read_topic_id(self.path / f"{name}-{indexes[0]}") or new_topic_id()
                found.append(FoundTopic(name, topic_id, max(indexes) + 1))
        return found

    def start_offset(self, topic: str, partition_index: int) -> int:
        return self._start_offsets.get((topic, partition_index), 0)

    def note_start_offset(self, topic: str, partition_index: int, offset: int) -> None:
        start_offsets = {**self._start_offsets, (topic, partition_index): offset}
        write_offset_checkpoint(self.path / START_OFFSET_FILE, start_offsets)
        self._start_offsets = start_offsets

    def delete(self, topic: str) -> None:
        """Delete the folders of a topic, as far as the disk allows."""
        for index in self.partitions().get(topic, ()):
            folder = self.path / f"{topic}-{index}"
            try:
                # Renamed first, as in Kafka: the next start deletes what a crash leaves, also a broker's.
                shutil.rmtree(folder.rename(folder.with_name(_deleted_name(folder.name))))
            except OSError as error:
                logger.error("%s can't be deleted: %s", folder, error)
        if any(name == topic for name, _ in self._start_offsets):
            left = {key: offset for key, offset in self._start_offsets.items() if key[0] != topic}
            try:
                write_offset_checkpoint(self.path / START_OFFSET_FILE, left)
            except OSError as error:
                logger.error("%s can't be written: %s", self.path / START_OFFSET_FILE, error)
            self._start_offsets = left

    def close(self, *, is_clean: bool) -> None:
        """Close all files, and leave the mark of a clean shutdown if all logs are intact."""
        self.files.close_all()
        if is_clean:
            (self.path / OWN_CLEAN_SHUTDOWN_FILE).touch()


def _deleted_name(name: str) -> str:
    suffix = f".{uuid4().hex}-delete"
    return name[: NAME_LENGTH_MAX - len(suffix)] + suffix
