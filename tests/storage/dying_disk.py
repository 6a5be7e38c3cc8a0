"""A machine that loses its power at the n-th change of a file's name: nothing after that happens any more."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Any

import pytest

from groupcoord.storage.stores.segments import SegmentLogStore


class PowerFailure(BaseException):
    """The machine is dead; no program can catch that."""


class DyingDisk:
    """While it is entered, files are renamed and deleted ``steps`` times; then everything fails."""

    def __init__(self, steps: int) -> None:
        self.steps = steps
        self._patch = pytest.MonkeyPatch()

    def __enter__(self) -> DyingDisk:
        for place, name in ((Path, "replace"), (Path, "unlink")):
            self._patch.setattr(place, name, self._counted(getattr(place, name)))
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._patch.undo()

    def _counted(self, function: Callable[..., Any]) -> Callable[..., Any]:
        def call(*arguments: Any, **options: Any) -> Any:
            self.steps -= 1
            if self.steps < 0:
                raise PowerFailure
            return function(*arguments, **options)

        return call

    def let_go(self, store: SegmentLogStore) -> None:
        """Close the descriptors that a dead process would not have any more; the lock goes with them."""
        store._files.close_all()
        store._cleaner._running = None
        store._lock.close()
