"""Connections to a broker without sockets: bytes in and out, requests by kio's schemas, jobs that are late."""

from __future__ import annotations

import struct
from collections import deque
from typing import Any

from groupcoord.broker.broker import Broker
from groupcoord.broker.connection import Connection
from groupcoord.broker.work import Job, do_in_place
from tests.wire.kio_client import read_response, request_frame


def feed(connection: Connection, data: bytes) -> None:
    """Give bytes to a connection, and let everything that was received be handled that can be."""
    connection.receive_data(data)
    connection._broker.handle_waiting()


def drain(connection: Connection) -> bytes:
    """Return all output of a connection, including that of requests held back until earlier output is taken."""
    output = b""
    while taken := connection.take_output():
        output += taken
        connection._broker.handle_waiting()
    return output


def wire_frame(api_key: int, version: int, body: dict[str, Any]) -> bytes:
    """Return a request with its length in front."""
    frame = request_frame(api_key, version, body)
    return struct.pack(">i", len(frame)) + frame


class KioClient:
    """Client on one connection that encodes requests and decodes responses with kio."""

    def __init__(self, connection: Connection) -> None:
        self.connection = connection
        self._sent: deque[tuple[int, int]] = deque()

    def send(self, api_key: int, version: int, body: dict[str, Any]) -> None:
        self._sent.append((api_key, version))
        feed(self.connection, wire_frame(api_key, version, body))

    def receive(self) -> Any:
        """Return the response to the oldest request without its throttle time, or None if there is none yet."""
        output = drain(self.connection)
        if not output:
            return None
        values = read_response(*self._sent.popleft(), output)
        values.pop("throttle_time", None)
        return values

    def ask(self, api_key: int, version: int, body: dict[str, Any]) -> Any:
        self.send(api_key, version, body)
        return self.receive()


class LateJobs:
    """Collects the jobs of a broker and runs each on demand, as a slow thread would."""

    def __init__(self, broker: Broker) -> None:
        self.waiting: deque[Job] = deque()
        broker.start_job = self.waiting.append

    def do_next(self) -> bool:
        if not self.waiting:
            return False
        do_in_place(self.waiting.popleft())
        return True
