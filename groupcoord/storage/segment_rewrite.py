"""Rewriting of segments: a new file with what compaction keeps of them, and its crash-safe swap."""

from __future__ import annotations

import threading
from collections.abc import Callable, Generator, Sequence
from pathlib import Path

from groupcoord.storage.log_directory import segment_path, sync_path
from groupcoord.storage.swapping import CLEANED_SUFFIX, finish_swap, swap_path

SYNC_POLL_S = 0.001

Work = Generator[int, None, None]
"""Yields the number of batches and records handled since the last time, or 0 while it waits."""


class InterruptedSwapError(OSError):
    """The disk failed during a swap: opening the log again finishes it.

    Attributes:
        folder: the folder of the log.
    """

    def __init__(self, folder: Path, cause: OSError) -> None:
        super().__init__(f"compaction was interrupted: {cause}")
        self.folder = folder


class SegmentRewrite:
    """New file that replaces some segments.

    Args:
        folder: the folder of the log.
        group: the base offsets of the segments; the file gets the name of the first.
        is_read: returns whether a reader uses the files; the swap waits for it.
        replaced: is called at the moment of the swap, after which the new file counts, whatever happens.

    Raises:
        OSError: the file can't be created.
    """

    def __init__(
        self, folder: Path, group: Sequence[int], *, is_read: Callable[[], bool], replaced: Callable[[], None]
    ) -> None:
        self._folder = folder
        self._group = group
        self._is_read = is_read
        self._replaced = replaced
        self._cleaned = segment_path(folder, group[0]).with_suffix(f".log{CLEANED_SUFFIX}")
        self._unfinished: Path | None = self._cleaned
        self._file = open(self._cleaned, "wb")  # noqa: SIM115 - close() closes it

    def write(self, data: bytes) -> None:
        """Append a batch.

        Raises:
            OSError: the disk is full or has failed.
        """
        self._file.write(data)

    def swap(self) -> Work:
        """Make the file durable and replace the segments by it.

        Raises:
            OSError: it can't be written; the segments are unchanged.
            InterruptedSwapError: the state of the files is unknown.
        """
        self._file.flush()
        yield from sync(self._cleaned)
        self._unfinished = self._cleaned.replace(swap_path(self._folder, self._group[0]))
        yield from sync(self._folder)
        while self._is_read():
            yield 0
        self._unfinished = None
        self._replaced()
        try:
            finish_swap(self._folder, self._group)
        except OSError as error:
            raise InterruptedSwapError(self._folder, error) from error
        yield from sync(self._folder)

    def close(self) -> None:
        """Discard a file that was not swapped in."""
        try:
            self._file.close()
        finally:
            if self._unfinished is not None:
                self._unfinished.unlink(missing_ok=True)
                self._unfinished = None


def sync(path: Path) -> Work:
    """Sync a file or a folder in another thread, because a slow disk takes long."""
    errors: list[BaseException] = []

    def run() -> None:
        try:
            sync_path(path)
        except BaseException as error:
            errors.append(error)

    thread = threading.Thread(target=run, name="groupcoord-compaction-fsync")
    thread.start()
    try:
        while thread.is_alive():
            thread.join(SYNC_POLL_S)
            yield 0
    finally:
        thread.join()
    if errors:
        raise errors[0]
