"""Bytes that are no request, sent to a real ``groupcoord serve``: each is logged in one line, and other clients are
served.
"""

from __future__ import annotations

import random
import re
import socket
import struct
from collections.abc import Iterator

import pytest

from groupcoord.broker.log_lines import BURST
from tests.broker.kafka_bytes import array, blob, correlation_ids, frame, heartbeat, string
from tests.host.serving import DEADLINE_S, Serving, serve
from tests.wire.kio_client import request_frame
from tests.wire.sample_requests import BODIES

ABSURD = struct.pack(">i", 2**31 - 1)
COMPACT_ABSURD = b"\xff\xff\xff\xff\x07"
JOIN = request_frame(11, 9, BODIES[11])


def flexible(api_key: int, version: int, body: bytes) -> bytes:
    return frame(api_key, version, 1, b"\x00" + body)


CLOSED = {
    "cut inside the body": (blob(JOIN[:-20]), "JoinGroup version 9"),
    "empty": (blob(b""), "a request header of 0 bytes is cut short"),
    "cut inside the header": (blob(b"\x00\x0c\x00"), "cut short"),
    "larger than the limit": (struct.pack(">i", 104_857_601), "larger than socket.request.max.bytes (104857600)"),
    "largest length": (ABSURD, "larger than socket.request.max.bytes"),
    "negative length": (struct.pack(">i", -2), "negative size"),
    "unknown API": (frame(999, 0, 1, b""), "API key 999 is not served"),
    "negative API": (frame(-1, 0, 1, b""), "API key -1 is not served"),
    "an API of brokers": (frame(4, 0, 1, b""), "API key 4 (LeaderAndIsr) is not served"),
    "newer version": (frame(12, 5, 1, b""), "Heartbeat of version 5 is not served: 0 to 4 are"),
    "negative version": (frame(12, -1, 1, b""), "Heartbeat of version -1 is not served"),
    "removed version": (frame(8, 1, 1, b""), "OffsetCommit of version 1 is not served: 2 to 10 are"),
    "absurd client id": (blob(struct.pack(">hhih", 12, 0, 1, 32_767)), "client id claims 32767 bytes"),
    "absurd string": (frame(12, 0, 1, b"\x7f\xff"), "a string claims 32767 bytes"),
    "absurd compact string": (flexible(12, 4, COMPACT_ABSURD), "a string claims"),
    "absurd bytes": (
        frame(14, 0, 1, string("g") + bytes(4) + string("") + array([b""])[:4] + string("m") + ABSURD),
        "claimed",
    ),
    "absurd array": (frame(3, 1, 1, ABSURD), "an array claims 2147483647 entries"),
    "absurd compact array": (flexible(15, 5, COMPACT_ABSURD), "an array claims"),
    "absurd inner array": (
        frame(9, 1, 1, string("g") + array([string("t") + ABSURD])),
        "an array claims 2147483647 entries",
    ),
    "absurd tagged field": (flexible(12, 4, b"\x02g" + bytes(4) + b"\x02m\x00\x01\x05" + COMPACT_ABSURD), "claimed"),
    "absurd number of tagged fields": (
        flexible(12, 4, b"\x02g" + bytes(4) + b"\x02m\x00" + COMPACT_ABSURD),
        "Heartbeat",
    ),
    "null group": (frame(12, 0, 1, b"\xff\xff" + bytes(8)), "a string is null that may not be"),
    "an echo that grows too long": (
        flexible(10, 4, b"\x00\x02" + b"\xa1\x9c\x01" + b"\xff" * 20_000 + b"\x00"),
        "60000 bytes",
    ),
    "TLS": (bytes.fromhex("16030100c8010000c4"), "the peer speaks TLS"),
    "HTTP": (b"GET /metrics HTTP/1.1\r\n\r\n", "the peer speaks HTTP"),
}
"""What is sent, and what the log line must say."""


class Bystander:
    """A connection that asks something after each piece of mischief."""

    def __init__(self, sock: socket.socket) -> None:
        self._socket = sock
        self._count = 0

    def check(self) -> None:
        self._count += 1
        self._socket.sendall(heartbeat(self._count))
        assert correlation_ids(self._socket.recv(100)) == [self._count]


def mischief(server: Serving, data: bytes) -> bytes:
    """Send bytes, and no more; return what comes back until the server closes the connection."""
    with socket.create_connection(("127.0.0.1", server.port), timeout=DEADLINE_S) as sock:
        sock.sendall(data)
        sock.shutdown(socket.SHUT_WR)
        received = b""
        while part := sock.recv(10_000):
            received += part
        return received


@pytest.fixture
def server() -> Iterator[Serving]:
    with serve() as server:
        yield server


@pytest.fixture
def bystander(server: Serving) -> Iterator[Bystander]:
    with socket.create_connection(("127.0.0.1", server.port), timeout=DEADLINE_S) as sock:
        yield Bystander(sock)


def test_each_costs_its_own_connection_only(server: Serving, bystander: Bystander) -> None:
    """It is logged in one line without a traceback, or counted; other connections are served."""
    for data, _ in CLOSED.values():
        assert mischief(server, data) == b""
        bystander.check()
    status, errors = server.stop()
    lines = errors.splitlines()
    assert status == 0
    reasons = [reason for _, reason in CLOSED.values()]
    assert len(lines) < len(reasons)
    assert all(" WARNING groupcoord.host: closed the connection of 127.0.0.1:" in line for line in lines), errors
    assert all(reason in line for line, reason in zip(lines[:BURST], reasons[:BURST], strict=True)), errors
    told = sum(int(found[1]) - 1 if (found := re.search(r"the last of (\d+) line", line)) else 1 for line in lines)
    assert told + sum("left out" in line for line in lines) == len(reasons), errors


def test_what_is_strange_but_answered(server: Serving, bystander: Bystander) -> None:
    """Malformed UTF-8 is read as in Java, an unknown ApiVersions gets the supported ones, an interrupted request is
    dropped; no line is logged.
    """
    bad_text = frame(12, 0, 7, struct.pack(">h", 2) + b"\xc3\x28" + bytes(4) + struct.pack(">h", 1) + b"\xff")
    assert mischief(server, bad_text)[4:] == struct.pack(">ih", 7, 25)
    unknown_version = flexible(18, 99, b"\xff" * 30)
    assert mischief(server, unknown_version)[4:] == struct.pack(">ihihhh", 1, 35, 1, 18, 0, 5)
    for length in range(1, len(JOIN), 7):
        assert mischief(server, blob(JOIN)[:length]) == b""
        bystander.check()
    assert server.stop() == (0, "")


def test_random_bytes(server: Serving, bystander: Bystander) -> None:
    """Noise, in frames of the right length and behind good headers, never makes a traceback."""
    noise = random.Random(848)
    for number in range(150):
        body = noise.randbytes(noise.randrange(60))
        header = struct.pack(">hhih", noise.choice([1, 3, 8, 9, 11, 13, 14, 15]), noise.randrange(10), number, 0)
        mischief(server, blob(body if number % 3 == 0 else header + body))
        bystander.check()
    status, errors = server.stop()
    assert status == 0
    assert "Traceback" not in errors
    assert all("closed the connection of" in line for line in errors.splitlines())
