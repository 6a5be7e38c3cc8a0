"""A file of the data directory that holds one JSON object with the version of its format."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from groupcoord.errors import GroupcoordError
from groupcoord.storage.log_directory import sync_path
from groupcoord.storage.whole_files import replace_file

FILE_VERSION = 1


def write_json(path: Path, content: Mapping[str, object]) -> None:
    """Write the file anew; the disk has all of it, or still the old one.

    Raises:
        OSError: it can't be written.
    """
    versioned = {"version": FILE_VERSION, **content}
    replace_file(path, (json.dumps(versioned, indent=2) + "\n").encode())
    sync_path(path.parent)


def read_json(path: Path, error_type: type[GroupcoordError]) -> dict[str, Any]:
    """Return what the file holds.

    Args:
        path: the file.
        error_type: of the error that is raised; its message names file and reason.

    Raises:
        GroupcoordError: of that type: the file can't be read, is not JSON or has another version.
        KeyError: it has no version.
        TypeError: it is not an object.
    """
    try:
        content: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise error_type(f"{path}: cannot be read: {error.strerror}") from error
    except ValueError as error:
        raise error_type(f"{path}: is not JSON: {error}") from error
    if content["version"] != FILE_VERSION:
        raise error_type(f"{path}: has version {content['version']!r}; this program knows {FILE_VERSION}")
    return content
