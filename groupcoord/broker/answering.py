"""Who answers which request: each method says so where it stands, and a broker makes one table of them."""

from __future__ import annotations

from collections.abc import Callable
from inspect import getmembers
from typing import Any, NamedTuple, TypeVar

from groupcoord.broker.connection import Connection
from groupcoord.errors import InvariantError
from groupcoord.wire import WireResponse

Handler = Callable[[Connection, Any], WireResponse | None]
"""Answers a request of a connection; None: the answer comes later, was given already, or is not awaited."""

MethodT = TypeVar("MethodT", bound=Callable[..., Any])

_MARK = "_answers"


class _Answers(NamedTuple):
    """What a method says of itself."""

    requests: tuple[type, ...]
    may_pause: bool


def answers(*requests: type, may_pause: bool = False) -> Callable[[MethodT], MethodT]:
    """Say which requests a method answers; it is called with a connection and the request.

    Args:
        requests: the types of the requests.
        may_pause: they can name many things, and the method changes nothing before it has passed over them, or one
            thing after the other: so it may pause between two of them where the request was long.
    """

    def mark(method: MethodT) -> MethodT:
        setattr(method, _MARK, _Answers(requests, may_pause))
        return method

    return mark


class AnswerTable(NamedTuple):
    """Who answers which request.

    Attributes:
        handlers: by the types of requests.
        pausing: the requests whose handlers may pause.
    """

    handlers: dict[type, Handler]
    pausing: frozenset[type]


def table_of(*parts: object) -> AnswerTable:
    """Return who answers which request, of objects whose methods say so by :func:`answers`.

    Raises:
        InvariantError: two answer the same request.
    """
    handlers: dict[type, Handler] = {}
    pausing: set[type] = set()
    for part in parts:
        for _, method in getmembers(type(part), lambda member: hasattr(member, _MARK)):
            said: _Answers = getattr(method, _MARK)
            for request in said.requests:
                if request in handlers:
                    raise InvariantError(f"two methods answer {request.__name__}")
                handlers[request] = method.__get__(part)
            if said.may_pause:
                pausing.update(said.requests)
    return AnswerTable(handlers, frozenset(pausing))
