"""Where results go: a directory of this machine, or a URL that both Spark and fsspec understand."""

from __future__ import annotations

import os
import re
from pathlib import Path

from fsspec.core import url_to_fs

from groupcoord.spark.errors import InputError

_GLOB = re.compile(r"([\[\]{}*?\\])")


class OutputDirectory:
    """An empty directory for tables and reports.

    Raises:
        InputError: it is a file or not empty, it can't be made, or nothing may be written there.
    """

    def __init__(self, where: str | os.PathLike[str]) -> None:
        self.name = os.fspath(where)
        self._is_local = "://" not in self.name
        try:
            self._file_system, self._root = url_to_fs(self.name)
            if self._file_system.exists(self._root):
                if not self._file_system.isdir(self._root):
                    raise InputError(f"{self.name} is a file; --out names a directory")
                if self._file_system.ls(self._root, detail=False):
                    raise InputError(f"{self.name} is not empty")
                if self._is_local and not os.access(self._root, os.W_OK | os.X_OK):
                    raise InputError(f"{self.name}: permission denied")
            self._file_system.makedirs(self._root, exist_ok=True)
        except InputError:
            raise
        except (FileExistsError, NotADirectoryError):
            raise InputError(f"{self.name} can't be made: a part of the path is a file") from None
        except PermissionError:
            raise InputError(f"{self.name}: permission denied") from None
        except (ImportError, ValueError, OSError) as error:
            raise InputError(f"{self.name}: {error}") from error

    def table_path(self, name: str) -> str:
        """Return where Spark writes a table."""
        root = Path(self.name).absolute().as_posix() if self._is_local else self.name.rstrip("/")
        # Spark would take a bare path as one of its default file system, which need not be this machine's.
        return f"{'file://' if self._is_local else ''}{root}/tables/{name}"

    def reading_path(self, name: str) -> str:
        """Return the same path for reading, where Spark takes some characters as patterns."""
        return _GLOB.sub(r"\\\1", self.table_path(name))

    def write_text(self, name: str, text: str) -> None:
        """Write a file of UTF-8 text; what UTF-8 can't hold is replaced."""
        with self._file_system.open(f"{self._root.rstrip('/')}/{name}", "wb") as file:
            file.write(text.encode("utf-8", "replace"))
