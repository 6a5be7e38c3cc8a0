"""Who answers which request: each method says so where it stands, and a broker makes one table of them."""

from __future__ import annotations

from collections.abc import Callable
from inspect import getmembers
from typing import Any, TypeVar

from groupcoord.broker.connection import Connection
from groupcoord.broker.work import Work
from groupcoord.errors import InvariantError
from groupcoord.wire import WireResponse

Handler = Callable[[Connection, Any], WireResponse | Work[WireResponse | None] | None]
"""Answers a request of a connection. None: the answer comes later, was given already, or is not awaited."""

MethodT = TypeVar("MethodT", bound=Callable[..., Any])

_MARK = "_answers"


def answers(*requests: type) -> Callable[[MethodT], MethodT]:
    """Say which requests a method answers; it is called with a connection and the request.

    It returns the answer, or None: that comes later, was given already, or isn't awaited. Where a request can name many
    things it returns work that comes to that (:mod:`groupcoord.broker.work`), as a generator does.
    """

    def mark(method: MethodT) -> MethodT:
        setattr(method, _MARK, requests)
        return method

    return mark


def table_of(*parts: object) -> dict[type, Handler]:
    """Return who answers which request, of objects whose methods say so by :func:`answers`.

    Raises:
        InvariantError: two answer the same request.
    """
    handlers: dict[type, Handler] = {}
    for part in parts:
        for _, method in getmembers(type(part), lambda member: hasattr(member, _MARK)):
            for request in getattr(method, _MARK):
                if request in handlers:
                    raise InvariantError(f"two methods answer {request.__name__}")
                handlers[request] = method.__get__(part)
    return handlers
