"""Atomic replacement of small files."""

from __future__ import annotations

import contextlib
import os
from functools import partial
from pathlib import Path


def replace_file(path: Path, content: bytes, *, is_durable: bool = True, is_secret: bool = False) -> None:
    """Replace a file atomically: a reader, or a crash at any point, sees the old content or the new one.

    Args:
        path: the file, which need not exist.
        content: the new content.
        is_durable: whether to wait until the disk has the content; its name is not synced.
        is_secret: whether only the owner may read it.

    Raises:
        OSError: it can't be written; the old file is unchanged.
    """
    temporary = path.with_name(path.name + ".tmp")
    try:
        if is_secret:
            temporary.unlink(missing_ok=True)  # a file left by a crash may be readable by others
        with open(temporary, "wb", opener=partial(os.open, mode=0o600) if is_secret else None) as file:
            file.write(content)
            if is_durable:
                file.flush()
                os.fsync(file.fileno())
        temporary.replace(path)
    except OSError:
        with contextlib.suppress(OSError):
            temporary.unlink()  # free its space, which may be the last
        raise
