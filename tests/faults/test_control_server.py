"""Faults over HTTP: the same words with arguments as JSON, for programs of this machine alone."""

from __future__ import annotations

import asyncio
import http.client
import json
import re
import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any, get_type_hints

import pytest

from groupcoord import Config
from groupcoord.clock import LeapingClock
from groupcoord.conformance.sockets import FreePorts
from groupcoord.errors import ErrorCode
from groupcoord.testing.asserting.requests import ObservedBroker, RequestLog
from groupcoord.testing.faults import control_server
from groupcoord.testing.faults.control_server import BODY_BYTES_MAX, COMMANDS, QUERIES, ControlServer, json_types
from groupcoord.testing.server import NodesUnderTest
from tests.broker.driving import wire_frame
from tests.broker.wire_world import HEARTBEAT
from tests.host.serving import DEADLINE_S, Serving, serve
from tests.tables import as_one_test

DAY_MS = 24 * 3_600_000


class ControlClient:
    """Client of the control port, in a thread of its own."""

    def __init__(self, port: int) -> None:
        self.port = port

    def ask(self, method: str, path: str, body: object = None, **headers: str) -> tuple[int, Any]:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=DEADLINE_S)
        data = body if isinstance(body, bytes) else json.dumps(body).encode() if body is not None else b""
        connection.request(method, path, data, headers)
        answer = connection.getresponse()
        content = answer.read()
        connection.close()
        return answer.status, json.loads(content) if content else None

    def result(self, word: str, **arguments: object) -> Any:
        status, answer = self.ask("POST", f"/{word}", arguments)
        assert status == 200, answer
        return answer["result"]


@contextmanager
def serve_with_control(*options: str) -> Iterator[tuple[Serving, ControlClient]]:
    with serve("--control", "0", *options) as serving:
        assert serving.process.stdout is not None
        yield serving, ControlClient(int(serving.process.stdout.readline().rsplit(":", 1)[1]))


def error_code(serving: Serving) -> int:
    return int.from_bytes(serving.ask(wire_frame(12, 4, HEARTBEAT))[-3:-1], "big")


def test_words_are_said_over_http() -> None:
    """A rule is made, met by a client of ``groupcoord serve``, looked at and removed; time passes."""
    with serve_with_control() as (serving, client):
        status, rule = client.ask("POST", "/fail_next", {"api": "Heartbeat", "error": "NOT_COORDINATOR", "times": 2})
        assert (status, rule) == (200, {"id": 1, "api": "Heartbeat", "count": 0, "is_over": False})

        assert error_code(serving) == ErrorCode.NOT_COORDINATOR

        assert client.ask("GET", "/rules/1") == (200, {"id": 1, "api": "Heartbeat", "count": 1, "is_over": False})
        assert client.ask("DELETE", "/rules/1")[0] == 200
        assert client.ask("GET", "/rules") == (200, [])
        assert error_code(serving) == ErrorCode.UNKNOWN_MEMBER_ID
        assert client.ask("POST", "/advance", {"duration_ms": DAY_MS}) == (200, {"result": None})
        assert client.ask("POST", "/drop_connections")[0] == 200
        status, _ = serving.stop()
        assert status == 0


def test_groups_and_requests_are_asked_for_over_http() -> None:
    """Another process waits for a group of ``groupcoord serve``; members, offsets and requests are JSON."""
    confluent_kafka = pytest.importorskip("confluent_kafka")
    with serve_with_control("--topic", "orders:1") as (serving, client):
        settings = {"bootstrap.servers": f"127.0.0.1:{serving.port}", "group.id": "billing", "client.id": "worker"}
        consumer = confluent_kafka.Consumer({**settings, "group.protocol": "consumer"})
        consumer.subscribe(["orders"])
        while not consumer.assignment():
            consumer.poll(0.05)
        found = client.result("wait_until_stable", group_id="billing", members=1, timeout_s=DEADLINE_S)
        assert client.result("wait_until_reading", group_id="billing", timeout_s=DEADLINE_S) == found
        offset = confluent_kafka.TopicPartition("orders", 0, 42)
        consumer.commit(offsets=[offset], asynchronous=False)

        assert client.result("groups") == [found]
        assert client.result("group", group_id="billing") == found
        assert client.result("group", group_id="nosuch") is None
        (member,) = found["members"]
        assert (found["state"], member["client_id"]) == ("Stable", "worker")
        assert member["assignment"] == [{"topic": "orders", "partition": 0}]
        (committed,) = client.result("committed", group_id="billing")
        assert (committed["topic"], committed["partition"], committed["offset"]) == ("orders", 0, 42)
        (commit,) = client.result("requests", api="OffsetCommit", client_id="worker", group_id="billing")
        assert commit["message"]["topics"][0]["partitions"][0]["committed_offset"] == 42
        assert commit["answer"]["topics"][0]["partitions"][0]["error_code"] == "NONE"
        assert client.result("requests", since=commit["number"] - 1, limit=1000)[0] == commit
        assert len(client.result("requests", limit=2)) == 2
        client.result("clear_requests")
        assert client.result("requests", api="OffsetCommit") == []
        status, late = client.ask("POST", "/wait_until_stable", {"group_id": "biling", "timeout_s": 0.01})
        assert (status, late["error"]) == (
            504,
            "group 'biling' is not stable after 0.01 s: "
            "there is no group 'biling'; did you mean 'billing'? (groups: 'billing')",
        )
        consumer.close()


def test_others_have_their_turn_while_ten_years_pass() -> None:
    """Clients and the control port are answered meanwhile, and SIGTERM ends the server."""
    with serve_with_control() as (serving, client), socket.create_connection(("127.0.0.1", client.port)) as passing:
        body = json.dumps({"duration_ms": 3_650 * DAY_MS})
        passing.sendall(
            f"POST /advance HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: {len(body)}\r\n\r\n{body}".encode()
        )
        assert client.ask("GET", "/rules") == (200, [])
        assert error_code(serving) == ErrorCode.UNKNOWN_MEMBER_ID
        status, _ = serving.stop()
        assert status == 0
        assert passing.recv(1) == b""


def test_a_server_dies_and_comes_back_over_http(tmp_path: Path) -> None:
    """/crash closes the port, /restart opens it again, with the state on disk."""
    with serve_with_control("--data-dir", str(tmp_path), "--topic", "orders:1") as (serving, client):
        assert client.ask("POST", "/crash") == (200, {"result": None})
        with pytest.raises(ConnectionRefusedError):
            serving.ask(wire_frame(12, 4, HEARTBEAT))
        assert client.ask("POST", "/leader", {"topic": "orders"}) == (
            400,
            {"error": "no node runs: all have crashed; restart() them"},
        )

        assert client.ask("POST", "/restart") == (200, {"result": None})
        wait_until_listening(serving.port)
        assert error_code(serving) == ErrorCode.UNKNOWN_MEMBER_ID
        assert client.ask("POST", "/leader", {"topic": "orders"}) == (200, {"result": 1})
        assert serving.stop() == (0, "")


def test_nodes_fail_and_leaders_move_over_http() -> None:
    """``serve --nodes 3``: each node has a port; leaders and coordinators move, and a node dies and comes back."""
    with serve_with_control("--nodes", "3", "--topic", "orders:1") as (serving, client):
        ports = [int(port) for port in re.findall(r"127.0.0.1:(\d+)", serving.line)]
        assert len(set(ports)) == 3

        assert client.result("leader", topic="orders") == 1
        assert (
            client.result("move_leader", topic="orders", to=3)
            == client.result("leader", topic="orders", partition=0)
            == 3
        )
        coordinator = client.result("coordinator", group_id="g")
        assert (
            client.result("move_coordinator", group_id="g") == client.result("coordinator", group_id="g") != coordinator
        )
        moved = client.result("move_transaction_coordinator", transactional_id="tx")
        assert moved == client.result("transaction_coordinator", transactional_id="tx")
        client.result("crash", node=3)
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection(("127.0.0.1", ports[2]), DEADLINE_S)
        assert client.result("leader", topic="orders") == 1
        client.result("restart", node=3)
        wait_until_listening(ports[2])
        assert client.ask("POST", "/crash", {"node": 7}) == (400, {"error": "there is no node 7; there are 1, 2, 3"})
        assert serving.stop() == (0, "")


def test_nodes_have_consecutive_ports() -> None:
    """With a given port the first node has it, and the others the following ones; likewise for advertised ports."""
    ports = FreePorts()
    with serve("--port", str(ports.first), "--nodes", "2", "--advertised-port", "7000") as serving:
        assert f"127.0.0.1:{ports.first}, 127.0.0.1:{ports.first + 1}" in serving.line
        found = serving.ask(wire_frame(10, 3, {"key": "g", "key_type": 0}))
        assert int.from_bytes(found[-5:-1], "big") in (7000, 7001)
    ports.give_back()


def wait_until_listening(port: int) -> None:
    deadline_s = time.monotonic() + DEADLINE_S
    while time.monotonic() < deadline_s:
        try:
            socket.create_connection(("127.0.0.1", port), DEADLINE_S).close()
        except ConnectionRefusedError:
            time.sleep(0.01)
        else:
            return
    raise TimeoutError(f"nobody listens on {port}")


def answers(*asked: tuple[str, str, object, dict[str, str]]) -> list[tuple[int, Any]]:
    async def run() -> list[tuple[int, Any]]:
        request_log = RequestLog(LeapingClock().now_ms)
        new_broker = partial(ObservedBroker, request_log=request_log)
        cluster = NodesUnderTest(Config(), {}, None, LeapingClock(), range(1, 2), {}, {}, None, new_broker)
        await cluster.start()
        with ControlServer(cluster.control, 0, request_log) as control:
            client = ControlClient(control.server_port)
            answered = [
                await asyncio.to_thread(client.ask, method, path, body, **headers)
                for method, path, body, headers in asked
            ]
        await cluster.stop(is_final=True)
        return answered

    return asyncio.run(run())


@as_one_test
@pytest.mark.parametrize(
    ("path", "body", "message"),
    [
        ("/fail_next", {"api": "Heartbeat"}, "fail_next needs error"),
        ("/fail_next", {"api": "Hartbeat", "error": "NOT_COORDINATOR"}, "did you mean 'Heartbeat'"),
        ("/fail_next", {"api": "Heartbeat", "error": "NONE"}, "NONE is no error"),
        ("/fail_next", {"api": "Heartbeat", "error": 4711}, "there is no error 4711"),
        ("/hold", {"api": "Heartbeat", "times": True}, "times must be int or null, not true"),
        ("/fail_next", {"api": "Heartbeat", "error": None}, "error must be str or int, not null"),
        ("/wait_until_stable", {"group_id": "g", "timeout_s": "1"}, "timeout_s must be int or float"),
        ("/hold", {"api": "Heartbeat", "where": {"group": "g"}}, "have no 'group'"),
        ("/hold", {"api": "Heartbeat", "for": 1}, "hold takes no 'for'; it takes api, times, where, after, node"),
        ("/hold", ["Heartbeat"], "the body must be an object"),
        ("/hold", b"{", "the body is no JSON"),
        ("/hold", b"[" * 60_000, "the body is no JSON"),
        ("/delay", {"api": "Heartbeat", "duration_ms": -1}, "the duration must not be negative"),
        ("/advance", {"duration_ms": 10**18}, "at most ten years"),
        ("/requests", {"api": "OffsetComit"}, "did you mean 'OffsetCommit'"),
        ("/requests", {"limit": 10**9}, "limit must be from 0 to 1000"),
        ("/wait_until_stable", {"group_id": "g", "timeout_s": 1e9}, "timeout_s must be from 0 to 600"),
        ("/wait_until_stable", {"members": 1}, "wait_until_stable needs group_id"),
        ("/fail_next_append", {"times": 10**9}, "no more than 10000 appends can be made to fail"),
        ("/expire_member", {"group_id": "g", "member_id": "m"}, "there is no group 'g' (groups: none)"),
        ("/fail_next_append", {"error": "UNKNOWN_MEMBER_ID"}, "no append fails with UNKNOWN_MEMBER_ID"),
    ],
)
def test_what_can_not_be_done_is_said(path: str, body: object, message: str) -> None:
    """Missing, unknown and mistyped arguments, and refused ones: status 400 with the reason."""
    ((status, answer),) = answers(("POST", path, body, {}))

    assert status == 400
    assert message in answer["error"]


def test_a_log_has_no_faults_while_no_node_runs() -> None:
    """Faults would be lost at the restart of the server: status 400 with the reason."""
    words = (("/hold_appends", {}), ("/fail_next_append", {"error": "NOT_ENOUGH_REPLICAS"}))
    _, *refused = answers(("POST", "/crash", {}, {}), *(("POST", path, body, {}) for path, body in words))

    assert refused == [(400, {"error": "no node runs: all have crashed; restart() them"})] * 2


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
    for word in (*COMMANDS.values(), *QUERIES.values()):
        taken = get_type_hints(word)
        assert all(json_types(kind) for name, kind in taken.items() if name != "return"), word
