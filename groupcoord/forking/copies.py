"""Copies of a coordinator's state: mutable values are copied, immutable ones shared.

A coordinator consists of *parts* (handlers, queues, tables), which its constructor makes, and of *state* in attributes
of parts. All attributes are copied, and counted in fingerprints (:mod:`.fingerprints`), except where a class declares
otherwise:

- ``NOT_STATE``: names of attributes that are neither copied nor counted, because they are derived or are arguments;
- ``NOT_COUNTED``: names of attributes that are copied, but not part of fingerprints;
- ``NEVER_CHANGES``: True for a class, or a module for all its classes, with immutable instances;
- ``IS_STATE``: True for a class with instances that are state where a part has one in an attribute.
"""

from __future__ import annotations

import sys
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from enum import Enum
from operator import attrgetter, is_
from types import MappingProxyType, MethodType
from typing import Any

from sortedcontainers import SortedDict

from groupcoord.core.timers import Timer

Memo = dict[int, Any]
"""Copies by ``id()`` of the original; for a part of a coordinator, the same part of another one."""

PARTS = 0
"""Key of a memo for the parts of one coordinator and the same parts of another, until the first is copied."""

How = Callable[[Any, Memo], Any]

PACKAGES = ("groupcoord.core.", "groupcoord.coordinator.")
PART_CLASSES: set[type] = set()
SCALARS = (int, str, float, bytes, tuple, frozenset, Enum, type(None))
CONTAINERS = (dict, list, deque, set)


def declared(kind: type, name: str) -> frozenset[str]:
    """Return the attributes that a class and its parents declare under a name."""
    return frozenset().union(*(vars(each).get(name, ()) for each in kind.__mro__))


def places_of(root: Any) -> tuple[list[tuple[Any, str]], list[Any]]:
    """Return the places of state and the parts of a coordinator, in an order that is equal for all coordinators."""
    places: list[tuple[Any, str]] = []
    parts: list[Any] = []
    seen: set[int] = set()
    todo = deque([root])
    while todo:
        part = todo.popleft()
        if id(part) in seen:
            continue
        seen.add(id(part))
        parts.append(part)
        PART_CLASSES.add(type(part))
        # A reference to a part becomes one to the same part of the other coordinator.
        _HOWS[type(part)] = _part
        without = declared(type(part), "NOT_STATE")
        for name in (*attributes_of(type(part)), *getattr(part, "__dict__", ())):
            value = getattr(part, name, None)
            inside = [each for each in (value if isinstance(value, (tuple, list)) else (value,)) if is_part(each)]
            # A container that two parts share is state of the first one.
            if name in without or id(value) in seen:
                continue
            todo += inside
            if not inside and _is_state(value):
                places.append((part, name))
                if isinstance(value, CONTAINERS):
                    seen.add(id(value))
    return places, parts


def is_part(value: Any) -> bool:
    """Return whether the value of a part's attribute is a part, too, and no state."""
    kind = type(value)
    is_ours = kind.__module__.startswith(PACKAGES) and not isinstance(value, (tuple, Enum))
    hashing: Any = kind.__hash__
    # Values that hash by their fields are no parts.
    is_value = hasattr(kind, "__attrs_attrs__") and hashing is not None and hashing is not object.__hash__
    return is_ours and not is_value and not getattr(kind, "IS_STATE", False)


def _is_state(value: Any) -> bool:
    if isinstance(value, dict):
        # Tables of handlers belong to the constructor.
        return not any(isinstance(key, type) or callable(each) for key, each in value.items())
    return isinstance(value, (*SCALARS, *CONTAINERS)) or getattr(type(value), "IS_STATE", False)


def copied(value: Any, memo: Memo) -> Any:
    """Return a copy that can change without the original, and the other way round."""
    return (_HOWS.get(type(value)) or _learn(type(value)))(value, memo)


def _same(value: Any, memo: Memo) -> Any:
    return value


def never_changes(kind: type) -> bool:
    package = kind.__module__.rpartition(".")[0]
    in_module = any(getattr(sys.modules[name], "NEVER_CHANGES", False) for name in (kind.__module__, package))
    # A token may be the part of a split request, which has state.
    has_token = "token" in getattr(kind, "_fields", ())
    return bool(getattr(kind, "NEVER_CHANGES", in_module and not has_token))


def _part(value: Any, memo: Memo) -> Any:
    if id(value) not in memo and PARTS in memo:
        # Entered when the first part is met: a restore may meet none.
        theirs, ours = memo.pop(PARTS)
        memo.update(zip(map(id, theirs), ours, strict=True))
    return memo.get(id(value), value)


def _tuple(value: Any, memo: Memo) -> Any:
    if type(value) is tuple and set(map(type, value)) == {int}:  # the position of a timer, usually
        return value
    found = [copied(each, memo) for each in value]
    # Nothing inside was copied, so the tuple can be shared.
    if all(map(is_, found, value)):
        return value
    # The constructor of a named tuple takes its fields one by one.
    return tuple.__new__(type(value), found)


def _elements(value: Any, memo: Memo) -> Any:
    # By id, so that shared objects stay shared, and cycles end.
    made = memo.get(id(value))
    if made is None:
        made = memo[id(value)] = type(value)()
        # Locals, because this loop runs for every mutable value.
        hows = _HOWS
        for each in value:
            how = hows.get(type(each)) or _learn(type(each))
            made.append(each if how is _same else how(each, memo))
    return made


def _mapping(value: Any, memo: Memo) -> Any:
    made = memo.get(id(value))
    if made is None:
        made = memo[id(value)] = {}
        hows = _HOWS
        for key, each in value.items():
            how = hows.get(type(each)) or _learn(type(each))
            made[key] = each if how is _same else how(each, memo)
    return made


def _timer(value: Any, memo: Memo) -> Any:
    made = memo.get(id(value))
    if made is None:
        made = memo[id(value)] = Timer(value.key)
        made.deadline_ms, made._sequence, made._entry = value.deadline_ms, value._sequence, value._entry
    return made


def _set(value: Any, memo: Memo) -> Any:
    made = memo.get(id(value))
    if made is None:
        made = memo[id(value)] = value.copy()
    return made


def attributes_of(kind: type) -> tuple[str, ...]:
    slots = [getattr(each, "__slots__", ()) for each in reversed(kind.__mro__)]
    names = [name for each in slots for name in ((each,) if isinstance(each, str) else each)]
    return tuple(name for name in dict.fromkeys(names) if name not in ("__weakref__", "__dict__"))


def values_of(names: Sequence[str]) -> Callable[[Any], Iterable[Any]]:
    if len(names) > 1:
        return attrgetter(*names)
    return lambda value: [getattr(value, name) for name in names]


def _instance_with(kind: type) -> How:
    names = attributes_of(kind)
    found_in = values_of(names)
    # Frozen classes of attrs raise in their own __setattr__.
    put = object.__setattr__ if "__setattr__" in vars(kind) else setattr

    def copy(value: Any, memo: Memo) -> Any:
        made = memo.get(id(value))
        if made is None:
            made = memo[id(value)] = object.__new__(kind)
            hows = _HOWS
            for name, each in zip(names, found_in(value), strict=True):
                how = hows.get(type(each)) or _learn(type(each))
                put(made, name, each if how is _same else how(each, memo))
        return made

    return copy if names else _same


def _instance(value: Any, memo: Memo) -> Any:
    made = memo.get(id(value))
    if made is None:
        made = memo[id(value)] = object.__new__(type(value))
        theirs, attributes = value.__dict__, made.__dict__
        attributes.update(theirs)
        # The attributes that need a copy are learnt once for each combination of types.
        kinds = tuple(theirs), tuple(map(type, theirs.values()))
        for name, how in _CHANGING.get(kinds) or _learn_changing(*kinds):
            attributes[name] = how(attributes[name], memo)
    return made


_HOWS: dict[type, How] = {
    list: _elements,
    deque: _elements,
    dict: _mapping,
    # Without the order, which the target restores.
    SortedDict: lambda value, memo: {key: copied(each, memo) for key, each in value.items()},
    set: _set,
    tuple: _tuple,
    MethodType: lambda value, memo: MethodType(value.__func__, _part(value.__self__, memo)),
    Timer: _timer,
}


_CHANGING: dict[tuple[tuple[str, ...], tuple[type, ...]], tuple[tuple[str, How], ...]] = {}
"""Mutable attributes and their copy functions, by the names and types of all attributes of an instance."""


def _learn_changing(names: tuple[str, ...], kinds: tuple[type, ...]) -> tuple[tuple[str, How], ...]:
    hows = [(name, _HOWS.get(kind) or _learn(kind)) for name, kind in zip(names, kinds, strict=True)]
    found = _CHANGING[names, kinds] = tuple((name, how) for name, how in hows if how is not _same)
    return found


def _learn(kind: type) -> How:
    how: How = _same  # a token of the embedding program, a number, text
    if kind.__module__.startswith(PACKAGES) and not issubclass(kind, (Enum, MappingProxyType)):
        if never_changes(kind):
            how = _same
        elif issubclass(kind, tuple):
            how = _tuple
        else:
            how = _instance if kind.__dictoffset__ else _instance_with(kind)
    _HOWS[kind] = how
    return how
