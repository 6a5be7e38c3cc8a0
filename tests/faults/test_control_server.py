"""Faults over HTTP: the same words with arguments as JSON, for programs of this machine alone."""

from __future__ import annotations

import asyncio
import http.client
import json
from inspect import signature
from typing import Any

import pytest

from groupcoord import Config, MemoryLogStore
from groupcoord.clock import LeapingClock
from groupcoord.core.messages import Node
from groupcoord.errors import ErrorCode
from groupcoord.faults import Control, control_server
from groupcoord.faults.control_server import BODY_BYTES_MAX, TYPES, WORDS, ControlServer
from groupcoord.host.broker import Broker
from groupcoord.host.server import Server
from tests.host.serving import DEADLINE_S, serve
from tests.host.wire_world import HEARTBEAT, wire_frame

DAY_MS = 24 * 3_600_000


class Client:
    """Asks a server for faults, from a thread of its own."""

    def __init__(self, port: int) -> None:
        self.port = port

    def ask(self, method: str, path: str, body: object = None, **headers: str) -> tuple[int, Any]:
        """Return the status and what was answered."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=DEADLINE_S)
        data = body if isinstance(body, bytes) else json.dumps(body).encode() if body is not None else b""
        connection.request(method, path, data, headers)
        answer = connection.getresponse()
        content = answer.read()
        connection.close()
        return answer.status, json.loads(content) if content else None


def test_words_are_said_over_http() -> None:
    """A rule is made, met by a client of ``groupcoord serve``, looked at and removed; time passes."""
    with serve("--control", "0") as serving:
        assert serving.process.stdout is not None
        client = Client(int(serving.process.stdout.readline().rsplit(":", 1)[1]))
        status, rule = client.ask("POST", "/fail_next", {"api": "Heartbeat", "error": "NOT_COORDINATOR", "times": 2})
        assert (status, rule) == (200, {"id": 1, "api": "Heartbeat", "count": 0, "is_over": False})

        answer = serving.ask(wire_frame(12, 4, HEARTBEAT))
        assert int.from_bytes(answer[-3:-1], "big") == ErrorCode.NOT_COORDINATOR

        assert client.ask("GET", "/rules/1") == (200, {"id": 1, "api": "Heartbeat", "count": 1, "is_over": False})
        assert client.ask("DELETE", "/rules/1")[0] == 200
        assert client.ask("GET", "/rules") == (200, [])
        answer = serving.ask(wire_frame(12, 4, HEARTBEAT))
        assert int.from_bytes(answer[-3:-1], "big") == ErrorCode.UNKNOWN_MEMBER_ID
        assert client.ask("POST", "/advance", {"duration_ms": DAY_MS}) == (200, {"result": None})
        assert client.ask("POST", "/drop_connections")[0] == 200
        status, _ = serving.stop()
        assert status == 0


def answers(*asked: tuple[str, str, object, dict[str, str]]) -> list[tuple[int, Any]]:
    """Return what a server in this process says."""

    async def run() -> list[tuple[int, Any]]:
        broker = Broker(config=Config(), clock=LeapingClock(), log_store=MemoryLogStore(), node=Node(1, "127.0.0.1", 0))
        async with Server(broker, port=0) as server, ControlServer(Control(server), 0) as control:
            client = Client(control.port)
            return [
                await asyncio.to_thread(client.ask, method, path, body, **headers)
                for method, path, body, headers in asked
            ]

    return asyncio.run(run())


@pytest.mark.parametrize(
    ("path", "body", "message"),
    [
        ("/fail_next", {"api": "Heartbeat"}, "fail_next needs error"),
        ("/fail_next", {"api": "Hartbeat", "error": "NOT_COORDINATOR"}, "did you mean Heartbeat"),
        ("/fail_next", {"api": "Heartbeat", "error": "NONE"}, "NONE is no error"),
        ("/fail_next", {"api": "Heartbeat", "error": 16}, "error must be str, not 16"),
        ("/hold", {"api": "Heartbeat", "times": True}, "times must be int or null, not true"),
        ("/hold", {"api": "Heartbeat", "where": {"group": "g"}}, "have no 'group'"),
        ("/hold", {"api": "Heartbeat", "for": 1}, "hold takes no 'for'; it takes api, times, where, after"),
        ("/hold", ["Heartbeat"], "the body must be an object"),
        ("/hold", b"{", "the body is no JSON"),
        ("/hold", b"[" * 60_000, "the body is no JSON"),
        ("/delay", {"api": "Heartbeat", "duration_ms": -1}, "time cannot go back"),
        ("/advance", {"duration_ms": 10**18}, "longer than ten years"),
        ("/expire_member", {"group_id": "g", "member_id": "m"}, "has no member 'm'"),
        ("/fail_next_append", {"error": "UNKNOWN_MEMBER_ID"}, "no append fails with UNKNOWN_MEMBER_ID"),
    ],
)
def test_what_can_not_be_done_is_said(path: str, body: object, message: str) -> None:
    """Arguments that are missing, unknown or of another type, and what the words themselves refuse: 400, in words."""
    ((status, answer),) = answers(("POST", path, body, {}))

    assert status == 400
    assert message in answer["error"]


def test_other_requests_are_refused() -> None:
    """Unknown paths, other methods, large bodies, other names of the host and browsers."""
    get = {"api": "Heartbeat"}
    refused = answers(
        ("POST", "/on", get, {}),
        ("POST", "/hold/1", get, {}),
        ("GET", "/hold", None, {}),
        ("PUT", "/rules/1", None, {}),
        ("GET", "/rules/x", None, {}),
        ("POST", "/hold", b" " * (BODY_BYTES_MAX + 1), {}),
        ("POST", "/hold", get, {"Host": "example.org"}),
        ("POST", "/hold", get, {"Origin": "http://127.0.0.1"}),
    )
    assert [status for status, _ in refused] == [404, 404, 405, 404, 404, 413, 403, 403]


def test_rules_can_be_listed_and_not_changed() -> None:
    """A list of the rules that were made; another method than GET and DELETE is refused."""
    asked = answers(
        ("POST", "/hold", {"api": "Heartbeat", "where": {"group_id": "g"}}, {}),
        ("POST", "/drop_next", {"api": "Fetch", "after": True}, {}),
        ("GET", "/rules", None, {}),
        ("PUT", "/rules/2", None, {}),
        ("POST", "/clear", None, {}),
        ("POST", "/held_appends", None, {}),
    )
    assert [status for status, _ in asked] == [200, 200, 200, 405, 200, 200]
    assert [(rule["id"], rule["api"]) for rule in asked[2][1]] == [(1, "Heartbeat"), (2, "Fetch")]
    assert asked[5][1] == {"result": 0}


def test_rules_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """When there are too many, those that are over are forgotten, and none is made while all of them hold."""
    monkeypatch.setattr(control_server, "RULES_KEPT", 1)
    hold = ("POST", "/hold", {"api": "Heartbeat"}, {})
    (_, first), (status, refusal), (_, gone), (_, second) = answers(hold, hold, ("DELETE", "/rules/1", None, {}), hold)

    assert (first["id"], gone["id"], second["id"]) == (1, 1, 2)
    assert (status, refusal) == (400, {"error": "there are 1 rules; remove some"})


def test_every_argument_has_a_type() -> None:
    """Whatever a word takes can be given as JSON."""
    taken = {name for word in WORDS.values() for name in signature(word).parameters} - {"self"}

    assert taken == TYPES.keys()
