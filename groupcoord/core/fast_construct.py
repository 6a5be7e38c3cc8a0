"""Faster equivalents of operations that are slow in CPython and frequent in requests."""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from enum import Enum
from functools import cache, partial
from reprlib import recursive_repr
from types import CodeType, MemberDescriptorType
from typing import TYPE_CHECKING, Any, TypeVar

import attrs
from attrs import fields

E = TypeVar("E", bound=Enum)
T = TypeVar("T", bound=tuple[Any, ...])

MANY_OBJECTS = 100_000
"""Number of objects that the cyclic garbage collector traverses in 10 ms or more."""


def plain_members(enumeration: type[E]) -> type[E]:
    """Make the members of an enumeration plain class attributes, as from Python 3.12 on."""
    # Python 3.11 looks a member up in a Python function, which takes 70 ns.
    for name, member in enumeration.__members__.items():
        type.__setattr__(enumeration, name, member)
    # Hashes by name in Python; identity serves as well, since members equal only themselves.
    if enumeration.__hash__ is Enum.__hash__:
        type.__setattr__(enumeration, "__hash__", object.__hash__)
    return enumeration


def _with_faster_methods(decorator: Callable[..., Any]) -> Callable[..., Any]:
    """Return a class decorator of attrs that compiles comparisons at their first use, and makes faster constructors."""

    def decorate(kind: Any = None, /, **options: Any) -> Any:
        if kind is None:
            return partial(decorate, **options)
        own = vars(kind).keys()
        has_repr = options.get("repr", True) and "__repr__" not in own
        has_eq = options.get("eq", True) and own.isdisjoint(("__eq__", "__ne__", "__hash__"))
        has_eq = has_eq and not options.get("cache_hash")
        is_hashable = has_eq and options.pop("unsafe_hash", False)
        # Compiling these for each class would take a tenth of the time of an import.
        options |= {name: False for name, is_made in (("repr", has_repr), ("eq", has_eq)) if is_made}
        made: Any = decorator(kind, **options)
        if any(each.eq_key or callable(each.repr) for each in fields(made)):
            raise TypeError(f"{made.__name__}: fields are compared and shown as they are")
        if has_repr:
            made.__repr__ = _repr
        if has_eq:
            _compare_by_fields(made, is_hashable or _is_frozen(made))
        _replace_constructor(made)
        return made

    return decorate


def _is_frozen(kind: Any) -> bool:
    return kind.__delattr__ is not object.__delattr__


def _compare_by_fields(kind: Any, is_hashable: bool) -> None:
    names = [attribute.name for attribute in fields(kind) if attribute.eq]
    equal = " and ".join([f"self.{name} == other.{name}" for name in names]) or "True"
    _compile_when_called(
        kind, "__eq__", "self, other", f"{equal} if other.__class__ is self.__class__ else NotImplemented"
    )
    if is_hashable:
        _compile_when_called(kind, "__hash__", "self", f"hash(({''.join([f'self.{name}, ' for name in names])}))")
    else:
        kind.__hash__ = None


def _compile_when_called(kind: Any, name: str, parameters: str, expression: str) -> None:
    def compile_and_call(*arguments: Any) -> Any:
        # Made of attribute names alone.
        function = eval(compile(f"lambda {parameters}: {expression}", _GENERATED, "eval"))
        setattr(kind, name, function)
        return function(*arguments)

    setattr(kind, name, compile_and_call)


@recursive_repr()
def _repr(self: Any) -> str:
    shown = [f"{each.name}={getattr(self, each.name)!r}" for each in fields(type(self)) if each.repr]
    return f"{type(self).__qualname__.rpartition('>.')[2]}({', '.join(shown)})"


def _replace_constructor(kind: Any) -> None:
    """Replace the code of a generated constructor; its signature, annotations and defaults stay."""
    init = vars(kind).get("__init__")
    if init is None or not init.__code__.co_filename.startswith("<attrs generated "):
        return
    code = init.__code__
    # Assignment, as in mutable classes, is faster still.
    if _is_frozen(kind) and _sets_slots_only(kind):
        factories = [getattr(attribute.default, "factory", None) for attribute in fields(kind)]
        for place, (attribute, factory) in enumerate(zip(fields(kind), factories, strict=True)):
            init.__globals__[f"set_{place}"] = getattr(kind, attribute.name).__set__
            init.__globals__[f"make_{place}"] = factory
        setting = _setting_slots(tuple([factory is not None for factory in factories]))
        code = setting.replace(co_varnames=code.co_varnames[: code.co_argcount])
    init.__code__ = code.replace(co_filename=_GENERATED, co_qualname=init.__qualname__)


def _sets_slots_only(kind: Any) -> bool:
    if any(hasattr(kind, name) for name in ("__attrs_pre_init__", "__attrs_post_init__", "_attrs_cached_hash")):
        return False
    return all(
        isinstance(getattr(kind, each.name, None), MemberDescriptorType)
        and (each.init, each.kw_only, each.converter, each.validator) == (True, False, None, None)
        and not getattr(each.default, "takes_self", False)
        for each in fields(kind)
    )


@cache
def _setting_slots(has_factory: tuple[bool, ...]) -> CodeType:
    # By their descriptors: 15 % faster than attrs. Compiled once for all classes that differ in names only.
    names = [f"argument_{place}" for place in range(len(has_factory))]
    source = f"def __init__({', '.join(['self', *names])}):\n"
    for place, name in enumerate(names):
        value = f"make_{place}() if {name} is NOTHING else {name}" if has_factory[place] else name
        source += f"    set_{place}(self, {value})\n"
    made: dict[str, Any] = {}
    exec(compile(source + "    return", _GENERATED, "exec"), made)
    code: CodeType = made["__init__"].__code__
    return code


_GENERATED = "<methods generated by attrs and groupcoord>"

if TYPE_CHECKING:  # type checkers know those of attrs
    from attrs import define as define
    from attrs import frozen as frozen
else:
    define, frozen = _with_faster_methods(attrs.define), _with_faster_methods(attrs.frozen)


def maker(named_tuple: type[T]) -> Callable[[tuple[Any, ...]], T]:
    """Return a function that creates a named tuple from a tuple of all its fields."""
    # The constructor is a Python function, twice as slow.
    return partial(tuple.__new__, named_tuple)


@contextmanager
def collector_paused() -> Iterator[None]:
    """Pause the cyclic garbage collector, for programs that load much."""
    was_enabled = gc.isenabled()
    # Millions of objects without cycles would trigger it again and again.
    gc.disable()
    try:
        yield
    finally:
        if gc.get_count()[0] > MANY_OBJECTS and not gc.get_freeze_count():
            # Moves all objects to the oldest generation; a program's own frozen objects are left alone.
            gc.freeze()
            gc.unfreeze()
        if was_enabled:
            gc.enable()


def collect_garbage_seldom() -> None:
    """Raise the thresholds of the cyclic garbage collector, for a server process."""
    # Objects of a request are freed by reference counts; members and offsets are in no cycle.
    gc.set_threshold(20_000, 20, 20)


def keep_freed_memory() -> None:
    """Make glibc keep up to some megabytes of freed memory, for a server process."""
    import ctypes

    # Otherwise a freed batch returns to the system, which clears each page of the next one.
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        mallopt(_MMAP_THRESHOLD, 4 * MEBIBYTE)
        mallopt(_TRIM_THRESHOLD, 32 * MEBIBYTE)


_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3  # of malloc.h
MEBIBYTE = 1_048_576
