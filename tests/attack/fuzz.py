"""Fuzzing: mutated requests of every API and version, on many connections at a time.

Each conversation has a number, and follows from it and the seed: frames, how they are divided into packets, and how it
ends. Whatever is sent, each request must be answered, in order, or its connection closed; only requests that wait for
others may stay without an answer. Now and then an answer is read field by field with kio's own reader.
"""

from __future__ import annotations

import contextlib
import random
import selectors
import socket
import struct
import time
from collections.abc import Callable, Iterator
from typing import NamedTuple

from kio.serial.errors import OutOfBoundValue, SerialError

from tests.attack.layouts import Layout, every_layout
from tests.attack.mutations import WAITING, Mutator
from tests.attack.rig import Attack, Result, Server
from tests.client import join_group
from tests.wire.kio_client import NOT_IN_KIO, VERSIONS, read_response

ROUND_FRAMES = 100_000
"""After so many a round is over: everything is checked, and the next one has a server of its own."""
CONVERSATIONS_AT_A_TIME = 24
FRAMES_AT_A_TIME = (1, 2, 4, 8, 16, 32)
QUIET_S = 0.03
ANSWER_TIMEOUT_S = 20.0
READ_EVERY = 50
RECEIVE_BYTES = 262_144
PRODUCE = 0
SIZE_MAX = 104_857_600
KNOWN_GROUPS = 4

_header = struct.Struct(">hhi")


class Sent(NamedTuple):
    """A request that a server must answer."""

    api_key: int
    version: int
    correlation_id: int


def expected_of(data: bytes) -> list[Sent]:
    """Return the requests in a stream of bytes, as far as a server can separate them."""
    found = []
    position = 0
    while position + 4 <= len(data):
        size = int.from_bytes(data[position : position + 4], "big", signed=True)
        if not 0 <= size <= SIZE_MAX or position + 4 + size > len(data):
            break
        frame = data[position + 4 : position + 4 + size]
        if len(frame) < _header.size:
            break
        found.append(Sent(*_header.unpack_from(frame)))
        position += 4 + size
    return found


class FuzzFaultError(AssertionError):
    """A server did what it must not do."""


class Conversation:
    """One connection: what is sent, and what has come back."""

    def __init__(self, number: int, seed: int, make: Callable[[random.Random], Mutator]) -> None:
        chance = random.Random(seed << 32 | number)
        mutator = make(chance)
        self.number = number
        last = chance.choice(FRAMES_AT_A_TIME) - 1
        # The first that is refused, or waits, keeps those behind it from being read: let it be the last.
        requests = [mutator.request(place, is_gentle=True) for place in range(last)]
        self.data = b"".join((*requests, mutator.request(last)))
        self.expected = expected_of(self.data)
        self.answered = 0
        self.read_count = 0
        self.last_s = 0.0
        self.is_sent = False
        self.is_closed_by_server = False
        #: How it ends: with all answers, after half of the connection is closed, or at once.
        self.ending = chance.choices(("answers", "half", "reset"), (85, 10, 5))[0]
        self._packets = self._divided(chance)
        self._buffer = bytearray()

    def _divided(self, chance: random.Random) -> Iterator[bytes]:
        data = self.data
        kind = chance.random()
        if kind < 0.85 or len(data) < 2:
            return iter([data])
        if kind < 0.98 or len(data) > 300:
            cuts = sorted(chance.randrange(1, len(data)) for _ in range(chance.choice((1, 2, 5))))
            return (data[start:end] for start, end in zip([0, *cuts], [*cuts, len(data)], strict=True))
        return (data[place : place + 1] for place in range(len(data)))

    def send_some(self, sock: socket.socket) -> None:
        packet = next(self._packets, None)
        if packet is None:
            self.is_sent = True
            if self.ending == "half":
                with contextlib.suppress(OSError):  # the server may have closed the connection
                    sock.shutdown(socket.SHUT_WR)
            return
        sent = sock.send(packet)
        if sent < len(packet):
            self._packets = iter([packet[sent:], *self._packets])

    @property
    def is_over(self) -> bool:
        """Everything is answered that can be, or the server has closed the connection."""
        return self.is_closed_by_server or (self.is_sent and self.answered >= len(self.expected))

    @property
    def may_wait(self) -> bool:
        """The first request without an answer may wait for others, or want none."""
        return self.answered < len(self.expected) and self.expected[self.answered].api_key in (*WAITING, PRODUCE)

    @property
    def reached(self) -> int:
        return min(self.answered + (self.answered < len(self.expected)), len(self.expected))

    def take(self, part: bytes) -> None:
        buffer = self._buffer
        buffer += part
        while len(buffer) >= 8:
            size = int.from_bytes(buffer[:4], "big", signed=True)
            if size < 4:
                raise FuzzFaultError(f"an answer of {size} bytes")
            if len(buffer) < 4 + size:
                return
            is_looked_at = (self.number + self.answered) % READ_EVERY == 0
            self._check(bytes(buffer[: 4 + size]), is_looked_at)
            del buffer[: 4 + size]

    def _check(self, answer: bytes, is_looked_at: bool) -> None:
        correlation_id = int.from_bytes(answer[4:8], "big", signed=True)
        while self.answered < len(self.expected):
            sent = self.expected[self.answered]
            self.answered += 1
            if sent.correlation_id == correlation_id:
                break
            if sent.api_key != PRODUCE:
                raise FuzzFaultError(f"{sent} was answered with correlation id {correlation_id}")
        else:
            raise FuzzFaultError(f"an answer with correlation id {correlation_id} to nothing")
        if not is_looked_at:
            return
        first, last = VERSIONS.get(sent.api_key, (0, -1))
        if first <= sent.version <= last and (sent.api_key, sent.version) not in NOT_IN_KIO:
            with contextlib.suppress(OutOfBoundValue):  # kio's reader takes no negative time; an echo may be one
                read_response(sent.api_key, sent.version, answer, correlation_id)
                self.read_count += 1


class Fuzzer:
    """Holds many conversations with one server.

    Args:
        port: of the server.
        seed: what the conversations follow from.
        layouts: the requests to start from.
        names: ids that the server gave, for mutated requests to name.
    """

    def __init__(self, port: int, seed: int, layouts: list[Layout], names: list[bytes]) -> None:
        self.frame_count = self.sent_count = self.conversation_count = self.closed_count = self.read_count = 0
        self._port = port
        self._seed = seed
        self._mutator = Mutator(layouts, random.Random(0), names)
        self._selector = selectors.DefaultSelector()
        self._number = 0

    def run(self, frames: int, only: int | None = None) -> None:
        """Send frames until the server has read a number of them, or one conversation only. Raises: FuzzFaultError: a
        response is missing or wrong. The message names the conversation.
        """
        if only is not None:
            self._begin(only)
        while True:
            while only is None and self.frame_count < frames and self._open_count < CONVERSATIONS_AT_A_TIME:
                self._begin(self._number)
                self._number += 1
            if not self._open_count:
                return
            for key, events in self._selector.select(QUIET_S):
                assert isinstance(key.fileobj, socket.socket)
                self._serve(key.fileobj, key.data, events)
            self._look_at_the_time()

    @property
    def _open_count(self) -> int:
        return len(self._selector.get_map())

    def _make(self, chance: random.Random) -> Mutator:
        self._mutator.reseed(chance)
        return self._mutator

    def _begin(self, number: int) -> None:
        conversation = Conversation(number, self._seed, self._make)
        sock = socket.create_connection(("127.0.0.1", self._port), ANSWER_TIMEOUT_S)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        sock.setblocking(False)
        conversation.last_s = time.monotonic()
        self._selector.register(sock, selectors.EVENT_READ | selectors.EVENT_WRITE, conversation)

    def _serve(self, sock: socket.socket, conversation: Conversation, events: int) -> None:
        try:
            if events & selectors.EVENT_WRITE:
                conversation.send_some(sock)
                if conversation.is_sent:
                    self._selector.modify(sock, selectors.EVENT_READ, conversation)
            if events & selectors.EVENT_READ:
                part = sock.recv(RECEIVE_BYTES)
                conversation.last_s = time.monotonic()
                if part:
                    conversation.take(part)
                else:
                    conversation.is_closed_by_server = True
        except (ConnectionError, BlockingIOError) as error:
            conversation.is_closed_by_server = isinstance(error, ConnectionError)
        except (AssertionError, ValueError, SerialError, struct.error) as error:
            raise FuzzFaultError(
                f"conversation {conversation.number}, request {conversation.answered}: "
                f"{type(error).__name__}: {error}; sent {conversation.data[:4_000].hex()}"
            ) from error
        if conversation.is_over or (conversation.is_sent and conversation.ending == "reset"):
            self._finish(sock, conversation)

    def _look_at_the_time(self) -> None:
        now_s = time.monotonic()
        for key in list(self._selector.get_map().values()):
            conversation = key.data
            quiet_s = now_s - conversation.last_s
            assert isinstance(key.fileobj, socket.socket)
            if quiet_s > QUIET_S and conversation.is_sent and conversation.may_wait:
                self._finish(key.fileobj, conversation)
            elif quiet_s > ANSWER_TIMEOUT_S:
                waiting = conversation.expected[conversation.answered : conversation.answered + 1]
                raise FuzzFaultError(
                    f"conversation {conversation.number}: {waiting} was not answered in {quiet_s:.0f} s; "
                    f"sent {conversation.data[:4_000].hex()}"
                )

    def _finish(self, sock: socket.socket, conversation: Conversation) -> None:
        self._selector.unregister(sock)
        if conversation.ending == "reset" and not conversation.is_closed_by_server:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        sock.close()
        self.conversation_count += 1
        self.closed_count += conversation.is_closed_by_server
        self.sent_count += len(conversation.expected)
        self.frame_count += conversation.reached
        self.read_count += conversation.read_count


def fuzz(frames: int, seed: int, conversation: int | None = None) -> Attack:
    layouts = every_layout()

    def act(server: Server, result: Result) -> None:
        result.again = f"--frames {frames} --seed {seed}"
        fuzzer = Fuzzer(server.port, seed, layouts, _join(server))
        try:
            fuzzer.run(frames, conversation)
        except FuzzFaultError as error:
            result.fault(str(error))
        result.count("frames", fuzzer.frame_count)
        result.count("connections", fuzzer.conversation_count)
        result.count("closed by the server", fuzzer.closed_count)
        result.count("answers read field by field", fuzzer.read_count)

    return Attack(f"seed {seed}", act)


def _join(server: Server) -> list[bytes]:
    """Join some groups; return the ids of the members, for mutated requests to name."""
    member_ids = []
    with server.connect() as client:
        for number in range(KNOWN_GROUPS):
            group_id = f"group-{number}"
            member_ids.append(client.ask(join_group(group_id))["member_id"])
            client.ask(join_group(group_id, member_ids[-1]))
    return [member_id.encode() for member_id in member_ids]
