"""Files of a log directory: names, checkpoint and metadata files, atomic replacement, an LRU cache of descriptors."""

from __future__ import annotations

import base64
import contextlib
import os
import re
from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import TypeVar
from uuid import UUID, uuid4

from groupcoord.config.files import read_text
from groupcoord.core.log.records import OFFSETS_TOPIC

SEGMENT_SUFFIX = ".log"
SWAP_SUFFIX = ".log.swap"
OTHER_FILES = re.compile(
    r".*\.(?:index|timeindex|txnindex|snapshot|checkpoint|metadata)|.*-checkpoint|meta\.properties"
)
OFFSETS_FOLDER = re.compile(r"__consumer_offsets-(\d{1,10})")
PARTITION_FOLDER = re.compile(r".+-(\d{1,10})(?:\.[^.]+)?")
PathT = TypeVar("PathT")
FoundT = TypeVar("FoundT")
PARTITION_METADATA_FILE = "partition.metadata"
LEADER_EPOCH_FILE = "leader-epoch-checkpoint"
CLEANER_OFFSET_FILE = "cleaner-offset-checkpoint"
CLEAN_SHUTDOWN_FILE = ".kafka_cleanshutdown"
BROKER_FILE = "meta.properties"  # in the directory of every broker
START_OFFSET_FILE = "log-start-offset-checkpoint"
_PARTITION_FOLDER = re.compile(rf"{OFFSETS_TOPIC}-(0|[1-9][0-9]{{0,9}})")
_SEGMENT_FILE = re.compile(r"([0-9]{20})\.log")
_CHECKPOINT_LINE = re.compile(r"^(\S+) ([0-9]+) ([0-9]+)$", re.MULTILINE)
_TOPIC_ID_LINE = re.compile(r"^topic_id: ([A-Za-z0-9_-]{22})$", re.MULTILINE)


def replace_file(path: Path, content: bytes, *, is_durable: bool = True, is_secret: bool = False) -> None:
    """Replace a file atomically: readers see the old content or the new one, even if the process crashes.

    Args:
        is_durable: whether to sync the content; the directory is not synced.
        is_secret: whether only the owner may read it.

    Raises:
        OSError: it can't be written; the old file is unchanged.
    """
    # A rename is atomic only within a file system.
    temporary = path.with_name(path.name + ".tmp")
    try:
        if is_secret:
            temporary.unlink(missing_ok=True)  # one left by a crash may be readable by others
        with open(temporary, "wb", opener=partial(os.open, mode=0o600) if is_secret else None) as file:
            file.write(content)
            if is_durable:
                file.flush()
                os.fsync(file.fileno())
        temporary.replace(path)
    except OSError:
        with contextlib.suppress(OSError):
            temporary.unlink()
        raise


READING = os.O_RDONLY | os.O_CLOEXEC
# O_APPEND: a write after another descriptor's truncation lands at the end.
WRITING = os.O_RDWR | os.O_APPEND | os.O_CLOEXEC


class OpenFiles:
    """Descriptors by path; the least recently used one is closed when a file is opened beyond the limit.

    Attributes:
        closed_count: how many files were closed. A descriptor stays valid while it does not change.
    """

    def __init__(self, count_max: int) -> None:
        self._count_max = count_max
        self.closed_count = 0
        self._descriptors: OrderedDict[str, tuple[int, bool]] = OrderedDict()  # and whether it is writable

    def reading(self, path: str) -> int:
        found = self._descriptors.get(path)
        if found is None:
            return self._open(path, READING)
        self._descriptors.move_to_end(path)
        return found[0]

    def writing(self, path: str, *, creates: bool = False) -> int:
        """Return a descriptor for appending and reading; ``creates``: whether to create a missing file."""
        found = self._descriptors.get(path)
        if found is not None and found[1]:
            self._descriptors.move_to_end(path)
            return found[0]
        # One for reading is replaced.
        self.close(path)
        return self._open(path, WRITING | os.O_CREAT if creates else WRITING)

    def find(self, path: str) -> int:
        return self._descriptors.get(path, (-1, False))[0]

    def close(self, path: str) -> None:
        found = self._descriptors.pop(path, None)
        if found is not None:
            self.closed_count += 1
            os.close(found[0])

    def close_all(self) -> None:
        for path in list(self._descriptors):
            self.close(path)

    def _open(self, path: str, flags: int) -> int:
        while len(self._descriptors) >= self._count_max:
            self.close(next(iter(self._descriptors)))
        descriptor = os.open(path, flags, 0o644)
        self._descriptors[path] = descriptor, bool(flags & os.O_RDWR)
        return descriptor


def partition_folder(directory: Path, partition: int) -> Path:
    return directory / f"{OFFSETS_TOPIC}-{partition}"


def list_partitions(directory: Path) -> list[int]:
    """Return the partitions of ``__consumer_offsets`` that have a folder, in order."""
    matches = (_PARTITION_FOLDER.fullmatch(name) for name in os.listdir(directory))
    return sorted(int(match[1]) for match in matches if match)


def found_in_some(
    look: Callable[[PathT], FoundT], paths: Iterable[PathT], nothing_there: type[Exception]
) -> list[FoundT]:
    """Return what each of several directories holds; some may hold nothing.

    ``look`` returns the content of one, or raises ``nothing_there``, which is raised if all are empty.
    """
    found: list[FoundT] = []
    missing: list[Exception] = []
    for path in paths:
        try:
            found.append(look(path))
        except nothing_there as error:
            missing.append(error)
    if missing and not found:
        raise missing[0]
    return found


def segment_path(folder: Path, base_offset: int) -> Path:
    return folder / f"{base_offset:020d}{SEGMENT_SUFFIX}"


def list_segments(folder: Path) -> list[int]:
    try:
        names = os.listdir(folder)
    except FileNotFoundError:
        return []
    matches = (_SEGMENT_FILE.fullmatch(name) for name in names)
    return sorted(int(match[1]) for match in matches if match)


def find_topic_id(directory: Path) -> UUID:
    """Return the id of ``__consumer_offsets`` in the metadata files of its partitions, or a new id."""
    for partition in list_partitions(directory):
        topic_id = read_topic_id(partition_folder(directory, partition))
        if topic_id is not None:
            return topic_id
    return new_topic_id()


def read_topic_id(folder: Path) -> UUID | None:
    try:
        text = read_text(folder / PARTITION_METADATA_FILE, "ascii")
    except (OSError, UnicodeDecodeError):
        return None
    match = _TOPIC_ID_LINE.search(text)
    return None if match is None else UUID(bytes=base64.urlsafe_b64decode(match[1] + "=="))


def new_topic_id() -> UUID:
    """Return a random id whose text does not start with a dash, which tools would take for an option."""
    while True:
        topic_id = uuid4()
        if not topic_id_text(topic_id).startswith("-"):
            return topic_id


def topic_id_text(topic_id: UUID) -> str:
    return base64.urlsafe_b64encode(topic_id.bytes).decode("ascii").rstrip("=")


def write_partition_metadata(folder: Path, topic_id: UUID) -> None:
    path = folder / PARTITION_METADATA_FILE
    if not path.exists():
        replace_file(path, f"version: 0\ntopic_id: {topic_id_text(topic_id)}".encode())


def write_leader_epochs(folder: Path, entries: Sequence[tuple[int, int]]) -> None:
    lines = ["0", str(len(entries)), *(f"{epoch} {offset}" for epoch, offset in entries), ""]
    replace_file(folder / LEADER_EPOCH_FILE, "\n".join(lines).encode(), is_durable=False)


def read_leader_epochs(folder: Path) -> list[tuple[int, int]]:
    """Return the epochs in ``leader-epoch-checkpoint`` with their start offsets, oldest first; none without a file.

    Raises:
        ValueError: the file is malformed.
    """
    path = folder / LEADER_EPOCH_FILE
    if not path.exists():
        return []
    lines = read_text(path, "ascii").split("\n")
    if lines[0] != "0" or len(lines) < 2:
        raise ValueError(f"{path}: not a leader epoch checkpoint of version 0")
    numbers = [line.split(" ") for line in lines[2 : 2 + int(lines[1])]]
    entries = [(int(epoch), int(offset)) for epoch, offset in numbers]
    is_ordered = all(one < other and begin <= end for (one, begin), (other, end) in pairwise([(-1, 0), *entries]))
    if len(entries) != int(lines[1]) or not is_ordered:
        raise ValueError(f"{path}: not all epochs are there, in order")
    return entries


def read_offset_checkpoint(path: Path) -> dict[tuple[str, int], int]:
    """Return the offsets in one of Kafka's offset checkpoint files by topic and partition; empty without a file."""
    try:
        # Not validated: such files are replaced atomically.
        matches = _CHECKPOINT_LINE.findall(read_text(path, "ascii"))
    except (OSError, UnicodeDecodeError):
        return {}
    return {(topic, int(partition)): int(offset) for topic, partition, offset in matches}


def write_offset_checkpoint(path: Path, offsets: Mapping[tuple[str, int], int]) -> None:
    lines = ["0", str(len(offsets)), *(f"{topic} {index} {offset}" for (topic, index), offset in offsets.items()), ""]
    replace_file(path, "\n".join(lines).encode(), is_durable=False)


def forget_clean_shutdown(directory: Path) -> None:
    (directory / CLEAN_SHUTDOWN_FILE).unlink(missing_ok=True)


def sync_path(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
