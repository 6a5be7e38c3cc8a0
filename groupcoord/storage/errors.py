"""What can go wrong with a log directory, beyond the errors of the log store contract."""

from __future__ import annotations

from pathlib import Path

from groupcoord.errors import ErrorCode, GroupcoordError
from groupcoord.log_store import LogStoreError, StorageError


class LogDirectoryError(GroupcoordError, OSError):
    """A log directory can't be used. ``path`` names it.

    The message says why: it is a file, it can't be created, nothing can be written there.
    """

    def __init__(self, path: Path, reason: str) -> None:
        super().__init__(f"log directory {path}: {reason}")
        self.path = path
        self.reason = reason


class DirectoryLockedError(LogDirectoryError):
    """Another process, or another store of this one, holds the lock of the directory."""

    def __init__(self, path: Path) -> None:
        super().__init__(path, "another process is using it")


class CorruptLogError(LogStoreError):
    """A segment file is broken where records follow, so that cutting it would lose them. Nothing was changed.

    Attributes:
        path: the file.
        position: the byte in it where the broken batch starts.
        reason: what is wrong there.
    """

    error_code = ErrorCode.KAFKA_STORAGE_ERROR

    def __init__(self, path: Path, position: int, reason: str) -> None:
        super().__init__(f"{path} is corrupt at position {position}: {reason}")
        self.path = path
        self.position = position
        self.reason = reason


class LostSegmentError(StorageError):
    """A segment file was deleted, moved or changed by somebody else: what was acknowledged may be gone with it.

    The log partition can be used again when what was acknowledged is back.
    """

    outcome_unknown = True
