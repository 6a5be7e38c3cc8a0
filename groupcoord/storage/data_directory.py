"""Data directory with a folder for each partition, in Kafka's layout: a broker's or one made here."""

from __future__ import annotations

import logging
import os
import re
import shutil
from collections.abc import Container
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple
from uuid import UUID, uuid4

from groupcoord.storage.log_directory import (
    BROKER_FILE,
    CLEAN_SHUTDOWN_FILE,
    START_OFFSET_FILE,
    forget_clean_shutdown,
    new_topic_id,
    read_offset_checkpoint,
    read_topic_id,
    write_offset_checkpoint,
)
from groupcoord.storage.open_files import OpenFiles

if TYPE_CHECKING:
    from groupcoord.storage.log_folder import LogFolder

OWN_CLEAN_SHUTDOWN_FILE = ".groupcoord_cleanshutdown"
"""Marks a clean shutdown. Kafka's own file would promise a broker more files than are written here."""

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

    Args:
        path: the directory.
        descriptors_max: the most files that are open at a time.

    Attributes:
        was_clean: True after a clean shutdown, so that logs need no check when they are opened.
        files: the open files.

    Raises:
        OSError: it can't be read, or a half-deleted folder can't be deleted.
    """

    def __init__(self, path: Path, *, descriptors_max: int) -> None:
        self.path = path
        self.files = OpenFiles(descriptors_max)
        # A broker that used the directory since does not know our file, so only its own file counts there.
        note = CLEAN_SHUTDOWN_FILE if (path / BROKER_FILE).exists() else OWN_CLEAN_SHUTDOWN_FILE
        self.was_clean = (path / note).exists()
        forget_clean_shutdown(path)
        (path / OWN_CLEAN_SHUTDOWN_FILE).unlink(missing_ok=True)
        self._start_offsets = read_offset_checkpoint(path / START_OFFSET_FILE)
        for name in os.listdir(path):
            if _DELETED_FOLDER.fullmatch(name):
                shutil.rmtree(path / name)

    def folder(self, topic: str, topic_id: UUID, partition_index: int) -> LogFolder:
        """Return the folder of a partition, which need not exist."""
        from groupcoord.storage.log_folder import LogFolder

        return LogFolder(self.path / f"{topic}-{partition_index}", topic_id)

    def partitions(self) -> dict[str, list[int]]:
        """Return the partitions that have a folder, by topic."""
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
        """Return the lowest possible start offset of a log."""
        return self._start_offsets.get((topic, partition_index), 0)

    def note_start_offset(self, topic: str, partition_index: int, offset: int) -> None:
        """Store the start offset of a log.

        Raises:
            OSError: it can't be written; nothing has changed.
        """
        start_offsets = {**self._start_offsets, (topic, partition_index): offset}
        write_offset_checkpoint(self.path / START_OFFSET_FILE, start_offsets)
        self._start_offsets = start_offsets

    def delete(self, topic: str) -> None:
        """Delete the folders of a topic. The next start deletes what remains after a disk error."""
        for index in self.partitions().get(topic, ()):
            folder = self.path / f"{topic}-{index}"
            try:
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
        """Close all files.

        Args:
            is_clean: whether all logs are intact.

        Raises:
            OSError: the mark of a clean shutdown can't be written.
        """
        self.files.close_all()
        if is_clean:
            (self.path / OWN_CLEAN_SHUTDOWN_FILE).touch()


def _deleted_name(name: str) -> str:
    """Return the name of a folder that is being deleted, as in Kafka."""
    suffix = f".{uuid4().hex}-delete"
    return name[: NAME_LENGTH_MAX - len(suffix)] + suffix
