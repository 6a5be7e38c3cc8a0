"""Faults over HTTP, for tests in other languages: the words of a :class:`Control` with their arguments as JSON.

``POST /fail_next {"api": "OffsetCommit", "error": "NOT_COORDINATOR", "times": 2}`` answers with the rule that was made,
which ``GET /rules/1`` shows and ``DELETE /rules/1`` removes. The server listens on the loopback address alone. Whatever
a browser sends is refused, since pages of others may make it ask.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Mapping
from http import HTTPStatus
from inspect import Parameter, signature
from itertools import count
from typing import Any

from groupcoord.errors import GroupcoordError
from groupcoord.host.http import HttpRequest, HttpResponse, HttpServer
from groupcoord.testing.faults.control import Control
from groupcoord.testing.faults.rules import Rule

HOST = "127.0.0.1"
LOOPBACK_NAMES = ("127.0.0.1", "localhost")
BODY_BYTES_MAX = 64 * 1024
RULES_KEPT = 10_000
"""So many rules can be asked for; the oldest that are over are forgotten first."""

WORDS: Mapping[str, Callable[..., Any]] = {
    word.__name__: word
    for word in (
        Control.fail_next,
        Control.delay,
        Control.hold,
        Control.drop_next,
        Control.disconnect_next,
        Control.drop_connections,
        Control.expire_member,
        Control.begin_rebalance,
        Control.release_records,
        Control.expire_locks,
        Control.move_coordinator,
        Control.move_transaction_coordinator,
        Control.move_leader,
        Control.coordinator,
        Control.transaction_coordinator,
        Control.leader,
        Control.crash,
        Control.restart,
        Control.fail_next_append,
        Control.hold_appends,
        Control.held_appends,
        Control.release_appends,
        Control.refuse_appends,
        Control.advance,
        Control.clear,
    )
}
"""What can be asked for by ``POST /word``."""

TYPES: Mapping[str, tuple[type, ...]] = {
    "api": (str,),
    "error": (str, int),
    "times": (int, type(None)),
    "where": (dict, type(None)),
    "after": (bool,),
    "duration_ms": (int,),
    "client_id": (str, type(None)),
    "group_id": (str,),
    "member_id": (str,),
    "node": (int, type(None)),
    "to": (int, type(None)),
    "topic": (str,),
    "partition": (int,),
    "transactional_id": (str,),
}
"""What each argument may be in JSON."""


class BadArgumentsError(GroupcoordError):
    """The body of a request isn't what its word takes. The message says why."""


class ControlServer(HttpServer):
    """Lets programs say over HTTP what shall go wrong.

    Args:
        control: does it.
        port: the port to listen on, of the loopback address; 0 takes a free one.
    """

    def __init__(self, control: Control, port: int) -> None:
        super().__init__(HOST, port, "faults", BODY_BYTES_MAX)
        self._control = control
        self._rules: dict[int, Rule] = {}
        self._numbers = count(1)

    async def answer(self, request: HttpRequest) -> HttpResponse:
        host = request.headers.get("host", "").rpartition(":")
        if (host[0] or host[2]) not in LOOPBACK_NAMES or "origin" in request.headers:
            return _said(HTTPStatus.FORBIDDEN, "only programs of this machine may ask, and no browser")
        first, _, rest = request.path.removeprefix("/").partition("/")
        if first == "rules":
            return self._answer_about_rules(request.method, rest)
        word = WORDS.get(first)
        if word is None or rest:
            return _said(HTTPStatus.NOT_FOUND, f"there is no {request.path}; there are /rules, /{', /'.join(WORDS)}")
        if request.method != "POST":
            return _said(HTTPStatus.METHOD_NOT_ALLOWED, f"{request.path} wants POST")
        try:
            arguments = _arguments(word, request.body)
            if word is Control.advance:
                for _ in self._control.advancing(**arguments):
                    await asyncio.sleep(0)  # others, and signals, have their turn
                result = None
            else:
                result = word(self._control, **arguments)
            self._control.flush()
            return _shown(self._keep(result) if isinstance(result, Rule) else {"result": result})
        except (GroupcoordError, ValueError, TypeError) as error:
            return _said(HTTPStatus.BAD_REQUEST, str(error))

    def _answer_about_rules(self, method: str, number: str) -> HttpResponse:
        if not number and method == "GET":
            return _shown([_described(key, rule) for key, rule in self._rules.items()])
        key = int(number) if number.isascii() and number.isdigit() and len(number) < 10 else 0
        rule = self._rules.get(key)
        if rule is None:
            return _said(HTTPStatus.NOT_FOUND, f"there is no rule {number!r}")
        if method == "DELETE":
            self._control.rules.remove(rule)
            self._control.flush()
            del self._rules[key]
        elif method != "GET":
            return _said(HTTPStatus.METHOD_NOT_ALLOWED, "a rule can be looked at (GET) and removed (DELETE)")
        return _shown(_described(key, rule))

    def _keep(self, rule: Rule) -> dict[str, Any]:
        if len(self._rules) >= RULES_KEPT:
            over = next((key for key, kept in self._rules.items() if kept.is_over and not kept.held), None)
            if over is None:
                self._control.rules.remove(rule)
                raise BadArgumentsError(f"there are {RULES_KEPT} rules; remove some")
            del self._rules[over]
        key = next(self._numbers)
        self._rules[key] = rule
        return _described(key, rule)


def _arguments(word: Callable[..., Any], body: bytes) -> dict[str, Any]:
    """Return the arguments of a word that a body has."""
    try:
        arguments = json.loads(body or b"{}")
    except (ValueError, RecursionError):
        raise BadArgumentsError("the body is no JSON") from None
    if not isinstance(arguments, dict):
        raise BadArgumentsError('the body must be an object, such as {"api": "Heartbeat"}')
    parameters = {name: p for name, p in signature(word).parameters.items() if name != "self"}
    for name, value in arguments.items():
        if name not in parameters:
            raise BadArgumentsError(f"{word.__name__} takes no {name!r}; it takes {', '.join(parameters) or 'nothing'}")
        if type(value) not in TYPES[name]:
            wanted = " or ".join("null" if kind is type(None) else kind.__name__ for kind in TYPES[name])
            raise BadArgumentsError(f"{name} must be {wanted}, not {json.dumps(value)[:100]}")
    missing = [name for name, p in parameters.items() if p.default is Parameter.empty and name not in arguments]
    if missing:
        raise BadArgumentsError(f"{word.__name__} needs {', '.join(missing)}")
    return arguments


def _described(key: int, rule: Rule) -> dict[str, Any]:
    return {"id": key, "api": rule.api, "count": rule.count, "is_over": rule.is_over}


def _shown(value: object) -> HttpResponse:
    return HttpResponse(HTTPStatus.OK, json.dumps(value).encode() + b"\n", "application/json")


def _said(status: HTTPStatus, message: str) -> HttpResponse:
    return HttpResponse(status, json.dumps({"error": message}).encode() + b"\n", "application/json")
