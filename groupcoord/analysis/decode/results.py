"""Result directory: a local directory, or a URL for fsspec."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from socket import gethostname
from typing import BinaryIO

import pyarrow as pa
from fsspec import AbstractFileSystem
from fsspec.core import url_to_fs
from fsspec.implementations.local import LocalFileSystem

from groupcoord.analysis.decode.files import protocols_of, refusals_told
from groupcoord.analysis.decode.parquet import TableFile
from groupcoord.analysis.errors import InputError
from groupcoord.storage.data_directory import LOCK_FILE, DirectoryLock
from groupcoord.storage.errors import DirectoryLockedError, LogDirectoryError

HOLDER_MAX = 500
"""Number of characters of a lock file's text in an error message."""


_SHOWS_WHOLE_FILES = frozenset({"s3", "s3a"})
"""Protocols of stores where fsspec shows only complete files and can discard incomplete ones."""


@contextmanager
def whole_file(file_system: AbstractFileSystem, path: str, attempt: int = 0) -> Iterator[BinaryIO]:
    """Yield a file to write, which gets its name when it is complete; a failed attempt leaves nothing.

    In S3, where a rename is a copy, the upload is committed or discarded instead.
    """
    if not _SHOWS_WHOLE_FILES.isdisjoint(protocols_of(file_system)):
        yield from _completed_file(file_system, path)
        return
    folder, _, name = path.rpartition("/")
    file_system.makedirs(folder, exist_ok=True)
    hidden = f"{folder}/.{name}.{attempt}"
    try:
        with file_system.open(hidden, "wb") as file:
            yield file
    except BaseException:
        with suppress(FileNotFoundError):
            file_system.rm_file(hidden)
        raise
    file_system.mv(hidden, path)


def _completed_file(file_system: AbstractFileSystem, path: str) -> Iterator[BinaryIO]:
    file = file_system.open(path, "wb", autocommit=False)
    try:
        yield file
        file.close()
    except BaseException:
        with suppress(Exception):
            file.close()  # otherwise the garbage collector would close it, which writes
        file.discard()
        raise
    file.commit()


class ResultDirectory:
    """Directory for tables and reports, local or a URL: empty, or with the folder ``goes_on`` of an earlier run."""

    def __init__(self, where: str | os.PathLike[str], *, goes_on: str | None = None) -> None:
        self.name = os.fspath(where)
        with refusals_told(self.name):
            self._file_system, self._root = url_to_fs(self.name)
            self.is_local = isinstance(self._file_system, LocalFileSystem)
            if self._file_system.exists(self._root):
                if not self._file_system.isdir(self._root):
                    raise InputError(f"{self.name} is a file; --out names a directory")
                if self._file_system.ls(self._root, detail=False) and not (goes_on and self.has(goes_on)):
                    raise InputError(f"{self.name} is not empty")
                if self.is_local and not os.access(self._root, os.W_OK | os.X_OK):
                    raise PermissionError
            try:
                self._file_system.makedirs(self._root, exist_ok=True)
            except (FileExistsError, NotADirectoryError):
                raise InputError(f"{self.name} can't be made: a part of the path is a file") from None

    def place(self, name: str) -> tuple[AbstractFileSystem, str]:
        return self._file_system, self._at(name)

    @contextmanager
    def new_table_file(self, name: str, schema: pa.Schema) -> Iterator[TableFile]:
        """Yield a Parquet file to write, named when it is complete; Spark ignores names that begin with a dot."""
        with whole_file(self._file_system, self._at(name)) as file:
            table = TableFile(file, schema)
            try:
                yield table
            finally:
                table.close()

    def replace_text(self, name: str, text: str) -> None:
        """Replace a file with UTF-8 text by a rename; unencodable characters are replaced."""
        place = self._at(name)
        self._file_system.makedirs(place.rpartition("/")[0], exist_ok=True)
        self._file_system.pipe_file(f"{place}.new", text.encode("utf-8", "replace"))
        self._file_system.mv(f"{place}.new", place)

    def has(self, name: str) -> bool:
        return bool(self._file_system.exists(self._at(name)))

    def remove(self, name: str) -> None:
        self._file_system.rm(self._at(name), recursive=True)

    @contextmanager
    def locked(self, folder: str, deed: str) -> Iterator[None]:
        """Lock a folder within the context; a URL is not locked."""
        if not self.is_local:
            yield
            return
        place = Path(self._at(folder))
        try:
            lock = DirectoryLock(place, against_brokers=False)
        except DirectoryLockedError:
            with open(place / LOCK_FILE, encoding="utf-8", errors="replace") as file:
                raise InputError(f"{self.name} is in use: {file.read(HOLDER_MAX)}") from None
        except LogDirectoryError as error:
            raise InputError(f"{place}: {error.reason}") from error
        try:
            lock.note(f"process {os.getpid()} on {gethostname()} {deed}")
            yield
        finally:
            lock.close()

    def _at(self, name: str) -> str:
        return f"{self._root.rstrip('/')}/{name}"
