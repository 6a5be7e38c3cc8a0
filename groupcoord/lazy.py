"""Lazy imports: names of packages on first access (PEP 562), and drivers of optional stores."""

from __future__ import annotations

import sys
from importlib import import_module

TYPE_CHECKING = False  # see groupcoord/__init__.py
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from types import ModuleType


def attach(
    package: str, modules: Mapping[str, str]
) -> tuple[Callable[[str], object], Callable[[], list[str]], list[str]]:
    """Return ``__getattr__``, ``__dir__`` and ``__all__`` of a package, from names, separated by blanks, by module."""
    module_of = {name: module for module, names in modules.items() for name in names.split()}

    def import_name(name: str) -> object:
        if name not in module_of:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        value = getattr(import_module(module_of[name], package), name)
        setattr(sys.modules[package], name, value)
        return value

    return import_name, lambda: sorted(module_of), sorted(module_of)


def import_driver(module: str, user: str, package: str, extra: str) -> ModuleType:
    """Import the driver of an optional store; ModuleNotFoundError names what to install."""
    try:
        return import_module(module)
    except ModuleNotFoundError as error:
        message = f"{user} needs {package}: pip install 'groupcoord[{extra}]'"
        raise ModuleNotFoundError(message, name=error.name) from error
