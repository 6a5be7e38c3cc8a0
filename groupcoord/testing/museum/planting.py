"""Replacement of one function of this package by one with a bug, in this process."""

from __future__ import annotations

import inspect
from importlib import import_module
from types import FunctionType
from typing import Any

from groupcoord.errors import GroupcoordError
from groupcoord.testing.museum.exhibit import Plant


class PlantError(GroupcoordError):
    """A plant whose target does not exist, or has other parameters."""


def plant(bug: Plant) -> None:
    """Replace the target of a plant for as long as this process lives."""
    function, changes = changes_of(bug)
    for attribute, value in changes.items():
        setattr(function, attribute, value)


def changes_of(bug: Plant) -> tuple[FunctionType, dict[str, Any]]:
    """Return the target of a plant and the attributes that give it the bug.

    The function object stays the same, so that names that other modules have imported meet the bug as well.

    Raises:
        PlantError: if the plant does not fit the package.
    """
    function = _target(bug)
    original = FunctionType(function.__code__, function.__globals__, function.__name__, function.__defaults__)
    original.__kwdefaults__ = function.__kwdefaults__
    namespace = dict(function.__globals__)
    exec(compile(bug.source, f"<{bug.target}>", "exec"), namespace)
    planted = namespace[function.__name__]
    defaults = dict(planted.__kwdefaults__ or {})
    parameters, expected = list(inspect.signature(planted).parameters), list(inspect.signature(function).parameters)
    if "original" in parameters:
        parameters.remove("original")
        defaults["original"] = original
    if parameters != expected:
        raise PlantError(f"{bug.target} takes {expected}, its replacement {parameters}")
    return function, {"__code__": planted.__code__, "__defaults__": planted.__defaults__, "__kwdefaults__": defaults}


def _target(bug: Plant) -> FunctionType:
    try:
        found: Any = import_module(bug.module)
        for name in bug.function.split("."):
            found = vars(found)[name]
    except (ModuleNotFoundError, KeyError) as error:
        raise PlantError(f"{bug.target} does not exist (any more), so its bug can't be planted") from error
    if not isinstance(found, FunctionType):
        raise PlantError(f"{bug.target} is not a function")
    return found
