"""Copies of what a coordinator has in memory, by hand: what can change is copied, what never does is shared.

How an instance of a class is copied is worked out once. Everything is copied that isn't known to stay as it is, so
that a class or an attribute that is new is copied without being named here; what stays as it is is named because to
copy it would take time.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Iterable, Sequence
from enum import Enum
from operator import attrgetter
from types import MappingProxyType, MethodType
from typing import Any

from sortedcontainers import SortedDict

from groupcoord.config import Config
from groupcoord.core.events import Counters
from groupcoord.core.groups.base.environment import GroupEnvironment
from groupcoord.core.groups.base.known_topics import KnownTopics
from groupcoord.core.groups.base.topics import Topic
from groupcoord.core.groups.consumer.reconciliation import MemberAssignment
from groupcoord.core.groups.consumer.records import AssignedTopicPartitions
from groupcoord.core.groups.consumer.state import ConsumerMember
from groupcoord.core.groups.share.state import ShareMember, StatePartitions
from groupcoord.core.groups.streams.assignors import MemberTasks
from groupcoord.core.groups.streams.reconciliation import HeldTasks, TaskAssignment
from groupcoord.core.groups.streams.soft_state import UsedTarget
from groupcoord.core.groups.streams.state import StreamsMember
from groupcoord.core.groups.streams.topology import ConfiguredTopology
from groupcoord.core.observer import OpenRebalance
from groupcoord.core.timers import Timer, TimerKey

Memo = dict[int, Any]
"""By ``id()`` of what was copied, its copy; and by that of a part of a coordinator, the same part of another one."""

How = Callable[[Any, Memo], Any]

PACKAGE = "groupcoord.core."
VALUES = (
    *(AssignedTopicPartitions, ConfiguredTopology, ConsumerMember, HeldTasks, MemberAssignment, MemberTasks),
    *(OpenRebalance, ShareMember, StatePartitions, StreamsMember, TaskAssignment, TimerKey, Topic, UsedTarget),
)
"""Classes of the core whose instances never change, besides those of :data:`MODULES_OF_VALUES`."""

MODULES_OF_VALUES = (
    *("messages", "events", "log.records", "columns"),
    *("groups.consumer.records", "groups.share.records", "groups.streams.records"),
)
"""Modules and packages of the core with nothing but values: no request, record or event changes."""

PARTS = (GroupEnvironment, KnownTopics, Config)
"""What a coordinator is made of, and its groups refer to."""


def copied(value: Any, memo: Memo) -> Any:
    """Return a copy that can change without the original, and the other way round.

    Args:
        value: anything that a coordinator has in memory.
        memo: what was copied before, or stands in the place of something else.
    """
    return (_HOWS.get(type(value)) or _learn(type(value)))(value, memo)


def _same(value: Any, memo: Memo) -> Any:
    return value


def _part(value: Any, memo: Memo) -> Any:
    return memo.get(id(value), value)


def _method(value: Any, memo: Memo) -> Any:
    return MethodType(value.__func__, memo.get(id(value.__self__), value.__self__))


def _tuple(value: Any, memo: Memo) -> Any:
    if type(value) is tuple and set(map(type, value)) == {int}:  # where a timer stands, as a rule
        return value
    found = [copied(each, memo) for each in value]
    if all(map(_is, found, value)):
        return value
    return tuple.__new__(type(value), found)


def _is(one: Any, other: Any) -> bool:
    return one is other


def _elements(value: Any, memo: Memo) -> Any:
    made = memo.get(id(value))
    if made is None:
        made = memo[id(value)] = type(value)()
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


def _counter(value: Any, memo: Memo) -> Any:
    """Copy a counter, whose own way counts everything again."""
    made = memo.get(id(value))
    if made is None:
        made = memo[id(value)] = Counter.__new__(Counter)
        dict.update(made, value)
    return made


def _sorted_mapping(value: Any, memo: Memo) -> Any:
    """Copy a mapping that will be put in order when it is put where it belongs."""
    return {key: copied(each, memo) for key, each in value.items()}


def _timer(value: Any, memo: Memo) -> Any:
    """Copy a timer, of which there are many."""
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
    """Return the attributes of instances of a class that has slots, those of its parents first."""
    slots = [getattr(each, "__slots__", ()) for each in reversed(kind.__mro__)]
    names = [name for each in slots for name in ((each,) if isinstance(each, str) else each)]
    return tuple(name for name in dict.fromkeys(names) if name not in ("__weakref__", "__dict__"))


def values_of(names: Sequence[str]) -> Callable[[Any], Iterable[Any]]:
    """Return what gets the values of these attributes, in order."""
    if len(names) > 1:
        return attrgetter(*names)
    return lambda value: [getattr(value, name) for name in names]


def _instance_with(kind: type) -> How:
    """Return what copies instances of a class that has slots."""
    names = attributes_of(kind)
    found_in = values_of(names)
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
        kinds = tuple(theirs), tuple(map(type, theirs.values()))
        for name, how in _CHANGING.get(kinds) or _learn_changing(*kinds):
            attributes[name] = how(attributes[name], memo)
    return made


_HOWS: dict[type, How] = {
    list: _elements,
    deque: _elements,
    dict: _mapping,
    Counter: _counter,
    SortedDict: _sorted_mapping,
    set: _set,
    tuple: _tuple,
    MethodType: _method,
    Timer: _timer,
    Counters: _instance_with(Counters),
}


_CHANGING: dict[tuple[tuple[str, ...], tuple[type, ...]], tuple[tuple[str, How], ...]] = {}
"""By the names of all attributes of an instance and the classes of their values: those that are copied, and how."""


def _learn_changing(names: tuple[str, ...], kinds: tuple[type, ...]) -> tuple[tuple[str, How], ...]:
    hows = [(name, _HOWS.get(kind) or _learn(kind)) for name, kind in zip(names, kinds, strict=True)]
    found = _CHANGING[names, kinds] = tuple((name, how) for name, how in hows if how is not _same)
    return found


def _learn(kind: type) -> How:
    """Work out how instances of a class are copied."""
    module = kind.__module__.removeprefix(PACKAGE)
    how: How = _same  # a token of whoever embeds the coordinator, a number, text
    if issubclass(kind, PARTS):
        how = _part
    elif kind.__module__.startswith(PACKAGE) and not issubclass(kind, (*VALUES, Enum, MappingProxyType)):
        if any(f"{module}.".startswith(f"{name}.") for name in MODULES_OF_VALUES):
            how = _same
        elif issubclass(kind, tuple):
            how = _tuple
        else:
            how = _instance if kind.__dictoffset__ else _instance_with(kind)
    _HOWS[kind] = how
    return how
