"""JSON files of the data directory with a format version, or documents that several processes share."""

from __future__ import annotations

import json
import logging
import stat
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Protocol, TypeVar

from groupcoord.config.files import parse_json, read_text
from groupcoord.errors import GroupcoordError
from groupcoord.storage.files import replace_file, sync_path

logger = logging.getLogger("groupcoord.host")

FILE_VERSION = 1

T = TypeVar("T")


class DataFileError(GroupcoordError):
    """A file of the data directory can't be read or has invalid content; the message has the file and the reason."""


class Documents(Protocol):
    """Named documents that several processes read and write.

    Attributes:
        refusals: the number of writes refused because another process had written first.
    """

    refusals: int

    def place_of(self, name: str) -> str:
        """Return the location of a document for messages."""

    def stamp(self, name: str) -> object:
        """Return a value that differs between contents; None if the document does not exist."""

    def read(self, name: str) -> str:
        """Return the text of an existing document.

        Raises:
            OSError: it can't be read.
            ValueError: it is no text.
        """

    def write(self, name: str, text: str, seen: object) -> object:
        """Replace a document durably, if it still has the stamp ``seen``, and return the new stamp.

        Raises:
            OSError: it can't be written, or another process has written first.
        """


Place = Path | Documents
"""Directory of a server's files, or shared documents."""


class _Folder:
    """Documents in a directory."""

    refusals = 0

    def __init__(self, directory: Path, holds: str, *, is_secret: bool) -> None:
        self._directory = directory
        self._holds = holds
        self._is_secret = is_secret

    def place_of(self, name: str) -> str:
        return str(self._directory / name)

    def stamp(self, name: str) -> object:
        # No other process writes the directory, which is locked, so existence is enough.
        # None, not False: only None stands for a missing document.
        return (self._directory / name).exists() or None

    def read(self, name: str) -> str:
        path = self._directory / name
        if self._is_secret:
            self._shut_out_others(path)
        return read_text(path)

    def write(self, name: str, text: str, seen: object) -> object:
        replace_file(self._directory / name, text.encode(), is_secret=self._is_secret)
        # The rename is durable only when its directory is.
        sync_path(self._directory)
        return self.stamp(name)

    def _shut_out_others(self, path: Path) -> None:
        mode = stat.S_IMODE(path.stat().st_mode)
        if mode & (stat.S_IRWXG | stat.S_IRWXO):
            try:
                path.chmod(mode & stat.S_IRWXU)
            except OSError as error:
                logger.warning("%s holds %s, and others may read it: %s", path, self._holds, error.strerror)


class JsonFile:
    """JSON file of the data directory; without a place, nothing is read or written."""

    def __init__(
        self,
        place: Place | None,
        name: str,
        holds: str,
        error_type: type[DataFileError] = DataFileError,
        *,
        is_secret: bool = False,
    ) -> None:
        self._documents = _Folder(place, holds, is_secret=is_secret) if isinstance(place, Path) else place
        self._name = name
        self._holds = holds
        self._error_type = error_type
        self._seen: object = None  # stamp of the content that was read or written last

    @property
    def refusals(self) -> int:
        return 0 if self._documents is None else self._documents.refusals

    def read(self, parse: Callable[[dict[str, Any]], T]) -> T | None:
        """Return the parsed content; None if the file does not exist. Errors have the file's type."""
        # The stamp comes first: a write in between makes the next write fail, not get lost.
        documents, self._seen = self._documents, self._stamp()
        if documents is None or self._seen is None:
            return None
        place = documents.place_of(self._name)
        try:
            content = self._content(documents)
            # Before parsing, since another version may have other fields.
            if content["version"] != FILE_VERSION:
                raise self._error_type(f"has version {content['version']!r}; this program knows {FILE_VERSION}")
            return parse(content)
        # The parser's own errors get the file's name, too.
        except self._error_type as error:
            raise self._error_type(f"{place}: {error}") from error
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise self._error_type(f"{place}: does not hold {self._holds}: {error!r}") from error

    def write(self, make_content: Callable[[], Mapping[str, object]]) -> None:
        """Replace the file atomically."""
        if self._documents is not None:
            versioned = {"version": FILE_VERSION, **make_content()}
            # Refused if another process has written since, so no change is lost.
            self._seen = self._documents.write(self._name, _text_of(versioned), self._seen)

    def read_if_changed(self, parse: Callable[[dict[str, Any]], T]) -> T | None:
        """Return the content if another process has written the file since the last read, else None."""
        return None if self._stamp() == self._seen else self.read(parse)

    def _stamp(self) -> object:
        return None if self._documents is None else self._documents.stamp(self._name)

    def _content(self, documents: Documents) -> dict[str, Any]:
        try:
            content: dict[str, Any] = parse_json(documents.read(self._name))
        except OSError as error:
            raise self._error_type(f"cannot be read: {error.strerror}") from error
        except ValueError as error:
            raise self._error_type(f"is not JSON: {error}") from error
        return content


class Document(ABC):
    """Content of a JSON file, which other nodes of a cluster may write, too."""

    def __init__(self, file: JsonFile) -> None:
        self.file = file
        # Within `read`, so that errors of the content name the file.
        file.read(self._load)

    def reload(self) -> None:
        """Read the file if another process has written it."""
        self.file.read_if_changed(self._load)

    @abstractmethod
    def _load(self, content: dict[str, Any]) -> None:
        """Parse the content and take it over."""


def _text_of(content: Mapping[str, object]) -> str:
    """Return JSON with one line for each entry of the top level's lists and objects."""
    # With indentation, json.dumps uses its slower encoder in Python.
    members = ",\n".join(f"  {json.dumps(key)}: {_lines_of(value)}" for key, value in content.items())
    return f"{{\n{members}\n}}\n"


def _lines_of(value: object) -> str:
    if isinstance(value, list) and value:
        return "[\n    " + ",\n    ".join(map(json.dumps, value)) + "\n  ]"
    if isinstance(value, dict) and value:
        return "{\n    " + ",\n    ".join(f"{json.dumps(key)}: {json.dumps(of)}" for key, of in value.items()) + "\n  }"
    return json.dumps(value)
