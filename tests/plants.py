"""Bugs of the museum's exhibits, planted in this process for one test."""

from __future__ import annotations

import inspect
from importlib import import_module
from types import FunctionType
from typing import Any

import pytest

from groupcoord.testing.museum import exhibit


def plant(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    """Give the classes of the exhibit's module the methods that they have with its bug."""
    bug = exhibit(name).plant
    assert bug is not None
    module = import_module(bug.module)
    planted: dict[str, Any] = {"__name__": module.__name__}
    exec(compile(bug.apply(inspect.getsource(module)), bug.file, "exec"), planted)
    for class_name, kind in inspect.getmembers(module, inspect.isclass):
        if kind.__module__ == module.__name__:
            for method, function in vars(planted[class_name]).items():
                if isinstance(function, FunctionType):
                    monkeypatch.setattr(kind, method, function)
