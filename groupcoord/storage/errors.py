"""What can go wrong with log directories and the logs in them: a log's errors are also those of a log store."""

from __future__ import annotations

from pathlib import Path

from groupcoord.errors import ErrorCode, GroupcoordError
from groupcoord.log_store import AppendOutcomeUnknownError, LogStoreError, StorageError


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


class TopicLogError(GroupcoordError, LogStoreError):
    """A log can't do what it is asked.

    Attributes:
        error_code: what the client is answered.
        reason: the same in words, which answers of newer versions carry.
        records: the numbers of the records in the batch that it is refused for; none: it is for the whole of it.
        tells_start: whether the answer names the log's start, as Kafka's does for what the log itself found.
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
    """The disk failed or is full; what was written has been taken back: KAFKA_STORAGE_ERROR."""

    def __init__(self, reason: str) -> None:
        super().__init__(ErrorCode.KAFKA_STORAGE_ERROR, reason)


class FailedLogError(TopicLogError, AppendOutcomeUnknownError):
    """The files of a log can't be used at the moment: KAFKA_STORAGE_ERROR, as from a broker whose disk has failed."""

    def __init__(self, reason: str) -> None:
        super().__init__(ErrorCode.KAFKA_STORAGE_ERROR, reason, tells_start=False)


class LostSegmentError(FailedLogError):
    """A segment file was deleted, moved or changed by somebody else: what was acknowledged may be gone with it.

    The log can be used again when what was acknowledged is back.
    """
