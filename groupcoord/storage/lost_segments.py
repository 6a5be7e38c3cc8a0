"""Noticing that a segment file was deleted, moved or changed behind the back of the store that writes it."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from groupcoord.storage.log_directory import segment_path
from groupcoord.storage.log_settings import LEADER_EPOCH


class Acknowledged(NamedTuple):
    """What a log that has failed must have when it is opened again, or something acknowledged is lost."""

    end_offset: int
    bases: frozenset[int]
    leader_epoch: int


NOTHING_ACKNOWLEDGED = Acknowledged(0, frozenset(), LEADER_EPOCH)


def find_loss(folder: Path, segments: Sequence[int], size_bytes: int, descriptor: int) -> str | None:
    """Compare the files of a log partition with what was left there.

    Trouble of the disk itself is passed over here: it shows where a file is read or written.

    Args:
        folder: of the partition.
        segments: base offsets of its segments.
        size_bytes: of the last one.
        descriptor: of the last one; -1 if it isn't open.

    Returns:
        What is wrong, with the path of the file; None if nothing is.
    """
    if not segments:
        return None
    path = folder
    try:
        for base_offset in segments:
            path = segment_path(folder, base_offset)
            found = path.stat()
        written = found if descriptor < 0 else os.fstat(descriptor)
    except (FileNotFoundError, NotADirectoryError):
        return f"{path} was deleted or moved away"
    except OSError:
        return None
    if not os.path.samestat(found, written):
        return f"{path} was replaced by another file"
    if found.st_size != size_bytes:
        return f"{path} has {found.st_size} bytes, but {size_bytes} were there"
    return None
