"""Where results go: a directory of this machine, or a URL that both Spark and fsspec understand."""

from __future__ import annotations

import os
import re
from pathlib import Path

from fsspec import AbstractFileSystem
from fsspec.core import url_to_fs

from groupcoord.spark.errors import InputError

_GLOB = re.compile(r"([\[\]{}*?\\])")


class OutputDirectory:
    """An empty directory for tables and reports.

    Args:
        where: its path or URL.
        goes_on: the name of something in it that shows that it need not be empty, since work goes on there.
        is_made: it is made if it does not exist.

    Raises:
        InputError: it is a file or not empty, it can't be made, or nothing may be written there.
    """

    def __init__(self, where: str | os.PathLike[str], *, goes_on: str | None = None, is_made: bool = True) -> None:
        self.name = os.fspath(where)
        self._is_local = "://" not in self.name
        try:
            self._file_system, self._root = url_to_fs(self.name)
            if self._file_system.exists(self._root):
                if not self._file_system.isdir(self._root):
                    raise InputError(f"{self.name} is a file; --out names a directory")
                if self._file_system.ls(self._root, detail=False) and not (goes_on and self.has(goes_on)):
                    raise InputError(f"{self.name} is not empty")
                if self._is_local and not os.access(self._root, os.W_OK | os.X_OK):
                    raise InputError(f"{self.name}: permission denied")
            if is_made:
                self._file_system.makedirs(self._root, exist_ok=True)
        except InputError:
            raise
        except (FileExistsError, NotADirectoryError):
            raise InputError(f"{self.name} can't be made: a part of the path is a file") from None
        except PermissionError:
            raise InputError(f"{self.name}: permission denied") from None
        except (ImportError, ValueError, OSError) as error:
            raise InputError(f"{self.name}: {error}") from error

    def path(self, name: str) -> str:
        """Return where Spark finds something in it."""
        root = Path(self.name).absolute().as_posix() if self._is_local else self.name.rstrip("/")
        # Spark would take a bare path as one of its default file system, which need not be this machine's.
        return f"{'file://' if self._is_local else ''}{root}/{name}"

    def table_path(self, name: str) -> str:
        """Return where Spark writes a table."""
        return self.path(f"tables/{name}")

    def reading_path(self, name: str) -> str:
        """Return where Spark reads something in it; it takes some characters as patterns."""
        return _GLOB.sub(r"\\\1", self.path(name))

    def place(self, name: str) -> tuple[AbstractFileSystem, str]:
        """Return where fsspec finds something in it: the file system and the path there."""
        return self._file_system, self._at(name)

    def write_text(self, name: str, text: str) -> None:
        """Write a file of UTF-8 text; what UTF-8 can't hold is replaced."""
        with self._file_system.open(self._at(name), "wb") as file:
            file.write(text.encode("utf-8", "replace"))

    def replace_text(self, name: str, text: str) -> None:
        """Write a file of text so that others see it whole or not at all."""
        self._file_system.makedirs(self._at(name).rpartition("/")[0], exist_ok=True)
        self.write_text(f"{name}.new", text)
        self._file_system.mv(self._at(f"{name}.new"), self._at(name))

    def read_text(self, name: str) -> str:
        """Return the text of a file."""
        return str(self._file_system.cat_file(self._at(name)).decode("utf-8"))

    def replace_folder(self, name: str, place: str) -> None:
        """Move a folder to where another is, which goes."""
        if self.has(place):
            self.remove(place)
        self._file_system.makedirs(self._at(place).rpartition("/")[0], exist_ok=True)
        self._file_system.mv(self._at(name), self._at(place), recursive=True)

    def has(self, name: str) -> bool:
        """Tell whether there is something by this name."""
        return bool(self._file_system.exists(self._at(name)))

    def names(self, folder: str) -> list[str]:
        """Return the names of what is in a folder, sorted; none if there is no such folder."""
        self._file_system.invalidate_cache()
        try:
            found = self._file_system.ls(self._at(folder), detail=False)
        except FileNotFoundError:
            return []
        return sorted(path.rstrip("/").rpartition("/")[2] for path in found)

    def remove(self, name: str) -> None:
        """Remove a file, or a folder with all that is in it."""
        self._file_system.rm(self._at(name), recursive=True)

    def _at(self, name: str) -> str:
        return f"{self._root.rstrip('/')}/{name}"
