"""Errors of log directories and logs; a log's errors are also errors of a log store."""

from __future__ import annotations

from pathlib import Path

from groupcoord.errors import ErrorCode, GroupcoordError
from groupcoord.log_store import AppendOutcomeUnknownError, LogStoreError, StorageError


class LogDirectoryError(GroupcoordError, OSError):
    """A log directory can't be used, for a ``reason``. ``path`` names it."""

    def __init__(self, path: Path, reason: str) -> None:
        super().__init__(f"log directory {path}: {reason}")
        self.path = path
        self.reason = reason


class DirectoryLockedError(LogDirectoryError):
    """Another process, or another store of this one, uses the directory."""

    def __init__(self, path: Path) -> None:
        super().__init__(path, "another process is using it")


class CorruptLogError(LogStoreError):
    """A segment file is corrupt before its last batch; truncating it would lose records, so nothing was changed.

    Attributes:
        path: the file.
        position: the position of the corrupt batch, in bytes.
        reason: what is wrong with it.
    """

    error_code = ErrorCode.KAFKA_STORAGE_ERROR

    def __init__(self, path: Path, position: int, reason: str) -> None:
        super().__init__(f"{path} is corrupt at position {position}: {reason}")
        self.path = path
        self.position = position
        self.reason = reason


class TopicLogError(GroupcoordError, LogStoreError):
    """A log can't execute an operation.

    Attributes:
        error_code: the error code of the response.
        reason: the message of the response in newer versions.
        records: indexes of the invalid records in the batch; empty if the batch as a whole is invalid.
        tells_start: whether the response holds the start offset of the log, as for errors that the log found.
    """

    def __init__(
        self, error_code: ErrorCode, reason: str, *, tells_start: bool = True, records: tuple[int, ...] = ()
    ) -> None:
        super().__init__(reason)
        self.error_code = error_code
        self.reason = reason
        self.tells_start = tells_start
        self.records = records


class RefusedBatchError(TopicLogError):
    """A batch can't be appended; nothing has changed."""


class UnwrittenBatchError(RefusedBatchError, StorageError):
    """The disk failed or is full, and the partial write was undone: KAFKA_STORAGE_ERROR."""

    def __init__(self, reason: str) -> None:
        super().__init__(ErrorCode.KAFKA_STORAGE_ERROR, reason)


class FailedLogError(TopicLogError, AppendOutcomeUnknownError):
    """The files of a log can't be used at present: KAFKA_STORAGE_ERROR, as from a broker with a failed disk."""

    def __init__(self, reason: str) -> None:
        super().__init__(ErrorCode.KAFKA_STORAGE_ERROR, reason, tells_start=False)


class LostSegmentError(FailedLogError):
    """Another program deleted, moved or changed a segment file. The log can be used again when its records are back."""
