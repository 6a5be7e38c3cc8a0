"""An instance of a program that is a function: this module is run with its folder, module, name and arguments."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any

from groupcoord.testing.exams.instances import LOGIN_PLACEHOLDERS, PLACEHOLDERS


def command_for(function: Callable[..., Any]) -> list[str]:
    """Return the command that calls a function in a process of its own.

    Args:
        function: one at the top of a file; what it takes of the placeholders it gets by keyword.

    Raises:
        ValueError: it isn't at the top of a file, or takes something else.
    """
    name, taken = getattr(function, "__qualname__", ""), inspect.signature(function).parameters
    if not name.isidentifier():
        raise ValueError(f"{name or function!r} must be a function at the top of a file, so that others can call it")
    if unknown := [key for key in taken if key not in PLACEHOLDERS + LOGIN_PLACEHOLDERS]:
        raise ValueError(
            f"{name}() takes {unknown[0]!r}; an instance is given {', '.join(PLACEHOLDERS + LOGIN_PLACEHOLDERS)}"
        )
    path = Path(inspect.getfile(function)).resolve()
    module = path.stem if function.__module__ == "__main__" else function.__module__
    folder = str(path.parents[module.count(".")]).replace("{", "{{").replace("}", "}}")
    return [sys.executable, "-m", __name__, folder, module, name, *(f"{key}={{{key}}}" for key in taken)]


def main(folder: str, module: str, name: str, *values: str) -> None:
    """Call a function of a module, which is imported from a folder."""
    sys.path.insert(0, folder)
    getattr(import_module(module), name)(**dict(value.split("=", 1) for value in values))


if __name__ == "__main__":
    main(*sys.argv[1:])
