"""Seeded bugs without a copy of the project, for tests that look at one history in this process."""

from __future__ import annotations

import inspect
from importlib import import_module
from types import FunctionType
from typing import Any

import pytest

from tests.mutants.catalogue import Mutant


def plant(monkeypatch: pytest.MonkeyPatch, mutant: Mutant) -> None:
    """Give the classes of a module of the core the methods that they have with a seeded bug."""
    module = import_module("groupcoord.core." + mutant.file.removesuffix(".py").replace("/", "."))
    planted: dict[str, Any] = {"__name__": module.__name__}
    exec(compile(inspect.getsource(module).replace(mutant.old, mutant.new), mutant.file, "exec"), planted)
    for name, kind in inspect.getmembers(module, inspect.isclass):
        if kind.__module__ == module.__name__:
            for method, function in vars(planted[name]).items():
                if isinstance(function, FunctionType):
                    monkeypatch.setattr(kind, method, function)
