"""A file of the data directory that holds one JSON object with the version of its format."""

from __future__ import annotations

import json
import logging
import os
import stat
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TypeVar

from groupcoord.errors import GroupcoordError
from groupcoord.storage.log_directory import sync_path
from groupcoord.storage.whole_files import replace_file

logger = logging.getLogger("groupcoord.host")

FILE_VERSION = 1

T = TypeVar("T")


class DataFileError(GroupcoordError):
    """A file of the data directory can't be read or does not hold what it should; the message names file and reason."""


class JsonFile:
    """One file of the data directory, or none: then nothing is read or written.

    Args:
        directory: where the file lies or will lie; None: there is none.
        name: of the file.
        holds: what it holds, in words.
        error_type: of the errors that are raised.
        is_secret: nobody but its owner may read it, or has a right to it from the next :meth:`read` on.

    Attributes:
        on_written: is called when it was written anew.
    """

    def __init__(
        self,
        directory: Path | None,
        name: str,
        holds: str,
        error_type: type[DataFileError],
        *,
        is_secret: bool = False,
    ) -> None:
        self._path = None if directory is None else Path(directory) / name
        self._holds = holds
        self._error_type = error_type
        self._is_secret = is_secret
        self._seen: tuple[int, int] | None = None  # which file was read or written last
        self.on_written: Callable[[], None] = lambda: None

    def read(self, parse: Callable[[dict[str, Any]], T]) -> T | None:
        """Return what the file holds; None if there is none.

        Args:
            parse: makes that of the JSON object. It may raise an error of the file's type, without the file's name, or
                what Python raises when something is missing or of the wrong kind.

        Raises:
            DataFileError: of the file's type: it can't be read, is not JSON, has another version or does not hold what
                it should.
        """
        path, self._seen = self._path, self._stamp()
        if path is None or self._seen is None:
            return None
        if self._is_secret:
            self._shut_out_others(path)
        try:
            content = self._content(path)
            if content["version"] != FILE_VERSION:
                raise self._error_type(f"has version {content['version']!r}; this program knows {FILE_VERSION}")
            return parse(content)
        except self._error_type as error:
            raise self._error_type(f"{path}: {error}") from error
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise self._error_type(f"{path}: does not hold {self._holds}: {error!r}") from error

    def write(self, make_content: Callable[[], Mapping[str, object]]) -> None:
        """Write the file anew; the disk has all of it, or still the old one.

        Args:
            make_content: returns what the file shall hold; not called if there is none.

        Raises:
            OSError: it can't be written.
        """
        if self._path is not None:
            versioned = {"version": FILE_VERSION, **make_content()}
            replace_file(self._path, (json.dumps(versioned, indent=2) + "\n").encode(), is_secret=self._is_secret)
            sync_path(self._path.parent)
            self._seen = self._stamp()
            self.on_written()

    def read_if_changed(self, parse: Callable[[dict[str, Any]], T]) -> T | None:
        """Do as :meth:`read` if another process has written the file since it was read; else return None."""
        return None if self._stamp() == self._seen else self.read(parse)

    def _stamp(self) -> tuple[int, int] | None:
        """Return what tells one content of the file from the next: each is a file of its own. None: there is none."""
        try:
            found = None if self._path is None else os.stat(self._path)
        except FileNotFoundError:
            return None
        return None if found is None else (found.st_ino, found.st_mtime_ns)

    def _shut_out_others(self, path: Path) -> None:
        mode = stat.S_IMODE(path.stat().st_mode)
        if mode & (stat.S_IRWXG | stat.S_IRWXO):
            try:
                path.chmod(mode & stat.S_IRWXU)
            except OSError as error:
                logger.warning("%s holds %s, and others may read it: %s", path, self._holds, error.strerror)

    def _content(self, path: Path) -> dict[str, Any]:
        try:
            content: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        except OSError as error:
            raise self._error_type(f"cannot be read: {error.strerror}") from error
        except ValueError as error:
            raise self._error_type(f"is not JSON: {error}") from error
        return content
