"""Crash-safe replacement of segments by a compacted one, with Kafka's steps and file names.

``N.log.cleaned`` is being written and is ignored by a load. ``N.log.swap`` is complete and durable, and replaces all
segments whose base offset lies in it. Then these are deleted and it becomes ``N.log``. Opening a partition finishes
what a crash interrupted. Source: Kafka's ``LocalLog.replaceSegments`` and ``LogLoader``.
"""

from __future__ import annotations

import logging
import os
import re
from collections.abc import Sequence
from pathlib import Path

from groupcoord.records.batches import InvalidBatchError
from groupcoord.storage.errors import CorruptLogError
from groupcoord.storage.log_directory import list_segments, segment_path, sync_path
from groupcoord.storage.segments import read_batches

logger = logging.getLogger(__name__)

CLEANED_SUFFIX = ".cleaned"
SWAP_SUFFIX = ".swap"
INDEX_SUFFIXES = (".index", ".timeindex", ".txnindex")
"""Index files of a segment. A broker rebuilds missing ones and trusts existing ones."""

_UNFINISHED_FILE = re.compile(r"([0-9]{20})\.(log|index|timeindex|txnindex)\.(cleaned|swap)")


def swap_path(folder: Path, base_offset: int) -> Path:
    """Return the path of the swap file that replaces segments from ``base_offset`` on."""
    return segment_path(folder, base_offset).with_suffix(f".log{SWAP_SUFFIX}")


def finish_swaps(folder: Path) -> None:
    """Finish or undo the swaps that a crash interrupted, also a broker's. Other files stay.

    Raises:
        CorruptLogError: a swap file is incomplete.
        OSError: a file can't be read, renamed or deleted.
    """
    try:
        names = sorted(os.listdir(folder))
    except FileNotFoundError:
        return
    matches = [match for match in map(_UNFINISHED_FILE.fullmatch, names) if match]
    first_cleaned = min((int(match[1]) for match in matches if match.groups()[1:] == ("log", "cleaned")), default=None)
    swaps = []
    for match in matches:
        kind, state = match[2], match[3]
        is_undone = state == "cleaned" or (first_cleaned is not None and int(match[1]) >= first_cleaned)
        if kind == "log" and not is_undone:
            swaps.append(int(match[1]))
        else:
            (folder / match[0]).unlink()
    for base_offset in swaps:
        swap = swap_path(folder, base_offset)
        end_offset = base_offset
        try:
            for batch in read_batches(swap, base_offset=base_offset):
                end_offset = batch.next_offset
        except InvalidBatchError as error:
            raise CorruptLogError(swap, error.position, error.reason) from error
        segments = [base for base in list_segments(folder) if base_offset < base < end_offset]
        replaced = [base_offset, *segments]
        finish_swap(folder, replaced)
        sync_path(folder)
        logger.warning("%s: finished the compaction that was interrupted there", swap)


def finish_swap(folder: Path, replaced: Sequence[int]) -> None:
    """Delete segments and rename the swap file, which holds their records and is durable.

    Args:
        folder: the folder of the partition.
        replaced: the base offsets of the segments; the swap file is named after the first.

    Raises:
        OSError: a file can't be renamed or deleted; opening the partition again finishes the swap.
    """
    for base_offset in replaced:
        path = segment_path(folder, base_offset)
        if base_offset != replaced[0]:
            path.unlink(missing_ok=True)
        for suffix in INDEX_SUFFIXES:
            path.with_suffix(suffix).unlink(missing_ok=True)
    swap_path(folder, replaced[0]).replace(segment_path(folder, replaced[0]))
