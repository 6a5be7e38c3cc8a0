"""Writes what compaction leaves of some segments into a new file, and swaps that in so that a crash loses nothing."""

from __future__ import annotations

import threading
from collections.abc import Callable, Generator, Sequence
from pathlib import Path

from groupcoord.storage.log_directory import segment_path, sync_path
from groupcoord.storage.swapping import CLEANED_SUFFIX, finish_swap, swap_path

SYNC_POLL_S = 0.001

Work = Generator[int, None, None]
"""Yields how many batches and records were handled since the last time; 0 while it waits."""


class InterruptedSwapError(OSError):
    """The disk failed while files were replaced: the log has to be opened anew, which finishes it.

    Attributes:
        folder: of the log.
    """

    def __init__(self, folder: Path, cause: OSError) -> None:
        super().__init__(f"compaction was interrupted: {cause}")
        self.folder = folder


class SegmentRewrite:
    """The new file of some segments that become one.

    Args:
        folder: of the log.
        group: base offsets of the segments; the file will be that of the first.
        is_read: asked before the swap, which waits while somebody reads the files.
        replaced: told at the moment of the swap: from now on the new file stands for them all, whatever happens.

    Raises:
        OSError: the file can't be made.
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
        """Add a batch.

        Raises:
            OSError: the disk is full, or has failed.
        """
        self._file.write(data)

    def swap(self) -> Work:
        """Put the file, made durable, in the place of the segments.

        Raises:
            OSError: it can't be written; the segments are as they were.
            InterruptedSwapError: nobody knows which file is where.
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
        """Give up what was not swapped in."""
        try:
            self._file.close()
        finally:
            if self._unfinished is not None:
                self._unfinished.unlink(missing_ok=True)
                self._unfinished = None


def sync(path: Path) -> Work:
    """Make a file or a folder durable, in another thread: on a slow disk it takes long, and nobody has to wait."""
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
