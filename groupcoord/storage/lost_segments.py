"""Detection of segment files that another program deleted, moved or changed while the store writes them."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from groupcoord.storage.log_directory import segment_path
from groupcoord.storage.log_settings import LEADER_EPOCH


class Acknowledged(NamedTuple):
    """What a failed log must hold when it is opened again; otherwise acknowledged records are lost."""

    end_offset: int
    bases: frozenset[int]
    leader_epoch: int


NOTHING_ACKNOWLEDGED = Acknowledged(0, frozenset(), LEADER_EPOCH)


def find_loss(folder: Path, segments: Sequence[int], size_bytes: int, descriptor: int) -> str | None:
    """Compare the files of a log partition with what was left there.

    Disk errors are ignored here; they show when a file is read or written.

    Args:
        folder: the folder of the partition.
        segments: the base offsets of its segments.
        size_bytes: the size of the last segment.
        descriptor: the descriptor of the last segment, or -1 if it is not open.

    Returns:
        What is wrong, with the path of the file, or None.
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
