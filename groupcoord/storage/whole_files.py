"""Small files that are replaced as a whole."""

from __future__ import annotations

import contextlib
import os
from functools import partial
from pathlib import Path


def replace_file(path: Path, content: bytes, *, is_durable: bool = True, is_secret: bool = False) -> None:
    """Write a file anew: a reader, or a crash at any point, sees the old content or the new, never a part.

    Args:
        path: the file, which need not exist.
        content: all that is to be in it.
        is_durable: wait until the disk has the content; its name there is another matter.
        is_secret: nobody but its owner may read it.

    Raises:
        OSError: it can't be written; the old file is as it was.
    """
    temporary = path.with_name(path.name + ".tmp")
    try:
        if is_secret:
            temporary.unlink(missing_ok=True)  # others may read what a crash has left
        with open(temporary, "wb", opener=partial(os.open, mode=0o600) if is_secret else None) as file:
            file.write(content)
            if is_durable:
                file.flush()
                os.fsync(file.fileno())
        temporary.replace(path)
    except OSError:
        with contextlib.suppress(OSError):
            temporary.unlink()  # it would take room where there is none
        raise
