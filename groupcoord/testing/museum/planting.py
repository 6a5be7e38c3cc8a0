"""Replacement of one function of this package by one with a bug, in this process."""

from __future__ import annotations

import inspect
from importlib import import_module
from types import FunctionType
from typing import Any

from groupcoord.errors import GroupcoordError
from groupcoord.testing.museum.exhibit import Plant

_ORIGINAL = "original"


class PlantError(GroupcoordError):
    """A plant does not fit the package: its target does not exist, or has other parameters."""


def plant(bug: Plant) -> None:
    """Replace the target of a plant for as long as this process lives.

    Raises:
        PlantError: if the plant does not fit the package.
    """
    function, changes = changes_of(bug)
    for attribute, value in changes.items():
        setattr(function, attribute, value)


def changes_of(bug: Plant) -> tuple[FunctionType, dict[str, Any]]:
    """Return the target of a plant and the attributes that give it the bug.

    The function object stays the same, so that the bug is also met through names that other modules have imported.

    Raises:
        PlantError: if the plant does not fit the package.
    """
    function = _target(bug)
    original = FunctionType(function.__code__, function.__globals__, function.__name__, function.__defaults__)
    original.__kwdefaults__ = function.__kwdefaults__
    namespace = dict(function.__globals__)
    exec(compile(bug.source, f"<{bug.target}>", "exec"), namespace)
    replacement = namespace[function.__name__]
    parameters = [name for name in inspect.signature(replacement).parameters if name != _ORIGINAL]
    if parameters != (expected := list(inspect.signature(function).parameters)):
        raise PlantError(f"{bug.target} has the parameters {expected}, and its replacement {parameters}")
    wraps = _ORIGINAL in inspect.signature(replacement).parameters
    return function, {
        "__code__": replacement.__code__,
        "__defaults__": replacement.__defaults__,
        "__kwdefaults__": {**(replacement.__kwdefaults__ or {}), **({_ORIGINAL: original} if wraps else {})} or None,
    }


def _target(bug: Plant) -> FunctionType:
    try:
        owner: Any = import_module(bug.module)
    except ModuleNotFoundError as error:
        raise PlantError(f"the target of a plant does not exist any more: there is no module {bug.module}") from error
    for name in bug.qualified_name.split("."):
        if name not in vars(owner):
            raise PlantError(f"the target of a plant does not exist any more: {bug.target} ({owner!r} has no {name})")
        owner = vars(owner)[name]
    function = owner.fget if isinstance(owner, property) else getattr(owner, "__func__", owner)
    if not isinstance(function, FunctionType):
        raise PlantError(f"{bug.target} is no function or method")
    return function
