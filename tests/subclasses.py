"""The classes that derive from another one."""

from __future__ import annotations

import sys
from typing import TypeVar

T = TypeVar("T")


def subclasses(parent: type[T]) -> list[type[T]]:
    """Return the direct subclasses, each once: those that attrs replaced by slotted ones stay until garbage is
    collected.
    """
    return [child for child in parent.__subclasses__() if _is_in_its_module(child)]


def _is_in_its_module(kind: type) -> bool:
    return vars(sys.modules[kind.__module__]).get(kind.__name__) is kind
