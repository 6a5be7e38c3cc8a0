"""A file of the data directory that holds one JSON object with the version of its format.

Nodes that have no disk in common keep such documents elsewhere (:class:`Documents`).
"""

from __future__ import annotations

import json
import logging
import stat
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
    """A file of the data directory can't be read or does not hold what it should; the message names file and reason."""


class Documents(Protocol):
    """Where documents are that several processes read and write, by their names.

    Attributes:
        refusals: how often something was not written, since another process had written before, which is known now.
    """

    refusals: int

    def place_of(self, name: str) -> str:
        """Return where a document is, in words."""

    def stamp(self, name: str) -> object:
        """Return what tells one content from the next; None: there is no such document."""

    def read(self, name: str) -> str:
        """Return what a document that is there holds.

        Raises:
            OSError: it can't be read.
            ValueError: it is no text.
        """

    def write(self, name: str, text: str, seen: object) -> object:
        """Write a document anew; when this returns, it is durable.

        Args:
            name: the document.
            text: what it shall hold.
            seen: the stamp of the content that this is made of.

        Returns:
            what :meth:`stamp` returns of this content, which may be outdated by now.

        Raises:
            OSError: it can't be written, or another process has written before.
        """


Place = Path | Documents
"""Where the files of a server are: in a directory, or where others see them as well."""


class _Folder:
    """Documents in a directory of the disk.

    Args:
        directory: the directory.
        holds: what they hold, in words.
        is_secret: nobody but their owner may read them, or has a right to them when they were read.
    """

    refusals = 0

    def __init__(self, directory: Path, holds: str, *, is_secret: bool) -> None:
        self._directory = directory
        self._holds = holds
        self._is_secret = is_secret

    def place_of(self, name: str) -> str:
        """See :class:`Documents`."""
        return str(self._directory / name)

    def stamp(self, name: str) -> object:
        return (self._directory / name).exists() or None

    def read(self, name: str) -> str:
        """See :class:`Documents`."""
        path = self._directory / name
        if self._is_secret:
            self._shut_out_others(path)
        return read_text(path)

    def write(self, name: str, text: str, seen: object) -> object:
        """See :class:`Documents`; the disk has all of it, or still the old one."""
        replace_file(self._directory / name, text.encode(), is_secret=self._is_secret)
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
    """One file of the data directory, or none: then nothing is read or written.

    Args:
        place: where the file lies or will lie; None: there is none.
        name: of the file.
        holds: what it holds, in words.
        error_type: of the errors that are raised.
        is_secret: nobody but its owner may read it, or has a right to it from the next :meth:`read` on.
    """

    def __init__(
        self,
        place: Place | None,
        name: str,
        holds: str,
        error_type: type[DataFileError],
        *,
        is_secret: bool = False,
    ) -> None:
        self._documents = _Folder(place, holds, is_secret=is_secret) if isinstance(place, Path) else place
        self._name = name
        self._holds = holds
        self._error_type = error_type
        self._seen: object = None  # which content was read or written last

    @property
    def refusals(self) -> int:
        """How often a document of the place was not written, since another process had written before."""
        return 0 if self._documents is None else self._documents.refusals

    def read(self, parse: Callable[[dict[str, Any]], T]) -> T | None:
        """Return what the file holds; None if there is none.

        Args:
            parse: makes that of the JSON object. It may raise an error of the file's type, without the file's name, or
                what Python raises when something is missing or of the wrong kind.

        Raises:
            DataFileError: of the file's type: it can't be read, is not JSON, has another version or does not hold what
                it should.
        """
        documents, self._seen = self._documents, self._stamp()
        if documents is None or self._seen is None:
            return None
        place = documents.place_of(self._name)
        try:
            content = self._content(documents)
            if content["version"] != FILE_VERSION:
                raise self._error_type(f"has version {content['version']!r}; this program knows {FILE_VERSION}")
            return parse(content)
        except self._error_type as error:
            raise self._error_type(f"{place}: {error}") from error
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise self._error_type(f"{place}: does not hold {self._holds}: {error!r}") from error

    def write(self, make_content: Callable[[], Mapping[str, object]]) -> None:
        """Write the file anew; the disk has all of it, or still the old one.

        Args:
            make_content: returns what the file shall hold; not called if there is none.

        Raises:
            OSError: it can't be written.
        """
        if self._documents is not None:
            versioned = {"version": FILE_VERSION, **make_content()}
            self._seen = self._documents.write(self._name, _text_of(versioned), self._seen)

    def read_if_changed(self, parse: Callable[[dict[str, Any]], T]) -> T | None:
        """Do as :meth:`read` if another process has written the file since it was read; else return None."""
        return None if self._stamp() == self._seen else self.read(parse)

    def _stamp(self) -> object:
        """Return what tells one content of the file from the next; None: there is none."""
        return None if self._documents is None else self._documents.stamp(self._name)

    def _content(self, documents: Documents) -> dict[str, Any]:
        try:
            content: dict[str, Any] = parse_json(documents.read(self._name))
        except OSError as error:
            raise self._error_type(f"cannot be read: {error.strerror}") from error
        except ValueError as error:
            raise self._error_type(f"is not JSON: {error}") from error
        return content


def _text_of(content: Mapping[str, object]) -> str:
    """Return JSON with a line for each entry of the lists and objects on the top level.

    ``json.dumps`` with an indentation takes four times as long, which everybody waits for.
    """
    members = ",\n".join(f"  {json.dumps(key)}: {_lines_of(value)}" for key, value in content.items())
    return f"{{\n{members}\n}}\n"


def _lines_of(value: object) -> str:
    if isinstance(value, list) and value:
        return "[\n    " + ",\n    ".join(map(json.dumps, value)) + "\n  ]"
    if isinstance(value, dict) and value:
        return "{\n    " + ",\n    ".join(f"{json.dumps(key)}: {json.dumps(of)}" for key, of in value.items()) + "\n  }"
    return json.dumps(value)
