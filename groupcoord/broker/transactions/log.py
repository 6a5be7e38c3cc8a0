"""Where the transaction coordinator keeps what must survive: a dictionary of small entries, in memory or in one file.

The file is text: a first line that names the format, then one JSON object per change. The last one of a key counts:

    {"format": "groupcoord transactions", "version": 1}
    {"key": "next_producer_id", "value": 1000}
    {"key": "transaction:orders-writer", "value": {"state": "Ongoing", "producer_id": 7, …}}
    {"key": "transaction:orders-writer", "value": null}

A value of null removes the key. When :meth:`FileTransactionLog.put` returns, the operating system has the bytes, so
that killing the process loses nothing; there is no fsync, as there is none for offsets by default. The file is
rewritten without what is out of date, if there is any, when it is opened, and when most of it is; where that fails, as
on a full disk, the old one is used on.
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from groupcoord.errors import GroupcoordError
from groupcoord.storage.whole_files import replace_file

FILE_NAME = "transactions.jsonl"
FORMAT = {"format": "groupcoord transactions", "version": 1}
ROTTEN_CHANGES = 10_000
"""The file is rewritten once it holds this many changes, and four times as many as there are entries."""

NEXT_PRODUCER_ID = "next_producer_id"
"""The key of the first producer id that was not set aside yet."""

Value = dict[str, Any] | int
logger = logging.getLogger("groupcoord.host")


class TransactionLogError(GroupcoordError):
    """The file can't be read or written, or does not hold what it should; the message names the file and the reason."""


class MemoryTransactionLog:
    """Entries that live as long as this object.

    >>> log = MemoryTransactionLog()
    >>> log.put("next_producer_id", 1000)
    >>> log.entries["next_producer_id"]
    1000
    """

    def __init__(self) -> None:
        self._entries: dict[str, Value] = {}

    @property
    def entries(self) -> Mapping[str, Value]:
        """All entries by key, in no particular order."""
        return self._entries

    def put(self, key: str, value: Value | None) -> None:
        """Set an entry, durably; None removes it.

        Raises:
            TransactionLogError: it could not be written; nothing has changed.
        """
        if value is None:
            self._entries.pop(key, None)
        else:
            self._entries[key] = value

    def close(self) -> None:
        """Let go of what is open. The log can't be used any more."""


class FileTransactionLog(MemoryTransactionLog):
    """Entries in the file ``transactions.jsonl`` of a directory, which this process owns alone.

    A file that somebody deletes meanwhile is written anew at the next change.

    Args:
        directory: created if need be. What a crash left half written at the end of the file is cut, and logged.

    Raises:
        TransactionLogError: the file can't be read or written, or is damaged before its end.
    """

    def __init__(self, directory: Path) -> None:
        super().__init__()
        self._path = directory / FILE_NAME
        self._descriptor = -1
        self._size = 0
        self._change_count = 0
        try:
            directory.mkdir(parents=True, exist_ok=True)
            self._descriptor = _open(self._path)
            self._read(self._path.read_bytes())
            self._repair()
        except OSError as error:
            self.close()
            raise TransactionLogError(f"{self._path}: {error.strerror or error}") from error
        except TransactionLogError:
            self.close()
            raise
        if self._change_count > len(self._entries):
            self._try_to_rewrite()

    def put(self, key: str, value: Value | None) -> None:
        """Set an entry; see :meth:`MemoryTransactionLog.put`."""
        if self._descriptor < 0:
            raise TransactionLogError(f"{self._path}: is closed")
        try:
            self._repair()
            self._append(_line({"key": key, "value": value}))
        except OSError as error:
            # What was written in part is cut now or, should that fail as well, before the next change.
            with contextlib.suppress(OSError):
                self._repair()
            raise TransactionLogError(f"{self._path}: cannot be written: {error.strerror or error}") from error
        super().put(key, value)
        self._change_count += 1
        if self._change_count > max(ROTTEN_CHANGES, 4 * len(self._entries)):
            self._try_to_rewrite()

    def close(self) -> None:
        """Close the file."""
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1

    # ------------------------------------------------------------ reading

    def _read(self, content: bytes) -> None:
        *lines, rest = content.split(b"\n")
        for number, line in enumerate(lines, 1):
            try:
                entry = json.loads(line)
                if number == 1:
                    self._check_format(entry)
                else:
                    super().put(str(entry["key"]), entry["value"])
                    self._change_count += 1
            except (ValueError, KeyError, TypeError) as error:
                if number < len(lines) or number == 1:
                    raise TransactionLogError(f"{self._path}: line {number} is damaged: {error!r}") from None
                rest = line + b"\n" + rest
        if rest:
            logger.warning("%s: cut %d bytes at the end that a crash left half written", self._path, len(rest))
        self._size = len(content) - len(rest)

    def _check_format(self, entry: Any) -> None:
        if entry != FORMAT:
            raise TransactionLogError(f"{self._path}: begins with {entry!r}; this program knows {FORMAT!r}")

    # ------------------------------------------------------------ writing

    def _append(self, line: bytes) -> None:
        if not self._size:
            line = _line(FORMAT) + line
        written = os.write(self._descriptor, line)
        if written < len(line):
            raise OSError(0, "only a part could be written")
        self._size += written

    def _repair(self) -> None:
        """Cut what a failed write has left, and write the file anew if somebody has deleted or shortened it."""
        status = os.fstat(self._descriptor)
        if not status.st_nlink or status.st_size < self._size:
            self._rewrite()
            logger.warning("%s: was deleted or changed while it was open, and is written anew", self._path)
        elif status.st_size > self._size:
            os.ftruncate(self._descriptor, self._size)

    def _try_to_rewrite(self) -> None:
        try:
            self._rewrite()
        except OSError as error:
            # The old file is whole and still open: go on with it, and don't try again at every change.
            logger.error("%s: can't be rewritten without what is out of date: %s", self._path, error)
            self._change_count = 0

    def _rewrite(self) -> None:
        """Put a file of the entries alone in place of the file. A crash leaves one or the other."""
        lines = [_line(FORMAT), *(_line({"key": key, "value": value}) for key, value in self._entries.items())]
        content = b"".join(lines)
        replace_file(self._path, content)
        descriptor = _open(self._path)
        self.close()
        self._descriptor, self._size, self._change_count = descriptor, len(content), len(self._entries)


def _line(entry: Mapping[str, Any]) -> bytes:
    return json.dumps(entry, separators=(",", ":")).encode() + b"\n"


def _open(path: Path) -> int:
    return os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o644)
