"""Where the transaction coordinator keeps what must survive: a dictionary of small entries, in memory or in one file.

The file is text: a first line that names the format, then one JSON object per change. The last one of a key counts:

    {"format": "groupcoord transactions", "version": 1}
    {"key": "next_producer_id", "value": 1000}
    {"key": "transaction:orders-writer", "value": {"state": "Ongoing", "producer_id": 7, …}}
    {"key": "transaction:orders-writer", "value": null}

A value of null removes the key. When :meth:`FileTransactionLog.put` returns, the operating system has the bytes, so
that killing the process loses nothing; there is no fsync, as there is none for offsets by default. The file is
rewritten without what is out of date when it is opened, and when most of it is.
"""

from __future__ import annotations

import json
import logging
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from groupcoord.errors import GroupcoordError

FILE_NAME = "transactions.jsonl"
FORMAT = {"format": "groupcoord transactions", "version": 1}
ROTTEN_CHANGES = 10_000
"""The file is rewritten once it holds this many changes, and four times as many as there are entries."""

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
            if self._path.exists():
                self._read(self._path.read_bytes())
            self._rewrite()
        except OSError as error:
            raise TransactionLogError(f"{self._path}: {error.strerror or error}") from error

    def put(self, key: str, value: Value | None) -> None:
        """Set an entry; see :meth:`MemoryTransactionLog.put`."""
        if self._descriptor < 0:
            raise TransactionLogError(f"{self._path}: is closed, or could not be repaired after a failed write")
        try:
            self._append(_line({"key": key, "value": value}))
        except OSError as error:
            self._cut_back()
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
            except (ValueError, KeyError, TypeError) as error:
                if number < len(lines) or number == 1:
                    raise TransactionLogError(f"{self._path}: line {number} is damaged: {error!r}") from None
                rest = line + b"\n" + rest
        if rest:
            logger.warning("%s: cut %d bytes at the end that a crash left half written", self._path, len(rest))

    def _check_format(self, entry: Any) -> None:
        if entry != FORMAT:
            raise TransactionLogError(f"{self._path}: begins with {entry!r}; this program knows {FORMAT!r}")

    # ------------------------------------------------------------ writing

    def _append(self, line: bytes) -> None:
        written = os.write(self._descriptor, line)
        if written < len(line):
            raise OSError(0, "only a part could be written")
        self._size += written

    def _cut_back(self) -> None:
        """Take back what a failed write may have left."""
        try:
            os.ftruncate(self._descriptor, self._size)
        except OSError:
            logger.exception("%s: a failed write can't be taken back; nothing more is written to it", self._path)
            self.close()

    def _try_to_rewrite(self) -> None:
        try:
            self._rewrite()
        except OSError:
            # The old file is whole and still open: go on with it, and don't try again at every change.
            logger.exception("%s: can't be rewritten", self._path)
            self._change_count = 0

    def _rewrite(self) -> None:
        """Put a file of the entries alone in place of the file. A crash leaves one or the other."""
        lines = [_line(FORMAT), *(_line({"key": key, "value": value}) for key, value in self._entries.items())]
        content = b"".join(lines)
        temporary = self._path.with_name(self._path.name + ".tmp")
        with open(temporary, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        descriptor = os.open(temporary, os.O_WRONLY | os.O_APPEND | os.O_CLOEXEC)
        try:
            os.replace(temporary, self._path)
        except OSError:
            os.close(descriptor)
            raise
        self.close()
        self._descriptor, self._size, self._change_count = descriptor, len(content), len(self._entries)


def _line(entry: Mapping[str, Any]) -> bytes:
    return json.dumps(entry, separators=(",", ":")).encode() + b"\n"
