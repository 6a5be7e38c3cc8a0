"""Control port: faults, waits and queries over HTTP for tests in other languages, with arguments as JSON.

``POST /fail_next {"api": "OffsetCommit", "error": "NOT_COORDINATOR", "times": 2}`` returns the new rule, which ``GET
/rules/1`` shows and ``DELETE /rules/1`` removes. The server listens on the loopback address only and refuses requests
from browsers, which other sites could trigger.
"""

from __future__ import annotations

import asyncio
import json
import logging
from base64 import b64encode
from collections.abc import Callable, Iterable, Mapping
from enum import Enum
from http import HTTPStatus
from inspect import Parameter, isawaitable, isfunction, signature
from itertools import count
from typing import Any, get_args, get_origin, get_type_hints
from wsgiref.types import StartResponse, WSGIEnvironment

from groupcoord.errors import GroupcoordError
from groupcoord.host.http import HttpServer
from groupcoord.testing.asserting.expectations import LOOK_AGAIN_S, WAIT_S, Attempts, Reading, Stable, Wanted
from groupcoord.testing.asserting.groups import (
    GroupDescription,
    Unmet,
    committed_offsets,
    describe_group,
    describe_groups,
)
from groupcoord.testing.asserting.requests import RequestLog
from groupcoord.testing.faults.control import Control
from groupcoord.testing.faults.rules import Rule

logger = logging.getLogger("groupcoord.host")

HOST = "127.0.0.1"
LOOPBACK_NAMES = ("127.0.0.1", "localhost")
BODY_BYTES_MAX, DRAINED_BYTES = 64 * 1024, 1024 * 1024
REQUESTS_MAX = 1_000
WAIT_MAX_S = 600.0
RULES_KEPT = 10_000
"""Number of rules kept; the oldest finished ones are forgotten first."""

NOT_SERVED = frozenset(
    (
        "acquired_records",
        "advancing",
        "coordinating",
        "describe_faults",
        "flush",
        "on",
        "raise_errors",
        "shared_records",
    )
)
"""Methods of ``Control`` that take or return Python objects, or that only this process needs."""


class Observer:
    """Queries of a server over HTTP, with results as JSON values."""

    def __init__(self, control: Control, request_log: RequestLog) -> None:
        self._control = control
        self._request_log = request_log

    def groups(self) -> Any:
        return as_json(describe_groups(self._control.broker))

    def group(self, group_id: str) -> Any:
        return as_json(describe_group(self._control.broker, group_id))

    def committed(self, group_id: str) -> Any:
        return as_json(committed_offsets(self._control.broker, group_id))

    def requests(
        self,
        api: str | None = None,
        client_id: str | None = None,
        group_id: str | None = None,
        node: int | None = None,
        since: int = 0,
        limit: int = 100,
    ) -> Any:
        """Return the last requests that match all given conditions, oldest first, with numbers
        larger than ``since``.
        """
        if not 0 <= limit <= REQUESTS_MAX:
            raise BadArgumentsError(f"limit must be from 0 to {REQUESTS_MAX}, not {limit}")
        found = self._request_log.requests().where(api, client_id=client_id, group_id=group_id, node=node)
        listed = found.after(since)
        return as_json(tuple(listed[max(len(listed) - limit, 0) :]))

    def clear_requests(self) -> None:
        self._request_log.clear()

    async def wait_until_stable(self, group_id: str, members: int | None = None, timeout_s: float = WAIT_S) -> Any:
        return await self._wait(Stable(group_id, members), timeout_s)

    async def wait_until_reading(self, group_id: str, members: int | None = None, timeout_s: float = WAIT_S) -> Any:
        return await self._wait(Reading(group_id, members), timeout_s)

    async def _wait(self, wanted: Wanted[GroupDescription], timeout_s: float) -> Any:
        if not 0 <= timeout_s <= WAIT_MAX_S:
            raise BadArgumentsError(f"timeout_s must be from 0 to {WAIT_MAX_S:g}, not {timeout_s}")
        attempts = Attempts(timeout_s)
        while isinstance(found := wanted.look(self._control.broker), Unmet):
            if make_error := attempts.end(wanted, found):
                raise make_error(self._control.broker)
            await asyncio.sleep(LOOK_AGAIN_S)
        return as_json(found)


def _public_methods(kind: type) -> dict[str, Callable[..., Any]]:
    methods = {name: method for name, method in vars(kind).items() if isfunction(method)}
    return {name: method for name, method in methods.items() if not name.startswith("_") and name not in NOT_SERVED}


COMMANDS, QUERIES = _public_methods(Control), _public_methods(Observer)
"""Every fault and query, by the path of ``POST /fail_next`` …"""

JSON_TYPES = (str, int, float, bool, dict, type(None))


def json_types(annotation: Any) -> list[type]:
    """Return the types of JSON values that a parameter takes."""
    kinds = [get_origin(kind) or kind for kind in get_args(annotation) or (annotation,)]
    kinds = [*([int] if float in kinds else []), *(dict if kind is Mapping else kind for kind in kinds)]
    return [kind for kind in kinds if kind in JSON_TYPES]


class BadArgumentsError(GroupcoordError):
    """The body of a request has invalid arguments."""


Answer = tuple[HTTPStatus, object]
"""Status and JSON value of a response."""


class ControlServer(HttpServer):
    """HTTP server of the control port; port 0 is a free one on the loopback address.

    It answers in the event loop of its creation, which is that of the server under test.
    """

    def __init__(self, control: Control, port: int, request_log: RequestLog) -> None:
        super().__init__(HOST, port, "faults", self._respond)
        self._loop = asyncio.get_running_loop()
        self._control = control
        self._observer = Observer(control, request_log)
        self._rules: dict[int, Rule] = {}
        self._numbers = count(1)

    def _respond(self, request: WSGIEnvironment, start_response: StartResponse) -> list[bytes]:
        try:
            size = max(int(request["CONTENT_LENGTH"] or 0), 0)
            # Closing a socket that holds unread bytes would reset the connection before the response is read.
            body = request["wsgi.input"].read(min(size, DRAINED_BYTES))
            status, value = asyncio.run_coroutine_threadsafe(self._answer(request, body), self._loop).result()
        except TimeoutError as error:
            status, value = _refusal(HTTPStatus.GATEWAY_TIMEOUT, str(error))
        except (GroupcoordError, ValueError, TypeError) as error:
            status, value = _refusal(HTTPStatus.BAD_REQUEST, str(error))
        except Exception:
            logger.exception("a request for faults failed")
            status, value = _refusal(HTTPStatus.INTERNAL_SERVER_ERROR, "the server's log has the reason")
        content = json.dumps(value).encode() + b"\n"
        headers = [("Content-Type", "application/json"), ("Content-Length", str(len(content)))]
        start_response(f"{status.value} {status.phrase}", headers)
        return [content]

    async def _answer(self, request: WSGIEnvironment, body: bytes) -> Answer:
        host, method, path = (request.get(key, "") for key in ("HTTP_HOST", "REQUEST_METHOD", "PATH_INFO"))
        if (host.rpartition(":")[0] or host) not in LOOPBACK_NAMES or "HTTP_ORIGIN" in request:
            message = "only programs on this machine may use the control port, and no browser"
            return _refusal(HTTPStatus.FORBIDDEN, message)
        if len(body) > BODY_BYTES_MAX:
            return _refusal(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, f"a body has at most {BODY_BYTES_MAX} bytes")
        first, _, rest = path.removeprefix("/").partition("/")
        if first == "rules":
            return self._answer_about_rules(method, rest)
        word = COMMANDS.get(first) or QUERIES.get(first)
        if word is None or rest:
            known = ", /".join(["rules", *COMMANDS, *QUERIES])
            return _refusal(HTTPStatus.NOT_FOUND, f"there is no {path}; there are /{known}")
        if method != "POST":
            return _refusal(HTTPStatus.METHOD_NOT_ALLOWED, f"{path} wants POST")
        arguments = _arguments(word, body)
        if word is Control.advance:
            for _ in self._control.advancing(**arguments):
                await asyncio.sleep(0)  # others, and signals, have their turn
            result = None
        else:
            result = word(self._control if first in COMMANDS else self._observer, **arguments)
            if isawaitable(result):
                result = await result
        self._control.flush()
        return HTTPStatus.OK, self._keep(result) if isinstance(result, Rule) else {"result": result}

    def _answer_about_rules(self, method: str, number: str) -> Answer:
        if not number and method == "GET":
            return HTTPStatus.OK, [_described(key, rule) for key, rule in self._rules.items()]
        key = int(number) if number.isascii() and number.isdigit() and len(number) < 10 else 0
        rule = self._rules.get(key)
        if rule is None:
            return _refusal(HTTPStatus.NOT_FOUND, f"there is no rule {number!r}")
        if method == "DELETE":
            self._control.rules.remove(rule)
            self._control.flush()
            del self._rules[key]
        elif method != "GET":
            message = "a rule can be looked at (GET) and removed (DELETE)"
            return _refusal(HTTPStatus.METHOD_NOT_ALLOWED, message)
        return HTTPStatus.OK, _described(key, rule)

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
    try:
        arguments = json.loads(body or b"{}")
    except (ValueError, RecursionError):
        raise BadArgumentsError("the body is no JSON") from None
    if not isinstance(arguments, dict):
        raise BadArgumentsError('the body must be an object, such as {"api": "Heartbeat"}')
    parameters = {name: p for name, p in signature(word).parameters.items() if name != "self"}
    annotations = get_type_hints(word)
    for name, value in arguments.items():
        if name not in parameters:
            raise BadArgumentsError(f"{word.__name__} takes no {name!r}; it takes {', '.join(parameters) or 'nothing'}")
        taken = json_types(annotations[name])
        if type(value) not in taken:
            wanted = " or ".join("null" if kind is type(None) else kind.__name__ for kind in taken)
            raise BadArgumentsError(f"{name} must be {wanted}, not {json.dumps(value)[:100]}")
    missing = [name for name, p in parameters.items() if p.default is Parameter.empty and name not in arguments]
    if missing:
        raise BadArgumentsError(f"{word.__name__} needs {', '.join(missing)}")
    return arguments


def as_json(value: Any) -> Any:
    """Return a message or description as a JSON value: objects by field names, bytes in Base64."""
    if isinstance(value, bytes | bytearray | memoryview):
        return b64encode(value).decode()
    if isinstance(value, Enum):
        return value.name
    if value is None or isinstance(value, bool | int | float | str):
        return value
    names = getattr(value, "_fields", None) or [field.alias for field in getattr(value, "__attrs_attrs__", ())]
    if names:
        return {name: as_json(getattr(value, name)) for name in names if not name.startswith("_")}
    if isinstance(value, Mapping):
        return {str(as_json(key)): as_json(entry) for key, entry in value.items()}
    if isinstance(value, Iterable):
        return [as_json(entry) for entry in value]
    return str(value)


def _described(key: int, rule: Rule) -> dict[str, Any]:
    return {"id": key, "api": rule.api, "count": rule.count, "is_over": rule.is_over}


def _refusal(status: HTTPStatus, message: str) -> Answer:
    return status, {"error": message}
