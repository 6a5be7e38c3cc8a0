"""Puts a bug into this process: its module is changed while it is imported, and no file is written."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder, SourceFileLoader
from importlib.util import spec_from_file_location
from types import CodeType, ModuleType

from groupcoord.testing.museum.exhibit import Plant


class _PlantedLoader(SourceFileLoader):
    """Loads one module with the bug in it."""

    def __init__(self, plant: Plant, path: str) -> None:
        super().__init__(plant.module, path)
        self._plant = plant

    def get_code(self, fullname: str) -> CodeType:
        """Compile the changed source; what is kept compiled beside it is the module without the bug."""
        path = self.get_filename(fullname)
        source = self.get_data(path).decode("utf-8")
        code: CodeType = self.source_to_code(self._plant.apply(source).encode(), path)
        return code


class _PlantingFinder(MetaPathFinder):
    """Finds the module of a plant before Python does."""

    def __init__(self, plant: Plant) -> None:
        self._plant = plant

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Return how to load the plant's module; None for every other one."""
        if fullname != self._plant.module:
            return None
        found = PathFinder.find_spec(fullname, path, target)
        assert found is not None
        assert found.origin is not None
        return spec_from_file_location(fullname, found.origin, loader=_PlantedLoader(self._plant, found.origin))


def plant(bug: Plant) -> None:
    """Let the module of a bug have it, for as long as this process lives.

    Args:
        bug: what to change.

    Raises:
        RuntimeError: the module is imported already.
    """
    if bug.module in sys.modules:
        raise RuntimeError(f"{bug.module} is imported already: bugs are planted in a process of their own")
    sys.meta_path.insert(0, _PlantingFinder(bug))
