"""A make-believe server for tests of the runner: it answers by a table, in virtual time."""

from __future__ import annotations

import dataclasses
import io
import struct
from collections.abc import Callable
from typing import Any

from attrs import evolve
from kio.index import load_request_schema, load_response_schema
from kio.serial import entity_reader, entity_writer

from groupcoord.conformance.entities import API_KEYS, entity_from_plain, plain_from_entity
from groupcoord.conformance.targets import WALL_TIME, ConnectionClosedError, Settings, TargetError

Answer = Callable[[dict[str, Any]], Any]
"""Takes a request's body; returns the response's body, ``(delay_ms, body)``, bytes as they are, or None for none."""

NAMES = {key: name for name, key in API_KEYS.items()}
DEFAULTS: dict[str, Answer] = {
    "ApiVersions": lambda body: {"error_code": "NONE", "api_keys": []},
    "FindCoordinator": lambda body: {
        "coordinators": [
            {"key": key, "node_id": 1, "host": "h", "port": 1, "error_code": "NONE", "error_message": None}
            for key in body["coordinator_keys"]
        ]
    },
    "DescribeGroups": lambda body: {"groups": []},
    "ListGroups": lambda body: {"error_code": "NONE", "groups": []},
}


class ScriptedTarget:
    """Makes :class:`ScriptedServer` objects and remembers them."""

    def __init__(self, *, shared: bool = False, can_restart: bool = True, **answers: Answer) -> None:
        self.own_settings: dict[str, str] | None = None
        self.shared, self.can_restart, self.tolerance = shared, can_restart, evolve(WALL_TIME, late_ms=100)
        self.answers = {**DEFAULTS, **answers}
        self.servers: list[ScriptedServer] = []
        self.refuse_start = False

    def sets(self, key: str) -> bool:
        return self.own_settings is None

    def start(self, settings: Settings) -> ScriptedServer:
        if self.refuse_start:
            raise TargetError("no server today")
        server = ScriptedServer(settings, self.answers)
        self.servers.append(server)
        return server


class ScriptedServer:
    """Answers each request from a table; an API outside the table closes the connection."""

    def __init__(self, settings: Settings, answers: dict[str, Answer]) -> None:
        self.settings, self.answers = dict(settings), answers
        self.time_ms = 0.0
        self.restarts = 0
        self.is_stopped = False

    def connect(self) -> ScriptedStream:
        return ScriptedStream(self)

    def now_ms(self) -> float:
        return self.time_ms

    def wall_ms(self) -> float:
        return self.time_ms

    def sleep(self, duration_ms: float) -> None:
        self.time_ms += duration_ms

    def restart(self) -> None:
        self.restarts += 1

    def stop(self) -> None:
        self.is_stopped = True


class ScriptedStream:
    """A connection to the make-believe server."""

    def __init__(self, server: ScriptedServer) -> None:
        self.server = server
        self.output: list[tuple[float, bytes]] = []
        self.is_closed = False

    def send(self, data: bytes) -> None:
        key, version, correlation_id = struct.unpack_from(">hhi", data, 4)
        request_class = load_request_schema(key, version)
        _, offset = entity_reader(request_class.__header_schema__)(data, 4)
        request, _ = entity_reader(request_class)(data, 4 + offset)
        answer = self.server.answers.get(NAMES[key])
        if answer is None:
            self.is_closed = True
            return
        body = answer(plain_from_entity(request))
        delay_ms, body = body if isinstance(body, tuple) else (0, body)
        if body is not None:
            frame = body if isinstance(body, bytes) else response_frame(key, version, correlation_id, body)
            self.output.append((self.server.time_ms + delay_ms, frame))

    def receive(self, timeout_ms: float) -> bytes:
        if self.is_closed:
            raise ConnectionClosedError("the server hung up")
        end_ms = self.server.time_ms + timeout_ms
        if self.output and self.output[0][0] <= end_ms:
            due_ms, frame = self.output.pop(0)
            self.server.time_ms = max(self.server.time_ms, due_ms)
            return frame
        self.server.time_ms = end_ms
        return b""

    def close(self) -> None:
        """Nothing to do."""


def response_frame(key: int, version: int, correlation_id: int, body: dict[str, Any]) -> bytes:
    """Return a response's bytes with the length in front; fields left out take their defaults."""
    response_class: Any = load_response_schema(key, version)
    if "throttle_time" in {field.name for field in dataclasses.fields(response_class)}:
        body = {"throttle_time": 0, **body}
    buffer = io.BytesIO()
    header_class = response_class.__header_schema__
    entity_writer(header_class)(buffer, header_class(correlation_id=correlation_id))
    entity_writer(response_class)(buffer, entity_from_plain(response_class, body))
    return struct.pack(">i", len(buffer.getvalue())) + buffer.getvalue()
